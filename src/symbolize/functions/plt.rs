//! Stubs of procedure linkage tables (x86-64), named after the function they jump to: `memcpy@plt`.
//!
//! A stub jumps to where a slot of the global offset table points, and a relocation says which function the loader puts there. To
//! read the jump is right for every layout a linker makes (lazy, with `endbr64`, bound at start); to count stubs is not.

use std::borrow::Cow;

use hashbrown::HashMap;
use object::elf;
use object::read::elf::{ElfFile64, Rela, SectionHeader, Sym};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolFlags, SymbolKind};

/// Stubs of one image that are looked at.
const MOST: usize = 1 << 18;
/// Relocations of one image that are looked at: large programs have a million or two.
const MOST_RELOCATIONS: usize = 1 << 24;

/// A stub with a name.
pub(super) struct Stub<'d> {
    pub start: u64,
    pub end: u64,
    /// Mangled name of the function.
    pub name: Cow<'d, [u8]>,
}

/// What the loader puts into a slot.
#[derive(Clone, Copy)]
enum Target<'d> {
    /// The function of this name.
    Named(&'d [u8]),
    /// What the function at this address returns: it chooses one of several for the machine.
    Chosen(u64),
}

/// The stubs of images of one file: all of them, or those that cover `wanted`, which ascend.
pub(super) fn stubs<'d>(images: &[&'d [u8]], wanted: Option<&[u64]>) -> Vec<Stub<'d>> {
    let mut all: Vec<(u64, u64, Target<'_>)> = Vec::new();
    for image in images {
        all.extend(of_image(image, wanted).unwrap_or_default());
    }
    let chosen = all.iter().filter_map(|(.., target)| match target {
        Target::Named(_) => None,
        Target::Chosen(resolver) => Some((*resolver, None)),
    });
    let mut resolvers: Resolvers<'_> = chosen.collect();
    if !resolvers.is_empty() {
        images
            .iter()
            .for_each(|image| name_resolvers(image, &mut resolvers));
    }
    let stubs = all.into_iter().map(|(start, end, target)| {
        let name = match target {
            Target::Named(name) => Cow::Borrowed(name),
            Target::Chosen(resolver) => match resolvers.get(&resolver) {
                Some(Some((_, name))) => Cow::Borrowed(*name),
                // As binutils has it.
                _ => Cow::Owned(format!("*ABS*+{resolver:#x}").into_bytes()),
            },
        };
        Stub { start, end, name }
    });
    stubs.collect()
}

fn of_image<'d>(image: &'d [u8], wanted: Option<&[u64]>) -> Option<Vec<(u64, u64, Target<'d>)>> {
    let Ok(object::File::Elf64(elf)) = object::File::parse(image) else {
        return None;
    };
    let endian = elf.endian();
    if object::read::elf::FileHeader::e_machine(elf.elf_header(), endian) != elf::EM_X86_64 {
        return None;
    }
    let mut by_slot: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    let mut left = MOST;
    for section in elf.sections() {
        let name = section.name_bytes().unwrap_or_default();
        if !name.starts_with(b".plt") && name != b".iplt" {
            continue;
        }
        let (start, code) = (section.address(), section.data().unwrap_or_default());
        let size = stub_size(section.elf_section_header().sh_entsize(endian), code);
        for at in places(start, code.len() as u64, size, wanted).take(left) {
            left -= 1;
            let code = usize::try_from(at).ok().and_then(|at| code.get(at..));
            let code = code.unwrap_or_default();
            let code = code.get(..size as usize).unwrap_or(code);
            let begin = start.saturating_add(at);
            if let Some(slot) = slot(code, begin) {
                let stubs = by_slot.entry(slot).or_default();
                stubs.push((begin, begin.saturating_add(code.len() as u64)));
            }
        }
    }
    if by_slot.is_empty() {
        return None;
    }
    Some(targets(&elf, image, by_slot))
}

/// Where stubs begin, in bytes from the start of a section of `len` bytes: all, or those that cover `wanted` addresses.
fn places<'w>(
    start: u64,
    len: u64,
    size: u64,
    wanted: Option<&'w [u64]>,
) -> Box<dyn Iterator<Item = u64> + 'w> {
    let Some(wanted) = wanted else {
        return Box::new((0..len.div_ceil(size)).map(move |number| number * size));
    };
    let first = wanted.partition_point(|address| *address < start);
    let inside = wanted
        .iter()
        .skip(first)
        .map(move |address| address - start);
    let inside = inside.take_while(move |into| *into < len);
    let mut last = None;
    let places = inside.map(move |into| into - into % size);
    Box::new(places.filter(move |at| last.replace(*at) != Some(*at)))
}

