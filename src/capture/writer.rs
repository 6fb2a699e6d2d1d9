//! Writing a capture: tables and samples in, frames out, each with one write and never touched again.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::incoming::cut_stacks;
pub use super::incoming::{PlacedSample, SampleInput, Stacks, Written};
use super::intern::Interner;
use super::numbering::Numbering;
use super::rounding::Rounding;
use super::trie::StackTrie;
pub use super::trie::TOGETHER;
use super::vdso::without_code;
pub use super::write_error::{NoRoom, TablesFull, WriteError};
use crate::event::{LossClass, MappedFile, Origin, Pid, ProcessKey, Timestamp, sample_flags};
use crate::format::aid::{ElfLayouts, KernelSymbols, PerfMaps, Vdso};
use crate::format::descriptor::{Descriptor, FrameKind};
use crate::format::end::End;
use crate::format::frame::FrameCompressor;
use crate::format::header::Header;
use crate::format::index::{self, FrameEntry};
use crate::format::payload::{Out, Payload};
use crate::format::process::{
    FileId, MappingId, MappingTemplate, PlacedMapping, ProcessId, ProcessRecord, Space, SpaceId,
    StringId, Task,
};
use crate::format::samples::{Sample, TaskId};
use crate::format::segment::{Loss, Matchers, SegmentFrame, TableSizes};
use crate::format::{limits, meta, skippable};

/// The zstd level captures are written with.
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
/// A frame may well have so many bytes, whatever the one before had.
const NEXT_FRAME: u64 = 8 << 10;

/// The end frame has fewer bytes, as long as its reason is told in no more than [`END_WORDS`].
const END_FRAME: u64 = 1024;
/// Bytes of an end's reason in words.
pub const END_WORDS: usize = 512;

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
    unwritten: u64,
    /// The file is not to be longer.
    limit: Option<u64>,
    last_frame: u64,
    collected: Option<Written>,
    failed: bool,
}

/// What a descriptor says beside sizes and numbers.
#[derive(Default)]
struct Summary {
    first: Timestamp,
    last: Timestamp,
    samples: u64,
    lost: u64,
    truncated: u64,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture: writes its header at once.
    pub fn create(out: W, header: &Header) -> Result<CaptureWriter<W>, WriteError> {
        Self::create_with_level(out, header, DEFAULT_LEVEL)
    }

