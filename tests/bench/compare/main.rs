//! Side by side with `perf record -g`: what recording costs the program that is looked at and the machine, what it leaves,
//! and what it takes to make folded stacks of that.
//!
//! `make bench` (as root). Programs of `tests/bench/workloads` run and count what they get done for how much CPU time in
//! memory that is read from outside. Contenders take turns, forwards and backwards; each run is
//!
//! ```text
//! off (half a window) | start, settle | on (a window) | end | off (half a window)
//! ```
//!
//! and its slow-down the CPU time an operation takes while on, over that while off, less 1. That is what interrupts and stack
//! walks cost in place; what the recorder's own process takes is told beside it. `floor` is a sampling event on each CPU
//! that nobody reads: no profiler can cost less.
//!
//! Then captures of given lengths by each recorder, one of a machine that does nothing, and reports of a million samples. At the
//! end stands what is wanted of all this and what was reached.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::{Value, json};

mod bars;
mod contender;
mod folding;
mod kernel;
mod run;
mod sizes;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod workload;

use bars::Bars;
use contender::{Contender, Tools};
use run::Run;
use sizes::{Idle, Size};
use support::{machine, say};
use workload::{Mix, Workload};

#[derive(Parser)]
#[command(about = "Compares profiler record and report with perf (as root)")]
struct Args {
    /// What is recorded, at how many samples a second: deep:HZ, nofp:HZ, nofpbig:HZ, nofprust:HZ (one process, -p) and mix:HZ (system-wide)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "deep:999,deep:4999,deep:9999,mix:999"
    )]
    runs: Vec<String>,
    /// Rounds of each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of a window
    #[arg(long, default_value_t = 4.0)]
    window: f64,
    /// floor, profiler, profiler-fp, profiler-dwarf, profiler-auto (as --unwind has it), perf, perf-z, perf-dwarf
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "floor,profiler,perf,perf-z"
    )]
    only: Vec<String>,
    /// The event: cpu-clock, or cycles where there is a PMU
    #[arg(long, default_value = "cpu-clock")]
    event: String,
    /// Captures whose sizes are compared, as of --runs, and seconds: WHAT:HZ:SECONDS; none: leaves them out
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "deep:999:10,deep:4999:10,mix:99:30,mix:999:30"
    )]
    sizes: Vec<String>,
    /// Seconds in which nothing should run, and a recording of the whole machine is looked at for what it grows by; 0 leaves it out
    #[arg(long, default_value_t = 30.0)]
    idle: f64,
    /// Seconds recorded at 9,999 Hz for the comparison of reports (50: a million samples on two CPUs); 0 leaves it out
    #[arg(long, default_value_t = 50.0)]
    fold: f64,
    /// Rounds of reports
    #[arg(long, default_value_t = 3)]
    fold_rounds: usize,
    /// What is measured
    #[arg(long, default_value = env!("CARGO_BIN_EXE_profiler"))]
    profiler: PathBuf,
    /// What it is compared with
    #[arg(long, default_value = "perf")]
    perf: PathBuf,
    /// Folds what perf script prints; when it cannot be run the library of that name does, built into this benchmark
    #[arg(long, default_value = "inferno-collapse-perf")]
    inferno: PathBuf,
    /// Where workloads are built and captures written
    #[arg(long, default_value = concat!(env!("CARGO_TARGET_TMPDIR"), "/compare"))]
    work: PathBuf,
    /// Where the results are written
    #[arg(short, long, default_value = "bench.json")]
    output: PathBuf,
    /// Folds what perf script prints, from standard input to standard output
    #[arg(long, hide = true)]
    collapse: bool,
    #[arg(long, hide = true)]
    bench: bool,
}

/// The rate recordings have by themselves.
const IDLE_HZ: u64 = 99;

/// A line of `--runs`.
struct Plan {
    mix: Mix,
    hz: u64,
}

fn plan(text: &str) -> Result<Plan> {
    let (mix, hz) = text.split_once(':').unwrap_or((text, "999"));
    let mix =
        Mix::named(mix).with_context(|| format!("{mix}: deep, nofp, nofpbig, nofprust or mix"))?;
    let hz = hz
        .parse()
        .with_context(|| format!("{hz} is no frequency"))?;
    Ok(Plan { mix, hz })
}

/// A line of `--sizes`, and its seconds.
fn size_plan(text: &str) -> Result<(Plan, f64)> {
    let (what, seconds) = text.rsplit_once(':').unwrap_or((text, ""));
    let seconds = seconds.parse();
    let seconds = seconds.with_context(|| format!("{text}: WHAT:HZ:SECONDS is needed"))?;
    Ok((plan(what)?, seconds))
}

/// Those asked for that can be run here; what cannot is said.
fn contenders(args: &Args, has_perf: bool) -> Result<Vec<Contender>> {
    let mut found = Vec::new();
    for name in &args.only {
        let contender = Contender::named(name).with_context(|| format!("who is {name}?"))?;
        if contender.is_perf() && !has_perf {
            say(&format!(
                "{name}: left out, {} cannot be run (Debian: linux-perf)",
                args.perf.display()
            ));
        } else {
            found.push(contender);
        }
    }
    ensure!(!found.is_empty(), "nothing to measure");
    Ok(found)
}

