//! A recorder that is killed at any moment leaves what it had until then.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bprof::capture::{CaptureError, Reader};

use crate::common::workload::BURN_C;
use crate::common::{Bench, PROFILER};

const KILLS: u32 = 200;
const AT_ONCE: u32 = 6;
const RATE: f64 = 499.0;

/// What was found after one kill.
enum Left {
    /// Not even the file, or nothing in it: nothing was sampled yet.
    Nothing,
    /// Samples, the CPU seconds the command had used, and how old the last sample was (0 without one).
    Capture { samples: u64, cpu: f64, age: f64 },
}

/// `kill -9` at 200 instants, in the middle of start-up too: the capture opens and reports, says that the end is missing, and lacks
/// at most a second of samples, by the CPU time of the command, all of which is sampled.
#[test]
fn killed_at_any_moment() {
    let bench = Bench::new();
    let burn = BURN_C.build();
    let began = Instant::now();
    let found: Vec<Left> = thread::scope(|scope| {
        let kill_some = |first: u32| {
            let (bench, burn) = (&bench, &burn);
            move || {
                let numbers = (first..KILLS).step_by(AT_ONCE as usize);
                let left = numbers.map(|number| kill(bench, burn, number));
                left.collect::<Vec<Left>>()
            }
        };
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|first| scope.spawn(kill_some(first)))
            .collect();
        let found = threads
            .into_iter()
            .flat_map(|t| t.join().expect("no check failed"));
        found.collect()
    });
    let captures: Vec<(u64, f64, f64)> = found
        .iter()
        .filter_map(|left| match left {
            Left::Capture { samples, cpu, age } => Some((*samples, *cpu, *age)),
            Left::Nothing => None,
        })
        .collect();
    let gone = |(samples, cpu, _): &(u64, f64, f64)| cpu - *samples as f64 / RATE;
    let most = captures.iter().map(gone).fold(0.0, f64::max);
    let with_samples = captures.iter().filter(|(samples, ..)| *samples > 0).count();
    let oldest = captures.iter().map(|(.., age)| *age).fold(0.0, f64::max);
    eprintln!(
        "{} kills left {} captures, {with_samples} with samples; at most {most:.3} s of samples gone, the \
         last one at most {oldest:.3} s old; {:.0} s",
        found.len(),
        captures.len(),
        began.elapsed().as_secs_f64()
    );
    assert_eq!(found.len(), KILLS as usize);
    assert!(
        captures.len() < KILLS as usize,
        "none was killed before it began"
    );
    assert!(with_samples > 40, "{with_samples} of {}", captures.len());
    // The clock of samples is right to a few of them.
    assert!(most <= 1.0 + 10.0 / RATE, "{most} s of samples gone");
    // By the clock, too: the command has no CPU for itself, and may have waited for one.
    assert!(oldest <= 1.3, "the last sample was {oldest} s old");
}

fn kill(bench: &Bench, burn: &Path, number: u32) -> Left {
    let capture = bench.path(format!("{number}.bprof"));
    // A third within start-up; spread so that no two are near.
    let spread = (f64::from(number) * 0.618_033_988_75).fract();
    let after = match number % 3 {
        0 => 0.4 * spread,
        _ => 0.3 + 1.9 * spread,
    };
    let mut recorder = Command::new(PROFILER)
        .args(["record", "-q", "-F", "499", "-o"])
        .arg(&capture)
        // The recorder comes before it, as before any load of its priority.
        .args(["--", "nice", "-n", "10"])
        .arg(burn)
        .args(["1", "30"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    thread::sleep(Duration::from_secs_f64(after));
    let command = child_of(recorder.id());
    let cpu = command.map_or(0.0, cpu_seconds);
    let now = boot_time();
    recorder.kill().expect("it runs");
    let status = recorder.wait().expect("it was started");
    assert_eq!(status.code(), None, "it ended by itself: {status}");
    if let Some(pid) = command {
        // SAFETY: kill only takes numbers; the command burns for longer than this, or waited for the recorder and is gone.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let reader = match Reader::open(&capture) {
        Ok(reader) => reader,
        Err(CaptureError::Open(_) | CaptureError::Empty) => {
            assert!(cpu < 0.05, "{cpu} s were sampled into nothing");
            return Left::Nothing;
        }
        Err(err) => panic!("kill {number}, after {after:.3} s: {err}"),
    };
    assert!(reader.end().is_none() && reader.damage().is_empty());
    let output = Command::new(PROFILER)
        .args(["report", "--folded"])
        .arg(&capture)
        .output()
        .expect("it starts");
    let verdict = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kill {number}: {verdict}");
    assert!(
        verdict.contains("recording did not end in order"),
        "kill {number}: {verdict}"
    );
    let samples = reader.samples() + reader.lost_samples();
    let last = reader.frames().iter().map(|f| f.descriptor.last.0).max();
    let age = last
        .filter(|last| *last > 0)
        .map_or(0.0, |last| now - last as f64 / 1e9);
    drop(reader);
    let _ = fs::remove_file(&capture);
    Left::Capture { samples, cpu, age }
}

/// The command it has launched, whichever of its threads did.
fn child_of(pid: u32) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter(|child| {
            let comm = fs::read_to_string(format!("/proc/{child}/comm"));
            // Who looks at files for the recorder.
            comm.is_ok_and(|comm| comm.trim_end() != "profiler-files")
        })
        .find_map(|child| child.parse().ok())
}

/// The clock of samples, in seconds.
fn boot_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn cpu_seconds(pid: i32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}
