//! What to record, once the command line is understood.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::event::Pid;
use crate::format::header::Sampling;

/// All of it.
#[derive(Debug, Clone)]
pub struct Options {
    /// The capture to write; `-` is standard output.
    pub output: PathBuf,
    /// What is written is brought to the disk this often; `None` leaves that to the kernel.
    pub sync: Option<Duration>,
    /// The file is not to be longer, in bytes.
    pub max_size: Option<u64>,
    /// The event; `None` takes `cycles` where the machine can count them, else `cpu-clock`.
    pub event: Option<Event>,
    /// How often.
    pub rate: Rate,
    /// For how long.
    pub duration: Option<Duration>,
    /// Whom.
    pub target: Target,
    /// Follow children of the target.
    pub inherit: bool,
    /// Sample idle CPUs too.
    pub idle: bool,
    /// Bytes of the ring of each CPU; `None` fits it to the rate.
    pub ring_bytes: Option<u32>,
    /// How user stacks are walked.
    pub unwind: Unwind,
    /// Lower the rate when recording takes more than so many percent of one CPU.
    pub cpu_limit: Option<f64>,
    /// Say nothing unless something is wrong.
    pub quiet: bool,
}

/// Events that can be sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// CPU cycles, counted by the hardware.
    Cycles,
    /// Time on the CPU, by the kernel's clock.
    CpuClock,
}

impl Event {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Event::Cycles => "cycles",
            Event::CpuClock => "cpu-clock",
        }
    }
}

/// How user stacks are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwind {
    /// By unwind information where the machine can do that, and along frame pointers where that ends.
    Auto,
    /// Along frame pointers, in the kernel.
    FramePointers,
    /// By unwind information, of a copy of the stack.
    Dwarf,
}

/// How often to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// So many samples a second and CPU.
    Frequency(u64),
    /// A sample each so many events (`cpu-clock`: nanoseconds).
    Period(u64),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Frequency(hz) => write!(f, "at {hz} Hz"),
            Rate::Period(period) => write!(f, "every {period}"),
        }
    }
}

impl From<Rate> for Sampling {
    fn from(rate: Rate) -> Sampling {
        match rate {
            Rate::Frequency(hz) => Sampling::Frequency(hz),
            Rate::Period(period) => Sampling::Period(period),
        }
    }
}

/// Whom to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The whole machine.
    System,
    /// These processes with all their threads.
    Processes(Vec<Pid>),
    /// These threads only.
    Threads(Vec<Pid>),
    /// A process group.
    ProcessGroup(u32),
    /// A session.
    Session(u32),
    /// A cgroup of cgroup v2 and those below it: a directory, or a path from the hierarchy's root.
    Cgroup(PathBuf),
    /// A command to be launched, with its arguments, and its descendants.
    Command(Vec<OsString>),
}

impl Target {
    /// In words, for the capture's header.
    pub fn describe(&self) -> String {
        let list = |pids: &[Pid]| {
            pids.iter()
                .map(Pid::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        match self {
            Target::System => "system-wide".into(),
            Target::Processes(pids) => format!("processes {}", list(pids)),
            Target::Threads(tids) => format!("threads {}", list(tids)),
            Target::ProcessGroup(id) => format!("process group {id}"),
            Target::Session(id) => format!("session {id}"),
            Target::Cgroup(path) => format!("cgroup {}", path.display()),
            // Its arguments are nobody's business.
            Target::Command(words) => {
                let name = words.first().map(PathBuf::from);
                let name = name.as_deref().and_then(|p| p.file_name());
                format!("command {}", name.unwrap_or_default().to_string_lossy())
            }
        }
    }
}
