//! The tables of a segment being read. Every number in them was checked when its frame was decoded.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::event::{LossClass, MappedFile};
use crate::format::limits;
use crate::format::process::{
    FileId, MappingId, MappingTemplate, ProcessRecord, Space, SpaceId, StringId, Task,
};
use crate::format::samples::{Sample, StackId, TaskId};
use crate::format::segment::{Loss, SegmentFrame, StackNode};

/// What the frames of a segment read so far have added.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Names, paths.
    pub strings: Vec<Vec<u8>>,
    /// Mapped files.
    pub files: Vec<MappedFile>,
    /// Mapping templates.
    pub mappings: Vec<MappingTemplate>,
    /// Mapping lists.
    pub spaces: Vec<Space>,
    /// Process records: in time order for each process, not over all.
    pub process_records: Vec<ProcessRecord>,
    /// Threads.
    pub tasks: Vec<Task>,
    /// User stacks.
    pub user: StackTable,
    /// Kernel stacks.
    pub kernel: StackTable,
    /// What is missing, summed up.
    pub losses: LossTotals,
}

/// What the latest frame has added to the [`Tables`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewEntries {
    /// Of [`Tables::strings`].
    pub strings: Range<usize>,
    /// Of [`Tables::files`].
    pub files: Range<usize>,
    /// Of [`Tables::mappings`].
    pub mappings: Range<usize>,
    /// Of [`Tables::spaces`].
    pub spaces: Range<usize>,
    /// Of [`Tables::process_records`].
    pub process_records: Range<usize>,
    /// Of [`Tables::tasks`].
    pub tasks: Range<usize>,
    /// Of [`StackTable::addresses`] of the user stacks.
    pub user_addresses: Range<usize>,
    /// Of [`StackTable::addresses`] of the kernel stacks.
    pub kernel_addresses: Range<usize>,
    /// Of [`StackTable::nodes`] of the user stacks.
    pub user_nodes: Range<usize>,
    /// Of [`StackTable::nodes`] of the kernel stacks.
    pub kernel_nodes: Range<usize>,
}

/// A stack trie and its addresses.
#[derive(Debug, Clone, Default)]
pub struct StackTable {
    /// Code addresses.
    pub addresses: Vec<u64>,
    /// Nodes; number n is at n - 1.
    pub nodes: Vec<StackNode>,
}

impl StackTable {
    /// The node with this number; `None` for 0, the empty stack.
    pub fn node(&self, stack: StackId) -> Option<&StackNode> {
        (stack as usize)
            .checked_sub(1)
            .and_then(|index| self.nodes.get(index))
    }

    /// The addresses of a stack from its leaf to its root, [`limits::STACK_DEPTH`] at most.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = u64> + '_ {
        let mut next = stack;
        let frames = std::iter::from_fn(move || {
            let node = self.node(next)?;
            next = node.parent;
            self.addresses.get(node.address as usize).copied()
        });
        frames.take(limits::STACK_DEPTH)
    }
}

/// Numbers of things missing, by class and CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LossTotals {
    counts: BTreeMap<(LossClass, Option<u32>), u64>,
}

impl LossTotals {
    /// Adds one loss.
    pub fn add(&mut self, loss: &Loss) {
        let sum = self.counts.entry((loss.class, loss.cpu)).or_default();
        *sum = sum.saturating_add(loss.count);
    }

    /// Adds all of `other`, as of another segment.
    pub fn merge(&mut self, other: &LossTotals) {
        other.iter().for_each(|loss| self.add(&loss));
    }

    /// Every class and CPU with its count.
    pub fn iter(&self) -> impl Iterator<Item = Loss> + '_ {
        self.counts
            .iter()
            .map(|(&(class, cpu), &count)| Loss { class, cpu, count })
    }

    /// Of one class, over all CPUs.
    pub fn of_class(&self, class: LossClass) -> u64 {
        self.iter()
            .filter(|l| l.class == class)
            .fold(0, |sum, l| sum.saturating_add(l.count))
    }

    /// Samples missing from the capture.
    pub fn lost_samples(&self) -> u64 {
        let lost = self.iter().filter(|l| l.class.is_lost_sample());
        lost.fold(0, |sum, l| sum.saturating_add(l.count))
    }
}

impl Tables {
    /// The string with this number; empty when there is none, which no decoded record refers to.
    pub fn string(&self, id: StringId) -> &[u8] {
        self.strings.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// A file.
    pub fn file(&self, id: FileId) -> Option<&MappedFile> {
        self.files.get(id as usize)
    }

    /// A mapping template.
    pub fn mapping(&self, id: MappingId) -> Option<&MappingTemplate> {
        self.mappings.get(id as usize)
    }

    /// A mapping list.
    pub fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(id as usize)
    }

    /// A thread.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id as usize)
    }

    /// Moves what a frame adds into the tables; its samples are what is left of it.
    pub(super) fn append(&mut self, frame: SegmentFrame) -> (Vec<Sample>, NewEntries) {
        fn extend<T>(table: &mut Vec<T>, more: Vec<T>) -> Range<usize> {
            let before = table.len();
            table.extend(more);
            before..table.len()
        }
        let new = NewEntries {
            strings: extend(&mut self.strings, frame.strings),
            files: extend(&mut self.files, frame.files),
            mappings: extend(&mut self.mappings, frame.mappings),
            spaces: extend(&mut self.spaces, frame.spaces),
            process_records: extend(&mut self.process_records, frame.processes),
            tasks: extend(&mut self.tasks, frame.tasks),
            user_addresses: extend(&mut self.user.addresses, frame.user_addresses),
            kernel_addresses: extend(&mut self.kernel.addresses, frame.kernel_addresses),
            user_nodes: extend(&mut self.user.nodes, frame.user_nodes),
            kernel_nodes: extend(&mut self.kernel.nodes, frame.kernel_nodes),
        };
        frame.losses.iter().for_each(|loss| self.losses.add(loss));
        (frame.samples, new)
    }
}
