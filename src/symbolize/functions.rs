//! The functions of an ELF image by its symbol tables: which one covers an address.
//!
//! Used for the vdso, and as the judge where a symbol without a size is in question: a sized function
//! bounds its range, one without a size reaches to the next function, and labels, data, version markers
//! and other things that are not functions never name code.

use object::read::ReadRef;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::format::packed::table::{Loaded, PackedFunction};

/// Function symbols sorted by address.
#[derive(Debug)]
pub struct FunctionTable {
    functions: Vec<Function>,
    /// The highest end among `functions[..=i]`, to know when to stop looking for one around an address.
    reach: Vec<u64>,
    /// (file offset, length in the file, address) of the loaded segments.
    segments: Vec<(u64, u64, u64)>,
    /// Symbols at address 0: absolute ones such as version markers.
    at_zero: Vec<String>,
}

/// A function symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Address in the image.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Mangled name.
    pub name: String,
    sized: bool,
    local_or_weak: bool,
}

impl FunctionTable {
    /// Reads the symbol tables of an ELF image; `None` when it is not one.
    pub fn parse<'data, R: ReadRef<'data>>(data: R) -> Option<FunctionTable> {
        let elf = object::File::parse(data).ok()?;
        let mut functions: Vec<Function> = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|s| s.kind() == SymbolKind::Text && s.section_index().is_some())
            .filter_map(|s| {
                let name = String::from_utf8_lossy(s.name_bytes().ok()?).into_owned();
                let (start, size) = (s.address(), s.size());
                (!name.is_empty()).then(|| Function {
                    start,
                    end: start.saturating_add(size),
                    name,
                    sized: size > 0,
                    local_or_weak: s.is_weak() || s.is_local(),
                })
            })
            .collect();
        // Of several names for one function: the longest range, a global name, then by the alphabet.
        functions.sort_by(|a, b| {
            (a.start, b.end, a.local_or_weak, &a.name).cmp(&(
                b.start,
                a.end,
                b.local_or_weak,
                &b.name,
            ))
        });
        functions.dedup_by(|later, first| later.start == first.start && later.end == first.end);
        let at_zero = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|s| s.address() == 0)
            .filter_map(|s| Some(String::from_utf8_lossy(s.name_bytes().ok()?).into_owned()))
            .collect();
        let segments: Vec<(u64, u64, u64)> = elf
            .segments()
            .map(|s| {
                let (offset, len) = s.file_range();
                (offset, len, s.address())
            })
            .collect();
        let starts: Vec<u64> = functions.iter().map(|f| f.start).collect();
        for function in functions.iter_mut().filter(|f| !f.sized) {
            let next = starts.partition_point(|s| *s <= function.start);
            let segment_end = segments
                .iter()
                .find(|(_, len, at)| function.start >= *at && function.start - at < *len)
                .map_or(function.start, |(_, len, at)| at.saturating_add(*len));
            function.end = starts
                .get(next)
                .map_or(segment_end, |next| segment_end.min(*next));
        }
        let reach = reach(&functions);
        Some(FunctionTable {
            functions,
            reach,
            segments,
            at_zero,
        })
    }

    /// A table of functions that were packed, sorted by start, with the loaded parts of their file.
    pub fn of_packed(loads: &[Loaded], functions: Vec<PackedFunction>) -> FunctionTable {
        let mut functions: Vec<Function> = functions
            .into_iter()
            .map(|f| Function {
                start: f.start,
                end: f.start.saturating_add(f.len),
                name: f.name,
                sized: f.sized,
                local_or_weak: false,
            })
            .collect();
        functions.sort_by_key(|f| (f.start, std::cmp::Reverse(f.end)));
        let reach = reach(&functions);
        FunctionTable {
            functions,
            reach,
            segments: loads.iter().map(|l| (l.offset, l.len, l.address)).collect(),
            at_zero: Vec::new(),
        }
    }

    /// Whether there is no function with any code.
    pub fn is_empty(&self) -> bool {
        self.functions.iter().all(|f| f.start >= f.end)
    }

    /// All functions, sorted by start, as they are packed.
    pub fn to_pack(&self) -> Vec<PackedFunction> {
        let functions = self.functions.iter().filter(|f| f.start < f.end);
        functions
            .map(|f| PackedFunction {
                start: f.start,
                len: f.end - f.start,
                name: f.name.clone(),
                sized: f.sized,
            })
            .collect()
    }

    /// The loaded parts of the file, as they are packed.
    pub fn loads(&self) -> Vec<Loaded> {
        self.segments
            .iter()
            .map(|(offset, len, address)| Loaded {
                offset: *offset,
                len: *len,
                address: *address,
            })
            .collect()
    }

    /// The address of a file offset, by the segment whose part of the file covers it.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|(offset, len, address)| {
            let inside = file_offset.checked_sub(*offset)?;
            (inside < *len).then(|| address.wrapping_add(inside))
        })
    }

    /// Whether a symbol of this name is at address 0.
    pub fn has_at_zero(&self, name: &str) -> bool {
        self.at_zero.iter().any(|n| n == name)
    }

    /// The function that covers `address`: the innermost with a size, else one without.
    pub fn find(&self, address: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let mut sizeless = None;
        for i in (0..after).rev() {
            if self.reach.get(i).is_none_or(|reach| *reach <= address) {
                break;
            }
            match self.functions.get(i) {
                Some(f) if address < f.end && f.sized => return Some(f),
                Some(f) if address < f.end => sizeless = sizeless.or(Some(f)),
                _ => {}
            }
        }
        sizeless
    }
}

/// The highest end among the functions up to each.
fn reach(functions: &[Function]) -> Vec<u64> {
    let ends = functions.iter().scan(0u64, |high, f| {
        *high = (*high).max(f.end);
        Some(*high)
    });
    ends.collect()
}

/// `name` as its source has it, for C++ and Rust; others as they are.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    cpp_demangle::Symbol::new(name)
        .ok()
        .and_then(|cpp| cpp.demangle().ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled() {
        assert_eq!(demangle("_ZN3app5driveEi"), "app::drive(int)");
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(
            demangle("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(demangle("do_syscall_64"), "do_syscall_64");
        assert_eq!(demangle("_Z"), "_Z");
    }
}
