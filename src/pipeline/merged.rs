//! Several captures in one file: each counted, named and told by itself, with its own clock, kernel and tables, then joined by
//! names.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::selection::{Scale, TimePoint};
use super::stream::{self as one, Sink, Summary};
use super::{Progress, Request, about, shape};
use crate::capture::Reader;
use crate::capture::members::shift;
use crate::event::Timestamp;
use crate::format::header::Header;
use crate::profile::{
    About, By, Event, Joined, Names, Naming, Profile, Resolution, SampleFrame, SampleView,
    Selected, SymbolFrame, counted_event,
};

/// One of the captures, and how it goes together with the others.
struct Part<'r> {
    reader: &'r Reader,
    /// Which one of the file, from 1.
    number: usize,
    /// What its host is called here: no other host has the name.
    host: String,
    /// To be added to its times.
    shift: u64,
    /// Number of each of its events among those of the file.
    events: Vec<u8>,
}

impl Part<'_> {
    /// What is asked of this one: its host may be asked for by what it is called here.
    fn request(&self, request: &Request) -> Request {
        let mut request = request.clone();
        let hosts = &mut request.selection.hosts;
        if hosts.iter().any(|glob| glob.matches(self.host.as_bytes())) {
            *hosts = "*".parse().into_iter().collect();
        }
        request
    }
}

/// What the hosts of a capture are called: by their names, and where two of one name recorded at the same time, by the
/// beginning of their boot IDs too.
pub fn hosts(reader: &Reader) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for part in parts(reader) {
        if !hosts.contains(&part.host) {
            hosts.push(part.host);
        }
    }
    hosts
}

/// The captures of `reader`, in the order in which they began.
fn parts(reader: &Reader) -> Vec<Part<'_>> {
    let common = reader.header();
    let captures = reader.captures();
    let spans: Vec<_> = captures
        .iter()
        .map(|reader| span(reader, shift(reader.header(), common.wall_offset_ns)))
        .collect();
    let mut parts: Vec<(u64, Part<'_>)> = Vec::new();
    for (number, (reader, own)) in captures.iter().zip(&spans).enumerate() {
        let header = reader.header();
        let mut others = captures.iter().zip(&spans);
        let twin = others.any(|(other, span)| are_twins(header, other.header(), *own, *span));
        let host = match twin {
            true => {
                let boot: String = header.boot_id.chars().take(8).collect();
                format!("{}#{boot}", header.host)
            }
            false => header.host.clone(),
        };
        let event = |event| common.events.iter().position(|known| known == event);
        let events = header.events.iter();
        let part = Part {
            reader,
            number: number + 1,
            host,
            shift: shift(header, common.wall_offset_ns),
            events: events.map(|e| event(e).unwrap_or(0) as u8).collect(),
        };
        parts.push((own.map_or(u64::MAX, |(first, _)| first), part));
    }
    parts.sort_by_key(|(first, _)| *first);
    parts.into_iter().map(|(_, part)| part).collect()
}

/// First and last sample, on the common axis.
fn span(reader: &Reader, shift: u64) -> Option<(u64, u64)> {
    let (first, last) = about::about(reader).span?;
    Some((first.0.saturating_add(shift), last.0.saturating_add(shift)))
}

/// Two machines of one name: they ran at the same time, and were not booted at the same time.
fn are_twins(one: &Header, other: &Header, a: Option<(u64, u64)>, b: Option<(u64, u64)>) -> bool {
    let overlap = a.zip(b).is_some_and(|(a, b)| a.0 <= b.1 && b.0 <= a.1);
    one.host == other.host
        && one.boot_id != other.boot_id
        && !one.boot_id.is_empty()
        && !other.boot_id.is_empty()
        && overlap
}

/// Whether groups are of a host, so that those of different hosts are different.
fn of_host(by: By) -> bool {
    match by {
        By::Process | By::Thread | By::Cgroup | By::Cpu => true,
        By::Comm | By::Exe | By::Host | By::None => false,
    }
}

