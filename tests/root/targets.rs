//! Every kind of target, against workloads in C, C++ and Rust with 1 and 4 threads that know their
//! own shares.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::common::restore::Cgroup;
use crate::common::truth::check_count;
use crate::common::workload::{
    BURN_C, BURN_CPP, BURN_RUST, CREW, ONE_PIE, Outsider, QUICK, STORM, TWO_PIE,
};
use crate::common::{Attached, Bench, Folded, HZ, Program, Recorded, Running, Truth};

/// CPU seconds of one thread, so that 1 and 4 threads both give some thousand samples at most.
fn seconds_for(threads: u32) -> &'static str {
    if threads == 1 { "1.2" } else { "0.5" }
}

/// A waiting workload.
fn waiting(program: Program, threads: u32) -> Attached {
    let mut command = program.command();
    command.args([&threads.to_string(), seconds_for(threads)]);
    Attached::start(command)
}

/// Everything a recording of a `burn` must show: its shares, its count, its call chains.
fn check_burn(folded: &Folded, truth: &Truth, threads: u32) {
    truth.check_shares(folded);
    truth.check_count(folded);
    for (function, _) in &truth.functions {
        let samples = folded.only(|s| s.has(function));
        // Not all: a leaf hides its caller in its very first instructions.
        samples.check_least(&format!("{function} is called by drive"), 0.98, |s| {
            s.has_chain(&["drive", function])
        });
    }
    // One thread is main's; the others have their share under a root of their own.
    let mains = 1.0 / f64::from(threads);
    let hot = folded.only(|s| s.has("drive"));
    hot.check_share("the main thread", mains - 0.1..=mains + 0.1, |s| {
        s.frames.iter().any(|f| f == "main")
    });
    hot.check_least("frames have names", 0.98, |s| {
        !s.user().any(|f| f.starts_with("[burn"))
    });
    folded.check_none("another process in the recording", |s| {
        s.has("outsider_spin")
    });
}

fn check_launched(program: Program, threads: u32) {
    let bench = Bench::new();
    let _outsider = Outsider::start();
    let path = program.build();
    let path = path.to_str().expect("the path is UTF-8");
    let recorded = bench
        .record_command(&[path, &threads.to_string(), seconds_for(threads)])
        .ok();
    let folded = recorded.folded();
    check_burn(&folded, &recorded.truth(), threads);
    folded.check_none("the launcher itself", |s| s.comm != program.name);
}

fn check_attached(program: Program, threads: u32) {
    let bench = Bench::new();
    let _outsider = Outsider::start();
    let workload = waiting(program, threads);
    let pid = workload.pid();
    let (recorded, truth) = bench.record_attached(workload, &["-p", &pid.to_string()]);
    let folded = recorded.ok().folded();
    check_burn(&folded, &truth, threads);
    folded.check_none("another process", |s| s.pid != pid);
}

#[test]
fn command_in_c_with_one_thread() {
    check_launched(BURN_C, 1);
}

#[test]
fn command_in_c_with_four_threads() {
    check_launched(BURN_C, 4);
}

#[test]
fn command_in_cpp_with_one_thread() {
    check_launched(BURN_CPP, 1);
}

#[test]
fn command_in_cpp_with_four_threads() {
    check_launched(BURN_CPP, 4);
}

#[test]
fn command_in_rust_with_one_thread() {
    check_launched(BURN_RUST, 1);
}

#[test]
fn command_in_rust_with_four_threads() {
    check_launched(BURN_RUST, 4);
}

#[test]
fn pid_in_c_with_four_threads() {
    check_attached(BURN_C, 4);
}

#[test]
fn pid_in_cpp_with_one_thread() {
    check_attached(BURN_CPP, 1);
}

#[test]
fn pid_in_rust_with_four_threads() {
    check_attached(BURN_RUST, 4);
}

