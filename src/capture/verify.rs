//! Checking every byte of a capture that a reader could ever believe.

use std::collections::BTreeMap;
use std::io;

use super::pack::{Pack, UnpackError};
use super::reader::{Damage, DamageKind, FrameReader, Reader};
use super::scan::{self, IndexState};
use crate::format::descriptor::FrameKind;
use crate::format::error::{FormatError, Problem};
use crate::format::header;

/// What was found when all of a capture was read.
#[derive(Debug)]
pub struct Verified {
    /// Whole frames, good or not.
    pub frames: u64,
    /// Samples that can be read.
    pub samples: u64,
    /// What is wrong, in the order of the file.
    pub damage: Vec<Damage>,
    /// Where recording was killed in the middle of a frame, and how many bytes of it there are. No damage.
    pub cut: Option<(u64, u64)>,
    /// Whether recording ended in order.
    pub ended: bool,
}

/// Reads and checks every frame: its descriptor, checksum and compressed content, its tables and what they refer to, the
/// totals at the end, what is packed, and the index. `frame` is called after each.
pub fn verify(reader: &Reader, mut frame: impl FnMut()) -> Verified {
    if reader.is_merged() {
        return of_members(reader, &mut frame);
    }
    of_one(reader, &mut frame)
}

/// Of a file of captures: what lies between them, and each of them. Offsets are those in the file.
fn of_members(reader: &Reader, frame: &mut dyn FnMut()) -> Verified {
    let mut damage = DamageMap::default();
    damage.extend(reader.damage().iter().cloned());
    let cut = reader.cut_bytes();
    let mut all = Verified {
        frames: 0,
        samples: 0,
        damage: Vec::new(),
        cut: (cut > 0).then(|| (reader.whole_len(), cut)),
        ended: cut == 0,
    };
    for member in reader.members() {
        let one = of_one(&member.reader, frame);
        all.frames += one.frames;
        all.samples = all.samples.saturating_add(one.samples);
        all.ended &= one.ended;
        let cut = one.cut.map(|(at, bytes)| (at + member.offset, bytes));
        all.cut = all.cut.or(cut);
        damage.extend(one.damage.into_iter().map(|damage| Damage {
            offset: damage.offset + member.offset,
            ..damage
        }));
    }
    all.damage = damage.0.into_values().collect();
    all
}

fn of_one(reader: &Reader, frame: &mut dyn FnMut()) -> Verified {
    let mut damage = DamageMap::default();
    damage.extend(reader.damage().iter().cloned());
    if let IndexState::Damaged(offset) = reader.index() {
        damage.add(offset, error("index", Problem::Checksum("entries")));
    }
    between_frames(reader, &mut damage);
    let mut samples = 0u64;
    let mut decoded = 0u64;
    for mut segment in reader.segments() {
        loop {
            match segment.next_frame() {
                Ok(Some(data)) => {
                    samples = samples.saturating_add(data.samples.len() as u64);
                    decoded += 1;
                    frame();
                }
                Ok(None) => break,
                Err(found) => {
                    damage.extend([found]);
                    break;
                }
            }
        }
    }
    // Also what follows a bad frame of its segment, and kinds that this program does not know.
    let mut frames = FrameReader::default();
    let spoiled = reader.samples() != samples || decoded != segment_frames(reader);
    for entry in reader.frames() {
        let kind = entry.descriptor.kind;
        if kind == FrameKind::Segment && !spoiled {
            continue;
        }
        if let Err(kind) = frames.content(reader.source(), entry) {
            damage.add(entry.offset, kind);
        }
        if kind != FrameKind::Segment {
            frame();
        }
    }
    damage.extend(reader.aids().damage);
    let (pack, bad) = reader.pack();
    damage.extend(bad);
    packed_files(&pack, &mut damage);
    Verified {
        frames: reader.frames().len() as u64,
        samples,
        damage: damage.0.into_values().collect(),
        cut: (reader.cut_bytes() > 0).then(|| (reader.whole_len(), reader.cut_bytes())),
        ended: reader.end().is_some(),
    }
}

/// One for each place: the first that was found. That frames are missing before a place says nothing of the frame there, which may be
/// damaged too.
#[derive(Default)]
struct DamageMap(BTreeMap<(u64, bool), Damage>);

impl DamageMap {
    fn extend(&mut self, found: impl IntoIterator<Item = Damage>) {
        for damage in found {
            let of_frame = !matches!(damage.kind, DamageKind::Missing { .. });
            let place = (damage.offset, of_frame);
            self.0.entry(place).or_insert(damage);
        }
    }

    fn add(&mut self, offset: u64, kind: DamageKind) {
        self.extend([Damage {
            offset,
            kind,
            frames: 1,
            samples: 0,
        }]);
    }
}

fn segment_frames(reader: &Reader) -> u64 {
    let segments = reader.frames().iter();
    segments
        .filter(|entry| entry.descriptor.kind == FrameKind::Segment)
        .count() as u64
}

/// Between frames and behind them there is nothing but an index each time an end was written.
fn between_frames(reader: &Reader, damage: &mut DamageMap) {
    // A later version may write what this one skips.
    if reader.version().1 > header::MINOR {
        return;
    }
    let Ok((_, mut next)) = scan::header(reader.source()) else {
        return;
    };
    let frames = reader.frames().iter().map(|e| (e.offset, e.end()));
    for (start, end) in frames.chain([(reader.whole_len(), 0)]) {
        // What cannot be read is found when frames are read.
        let fine = start == next || scan::index_spans(reader.source(), next, start).unwrap_or(true);
        let known = damage
            .0
            .range((next, false)..(start, false))
            .next()
            .is_some();
        if !fine && !known {
            damage.add(next, DamageKind::NoFrame);
        }
        next = end;
    }
}

/// Packed files come in pieces: all of one, with the checksum of the whole.
fn packed_files(pack: &Pack, damage: &mut DamageMap) {
    let files = pack.listing().into_iter().flat_map(|(.., files)| files);
    for file in files.filter(|file| file.here == file.size) {
        match pack.unpack(&file, &mut io::sink()) {
            Err(UnpackError::Damaged { offset, kind }) => damage.add(offset, kind),
            Err(UnpackError::Checksum { offset }) => {
                damage.add(
                    offset,
                    error("packed file", Problem::Checksum("whole file")),
                );
            }
            // An unfinished one is as if it were not there.
            Ok(()) | Err(UnpackError::Incomplete { .. } | UnpackError::Io(_)) => {}
        }
    }
}

fn error(part: &'static str, problem: Problem) -> DamageKind {
    DamageKind::Format(FormatError::new(part, 0, problem))
}