fn several_hosts(parts: &[Part<'_>]) -> bool {
    let first = parts.first().map(|part| &part.host);
    parts.iter().any(|part| Some(&part.host) != first)
}

/// What is asked of each capture: times from the beginning are from that of the first one, and what is small is so in all of
/// them together.
fn of_one(reader: &Reader, parts: &[Part<'_>], request: &Request) -> Request {
    let wall = reader.header().wall_offset_ns;
    let spans = parts
        .iter()
        .filter_map(|part| span(part.reader, part.shift));
    let span = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let span = span.unwrap_or_default();
    let scale = Scale {
        span: (Timestamp(span.0), Timestamp(span.1)),
        wall_offset_ns: wall,
    };
    let mut request = request.clone();
    request.shape.min_percent = 0.0;
    for range in &mut request.selection.times {
        let on = range.on(scale);
        let point = |time: Timestamp| TimePoint::Wall(i128::from(time.0) + i128::from(wall));
        range.from = range.from.map(|_| point(on.from));
        range.until = range.until.zip(on.until).map(|(_, until)| point(until));
    }
    request
}

/// Counts each, and joins what is counted.
pub(super) fn profile(
    reader: &Reader,
    request: Request,
    with_missing: bool,
    progress: &mut dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Profile {
    let parts = parts(reader);
    let several = several_hosts(&parts);
    let of_one = of_one(reader, &parts, &request);
    let mut all = Profile {
        by: request.by,
        ..Profile::default()
    };
    let mut abouts = Vec::new();
    for part in &parts {
        let mut of_frames = OfFrames(progress);
        let mut profile = super::count(
            part.reader,
            part.request(&of_one),
            with_missing,
            &mut of_frames,
            warn,
        );
        abouts.push(std::mem::take(&mut profile.about));
        let label = |label: &str| match request.by {
            By::Host => part.host.clone(),
            by if several && of_host(by) => format!("{label}@{}", part.host),
            _ => label.to_owned(),
        };
        all.absorb(
            profile,
            &Joined {
                events: &part.events,
                label: &label,
            },
        );
    }
    all.rows = shape::merged(std::mem::take(&mut all.rows));
    all.about = joined_about(reader, &parts, &request, abouts);
    shape::leave_out(&mut all, &request.shape);
    progress.done();
    all
}

/// The end of one capture is not the end of the work.
struct OfFrames<'p>(&'p mut dyn Progress);

impl Progress for OfFrames<'_> {
    fn frame(&mut self) {
        self.0.frame();
    }

    fn symbolizing(&mut self) {
        self.0.symbolizing();
    }

    fn done(&mut self) {}
}

/// Texts, each once.
fn each<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join(", ")
}

