//! JIT code by the perf maps the recorder saved: which line held when, for which process.
//!
//! Readings are put together to *spans*: a line, and from when to when it is known to have been true. An address
//! that one line covers and later another has no name in between: which of them ran is not known.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::event::{ProcessKey, Timestamp};
use crate::format::aid::{JitSymbol, PerfMap};

/// All saved perf maps.
#[derive(Debug, Default)]
pub struct PerfMaps {
    maps: Vec<PerfMap>,
    by_process: HashMap<ProcessKey, Spans>,
}

/// A line of a map while it is known to be true.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    from: Timestamp,
    /// True at this time still.
    to: Timestamp,
    map: u32,
    line: u32,
}

/// The spans of one process.
#[derive(Debug, Default)]
struct Spans {
    /// Sorted by start.
    list: Vec<Span>,
    /// Of each, the highest end of it and all before it.
    reach: Vec<u64>,
    /// Times at which what is known changes, ascending, each once.
    boundaries: Arc<[Timestamp]>,
}

/// Spans looked at for one address. Code that is written again and again at one place leaves some hundreds; a file made to
/// cost time, millions.
const MOST_LOOKED_AT: usize = 1 << 14;

impl PerfMaps {
    /// A table of what was saved, in the order of the file.
    pub fn new(maps: Vec<PerfMap>) -> PerfMaps {
        let mut numbers: HashMap<ProcessKey, Vec<usize>> = HashMap::new();
        for (number, map) in maps.iter().enumerate() {
            numbers.entry(map.process).or_default().push(number);
        }
        let by_process = numbers
            .into_iter()
            .map(|(process, numbers)| (process, Spans::new(&maps, &numbers)))
            .collect();
        PerfMaps { maps, by_process }
    }

    /// Times at which what is known of a process's JIT code changes.
    pub fn boundaries(&self, process: ProcessKey) -> Arc<[Timestamp]> {
        let spans = self.by_process.get(&process);
        spans.map_or_else(Arc::default, |spans| Arc::clone(&spans.boundaries))
    }

    /// (map, line) of the symbol that covered `address` of `process` at `time`.
    pub fn find(&self, process: ProcessKey, time: Timestamp, address: u64) -> Option<(u32, u32)> {
        let Spans { list, reach, .. } = self.by_process.get(&process)?;
        let after = list.partition_point(|span| span.start <= address);
        let mut candidates = list
            .get(..after)?
            .iter()
            .zip(reach)
            .rev()
            .take_while(|(_, reach)| **reach > address)
            .map(|(span, _)| span);
        let mut found = None;
        for span in candidates.by_ref().take(MOST_LOOKED_AT) {
            if address < span.end && span.from <= time && time <= span.to {
                // Readings in order leave one; a file that says otherwise is not believed.
                if found.replace((span.map, span.line)).is_some() {
                    return None;
                }
            }
        }
        found.filter(|_| candidates.next().is_none())
    }

    /// A symbol found before.
    pub fn symbol(&self, map: u32, line: u32) -> Option<&JitSymbol> {
        self.maps.get(map as usize)?.symbols.get(line as usize)
    }
}

impl Spans {
    /// The spans of one process, whose readings are those of `numbers`.
    fn new(maps: &[PerfMap], numbers: &[usize]) -> Spans {
        let mut list: Vec<Span> = Vec::new();
        // Those true as of the last reading, by start; they do not overlap.
        let mut current: BTreeMap<u64, usize> = BTreeMap::new();
        let mut until = Timestamp::ZERO;
        for number in numbers {
            let Some(map) = maps.get(*number) else {
                continue;
            };
            until = until.max(map.until);
            if map.fresh {
                for at in std::mem::take(&mut current).into_values() {
                    end(&mut list, at, map.previous);
                }
            }
            for start in &map.ended {
                if let Some(at) = current.remove(start) {
                    end(&mut list, at, map.previous);
                }
            }
            let first = list.len();
            for (line, symbol) in map.symbols.iter().enumerate() {
                let span = Span {
                    start: symbol.start,
                    end: symbol.start.saturating_add(symbol.len),
                    from: symbol.since,
                    to: Timestamp::MAX,
                    map: *number as u32,
                    line: line as u32,
                };
                while let Some((start, at)) = overlapping(&current, &list, &span) {
                    current.remove(&start);
                    if at < first {
                        end(&mut list, at, map.previous);
                    } else if let Some(span) = list.get_mut(at) {
                        // Two lines of one reading overlap, against the format: the later one is taken.
                        span.from = Timestamp::MAX;
                        span.to = Timestamp::ZERO;
                    }
                }
                if span.start < span.end {
                    current.insert(span.start, list.len());
                    list.push(span);
                }
            }
        }
        for at in current.into_values() {
            end(&mut list, at, until);
        }
        list.retain(|span| span.from <= span.to);
        list.sort_by_key(|span| span.start);
        let reach = list
            .iter()
            .scan(0, |reach: &mut u64, span| {
                *reach = span.end.max(*reach);
                Some(*reach)
            })
            .collect();
        let mut boundaries: Vec<_> = list
            .iter()
            .flat_map(|span| [span.from, Timestamp(span.to.0.saturating_add(1))])
            .collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        Spans {
            list,
            reach,
            boundaries: boundaries.into(),
        }
    }
}

fn end(list: &mut [Span], at: usize, time: Timestamp) {
    if let Some(span) = list.get_mut(at) {
        span.to = time;
    }
}

