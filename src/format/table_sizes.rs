//! How large the tables of a segment are, and may be.

use super::error::Problem;
use super::limits;
use super::process::ProcessRecord;
use super::samples::SampleContext;
use super::segment::SegmentFrame;
use super::stacks::ChainEnds;

/// How many entries each table of a segment has: what the next frame counts on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSizes {
    /// Events in the header: the same for every frame.
    pub events: u32,
    /// Strings.
    pub strings: u32,
    /// Bytes of all strings and of the files' paths.
    pub string_bytes: u64,
    /// Files.
    pub files: u32,
    /// Mapping templates.
    pub mappings: u32,
    /// Mapping lists.
    pub spaces: u32,
    /// Placed mappings in all lists.
    pub placed: u64,
    /// Process records of all kinds.
    pub records: u32,
    /// Processes.
    pub processes: u32,
    /// Tasks.
    pub tasks: u32,
    /// User addresses.
    pub user_addresses: u32,
    /// Kernel addresses.
    pub kernel_addresses: u32,
    /// Nodes of the user stack trie.
    pub user_nodes: u32,
    /// Nodes of the kernel stack trie.
    pub kernel_nodes: u32,
}

impl TableSizes {
    /// The sizes after `frame`, all within their limits.
    pub fn after(&self, frame: &SegmentFrame) -> Result<TableSizes, Problem> {
        fn add(what: &'static str, have: u32, more: usize) -> Result<u32, Problem> {
            let value = u64::from(have).saturating_add(more as u64);
            let limit = limits::TABLE;
            if value > limit {
                Err(Problem::OverLimit { what, value, limit })
            } else {
                Ok(value as u32)
            }
        }
        fn add_large(
            what: &'static str,
            have: u64,
            more: usize,
            limit: u64,
        ) -> Result<u64, Problem> {
            let value = have.saturating_add(more as u64);
            if value > limit {
                Err(Problem::OverLimit { what, value, limit })
            } else {
                Ok(value)
            }
        }
        let text = frame.strings.iter().map(Vec::len).sum::<usize>()
            + frame.files.iter().map(|f| f.path.len()).sum::<usize>();
        let placed = frame.spaces.iter().map(|s| s.mappings.len()).sum();
        let is_process = |r: &&ProcessRecord| matches!(r, ProcessRecord::Process { .. });
        let processes = frame.processes.iter().filter(is_process).count();
        Ok(TableSizes {
            events: self.events,
            strings: add("number of strings", self.strings, frame.strings.len())?,
            string_bytes: add_large(
                "bytes of strings",
                self.string_bytes,
                text,
                limits::SEGMENT_STRINGS,
            )?,
            files: add("number of files", self.files, frame.files.len())?,
            mappings: add("number of mappings", self.mappings, frame.mappings.len())?,
            spaces: add("number of mapping lists", self.spaces, frame.spaces.len())?,
            placed: add_large(
                "mappings in lists",
                self.placed,
                placed,
                limits::SEGMENT_PLACED,
            )?,
            records: add(
                "number of process records",
                self.records,
                frame.processes.len(),
            )?,
            processes: add("number of processes", self.processes, processes)?,
            tasks: add("number of tasks", self.tasks, frame.tasks.len())?,
            user_addresses: add(
                "number of addresses",
                self.user_addresses,
                frame.user_addresses.len(),
            )?,
            kernel_addresses: add(
                "number of addresses",
                self.kernel_addresses,
                frame.kernel_addresses.len(),
            )?,
            user_nodes: add(
                "number of stack nodes",
                self.user_nodes,
                frame.user_nodes.len(),
            )?,
            kernel_nodes: add(
                "number of stack nodes",
                self.kernel_nodes,
                frame.kernel_nodes.len(),
            )?,
        })
    }

    /// Empty tables of a capture whose header has `events` events.
    pub fn new(events: usize) -> TableSizes {
        TableSizes {
            events: events.try_into().unwrap_or(u32::MAX),
            ..TableSizes::default()
        }
    }

    pub(super) fn sample_context(
        &self,
        user_ends: ChainEnds,
        kernel_ends: ChainEnds,
    ) -> SampleContext {
        SampleContext {
            events: self.events,
            tasks: self.tasks,
            user_nodes: self.user_nodes,
            kernel_nodes: self.kernel_nodes,
            user_ends,
            kernel_ends,
        }
    }
}
