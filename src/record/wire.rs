//! The record the sampling program puts into the ring (`bpf/profiler.h`), decoded. Pure.

use super::bpf::types::{sample_flag, sample_head};
use super::processes::Sampled;
use super::unwind::StackCopy;
use crate::event::{Pid, ProcessKey, Timestamp, sample_flags};

/// A sample as it comes out of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSample<'a> {
    /// When it was taken.
    pub time: Timestamp,
    /// On which CPU.
    pub cpu: u32,
    /// [`sample_flags`].
    pub flags: u8,
    /// How many samples at the rate asked for it stands for.
    pub weight: u32,
    /// Its stacks may be cut because the ring was nearly full.
    pub short: bool,
    /// Why its user stack is cut, if it is.
    pub cut_by: CutBy,
    /// Who ran.
    pub sampled: Sampled,
    /// Kernel stack, leaf first.
    pub kernel: &'a [u64],
    /// User stack, leaf first; of one that was copied only the leaf.
    pub user: &'a [u64],
    /// What is needed to walk a user stack that was copied instead.
    pub copy: Option<StackCopy<'a>>,
}

/// What cuts a user stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutBy {
    /// It is deeper than stacks are kept.
    Depth,
    /// It goes on beyond what was copied of it.
    Window,
    /// There was no room for more: the recorder was late.
    Room,
}

/// How deep stacks were asked for: a stack of that length is taken to be cut.
#[derive(Debug, Clone, Copy)]
pub struct Depths {
    /// Frames of a user stack.
    pub user: usize,
    /// Frames of a kernel stack.
    pub kernel: usize,
}

/// `SHORT_FRAMES` and `WEIGHT_SHIFT` of `bpf/profiler.h`.
const SHORT_FRAMES: usize = 8;
const WEIGHT_SHIFT: u32 = 16;

/// Decodes one record. `None` when it is not what `bpf/profiler.h` says.
pub fn decode(record: &[u8], depths: Depths) -> Option<RingSample<'_>> {
    let (head, stacks) = record.split_at_checked(size_of::<sample_head>())?;
    // SAFETY: `sample_head` is plain integers, any bytes are one, and `head` is as long as it.
    let head: sample_head = unsafe { head.as_ptr().cast::<sample_head>().read_unaligned() };
    // SAFETY: any eight bytes are a u64. Rings align records to eight bytes, as the head is long.
    let (before, addresses, after) = unsafe { stacks.align_to::<u64>() };
    let kernel_len = usize::try_from(head.kernel_frames).unwrap_or(0);
    let user_len = usize::try_from(head.user_frames).unwrap_or(0);
    if !before.is_empty() || !after.is_empty() {
        return None;
    }
    let told = |flag: sample_flag| head.flags.0 & flag.0 != 0;
    let (kernel, user) = addresses.split_at_checked(kernel_len)?;
    let (copy, user) = if told(sample_flag::SAMPLE_COPIED) {
        let copy = StackCopy::decode(user, user_len, told(sample_flag::SAMPLE_CHAIN))?;
        (Some(copy), copy.leaf())
    } else if user.len() == user_len {
        (None, user)
    } else {
        return None;
    };
    let kernel = without_interrupted_code(kernel, user);

    let bit = |has: bool, flag: u8| if has { flag } else { 0 };
    let kernel_thread = told(sample_flag::SAMPLE_KTHREAD);
    let in_exec = told(sample_flag::SAMPLE_IN_EXEC);
    let short = told(sample_flag::SAMPLE_SHORT);
    let lacked_room = short || told(sample_flag::SAMPLE_LESS);
    let kept = |depth: usize| {
        if short {
            depth.min(SHORT_FRAMES)
        } else {
            depth
        }
    };
    let flags = bit(
        copy.is_none() && user_len >= kept(depths.user),
        sample_flags::USER_TRUNCATED,
    ) | bit(
        kernel_len >= kept(depths.kernel),
        sample_flags::KERNEL_TRUNCATED,
    ) | bit(told(sample_flag::SAMPLE_IN_KERNEL), sample_flags::IN_KERNEL)
        | bit(in_exec, sample_flags::IN_EXEC)
        | bit(
            !kernel_thread && !told(sample_flag::SAMPLE_EXITING) && user.is_empty(),
            sample_flags::USER_UNREADABLE,
        );
    Some(RingSample {
        time: Timestamp(head.time),
        cpu: head.cpu,
        flags,
        weight: (head.flags.0 >> WEIGHT_SHIFT).max(1),
        short,
        cut_by: match (lacked_room, copy) {
            (true, _) => CutBy::Room,
            (false, Some(_)) => CutBy::Window,
            (false, None) => CutBy::Depth,
        },
        sampled: Sampled {
            key: ProcessKey {
                tgid: Pid(head.tgid),
                start_time: Timestamp(head.start_time),
            },
            tid: Pid(head.tid),
            comm: head.comm.map(|c| c.cast_unsigned()),
            exec_id: head.exec_id,
            cgroup_id: head.cgroup_id,
            kernel: kernel_thread,
            in_exec,
        },
        kernel,
        user,
        copy,
    })
}

