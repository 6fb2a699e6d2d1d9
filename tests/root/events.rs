//! Events, rates and periods; idle CPUs.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::restore::Setting;
use crate::common::truth::check_count;
use crate::common::workload::{BURN_C, FLOOD};
use crate::common::{Attached, Bench, Recorded, Running, Stack};

fn online_cpus() -> usize {
    thread::available_parallelism()
        .expect("a number of CPUs")
        .get()
}

/// Records `burn 1 SECONDS` with options of `record` in front.
fn record_burn(bench: &Bench, options: &[&str], seconds: &str) -> Recorded {
    let burn = BURN_C.build();
    let mut args = options.to_vec();
    args.extend(["--", burn.to_str().expect("UTF-8"), "1", seconds]);
    bench.record(&args)
}

/// A24: without a PMU the default event is cpu-clock, and both halves say so.
#[test]
fn a24_the_event_is_named() {
    let bench = Bench::new();
    let cycles = fs::exists("/sys/bus/event_source/devices/cpu").expect("sysfs is mounted");
    let expected = if cycles { "cycles" } else { "cpu-clock" };
    let recorded = record_burn(&bench, &[], "1.0").ok();
    assert!(recorded.stderr.contains(expected), "{}", recorded.stderr);
    let folded = recorded.folded();
    assert!(folded.verdict.contains(expected), "{folded}");
    // 99 Hz unless told otherwise.
    check_count(&folded, 99.0, recorded.truth().cpu);

    for option in [&["-e", "cpu-clock"][..], &["--sw-event"]] {
        let mut options = vec!["-F", "499"];
        options.extend(option);
        let recorded = record_burn(&bench, &options, "0.6").ok();
        let folded = recorded.folded();
        assert!(folded.verdict.contains("cpu-clock"), "{folded}");
        check_count(&folded, 499.0, recorded.truth().cpu);
    }
}

/// A24: a rate above the kernel's limit is lowered, and the message names both.
#[test]
fn a24_a_rate_above_the_limit() {
    let bench = Bench::new();
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").expect("a limit");
    let limit = limit.trim();
    // At such a rate copies of stacks fill the rings before an unoptimized recorder has its first turn.
    let options = ["-F", "200000", "--unwind", "fp"];
    let recorded = record_burn(&bench, &options, "0.5").ok();
    assert!(
        recorded.stderr.contains("200000") && recorded.stderr.contains(limit),
        "{}",
        recorded.stderr
    );
    let folded = recorded.folded();
    // The kernel throttles, and nobody has much of a turn: how many are kept is luck.
    assert!(
        folded.total() > 100,
        "{} samples in 0.5 s\n{folded}",
        folded.total()
    );
    assert!(folded.verdict.contains(limit), "the rate used\n{folded}");
}

/// A24: a limit lowered by the administrator counts, not the usual one.
#[test]
fn a24_a_lowered_limit() {
    let bench = Bench::new();
    let _limit = Setting::set("/proc/sys/kernel/perf_event_max_sample_rate", "500");
    let recorded = record_burn(&bench, &["-F", "997"], "0.8").ok();
    assert!(
        recorded.stderr.contains("997") && recorded.stderr.contains("500"),
        "{}",
        recorded.stderr
    );
    // At its limit the kernel leaves out some samples besides (it throttles by ticks).
    let (folded, cpu) = (recorded.folded(), recorded.truth().cpu);
    let share = folded.total() as f64 / (500.0 * cpu);
    assert!(
        (0.5..=1.1).contains(&share),
        "{share:.3} of what 500 Hz make\n{folded}"
    );
}

/// `-c`: a sample each so many nanoseconds of cpu-clock.
#[test]
fn a_period_instead_of_a_rate() {
    let bench = Bench::new();
    let recorded = record_burn(&bench, &["-e", "cpu-clock", "-c", "2500000"], "1.0").ok();
    let folded = recorded.folded();
    check_count(&folded, 400.0, recorded.truth().cpu);
    assert!(
        folded.verdict.contains("2500000") || folded.verdict.contains("2,500,000"),
        "{folded}"
    );
}

