//! From the rings to the capture: samples are taken out, their stacks interned, then the side-band is read and
//! each sample gets its task.
//!
//! Samples come out before side-band records, so that whatever a sample needs has been told by the time it is
//! looked up. A batch is what is taken out at once; nothing here allocates, wakes or calls the kernel per sample.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use hashbrown::HashMap;

use super::processes::{FirstSample, Processes, Sampled, Writer};
use super::sideband::{SideEvent, SideKind};
use super::unwind::held::Held;
use super::unwind::windows::Windows;
use super::unwind::{Code, End, Unwinder};
use super::wire::{Depths, RingSample, decode};
use crate::capture::writer::{FULL_FRAME, PlacedSample, Stacks, TOGETHER, TablesFull};
use crate::event::{LossClass, Pid, Timestamp, sample_flags};
use crate::format::process::Task;
use crate::format::samples::TaskId;

/// A thread in one image under one name: everything samples of it have in common.
#[derive(Debug)]
struct Slot {
    sampled: Sampled,
    /// Earliest sample, once it is known.
    first: Timestamp,
    /// In the open segment.
    task: Option<TaskId>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    time: Timestamp,
    cpu: u32,
    slot: u32,
    stacks: Stacks,
    flags: u8,
    weight: u32,
    short: bool,
}

/// Takes samples in and hands them to the capture.
pub struct Drain {
    /// The capture.
    pub writer: Writer,
    depths: Depths,
    slots: Vec<Slot>,
    by_sampled: HashMap<Sampled, u32, foldhash::fast::RandomState>,
    waiting: Vec<Waiting>,
    /// Of these, those of the batch being placed.
    ready: Vec<Waiting>,
    /// Slots without a task, in this batch.
    fresh_slots: Vec<u32>,
    /// Slots with a user leaf that is new to the segment: is it in known mappings?
    fresh_leaves: Vec<(Timestamp, u32, u64)>,
    seen_leaves: HashMap<(u32, u64), (), foldhash::fast::RandomState>,
    last: Option<(Sampled, u32)>,
    /// Launched, and when it became what it was launched for.
    command: Option<(Pid, Option<Timestamp>)>,
    /// The segment has lasted long enough: the next batch ends it.
    pub segment_is_due: bool,
    /// Where the kernel idles, if idle samples are left out and it is known.
    pub idle_text: Option<(u64, u64)>,
    /// Walks the stacks that were copied.
    pub unwinder: Option<Unwinder>,
    /// How much is copied of such stacks.
    pub windows: Windows,
    /// Samples with such stacks: what they were walked through is known later.
    held: Held,
    /// Of these, those that are being interned together: all their addresses.
    walked: Vec<u64>,
    /// There is no room for samples any more: they are counted and that is all.
    given_up: bool,
    /// What has come so far.
    pub totals: Totals,
}

/// Counts of the whole recording.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Samples that went into the capture.
    pub samples: u64,
    /// Of these, with a stack that was cut.
    pub truncated: u64,
    /// Of these, cut because the ring was nearly full.
    pub shortened: u64,
    /// Samples lost.
    pub lost: u64,
    /// Samples of idle CPUs, left out.
    pub idle: u64,
    /// Process events lost.
    pub side_band_lost: u64,
    /// Processes the target started that are not sampled: there were too many at once.
    pub not_followed: u64,
    /// The lowest rate was one in so many of that asked for; 0 if it was never lowered.
    pub least_rate: u32,
    /// Times the kernel stopped sampling for the rest of a tick.
    pub throttled: u64,
}

/// Flags of samples of which a part is missing.
const INCOMPLETE: u8 =
    sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED | sample_flags::USER_UNREADABLE;
/// Of these, those that a limit cut.
const CUT: u8 = sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED;
/// Leaves checked in one batch at most; the rest is checked when it comes again.
const LEAVES_CHECKED: usize = 256;
/// Known leaves remembered at most.
const LEAVES_KEPT: usize = 1 << 16;

