//! The functions of ELF images by their symbol tables: which one covers an address.
//!
//! A sized function bounds its range, one without a size reaches to the next function or the end of its section
//! and gives way to any that has a size. Labels, data, version markers and other things that are not functions
//! never name code. Of several names for the same bytes a local one is taken last, one with fewer underscores in front
//! first (`malloc` before `__libc_malloc`), a global one before a weak one, then the first by the alphabet.
//!
//! Stubs of procedure linkage tables are functions too: `memcpy@plt`. Functions of Go are also those of its own table, which says
//! less than a symbol does: `main.apply[...]`.

mod names;
mod near;
mod plt;

pub use names::demangle;

use object::read::{ReadRef, Symbol};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};

use super::flat::Flat;
use crate::elf_file::go::GoFunctions;
use crate::format::aid::Load;
use crate::format::limits;

/// Function symbols by address.
#[derive(Debug, Default)]
pub struct FunctionTable {
    /// All names, one after the other.
    text: String,
    functions: Vec<Function>,
    sized: Flat<u32>,
    sizeless: Flat<u32>,
}

/// A function as others know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownFunction<'n> {
    /// Address in the image.
    pub start: u64,
    /// Bytes it has, or may have.
    pub size: u64,
    /// Mangled name.
    pub name: &'n str,
    /// It says itself how long it is.
    pub sized: bool,
}

/// A function symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Address in the image.
    pub start: u64,
    /// Address after its last byte; without a size, that after the last it may have.
    end: u64,
    /// Where its name is in the text.
    name: (u32, u32),
    sized: bool,
    /// Of several names for the same bytes the one of the lowest rank is taken.
    rank: Rank,
}

/// Local, underscores in front, weak.
type Rank = (bool, u8, bool);

fn rank<'data, R: ReadRef<'data>>(symbol: &Symbol<'data, '_, R>, name: &[u8]) -> Rank {
    let underscores = name.iter().take(9).take_while(|byte| **byte == b'_');
    (
        symbol.is_local(),
        underscores.count() as u8,
        symbol.is_weak(),
    )
}

impl FunctionTable {
    /// Reads the symbol tables of an ELF image; `None` when it is not one.
    pub fn parse<'data, R: ReadRef<'data>>(data: R) -> Option<FunctionTable> {
        let mut table = FunctionTable::default();
        table.read(data)?;
        table.build();
        Some(table)
    }

