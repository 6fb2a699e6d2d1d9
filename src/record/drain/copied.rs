//! Samples whose user stacks were copied: they are walked when what was mapped at their time has been told.

use super::Drain;
use crate::capture::writer::TOGETHER;
use crate::event::{LossClass, Timestamp, sample_flags};
use crate::record::processes::{Processes, Spaces};
use crate::record::unwind::windows::Needed;
use crate::record::unwind::{Code, End, StackCopy, WINDOW, Walked};
use crate::record::wire::{CutBy, RingSample, decode};

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

    /// What a sample ran, if what was mapped at its time is known and its stack was copied; begins to load what
    /// [`Drain::walk_at_once`] needs first. `spaces` are those of the sample before.
    pub(super) fn code<'p>(
        &mut self,
        sample: &RingSample<'_>,
        processes: Option<&'p Processes>,
        spaces: &mut Option<Spaces<'p>>,
    ) -> Option<Code<'p>> {
        let copy = sample.copy?;
        let unwinder = self.unwinder.as_mut()?;
        let processes = processes.filter(|_| sample.time <= self.heard_until)?;
        let code = code(sample, processes, spaces);
        unwinder.prefetch(&copy, code);
        Some(code)
    }

    /// Puts the stack of a sample of known code behind `walked`, if it is of ordinary code.
    pub(super) fn walk_at_once(
        &mut self,
        sample: &mut RingSample<'_>,
        code: Option<Code<'_>>,
        walked: &mut Vec<u64>,
    ) -> bool {
        let (Some(copy), Some(code), Some(unwinder)) = (sample.copy, code, &mut self.unwinder)
        else {
            return false;
        };
        let start = walked.len();
        let Some(done) = unwinder.walk_quickly(&copy, code, self.depths.user, walked) else {
            walked.truncate(start);
            return false;
        };
        self.tell(sample, &copy, done);
        true
    }

    /// Puts the stack of a sample behind `walked`.
    fn walk(&mut self, sample: &mut RingSample<'_>, processes: &Processes, walked: &mut Vec<u64>) {
        let (Some(copy), Some(unwinder)) = (sample.copy, &mut self.unwinder) else {
            walked.extend_from_slice(sample.user);
            return;
        };
        let code = code(sample, processes, &mut None);
        let done = unwinder.walk(&copy, code, self.depths.user, walked);
        if copy.chain.is_some() && !matches!(done.end, End::Root | End::Depth) {
            unwinder.distrust(&copy, code);
        }
        self.tell(sample, &copy, done);
    }

    /// What a walk has shown: how much is to be copied from now on, and what its sample lacks.
    fn tell(&mut self, sample: &mut RingSample<'_>, copy: &StackCopy<'_>, done: Walked) {
        // What was cut for want of room says nothing of what is needed, nor what was left out in its middle.
        let says_nothing = sample.cut_by == CutBy::Room || copy.chain.is_some();
        if done.end != End::Window || !says_nothing {
            let copied = copy.top_bytes() as u32;
            let bytes = u32::try_from(done.needed).unwrap_or(u32::MAX);
            let needed = match done.end {
                _ if done.is_beyond => Needed::Beyond,
                End::Root | End::Depth if !done.went_on => Needed::Bytes(bytes),
                End::Root | End::Depth | End::Window => match done.gap {
                    Some(frame) if frame.saturating_sub(copy.top.from) > u64::from(WINDOW / 2) => {
                        Needed::Gap(bytes, frame)
                    }
                    _ => Needed::More,
                },
                End::NoInfo | End::BadFrame | End::Unmapped => Needed::Other,
            };
            let (thread, time) = (sample.sampled.tid, sample.time);
            self.windows.walked(thread, time, copied, needed);
        }
        // Inside execve the stack may be that of the program before.
        let in_exec = sample.sampled.in_exec;
        match done.end {
            End::Depth => {
                sample.flags |= sample_flags::USER_TRUNCATED;
                sample.cut_by = CutBy::Depth;
            }
            End::Window if !in_exec => sample.flags |= sample_flags::USER_TRUNCATED,
            _ => {}
        }
        // What is cut is counted with the sample.
        let ended = done
            .end
            .loss()
            .filter(|_| !in_exec && done.end != End::Window);
        let by_frame_pointer = LossClass::UnwindFramePointer;
        let partly = done.by_frame_pointer.then_some(by_frame_pointer);
        for class in ended.into_iter().chain(partly) {
            self.writer.loss(class, Some(sample.cpu), 1);
        }
    }
}

