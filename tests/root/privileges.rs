//! What it takes to record, what is said without it, and what is left without parts of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::restore::Setting;
use crate::common::workload::BURN_C;
use crate::common::{Bench, HZ, PROFILER, Running};

/// `profiler` as a user who is nobody, with these capabilities and no others.
fn as_nobody(bench: &Bench, capabilities: &[&str]) -> Command {
    let dir = bench.path("");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("a directory for all");
    // Where this clone is, nobody may have no access.
    let profiler = bench.path("profiler");
    fs::copy(PROFILER, &profiler).expect("a copy of the profiler");
    let set = capabilities
        .iter()
        .fold(String::from("-all"), |set, cap| format!("{set},+{cap}"));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    for option in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.arg(format!("{option}={set}"));
    }
    command.arg(profiler).current_dir(dir);
    command
}

/// A25: says which capability is missing, and leaves no file.
#[test]
fn a25_without_privileges_it_says_what_is_missing() {
    for (has, lacks) in [
        (&[][..], "CAP_BPF"),
        (&["bpf"], "CAP_PERFMON"),
        (&["perfmon"], "CAP_BPF"),
    ] {
        let bench = Bench::new();
        let mut command = as_nobody(&bench, has);
        command
            .arg("record")
            .arg("-o")
            .arg(bench.capture())
            .args(["--", "touch", "ran"]);
        let recorded = Running::start_command(&bench, command).wait();
        assert_eq!(recorded.code(), 1, "{recorded:#?}");
        assert!(
            recorded.stderr.contains(lacks),
            "with {has:?}: {}",
            recorded.stderr
        );
        assert!(!recorded.capture.exists(), "a file is left");
        assert!(!bench.path("ran").exists(), "the command ran");
    }
}

/// CAP_BPF and CAP_PERFMON are enough for one's own processes.
#[test]
fn a25_two_capabilities_are_enough() {
    let bench = Bench::new();
    // Where nobody can run it.
    let burn = bench.path(BURN_C.name);
    fs::copy(BURN_C.build(), &burn).expect("a copy of the workload");
    let mut command = as_nobody(&bench, &["bpf", "perfmon"]);
    command
        .args(["record", "-F", &HZ.to_string(), "-o"])
        .arg(bench.capture());
    command.arg("--").arg(&burn).args(["4", "0.3"]);
    let recorded = Running::start_command(&bench, command).wait().ok();
    let folded = recorded.folded();
    recorded.truth().check_shares(&folded);
    recorded.truth().check_count(&folded);
}

/// A21: when the kernel hides its addresses even from root, that is said and no kernel name is made
/// up.
#[test]
fn a21_hidden_kernel_addresses() {
    let bench = Bench::new();
    let _hidden = Setting::set("/proc/sys/kernel/kptr_restrict", "2");
    let args = [
        "-F",
        "499",
        "--",
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1",
        "count=400000",
    ];
    let recorded = bench.record(&args).ok();
    assert!(
        recorded.stderr.contains("kptr_restrict"),
        "{}",
        recorded.stderr
    );
    let folded = recorded.folded();
    let in_kernel = folded.only(|s| s.frames.iter().any(|f| f.ends_with("_[k]")));
    in_kernel.check_least("kernel frames without a name", 1.0, |s| {
        s.frames
            .iter()
            .filter(|f| f.ends_with("_[k]"))
            .all(|f| f.starts_with("[kernel"))
    });
    assert!(
        folded.verdict.contains("kptr_restrict"),
        "the report says why\n{folded}"
    );
}
