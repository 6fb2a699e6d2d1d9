//! Process records: who ran, which image, what was mapped, from when.
//!
//! A process is written into a segment when its first sample there is seen: first [`ProcessRecord::Process`],
//! then an [`ProcessRecord::Image`] for each program it ran in the time the segment covers, each followed by
//! its mappings. What happens to it afterwards follows as further records, each with its time. A process
//! without samples in a segment is not in it.

use serde::{Deserialize, Serialize};

use super::error::Problem;
use super::limits;
use super::segment::{SegmentFrame, TableSizes};
use crate::event::{BuildId, Origin, Pid, ProcessKey, Timestamp};

/// Index of a process in its segment, in the order of [`ProcessRecord::Process`] records.
pub type ProcessId = u32;
/// Index into the segment's strings.
pub type StringId = u32;
/// Index into the segment's files.
pub type FileId = u32;
/// Index into the segment's mapping templates.
pub type MappingId = u32;
/// Index into the segment's mapping lists.
pub type SpaceId = u32;

/// A piece of a file as programs map it, without the address: shared by all processes that map it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MappingTemplate {
    /// The file.
    pub file: FileId,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// [`crate::event::prot`] bits.
    pub prot: u8,
}

/// A template at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlacedMapping {
    /// First address.
    pub start: u64,
    /// What is there.
    pub mapping: MappingId,
}

/// A whole list of mappings, shared by processes that have the same (a fork without exec).
/// The first one is the image's main executable when that is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Space {
    /// Mappings; none overlaps another. Where a racy reading of /proc has made some overlap, the later wins.
    pub mappings: Vec<PlacedMapping>,
}

/// One fact about a process. Records of one process are in time order; `Process` is its first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessRecord {
    /// A process enters the segment and takes the next [`ProcessId`].
    Process {
        /// Who.
        key: ProcessKey,
        /// Parent's number, 0 when unknown or none.
        parent: Pid,
        /// Has no user memory: a kernel thread or the idle task.
        kernel: bool,
        /// How it became known.
        origin: Origin,
        /// cgroup v2 path, when known.
        cgroup: Option<StringId>,
    },
    /// The process runs another program from `time` on: every earlier mapping is gone.
    /// A process's first image says what it ran when it became known.
    Image {
        /// Who.
        process: ProcessId,
        /// From when; [`Timestamp::ZERO`] when it ran before recording began.
        time: Timestamp,
        /// 0 for the first image known, then 1 more for each exec seen.
        exec_number: u32,
        /// The process's (leader's) name.
        comm: StringId,
        /// How it became known.
        origin: Origin,
    },
    /// The mappings of the current image as of `time`, all at once; replaces what was known.
    Space {
        /// Who.
        process: ProcessId,
        /// From when.
        time: Timestamp,
        /// Which list.
        space: SpaceId,
        /// How it became known.
        origin: Origin,
    },
    /// A mapping is added to the current image; what it overlaps is gone from `time` on.
    Map {
        /// Who.
        process: ProcessId,
        /// From when.
        time: Timestamp,
        /// What and where.
        placed: PlacedMapping,
    },
    /// The process (its leader) has another name from `time` on; mappings stay.
    Comm {
        /// Who.
        process: ProcessId,
        /// From when.
        time: Timestamp,
        /// The name.
        comm: StringId,
    },
    /// The process is in another cgroup from `time` on.
    Cgroup {
        /// Who.
        process: ProcessId,
        /// From when.
        time: Timestamp,
        /// cgroup v2 path.
        path: StringId,
    },
    /// The process ended.
    Exit {
        /// Who.
        process: ProcessId,
        /// When.
        time: Timestamp,
    },
    /// Its mappings could not be read; names of its user frames will be missing.
    Unreadable {
        /// Who.
        process: ProcessId,
        /// When it was tried.
        time: Timestamp,
        /// Why, in words.
        reason: StringId,
    },
}

/// A thread with samples. A thread that is renamed or whose process execs becomes another task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Its process.
    pub process: ProcessId,
    /// Thread number.
    pub tid: Pid,
    /// `task_struct::self_exec_id` as sampled: differs between two images of one process.
    pub exec_id: u32,
    /// Thread name.
    pub comm: StringId,
}

