//! What is asked of a capture.

use super::Selection;
use crate::profile::By;
use crate::symbolize;

/// What is asked: which samples, what they are counted by, how their stacks are to look, where names come from. The default
/// is all of them, by process, as they are, by this machine's files.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Where names come from.
    pub symbols: symbolize::Options,
    /// Which samples.
    pub selection: Selection,
    /// What is counted apart.
    pub by: By,
    /// How stacks look.
    pub shape: Shape,
}

impl From<symbolize::Options> for Request {
    /// Everything, with names from there.
    fn from(symbols: symbolize::Options) -> Request {
        Request {
            symbols,
            ..Request::default()
        }
    }
}

/// How the stacks of a profile look. The sums stay as they are, whatever is asked for here. A [`stream()`](super::stream()) of samples
/// takes no notice of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shape {
    /// Frames differ by the source line sampled: see [`Frame::source`](crate::profile::Frame::source).
    pub lines: bool,
    /// Frames differ by the address sampled: see [`Frame::address`](crate::profile::Frame::address).
    pub addresses: bool,
    /// Inlined functions are left out: what they have counts for the function they are inlined into.
    pub no_inline: bool,
    /// Equal functions that call each other directly are one.
    pub merge_recursion: bool,
    /// Frames of a stack at most, counted from the root; what is deeper counts for the last of them.
    pub max_depth: Option<u32>,
    /// Stacks and what they call together are one frame `[other]` where they are less than this share of all weights, in percent.
    pub min_percent: f64,
}
