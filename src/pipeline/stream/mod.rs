//! Every sample with its names, in time order, while the capture is being read.

mod queue;

use std::sync::Arc;

use crate::capture::{Damage, LossTotals, Reader, SegmentReader};
use crate::event::Timestamp;
use crate::format::samples::Sample;
use crate::profile::{About, By, Names, Naming, SampleView};
use crate::symbolize::Options;

use super::grouping::Grouping;
use super::lists::FrameLists;
use super::segment::Segment;
use super::selection::{self, Filter, Plan, Sieve};
use super::stacks::places;
use super::{Request, about, symbolizer};
use queue::Queue;

pub(super) use queue::Room;

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

/// See [`stream()`](super::stream()); of one capture.
pub(super) fn stream<S: Sink>(
    reader: &Reader,
    request: Request,
    sink: &mut S,
    warn: &mut dyn FnMut(&str),
) -> Result<Summary, S::Error> {
    let asked = Asked::new(reader, request);
    let mut going = asked.begin(Room::default());
    sink.open(&going.queue.about)?;
    sink.flush()?;
    while going.read(Timestamp::MAX, sink, warn)? {
        sink.flush()?;
    }
    going.queue.give(Timestamp::MAX, sink)?;
    Ok(going.finish())
}

/// What is asked of a capture, before any of it is read.
pub(super) struct Asked<'r> {
    reader: &'r Reader,
    symbols: Options,
    by: By,
    about: About,
    filter: Filter,
    plan: Plan,
}

impl<'r> Asked<'r> {
    /// Finds out which frames are needed.
    pub fn new(reader: &'r Reader, request: Request) -> Asked<'r> {
        let Request {
            symbols,
            selection,
            by,
            ..
        } = request;
        let mut about = about::about(reader);
        let filter = Filter::new(selection, &about);
        let plan = Plan::new(reader, &filter);
        about.selected = filter.selected(plan.lost());
        Asked {
            reader,
            symbols,
            by,
            about,
            filter,
            plan,
        }
    }

    /// What is known before anything is read.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The earliest sample of the frames that will be read, by what the frames say.
    pub fn first(&self) -> Timestamp {
        let segments = self.plan.segments(self.reader);
        let frames = segments.flat_map(|(segment, frames)| segment.frames().take(frames));
        let with_samples = frames.filter(|entry| entry.descriptor.samples > 0);
        let first = with_samples.map(|entry| entry.descriptor.first).min();
        first.unwrap_or(Timestamp::MAX)
    }

    /// Begins to read. What waits is counted in `room`, which several captures can share.
    pub fn begin(&self, room: Room) -> Going<'_> {
        let (mut symbolizer, damage) = symbolizer(self.reader, self.symbols.clone());
        *symbolizer.places() = places(self.reader);
        let mut about = self.about.clone();
        about.damage.extend(damage);
        let grouping = Grouping {
            by: self.by,
            host: about.host.clone(),
            capture: super::grouping::capture(1, self.reader.header()),
        };
        Going {
            asked: self,
            segments: Box::new(self.plan.segments(self.reader)),
            open: None,
            bounds: earliest_after(self.reader, &self.plan).into_iter(),
            bound: self.first(),
            late_damage: Vec::new(),
            queue: Queue::new(about, grouping, symbolizer, &self.filter, room),
        }
    }
}

/// A capture that is being read.
pub(super) struct Going<'a> {
    asked: &'a Asked<'a>,
    segments: Box<dyn Iterator<Item = (SegmentReader<'a>, usize)> + 'a>,
    open: Option<Open<'a>>,
    /// Of the frames that are still to be read: see [`earliest_after`].
    bounds: std::vec::IntoIter<Timestamp>,
    bound: Timestamp,
    late_damage: Vec<Damage>,
    queue: Queue<'a>,
}

/// The segment that is being read.
struct Open<'a> {
    reader: SegmentReader<'a>,
    /// Frames still to be read.
    left: usize,
    segment: Segment,
    lists: FrameLists,
    sieve: Sieve<'a>,
    losses: LossTotals,
}

impl<'a> Going<'a> {
    /// All samples before it are read.
    pub fn bound(&self) -> Timestamp {
        self.bound
    }

    /// When the next sample that waits was taken.
    pub fn next_time(&self) -> Option<Timestamp> {
        self.queue.next_time()
    }

    /// Gives the next sample that waits.
    pub fn give_next<S: Sink>(&mut self, sink: &mut S) -> Result<(), S::Error> {
        self.queue.give_next(sink)
    }

    /// Reads one more frame; whether there was one. Gives what is in order then, as far as it is before `limit`.
    pub fn read<S: Sink>(
        &mut self,
        limit: Timestamp,
        sink: &mut S,
        warn: &mut dyn FnMut(&str),
    ) -> Result<bool, S::Error> {
        let queue = &mut self.queue;
        let Asked { filter, plan, .. } = self.asked;
        while self.open.as_ref().is_none_or(|open| open.left == 0) {
            let Some((reader, left)) = self.segments.next() else {
                self.open = None;
                self.bound = Timestamp::MAX;
                return Ok(false);
            };
            self.open = Some(Open {
                reader,
                left,
                segment: Segment::new(Arc::clone(queue.symbolizer.perf_maps())),
                lists: queue.lists(),
                sieve: Sieve::new(filter),
                losses: LossTotals::default(),
            });
        }
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        open.left -= 1;
        // Bounds go on with the next segment where frames of this one cannot be read.
        let bound = self.bounds.next().unwrap_or(Timestamp::MAX);
        self.bound = bound;
        sink.frame();
        let dated = open.reader.next_entry().is_some_and(|e| plan.is_dated(e));
        let next = match dated {
            true => open.reader.next_frame(),
            // Only what later frames need of it.
            false => open.reader.next_tables(),
        };
        let frame = match next {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(true),
            Err(damage) => {
                self.late_damage.push(damage);
                return Ok(true);
            }
        };
        if !dated {
            open.losses.clone_from(&frame.tables.losses);
            open.segment
                .frame(frame.tables, frame.samples, |_, _, _| {});
            return Ok(true);
        }
        if let Err(damage) = open.segment.recall(&frame) {
            self.late_damage.push(damage);
            open.reader.end();
            return Ok(true);
        }
        about::add_losses(&mut queue.about, &frame.tables.losses, &mut open.losses);
        let mut keys = Vec::new();
        let sieve = &mut open.sieve;
        open.segment
            .frame(frame.tables, frame.samples, |segment, sample, key| {
                if let Some(key) = sieve.pass(sample, key, segment, frame.tables) {
                    let flags = filter.flags(sample.flags);
                    keys.push((Sample { flags, ..*sample }, key));
                }
            });
        // So that what comes before `bound` can be given while the rest is still looked up.
        keys.sort_by_key(|(sample, _)| (sample.time, sample.cpu));
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let taken = queue.take(rest, frame.tables, &mut open.segment, &mut open.lists);
            rest = rest.get(taken..).unwrap_or_default();
            queue.resolve(warn);
            let next = rest.first().map_or(bound, |(sample, _)| sample.time);
            queue.give(bound.min(next).min(limit), sink)?;
            queue.make_room(sink, warn)?;
        }
        Ok(true)
    }

    /// What is known at the end, when nothing waits any more.
    pub fn finish(self) -> Summary {
        let Going {
            asked,
            late_damage,
            queue,
            ..
        } = self;
        let (mut about, passed, naming) = queue.finish();
        let nothing = selection::explain(asked.reader, &asked.filter, &about, passed);
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
        Summary {
            about,
            late_damage,
            naming,
        }
    }
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
