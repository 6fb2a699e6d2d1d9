//! JIT code by the perf maps the recorder saved: which line held when, for which process.

use hashbrown::HashMap;

use crate::event::{ProcessKey, Timestamp};
use crate::format::aid::{JitSymbol, PerfMap};

/// All saved perf maps.
#[derive(Debug, Default)]
pub struct PerfMaps {
    maps: Vec<PerfMap>,
    /// Indexes into `maps` by process, sorted by the time of reading.
    by_process: HashMap<ProcessKey, Vec<usize>>,
}

impl PerfMaps {
    /// A table of what was saved.
    pub fn new(mut maps: Vec<PerfMap>) -> PerfMaps {
        let mut by_process: HashMap<ProcessKey, Vec<usize>> = HashMap::new();
        for (i, map) in maps.iter_mut().enumerate() {
            map.symbols.sort_by_key(|s| s.start);
            by_process.entry(map.process).or_default().push(i);
        }
        for list in by_process.values_mut() {
            list.sort_by_key(|i| maps.get(*i).map(|m| (m.until, m.since)));
        }
        PerfMaps { maps, by_process }
    }

    /// Times at which what is known of a process's JIT code changes.
    pub fn boundaries(&self, process: ProcessKey) -> Vec<Timestamp> {
        let readings = self.by_process.get(&process).map_or(&[][..], |list| list);
        let readings = readings.iter().filter_map(|i| self.maps.get(*i));
        readings
            .flat_map(|m| [m.since, Timestamp(m.until.0.saturating_add(1))])
            .collect()
    }

    /// (map, line) of the symbol that covered `address` of `process` at `time`, by the first reading
    /// after that time.
    pub fn find(&self, process: ProcessKey, time: Timestamp, address: u64) -> Option<(u32, u32)> {
        let list = self.by_process.get(&process)?;
        let at = list.partition_point(|i| self.maps.get(*i).is_some_and(|m| m.until < time));
        let number = *list.get(at)?;
        let map = self.maps.get(number).filter(|m| m.since <= time)?;
        let line = map
            .symbols
            .partition_point(|s| s.start <= address)
            .checked_sub(1)?;
        let symbol = map.symbols.get(line)?;
        (address - symbol.start < symbol.len).then_some((number as u32, line as u32))
    }

    /// A symbol found before.
    pub fn symbol(&self, map: u32, line: u32) -> Option<&JitSymbol> {
        self.maps.get(map as usize)?.symbols.get(line as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Pid;

    #[test]
    fn a_line_holds_for_its_process_and_time_only() {
        let process = ProcessKey {
            tgid: Pid(7),
            start_time: Timestamp(1),
        };
        let map = |since, until, name: &str| PerfMap {
            process,
            since: Timestamp(since),
            until: Timestamp(until),
            symbols: vec![JitSymbol {
                start: 0x100,
                len: 0x10,
                name: name.into(),
            }],
        };
        let maps = PerfMaps::new(vec![map(50, 90, "second"), map(0, 50, "first")]);
        let name = |process, time, address| {
            let (map, line) = maps.find(process, Timestamp(time), address)?;
            maps.symbol(map, line)
                .map(|s| String::from_utf8_lossy(&s.name).into_owned())
        };
        assert_eq!(name(process, 50, 0x10f).as_deref(), Some("first"));
        assert_eq!(name(process, 51, 0x10f).as_deref(), Some("second"));
        assert_eq!(name(process, 91, 0x10f), None);
        assert_eq!(name(process, 20, 0x110), None);
        assert_eq!(name(process, 20, 0xff), None);
        let reused = ProcessKey {
            start_time: Timestamp(2),
            ..process
        };
        assert_eq!(name(reused, 20, 0x10f), None);
        assert_eq!(maps.boundaries(process), [0, 51, 50, 91].map(Timestamp));
    }
}
