//! Several captures in one file: each counted, named and told by itself, with its own clock, kernel and tables, then joined by
//! names: counted together, or sample by sample in order of time ([`stream`]).

mod about;
mod stream;

use std::ops::RangeInclusive;

use super::selection::{Scale, TimePoint};
use super::{Progress, Request, about as one, grouping, shape};
use crate::capture::Reader;
use crate::capture::members::shift;
use crate::event::Timestamp;
use crate::format::header::Header;
use crate::profile::{By, Joined, Profile};

use about::joined_about;

pub(super) use stream::stream;

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
    /// What it is called: by its number and when it began.
    fn name(&self) -> String {
        grouping::capture(self.number, self.reader.header())
    }

    /// A time of its clock, on the common axis.
    fn on_axis(&self, time: Timestamp) -> Timestamp {
        Timestamp(time.0.saturating_add(self.shift))
    }

    /// Whether it is asked for by its number.
    fn is_numbered(&self, request: &Request) -> bool {
        let captures = &request.selection.captures;
        let is_in = |numbers: &RangeInclusive<u32>| {
            u32::try_from(self.number).is_ok_and(|number| numbers.contains(&number))
        };
        captures.is_empty() || captures.iter().any(is_in)
    }

    /// Whether its host is asked for, by its name or by what it is called here.
    fn is_of_host(&self, request: &Request) -> bool {
        let hosts = &request.selection.hosts;
        let names = [&self.reader.header().host, &self.host];
        let mut asked = hosts.iter();
        hosts.is_empty() || asked.any(|glob| names.iter().any(|name| glob.matches(name.as_bytes())))
    }

    /// What is asked of this one: its host may be asked for by what it is called here, and its number is one of several.
    fn request(&self, request: &Request) -> Request {
        let mut request = request.clone();
        let hosts = &mut request.selection.hosts;
        if hosts.iter().any(|glob| glob.matches(self.host.as_bytes())) {
            *hosts = "*".parse().into_iter().collect();
        }
        // By itself, a capture is the first and only one.
        if !request.selection.captures.is_empty() {
            let number = u32::from(self.is_numbered(&request));
            request.selection.captures = vec![number..=number];
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
                format!("{}#{boot}", one::host(header))
            }
            false => one::host(header),
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
    let (first, last) = one::about(reader).span?;
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
        By::Process | By::Thread | By::Cgroup | By::Cpu | By::Capture => true,
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
        let named = |text: &str| match several {
            true => format!("{text}@{}", part.host),
            false => text.to_owned(),
        };
        let label = |label: &str| match request.by {
            By::Host => part.host.clone(),
            By::Capture => named(&part.name()),
            by if of_host(by) => named(label),
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
