//! Counting: the segments of a capture are dealt out to threads, and what these counted is put together in the order
//! of the segments, so that the numbers are those one thread would have given.

use std::num::NonZero;
use std::sync::{Arc, mpsc};
use std::thread;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::counts::Counts;
use super::grouping::{Contexts, Grouping, Memo};
use super::segment::Segment;
use super::selection::{Filter, Plan, Sieve};
use super::stacks::{Lookup, PlaceStacks, place_stacks, places};
use super::{Progress, about};
use crate::capture::{Damage, LossTotals, Reader, SegmentReader};
use crate::profile::{About, Group, Names};
use crate::symbolize::perf_map::PerfMaps;
use crate::symbolize::{PlaceId, Places};

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

/// (group, event, stack of places): what a row of the profile comes from.
pub(super) type PlaceRow = (u32, u8, u32);

/// Counts of rows. Most stacks are of one group only: its count is by the stack's number, and only those of others are
/// looked for.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Group, event and count of each stack; no samples where there are none yet.
    first: Vec<(u32, u8, Count)>,
    others: HashMap<PlaceRow, Count, FixedState>,
}

impl Rows {
    pub fn add(&mut self, row: PlaceRow, count: Count) {
        let (group, event, stack) = row;
        let at = stack as usize;
        if self.first.len() <= at {
            self.first.resize(at + 1, (0, 0, Count::default()));
        }
        match self.first.get_mut(at) {
            Some(first) if first.2.samples == 0 => *first = (group, event, count),
            Some(first) if (first.0, first.1) == (group, event) => first.2.add(count),
            _ => self.others.entry(row).or_default().add(count),
        }
    }

    /// Leaves out the counts of stacks that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        for (at, (.., count)) in self.first.iter_mut().enumerate() {
            if !keep(at as u32) {
                *count = Count::default();
            }
        }
        self.others.retain(|(.., stack), _| keep(*stack));
    }

    pub fn iter(&self) -> impl Iterator<Item = (PlaceRow, Count)> + '_ {
        let first = self.first.iter().enumerate();
        let first = first.filter(|(_, (.., count))| count.samples > 0);
        let first = first.map(|(at, (group, event, count))| ((*group, *event, at as u32), *count));
        first.chain(self.others.iter().map(|(row, count)| (*row, *count)))
    }
}

/// What some segments have in them.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Samples, losses and damage of these segments; nothing else.
    pub about: About,
    /// Labels of groups.
    pub names: Names,
    pub groups: Vec<Group>,
    group_index: HashMap<Group, u32>,
    pub places: Places,
    pub stacks: PlaceStacks,
    pub rows: Rows,
}

