//! The vocabulary every other module speaks: who was sampled, when, where, and what was lost.
//!
//! Nothing here knows how bytes look on disk (`format`) or how the kernel delivers them (`record`).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Nanoseconds on the capture's clock: `CLOCK_BOOTTIME`, which runs on in suspend, so that it can be
/// compared with the start times of processes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The earliest time there is: used for facts that were true before recording began.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Later than any event.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A process number (kernel: tgid) or thread number (kernel: pid), in the initial PID namespace.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Pid(pub u32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a process: its number and when it was started. `execve` keeps both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// Thread group ID.
    pub tgid: Pid,
    /// `task_struct::group_leader::start_boottime`, in ns. Divided by 10,000,000 it is field 22 of
    /// `/proc/PID/stat` where `CLK_TCK` is 100.
    pub start_time: Timestamp,
}

/// A GNU build ID: the content hash a linker left in an ELF file, at most [`BuildId::MAX_LEN`] bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// Longest build ID a capture may carry, in bytes (SHA-1 has 20, SHA-256 32).
    pub const MAX_LEN: usize = 64;

    /// A build ID of `bytes`; `None` when empty, too long, or all zero (which tools use for "none").
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        let plausible =
            !bytes.is_empty() && bytes.len() <= Self::MAX_LEN && bytes.iter().any(|b| *b != 0);
        plausible.then(|| BuildId(bytes.to_vec()))
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// What a mapping maps. Only [`MappedKind::File`] names something a report may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MappedKind {
    /// A file of the process's file system.
    File,
    /// Memory with no file: JIT code, copied text.
    Anonymous,
    /// `[vdso]`, code of the kernel mapped into the process.
    Vdso,
    /// `[vsyscall]`.
    Vsyscall,
    /// A memfd, SysV or other shared memory: a name, but no path to open.
    Memfd,
    /// `[heap]`, `[stack]`, `[uprobes]` and other labels of the kernel.
    Special,
}

/// The kernel's suffix on the path of a file that has no name any more.
pub const DELETED: &[u8] = b" (deleted)";

/// What a path or label of the kernel stands for, and the path without the kernel's suffix.
pub fn classify(path: &[u8]) -> (MappedKind, &[u8]) {
    let bare = path.strip_suffix(DELETED).unwrap_or(path);
    let kind = match bare {
        b"" | b"//anon" | b"/dev/zero" | b"/anon_hugepage" => MappedKind::Anonymous,
        b"[vdso]" => MappedKind::Vdso,
        b"[vsyscall]" => MappedKind::Vsyscall,
        _ if bare.starts_with(b"[anon") => MappedKind::Anonymous,
        _ if bare.starts_with(b"/memfd:") || bare.starts_with(b"/SYSV") => MappedKind::Memfd,
        _ if bare.starts_with(b"/") => MappedKind::File,
        _ => MappedKind::Special,
    };
    (kind, bare)
}

/// The file behind a mapping as it was when it was mapped; what a report needs to believe a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MappedFile {
    /// What is mapped.
    pub kind: MappedKind,
    /// Path as the process's root shows it, bytes as the kernel gave them, without " (deleted)".
    #[serde(with = "serde_bytes_vec")]
    pub path: Vec<u8>,
    /// GNU build ID, when the file has one and it could be read.
    pub build_id: Option<BuildId>,
    /// Device major and minor, inode, when known (the kernel gives either these or the build ID).
    pub inode: Option<InodeKey>,
    /// Size and modification time, read when there is no build ID.
    pub version: Option<FileVersion>,
    /// The path no longer led to this file when it was looked at.
    pub deleted: bool,
}

/// Which file, on the recording machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InodeKey {
    /// Device major number.
    pub major: u32,
    /// Device minor number.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// What stands for the content of a file that has no build ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileVersion {
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds since 1970.
    pub mtime_sec: i64,
    /// Modification time: nanoseconds, 0..1,000,000,000.
    pub mtime_nsec: u32,
}

/// Protection bits of a mapping.
pub mod prot {
    /// Readable.
    pub const READ: u8 = 1;
    /// Writable.
    pub const WRITE: u8 = 2;
    /// Executable.
    pub const EXEC: u8 = 4;
    /// `MAP_SHARED`.
    pub const SHARED: u8 = 8;
}

/// How the recorder came to know something about a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// Told by the kernel when it happened.
    Event,
    /// Read from `/proc` while it was true, so it may have begun earlier than its time says.
    Snapshot,
    /// Nothing but a sample told of it.
    Sample,
}

/// How a recorder walked user stacks. Numbers are the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UserStacks {
    /// The capture does not say.
    #[default]
    Untold,
    /// Along frame pointers: what keeps none is missing, or ends the stack.
    FramePointers,
    /// By unwind information.
    UnwindInfo,
    /// By unwind information, and along frame pointers where that ends.
    Both,
}

