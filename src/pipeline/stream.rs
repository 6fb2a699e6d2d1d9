//! Every sample with its names, in time order, while the capture is being read.

use std::collections::BinaryHeap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::capture::{Damage, LossTotals, Reader, Tables};
use crate::event::{Pid, Timestamp, sample_flags};
use crate::format::samples::Sample;
use crate::profile::{About, NameId, Names, Naming, SampleFrame, SampleView};
use crate::symbolize::{PlaceId, Symbolizer};

use super::grouping::Grouping;
use super::lists::{FrameLists, Frames, Held};
use super::segment::{Key, Segment, ViewId};
use super::selection::{self, Filter, Plan, Sieve};
use super::stacks::{BEFORE_EXEC, STRAY, places};
use super::{Request, about, symbolizer};

/// Where a stream goes. Any error ends the stream and is returned from it.
pub trait Sink {
    /// Why it cannot go on.
    type Error;
    /// Before any sample.
    fn open(&mut self, about: &About) -> Result<(), Self::Error>;
    /// The next sample.
    fn sample(
        &mut self,
        about: &About,
        names: &Names,
        sample: &SampleView<'_>,
    ) -> Result<(), Self::Error>;
    /// What was given so far should be seen now.
    fn flush(&mut self) -> Result<(), Self::Error>;
    /// One more frame of the capture is read.
    fn frame(&mut self) {}
}

/// What is known at the end of a stream.
#[derive(Debug, Default)]
pub struct Summary {
    /// Facts, with losses by cause.
    pub about: About,
    /// Damage that was found while reading; that known before is in `about` only.
    pub late_damage: Vec<String>,
    /// How frames were named.
    pub naming: Naming,
}

/// Samples that wait at most, and frames in their stacks: several times what the frames of an honest capture have in
/// common with later ones. A capture can be made to let all of its samples wait for the last one.
const MOST_WAITING: usize = 1 << 20;
const MOST_FRAMES: usize = 1 << 22;
/// Frames without names that wait to be counted.
const MOST_UNNAMED: usize = 1 << 20;

/// See [`stream()`](super::stream()); of one capture.
pub(super) fn stream<S: Sink>(
    reader: &Reader,
    request: Request,
    sink: &mut S,
    warn: &mut dyn FnMut(&str),
) -> Result<Summary, S::Error> {
    let Request {
        symbols,
        selection,
        by,
        ..
    } = request;
    let (mut symbolizer, damage) = symbolizer(reader, symbols);
    *symbolizer.places() = places(reader);
    let mut about = about::about(reader);
    let grouping = Grouping {
        by,
        host: about.host.clone(),
    };
    about.damage.extend(damage);
    let filter = Filter::new(selection, &about);
    let plan = Plan::new(reader, &filter);
    about.selected = filter.selected(plan.lost());
    sink.open(&about)?;
    sink.flush()?;
    let mut stream = Stream {
        about,
        grouping,
        wanted: Wanted::new(&filter),
        names: Names::default(),
        symbolizer,
        passed: 0,
        weight: 0,
        truncated: 0,
        waiting: BinaryHeap::new(),
        held: Held::default(),
        given: 0,
        out_of_order: false,
        named: Vec::new(),
        unnamed: Vec::new(),
    };
    let mut late_damage: Vec<Damage> = Vec::new();
    let mut bounds = earliest_after(reader, &plan).into_iter();
    for (mut segment_reader, frames) in plan.segments(reader) {
        let mut segment = Segment::new(Arc::clone(stream.symbolizer.perf_maps()));
        let mut lists = FrameLists::new(&stream.held);
        let mut sieve = Sieve::new(&filter);
        let mut losses = LossTotals::default();
        for _ in 0..frames {
            let bound = bounds.next().unwrap_or(Timestamp::MAX);
            sink.frame();
            match segment_reader.next_frame() {
                Ok(Some(frame)) => {
                    let mut keys = Vec::new();
                    match plan.is_dated(frame.entry) {
                        true => {
                            about::add_losses(&mut stream.about, &frame.tables.losses, &mut losses)
                        }
                        false => losses.clone_from(&frame.tables.losses),
                    }
                    segment.frame(frame.tables, frame.samples, |segment, sample, key| {
                        if let Some(key) = sieve.pass(sample, key, segment, frame.tables) {
                            let flags = filter.flags(sample.flags);
                            keys.push((Sample { flags, ..*sample }, key));
                        }
                    });
                    // So that what comes before `bound` can be given while the rest is still looked up.
                    keys.sort_by_key(|(sample, _)| (sample.time, sample.cpu));
                    let mut rest = &keys[..];
                    while !rest.is_empty() {
                        let taken = stream.take(rest, frame.tables, &mut segment, &mut lists);
                        rest = rest.get(taken..).unwrap_or_default();
                        stream.resolve(warn);
                        let next = rest.first().map_or(bound, |(sample, _)| sample.time);
                        stream.give(bound.min(next), sink)?;
                        stream.make_room(sink, warn)?;
                    }
                    sink.flush()?;
                }
                // Bounds go on with the next segment, whose frames follow in the list.
                Ok(None) => {}
                Err(damage) => late_damage.push(damage),
            }
        }
    }
    stream.give(Timestamp::MAX, sink)?;
    stream.count_named();
    let mut about = stream.about;
    about.truncated = Some(stream.truncated);
    match &mut about.selected {
        None => about.weight = stream.weight,
        Some(selected) => {
            selected.samples.get_or_insert(0);
            selected.weight = stream.weight;
        }
    }
    let nothing = selection::explain(reader, &filter, &about, stream.passed);
    if let Some(selected) = &mut about.selected {
        selected.nothing = nothing;
    }
    let late_damage: Vec<String> = late_damage
        .into_iter()
        .map(|damage| {
            about.damaged_samples = about.damaged_samples.saturating_add(damage.samples);
            damage.to_string()
        })
        .collect();
    about.damage.extend(late_damage.iter().cloned());
    Ok(Summary {
        about,
        late_damage,
        naming: stream.symbolizer.naming(),
    })
}

