//! Ranges laid flat, so that an address is found by one binary search whatever overlaps.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Ranges with values. Where several cover an address the innermost holds: the one that begins last, of these
/// the shortest, of these the first that was given.
#[derive(Debug)]
pub(super) struct Flat<T> {
    parts: Box<[Part<T>]>,
}

#[derive(Debug)]
struct Part<T> {
    begin: u64,
    end: u64,
    /// Where the range begins of which this is a part.
    from: u64,
    value: T,
}

impl<T> Default for Flat<T> {
    fn default() -> Flat<T> {
        Flat {
            parts: Box::default(),
        }
    }
}

impl<T: Copy + PartialEq> Flat<T> {
    /// Lays (begin, end, value) flat; empty ranges are left out.
    pub fn new(mut ranges: Vec<(u64, u64, T)>) -> Flat<T> {
        ranges.retain(|(begin, end, _)| begin < end);
        ranges.sort_by_key(|(begin, end, _)| (*begin, *end));
        let mut parts: Vec<Part<T>> = Vec::with_capacity(ranges.len());
        // Open ranges, the innermost on top: (begin, shortest, first given).
        let mut open: BinaryHeap<(u64, Reverse<u64>, Reverse<usize>)> = BinaryHeap::new();
        let mut next = ranges.iter().enumerate().peekable();
        let mut at = 0;
        loop {
            while open.peek().is_some_and(|(_, end, _)| end.0 <= at) {
                open.pop();
            }
            if open.is_empty() {
                match next.peek() {
                    Some((_, (begin, _, _))) => at = *begin,
                    None => break,
                }
            }
            while let Some((i, (begin, end, _))) = next.next_if(|(_, (begin, _, _))| *begin <= at) {
                open.push((*begin, Reverse(*end), Reverse(i)));
            }
            let Some((from, end, i)) = open.peek() else {
                continue;
            };
            let until = next
                .peek()
                .map_or(end.0, |(_, (begin, _, _))| end.0.min(*begin));
            if let Some((_, _, value)) = ranges.get(i.0) {
                match parts.last_mut() {
                    Some(last) if last.end == at && last.from == *from && last.value == *value => {
                        last.end = until;
                    }
                    _ => parts.push(Part {
                        begin: at,
                        end: until,
                        from: *from,
                        value: *value,
                    }),
                }
            }
            at = until;
        }
        Flat {
            parts: parts.into(),
        }
    }

    /// Where the innermost range begins that covers `address`, and its value.
    pub fn find(&self, address: u64) -> Option<(u64, T)> {
        let after = self.parts.partition_point(|part| part.begin <= address);
        let part = self.parts.get(after.checked_sub(1)?)?;
        (address < part.end).then_some((part.from, part.value))
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.parts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_range_holds() {
        let flat = Flat::new(vec![
            (10, 100, 'a'),
            (20, 30, 'b'),
            (25, 60, 'c'),
            (25, 40, 'd'),
            (25, 40, 'e'),
            (200, 200, 'x'),
            (100, 110, 'f'),
            (300, u64::MAX, 'g'),
        ]);
        let expected = [
            (9, None),
            (10, Some((10, 'a'))),
            (19, Some((10, 'a'))),
            (20, Some((20, 'b'))),
            (25, Some((25, 'd'))),
            (39, Some((25, 'd'))),
            (40, Some((25, 'c'))),
            (59, Some((25, 'c'))),
            (60, Some((10, 'a'))),
            (99, Some((10, 'a'))),
            (100, Some((100, 'f'))),
            (110, None),
            (200, None),
            (u64::MAX - 1, Some((300, 'g'))),
            (u64::MAX, None),
        ];
        for (address, value) in expected {
            assert_eq!(flat.find(address), value, "{address}");
        }
        assert_eq!(Flat::<u8>::default().find(0), None);
    }
}