impl UserStacks {
    /// The number in a capture's header.
    pub fn number(self) -> u32 {
        match self {
            UserStacks::Untold => 0,
            UserStacks::FramePointers => 1,
            UserStacks::UnwindInfo => 2,
            UserStacks::Both => 3,
        }
    }

    /// That of a number; a later version may have others.
    pub fn of_number(number: u32) -> UserStacks {
        match number {
            1 => UserStacks::FramePointers,
            2 => UserStacks::UnwindInfo,
            3 => UserStacks::Both,
            _ => UserStacks::Untold,
        }
    }

    /// In words; `None` when it is not known.
    pub fn label(self) -> Option<&'static str> {
        match self {
            UserStacks::Untold => None,
            UserStacks::FramePointers => Some("along frame pointers"),
            UserStacks::UnwindInfo => Some("by unwind information"),
            UserStacks::Both => Some("by unwind information and frame pointers"),
        }
    }

    /// The word for scripts, as `record --unwind` has it; `None` when it is not known.
    pub fn name(self) -> Option<&'static str> {
        match self {
            UserStacks::Untold => None,
            UserStacks::FramePointers => Some("fp"),
            UserStacks::UnwindInfo => Some("dwarf"),
            UserStacks::Both => Some("auto"),
        }
    }
}

/// Why something that should be in the capture is not, or not whole. Numbers are the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u16)]
#[non_exhaustive]
pub enum LossClass {
    /// A sample was taken and the ring of its CPU had no room.
    RingFull = 1,
    /// A sample was taken and could not be built (no scratch buffer, nested interrupt).
    Scratch = 2,
    /// A sample came out of the ring with a shape the recorder does not understand.
    Malformed = 3,
    /// Process events (mappings, exec, fork, exit) the kernel had to drop.
    SideBand = 4,
    /// Processes whose mappings could not be read.
    MapsUnreadable = 5,
    /// User stacks cut at the depth limit.
    UserTruncated = 6,
    /// Kernel stacks cut at the depth limit.
    KernelTruncated = 7,
    /// User stacks the kernel could not walk at all (fault, or no user memory).
    UserUnreadable = 8,
    /// Samples on an idle CPU, left out on purpose.
    Idle = 9,
    /// Samples dropped because a segment's tables were full.
    TableFull = 10,
    /// Samples of a launched command's process before it became the command, left out on purpose.
    Launcher = 11,
    /// Child processes of the target that were not followed: too many at once.
    NotFollowed = 12,
    /// CPUs that came online during the recording: not sampled, and their process events unseen, until noticed.
    CpuLate = 13,
    /// CPUs that came online and could not be sampled.
    CpuUnsampled = 14,
    /// Threads given by number whose sampling the kernel ended when they started a set-uid program, until that was noticed.
    ThreadLate = 15,
    /// Lines of perf maps, and perf maps, that were not kept: too many, or too large.
    PerfMaps = 16,
    /// Times the recorder changed how often it samples, to stay within the CPU time it may take: samples then count for more
    /// or less than before, as their weights say.
    RateChanged = 17,
    /// Stacks cut because the ring, or what waits to be walked, was nearly full: rather that than to lose samples.
    StackShortened = 18,
    /// Times the kernel stopped sampling for the rest of a tick because samples came faster than it allows.
    Throttled = 19,
    /// Samples of damaged frames, kept or lost, that a repaired capture is without.
    Damaged = 20,
    /// Samples for which the capture had no room: its limit was reached, or the disk was full.
    NoRoom = 21,
    /// Frames that a repaired capture is without, those without samples included.
    DamagedFrames = 22,
    /// User stacks whose walk ended at code without unwind information.
    UnwindNoInfo = 23,
    /// User stacks that go on beyond what was copied of them.
    UnwindWindow = 24,
    /// User stacks whose walk ended because unwind information or registers lead nowhere.
    UnwindBadFrame = 25,
    /// User stacks whose walk ended at a return address outside of all code known to be mapped.
    UnwindUnmapped = 26,
    /// User stacks walked in part along frame pointers, through code without unwind information (generated code, and files that have
    /// none): a function that keeps none hides its caller.
    UnwindFramePointer = 27,
}

impl LossClass {
    /// Every class, in the order of their numbers.
    pub const ALL: [LossClass; 27] = [
        LossClass::RingFull,
        LossClass::Scratch,
        LossClass::Malformed,
        LossClass::SideBand,
        LossClass::MapsUnreadable,
        LossClass::UserTruncated,
        LossClass::KernelTruncated,
        LossClass::UserUnreadable,
        LossClass::Idle,
        LossClass::TableFull,
        LossClass::Launcher,
        LossClass::NotFollowed,
        LossClass::CpuLate,
        LossClass::CpuUnsampled,
        LossClass::ThreadLate,
        LossClass::PerfMaps,
        LossClass::RateChanged,
        LossClass::StackShortened,
        LossClass::Throttled,
        LossClass::Damaged,
        LossClass::NoRoom,
        LossClass::DamagedFrames,
        LossClass::UnwindNoInfo,
        LossClass::UnwindWindow,
        LossClass::UnwindBadFrame,
        LossClass::UnwindUnmapped,
        LossClass::UnwindFramePointer,
    ];

