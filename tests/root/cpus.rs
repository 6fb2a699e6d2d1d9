//! A23: CPUs that go offline and come online while a recording runs.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use crate::common::restore::Offline;
use crate::common::standard::{Sample, Standard};
use crate::common::workload::BURN_C;
use crate::common::{Attached, Bench, Recorded, Running, Truth};

/// The CPU that can be switched: CPU 0 often cannot.
const CPU: u32 = 1;

fn pause(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

/// Two threads that burn `seconds` of CPU time each.
fn burn(seconds: &str) -> Attached {
    let mut command = BURN_C.command();
    command.args(["2", seconds]);
    Attached::start(command)
}

/// CPU and second of the day of each sample of the workload, in order.
fn places(recorded: &Recorded) -> Vec<(u32, f64)> {
    let standard: Standard = recorded.standard();
    let of_workload = standard.samples.iter().filter(|s| s.has("drive"));
    let place = |head: &str| -> Option<(u32, f64)> {
        let cpu = head
            .split("[cpu ")
            .nth(1)?
            .split(']')
            .next()?
            .parse()
            .ok()?;
        let clock = head.split('T').nth(1)?.split('Z').next()?;
        let parts: Vec<f64> = clock.split(':').filter_map(|p| p.parse().ok()).collect();
        let [hours, minutes, seconds] = parts[..] else {
            return None;
        };
        Some((cpu, hours * 3600.0 + minutes * 60.0 + seconds))
    };
    of_workload
        .map(|s| place(&s.head).unwrap_or_else(|| panic!("no time and CPU in {:?}", s.head)))
        .collect()
}

/// Fails unless nearly all of the workload's CPU time was sampled: what is missing is the time between a CPU's coming
/// and its being noticed.
fn check(recorded: &Recorded, truth: &Truth, unnoticed: f64) {
    let folded = recorded.folded();
    truth.check_shares(&folded);
    let seen = folded.count(|s| s.has("drive")) as f64 / 997.0;
    assert!(
        (0.9 * truth.cpu - unnoticed..=1.1 * truth.cpu).contains(&seen),
        "{seen:.3} s of samples, {:.3} s of CPU time\n{folded}",
        truth.cpu
    );
    let told = "CPUs not sampled at once when they came online";
    assert!(folded.verdict.contains(told), "{folded}");
    let said = format!("CPU {CPU} came online");
    assert!(recorded.stderr.contains(&said), "{}", recorded.stderr);
}

/// The recording goes on while the CPU is away, and has it again when it is back.
#[test]
fn a23_a_cpu_goes_and_comes_back() {
    let bench = Bench::new();
    let workload = burn("1.5");
    let running = Running::start_sampling(&bench, &["-F", "997", "-a"]);
    let work = thread::spawn(move || workload.go());
    pause(500);
    let Some(offline) = Offline::new(CPU) else {
        return;
    };
    pause(800);
    drop(offline);
    let truth = work.join().expect("the workload ends");
    let recorded = running.interrupt().ok();
    check(&recorded, &truth, 0.3);
    let said = format!("CPU {CPU} went offline");
    assert!(recorded.stderr.contains(&said), "{}", recorded.stderr);

    let places = places(&recorded);
    let on: Vec<f64> = places.iter().filter(|p| p.0 == CPU).map(|p| p.1).collect();
    let away = on
        .windows(2)
        .max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
    let away = away.unwrap_or_else(|| panic!("{} samples on the CPU", on.len()));
    let count = |cpu: Option<u32>, from: f64, to: f64| {
        let within = |(c, t): &&(u32, f64)| cpu.is_none_or(|cpu| *c == cpu) && *t > from && *t < to;
        places.iter().filter(within).count()
    };
    assert!(away[1] - away[0] > 0.6, "it was away for {away:?}");
    // On a machine with other work the rest is not all ours.
    let rest = count(None, away[0], away[1]) as f64 / (away[1] - away[0]);
    assert!(rest > 0.25 * 997.0, "{rest} samples a second on the rest");
    for (from, to) in [(0.0, away[0]), (away[1], f64::MAX)] {
        let samples = count(Some(CPU), from, to);
        assert!(
            samples > 50,
            "{samples} samples from {from} to {to}, away {away:?}"
        );
    }
}

/// A CPU that was offline at the start is sampled when it comes; processes and single threads alike.
#[test]
fn a23_a_recording_begun_without_a_cpu() {
    for threads in [false, true] {
        let bench = Bench::new();
        let Some(offline) = Offline::new(CPU) else {
            return;
        };
        let workload = burn("1");
        // The second thread exists once it goes.
        let (option, target) = if threads {
            ("-t", workload.pid_arg())
        } else {
            ("-p", workload.pid_arg())
        };
        let running = Running::start_sampling(&bench, &["-F", "997", option, &target]);
        let work = thread::spawn(move || workload.go());
        pause(500);
        drop(offline);
        let truth = work.join().expect("the workload ends");
        let recorded = running.interrupt().ok();
        if threads {
            // Where its only thread ran is the scheduler's business, but its event goes with it.
            let seen = recorded.folded().count(|s| s.has("drive")) as f64 / 997.0;
            assert!(
                (0.8..=1.1).contains(&(seen / (truth.cpu / 2.0))),
                "{seen} of {}",
                truth.cpu
            );
            continue;
        }
        check(&recorded, &truth, 0.3);
        let places = places(&recorded);
        let cpus: BTreeSet<u32> = places.iter().map(|p| p.0).collect();
        assert_eq!(cpus, BTreeSet::from([0, CPU]), "CPUs with samples");
        let first = places.first().map_or(0.0, |p| p.1);
        let came = places.iter().find(|p| p.0 == CPU).map_or(0.0, |p| p.1);
        assert!(
            came - first > 0.3,
            "sampled {} s after the start",
            came - first
        );
        let on = places.iter().filter(|p| p.0 == CPU).count();
        assert!(on > 100, "{on} samples on the CPU that came");
    }
}

/// Back before anybody could see that it was away: its events are dead all the same.
#[test]
fn a23_a_cpu_is_gone_for_a_moment() {
    let bench = Bench::new();
    let workload = burn("1.2");
    let args = ["-F", "997", "-p", &workload.pid_arg()];
    let running = Running::start_sampling(&bench, &args);
    let work = thread::spawn(move || workload.go());
    pause(300);
    let Some(offline) = Offline::new(CPU) else {
        return;
    };
    drop(offline);
    let truth = work.join().expect("the workload ends");
    let recorded = running.interrupt().ok();
    check(&recorded, &truth, 0.3);
    let places = places(&recorded);
    let last = places.last().map_or(0.0, |p| p.1);
    let late = places
        .iter()
        .filter(|p| p.0 == CPU && p.1 > last - 0.4)
        .count();
    assert!(late > 50, "{late} samples at the end");
}

/// A CPU that cannot be sampled is told, and is no reason to stop sampling the others.
#[test]
fn a23_a_cpu_that_comes_and_cannot_be_sampled() {
    let bench = Bench::new();
    let Some(offline) = Offline::new(CPU) else {
        return;
    };
    let workload = burn("0.6");
    let args = ["-q", "-F", "997", "-p", &workload.pid_arg()];
    let running = Running::start_sampling(&bench, &args);
    running.limit_descriptors();
    drop(offline);
    // Noticed with the next look at the rings.
    pause(300);
    let truth = workload.go();
    let recorded = running.interrupt().ok();
    let warning = format!("warning: CPU {CPU} came online and cannot be sampled");
    assert!(recorded.stderr.contains(&warning), "{}", recorded.stderr);
    let folded = recorded.folded();
    let told = "CPUs that came online and could not be sampled 1";
    assert!(folded.verdict.contains(told), "{folded}");
    // Their names need descriptors too; the samples do not.
    let samples = recorded.standard().samples;
    let there = |s: &&Sample| s.head.contains(&format!("[cpu {CPU}]"));
    assert_eq!(samples.iter().filter(there).count(), 0, "sampled after all");
    let seen = samples.len() as f64 / 997.0;
    assert!(
        seen > 0.2 * truth.cpu,
        "{seen} s of {} s\n{folded}",
        truth.cpu
    );
}
