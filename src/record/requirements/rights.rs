//! What this user may do.

use rustix::thread::CapabilitySet;

use super::{Finding, setting};

/// Gives the program what it needs, once.
pub(super) const SETCAP: &str =
    "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog+ep $(command -v profiler)";

const NO_PTRACE: &str =
    "without CAP_SYS_PTRACE other users' processes that run already have no names";

/// What a recording of whoever runs will lack for want of CAP_SYS_PTRACE.
pub(super) fn others_unnamed() -> Option<&'static str> {
    let has = rustix::thread::capabilities(None).map(|sets| sets.effective);
    let may = has.is_ok_and(|has| has.contains(CapabilitySet::SYS_PTRACE));
    (!may).then_some(NO_PTRACE)
}

/// Capabilities of this process.
pub(super) fn capabilities() -> Finding {
    let has = rustix::thread::capabilities(None);
    of_capabilities(has.map_or(CapabilitySet::empty(), |sets| sets.effective))
}

fn of_capabilities(has: CapabilitySet) -> Finding {
    const WHAT: &str = "capabilities";
    let needed = missing(
        has,
        &[
            (CapabilitySet::BPF, "CAP_BPF"),
            (CapabilitySet::PERFMON, "CAP_PERFMON"),
        ],
    );
    if !needed.is_empty() {
        let paranoid = setting("kernel/perf_event_paranoid");
        return Finding::missing(
            WHAT,
            format!(
                "not permitted to record: missing {} (perf_event_paranoid is {})",
                needed.join(" and "),
                paranoid.map_or("unknown".to_owned(), |value| value.to_string())
            ),
        )
        .fix(format!(
            "run as root (sudo profiler record ...), or give the program its capabilities once: {SETCAP}"
        ));
    }
    let useful = missing(
        has,
        &[
            (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE"),
            (CapabilitySet::SYSLOG, "CAP_SYSLOG"),
        ],
    );
    if useful.is_empty() {
        return Finding::ok(WHAT, "all that are used");
    }
    let lacks = useful.iter().map(|name| match *name {
        "CAP_SYS_PTRACE" => NO_PTRACE,
        _ => "without CAP_SYSLOG kernel names depend on kptr_restrict",
    });
    Finding::degraded(WHAT, lacks.collect::<Vec<_>>().join("; ")).fix(SETCAP)
}

/// Which of `wanted` is not there: CAP_SYS_ADMIN covers the first two, as on old kernels.
fn missing(has: CapabilitySet, wanted: &[(CapabilitySet, &'static str)]) -> Vec<&'static str> {
    let admin = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let covered = match has.contains(CapabilitySet::SYS_ADMIN) {
        true => has | admin,
        false => has,
    };
    let lacking = wanted.iter().filter(|(cap, _)| !covered.contains(*cap));
    lacking.map(|(_, name)| *name).collect()
}

/// Said because every other tool says it: with the capabilities it does not matter.
pub(super) fn paranoid() -> Finding {
    const WHAT: &str = "perf_event_paranoid";
    match setting("kernel/perf_event_paranoid") {
        Some(value) => {
            let has = rustix::thread::capabilities(None).map(|sets| sets.effective);
            let has = has.unwrap_or(CapabilitySet::empty());
            Finding::ok(WHAT, format!("{value}; {}", of_paranoid(has)))
        }
        None if !std::path::Path::new("/proc/sys/kernel").exists() => {
            Finding::missing(WHAT, "/proc is not mounted here").fix("sudo mount -t proc proc /proc")
        }
        None => Finding::missing(WHAT, "this kernel has no perf events")
            .fix("run a kernel built with CONFIG_PERF_EVENTS=y"),
    }
}

/// What `perf_event_paranoid` means to this user.
fn of_paranoid(has: CapabilitySet) -> &'static str {
    match missing(has, &[(CapabilitySet::PERFMON, "CAP_PERFMON")]).is_empty() {
        true => "it does not bind this user, who has CAP_PERFMON",
        false => "it need not be changed: CAP_PERFMON, which this user lacks, goes beyond it",
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn sys_admin_covers_what_newer_capabilities_split_off() {
        let state = |has| of_capabilities(has).state;
        let admin = CapabilitySet::SYS_ADMIN;
        let two = CapabilitySet::BPF | CapabilitySet::PERFMON;
        let rest = CapabilitySet::SYS_PTRACE | CapabilitySet::SYSLOG;
        assert_eq!(state(admin | rest), State::Ok);
        assert_eq!(state(admin), State::Degraded);
        assert_eq!(state(two), State::Degraded);
        assert_eq!(state(two | rest), State::Ok);
        assert_eq!(state(CapabilitySet::empty()), State::Missing);
    }

    /// Who lacks the capability is not told that the setting does not bind them.
    #[test]
    fn what_paranoid_means_depends_on_the_user() {
        let told = of_paranoid(CapabilitySet::empty());
        assert!(told.contains("which this user lacks"), "{told}");
        for has in [CapabilitySet::PERFMON, CapabilitySet::SYS_ADMIN] {
            let told = of_paranoid(has);
            assert!(told.contains("who has CAP_PERFMON"), "{told}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let found = |has| of_capabilities(has).found;
        let none = found(CapabilitySet::empty());
        assert!(none.contains("CAP_BPF and CAP_PERFMON"), "{none}");
        let one = found(CapabilitySet::BPF);
        assert!(one.contains("missing CAP_PERFMON ("), "{one}");
        let two = found(CapabilitySet::BPF | CapabilitySet::PERFMON);
        assert!(
            two.contains("CAP_SYS_PTRACE") && two.contains("CAP_SYSLOG"),
            "{two}"
        );
    }
}
