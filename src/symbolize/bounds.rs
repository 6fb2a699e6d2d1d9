//! Where functions that have no symbol begin, by the unwind information of their file: `.eh_frame`, then `.debug_frame`.
//!
//! Nothing is trusted: an entry counts only if it covers the address and is itself within one executable part of the file.

use std::cell::OnceCell;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, DebugFrame, EhFrame, UnwindOffset, UnwindSection};
use hashbrown::HashMap;
use object::Endianness;
use object::elf;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Object, ObjectSection};

use super::flat::Flat;
use crate::format::limits;

type Bytes<'a> = gimli::EndianSlice<'a, gimli::LittleEndian>;

/// Functions indexed of a section that has no index; those behind them are as if they were not there.
const INDEXED: usize = 1 << 20;
/// Entries of what functions have in common in such a section.
const COMMON: usize = 1 << 16;
/// Bytes of an entry that is looked at for each address.
const LONGEST: u32 = 64 << 10;

/// The functions of one image of a file.
pub(super) struct Bounds {
    /// Addresses of its executable parts.
    code: Vec<Range<u64>>,
    address_size: u8,
    eh_frame: Option<EhFrames>,
    /// Of `.debug_frame`, read when it is first needed.
    debug_frame: OnceCell<Flat<()>>,
}

/// `.eh_frame`.
enum EhFrames {
    /// With the table that linkers make, in the one form in which they do: pairs of 32-bit distances (function, entry) from
    /// the address of the header it is in (LSB, 10.6.2).
    Linked {
        pairs: Range<usize>,
        header: u64,
        frames: Range<usize>,
        address: u64,
    },
    /// Read from end to end, which is done when it is first needed.
    Plain {
        frames: Range<usize>,
        address: u64,
        functions: OnceCell<Flat<()>>,
    },
}

impl Bounds {
    /// Finds out where unwind information is in an ELF image. One that is none has no functions.
    pub fn of(image: &[u8]) -> Bounds {
        let found = match object::File::parse(image) {
            Ok(object::File::Elf64(elf)) => Some(Bounds::of_elf(&elf, image, 8)),
            Ok(object::File::Elf32(elf)) => Some(Bounds::of_elf(&elf, image, 4)),
            _ => None,
        };
        found.unwrap_or(Bounds {
            code: Vec::new(),
            address_size: 8,
            eh_frame: None,
            debug_frame: OnceCell::new(),
        })
    }

