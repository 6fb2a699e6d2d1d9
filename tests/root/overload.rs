//! More to record than the recorder can keep up with: what is kept and what is counted as lost is what there was.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bprof::capture::{LossTotals, Reader};
use bprof::event::LossClass;

use crate::common::restore::Setting;
use crate::common::workload::{BLUE, BURN_C, DEEP, HOST, ONE, QUICK, RED, STORM, TWO};
use crate::common::{Attached, Bench, PROFILER, Recorded, Running, Truth};

/// What a capture has.
#[derive(Default)]
struct Counts {
    /// Samples by weight.
    kept: u64,
    losses: LossTotals,
}

impl Counts {
    fn of(recorded: &Recorded) -> Counts {
        let reader = Reader::open(&recorded.capture).expect("a capture");
        let mut counts = Counts::default();
        for mut segment in reader.segments() {
            while let Some(frame) = segment.next_frame().expect("a whole frame") {
                counts.kept += frame.samples.iter().map(|s| s.weight).sum::<u64>();
            }
            counts.losses.merge(&segment.tables().losses);
        }
        counts
    }

    fn lost(&self, class: LossClass) -> u64 {
        self.losses.of_class(class)
    }

    /// Fails unless kept and lost samples together are what `cpu` seconds at `hz` make, within 5 %, and each lost one has
    /// its CPU.
    fn check(&self, hz: f64, cpu: f64, recorded: &Recorded) {
        let lost: Vec<_> = self
            .losses
            .iter()
            .filter(|l| l.class.is_lost_sample())
            .collect();
        assert!(
            lost.iter().all(|l| l.cpu.is_some()),
            "lost on no CPU: {lost:?}"
        );
        let kept = self.kept;
        let all = kept + self.losses.lost_samples();
        let share = all as f64 / (hz * cpu);
        assert!(
            (0.95..=1.05).contains(&share),
            "{kept} samples, lost {lost:?}: {share:.3} of {cpu:.3} CPU seconds at {hz} Hz\n{}",
            recorded.stderr
        );
    }
}

fn burn(threads: &str, seconds: &str) -> Attached {
    let mut command = BURN_C.command();
    command.args([threads, seconds]);
    Attached::start(command)
}

/// A26: a recorder that is stopped for six seconds. Its rings fill: first with whole stacks, then with short ones, then
/// samples are lost; each of these is told, and nothing else is missing.
#[test]
fn a26_the_recorder_is_stopped_for_six_seconds() {
    const HZ: u32 = 997;
    let bench = Bench::new();
    let workload = burn("2", "1.5");
    let pid = workload.pid_arg();
    let rate = HZ.to_string();
    let options = ["-F", &rate, "--ring-size", "64K", "-p", &pid];
    let mut running = Running::start_sampling(&bench, &options);
    let stopped = Instant::now();
    running.signal(libc::SIGSTOP);
    let work = thread::spawn(move || workload.go());
    thread::sleep(Duration::from_secs(6).saturating_sub(stopped.elapsed()));
    running.signal(libc::SIGCONT);
    let truth = work.join().expect("the workload ends");
    let recorded = running.interrupt().ok();
    let counts = Counts::of(&recorded);
    counts.check(HZ.into(), truth.cpu, &recorded);
    let full = counts.lost(LossClass::RingFull);
    assert!(
        full > 500,
        "64 KiB hold so much? {full} lost\n{recorded:#?}"
    );
    let verdict = recorded.folded().verdict;
    assert!(verdict.contains("ring full"), "{verdict}");
}

