//! The samples of several captures in order of time: the clocks of all of them are told on one axis.
//!
//! Of each capture no more is read than is needed to know that none of its samples comes before the next one given: about
//! one frame, a second of samples. Captures are open from their first sample to their last, so that rotations of one
//! host take no more memory together than one of them.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::about::joined_about;
use super::{Part, of_host, of_one, parts, several_hosts};
use crate::capture::Reader;
use crate::event::Timestamp;
use crate::pipeline::Request;
use crate::pipeline::stream::{Asked, Going, Room, Sink, Summary};
use crate::profile::{About, By, Names, Naming, Resolution, SampleFrame, SampleView, SymbolFrame};

/// Captures that are open at one time at most: each has tables, and files that names come from.
const MOST_OPEN: usize = 32;

/// A capture that is being read.
struct Member<'a> {
    /// Which of the parts it is.
    number: usize,
    part: &'a Part<'a>,
    going: Going<'a>,
    known: Known,
}

impl Member<'_> {
    /// All samples before it are read.
    fn bound(&self) -> Timestamp {
        self.part.on_axis(self.going.bound())
    }

    fn next_time(&self) -> Option<Timestamp> {
        Some(self.part.on_axis(self.going.next_time()?))
    }

    fn is_over(&self) -> bool {
        self.going.bound() == Timestamp::MAX && self.going.next_time().is_none()
    }
}

/// What all captures go through.
struct Common<'a, S> {
    about: &'a About,
    by: By,
    several: bool,
    names: Names,
    /// Places of all captures.
    places: u32,
    sink: &'a mut S,
}

