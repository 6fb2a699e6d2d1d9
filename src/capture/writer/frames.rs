//! Frames: what is pending becomes one, with one write; other kinds, the end and the index.

use std::io::{self, Write};

use super::CaptureWriter;
use crate::capture::vdso::without_code;
use crate::capture::write_error::{NoRoom, WriteError};
use crate::event::{LossClass, Timestamp, sample_flags};
use crate::format::aid::{ElfLayouts, KernelSymbols, PerfMaps, Vdso};
use crate::format::descriptor::{Descriptor, FrameKind};
use crate::format::end::End;
use crate::format::index::{self, FrameEntry};
use crate::format::payload::Out;
use crate::format::segment::{Loss, TableSizes};
use crate::format::{limits, meta, skippable};

/// A frame may well have so many bytes, whatever the one before had.
const NEXT_FRAME: u64 = 8 << 10;

/// A frame is expected to have no more than this part of what is allowed when that is little.
const NEAR: u64 = 16;
/// Bytes a sample takes when nothing is known yet: its stacks are new.
const FIRST_SAMPLE: u64 = 64;

/// The end frame has fewer bytes, as long as its reason is told in no more than [`END_WORDS`].
const END_FRAME: u64 = 1024;
/// A frame of nothing but losses by their causes has fewer bytes: what there is no room for has to be told.
const LOSSES_FRAME: u64 = 768;
/// Bytes of an end's reason in words.
pub const END_WORDS: usize = 512;

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
    /// From now on the file does not grow beyond `bytes`, its end and index included: what does not fit is not written
    /// ([`WriteError::Full`]).
    pub fn limit_to(&mut self, bytes: u64) {
        self.limit = Some(self.limit.map_or(bytes, |limit| limit.min(bytes)));
    }

    /// Whether the limit is so near that what is pending may be the last that fits.
    pub fn is_nearly_full(&self) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        // Near a limit frames are small, whatever the last one was.
        let next = self.last_frame.saturating_mul(2).min(limit / NEAR);
        self.room(limit) < next.max(NEXT_FRAME.min(limit / 8))
    }

    /// Bytes of frames that fit before the end.
    fn room(&self, limit: u64) -> u64 {
        limit.saturating_sub(self.bytes + self.closing(3) + LOSSES_FRAME)
    }

    /// Whether what waits may take half of the room there is: a frame that does not fit is lost with all its samples, so frames become
    /// smaller towards a limit.
    pub(super) fn may_soon_not_fit(&self) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        let (bytes, samples) = self.last_samples.unwrap_or((FIRST_SAMPLE, 1));
        let waits = self.pending.samples.len() as u64;
        let likely = waits.saturating_mul(bytes) / samples.max(1);
        likely > self.room(limit) / 2
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
                .fold(0u64, |sum, (_, count)| sum.saturating_add(*count)),
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
        let weight = self.pending.samples.iter();
        let weight = weight.fold(0u64, |sum, s| sum.saturating_add(s.weight));
        self.pending.clear();
        if let Err(WriteError::Full { .. }) = result {
            // What later frames would refer to is not in the file.
            self.empty_tables();
            for loss in unwritten {
                self.loss(loss.class, loss.cpu, loss.count);
            }
            self.loss(LossClass::NoRoom, None, weight);
            self.unwritten.samples += summary.samples;
            self.unwritten.weight = self.unwritten.weight.saturating_add(weight);
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
            // Without the CPUs they take less.
            for ((class, _), count) in std::mem::take(&mut self.losses) {
                self.loss(class, None, count);
            }
            if let Err(WriteError::Full { .. }) = self.flush() {
                // What finds no room even so is in the end's total.
                self.losses.clear();
            }
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
        let only_losses = in_segment && summary.samples == 0;
        let closing = match kind {
            FrameKind::End => self.closing(0) - END_FRAME,
            _ if only_losses => self.closing(1),
            // One of losses may follow.
            _ => self.closing(2) + LOSSES_FRAME,
        };
        let wanted = offset + self.block.len() as u64 + closing;
        if self.limit.is_some_and(|limit| wanted > limit) {
            let source = io::Error::from_raw_os_error(libc::EFBIG);
            return Err(WriteError::Full { offset, source });
        }
        self.last_frame = self.block.len() as u64;
        if summary.samples > 0 {
            self.last_samples = Some((self.last_frame, summary.samples));
        }
        self.write_block()?;
        self.sequence += 1;
        self.ordinal += u32::from(in_segment);
        // One more than an index may have says that there will be none.
        if self.entries.len() as u64 <= limits::INDEX_ENTRIES {
            self.entries.push(FrameEntry { offset, descriptor });
        }
        Ok(())
    }

    pub(super) fn write_block(&mut self) -> Result<(), WriteError> {
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