/// Checks what the metadata of `frame` refers to, where `sizes` are the tables' sizes after it. A process
/// must be written before the records that name it; other tables may be referred to as they are at the
/// frame's end.
pub fn check(frame: &SegmentFrame, sizes: &TableSizes) -> Result<(), Problem> {
    for file in &frame.files {
        let value = file.path.len() as u64;
        if value > limits::STRING {
            return Err(Problem::OverLimit {
                what: "path length",
                value,
                limit: limits::STRING,
            });
        }
        check_build_id(file.build_id.as_ref())?;
    }
    for mapping in &frame.mappings {
        known("file", mapping.file, sizes.files)?;
    }
    for space in &frame.spaces {
        let value = space.mappings.len() as u64;
        if value > limits::SPACE {
            let what = "length of a mapping list";
            return Err(Problem::OverLimit {
                what,
                value,
                limit: limits::SPACE,
            });
        }
    }
    for placed in frame.spaces.iter().flat_map(|s| &s.mappings) {
        known("mapping", placed.mapping, sizes.mappings)?;
    }
    let is_process = |r: &&ProcessRecord| matches!(r, ProcessRecord::Process { .. });
    let new_processes = frame.processes.iter().filter(is_process).count() as u32;
    let mut processes = sizes.processes.saturating_sub(new_processes);
    for record in &frame.processes {
        if let Some(process) = record.process() {
            known("process", process, processes)?;
        }
        match record {
            ProcessRecord::Process { cgroup, .. } => {
                processes += 1;
                cgroup.map_or(Ok(()), |s| known("string", s, sizes.strings))?;
            }
            ProcessRecord::Space { space, .. } => known("mapping list", *space, sizes.spaces)?,
            ProcessRecord::Map { placed, .. } => known("mapping", placed.mapping, sizes.mappings)?,
            ProcessRecord::Image { comm: string, .. }
            | ProcessRecord::Comm { comm: string, .. }
            | ProcessRecord::Cgroup { path: string, .. }
            | ProcessRecord::Unreadable { reason: string, .. } => {
                known("string", *string, sizes.strings)?;
            }
            ProcessRecord::Exit { .. } => {}
        }
    }
    for task in &frame.tasks {
        known("process", task.process, sizes.processes)?;
        known("string", task.comm, sizes.strings)?;
    }
    Ok(())
}

impl ProcessRecord {
    /// When it happened; `None` for [`ProcessRecord::Process`], which has no time of its own.
    pub fn time(&self) -> Option<Timestamp> {
        match self {
            ProcessRecord::Process { .. } => None,
            ProcessRecord::Image { time, .. }
            | ProcessRecord::Space { time, .. }
            | ProcessRecord::Map { time, .. }
            | ProcessRecord::Comm { time, .. }
            | ProcessRecord::Cgroup { time, .. }
            | ProcessRecord::Exit { time, .. }
            | ProcessRecord::Unreadable { time, .. } => Some(*time),
        }
    }

    /// The process the record is about; `None` for [`ProcessRecord::Process`], which makes one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            ProcessRecord::Process { .. } => None,
            ProcessRecord::Image { process, .. }
            | ProcessRecord::Space { process, .. }
            | ProcessRecord::Map { process, .. }
            | ProcessRecord::Comm { process, .. }
            | ProcessRecord::Cgroup { process, .. }
            | ProcessRecord::Exit { process, .. }
            | ProcessRecord::Unreadable { process, .. } => Some(*process),
        }
    }
}

fn known(what: &'static str, id: u32, known: u32) -> Result<(), Problem> {
    if id < known {
        return Ok(());
    }
    Err(Problem::UnknownId {
        what,
        id: id.into(),
        known: known.into(),
    })
}

/// A decoded build ID obeys the rules of [`BuildId::new`].
pub(super) fn check_build_id(build_id: Option<&BuildId>) -> Result<(), Problem> {
    match build_id {
        Some(id) if BuildId::new(id.as_bytes()).is_none() => Err(Problem::BadValue {
            what: "length of a build ID",
            value: id.as_bytes().len() as u64,
        }),
        _ => Ok(()),
    }
}
