//! Which samples are asked for.
//!
//! ```text
//! pattern, time  as people give them, and words  for people again
//! plan  which frames are read -> filter  which samples pass -> names  which stacks have what is asked for
//! nothing  why there are none
//! ```

mod filter;
mod names;
mod nothing;
mod pattern;
mod plan;
mod time;
mod words;

use std::ops::RangeInclusive;

use crate::event::Pid;

pub(super) use filter::{Filter, Sieve};
pub(super) use names::{Found, found, wanted};
pub(super) use nothing::{explain, no_capture, no_host};
pub(super) use plan::Plan;

pub use pattern::{Glob, NamePattern, PathPattern};
pub use time::{Scale, TimePoint, TimeRange, TimeSpan};

/// Which samples. What is empty asks for nothing; of each list one has to hold, and of each kind of question all.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Process numbers.
    pub pids: Vec<Pid>,
    /// Thread numbers.
    pub tids: Vec<Pid>,
    /// Names of threads, when they were sampled.
    pub comms: Vec<Glob>,
    /// Programs that ran: path, or file name.
    pub exes: Vec<PathPattern>,
    /// cgroup (v2) paths; what is below them is in them.
    pub cgroups: Vec<String>,
    /// CPUs.
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Names of events, alone or with the rate: `cpu-clock@99Hz`.
    pub events: Vec<String>,
    /// Names of hosts.
    pub hosts: Vec<Glob>,
    /// Numbers of captures in a merged file, from 1; of any other file there is the first.
    pub captures: Vec<RangeInclusive<u32>>,
    /// Only frames of this kind are kept, and samples that have any.
    pub code: Option<CodeKind>,
    /// The stack has a function whose name matches.
    pub symbols: Vec<regex::Regex>,
    /// The stack has a function in a module of this name.
    pub modules: Vec<NamePattern>,
    /// When samples were taken.
    pub times: Vec<TimeRange>,
}

/// Code of one of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// Of programs.
    User,
    /// Of the kernel.
    Kernel,
}
