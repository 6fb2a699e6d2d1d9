//! Where the table is in a file, and which address the code has that it tells of.
//!
//! Since Go 1.18 the table counts from where the code of Go begins, which its header tells: as an address, as a place that the loader
//! fills in (position-independent programs), or, in newer releases, not at all. What is found is compared with the code: a
//! wrong beginning would give every address the name of another function.

use std::ops::Range;

use memchr::memmem;
use object::elf;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, Rela, SectionHeader};
use object::{Endianness, Object, ObjectSection};

use super::GoFunctions;
use super::layout::Layout;
use crate::format::limits;

/// Relocations that are looked at: large programs have a million or two.
const MOST_RELOCATIONS: usize = 1 << 24;
/// Functions whose surroundings are compared with the code.
const COMPARED: usize = 512;
/// What linkers of Go put between functions on x86: `int3`.
const PADDING: u8 = 0xcc;
/// The text address in Go's `moduledata`, in addresses from its beginning: behind one, six slices of three, and three more.
const MODULE_TEXT: u64 = 22;

/// The table, and the address it has.
pub(super) fn table<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ElfFile<'d, Elf, &'d [u8]>,
) -> Option<(Layout<'d>, u64)> {
    for name in [".gopclntab", ".data.rel.ro.gopclntab"] {
        if let Some(section) = elf.section_by_name(name) {
            return Some((Layout::of(section.data().ok()?)?, section.address()));
        }
    }
    // Other linkers than Go's put it among other data of position-independent programs.
    elf.section_by_name(".note.go.buildid")?;
    let section = elf.section_by_name(".data.rel.ro")?;
    let bytes = section.data().ok()?;
    let magics = [
        b"\xf1\xff\xff\xff\0\0",
        b"\xf0\xff\xff\xff\0\0",
        b"\xfa\xff\xff\xff\0\0",
    ];
    magics.into_iter().find_map(|magic| {
        memmem::find_iter(bytes, magic).find_map(|at| {
            let layout = Layout::of(bytes.get(at..)?)?;
            let is_one = layout.count > 0 && at % layout.pointer == 0;
            is_one.then(|| (layout, section.address().saturating_add(at as u64)))
        })
    })
}

/// Where the code may begin that the table at `address` tells of, the most certain first.
pub(super) fn texts<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ElfFile<'d, Elf, &'d [u8]>,
    image: &'d [u8],
    layout: &Layout<'d>,
    address: u64,
) -> Vec<u64> {
    let Some(field) = layout.text else {
        return vec![0];
    };
    let loader = |address: u64| relocated(elf, image, address);
    let mut texts = Vec::new();
    texts.extend(loader(address.saturating_add(field as u64)));
    texts.extend(layout.header(field).filter(|text| *text != 0));
    if texts.is_empty() {
        // Go 1.26 tells it in this section only.
        let module = elf.section_by_name(".go.module").and_then(|section| {
            let at = MODULE_TEXT * layout.pointer as u64;
            let here = || section.data_range(section.address() + at, layout.pointer as u64);
            loader(section.address().checked_add(at)?).or_else(|| match *here().ok()?? {
                [a, b, c, d] => Some(u32::from_le_bytes([a, b, c, d]).into()),
                ref bytes => bytes.first_chunk().copied().map(u64::from_le_bytes),
            })
        });
        texts.extend(module);
        texts.extend(elf.section_by_name(".text").map(|text| text.address()));
    }
    texts
}

/// What the loader puts at an address of a position-independent program, before it adds where that was loaded.
fn relocated<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ElfFile<'d, Elf, &'d [u8]>,
    image: &'d [u8],
    address: u64,
) -> Option<u64> {
    let endian = elf.endian();
    if elf.elf_header().e_type(endian) != elf::ET_DYN {
        return None;
    }
    let relative = match elf.elf_header().e_machine(endian) {
        elf::EM_X86_64 => elf::R_X86_64_RELATIVE,
        elf::EM_AARCH64 => elf::R_AARCH64_RELATIVE,
        _ => return None,
    };
    // Of all sections together, which may lie one over the other.
    let mut left = MOST_RELOCATIONS;
    elf.elf_section_table().iter().find_map(|section| {
        if section.sh_flags(endian).0 & elf::SHF_ALLOC.0 == 0 {
            return None;
        }
        let (relocations, _) = section.rela(endian, image).ok()??;
        let relocations = relocations.get(..left).unwrap_or(relocations);
        left -= relocations.len();
        let mut relocations = relocations.iter();
        let found = relocations.find(|relocation| relocation.r_offset(endian).into() == address)?;
        let addend: i64 = found.r_addend(endian).into();
        (found.r_type(endian, false) == relative).then_some(addend.cast_unsigned())
    })
}

/// The executable parts of a file.
pub(super) struct Code<'d> {
    parts: Vec<(Range<u64>, &'d [u8])>,
    is_x86: bool,
}

impl<'d> Code<'d> {
    pub fn of<Elf: FileHeader<Endian = Endianness>>(
        elf: &ElfFile<'d, Elf, &'d [u8]>,
        image: &'d [u8],
    ) -> Code<'d> {
        let endian = elf.endian();
        let headers = elf.elf_program_headers().iter();
        let parts = headers
            .filter(|header| header.p_type(endian) == elf::PT_LOAD)
            .filter(|header| header.p_flags(endian).0 & elf::PF_X.0 != 0)
            .take(limits::LOADS as usize)
            .map(|header| {
                let start: u64 = header.p_vaddr(endian).into();
                let end = start.saturating_add(header.p_memsz(endian).into());
                (start..end, header.data(endian, image).unwrap_or_default())
            });
        let machine = elf.elf_header().e_machine(endian);
        Code {
            parts: parts.collect(),
            is_x86: matches!(machine, elf::EM_X86_64 | elf::EM_386),
        }
    }

    /// Whether the functions can be here: all of them in one part, and, where the code is to be seen, padding between them.
    pub fn holds(&self, functions: &GoFunctions<'_>) -> bool {
        let count = functions.count();
        let (Some(first), Some(last)) = (
            functions.at(0),
            count.checked_sub(1).and_then(|last| functions.at(last)),
        ) else {
            return false;
        };
        let inside = |part: &&(Range<u64>, &[u8])| {
            part.0.contains(&first.start) && last.next <= part.0.end && first.start < last.next
        };
        let Some((addresses, bytes)) = self.parts.iter().find(inside) else {
            return false;
        };
        if !self.is_x86 {
            return true;
        }
        let (mut gaps, mut padded) = (0u32, 0u32);
        for number in (0..count).step_by(count.div_ceil(COMPARED)) {
            let Some(function) = functions.at(number) else {
                return false;
            };
            let end = functions.end(&function);
            let range = end
                .checked_sub(addresses.start)
                .zip(function.next.checked_sub(addresses.start));
            let gap = range.and_then(|(from, to)| {
                bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
            });
            // Behind the last function of Go, and in a few places between, there may be others.
            if let Some([first, ..]) = gap {
                gaps += 1;
                padded += u32::from(*first == PADDING);
            }
        }
        padded >= gaps - gaps / 10
    }
}
