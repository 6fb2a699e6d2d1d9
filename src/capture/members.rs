//! Several captures in one file, each as it was: how they are found, and how such a file is written.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use memchr::memmem;

use super::reader::{CaptureError, Damage, DamageKind, Member, Reader};
use super::scan;
use super::source::Source;
use super::write_error::WriteError;
use crate::event::{Timestamp, UserStacks};
use crate::format::header::Header;
use crate::format::limits;
use crate::format::member::{self, Member as Announced};

/// Bytes read at a time when looking for the next capture after damage.
const SEARCHED: usize = 1 << 20;
/// Bytes copied at a time.
const COPIED: usize = 1 << 20;
/// Events that samples can tell apart.
const EVENTS: usize = 256;

/// Where a capture lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Which one, from 1.
    number: u32,
    offset: u64,
    /// As far as it is there.
    len: u64,
}

/// What a file of captures holds.
#[derive(Debug, Default)]
struct Found {
    places: Vec<Place>,
    damage: Vec<Damage>,
    /// Bytes at the end that are the beginning of what comes before a capture.
    cut_bytes: u64,
}

/// Finds the captures from `start` on.
fn find(source: &Source, start: u64) -> io::Result<Found> {
    let mut found = Found::default();
    let mut bytes = Vec::new();
    let mut at = start;
    let mut seen = BTreeSet::new();
    let mut count = 0;
    while at < source.len() {
        let left = source.len() - at;
        source.read_up_to(at, member::FRAME_LEN, &mut bytes)?;
        if let Some(member) = Announced::decode(&bytes) {
            if found.places.len() >= limits::MEMBERS {
                found.damage(at, DamageKind::TooManyMembers);
                break;
            }
            let offset = at + member::FRAME_LEN as u64;
            let there = source.len().saturating_sub(offset);
            count = member.count.max(count);
            let number = member.number.saturating_add(1);
            match seen.insert(member.number) {
                true => {
                    found.places.push(Place {
                        number,
                        offset,
                        len: member.size.min(there),
                    });
                    // Captures are merged whole: this is no recorder that was killed, but a copy of the file that is not whole.
                    if there < member.size {
                        let missing = member.size - there;
                        found.damage(source.len(), DamageKind::CutMember { number, missing });
                    }
                }
                // Its samples are not to count twice.
                false => found.damage(at, DamageKind::MemberAgain(number)),
            }
            at = offset.saturating_add(member.size);
            continue;
        }
        let begun = bytes.iter().zip(member::START).all(|(a, b)| *a == b);
        if begun && left < member::FRAME_LEN as u64 {
            found.cut_bytes = left;
            break;
        }
        found.damage(at, DamageKind::NoFrame);
        match search(source, at + 1)? {
            Some(next) => at = next,
            None => break,
        }
    }
    let there = seen.range(..count).count();
    if seen.is_empty() {
        found.damage(at, DamageKind::NoMember);
    } else if there < count as usize {
        let missing = (count as usize - there) as u32;
        found.damage(at, DamageKind::MissingMembers { missing, count });
    }
    Ok(found)
}

/// Opens the captures from `start` on. Gives what is damaged beside them, and bytes at the end that are the beginning of what
/// comes before a capture.
pub(super) fn open(
    source: &Arc<Source>,
    start: u64,
) -> Result<(Vec<Member>, Vec<Damage>, u64), CaptureError> {
    let mut found = find(source, start).map_err(CaptureError::Read)?;
    let mut members = Vec::new();
    for place in std::mem::take(&mut found.places) {
        let Place {
            number,
            offset,
            len,
        } = place;
        let part = Arc::new(Source::Part {
            whole: Arc::clone(source),
            start: offset,
            len,
        });
        let opened = scan::header(&part).and_then(|(header, start)| match scan::is_merged(&part) {
            true => Err(CaptureError::Nested),
            false => Reader::of_one(part, header, start),
        });
        match opened {
            Ok(reader) => members.push(Member { reader, offset }),
            Err(err) => found.damage(
                offset,
                DamageKind::Member {
                    number,
                    reason: err.to_string(),
                },
            ),
        }
    }
    Ok((members, found.damage, found.cut_bytes))
}