#[test]
fn two_pids_each_with_its_own_truth() {
    let bench = Bench::new();
    let _outsider = Outsider::start();
    let (first, second) = (waiting(BURN_C, 1), waiting(BURN_CPP, 1));
    let pids = format!("{},{}", first.pid(), second.pid());
    let running = Running::start_sampling(&bench, &["-F", &HZ.to_string(), "-p", &pids]);
    let mut second = second;
    second.release();
    let first_truth = first.go();
    let second_pid = second.pid();
    drop(second);
    let folded = running.interrupt().ok().folded();
    let first_samples = folded.only(|s| s.pid != second_pid);
    first_truth.check_shares(&first_samples);
    first_truth.check_count(&first_samples);
    folded
        .only(|s| s.pid == second_pid)
        .check_least("the second process", 0.9, |s| s.has("drive"));
    folded.check_none("another process", |s| s.has("outsider_spin"));
}

/// `-p` covers children; `--no-inherit` leaves them out and keeps threads that start later.
#[test]
fn children_of_a_pid_unless_told_otherwise() {
    for inherit in [true, false] {
        let bench = Bench::new();
        let mut command = CREW.command();
        command.arg("0.2");
        let workload = Attached::start(command);
        let mut args = vec!["-p".to_owned(), workload.pid_arg()];
        if !inherit {
            args.push("--no-inherit".to_owned());
        }
        let (recorded, mut truth) = bench.record_attached(workload, &args);
        let folded = recorded.ok().folded();
        if !inherit {
            folded.check_none("a child with --no-inherit", |s| s.has("child_spin"));
            truth.functions.retain(|(name, _)| name != "child_spin");
        }
        truth.check_shares(&folded);
        check_count(&folded, f64::from(HZ), truth.sum());
    }
}

/// `-t` samples the threads named and no other thread of their process.
#[test]
fn threads_by_their_id() {
    for comms in [&["w2"][..], &["w1", "w3"]] {
        let bench = Bench::new();
        let mut command = CREW.command();
        command.arg("0.3");
        let workload = Attached::start(command);
        let tids: Vec<String> = comms
            .iter()
            .flat_map(|comm| workload.tids(comm))
            .map(|t| t.to_string())
            .collect();
        assert_eq!(tids.len(), comms.len(), "threads {comms:?} of the workload");
        let (recorded, mut truth) = bench.record_attached(workload, &["-t", &tids.join(",")]);
        let folded = recorded.ok().folded();
        let wanted: Vec<String> = comms
            .iter()
            .map(|comm| comm.replace('w', "before_"))
            .collect();
        truth.functions.retain(|(name, _)| wanted.contains(name));
        folded.check_least("the threads named", 0.93, |s| {
            wanted.iter().any(|f| s.has(f))
        });
        folded.check_none("another thread", |s| {
            s.has("before_4") || s.has("after_1") || s.has("child_spin")
        });
        check_count(&folded, f64::from(HZ), truth.sum());
    }
}

/// A process group takes its children in, however short they live, and nobody else.
#[test]
fn process_group() {
    let bench = Bench::new();
    let _outsider = Outsider::start();
    let mut command = BURN_C.command();
    command.args(["4", "0.4"]).process_group(0);
    let workload = Attached::start(command);
    let pgrp = workload.pid_arg();
    let (recorded, truth) = bench.record_attached(workload, &["--pgrp", &pgrp]);
    check_burn(&recorded.ok().folded(), &truth, 4);

    let mut command = STORM.command();
    command
        .args(["2", "60"])
        .arg(QUICK.build())
        .arg("0.01")
        .process_group(0);
    let workload = Attached::start(command);
    let pgrp = workload.pid_arg();
    let (recorded, truth) = bench.record_attached(workload, &["--pgrp", &pgrp]);
    check_storm(&recorded.ok(), &truth);
}