/// Code of the vsyscall page runs at a kernel's address, so that the kernel's walk does not end before it: the leaf of the
/// user stack comes again as the outermost kernel frame.
fn without_interrupted_code<'a>(kernel: &'a [u64], user: &[u64]) -> &'a [u64] {
    match kernel.split_last() {
        Some((outermost, inner)) if user.first() == Some(outermost) => inner,
        _ => kernel,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const DEPTHS: Depths = Depths {
        user: 3,
        kernel: 127,
    };

    /// A record in memory aligned as a ring aligns it.
    pub fn record(head: &sample_head, stacks: &[u64]) -> Vec<u64> {
        let mut words = vec![0u64; size_of::<sample_head>() / 8];
        // SAFETY: the words are exactly as long as the head and more strictly aligned.
        unsafe { words.as_mut_ptr().cast::<sample_head>().write(*head) };
        words.extend_from_slice(stacks);
        words
    }

    pub fn bytes(words: &[u64]) -> &[u8] {
        // SAFETY: a u64 is eight bytes.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
    }

    fn head() -> sample_head {
        let mut comm = [0; 16];
        comm[..2].copy_from_slice(&[b's' as _, b'h' as _]);
        sample_head {
            time: 5,
            start_time: 3,
            cgroup_id: 9,
            tgid: 10,
            tid: 11,
            exec_id: 2,
            cpu: 1,
            kernel_frames: 1,
            user_frames: 2,
            flags: sample_flag::SAMPLE_IN_KERNEL,
            comm,
        }
    }

    #[test]
    fn the_layout_has_no_padding() {
        assert_eq!(size_of::<sample_head>(), 64);
    }

    #[test]
    fn a_sample_of_a_lowered_rate_has_a_weight() {
        let of = |flags| {
            let mut head = head();
            head.flags = sample_flag(flags);
            let words = record(&head, &[0xffff_8000, 0x1000, 0x2000]);
            let sample = decode(bytes(&words), DEPTHS).expect("a sample");
            (sample.weight, sample.short, sample.flags)
        };
        let in_kernel = sample_flags::IN_KERNEL;
        assert_eq!(of(1), (1, false, in_kernel));
        assert_eq!(of(1 | 64 << WEIGHT_SHIFT), (64, false, in_kernel));
        assert_eq!(of(1 | 16 | 1 << WEIGHT_SHIFT), (1, true, in_kernel));
    }

    #[test]
    fn stacks_are_told_apart_and_cut_ones_marked() {
        let words = record(&head(), &[0xffff_8000, 0x1000, 0x2000]);
        let sample = decode(bytes(&words), DEPTHS).expect("a sample");
        assert_eq!(
            (sample.kernel, sample.user),
            (&[0xffff_8000][..], &[0x1000, 0x2000][..])
        );
        assert_eq!(sample.flags, sample_flags::IN_KERNEL);
        assert_eq!(sample.sampled.comm(), b"sh");
        assert_eq!(
            (sample.time, sample.sampled.tid, sample.cpu),
            (Timestamp(5), Pid(11), 1)
        );

        let deep = sample_head {
            user_frames: 3,
            kernel_frames: 0,
            flags: sample_flag(0),
            ..head()
        };
        let words = record(&deep, &[1, 2, 3]);
        let sample = decode(bytes(&words), DEPTHS).expect("a sample");
        assert_eq!(sample.flags, sample_flags::USER_TRUNCATED);
    }

    #[test]
    fn an_unreadable_user_stack_is_said_and_the_sample_kept() {
        let failed = sample_head {
            user_frames: -1,
            kernel_frames: -1,
            ..head()
        };
        let words = record(&failed, &[]);
        let sample = decode(bytes(&words), DEPTHS).expect("a sample");
        assert_eq!(
            sample.flags,
            sample_flags::IN_KERNEL | sample_flags::USER_UNREADABLE
        );
        let exiting = sample_head {
            flags: sample_flag(sample_flag::SAMPLE_EXITING.0 | sample_flag::SAMPLE_IN_KERNEL.0),
            ..failed
        };
        let words = record(&exiting, &[]);
        let flags = decode(bytes(&words), DEPTHS).map(|s| s.flags);
        assert_eq!(flags, Some(sample_flags::IN_KERNEL), "none to be read");
        let thread = sample_head {
            flags: sample_flag::SAMPLE_KTHREAD,
            ..failed
        };
        let words = record(&thread, &[]);
        assert_eq!(decode(bytes(&words), DEPTHS).map(|s| s.flags), Some(0));
    }

    #[test]
    fn code_of_the_vsyscall_page_is_no_kernel_frame() {
        const TIME: u64 = 0xffff_ffff_ff60_0400;
        let words = record(
            &sample_head {
                kernel_frames: 2,
                user_frames: 1,
                ..head()
            },
            &[0xffff_8000, TIME, TIME],
        );
        let sample = decode(bytes(&words), DEPTHS).expect("a sample");
        assert_eq!(
            (sample.kernel, sample.user),
            (&[0xffff_8000][..], &[TIME][..])
        );
    }

    #[test]
    fn other_lengths_are_refused() {
        let words = record(&head(), &[1, 2, 3]);
        for len in (0..bytes(&words).len()).chain([64, 72]) {
            assert_eq!(decode(&bytes(&words)[..len], DEPTHS), None, "{len}");
        }
        assert_eq!(decode(bytes(&record(&head(), &[1, 2, 3, 4])), DEPTHS), None);
    }
}
