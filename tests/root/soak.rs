//! `make soak`: a recording of the whole machine for a long time, amid everything that makes recorders leak or lose: a fork
//! storm, libraries that come and go at the same addresses, CPUs that go offline and come back.
//!
//! Not part of `make test`: `SOAK_SECONDS` (600) say how long it takes.

use std::env;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::restore::Offline;
use crate::common::workload::{BLUE, BURN_C, HOST, QUICK, RED, STORM};
use crate::common::{Bench, HZ, Running, Truth};

/// What the recorder has at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// Since the start.
    at: Duration,
    resident: u64,
    descriptors: usize,
}

/// Memory of a system-wide recorder at most, for however long it runs (MiB).
const MOST_MEMORY: u64 = 64;
/// CPU 1 is away so long, each so often.
const AWAY: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_secs(20);

/// Runs what `command` makes again and again until `over`; returns all that was said.
fn again(over: &AtomicBool, command: impl Fn() -> Command) -> String {
    let mut said = String::new();
    while !over.load(Ordering::Relaxed) {
        let mut command = command();
        let output = command.output().expect("the workload starts");
        assert!(output.status.success(), "{command:?}: {output:?}");
        said += &String::from_utf8_lossy(&output.stdout);
    }
    said
}

/// Sum of the numbers behind `word`.
fn sum(said: &str, word: &str) -> f64 {
    said.lines()
        .filter_map(|line| line.strip_prefix(word)?.trim().parse::<f64>().ok())
        .sum()
}

fn hotplug(over: &AtomicBool) -> u32 {
    let mut times = 0;
    let mut next = Instant::now() + BETWEEN / 2;
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(200));
        if Instant::now() < next {
            continue;
        }
        next += BETWEEN;
        let Some(offline) = Offline::new(1) else {
            return 0;
        };
        thread::sleep(AWAY);
        drop(offline);
        times += 1;
    }
    times
}

#[test]
#[ignore = "ten minutes long; run it with `make soak`"]
fn hours_amid_a_fork_storm_and_libraries_and_cpus_that_come_and_go() {
    let seconds = env::var("SOAK_SECONDS").map_or(600, |s| s.parse().expect("seconds"));
    assert!(seconds >= 60, "less than a minute says nothing");
    let bench = Bench::new();
    let (quick, red, blue) = (QUICK.build(), RED.build(), BLUE.build());
    for program in [STORM, HOST, BURN_C] {
        program.build();
    }
    let rate = HZ.to_string();
    let mut running = Running::start_sampling(&bench, &["-a", "-F", &rate]);
    let start = Instant::now();
    let over = AtomicBool::new(false);
    let mut looks = Vec::new();
    let (storm, libraries, burn, switched, recorded) = thread::scope(|scope| {
        let storm = scope.spawn(|| {
            again(&over, || {
                let mut command = STORM.command();
                command.args(["2", "200"]).arg(&quick).arg("0.004");
                command
            })
        });
        let libraries = scope.spawn(|| {
            again(&over, || {
                let mut command = HOST.command();
                command.arg("0.02");
                for _ in 0..25 {
                    command.args([&red, &blue]);
                }
                command
            })
        });
        let burn = scope.spawn(|| {
            again(&over, || {
                let mut command = BURN_C.command();
                command.args(["2", "1"]);
                command
            })
        });
        let cpus = scope.spawn(|| hotplug(&over));
        while start.elapsed() < Duration::from_secs(seconds) && running.runs() {
            thread::sleep(Duration::from_secs(1));
            looks.push(Look {
                at: start.elapsed(),
                resident: running.resident(),
                descriptors: running.descriptors(),
            });
            if looks.len() % 30 == 0 {
                let size = fs::metadata(bench.capture()).map_or(0, |m| m.len());
                let Look {
                    at,
                    resident,
                    descriptors,
                } = looks[looks.len() - 1];
                eprintln!(
                    "{} s: {} KiB, {descriptors} descriptors, capture {} KiB",
                    at.as_secs(),
                    resident >> 10,
                    size >> 10
                );
            }
        }
        over.store(true, Ordering::Relaxed);
        let ended = [storm, libraries, burn].map(|thread| thread.join().expect("a workload"));
        let [storm, libraries, burn] = ended;
        let switched = cpus.join().expect("CPUs are switched");
        (storm, libraries, burn, switched, running.interrupt().ok())
    });

    // What is there after a while is all there will ever be.
    let (early, late) = looks.split_at(looks.len() / 2);
    let most = |looks: &[Look]| looks.iter().map(|l| l.resident).max().unwrap_or(0) >> 10;
    eprintln!(
        "memory {} MiB in the first half, {} in the second; CPU 1 away {switched} times; capture {} KiB\n{}",
        most(early) >> 10,
        most(late) >> 10,
        fs::metadata(&recorded.capture).map_or(0, |m| m.len()) >> 10,
        recorded.stderr
    );
    assert!(
        most(late) <= most(early) + most(early) / 8 + 2048,
        "memory grows: {looks:?}"
    );
    assert!(most(late) >> 10 <= MOST_MEMORY, "{looks:?}");
    let steady = |looks: &[Look]| looks.iter().map(|l| l.descriptors).min();
    assert_eq!(
        steady(&early[early.len() / 2..]),
        steady(late),
        "descriptors: {looks:?}"
    );

    let folded = recorded.folded();
    // Shares of all hot functions against what each says of itself.
    Truth::parse(&(libraries.clone() + &burn)).check_shares(&folded);
    let share = |what: &str, seen: u64, cpu: f64| {
        let share = seen as f64 / (cpu * f64::from(HZ));
        eprintln!(
            "{what}: {seen} samples, {cpu:.3} CPU seconds, {share:.4} of what there should be"
        );
        // CPUs are noticed within a moment when they come back, which may be another's time.
        assert!(
            (0.93..=1.05).contains(&share),
            "{what}: {share}\n{}",
            folded.verdict
        );
    };
    let of = |names: &[&str]| folded.count(|s| names.contains(&s.comm.as_str()));
    let children = sum(&storm, "children ");
    share(
        "storm",
        of(&["storm", "quick"]),
        children + sum(&storm, "cpu "),
    );
    share("libraries", of(&["host"]), sum(&libraries, "cpu "));
    share("burn", of(&["burn_c"]), sum(&burn, "cpu "));
    // A library's function is never named as the one that was at its address before.
    let other = folded.count(|s| s.has("red_spin") && s.has("blue_spin"));
    assert_eq!(other, 0, "{folded}");
    let quick = |function: &str| folded.count(|s| s.comm == "quick" && s.has(function));
    assert!(quick("quick_spin") > 0 && quick("hot_a") + quick("red_spin") == 0);
}
