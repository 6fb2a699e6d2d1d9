//! Reader -> timeline -> symbolize -> [`Profile`]: the only module that sees the whole offline half.
//!
//! Two ways through a capture: [`profile`] counts everything before it names anything; [`stream()`] goes
//! frame by frame and hands out each sample with its names, in time order.
//!
//! ```text
//! request   what is asked -> selection  which frames are read, which samples pass, what names decide
//! profile   tally  segments on all CPUs -> segment  samples -> views -> counts  by stack numbers -> stacks  of places
//!             -> shape  stacks of functions        grouping  what is counted apart
//! stream    segment -> lists  of frames, sample by sample -> queue  until it is a sample's turn
//! merged    both, of each of several captures in one file, and joined
//! about, missing, inventory   what the capture has and lacks      pack, packing   what names need, collected
//! ```

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
mod counts;
mod grouping;
mod inventory;
mod lists;
mod merged;
mod missing;
mod pack;
pub mod packing;
mod request;
mod segment;
pub mod selection;
mod shape;
mod stacks;
mod stream;
mod tally;

use std::thread;

use crate::capture::{Aids, Reader};
use crate::event::BuildId;
use crate::profile::{Profile, Row};
use crate::symbolize::{Aid, KernelIdentity, Labels, Options, PlaceId, Symbolizer};

pub use about::events;
pub use inventory::inventory;
pub use merged::hosts;
pub use pack::{Hits, hits};
pub use request::{Request, Shape};
pub use selection::Selection;
pub use stream::{Sink, Summary};

use grouping::Grouping;
use selection::{Filter, Plan};
use stacks::{BEFORE_EXEC, CUT, PlaceStacks, STRAY};
use tally::{Count, Part, Rows};

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