impl Found {
    fn damage(&mut self, offset: u64, kind: DamageKind) {
        self.damage.push(Damage {
            offset,
            kind,
            frames: 0,
            samples: 0,
        });
    }
}

/// Where the next capture is announced, from `at` on.
fn search(source: &Source, mut at: u64) -> io::Result<Option<u64>> {
    let mut bytes = Vec::new();
    let mut head = Vec::new();
    while at < source.len() {
        source.read_up_to(at, SEARCHED, &mut bytes)?;
        for place in memmem::find_iter(&bytes, &member::START) {
            let place = at + place as u64;
            source.read_up_to(place, member::FRAME_LEN, &mut head)?;
            if Announced::decode(&head).is_some() {
                return Ok(Some(place));
            }
        }
        // One can begin at the end of what was read.
        let step = bytes.len().saturating_sub(member::START.len() - 1).max(1);
        at += step as u64;
    }
    Ok(None)
}

/// Why captures cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Two are of one recording.
    #[error("captures {0} and {1} are the same recording")]
    Same(usize, usize),
    /// More than a file may hold.
    #[error("{0} captures are more than one file may hold ({max})", max = limits::MEMBERS)]
    TooMany(usize),
    /// More than samples can tell apart.
    #[error("the captures have {0} different events, more than can be told apart ({EVENTS})")]
    Events(usize),
    /// One of them.
    #[error("cannot read capture {0}")]
    Read(usize, #[source] io::Error),
    /// The file.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What tells a recording from every other: a packed or repaired copy is the same one.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// The boot, when it began, and the checksum of its first frame.
    Recorded(String, Timestamp, Option<u32>),
    /// Imports of one recording differ in what is known of its files and host, by how it was imported: its first samples, by
    /// time, CPU and thread, are its own.
    Imported(Vec<(Timestamp, u32, u32)>),
}

/// Samples that tell an imported recording from others, at most: times alone, in steps of a microsecond, hardly ever agree.
const TELLING: usize = 64;

fn identity(reader: &Reader) -> Identity {
    let header = reader.header();
    if header.boot_id.is_empty() {
        let samples = first_samples(reader);
        if !samples.is_empty() {
            return Identity::Imported(samples);
        }
    }
    let first = reader.frames().first();
    Identity::Recorded(
        format!("{} {}", header.boot_id, header.host),
        header.start_time,
        first.map(|entry| entry.descriptor.data_crc),
    )
}

/// When, where and of which thread the first samples are.
fn first_samples(reader: &Reader) -> Vec<(Timestamp, u32, u32)> {
    let mut segments = reader.segments();
    let Some(mut segment) = segments.next() else {
        return Vec::new();
    };
    let Ok(Some(frame)) = segment.next_frame() else {
        return Vec::new();
    };
    let samples = frame.samples.iter().map(|sample| {
        let tid = frame.tables.task(sample.task).map_or(0, |task| task.tid.0);
        (sample.time, sample.cpu, tid)
    });
    let mut samples: Vec<_> = samples.collect();
    samples.sort_unstable();
    samples.truncate(TELLING);
    samples
}

/// Writes a file with `captures`, none of which is merged itself, one after the other. Bytes at the end of one that are no whole
/// frame are left out. Gives its length.
pub fn merge(captures: &[&Reader], out: &mut impl Write) -> Result<u64, MergeError> {
    merge_lacking(captures, Vec::new(), out)
}

/// As [`merge`]. What is `lacking` beside the captures, because it could not be had, is told at the top of each report.
pub fn merge_lacking(
    captures: &[&Reader],
    lacking: Vec<String>,
    out: &mut impl Write,
) -> Result<u64, MergeError> {
    if captures.len() > limits::MEMBERS {
        return Err(MergeError::TooMany(captures.len()));
    }
    let identities: Vec<_> = captures.iter().map(|reader| identity(reader)).collect();
    for (number, one) in identities.iter().enumerate() {
        let same = identities
            .iter()
            .take(number)
            .position(|other| other == one);
        if let Some(same) = same {
            return Err(MergeError::Same(same, number));
        }
    }
    let headers: Vec<&Header> = captures.iter().map(|reader| reader.header()).collect();
    let common = Header {
        degraded: lacking,
        ..common(&headers)?
    };
    let mut header = Vec::new();
    common
        .encode_merged(&mut header)
        .map_err(WriteError::from)?;
    join(&header, captures, out)
}

