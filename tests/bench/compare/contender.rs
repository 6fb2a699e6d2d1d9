//! Who is compared: how each is started, and what it has recorded.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter};
use serde::Serialize;
use serde_json::Value;

use crate::support::measured::Running;
use crate::workload::{Mix, ROOT};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Contender {
    /// A sampling event that nobody reads.
    Floor,
    /// As it is by default.
    Profiler,
    ProfilerFp,
    ProfilerDwarf,
    ProfilerAuto,
    /// `perf record -g`.
    Perf,
    /// `perf record -g -z`.
    PerfZ,
    /// `perf record --call-graph dwarf`.
    PerfDwarf,
}

/// Programs and places.
pub struct Tools {
    pub profiler: PathBuf,
    pub perf: PathBuf,
    pub event: String,
    pub work: PathBuf,
}

/// What a recording holds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Recorded {
    pub bytes: u64,
    pub samples: u64,
    pub lost: u64,
    /// The share of samples with a stack that reaches the thread's first function.
    pub to_root: Option<f64>,
    /// When the first sample was taken, in seconds since 1970.
    pub first: Option<f64>,
}

impl Contender {
    pub fn named(name: &str) -> Option<Contender> {
        let all = [
            Contender::Floor,
            Contender::Profiler,
            Contender::ProfilerFp,
            Contender::ProfilerDwarf,
            Contender::ProfilerAuto,
            Contender::Perf,
            Contender::PerfZ,
            Contender::PerfDwarf,
        ];
        all.into_iter().find(|one| one.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Contender::Floor => "floor",
            Contender::Profiler => "profiler",
            Contender::ProfilerFp => "profiler-fp",
            Contender::ProfilerDwarf => "profiler-dwarf",
            Contender::ProfilerAuto => "profiler-auto",
            Contender::Perf => "perf",
            Contender::PerfZ => "perf-z",
            Contender::PerfDwarf => "perf-dwarf",
        }
    }

    pub fn says(self) -> &'static str {
        match self {
            Contender::Floor => "a bare event",
            Contender::Profiler => "profiler record",
            Contender::ProfilerFp => "profiler --unwind fp",
            Contender::ProfilerDwarf => "profiler --unwind dwarf",
            Contender::ProfilerAuto => "profiler --unwind auto",
            Contender::Perf => "perf record -g",
            Contender::PerfZ => "perf record -g -z",
            Contender::PerfDwarf => "perf, call-graph dwarf",
        }
    }

    pub fn is_perf(self) -> bool {
        matches!(
            self,
            Contender::Perf | Contender::PerfZ | Contender::PerfDwarf
        )
    }

    /// Where it records to.
    pub fn capture(self, tools: &Tools) -> PathBuf {
        let ending = if self.is_perf() { "data" } else { "bprof" };
        tools.work.join(format!("{}.{ending}", self.name()))
    }

    /// Records for so many seconds; `None` of the floor, which is no process.
    pub fn command(
        self,
        tools: &Tools,
        mix: Mix,
        pid: i32,
        hz: u64,
        seconds: f64,
    ) -> Result<Option<Command>> {
        let capture = self.capture(tools);
        let (hz, seconds) = (hz.to_string(), seconds.to_string());
        let target = match mix {
            Mix::Mixed => vec!["-a".to_owned()],
            _ => vec!["-p".to_owned(), pid.to_string()],
        };
        let _ = fs::remove_file(&capture);
        let mut command = match self {
            Contender::Floor => return Ok(None),
            Contender::Profiler
            | Contender::ProfilerFp
            | Contender::ProfilerDwarf
            | Contender::ProfilerAuto => {
                let mut command = Command::new(&tools.profiler);
                command.args([
                    "record",
                    "-q",
                    "-F",
                    &hz,
                    "-e",
                    &tools.event,
                    "-d",
                    &seconds,
                ]);
                if let Some((_, way)) = self.name().split_once('-') {
                    command.args(["--unwind", way]);
                }
                command.arg("-o").arg(&capture).args(target);
                command
            }
            Contender::Perf | Contender::PerfZ | Contender::PerfDwarf => {
                let mut command = Command::new(&tools.perf);
                command.args(["record", "-F", &hz, "-e", &tools.event]);
                match self {
                    Contender::PerfDwarf => command.args(["--call-graph", "dwarf"]),
                    Contender::PerfZ => command.args(["-g", "-z"]),
                    _ => command.arg("-g"),
                };
                command.arg("-o").arg(&capture).args(target);
                command.args(["--", "sleep", &seconds]);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(self.messages(tools))?);
        Ok(Some(command))
    }

    /// Where what it says goes.
    pub fn messages(self, tools: &Tools) -> PathBuf {
        tools.work.join(format!("{}.messages", self.name()))
    }

    /// What is in the capture.
    pub fn recorded(self, tools: &Tools, mix: Mix) -> Result<Recorded> {
        let recorded = self.counted(tools)?;
        let to_root = match mix {
            // There threads of other programs are recorded too, and what is short begins elsewhere.
            Mix::Mixed => None,
            _ => self.to_root(tools, &self.capture(tools))?,
        };
        Ok(Recorded {
            to_root,
            ..recorded
        })
    }

    /// The same without a look at the stacks.
    pub fn counted(self, tools: &Tools) -> Result<Recorded> {
        let capture = self.capture(tools);
        let bytes = fs::metadata(&capture)
            .with_context(|| self.said(tools))?
            .len();
        let recorded = match self {
            Contender::Floor => Recorded::default(),
            one if one.is_perf() => in_perf_data(&tools.perf, &capture)?,
            _ => in_capture(&tools.profiler, &capture)?,
        };
        Ok(Recorded { bytes, ..recorded })
    }

    /// The share of samples whose stack has the function that threads begin with.
    fn to_root(self, tools: &Tools, capture: &Path) -> Result<Option<f64>> {
        let mut command = if self.is_perf() {
            let mut script = Command::new(&tools.perf);
            script.args(["script", "--no-inline", "-F", "ip,sym", "-i"]);
            script
        } else {
            let mut report = Command::new(&tools.profiler);
            report.args(["report", "--folded"]);
            report
        };
        command.arg(capture).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(&mut command)?;
        let pipe = running.child().and_then(|child| child.stdout.take());
        // Line by line: what perf prints is hundreds of megabytes.
        let lines = BufReader::with_capacity(1 << 16, pipe.context("no pipe")?).split(b'\n');
        let (mut all, mut whole) = (0, 0);
        // Of the stack under way, which for perf is several lines.
        let (mut count, mut reaches) = (0, false);
        for line in lines {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim();
            let ends = if self.is_perf() {
                // Stacks are apart by an empty line.
                count |= u64::from(!line.is_empty());
                reaches |= line.split_whitespace().nth(1) == Some(ROOT);
                line.is_empty()
            } else {
                let (stack, number) = line.rsplit_once(' ').unwrap_or_default();
                count = number.parse().unwrap_or(0);
                reaches = stack.split(';').any(|frame| frame == ROOT);
                true
            };
            if ends {
                all += count;
                whole += if reaches { count } else { 0 };
                (count, reaches) = (0, false);
            }
        }
        all += count;
        whole += if reaches { count } else { 0 };
        running.finish()?;
        Ok((all > 0).then(|| whole as f64 / all as f64))
    }

    pub fn said(self, tools: &Tools) -> String {
        let text = fs::read_to_string(self.messages(tools)).unwrap_or_default();
        format!("{} left no capture: {}", self.says(), text.trim())
    }
}

