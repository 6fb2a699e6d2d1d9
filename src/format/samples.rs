//! Samples, stored as columns.

use crate::event::Timestamp;

/// Index of a thread in its segment's tasks.
pub type TaskId = u32;
/// A stack: the number of its leaf node in the segment's user or kernel stack trie; 0 is the empty stack.
pub type StackId = u32;

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: Timestamp,
    /// On which CPU.
    pub cpu: u32,
    /// Which thread.
    pub task: TaskId,
    /// Its user stack.
    pub user_stack: StackId,
    /// Its kernel stack.
    pub kernel_stack: StackId,
    /// 1 for a sample of a clock or counter.
    pub weight: u64,
    /// [`crate::event::sample_flags`].
    pub flags: u8,
    /// Index into [`Header::events`](super::header::Header::events).
    pub event: u8,
}
