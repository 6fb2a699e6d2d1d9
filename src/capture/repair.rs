//! A new capture of what can be read of a damaged one.
//!
//! Whole frames are copied as they are, numbered anew. A frame of a segment counts on from those before it, so what
//! follows a damaged one in its segment goes with it. What is left out is in the new capture as losses: reports of it say how
//! much is missing, like those of the damaged one.

use std::collections::HashSet;
use std::io::{self, Write};

use super::append::Appender;
use super::members::{MergeError, common, join};
use super::reader::{Damage, DamageKind, FrameReader, Reader};
use super::scan;
use super::verify::{Verified, verify};
use super::write_error::WriteError;
use crate::counted::{are, counted};
use crate::event::LossClass;
use crate::format::descriptor::{Descriptor, FrameKind};
use crate::format::end::End;
use crate::format::header::{self, Header};
use crate::format::index::FrameEntry;
use crate::format::meta;
use crate::format::segment::{Loss, Matchers, SegmentFrame, TableSizes};

/// What a repair took over, and what not.
#[derive(Debug)]
pub struct Repaired {
    /// What is wrong with the damaged capture.
    pub found: Verified,
    /// Frames in the new capture, without those that tell of losses.
    pub frames: u64,
    /// Samples in it.
    pub samples: u64,
    /// Frames left out, and frames that are not there at all, as far as they can be counted.
    pub lost_frames: u64,
    /// Samples in frames left out whose number is known, with those that such frames say are lost.
    pub lost_samples: u64,
    /// Of several captures in a file, those that are missing, or of which nothing can be read.
    pub lost_captures: u64,
    /// Bytes of the new capture.
    pub bytes: u64,
}

