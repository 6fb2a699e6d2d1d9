//! What can be wrong with the bytes of a capture.

/// Bytes that do not follow `format-spec.md`: what is wrong, in which part, at which byte of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part}, byte {offset}: {problem}")]
pub struct FormatError {
    /// The part of the file: `header`, `descriptor`, `segment frame`, ...
    pub part: &'static str,
    /// Offset in that part, in bytes (of its uncompressed content).
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The bytes end inside something.
    #[error("{0} is cut short")]
    CutShort(&'static str),
    /// Larger than the format allows or than what is left can hold.
    #[error("{what} is {value}, more than the {limit} possible here")]
    OverLimit {
        /// Of what.
        what: &'static str,
        /// The value found.
        value: u64,
        /// The most it may be.
        limit: u64,
    },
    /// A number that refers to nothing.
    #[error("{what} {id} does not exist, there are {known}")]
    UnknownId {
        /// Which table.
        what: &'static str,
        /// The number found.
        id: u64,
        /// Entries known there.
        known: u64,
    },
    /// A value that can never be.
    #[error("{what} cannot be {value}")]
    BadValue {
        /// Of what.
        what: &'static str,
        /// The value found.
        value: u64,
    },
    /// Bytes that are not what they were when written.
    #[error("the checksum of the {0} does not match")]
    Checksum(&'static str),
    /// Bytes after the end of something.
    #[error("{count} bytes are left over after the {what}")]
    LeftOver {
        /// After what.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// A metadata record that bincode cannot read or write.
    #[error("bad {what}: {reason}")]
    Record {
        /// Which kind of record.
        what: &'static str,
        /// bincode's words.
        reason: String,
    },
    /// zstd refuses.
    #[error("zstd: {0}")]
    Zstd(String),
    /// The file does not begin like a capture.
    #[error("this is not a capture of profiler (wrong magic number)")]
    NotACapture,
    /// Written by a program too new.
    #[error("the capture has format version {0}, this program reads version 1; use a newer one")]
    Version(u16),
    /// Needs abilities this program does not have.
    #[error("the capture needs features {0:#x} this program does not know; use a newer one")]
    RequiredFeatures(u64),
    /// Needs a kind of frame this program does not know.
    #[error(
        "the capture needs frames of kind {0}, which this program does not know; use a newer one"
    )]
    RequiredKind(u8),
}

impl FormatError {
    /// `problem` in `part` at `offset`.
    pub fn new(part: &'static str, offset: usize, problem: Problem) -> FormatError {
        FormatError {
            part,
            offset: offset as u64,
            problem,
        }
    }
}
