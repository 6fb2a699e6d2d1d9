//! The command line of `profiler record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};

use super::capture_output;
use crate::event::Pid;
use crate::record::options::{Event, Options, Rate, Target, Unwind};

/// Arguments of `profiler record`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP,
          override_usage = "profiler record [OPTIONS] -- COMMAND [ARG]...\n       \
                            profiler record [OPTIONS] [-p PID,... | -t TID,... | --pgrp PGID | --session SID | --cgroup PATH | -a]")]
pub struct RecordArgs {
    /// The capture to write, or `-` for standard output; a capture of that name is kept as FILE.old
    #[arg(short, long, value_name = "FILE", default_value = super::CAPTURE)]
    pub output: PathBuf,

    /// End at this size of the file: a number of bytes, or with K, M or G
    #[arg(long, value_name = "SIZE", value_parser = max_size)]
    pub max_size: Option<u64>,

    /// Bring what is written to the disk each so many seconds (0: leave that to the kernel)
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = sync)]
    pub sync: Sync,

    /// Samples a second, for each CPU or thread that runs
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, value_parser = frequency)]
    pub frequency: u64,

    /// One sample each N events instead (cycles, or nanoseconds of cpu-clock)
    #[arg(short = 'c', long, value_name = "N", conflicts_with = "frequency",
          value_parser = period)]
    pub period: Option<u64>,

    /// What to sample by; without it cycles where the machine has a PMU, else cpu-clock
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<EventName>,

    /// The same as -e cpu-clock
    #[arg(long, conflicts_with = "event")]
    pub sw_event: bool,

    /// For how long: seconds, or with a unit (500ms, 2.5s, 1m, 1h)
    #[arg(short, long, value_name = "TIME", value_parser = duration, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    #[command(flatten)]
    /// Whom to sample
    pub target: TargetArgs,

    /// Leave out child processes of the target (its new threads are followed)
    #[arg(long)]
    pub no_inherit: bool,

    /// Sample idle CPUs too
    #[arg(long)]
    pub idle: bool,

    /// Memory for samples on their way, for each CPU: 64K to 64M, rounded up to a power of two
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub ring_size: Option<u32>,

    /// Sample less often when recording takes more than PCT percent of one CPU; samples then count for more
    #[arg(long, value_name = "PCT", value_parser = percent, allow_negative_numbers = true)]
    pub cpu_limit: Option<f64>,

    /// How to walk user stacks: along frame pointers, by unwind information (.eh_frame, .debug_frame; x86-64), or by both
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub unwind: UnwindName,

    /// Say nothing unless something is wrong
    #[arg(short, long)]
    pub quiet: bool,
}

/// How often what is written is brought to the disk, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sync(Option<Duration>);

/// Arguments of `profiler doctor`.
#[derive(Debug, Clone, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The capture that would be written
    #[arg(short, long, value_name = "FILE", default_value = super::CAPTURE,
          value_parser = clap::builder::PathBufValueParser::new().try_map(capture_output))]
    pub output: PathBuf,
}

const DOCTOR_HELP: &str = "\
Each requirement is ok, degraded (recording works, with something missing) or missing. Events are opened and the sampling \
program is loaded for a moment; nothing is sampled and nothing is written.

Examples:
  sudo profiler doctor
  profiler doctor --json | jq '.requirements[] | select(.state != \"ok\")'

Keys of --json, which stay: works, requirements [{requirement, state (ok, degraded, missing), found, fix}]; fix may be null.

Exit status: 0 recording would work, 1 it would not, 2 wrong usage.";

/// Whom to sample; without any of these the whole machine.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct TargetArgs {
    /// These processes: all their threads, and what they start
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = pid, allow_negative_numbers = true)]
    pub pid: Vec<Pid>,

    /// These threads only
    #[arg(short, long, value_name = "TID", value_delimiter = ',', value_parser = pid, allow_negative_numbers = true)]
    pub tid: Vec<Pid>,

    /// A process group
    #[arg(long, value_name = "PGID", value_parser = pid)]
    pub pgrp: Option<Pid>,

    /// A session
    #[arg(long, value_name = "SID", value_parser = pid)]
    pub session: Option<Pid>,

    /// A cgroup (v2) and those below it: its directory, or its path in the hierarchy
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// The whole machine
    #[arg(short, long)]
    pub all: bool,

    /// A command to run and sample, with all it starts; the exit status is its own
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A sample each so many cycles already takes all of a CPU.
const SHORTEST_PERIOD: u64 = 1000;
/// The kernel takes no longer one.
const LONGEST_PERIOD: u64 = i64::MAX as u64;