/// What the parts say about themselves, together.
fn joined_about(
    reader: &Reader,
    parts: &[Part<'_>],
    request: &Request,
    abouts: Vec<About>,
) -> About {
    let text = |of: fn(&About) -> &str| each(abouts.iter().map(of));
    let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
    for (part, about) in parts.iter().zip(&abouts) {
        let cpus = hosts.entry(&part.host).or_default();
        *cpus = about.cpus.max(*cpus);
    }
    let mut all = About {
        host: each(parts.iter().map(|part| &*part.host)),
        kernel: text(|about| &about.kernel),
        cpus: hosts.into_values().fold(0, u32::saturating_add),
        tool: text(|about| &about.tool),
        target: text(|about| &about.target),
        duration: None,
        samples: 0,
        lost: 0,
        ended: None,
        ..about::about(reader)
    };
    let mut ends: BTreeMap<String, ()> = BTreeMap::new();
    let mut cut = false;
    let several = parts.len() > 1;
    for (part, about) in parts.iter().zip(abouts) {
        let of = |text: &str| match several {
            true => format!("capture {} ({}): {text}", part.number, part.host),
            false => text.to_owned(),
        };
        if let Some((first, last)) = about.span {
            let shift = |time: Timestamp| Timestamp(time.0.saturating_add(part.shift));
            let span = all.span.get_or_insert((shift(first), shift(last)));
            *span = (span.0.min(shift(first)), span.1.max(shift(last)));
        }
        let sums = [
            (&mut all.samples, about.samples),
            (&mut all.weight, about.weight),
            (&mut all.lost, about.lost),
            (&mut all.cut_bytes, about.cut_bytes),
            (&mut all.damaged_samples, about.damaged_samples),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        let sum = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        all.truncated = sum(all.truncated, about.truncated);
        for (class, count) in about.losses {
            let sum = all.losses.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
        all.damage.extend(about.damage.iter().map(|text| of(text)));
        all.degraded
            .extend(about.degraded.iter().map(|text| of(text)));
        match about.ended {
            Some(end) => drop(ends.insert(end, ())),
            None if several => {
                all.degraded.push(of("recording did not end in order"));
                cut = true;
            }
            None => cut = true,
        }
        if let Some(more) = about.selected {
            let selected = all.selected.get_or_insert_with(|| Selected {
                what: request.selection.words(),
                ..Selected::default()
            });
            selected.samples = sum(selected.samples, more.samples);
            selected.lost = sum(selected.lost, more.lost);
            selected.weight = selected.weight.saturating_add(more.weight);
            for why in more.nothing {
                if !selected.nothing.contains(&why) {
                    selected.nothing.push(why);
                }
            }
        }
    }
    // What one capture has nothing of, another may have.
    if let Some(selected) = all.selected.as_mut().filter(|s| s.samples.unwrap_or(0) > 0) {
        selected.nothing.clear();
    }
    let same = |one: &Event| {
        let is_same = |other: &&Event| counted_event(&other.name) == counted_event(&one.name);
        each(all.events.iter().filter(is_same).map(|event| &*event.rate))
    };
    let rates = all
        .events
        .iter()
        .map(same)
        .find(|rates| rates.contains(", "));
    if let Some(rates) = rates {
        all.degraded.push(format!(
            "sampled at {rates}: what is counted here is samples, and a sample stands for less CPU time where the rate is higher; \
             compare shares within one capture (--host, --time)"
        ));
    }
    if !cut {
        let ends: Vec<String> = ends.into_keys().collect();
        all.ended = Some(ends.join("; ")).filter(|text| !text.is_empty());
    }
    all
}

/// Hands out the samples of each, one capture after the other, with times on the common axis.
pub(super) fn stream<S: Sink>(
    reader: &Reader,
    request: Request,
    sink: &mut S,
    warn: &mut dyn FnMut(&str),
) -> Result<Summary, S::Error> {
    let parts = parts(reader);
    let several = several_hosts(&parts);
    let before: Vec<About> = parts.iter().map(|part| about::about(part.reader)).collect();
    let of_one = of_one(reader, &parts, &request);
    let known = joined_about(reader, &parts, &request, before);
    sink.open(&known)?;
    sink.flush()?;
    let mut names = Names::default();
    let mut next_place = 0;
    let mut abouts = Vec::new();
    let mut late_damage = Vec::new();
    let mut naming = Naming::default();
    let mut latest = None;
    for part in &parts {
        let span = span(part.reader, part.shift);
        if span
            .zip(latest)
            .is_some_and(|((first, _), last)| first < last)
        {
            warn(&format!(
                "captures overlap in time: the samples of {} follow those of the capture before",
                part.host
            ));
        }
        latest = latest.max(span.map(|(_, last)| last));
        let mut through = Through {
            part,
            host: several.then_some(&*part.host),
            by: request.by,
            about: &known,
            names: &mut names,
            frames: HashMap::new(),
            places: HashMap::new(),
            resolutions: Vec::new(),
            first_place: next_place,
            sink: &mut *sink,
        };
        let summary = one::stream(part.reader, part.request(&of_one), &mut through, warn)?;
        next_place += through.resolutions.len() as u32;
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
    /// Of the capture's frames, the numbers among all.
    frames: HashMap<u32, u32>,
    /// Of the capture's places, where in `resolutions` they are.
    places: HashMap<u32, usize>,
    resolutions: Vec<Resolution>,
    first_place: u32,
    sink: &'a mut S,
}

impl<S: Sink> Through<'_, '_, S> {
    /// Takes in what a place of the capture stands for.
    fn place(&mut self, theirs: &Names, frame: &SampleFrame<'_>) {
        if self.places.contains_key(&frame.place) {
            return;
        }
        let chain = frame.resolution.chain.iter().map(|part| {
            let known = self.frames.get(&part.frame).copied();
            let number = known.unwrap_or_else(|| self.names.adopt(theirs, part.frame));
            self.frames.insert(part.frame, number);
            SymbolFrame {
                frame: number,
                source: part
                    .source
                    .map(|source| self.names.adopt_source(theirs, source)),
            }
        });
        let chain = chain.collect();
        self.places.insert(frame.place, self.resolutions.len());
        self.resolutions.push(Resolution {
            chain,
            ..frame.resolution.clone()
        });
    }
}

/// Frames of one capture as those of all.
fn ours<'f>(
    places: &HashMap<u32, usize>,
    resolutions: &'f [Resolution],
    first_place: u32,
    frames: &[SampleFrame<'f>],
) -> Vec<SampleFrame<'f>> {
    let ours = frames.iter().filter_map(|frame| {
        let place = *places.get(&frame.place)?;
        Some(SampleFrame {
            place: first_place + place as u32,
            resolution: resolutions.get(place)?,
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
            by if of_host(by) => named(sample.group),
            _ => sample.group.to_owned(),
        };
        let list = |frames| ours(&self.places, &self.resolutions, self.first_place, frames);
        let (kernel, user) = (list(sample.kernel), list(sample.user));
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