    fn of_elf<'d, Elf: FileHeader<Endian = Endianness>>(
        elf: &ElfFile<'d, Elf, &'d [u8]>,
        image: &[u8],
        address_size: u8,
    ) -> Bounds {
        let endian = elf.endian();
        let headers = elf.elf_program_headers().iter();
        let loads = headers
            .clone()
            .filter(|header| header.p_type(endian) == elf::PT_LOAD);
        let loads = loads.take(limits::LOADS as usize).map(|header| Part {
            address: header.p_vaddr(endian).into(),
            offset: header.p_offset(endian).into(),
            size: header.p_filesz(endian).into(),
            memory: header.p_memsz(endian).into(),
            executable: header.p_flags(endian).0 & elf::PF_X.0 != 0,
        });
        let loads: Vec<Part> = loads.collect();
        let header = headers
            .clone()
            .find(|header| header.p_type(endian) == elf::PT_GNU_EH_FRAME);
        // The headers of a debug file are those of the program; the bytes are not there.
        let section = elf.section_by_name(".eh_frame_hdr");
        let is_here = section.is_none_or(|section| section.file_range().is_some());
        let linked = header.filter(|_| is_here).and_then(|header| {
            let offset: u64 = header.p_offset(endian).into();
            let place = place(offset, header.p_filesz(endian).into(), image)?;
            EhFrames::linked(image, place, header.p_vaddr(endian).into(), &loads)
        });
        let plain = || {
            let section = elf.section_by_name(".eh_frame")?;
            let (offset, size) = section.file_range()?;
            Some(EhFrames::Plain {
                frames: place(offset, size, image)?,
                address: section.address(),
                functions: OnceCell::new(),
            })
        };
        let code = loads.iter().filter(|load| load.executable);
        Bounds {
            code: code
                .map(|load| load.address..load.address.saturating_add(load.memory))
                .collect(),
            address_size,
            eh_frame: linked.or_else(plain),
            debug_frame: OnceCell::new(),
        }
    }

    /// Where the function begins that covers `address`. `image` is what this was made of; `debug_frame` gives the bytes of
    /// that section.
    pub fn start<'d>(
        &self,
        image: &[u8],
        debug_frame: impl FnOnce() -> &'d [u8],
        address: u64,
    ) -> Option<u64> {
        if !self.code.iter().any(|code| code.contains(&address)) {
            return None;
        }
        let by_eh_frame = match &self.eh_frame {
            Some(EhFrames::Linked {
                pairs,
                header,
                frames,
                address: base,
            }) => {
                let pairs = image.get(pairs.clone()).unwrap_or_default();
                let entry = entry(pairs, *header, address).and_then(|at| at.checked_sub(*base));
                let bytes = image.get(frames.clone()).unwrap_or_default();
                entry.and_then(|entry| self.entry_start(bytes, *base, entry, address))
            }
            Some(EhFrames::Plain {
                frames,
                address: base,
                functions,
            }) => {
                let functions = functions.get_or_init(|| {
                    let bytes = image.get(frames.clone()).unwrap_or_default();
                    let bases = BaseAddresses::default().set_eh_frame(*base);
                    self.functions(&self.eh_frame(bytes), &bases)
                });
                functions.find(address).map(|(start, ())| start)
            }
            None => None,
        };
        by_eh_frame.or_else(|| {
            let functions = self.debug_frame.get_or_init(|| {
                let bytes = debug_frame();
                let mut frames = DebugFrame::new(bytes, gimli::LittleEndian);
                frames.set_address_size(self.address_size);
                self.functions(&frames, &BaseAddresses::default())
            });
            functions.find(address).map(|(start, ())| start)
        })
    }

    fn eh_frame<'d>(&self, bytes: &'d [u8]) -> EhFrame<Bytes<'d>> {
        let mut frames = EhFrame::new(bytes, gimli::LittleEndian);
        frames.set_address_size(self.address_size);
        frames
    }

    /// The start of the function whose entry is `at` bytes from the beginning of the section, if it covers `address`.
    fn entry_start(&self, bytes: &[u8], base: u64, at: u64, address: u64) -> Option<u64> {
        let at = usize::try_from(at).ok().filter(|at| *at < bytes.len())?;
        // The entry, and what it has in common with others: length, distance back to that.
        let word = |at: usize| {
            bytes
                .get(at..)?
                .first_chunk()
                .copied()
                .map(u32::from_le_bytes)
        };
        let common = at
            .checked_add(4)?
            .checked_sub(word(at.checked_add(4)?)? as usize)?;
        if word(at)?.max(word(common)?) > LONGEST {
            return None;
        }
        let bases = BaseAddresses::default().set_eh_frame(base);
        let frames = self.eh_frame(bytes);
        let entry = frames.fde_from_offset(&bases, at.into(), EhFrame::cie_from_offset);
        let entry = entry.ok()?;
        let function = self.function(entry.initial_address(), entry.len())?;
        function.contains(&address).then_some(function.start)
    }

    /// All functions of a section. What cannot be read ends it: what came before is good.
    fn functions<'d, S: UnwindSection<Bytes<'d>>>(
        &self,
        frames: &S,
        bases: &BaseAddresses,
    ) -> Flat<()> {
        let mut functions = Vec::new();
        // What functions have in common comes before them. To read it again for each could take for ever.
        let mut common = HashMap::new();
        let mut entries = frames.entries(bases);
        while functions.len() < INDEXED
            && common.len() < COMMON
            && let Ok(Some(entry)) = entries.next()
        {
            let partial = match entry {
                CieOrFde::Fde(partial) => partial,
                CieOrFde::Cie(cie) => {
                    common.insert(cie.offset(), cie);
                    continue;
                }
            };
            let known = |_: &S, _: &BaseAddresses, at: S::Offset| {
                let at = UnwindOffset::into(at);
                let cie = common.get(&at).cloned();
                cie.ok_or(gimli::Error::NotCieId(at as u64))
            };
            let Ok(entry) = partial.parse(known) else {
                continue;
            };
            if let Some(function) = self.function(entry.initial_address(), entry.len()) {
                functions.push((function.start, function.end, ()));
            }
        }
        Flat::new(functions)
    }

    /// The addresses of a function, if that can be one: linkers leave entries of functions they have dropped.
    fn function(&self, start: u64, len: u64) -> Option<Range<u64>> {
        let end = start.checked_add(len)?;
        let inside = |code: &&Range<u64>| code.start <= start && end <= code.end;
        self.code.iter().find(inside).map(|_| start..end)
    }
}

