//! Which code was where in the kernel, when some of it comes and goes.

use std::collections::BTreeMap;

use crate::format::aid::KernelSymbol;

/// Pieces of code remembered at most.
const MOST: usize = 1 << 16;

/// All code of one kind there was since the recording began, as far as it is known.
#[derive(Debug, Default)]
pub struct Places {
    /// By start, not overlapping.
    known: BTreeMap<u64, Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    end: u64,
    /// `None` where there were several, one after the other.
    code: Option<Code>,
}

/// What tells code from other code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Code {
    name: String,
    module: Option<String>,
}

impl Places {
    /// There is such code. `false` when there is no room to remember it.
    pub fn add(&mut self, symbol: &KernelSymbol) -> bool {
        let code = Code {
            name: symbol.name.clone(),
            module: symbol.module.clone(),
        };
        self.put(symbol.start, symbol.end, Some(code))
    }

    /// What there is between these addresses cannot be known.
    pub fn doubt(&mut self, start: u64, end: u64) -> bool {
        self.put(start, end, None)
    }

    fn put(&mut self, start: u64, end: u64, code: Option<Code>) -> bool {
        let mut place = Place { end, code };
        if start >= end || self.known.get(&start) == Some(&place) {
            return true;
        }
        if self.known.len() >= MOST {
            return false;
        }
        let mut first = start;
        while let Some((other, at)) = self.known.range(..place.end).next_back() {
            if at.end <= first {
                break;
            }
            // Which of them ran when is not told.
            let other = *other;
            place.code = None;
            place.end = place.end.max(at.end);
            first = first.min(other);
            self.known.remove(&other);
        }
        self.known.insert(first, place);
        true
    }

    /// Whether it is known what there is at `address`, or that it was not always the same.
    pub fn knows(&self, address: u64) -> bool {
        self.at(address).is_some()
    }

    /// The only code there was at `address`.
    pub fn find(&self, address: u64) -> Option<KernelSymbol> {
        let (start, place) = self.at(address)?;
        symbol(start, place)
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// All code that was alone in its place.
    pub fn all(&self) -> impl Iterator<Item = KernelSymbol> {
        self.known
            .iter()
            .filter_map(|(start, place)| symbol(*start, place))
    }

    fn at(&self, address: u64) -> Option<(u64, &Place)> {
        let (start, place) = self.known.range(..=address).next_back()?;
        (address < place.end).then_some((*start, place))
    }
}

fn symbol(start: u64, place: &Place) -> Option<KernelSymbol> {
    let code = place.code.as_ref()?;
    Some(KernelSymbol {
        start,
        end: place.end,
        name: code.name.clone(),
        module: code.module.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(start: u64, end: u64, name: &str) -> KernelSymbol {
        KernelSymbol {
            start,
            end,
            name: name.into(),
            module: Some("m".into()),
        }
    }

    #[test]
    fn a_place_that_was_used_twice_has_no_name() {
        let mut places = Places::default();
        assert!(places.add(&code(0x100, 0x140, "a")));
        assert!(places.add(&code(0x100, 0x140, "a")));
        assert!(places.add(&code(0x200, 0x240, "b")));
        assert_eq!(places.find(0x13f), Some(code(0x100, 0x140, "a")));
        assert!(places.add(&code(0x120, 0x180, "c")));
        assert_eq!(places.find(0x110), None);
        assert!(places.knows(0x17f) && !places.knows(0x180));
        assert!(places.doubt(0x230, 0x300));
        assert_eq!(places.find(0x200), None);
        assert!(places.add(&code(0x2ff, 0x301, "d")));
        assert_eq!(places.find(0x300), None, "partly in doubt");
        assert!(places.add(&code(0x400, 0x410, "e")));
        assert_eq!(places.all().collect::<Vec<_>>(), [code(0x400, 0x410, "e")]);
        let mut moved = code(0x400, 0x410, "e");
        moved.module = None;
        assert!(places.add(&moved));
        assert_eq!(places.find(0x400), None, "of another module");
    }
}