/// Names of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EventName {
    /// CPU cycles, counted by hardware
    Cycles,
    /// Time on the CPU, by the kernel's clock
    CpuClock,
}

/// Names of ways to walk user stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnwindName {
    /// By unwind information, and along frame pointers where there is none or the stack is too deep for it
    Auto,
    /// Along frame pointers
    Fp,
    /// By unwind information: whole stacks of code without frame pointers
    Dwarf,
}

impl RecordArgs {
    /// What the recorder is to do.
    pub fn options(&self) -> Options {
        let target = &self.target;
        let target = if !target.command.is_empty() {
            Target::Command(target.command.clone())
        } else if !target.pid.is_empty() {
            Target::Processes(unique(&target.pid))
        } else if !target.tid.is_empty() {
            Target::Threads(unique(&target.tid))
        } else if let Some(group) = target.pgrp {
            Target::ProcessGroup(group.0)
        } else if let Some(session) = target.session {
            Target::Session(session.0)
        } else if let Some(path) = &target.cgroup {
            Target::Cgroup(path.clone())
        } else {
            Target::System
        };
        Options {
            output: self.output.clone(),
            sync: self.sync.0,
            max_size: self.max_size,
            event: match (self.event, self.sw_event) {
                (_, true) | (Some(EventName::CpuClock), _) => Some(Event::CpuClock),
                (Some(EventName::Cycles), _) => Some(Event::Cycles),
                (None, _) => None,
            },
            rate: self
                .period
                .map_or(Rate::Frequency(self.frequency), Rate::Period),
            duration: self.duration,
            target,
            inherit: !self.no_inherit,
            idle: self.idle,
            ring_bytes: self.ring_size,
            unwind: match self.unwind {
                UnwindName::Auto => Unwind::Auto,
                UnwindName::Fp => Unwind::FramePointers,
                UnwindName::Dwarf => Unwind::Dwarf,
            },
            cpu_limit: self.cpu_limit,
            quiet: self.quiet,
        }
    }
}

fn unique(pids: &[Pid]) -> Vec<Pid> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn frequency(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|hz| *hz > 0);
    number.ok_or_else(|| "must be a number of samples a second, from 1".into())
}

fn period(text: &str) -> Result<u64, String> {
    let number = text.parse().ok();
    let fits = number.filter(|n| (SHORTEST_PERIOD..=LONGEST_PERIOD).contains(n));
    fits.ok_or_else(|| format!("must be a number of events, from {SHORTEST_PERIOD}"))
}

fn pid(text: &str) -> Result<Pid, String> {
    match text.trim().parse::<u32>() {
        Ok(number) if number > 0 && number <= i32::MAX as u32 => Ok(Pid(number)),
        _ => Err("must be the number of a process or thread".into()),
    }
}

/// `5`, `2.5s`, `500ms`, `1m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be ms, s, m or h".into()),
    };
    let seconds = number
        .trim()
        .parse::<f64>()
        .map_err(|_| "must be a time such as 10 or 500ms")?;
    match Duration::try_from_secs_f64(seconds * scale) {
        Ok(time) if time > Duration::ZERO => Ok(time),
        _ => Err("must be longer than nothing".into()),
    }
}

/// A share of one CPU.
fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.01..=100.0).contains(&percent) => Ok(percent),
        _ => Err("must be percent of one CPU, from 0.01 to 100".into()),
    }
}

/// `256K`, `1M`, `2GiB`: in bytes.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let lower = lower
        .strip_suffix("ib")
        .or(lower.strip_suffix('b'))
        .unwrap_or(&lower);
    let unit = lower.chars().last().and_then(|unit| "kmgt".find(unit));
    let (number, scale) = match unit {
        Some(place) => (&lower[..lower.len() - 1], 1u64 << (10 * (place + 1))),
        None => (lower, 1),
    };
    number.trim().parse::<u64>().ok()?.checked_mul(scale)
}

/// A power of two and a multiple of the page size, as rings have to be.
fn ring_size(text: &str) -> Result<u32, String> {
    let bytes = bytes(text).ok_or("must be a size from 64K to 64M, such as 512K")?;
    if !((64 << 10)..=(64 << 20)).contains(&bytes) {
        return Err("must be from 64K to 64M".into());
    }
    Ok(bytes.next_power_of_two() as u32)
}

/// A smaller capture would be nothing but its end.
const SMALLEST: u64 = 64 << 10;

