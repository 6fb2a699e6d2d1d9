//! Arguments of `profiler report`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;
use regex::Regex;

use super::SymbolArgs;
use super::pictures::PictureArgs;
use super::views::TableArgs;
use crate::event::Pid;
use crate::pipeline::selection::{CodeKind, Glob, NamePattern, PathPattern, TimeRange};
use crate::pipeline::{Selection, Shape};
use crate::profile::By;
use crate::report::perf_script::Period;

/// Arguments of `profiler report`.
#[derive(Debug, Clone, Args)]
#[command(after_help = format!("{REPORT_HELP}\n\n{}", super::views::HELP),
          override_usage = "profiler report [VIEW] [OPTIONS] [FILE]\n       profiler report --diff BEFORE [VIEW] [OPTIONS] [FILE]")]
pub struct ReportArgs {
    /// The capture, or `-` for standard input; where none is named that in `< FILE`, else run.bprof
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Which view; the default is `--top 20`.
    #[command(flatten)]
    pub view: ViewArgs,

    /// Write the report to OUT instead of standard output (`-`)
    #[arg(short, long, value_name = "OUT", conflicts_with_all = ["flamegraph", "html", "pprof", "firefox", "speedscope"])]
    pub output: Option<PathBuf>,

    /// Tables, trees and comparisons.
    #[command(flatten)]
    pub tables: TableArgs,

    /// How pictures are drawn.
    #[command(flatten)]
    pub pictures: PictureArgs,

    /// Fail (exit 1, after the report) when less than PCT percent of the user frames have names
    #[arg(long, value_name = "PCT", value_parser = percentage, help_heading = "Names")]
    pub min_named: Option<f64>,

    /// Which samples.
    #[command(flatten)]
    pub select: SelectArgs,

    /// How they are counted and stacks look.
    #[command(flatten)]
    pub shape: ShapeArgs,

    /// Where names come from.
    #[command(flatten)]
    pub names: SymbolArgs,
}

/// Which samples are asked for.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Select")]
pub struct SelectArgs {
    /// Samples of that time: 10s..25s (from the first sample on), ..1m30s, 90s.., 40%..60%, 2026-11-30T08:00:00..08:05:00 (UTC, or with
    /// an offset such as +02:00). The end is not in it
    #[arg(long, value_name = "FROM..UNTIL")]
    pub time: Vec<TimeRange>,

    /// Samples of these processes
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Samples of these threads
    #[arg(long, value_name = "TID", value_delimiter = ',')]
    pub tid: Vec<u32>,

    /// Samples of threads that were called NAME when they were sampled: a name, or a pattern for all of it (`work*`); `?` is what is
    /// not known
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<Glob>,

    /// Samples of processes that ran PROGRAM: its file name, or with a `/` its path as recorded; or a pattern for all of either; `?`
    /// is one that is not known, `[kernel thread]` none, as `--by exe` shows them
    #[arg(long, value_name = "PROGRAM")]
    pub exe: Vec<PathPattern>,

    /// Samples in the cgroup PATH and in those below it, as `--by cgroup` shows them; `?` is one that is not known
    #[arg(long, value_name = "PATH", value_parser = cgroup)]
    pub cgroup: Vec<String>,

    /// Samples of these CPUs: 0-3,5
    #[arg(long, value_name = "CPUS", value_delimiter = ',', value_parser = cpus)]
    pub cpu: Vec<RangeInclusive<u32>>,

    /// Samples of this event; NAME@RATE (cpu-clock@99Hz) where a merged capture has it at several rates
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub event: Vec<String>,

    /// Samples of this host: a name, or a pattern for all of it
    #[arg(long, value_name = "NAME")]
    pub host: Vec<Glob>,

    /// Samples of these captures of a merged file, by number as `info` and `--by capture` show them: 2, 1-3,5
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = captures)]
    pub capture: Vec<RangeInclusive<u32>>,

    /// Kernel frames alone, of samples taken in the kernel
    #[arg(long, conflicts_with = "user_only")]
    pub kernel_only: bool,

    /// User frames alone, of all samples that have any: what of a program calls the kernel counts too
    #[arg(long)]
    pub user_only: bool,

    /// Samples with a function in their stack whose name matches REGEX
    #[arg(long, value_name = "REGEX")]
    pub symbol: Vec<Regex>,

    /// Samples with a function in their stack whose module is called REGEX, or matches it as a whole: libc.so.6, '[kernel]', 'libfoo.*'
    #[arg(long, value_name = "REGEX")]
    pub module: Vec<NamePattern>,
}

/// Views of single samples, whose stacks are shown as they are. The first one groups them as it is told.
const OF_SAMPLES: [&str; 8] = [
    "html",
    "flamechart",
    "standard",
    "missing",
    "pprof",
    "firefox",
    "speedscope",
    "perf_script",
];