#[test]
fn session() {
    let bench = Bench::new();
    let _outsider = Outsider::start();
    let workload = Attached::start(in_new_session({
        let mut command = BURN_RUST.command();
        command.args(["1", "0.8"]);
        command
    }));
    let session = workload.pid_arg();
    let (recorded, truth) = bench.record_attached(workload, &["--session", &session]);
    check_burn(&recorded.ok().folded(), &truth, 1);

    let workload = Attached::start(in_new_session({
        let mut command = STORM.command();
        command.args(["2", "60"]).arg(QUICK.build()).arg("0.01");
        command
    }));
    let session = workload.pid_arg();
    let (recorded, truth) = bench.record_attached(workload, &["--session", &session]);
    check_storm(&recorded.ok(), &truth);
}

fn in_new_session(mut command: Command) -> Command {
    // SAFETY: setsid is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    command
}

/// The children of a storm are there in proportion to their CPU time, and all named.
fn check_storm(recorded: &Recorded, truth: &Truth) {
    let folded = recorded.folded();
    folded.check_none("another process", |s| s.has("outsider_spin"));
    let children = folded.only(|s| s.comm == QUICK.name);
    let (seen, expected) = (children.total() as f64, truth.children * f64::from(HZ));
    assert!(
        seen >= 0.8 * expected,
        "{seen} samples of the children, their CPU time makes {expected:.0}\n{folded}"
    );
    children.check_least("the children's own function", 0.7, |s| s.has("quick_spin"));
}

/// A cgroup covers the groups below it and nothing beside it; named by its directory or as
/// /proc/PID/cgroup does.
#[test]
fn cgroup_with_its_descendants() {
    for (by_directory, in_child) in [(true, false), (true, true), (false, true)] {
        let bench = Bench::new();
        let _outsider = Outsider::start();
        let group = Cgroup::create();
        let workload = waiting(BURN_C, 4);
        Cgroup::move_into(
            &if in_child {
                group.child()
            } else {
                group.path.clone()
            },
            workload.pid(),
        );
        let name = if by_directory {
            group.path.to_str().expect("UTF-8")
        } else {
            &group.name
        };
        let (recorded, truth) = bench.record_attached(workload, &["--cgroup", name]);
        check_burn(&recorded.ok().folded(), &truth, 4);
    }
}

/// The group above is not part of the group below.
#[test]
fn cgroup_leaves_its_parent_out() {
    let bench = Bench::new();
    let group = Cgroup::create();
    let outsider = Outsider::start();
    Cgroup::move_into(&group.path, outsider.pid());
    let workload = waiting(BURN_C, 1);
    Cgroup::move_into(&group.child(), workload.pid());
    let (recorded, truth) = bench.record_attached(
        workload,
        &["--cgroup", group.child().to_str().expect("UTF-8")],
    );
    check_burn(&recorded.ok().folded(), &truth, 1);
    drop(outsider);
}

#[test]
fn system_wide() {
    for threads in [1, 4] {
        let bench = Bench::new();
        let _outsider = Outsider::start();
        let workload = waiting(BURN_C, threads);
        let pid = workload.pid();
        let (recorded, truth) = bench.record_attached(workload, &["-a"]);
        let folded = recorded.ok().folded();
        let own = folded.only(|s| s.pid == pid);
        check_burn(&own, &truth, threads);
        let others = folded.count(|s| s.has("outsider_spin"));
        assert!(
            others >= 100,
            "{others} samples of another process that always runs\n{folded}"
        );
    }
}

/// With no target at all: the whole system, until `-d` is over.
#[test]
fn no_target_means_system_wide() {
    let bench = Bench::new();
    let _outsider = Outsider::start();
    let recorded = bench.record(&["-F", "499", "-d", "800ms"]).ok();
    let folded = recorded.folded();
    let burner = folded.count(|s| s.has("outsider_spin")) as f64;
    // It has one of the CPUs nearly to itself, unless the machine is busy with other things.
    assert!(
        burner >= 0.25 * 0.8 * 499.0,
        "{burner} samples of a process that always runs\n{folded}"
    );
    assert!(
        burner <= 1.1 * 1.0 * 499.0,
        "{burner} samples of one thread in 0.8 s at 499 Hz\n{folded}"
    );
}

