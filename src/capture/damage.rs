//! What can be wrong with a capture: as a whole, or at a place of it.

use std::io;

use crate::format::error::FormatError;

/// Why nothing of a capture can be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot open the capture")]
    Open(#[source] io::Error),
    /// Captures are regular files; this is something else.
    #[error("the capture is {0}, not a regular file; give a file, or `-` to read standard input")]
    NotAFile(&'static str),
    /// The file cannot be read.
    #[error("cannot read the capture")]
    Read(#[source] io::Error),
    /// Not a capture, or not one this program can read.
    #[error("cannot read the capture: {0}")]
    Header(FormatError),
    /// A file of captures in a file of captures.
    #[error("it holds captures itself; merged captures are merged as their parts")]
    Nested,
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// Nothing but a part of the header is there.
    #[error(
        "the capture ends inside its header, after {bytes} bytes; recording never really began"
    )]
    CutInHeader {
        /// Length of the file.
        bytes: u64,
    },
}

/// A place of a capture that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the capture: {kind}")]
pub struct Damage {
    /// Where in the file.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DamageKind,
    /// Frames that cannot be used because of it, as far as their descriptors are known.
    pub frames: u32,
    /// Samples in those frames.
    pub samples: u64,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// Bytes that are not the beginning of anything.
    #[error("no frame begins here")]
    NoFrame,
    /// Frames are missing, by their sequence numbers.
    #[error("frames {first} to {} are missing", .next - 1)]
    Missing {
        /// The first one missing.
        first: u32,
        /// The first one that is there again.
        next: u32,
    },
    /// A frame comes a second time, or too late.
    #[error("frame {0} comes again or out of order")]
    Repeated(u32),
    /// Another capture begins; only the first one is read.
    #[error("another capture begins here; its {bytes} bytes are not read")]
    Foreign {
        /// Bytes from there to the end.
        bytes: u64,
    },
    /// Bytes that are against the format.
    #[error("{0}")]
    Format(FormatError),
    /// The operating system could not read it.
    #[error("cannot be read: {0}")]
    Io(String),
    /// What the frame builds on is missing.
    #[error("frame {found} of segment {segment} follows, frame {expected} is missing")]
    Gap {
        /// Which segment.
        segment: u32,
        /// Number in the segment of the frame that is missing.
        expected: u32,
        /// Number in the segment of the frame found.
        found: u32,
    },
    /// More symbol aid than a reader takes.
    #[error("more symbol aid than the format allows")]
    TooMuchAid,
    /// One of several captures in a file cannot be read at all.
    #[error("capture {number} of the file cannot be read: {reason}")]
    Member {
        /// Which, from 1.
        number: u32,
        /// Why not.
        reason: String,
    },
    /// A file of captures without any.
    #[error("no capture is in it")]
    NoMember,
    /// Captures are missing in a file of several.
    #[error("{missing} of the {count} captures are missing")]
    MissingMembers {
        /// How many.
        missing: u32,
        /// How many there were.
        count: u32,
    },
    /// The file ends before one of several captures does.
    #[error("the last {missing} bytes of capture {number} are missing")]
    CutMember {
        /// Which, from 1.
        number: u32,
        /// Bytes that are not there.
        missing: u64,
    },
    /// A capture is in a file of several again; it is not read again.
    #[error("capture {0} is there again")]
    MemberAgain(u32),
    /// More captures in a file than a reader takes.
    #[error("more captures in one file than the format allows")]
    TooManyMembers,
    /// More in the frames of segments than a file of its size may hold.
    #[error("more content than the format allows in a file of this size")]
    TooMuchContent,
    /// More packed symbols, or packed symbol tables, than a reader takes.
    #[error("more packed symbols than the format allows")]
    TooMuchPacked,
}
