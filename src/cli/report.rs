//! Arguments of `profiler report`.

use std::path::PathBuf;

use clap::Args;

use super::SymbolArgs;
use super::pictures::PictureArgs;
use super::views::TableArgs;

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

    /// Tables, trees and comparisons.
    #[command(flatten)]
    pub tables: TableArgs,

    /// How pictures are drawn.
    #[command(flatten)]
    pub pictures: PictureArgs,

    /// Fail (exit 1, after the report) when less than PCT percent of the user frames have names
    #[arg(long, value_name = "PCT", value_parser = percentage)]
    pub min_named: Option<f64>,

    /// Samples of this host only, of a capture merged of several; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_checked() {
        assert_eq!(percentage("99.5%"), Ok(99.5));
        for text in ["", "x", "-1", "101", "NaN"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }
}
