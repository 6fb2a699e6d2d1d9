//! From the rings to the capture: samples are taken out, their stacks interned, then the side-band is read and
//! each sample gets its task.
//!
//! Samples come out before side-band records, so that whatever a sample needs has been told by the time it is
//! looked up. A batch is what is taken out at once; nothing here allocates, wakes or calls the kernel per sample.

use anyhow::{Context, Result};
use hashbrown::HashMap;

use super::processes::{FirstSample, Processes, Sampled, Writer};
use super::sideband::SideEvent;
use super::wire::{Depths, decode};
use crate::capture::writer::{PlacedSample, Stacks, TablesFull};
use crate::event::{LossClass, Pid, ProcessKey, Timestamp, sample_flags};
use crate::format::process::Task;
use crate::format::samples::TaskId;

/// A thread in one image under one name: everything samples of it have in common.
#[derive(Debug)]
struct Slot {
    sampled: Sampled,
    /// Earliest sample of this batch.
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
}

/// Takes samples in and hands them to the capture.
pub struct Drain {
    /// The capture.
    pub writer: Writer,
    depths: Depths,
    slots: Vec<Slot>,
    by_sampled: HashMap<Sampled, u32, foldhash::fast::RandomState>,
    waiting: Vec<Waiting>,
    /// Slots with a user leaf that is new to the segment: is it in known mappings?
    fresh_leaves: Vec<(u32, u64)>,
    seen_leaves: HashMap<(u32, u64), (), foldhash::fast::RandomState>,
    last: Option<(Sampled, u32)>,
    /// Launched, and when it became what it was launched for.
    command: Option<(Pid, Option<Timestamp>)>,
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
    /// Samples lost.
    pub lost: u64,
    /// Samples of idle CPUs, left out.
    pub idle: u64,
    /// Process events lost.
    pub side_band_lost: u64,
    /// Processes the target started that are not sampled: there were too many at once.
    pub not_followed: u64,
}

/// Leaves checked in one batch at most; the rest is checked when it comes again.
const LEAVES_CHECKED: usize = 256;
/// Known leaves remembered at most.
const LEAVES_KEPT: usize = 1 << 16;

impl Drain {
    /// A drain into `writer`. `command` is the process launched, whose samples before its exec are not its own.
    pub fn new(writer: Writer, depths: Depths, command: Option<Pid>) -> Drain {
        Drain {
            writer,
            depths,
            slots: Vec::new(),
            by_sampled: HashMap::default(),
            waiting: Vec::new(),
            fresh_leaves: Vec::new(),
            seen_leaves: HashMap::default(),
            last: None,
            command: command.map(|pid| (pid, None)),
            totals: Totals::default(),
        }
    }

    /// Takes one record out of a ring.
    pub fn take(&mut self, record: &[u8], idle_text: Option<(u64, u64)>) {
        let Some(sample) = decode(record, self.depths) else {
            self.lose(LossClass::Malformed, None, 1);
            return;
        };
        if sample.sampled.tid.0 == 0 && is_idle(sample.kernel, idle_text) {
            self.lose(LossClass::Idle, Some(sample.cpu), 1);
            return;
        }
        let Ok(stacks) = self.writer.stacks(sample.user, sample.kernel) else {
            self.lose(LossClass::TableFull, Some(sample.cpu), 1);
            return;
        };
        let slot = self.slot(sample.sampled, sample.time);
        if let Some(leaf) = sample.user.first()
            && self.fresh_leaves.len() < LEAVES_CHECKED
            && self
                .seen_leaves
                .insert((sample.sampled.key.tgid.0, leaf >> 12), ())
                .is_none()
        {
            self.fresh_leaves.push((slot, *leaf));
        }
        self.waiting.push(Waiting {
            time: sample.time,
            cpu: sample.cpu,
            slot,
            stacks,
            flags: sample.flags,
        });
    }

    fn slot(&mut self, sampled: Sampled, time: Timestamp) -> u32 {
        let slot = match self.last {
            Some((last, slot)) if last == sampled => slot,
            _ => {
                let next = self.slots.len() as u32;
                let slot = *self.by_sampled.entry(sampled).or_insert(next);
                if slot == next {
                    self.slots.push(Slot {
                        sampled,
                        first: time,
                        task: None,
                    });
                }
                self.last = Some((sampled, slot));
                slot
            }
        };
        if let Some(known) = self.slots.get_mut(slot as usize) {
            known.first = known.first.min(time);
        }
        slot
    }

