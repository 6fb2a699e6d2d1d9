//! How the cost of a report grows: with samples, with distinct stacks, with processes, with mappings of each process, one at
//! a time.
//!
//! `make bench-curves` (needs no root). Captures are written by the library's own writer, with the code of this very program
//! as what was sampled, so that there are names to find; `profiler report --folded` is then run on them as users run it, and
//! its wall time, CPU time and peak memory are printed (median of the rounds, the capture in the page cache).
//!
//! The last part is no curve: what reports of parts of one capture cost, against that of all of it, with all that a user waits
//! for: names are looked up in this very program, which has some hundred thousand functions and their debug information.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::{Value, json};

mod support;
use support::measured::{self, Used};
use support::statistics::Summary;
use support::synthetic::{DEEP, Program, Shape, capture};
use support::{machine, say};

#[derive(Parser)]
#[command(about = "Measures how the cost of a report grows")]
struct Args {
    /// samples, stacks, processes, mappings, selections
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "samples,stacks,processes,mappings,selections"
    )]
    curves: Vec<String>,
    /// Up to 100 million samples: takes a GB of disk
    #[arg(long)]
    large: bool,
    /// Runs of each point
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// What is measured
    #[arg(long, default_value = env!("CARGO_BIN_EXE_profiler"))]
    profiler: PathBuf,
    /// The view
    #[arg(long, default_value = "--folded")]
    view: String,
    /// Where captures are written
    #[arg(long, default_value = concat!(env!("CARGO_TARGET_TMPDIR"), "/curves"))]
    work: PathBuf,
    /// Where the results are written
    #[arg(short, long, default_value = "bench-curves.json")]
    output: PathBuf,
    /// Writes one capture: SAMPLES STACKS PROCESSES MAPPINGS APART SEGMENT
    #[arg(long, hide = true, num_args = 6)]
    generate: Option<Vec<u64>>,
    /// Whose code the samples of that capture are in
    #[arg(long, hide = true)]
    program: Option<PathBuf>,
    #[arg(long, hide = true)]
    bench: bool,
}

const MILLION: u64 = 1_000_000;

/// What the others are varied from: a million samples of one process.
const USUAL: Shape = Shape {
    name: "usual",
    samples: MILLION,
    ..DEEP
};

fn points(curve: &str, large: bool) -> Result<Vec<(u64, Shape)>> {
    let decades = |from: u32, to: u32| (from..=to).map(|n| 10u64.pow(n));
    let shapes =
        |of: &dyn Fn(u64) -> Shape, from, to| decades(from, to).map(|n| (n, of(n))).collect();
    Ok(match curve {
        "samples" => shapes(
            &|samples| Shape { samples, ..USUAL },
            4,
            if large { 8 } else { 7 },
        ),
        "stacks" => shapes(&|stacks| Shape { stacks, ..USUAL }, 2, 6),
        "processes" => shapes(&|processes| Shape { processes, ..USUAL }, 1, 5),
        "mappings" => shapes(
            &|mappings| Shape {
                mappings,
                processes: 10,
                apart: true,
                ..USUAL
            },
            1,
            4,
        ),
        other => anyhow::bail!("there is no curve {other}"),
    })
}

/// Writes the capture in a process of its own: the memory this takes would count as that of what is started next.
fn generate(args: &Args, shape: &Shape, program: Option<&Path>, path: &Path) -> Result<()> {
    let numbers = [
        shape.samples,
        shape.stacks,
        shape.processes,
        shape.mappings,
        shape.apart.into(),
        shape.segment,
    ];
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--work").arg(path).arg("--generate");
    command.args(numbers.map(|n| n.to_string()));
    command.arg("--profiler").arg(&args.profiler);
    if let Some(program) = program {
        command.arg("--program").arg(program);
    }
    measured::run(&mut command)?;
    Ok(())
}

fn write_capture(numbers: &[u64], program: Option<&Path>, path: &Path) -> Result<()> {
    let [samples, stacks, processes, mappings, apart, segment] = *numbers else {
        anyhow::bail!("six numbers are needed");
    };
    let shape = Shape {
        samples,
        stacks,
        processes,
        mappings,
        apart: apart != 0,
        segment,
        ..USUAL
    };
    let program = match program {
        Some(program) => Program::open(program.to_owned()),
        None => Program::this(),
    };
    capture(shape, &program, File::create(path)?);
    Ok(())
}

/// One report of the capture, with `options`.
fn report(args: &Args, options: &[&str], path: &Path) -> Result<Used> {
    let mut command = Command::new(&args.profiler);
    command.arg("report").args(options).arg(path);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(measured::run(&mut command)?)
}

fn runs(args: &Args, options: &[&str], path: &Path) -> Result<Vec<Used>> {
    report(args, options, path)?;
    let rounds = 0..args.rounds;
    rounds.map(|_| report(args, options, path)).collect()
}

/// What is selected of a capture whose segments are of a minute, as the recorder's are. The view is `--top`: a hundredth of the samples
/// has nearly all stacks, so that folded stacks would be as long as those of the whole.
const SELECTIONS: [&[&str]; 6] = [
    &["--top=20"],
    &["--top=20", "--time=0%..1%"],
    &["--top=20", "--time=50%..51%"],
    &["--top=20", "--time=99%..100%"],
    &["--top=20", "--pid=1003"],
    &["--top=20", "--by=cpu"],
];

/// The workload that `make bench` records, with debug information.
fn small_program(work: &Path) -> Result<PathBuf> {
    let program = work.join("paths");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/workloads/paths.c");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-o"]);
    let status = command.arg(&program).arg(source).status();
    ensure!(
        status.context("gcc cannot be run: make deps")?.success(),
        "{source} cannot be built"
    );
    Ok(program)
}

