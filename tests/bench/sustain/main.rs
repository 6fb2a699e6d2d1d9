//! 64 CPUs at 1,000 Hz: does the recorder keep up, and with how much to spare?
//!
//! `make bench-sustain` (needs no root). A simulated machine puts 64,000 samples a second into rings of the size that
//! `profiler record` makes at that rate; the real drain interns, resolves and writes them to a file, on one CPU, for a minute.
//! Then the same with time running as fast as the drain goes: how many samples a second of CPU time.
//!
//! Everything from the ring to the file is real: `Drain`, `Processes`, `CaptureWriter`, `Output`. What the kernel does (walk
//! stacks) and what waits for system calls (side-band rings, reading /proc, names of kernel functions) is not in it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bprof::capture::Reader;
use bprof::event::Timestamp;
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Sampling};
use bprof::record::drain::Drain;
use bprof::record::host::{self, Decided};
use bprof::record::output::Output;
use bprof::record::processes::{Processes, Scope};
use bprof::record::sideband::SideEvent;
use bprof::record::wire::Depths;
use clap::Parser;
use serde_json::{Value, json};

mod ring;
mod source;
#[path = "../support/mod.rs"]
mod support;

use ring::Ring;
use source::{LOADS, Load, Source};
use support::{machine, say};

/// A CPU puts what happens into its ring this much later at most (ns), as `record` has it.
const SETTLE: u64 = 2_000_000;
const MILLISECOND: u64 = 1_000_000;
/// `record` writes a frame at least this often, and begins a segment.
const FLUSH: Duration = Duration::from_millis(900);
const SEGMENT: Duration = Duration::from_secs(60);

#[derive(Parser)]
#[command(about = "Feeds the recorder's drain from a simulated machine")]
struct Args {
    /// Seconds of each load in real time
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds, as the machine tells time, of each load as fast as it goes
    #[arg(long, default_value_t = 30)]
    fast: u64,
    /// usual, deepest, storm, new, unshared
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "usual,deepest,storm,new,unshared"
    )]
    loads: Vec<String>,
    /// CPUs, each with a sample a millisecond
    #[arg(long, default_value_t = 64)]
    cpus: usize,
    /// KiB of each ring: what `record` takes at 999 Hz
    #[arg(long, default_value_t = 512)]
    ring: usize,
    /// Milliseconds between two looks at the rings: what `record` takes at 999 Hz
    #[arg(long, default_value_t = 128)]
    poll: u64,
    /// Where captures are written
    #[arg(long, default_value = concat!(env!("CARGO_TARGET_TMPDIR"), "/sustain"))]
    work: PathBuf,
    /// Where the results are written
    #[arg(short, long, default_value = "bench-sustain.json")]
    output: PathBuf,
    /// One load in this process, its result on standard output
    #[arg(long, hide = true)]
    only: Option<String>,
    #[arg(long, hide = true)]
    bench: bool,
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// Binds this thread to a CPU, as far as there are as many.
fn stay_on(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpu < cpus && rustix::thread::sched_setaffinity(None, &set).is_err() {
        say("note: a thread could not be bound to a CPU");
    }
}

/// In KiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// What the machine tells of processes, and has not been read.
type Told = Mutex<VecDeque<SideEvent>>;

/// The recorder's loop, without what opens and reads kernel things.
struct Recorder {
    drain: Drain,
    processes: Processes,
    events: VecDeque<SideEvent>,
    /// On the machine's clock (ns).
    next_flush: u64,
    next_segment: u64,
    cpu: Duration,
    longest: Duration,
}

impl Recorder {
    fn new(path: &Path, cpus: usize, now: u64) -> Result<Recorder> {
        let header = host::header(Decided {
            events: vec![EventInfo {
                name: "cpu-clock".into(),
                sampling: Sampling::Frequency(1000),
            }],
            target: "a simulated machine".into(),
            user_stack_limit: 127,
            kernel_stack_limit: 127,
            cpus_online: cpus as u32,
            degraded: Vec::new(),
            user_stacks: bprof::event::UserStacks::default(),
        });
        let writer = bprof::capture::CaptureWriter::create(Output::create(path, None)?, &header)?;
        // Deeper than what comes: it is whole.
        let depths = Depths {
            user: 128,
            kernel: 128,
        };
        Ok(Recorder {
            drain: Drain::new(writer, depths, None),
            processes: Processes::new(Scope::All, host::clock_ticks()),
            events: VecDeque::new(),
            next_flush: now + FLUSH.as_nanos() as u64,
            next_segment: now + SEGMENT.as_nanos() as u64,
            cpu: Duration::ZERO,
            longest: Duration::ZERO,
        })
    }

