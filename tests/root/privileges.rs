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

type Requirement = (String, String, String, String);

/// Exit code of `profiler doctor --json` and name, state, what was found and fix of each requirement.
fn doctor(mut command: Command) -> (Option<i32>, Vec<Requirement>) {
    let output = command.args(["doctor", "--json"]).output();
    let output = output.expect("it runs");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let requirements = report["requirements"].as_array().expect("a list");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let of = |r: &serde_json::Value| {
        let [what, state] = [&r["requirement"], &r["state"]].map(text);
        (what, state, text(&r["found"]), text(&r["fix"]))
    };
    let all: Vec<_> = requirements.iter().map(of).collect();
    let missing = all.iter().any(|(_, state, ..)| state == "missing");
    assert_eq!(report["works"], !missing);
    (output.status.code(), all)
}

/// The doctor says what would keep `record` from working, in the words of `record`, and that nothing would where nothing
/// does.
#[test]
fn a25_the_doctor_says_what_record_would() {
    let bench = Bench::new();
    let mut root = bench.profiler();
    root.current_dir(bench.path(""));
    let (code, all) = doctor(root);
    assert_eq!(code, Some(0), "{all:#?}");
    assert!(
        all.iter().all(|(_, state, ..)| state != "missing"),
        "{all:#?}"
    );
    let state_of = |all: &[Requirement], what: &str| {
        let found = all.iter().find(|(requirement, ..)| requirement == what);
        found
            .unwrap_or_else(|| panic!("nothing of {what}: {all:#?}"))
            .1
            .clone()
    };
    for what in [
        "kernel",
        "BTF",
        "capabilities",
        "BPF",
        "process events",
        "output",
    ] {
        assert_eq!(state_of(&all, what), "ok", "{what}");
    }
    // What depends on the machine is looked at all the same.
    for what in [
        "PID namespace",
        "time namespace",
        "perf_event_paranoid",
        "kptr_restrict",
        "PMU",
        "unwinding",
        "max sample rate",
        "max stack",
        "ring memory",
        "cgroup v2",
    ] {
        state_of(&all, what);
    }
    #[cfg(target_arch = "x86_64")]
    assert_eq!(state_of(&all, "unwinding"), "ok");
    assert!(!bench.path("run.bprof").exists(), "a file is left");

    // Enough for one's own processes: the rest is told.
    let (code, all) = doctor(as_nobody(&bench, &["bpf", "perfmon"]));
    assert_eq!(
        (code, state_of(&all, "capabilities").as_str()),
        (Some(0), "degraded"),
        "{all:#?}"
    );

    let (code, all) = doctor(as_nobody(&bench, &["bpf"]));
    assert_eq!(
        (code, state_of(&all, "capabilities").as_str()),
        (Some(1), "missing"),
        "{all:#?}"
    );
    let mut record = as_nobody(&bench, &["bpf"]);
    let refused = record
        .args(["record", "--", "true"])
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&refused.stderr);
    let (.., found, fix) = all
        .iter()
        .find(|(_, state, ..)| state == "missing")
        .expect("one");
    assert_eq!(told.trim(), format!("profiler: {found}: {fix}"));
}

/// Where the boot clock is not the kernel's, as after a container was moved from another machine, no process could be told by its start: that is
/// refused before anything runs. A namespace that only is another one is no obstacle.
#[test]
fn a_boot_clock_that_is_not_the_kernels_is_refused() {
    let bench = Bench::new();
    let with_offset = |seconds: &str| {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", seconds, "--fork"]);
        command.arg(PROFILER).current_dir(bench.path(""));
        command
    };
    let mut command = with_offset("86400");
    command.args(["record", "--", "touch", "ran"]);
    let refused = command.output().expect("unshare runs");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(
        told.contains("time namespace with a boot clock of its own"),
        "{told}"
    );
    assert!(!bench.path("run.bprof").exists() && !bench.path("ran").exists());
    let (code, all) = doctor(with_offset("86400"));
    let found = all.iter().find(|(what, ..)| what == "time namespace");
    let state = found.map(|(_, state, ..)| state.as_str());
    assert_eq!((code, state), (Some(1), Some("missing")));

    let mut command = with_offset("0");
    command
        .args(["record", "-F", "997", "-o"])
        .arg(bench.capture());
    command.arg("--").arg(BURN_C.build()).args(["2", "0.5"]);
    let recorded = Running::start_command(&bench, command).wait().ok();
    let folded = recorded.folded();
    recorded.truth().check_shares(&folded);
    recorded.truth().check_count(&folded);
}

/// Hidden kernel addresses are no obstacle, but told with what shows them.
#[test]
fn a21_the_doctor_says_that_kernel_addresses_are_hidden() {
    let bench = Bench::new();
    let _hidden = Setting::set("/proc/sys/kernel/kptr_restrict", "2");
    let mut command = bench.profiler();
    command.current_dir(bench.path(""));
    let (code, all) = doctor(command);
    let found = all.iter().find(|(what, ..)| what == "kptr_restrict");
    let (_, state, _, fix) = found.expect("it is looked at");
    assert_eq!((code, state.as_str()), (Some(0), "degraded"));
    assert_eq!(fix, "sudo sysctl -w kernel.kptr_restrict=1");
}

