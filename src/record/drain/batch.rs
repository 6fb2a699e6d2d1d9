//! A batch: what the side-band told and what was sampled up to one moment, together.

use std::collections::VecDeque;

use anyhow::Result;

use super::{Drain, Waiting};
use crate::capture::writer::{FULL_FRAME, PlacedSample, TablesFull};
use crate::event::{LossClass, Timestamp, sample_flags};
use crate::record::processes::Processes;
use crate::record::sideband::{SideEvent, SideKind};
use crate::record::unwind::Unwinder;
use crate::record::wire::CutBy;

/// Flags of samples of which a part is missing.
const INCOMPLETE: u8 =
    sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED | sample_flags::USER_UNREADABLE;

impl Drain {
    /// Begins a batch, before samples are taken out: takes in what the side-band has told up to `until`, so that stacks of samples
    /// up to then can be walked as they come.
    pub fn hear(
        &mut self,
        processes: &mut Processes,
        events: &mut VecDeque<SideEvent>,
        until: Timestamp,
    ) {
        self.heard_until = Timestamp::ZERO;
        // What is being read may change what was known before.
        if self.unwinder.is_none() || processes.has_readings() || self.segment_is_over {
            return;
        }
        match self.apply(processes, events, until) {
            Ok(false) => self.heard_until = until,
            // Something is missing.
            Ok(true) => {}
            Err(TablesFull) => self.segment_is_over = true,
        }
    }

    /// Takes in what was told up to `until`. Whether some of it was lost.
    fn apply(
        &mut self,
        processes: &mut Processes,
        events: &mut VecDeque<SideEvent>,
        until: Timestamp,
    ) -> Result<bool, TablesFull> {
        let mut lost = false;
        while events.front().is_some_and(|event| event.time <= until) {
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
        Ok(lost)
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
        let mut placed = match std::mem::take(&mut self.segment_is_over) {
            true => Err(TablesFull),
            false => self.prepare_batch(processes, events, horizon),
        };
        while placed.is_ok() && !self.ready.is_empty() {
            placed = self.place_ready();
            if placed.is_ok() && !self.ready.is_empty() {
                self.flush()?;
            }
        }
        if placed.is_err() {
            // The tables are full to the format's limit. What this batch has written of processes may be in part,
            // so its samples cannot be trusted to them.
            let lost = self.forget();
            self.lose(LossClass::TableFull, None, lost);
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
        self.apply(processes, events, horizon)?;
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

    /// Counts what is missing of a sample that is kept.
    fn count_incomplete(&mut self, sample: &Waiting) {
        let Waiting { flags, cpu, .. } = *sample;
        let has = |flag: u8| flags & flag != 0;
        let user = has(sample_flags::USER_TRUNCATED).then_some(match sample.cut_by {
            CutBy::Depth => LossClass::UserTruncated,
            CutBy::Window => LossClass::UnwindWindow,
            CutBy::Room => LossClass::StackShortened,
        });
        let kernel = has(sample_flags::KERNEL_TRUNCATED).then_some(match sample.short {
            false => LossClass::KernelTruncated,
            true => LossClass::StackShortened,
        });
        let unreadable = has(sample_flags::USER_UNREADABLE).then_some(LossClass::UserUnreadable);
        for class in [user, kernel, unreadable].into_iter().flatten() {
            self.writer.loss(class, Some(cpu), 1);
        }
        let cut = [user, kernel];
        self.totals.truncated += u64::from(cut.iter().any(Option::is_some));
        let shortened = cut.contains(&Some(LossClass::StackShortened));
        self.totals.shortened += u64::from(shortened);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::reader::Reader;
    use crate::record::bpf::types::{sample_flag, sample_head};
    use crate::record::drain::rig::{NOBODY, Rig, TICK};
    use crate::record::processes::Scope;
    use crate::record::wire::tests::{bytes, record};

    /// However much came at once (a recorder that was stopped): a frame takes only so many samples, and another takes the rest.
    #[test]
    fn a_batch_larger_than_a_frame_is_several_frames() {
        const EACH: usize = 100;
        const SAMPLES: usize = 3 * FULL_FRAME - FULL_FRAME % EACH;
        let mut rig = Rig::new(Scope::All, None);
        let head = |time: usize| sample_head {
            time: time as u64,
            start_time: TICK,
            cgroup_id: 0,
            tgid: NOBODY,
            tid: NOBODY,
            exec_id: 0,
            cpu: time as u32 % 2,
            kernel_frames: 0,
            user_frames: 1,
            flags: sample_flag(0),
            comm: [0; 16],
        };
        // One CPU after the other, as rings are read.
        let [even, odd] = [0, 1].map(|cpu| (0..SAMPLES).filter(move |time| time % 2 == cpu));
        let times: Vec<usize> = even.chain(odd).collect();
        for times in times.chunks(EACH) {
            let records = times
                .iter()
                .map(|time| record(&head(2 * TICK as usize + time), &[0x1000]));
            let records: Vec<Vec<u64>> = records.collect();
            let records: Vec<&[u8]> = records.iter().map(|record| bytes(record)).collect();
            rig.drain.take(&records);
        }
        rig.batch(3 * TICK);
        assert_eq!(rig.drain.totals.samples, SAMPLES as u64);
        assert_eq!(rig.drain.totals.lost, 0);
        rig.drain.flush().expect("a file");
        let reader = Reader::open(&rig.path).expect("a capture");
        let frames = reader.frames().iter().map(|frame| &frame.descriptor);
        let frames: Vec<_> = frames.filter(|frame| frame.samples > 0).collect();
        let counts: Vec<u64> = frames.iter().map(|frame| frame.samples).collect();
        let (full, rest) = (FULL_FRAME as u64, (SAMPLES - 2 * FULL_FRAME) as u64);
        assert_eq!(counts, [full, full, rest]);
        for pair in frames.windows(2) {
            assert!(pair[0].last < pair[1].first, "frames that overlap in time");
        }
    }

    /// A stack that was cut because the ring was nearly full is told apart from one that was deeper than the limit.
    #[test]
    fn stacks_cut_for_want_of_room_have_their_own_cause() {
        let mut rig = Rig::new(Scope::All, None);
        let frames: Vec<u64> = (1..=9).map(|frame| frame * 0x1000).collect();
        let mut take = |flags: u32, kernel: usize, user: usize| {
            let head = sample_head {
                time: 2 * TICK,
                start_time: TICK,
                cgroup_id: 0,
                tgid: NOBODY,
                tid: NOBODY,
                exec_id: 0,
                cpu: 3,
                kernel_frames: kernel as i16,
                user_frames: user as i16,
                flags: sample_flag(flags),
                comm: [0; 16],
            };
            let stacks = [&frames[..kernel], &frames[..user]].concat();
            rig.drain.take(&[bytes(&record(&head, &stacks))]);
        };
        let short = sample_flag::SAMPLE_SHORT.0;
        take(short, 2, 8);
        take(short, 8, 8);
        take(short, 0, 7);
        take(0, 8, 8);
        rig.batch(3 * TICK);
        let totals = rig.drain.totals;
        assert_eq!(
            (totals.samples, totals.truncated, totals.shortened),
            (4, 2, 2)
        );
        let (_, losses) = rig.finish();
        let of = |class| losses.of_class(class);
        assert_eq!(of(LossClass::StackShortened), 3);
        assert_eq!(
            (of(LossClass::UserTruncated), of(LossClass::KernelTruncated)),
            (0, 0)
        );
    }
}
