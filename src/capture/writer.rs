//! Writing a capture: tables and samples in, frames out, each with one write and never touched again.

mod frames;

use std::collections::BTreeMap;
use std::io::Write;

pub use self::frames::END_WORDS;
use super::incoming::cut_stacks;
pub use super::incoming::{PlacedSample, SampleInput, Stacks, Written};
use super::intern::Interner;
use super::numbering::Numbering;
use super::rounding::Rounding;
use super::trie::StackTrie;
pub use super::trie::TOGETHER;
pub use super::write_error::{NoRoom, TablesFull, WriteError};
use crate::event::{LossClass, MappedFile, Origin, Pid, ProcessKey, Timestamp};
use crate::format::frame::FrameCompressor;
use crate::format::header::Header;
use crate::format::index::FrameEntry;
use crate::format::limits;
use crate::format::payload::Payload;
use crate::format::process::{
    FileId, MappingId, MappingTemplate, PlacedMapping, ProcessId, ProcessRecord, Space, SpaceId,
    StringId, Task,
};
use crate::format::samples::{Sample, TaskId};
use crate::format::segment::{Matchers, SegmentFrame, TableSizes};

/// The zstd level of what is appended to captures.
pub const DEFAULT_LEVEL: i32 = 3;
/// A segment is full when its stacks take about so many bytes of memory: 400,000 nodes of which each fifth ends a run.
const FULL_STACKS: usize = 7 << 20;
/// ... or when its other tables have so many entries,
const FULL_TABLE: usize = 56 << 10;
/// ... or its mapping lists so many mappings in all,
const FULL_PLACED: u64 = 128 << 10;
/// ... or its strings and paths so many bytes.
const FULL_STRING_BYTES: u64 = 2 << 20;
/// A frame is full when so many samples wait to be written.
pub(crate) const FULL_FRAME: usize = 64 << 10;
/// Memory of a stack trie: its nodes, what has to be known of each to write the next, and its runs with their places in
/// tables.
fn stack_bytes(trie: &StackTrie) -> usize {
    trie.node_count() * (8 + 4) + trie.run_count() * (8 + 4 + 16)
}

/// Writes one capture to `out`, which should not buffer: each flush is one `write_all`.
///
/// Numbers it gives out are those of the current segment and mean nothing after
/// [`CaptureWriter::start_segment`].
pub struct CaptureWriter<W> {
    out: W,
    zstd: FrameCompressor,
    segment: u32,
    ordinal: u32,
    sizes: TableSizes,
    matchers: Matchers,
    strings: Interner<Vec<u8>>,
    files: Interner<MappedFile>,
    mappings: Interner<MappingTemplate>,
    spaces: Interner<Space>,
    tasks: Interner<Task>,
    processes: u32,
    string_bytes: u64,
    placed: u64,
    records: u64,
    user: StackTrie,
    kernel: StackTrie,
    user_numbers: Numbering,
    kernel_numbers: Numbering,
    losses: BTreeMap<(LossClass, Option<u32>), u64>,
    rounding: Rounding,
    /// What the next frame adds; its samples have provisional stacks until it is written.
    pending: SegmentFrame,
    payload: Payload,
    data: Vec<u8>,
    block: Vec<u8>,
    entries: Vec<FrameEntry>,
    sequence: u32,
    bytes: u64,
    samples: u64,
    unwritten: Unwritten,
    /// The file is not to be longer.
    limit: Option<u64>,
    /// Bytes of the last frame, and samples of the last that had any.
    last_frame: u64,
    last_samples: Option<(u64, u64)>,
    collected: Option<Written>,
    failed: bool,
}

