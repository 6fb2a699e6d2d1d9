//! `--tree`, `--callers` and `--callees`: calls as a tree, as text, JSON or CSV.
//!
//! ```text
//! walk   stacks -> nodes merged by function, heaviest first, small ones left out and counted
//! text   nodes for people, chains of single calls in one column        data   JSON, CSV
//!   lines  how levels are drawn in the width there is
//! ```

mod data;
mod lines;
mod text;
mod walk;

pub use data::{COLUMNS, csv, json};
pub use text::write;

use super::callers::Found;
use super::layout::Style;

/// Which tree.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// Everything, from the roots of stacks down to what was sampled.
    All,
    /// What these functions call.
    Callees(&'a Found),
    /// Who calls these functions: each node is called by those below it.
    Callers(&'a Found),
}

impl<'a> Of<'a> {
    fn found(self) -> Option<&'a Found> {
        match self {
            Of::All => None,
            Of::Callees(found) | Of::Callers(found) => Some(found),
        }
    }
}

/// What is shown, and how it is to look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// A tree for each group.
    pub by_group: bool,
    /// Nodes below this share, in percent, are left out: of all samples, or of those with the function asked for.
    pub min_percent: f64,
    /// Where the text is shown.
    pub style: Style,
}

impl Options {
    /// Smallest share that is shown where nothing else is asked for, in percent.
    pub const MIN_PERCENT: f64 = 0.5;
}

impl Default for Options {
    fn default() -> Options {
        Options {
            by_group: false,
            min_percent: Options::MIN_PERCENT,
            style: Style::default(),
        }
    }
}
