//! Which task each sample is of: thread, image and name.

use anyhow::Result;

use super::Drain;
use crate::capture::writer::TablesFull;
use crate::event::{LossClass, Timestamp};
use crate::format::process::Task;
use crate::format::samples::TaskId;
use crate::record::processes::{FirstSample, Processes, Sampled};

/// A thread in one image under one name: everything samples of it have in common.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) sampled: Sampled,
    /// Earliest sample, once it is known.
    first: Timestamp,
    /// In the open segment.
    pub(super) task: Option<TaskId>,
}

impl Drain {
    pub(super) fn slot(&mut self, sampled: Sampled) -> u32 {
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

    /// Process events since `since` may be missing.
    pub fn doubt(&mut self, processes: &mut Processes, since: Timestamp) {
        if processes.doubt(since, &mut self.writer).is_err() {
            // The next segment begins with what is then read.
            self.segment_is_due = true;
        }
        self.look_again();
    }

    /// Whatever is known of processes has to be looked at again.
    pub(super) fn look_again(&mut self) {
        for slot in &mut self.slots {
            slot.task = None;
            slot.first = Timestamp::MAX;
        }
    }

    /// Until its exec a launched command is us.
    pub(super) fn leave_out_launcher(&mut self, processes: &Processes) {
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
    pub(super) fn place_tasks(
        &mut self,
        processes: &mut Processes,
        now: Timestamp,
    ) -> Result<(), TablesFull> {
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
}

#[cfg(test)]
mod rereading;
#[cfg(test)]
mod tests;
