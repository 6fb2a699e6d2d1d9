//! Who was it: reused PIDs, exec, libraries that come and go. A name of the wrong program is the
//! worst a profiler can do.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::truth::check_count;
use crate::common::workload::{
    BLUE, CHURN, HOST, NO_BUILD_ID, NO_BUILD_ID_EITHER, ONE, ONE_PIE, QUICK, RED, REUSE, TWO,
    TWO_PIE,
};
use crate::common::{Attached, Bench, Folded, HZ, Program, Recorded, Running, Truth};

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// No stack of one program holds the other's function, and none holds both.
fn check_apart(folded: &Folded, one: Program, two: Program) {
    folded.check_none("a name of another program", |s| {
        (s.comm == one.name && s.has("two_spin")) || (s.comm == two.name && s.has("one_spin"))
    });
    folded.check_none("names of both programs in one stack", |s| {
        s.has("one_spin") && s.has("two_spin")
    });
}

/// A01: programs of the same layout under one PID, one after the other, three rounds.
#[test]
fn a01_a_reused_pid_is_another_process() {
    for (one, two) in [(ONE, TWO), (ONE_PIE, TWO_PIE)] {
        let bench = Bench::new();
        let (reuse, one_path, two_path) = (REUSE.build(), one.build(), two.build());
        let command = [text(&reuse), "3", "0.25", text(&one_path), text(&two_path)];
        let recorded = bench.record_command(&command).ok();
        let (folded, truth) = (recorded.folded(), recorded.truth());
        let children = folded.only(|s| s.comm == one.name || s.comm == two.name);
        children.check_share("one_spin", 0.4..=0.6, |s| s.has("one_spin"));
        children.check_share("two_spin", 0.4..=0.6, |s| s.has("two_spin"));
        check_apart(&folded, one, two);

        let pid: u32 = truth.words("pid ")[0]
            .parse()
            .expect("the workload prints its children's PID");
        children.check_none("a PID that was never used", |s| s.pid != pid);
        check_process_count(&recorded);
    }
}

/// A01 without exec: the image stays, the process does not.
#[test]
fn a01_a_reused_pid_without_exec() {
    let bench = Bench::new();
    let recorded = bench
        .record_command(&[text(&REUSE.build()), "3", "0.2", "--no-exec"])
        .ok();
    let (folded, truth) = (recorded.folded(), recorded.truth());
    truth.check_shares(&folded);
    check_process_count(&recorded);
}

/// Six children of one PID are six; their parent sleeps and may have no sample.
fn check_process_count(recorded: &Recorded) {
    let seen = recorded.summary_number("process");
    assert!(
        (6..=7).contains(&seen),
        "{seen} processes\n{}",
        recorded.stderr
    );
}

/// A01 seen by a system-wide recording, which knows the processes only from the kernel's events.
#[test]
fn a01_a_reused_pid_system_wide() {
    let bench = Bench::new();
    let mut command = REUSE.command();
    command.args(["5", "0.1"]).arg(ONE.build()).arg(TWO.build());
    let (recorded, _) = bench.record_attached(Attached::start(command), &["-a"]);
    let folded = recorded.ok().folded();
    check_apart(&folded, ONE, TWO);
    let children = folded.only(|s| s.comm == ONE.name || s.comm == TWO.name);
    children.check_share("one_spin", 0.4..=0.6, |s| s.has("one_spin"));
    children.check_share("two_spin", 0.4..=0.6, |s| s.has("two_spin"));
}

/// A02: fork and exec from a shell that burns itself before.
#[test]
fn a02_exec_from_a_shell() {
    for program in [ONE, ONE_PIE] {
        let bench = Bench::new();
        let script = format!(
            "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; exec {} 0.8",
            text(&program.build())
        );
        let folded = bench.record_command(&["sh", "-c", &script]).ok().folded();
        folded.check_least("the program's function", 0.4, |s| {
            s.comm == program.name && s.has("one_spin")
        });
        folded.check_least("the shell", 0.02, |s| s.comm == "sh");
        folded.check_none("the program's function in the shell", |s| {
            s.comm == "sh" && s.has("one_spin")
        });
        let own = folded.only(|s| s.comm == program.name);
        own.check_least("frames of the program", 0.97, |s| {
            s.has("one_spin") || !s.user().any(|f| f.starts_with('['))
        });
        let shells = |f: &str| f.contains("dash") || f.contains("[sh+");
        own.check_none("the shell's frames in the program", |s| {
            s.user().any(shells)
        });
    }
}