/// A26: while the recorder is stopped, processes come and go by the hundred and a library is replaced by another one at its address:
/// more than the kernel's own records have room for. Samples and losses are all there were, that process events are lost is told, and
/// nothing has the name of what was there before.
#[test]
fn a26_stopped_amid_a_fork_storm_and_libraries() {
    const HZ: u32 = 997;
    // Of each library call, in CPU seconds; red comes before the stop, mostly, and blue goes on after it.
    const EACH: &str = "0.05";
    let bench = Bench::new();
    let [storm, quick, host, red, blue] = [STORM, QUICK, HOST, RED, BLUE].map(|p| p.build());
    let words = |path: &Path, count: usize| vec![path.display().to_string(); count].join(" ");
    let host_said = bench.path("host.stdout").display().to_string();
    let script = format!(
        // Each prints when it likes, also in the middle of a line.
        "{} 2 4500 {} 0.001 & {} {EACH} {} {} >{host_said}; wait; cat {host_said}",
        storm.display(),
        quick.display(),
        host.display(),
        words(&red, 12),
        words(&blue, 110),
    );
    let rate = HZ.to_string();
    let options = ["-F", &rate, "--ring-size", "64K", "--", "sh", "-c", &script];
    let mut running = Running::start_sampling(&bench, &options);
    thread::sleep(Duration::from_millis(300));
    running.signal(libc::SIGSTOP);
    // Half of what all of it takes on two idle CPUs.
    thread::sleep(Duration::from_secs(3));
    running.signal(libc::SIGCONT);
    let recorded = running.wait().ok();

    let truth = recorded.truth();
    let seconds = |what: &str| -> f64 {
        let words = truth.words(what).into_iter();
        words.map(|w| w.parse::<f64>().expect("seconds")).sum()
    };
    let counts = Counts::of(&recorded);
    counts.check(HZ.into(), seconds("cpu ") + seconds("children "), &recorded);
    let folded = recorded.folded();
    let verdict = &folded.verdict;
    assert!(counts.lost(LossClass::RingFull) > 500, "{verdict}");
    let events = counts.lost(LossClass::SideBand);
    assert!(events > 100, "{events} process events lost\n{verdict}");
    assert!(verdict.contains("process events lost"), "{verdict}");

    folded.check_none("names of two libraries in one stack", |s| {
        s.has("red_spin") && s.has("blue_spin")
    });
    folded.check_none("a name of another program", |s| {
        let libraries = s.has("red_spin") || s.has("blue_spin");
        (s.comm != "host" && libraries) || (s.comm == "host" && s.has("quick_spin"))
    });
    // Blue code under its predecessor's name would be red's, more than there can be.
    let red = folded.count(|s| s.has("red_spin")) as f64;
    let most = truth.of("red_spin") * f64::from(HZ);
    assert!(
        red <= 1.05 * most + 5.0,
        "{red} samples of {most}\n{folded}"
    );
    // What runs on is read again: most samples after the stop have their names.
    let blue = folded.count(|s| s.has("blue_spin"));
    assert!(blue > 500, "{blue} samples of blue code\n{folded}");
}

/// Stacks are cut before samples are lost: where the stacks are deep, short ones take the last quarter of a ring.
#[test]
fn a26_stacks_are_cut_before_samples_are_lost() {
    const HZ: u32 = 997;
    let bench = Bench::new();
    // On one CPU, so that one ring has all of it.
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0"])
        .arg(DEEP.build())
        .args(["60", "0.65"]);
    let workload = Attached::start(command);
    let pid = workload.pid_arg();
    let rate = HZ.to_string();
    // Copies of stacks get smaller long before.
    let options = [
        "-F",
        &rate,
        "--unwind",
        "fp",
        "--ring-size",
        "256K",
        "-p",
        &pid,
    ];
    let mut running = Running::start_sampling(&bench, &options);
    running.signal(libc::SIGSTOP);
    let truth = workload.go();
    running.signal(libc::SIGCONT);
    let recorded = running.interrupt().ok();
    let counts = Counts::of(&recorded);
    counts.check(HZ.into(), truth.cpu, &recorded);
    // Records of 64 + 8 + 66 * 8 bytes in three quarters of it, of 64 + 8 + 8 * 8 in the rest.
    let short = counts.lost(LossClass::StackShortened);
    assert_eq!(counts.lost(LossClass::RingFull), 0, "{recorded:#?}");
    assert!(short > 100, "{short} stacks cut\n{recorded:#?}");
    let folded = recorded.folded();
    let cut = folded.count(|s| s.frames.iter().any(|f| f == "[truncated]"));
    assert!(
        cut.abs_diff(short) <= 5,
        "{cut} marked, {short} counted\n{folded}"
    );
    let cause = "stacks cut because the ring was nearly full";
    assert!(folded.verdict.contains(cause), "{folded}");
}

