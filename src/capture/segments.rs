//! Segments, and reading one: frame after frame, each counting on those before.

use super::damage::{Damage, DamageKind};
use super::frames::FrameReader;
use super::source::Source;
use super::tables::{NewEntries, Tables};
use crate::event::sample_flags;
use crate::format::descriptor::{Descriptor, FrameKind};
use crate::format::error::{FormatError, Problem};
use crate::format::header::Header;
use crate::format::index::FrameEntry;
use crate::format::samples::Sample;
use crate::format::segment::{KnownNodes, SegmentFrame, TableSizes};

/// A segment and its frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    number: u32,
    /// Indices into the reader's entries.
    frames: Vec<usize>,
}

impl Segment {
    /// Those of the frames of `entries`, in the order in which they begin.
    pub fn all(entries: &[FrameEntry]) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if entry.descriptor.kind != FrameKind::Segment {
                continue;
            }
            let number = entry.descriptor.segment;
            let place = *places.entry(number).or_insert_with(|| {
                segments.push(Segment {
                    number,
                    frames: Vec::new(),
                });
                segments.len() - 1
            });
            if let Some(segment) = segments.get_mut(place) {
                segment.frames.push(index);
            }
        }
        segments
    }
}

/// Reads one segment, frame after frame. It needs nothing of other segments.
pub struct SegmentReader<'a> {
    source: &'a Source,
    entries: &'a [FrameEntry],
    segment: &'a Segment,
    next: usize,
    frames: FrameReader,
    sizes: TableSizes,
    tables: Tables,
    samples: Vec<Sample>,
    new: NewEntries,
}

/// A decoded frame and the tables as of its end.
#[derive(Debug, Clone, Copy)]
pub struct FrameData<'a> {
    /// Where it is and what its descriptor says.
    pub entry: &'a FrameEntry,
    /// Its samples, sorted by (CPU, time).
    pub samples: &'a [Sample],
    /// The segment's tables.
    pub tables: &'a Tables,
    /// What of them this frame has added.
    pub new: &'a NewEntries,
}

impl<'a> SegmentReader<'a> {
    pub(super) fn new(
        (source, header, entries): (&'a Source, &Header, &'a [FrameEntry]),
        segment: &'a Segment,
    ) -> SegmentReader<'a> {
        SegmentReader {
            source,
            entries,
            segment,
            next: 0,
            frames: FrameReader::default(),
            sizes: TableSizes::new(header.events.len()),
            tables: Tables::default(),
            samples: Vec::new(),
            new: NewEntries::default(),
        }
    }

    /// The segment's number.
    pub fn number(&self) -> u32 {
        self.segment.number
    }

    /// Its frames, in order, without reading them.
    pub fn frames(&self) -> impl Iterator<Item = &'a FrameEntry> + use<'a> {
        let entries = self.entries;
        self.segment
            .frames
            .iter()
            .filter_map(|index| entries.get(*index))
    }

    /// The tables as of the last frame read.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Decodes the next frame; `None` after the last.
    ///
    /// # Errors
    /// A frame that is damaged, or follows a missing one, spoils itself and all later frames of the
    /// segment, because they count on from it: the error says how many frames and samples that are. After
    /// it there is nothing more.
    pub fn next_frame(&mut self) -> Result<Option<FrameData<'_>>, Damage> {
        let next = self.next;
        let index = self.segment.frames.get(next);
        let Some(entry) = index.and_then(|index| self.entries.get(*index)) else {
            return Ok(None);
        };
        match self.decode(entry) {
            Ok((samples, new)) => {
                self.next += 1;
                self.samples = samples;
                self.new = new;
            }
            Err(kind) => {
                let spoiled = || self.frames().skip(next);
                let samples =
                    spoiled().fold(0u64, |sum, e| sum.saturating_add(e.descriptor.samples));
                let frames = spoiled().count() as u32;
                self.next = self.segment.frames.len();
                return Err(Damage {
                    offset: entry.offset,
                    kind,
                    frames,
                    samples,
                });
            }
        }
        let SegmentReader {
            samples,
            tables,
            new,
            ..
        } = &*self;
        Ok(Some(FrameData {
            entry,
            samples,
            tables,
            new,
        }))
    }

    fn decode(&mut self, entry: &FrameEntry) -> Result<(Vec<Sample>, NewEntries), DamageKind> {
        let descriptor = &entry.descriptor;
        if descriptor.ordinal as usize != self.next {
            return Err(DamageKind::Gap {
                segment: self.segment.number,
                expected: self.next as u32,
                found: descriptor.ordinal,
            });
        }
        let content = self.frames.content(self.source, entry)?;
        let known = KnownNodes {
            user: &self.tables.user.nodes,
            kernel: &self.tables.kernel.nodes,
        };
        let (frame, sizes) =
            SegmentFrame::decode(content, &self.sizes, known).map_err(DamageKind::Format)?;
        check_summary(&frame, descriptor).map_err(DamageKind::Format)?;
        self.sizes = sizes;
        Ok(self.tables.append(frame))
    }
}

/// Whether the descriptor's figures are those of the frame.
fn check_summary(frame: &SegmentFrame, descriptor: &Descriptor) -> Result<(), FormatError> {
    const CUT: u8 = sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED;
    let error = |what, value| {
        Err(FormatError::new(
            "descriptor",
            0,
            Problem::BadValue { what, value },
        ))
    };
    let times = || frame.samples.iter().map(|s| s.time);
    if frame.samples.len() as u64 != descriptor.samples {
        return error("number of samples", descriptor.samples);
    }
    if times().min().unwrap_or_default() != descriptor.first {
        return error("first time", descriptor.first.0);
    }
    if times().max().unwrap_or_default() != descriptor.last {
        return error("last time", descriptor.last.0);
    }
    if frame.samples.iter().filter(|s| s.flags & CUT != 0).count() as u64 != descriptor.truncated {
        return error("number of truncated samples", descriptor.truncated);
    }
    // Losses of causes this program does not know are in the descriptor only.
    let lost = frame.losses.iter().filter(|l| l.class.is_lost_sample());
    if lost.fold(0u64, |sum, l| sum.saturating_add(l.count)) > descriptor.lost {
        return error("number of lost samples", descriptor.lost);
    }
    Ok(())
}