/// How samples are counted, and how their stacks look.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Group and shape")]
pub struct ShapeArgs {
    /// What samples are counted by: the first frame of each stack
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with_all = OF_SAMPLES.into_iter().skip(1))]
    pub by: Option<By>,

    /// Tell functions apart by the source line sampled
    #[arg(long, conflicts_with_all = OF_SAMPLES)]
    pub lines: bool,

    /// Tell functions apart by the address sampled: bytes from the function's start
    #[arg(long, conflicts_with_all = OF_SAMPLES)]
    pub addresses: bool,

    /// Leave inlined functions out; samples count for the function they are inlined into
    #[arg(long, conflicts_with_all = OF_SAMPLES)]
    pub no_inline: bool,

    /// Show a function that calls itself directly once
    #[arg(long, conflicts_with_all = OF_SAMPLES)]
    pub merge_recursion: bool,

    /// Cut stacks N functions from their root: what is deeper is [deeper]
    #[arg(long, value_name = "N", conflicts_with_all = OF_SAMPLES, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_depth: Option<u32>,

    /// Put together as [other], below each function, what has less than P percent of the samples shown; of groups in tables, show those
    /// that have P percent (without: the 20 heaviest)
    #[arg(long, value_name = "P", conflicts_with_all = OF_SAMPLES, value_parser = percentage)]
    pub min_percent: Option<f64>,
}

impl SelectArgs {
    /// What was asked for.
    pub fn selection(&self) -> Selection {
        let numbers = |list: &[u32]| list.iter().copied().map(Pid).collect();
        Selection {
            pids: numbers(&self.pid),
            tids: numbers(&self.tid),
            comms: self.comm.clone(),
            exes: self.exe.clone(),
            cgroups: self.cgroup.clone(),
            cpus: self.cpu.clone(),
            events: self.event.clone(),
            hosts: self.host.clone(),
            captures: self.capture.clone(),
            code: match (self.user_only, self.kernel_only) {
                (true, _) => Some(CodeKind::User),
                (_, true) => Some(CodeKind::Kernel),
                _ => None,
            },
            symbols: self.symbol.clone(),
            modules: self.module.clone(),
            times: self.time.clone(),
        }
    }
}

impl ShapeArgs {
    /// How stacks are to look.
    pub fn shape(&self) -> Shape {
        Shape {
            lines: self.lines,
            addresses: self.addresses,
            no_inline: self.no_inline,
            merge_recursion: self.merge_recursion,
            max_depth: self.max_depth,
            min_percent: self.min_percent.unwrap_or(0.0),
        }
    }
}

/// CPUs: `3` or `0-3`.
fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    range(text, "must be CPU numbers such as 0-3,5")
}

/// Captures of a file: `2` or `1-3`.
fn captures(text: &str) -> Result<RangeInclusive<u32>, String> {
    let numbers = range(text, "must be numbers such as 2 or 1-3,5")?;
    match numbers.contains(&0) {
        true => Err("captures are numbered from 1 on".to_owned()),
        false => Ok(numbers),
    }
}

fn range(text: &str, forms: &str) -> Result<RangeInclusive<u32>, String> {
    let number = |text: &str| text.trim().parse().map_err(|_| forms.to_owned());
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first)?, number(last)?) {
        (first, last) if first <= last => Ok(first..=last),
        _ => Err("the first number of a range must not be larger than the last".to_owned()),
    }
}

/// The path of a cgroup from the root of their hierarchy, also where the path of its directory is given.
fn cgroup(text: &str) -> Result<String, String> {
    if text == "?" {
        return Ok(text.to_owned());
    }
    let mounted = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let mut below = mounted.iter().filter_map(|dir| text.strip_prefix(dir));
    let path = below.find(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = path.unwrap_or(text).trim_matches('/');
    if text.is_empty() {
        return Err("a path is needed; that of all cgroups is /".to_owned());
    }
    Ok(format!("/{path}"))
}

/// The views of which one is shown.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "View")]
pub struct ViewArgs {
    /// Every sample in time order, with addresses, source lines and inlined functions
    #[arg(long)]
    pub standard: bool,

    /// One line per stack, `comm-pid;main;...;leaf COUNT`, for flame graph tools
    #[arg(long)]
    pub folded: bool,

    /// The N functions with most samples of their own; `--top 20` is the default view
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,

    /// The files that are still needed for names, by their share of the samples
    #[arg(long)]
    pub missing: bool,

    /// Draw a flame graph into OUT, an SVG (`-` for standard output)
    #[arg(long, value_name = "OUT")]
    pub flamegraph: Option<PathBuf>,

    /// A page for a browser into OUT (`-` for standard output): flame graph, functions, and a heat map to select a time in
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,

    /// A profile for `go tool pprof`, compressed, into OUT (`-` for standard output)
    #[arg(long, value_name = "OUT", help_heading = "Other tools")]
    pub pprof: Option<PathBuf>,

    /// A profile for profiler.firefox.com, compressed, into OUT (`-` for standard output)
    #[arg(long, value_name = "OUT", help_heading = "Other tools")]
    pub firefox: Option<PathBuf>,

    /// A profile for speedscope.app, JSON, into OUT (`-` for standard output)
    #[arg(long, value_name = "OUT", help_heading = "Other tools")]
    pub speedscope: Option<PathBuf>,

    /// Every sample as `perf script` prints it; the number that tools sum up counts samples, with `=periods` it is perf's: CPU time in
    /// nanoseconds
    #[arg(long, value_name = "WHAT", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "samples",
          help_heading = "Other tools")]
    pub perf_script: Option<Period>,
}