/// A recorder that gets hardly any CPU, at ten times the usual rate of these tests.
#[test]
fn a26_the_recorder_is_starved() {
    const HZ: u32 = 9973;
    let bench = Bench::new();
    let workload = burn("4", "0.7");
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "nice", "-n", "19"]).arg(PROFILER);
    command.arg("record").arg("-o").arg(bench.capture());
    command.args(["-F", &HZ.to_string(), "--ring-size", "64K", "-p"]);
    command.arg(workload.pid_arg());
    let running = Running::start_command_sampling(&bench, command);
    let truth = workload.go();
    let recorded = running.interrupt().ok();
    Counts::of(&recorded).check(HZ.into(), truth.cpu, &recorded);
}

/// A24: the kernel's limit falls below the rate while a recording runs: it stops sampling for parts of each tick, which the
/// recorder says, at once and in the capture. Events of CPUs and of threads alike.
#[test]
fn a24_the_kernel_throttles_a_recording() {
    for target in ["-p", "-t"] {
        let bench = Bench::new();
        let workload = burn("2", "1.0");
        // With -t its first thread.
        let pid = workload.pid_arg();
        let running = Running::start_sampling(&bench, &["-F", "4999", target, &pid]);
        let limit = Setting::set("/proc/sys/kernel/perf_event_max_sample_rate", "500");
        workload.go();
        drop(limit);
        let recorded = running.interrupt().ok();
        let counts = Counts::of(&recorded);
        let throttled = counts
            .losses
            .iter()
            .filter(|l| l.class == LossClass::Throttled);
        let throttled: Vec<_> = throttled.collect();
        let times = counts.lost(LossClass::Throttled);
        assert!(times > 20, "{target}: {throttled:?}\n{recorded:#?}");
        assert!(throttled.iter().all(|l| l.cpu.is_some()), "{throttled:?}");
        let said = "the kernel throttles sampling (kernel.perf_event_max_sample_rate, now 500)";
        assert!(recorded.stderr.contains(said), "{}", recorded.stderr);
        let folded = recorded.folded();
        let told = format!("throttled by the kernel {times}");
        assert!(folded.verdict.contains(&told), "no {told} in\n{folded}");
    }
}

/// `--cpu-limit`: the rate falls, and weights make up for it: two programs, of which one runs before the rate falls and one
/// after it, have their shares, and the total is what the full rate would have given.
#[test]
fn a_cpu_limit_lowers_the_rate_and_weights_make_up_for_it() {
    const HZ: u32 = 9973;
    let bench = Bench::new();
    let (one, two) = (ONE.build(), TWO.build());
    let script = format!("{} 1.0; {} 3.0", one.display(), two.display());
    let rate = HZ.to_string();
    let options = [
        "-F",
        &rate,
        "--unwind",
        "fp",
        "--cpu-limit",
        "1",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let recorded = bench.record(&options).ok();
    let folded = recorded.folded();
    let truth: Truth = recorded.truth();
    truth.check_shares(&folded);
    let counts = Counts::of(&recorded);
    counts.check(HZ.into(), truth.sum(), &recorded);
    assert_eq!(folded.total(), counts.kept);

    let (top, _) = recorded.report(&["--top=5"]);
    for verdict in [&folded.verdict, &top] {
        let told = "because the rate was lowered";
        assert!(verdict.contains(told), "no {told} in\n{verdict}");
    }
    let said = "(limit 1 %): sampling at 1/";
    assert!(recorded.stderr.contains(said), "{}", recorded.stderr);
    let changes = counts.lost(LossClass::RateChanged);
    let told = recorded.stderr.matches("(limit 1 %)").count() as u64;
    assert!(changes == told && told > 0, "{changes}, {told} told");
    let samples = recorded.summary_number("sample");
    let all = f64::from(HZ) * truth.sum();
    assert!(
        (samples as f64) < 0.7 * all,
        "{samples} of {all} samples: {}",
        recorded.stderr
    );
}