/// What cannot be a target is refused by name, with exit status 1 or (usage) 2, and leaves no file.
#[test]
fn targets_that_are_none() {
    let bench = Bench::new();
    let absent = "4194303"; // the largest PID there can be; in use only on a machine with four million threads
    let cases: &[(&[&str], i32, &str)] = &[
        (&["-p", absent], 1, absent),
        (&["-t", absent], 1, absent),
        (&["--pgrp", absent], 1, absent),
        (&["--session", absent], 1, absent),
        (&["--cgroup", "/no/such/group"], 1, "/no/such/group"),
        (&["--cgroup", "/tmp"], 1, "/tmp"),
        (&["-p", "0"], 2, "0"),
        (&["-p", "x1"], 2, "x1"),
        (&["-p", "-5"], 2, "-5"),
        (&["-p", "1", "-a"], 2, "-a"),
        (&["-p", "1", "--", "true"], 2, "-p"),
        (&["--pgrp", "1", "--session", "1"], 2, "--session"),
    ];
    for (args, code, named) in cases {
        let mut all = vec!["-d", "300ms"];
        all.extend_from_slice(args);
        let recorded = bench.record(&all);
        assert_eq!(recorded.code(), *code, "{args:?}\n{recorded:#?}");
        assert!(
            recorded.stderr.contains(named),
            "{args:?}: the message does not name {named}\n{recorded:#?}"
        );
        assert!(!recorded.capture.exists(), "{args:?} left a file");
    }
}

/// Of a list of processes or threads some may have ended: they are named, and the others are sampled.
#[test]
fn some_of_a_list_have_ended() {
    let dead = {
        let mut child = Command::new("true").spawn().expect("a process");
        child.wait().expect("its end");
        child.id()
    };
    for (option, what) in [("-p", "process"), ("-t", "thread")] {
        let bench = Bench::new();
        let workload = waiting(BURN_C, 1);
        let list = format!("{dead},{}", workload.pid());
        let (recorded, truth) = bench.record_attached(workload, &[option, &list]);
        let recorded = recorded.ok();
        let folded = recorded.folded();
        truth.check_count(&folded);
        let told = format!("there is no {what} {dead}");
        for said in [&recorded.stderr, &folded.verdict] {
            assert!(said.contains(&told), "{said}");
        }

        let recorded = bench.record(&[option, &dead.to_string()]);
        assert_eq!(recorded.code(), 1, "{recorded:#?}");
        assert!(recorded.stderr.contains(&told), "{recorded:#?}");
    }
}

/// The kernel takes the event from a thread that starts a set-uid program; it gets another, and what lies between is told.
#[test]
fn a_thread_that_starts_a_set_uid_program() {
    let bench = Bench::new();
    let path = bench.path(TWO_PIE.name);
    fs::copy(TWO_PIE.build(), &path).expect("a copy of the program");
    chown(&path, Some(65534), None).expect("another owner");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("set-uid");
    let mut command = ONE_PIE.command();
    command.arg("0.4").arg(&path).arg("0.8");
    let workload = Attached::start(command);
    let tid = workload.pid_arg();
    let (recorded, truth) = bench.record_attached(workload, &["-t", &tid]);
    let recorded = recorded.ok();
    let folded = recorded.folded();
    let seen = |name: &str| folded.count(|s| s.has(name)) as f64 / f64::from(HZ);
    let (one, two) = (seen("one_spin"), seen("two_spin"));
    let (one_true, two_true) = (truth.of("one_spin"), truth.of("two_spin"));
    assert!(
        (0.9..=1.1).contains(&(one / one_true)),
        "{one} of {one_true}\n{folded}"
    );
    assert!(
        (two_true - 0.35..=1.1 * two_true).contains(&two),
        "{two} of {two_true}\n{folded}"
    );
    let told = "threads not sampled at once when they started a set-uid program 1";
    assert!(folded.verdict.contains(told), "{folded}");
}