/// For each frame that is read, in that order: the earliest sample of all later ones.
fn earliest_after(reader: &Reader, plan: &Plan) -> Vec<Timestamp> {
    let segments = plan.segments(reader);
    let frames: Vec<_> = segments.flat_map(|(s, n)| s.frames().take(n)).collect();
    let mut bounds = Vec::with_capacity(frames.len());
    let mut earliest = Timestamp::MAX;
    for entry in frames.into_iter().rev() {
        bounds.push(earliest);
        if entry.descriptor.samples > 0 {
            earliest = earliest.min(entry.descriptor.first);
        }
    }
    bounds.reverse();
    bounds
}

/// What names have to be in the stack of a sample.
struct Wanted<'a> {
    filter: &'a Filter,
    all: selection::Found,
    /// By place, what is found there.
    found: Vec<Option<selection::Found>>,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a Filter) -> Wanted<'a> {
        Wanted {
            filter,
            all: selection::wanted(filter),
            found: Vec::new(),
        }
    }

    /// Whether all of it is in the stack of these places.
    fn is_in(
        &mut self,
        places: impl Iterator<Item = PlaceId>,
        symbolizer: &Symbolizer,
        names: &Names,
    ) -> bool {
        let mut left = self.all;
        for place in places {
            if left == 0 {
                break;
            }
            let Some(resolution) = symbolizer.resolution(place) else {
                continue;
            };
            let at = place as usize;
            if self.found.len() <= at {
                self.found.resize(at + 1, None);
            }
            if let Some(slot) = self.found.get_mut(at) {
                let filter = self.filter;
                left &= !*slot.get_or_insert_with(|| selection::found(filter, resolution, names));
            }
        }
        left == 0
    }
}

struct Stream<'a> {
    about: About,
    grouping: Grouping,
    wanted: Wanted<'a>,
    /// Samples that passed before names were asked.
    passed: u64,
    /// What the samples given count for, and those whose stack is cut.
    weight: u64,
    truncated: u64,
    names: Names,
    symbolizer: Symbolizer,
    waiting: BinaryHeap<Waiting>,
    /// Frames in the stacks of those that wait, and in stacks remembered.
    held: Held,
    given: u64,
    /// Samples had to be given before their turn.
    out_of_order: bool,
    /// What frames given count for by place, of places with names.
    named: Vec<u64>,
    /// Places of other frames given, not yet counted, and what they count for.
    unnamed: Vec<(PlaceId, u64)>,
}

/// A sample that waits for its turn.
struct Waiting {
    sample: Sample,
    number: u64,
    pid: Pid,
    tid: Pid,
    comm: NameId,
    process: NameId,
    group: NameId,
    kernel: Frames,
    user: Frames,
}

impl Waiting {
    fn order(&self) -> (Timestamp, u32, u64) {
        (self.sample.time, self.sample.cpu, self.number)
    }
}

/// The earliest is the greatest: the heap gives that first.
impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        other.order().cmp(&self.order())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

