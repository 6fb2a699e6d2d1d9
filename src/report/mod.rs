//! The views: one file per view, each from a [`Profile`](crate::profile::Profile), or sample by sample, to a writer.

pub mod callers;
mod cells;
pub mod diff;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub(crate) mod groups;
pub mod html;
pub mod inventory;
pub mod layout;
pub mod missing;
pub mod palette;
pub mod perf_script;
pub mod pprof;
mod sample_tree;
pub mod samples;
pub mod speedscope;
pub mod standard;
pub(crate) mod text;
pub mod top;
pub mod tree;
pub mod verdict;
mod weights;
