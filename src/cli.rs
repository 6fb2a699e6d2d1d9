//! The command line.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand};

use crate::pipeline::packing::Level;

pub mod pictures;
#[cfg(feature = "record")]
pub mod record;

/// Linux sampling profiler: capture with eBPF now, symbolize later, anywhere.
#[derive(Debug, Parser)]
#[command(name = "profiler", version, propagate_version = true, after_help = HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample processes, or the whole machine, into a capture
    #[cfg(feature = "record")]
    Record(record::RecordArgs),
    /// Say whether this user can record on this machine, and what would mend what is missing
    #[cfg(feature = "record")]
    Doctor(record::DoctorArgs),
    /// Name what a capture has sampled and show where the time went
    Report(ReportArgs),
    /// Add to a capture what a machine needs that has none of the files
    Pack(PackArgs),
    /// Say what a capture is and what is in it
    Info(InfoArgs),
    /// Check every byte of a capture
    Verify(VerifyArgs),
    /// Write what is good of a damaged capture into a new one
    Repair(RepairArgs),
    /// Print completions of commands and options for a shell
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man(ManArgs),
}

/// Where names come from; the same for every command that names.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Names")]
pub struct SymbolArgs {
    /// Look recorded paths up below DIR, a copy of the recorded machine's root; may be repeated
    #[arg(long, value_name = "DIR")]
    pub symfs: Vec<PathBuf>,

    /// Look for separate debug files in DIR, laid out like /usr/lib/debug; may be repeated
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,

    /// Take no names from files without a build ID, whose size and modification time are all that vouches for them
    #[arg(long)]
    pub require_build_id: bool,

    /// The recorded kernel's uncompressed image, for source lines and inlined functions of kernel code
    #[arg(long, value_name = "FILE")]
    pub vmlinux: Option<PathBuf>,

    /// Download what is not here from the servers in $DEBUGINFOD_URLS; without this option no server is asked
    #[arg(long)]
    pub debuginfod: bool,
}

/// A file: `-` would be taken for standard output.
fn capture_output(path: PathBuf) -> Result<PathBuf, String> {
    if path.as_os_str() == "-" {
        return Err("a capture goes to a file: name one".into());
    }
    Ok(path)
}

/// Arguments of `profiler pack`.
#[derive(Debug, Clone, Args)]
#[command(after_help = PACK_HELP)]
pub struct PackArgs {
    /// How much is packed
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Level::Hits)]
    pub symbols: Level,

    /// Leave FILE as it is and write the packed capture to OUT; a capture of that name is kept as OUT.old
    #[arg(short, long, value_name = "OUT",
          value_parser = clap::builder::PathBufValueParser::new().try_map(capture_output))]
    pub output: Option<PathBuf>,

    /// The capture
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where names come from.
    #[command(flatten)]
    pub names: SymbolArgs,
}

/// Arguments of `profiler info`.
#[derive(Debug, Clone, Args)]
#[command(after_help = INFO_HELP)]
pub struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The capture, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `profiler verify`.
#[derive(Debug, Clone, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct VerifyArgs {
    /// The capture, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `profiler completions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Arguments of `profiler man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write all pages into DIR; without, that of the program is printed
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Arguments of `profiler repair`.
#[derive(Debug, Clone, Args)]
#[command(after_help = REPAIR_HELP)]
pub struct RepairArgs {
    /// The new capture; a capture of that name is kept as OUT.old
    #[arg(short, long, value_name = "OUT",
          value_parser = clap::builder::PathBufValueParser::new().try_map(capture_output))]
    pub output: PathBuf,

    /// The damaged capture, which is never changed, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `profiler report`.
#[derive(Debug, Clone, Args)]
#[command(after_help = REPORT_HELP)]
pub struct ReportArgs {
    /// Which view; the default is `--top 20`.
    #[command(flatten)]
    pub view: ViewArgs,

    /// Write the report to OUT instead of standard output (`-`)
    #[arg(short, long, value_name = "OUT", conflicts_with_all = ["flamegraph", "html", "pprof", "firefox", "speedscope"])]
    pub output: Option<PathBuf>,

