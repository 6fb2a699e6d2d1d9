//! Options of `profiler report` for tables, trees and comparisons.

use std::path::PathBuf;

use clap::Args;

use crate::report::diff::Renamed;
use crate::report::top::Sort;

/// What `report --help` says of them.
pub(super) const HELP: &str = "\
Functions and calls:
  profiler report --top 30 --sort total run.bprof
  profiler report --csv run.bprof >functions.csv     all functions; --json likewise
  profiler report --tree run.bprof | less            calls from the roots down
  profiler report --callers malloc run.bprof         who calls it, up to the roots
  profiler report --callees Server::handle run.bprof
  profiler report --diff before.bprof after.bprof    what takes more or less of the CPU time
  profiler report --diff before.bprof --flamegraph diff.svg after.bprof
  profiler report --diff before.bprof --same server.old=server after.bprof

FUNC of --callers and --callees: functions of exactly this name; without any, those whose names have it in them; without any, those \
it matches as a regular expression. All of them are taken as one, and the report names them. A sample counts once, for the \
outermost of recursive calls. In trees, self% is of samples taken in the function itself; a function that calls itself again and again \
is one line, ×N; what is below 0.5 % is left out and summed up (--min-percent says another share; --top N is a view of its own, of \
functions). On a terminal that is too narrow a level of calls is one column wide, or a number.

--diff compares shares of sampled CPU time, so captures may be of different length and rate, but must be of the same event. \
Functions are joined by name and module, groups without process numbers, code without names by its file. Modules and processes whose \
names differ in a version only (server-1.2 and server-1.3, libfoo.so.1.0.3 and libfoo.so.1.0.4) are taken as one where each capture has one of \
them, and that is told; --same OLD=NEW says it of others. Changes are in percentage points, \
after minus before; ~ marks those within two standard errors, which may well be chance; CPU s is the change in seconds, as far as both \
runs did the same. --folded prints STACK BEFORE AFTER, counts of BEFORE scaled to the sum of AFTER. In the graph widths are \
of AFTER; red has grown and blue has shrunk in self time, the function all over its stacks as in the table, or in this place; grey is the \
same or may well be chance. Swap the two to see what is gone. --tree and --html are of \
one capture; whole stacks of both are in the graph and in --folded.

Columns of --csv: group (empty without --by), group_samples, self, self_share, total, total_share (0 to 1, of all samples), module, \
file, line (with --lines: where most samples of the function are), function. With --tree, --callers and --callees: depth, kind (all, group, asked: \
the function asked for, function, left_out: what is too small, summed up), function, module, samples, share, self (with --callers: samples without a \
further caller). With --diff: self_before, self_after, self_before_share, self_after_share, self_change, and the same of total, module, function. \
With --min-percent the last line of the table, or of a group, is [other]: the samples taken in functions that are too small, so that self sums \
up to the same. A text that a spreadsheet would run (it begins with = + - or @) has ' before it.

--json prints {samples, no_function, damaged, functions [{function, module, file, line, self, self_share, total, total_share}], left_out {functions, \
self, self_share} (what --top N and --min-percent leave out: with it and no_function, self sums up to samples), groups [{group, samples, \
share, no_function, functions, left_out}]}; with trees {samples, shares_of, damaged, functions (those asked for), nodes [{depth, kind, function, module, \
samples, share, self}]}; with --diff {before {file, samples, weight, cpu_seconds, damaged}, after, same [{before, after}] (names taken as one), functions [{function, module, self {before, after, \
before_share, after_share, change, may_be_chance}, total}]}. Tables have all functions unless --top says how many; names are as they are.";

/// Views that are no tables.
const NO_TABLES: [&str; 8] = [
    "standard",
    "folded",
    "flamegraph",
    "html",
    "pprof",
    "firefox",
    "speedscope",
    "perf_script",
];

/// Views of functions and calls.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "View")]
pub struct TableArgs {
    /// Calls as a tree, from main() to what was sampled, with shares
    #[arg(long, group = "ViewArgs")]
    pub tree: bool,

    /// Who calls FUNC, up to the roots: an exact name, else a part of names, else a regular expression
    #[arg(long, value_name = "FUNC", group = "ViewArgs")]
    pub callers: Option<String>,

    /// What FUNC calls
    #[arg(long, value_name = "FUNC", group = "ViewArgs")]
    pub callees: Option<String>,

    /// Compare FILE with the capture BEFORE: which functions take more or less of the CPU time; with --flamegraph a differential
    /// graph, with --folded lines with two counts
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["standard", "missing", "pprof", "firefox", "speedscope", "perf_script",
          "tree", "callers", "callees", "html", "inverted", "flamechart", "min_percent", "lines", "addresses"])]
    pub diff: Option<PathBuf>,

    /// With --diff: the module or process OLD of BEFORE is NEW in FILE; may be repeated
    #[arg(long, value_name = "OLD=NEW", requires = "diff", value_parser = renamed)]
    pub same: Vec<Renamed>,

    /// Which functions come first in the table
    #[arg(long, value_name = "COLUMN", value_enum, conflicts_with_all = NO_TABLES,
          conflicts_with_all = ["missing", "tree", "callers", "callees"])]
    pub sort: Option<Sort>,

    /// The table or tree as JSON: all of it, of a table the first N with --top N
    #[arg(long, conflicts_with_all = NO_TABLES, conflicts_with = "csv")]
    pub json: bool,

    /// The table or tree as CSV: all of it, of a table the first N with --top N
    #[arg(long, conflicts_with_all = NO_TABLES, conflicts_with = "missing")]
    pub csv: bool,
}

/// `OLD=NEW`.
fn renamed(text: &str) -> Result<Renamed, String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() && !new.is_empty() => {
            Ok((old.to_owned(), new.to_owned()))
        }
        _ => Err("must be OLD=NEW, two names of one module or process".to_owned()),
    }
}
