//! The functions of a Go program, as its own runtime knows them: the table `runtime.pclntab`, which no `strip` takes away.
//!
//! Its layout is what Go's linker writes (`cmd/link/internal/ld/pcln.go`) and its runtime and tools read (`runtime/symtab.go`,
//! `runtime/runtime2.go`, `debug/gosym/pclntab.go`): that of Go 1.2, 1.16, 1.18 and 1.20, each with a magic number of its own.
//! Only little-endian files are read.
//!
//! The table is read where it lies, entry by entry, and nothing of it is believed to be where it says before that is looked at.

mod address;
mod layout;

use object::Endianness;
use object::read::elf::{ElfFile, FileHeader};

use layout::Layout;

/// Bits of [`GoFunction::flags`] that Go writes since 1.17; before, none is set.
pub mod flags {
    /// Nothing called it: a stack ends there, and is whole (`abi.FuncFlagTopFrame`).
    pub const TOP_FRAME: u8 = 1;
    /// It changes the stack pointer by more than a constant: what called it is not found by its frame (`abi.FuncFlagSPWrite`).
    pub const SP_WRITE: u8 = 2;
}

/// Functions looked at of one table; large programs have some hundred thousand.
const MOST: usize = 1 << 20;

/// The functions of one ELF image.
#[derive(Debug, Clone, Copy)]
pub struct GoFunctions<'d> {
    layout: Layout<'d>,
    /// Address that entries of the table count from; 0 where they are addresses.
    text: u64,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoFunction {
    /// Address in the image.
    pub start: u64,
    /// Where the next one begins, or the code of Go ends. Behind the function there may be padding, and code of other languages.
    pub next: u64,
    /// [`flags`].
    pub flags: u8,
    /// Where its description is in the table.
    description: usize,
}

impl<'d> GoFunctions<'d> {
    /// Those of an ELF image; `None` when it has none, or where its code is cannot be told for sure.
    pub fn of(image: &'d [u8]) -> Option<GoFunctions<'d>> {
        match object::File::parse(image).ok()? {
            object::File::Elf64(elf) => GoFunctions::of_elf(&elf, image),
            object::File::Elf32(elf) => GoFunctions::of_elf(&elf, image),
            _ => None,
        }
    }

    fn of_elf<Elf: FileHeader<Endian = Endianness>>(
        elf: &ElfFile<'d, Elf, &'d [u8]>,
        image: &'d [u8],
    ) -> Option<GoFunctions<'d>> {
        if elf.endian() != Endianness::Little {
            return None;
        }
        let (layout, address) = address::table(elf)?;
        let code = address::Code::of(elf, image);
        address::texts(elf, image, &layout, address)
            .into_iter()
            .map(|text| GoFunctions { layout, text })
            .find(|functions| code.holds(functions))
    }

    /// How many there are; the last may be cut off.
    fn count(&self) -> usize {
        self.layout.count.min(MOST)
    }

    /// All of them, in the order of the table, which is that of their addresses. It ends where the table cannot be read, and
    /// leaves out what can be no function.
    pub fn iter(&self) -> impl Iterator<Item = GoFunction> + use<'d> {
        let functions = *self;
        let all = (0..self.count()).map_while(move |number| functions.at(number));
        all.filter(|function| function.start < function.next)
    }

    fn at(&self, number: usize) -> Option<GoFunction> {
        let (start, description) = self.layout.entry(number)?;
        let next = self.layout.start(number.checked_add(1)?)?;
        Some(GoFunction {
            start: self.text.checked_add(start)?,
            next: self.text.checked_add(next)?,
            flags: self.layout.flags(description),
            description,
        })
    }

    /// The one that covers an address.
    pub fn find(&self, address: u64) -> Option<GoFunction> {
        let function = self.last_before(address)?;
        (address < self.end(&function)).then_some(function)
    }

    /// The last one that begins at an address or before it, which need not cover it; none behind all code of Go.
    pub fn last_before(&self, address: u64) -> Option<GoFunction> {
        let into = address.checked_sub(self.text)?;
        let (mut low, mut high) = (0, self.count());
        // The last that begins at or before it.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.layout.start(middle)? <= into {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let function = self.at(low.checked_sub(1)?)?;
        let inside = function.start..function.next;
        inside.contains(&address).then_some(function)
    }

    /// Name of a function, as Go has it: `main.(*shape).spin`. Empty where that cannot be read.
    pub fn name(&self, function: &GoFunction) -> &'d [u8] {
        self.layout.name(function.description).unwrap_or_default()
    }

    /// Address after the last byte of a function, without what comes behind it before [`GoFunction::next`].
    pub fn end(&self, function: &GoFunction) -> u64 {
        let len = self.layout.len(function.description);
        let end = len.and_then(|len| function.start.checked_add(len));
        end.map_or(function.next, |end| end.min(function.next))
    }
}

#[cfg(test)]
mod tests;
