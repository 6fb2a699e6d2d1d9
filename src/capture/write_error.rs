//! Why something could not be written into a capture.

use std::io;

use crate::format::error::FormatError;

/// The tables of the segment have reached the limits of the format: nothing was added.
/// [`CaptureWriter::start_segment`](super::CaptureWriter::start_segment) makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tables of the capture's segment are full")]
pub struct TablesFull;

/// Inside the [`io::Error`] of a sink that has taken not one byte, because there was no room for them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoRoom(pub io::Error);

impl NoRoom {
    /// As an error of a sink.
    pub fn into_io(self) -> io::Error {
        io::Error::new(self.0.kind(), self)
    }
}

/// Why a capture could not be written. After any of these but [`WriteError::Full`] the writer writes nothing more, so that what is
/// in the file stays what a reader takes for a capture cut short.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The operating system refused.
    #[error("cannot write the capture (at byte {offset})")]
    Io {
        /// Bytes of whole blocks written before.
        offset: u64,
        /// Its reason.
        source: io::Error,
    },
    /// There is no room for a frame. Nothing of it was written; its samples and what waited for the same segment are
    /// counted as lost, and the capture can still be ended.
    #[error("no room for more of the capture (at byte {offset})")]
    Full {
        /// Length of the file.
        offset: u64,
        /// What the operating system says, or would have said.
        source: io::Error,
    },
    /// What was to be written is against the format.
    #[error("cannot encode the capture")]
    Format(#[from] FormatError),
    /// zstd could not be set up.
    #[error("cannot set up zstd")]
    Zstd(#[source] io::Error),
    /// An earlier write failed.
    #[error("writing the capture failed before (at byte {offset})")]
    Failed {
        /// Bytes of whole blocks written before.
        offset: u64,
    },
}