impl Stream<'_> {
    /// Lets the first samples of a frame wait, as many as there is room for; says how many, at least one.
    fn take(
        &mut self,
        samples: &[(Sample, Key)],
        tables: &Tables,
        segment: &mut Segment,
        lists: &mut FrameLists,
    ) -> usize {
        // Names of processes are found once for each view, those of groups with what else they depend on.
        let mut processes: HashMap<ViewId, NameId> = HashMap::new();
        let mut groups: HashMap<(ViewId, u32), NameId> = HashMap::new();
        let mut taken = 0;
        for &(sample, key) in samples {
            if taken > 0 && self.is_full() {
                break;
            }
            taken += 1;
            let Some(task) = tables.task(sample.task) else {
                continue;
            };
            let places = self.symbolizer.places();
            let user = lists.user(key, segment, tables, places);
            let kernel = lists.kernel(key, tables, places);
            let process = *processes.entry(key.view).or_insert_with(|| {
                let name = segment.process_name(key.view, tables);
                self.names.intern_bytes(name)
            });
            let context = (key.view, self.grouping.detail(&sample, segment, tables));
            let group = *groups.entry(context).or_insert_with(|| {
                let names = &mut self.names;
                let group = self.grouping.group(context, segment, tables, names);
                group.map_or(Names::EMPTY, |group| group.label)
            });
            self.waiting.push(Waiting {
                sample,
                number: self.given,
                pid: segment.process(key.view).map_or(Pid(0), |p| p.tgid),
                tid: task.tid,
                comm: self.names.intern_bytes(tables.string(task.comm)),
                process,
                group,
                kernel,
                user,
            });
            self.given += 1;
        }
        taken
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_WAITING || self.held.frames() >= MOST_FRAMES
    }

    /// Looks up the names of all that wait.
    fn resolve(&mut self, warn: &mut dyn FnMut(&str)) {
        self.symbolizer.resolve(&mut self.names);
        for message in self.symbolizer.take_warnings() {
            warn(&message);
        }
    }

    /// Gives out the earliest ones where too many wait, whatever may come.
    fn make_room<S: Sink>(
        &mut self,
        sink: &mut S,
        warn: &mut dyn FnMut(&str),
    ) -> Result<(), S::Error> {
        if !self.is_full() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.out_of_order, true) {
            warn(
                "the capture's frames are so far out of order that its samples cannot all be put in order of time",
            );
        }
        while (self.waiting.len() > MOST_WAITING / 2 || self.held.frames() > MOST_FRAMES / 2)
            && let Some(next) = self.waiting.pop()
        {
            self.give_one(&next, sink)?;
        }
        self.count_unnamed();
        Ok(())
    }

    /// Gives out what is earlier than `bound`.
    fn give<S: Sink>(&mut self, bound: Timestamp, sink: &mut S) -> Result<(), S::Error> {
        while let Some(next) = self.waiting.peek() {
            if next.sample.time >= bound && bound != Timestamp::MAX {
                break;
            }
            let Some(next) = self.waiting.pop() else {
                break;
            };
            self.give_one(&next, sink)?;
        }
        self.count_unnamed();
        Ok(())
    }

    fn give_one<S: Sink>(&mut self, next: &Waiting, sink: &mut S) -> Result<(), S::Error> {
        let symbolizer = &self.symbolizer;
        self.passed += 1;
        let places = next.kernel.iter().chain(next.user.iter());
        let mut places = places.map(|(_, place)| *place);
        if !self.wanted.is_in(&mut places, symbolizer, &self.names) {
            return Ok(());
        }
        let weight = next.sample.weight;
        let (kernel, user) = (Vec::new(), Vec::new());
        let mut both = [(&next.kernel, kernel), (&next.user, user)];
        for (list, resolved) in &mut both {
            resolved.reserve_exact(list.len());
            for &(address, place) in list.iter() {
                let Some(resolution) = symbolizer.resolution(place) else {
                    self.unnamed.push((place, weight));
                    continue;
                };
                if resolution.unnamed.is_some() {
                    self.unnamed.push((place, weight));
                } else {
                    count(&mut self.named, place, weight);
                }
                resolved.push(SampleFrame {
                    address,
                    place,
                    resolution,
                    file: symbolizer.file_of(place),
                });
            }
        }
        let [(_, kernel), (_, user)] = &both;
        let mut flags = next.sample.flags;
        if next.user.last().is_some_and(|(_, place)| *place == STRAY) {
            // It ends before the depth limit, as far as it is shown.
            flags &= !sample_flags::USER_TRUNCATED;
        }
        let view = SampleView {
            time: next.sample.time,
            cpu: next.sample.cpu,
            pid: next.pid,
            tid: next.tid,
            comm: self.names.text(next.comm),
            process: self.names.text(next.process),
            group: self.names.text(next.group),
            event: next.sample.event,
            flags,
            weight: next.sample.weight,
            kernel,
            user,
        };
        self.weight = self.weight.saturating_add(weight);
        if let (true, _) | (_, true) = view.cuts() {
            self.truncated = self.truncated.saturating_add(weight);
        }
        if let Some(selected) = &mut self.about.selected {
            *selected.samples.get_or_insert(0) += 1;
        }
        sink.sample(&self.about, &self.names, &view)?;
        if self.unnamed.len() >= MOST_UNNAMED {
            self.count_unnamed();
        }
        Ok(())
    }

    /// Counts the frames without names, in the order of the samples: of several reasons why a file names nothing, the last is
    /// told.
    fn count_unnamed(&mut self) {
        for (place, weight) in std::mem::take(&mut self.unnamed) {
            match place {
                STRAY => self.symbolizer.count_ended_early(weight),
                BEFORE_EXEC => self.symbolizer.count_before_exec(weight),
                place => self.symbolizer.count(place, weight),
            }
        }
    }

    fn count_named(&mut self) {
        for (place, count) in std::mem::take(&mut self.named).into_iter().enumerate() {
            if count > 0 {
                self.symbolizer.count(place as PlaceId, count);
            }
        }
    }
}

fn count(counts: &mut Vec<u64>, place: PlaceId, weight: u64) {
    let at = place as usize;
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    if let Some(count) = counts.get_mut(at) {
        *count = count.saturating_add(weight);
    }
}
