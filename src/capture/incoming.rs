//! Samples on their way into a capture.

use crate::event::{MappedFile, Timestamp, sample_flags};
use crate::format::limits;
use crate::format::samples::TaskId;

/// A sample as it comes in.
#[derive(Debug, Clone, Copy)]
pub struct SampleInput<'a> {
    /// When.
    pub time: Timestamp,
    /// On which CPU.
    pub cpu: u32,
    /// Which thread, from [`CaptureWriter::task`](super::CaptureWriter::task).
    pub task: TaskId,
    /// Addresses of the user stack, leaf first.
    pub user: &'a [u64],
    /// Addresses of the kernel stack, leaf first.
    pub kernel: &'a [u64],
    /// 1 for a sample of a clock or counter.
    pub weight: u64,
    /// [`crate::event::sample_flags`].
    pub flags: u8,
    /// Index into [`Header::events`](crate::format::header::Header::events).
    pub event: u8,
}

/// The stacks of a sample in the writer's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stacks {
    pub(super) user: u32,
    pub(super) kernel: u32,
    pub(super) flags: u8,
}

/// As [`SampleInput`], with stacks that were taken before.
#[derive(Debug, Clone, Copy)]
pub struct PlacedSample {
    /// When.
    pub time: Timestamp,
    /// On which CPU.
    pub cpu: u32,
    /// Which thread, from [`CaptureWriter::task`](super::CaptureWriter::task).
    pub task: TaskId,
    /// From [`CaptureWriter::stacks`](super::CaptureWriter::stacks).
    pub stacks: Stacks,
    /// 1 for a sample of a clock or counter.
    pub weight: u64,
    /// [`crate::event::sample_flags`].
    pub flags: u8,
    /// Index into [`Header::events`](crate::format::header::Header::events).
    pub event: u8,
}

/// What has been written, each once for each segment it was written in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Addresses of user stacks.
    pub user: Vec<u64>,
    /// Addresses of kernel stacks.
    pub kernel: Vec<u64>,
    /// Mapped files.
    pub files: Vec<MappedFile>,
}

/// Both stacks of a sample as deep as the format allows, and what that makes of its flags.
pub(super) fn cut_stacks<'a>(user: &'a [u64], kernel: &'a [u64]) -> (&'a [u64], &'a [u64], u8) {
    let cut = |frames: &'a [u64], flag| match frames.get(..limits::STACK_DEPTH) {
        Some(leaves) if leaves.len() < frames.len() => (leaves, flag),
        _ => (frames, 0),
    };
    let (user, user_cut) = cut(user, sample_flags::USER_TRUNCATED);
    let (kernel, kernel_cut) = cut(kernel, sample_flags::KERNEL_TRUNCATED);
    (user, kernel, user_cut | kernel_cut)
}
