//! The end frame: recording ended in order, and these are its totals.

use serde::{Deserialize, Serialize};

use super::error::FormatError;
use super::meta;
use crate::event::Timestamp;

/// How and with what recording ended. A capture without it was cut short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub time: Timestamp,
    /// Why.
    pub reason: EndReason,
    /// Samples in the capture.
    pub samples: u64,
    /// Samples lost (see [`LossClass::is_lost_sample`](crate::event::LossClass::is_lost_sample)).
    pub lost: u64,
    /// Distinct processes with samples.
    pub processes: u64,
}

/// Why recording ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The launched command ended, with this exit status as a shell shows it.
    CommandExit(i32),
    /// Every process to be sampled has ended.
    TargetsGone,
    /// The time asked for was over.
    Duration,
    /// A signal of this number.
    Signal(i32),
    /// Something else, in words that follow "ended by": no room in the file.
    Failure(String),
}

impl End {
    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<End, FormatError> {
        meta::decode_frame("end", content)
    }
}
