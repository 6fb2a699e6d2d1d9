//! Options of `profiler report` for tables, trees and comparisons.

use std::path::PathBuf;

use clap::Args;

use crate::report::top::Sort;

/// Views of functions and calls.
#[derive(Debug, Clone, Default, Args)]
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
          "tree", "callers", "callees"])]
    pub diff: Option<PathBuf>,

    /// Which functions come first in the table
    #[arg(long, value_name = "COLUMN", value_enum, conflicts_with_all = ["standard", "missing", "pprof", "firefox", "speedscope",
          "perf_script", "tree", "callers", "callees", "folded", "flamegraph"])]
    pub sort: Option<Sort>,

    /// The table or tree as JSON, all of it unless --top says how much
    #[arg(long, conflicts_with_all = ["csv", "standard", "pprof", "firefox", "speedscope", "perf_script", "folded", "flamegraph"])]
    pub json: bool,

    /// The table or tree as CSV, all of it unless --top says how much
    #[arg(long, conflicts_with_all = ["standard", "missing", "pprof", "firefox", "speedscope", "perf_script", "folded",
          "flamegraph"])]
    pub csv: bool,
}
