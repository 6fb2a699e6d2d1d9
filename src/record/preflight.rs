//! Whether this user on this machine can record, told before anything is touched, with what would fix it.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use rustix::thread::CapabilitySet;

/// Oldest kernel with BPF ring buffers.
const OLDEST_KERNEL: (u32, u32) = (5, 8);

/// Checks what recording cannot do without.
pub fn check() -> Result<()> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    if parse_release(&release).is_some_and(|found| found < OLDEST_KERNEL) {
        bail!("this kernel is {release}; recording needs 5.8 or newer (BPF ring buffers)");
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        bail!(
            "/sys/kernel/btf/vmlinux is missing: recording needs a kernel built with CONFIG_DEBUG_INFO_BTF=y, \
             as those of current distributions are"
        );
    }
    let missing = missing_capabilities(effective_capabilities());
    if !missing.is_empty() {
        let paranoid =
            fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        bail!(
            "not permitted to record: missing {} (perf_event_paranoid is {}). Run as root (sudo profiler record ...), \
             or give the program its capabilities once: sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep $(command -v profiler)",
            missing.join(" and "),
            paranoid.trim()
        );
    }
    if !in_initial_pid_namespace() {
        bail!(
            "this is a container with a PID namespace of its own, where process numbers mean something else than in \
             the kernel: record on the host, or start the container in the host's PID namespace (--pid=host)"
        );
    }
    Ok(())
}

fn effective_capabilities() -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// What is missing of the least that recording needs: CAP_SYS_ADMIN covers the others, as on old kernels.
fn missing_capabilities(has: CapabilitySet) -> Vec<&'static str> {
    if has.contains(CapabilitySet::SYS_ADMIN) {
        return Vec::new();
    }
    let needed = [
        (CapabilitySet::BPF, "CAP_BPF"),
        (CapabilitySet::PERFMON, "CAP_PERFMON"),
    ];
    needed
        .into_iter()
        .filter(|(cap, _)| !has.contains(*cap))
        .map(|(_, name)| name)
        .collect()
}

/// `6.18.44-distro` to (6, 18).
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn in_initial_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt;
    /// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`: the same on every kernel.
    const INITIAL: u64 = 0xEFFF_FFFC;
    fs::metadata("/proc/self/ns/pid").map_or(true, |ns| ns.ino() == INITIAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions_are_understood() {
        assert_eq!(parse_release("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_release("5.8.0"), Some((5, 8)));
        assert_eq!(parse_release("5.15-rc3"), Some((5, 15)));
        assert_eq!(parse_release("weird"), None);
        assert!(parse_release("5.7.19") < Some(OLDEST_KERNEL));
    }

    #[test]
    fn sys_admin_covers_what_newer_capabilities_split_off() {
        assert_eq!(
            missing_capabilities(CapabilitySet::SYS_ADMIN),
            Vec::<&str>::new()
        );
        assert_eq!(
            missing_capabilities(CapabilitySet::empty()),
            ["CAP_BPF", "CAP_PERFMON"]
        );
        assert_eq!(missing_capabilities(CapabilitySet::BPF), ["CAP_PERFMON"]);
    }
}