    /// As [`CaptureWriter::create`], with another zstd level (1 fast ... 19 small).
    pub fn create_with_level(
        out: W,
        header: &Header,
        level: i32,
    ) -> Result<CaptureWriter<W>, WriteError> {
        let mut writer = CaptureWriter {
            out,
            zstd: FrameCompressor::new(level).map_err(WriteError::Zstd)?,
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
            unwritten: 0,
            limit: None,
            last_frame: 0,
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
        self.pending.samples.len() >= FULL_FRAME
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

    /// Samples that were taken and for which there was no room ([`WriteError::Full`]).
    pub fn samples_unwritten(&self) -> u64 {
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

    /// From now on the file does not grow beyond `bytes`, its end and index included: what does not fit is not written
    /// ([`WriteError::Full`]).
    pub fn limit_to(&mut self, bytes: u64) {
        self.limit = Some(self.limit.map_or(bytes, |limit| limit.min(bytes)));
    }

    /// Whether the limit is so near that what is pending may be the last that fits.
    pub fn is_nearly_full(&self) -> bool {
        let next = self.last_frame.saturating_mul(2).max(NEXT_FRAME);
        self.limit
            .is_some_and(|limit| self.bytes + next + self.closing(2) > limit)
    }

    /// Bytes the end and the index take when `more` frames come before them.
    fn closing(&self, more: u64) -> u64 {
        let entries = self.entries.len() as u64 + more + 1;
        if entries > limits::INDEX_ENTRIES {
            return END_FRAME;
        }
        END_FRAME + (skippable::PREFIX + index::FIXED) as u64 + entries * index::ENTRY as u64
    }

    /// Writes what is pending, if anything, as one frame with one write. Nothing is buffered after it.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Failed { offset: self.bytes });
        }
        if let Some(collected) = &mut self.collected {
            collected.files.extend_from_slice(&self.pending.files);
        }
        let CaptureWriter {
            pending,
            user,
            kernel,
            user_numbers,
            kernel_numbers,
            losses,
            collected,
            rounding,
            ..
        } = self;
        let is_lost = |(class, _): &(LossClass, Option<u32>)| class.is_lost_sample();
        let mut summary = Summary {
            lost: losses
                .iter()
                .filter(|(k, _)| is_lost(k))
                .map(|(_, count)| *count)
                .sum(),
            ..Summary::default()
        };
        pending.losses.extend(
            std::mem::take(losses)
                .into_iter()
                .map(|((class, cpu), count)| Loss { class, cpu, count }),
        );
        // Stable, so that samples of one moment stay in the order they came in.
        pending.samples.sort_by_key(|s| (s.cpu, s.time));
        rounding.round(&mut pending.samples, &pending.processes);
        if !pending.samples.is_empty() {
            user_numbers.write_addresses(user, &mut pending.user_addresses);
            kernel_numbers.write_addresses(kernel, &mut pending.kernel_addresses);
            if let Some(collected) = collected {
                collected.user.extend_from_slice(&pending.user_addresses);
                collected
                    .kernel
                    .extend_from_slice(&pending.kernel_addresses);
            }
        }
        const CUT: u8 = sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED;
        for sample in &mut pending.samples {
            sample.user_stack =
                user_numbers.write_stack(user, sample.user_stack, &mut pending.user_nodes);
            sample.kernel_stack =
                kernel_numbers.write_stack(kernel, sample.kernel_stack, &mut pending.kernel_nodes);
            summary.truncated += u64::from(sample.flags & CUT != 0);
        }
        let times = || pending.samples.iter().map(|s| s.time);
        summary.first = times().min().unwrap_or_default();
        summary.last = times().max().unwrap_or_default();
        summary.samples = pending.samples.len() as u64;
        if pending.is_empty() {
            return Ok(());
        }

        self.payload.clear();
        let CaptureWriter {
            pending,
            sizes,
            matchers,
            payload,
            ..
        } = self;
        match pending.encode(sizes, matchers, payload) {
            Ok(after) => self.sizes = after,
            Err(err) => {
                self.failed = true;
                return Err(err.into());
            }
        }
        let result = self.write_frame(FrameKind::Segment, &summary);
        let unwritten = match &result {
            Err(WriteError::Full { .. }) => std::mem::take(&mut self.pending.losses),
            _ => Vec::new(),
        };
        self.pending.clear();
        if let Err(WriteError::Full { .. }) = result {
            // What later frames would refer to is not in the file.
            self.empty_tables();
            for loss in unwritten {
                self.loss(loss.class, loss.cpu, loss.count);
            }
            self.loss(LossClass::NoRoom, None, summary.samples);
            self.unwritten += summary.samples;
        }
        result?;
        self.samples += summary.samples;
        Ok(())
    }

    /// Flushes, then begins the next segment with empty tables.
    pub fn start_segment(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        self.empty_tables();
        Ok(())
    }

    fn empty_tables(&mut self) {
        if self.ordinal > 0 {
            self.segment += 1;
            self.ordinal = 0;
        }
        self.sizes = TableSizes::new(self.sizes.events as usize);
        self.matchers.clear();
        self.strings.clear();
        self.files.clear();
        self.mappings.clear();
        self.spaces.clear();
        self.tasks.clear();
        self.processes = 0;
        self.string_bytes = 0;
        self.placed = 0;
        self.records = 0;
        self.user.clear();
        self.kernel.clear();
        self.rounding.clear();
        self.user_numbers.clear();
        self.kernel_numbers.clear();
    }

    /// Writes kernel symbols at once, after what is pending.
    pub fn kernel_symbols(&mut self, symbols: &KernelSymbols) -> Result<(), WriteError> {
        self.write_record(FrameKind::KernelSymbols, symbols)
    }

    /// Writes the vdso image at once, after what is pending. The code in it is left out.
    pub fn vdso(&mut self, vdso: &Vdso) -> Result<(), WriteError> {
        let image = without_code(&vdso.image);
        self.write_record(FrameKind::Vdso, &Vdso { image })
    }

    /// Writes what readings of perf maps have told at once, after what is pending.
    pub fn perf_maps(&mut self, maps: &PerfMaps) -> Result<(), WriteError> {
        self.write_record(FrameKind::PerfMaps, maps)
    }

    /// Writes layouts of ELF files at once, after what is pending.
    pub fn elf_layouts(&mut self, layouts: &ElfLayouts) -> Result<(), WriteError> {
        self.write_record(FrameKind::ElfLayouts, layouts)
    }

    /// Ends the capture: what is pending, the end frame, the index. Gives `out` back, flushed. Within a limit there is
    /// room for that, unless it was set too late.
    pub fn finish(mut self, end: &End) -> Result<W, WriteError> {
        if let Err(WriteError::Full { .. }) = self.flush() {
            // Losses that found no room by their causes are in the end's total.
            self.losses.clear();
        }
        self.write_record(FrameKind::End, end)?;
        if self.entries.len() as u64 <= limits::INDEX_ENTRIES {
            let CaptureWriter { block, entries, .. } = &mut self;
            block.clear();
            skippable::encode(block, |out| {
                index::encode(out, entries);
                Ok(())
            })?;
            self.write_block()?;
        }
        let offset = self.bytes;
        self.out
            .flush()
            .map_err(|source| WriteError::Io { offset, source })?;
        Ok(self.out)
    }

    fn write_record<T: serde::Serialize>(
        &mut self,
        kind: FrameKind,
        record: &T,
    ) -> Result<(), WriteError> {
        self.flush()?;
        self.payload.clear();
        meta::encode(self.payload.bytes(), "record", record)?;
        self.write_frame(kind, &Summary::default())
    }

    /// Writes the payload with its descriptor.
    fn write_frame(&mut self, kind: FrameKind, summary: &Summary) -> Result<(), WriteError> {
        self.zstd
            .compress_payload(&self.payload, &mut self.data)
            .inspect_err(|_| self.failed = true)?;
        let in_segment = kind == FrameKind::Segment;
        let descriptor = Descriptor {
            kind,
            required: in_segment,
            sequence: self.sequence,
            segment: if in_segment { self.segment } else { 0 },
            ordinal: if in_segment { self.ordinal } else { 0 },
            compressed: self.data.len() as u64,
            uncompressed: self.payload.as_slice().len() as u64,
            first: summary.first,
            last: summary.last,
            samples: summary.samples,
            lost: summary.lost,
            truncated: summary.truncated,
            data_crc: crc32c::crc32c(&self.data),
        };
        self.block.clear();
        skippable::encode(&mut self.block, |out| {
            descriptor.encode(out);
            Ok(())
        })?;
        self.block.extend_from_slice(&self.data);
        let offset = self.bytes;
        let end = self.closing(u64::from(kind != FrameKind::End));
        let closing = end - u64::from(kind == FrameKind::End) * END_FRAME;
        let wanted = offset + self.block.len() as u64 + closing;
        if self.limit.is_some_and(|limit| wanted > limit) {
            let source = io::Error::from_raw_os_error(libc::EFBIG);
            return Err(WriteError::Full { offset, source });
        }
        self.last_frame = self.block.len() as u64;
        self.write_block()?;
        self.sequence += 1;
        self.ordinal += u32::from(in_segment);
        // One more than an index may have says that there will be none.
        if self.entries.len() as u64 <= limits::INDEX_ENTRIES {
            self.entries.push(FrameEntry { offset, descriptor });
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<(), WriteError> {
        let offset = self.bytes;
        if self.failed {
            return Err(WriteError::Failed { offset });
        }
        if let Err(source) = self.out.write_all(&self.block) {
            if source.get_ref().is_some_and(|inner| inner.is::<NoRoom>()) {
                return Err(WriteError::Full { offset, source });
            }
            self.failed = true;
            return Err(WriteError::Io { offset, source });
        }
        self.bytes += self.block.len() as u64;
        Ok(())
    }
}