    /// Takes out what there is; `clock` is the machine's. As with the kernel, samples come first and what was told after
    /// them, so that nothing they need is missing.
    fn batch(&mut self, rings: &[Ring], told: &Told, clock: &AtomicU64) -> Result<()> {
        let (began, cpu) = (Instant::now(), thread_cpu());
        for ring in rings {
            ring.consume(|records| self.drain.take(records));
        }
        self.events.append(&mut told.lock().expect("nobody panics"));
        let now = clock.load(Ordering::Acquire);
        let horizon = Timestamp(now - SETTLE);
        let (processes, events) = (&mut self.processes, &mut self.events);
        self.drain
            .finish_batch(processes, events, horizon, Timestamp(now))?;
        self.processes.snapshot_done();
        if now >= self.next_flush {
            self.next_flush = now + FLUSH.as_nanos() as u64;
            if now >= self.next_segment {
                self.next_segment = now + SEGMENT.as_nanos() as u64;
                self.drain.segment_is_due = true;
            }
            self.drain.flush()?;
            let written = self.drain.writer.take_written();
            self.processes.files_written(&written.files);
        }
        self.cpu += thread_cpu() - cpu;
        self.longest = self.longest.max(began.elapsed());
        Ok(())
    }

    /// Closes the capture; what it holds.
    fn finish(mut self, path: &Path, now: u64) -> Result<Value> {
        let cpu = thread_cpu();
        self.drain.flush()?;
        self.cpu += thread_cpu() - cpu;
        let end = End {
            time: Timestamp(now),
            reason: EndReason::Duration,
            samples: self.drain.totals.samples,
            lost: self.drain.totals.lost,
            processes: self.processes.sampled,
        };
        let shortened = self.drain.totals.shortened;
        let bytes = self.drain.writer.finish(&end)?.bytes;
        let reader = Reader::open(path)?;
        ensure!(reader.damage().is_empty(), "the capture is damaged");
        ensure!(reader.samples() == end.samples, "samples are missing");
        let unread = self.processes.maps_missed;
        ensure!(unread == 0, "mappings of {unread} processes are missing");
        Ok(json!({
            "samples": end.samples,
            "cut": shortened,
            "refused": end.lost,
            "processes": end.processes,
            "bytes": bytes,
            "cpu_seconds": self.cpu.as_secs_f64(),
            "longest_batch_ms": self.longest.as_secs_f64() * 1e3,
            "rss_kb": memory("VmHWM"),
        }))
    }
}

/// The simulated machine.
struct Machine {
    source: Source,
    told: Told,
    /// Not earlier than anything that has happened on it (ns).
    clock: AtomicU64,
}

struct Rig {
    load: Load,
    rings: Vec<Ring>,
    path: PathBuf,
    rss_before: u64,
}

impl Rig {
    fn new(args: &Args, load: Load) -> Rig {
        Rig {
            load,
            rings: (0..args.cpus).map(|_| Ring::new(args.ring << 10)).collect(),
            path: args.work.join(format!("{}.bprof", load.name)),
            rss_before: 0,
        }
    }

    fn begin(&mut self, args: &Args) -> Result<(Machine, Recorder)> {
        let now = host::now().0;
        let mut told = VecDeque::new();
        let source = Source::new(self.load, args.cpus, now, &mut told)?;
        self.rss_before = memory("VmRSS");
        let machine = Machine {
            source,
            told: Mutex::new(told),
            clock: AtomicU64::new(now + MILLISECOND),
        };
        Ok((machine, Recorder::new(&self.path, args.cpus, now)?))
    }