impl Drain {
    /// A drain into `writer`. `command` is the process launched, whose samples before its exec are not its own.
    pub fn new(mut writer: Writer, depths: Depths, command: Option<Pid>) -> Drain {
        // From now on it keeps them.
        writer.take_written();
        Drain {
            writer,
            depths,
            slots: Vec::new(),
            by_sampled: HashMap::default(),
            waiting: Vec::new(),
            ready: Vec::new(),
            fresh_slots: Vec::new(),
            fresh_leaves: Vec::new(),
            seen_leaves: HashMap::default(),
            last: None,
            command: command.map(|pid| (pid, None)),
            segment_is_due: false,
            idle_text: None,
            unwinder: None,
            windows: Windows::default(),
            held: Held::default(),
            walked: Vec::new(),
            given_up: false,
            totals: Totals::default(),
        }
    }

    /// Takes records out of a ring.
    pub fn take(&mut self, records: &[&[u8]]) {
        for records in records.chunks(TOGETHER) {
            self.take_together(records);
        }
    }

    fn take_together(&mut self, records: &[&[u8]]) {
        let mut samples: [Option<RingSample<'_>>; TOGETHER] = [None; TOGETHER];
        let mut pairs: [(&[u64], &[u64]); TOGETHER] = [(&[], &[]); TOGETHER];
        let places = samples.iter_mut().zip(&mut pairs);
        for ((taken, pair), record) in places.zip(records) {
            let Some(sample) = decode(record, self.depths) else {
                self.lose(LossClass::Malformed, None, 1);
                continue;
            };
            if sample.sampled.tid.0 == 0 && is_idle(sample.kernel, self.idle_text) {
                self.lose(LossClass::Idle, Some(sample.cpu), sample.weight.into());
                continue;
            }
            if self.given_up {
                self.lose(LossClass::NoRoom, Some(sample.cpu), 1);
                continue;
            }
            if sample.copy.is_some() {
                if !self.held.push(sample.time, sample.weight, record) {
                    let weight = sample.weight.into();
                    self.lose(LossClass::RingFull, Some(sample.cpu), weight);
                }
                continue;
            }
            *pair = (sample.user, sample.kernel);
            *taken = Some(sample);
        }
        self.intern(&samples, pairs.get(..records.len()).unwrap_or(&pairs));
    }

    /// Takes samples in with their stacks.
    fn intern(&mut self, samples: &[Option<RingSample<'_>>; TOGETHER], pairs: &[(&[u64], &[u64])]) {
        let mut stacks = [Err(TablesFull); TOGETHER];
        self.writer.stacks_together(pairs, &mut stacks);
        for (sample, stacks) in samples.iter().zip(stacks) {
            let Some(sample) = sample else {
                continue;
            };
            match stacks {
                Ok(stacks) => self.keep(sample, stacks),
                Err(TablesFull) => {
                    let weight = sample.weight.into();
                    self.lose(LossClass::TableFull, Some(sample.cpu), weight);
                }
            }
        }
    }

    /// Lets a sample wait for its task.
    fn keep(&mut self, sample: &RingSample<'_>, stacks: Stacks) {
        let slot = self.slot(sample.sampled);
        if let Some(leaf) = sample.user.first()
            && self.fresh_leaves.len() < LEAVES_CHECKED
            && self
                .seen_leaves
                .insert((sample.sampled.key.tgid.0, leaf >> 12), ())
                .is_none()
        {
            self.fresh_leaves.push((sample.time, slot, *leaf));
        }
        self.waiting.push(Waiting {
            time: sample.time,
            cpu: sample.cpu,
            slot,
            stacks,
            flags: sample.flags,
            weight: sample.weight,
            short: sample.short,
        });
    }

    fn slot(&mut self, sampled: Sampled) -> u32 {
        match self.last {
            Some((last, slot)) if last == sampled => slot,
            _ => {
                let next = self.slots.len() as u32;
                let slot = *self.by_sampled.entry(sampled).or_insert(next);
                if slot == next {
                    self.slots.push(Slot {
                        sampled,
                        first: Timestamp::MAX,
                        task: None,
                    });
                }
                self.last = Some((sampled, slot));
                slot
            }
        }
    }

    /// Counts a loss, in the capture and in the totals.
    pub fn lose(&mut self, class: LossClass, cpu: Option<u32>, count: u64) {
        self.writer.loss(class, cpu, count);
        match class {
            LossClass::Idle => self.totals.idle += count,
            LossClass::SideBand => self.totals.side_band_lost += count,
            LossClass::NotFollowed => self.totals.not_followed += count,
            LossClass::Throttled => self.totals.throttled += count,
            class if class.is_lost_sample() => self.totals.lost += count,
            _ => {}
        }
    }

    /// Ends a batch: takes in what the side-band told up to `horizon`, then gives each sample up to then its task. What is
    /// later waits, because another CPU may still have to tell of something earlier. `now` is not earlier than
    /// anything told or sampled.
    pub fn finish_batch(
        &mut self,
        processes: &mut Processes,
        events: &mut VecDeque<SideEvent>,
        horizon: Timestamp,
        now: Timestamp,
    ) -> Result<()> {
        // Stacks that wait belong to the segment, so its end waits for nothing.
        let closes = self.segment_is_due || self.writer.segment_is_full();
        let horizon = if closes { now } else { horizon };
        let mut placed = self.prepare_batch(processes, events, horizon);
        while placed.is_ok() && !self.ready.is_empty() {
            placed = self.place_ready();
            if placed.is_ok() && !self.ready.is_empty() {
                self.flush()?;
            }
        }
        if placed.is_err() {
            // The tables are full to the format's limit. What this batch has written of processes may be in part,
            // so its samples cannot be trusted to them.
            let of_all = self.ready.iter().chain(&self.waiting);
            let lost: u64 = of_all.map(|sample| u64::from(sample.weight)).sum();
            self.lose(LossClass::TableFull, None, lost + self.held.weight());
            self.ready.clear();
            self.waiting.clear();
            self.held.clear();
            self.start_segment(processes)?;
            while let Some(event) = events.pop_front() {
                // Nothing is written in the new segment yet, so nothing can be full.
                let _ = processes.apply(event, &mut self.writer);
            }
        }
        processes.end_batch(horizon);
        self.unwinder.iter_mut().for_each(Unwinder::tidy);
        if closes {
            self.start_segment(processes)?;
        } else if self.writer.frame_is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// Takes in what was told up to `horizon`, and finds the tasks of samples up to then.
    fn prepare_batch(
        &mut self,
        processes: &mut Processes,
        events: &mut VecDeque<SideEvent>,
        horizon: Timestamp,
    ) -> Result<(), TablesFull> {
        let mut lost = false;
        while events.front().is_some_and(|event| event.time <= horizon) {
            let Some(event) = events.pop_front() else {
                break;
            };
            if let SideKind::Lost(count) | SideKind::MoreLost(count) = event.what {
                self.totals.side_band_lost += count;
                lost |= matches!(event.what, SideKind::Lost(_));
            }
            // One that cannot be written has been taken in all the same.
            processes.apply(event, &mut self.writer)?;
        }
        if lost {
            self.look_again();
        }
        processes.settle_readings(horizon, &mut self.writer)?;
        self.unwind(processes, horizon);
        let ready = &mut self.ready;
        self.waiting.retain(|waiting| {
            let later = waiting.time > horizon;
            if !later {
                ready.push(*waiting);
            }
            later
        });
        self.leave_out_launcher(processes);
        let slots = &self.slots;
        let checked = self
            .fresh_leaves
            .extract_if(.., |(time, ..)| *time <= horizon);
        for (_, slot, leaf) in checked {
            if let Some(slot) = slots.get(slot as usize) {
                processes.check_covered(&slot.sampled, leaf, horizon);
            }
        }
        self.place_tasks(processes, horizon)?;
        if self.ready.len() > FULL_FRAME {
            // They take more than one frame, and what a frame has is not later than what the next one has.
            self.ready
                .sort_unstable_by_key(|sample| std::cmp::Reverse(sample.time));
        }
        Ok(())
    }

    /// Walks the stacks of samples up to `horizon` that were copied: what was mapped then has been told.
    fn unwind(&mut self, processes: &Processes, horizon: Timestamp) {
        if self.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let mut walked = std::mem::take(&mut self.walked);
        let mut records = held.until(horizon).fuse();
        loop {
            let mut samples: [Option<RingSample<'_>>; TOGETHER] = [None; TOGETHER];
            let mut ends = [0; TOGETHER];
            let mut count = 0;
            walked.clear();
            let places = samples.iter_mut().zip(&mut ends);
            for ((place, end), record) in places.zip(&mut records) {
                *place = decode(record, self.depths);
                if let Some(sample) = place {
                    self.walk(sample, processes, &mut walked);
                }
                *end = walked.len();
                count += 1;
            }
            if count == 0 {
                break;
            }
            let mut pairs: [(&[u64], &[u64]); TOGETHER] = [(&[], &[]); TOGETHER];
            let mut start = 0;
            for ((pair, sample), end) in pairs.iter_mut().zip(&samples).zip(ends) {
                if let Some(sample) = sample {
                    *pair = (walked.get(start..end).unwrap_or_default(), sample.kernel);
                    start = end;
                }
            }
            self.intern(&samples, pairs.get(..count).unwrap_or(&pairs));
        }
        drop(records);
        self.held = held;
        self.held.drop_until(horizon);
        self.walked = walked;
    }

    /// Puts the stack of a sample behind `walked`.
    fn walk(&mut self, sample: &mut RingSample<'_>, processes: &Processes, walked: &mut Vec<u64>) {
        let (Some(copy), Some(unwinder)) = (&sample.copy, &mut self.unwinder) else {
            walked.extend_from_slice(sample.user);
            return;
        };
        let code = Code {
            process: sample.sampled.key.tgid,
            space: processes.space(sample.sampled.key, sample.time),
            time: sample.time,
        };
        let done = unwinder.walk(copy, code, self.depths.user, walked);
        if !sample.short {
            let copied = copy.words.len() as u32 * 8;
            let needed = u32::try_from(done.needed)
                .ok()
                .filter(|_| done.end != End::Window);
            self.windows.walked(sample.sampled.tid, copied, needed);
        }
        if done.end == End::Depth || (done.end == End::Window && sample.short) {
            sample.flags |= sample_flags::USER_TRUNCATED;
            return;
        }
        // Inside execve the stack may be that of the program before.
        let end = done.end.loss().filter(|_| !sample.sampled.in_exec);
        let by_frame_pointer = LossClass::UnwindFramePointer;
        let partly = done.by_frame_pointer.then_some(by_frame_pointer);
        for class in end.into_iter().chain(partly) {
            self.writer.loss(class, Some(sample.cpu), 1);
        }
    }

    /// Hands samples over until there are no more or a frame is full.
    fn place_ready(&mut self) -> Result<(), TablesFull> {
        while !self.writer.frame_is_full()
            && let Some(sample) = self.ready.last()
        {
            let slot = self.slots.get(sample.slot as usize);
            if let Some(task) = slot.and_then(|slot| slot.task) {
                self.writer.sample_with(&PlacedSample {
                    time: sample.time,
                    cpu: sample.cpu,
                    task,
                    stacks: sample.stacks,
                    weight: sample.weight.into(),
                    flags: sample.flags,
                    event: 0,
                })?;
                self.totals.samples += 1;
                if sample.flags & INCOMPLETE != 0 {
                    let sample = *sample;
                    self.count_incomplete(&sample);
                }
            }
            self.ready.pop();
        }
        Ok(())
    }

    /// Process events since `since` may be missing.
    pub fn doubt(&mut self, processes: &mut Processes, since: Timestamp) {
        if processes.doubt(since, &mut self.writer).is_err() {
            // The next segment begins with what is then read.
            self.segment_is_due = true;
        }
        self.look_again();
    }

    /// Whatever is known of processes has to be looked at again.
    fn look_again(&mut self) {
        for slot in &mut self.slots {
            slot.task = None;
            slot.first = Timestamp::MAX;
        }
    }

    /// Counts what is missing of a sample that is kept.
    fn count_incomplete(&mut self, sample: &Waiting) {
        let Waiting { flags, cpu, .. } = *sample;
        let classes = [
            (sample_flags::USER_TRUNCATED, LossClass::UserTruncated),
            (sample_flags::KERNEL_TRUNCATED, LossClass::KernelTruncated),
            (sample_flags::USER_UNREADABLE, LossClass::UserUnreadable),
        ];
        for (flag, class) in classes {
            let cut = flag & CUT != 0;
            if flags & flag != 0 && !(cut && sample.short) {
                self.writer.loss(class, Some(cpu), 1);
            }
        }
        let cut = u64::from((flags & CUT).count_ones());
        self.totals.truncated += u64::from(cut > 0);
        if sample.short {
            self.totals.shortened += u64::from(cut > 0);
            self.writer.loss(LossClass::StackShortened, Some(cpu), cut);
        }
    }

    /// Until its exec a launched command is us.
    fn leave_out_launcher(&mut self, processes: &Processes) {
        let Some((pid, exec)) = &mut self.command else {
            return;
        };
        *exec = exec.or_else(|| processes.exec_time(*pid));
        let (pid, exec) = (*pid, *exec);
        let slots = &self.slots;
        let before = self.ready.len();
        self.ready.retain(|sample| {
            let slot = slots.get(sample.slot as usize);
            let own = slot.is_some_and(|slot| slot.sampled.key.tgid == pid);
            !own || exec.is_some_and(|exec| sample.time >= exec)
        });
        let left_out = (before - self.ready.len()) as u64;
        self.writer.loss(LossClass::Launcher, None, left_out);
    }

    /// Gives tasks to slots that have none yet, in the order of their samples: a process is written as it was when it was
    /// sampled first, and rings of different CPUs do not come in order.
    fn place_tasks(&mut self, processes: &mut Processes, now: Timestamp) -> Result<(), TablesFull> {
        self.fresh_slots.clear();
        for sample in &self.ready {
            if let Some(slot) = self.slots.get_mut(sample.slot as usize)
                && slot.task.is_none()
            {
                if slot.first == Timestamp::MAX {
                    self.fresh_slots.push(sample.slot);
                }
                slot.first = slot.first.min(sample.time);
            }
        }
        let slots = &self.slots;
        self.fresh_slots
            .sort_by_key(|slot| slots.get(*slot as usize).map(|slot| slot.first));
        for slot in &self.fresh_slots {
            let Some(slot) = self.slots.get_mut(*slot as usize) else {
                continue;
            };
            let sample = FirstSample {
                sampled: slot.sampled,
                first: slot.first,
                now,
            };
            let process = processes.resolve(&sample, &mut self.writer)?;
            let comm = self.writer.string(slot.sampled.comm())?;
            slot.task = Some(self.writer.task(Task {
                process,
                tid: slot.sampled.tid,
                exec_id: slot.sampled.exec_id,
                comm,
            })?);
        }
        Ok(())
    }

    /// After a frame has found no room ([`WriteError::Full`](crate::capture::WriteError::Full)): what else has come, or
    /// comes, is counted as lost.
    pub fn give_up(&mut self) {
        self.given_up = true;
        let unwritten = self.writer.samples_unwritten();
        // The writer counts these itself.
        self.totals.samples -= unwritten;
        self.totals.lost += unwritten;
        let held = self.waiting.len() + self.ready.len() + self.held.len();
        self.held.clear();
        self.waiting.clear();
        self.ready.clear();
        self.lose(LossClass::NoRoom, None, held as u64);
    }

    /// Writes what has come so far.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().context("recording stopped")
    }

    /// Begins a new segment, with empty tables: bounds memory, and what a damaged frame can spoil.
    pub fn start_segment(&mut self, processes: &mut Processes) -> Result<()> {
        self.writer.start_segment().context("recording stopped")?;
        self.segment_is_due = false;
        self.fresh_leaves.clear();
        processes.segment_started();
        self.slots.clear();
        self.by_sampled.clear();
        self.last = None;
        if self.seen_leaves.len() > LEAVES_KEPT {
            self.seen_leaves.clear();
        }
        Ok(())
    }
}

/// Whether a kernel stack is that of a CPU that idles: the rule of the sampling program, for samples it passed on
/// before it knew where the kernel idles.
fn is_idle(kernel: &[u64], idle_text: Option<(u64, u64)>) -> bool {
    let within = |(start, end)| {
        kernel
            .iter()
            .take(2)
            .any(|frame| (start..end).contains(frame))
    };
    idle_text.is_some_and(within)
}

#[cfg(test)]
mod tests;
