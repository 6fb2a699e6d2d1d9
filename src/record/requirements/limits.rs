//! Limits: of the kernel, of memory, of the disk.

use std::fs;
use std::path::Path;

use indicatif::HumanBytes;

use super::Finding;
use crate::record::session::memory_per_cpu;
use crate::record::{cpus, output, sampler};

/// Frequency up to which nothing need be said.
const USUAL_RATE: u64 = 1000;
/// `perf_event_max_stack` unless it was changed.
const USUAL_DEPTH: usize = 127;
/// With less room than this a recording may not last.
const LITTLE_ROOM: u64 = 256 << 20;

/// How often may be sampled.
pub(super) fn sample_rate() -> Finding {
    const WHAT: &str = "max sample rate";
    match sampler::max_frequency() {
        Some(rate) if rate < USUAL_RATE => Finding::degraded(
            WHAT,
            format!(
                "{rate} Hz: higher frequencies are lowered to this; the kernel lowers it itself when interrupts take long"
            ),
        )
        .fix("sudo sysctl -w kernel.perf_event_max_sample_rate=100000"),
        Some(rate) => Finding::ok(WHAT, format!("{rate} Hz")),
        None => Finding::ok(WHAT, "no limit"),
    }
}

/// How deep stacks are walked.
pub(super) fn stack_depth() -> Finding {
    const WHAT: &str = "max stack";
    match sampler::max_stack() {
        depth if depth < USUAL_DEPTH => Finding::degraded(
            WHAT,
            format!("{depth} frames: the callers of deeper stacks are cut off"),
        )
        .fix("sudo sysctl -w kernel.perf_event_max_stack=127"),
        depth => Finding::ok(WHAT, format!("{depth} frames")),
    }
}

/// Kernel memory for what is on its way.
pub(super) fn ring_memory() -> Finding {
    const WHAT: &str = "ring memory";
    let cpus = cpus::online().map_or(1, |online| online.len() as u64);
    let needed = cpus * memory_per_cpu();
    let text = format!(
        "{} of kernel memory for {cpus} CPUs (at 99 Hz)",
        HumanBytes(needed)
    );
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available(&meminfo) {
        Some(free) if free < 2 * needed => Finding::degraded(
            WHAT,
            format!("{text}, and only {} are available", HumanBytes(free)),
        )
        .fix("profiler record --ring-size 64K ..."),
        _ => Finding::ok(WHAT, text),
    }
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Where the capture goes.
pub(super) fn output(path: &Path) -> Finding {
    const WHAT: &str = "output";
    if let Err(err) = output::check(path) {
        return Finding::missing(WHAT, format!("{err:#}")).fix("name another file: -o FILE");
    }
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let shown = dir.display();
    if let Err(err) = rustix::fs::access(
        dir,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    ) {
        return Finding::missing(WHAT, format!("cannot write in {shown}: {err}"))
            .fix("name a file elsewhere: -o FILE");
    }
    match rustix::fs::statvfs(dir) {
        Err(err) => Finding::degraded(WHAT, format!("free space of {shown} is unknown: {err}")),
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let text = format!("{} free in {shown}", HumanBytes(free));
            match free {
                ..output::LEAST_ROOM => {
                    let need = output::LEAST_ROOM >> 10;
                    Finding::missing(
                        WHAT,
                        format!("{text}, a capture needs {need} KiB to begin with"),
                    )
                    .fix("name a file elsewhere: -o FILE")
                }
                output::LEAST_ROOM..LITTLE_ROOM => {
                    Finding::degraded(WHAT, text).fix("name a file elsewhere: -o FILE")
                }
                _ => Finding::ok(WHAT, text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(available(text), Some(2 << 20));
        assert_eq!(available("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn a_capture_needs_a_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |name: &str| output(&dir.path().join(name));
        assert_ne!(of("run.bprof").state, State::Missing);
        fs::write(dir.path().join("mine"), "text").expect("a file");
        let taken = of("mine");
        assert_eq!(taken.state, State::Missing);
        assert!(taken.found.contains("mine"), "{}", taken.found);
        assert_eq!(of("none/run.bprof").state, State::Missing);
    }
}