/// Root's recorder keeps what it needs to read what others do, and can change nothing any more: not what the kernel does,
/// and no file of another user. The command has what it would have had.
#[test]
fn what_is_not_needed_any_more_is_given_up() {
    let permitted = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
        u64::from_str_radix(mask.expect("CapPrm").trim(), 16).expect("a mask")
    };
    let bench = Bench::new();
    let shown = bench.path("shown");
    let script = format!("cat /proc/self/status >{}; exec sleep 30", shown.display());
    let mut running = Running::start_sampling(&bench, &["--", "sh", "-c", &script]);
    while fs::read_to_string(&shown).map_or(true, |text| !text.contains("CapPrm:")) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).expect("its threads");
    let masks: Vec<u64> = tasks
        .map(|task| {
            permitted(
                &fs::read_to_string(task.expect("a thread").path().join("status"))
                    .expect("a status"),
            )
        })
        .collect();
    // kill, dac_read_search, ipc_lock, sys_ptrace, syslog, perfmon, bpf, checkpoint_restore
    let needed = [5, 2, 14, 19, 34, 38, 39, 40]
        .iter()
        .fold(0, |mask, cap| mask | 1u64 << cap);
    let had = permitted(&fs::read_to_string("/proc/self/status").expect("own status"));
    assert!(!masks.is_empty());
    for mask in masks {
        assert_eq!(mask, needed & had, "{mask:x}");
    }
    assert_eq!(permitted(&fs::read_to_string(&shown).expect("a file")), had);
    running.signal(libc::SIGTERM);
    assert_eq!(running.wait().code(), 128 + libc::SIGTERM);
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

/// The profiler as nobody, with the two capabilities of its file and none of its caller's.
fn with_file_capabilities(bench: &Bench) -> Command {
    let command = as_nobody(bench, &[]);
    let set = Command::new("setcap")
        .arg("cap_bpf,cap_perfmon+ep")
        .arg(bench.path("profiler"))
        .status();
    assert!(set.expect("setcap starts").success(), "setcap failed");
    // All that a file can give, but nothing that it does not.
    let mut with = Command::new("setpriv");
    with.args(command.get_args().filter(|arg| {
        let arg = arg.to_string_lossy();
        !arg.starts_with("--bounding-set") && !arg.starts_with("--ambient-caps")
    }));
    with.current_dir(bench.path(""));
    with
}

/// A user who is not root, by both ways to two capabilities: shares and counts are as root's, nothing else is held while it
/// samples, and nothing is passed on.
#[test]
fn a25_a_user_with_file_or_ambient_capabilities_records() {
    for by_file in [true, false] {
        let bench = Bench::new();
        let burn = bench.path(BURN_C.name);
        fs::copy(BURN_C.build(), &burn).expect("a copy of the workload");
        let mut command = match by_file {
            true => with_file_capabilities(&bench),
            false => as_nobody(&bench, &["bpf", "perfmon"]),
        };
        command
            .args(["record", "-F", &HZ.to_string(), "-o"])
            .arg(bench.capture());
        command.arg("--").arg(&burn).args(["2", "0.8"]);
        let running = Running::start_command_sampling(&bench, command);
        let status = fs::read_to_string(format!("/proc/{}/status", running.pid()));
        let status = status.expect("the recorder runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {status}"))
                .trim()
                .to_owned()
        };
        let mask = |name: &str| u64::from_str_radix(&field(name), 16).expect("a mask");
        assert!(field("Uid:").starts_with("65534"), "{status}");
        let two = 1 << 38 | 1 << 39;
        let held = ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"].map(mask);
        assert_eq!(held, [two, two, 0, 0], "by file: {by_file}");
        let recorded = running.wait().ok();
        let folded = recorded.folded();
        recorded.truth().check_shares(&folded);
        recorded.truth().check_count(&folded);
    }
}

/// What a user without CAP_SYS_PTRACE and CAP_SYSLOG will not see is told in one line each, and kept in the capture.
#[test]
fn a25_what_is_not_permitted_is_told_once() {
    let bench = Bench::new();
    let _hidden = Setting::set("/proc/sys/kernel/kptr_restrict", "1");
    let mut command = as_nobody(&bench, &["bpf", "perfmon"]);
    command
        .args(["record", "-a", "-d", "0.5", "-o"])
        .arg(bench.capture());
    let recorded = Running::start_command(&bench, command).wait().ok();
    let verdict = recorded.folded().verdict;
    for capability in ["CAP_SYS_PTRACE", "CAP_SYSLOG"] {
        for (text, begins) in [(&recorded.stderr, "note: "), (&verdict, "# degraded: ")] {
            let lines = text.lines().filter(|line| line.contains(capability));
            let lines: Vec<_> = lines.collect();
            assert_eq!(lines.len(), 1, "{capability} in {text}");
            assert!(lines[0].starts_with(begins), "{}", lines[0]);
        }
    }
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
