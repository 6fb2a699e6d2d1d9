//! Symbol aid: what only the recording machine knows and names need. Written off the sampling path.

use serde::{Deserialize, Serialize};

use crate::event::{BuildId, InodeKey, ProcessKey, Timestamp};

/// The kernel symbols that cover recorded kernel addresses. Several such frames add up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelSymbols {
    /// Runtime address of `_stext`, 0 when hidden.
    pub stext: u64,
    /// Sorted by start, not overlapping.
    pub symbols: Vec<KernelSymbol>,
}

/// One kernel symbol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSymbol {
    /// Runtime address of its first byte.
    pub start: u64,
    /// Runtime address after its last byte, as bounded by the next symbol or the end of its module.
    pub end: u64,
    /// Name as in kallsyms.
    pub name: String,
    /// Module (`bpf`, `nf_tables`, ...), without brackets; `None` in the kernel proper.
    pub module: Option<String>,
}

/// The vdso of 64-bit processes, an ELF image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vdso {
    /// The image's bytes.
    pub image: Vec<u8>,
}

/// Lines of a JIT's `/tmp/perf-PID.map` that cover recorded addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfMap {
    /// Whose.
    pub process: ProcessKey,
    /// Not known to be true before; the first reading of a process has [`Timestamp::ZERO`].
    pub since: Timestamp,
    /// When it was read: not known to be true after.
    pub until: Timestamp,
    /// The lines, sorted by start.
    pub symbols: Vec<JitSymbol>,
}

/// One line of a perf map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitSymbol {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name, bytes as in the file.
    pub name: Vec<u8>,
}

/// How an ELF file is laid out, so that its addresses can be translated without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfInfo {
    /// Path as recorded in the segments' files.
    pub path: Vec<u8>,
    /// Which file, when known.
    pub inode: Option<InodeKey>,
    /// Its build ID.
    pub build_id: Option<BuildId>,
    /// Its PT_LOAD program headers, in file order.
    pub loads: Vec<Load>,
}

/// One PT_LOAD program header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// `p_offset`.
    pub offset: u64,
    /// `p_vaddr`.
    pub vaddr: u64,
    /// `p_filesz`.
    pub file_size: u64,
    /// `p_memsz`.
    pub mem_size: u64,
    /// `p_flags`.
    pub flags: u32,
}
