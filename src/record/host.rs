//! Facts of this host that go into the capture's header.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::elf_file::running_kernel_build_id;
use crate::event::{Timestamp, UserStacks};
use crate::format::header::{EventInfo, Header};

/// What the recorder decides, beside what the host is.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The sampled events.
    pub events: Vec<EventInfo>,
    /// Whom, in words.
    pub target: String,
    /// Depth limits.
    pub user_stack_limit: u32,
    /// Depth limits.
    pub kernel_stack_limit: u32,
    /// CPUs online.
    pub cpus_online: u32,
    /// What could not be had.
    pub degraded: Vec<String>,
    /// How user stacks are walked.
    pub user_stacks: UserStacks,
}

/// The header of a capture that begins now.
pub fn header(decided: Decided) -> Header {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let start_time = now();
    Header {
        host: text(uname.nodename()),
        boot_id: boot_id.trim().into(),
        kernel_release: text(uname.release()),
        kernel_build_id: running_kernel_build_id(),
        arch: text(uname.machine()),
        page_size: rustix::param::page_size() as u32,
        clock_ticks: clock_ticks(),
        cpus_online: decided.cpus_online,
        wall_offset_ns: wall_offset(),
        start_time,
        events: decided.events,
        target: decided.target,
        user_stack_limit: decided.user_stack_limit,
        kernel_stack_limit: decided.kernel_stack_limit,
        tool: concat!("profiler ", env!("CARGO_PKG_VERSION")).into(),
        degraded: decided.degraded,
        user_stacks: decided.user_stacks,
    }
}

/// `CLK_TCK`.
pub fn clock_ticks() -> u32 {
    rustix::param::clock_ticks_per_second() as u32
}

/// Now, on the capture's clock.
pub fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Timestamp(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
}

/// Nanoseconds to add to the capture's clock for nanoseconds since 1970.
pub fn wall_offset() -> i64 {
    // The two clocks are read one after the other: of several tries the one with the least time between.
    let tries = (0..5).map(|_| {
        let before = now();
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as i64);
        let after = now();
        let middle = (before.0 + after.since(before) / 2).cast_signed();
        (after.since(before), wall - middle)
    });
    tries
        .min_by_key(|(gap, _)| *gap)
        .map_or(0, |(_, offset)| offset)
}
