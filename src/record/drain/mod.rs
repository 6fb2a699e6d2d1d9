//! From the rings to the capture: samples are taken out, their stacks interned, then the side-band is read and
//! each sample gets its task.
//!
//! ```text
//! rings ──> take: interned ───────────────> waiting ──> batch: up to its horizon, in frames ──> capture::writer
//!             ├─> copied: walked ──────────────┤          └─ tasks: thread, image and name of each sample
//!             └─> held ──> copied: walked ─────┘
//! ```
//!
//! A copied stack is walked as it comes out when all that was mapped at its time has been heard of before ([`Drain::hear`]) and
//! nothing about it is unusual: most are never kept.
//!
//! Samples come out before side-band records, so that whatever a sample needs has been told by the time it is
//! looked up. A batch is what is taken out at once; nothing here allocates, wakes or calls the kernel per sample.

mod batch;
mod copied;
#[cfg(test)]
mod rig;
mod tasks;

use anyhow::{Context, Result};
use hashbrown::HashMap;

use self::tasks::Slot;
use super::processes::{Processes, Sampled, Writer};
use super::unwind::Unwinder;
use super::unwind::held::Held;
use super::unwind::windows::Windows;
use super::wire::{CutBy, Depths, RingSample, decode};
use crate::capture::writer::{Stacks, TOGETHER, TablesFull};
use crate::event::{LossClass, Pid, Timestamp, sample_flags};

#[derive(Debug, Clone, Copy)]
struct Waiting {
    time: Timestamp,
    cpu: u32,
    slot: u32,
    stacks: Stacks,
    flags: u8,
    weight: u32,
    short: bool,
    cut_by: CutBy,
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
    /// Of samples that are being interned together: addresses of stacks that were walked.
    walked: Vec<u64>,
    /// What was mapped is known up to then, before samples are taken out.
    heard_until: Timestamp,
    /// Something that was heard could not be written: the segment has no room for it.
    segment_is_over: bool,
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
    /// Of these, for which there was no room in the file.
    pub no_room: u64,
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
            heard_until: Timestamp::ZERO,
            segment_is_over: false,
            given_up: false,
            totals: Totals::default(),
        }
    }

    /// Takes records out of a ring.
    pub fn take(&mut self, records: &[&[u8]]) {
        self.take_of(records, None);
    }

    /// The same, of `processes` as they have been heard of.
    pub fn take_of(&mut self, records: &[&[u8]], processes: Option<&Processes>) {
        for records in records.chunks(TOGETHER) {
            self.take_together(records, processes);
        }
    }

    fn take_together(&mut self, records: &[&[u8]], processes: Option<&Processes>) {
        let mut samples: [Option<RingSample<'_>>; TOGETHER] = [None; TOGETHER];
        // Where the stack of a sample that was walked is.
        let mut places = [None; TOGETHER];
        let mut walked = std::mem::take(&mut self.walked);
        walked.clear();
        let mut codes = [None; TOGETHER];
        let mut spaces = None;
        for ((taken, code), record) in samples.iter_mut().zip(&mut codes).zip(records) {
            *taken = decode(record, self.depths);
            match taken {
                Some(sample) => *code = self.code(sample, processes, &mut spaces),
                None => self.lose(LossClass::Malformed, None, 1),
            }
        }
        let all = samples.iter_mut().zip(&mut places).zip(codes);
        for (((taken, place), code), record) in all.zip(records) {
            // What goes on below is taken.
            let Some(mut sample) = taken.take() else {
                continue;
            };
            if sample.sampled.tid.0 == 0 && is_idle(sample.kernel, self.idle_text) {
                self.lose(LossClass::Idle, Some(sample.cpu), sample.weight.into());
                continue;
            }
            if self.given_up {
                self.lose(LossClass::NoRoom, Some(sample.cpu), sample.weight.into());
                continue;
            }
            if let Some(copy) = sample.copy {
                let start = walked.len();
                if self.walk_at_once(&mut sample, code, &mut walked) {
                    *place = Some((start, walked.len()));
                } else if self.held.push(sample.time, sample.weight, record) {
                    continue;
                } else {
                    // What can be had of it without waiting.
                    if !copy.walked.is_empty() {
                        sample.user = copy.walked;
                    }
                    sample.flags |= sample_flags::USER_TRUNCATED;
                    sample.cut_by = CutBy::Room;
                }
            }
            *taken = Some(sample);
        }
        let mut pairs: [(&[u64], &[u64]); TOGETHER] = [(&[], &[]); TOGETHER];
        for ((pair, sample), place) in pairs.iter_mut().zip(&samples).zip(places) {
            if let Some(sample) = sample {
                let own = place.map(|(start, end)| walked.get(start..end).unwrap_or_default());
                *pair = (own.unwrap_or(sample.user), sample.kernel);
            }
        }
        self.intern(&samples, pairs.get(..records.len()).unwrap_or(&pairs));
        self.walked = walked;
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
            cut_by: sample.cut_by,
        });
    }

    /// Counts a loss, in the capture and in the totals.
    pub fn lose(&mut self, class: LossClass, cpu: Option<u32>, count: u64) {
        self.writer.loss(class, cpu, count);
        match class {
            LossClass::Idle => self.totals.idle += count,
            LossClass::SideBand => self.totals.side_band_lost += count,
            LossClass::NotFollowed => self.totals.not_followed += count,
            LossClass::Throttled => self.totals.throttled += count,
            LossClass::NoRoom => {
                self.totals.lost += count;
                self.totals.no_room += count;
            }
            class if class.is_lost_sample() => self.totals.lost += count,
            _ => {}
        }
    }

    /// After a frame has found no room ([`WriteError::Full`](crate::capture::WriteError::Full)): what else has come, or
    /// comes, is counted as lost.
    pub fn give_up(&mut self) {
        self.given_up = true;
        let unwritten = self.writer.unwritten();
        // The writer counts these itself.
        self.totals.samples -= unwritten.samples;
        self.totals.lost += unwritten.weight;
        self.totals.no_room += unwritten.weight;
        let weight = self.forget();
        self.lose(LossClass::NoRoom, None, weight);
    }

    /// Forgets samples that are not written. Gives what they count for.
    fn forget(&mut self) -> u64 {
        let waiting = self.ready.iter().chain(&self.waiting);
        let waiting: u64 = waiting.map(|sample| u64::from(sample.weight)).sum();
        let weight = waiting + self.held.weight();
        self.ready.clear();
        self.waiting.clear();
        self.held.clear();
        weight
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
mod tests {
    use super::rig::Rig;
    use crate::event::LossClass;
    use crate::record::processes::Scope;

    #[test]
    fn malformed_records_are_counted() {
        let mut rig = Rig::new(Scope::All, None);
        rig.drain.take(&[&[0; 7]]);
        rig.drain.take(&[&[]]);
        assert_eq!(rig.drain.totals.lost, 2);
        assert_eq!(rig.finish().1.of_class(LossClass::Malformed), 2);
    }
}
