//! Options of pictures.

use clap::Args;

/// How a flame graph is drawn.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "View")]
pub struct PictureArgs {
    /// With --flamegraph: the functions that samples were taken in at the top, below each its callers (what flamegraph.pl
    /// calls --reverse --inverted)
    #[arg(long, requires = "flamegraph", conflicts_with = "flamechart")]
    pub inverted: bool,

    /// With --flamegraph: every thread's stacks in the order of time, next to each other; the width is CPU time
    #[arg(long, requires = "flamegraph")]
    pub flamechart: bool,
}
