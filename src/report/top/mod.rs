//! `--top N`: functions with module, self and total weights and shares, of everything or of each group; as text, JSON or CSV.
//!
//! ```text
//! count   rows -> weights of functions        table   text for people        data   JSON, CSV
//! ```

mod count;
mod data;
mod table;

pub use count::{Counts, Entry, Sort, functions};
pub use data::{COLUMNS, csv, json};
pub use table::write;

pub(super) use count::Counter;

use super::layout::Style;
pub use super::weights::Function;

/// What is listed, and how it is to look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Functions at most; of each group, where there are groups. `None` leaves none out.
    pub limit: Option<usize>,
    /// Which come first.
    pub sort: Sort,
    /// A list for each group.
    pub by_group: bool,
    /// Groups at most, the heaviest; `None` leaves none out. Programs get all of them.
    pub most_groups: Option<usize>,
    /// A column for the source line that has most samples of the function.
    pub lines: bool,
    /// Groups below this share of all samples, in percent, are left out.
    pub min_percent: f64,
    /// Functions whose total is below this share of all samples, in percent, are left out.
    pub min_total: f64,
    /// Where the text is shown.
    pub style: Style,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limit: Some(20),
            sort: Sort::Own,
            by_group: false,
            most_groups: None,
            lines: false,
            min_percent: 0.0,
            min_total: 0.0,
            style: Style::default(),
        }
    }
}
