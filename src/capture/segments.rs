//! Segments, and reading one: frame after frame, each counting on those before.

use std::fmt;

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
use crate::format::segment::{KnownNodes, SegmentFrame, StackNode, TableSizes};

/// Samples of a frame, and what it adds to the tables.
type Decoded = (Vec<Sample>, NewEntries);

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
    passed: Vec<Passed>,
}

/// A frame of which only the tables were read.
struct Passed {
    /// Its number in the segment.
    frame: usize,
    /// Of the tables before it.
    sizes: TableSizes,
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
    /// The frames before it whose samples were not read.
    pub passed: PassedOver<'a>,
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
            passed: Vec::new(),
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

    /// The frame that is read next, as far as none has failed.
    pub fn next_entry(&self) -> Option<&'a FrameEntry> {
        self.entry(self.next)
    }

    /// Reads no more: what could not be read costs the frames behind it.
    pub fn end(&mut self) {
        self.next = self.segment.frames.len();
    }

    /// Decodes the next frame; `None` after the last.
    ///
    /// # Errors
    /// A frame that is damaged, or follows a missing one, spoils itself and all later frames of the
    /// segment, because they count on from it: the error says how many frames and samples that are. After
    /// it there is nothing more.
    pub fn next_frame(&mut self) -> Result<Option<FrameData<'_>>, Damage> {
        self.next(Self::decode)
    }

    /// As [`SegmentReader::next_frame`], of a frame whose samples are not asked for: its tables and losses are decoded and, as
    /// far as the frame allows it, nothing else is even decompressed. The samples may be there or not.
    ///
    /// # Errors
    /// As above. What is wrong with the samples may stay unseen.
    pub fn next_tables(&mut self) -> Result<Option<FrameData<'_>>, Damage> {
        self.next(Self::decode_tables)
    }

    fn next(
        &mut self,
        decode: fn(&mut Self, &FrameEntry) -> Result<Decoded, DamageKind>,
    ) -> Result<Option<FrameData<'_>>, Damage> {
        let next = self.next;
        let Some(entry) = self.entry(next) else {
            return Ok(None);
        };
        match decode(self, entry) {
            Ok((samples, new)) => {
                self.next += 1;
                self.samples = samples;
                self.new = new;
            }
            Err(kind) => {
                self.end();
                return Err(self.damage(next, entry, kind));
            }
        }
        let reader = &*self;
        Ok(Some(FrameData {
            entry,
            samples: &reader.samples,
            tables: &reader.tables,
            new: &reader.new,
            passed: PassedOver(reader),
        }))
    }

    /// Where a frame of the segment is.
    fn entry(&self, frame: usize) -> Option<&'a FrameEntry> {
        let index = self.segment.frames.get(frame)?;
        self.entries.get(*index)
    }

    /// What it costs that the frame of this number cannot be used.
    fn damage(&self, frame: usize, entry: &FrameEntry, kind: DamageKind) -> Damage {
        let spoiled = || self.frames().skip(frame);
        let samples = spoiled().fold(0u64, |sum, e| sum.saturating_add(e.descriptor.samples));
        Damage {
            offset: entry.offset,
            kind,
            frames: spoiled().count() as u32,
            samples,
        }
    }

    fn decode_tables(&mut self, entry: &FrameEntry) -> Result<Decoded, DamageKind> {
        let descriptor = &entry.descriptor;
        self.check_ordinal(descriptor)?;
        let Some(content) = self.frames.tables(self.source, entry)? else {
            return self.decode(entry);
        };
        let known = known_nodes(&self.tables);
        let (frame, sizes) =
            SegmentFrame::decode(content, &self.sizes, known).map_err(DamageKind::Format)?;
        check_losses(&frame, descriptor).map_err(DamageKind::Format)?;
        if descriptor.samples > 0 {
            self.passed.push(Passed {
                frame: self.next,
                sizes: self.sizes,
            });
        }
        self.sizes = sizes;
        Ok(self.tables.append(frame))
    }

    fn decode(&mut self, entry: &FrameEntry) -> Result<Decoded, DamageKind> {
        let descriptor = &entry.descriptor;
        self.check_ordinal(descriptor)?;
        let content = self.frames.content(self.source, entry)?;
        let known = known_nodes(&self.tables);
        let (frame, sizes) =
            SegmentFrame::decode(content, &self.sizes, known).map_err(DamageKind::Format)?;
        check_summary(&frame, descriptor).map_err(DamageKind::Format)?;
        self.sizes = sizes;
        Ok(self.tables.append(frame))
    }

    fn check_ordinal(&self, descriptor: &Descriptor) -> Result<(), DamageKind> {
        if descriptor.ordinal as usize != self.next {
            return Err(DamageKind::Gap {
                segment: self.segment.number,
                expected: self.next as u32,
                found: descriptor.ordinal,
            });
        }
        Ok(())
    }
}