    /// Reads the symbol tables of several images of one file, such as a binary and its debug file.
    pub fn of<'data>(images: impl IntoIterator<Item = &'data [u8]>) -> FunctionTable {
        let images: Vec<&[u8]> = images.into_iter().collect();
        let mut table = FunctionTable::default();
        for image in &images {
            // One that is no ELF file adds nothing.
            let _ = table.read(*image);
        }
        table.add_stubs(&images, None);
        table.add_go(&images, None);
        table.build();
        table
    }

    /// A table of functions that are known otherwise than by a symbol table here. Of several names for the same bytes the
    /// first by the alphabet is taken.
    pub fn known<'n>(functions: impl IntoIterator<Item = KnownFunction<'n>>) -> FunctionTable {
        let mut table = FunctionTable::default();
        for known in functions {
            let at = table.text.len();
            if at.saturating_add(known.name.len()) > u32::MAX as usize {
                break;
            }
            table.text.push_str(known.name);
            table.functions.push(Function {
                start: known.start,
                end: known.start.saturating_add(known.size),
                name: (at as u32, table.text.len() as u32),
                sized: known.sized,
                rank: (false, 0, false),
            });
        }
        table.build();
        table
    }

    /// All functions, by start: each name once for its bytes.
    pub fn all(&self) -> impl Iterator<Item = KnownFunction<'_>> {
        self.functions.iter().map(|function| KnownFunction {
            start: function.start,
            size: function.end.saturating_sub(function.start),
            name: self.name(*function),
            sized: function.sized,
        })
    }

    fn read<'data, R: ReadRef<'data>>(&mut self, data: R) -> Option<()> {
        let elf = object::File::parse(data).ok()?;
        let ends = SectionEnds::of(&elf);
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            if let Some(range) = ends.range(&symbol) {
                self.add(&symbol, range);
            }
        }
        Some(())
    }

    /// Adds the function of a symbol; one that has no name is none.
    fn add<'data, R: ReadRef<'data>>(
        &mut self,
        symbol: &Symbol<'data, '_, R>,
        (start, end): (u64, u64),
    ) -> Option<()> {
        let name = symbol.name_bytes().ok()?;
        let at = self.text.len();
        if name.is_empty() || at.saturating_add(3 * name.len()) > u32::MAX as usize {
            return None;
        }
        self.text.push_str(&String::from_utf8_lossy(name));
        self.functions.push(Function {
            start,
            end,
            name: (at as u32, self.text.len() as u32),
            sized: symbol.size() > 0,
            rank: rank(symbol, name),
        });
        Some(())
    }

    /// Adds the stubs of procedure linkage tables: all of them, or those that cover `wanted` addresses.
    fn add_stubs(&mut self, images: &[&[u8]], wanted: Option<&[u64]>) {
        for stub in plt::stubs(images, wanted) {
            let at = self.text.len();
            if at.saturating_add(3 * stub.name.len() + PLT.len()) > u32::MAX as usize {
                return;
            }
            self.text.push_str(&String::from_utf8_lossy(&stub.name));
            self.text.push_str(PLT);
            self.functions.push(Function {
                start: stub.start,
                end: stub.end,
                name: (at as u32, self.text.len() as u32),
                sized: true,
                // A symbol of the same bytes says more.
                rank: (true, u8::MAX, true),
            });
        }
    }

    /// Adds what Go knows of its functions: all of them, or those that begin last before `wanted` addresses, which ascend.
    fn add_go(&mut self, images: &[&[u8]], wanted: Option<&[u64]>) {
        for image in images {
            let Some(functions) = GoFunctions::of(image) else {
                continue;
            };
            let all: Box<dyn Iterator<Item = _>> = match wanted {
                None => Box::new(functions.iter()),
                Some(wanted) => {
                    let mut last = None;
                    let found = wanted.iter().filter_map(|at| functions.last_before(*at));
                    Box::new(found.filter(move |f| last.replace(f.start) != Some(f.start)))
                }
            };
            // Each has a name of its own: all of them are not longer than the file.
            let mut left = image.len();
            for function in all {
                let name = String::from_utf8_lossy(functions.name(&function));
                let at = self.text.len();
                let (Some(rest), Some(end)) =
                    (left.checked_sub(name.len()), at.checked_add(name.len()))
                else {
                    break;
                };
                if name.is_empty() || end > u32::MAX as usize {
                    continue;
                }
                left = rest;
                self.text.push_str(&name);
                self.functions.push(Function {
                    start: function.start,
                    end: functions.end(&function),
                    name: (at as u32, end as u32),
                    sized: true,
                    // A symbol of the same bytes says more.
                    rank: (true, u8::MAX, true),
                });
            }
        }
    }

    fn build(&mut self) {
        let text = &self.text;
        let name = |f: &Function| text.get(f.name.0 as usize..f.name.1 as usize);
        self.functions.sort_by(|a, b| {
            let key = |f: &Function| (f.start, f.end, f.rank);
            key(a).cmp(&key(b)).then_with(|| name(a).cmp(&name(b)))
        });
        self.functions.dedup_by_key(|f| (f.start, f.end, f.sized));
        let starts: Vec<u64> = self.functions.iter().map(|f| f.start).collect();
        for function in self.functions.iter_mut().filter(|f| !f.sized) {
            let next = starts.partition_point(|s| *s <= function.start);
            if let Some(next) = starts.get(next) {
                function.end = function.end.min(*next);
            }
        }
        let ranges = |sized: bool| -> Vec<(u64, u64, u32)> {
            let all = self.functions.iter().enumerate();
            let wanted = all.filter(|(_, f)| f.sized == sized);
            wanted.map(|(i, f)| (f.start, f.end, i as u32)).collect()
        };
        let (sized, sizeless) = (ranges(true), ranges(false));
        self.sized = Flat::new(sized);
        self.sizeless = Flat::new(sizeless);
    }

    /// Number of the function that covers `address`: the innermost with a size, else one without.
    pub fn find(&self, address: u64) -> Option<u32> {
        let found = self.sized.find(address);
        let found = found.or_else(|| self.sizeless.find(address));
        found.map(|(_, number)| number)
    }

    /// A function by its number.
    pub fn function(&self, number: u32) -> Option<Function> {
        self.functions.get(number as usize).copied()
    }

    /// Its mangled name.
    pub fn name(&self, function: Function) -> &str {
        let (from, to) = function.name;
        self.text.get(from as usize..to as usize).unwrap_or("")
    }
}

/// Where the sections of an image end, in the order of their numbers.
struct SectionEnds(Vec<(usize, u64)>);

