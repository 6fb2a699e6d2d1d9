//! What a capture is and what is in it, without names: the model of `profiler info`.

use std::collections::BTreeMap;

use crate::event::{BuildId, Timestamp};
use crate::profile::About;

/// All that `profiler info` tells.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Facts of the recording. Losses by cause and damage of all segments are in it.
    pub about: About,
    /// Major and minor version of the format.
    pub format: (u16, u16),
    /// Kernel release.
    pub kernel_release: String,
    /// Kernel build ID.
    pub kernel_build_id: Option<BuildId>,
    /// Machine.
    pub arch: String,
    /// Boot ID of the machine.
    pub boot_id: String,
    /// When recording began.
    pub start: Timestamp,
    /// When it ended in order.
    pub end: Option<Timestamp>,
    /// Length of the file in bytes.
    pub file_size: u64,
    /// Whether the frames were found by an index, or why not.
    pub index: &'static str,
    /// Samples recorded with a stack cut at the depth limit.
    pub truncated_stacks: u64,
    /// Segments.
    pub segments: u64,
    /// Processes with samples.
    pub processes: u64,
    /// Threads with samples.
    pub threads: u64,
    /// Images of these processes.
    pub images: u64,
    /// Files mapped by them, executable mappings.
    pub files: u64,
    /// Frames by kind.
    pub frames: BTreeMap<u8, Frames>,
    /// What is packed.
    pub packed: Packed,
}

/// Frames of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frames {
    /// What kind.
    pub label: String,
    /// How many.
    pub count: u64,
    /// Bytes in the file.
    pub compressed: u64,
    /// Bytes of content.
    pub content: u64,
}

/// What is packed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Symbols of offsets hit.
    pub symbols: u64,
    /// Files these are of.
    pub symbol_files: u64,
    /// Files with a symbol table.
    pub tables: u64,
    /// Packed files.
    pub files: Vec<PackedFile>,
}

/// A packed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFile {
    /// Path of the mapped file it belongs to.
    pub path: String,
    /// Build ID of that.
    pub build_id: Option<BuildId>,
    /// It is the debug file, not the mapped one.
    pub debug: bool,
    /// Length in bytes.
    pub size: u64,
    /// All of it is here.
    pub whole: bool,
}

impl Packed {
    /// The level packed, as `pack --symbols` calls it: the highest of which there is something.
    pub fn level(&self) -> &'static str {
        if !self.files.is_empty() {
            "full"
        } else if self.tables > 0 {
            "symtab"
        } else if self.symbols > 0 {
            "hits"
        } else {
            "none"
        }
    }
}