/// A part of the image that is loaded.
struct Part {
    address: u64,
    offset: u64,
    /// Bytes in the file, and in memory: debug files have none of the former.
    size: u64,
    memory: u64,
    executable: bool,
}

impl EhFrames {
    fn linked(
        image: &[u8],
        place_: Range<usize>,
        address: u64,
        loads: &[Part],
    ) -> Option<EhFrames> {
        let bytes = image.get(place_.clone())?;
        let word = |at: usize| {
            bytes
                .get(at..)?
                .first_chunk()
                .copied()
                .map(i32::from_le_bytes)
        };
        let [1, 0x1b, 0x03, 0x3b, ..] = *bytes else {
            return None;
        };
        let frames = address.checked_add(4)?;
        let frames = frames.checked_add_signed(word(4)?.into())?;
        let (load, into) = loads.iter().find_map(|load| {
            let into = frames.checked_sub(load.address)?;
            (into < load.size).then_some((load, into))
        })?;
        let count = usize::try_from(word(8)?.cast_unsigned()).ok()?;
        let end = count.checked_mul(8)?.checked_add(12)?;
        (end <= bytes.len()).then_some(EhFrames::Linked {
            pairs: place_.start + 12..place_.start + end,
            header: address,
            frames: place(load.offset.checked_add(into)?, load.size - into, image)?,
            address: frames,
        })
    }
}

/// Address of the entry that may cover `address`, by the linker's table.
fn entry(pairs: &[u8], header: u64, address: u64) -> Option<u64> {
    let (pairs, _) = pairs.as_chunks::<8>();
    let at = |pair: &[u8; 8], half: usize| {
        let word = pair.get(half..)?.first_chunk().copied();
        header.checked_add_signed(word.map(i32::from_le_bytes)?.into())
    };
    let after = pairs.partition_point(|pair| at(pair, 0).is_some_and(|start| start <= address));
    at(pairs.get(after.checked_sub(1)?)?, 4)
}

fn place(offset: u64, size: u64, image: &[u8]) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (start < end && end <= image.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolize::functions::FunctionTable;

    /// This program's functions, by the linker's table, by reading all entries, and by its symbols.
    #[test]
    fn a_function_begins_where_its_symbol_does() {
        let image = std::fs::read("/proc/self/exe").unwrap();
        let linked = Bounds::of(&image);
        assert!(matches!(linked.eh_frame, Some(EhFrames::Linked { .. })));
        let mut unlinked = image.clone();
        let Some(EhFrames::Linked { pairs, .. }) = &linked.eh_frame else {
            unreachable!()
        };
        // Another version of the header is not known here.
        unlinked[pairs.start - 12] = 2;
        let plain = Bounds::of(&unlinked);
        assert!(matches!(plain.eh_frame, Some(EhFrames::Plain { .. })));

        let (mut asked, mut agreed) = (0, 0);
        let table = FunctionTable::of([&*image]);
        let functions = table.all().filter(|f| f.sized && f.size > 1);
        for function in functions.step_by(37) {
            let middle = function.start + function.size / 2;
            let start = linked.start(&image, || &[], middle);
            assert_eq!(plain.start(&unlinked, || &[], middle), start);
            assert!(start.is_none_or(|start| start <= middle));
            asked += 1;
            agreed += u32::from(start == Some(function.start));
        }
        assert!(asked > 500, "{asked}");
        assert!(agreed * 100 >= asked * 97, "{agreed} of {asked}");
        for nowhere in [0, 1, u64::MAX] {
            assert_eq!(linked.start(&image, || &[], nowhere), None);
            assert_eq!(plain.start(&unlinked, || &[], nowhere), None);
        }
    }

    /// One entry that says it covers all of memory.
    #[test]
    fn an_entry_that_reaches_beyond_the_code_is_none() {
        let bounds = Bounds {
            code: vec![0x1000..0x2000, 0x3000..0x4000],
            address_size: 8,
            eh_frame: None,
            debug_frame: OnceCell::new(),
        };
        assert_eq!(bounds.function(0x1000, 0x1000), Some(0x1000..0x2000));
        assert_eq!(bounds.function(0x3ff0, 0x10), Some(0x3ff0..0x4000));
        for (start, len) in [
            (0, u64::MAX),
            (0xfff, 2),
            (0x1ff0, 0x11),
            (0x1ff0, 0x1010),
            (0x2800, 1),
            (0x3000, u64::MAX),
        ] {
            assert_eq!(bounds.function(start, len), None, "{start:#x} {len:#x}");
        }
    }
}