/// Bytes of a stub: as the section says, else by the code. Static programs do not say it.
fn stub_size(said: u64, code: &[u8]) -> u64 {
    match (said, code) {
        // jmp; xchg %ax,%ax; and no more.
        (
            _,
            [0xff, 0x25, _, _, _, _, 0x66, 0x90]
            | [0xff, 0x25, _, _, _, _, 0x66, 0x90, 0xff, 0x25, ..],
        ) => 8,
        (8 | 16 | 32, _) => said,
        _ => 16,
    }
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Address of the slot a stub at `address` jumps through.
fn slot(mut code: &[u8], address: u64) -> Option<u64> {
    let len = code.len();
    code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    // mov $number, %r11d
    if let [0x41, 0xbb, _, _, _, _, rest @ ..] = code {
        code = rest;
    }
    // bnd
    code = code.strip_prefix(&[0xf2]).unwrap_or(code);
    // jmp *distance(%rip)
    let [0xff, 0x25, a, b, c, d, rest @ ..] = code else {
        return None;
    };
    let next = address.checked_add((len - rest.len()) as u64)?;
    let distance = i32::from_le_bytes([*a, *b, *c, *d]);
    next.checked_add_signed(distance.into())
}

fn targets<'d>(
    elf: &ElfFile64<'d, Endianness>,
    image: &'d [u8],
    mut by_slot: HashMap<u64, Vec<(u64, u64)>>,
) -> Vec<(u64, u64, Target<'d>)> {
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    let mut found = Vec::new();
    let mut left = MOST_RELOCATIONS;
    for section in sections.iter() {
        let is_loaded = section.sh_flags(endian).0 & elf::SHF_ALLOC.0 != 0;
        let Ok(Some((relocations, link))) = section.rela(endian, image) else {
            continue;
        };
        if !is_loaded {
            continue;
        }
        let symbols = sections.symbol_table_by_index(endian, image, link).ok();
        for relocation in relocations.iter().take(left) {
            left -= 1;
            let slot = relocation.r_offset(endian);
            if !by_slot.contains_key(&slot) {
                continue;
            }
            let named = || {
                let symbols = symbols.as_ref()?;
                let symbol = symbols.symbol(relocation.symbol(endian, false)?).ok()?;
                symbol.name(endian, symbols.strings()).ok()
            };
            let target = match relocation.r_type(endian, false) {
                elf::R_X86_64_IRELATIVE => {
                    Some(Target::Chosen(relocation.r_addend(endian).cast_unsigned()))
                }
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_64 => {
                    named().filter(|name| !name.is_empty()).map(Target::Named)
                }
                _ => None,
            };
            let Some(target) = target else { continue };
            // Its first relocation holds: no other function is put there.
            let stubs = by_slot.remove(&slot).unwrap_or_default();
            found.extend(stubs.into_iter().map(|(start, end)| (start, end, target)));
        }
    }
    found
}

/// Of several names of a resolver the one of the lowest rank is taken, as of other functions.
/// A symbol of the function that is chosen comes before one of what chooses.
type Resolvers<'d> = HashMap<u64, Option<((bool, super::Rank), &'d [u8])>>;

fn name_resolvers<'d>(image: &'d [u8], resolvers: &mut Resolvers<'d>) {
    let Ok(elf) = object::File::parse(image) else {
        return;
    };
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.section_index().is_none() {
            continue;
        }
        let Some(best) = resolvers.get_mut(&symbol.address()) else {
            continue;
        };
        let Some(name) = symbol.name_bytes().ok().filter(|name| !name.is_empty()) else {
            continue;
        };
        let chooses = match symbol.flags() {
            SymbolFlags::Elf { st_info, .. } => st_info.st_type() != elf::STT_GNU_IFUNC,
            _ => true,
        };
        let candidate = ((chooses, super::rank(&symbol, name)), name);
        if best.is_none_or(|best| candidate < best) {
            *best = Some(candidate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_of_a_stub_leads_to_its_slot() {
        let at = 0x1000;
        let jump = [0xff, 0x25, 0x10, 0, 0, 0];
        let with = |before: &[u8]| [before, &jump, &[0x90; 4]].concat();
        for (before, slot_) in [
            (&[][..], 0x1016),
            (&ENDBR64, 0x101a),
            (&[0xf2], 0x1017),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2], 0x101b),
            // As mold has it.
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 7, 0, 0, 0], 0x1020),
        ] {
            assert_eq!(slot(&with(before), at), Some(slot_), "{before:x?}");
        }
        // Backwards, beyond the beginning, cut off, and what comes before the first stub.
        assert_eq!(
            slot(&[0xff, 0x25, 0xff, 0xff, 0xff, 0xff], at),
            Some(0x1005)
        );
        assert_eq!(slot(&[0xff, 0x25, 0, 0, 0, 0x80], at), None);
        assert_eq!(slot(&jump[..5], at), None);
        assert_eq!(slot(&[0xff, 0x35, 0, 0, 0, 0], at), None);
        assert_eq!(slot(&jump, u64::MAX - 2), None);
    }

    #[test]
    fn stubs_that_cover_an_address_are_found_each_once() {
        let all = |wanted| places(0x1000, 0x28, 16, wanted).collect::<Vec<_>>();
        assert_eq!(all(None), [0, 16, 32]);
        let wanted = [1, 0xfff, 0x1000, 0x100f, 0x1027, 0x1028, u64::MAX];
        assert_eq!(all(Some(&wanted)), [0, 32]);
        assert_eq!(all(Some(&[])), [0; 0]);
    }
}