    /// Takes out the rest and closes the capture.
    fn result(&self, mut recorder: Recorder, machine: &Machine) -> Result<Value> {
        let Machine {
            source,
            told,
            clock,
        } = machine;
        clock.fetch_add(2 * SETTLE, Ordering::AcqRel);
        recorder.batch(&self.rings, told, clock)?;
        let mut result = recorder.finish(&self.path, clock.load(Ordering::Acquire))?;
        let lost: u64 = self.rings.iter().map(Ring::lost).sum();
        let got = result["samples"].as_u64().unwrap_or(0) + result["refused"].as_u64().unwrap_or(0);
        ensure!(
            got + lost == source.samples,
            "samples are not accounted for"
        );
        let fullest = self.rings.iter().map(Ring::fullest).fold(0.0, f64::max);
        let rss = result["rss_kb"].as_u64().unwrap_or(0);
        result["taken"] = source.samples.into();
        result["lost_in_rings"] = lost.into();
        result["fullest_ring"] = fullest.into();
        result["events"] = source.events.into();
        // What the rings and the simulated machine take is not the recorder's.
        result["recorder_rss_kb"] = rss.saturating_sub(self.rss_before).into();
        let _ = std::fs::remove_file(&self.path);
        Ok(result)
    }

    /// In real time, the machine on another CPU.
    fn paced(&mut self, args: &Args) -> Result<Value> {
        let (mut machine, mut recorder) = self.begin(args)?;
        let ended = AtomicBool::new(false);
        let (rings, told, clock) = (&self.rings, &machine.told, &machine.clock);
        let (ended, seconds) = (&ended, args.seconds);
        let source = &mut machine.source;
        let late = std::thread::scope(|scope| -> Result<u64> {
            let reader = std::thread::current();
            let ticking = scope.spawn(move || {
                stay_on(1);
                let began = clock.load(Ordering::Acquire);
                let mut late = 0;
                for tick in 1..=seconds * 1000 {
                    let due = began + tick * MILLISECOND;
                    while let Some(early) = due.checked_sub(host::now().0).filter(|ns| *ns > 0) {
                        std::thread::sleep(Duration::from_nanos(early));
                    }
                    late = late.max(host::now().0 - due);
                    source.tick(due, rings, told, clock);
                    if rings.iter().filter(|ring| ring.has_woken()).count() > 0 {
                        reader.unpark();
                    }
                }
                ended.store(true, Ordering::Release);
                late
            });
            stay_on(0);
            while !ended.load(Ordering::Acquire) {
                std::thread::park_timeout(Duration::from_millis(args.poll));
                recorder.batch(rings, told, clock)?;
            }
            let late = ticking.join();
            late.map_err(|_| anyhow::anyhow!("the machine has failed"))
        })?;
        let mut result = self.result(recorder, &machine)?;
        result["machine_late_ms"] = (late as f64 / 1e6).into();
        let share = result["cpu_seconds"].as_f64().unwrap_or(0.0) / args.seconds as f64;
        result["share_of_a_cpu"] = share.into();
        Ok(result)
    }

    /// As fast as the drain goes: machine and drain take turns, and only the drain's time counts.
    fn unpaced(&mut self, args: &Args) -> Result<Value> {
        stay_on(0);
        let (mut machine, mut recorder) = self.begin(args)?;
        let (told, clock) = (&machine.told, &machine.clock);
        let began = clock.load(Ordering::Acquire);
        // Memory that grows with time would be seen between these.
        let mut peaks = Vec::new();
        for tick in 1..=args.fast * 1000 {
            let time = began + tick * MILLISECOND;
            machine.source.tick(time, &self.rings, told, clock);
            if tick % args.poll == 0 {
                recorder.batch(&self.rings, told, clock)?;
            }
            if tick % (args.fast * 1000 / 10).max(1) == 0 {
                peaks.push(memory("VmHWM").saturating_sub(self.rss_before));
            }
        }
        let mut result = self.result(recorder, &machine)?;
        result["recorder_peak_rss_kb_at_each_tenth"] = peaks.into();
        let cpu = result["cpu_seconds"].as_f64().unwrap_or(1.0);
        let samples = result["samples"].as_f64().unwrap_or(0.0);
        result["samples_a_cpu_second"] = (samples / cpu).into();
        result["us_a_sample"] = (cpu / samples * 1e6).into();
        Ok(result)
    }
}

