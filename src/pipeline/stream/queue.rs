//! Samples that wait for their turn, because frames still to be read may have earlier ones.

use std::cell::Cell;
use std::collections::BinaryHeap;
use std::rc::Rc;

use hashbrown::HashMap;

use super::Sink;
use crate::capture::Tables;
use crate::event::{Pid, Timestamp, sample_flags};
use crate::format::samples::Sample;
use crate::pipeline::grouping::Grouping;
use crate::pipeline::lists::{FrameLists, Frames, Held};
use crate::pipeline::segment::{Key, Segment, ViewId};
use crate::pipeline::selection::{self, Filter};
use crate::pipeline::stacks::{BEFORE_EXEC, STRAY};
use crate::profile::{About, NameId, Names, Naming, SampleFrame, SampleView};
use crate::symbolize::{PlaceId, Symbolizer};

/// Samples that wait at most, and frames in their stacks: several times what the frames of an honest capture have in
/// common with later ones. A capture can be made to let all of its samples wait for the last one.
const MOST_WAITING: usize = 1 << 20;
const MOST_FRAMES: usize = 1 << 22;
/// Frames without names that wait to be counted.
const MOST_UNNAMED: usize = 1 << 20;

/// What waits, in all captures that share it.
#[derive(Debug, Clone, Default)]
pub(in crate::pipeline) struct Room {
    waiting: Rc<Cell<usize>>,
    /// Frames in the stacks of those that wait, and in stacks remembered.
    held: Held,
}

impl Room {
    /// Whether there is more than this share of what may wait.
    fn is_over(&self, share: usize) -> bool {
        self.waiting.get() >= MOST_WAITING / share || self.held.frames() >= MOST_FRAMES / share
    }
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

/// The samples that wait, and what it takes to name them.
pub(super) struct Queue<'a> {
    /// What is known so far.
    pub about: About,
    grouping: Grouping,
    wanted: Wanted<'a>,
    /// Samples that passed before names were asked.
    passed: u64,
    /// What the samples given count for, and those whose stack is cut.
    weight: u64,
    truncated: u64,
    names: Names,
    pub symbolizer: Symbolizer,
    waiting: BinaryHeap<Waiting>,
    room: Room,
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

impl<'a> Queue<'a> {
    pub fn new(
        about: About,
        grouping: Grouping,
        symbolizer: Symbolizer,
        filter: &'a Filter,
        room: Room,
    ) -> Queue<'a> {
        Queue {
            about,
            grouping,
            wanted: Wanted::new(filter),
            names: Names::default(),
            symbolizer,
            passed: 0,
            weight: 0,
            truncated: 0,
            waiting: BinaryHeap::new(),
            room,
            given: 0,
            out_of_order: false,
            named: Vec::new(),
            unnamed: Vec::new(),
        }
    }

    /// Lists of the frames of a segment, counted with those that wait.
    pub fn lists(&self) -> FrameLists {
        FrameLists::new(&self.room.held)
    }

    /// When the earliest of those that wait was taken.
    pub fn next_time(&self) -> Option<Timestamp> {
        self.waiting.peek().map(|next| next.sample.time)
    }

    /// Gives the earliest of those that wait.
    pub fn give_next<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        match self.pop() {
            Some(next) => self.give_one(&next, sink),
            None => Ok(()),
        }
    }

    /// What is known at the end, how many samples passed before names were asked, and how frames were named.
    pub fn finish(mut self) -> (About, u64, Naming) {
        self.count_unnamed();
        self.count_named();
        let mut about = self.about;
        about.truncated = Some(self.truncated);
        match &mut about.selected {
            None => about.weight = self.weight,
            Some(selected) => {
                selected.samples.get_or_insert(0);
                selected.weight = self.weight;
            }
        }
        (about, self.passed, self.symbolizer.naming())
    }

    /// Lets the first samples of a frame wait, as many as there is room for; says how many, at least one.
    pub fn take(
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
            if taken > 0 && self.room.is_over(1) {
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
            self.room.waiting.set(self.room.waiting.get() + 1);
        }
        taken
    }

    /// The earliest of those that wait.
    fn pop(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop()?;
        let waiting = &self.room.waiting;
        waiting.set(waiting.get().saturating_sub(1));
        Some(next)
    }

    /// Looks up the names of all that wait.
    pub fn resolve(&mut self, warn: &mut dyn FnMut(&str)) {
        self.symbolizer.resolve(&mut self.names);
        for message in self.symbolizer.take_warnings() {
            warn(&message);
        }
    }

    /// Gives out the earliest ones where too many wait, whatever may come.
    pub fn make_room<S: Sink>(
        &mut self,
        sink: &mut S,
        warn: &mut dyn FnMut(&str),
    ) -> Result<(), S::Error> {
        if !self.room.is_over(1) {
            return Ok(());
        }
        if !std::mem::replace(&mut self.out_of_order, true) {
            warn(
                "the capture's frames are so far out of order that its samples cannot all be put in order of time",
            );
        }
        while self.room.is_over(2)
            && let Some(next) = self.pop()
        {
            self.give_one(&next, sink)?;
        }
        self.count_unnamed();
        Ok(())
    }

    /// Gives out what is earlier than `bound`.
    pub fn give<S: Sink>(&mut self, bound: Timestamp, sink: &mut S) -> Result<(), S::Error> {
        while let Some(next) = self.waiting.peek() {
            if next.sample.time >= bound && bound != Timestamp::MAX {
                break;
            }
            let Some(next) = self.pop() else {
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
            cpu: next.sample.known_cpu(),
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