    /// The class of `number`, as the format stores it.
    pub fn from_number(number: u16) -> Option<LossClass> {
        Self::ALL.into_iter().find(|c| *c as u16 == number)
    }

    /// Whether each count of this class is a sample missing from the capture.
    pub fn is_lost_sample(self) -> bool {
        matches!(
            self,
            LossClass::RingFull
                | LossClass::Scratch
                | LossClass::Malformed
                | LossClass::TableFull
                | LossClass::Damaged
                | LossClass::NoRoom
        )
    }

    /// Whether this class is a reason why the walk of a user stack ended before its root.
    pub fn is_unwind_end(self) -> bool {
        matches!(
            self,
            LossClass::UnwindNoInfo
                | LossClass::UnwindWindow
                | LossClass::UnwindBadFrame
                | LossClass::UnwindUnmapped
        )
    }

    /// What people read, in lower case: `ring full`.
    pub fn label(self) -> &'static str {
        match self {
            LossClass::RingFull => "ring full",
            LossClass::Scratch => "no scratch buffer",
            LossClass::Malformed => "malformed in ring",
            LossClass::SideBand => "process events lost",
            LossClass::MapsUnreadable => "maps unreadable",
            LossClass::UserTruncated => "user stack truncated",
            LossClass::KernelTruncated => "kernel stack truncated",
            LossClass::UserUnreadable => "user stack unreadable",
            LossClass::Idle => "idle",
            LossClass::TableFull => "tables full",
            LossClass::Launcher => "before the command started",
            LossClass::NotFollowed => "child processes not followed",
            LossClass::CpuLate => "CPUs not sampled at once when they came online",
            LossClass::CpuUnsampled => "CPUs that came online and could not be sampled",
            LossClass::ThreadLate => {
                "threads not sampled at once when they started a set-uid program"
            }
            LossClass::PerfMaps => "perf map lines not kept",
            LossClass::RateChanged => "rate changed to keep the CPU limit",
            LossClass::StackShortened => "stacks cut because the ring was nearly full",
            LossClass::Throttled => "throttled by the kernel",
            LossClass::Damaged => "in damaged frames",
            LossClass::NoRoom => "no room in the file",
            LossClass::DamagedFrames => {
                "damaged frames (their samples, where known, are counted as lost)"
            }
            LossClass::UnwindNoInfo => "no unwind info",
            LossClass::UnwindWindow => "stack window",
            LossClass::UnwindBadFrame => "bad frame",
            LossClass::UnwindUnmapped => "return address in no known code",
            LossClass::UnwindFramePointer => "by frame pointers through code without unwind info",
        }
    }
}

/// Flags of one sample.
pub mod sample_flags {
    /// The user stack was cut, at the depth limit or where its copy ended: its root end is missing.
    pub const USER_TRUNCATED: u8 = 1;
    /// The kernel stack was cut at the depth limit.
    pub const KERNEL_TRUNCATED: u8 = 2;
    /// Taken in the kernel: the leaf of the sample is the kernel stack's leaf.
    pub const IN_KERNEL: u8 = 4;
    /// Taken while the task was inside `execve`: when the image had already changed, the user
    /// stack is that of the image that is gone and must not be named by the new one.
    pub const IN_EXEC: u8 = 8;
    /// The user stack should exist and could not be read.
    pub const USER_UNREADABLE: u8 = 16;
    /// It is not known on which CPU it was taken: the number there says nothing.
    pub const CPU_UNKNOWN: u8 = 32;
    /// All bits that have a meaning.
    pub const ALL: u8 = 63;
}

/// `Vec<u8>` as one bincode byte string instead of a sequence of integers.
mod serde_bytes_vec {
    use std::fmt;

    use serde::de::{Deserializer, SeqAccess, Visitor};
    use serde::ser::Serializer;

    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                let mut out = Vec::new();
                while let Some(b) = seq.next_element()? {
                    out.push(b);
                }
                Ok(out)
            }
        }
        d.deserialize_byte_buf(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_classes_keep_their_numbers() {
        let numbers = LossClass::ALL.map(|class| class as u16);
        assert_eq!(numbers, std::array::from_fn::<u16, 27, _>(|i| i as u16 + 1));
        for class in LossClass::ALL {
            assert_eq!(LossClass::from_number(class as u16), Some(class));
        }
        assert_eq!(LossClass::from_number(0), None);
        assert_eq!(LossClass::from_number(999), None);
    }

    #[test]
    fn a_build_id_is_never_empty_zero_or_absurd() {
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[0; 20]), None);
        assert_eq!(BuildId::new(&[1; 65]), None);
        assert_eq!(
            BuildId::new(&[0xab, 0x01])
                .map(|b| b.to_string())
                .as_deref(),
            Some("ab01")
        );
    }
}
