//! Reading a capture: header and frames at once, segments when asked for, on any thread.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::members;
use super::pack::Pack;
use super::scan::{self, IndexState, Scan};
use super::source::Source;
use super::tables::{NewEntries, Tables};
use crate::event::sample_flags;
use crate::format::aid::{ElfLayout, ElfLayouts, KernelSymbols, PerfMap, PerfMaps, Vdso};
use crate::format::descriptor::{self, Descriptor, FrameKind};
use crate::format::end::End;
use crate::format::error::{FormatError, Problem};
use crate::format::frame::FrameDecompressor;
use crate::format::header::{self, Header};
use crate::format::index::FrameEntry;
use crate::format::samples::Sample;
use crate::format::segment::{KnownNodes, SegmentFrame, TableSizes};
use crate::format::{limits, skippable};
use crate::mapped::Mapped;

/// Why nothing of a capture can be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot open the capture")]
    Open(#[source] io::Error),
    /// Captures are regular files; this is something else.
    #[error("the capture is {0}, not a regular file; give a file, or `-` to read standard input")]
    NotAFile(&'static str),
    /// The file cannot be read.
    #[error("cannot read the capture")]
    Read(#[source] io::Error),
    /// Not a capture, or not one this program can read.
    #[error("cannot read the capture: {0}")]
    Header(FormatError),
    /// Nothing but a part of the header is there.
    /// A file of captures in a file of captures.
    #[error("it holds captures itself; merged captures are merged as their parts")]
    Nested,
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// It ends inside its header.
    #[error(
        "the capture ends inside its header, after {bytes} bytes; recording never really began"
    )]
    CutInHeader {
        /// Length of the file.
        bytes: u64,
    },
}

/// A place of a capture that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the capture: {kind}")]
pub struct Damage {
    /// Where in the file.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DamageKind,
    /// Frames that cannot be used because of it, as far as their descriptors are known.
    pub frames: u32,
    /// Samples in those frames.
    pub samples: u64,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// Bytes that are not the beginning of anything.
    #[error("no frame begins here")]
    NoFrame,
    /// Frames are missing, by their sequence numbers.
    #[error("frames {first} to {} are missing", .next - 1)]
    Missing {
        /// The first one missing.
        first: u32,
        /// The first one that is there again.
        next: u32,
    },
    /// A frame comes a second time, or too late.
    #[error("frame {0} comes again or out of order")]
    Repeated(u32),
    /// Another capture begins; only the first one is read.
    #[error("another capture begins here; its {bytes} bytes are not read")]
    Foreign {
        /// Bytes from there to the end.
        bytes: u64,
    },
    /// Bytes that are against the format.
    #[error("{0}")]
    Format(FormatError),
    /// The operating system could not read it.
    #[error("cannot be read: {0}")]
    Io(String),
    /// What the frame builds on is missing.
    #[error("frame {found} of segment {segment} follows, frame {expected} is missing")]
    Gap {
        /// Which segment.
        segment: u32,
        /// Number in the segment of the frame that is missing.
        expected: u32,
        /// Number in the segment of the frame found.
        found: u32,
    },
    /// More symbol aid than a reader takes.
    #[error("more symbol aid than the format allows")]
    TooMuchAid,
    /// One of several captures in a file cannot be read at all.
    #[error("capture {number} of the file cannot be read: {reason}")]
    Member {
        /// Which, from 1.
        number: u32,
        /// Why not.
        reason: String,
    },
    /// A file of captures without any.
    #[error("no capture is in it")]
    NoMember,
    /// Captures are missing in a file of several.
    #[error("{missing} of the {count} captures are missing")]
    MissingMembers {
        /// How many.
        missing: u32,
        /// How many there were.
        count: u32,
    },
    /// The file ends before one of several captures does.
    #[error("the last {missing} bytes of capture {number} are missing")]
    CutMember {
        /// Which, from 1.
        number: u32,
        /// Bytes that are not there.
        missing: u64,
    },
    /// A capture is in a file of several again; it is not read again.
    #[error("capture {0} is there again")]
    MemberAgain(u32),
    /// More captures in a file than a reader takes.
    #[error("more captures in one file than the format allows")]
    TooManyMembers,
    /// More in the frames of segments than a file of its size may hold.
    #[error("more content than the format allows in a file of this size")]
    TooMuchContent,
    /// More packed symbols, or packed symbol tables, than a reader takes.
    #[error("more packed symbols than the format allows")]
    TooMuchPacked,
}

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