/// A02: one process becomes another program of the very same layout again and again.
#[test]
fn a02_a_chain_of_execs() {
    for (one, two) in [(ONE, TWO), (ONE_PIE, TWO_PIE)] {
        let bench = Bench::new();
        let (one_path, two_path) = (one.build(), two.build());
        let mut chain: Vec<&str> = Vec::new();
        for _ in 0..40 {
            chain.extend([text(&one_path), "0.02", text(&two_path), "0.02"]);
        }
        let recorded = bench.record_command(&chain).ok();
        let (folded, truth) = (recorded.folded(), recorded.truth());
        check_apart(&folded, one, two);
        truth.check_shares(&folded);
        truth.check_count(&folded);
        assert_eq!(
            recorded.summary_number("process"),
            1,
            "exec makes no process\n{}",
            recorded.stderr
        );
    }
}

/// A02: the same program again; with PIE its addresses are others each time.
#[test]
fn a02_the_same_program_again() {
    let bench = Bench::new();
    let one = ONE_PIE.build();
    let chain: Vec<&str> = [text(&one), "0.05"].repeat(16);
    let recorded = bench.record_command(&chain).ok();
    let folded = recorded.folded();
    folded.check_least("one_spin", 0.9, |s| s.has_chain(&["main", "one_spin"]));
    // A sample in a stub of the procedure linkage table has none.
    folded
        .only(|s| s.has("main"))
        .check_least("all addresses with names", 0.98, |s| !s.has_unnamed());
}

/// A02: execve by a thread that is not the first; the process keeps its number and loses its other
/// threads.
#[test]
fn a02_exec_from_a_thread() {
    let bench = Bench::new();
    let (one, two) = (ONE_PIE.build(), TWO_PIE.build());
    let command = [text(&one), "0.4", "--from-thread", text(&two), "0.5"];
    let recorded = bench.record_command(&command).ok();
    let (folded, truth) = (recorded.folded(), recorded.truth());
    check_apart(&folded, ONE_PIE, TWO_PIE);
    let before = folded.count(|s| s.has("one_spin")) as f64;
    let after = folded.count(|s| s.has("two_spin")) as f64;
    let hz = f64::from(crate::common::HZ);
    // `truth` of the first image lacks what its first thread did while the other one came up: at
    // least is all it says.
    assert!(
        before >= 0.9 * truth.of("one_spin") * hz,
        "one_spin: {before} samples\n{folded}"
    );
    assert!(
        (0.9..=1.1).contains(&(after / (truth.of("two_spin") * hz))),
        "two_spin: {after} samples\n{folded}"
    );
    folded.check_none("more than one process", |s| s.pid != folded.stacks[0].pid);
}

/// A02 for a process that already runs when the recorder comes.
#[test]
fn a02_exec_after_the_attach() {
    let bench = Bench::new();
    let mut command = ONE_PIE.command();
    command
        .args(["0.4"])
        .arg(TWO.build())
        .arg("0.4")
        .arg(ONE.build())
        .arg("0.4");
    let workload = Attached::start(command);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, truth) = bench.record_attached(workload, &args);
    let folded = recorded.ok().folded();
    folded.check_none("a name of another program", |s| {
        (s.comm == TWO.name) != s.has("two_spin") && (s.has("one_spin") || s.has("two_spin"))
    });
    truth.check_shares(&folded);
}

/// A03: a library loaded after the recorder came.
#[test]
fn a03_a_library_loaded_later() {
    let bench = Bench::new();
    let mut command = HOST.command();
    command.arg("1").arg(RED.build());
    let workload = Attached::start(command);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, _) = bench.record_attached(workload, &args);
    let folded = recorded.ok().folded();
    folded.check_least("red_spin", 0.8, |s| {
        s.has_chain(&["load_and_run", "red_spin"])
    });
}

/// A03: one library after the other at the same address, for a command and for a process that was
/// there before.
#[test]
fn a03_another_library_at_the_same_address() {
    for attached in [false, true] {
        let bench = Bench::new();
        let (red, blue) = (RED.build(), BLUE.build());
        // Unequal shares: a name given to the wrong library shows.
        let order = [&red, &blue, &red, &red, &blue, &red, &red];
        let (recorded, truth) = if attached {
            let mut command = HOST.command();
            command.arg("0.2").args(order);
            let workload = Attached::start(command);
            let args = ["-p".to_owned(), workload.pid_arg()];
            bench.record_attached(workload, &args)
        } else {
            let host = HOST.build();
            let mut command = vec![text(&host), "0.2"];
            command.extend(order.map(|p| text(p)));
            let recorded = bench.record_command(&command);
            let truth = recorded.truth();
            (recorded, truth)
        };
        check_same_address(&truth);
        let folded = recorded.ok().folded();
        truth.check_shares(&folded);
        folded.check_least("a library's function", 0.95, |s| {
            s.has("red_spin") || s.has("blue_spin")
        });
        folded.check_none("both libraries in one stack", |s| {
            s.has("red_spin") && s.has("blue_spin")
        });
    }
}