/// One of `current` that `span` overlaps: its start and number.
fn overlapping(current: &BTreeMap<u64, usize>, list: &[Span], span: &Span) -> Option<(u64, usize)> {
    let (start, at) = current.range(..span.end).next_back()?;
    let overlaps = list.get(*at).is_some_and(|other| other.end > span.start);
    overlaps.then_some((*start, *at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Pid;

    const PROCESS: ProcessKey = ProcessKey {
        tgid: Pid(7),
        start_time: Timestamp(1),
    };

    fn map(previous: u64, until: u64, lines: &[(u64, u64, u64, &str)]) -> PerfMap {
        let symbols = lines.iter().map(|(start, len, since, name)| JitSymbol {
            start: *start,
            len: *len,
            since: Timestamp(*since),
            name: (*name).into(),
        });
        PerfMap {
            process: PROCESS,
            previous: Timestamp(previous),
            until: Timestamp(until),
            fresh: false,
            ended: Vec::new(),
            symbols: symbols.collect(),
        }
    }

    fn name(maps: &PerfMaps, time: u64, address: u64) -> Option<String> {
        let (map, line) = maps.find(PROCESS, Timestamp(time), address)?;
        let symbol = maps.symbol(map, line)?;
        Some(String::from_utf8_lossy(&symbol.name).into_owned())
    }

    #[test]
    fn a_line_holds_until_another_takes_its_place_and_nothing_holds_in_between() {
        let maps = PerfMaps::new(vec![
            map(
                0,
                50,
                &[(0x100, 0x10, 0, "first"), (0x200, 0x10, 0, "stays")],
            ),
            map(
                70,
                90,
                &[(0x108, 0x10, 92, "second"), (0x300, 8, 70, "new")],
            ),
            map(90, 120, &[]),
        ]);
        let at = |time, address| name(&maps, time, address);
        assert_eq!(at(0, 0x100).as_deref(), Some("first"));
        assert_eq!(
            at(70, 0x10f).as_deref(),
            Some("first"),
            "seen by the reading at 70"
        );
        assert_eq!(at(71, 0x10f), None, "either");
        assert_eq!(at(91, 0x10f), None);
        assert_eq!(at(92, 0x10f).as_deref(), Some("second"));
        assert_eq!(at(92, 0x107), None, "the first is gone as a whole");
        assert_eq!(at(120, 0x117).as_deref(), Some("second"));
        assert_eq!(at(120, 0x118), None);
        assert_eq!(
            at(121, 0x110),
            None,
            "nothing is known after the last reading"
        );
        assert_eq!(at(120, 0x20f).as_deref(), Some("stays"));
        assert_eq!(
            (at(69, 0x300), at(70, 0x300).as_deref()),
            (None, Some("new"))
        );
        let other = ProcessKey {
            start_time: Timestamp(2),
            ..PROCESS
        };
        assert_eq!(maps.find(other, Timestamp(20), 0x100), None);
        let times = [0, 70, 71, 92, 121].map(Timestamp);
        assert_eq!(*maps.boundaries(PROCESS), times);
        assert_eq!(*maps.boundaries(other), []);
    }

    #[test]
    fn a_line_can_end_and_nothing_be_in_its_place() {
        let mut second = map(60, 90, &[]);
        second.ended = vec![0x100, 0x999];
        let maps = PerfMaps::new(vec![map(0, 50, &[(0x100, 0x10, 0, "gone")]), second]);
        assert_eq!(name(&maps, 60, 0x100).as_deref(), Some("gone"));
        assert_eq!(name(&maps, 61, 0x100), None);
    }

    #[test]
    fn a_fresh_map_ends_all_before_it() {
        let mut second = map(60, 90, &[(0x200, 0x10, 60, "again")]);
        second.fresh = true;
        let maps = PerfMaps::new(vec![
            map(
                0,
                50,
                &[(0x100, 0x10, 0, "gone"), (0x200, 0x10, 0, "again")],
            ),
            second,
        ]);
        let at = |time, address| name(&maps, time, address);
        assert_eq!(at(60, 0x100).as_deref(), Some("gone"));
        assert_eq!(at(61, 0x100), None);
        assert_eq!(at(61, 0x200).as_deref(), Some("again"));
    }

    /// Each look-up would pass over all of them.
    #[test]
    fn an_address_that_very_many_lines_may_hold_has_no_name() {
        let many = |short: u64| {
            let lines: Vec<_> = (0..short).map(|i| (0x1000 + i, 1, 60, "short")).collect();
            let mut later = map(50, 90, &lines);
            later.fresh = true;
            let long = map(0, 50, &[(0x100, 1 << 32, 0, "long")]);
            PerfMaps::new(vec![long, later])
        };
        let at = 0x1000 + (1 << 20);
        assert_eq!(name(&many(1000), 40, at).as_deref(), Some("long"));
        let most = MOST_LOOKED_AT as u64;
        assert_eq!(name(&many(most - 1), 40, at).as_deref(), Some("long"));
        assert_eq!(name(&many(most), 40, at), None);
        // Those near by do not.
        assert_eq!(name(&many(most), 70, 0x1000).as_deref(), Some("short"));
        assert_eq!(name(&many(most), 70, 0x1000 + most), None);
    }

    #[test]
    fn lines_that_make_no_sense_name_nothing() {
        let maps = PerfMaps::new(vec![
            map(0, 50, &[(0x100, 0x10, 0, "one"), (0x108, 0x10, 0, "other")]),
            map(
                50,
                60,
                &[
                    (u64::MAX - 1, u64::MAX, 50, "high"),
                    (0x500, 0, 50, "empty"),
                ],
            ),
        ]);
        assert_eq!(name(&maps, 60, 0x104), None);
        assert_eq!(name(&maps, 60, 0x500), None);
        assert_eq!(name(&maps, 60, u64::MAX - 1).as_deref(), Some("high"));
        assert_eq!(name(&maps, 60, 0x10a).as_deref(), Some("other"));
    }
}
