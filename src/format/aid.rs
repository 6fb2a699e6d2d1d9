//! Symbol aid: what only the recording machine knows and names need. Written off the sampling path.

use serde::{Deserialize, Serialize};

use super::error::{FormatError, Problem};
use super::process::check_build_id;
use super::{limits, meta};
use crate::event::{BuildId, FileVersion, InodeKey, ProcessKey, Timestamp};

/// The kernel symbols that cover recorded kernel addresses. Several such frames add up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelSymbols {
    /// Runtime address of `_stext`, 0 when hidden.
    pub stext: u64,
    /// Sorted by start, not overlapping.
    #[serde(deserialize_with = "meta::entries")]
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

/// What readings of perf maps have told: one frame for all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PerfMaps {
    /// In the order of the readings of each process.
    #[serde(deserialize_with = "meta::entries")]
    pub maps: Vec<PerfMap>,
}

/// What one reading of a JIT's `/tmp/perf-PID.map` adds to what is known of a process: lines that cover recorded
/// addresses. Those of a process build on each other, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerfMap {
    /// Whose.
    pub process: ProcessKey,
    /// When the map was read the time before: lines of earlier frames that hold no more were true up to then.
    pub previous: Timestamp,
    /// When it was read: what is known of the process is true up to here at least.
    pub until: Timestamp,
    /// No line of an earlier frame is known to be true after `previous`: the process runs another program, or the map was
    /// written anew. `symbols` repeats those that are.
    pub fresh: bool,
    /// Starts of lines of earlier frames that are not known to be true after `previous`. Nor are those that one of `symbols`
    /// overlaps.
    #[serde(deserialize_with = "meta::entries")]
    pub ended: Vec<u64>,
    /// The lines, sorted by start, not overlapping.
    #[serde(deserialize_with = "meta::entries")]
    pub symbols: Vec<JitSymbol>,
}

/// One line of a perf map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitSymbol {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Not known to be true before. A line where there was none is true since the reading before, one that takes the place of another
    /// since its own.
    pub since: Timestamp,
    /// Name, bytes as in the file.
    pub name: Vec<u8>,
}

/// How mapped ELF files are laid out, so that their addresses can be translated without them. Several such frames
/// add up; a file is in one of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ElfLayouts {
    /// One for each file.
    #[serde(deserialize_with = "meta::entries")]
    pub layouts: Vec<ElfLayout>,
}

/// How one ELF file is laid out: the one with its build ID and path; without a build ID, that with its inode and
/// version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfLayout {
    /// Its path, as it is in the segments' files.
    pub path: Vec<u8>,
    /// Its build ID.
    pub build_id: Option<BuildId>,
    /// Which file, when known.
    pub inode: Option<InodeKey>,
    /// Size and modification time, when there is no build ID.
    pub version: Option<FileVersion>,
    /// Its PT_LOAD program headers, in file order; at most [`limits::LOADS`].
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

impl KernelSymbols {
    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<KernelSymbols, FormatError> {
        meta::decode_frame("kernel symbols", content)
    }

    /// Brings symbols of several frames into order: sorted by start, equal ones once, and none that is
    /// empty or overlaps the one before.
    pub fn normalize(&mut self) {
        self.symbols.retain(|s| s.start < s.end);
        self.symbols.sort_by_key(|s| (s.start, s.end));
        let mut end = 0;
        self.symbols.retain(|s| {
            let fits = s.start >= end;
            if fits {
                end = s.end;
            }
            fits
        });
    }
}

impl Vdso {
    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<Vdso, FormatError> {
        meta::decode_frame("vdso", content)
    }
}

impl PerfMaps {
    /// Maps (each as four), lines, and ended lines: what counts for the limit of all frames.
    pub fn entries(&self) -> u64 {
        let of_map = |map: &PerfMap| 4 + map.ended.len() + map.symbols.len();
        self.maps.iter().map(of_map).sum::<usize>() as u64
    }

    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<PerfMaps, FormatError> {
        meta::decode_frame("perf maps", content)
    }
}

impl ElfLayouts {
    /// Layouts (each as eight) and PT_LOAD headers: what counts for the limit of all frames.
    pub fn entries(&self) -> u64 {
        let of_layout = |layout: &ElfLayout| 8 + layout.loads.len();
        self.layouts.iter().map(of_layout).sum::<usize>() as u64
    }

    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<ElfLayouts, FormatError> {
        const WHAT: &str = "ELF layouts";
        let list: ElfLayouts = meta::decode_frame(WHAT, content)?;
        for layout in &list.layouts {
            check_build_id(layout.build_id.as_ref()).map_err(|p| FormatError::new(WHAT, 0, p))?;
            let value = layout.loads.len() as u64;
            if value > limits::LOADS {
                let problem = Problem::OverLimit {
                    what: "PT_LOAD headers of a file",
                    value,
                    limit: limits::LOADS,
                };
                return Err(FormatError::new(WHAT, 0, problem));
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, end: u64, name: &str) -> KernelSymbol {
        KernelSymbol {
            start,
            end,
            name: name.to_owned(),
            module: None,
        }
    }

    #[test]
    fn symbols_of_several_frames_are_brought_into_order() {
        let mut symbols = KernelSymbols {
            stext: 10,
            symbols: vec![
                symbol(30, 40, "c"),
                symbol(10, 20, "a"),
                symbol(10, 20, "a"),
                symbol(15, 25, "inside a"),
                symbol(20, 20, "empty"),
                symbol(50, 45, "backwards"),
                symbol(20, 30, "b"),
            ],
        };
        symbols.normalize();
        let names: Vec<_> = symbols.symbols.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
