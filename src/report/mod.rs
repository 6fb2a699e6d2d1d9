//! The views: one file per view, each from a [`Profile`](crate::profile::Profile) to a writer.

pub mod flamegraph;
pub mod folded;
pub mod inventory;
pub mod missing;
pub mod standard;
pub(crate) mod text;
pub mod top;
pub mod verdict;
