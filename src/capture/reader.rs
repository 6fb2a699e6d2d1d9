//! Reading a capture: header and frames at once, segments when asked for, on any thread.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::members;
use super::pack::Pack;
use super::scan::{self, IndexState, Scan};
use super::segments::Segment;
use super::source::Source;
use crate::format::aid::ElfLayout;
use crate::format::descriptor::{Descriptor, FrameKind};
use crate::format::end::End;
use crate::format::error::{FormatError, Problem};
use crate::format::header::{self, Header};
use crate::format::index::FrameEntry;
use crate::format::skippable;

pub use super::aids::Aids;
pub use super::damage::{CaptureError, Damage, DamageKind};
pub(super) use super::frames::FrameReader;
pub use super::segments::{FrameData, PassedOver, SegmentReader};

/// A capture opened for reading.
///
/// One that was merged of several has [`members`](Reader::members), each a capture of its own host, clock and tables, and no
/// frames itself; its header says what they have in common.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    header: Header,
    entries: Vec<FrameEntry>,
    segments: Vec<Segment>,
    damage: Vec<Damage>,
    cut_bytes: u64,
    index: IndexState,
    end: Option<End>,
    members: Vec<Member>,
}

/// One of the captures that were merged.
#[derive(Debug)]
pub struct Member {
    /// It.
    pub reader: Reader,
    /// Where it begins in the file.
    pub offset: u64,
}

impl Reader {
    /// Opens a capture. Only regular files are opened.
    pub fn open(path: &Path) -> Result<Reader, CaptureError> {
        Self::new(Source::open(path)?)
    }

