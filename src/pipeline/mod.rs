//! Reader -> timeline -> symbolize -> [`Profile`]: the only module that sees the whole offline half.
//!
//! Two ways through a capture: [`profile`] counts everything before it names anything; [`stream()`] goes
//! frame by frame and hands out each sample with its names, in time order.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod about;
mod inventory;
mod missing;
mod pack;
pub mod packing;
mod segment;
mod stream;

use hashbrown::HashMap;

use crate::capture::{Aids, Reader, SegmentReader};
use crate::event::{BuildId, ProcessKey};
use crate::profile::{Frame, FrameKind, NameId, Names, Process, Profile, Row, StackId};
use crate::symbolize::{Aid, KernelIdentity, Options, Symbolizer};

pub use inventory::inventory;
pub use pack::{Hits, hits};
pub use stream::{Sink, Summary, stream};

use segment::{BEFORE_EXEC, CUT, Key, Lookup, PlaceStacks, STRAY, Segment};

/// Is told how far long work is.
pub trait Progress {
    /// One more frame is read.
    fn frame(&mut self);
    /// All are read, names are looked up.
    fn symbolizing(&mut self);
    /// The work is done.
    fn done(&mut self);
}

/// Nobody is told.
impl Progress for () {
    fn frame(&mut self) {}
    fn symbolizing(&mut self) {}
    fn done(&mut self) {}
}

/// Counts all samples of a capture by process and stack, with names.
///
/// Damage costs the samples in it, not the report: it is told in [`Profile::about`]. Messages about files
/// that could not be used as wished go to `warn`.
pub fn profile(
    reader: &Reader,
    options: Options,
    progress: &mut dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Profile {
    let mut counter = Counter::new(reader, options);
    for segment in reader.segments() {
        counter.segment(segment, progress);
    }
    progress.symbolizing();
    let profile = counter.finish(warn);
    progress.done();
    profile
}

/// A symbolizer with the aid of the capture; tells what of the aid is damaged.
fn symbolizer(reader: &Reader, options: Options) -> (Symbolizer, Vec<String>) {
    let Aids {
        kernel,
        vdso,
        perf_maps,
        layouts,
        damage,
        ..
    } = reader.aids();
    let (pack, bad_packed) = if options.ignore_pack {
        Default::default()
    } else {
        reader.pack()
    };
    let damage = damage.iter().chain(&bad_packed);
    let damage = damage.map(ToString::to_string).collect();
    (
        Symbolizer::new(
            options,
            Aid {
                kernel,
                vdso,
                perf_maps,
                pack,
                layouts,
                kernel_identity: KernelIdentity {
                    build_id: reader.header().kernel_build_id.clone(),
                    release: reader.header().kernel_release.clone(),
                    stext: 0,
                },
            },
        ),
        damage,
    )
}

/// Counts of one key.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    samples: u64,
    weight: u64,
}

impl Count {
    fn add(&mut self, samples: u64, weight: u64) {
        self.samples = self.samples.saturating_add(samples);
        self.weight = self.weight.saturating_add(weight);
    }
}

/// (process, event, stack of places): what a row of the profile comes from.
type PlaceRow = (u32, u8, u32);

struct Counter {
    profile: Profile,
    kernel_build_id: Option<BuildId>,
    symbolizer: Symbolizer,
    processes: HashMap<Process, u32>,
    stacks: PlaceStacks,
    rows: HashMap<PlaceRow, Count>,
}

impl Counter {
    fn new(reader: &Reader, options: Options) -> Counter {
        let (symbolizer, damage) = symbolizer(reader, options);
        let mut profile = Profile {
            about: about::about(reader),
            ..Profile::default()
        };
        let kernel_build_id = reader.header().kernel_build_id.clone();
        profile.about.damage.extend(damage);
        profile.about.samples = 0;
        Counter {
            profile,
            kernel_build_id,
            symbolizer,
            processes: HashMap::new(),
            stacks: PlaceStacks::default(),
            rows: HashMap::new(),
        }
    }