/// Why a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The damaged capture.
    #[error("cannot read the damaged capture")]
    Read(#[source] io::Error),
    /// A frame was good when all was checked and is not any more.
    #[error("byte {offset} of the capture changed while it was read: {kind}")]
    Changed {
        /// Where the frame is.
        offset: u64,
        /// What is wrong with it now.
        kind: DamageKind,
    },
    /// A file of captures none of which can be opened.
    #[error("nothing is left to repair: none of the captures in it can be read")]
    Nothing,
    /// A file for one of several captures.
    #[error("cannot make a temporary file")]
    Temporary(#[source] io::Error),
    /// Several captures together.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// The new capture.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes what is good of the capture that `reader` reads to `out`, which gets whole frames, one with each write. `frame` is
/// called after each frame that is checked.
///
/// # Errors
/// What is in `out` then is a capture cut short.
pub fn repair<W: Write>(
    reader: &Reader,
    mut out: W,
    mut frame: impl FnMut(),
) -> Result<(W, Repaired), RepairError> {
    if reader.is_merged() {
        let repaired = of_members(reader, &mut out, &mut frame)?;
        return Ok((out, repaired));
    }
    of_one(reader, out, &mut frame)
}

/// Of a file of captures: each of them, as far as they can be read.
fn of_members(
    reader: &Reader,
    out: &mut impl Write,
    frame: &mut dyn FnMut(),
) -> Result<Repaired, RepairError> {
    let mut all = Repaired {
        found: verify(reader, || {}),
        frames: 0,
        samples: 0,
        lost_frames: 0,
        lost_samples: 0,
        lost_captures: lost_captures(reader),
        bytes: 0,
    };
    if reader.members().is_empty() {
        return Err(RepairError::Nothing);
    }
    let mut good = Vec::new();
    for member in reader.members() {
        let file = tempfile::tempfile().map_err(RepairError::Temporary)?;
        let (file, one) = of_one(&member.reader, file, frame)?;
        all.frames += one.frames;
        all.samples = all.samples.saturating_add(one.samples);
        all.lost_frames += one.lost_frames;
        all.lost_samples = all.lost_samples.saturating_add(one.lost_samples);
        good.push(Reader::from_file(file).map_err(cannot_read)?);
    }
    let good: Vec<&Reader> = good.iter().collect();
    // What an earlier repair has left out is still missing.
    let mut lacking = reader.header().degraded.clone();
    if all.lost_captures > 0 {
        lacking.push(format!(
            "repaired: {} of {} captures are missing, with all their samples",
            all.lost_captures,
            all.lost_captures + good.len() as u64
        ));
    }
    // What is cut off of a capture was no frame that could be counted.
    let is_cut = |damage: &&Damage| matches!(damage.kind, DamageKind::CutMember { .. });
    let cut = reader.damage().iter().filter(is_cut);
    let cut = cut.map(|damage| format!("repaired: {}", damage.kind));
    lacking.extend(cut);
    let headers: Vec<&Header> = good.iter().map(|reader| reader.header()).collect();
    let mut header = Vec::new();
    let whole = common(&headers).is_ok_and(|common| {
        let common = Header {
            degraded: lacking,
            ..common
        };
        common.encode_merged(&mut header).is_ok()
    });
    if !whole {
        header = as_it_is(reader)?;
    }
    // Also one that is there twice: nothing that can be read is left out.
    all.bytes = join(&header, &good, out)?;
    Ok(all)
}

/// Captures that were in the file, by what those that are there say, and are not there or cannot be read at all.
fn lost_captures(reader: &Reader) -> u64 {
    let damage = reader.damage().iter();
    damage.fold(0, |sum, damage| match &damage.kind {
        DamageKind::MissingMembers { missing, .. } => sum + u64::from(*missing),
        DamageKind::Member { .. } => sum + 1,
        _ => sum,
    })
}

fn of_one<W: Write>(
    reader: &Reader,
    mut out: W,
    frame: &mut dyn FnMut(),
) -> Result<(W, Repaired), RepairError> {
    let found = verify(reader, frame);
    let kept = kept(reader, &found);
    let is_kept = |entry: &&FrameEntry| kept.contains(&entry.offset);
    let left_out = || reader.frames().iter().filter(|entry| !is_kept(entry));
    let lost_frames = left_out().count() as u64 + missing(reader);
    let taken = |d: &Descriptor| d.samples.saturating_add(d.lost);
    let mut lost_samples = of_segments(left_out(), taken);
    if let Some(end) = reader.end() {
        // Also those in frames of which not even the descriptor is left.
        let all = end.samples.saturating_add(end.lost);
        let kept = of_segments(reader.frames().iter().filter(is_kept), taken);
        lost_samples = lost_samples.max(all.saturating_sub(kept));
    }

    let source = reader.source();
    let header = header(reader, lost_frames, lost_samples)?;
    out.write_all(&header)
        .map_err(|source| WriteError::Io { offset: 0, source })?;
    let mut out = Appender::after_header(out, header.len() as u64)?;
    let mut frames = FrameReader::default();
    let mut written = 0;
    let (mut samples, mut segments) = (0u64, HashSet::new());
    for entry in reader.frames().iter().filter(is_kept) {
        let descriptor = &entry.descriptor;
        let changed = |kind| RepairError::Changed {
            offset: entry.offset,
            kind,
        };
        if descriptor.kind == FrameKind::End {
            // Behind everything else, with totals of its own.
            continue;
        }
        let data = frames.compressed(source, entry).map_err(changed)?;
        out.compressed(data, descriptor.clone())?;
        written += 1;
        if descriptor.kind == FrameKind::Segment {
            samples = samples.saturating_add(descriptor.samples);
            segments.insert(descriptor.segment);
        }
    }
    if lost_frames > 0 || lost_samples > 0 {
        // One of its own, whatever numbers there are.
        let after = segments.iter().max().map_or(1, |last| last.wrapping_add(1));
        let free = (after.max(1)..=u32::MAX).chain(1..after);
        let segment = free.into_iter().find(|number| !segments.contains(number));
        tell_losses(
            &mut out,
            reader,
            segment.unwrap_or(1),
            lost_samples,
            lost_frames,
        )?;
    }
    if let Some(end) = reader.end() {
        let lost = of_segments(reader.frames().iter().filter(is_kept), |d| d.lost);
        let end = End {
            samples,
            lost: lost.saturating_add(lost_samples),
            ..end.clone()
        };
        let mut content = Vec::new();
        meta::encode(&mut content, "end", &end).map_err(WriteError::from)?;
        out.frame(FrameKind::End, &content)?;
        written += 1;
    }
    let (out, bytes) = out.finish()?;
    Ok((
        out,
        Repaired {
            found,
            frames: written,
            samples,
            lost_frames,
            lost_samples,
            lost_captures: 0,
            bytes,
        },
    ))
}

/// The header with what is left out among what could not be had, so that reports open with it. That of a later version,
/// which may have more than is known here, stays as it is.
fn header(reader: &Reader, frames: u64, samples: u64) -> Result<Vec<u8>, RepairError> {
    if frames == 0 && samples == 0 || reader.version().1 > header::MINOR {
        return as_it_is(reader);
    }
    let mut bytes = Vec::new();
    let mut header = reader.header().clone();
    header.degraded.push(format!(
        "repaired: {}, with {} as far as that is known, {} left out",
        counted(frames, "damaged frame"),
        counted(samples, "sample"),
        are(frames)
    ));
    // A full one has no room for this; the frame of losses tells it too.
    if header.encode(&mut bytes).is_err() {
        return as_it_is(reader);
    }
    Ok(bytes)
}

/// The header's bytes.
fn as_it_is(reader: &Reader) -> Result<Vec<u8>, RepairError> {
    let mut bytes = Vec::new();
    let (_, end) = scan::header(reader.source()).map_err(cannot_read)?;
    let read = reader.source().read(0, end as usize, &mut bytes);
    read.map_err(RepairError::Read)?;
    Ok(bytes)
}

fn cannot_read(err: super::CaptureError) -> RepairError {
    RepairError::Read(io::Error::other(err))
}

fn of_segments<'a>(
    entries: impl Iterator<Item = &'a FrameEntry>,
    number: impl Fn(&Descriptor) -> u64,
) -> u64 {
    let segments = entries.filter(|entry| entry.descriptor.kind == FrameKind::Segment);
    segments.fold(0, |sum, entry| {
        sum.saturating_add(number(&entry.descriptor))
    })
}

/// Offsets of the frames that can be read: none that is damaged, and of each segment those before the first that is.
fn kept(reader: &Reader, found: &Verified) -> HashSet<u64> {
    // The frame behind a gap may be as good as any.
    let of_frames = found.damage.iter();
    let of_frames = of_frames.filter(|damage| !matches!(damage.kind, DamageKind::Missing { .. }));
    let damaged: HashSet<u64> = of_frames.map(|damage| damage.offset).collect();
    let others = reader.frames().iter();
    let mut kept: HashSet<u64> = others
        .filter(|entry| entry.descriptor.kind != FrameKind::Segment)
        .map(|entry| entry.offset)
        .filter(|offset| !damaged.contains(offset))
        .collect();
    for segment in reader.segments() {
        let frames = segment.frames().map(|entry| entry.offset);
        kept.extend(frames.take_while(|offset| !damaged.contains(offset)));
    }
    // An end that contradicts what there is, is written anew all the same.
    kept.extend(
        reader
            .frames()
            .iter()
            .rfind(|entry| entry.descriptor.kind == FrameKind::End)
            .filter(|_| reader.end().is_some())
            .map(|entry| entry.offset),
    );
    kept
}

/// Frames that are not there at all: by the gaps in the numbers of those that are, and at least one where the last bytes
/// are none.
fn missing(reader: &Reader) -> u64 {
    let mut next = 0u32;
    let mut missing = 0u64;
    for entry in reader.frames() {
        let sequence = entry.descriptor.sequence;
        missing += u64::from(sequence.saturating_sub(next));
        next = sequence.saturating_add(1);
    }
    let last = reader.frames().last();
    // Behind an end there is an index, which is no frame.
    let ended = last.is_some_and(|entry| entry.descriptor.kind == FrameKind::End);
    let last = last.map_or(0, |entry| entry.offset);
    let behind = |kind: &DamageKind| {
        use DamageKind::{Foreign, Missing, Repeated};
        !matches!(kind, Repeated(_) | Foreign { .. } | Missing { .. })
    };
    let mut damage = reader.damage().iter();
    missing + u64::from(!ended && damage.any(|d| d.offset > last && behind(&d.kind)))
}

/// A segment of its own that holds nothing but what was left out.
fn tell_losses<W: Write>(
    out: &mut Appender<W>,
    reader: &Reader,
    segment: u32,
    samples: u64,
    frames: u64,
) -> Result<(), WriteError> {
    let loss = |class, count| Loss {
        class,
        cpu: None,
        count,
    };
    let losses = [
        loss(LossClass::Damaged, samples),
        loss(LossClass::DamagedFrames, frames),
    ];
    let frame = SegmentFrame {
        losses: losses.into_iter().filter(|loss| loss.count > 0).collect(),
        ..SegmentFrame::default()
    };
    let mut content = Vec::new();
    let sizes = TableSizes::new(reader.header().events.len());
    frame.encode(&sizes, &mut Matchers::default(), &mut content)?;
    let descriptor = Descriptor {
        required: true,
        segment,
        lost: samples,
        ..Descriptor::of_kind(FrameKind::Segment)
    };
    out.described(&content, descriptor)
}