/// A segment and its frames.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    number: u32,
    /// Indices into the reader's entries.
    frames: Vec<usize>,
}

/// What the recording machine left to name addresses by.
#[derive(Debug, Clone, Default)]
pub struct Aids {
    /// Kernel symbols of all frames: sorted, not overlapping.
    pub kernel: KernelSymbols,
    /// The vdso image.
    pub vdso: Option<Vdso>,
    /// Perf maps, in the order of the file.
    pub perf_maps: Vec<PerfMap>,
    /// Layouts of ELF files.
    pub layouts: Vec<ElfLayout>,
    /// Frames of these kinds that cannot be used.
    pub damage: Vec<Damage>,
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

    /// A capture in a file that is open.
    pub(super) fn of_file(file: File) -> Result<Reader, CaptureError> {
        let mapped = Mapped::new(file).map_err(CaptureError::Open)?;
        Self::new(Source::File(mapped))
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
            segments: segments_of(&entries),
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

    /// Samples lost, by the descriptors: also those of causes this program does not know.
    pub fn lost_samples(&self) -> u64 {
        self.sum(|d| d.lost)
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
            .map(|segment| SegmentReader::new(self, segment))
    }

    /// All symbol aid there is.
    pub fn aids(&self) -> Aids {
        let mut aids = Aids::default();
        let mut frames = FrameReader::default();
        let mut total = 0u64;
        let mut room = limits::AIDS_ENTRIES;
        for entry in &self.entries {
            if !matches!(
                entry.descriptor.kind,
                FrameKind::KernelSymbols
                    | FrameKind::Vdso
                    | FrameKind::PerfMaps
                    | FrameKind::ElfLayouts
            ) {
                continue;
            }
            total = total.saturating_add(entry.descriptor.uncompressed);
            let added = if total > limits::AIDS {
                Err(DamageKind::TooMuchAid)
            } else {
                let content = frames.content(&self.source, entry);
                content.and_then(|c| aids.add(entry.descriptor.kind, c, &mut room))
            };
            if let Err(kind) = added {
                aids.damage.push(Damage {
                    offset: entry.offset,
                    kind,
                    frames: 1,
                    samples: 0,
                });
            }
        }
        aids.kernel.normalize();
        aids
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
            Ok(end) => self.end = Some(end),
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

impl Aids {
    /// Adds a frame of which there is still `room` for its entries.
    fn add(&mut self, kind: FrameKind, content: &[u8], room: &mut u64) -> Result<(), DamageKind> {
        let mut take = |entries: u64| {
            let left = room.checked_sub(entries);
            *room = left.ok_or(DamageKind::TooMuchAid)?;
            Ok(())
        };
        match kind {
            FrameKind::KernelSymbols => {
                let more = KernelSymbols::decode(content).map_err(DamageKind::Format)?;
                take(more.symbols.len() as u64)?;
                if more.stext != 0 {
                    self.kernel.stext = more.stext;
                }
                self.kernel.symbols.extend(more.symbols);
            }
            FrameKind::Vdso => {
                self.vdso = Some(Vdso::decode(content).map_err(DamageKind::Format)?);
            }
            FrameKind::PerfMaps => {
                let more = PerfMaps::decode(content).map_err(DamageKind::Format)?;
                take(more.entries())?;
                self.perf_maps.extend(more.maps);
            }
            FrameKind::ElfLayouts => {
                let more = ElfLayouts::decode(content).map_err(DamageKind::Format)?;
                take(more.entries())?;
                self.layouts.extend(more.layouts);
            }
            _ => {}
        }
        Ok(())
    }
}

fn segments_of(entries: &[FrameEntry]) -> Vec<Segment> {
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

/// Reads and checks the content of frames, with buffers that are used again.
#[derive(Default)]
pub(super) struct FrameReader {
    zstd: Option<FrameDecompressor>,
    bytes: Vec<u8>,
    content: Vec<u8>,
}

impl FrameReader {
    pub(super) fn content(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<&[u8], DamageKind> {
        let data = self.data(source, entry)?;
        let data = self.bytes.get(data).unwrap_or_default();
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(FrameDecompressor::new().map_err(cannot_read)?),
        };
        zstd.decompress(data, entry.descriptor.uncompressed, &mut self.content)
            .map_err(DamageKind::Format)?;
        Ok(&self.content)
    }

    /// The zstd frame as it is in the file, with the right checksum.
    pub(super) fn compressed(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<&[u8], DamageKind> {
        let data = self.data(source, entry)?;
        Ok(self.bytes.get(data).unwrap_or_default())
    }

    /// The first `count` bytes of a frame's content, or all of it, when the rest need not be decompressed. The frame's
    /// checksum is compared all the same.
    pub(super) fn start(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
        count: usize,
    ) -> Result<&[u8], DamageKind> {
        let data = self.data(source, entry)?;
        let data = self.bytes.get(data).unwrap_or_default();
        let bad = |err: io::Error| {
            let problem = Problem::Zstd(err.to_string());
            DamageKind::Format(FormatError::new("zstd frame", 0, problem))
        };
        self.content.clear();
        let zstd = zstd::stream::read::Decoder::with_buffer(data).map_err(bad)?;
        io::Read::take(zstd, count as u64)
            .read_to_end(&mut self.content)
            .map_err(bad)?;
        Ok(&self.content)
    }

    /// Reads a frame as it is in the file, and compares its descriptor and checksum. Gives where in the buffer the zstd
    /// frame is.
    fn data(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<std::ops::Range<usize>, DamageKind> {
        let compressed = entry.descriptor.compressed.min(limits::FRAME_COMPRESSED) as usize;
        let len = descriptor::FRAME_LEN + compressed;
        source
            .read(entry.offset, len, &mut self.bytes)
            .map_err(cannot_read)?;
        let split = self.bytes.split_at_checked(descriptor::FRAME_LEN);
        let (head, data) = split.ok_or(DamageKind::NoFrame)?;
        // An index may have led here: the frame must be the one it speaks of.
        let prefix = skippable::prefix(head).map_err(DamageKind::Format)?;
        let head = Descriptor::decode(head.get(skippable::PREFIX..).unwrap_or_default());
        let head = head.map_err(DamageKind::Format)?;
        if prefix != (skippable::MAGIC, descriptor::LEN as u32) || head != entry.descriptor {
            return Err(DamageKind::NoFrame);
        }
        if crc32c::crc32c(data) != entry.descriptor.data_crc {
            let problem = Problem::Checksum("compressed bytes");
            return Err(DamageKind::Format(FormatError::new(
                "zstd frame",
                0,
                problem,
            )));
        }
        Ok(descriptor::FRAME_LEN..len)
    }
}

fn cannot_read(err: io::Error) -> DamageKind {
    match err.kind() {
        io::ErrorKind::UnexpectedEof => {
            DamageKind::Io("the file became shorter while it was read".to_owned())
        }
        _ => DamageKind::Io(err.to_string()),
    }
}

/// Reads one segment, frame after frame. It needs nothing of other segments.
pub struct SegmentReader<'a> {
    reader: &'a Reader,
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
    fn new(reader: &'a Reader, segment: &'a Segment) -> SegmentReader<'a> {
        SegmentReader {
            reader,
            segment,
            next: 0,
            frames: FrameReader::default(),
            sizes: TableSizes::new(reader.header.events.len()),
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
        let entries = &self.reader.entries;
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
        let Some(entry) = index.and_then(|index| self.reader.entries.get(*index)) else {
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
        let content = self.frames.content(&self.reader.source, entry)?;
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
