//! Counting: the segments of a capture are dealt out to threads, and what these counted is put together in the order
//! of the segments, so that the numbers are those one thread would have given.

use std::num::NonZero;
use std::sync::{Arc, mpsc};
use std::thread;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::segment::{Key, Segment};
use super::stacks::{Lookup, PlaceStacks};
use super::{Progress, about};
use crate::capture::{Reader, SegmentReader};
use crate::event::ProcessKey;
use crate::profile::{About, Names, Process};
use crate::symbolize::Places;
use crate::symbolize::perf_map::PerfMaps;

/// Threads at most: each has its own tables of what it has seen, and they are put together by one.
const THREADS: usize = 8;
/// Compressed bytes that are worth a thread.
const WORTH_A_THREAD: u64 = 64 << 10;

/// Counts of one key.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub samples: u64,
    pub weight: u64,
}

impl Count {
    pub fn add(&mut self, other: Count) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
    }
}

/// Counts by packed key. Samples of one key are mostly few and near each other: they are put in a list that is sorted now and
/// then.
#[derive(Debug, Default)]
struct Counts {
    list: Vec<(u128, Count)>,
    /// Length at which those of one key are put together next.
    limit: usize,
}

/// Counts that are kept before those of one key are put together.
const UNSORTED: usize = 1 << 16;

impl Counts {
    fn add(&mut self, key: u128, weight: u64) {
        if self.list.len() >= self.limit {
            self.compact();
            self.limit = UNSORTED.max(2 * self.list.len());
        }
        self.list.push((key, Count { samples: 1, weight }));
    }

    fn compact(&mut self) {
        self.list.sort_unstable_by_key(|(key, _)| *key);
        self.list.dedup_by(|(key, count), (kept, sum)| {
            let same = key == kept;
            if same {
                sum.add(*count);
            }
            same
        });
    }

    /// Each key once, ascending.
    fn sorted(mut self) -> Vec<(u128, Count)> {
        self.compact();
        self.list
    }
}

/// (process, event, stack of places): what a row of the profile comes from.
pub(super) type PlaceRow = (u32, u8, u32);

/// Counts of rows. Most stacks are of one process only: its count is by the stack's number, and only those of others are
/// looked for.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Process, event and count of each stack; no samples where there are none yet.
    first: Vec<(u32, u8, Count)>,
    others: HashMap<PlaceRow, Count, FixedState>,
}

impl Rows {
    pub fn add(&mut self, row: PlaceRow, count: Count) {
        let (process, event, stack) = row;
        let at = stack as usize;
        if self.first.len() <= at {
            self.first.resize(at + 1, (0, 0, Count::default()));
        }
        match self.first.get_mut(at) {
            Some(first) if first.2.samples == 0 => *first = (process, event, count),
            Some(first) if (first.0, first.1) == (process, event) => first.2.add(count),
            _ => self.others.entry(row).or_default().add(count),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (PlaceRow, Count)> + '_ {
        let first = self.first.iter().enumerate();
        let first = first.filter(|(_, (.., count))| count.samples > 0);
        let first =
            first.map(|(at, (process, event, count))| ((*process, *event, at as u32), *count));
        first.chain(self.others.iter().map(|(row, count)| (*row, *count)))
    }
}

/// What some segments have in them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Samples, losses and damage of these segments; nothing else.
    pub about: About,
    /// Names of processes.
    pub names: Names,
    pub processes: Vec<Process>,
    process_index: HashMap<Process, u32>,
    pub places: Places,
    pub stacks: PlaceStacks,
    pub rows: Rows,
}

/// Counts all samples of a capture.
pub(super) fn count(
    reader: &Reader,
    perf_maps: &Arc<PerfMaps>,
    progress: &mut dyn Progress,
) -> Tally {
    let parts = deal(reader);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .map(|segments| {
                let tell = tell.clone();
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    let mut lookup = Lookup::new();
                    for segment in segments {
                        tally.segment(segment, perf_maps, &mut lookup, &|| {
                            // Nobody listens any more only when all is over.
                            let _ = tell.send(());
                        });
                    }
                    tally
                })
            })
            .collect();
        drop(tell);
        told.iter().for_each(|()| progress.frame());
        let mut whole: Option<Tally> = None;
        for thread in threads {
            match thread.join() {
                Ok(tally) => match &mut whole {
                    Some(whole) => whole.merge(tally),
                    none => *none = Some(tally),
                },
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        whole.unwrap_or_default()
    })
}

/// Runs of segments, one for each thread, with about the same number of bytes.
fn deal(reader: &Reader) -> Vec<Vec<SegmentReader<'_>>> {
    let bytes = |segment: &SegmentReader<'_>| {
        let frames = segment.frames();
        frames.fold(0u64, |sum, f| sum.saturating_add(f.descriptor.compressed))
    };
    let total = reader
        .segments()
        .fold(0u64, |sum, segment| sum.saturating_add(bytes(&segment)));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.min(THREADS) as u64;
    let threads = threads.min(total / WORTH_A_THREAD).max(1);
    let mut parts: Vec<Vec<SegmentReader<'_>>> = Vec::new();
    let mut before = 0u64;
    for segment in reader.segments() {
        // Where its middle lies decides.
        let size = bytes(&segment);
        let middle = u128::from(before.saturating_add(size / 2));
        let part = middle * u128::from(threads) / u128::from(total.max(1));
        before = before.saturating_add(size);
        while (parts.len() as u128) <= part.min(u128::from(threads - 1)) {
            parts.push(Vec::new());
        }
        if let Some(last) = parts.last_mut() {
            last.push(segment);
        }
    }
    parts
}