    /// Counts a loss, in the capture and in the totals.
    pub fn lose(&mut self, class: LossClass, cpu: Option<u32>, count: u64) {
        self.writer.loss(class, cpu, count);
        match class {
            LossClass::Idle => self.totals.idle += count,
            LossClass::SideBand => self.totals.side_band_lost += count,
            LossClass::NotFollowed => self.totals.not_followed += count,
            class if class.is_lost_sample() => self.totals.lost += count,
            _ => {}
        }
    }

    /// Ends a batch: takes in what the side-band told meanwhile, then gives each sample its task. `now` is not
    /// earlier than anything told.
    pub fn finish_batch(
        &mut self,
        processes: &mut Processes,
        events: &mut Vec<SideEvent>,
        now: Timestamp,
    ) -> Result<()> {
        if self.place_batch(processes, events, now).is_err() {
            // The tables are full to the format's limit. What this batch has written of processes may be in part,
            // so its samples cannot be trusted to them.
            let lost = self.waiting.len() as u64;
            self.lose(LossClass::TableFull, None, lost);
            self.waiting.clear();
            self.start_segment(processes)?;
            for event in events.drain(..) {
                // Nothing is written in the new segment yet, so nothing can be full.
                let _ = processes.apply(event, &mut self.writer);
            }
        }
        self.fresh_leaves.clear();
        processes.end_batch();
        if self.writer.segment_is_full() {
            self.start_segment(processes)?;
        } else if self.writer.frame_is_full() {
            self.flush()?;
        }
        Ok(())
    }

    fn place_batch(
        &mut self,
        processes: &mut Processes,
        events: &mut Vec<SideEvent>,
        now: Timestamp,
    ) -> Result<(), TablesFull> {
        while !events.is_empty() {
            // The event is gone even when it cannot be written: it has been taken in all the same.
            for event in events.drain(..) {
                if let super::sideband::SideKind::Lost(count) = event.what {
                    self.totals.side_band_lost += count;
                }
                processes.apply(event, &mut self.writer)?;
            }
        }
        if let Some((pid, exec @ None)) = &mut self.command {
            *exec = processes.exec_time(*pid);
        }
        for (slot, leaf) in &self.fresh_leaves {
            if let Some(slot) = self.slots.get(*slot as usize) {
                processes.check_covered(&slot.sampled, *leaf, now, &mut self.writer)?;
            }
        }
        let earliest = self.earliest_of_new();
        let mut before_command = 0;
        for waiting in self.waiting.drain(..) {
            let Some(slot) = self.slots.get_mut(waiting.slot as usize) else {
                continue;
            };
            if let Some((pid, exec)) = self.command
                && slot.sampled.key.tgid == pid
                && exec.is_none_or(|exec| waiting.time < exec)
            {
                before_command += 1;
                continue;
            }
            let task = match slot.task {
                Some(task) => task,
                None => {
                    let sample = FirstSample {
                        sampled: slot.sampled,
                        first: slot.first,
                        earliest: earliest
                            .get(&slot.sampled.key)
                            .map_or(slot.first, |earliest| slot.first.min(*earliest)),
                        now,
                    };
                    let process = processes.resolve(&sample, &mut self.writer)?;
                    let comm = self.writer.string(slot.sampled.comm())?;
                    let task = self.writer.task(Task {
                        process,
                        tid: slot.sampled.tid,
                        exec_id: slot.sampled.exec_id,
                        comm,
                    })?;
                    slot.task = Some(task);
                    task
                }
            };
            const CUT: u8 = sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED;
            self.totals.samples += 1;
            self.totals.truncated += u64::from(waiting.flags & CUT != 0);
            self.writer.sample_with(&PlacedSample {
                time: waiting.time,
                cpu: waiting.cpu,
                task,
                stacks: waiting.stacks,
                weight: 1,
                flags: waiting.flags,
                event: 0,
            })?;
        }
        self.writer.loss(LossClass::Launcher, None, before_command);
        Ok(())
    }

    /// Of each process with a task that is new to the segment, when the earliest sample of the batch was taken.
    fn earliest_of_new(&self) -> HashMap<ProcessKey, Timestamp, foldhash::fast::RandomState> {
        let mut earliest = HashMap::default();
        for waiting in &self.waiting {
            if let Some(slot) = self.slots.get(waiting.slot as usize)
                && slot.task.is_none()
            {
                let known = earliest.entry(slot.sampled.key).or_insert(waiting.time);
                *known = waiting.time.min(*known);
            }
        }
        earliest
    }

    /// Writes what has come so far.
    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().context("recording stopped")
    }

    /// Begins a new segment, with empty tables: bounds memory, and what a damaged frame can spoil.
    pub fn start_segment(&mut self, processes: &mut Processes) -> Result<()> {
        self.writer.start_segment().context("recording stopped")?;
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