fn in_capture(profiler: &Path, capture: &Path) -> Result<Recorded> {
    let output = Command::new(profiler)
        .args(["info", "--json"])
        .arg(capture)
        .output()?;
    ensure!(output.status.success(), "the capture cannot be read");
    let info: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| {
        let number = info[name].as_u64();
        number.with_context(|| format!("profiler info says nothing of {name}"))
    };
    let first = info["first_sample"].as_str().map(str::parse::<Timestamp>);
    Ok(Recorded {
        samples: number("samples")?,
        lost: number("lost")?,
        first: first
            .transpose()?
            .map(|time| time.as_nanosecond() as f64 / 1e9),
        ..Recorded::default()
    })
}

/// From what `perf report --stats` counts: records are lost by the chunk, samples one by one (`LOST_SAMPLES`, newer ones).
fn in_perf_data(perf: &Path, capture: &Path) -> Result<Recorded> {
    let output = Command::new(perf)
        .args(["report", "--stats", "-i"])
        .arg(capture)
        .stderr(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        let words = line.and_then(|line| line.split_once(':'));
        words
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    Ok(Recorded {
        samples: number("SAMPLE events"),
        lost: number("LOST events") + number("LOST_SAMPLES events"),
        ..Recorded::default()
    })
}

/// The floor: on each CPU an event as profilers open it, without a ring, a program or a stack. It lasts as long as this.
pub struct BareEvents {
    _counters: Vec<Counter>,
}

impl BareEvents {
    pub fn open(event: &str, hz: u64) -> Result<BareEvents> {
        let cpus = bprof::record::cpus::online()?;
        let open = |cpu: &u32| {
            let mut builder = match event {
                "cycles" => Builder::new(Hardware::CPU_CYCLES),
                _ => Builder::new(Software::CPU_CLOCK),
            };
            builder.include_kernel().sample_frequency(hz);
            let mut counter = builder.any_pid().one_cpu(*cpu as usize).build()?;
            counter.enable()?;
            Ok(counter)
        };
        let counters: std::io::Result<_> = cpus.iter().map(open).collect();
        Ok(BareEvents {
            _counters: counters.context("a bare sampling event cannot be opened")?,
        })
    }
}