fn percentage(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err("must be a number from 0 to 100".to_owned()),
    }
}

const REPORT_HELP: &str = "\
Examples:
  profiler report run.bprof                          functions by their samples
  profiler report --folded run.bprof | inferno-flamegraph >run.svg
  profiler report --flamegraph run.svg run.bprof     the same in one step, coloured by user, inlined and kernel code
  profiler report --flamegraph run.svg --inverted run.bprof      who calls the functions that take the time
  profiler report --flamegraph run.svg --flamechart run.bprof    each thread in order of time
  profiler report --html run.html run.bprof          a page that needs no network, to look into or to send
  profiler report --standard run.bprof | less        every sample
  profiler report --symfs /mnt/box --top 50 run.bprof
  profiler report --missing run.bprof                files to bring for more names
  profiler report --time 10s..25s --pid 4711 run.bprof
  profiler report --cgroup /system.slice/db.service --kernel-only --folded run.bprof
  profiler report --symbol '^malloc' --by thread --folded --min-percent 1 run.bprof
  ssh box cat run.bprof | profiler report -
  profiler report --pprof run.pb.gz run.bprof && go tool pprof -top run.pb.gz
  profiler report --perf-script run.bprof | inferno-collapse-perf
  profiler report --by capture --folded both.bprof   captures of a merged file apart; --capture 2: of one

Options that select hold for every view, and for --diff, and combine. Names are asked for as they are or as reports show them \
('a\\u{1b}b', odd bytes as \u{fffd}). Of an option given more than once one value has to hold, of different options \
all. What is not of the selection is not counted, neither in shares nor in the verdict; what was lost is of the whole capture, \
with --time of the frames of that time. A selection of nothing is an empty report that says why, with exit status 0.

A name is given only by the file that was mapped: a file is believed when its build ID is the recorded \
one or, where none was recorded, when size and modification time are. What cannot be named is shown as \
[file+offset], and why is counted. Each report opens with how complete it is (with --folded, on standard error).

What was packed into the capture is used first (profiler pack). Other files are looked for in this order, until one is \
believed:
  1. the recorded path below each --symfs DIR (links stay inside of DIR; /lib and /usr/lib are tried for each other)
  2. by build ID: DIR/usr/lib/debug of each --symfs, each --debug-dir, /usr/lib/debug (.build-id/xx/yyyy)
  3. debuginfod's cache ($DEBUGINFOD_CACHE_PATH, $XDG_CACHE_HOME/debuginfod_client, ~/.cache/debuginfod_client)
  4. the recorded path on this machine; with --symfs only for files that have a build ID
  5. with --debuginfod: the servers in $DEBUGINFOD_URLS, by build ID; what they give stays in the cache ($DEBUGINFOD_TIMEOUT, \
$DEBUGINFOD_MAXTIME, $DEBUGINFOD_MAXSIZE bound it)
Separate debug files are looked for in 2 (.build-id/xx/yyyy.debug) and 3, also when the program itself is gone and \
the capture has its layout, then by the program's debug link: beside it, in .debug/, and in the directories of 2 (build \
ID or checksum must agree). Names of kernel code come from the capture, never from this machine's kernel; a vmlinux with \
the recorded kernel's build ID, given or found in 2 or 3, adds lines and inlined functions.

--missing --json prints {samples, damaged, missing [{kind (file, kernel, vdso), path, build_id, reason, samples, share (0 to 1), \
frames}], other [{reason, frames}]}: samples have at least one frame without a name there; other is what no file would name.

Exit status: 0 the report is whole (a capture cut short by a kill is: the report says so), 1 the capture \
is damaged and the report partial, or it failed, 2 wrong usage.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_cgroups_are_read_as_people_give_them() {
        assert_eq!((cpus("3"), cpus("0-7")), (Ok(3..=3), Ok(0..=7)));
        for text in ["", "-", "1-", "5-3", "x", "1-2-3"] {
            assert!(cpus(text).is_err(), "{text}");
        }
        for (text, path) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("a/b/", "/a/b"),
            ("/sys/fs/cgroup/a", "/a"),
            ("/sys/fs/cgroup/unified/a", "/a"),
            ("/sys/fs/cgroup", "/"),
            ("?", "?"),
            ("/?", "/?"),
            ("/sys/fs/cgroups", "/sys/fs/cgroups"),
        ] {
            assert_eq!(cgroup(text).as_deref(), Ok(path), "{text}");
        }
        assert!(cgroup("").is_err());
    }

    #[test]
    fn percentages_are_checked() {
        assert_eq!(percentage("99.5%"), Ok(99.5));
        for text in ["", "x", "-1", "101", "NaN"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }
}
