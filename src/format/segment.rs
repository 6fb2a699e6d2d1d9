//! A segment frame: what is added to the segment's tables, then the samples that use them.

use super::process::{MappingTemplate, ProcessRecord, Space, Task};
use super::samples::Sample;
use crate::event::LossClass;

/// The decoded content of one segment frame. Tables hold only what this frame adds; numbers count on
/// from the frames of the same segment before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentFrame {
    /// Names, paths: bytes as the kernel gave them.
    pub strings: Vec<Vec<u8>>,
    /// Mapped files.
    pub files: Vec<crate::event::MappedFile>,
    /// Mapping templates.
    pub mappings: Vec<MappingTemplate>,
    /// Mapping lists.
    pub spaces: Vec<Space>,
    /// Process records, in time order for each process.
    pub processes: Vec<ProcessRecord>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// User addresses, ascending.
    pub user_addresses: Vec<u64>,
    /// Kernel addresses, ascending.
    pub kernel_addresses: Vec<u64>,
    /// Nodes of the user stack trie.
    pub user_nodes: Vec<StackNode>,
    /// Nodes of the kernel stack trie.
    pub kernel_nodes: Vec<StackNode>,
    /// Samples, sorted by (CPU, time).
    pub samples: Vec<Sample>,
    /// Losses since the frame before.
    pub losses: Vec<Loss>,
}

/// A node of a stack trie: the frame `address`, called from the stack `parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The caller's node; 0 at the root (outermost frame). Always smaller than the node's own number.
    pub parent: u32,
    /// Index into the segment's user or kernel addresses.
    pub address: u32,
}

/// A number of things lost or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Loss {
    /// What and why.
    pub class: LossClass,
    /// On which CPU; `None` where that has no meaning.
    pub cpu: Option<u32>,
    /// How many.
    pub count: u64,
}
