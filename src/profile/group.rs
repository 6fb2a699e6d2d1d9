//! What samples are counted apart by: the roots of a profile's stacks.

use clap::ValueEnum;

use super::NameId;
use crate::event::{Pid, ProcessKey};

/// What samples are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum By {
    /// Process and its name: `comm-PID`
    #[default]
    Process,
    /// Thread and its name: `comm-TID`
    Thread,
    /// Name of the thread
    Comm,
    /// File name of the program that ran
    Exe,
    /// cgroup (v2) path
    Cgroup,
    /// CPU: `cpu 3`
    Cpu,
    /// Host the samples are of
    Host,
    /// Capture of a merged file: its number and when it began
    Capture,
    /// Not at all: stacks begin with their first function
    None,
}

impl By {
    /// What one group is, for people: `process`, `CPU`.
    pub fn noun(self) -> &'static str {
        match self {
            By::Process => "process",
            By::Thread => "thread",
            By::Comm => "thread name",
            By::Exe => "program",
            By::Cgroup => "cgroup",
            By::Cpu => "CPU",
            By::Host => "host",
            By::Capture => "capture",
            By::None => "capture",
        }
    }
}

/// Samples that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// True text of the root frame; the empty one with [`By::None`], which has no root frame. Groups of two processes that had
    /// the same number and name one after the other have the same label.
    pub label: NameId,
    /// Who, when grouped by process or thread.
    pub process: Option<ProcessKey>,
    /// Which thread, when grouped by thread.
    pub tid: Option<Pid>,
}
