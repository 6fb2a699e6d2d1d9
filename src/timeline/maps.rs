//! Which mapping covers an address: a list read at once, and a log of mappings added one by one.

use std::cell::OnceCell;

use crate::event::Timestamp;
use crate::format::process::{MappingId, MappingTemplate, PlacedMapping, Space};

/// A mapping that covers the address asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub start: u64,
    pub mapping: MappingId,
}

/// A list of mappings sorted by address.
#[derive(Debug)]
pub(super) struct SpaceIndex {
    /// (first address, address after the last, mapping).
    ranges: Vec<(u64, u64, MappingId)>,
}

impl SpaceIndex {
    pub fn new(space: &Space, templates: &[MappingTemplate]) -> SpaceIndex {
        let mut ranges: Vec<_> = space
            .mappings
            .iter()
            .filter_map(|p| {
                let len = templates.get(p.mapping as usize)?.len;
                Some((p.start, p.start.saturating_add(len), p.mapping))
            })
            .collect();
        ranges.sort_unstable();
        SpaceIndex { ranges }
    }

    pub fn find(&self, address: u64) -> Option<Found> {
        let at = self
            .ranges
            .partition_point(|(start, ..)| *start <= address)
            .checked_sub(1)?;
        let (start, end, mapping) = *self.ranges.get(at)?;
        (address < end).then_some(Found { start, mapping })
    }
}

/// Logs up to this length are searched from the end; longer ones get an index.
const LINEAR: usize = 48;

/// Mappings in the order in which they were made. A later one hides exactly the part of the earlier
/// ones that it overlaps.
#[derive(Debug, Default)]
pub(super) struct MapLog {
    entries: Vec<Entry>,
    /// Built when first needed, dropped when the log grows.
    index: OnceCell<Index>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    since: Timestamp,
    start: u64,
    end: u64,
    mapping: MappingId,
}

impl MapLog {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// What was mapped by the first `at` entries, and by those after them.
    pub fn split(
        &self,
        at: usize,
    ) -> (
        impl Iterator<Item = MappingId> + '_,
        impl Iterator<Item = MappingId> + '_,
    ) {
        let (before, after) = self.entries.split_at(at.min(self.entries.len()));
        (
            before.iter().map(|e| e.mapping),
            after.iter().map(|e| e.mapping),
        )
    }

    /// Adds a mapping; `since` must not be earlier than that of the entry before.
    pub fn push(&mut self, since: Timestamp, placed: PlacedMapping, len: u64) {
        self.entries.push(Entry {
            since,
            start: placed.start,
            end: placed.start.saturating_add(len),
            mapping: placed.mapping,
        });
        self.index.take();
    }

    /// The newest entry that covers `address`, is not younger than `time` and is number `first` or later.
    pub fn find(&self, address: u64, first: usize, time: Timestamp) -> Option<Found> {
        let count = self.entries.partition_point(|e| e.since <= time);
        let newest = if self.entries.len() <= LINEAR {
            let known = self.entries.get(first..count)?;
            let at = known
                .iter()
                .rposition(|e| e.start <= address && address < e.end)?;
            first + at
        } else {
            self.index
                .get_or_init(|| Index::new(&self.entries))
                .newest(address, count)?
        };
        let entry = self.entries.get(newest).filter(|_| newest >= first)?;
        Some(Found {
            start: entry.start,
            mapping: entry.mapping,
        })
    }
}

/// A segment tree over the addresses at which any entry begins or ends: each entry sits in the
/// O(log n) nodes that make up its range, so that n entries take O(n log n) memory however they overlap.
#[derive(Debug)]
struct Index {
    /// Distinct bounds, ascending. Leaf `i` covers `bounds[i]..bounds[i + 1]`.
    bounds: Vec<u64>,
    /// A perfect binary tree, root at 1: numbers of entries, ascending.
    nodes: Vec<Vec<u32>>,
    /// Leaves of the tree.
    width: usize,
}

impl Index {
    fn new(entries: &[Entry]) -> Index {
        let mut bounds: Vec<u64> = entries.iter().flat_map(|e| [e.start, e.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let width = bounds.len().next_power_of_two();
        let mut nodes = vec![Vec::new(); 2 * width];
        for (number, entry) in entries.iter().enumerate() {
            let mut lo = width + bounds.partition_point(|b| *b < entry.start);
            let mut hi = width + bounds.partition_point(|b| *b < entry.end);
            while lo < hi {
                if lo % 2 == 1 {
                    nodes
                        .get_mut(lo)
                        .into_iter()
                        .for_each(|n| n.push(number as u32));
                    lo += 1;
                }
                if hi % 2 == 1 {
                    hi -= 1;
                    nodes
                        .get_mut(hi)
                        .into_iter()
                        .for_each(|n| n.push(number as u32));
                }
                lo /= 2;
                hi /= 2;
            }
        }
        Index {
            bounds,
            nodes,
            width,
        }
    }

    /// The newest of the first `count` entries that covers `address`.
    fn newest(&self, address: u64, count: usize) -> Option<usize> {
        let leaf = self
            .bounds
            .partition_point(|b| *b <= address)
            .checked_sub(1)?;
        let mut node = self.width + leaf;
        let mut best = None;
        while node > 0 {
            let list = self.nodes.get(node)?;
            let known = list.partition_point(|n| (*n as usize) < count);
            best = best.max(known.checked_sub(1).and_then(|i| list.get(i)).copied());
            node /= 2;
        }
        best.map(|n| n as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(u64, u64, u64)]) -> MapLog {
        let mut log = MapLog::default();
        for (mapping, (time, start, end)) in entries.iter().enumerate() {
            let placed = PlacedMapping {
                start: *start,
                mapping: mapping as u32,
            };
            log.push(Timestamp(*time), placed, end - start);
        }
        log
    }

    #[test]
    fn a_later_mapping_hides_only_what_it_overlaps() {
        let log = log(&[(1, 100, 200), (5, 140, 160)]);
        let at = |address, time| log.find(address, 0, Timestamp(time)).map(|f| f.mapping);
        assert_eq!(at(150, 0), None);
        assert_eq!(at(150, 4), Some(0));
        assert_eq!(at(150, 5), Some(1));
        assert_eq!(at(139, 9), Some(0));
        assert_eq!(at(160, 9), Some(0));
        assert_eq!(at(200, 9), None);
        assert_eq!(log.find(139, 1, Timestamp(9)), None);
    }

    #[test]
    fn the_index_answers_as_a_search_from_the_end_does() {
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let entries: Vec<(u64, u64, u64)> = (0..500)
            .map(|i| {
                let start = next(1000);
                (i / 2, start, start + 1 + next(60))
            })
            .collect();
        let log = log(&entries);
        for _ in 0..5000 {
            let (address, time, first) = (next(1100), next(300), next(500) as usize);
            let expected = entries
                .iter()
                .enumerate()
                .skip(first)
                .rfind(|(_, (t, s, e))| *t <= time && *s <= address && address < *e)
                .map(|(i, _)| i as u32);
            let found = log.find(address, first, Timestamp(time)).map(|f| f.mapping);
            assert_eq!(
                found, expected,
                "address {address} time {time} first {first}"
            );
        }
    }
}