/// Options that make no sense are usage errors by name, before anything is recorded.
#[test]
fn options_that_make_no_sense() {
    let bench = Bench::new();
    let cases: &[(&[&str], &str)] = &[
        (&["-F", "0"], "--frequency"),
        (&["-F", "-1"], "-1"),
        (&["-F", "many"], "many"),
        (&["-F", "99", "-c", "1000"], "--period"),
        (&["-c", "0"], "--period"),
        (&["-e", "no-such-event"], "no-such-event"),
        (&["-e", "cycles", "--sw-event"], "--sw-event"),
        (&["-d", "5 parsecs"], "5 parsecs"),
        (&["-d", "0"], "--duration"),
        (&["--ring-size", "3"], "--ring-size"),
        (&["--ring-size", "999T"], "999T"),
    ];
    for (options, named) in cases {
        let mut args = options.to_vec();
        args.extend(["--", "true"]);
        let recorded = bench.record(&args);
        assert_eq!(recorded.code(), 2, "{options:?}\n{recorded:#?}");
        assert!(
            recorded.stderr.contains(named),
            "{options:?}: no {named} in {}",
            recorded.stderr
        );
        assert!(!recorded.capture.exists(), "{options:?} left a file");
    }
}

/// `-d` ends a recording in time. A command that still runs then is neither sampled any longer nor
/// cut short.
#[test]
fn a_recording_has_an_end() {
    let bench = Bench::new();
    for args in [&["-d", "500ms", "-a"][..], &["-d", "0.5s", "-p", "1"]] {
        let start = Instant::now();
        let recorded = bench.record(args).ok();
        let took = start.elapsed();
        let range = Duration::from_millis(500)..Duration::from_secs(5);
        assert!(
            range.contains(&took),
            "{args:?} took {took:?}\n{recorded:#?}"
        );
    }
    let burn = BURN_C.build();
    let burn = burn.to_str().expect("UTF-8");
    let args = ["-F", "499", "-d", "0.5", "--", burn, "1", "1.5"];
    let recorded = bench.record(&args).ok();
    assert!(
        recorded.truth().cpu >= 1.5,
        "the command was cut short: {}",
        recorded.stdout
    );
    let seen = recorded.folded().total() as f64;
    assert!(
        (0.2..=1.1).contains(&(seen / (0.5 * 499.0))),
        "{seen} samples in half a second"
    );
}

/// A26: what a full ring loses is counted: samples and losses together are what the CPU time makes.
#[test]
fn a26_losses_are_counted() {
    const FAST: u32 = 4999;
    let bench = Bench::new();
    let mut command = BURN_C.command();
    command.args(["4", "0.6"]);
    let workload = Attached::start(command);
    let pid = workload.pid_arg();
    let rate = FAST.to_string();
    let mut running =
        Running::start_sampling(&bench, &["-F", &rate, "--ring-size", "64K", "-p", &pid]);
    // A recorder that cannot keep up: it sleeps until the work is done.
    running.signal(libc::SIGSTOP);
    let truth = workload.go();
    running.signal(libc::SIGCONT);
    let recorded = running.interrupt().ok();
    let folded = recorded.folded();
    let lost: u64 = recorded
        .stderr
        .split("lost ")
        .nth(1)
        .map(|rest| {
            rest.chars()
                .filter(|c| *c != ',')
                .take_while(char::is_ascii_digit)
                .collect()
        })
        .and_then(|digits: String| digits.parse().ok())
        .unwrap_or_else(|| panic!("no losses in the summary:\n{}", recorded.stderr));
    assert!(
        lost > 1000,
        "a ring of 64 KiB cannot hold this\n{}",
        recorded.stderr
    );
    let all = (folded.total() + lost) as f64 / (f64::from(FAST) * truth.cpu);
    assert!(
        (0.9..=1.1).contains(&all),
        "samples and losses are {all:.3} of what there was\n{folded}"
    );
    assert!(folded.verdict.contains("ring full"), "the cause\n{folded}");
}

