//! A03: code in anonymous memory, which no file explains.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::workload::JIT;
use crate::common::{Attached, Bench, PROFILER, Running};

/// Ten seconds of it at 999 Hz, the same code, ever more of it, or moved where no event tells of it, make the recorder read the process's mappings a few dozen times at most.
#[test]
fn a03_anonymous_code_is_not_looked_up_again_and_again() {
    // Of 10 s. Two to begin with (attach), then one in 5 s.
    const MOST: usize = 40;
    for how in [None, Some("--more"), Some("--move")] {
        let bench = Bench::new();
        let mut command = JIT.command();
        command.arg("10").args(how);
        let workload = Attached::start(command);
        let pid = workload.pid();
        let trace = bench.path("trace");
        let mut strace = Command::new("strace");
        // With -D the tracer is a grandchild, so that signals go to the recorder.
        strace.args(["-D", "-f", "--seccomp-bpf", "-e", "trace=open,openat", "-o"]);
        strace.arg(&trace).arg(PROFILER);
        strace.args(["record", "-F", "999", "-p", &pid.to_string(), "-o"]);
        strace.arg(bench.capture());
        let running = Running::start_command_sampling(&bench, strace);
        let truth = workload.go();
        let recorded = running.interrupt().ok();

        let opened = opened_files(&trace);
        let maps = format!("/proc/{pid}/maps");
        let reads = opened.lines().filter(|line| line.contains(&maps)).count();
        assert!(
            (1..=MOST).contains(&reads),
            "{reads} readings of {maps} ({how:?})"
        );

        let folded = recorded.folded();
        let (seen, expected) = (folded.total() as f64, 999.0 * truth.cpu);
        assert!(
            (0.9..=1.1).contains(&(seen / expected)),
            "{seen} samples, {expected:.0} by CPU time\n{folded}"
        );
        // What was moved since the last look is in nothing known.
        let (label, reason) = match how {
            Some("--move") => ("[unknown]", "not mapped"),
            _ => ("[anon]", "anonymous"),
        };
        // Making and moving areas takes time too.
        let least = if how.is_some() { 0.7 } else { 0.95 };
        folded.check_least(label, least, |s| s.user_leaf() == Some(label));
        let counted = folded
            .verdict
            .lines()
            .any(|line| line.contains("frames without a name") && line.contains(reason));
        assert!(counted, "no {reason:?}\n{folded}");
        let areas = truth.words("areas ");
        assert!(
            how.is_none() || areas.first().is_some_and(|n| n.len() > 3),
            "the workload made {areas:?} areas"
        );
        println!("{reads} readings ({how:?})");
    }
}

/// What `strace` wrote, once it has seen the end.
fn opened_files(trace: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = fs::read_to_string(trace).unwrap_or_default();
        if text
            .lines()
            .last()
            .is_some_and(|line| line.contains("+++ exited"))
        {
            return text;
        }
        assert!(Instant::now() < deadline, "strace does not end:\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}
