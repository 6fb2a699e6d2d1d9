//! Samples whose user stacks were copied: they are walked when what was mapped at their time has been told.

use super::Drain;
use crate::capture::writer::TOGETHER;
use crate::event::{LossClass, Timestamp, sample_flags};
use crate::record::processes::Processes;
use crate::record::unwind::{Code, End};
use crate::record::wire::{RingSample, decode};

impl Drain {
    /// Walks the stacks of samples up to `horizon` that were copied: what was mapped then has been told.
    pub(super) fn unwind(&mut self, processes: &Processes, horizon: Timestamp) {
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
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::record::drain::rig::{NOBODY, Rig, Who};
    use crate::record::processes::Scope;
    use crate::record::unwind::Unwinder;

    /// What is walked later has the mappings of its own time, its leaf whatever becomes of the walk, and the reason why that
    /// ended.
    #[test]
    fn a_copied_stack_waits_until_its_mappings_are_told() {
        let mut rig = Rig::new(Scope::All, None);
        rig.drain.unwinder = Unwinder::new();
        let who = Who {
            tgid: NOBODY,
            start: 95,
            exec: 1,
            comm: "",
        };
        rig.fork(100, NOBODY + 1, NOBODY);
        rig.exec(200, NOBODY, "a");
        rig.copied_sample(230, who, 0x9000);
        rig.copied_sample(250, who, 0x9020);
        rig.batch(225);
        assert_eq!(rig.drain.totals.samples, 0);
        rig.map(210, NOBODY, 0x1000, "/a");
        rig.map(240, NOBODY, 0x9000, "/late.so");
        rig.batch(300);
        assert_eq!(rig.drain.totals.samples, 2);
        let (samples, losses) = rig.finish();
        let places: Vec<_> = samples.iter().map(|s| s.place.as_str()).collect();
        assert_eq!(places, ["", "/late.so+0x20"]);
        assert_eq!(losses.of_class(LossClass::UnwindUnmapped), 1);
        assert_eq!(losses.of_class(LossClass::UnwindNoInfo), 1);
        assert_eq!(losses.lost_samples(), 0);
    }
}