    /// Counts one segment by numbers, then turns the numbers into places.
    fn segment(&mut self, mut reader: SegmentReader<'_>, progress: &mut dyn Progress) {
        let about = &mut self.profile.about;
        let mut segment = Segment::new();
        let mut counts: HashMap<Key, Count, foldhash::fast::FixedState> = HashMap::default();
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    let samples = frame.samples;
                    segment.frame(frame.tables, &self.symbolizer, samples, |sample, key| {
                        counts.entry(key).or_default().add(1, sample.weight);
                    });
                    about.samples = about.samples.saturating_add(samples.len() as u64);
                    progress.frame();
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
        let mut counts: Vec<(Key, Count)> = counts.into_iter().collect();
        counts.sort_unstable_by_key(|(key, _)| *key);
        let mut lookup = Lookup::default();
        for (key, count) in counts {
            let stack = lookup.stack(
                key,
                &mut segment,
                tables,
                &mut self.symbolizer,
                &mut self.stacks,
            );
            let Some(process) = segment.process(key.view) else {
                continue;
            };
            let name = segment.process_name(key.view, tables);
            let process = self.process(process, name);
            let row = self.rows.entry((process, key.event, stack)).or_default();
            row.add(count.samples, count.weight);
        }
    }

    fn process(&mut self, key: ProcessKey, name: &[u8]) -> u32 {
        let process = Process {
            key,
            name: self.profile.names.intern_bytes(name),
        };
        let processes = &mut self.profile.processes;
        *self.processes.entry(process).or_insert_with(|| {
            processes.push(process);
            processes.len() as u32 - 1
        })
    }

    fn resolve(&mut self, warn: &mut dyn FnMut(&str)) {
        self.symbolizer.resolve(&mut self.profile.names);
        for message in self.symbolizer.take_warnings() {
            warn(&message);
        }
        self.count_names();
    }

    fn finish(mut self, warn: &mut dyn FnMut(&str)) -> Profile {
        self.resolve(warn);
        self.profile.missing = missing::missing(&self);
        let stacks = self.named_stacks();
        let mut rows: HashMap<(u32, u8, StackId), Count> = HashMap::new();
        for ((process, event, stack), count) in &self.rows {
            let stack = (*stack as usize).checked_sub(1).and_then(|i| stacks.get(i));
            let key = (*process, *event, stack.copied().unwrap_or(0));
            rows.entry(key)
                .or_default()
                .add(count.samples, count.weight);
        }
        let mut profile = self.profile;
        profile.rows = rows
            .into_iter()
            .map(|((process, event, stack), count)| Row {
                process,
                event,
                stack,
                samples: count.samples,
                weight: count.weight,
            })
            .collect();
        profile
            .rows
            .sort_unstable_by_key(|row| (row.process, row.event, row.stack));
        profile.naming = self.symbolizer.naming();
        profile
    }

    /// Counts how many frames of samples have names: each node passes its samples on to its caller.
    fn count_names(&mut self) {
        let mut samples = vec![0u64; self.stacks.nodes.len() + 1];
        for ((_, _, stack), count) in &self.rows {
            if let Some(sum) = samples.get_mut(*stack as usize) {
                *sum = sum.saturating_add(count.samples);
            }
        }
        for (i, (caller, place)) in self.stacks.nodes.iter().enumerate().rev() {
            let count = samples.get(i + 1).copied().unwrap_or(0);
            if let Some(sum) = samples.get_mut(*caller as usize) {
                *sum = sum.saturating_add(count);
            }
            match *place {
                CUT => {}
                STRAY => self.symbolizer.count_ended_early(count),
                BEFORE_EXEC => self.symbolizer.count_before_exec(count),
                place => self.symbolizer.count(place, count),
            }
        }
    }

    /// The named stack of each stack of places.
    fn named_stacks(&mut self) -> Vec<StackId> {
        let marker = truncation_marker(&mut self.profile.names);
        let mut named: Vec<StackId> = Vec::with_capacity(self.stacks.nodes.len());
        for (caller, place) in &self.stacks.nodes {
            let caller = (*caller as usize).checked_sub(1).and_then(|i| named.get(i));
            let mut stack = caller.copied().unwrap_or(0);
            if *place == CUT {
                stack = self.profile.stacks.push(stack, marker);
            } else if let Some(resolution) = self.symbolizer.resolution(*place) {
                for part in &resolution.chain {
                    stack = self.profile.stacks.push(stack, part.frame);
                }
            }
            named.push(stack);
        }
        named
    }
}

/// The frame that stands where callers were cut off.
fn truncation_marker(names: &mut Names) -> u32 {
    let name: NameId = names.intern("[truncated]");
    let frame = Frame {
        name,
        module: Names::EMPTY,
        kind: FrameKind::Truncated,
        inlined: false,
    };
    names.frame_id(frame)
}