/// All rounds of one workload at one rate.
fn measure(args: &Args, tools: &Tools, plan: &Plan, contenders: &[Contender]) -> Result<Vec<Run>> {
    let mut workload = Workload::start(plan.mix, &args.work)?;
    let mut runs = Vec::new();
    for round in 0..args.rounds {
        let mut order = contenders.to_vec();
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let run = run::run(tools, contender, &mut workload, plan.hz, args.window, round)
                .with_context(|| format!("{} at {} Hz", contender.name(), plan.hz))?;
            let percent = run.slow_down * 100.0;
            say(&format!(
                "  round {} of {}: {:<9} {percent:6.2} % slower",
                round + 1,
                args.rounds,
                contender.name()
            ));
            runs.push(run);
        }
    }
    Ok(runs)
}

fn main() -> Result<()> {
    if !support::is_wanted("compare", "make bench runs it, as root") {
        return Ok(());
    }
    let args = Args::parse();
    if args.collapse {
        return folding::collapse();
    }
    ensure!(
        rustix::process::geteuid().is_root(),
        "recording the whole machine needs root: sudo make bench"
    );
    ensure!(
        args.rounds > 0 && args.fold_rounds > 0 && args.window >= 0.5,
        "too little to measure"
    );
    fs::create_dir_all(&args.work)?;
    workload::build(&args.work)?;
    let perf = machine::version(&args.perf);
    let contenders = contenders(&args, perf.is_some())?;
    let plans: Vec<Plan> = args
        .runs
        .iter()
        .map(|text| plan(text))
        .collect::<Result<_>>()?;
    let sizes: Vec<(Plan, f64)> = (args.sizes.iter().filter(|text| *text != "none"))
        .map(|text| size_plan(text))
        .collect::<Result<_>>()?;
    let tools = Tools {
        profiler: args.profiler.clone(),
        perf: args.perf.clone(),
        event: args.event.clone(),
        work: args.work.clone(),
    };

    let began = Instant::now();
    let facts = machine::facts();
    let profiler = machine::version(&args.profiler).context("the profiler cannot be run")?;
    let runs = plans.len() * args.rounds * contenders.len();
    let seconds = runs as f64 * run::seconds(args.window) + args.fold * 2.0
        // What perf takes for a report of so many samples.
        + args.fold * args.fold_rounds as f64
        + sizes.iter().map(|(_, seconds)| seconds * 3.0).sum::<f64>()
        + args.idle;
    say(&format!(
        "some {:.0} minutes: {runs} runs",
        (seconds / 60.0).ceil()
    ));
    println!("{}", machine::describe(&facts));
    println!(
        "{profiler}; {}; event {}",
        perf.as_deref().unwrap_or("no perf"),
        args.event
    );

    let mut bars = Bars::default();
    let mut results = BTreeMap::new();
    for (plan, text) in plans.iter().zip(&args.runs) {
        say(&format!("{text}: {}", plan.mix.says()));
        let runs = measure(&args, &tools, plan, &contenders)?;
        let compared = table::compare(&runs, &contenders);
        println!(
            "\n{} at {} Hz: {}",
            plan.mix.name(),
            plan.hz,
            plan.mix.says()
        );
        println!(
            "{} rounds of {} s off and {} s on; recordings of {:.1} s",
            args.rounds,
            args.window,
            args.window,
            run::recorded(args.window)
        );
        table::print(&compared, &contenders);
        let stolen: f64 = runs.iter().map(|run| run.stolen).sum();
        if stolen > 0.0 {
            println!("the host of this virtual machine took {stolen:.2} CPU s meanwhile");
        }
        bars.recording(text, plan.mix, &runs);
        results.insert(text.clone(), json!({ "summary": compared, "runs": runs }));
    }
    let mut captures = Vec::new();
    for (plan, seconds) in &sizes {
        let size = Size::measure(&tools, plan, *seconds, &contenders)?;
        bars.sizes(&size);
        captures.push(size);
    }
    let idle = if args.idle > 0.0 {
        let idle = Idle::measure(&tools, IDLE_HZ, args.idle)?;
        bars.idle(&idle);
        Some(idle)
    } else {
        None
    };
    let folded = if args.fold > 0.0 {
        folding::measure(&args, &tools, perf.is_some())?
    } else {
        Value::Null
    };
    bars.reporting(&folded);
    bars.print();

    let all = json!({
        "machine": facts,
        "machine_after": machine::facts(),
        "commit": machine::commit(),
        "versions": { "profiler": profiler, "perf": perf, "gcc": version_of("gcc"), "rustc": version_of("rustc") },
        "command": std::env::args().collect::<Vec<_>>(),
        "parameters": {
            "rounds": args.rounds, "window_seconds": args.window, "recorded_seconds": run::recorded(args.window),
            "event": args.event, "fold_rounds": args.fold_rounds,
        },
        "recording": results,
        "sizes": captures,
        "idle": idle,
        "reporting": folded,
        "bars": bars.json(),
    });
    fs::write(&args.output, serde_json::to_string_pretty(&all)? + "\n")?;
    say(&format!(
        "wrote {} after {:.1} minutes",
        args.output.display(),
        began.elapsed().as_secs_f64() / 60.0
    ));
    Ok(())
}

fn version_of(program: &str) -> Option<String> {
    let found = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&found.stdout);
    text.lines().next().map(str::to_owned)
}