    /// A capture that is in memory, as read from standard input.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, CaptureError> {
        Self::new(Source::Bytes(bytes))
    }

    /// A capture in a regular file that is open, whatever its name; all of it, wherever it was read to.
    pub fn from_file(file: File) -> Result<Reader, CaptureError> {
        Self::new(Source::of_file(file)?)
    }

    fn new(source: Source) -> Result<Reader, CaptureError> {
        let source = Arc::new(source);
        let (header, start) = scan::header(&source)?;
        match scan::is_merged(&source) {
            true => Reader::of_members(source, header, start),
            false => Reader::of_one(source, header, start),
        }
    }

    pub(super) fn of_one(
        source: Arc<Source>,
        header: Header,
        start: u64,
    ) -> Result<Reader, CaptureError> {
        let Scan {
            entries,
            damage,
            cut_bytes,
            index,
        } = scan::frames(&source, start)?;
        let mut reader = Reader {
            source,
            header,
            segments: Segment::all(&entries),
            entries,
            damage,
            cut_bytes,
            index,
            end: None,
            members: Vec::new(),
        };
        reader.read_end()?;
        Ok(reader)
    }

    fn of_members(source: Arc<Source>, header: Header, start: u64) -> Result<Reader, CaptureError> {
        let (members, damage, cut_bytes) = members::open(&source, start)?;
        Ok(Reader {
            source,
            header,
            entries: Vec::new(),
            segments: Vec::new(),
            damage,
            cut_bytes,
            index: IndexState::Missing,
            end: None,
            members,
        })
    }

    /// The captures this one was merged of; none in one that was recorded.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The captures in this one: itself, unless it is merged of others.
    pub fn captures(&self) -> Vec<&Reader> {
        match &self.members[..] {
            [] if !self.is_merged() => vec![self],
            members => members.iter().map(|member| &member.reader).collect(),
        }
    }

    /// Whether it holds captures, and no frames itself.
    pub fn is_merged(&self) -> bool {
        scan::is_merged(&self.source)
    }

    /// The facts of the host and the recording.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Major and minor version of the format, as the header has them.
    pub fn version(&self) -> (u16, u16) {
        let mut bytes = Vec::new();
        let at = (skippable::PREFIX + header::MAGIC.len()) as u64;
        match self.source.read(at, 4, &mut bytes).map(|()| &bytes[..]) {
            Ok(&[a, b, c, d]) => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])),
            _ => (header::MAJOR, 0),
        }
    }

    /// Every whole frame, in the order of the file.
    pub fn frames(&self) -> &[FrameEntry] {
        &self.entries
    }

    /// What was found damaged when the capture was opened. Frames are checked when they are read: see
    /// [`SegmentReader::next_frame`] and [`Aids::damage`].
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Bytes at the end that are no whole frame: recording was killed while it wrote them.
    pub fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// How recording ended; `None` when it did not end in order.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Whether `file` is what is being read, and as long as when it was opened.
    pub fn is_of(&self, file: &File) -> io::Result<bool> {
        Ok(self.source.is(file)? && file.metadata()?.len() == self.file_len())
    }

    /// Length of the file in bytes.
    pub fn file_len(&self) -> u64 {
        self.source.len()
    }

    /// Of `most` of something that a whole file may have, what this capture may: one of several in a file has its share.
    pub(crate) fn share_of(&self, most: u64) -> u64 {
        self.source.share_of(most)
    }

    /// Length of the file without the bytes at its end that are no whole frame.
    pub fn whole_len(&self) -> u64 {
        self.source.len().saturating_sub(self.cut_bytes)
    }

    /// What became of the index.
    pub fn index(&self) -> IndexState {
        self.index
    }

    /// Samples in all segment frames, by their descriptors.
    pub fn samples(&self) -> u64 {
        self.sum(|d| d.samples)
    }

    /// Samples lost, by the descriptors, so also those of causes this program does not know; or by the end, if that tells of
    /// more: there may have been no room to tell the causes.
    pub fn lost_samples(&self) -> u64 {
        let captures = self.captures().into_iter();
        let lost = captures.map(|capture| {
            let by_end = capture.end.as_ref().map_or(0, |end| end.lost);
            by_end.max(capture.sum(|d| d.lost))
        });
        lost.fold(0, u64::saturating_add)
    }

    fn sum(&self, field: impl Fn(&Descriptor) -> u64 + Copy) -> u64 {
        if !self.members.is_empty() {
            let of_members = self.members.iter().map(|member| member.reader.sum(field));
            return of_members.fold(0, u64::saturating_add);
        }
        let in_segments = self
            .entries
            .iter()
            .filter(|e| e.descriptor.kind == FrameKind::Segment);
        in_segments.fold(0, |sum, e| sum.saturating_add(field(&e.descriptor)))
    }

    /// The segments, in the order of the file. Each can be read on its own thread.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = SegmentReader<'_>> + '_ {
        self.segments
            .iter()
            .map(|segment| SegmentReader::new((&self.source, &self.header, &self.entries), segment))
    }

    /// All symbol aid there is.
    pub fn aids(&self) -> Aids {
        Aids::new(&self.source, &self.entries)
    }

    /// Its layouts of ELF files, without the other aid.
    pub(crate) fn layouts(&self) -> Vec<ElfLayout> {
        Aids::layouts_of(&self.source, &self.entries)
    }

    /// What was packed into the capture, and what of that is damaged.
    pub fn pack(&self) -> (Pack, Vec<Damage>) {
        Pack::new(&self.source, &self.entries)
    }

    fn read_end(&mut self) -> Result<(), CaptureError> {
        let last = self
            .entries
            .iter()
            .rfind(|e| e.descriptor.kind == FrameKind::End);
        let Some(entry) = last else { return Ok(()) };
        let mut frames = FrameReader::default();
        let content = frames.content(&self.source, entry);
        match content.and_then(|c| End::decode(c).map_err(DamageKind::Format)) {
            Ok(end) => {
                // With other damage it is no news that samples are missing.
                let is_whole = self.damage.is_empty() && self.cut_bytes == 0;
                if is_whole && end.samples != self.samples() {
                    let (what, value) = ("number of samples", end.samples);
                    let problem = Problem::BadValue { what, value };
                    self.damage.push(Damage {
                        offset: entry.offset,
                        kind: DamageKind::Format(FormatError::new("end", 0, problem)),
                        frames: 1,
                        samples: end.samples.saturating_sub(self.samples()),
                    });
                }
                self.end = Some(end);
            }
            Err(kind) => {
                self.damage.push(Damage {
                    offset: entry.offset,
                    kind,
                    frames: 1,
                    samples: 0,
                });
            }
        }
        Ok(())
    }
}