/// Counts all samples of a capture. The stacks and rows of the parts given beside the first tally are still to be added to
/// its own, in their order; all else is there.
pub(super) fn count(
    reader: &Reader,
    asked: Asked<'_>,
    perf_maps: &Arc<PerfMaps>,
    progress: &mut dyn Progress,
) -> (Tally, Vec<Part>) {
    let parts = deal(reader, asked.plan);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .map(|segments| {
                let tell = tell.clone();
                scope.spawn(move || {
                    let mut tally = Tally {
                        stacks: place_stacks(reader),
                        places: places(reader),
                        ..Tally::default()
                    };
                    let mut desk = Desk {
                        asked,
                        perf_maps,
                        counts: Counts::default(),
                        contexts: Contexts::default(),
                        lookup: Lookup::new(),
                    };
                    for segment in segments {
                        tally.segment(segment, &mut desk, &|| {
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
        let mut parts = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(tally) => match &mut whole {
                    Some(whole) => parts.push(whole.merge(tally)),
                    none => *none = Some(tally),
                },
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (whole.unwrap_or_default(), parts)
    })
}

/// Runs of segments, one for each thread, with about the same number of bytes.
fn deal<'a>(reader: &'a Reader, plan: &'a Plan) -> Vec<Vec<(SegmentReader<'a>, usize)>> {
    let bytes = |(segment, frames): &(SegmentReader<'_>, usize)| {
        let frames = segment.frames().take(*frames);
        frames.fold(0u64, |sum, f| sum.saturating_add(f.descriptor.compressed))
    };
    let total = plan
        .segments(reader)
        .fold(0u64, |sum, segment| sum.saturating_add(bytes(&segment)));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.min(THREADS) as u64;
    let threads = threads.min(total / WORTH_A_THREAD).max(1);
    let mut parts: Vec<Vec<(SegmentReader<'_>, usize)>> = Vec::new();
    let mut before = 0u64;
    for segment in plan.segments(reader) {
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

/// What is counted, and by what.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub grouping: &'a Grouping,
    pub filter: &'a Filter,
    pub plan: &'a Plan,
}

/// What a thread counts with.
struct Desk<'a> {
    asked: Asked<'a>,
    perf_maps: &'a Arc<PerfMaps>,
    counts: Counts,
    contexts: Contexts,
    lookup: Lookup,
}

impl Tally {
    /// Counts one segment by numbers, then turns the numbers into places.
    fn segment(
        &mut self,
        (mut reader, frames): (SegmentReader<'_>, usize),
        desk: &mut Desk<'_>,
        frame_read: &dyn Fn(),
    ) {
        let Desk {
            asked:
                Asked {
                    grouping,
                    filter,
                    plan,
                },
            perf_maps,
            counts,
            contexts,
            lookup,
        } = desk;
        contexts.clear();
        let parted = grouping.parts_views();
        let about = &mut self.about;
        let mut segment = Segment::new(Arc::clone(perf_maps));
        let mut sieve = Sieve::new(filter);
        let mut losses = LossTotals::default();
        let spoilt = |about: &mut About, damage: &Damage| {
            about.damaged_samples = about.damaged_samples.saturating_add(damage.samples);
            about.damage.push(damage.to_string());
        };
        for _ in 0..frames {
            let dated = reader.next_entry().is_some_and(|e| plan.is_dated(e));
            let next = match dated {
                true => reader.next_frame(),
                // Only what later frames need of it.
                false => reader.next_tables(),
            };
            let frame = match next {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(damage) => {
                    spoilt(about, &damage);
                    break;
                }
            };
            let samples = frame.samples;
            if !dated {
                segment.frame(frame.tables, samples, |_, _, _| {});
                losses = frame.tables.losses.clone();
                frame_read();
                continue;
            }
            if let Err(damage) = segment.recall(&frame) {
                spoilt(about, &damage);
                break;
            }
            about::add_losses(about, &frame.tables.losses, &mut losses);
            counts.resize(frame.tables.user.nodes.len() + 1);
            segment.frame(frame.tables, samples, |segment, sample, key| {
                let Some(mut key) = sieve.pass(sample, key, segment, frame.tables) else {
                    return;
                };
                if parted {
                    let detail = grouping.detail(sample, segment, frame.tables);
                    key.view = contexts.number(key.view, detail);
                }
                counts.add(key, sample.weight);
            });
            about.samples = about.samples.saturating_add(samples.len() as u64);
            frame_read();
        }
        let tables = reader.tables();

        // In a fixed order, so that equal captures give equal numbers.
        let counts = counts.take_sorted(parted.then_some(&*contexts));
        lookup.begin(tables);
        let mut groups = Memo::default();
        let mut last = None;
        for (key, context, count) in counts {
            // Counts of one stack in several groups follow each other.
            let stack = match last {
                Some((known, stack)) if known == key => stack,
                _ => lookup.stack(
                    key,
                    &mut segment,
                    tables,
                    &mut self.places,
                    &mut self.stacks,
                ),
            };
            last = Some((key, stack));
            let group = groups.get(context, || {
                let context = match parted {
                    true => contexts.of(context),
                    false => (context, 0),
                };
                let group = grouping.group(context, &segment, tables, &mut self.names);
                group.map(|group| number(&mut self.groups, &mut self.group_index, group))
            });
            if let Some(group) = group {
                self.rows.add((group, key.event, stack), count);
            }
        }
    }

    /// Adds what the segments that follow have, but for their stacks and rows.
    fn merge(&mut self, other: Tally) -> Part {
        let about = &mut self.about;
        about.samples = about.samples.saturating_add(other.about.samples);
        let damaged = other.about.damaged_samples;
        about.damaged_samples = about.damaged_samples.saturating_add(damaged);
        about.damage.extend(other.about.damage);
        for (class, count) in other.about.losses {
            let sum = about.losses.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
        let groups: Vec<u32> = other
            .groups
            .iter()
            .map(|group| {
                let label = self.names.intern(other.names.text(group.label));
                let group = Group { label, ..*group };
                number(&mut self.groups, &mut self.group_index, group)
            })
            .collect();
        Part {
            groups,
            places: self.places.merge(&other.places),
            stacks: other.stacks,
            rows: other.rows,
        }
    }
}

/// The number of a group.
fn number(groups: &mut Vec<Group>, index: &mut HashMap<Group, u32>, group: Group) -> u32 {
    *index.entry(group).or_insert_with(|| {
        groups.push(group);
        groups.len() as u32 - 1
    })
}

/// Stacks and rows that were counted for themselves, and the numbers that others have for what they are of.
#[derive(Debug)]
pub(super) struct Part {
    groups: Vec<u32>,
    places: Vec<PlaceId>,
    stacks: PlaceStacks,
    rows: Rows,
}

impl Part {
    /// Adds these to the stacks and rows of those that come before.
    pub fn add_to(self, all_stacks: &mut PlaceStacks, all_rows: &mut Rows) {
        let mut stacks: Vec<u32> = Vec::with_capacity(self.stacks.len() + 1);
        stacks.push(0);
        for (caller, place) in self.stacks.nodes() {
            let caller = stacks.get(caller as usize).copied().unwrap_or(0);
            // Marks are no places and the same everywhere.
            let place = self.places.get(place as usize).copied().unwrap_or(place);
            stacks.push(all_stacks.push(caller, place));
        }
        for ((group, event, stack), count) in self.rows.iter() {
            let number = |list: &[u32], i: u32| list.get(i as usize).copied().unwrap_or(0);
            let group = number(&self.groups, group);
            all_rows.add((group, event, number(&stacks, stack)), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_several_groups_has_a_row_for_each() {
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
}