fn known_nodes(tables: &Tables) -> KnownNodes<'_> {
    KnownNodes {
        user: &tables.user.nodes,
        kernel: &tables.kernel.nodes,
    }
}

/// The frames that [`SegmentReader::next_tables`] has gone over, whose samples can still be asked for.
#[derive(Clone, Copy)]
pub struct PassedOver<'a>(&'a SegmentReader<'a>);

impl<'a> PassedOver<'a> {
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.passed.is_empty()
    }

    /// Where they are and what their descriptors say, in order.
    pub fn entries(self) -> impl Iterator<Item = &'a FrameEntry> {
        let reader = self.0;
        reader.passed.iter().filter_map(|p| reader.entry(p.frame))
    }

    /// Reads those that `wanted` says, and gives their samples.
    ///
    /// # Errors
    /// As [`SegmentReader::next_frame`]: what `each` was not given, and all later frames, cannot be used.
    pub fn read(
        self,
        mut wanted: impl FnMut(&FrameEntry) -> bool,
        mut each: impl FnMut(&[Sample]),
    ) -> Result<(), Damage> {
        let reader = self.0;
        let mut frames = FrameReader::default();
        for passed in &reader.passed {
            let Some(entry) = reader.entry(passed.frame).filter(|entry| wanted(entry)) else {
                continue;
            };
            let samples = passed
                .samples(reader, &mut frames, entry)
                .map_err(|kind| reader.damage(passed.frame, entry, kind))?;
            each(&samples);
        }
        Ok(())
    }
}

fn first(nodes: &[StackNode], count: u32) -> &[StackNode] {
    nodes.get(..count as usize).unwrap_or(nodes)
}

impl fmt::Debug for PassedOver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Passed {
    fn samples(
        &self,
        reader: &SegmentReader<'_>,
        frames: &mut FrameReader,
        entry: &FrameEntry,
    ) -> Result<Vec<Sample>, DamageKind> {
        let content = frames.content(reader.source, entry)?;
        let known = known_nodes(&reader.tables);
        // As many as there were then.
        let known = KnownNodes {
            user: first(known.user, self.sizes.user_nodes),
            kernel: first(known.kernel, self.sizes.kernel_nodes),
        };
        let (frame, _) =
            SegmentFrame::decode(content, &self.sizes, known).map_err(DamageKind::Format)?;
        check_summary(&frame, &entry.descriptor).map_err(DamageKind::Format)?;
        Ok(frame.samples)
    }
}

/// Whether the descriptor's figures are those of the frame.
fn check_summary(frame: &SegmentFrame, descriptor: &Descriptor) -> Result<(), FormatError> {
    const CUT: u8 = sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED;
    let error = |what, value| Err(figure(what, value));
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
    check_losses(frame, descriptor)
}

/// Whether the frame has no more losses than its descriptor says.
fn check_losses(frame: &SegmentFrame, descriptor: &Descriptor) -> Result<(), FormatError> {
    // Losses of causes this program does not know are in the descriptor only.
    let lost = frame.losses.iter().filter(|l| l.class.is_lost_sample());
    if lost.fold(0u64, |sum, l| sum.saturating_add(l.count)) > descriptor.lost {
        return Err(figure("number of lost samples", descriptor.lost));
    }
    Ok(())
}

fn figure(what: &'static str, value: u64) -> FormatError {
    FormatError::new("descriptor", 0, Problem::BadValue { what, value })
}
