//! One run: off, on, off.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::contender::{BareEvents, Contender, Recorded, Tools};
use crate::kernel::KernelMemory;
use crate::support::measured::{Running, Used};
use crate::workload::{Done, Mix, Workload};

/// Seconds until a recorder samples for sure, and after the window until it may end.
const SETTLE: f64 = 1.0;
const SPARE: f64 = 0.25;
/// Seconds for what has been written to be over.
const REST: f64 = 0.25;

#[derive(Debug, Clone, Serialize)]
pub struct Run {
    pub contender: &'static str,
    pub round: usize,
    /// 0.01: an operation took 1 % more CPU time.
    pub slow_down: f64,
    /// Of the recorder's process, from its start to its end.
    pub recorder: Used,
    pub recorded: Recorded,
    /// Seconds from its start to the first sample, where the capture tells that.
    pub start_up: Option<f64>,
    /// What the kernel keeps for it.
    pub kernel: KernelMemory,
    /// Samples there should be: CPU time of what was recorded, times the rate.
    pub expected: f64,
    /// CPU seconds the host took meanwhile: what is measured then is worth less.
    pub stolen: f64,
    off: Vec<Done>,
    on: Vec<Done>,
}

/// Seconds a recorder is asked to record.
pub fn recorded(window: f64) -> f64 {
    SETTLE + window + SPARE
}

/// Seconds a run takes, about.
pub fn seconds(window: f64) -> f64 {
    recorded(window) + window + 2.0 * REST + 0.7
}

/// Seconds since 1970.
fn wall_time() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

fn wait(seconds: f64) {
    sleep(Duration::from_secs_f64(seconds));
}

/// What each program does in so many seconds.
fn window(workload: &Workload, seconds: f64) -> Result<Vec<Done>> {
    let before = workload.done()?;
    wait(seconds);
    let after = workload.done()?;
    let pairs = after.into_iter().zip(before);
    Ok(pairs.map(|(after, before)| after.since(before)).collect())
}

/// CPU seconds since the machine booted.
struct Spent {
    busy: f64,
    /// The host of this virtual machine ran something else.
    stolen: f64,
}

fn spent() -> Result<Spent> {
    let stat = fs::read_to_string("/proc/stat")?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks = first.split_whitespace().skip(1).map(str::parse::<f64>);
    let ticks: Vec<f64> = ticks.collect::<Result<_, _>>()?;
    ensure!(ticks.len() > 7, "/proc/stat is strange");
    let seconds = |fields: &[usize]| {
        let ticks: f64 = fields.iter().map(|at| ticks[*at]).sum();
        ticks / rustix::param::clock_ticks_per_second() as f64
    };
    Ok(Spent {
        // user, nice, system, irq, softirq; neither idle nor iowait.
        busy: seconds(&[0, 1, 2, 5, 6]),
        stolen: seconds(&[7]),
    })
}

/// CPU seconds so far of what is recorded.
fn sampled(workload: &Workload) -> Result<f64> {
    match workload.mix {
        Mix::Mixed => Ok(spent()?.busy),
        _ => Ok(workload.done()?[0].cpu_ns as f64 / 1e9),
    }
}

/// How much more CPU time the operations done while on have taken than they would have while off. Programs that do
/// different things are each compared with themselves.
fn slow_down(off: &[Done], on: &[Done]) -> f64 {
    let expected: f64 = (on.iter().zip(off))
        .map(|(on, off)| on.operations as f64 * off.cpu_ns as f64 / off.operations.max(1) as f64)
        .sum();
    let taken: u64 = on.iter().map(|on| on.cpu_ns).sum();
    taken as f64 / expected - 1.0
}

/// Runs `contender` once.
pub fn run(
    tools: &Tools,
    contender: Contender,
    workload: &mut Workload,
    hz: u64,
    seconds: f64,
    round: usize,
) -> Result<Run> {
    let stolen = spent()?.stolen;
    let mut off = window(workload, seconds / 2.0)?;
    let (began, before) = (Instant::now(), sampled(workload)?);
    let asked = recorded(seconds);
    let mut kernel = KernelMemory::default();
    let mut started = 0.0;
    let (on, recorder, recorded) =
        match contender.command(tools, workload.mix, workload.pid(), hz, asked)? {
            None => {
                let floor = BareEvents::open(&tools.event, hz)?;
                wait(SETTLE);
                let on = window(workload, seconds)?;
                drop(floor);
                (on, Used::default(), Recorded::default())
            }
            Some(mut command) => {
                started = wall_time();
                let recorder = Running::start(&mut command)?;
                wait(SETTLE);
                let on = window(workload, seconds)?;
                kernel = KernelMemory::of(recorder.pid());
                let (used, status) = recorder.finish()?;
                ensure!(status.success(), "{}", contender.said(tools));
                (on, used, contender.recorded(tools, workload.mix)?)
            }
        };
    let (wall, cpu) = (began.elapsed().as_secs_f64(), sampled(workload)? - before);
    wait(REST);
    let second = window(workload, seconds / 2.0)?;
    off.iter_mut()
        .zip(second)
        .for_each(|(off, more)| *off = off.and(more));
    if contender != Contender::Floor {
        fs::remove_file(contender.capture(tools))?;
    }
    Ok(Run {
        contender: contender.name(),
        round,
        slow_down: slow_down(&off, &on),
        recorder,
        start_up: recorded.first.map(|first| first - started),
        recorded,
        kernel,
        expected: hz as f64 * cpu / wall * asked,
        stolen: spent()?.stolen - stolen,
        off,
        on,
    })
}