/// Counts the samples asked for by group and stack, with names.
///
/// Damage costs the samples in it, not the report: it is told in [`Profile::about`]. Messages about files
/// that could not be used as wished go to `warn`.
pub fn profile(
    reader: &Reader,
    request: Request,
    progress: &mut dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Profile {
    count(reader, anew(reader, request), false, progress, warn)
}

/// As [`profile`], and finds out what would have to be brought to name the frames without a name.
pub fn profile_with_missing(
    reader: &Reader,
    request: Request,
    progress: &mut dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Profile {
    count(reader, anew(reader, request), true, progress, warn)
}

/// Hands every sample asked for to `sink`, in the order of time and CPU; those of several captures in one file by the wall
/// clock.
///
/// Frames are nearly in time order: a sample waits only as long as a later frame may still have an earlier
/// one, by what the descriptors say. Where too many would have to wait, `warn` is told, and they do not.
///
/// # Errors
/// What `sink` says ends it.
pub fn stream<S: Sink>(
    reader: &Reader,
    request: Request,
    sink: &mut S,
    warn: &mut dyn FnMut(&str),
) -> Result<Summary, S::Error> {
    let request = anew(reader, request);
    match reader.is_merged() {
        true => merged::stream(reader, request, sink, warn),
        false => stream::stream(reader, request, sink, warn),
    }
}

/// A request of which no report has been made: files are called the same in all reports of this capture.
fn anew(reader: &Reader, mut request: Request) -> Request {
    let captures = reader.captures();
    let layouts = captures.iter().flat_map(|capture| capture.layouts());
    request.symbols.labels = Labels::of_layouts(layouts);
    request
}

fn count(
    reader: &Reader,
    request: Request,
    with_missing: bool,
    progress: &mut dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Profile {
    if reader.is_merged() {
        return merged::profile(reader, request, with_missing, progress, warn);
    }
    let mut counter = Counter::new(reader, request, progress);
    progress.symbolizing();
    counter.resolve(warn);
    let missing = match with_missing {
        true => missing::missing(&counter),
        false => Vec::new(),
    };
    let profile = Profile {
        missing,
        ..counter.finish(reader)
    };
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

struct Counter {
    profile: Profile,
    kernel_build_id: Option<BuildId>,
    symbolizer: Symbolizer,
    filter: Filter,
    shape: Shape,
    stacks: PlaceStacks,
    rows: Rows,
    /// Samples that passed before names were asked.
    passed: u64,
    /// What is to be added to these when names are looked up, which needs neither.
    parts: Vec<Part>,
}

impl Counter {
    /// Counts the samples asked for, as far as names do not decide; nothing is named yet.
    fn new(reader: &Reader, request: Request, progress: &mut dyn Progress) -> Counter {
        let Request {
            mut symbols,
            selection,
            by,
            shape,
        } = request;
        symbols.lines |= shape.lines;
        let (mut symbolizer, damage) = symbolizer(reader, symbols);
        let mut about = about::about(reader);
        let grouping = Grouping {
            by,
            host: about.host.clone(),
            capture: grouping::capture(1, reader.header()),
        };
        let filter = Filter::new(selection, &about);
        let plan = Plan::new(reader, &filter);
        let kernel_build_id = reader.header().kernel_build_id.clone();
        let asked = tally::Asked {
            grouping: &grouping,
            filter: &filter,
            plan: &plan,
        };
        let (tally, parts) = tally::count(reader, asked, symbolizer.perf_maps(), progress);
        about.damage.extend(damage);
        about.damage.extend(tally.about.damage);
        let damaged = tally.about.damaged_samples;
        about.damaged_samples = about.damaged_samples.saturating_add(damaged);
        if plan.is_whole() {
            about.samples = tally.about.samples;
        }
        about.losses = tally.about.losses;
        about.selected = filter.selected(plan.lost());
        *symbolizer.places() = tally.places;
        Counter {
            profile: Profile {
                about,
                names: tally.names,
                by,
                groups: tally.groups,
                ..Profile::default()
            },
            kernel_build_id,
            symbolizer,
            filter,
            shape,
            stacks: tally.stacks,
            rows: tally.rows,
            passed: 0,
            parts,
        }
    }

    fn resolve(&mut self, warn: &mut dyn FnMut(&str)) {
        let parts = std::mem::take(&mut self.parts);
        let (stacks, rows) = (&mut self.stacks, &mut self.rows);
        let (symbolizer, names) = (&mut self.symbolizer, &mut self.profile.names);
        thread::scope(|scope| {
            if !parts.is_empty() {
                scope.spawn(move || parts.into_iter().for_each(|part| part.add_to(stacks, rows)));
            }
            symbolizer.resolve(names);
        });
        for message in self.symbolizer.take_warnings() {
            warn(&message);
        }
        if self.stacks.is_cut() {
            warn(
                "the capture has more distinct stacks than one of its size can honestly have: the others are cut, and marked [truncated]",
            );
        }
        if self.profile.about.selected.is_some() {
            self.select_by_names();
        }
        self.count_shown();
        self.count_names();
    }

    /// Leaves out the stacks that have nothing of what is asked for by name.
    fn select_by_names(&mut self) {
        let samples = self.rows.iter().map(|(_, count)| count.samples);
        self.passed = samples.fold(0, u64::saturating_add);
        let wanted = selection::wanted(&self.filter);
        if wanted == 0 {
            return;
        }
        let places = self.symbolizer.places().places().len();
        let found = (0..places).map(|place| {
            let resolution = self.symbolizer.resolution(place as PlaceId);
            let names = &self.profile.names;
            resolution.map_or(0, |r| selection::found(&self.filter, r, names))
        });
        let found: Vec<selection::Found> = found.collect();
        // What is found in a stack's callers is found in it.
        let of_stacks = self.stacks.inherit(0, |above, place| {
            above | found.get(place as usize).copied().unwrap_or(0)
        });
        let of_stack = |stack: u32| of_stacks.get(stack as usize).copied().unwrap_or(0);
        self.rows.retain(|stack| of_stack(stack) == wanted);
    }

    /// Counts what views will be of.
    fn count_shown(&mut self) {
        let cut = self
            .stacks
            .inherit(false, |above, place| above || place == CUT);
        let (mut all, mut truncated) = (Count::default(), 0u64);
        for ((.., stack), count) in self.rows.iter() {
            all.add(count);
            if cut.get(stack as usize) == Some(&true) {
                truncated = truncated.saturating_add(count.weight);
            }
        }
        let about = &mut self.profile.about;
        about.truncated = Some(truncated);
        match &mut about.selected {
            None => about.weight = all.weight,
            Some(selected) => {
                selected.samples = Some(all.samples);
                selected.weight = all.weight;
            }
        }
    }

    fn finish(mut self, reader: &Reader) -> Profile {
        let named = shape::named_stacks(
            &self.stacks,
            &self.symbolizer,
            &self.shape,
            &mut self.profile.names,
            &mut self.profile.stacks,
        );
        let rows = std::mem::take(&mut self.rows);
        let rows: Vec<Row> = rows
            .iter()
            .map(|((group, event, stack), count)| Row {
                group,
                event,
                stack: named.get(stack as usize).copied().unwrap_or(0),
                samples: count.samples,
                weight: count.weight,
            })
            .collect();
        let mut profile = self.profile;
        // Stacks of places that have the same names are one.
        profile.rows = shape::merged(rows);
        shape::leave_out(&mut profile, &self.shape);
        let about = &profile.about;
        let nothing = selection::explain(reader, &self.filter, about, self.passed);
        if let Some(selected) = &mut profile.about.selected {
            selected.nothing = nothing;
        }
        profile.naming = self.symbolizer.naming();
        profile
    }

    /// Weight of each stack of places with those of its callees: each node passes its own on to its caller.
    fn weights_of_nodes(&self) -> Vec<u64> {
        let mut weights = vec![0u64; self.stacks.len() + 1];
        for ((_, _, stack), count) in self.rows.iter() {
            if let Some(sum) = weights.get_mut(stack as usize) {
                *sum = sum.saturating_add(count.weight);
            }
        }
        for (i, (caller, _)) in self.stacks.nodes().enumerate().rev() {
            let count = weights.get(i + 1).copied().unwrap_or(0);
            if let Some(sum) = weights.get_mut(caller as usize) {
                *sum = sum.saturating_add(count);
            }
        }
        weights
    }

    /// Counts how many frames of samples have names, by what the samples count for.
    fn count_names(&mut self) {
        let weights = self.weights_of_nodes();
        let mut of_places = vec![0u64; self.symbolizer.places().places().len()];
        let nodes = self.stacks.nodes();
        for ((_, place), count) in nodes.zip(weights.iter().skip(1)) {
            match place {
                CUT => {}
                STRAY => self.symbolizer.count_ended_early(*count),
                BEFORE_EXEC => self.symbolizer.count_before_exec(*count),
                place => {
                    if let Some(sum) = of_places.get_mut(place as usize) {
                        *sum = sum.saturating_add(*count);
                    }
                }
            }
        }
        // Of several reasons why a file names nothing, that of its first place is told.
        for (place, count) in of_places.into_iter().enumerate().rev() {
            if count > 0 {
                self.symbolizer.count(place as PlaceId, count);
            }
        }
    }
}