/// The workload must have met the case, or the test tests nothing.
fn check_same_address(truth: &Truth) {
    let addresses = truth.words("address ");
    assert!(
        addresses.len() > 1 && addresses.iter().all(|a| *a == addresses[0]),
        "not one address: {addresses:?}"
    );
}

/// A file without a build ID is told by its inode, size and time. File systems give the inode of a removed file to the
/// next one, so what is found under a path after the process has ended may be somebody else.
#[test]
fn a_removed_program_is_not_taken_for_the_next_with_its_inode() {
    let bench = Bench::new();
    let (first, second) = (NO_BUILD_ID.build(), NO_BUILD_ID_EITHER.build());
    let place = bench.path("prog");
    let script = r#"for i in 1 2 3 4 5 6 7 8; do
        rm -f "$2"; cp -p "$0" "$2"; "$2" 0.02 >/dev/null; rm "$2"; cp -p "$1" "$2"; sleep 0.2
    done"#;
    let command = [
        "sh",
        "-c",
        script,
        text(&first),
        text(&second),
        text(&place),
    ];
    let folded = bench.record_command(&command).ok().folded();
    assert!(
        folded.count(|s| s.comm == "prog") >= 40,
        "too few samples\n{folded}"
    );
    folded.check_none("a program that never ran", |s| s.has("of_id_spin"));
}

/// Each child is forked on one CPU and becomes another program on the other: what the two tell of it comes from two rings.
#[test]
fn fork_on_one_cpu_and_exec_on_another() {
    let bench = Bench::new();
    let script =
        r#"i=0; while [ $i -lt 300 ]; do taskset -c 1 "$0" 0.006 >/dev/null; i=$((i+1)); done"#;
    let quick = QUICK.build();
    let command = [
        "-F",
        "4999",
        "--",
        "taskset",
        "-c",
        "0",
        "sh",
        "-c",
        script,
        text(&quick),
    ];
    let folded = bench.record(&command).ok().folded();
    let spun = folded.only(|s| s.has("quick_spin"));
    assert!(spun.count(|_| true) >= 300, "too few samples\n{folded}");
    spun.check_none("quick_spin under another name", |s| s.comm != QUICK.name);
    folded
        .only(|s| s.comm == QUICK.name)
        .check_none("a process without a program", |s| s.has("[unknown]"));
}

/// One PID for processes that follow each other within a clock tick.
#[test]
fn a_pid_reused_at_once_is_still_followed() {
    let bench = Bench::new();
    let recorded = bench
        .record_command(&[text(&REUSE.build()), "200", "0.004", "--no-exec"])
        .ok();
    let (folded, truth) = (recorded.folded(), recorded.truth());
    truth.check_shares(&folded);
    let spun = folded.only(|s| s.has("first_child") || s.has("second_child"));
    check_count(&spun, f64::from(HZ), truth.sum());
}

/// The recorder sleeps while the kernel tells of more mappings than there is room for, and in that time another library
/// comes to where one was. What was lost is told, names nothing wrong, and is known again as soon as the recorder looks.
#[test]
fn a03_a_library_replaced_while_records_are_lost() {
    let bench = Bench::new();
    let mut command = CHURN.command();
    command.arg(RED.build()).arg(BLUE.build());
    let mut workload = Attached::start(command);
    let pid = workload.pid_arg();
    let mut running = Running::start_sampling(&bench, &["-F", "997", "-p", &pid]);
    workload.release();
    workload.expect("step");
    // What was told is taken by then.
    thread::sleep(Duration::from_millis(400));
    running.signal(libc::SIGSTOP);
    workload.release();
    workload.expect("step");
    running.signal(libc::SIGCONT);
    // A recorder that is not optimized needs half a second for all that has come.
    thread::sleep(Duration::from_millis(1500));
    let truth = workload.go();
    let recorded = running.interrupt().ok();
    let folded = recorded.folded();

    let place = |name: &str| truth.words(&format!("address {name}"))[0].to_owned();
    assert_eq!(place("red_spin"), place("blue_spin"), "not the same place");
    for said in [&recorded.stderr, &folded.verdict] {
        assert!(said.contains("process events lost"), "{said}");
    }
    let seen = |name: &str| folded.count(|s| s.has(name)) as f64 / f64::from(HZ);
    let (red, blue) = (seen("red_spin"), seen("blue_spin"));
    assert!(
        (0.9..=1.1).contains(&(red / truth.of("red_spin"))),
        "red_spin {red:.3} s, {:.3} true\n{folded}",
        truth.of("red_spin")
    );
    // 0.3 s of it were burnt while nobody looked.
    assert!(
        (0.65..=1.2).contains(&blue),
        "blue_spin {blue:.3} s, {:.3} true\n{folded}",
        truth.of("blue_spin")
    );
    folded.check_none("both", |s| s.has("red_spin") && s.has("blue_spin"));
    truth.check_count(&folded);
}