    /// How pictures are drawn.
    #[command(flatten)]
    pub pictures: pictures::PictureArgs,

    /// With --missing: print JSON
    #[arg(long, requires = "missing")]
    pub json: bool,

    /// Fail (exit 1, after the report) when less than PCT percent of the user frames have names
    #[arg(long, value_name = "PCT", value_parser = percentage)]
    pub min_named: Option<f64>,

    /// The capture, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Where names come from.
    #[command(flatten)]
    pub names: SymbolArgs,
}

/// The views of which one is shown.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
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

    /// Every sample as `perf script` prints it
    #[arg(long, help_heading = "Other tools")]
    pub perf_script: bool,
}

fn percentage(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err("must be a number from 0 to 100".to_owned()),
    }
}

const HELP: &str = "\
Examples:
  sudo profiler record -o run.bprof -- ./server --bench
  profiler report run.bprof
  profiler report --flamegraph run.svg run.bprof

Exit status: 0 it worked, 1 it failed or the capture is damaged, 2 wrong usage; of `record -- COMMAND` that of the command. \
Each command's --help says more.";

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
  ssh box cat run.bprof | profiler report -
  profiler report --pprof run.pb.gz run.bprof && go tool pprof -top run.pb.gz
  profiler report --perf-script run.bprof | inferno-collapse-perf

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

const PACK_HELP: &str = "\
What is packed is appended; a report of the packed capture is the same on a machine that has none of the files. \
Packing again adds only what is missing.

Examples:
  profiler pack run.bprof                            the symbols of the addresses hit
  profiler pack --symbols full -o box.bprof run.bprof
  profiler pack --symfs /mnt/box run.bprof           names from a copy of the recorded machine's files

Exit status: 0 also when some files could not be packed (they are named on standard error), 1 it failed and the \
capture is as it was, 2 wrong usage.";

const COMPLETIONS_HELP: &str = "\
Examples:
  profiler completions bash >~/.local/share/bash-completion/completions/profiler
  profiler completions zsh >~/.zfunc/_profiler       with ~/.zfunc in fpath
  profiler completions fish >~/.config/fish/completions/profiler.fish

`make install` installs them.";

const INFO_HELP: &str = "\
Examples:
  profiler info run.bprof
  profiler info --json run.bprof | jq .samples

Times are UTC by the clock of the recorded machine. Which files names still need: profiler report --missing.

Keys of --json, which stay: format, tool, file_size, host, boot_id, cpus, kernel {release, arch, build_id}, events [{name, \
rate}], target, start, first_sample, last_sample, span_seconds, samples, lost, truncated, losses {cause: count}, processes, \
threads, images, files, segments, frames [{kind, name, count, compressed, content}] (bytes), index, packed {level, symbols, \
symbol_files, tables, files [{path, build_id, debug, size, whole}]}, complete, ended, cut_bytes, damage, damaged_samples, \
degraded. What is not known is null.

Exit status: 0, 1 the capture is damaged or cannot be read, 2 wrong usage.";

const VERIFY_HELP: &str = "\
Examples:
  profiler verify run.bprof
  profiler verify run.bprof && scp run.bprof laptop:

Checksums, compressed content, what tables and samples refer to, totals, packed files and the index are checked. Each \
damage is a line on standard output, with the byte where it begins and what it spoils.

A capture whose recording was killed ends in a frame that is not whole. That is said and is no damage.

Exit status: 0 all is as it was written, 1 something is damaged, or the file cannot be read, 2 wrong usage.";

const REPAIR_HELP: &str = "\
Every frame that can be read is taken over as it is. What follows a damaged frame in its segment (a minute of recording \
at most) builds on it and is left out too. How many samples that costs is written into the new capture, and every report \
of it says so.

Examples:
  profiler verify run.bprof                    what is damaged
  profiler repair run.bprof -o good.bprof

Exit status: 0 the new capture is whole, however little it holds, 1 nothing could be written or FILE is no capture, \
2 wrong usage.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn percentages_are_checked() {
        assert_eq!(percentage("99.5%"), Ok(99.5));
        for text in ["", "x", "-1", "101", "NaN"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }
}