fn max_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text).filter(|bytes| *bytes >= SMALLEST);
    bytes.ok_or_else(|| "must be a size such as 500K, 100M or 2G, at least 64K".into())
}

fn sync(text: &str) -> Result<Sync, String> {
    if text.trim().parse() == Ok(0.0) {
        return Ok(Sync(None));
    }
    Ok(Sync(Some(duration(text)?)))
}

const HELP: &str = "\
Examples:
  profiler record -- make -j8              a command and all it starts
  profiler record -p 1234 -d 30            a running process for 30 seconds
  profiler record -d 10                    the whole machine
  profiler record --cgroup /system.slice/nginx.service -F 199 -d 60
  profiler record -o /var/tmp/x.bprof -t 1234,1240

-p covers all threads of the process, present and future, and the processes it starts from now on (not those \
with --no-inherit). Of a list given with -p or -t those that are there are sampled and the others named. With neither \
a target nor a command the whole machine is sampled, until Ctrl-C or -d. A command that is still running after -d \
goes on, and is waited for.
User stacks are whole, of code built without frame pointers too, as most of a distribution is: of each sample registers and the used top of \
the user stack (128 KiB at most) are copied to the recorder, which walks them by the unwind information of the mapped files and \
writes addresses only. What could not be walked to its root is counted by cause, and told by every report. Stacks for which that is not enough are \
walked along frame pointers as well, from where the copy or the unwind information ends (not so with --unwind dwarf). Where the machine cannot do \
it (other than x86-64, before Linux 5.15), and with --unwind fp, stacks are walked along frame pointers alone: the caller of a function \
that keeps none is missing then, and nothing tells. gcc -fno-omit-frame-pointer keeps them in functions that call nothing only with \
-mno-omit-leaf-frame-pointer. fp takes the least of the recorder.
  profiler record --unwind fp -F 4999 -p 1234 -d 30

Nothing is symbolized while recording: profiler report does that, here or elsewhere.

On a terminal a line shows how far the recording is; when a command writes to the same terminal, the terminal's title \
does.

What is written is never changed: a recorder that is killed (kill -9) loses the last second of samples at most. When the machine \
loses power, what is on its disk is what was written up to the last --sync, which may be SECS and a second ago and as long as that \
took; more may be there. When the disk is full, the file may not grow any more, or cannot be written, sampling stops at once, what is in \
the file stays, the reason is told and the exit status is 1. With --max-size that is no failure. A launched command goes on in either \
case, and is waited for.

-o - writes the capture to standard output, and what a launched command prints there goes to standard error. FILE can also be a FIFO \
that is being read. When the reader goes, recording ends without a word (exit 0). A reader that is too slow costs samples, which are \
counted.
  ssh box sudo profiler record -o - -d 10 | profiler report -

Exit status: that of the command; without one 0, or 1 when recording failed, 2 for wrong usage. \
126 and 127: the command could not be run. 1 also when recording failed and the command did not.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_as_people_write_them() {
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("2.5s"), Ok(Duration::from_millis(2500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        for bad in ["", "0", "-1", "x", "5d", "NaN", "inf", "1e300"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert_eq!(ring_size("64K"), Ok(65536));
        assert_eq!(ring_size("1MiB"), Ok(1 << 20));
        assert_eq!(ring_size("300000"), Ok(1 << 19));
        assert_eq!((percent("2.5"), percent("1%")), (Ok(2.5), Ok(1.0)));
        for bad in ["", "0", "-1", "101", "NaN", "inf", "x"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
        for bad in ["", "0", "1K", "1G", "65M", "M", "-1M"] {
            assert!(ring_size(bad).is_err(), "{bad}");
        }
        assert_eq!(max_size("100K"), Ok(102_400));
        assert_eq!(max_size("2GiB"), Ok(2 << 30));
        assert_eq!(max_size("1000000"), Ok(1_000_000));
        for bad in ["", "0", "63K", "1X", "-5M", "99999999999T", "M"] {
            assert!(max_size(bad).is_err(), "{bad}");
        }
        assert_eq!(sync("0"), Ok(Sync(None)));
        assert_eq!(sync("2.5"), Ok(Sync(Some(Duration::from_millis(2500)))));
        assert!(sync("-1").is_err() && sync("x").is_err());
        assert!(capture_output("-".into()).is_err() && capture_output("./-".into()).is_ok());
        assert!(pid("0").is_err() && pid("4294967295").is_err() && pid("x").is_err());
    }
}