impl Tally {
    /// Counts one segment by numbers, then turns the numbers into places.
    fn segment(
        &mut self,
        mut reader: SegmentReader<'_>,
        perf_maps: &Arc<PerfMaps>,
        lookup: &mut Lookup,
        frame_read: &dyn Fn(),
    ) {
        let about = &mut self.about;
        let mut segment = Segment::new(Arc::clone(perf_maps));
        let mut counts = Counts::default();
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    let samples = frame.samples;
                    segment.frame(frame.tables, samples, |sample, key| {
                        counts.add(key.pack(), sample.weight);
                    });
                    about.samples = about.samples.saturating_add(samples.len() as u64);
                    frame_read();
                }
                Ok(None) => break,
                Err(damage) => {
                    about.damaged_samples = about.damaged_samples.saturating_add(damage.samples);
                    about.damage.push(damage.to_string());
                    break;
                }
            }
        }
        let tables = reader.tables();
        about::add_losses(about, &tables.losses);

        // In a fixed order, so that equal captures give equal numbers.
        let counts = counts.sorted();
        lookup.begin(tables);
        // Keys of one view follow each other.
        let mut of_view = None;
        for (key, count) in counts {
            let key = Key::unpack(key);
            let stack = lookup.stack(
                key,
                &mut segment,
                tables,
                &mut self.places,
                &mut self.stacks,
            );
            let process = match of_view {
                Some((view, process)) if view == key.view => process,
                _ => {
                    let name = segment.process_name(key.view, tables);
                    let process = segment.process(key.view);
                    process.map(|process| self.process(process, name))
                }
            };
            of_view = Some((key.view, process));
            if let Some(process) = process {
                self.rows.add((process, key.event, stack), count);
            }
        }
    }

    fn process(&mut self, key: ProcessKey, name: &[u8]) -> u32 {
        let name = self.names.intern_bytes(name);
        self.process_number(Process { key, name })
    }

    fn process_number(&mut self, process: Process) -> u32 {
        let processes = &mut self.processes;
        *self.process_index.entry(process).or_insert_with(|| {
            processes.push(process);
            processes.len() as u32 - 1
        })
    }

    /// Adds what the segments that follow have.
    fn merge(&mut self, other: Tally) {
        let about = &mut self.about;
        about.samples = about.samples.saturating_add(other.about.samples);
        let damaged = other.about.damaged_samples;
        about.damaged_samples = about.damaged_samples.saturating_add(damaged);
        about.damage.extend(other.about.damage);
        for (class, count) in other.about.losses {
            let sum = about.losses.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
        let processes: Vec<u32> = other
            .processes
            .iter()
            .map(|process| {
                let name = self.names.intern(other.names.text(process.name));
                self.process_number(Process { name, ..*process })
            })
            .collect();
        let places = self.places.merge(&other.places);
        let mut stacks: Vec<u32> = Vec::with_capacity(other.stacks.len() + 1);
        stacks.push(0);
        for (caller, place) in other.stacks.nodes() {
            let caller = stacks.get(caller as usize).copied().unwrap_or(0);
            // Marks are no places and the same everywhere.
            let place = places.get(place as usize).copied().unwrap_or(place);
            stacks.push(self.stacks.push(caller, place));
        }
        for ((process, event, stack), count) in other.rows.iter() {
            let number = |list: &[u32], i: u32| list.get(i as usize).copied().unwrap_or(0);
            let row = (number(&processes, process), event, number(&stacks, stack));
            self.rows.add(row, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_several_processes_has_a_row_for_each() {
        let mut rows = Rows::default();
        let one = Count {
            samples: 1,
            weight: 10,
        };
        for row in [
            (5, 0, 3),
            (6, 0, 3),
            (5, 1, 3),
            (5, 0, 3),
            (6, 0, 3),
            (7, 0, 0),
        ] {
            rows.add(row, one);
        }
        let mut list: Vec<_> = rows
            .iter()
            .map(|(row, c)| (row, c.samples, c.weight))
            .collect();
        list.sort_unstable();
        let expected = [
            ((5, 0, 3), 2, 20),
            ((5, 1, 3), 1, 10),
            ((6, 0, 3), 2, 20),
            ((7, 0, 0), 1, 10),
        ];
        assert_eq!(list, expected);
    }

    #[test]
    fn counts_of_a_key_are_put_together_whenever_they_come() {
        let mut counts = Counts::default();
        let samples = 3 * UNSORTED as u64 + 5;
        for i in 0..samples {
            counts.add(u128::from(i % 7) << 70, 2);
        }
        assert!(counts.list.len() <= UNSORTED);
        let sorted = counts.sorted();
        let keys: Vec<u128> = sorted.iter().map(|(key, _)| key >> 70).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4, 5, 6]);
        let samples_of = |i: usize| sorted.get(i).map(|(_, c)| (c.samples, c.weight));
        let first = samples.div_ceil(7);
        assert_eq!(samples_of(0), Some((first, 2 * first)));
        let all: u64 = sorted.iter().map(|(_, count)| count.samples).sum();
        assert_eq!(all, samples);
    }
}