/// A20: idle CPUs are not in the profile unless asked for; with `--idle` every tick of every CPU
/// is.
#[test]
fn a20_idle_is_left_out() {
    let bench = Bench::new();
    let swapper = |s: &Stack| s.pid == 0;

    let recorded = bench.record(&["-F", "199", "-d", "1.5", "-a"]).ok();
    let folded = recorded.folded();
    let idle = |f: &str| {
        f.contains("default_idle") || f.contains("do_idle") || f.contains("cpuidle_enter_state")
    };
    folded.check_none("the idle loop", |s| {
        swapper(s) && s.frames.last().is_some_and(|f| idle(f))
    });
    for kernel_thread in ["kthreadd", "kworker", "ksoftirqd", "rcu_"] {
        assert!(
            !recorded.stderr.contains(kernel_thread),
            "a complaint about a kernel thread\n{}",
            recorded.stderr
        );
    }

    let recorded = bench
        .record(&["-F", "199", "-d", "1.5", "-a", "--idle"])
        .ok();
    let folded = recorded.folded();
    folded.check_least("idle", 0.01, swapper);
    // Of one CPU at least: some virtual machines stop the timers of CPUs that idle.
    let (seen, one) = (folded.total() as f64, 199.0 * 1.5);
    let range = 0.9 * one..=1.15 * one * online_cpus() as f64;
    assert!(
        range.contains(&seen),
        "{seen} samples, {one} ticks of each CPU\n{folded}"
    );
}

/// A20: softirqs that the kernel handles on an idle CPU stay, though the task they interrupt is the
/// idle task.
#[test]
fn a20_softirqs_on_an_idle_cpu_stay() {
    if online_cpus() < 2 {
        panic!("this test needs two CPUs: one sends, the other handles");
    }
    let bench = Bench::new();
    let network = |s: &Stack| s.frames.iter().any(|f| f.contains("process_backlog"));
    let mut last = String::new();
    // On a machine with other work a CPU may not be idle at all for a while; and some virtual
    // machines stop the timer of an idle CPU altogether, seldom that of CPU 0.
    for (sender, handler) in [("1", "0"), ("0", "1")].into_iter().cycle().take(10) {
        // Receive packet steering, by a mask of CPUs: what loopback receives is handled there.
        let mask = if handler == "0" { "1" } else { "2" };
        let _steering = Setting::set("/sys/class/net/lo/queues/rx-0/rps_cpus", mask);
        let handler = format!("cpu{handler}");
        let idle_before = idle_ticks(&handler);
        let mut command = FLOOD.command();
        command.args(["0.6", sender]);
        let workload = Attached::start(command);
        let running = Running::start_sampling(&bench, &["-F", "997", "-a"]);
        workload.go();
        let folded = running.interrupt().ok().folded();
        let own = folded.only(|s| s.comm == FLOOD.name);
        own.check_least("sending", 0.5, |s| {
            s.frames.iter().any(|f| f.contains("sendto"))
        });
        if folded.count(|s| s.pid == 0 && network(s)) >= 15 {
            return;
        }
        let idle = idle_ticks(&handler) - idle_before;
        last = format!("{handler} was idle for {idle} ticks of 10 ms\n{folded}");
    }
    panic!("no network work on the idle task, or the machine is too busy to have any; {last}");
}

/// Clock ticks that a CPU has been idle since boot, from /proc/stat.
fn idle_ticks(cpu: &str) -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc is mounted");
    let line = stat
        .lines()
        .find(|line| line.split(' ').next() == Some(cpu));
    line.and_then(|line| line.split(' ').nth(4)?.parse().ok())
        .expect("/proc/stat has each CPU's idle time")
}