/// What a sample ran. `spaces` are those of the sample before.
fn code<'p>(
    sample: &RingSample<'_>,
    processes: &'p Processes,
    spaces: &mut Option<Spaces<'p>>,
) -> Code<'p> {
    let key = sample.sampled.key;
    let of = spaces.filter(|spaces| spaces.of == key);
    let of = of.unwrap_or_else(|| processes.spaces(key));
    *spaces = Some(of);
    Code {
        process: key.tgid,
        space: of.at(sample.time),
        time: sample.time,
        exec_id: sample.sampled.exec_id,
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::record::bpf::types::sample_flag;
    use crate::record::drain::rig::{NOBODY, Rig, Who};
    use crate::record::processes::Scope;
    use crate::record::unwind::Unwinder;

    /// What is walked later has the mappings of its own time, its leaf whatever becomes of the walk, and the reason why that
    /// ended.
    #[test]
    fn a_copied_stack_waits_until_its_mappings_are_told() {
        let (mut rig, who) = rig_of_one();
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

    /// What was mapped at its time is known, and has been for a while: such a stack is walked as it comes. A later one waits.
    #[test]
    fn a_copied_stack_of_known_code_does_not_wait() {
        use object::{Object, ObjectSymbol};
        let image = crate::record::kernel_names::own_vdso().expect("a vdso");
        let elf = object::File::parse(&*image).expect("an ELF file");
        let mut symbols = elf.dynamic_symbols();
        let function = symbols.find(|s| s.name() == Ok("__vdso_getcpu"));
        let function = function.expect("getcpu").address();
        let start = 0x9000 - (function & !0xfff);
        let (mut rig, who) = rig_of_one();
        rig.map(210, NOBODY, start + (function & !0xfff), "[vdso]");
        rig.batch(220);
        // At its first instruction the return address is on top of the stack: there is none.
        let at = start + function;
        let take = |rig: &mut Rig, time| {
            rig.copied(time, who, at, sample_flag(0), &[0], &[]);
            rig.drain.held.len()
        };
        rig.hear(240);
        assert_eq!(take(&mut rig, 230), 1, "what came last is not settled");
        rig.batch(250);
        rig.batch(260);
        rig.batch(270);
        rig.hear(300);
        assert_eq!(take(&mut rig, 290), 0);
        assert_eq!(take(&mut rig, 300), 0);
        assert_eq!(take(&mut rig, 301), 1);
        rig.batch(400);
        assert_eq!(rig.drain.totals.samples, 4);
        let (_, losses) = rig.finish();
        assert_eq!(losses.iter().count(), 0, "{losses:?}");
    }

    fn rig_of_one() -> (Rig, Who) {
        let mut rig = Rig::new(Scope::All, None);
        rig.drain.unwinder = Unwinder::new(None);
        let who = Who {
            tgid: NOBODY,
            start: 95,
            exec: 1,
            comm: "",
        };
        rig.fork(100, NOBODY + 1, NOBODY);
        rig.exec(200, NOBODY, "a");
        (rig, who)
    }

    /// A stack that goes on beyond its copy is marked, and counted by why it was not copied: once.
    #[test]
    fn stacks_cut_at_the_end_of_their_copy() {
        let (mut rig, who) = rig_of_one();
        // Of no file: walked along frame pointers.
        rig.map(210, NOBODY, 0x1000, "");
        let (usual, less) = (sample_flag(0), sample_flag::SAMPLE_LESS);
        rig.copied(230, who, 0x1100, usual, &[0x8000, 0x1200], &[]);
        rig.copied(240, who, 0x1100, less, &[0x8000, 0x1200], &[]);
        rig.copied(250, who, 0x1100, usual, &[0, 0x1200], &[]);
        rig.batch(300);
        let totals = rig.drain.totals;
        assert_eq!(
            (totals.samples, totals.truncated, totals.shortened),
            (3, 2, 1)
        );
        let (_, losses) = rig.finish();
        let of = |class| losses.of_class(class);
        assert_eq!(of(LossClass::UnwindWindow), 1);
        assert_eq!(of(LossClass::StackShortened), 1);
        assert_eq!(of(LossClass::UserTruncated), 0);
        assert_eq!(of(LossClass::UnwindFramePointer), 3);
    }

    /// When too much waits to be walked, samples are kept with what is known of their stacks.
    #[test]
    fn what_cannot_wait_is_kept_with_a_short_stack() {
        let (mut rig, who) = rig_of_one();
        rig.map(210, NOBODY, 0x9000, "/a");
        let stack = vec![0; 16 << 10];
        for time in 230..530 {
            rig.copied(time, who, 0x9000, sample_flag(0), &stack, &[0x9000, 0x9100]);
        }
        rig.batch(600);
        let (samples, losses) = rig.finish();
        assert_eq!(samples.len(), 300);
        assert_eq!(losses.lost_samples(), 0);
        // 32 MiB by 128 KiB and what comes with each.
        let shortened = losses.of_class(LossClass::StackShortened);
        assert!((45..60).contains(&shortened), "{shortened}");
        assert_eq!(losses.of_class(LossClass::UnwindNoInfo), 300 - shortened);
    }
}