impl SectionEnds {
    fn of<'data, R: ReadRef<'data>>(elf: &object::File<'data, R>) -> SectionEnds {
        let ends = elf
            .sections()
            .map(|s| (s.index().0, s.address().saturating_add(s.size())));
        SectionEnds(ends.collect())
    }

    /// First address of a symbol and that after its last, if it is one of a function; without a size, it may reach to the end of
    /// its section.
    fn range<'data, R: ReadRef<'data>>(&self, symbol: &Symbol<'data, '_, R>) -> Option<(u64, u64)> {
        if symbol.kind() != SymbolKind::Text {
            return None;
        }
        let section = symbol.section_index()?;
        let (start, size) = (symbol.address(), symbol.size());
        if size > 0 {
            return Some((start, start.saturating_add(size)));
        }
        let found = self.0.binary_search_by_key(&section.0, |(index, _)| *index);
        let end = found.ok().and_then(|i| self.0.get(i));
        Some((start, end.map_or(start, |(_, end)| *end)))
    }
}

/// The loaded segments of an ELF image; none when there are more than [`limits::LOADS`].
pub fn loads<'data, R: ReadRef<'data>>(data: R) -> Vec<Load> {
    let Ok(elf) = object::File::parse(data) else {
        return Vec::new();
    };
    if elf.segments().nth(limits::LOADS as usize).is_some() {
        return Vec::new();
    }
    let loads = elf.segments().map(|segment| {
        let (offset, file_size) = segment.file_range();
        Load {
            offset,
            vaddr: segment.address(),
            file_size,
            mem_size: segment.size(),
            flags: match segment.flags() {
                SegmentFlags::Elf { p_flags, .. } => p_flags.0,
                _ => 0,
            },
        }
    });
    loads.collect()
}

/// The address of a file offset: by the executable segment whose part of the file covers it, else by any that does.
/// Each segment has its own difference between the two.
pub fn address_of(loads: &[Load], offset: u64) -> Option<u64> {
    let inside = |load: &&Load| {
        offset
            .checked_sub(load.offset)
            .is_some_and(|i| i < load.file_size)
    };
    let executable = |load: &&Load| load.flags & object::elf::PF_X.0 != 0;
    let mut covering = loads.iter().filter(inside);
    let load = loads
        .iter()
        .filter(inside)
        .find(executable)
        .or_else(|| covering.next())?;
    Some(load.vaddr.wrapping_add(offset - load.offset))
}

/// Marks the stub that jumps to a function.
const PLT: &str = "@plt";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_segment_that_has_the_byte_in_the_file_tells_the_address() {
        let load = |offset, vaddr, file_size, mem_size, flags| Load {
            offset,
            vaddr,
            file_size,
            mem_size,
            flags,
        };
        let loads = [
            // Its memory reaches over the offsets of the others, its file part does not.
            load(0, 0x40_0000, 0x1000, 0x10_0000, 6),
            load(0xff0, 0x41_0ff0, 0x500, 0x500, 5),
            load(0x2000, 0x1000_0000, 0x100, 0x100, 5),
            load(0x3000, 0x2000_0000, 0x100, 0x100, 4),
        ];
        assert_eq!(address_of(&loads, 0x10), Some(0x40_0010));
        assert_eq!(address_of(&loads, 0xff8), Some(0x41_0ff8));
        assert_eq!(address_of(&loads, 0x14ef), Some(0x41_14ef));
        assert_eq!(address_of(&loads, 0x14f0), None);
        assert_eq!(address_of(&loads, 0x2004), Some(0x1000_0004));
        assert_eq!(address_of(&loads, 0x3004), Some(0x2000_0004));
        assert_eq!(address_of(&loads, u64::MAX), None);
    }

    #[test]
    fn tables_can_be_taken_apart_and_put_together() {
        let known = [
            ("a", 0x10, 0x20, true),
            ("b", 0x18, 0x4, true),
            ("c", 0x40, 0x8, false),
        ]
        .map(|(name, start, size, sized)| KnownFunction {
            start,
            size,
            name,
            sized,
        });
        let table = FunctionTable::known(known);
        assert!(table.all().eq(known));
        let name = |address| {
            let function = table.function(table.find(address)?)?;
            Some(table.name(function))
        };
        assert_eq!(name(0x10), Some("a"));
        assert_eq!(name(0x1b), Some("b"));
        assert_eq!(name(0x1c), Some("a"));
        assert_eq!(name(0x30), None);
        assert_eq!(name(0x47), Some("c"));
        assert_eq!(name(0x48), None);
    }
}