/// Each load in a process of its own: peaks of memory do not mix.
fn in_process(args: &Args, which: &str) -> Result<Value> {
    let output = std::process::Command::new(std::env::current_exe()?)
        .args(["--only", which])
        .args(["--seconds", &args.seconds.to_string()])
        .args(["--fast", &args.fast.to_string()])
        .args(["--cpus", &args.cpus.to_string()])
        .args(["--ring", &args.ring.to_string()])
        .args(["--poll", &args.poll.to_string()])
        .arg("--work")
        .arg(&args.work)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "{which}: {}", output.status);
    serde_json::from_slice(&output.stdout).context("its result cannot be read")
}

fn named(name: &str) -> Result<Load> {
    let found = LOADS.into_iter().find(|load| load.name == name);
    found.with_context(|| format!("there is no load {name}"))
}

fn main() -> Result<()> {
    if !support::is_wanted("sustain", "make bench-sustain runs it") {
        return Ok(());
    }
    let args = Args::parse();
    std::fs::create_dir_all(&args.work)?;
    if let Some(which) = &args.only {
        let (name, fast) = match which.strip_suffix(":fast") {
            Some(name) => (name, true),
            None => (which.as_str(), false),
        };
        let mut rig = Rig::new(&args, named(name)?);
        let result = if fast {
            rig.unpaced(&args)
        } else {
            rig.paced(&args)
        };
        println!("{}", result?);
        return Ok(());
    }
    let loads: Vec<Load> = args
        .loads
        .iter()
        .map(|name| named(name))
        .collect::<Result<_>>()?;
    let facts = machine::facts();
    println!("{}", machine::describe(&facts));
    println!(
        "{} CPUs with 1,000 samples a second each for {} s; rings of {} KiB looked at every {} ms",
        args.cpus, args.seconds, args.ring, args.poll
    );
    let mut results = serde_json::Map::new();
    println!(
        "\n{:<8} {:>9} {:>7} {:>9} {:>9} {:>10} {:>9} {:>9} {:>10} {:>10}",
        "load",
        "samples",
        "lost",
        "cut",
        "of a CPU",
        "us/sample",
        "to spare",
        "RSS",
        "bytes/s",
        "B/sample"
    );
    for load in &loads {
        say(&format!(
            "{}: {} ({} s)",
            load.name, load.says, args.seconds
        ));
        let paced = in_process(&args, load.name)?;
        let fast = in_process(&args, &format!("{}:fast", load.name))?;
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or(f64::NAN);
        let lost = number(&paced, "lost_in_rings") + number(&paced, "refused");
        let rate = args.cpus as f64 * 1000.0;
        println!(
            "{:<8} {:>9} {:>7} {:>9} {:>7.1} % {:>10.3} {:>8.1}x {:>6.1} MB {:>7.0} KB {:>10.2}",
            load.name,
            number(&paced, "samples"),
            lost,
            number(&paced, "cut"),
            number(&paced, "share_of_a_cpu") * 100.0,
            number(&fast, "us_a_sample"),
            number(&fast, "samples_a_cpu_second") / rate,
            number(&paced, "recorder_rss_kb") / 1024.0,
            number(&paced, "bytes") / args.seconds as f64 / 1e3,
            number(&paced, "bytes") / number(&paced, "samples"),
        );
        let both = json!({ "load": load.says, "paced": paced, "fast": fast });
        results.insert(load.name.into(), both);
    }
    println!(
        "\n\"lost\": no room in a ring, or refused; \"cut\": with 8 frames of each stack, for want of room; \"to spare\": how many times as many samples one CPU would do,"
    );
    println!("measured with nobody waiting; RSS without rings and simulated machine.");
    for load in &loads {
        println!("  {:<8} {}", load.name, load.says);
    }
    let all = json!({
        "machine": facts,
        "commit": machine::commit(),
        "parameters": {
            "cpus": args.cpus, "hz": 1000, "seconds": args.seconds, "fast_seconds": args.fast,
            "ring_kib": args.ring, "poll_ms": args.poll,
        },
        "loads": results,
    });
    std::fs::write(&args.output, serde_json::to_string_pretty(&all)? + "\n")?;
    say(&format!("wrote {}", args.output.display()));
    let lost = |load: &Load| {
        let paced = &results_of(&all, load.name)["paced"];
        paced["lost_in_rings"] != 0 || paced["refused"] != 0
    };
    ensure!(!loads.iter().any(lost), "samples were lost");
    Ok(())
}

fn results_of<'a>(all: &'a Value, name: &str) -> &'a Value {
    &all["loads"][name]
}