/// Of a small program; and of this one, whose debug information is tens of megabytes: to name a hundredth of the samples takes as much of
/// it as to name all.
fn selections(args: &Args) -> Result<Value> {
    let small = small_program(&args.work)?;
    let mut rows = Vec::new();
    for (what, program) in [("a small program", Some(&*small)), ("a large one", None)] {
        selections_of(args, (what, program), &mut rows)?;
    }
    Ok(rows.into())
}

fn selections_of(
    args: &Args,
    (what, program): (&str, Option<&Path>),
    rows: &mut Vec<Value>,
) -> Result<()> {
    let path = &args.work.join("curve.bprof");
    let shape = Shape {
        samples: if args.large { 100 } else { 10 } * MILLION,
        processes: 8,
        segment: 60,
        ..USUAL
    };
    generate(args, &shape, program, path)?;
    let title = format!("{} million samples, {what}", shape.samples / MILLION);
    println!(
        "\n{title:>36}  {:>8}  {:>8}  {:>8}  {:>16}",
        "wall", "CPU", "memory", "wall, CPU of all"
    );
    let mut whole = None;
    for options in SELECTIONS {
        let name = options.join(" ");
        say(&format!("selections, {what}: {name}"));
        let runs = runs(args, options, path)?;
        let of = |what: fn(&Used) -> f64| Summary::of(runs.iter().map(what)).context("no rounds");
        let (wall, cpu, rss) = (
            of(|used| used.wall)?,
            of(|used| used.cpu)?,
            of(|used| used.rss as f64)?,
        );
        let (of_wall, of_cpu) = *whole.get_or_insert((wall.median, cpu.median));
        let shares = (wall.median / of_wall, cpu.median / of_cpu);
        println!(
            "{name:>36}  {:>6.3} s  {:>6.3} s  {:>5.1} MB  {:>6.1} %  {:>6.1} %",
            wall.median,
            cpu.median,
            rss.median / 1e6,
            shares.0 * 100.0,
            shares.1 * 100.0,
        );
        rows.push(json!({
            "program": what,
            "options": options,
            "samples": shape.samples,
            "wall": wall,
            "cpu": cpu,
            "rss": rss,
            "share_of_wall": shares.0,
            "share_of_cpu": shares.1,
        }));
    }
    fs::remove_file(path)?;
    Ok(())
}

fn measure(args: &Args, shape: &Shape, path: &Path) -> Result<Value> {
    generate(args, shape, None, path)?;
    let bytes = fs::metadata(path)?.len();
    // The first run brings everything into the page cache.
    let runs = runs(args, &[&args.view], path)?;
    fs::remove_file(path)?;
    let of = |what: fn(&Used) -> f64| Summary::of(runs.iter().map(what)).context("no rounds");
    Ok(json!({
        "samples": shape.samples,
        "stacks": shape.stacks,
        "processes": shape.processes,
        "mappings_a_process": shape.mappings,
        "bytes": bytes,
        "wall": of(|used| used.wall)?,
        "cpu": of(|used| used.cpu)?,
        "rss": of(|used| used.rss as f64)?,
    }))
}

fn main() -> Result<()> {
    if !support::is_wanted("curves", "make bench-curves runs it") {
        return Ok(());
    }
    let args = Args::parse();
    if let Some(numbers) = &args.generate {
        return write_capture(numbers, args.program.as_deref(), &args.work);
    }
    fs::create_dir_all(&args.work)?;
    let facts = machine::facts();
    let version = machine::version(&args.profiler).context("the profiler cannot be run")?;
    ensure!(args.rounds > 0, "at least one round");
    println!("{}", machine::describe(&facts));
    println!("{version} report {}; median of {}", args.view, args.rounds);
    println!(
        "where not varied: 1,000,000 samples of 4,096 call paths (20 to 60 frames), 1 process, 8 mappings"
    );
    let mut results = serde_json::Map::new();
    for curve in &args.curves {
        if curve == "selections" {
            let rows = selections(&args)?;
            results.insert(curve.clone(), rows);
            continue;
        }
        let suffix = if curve == "mappings" {
            " of each of 10 processes"
        } else {
            ""
        };
        println!(
            "\n{:>12}  {:>10}  {:>8}  {:>8}  {:>8}  {:>12}",
            curve, "capture", "wall", "CPU", "memory", "samples/s"
        );
        let mut rows = Vec::new();
        for (n, shape) in points(curve, args.large)? {
            say(&format!("{curve}{suffix}: {n}"));
            let row = measure(&args, &shape, &args.work.join("curve.bprof"))?;
            let median = |name: &str| row[name]["median"].as_f64().unwrap_or(f64::NAN);
            println!(
                "{n:>12}  {:>7.2} MB  {:>6.3} s  {:>6.3} s  {:>5.1} MB  {:>12.0}",
                row["bytes"].as_f64().unwrap_or(0.0) / 1e6,
                median("wall"),
                median("cpu"),
                median("rss") / 1e6,
                shape.samples as f64 / median("wall"),
            );
            rows.push(row);
        }
        results.insert(curve.clone(), rows.into());
    }
    let all = json!({
        "machine": facts,
        "commit": machine::commit(),
        "profiler": version,
        "parameters": { "rounds": args.rounds, "view": args.view },
        "curves": results,
    });
    fs::write(&args.output, serde_json::to_string_pretty(&all)? + "\n")?;
    say(&format!("wrote {}", args.output.display()));
    Ok(())
}
