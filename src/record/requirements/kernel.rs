//! What the kernel is and how it was set up.

use std::fs;
use std::path::Path;

use super::{Finding, setting};
use crate::record::{cgroups, kallsyms};

/// Oldest kernel with BPF ring buffers.
const OLDEST: (u32, u32) = (5, 8);
/// Oldest kernel that tells build IDs with mappings.
const BUILD_IDS: (u32, u32) = (5, 12);

/// The kernel's version.
pub(super) fn release() -> Finding {
    let release = rustix::system::uname();
    of_release(&release.release().to_string_lossy())
}

fn of_release(release: &str) -> Finding {
    const WHAT: &str = "kernel";
    match parse_release(release) {
        Some(found) if found < OLDEST => Finding::missing(
            WHAT,
            format!("this kernel is {release}; recording needs 5.8 or newer (BPF ring buffers)"),
        )
        .fix("run a newer kernel"),
        Some(found) if found < BUILD_IDS => Finding::degraded(
            WHAT,
            format!(
                "{release}: before 5.12 the kernel tells no build IDs, so files are read for them"
            ),
        ),
        _ => Finding::ok(WHAT, release),
    }
}

/// `6.18.44-distro` to (6, 18).
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Types of the kernel, without which the program cannot find the fields it reads.
pub(super) fn btf() -> Finding {
    const FILE: &str = "/sys/kernel/btf/vmlinux";
    match Path::new(FILE).exists() {
        true => Finding::ok("BTF", FILE),
        false => Finding::missing(
            "BTF",
            format!("{FILE} is missing: the kernel's types are needed to find what is sampled"),
        )
        .fix("run a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of current distributions are"),
    }
}

/// Process numbers must mean the same here and in the kernel.
pub(super) fn pid_namespace() -> Finding {
    use std::os::unix::fs::MetadataExt;
    /// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`: the same on every kernel.
    const INITIAL: u64 = 0xEFFF_FFFC;
    const WHAT: &str = "PID namespace";
    match fs::metadata("/proc/self/ns/pid") {
        Ok(namespace) if namespace.ino() != INITIAL => Finding::missing(
            WHAT,
            "this is a container with a PID namespace of its own, where process numbers mean something else than in \
             the kernel",
        )
        .fix("record on the host, or start the container in the host's PID namespace (--pid=host)"),
        _ => Finding::ok(WHAT, "the initial one"),
    }
}

/// Times must mean the same here and in the kernel: processes are told apart by when they started.
pub(super) fn time_namespace() -> Finding {
    const WHAT: &str = "time namespace";
    let offsets = fs::read_to_string("/proc/self/timens_offsets");
    // Kernels before 5.6 have none.
    match offsets.map(|text| boot_clock_offset(&text)) {
        Ok(Some((0, 0))) | Err(_) => Finding::ok(WHAT, "the clocks are those of the kernel"),
        _ => Finding::missing(
            WHAT,
            "this is a time namespace with a boot clock of its own, by which no process can be told in the kernel",
        )
        .fix("sudo nsenter --time=/proc/1/ns/time profiler record ..."),
    }
}

/// Seconds and nanoseconds from `/proc/self/timens_offsets`.
fn boot_clock_offset(text: &str) -> Option<(i64, i64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line?.split_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether kernel frames will have names.
pub(super) fn kptr_restrict() -> Finding {
    const WHAT: &str = "kptr_restrict";
    let value = setting("kernel/kptr_restrict");
    let shown = value.map_or("unknown".to_owned(), |v| v.to_string());
    if !kallsyms::hidden() {
        return Finding::ok(WHAT, format!("{shown}: kernel addresses are shown"));
    }
    let (why, fix) = match value {
        Some(2..) => ("", "sudo sysctl -w kernel.kptr_restrict=1"),
        _ => (" from who has no CAP_SYSLOG", super::rights::SETCAP),
    };
    Finding::degraded(
        WHAT,
        format!("{shown}: kernel addresses are hidden{why}, so kernel frames will have no names"),
    )
    .fix(fix)
}

/// For `--cgroup`, and paths of cgroups in captures.
pub(super) fn cgroups() -> Finding {
    const WHAT: &str = "cgroup v2";
    match cgroups::mount_point() {
        Some(dir) => Finding::ok(WHAT, dir.display().to_string()),
        None => Finding::degraded(
            WHAT,
            "not mounted: --cgroup has nothing to select by, and captures have no cgroup paths",
        )
        .fix("sudo mkdir -p /mnt/cgroup2 && sudo mount -t cgroup2 none /mnt/cgroup2"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn releases_of_distributions_are_understood() {
        assert_eq!(parse_release("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_release("5.8.0"), Some((5, 8)));
        assert_eq!(parse_release("5.15-rc3"), Some((5, 15)));
        assert_eq!(parse_release("weird"), None);
    }

    #[test]
    fn the_boot_clocks_offset_is_read() {
        let text = "monotonic           0         0\nboottime       86400        -5\n";
        assert_eq!(boot_clock_offset(text), Some((86400, -5)));
        assert_eq!(boot_clock_offset("monotonic 1 2\n"), None);
    }

    #[test]
    fn old_kernels_are_degraded_or_too_old() {
        let state = |release| of_release(release).state;
        assert_eq!(state("5.7.19"), State::Missing);
        assert_eq!(state("5.8.0-1"), State::Degraded);
        assert_eq!(state("5.12.0"), State::Ok);
        assert_eq!(state("weird"), State::Ok, "trying tells");
    }
}