impl<S: Sink> Common<'_, S> {
    /// Has `act` give samples of one capture as those of all.
    fn through<T>(
        &mut self,
        member: &mut Member<'_>,
        act: impl FnOnce(&mut Going<'_>, &mut Through<'_, '_, S>) -> T,
    ) -> T {
        let mut through = Through {
            part: member.part,
            host: self.several.then_some(&*member.part.host),
            by: self.by,
            about: self.about,
            names: &mut self.names,
            known: &mut member.known,
            places: &mut self.places,
            sink: &mut *self.sink,
        };
        act(&mut member.going, &mut through)
    }

    /// Gives all samples that wait and are before `until`, or all where that is the end.
    fn give(&mut self, open: &mut [Member<'_>], until: Timestamp) -> Result<(), S::Error> {
        loop {
            let waiting = open.iter_mut().filter_map(|member| {
                let time = member.next_time()?;
                Some((time, member))
            });
            let next = waiting.min_by_key(|(time, member)| (*time, member.number));
            match next {
                Some((time, member)) if time < until || until == Timestamp::MAX => {
                    self.through(member, |going, through| going.give_next(through))?;
                }
                _ => return Ok(()),
            }
        }
    }
}

/// Hands out the samples of all of them in order of time, with times on the common axis.
pub(in crate::pipeline) fn stream<S: Sink>(
    reader: &Reader,
    request: Request,
    sink: &mut S,
    warn: &mut dyn FnMut(&str),
) -> Result<Summary, S::Error> {
    let parts = parts(reader);
    let of_one = of_one(reader, &parts, &request);
    let asked = parts
        .iter()
        .map(|part| Asked::new(part.reader, part.request(&of_one)));
    let asked: Vec<Asked<'_>> = asked.collect();
    let before = asked.iter().map(|asked| asked.about().clone()).collect();
    let about = joined_about(reader, &parts, &request, before);
    sink.open(&about)?;
    sink.flush()?;
    let each = parts.iter().zip(&asked).enumerate();
    let mut coming: Vec<_> = each
        .map(|(number, (part, asked))| (part.on_axis(asked.first()), number, part, asked))
        .collect();
    coming.sort_by_key(|(first, number, ..)| (*first, *number));
    let mut coming = VecDeque::from(coming);
    let mut common = Common {
        about: &about,
        by: request.by,
        several: several_hosts(&parts),
        names: Names::default(),
        places: 0,
        sink,
    };
    let room = Room::default();
    let mut open: Vec<Member<'_>> = Vec::new();
    let mut summaries: Vec<Option<Summary>> = parts.iter().map(|_| None).collect();
    let mut crowded = false;
    loop {
        let bound = |open: &[Member<'_>]| open.iter().map(Member::bound).min();
        while let Some((first, ..)) = coming.front()
            && bound(&open).is_none_or(|bound| *first <= bound)
        {
            if open.len() >= MOST_OPEN {
                break;
            }
            if let Some((_, number, part, asked)) = coming.pop_front() {
                open.push(Member {
                    number,
                    part,
                    going: asked.begin(room.clone()),
                    known: Known::default(),
                });
            }
        }
        let Some(behind) = open.iter_mut().min_by_key(|member| member.bound()) else {
            break;
        };
        common.through(behind, |going, through| {
            going.read(Timestamp::ZERO, through, warn)
        })?;
        let mut until = bound(&open).unwrap_or(Timestamp::MAX);
        if let Some((first, ..)) = coming.front()
            && *first < until
        {
            if open.len() < MOST_OPEN {
                until = *first;
            } else if !std::mem::replace(&mut crowded, true) {
                // One of those that are open has to end first.
                warn(&format!(
                    "more than {MOST_OPEN} captures were recorded at the same time: the samples of some come after those of others"
                ));
            }
        }
        common.give(&mut open, until)?;
        common.sink.flush()?;
        for at in (0..open.len()).rev() {
            if open.get(at).is_some_and(Member::is_over) {
                let member = open.swap_remove(at);
                if let Some(slot) = summaries.get_mut(member.number) {
                    *slot = Some(member.going.finish());
                }
            }
        }
    }
    let mut abouts = Vec::new();
    let mut late_damage = Vec::new();
    let mut naming = Naming::default();
    for (part, summary) in parts.iter().zip(summaries) {
        let summary = summary.unwrap_or_default();
        abouts.push(summary.about);
        let of = |text: String| format!("{}: {text}", part.host);
        late_damage.extend(summary.late_damage.into_iter().map(of));
        naming.add(summary.naming);
    }
    Ok(Summary {
        about: joined_about(reader, &parts, &request, abouts),
        late_damage,
        naming,
    })
}

/// Passes the samples of one capture on as those of all.
struct Through<'a, 'r, S> {
    part: &'a Part<'r>,
    /// Its host, where there are several.
    host: Option<&'a str>,
    by: By,
    about: &'a About,
    names: &'a mut Names,
    known: &'a mut Known,
    /// Places of all captures.
    places: &'a mut u32,
    sink: &'a mut S,
}

/// What is known of one capture's numbers.
#[derive(Default)]
struct Known {
    /// Of its frames, the numbers among all.
    frames: HashMap<u32, u32>,
    /// Of its places, the number among all and where in `resolutions` they are.
    places: HashMap<u32, (u32, usize)>,
    resolutions: Vec<Resolution>,
}

impl<S: Sink> Through<'_, '_, S> {
    /// Takes in what a place of the capture stands for.
    fn place(&mut self, theirs: &Names, frame: &SampleFrame<'_>) {
        let known = &mut *self.known;
        if known.places.contains_key(&frame.place) {
            return;
        }
        let chain = frame.resolution.chain.iter().map(|part| {
            let number = *known
                .frames
                .entry(part.frame)
                .or_insert_with(|| self.names.adopt(theirs, part.frame));
            SymbolFrame {
                frame: number,
                source: part
                    .source
                    .map(|source| self.names.adopt_source(theirs, source)),
            }
        });
        let chain = chain.collect();
        let number = (*self.places, known.resolutions.len());
        *self.places += 1;
        known.places.insert(frame.place, number);
        let exact = frame.resolution.exact;
        known.resolutions.push(Resolution {
            chain,
            exact: exact.map(|name| self.names.intern(theirs.text(name))),
            ..frame.resolution.clone()
        });
    }
}

/// Frames of one capture as those of all.
fn ours<'f>(known: &'f Known, frames: &[SampleFrame<'f>]) -> Vec<SampleFrame<'f>> {
    let ours = frames.iter().filter_map(|frame| {
        let (place, at) = *known.places.get(&frame.place)?;
        Some(SampleFrame {
            place,
            resolution: known.resolutions.get(at)?,
            ..*frame
        })
    });
    ours.collect()
}

impl<S: Sink> Sink for Through<'_, '_, S> {
    type Error = S::Error;

    fn open(&mut self, _: &About) -> Result<(), S::Error> {
        Ok(())
    }

    fn sample(
        &mut self,
        _: &About,
        names: &Names,
        sample: &SampleView<'_>,
    ) -> Result<(), S::Error> {
        for frame in sample.kernel.iter().chain(sample.user) {
            self.place(names, frame);
        }
        let named = |text: &str| match self.host {
            Some(host) => format!("{text}@{host}"),
            None => text.to_owned(),
        };
        let process = named(sample.process);
        let group = match self.by {
            By::Host => self.part.host.clone(),
            By::Capture => named(&self.part.name()),
            by if of_host(by) => named(sample.group),
            _ => sample.group.to_owned(),
        };
        let (kernel, user) = (
            ours(self.known, sample.kernel),
            ours(self.known, sample.user),
        );
        let event = self.part.events.get(usize::from(sample.event));
        let view = SampleView {
            time: Timestamp(sample.time.0.saturating_add(self.part.shift)),
            process: &process,
            group: &group,
            event: event.copied().unwrap_or(0),
            kernel: &kernel,
            user: &user,
            ..*sample
        };
        self.sink.sample(self.about, self.names, &view)
    }

    fn flush(&mut self) -> Result<(), S::Error> {
        self.sink.flush()
    }

    fn frame(&mut self) {
        self.sink.frame();
    }
}
