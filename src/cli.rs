//! The command line.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand};

use crate::pipeline::packing::Level;

pub mod pictures;
#[cfg(feature = "record")]
pub mod record;
pub mod report;
pub mod views;

pub use report::{ReportArgs, SelectArgs, ShapeArgs, ViewArgs};

/// The capture that is written and read where none is named.
pub const CAPTURE: &str = "run.bprof";

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
    Report(Box<ReportArgs>),
    /// Add to a capture what a machine needs that has none of the files
    Pack(PackArgs),
    /// Say what a capture is and what is in it
    Info(InfoArgs),
    /// Check every byte of a capture
    Verify(VerifyArgs),
    /// Write what is good of a damaged capture into a new one
    Repair(RepairArgs),
    /// Make a capture of a recording of Linux perf's
    Import(ImportArgs),
    /// Put several captures, of hosts or of times, into one file
    Merge(MergeArgs),
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

    /// The capture, with -o also `-` for standard input; run.bprof where none is named
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

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

    /// The capture, or `-` for standard input; where none is named that in `< FILE`, else run.bprof
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `profiler verify`.
#[derive(Debug, Clone, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct VerifyArgs {
    /// The capture, or `-` for standard input; where none is named that in `< FILE`, else run.bprof
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
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

    /// The damaged capture, which is never changed, or `-` for standard input; where none is named that in `< FILE`, else run.bprof
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `profiler import`.
#[derive(Debug, Clone, Args)]
#[command(after_help = IMPORT_HELP)]
pub struct ImportArgs {
    /// The new capture; a capture of that name is kept as OUT.old
    #[arg(short, long, value_name = "OUT",
          value_parser = clap::builder::PathBufValueParser::new().try_map(capture_output))]
    pub output: PathBuf,

    /// What perf has recorded, or `-` for standard input
    #[arg(value_name = "PERF.DATA")]
    pub file: PathBuf,
}

/// Arguments of `profiler merge`.
#[derive(Debug, Clone, Args)]
#[command(after_help = MERGE_HELP)]
pub struct MergeArgs {
    /// The new capture; a capture of that name is kept as OUT.old
    #[arg(short, long, value_name = "OUT",
          value_parser = clap::builder::PathBufValueParser::new().try_map(capture_output))]
    pub output: PathBuf,

    /// The captures, one of which can be `-` for standard input
    #[arg(value_name = "FILE", required = true, num_args = 2..)]
    pub files: Vec<PathBuf>,
}

const HELP: &str = "\
Examples:
  sudo profiler record -o run.bprof -- ./server --bench
  profiler report run.bprof
  profiler report --flamegraph run.svg run.bprof

Exit status: 0 it worked, 1 it failed or the capture is damaged, 2 wrong usage; of `record -- COMMAND` that of the command. \
Each command's --help says more.";

const PACK_HELP: &str = "\
What is packed is appended; a report of the packed capture is the same on a machine that has none of the files. \
Packing again adds only what is missing.

Examples:
  profiler pack run.bprof                            the symbols of the addresses hit
  profiler pack --symbols full -o box.bprof run.bprof
  profiler pack --symfs /mnt/box run.bprof           names from a copy of the recorded machine's files
  ssh box sudo profiler record -o - -d 10 -a | profiler pack -o box.bprof --symfs /mnt/box -

Exit status: 0 also when some files could not be packed (they are named on standard error), 1 it failed and the \
capture is as it was, 2 wrong usage.";

const COMPLETIONS_HELP: &str = "\
Examples:
  profiler completions bash >~/.local/share/bash-completion/completions/profiler
  profiler completions zsh >~/.zfunc/_profiler       with ~/.zfunc in fpath
  profiler completions fish >~/.config/fish/completions/profiler.fish

`make install` installs them.

Exit status: 0, 1 they could not be written, 2 wrong usage.";

const INFO_HELP: &str = "\
Examples:
  profiler info run.bprof
  profiler info --json run.bprof | jq .samples

Times are UTC by the clock of the recorded machine. Which files names still need: profiler report --missing.

Keys of --json, which stay: format, tool, file_size, host, boot_id, cpus, kernel {release, arch, build_id}, events [{name, \
rate}], target, start, first_sample, last_sample, span_seconds, samples, weight (what the samples count for), lost, \
truncated (samples recorded with a cut stack), losses {cause: count}, processes, \
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

Exit status: 0 the new capture is whole and has samples, however few, 1 no sample could be saved, nothing could be written, or FILE is \
no capture, 2 wrong usage.";

const MERGE_HELP: &str = "\
Each capture stays as it is, with its host, clock, kernel and what was packed into it: its samples are named by its own \
tables, then counted together. Pack before merging. With several hosts processes are called comm-PID@HOST; report \
--by host and --host NAME tell hosts apart, --by capture and --capture N captures (info numbers them). Merged captures are merged as their parts. The same recording twice is refused.

Examples:
  profiler merge web1.bprof web2.bprof web3.bprof -o web.bprof
  profiler report --by host web.bprof
  profiler report --host web2 web.bprof
  profiler report --by capture --tree both.bprof
  profiler merge run.bprof.old run.bprof -o both.bprof       before and after, in one

Exit status: 0, 1 a capture cannot be read or nothing could be written, 2 wrong usage.";

const IMPORT_HELP: &str = "\
Every sample of `perf record` counts as one, with its stacks, process, thread, time and CPU. Reports, pack and all else \
work on the capture as on any other.

Names need what was mapped: perf has build IDs of the files it found samples in, and with `perf record --buildid-all` or \
--buildid-mmap of all. perf records no names of kernel code: they are taken from the running kernel when it is surely \
the one that was recorded (host, build ID, and where it lies), so import on the machine that recorded, before it is \
booted anew, as a user who may see kernel addresses.

CPUs are recorded with --sample-cpu or -a (else they are ?), the time of day with -k mono (else it is reckoned from the file's).

What perf lost, cut or left out is in the capture and in its reports. Stack memory (--call-graph dwarf) and branches are \
not unwound: such samples have the innermost user frame only.

Examples:
  perf record -F 999 -g --buildid-all --sample-cpu -k mono -- ./server --bench
  profiler import perf.data -o run.bprof && profiler report run.bprof
  perf record -a -g --buildid-mmap -o - sleep 5 | profiler import - -o run.bprof

Exit status: 0 all of it is in the capture, 1 it is damaged (what could be read is in the capture) or cannot be read, \
2 wrong usage.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