/// Samples that found no room in a file that may not grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// How many.
    pub samples: u64,
    /// What they count for.
    pub weight: u64,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture: writes its header at once.
    pub fn create(out: W, header: &Header) -> Result<CaptureWriter<W>, WriteError> {
        Self::create_with(out, header, FrameCompressor::for_columns())
    }

    /// As [`CaptureWriter::create`], with another zstd level (1 fast ... 19 small).
    pub fn create_with_level(
        out: W,
        header: &Header,
        level: i32,
    ) -> Result<CaptureWriter<W>, WriteError> {
        Self::create_with(out, header, FrameCompressor::new(level))
    }

    fn create_with(
        out: W,
        header: &Header,
        zstd: std::io::Result<FrameCompressor>,
    ) -> Result<CaptureWriter<W>, WriteError> {
        let mut writer = CaptureWriter {
            out,
            zstd: zstd.map_err(WriteError::Zstd)?,
            segment: 1,
            ordinal: 0,
            sizes: TableSizes::new(header.events.len()),
            matchers: Matchers::default(),
            strings: Interner::default(),
            files: Interner::default(),
            mappings: Interner::default(),
            spaces: Interner::default(),
            tasks: Interner::default(),
            processes: 0,
            string_bytes: 0,
            placed: 0,
            records: 0,
            user: StackTrie::default(),
            kernel: StackTrie::default(),
            user_numbers: Numbering::default(),
            kernel_numbers: Numbering::default(),
            losses: BTreeMap::new(),
            rounding: Rounding::default(),
            pending: SegmentFrame::default(),
            payload: Payload::default(),
            data: Vec::new(),
            block: Vec::new(),
            entries: Vec::new(),
            sequence: 0,
            bytes: 0,
            samples: 0,
            unwritten: Unwritten::default(),
            limit: None,
            last_frame: 0,
            last_samples: None,
            collected: None,
            failed: false,
        };
        header.encode(&mut writer.block)?;
        writer.write_block()?;
        Ok(writer)
    }

    /// Counts times of samples in units of 2 to the power of `unit` nanoseconds, wherever that changes no sample's place among
    /// the process records. Without it, times are written as they are.
    pub fn set_time_unit(&mut self, unit: u32) {
        self.rounding.set_unit(unit);
    }

    /// The latest time up to which samples, by the times they are written with, were taken no later than at `time`.
    pub fn surely_by(&self, time: Timestamp) -> Timestamp {
        self.rounding.surely_by(time)
    }

    /// The number of a string; bytes beyond 64 KiB are cut off.
    pub fn string(&mut self, string: &[u8]) -> Result<StringId, TablesFull> {
        let string = string.get(..limits::STRING as usize).unwrap_or(string);
        let before = self.pending.strings.len();
        self.check_text(string.len())?;
        let id = self
            .strings
            .intern(string, &mut self.pending.strings, <[u8]>::to_vec)?;
        if self.pending.strings.len() > before {
            self.string_bytes += string.len() as u64;
        }
        Ok(id)
    }

    /// The number of a mapped file; its path is cut at 64 KiB.
    pub fn file(&mut self, file: &MappedFile) -> Result<FileId, TablesFull> {
        if file.path.len() as u64 > limits::STRING {
            let mut file = file.clone();
            file.path.truncate(limits::STRING as usize);
            return self.file(&file);
        }
        let before = self.pending.files.len();
        self.check_text(file.path.len())?;
        let id = self
            .files
            .intern(file, &mut self.pending.files, MappedFile::clone)?;
        if self.pending.files.len() > before {
            self.string_bytes += file.path.len() as u64;
        }
        Ok(id)
    }

    fn check_text(&self, more: usize) -> Result<(), TablesFull> {
        let fits = self.string_bytes + more as u64 <= limits::SEGMENT_STRINGS;
        if fits { Ok(()) } else { Err(TablesFull) }
    }

    /// The number of a mapping template.
    pub fn mapping(&mut self, mapping: &MappingTemplate) -> Result<MappingId, TablesFull> {
        self.mappings
            .intern(mapping, &mut self.pending.mappings, |m| *m)
    }

    /// The number of a list of mappings.
    pub fn space(&mut self, mappings: Vec<PlacedMapping>) -> Result<SpaceId, TablesFull> {
        let len = mappings.len() as u64;
        if len > limits::SPACE || self.placed + len > limits::SEGMENT_PLACED {
            return Err(TablesFull);
        }
        let before = self.pending.spaces.len();
        let space = Space { mappings };
        let id = self
            .spaces
            .intern(&space, &mut self.pending.spaces, Space::clone)?;
        if self.pending.spaces.len() > before {
            self.placed += len;
        }
        Ok(id)
    }

    /// A process enters the segment.
    pub fn add_process(
        &mut self,
        key: ProcessKey,
        parent: Pid,
        kernel: bool,
        origin: Origin,
        cgroup: Option<StringId>,
    ) -> Result<ProcessId, TablesFull> {
        let id = self.processes;
        self.process(ProcessRecord::Process {
            key,
            parent,
            kernel,
            origin,
            cgroup,
        })?;
        Ok(id)
    }

    /// A fact about a process. Records of one process come in time order; a
    /// [`ProcessRecord::Process`] takes the next [`ProcessId`] (see [`CaptureWriter::add_process`]).
    pub fn process(&mut self, record: ProcessRecord) -> Result<(), TablesFull> {
        if self.records >= limits::TABLE {
            return Err(TablesFull);
        }
        self.records += 1;
        if matches!(record, ProcessRecord::Process { .. }) {
            self.processes += 1;
        }
        self.pending.processes.push(record);
        Ok(())
    }

    /// The number of a thread.
    pub fn task(&mut self, task: Task) -> Result<TaskId, TablesFull> {
        self.tasks.intern(&task, &mut self.pending.tasks, |t| *t)
    }

    /// Takes a sample. A stack deeper than the format allows keeps its leaf end and is flagged as truncated.
    pub fn sample(&mut self, input: &SampleInput<'_>) -> Result<(), TablesFull> {
        let stacks = self.stacks(input.user, input.kernel)?;
        self.sample_with(&PlacedSample {
            time: input.time,
            cpu: input.cpu,
            task: input.task,
            stacks,
            weight: input.weight,
            flags: input.flags,
            event: input.event,
        })
    }

    /// The stacks of a sample (leaf first), for [`CaptureWriter::sample_with`] once its task is known. They
    /// mean nothing after [`CaptureWriter::start_segment`].
    pub fn stacks(&mut self, user: &[u64], kernel: &[u64]) -> Result<Stacks, TablesFull> {
        let (user, kernel, flags) = cut_stacks(user, kernel);
        let user = self.user.intern(user)?;
        Ok(Stacks {
            user,
            kernel: self.kernel.intern(kernel)?,
            flags,
        })
    }

    /// As [`CaptureWriter::stacks`] of each of `pairs` (user, kernel), at most [`TOGETHER`] of them, which takes less time
    /// than one after the other.
    pub fn stacks_together(
        &mut self,
        pairs: &[(&[u64], &[u64])],
        stacks: &mut [Result<Stacks, TablesFull>; TOGETHER],
    ) {
        let mut users: [&[u64]; TOGETHER] = [&[]; TOGETHER];
        for (stack, (user, kernel)) in users.iter_mut().zip(pairs) {
            (*stack, _, _) = cut_stacks(user, kernel);
        }
        let mut nodes = [Ok(0); TOGETHER];
        let users = users.get(..pairs.len()).unwrap_or(&users);
        self.user.intern_together(users, &mut nodes);
        for ((stacks, node), (user, kernel)) in stacks.iter_mut().zip(nodes).zip(pairs) {
            let (_, kernel, flags) = cut_stacks(user, kernel);
            *stacks = node.and_then(|user| {
                Ok(Stacks {
                    user,
                    kernel: self.kernel.intern(kernel)?,
                    flags,
                })
            });
        }
    }

    /// Takes a sample whose stacks have been taken by [`CaptureWriter::stacks`].
    pub fn sample_with(&mut self, input: &PlacedSample) -> Result<(), TablesFull> {
        if self.pending.samples.len() as u64 >= limits::FRAME_SAMPLES {
            return Err(TablesFull);
        }
        self.pending.samples.push(Sample {
            time: input.time,
            // No kernel has more CPUs; one that says so must not spoil the frame.
            cpu: input.cpu.min(limits::CPUS as u32 - 1),
            task: input.task,
            user_stack: input.stacks.user,
            kernel_stack: input.stacks.kernel,
            weight: input.weight,
            flags: input.flags | input.stacks.flags,
            event: input.event,
        });
        Ok(())
    }

    /// Addresses and files written since the last call, which want their aid. The first call makes the writer keep
    /// them.
    pub fn take_written(&mut self) -> Written {
        self.collected
            .replace(Written::default())
            .unwrap_or_default()
    }

    /// Counts a loss.
    pub fn loss(&mut self, class: LossClass, cpu: Option<u32>, count: u64) {
        if count == 0 {
            return;
        }
        let mut key = (class, cpu.filter(|cpu| u64::from(*cpu) < limits::CPUS));
        let room = limits::FRAME_LOSSES as usize - LossClass::ALL.len();
        if self.losses.len() >= room && !self.losses.contains_key(&key) {
            key.1 = None;
        }
        let sum = self.losses.entry(key).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Samples taken and not yet written.
    pub fn pending_samples(&self) -> usize {
        self.pending.samples.len()
    }

    /// Whether enough samples wait that [`CaptureWriter::flush`] should not wait for its time.
    pub fn frame_is_full(&self) -> bool {
        self.pending.samples.len() >= FULL_FRAME || self.may_soon_not_fit()
    }

    /// Whether the tables are large enough for [`CaptureWriter::start_segment`], so that memory stays small.
    pub fn segment_is_full(&self) -> bool {
        let stacks = stack_bytes(&self.user) + stack_bytes(&self.kernel);
        let tables = [
            self.strings.len(),
            self.files.len(),
            self.mappings.len(),
            self.spaces.len(),
        ];
        let tables = tables.into_iter().max().unwrap_or(0).max(self.tasks.len());
        stacks >= FULL_STACKS
            || tables.max(self.records as usize) >= FULL_TABLE
            || self.placed >= FULL_PLACED
            || self.string_bytes >= FULL_STRING_BYTES
    }

    /// The number of the current segment, from 1.
    pub fn segment(&self) -> u32 {
        self.segment
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes
    }

    /// Samples written so far.
    pub fn samples_written(&self) -> u64 {
        self.samples
    }

    /// What was taken and found no room ([`WriteError::Full`]).
    pub fn unwritten(&self) -> Unwritten {
        self.unwritten
    }

    /// What the capture is written to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// What the capture is written to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}