/// Writes a file of `captures` that begins with `header`. Gives its length.
pub(super) fn join(
    header: &[u8],
    captures: &[&Reader],
    out: &mut impl Write,
) -> Result<u64, MergeError> {
    let mut bytes = Vec::new();
    let mut written = 0;
    let mut put = |bytes: &[u8]| {
        let result = out.write_all(bytes);
        result.map_err(|source| WriteError::Io {
            offset: written,
            source,
        })?;
        written += bytes.len() as u64;
        Ok::<(), WriteError>(())
    };
    put(header)?;
    for (number, reader) in captures.iter().enumerate() {
        let size = reader.whole_len();
        let member = Announced {
            number: number as u32,
            count: captures.len() as u32,
            size,
        };
        put(&member.encode())?;
        let mut at = 0;
        while at < size {
            let count = (size - at).min(COPIED as u64) as usize;
            reader
                .source()
                .read(at, count, &mut bytes)
                .map_err(|err| MergeError::Read(number, err))?;
            put(&bytes)?;
            at += count as u64;
        }
    }
    Ok(written)
}

/// Texts joined, each once.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut seen = BTreeSet::new();
    let mut all: Vec<&str> = Vec::new();
    for text in texts.filter(|text| !text.is_empty()) {
        if seen.insert(text) {
            all.push(text);
        }
    }
    // Within what a header may have, whatever they are.
    const TEXT: usize = 64 << 10;
    let mut text = all.join(", ");
    cut_text(&mut text, TEXT);
    text
}

/// Cuts `text` to `most` bytes, or a few less.
pub(crate) fn cut_text(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// What the captures of a file have in common. Their times are told on one axis, that of the clock that began first.
pub fn common(headers: &[&Header]) -> Result<Header, MergeError> {
    let texts = |of: fn(&Header) -> &str| joined(headers.iter().map(|header| of(header)));
    let mut events = Vec::new();
    for event in headers.iter().flat_map(|header| &header.events) {
        if !events.contains(event) {
            events.push(event.clone());
        }
    }
    if events.len() > EVENTS {
        return Err(MergeError::Events(events.len()));
    }
    let wall = headers.iter().map(|header| header.wall_offset_ns).min();
    let wall_offset_ns = wall.unwrap_or(0);
    let start = headers.iter().map(|header| {
        let shift = shift(header, wall_offset_ns);
        header.start_time.0.saturating_add(shift)
    });
    let most = |of: fn(&Header) -> u32| headers.iter().map(|header| of(header)).max().unwrap_or(0);
    let mut machines = BTreeSet::new();
    let new = headers
        .iter()
        .filter(|header| machines.insert(&header.host));
    let cpus = new.fold(0u32, |sum, header| sum.saturating_add(header.cpus_online));
    Ok(Header {
        host: texts(|header| &header.host),
        boot_id: String::new(),
        kernel_release: texts(|header| &header.kernel_release),
        kernel_build_id: None,
        arch: texts(|header| &header.arch),
        page_size: 0,
        clock_ticks: 0,
        cpus_online: cpus,
        wall_offset_ns,
        start_time: Timestamp(start.min().unwrap_or(0)),
        events,
        target: texts(|header| &header.target),
        user_stack_limit: most(|header| header.user_stack_limit),
        kernel_stack_limit: most(|header| header.kernel_stack_limit),
        tool: texts(|header| &header.tool),
        degraded: Vec::new(),
        user_stacks: all_alike(headers.iter().map(|header| header.user_stacks)),
    })
}

/// What all of them say, or nothing.
fn all_alike(mut told: impl Iterator<Item = UserStacks>) -> UserStacks {
    let first = told.next().unwrap_or_default();
    match told.all(|other| other == first) {
        true => first,
        false => UserStacks::Untold,
    }
}

/// What to add to times of a capture for those of the common axis.
pub fn shift(header: &Header, wall_offset_ns: i64) -> u64 {
    let shift = header.wall_offset_ns.saturating_sub(wall_offset_ns);
    u64::try_from(shift).unwrap_or(0)
}
