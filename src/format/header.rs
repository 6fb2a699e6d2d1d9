//! The file header: what kind of file this is and the facts of the host it was recorded on.

use serde::{Deserialize, Serialize};

use crate::event::{BuildId, Timestamp};

/// Facts that hold for the whole capture. Never holds argv or environment of other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Host name (`uname -n`).
    pub host: String,
    /// `/proc/sys/kernel/random/boot_id`; empty when unknown.
    pub boot_id: String,
    /// Kernel release (`uname -r`).
    pub kernel_release: String,
    /// Build ID of the running kernel (`/sys/kernel/notes`).
    pub kernel_build_id: Option<BuildId>,
    /// Machine (`uname -m`).
    pub arch: String,
    /// Bytes per page.
    pub page_size: u32,
    /// `CLK_TCK`: process start ticks per second.
    pub clock_ticks: u32,
    /// CPUs online when recording began.
    pub cpus_online: u32,
    /// Add this to a [`Timestamp`] to get nanoseconds since 1970 (UTC), as of the start of recording.
    pub wall_offset_ns: i64,
    /// When recording began.
    pub start_time: Timestamp,
    /// The events sampled; [`Sample::event`](super::samples::Sample::event) indexes this list.
    pub events: Vec<EventInfo>,
    /// What was to be sampled, in words: `system-wide`, `processes 12,13`, `command`, ...
    pub target: String,
    /// Frames kept of a user stack at most.
    pub user_stack_limit: u32,
    /// Frames kept of a kernel stack at most.
    pub kernel_stack_limit: u32,
    /// Name and version of the program that wrote the file.
    pub tool: String,
    /// What could not be had when recording began, one sentence each (`kernel symbols: hidden by ...`).
    pub degraded: Vec<String>,
}

/// One sampled event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// `cycles` or `cpu-clock`.
    pub name: String,
    /// How often it was sampled.
    pub sampling: Sampling,
}

/// The rate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sampling {
    /// Samples a second and CPU, as asked of the kernel.
    Frequency(u64),
    /// One sample each so many events (`cpu-clock`: nanoseconds).
    Period(u64),
}
