//! The other half: from a recording to folded stacks, and to perf's own report.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use serde_json::{Value, json};

use crate::Args;
use crate::contender::{Contender, Tools};
use crate::support::machine;
use crate::support::measured::{self, Running, Used};
use crate::support::say;
use crate::support::statistics::Summary;
use crate::workload::{Mix, Workload};

const HZ: u64 = 9999;

/// As `inferno-collapse-perf` does with its defaults, on one thread.
pub fn collapse() -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    let mut folder = Folder::from(Options::default());
    folder.collapse(BufReader::with_capacity(1 << 16, stdin().lock()), &mut out)?;
    Ok(out.flush()?)
}

/// A way to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Profiler,
    ScriptAndCollapse,
    PerfReport,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Profiler => "profiler report --folded",
            Way::ScriptAndCollapse => "perf script | inferno-collapse-perf",
            Way::PerfReport => "perf report --stdio",
        }
    }

    fn source(self) -> Contender {
        match self {
            Way::Profiler => Contender::Profiler,
            _ => Contender::Perf,
        }
    }

    /// From the capture to `out`.
    fn take(self, args: &Args, capture: &Path, out: &Path) -> Result<Used> {
        let to = File::create(out)?;
        let quiet = |command: &mut Command| {
            command.stdin(Stdio::null()).stderr(Stdio::null());
        };
        match self {
            Way::Profiler => {
                let mut command = Command::new(&args.profiler);
                quiet(command.args(["report", "--folded"]).arg(capture));
                Ok(measured::run(command.stdout(to))?)
            }
            Way::PerfReport => {
                let mut command = Command::new(&args.perf);
                let words = ["report", "--stdio", "--no-children", "-i"];
                quiet(command.args(words).arg(capture));
                Ok(measured::run(command.stdout(to))?)
            }
            Way::ScriptAndCollapse => {
                let mut script = Command::new(&args.perf);
                quiet(script.args(["script", "-i"]).arg(capture));
                let mut script = Running::start(script.stdout(Stdio::piped()))?;
                let pipe = script.child().and_then(|child| child.stdout.take());
                let mut folder = match machine::version(&args.inferno) {
                    Some(_) => Command::new(&args.inferno),
                    None => {
                        let mut own = Command::new(std::env::current_exe()?);
                        own.arg("--collapse");
                        own
                    }
                };
                folder.stdin(pipe.context("no pipe")?).stderr(Stdio::null());
                let folder = Running::start(folder.stdout(to))?;
                let (script, told) = script.finish()?;
                let (folded, status) = folder.finish()?;
                ensure!(
                    told.success() && status.success(),
                    "{} has failed",
                    self.name()
                );
                Ok(script.and(folded))
            }
        }
    }
}

/// Samples in folded stacks.
fn sum(folded: &Path) -> Result<u64> {
    let text = fs::read(folded)?;
    let counts = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let count = line.rsplit(|byte| *byte == b' ').next()?;
        std::str::from_utf8(count).ok()?.parse::<u64>().ok()
    });
    Ok(counts.sum())
}

/// Records the same with both, then takes turns in making reports of it.
pub fn measure(args: &Args, tools: &Tools, has_perf: bool) -> Result<Value> {
    say(&format!(
        "reports: recording {} s at {HZ} Hz with each",
        args.fold
    ));
    let workload = Workload::start(Mix::Deep, &args.work)?;
    let mut sources = vec![Contender::Profiler];
    let mut ways = vec![Way::Profiler];
    if has_perf {
        sources.push(Contender::Perf);
        ways.extend([Way::ScriptAndCollapse, Way::PerfReport]);
    }
    let mut recordings = serde_json::Map::new();
    for source in sources {
        let command = source.command(tools, Mix::Deep, workload.pid(), HZ, args.fold)?;
        let used = measured::run(&mut command.context("no recorder")?)?;
        let recorded = source.recorded(tools, Mix::Mixed)?;
        let both = json!({ "recorder": used, "recorded": recorded });
        recordings.insert(source.name().into(), both);
    }
    drop(workload);

    let out: PathBuf = args.work.join("report.out");
    let mut taken = vec![Vec::new(); ways.len()];
    let mut folded = vec![None; ways.len()];
    // The first round brings everything into the page cache, and does not count.
    for round in 0..=args.fold_rounds {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let way = ways[at];
            let used = way.take(args, &way.source().capture(tools), &out)?;
            if round > 0 {
                taken[at].push(used);
                say(&format!(
                    "  round {round} of {}: {:<36} {:7.3} s",
                    args.fold_rounds,
                    way.name(),
                    used.wall
                ));
            } else if way != Way::PerfReport {
                folded[at] = Some(sum(&out)?);
            }
        }
    }
    for way in &ways {
        let _ = fs::remove_file(way.source().capture(tools));
    }

    println!(
        "\nreports of {} s at {HZ} Hz, median of {} rounds, captures in the page cache",
        args.fold, args.fold_rounds
    );
    println!(
        "{:<36} {:>9} {:>9} {:>9} {:>10} {:>9}  times ours",
        "", "samples", "wall", "CPU", "memory", "CPU with"
    );
    println!(
        "{:<36} {:>9} {:>9} {:>9} {:>10} {:>9}  (wall, CPU, memory)",
        "", "", "", "", "", "record"
    );
    let mut results = serde_json::Map::new();
    let mut ours = None;
    for (at, way) in ways.iter().enumerate() {
        let of =
            |what: fn(&Used) -> f64| Summary::of(taken[at].iter().map(what)).context("no rounds");
        let (wall, cpu) = (of(|u| u.wall)?, of(|u| u.cpu)?);
        let rss = of(|u| u.rss as f64)?;
        let recording = &recordings[way.source().name()];
        let recording_cpu = recording["recorder"]["cpu"].as_f64().unwrap_or(f64::NAN);
        let medians = [wall.median, cpu.median, rss.median];
        let times: Vec<String> = (medians.iter().zip(ours.get_or_insert(medians)))
            .map(|(theirs, ours)| format!("{:.1}", theirs / *ours))
            .collect();
        println!(
            "{:<36} {:>9} {:>7.3} s {:>7.3} s {:>7.1} MB {:>7.3} s  {}",
            way.name(),
            recording["recorded"]["samples"].to_string(),
            wall.median,
            cpu.median,
            rss.median / 1e6,
            recording_cpu + cpu.median,
            times.join(", ")
        );
        results.insert(
            way.name().into(),
            json!({ "wall": wall, "cpu": cpu, "rss": rss, "samples_in_folded_stacks": folded[at] }),
        );
    }
    let inferno = machine::version(&args.inferno);
    Ok(json!({
        "seconds": args.fold,
        "hz": HZ,
        "inferno": inferno.unwrap_or("the library, built into the benchmark, on one thread".into()),
        "recordings": recordings,
        "reports": results,
    }))
}
