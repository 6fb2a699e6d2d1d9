//! Where a capture's bytes come from: a mapped file, or memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::reader::CaptureError;
use crate::mapped::Mapped;

/// The bytes of a capture.
#[derive(Debug)]
pub enum Source {
    /// A regular file.
    File(Mapped),
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A part of another: one of several captures in a file.
    Part {
        /// The other.
        whole: Arc<Source>,
        /// Where it begins.
        start: u64,
        /// Its length, no more than is there.
        len: u64,
    },
}

impl Source {
    /// Opens a regular file, and nothing else: never waits for a FIFO, never touches a device.
    pub fn open(path: &Path) -> Result<Source, CaptureError> {
        let refuse = |file_type: std::fs::FileType| match kind_of(file_type) {
            None => Ok(()),
            Some(kind) => Err(CaptureError::NotAFile(kind)),
        };
        let metadata = std::fs::metadata(path).map_err(CaptureError::Open)?;
        refuse(metadata.file_type())?;
        // What is opened need not be what was looked at: look again, and do not wait.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(CaptureError::Open)?;
        refuse(file.metadata().map_err(CaptureError::Open)?.file_type())?;
        Source::of_file(file)
    }

    /// A regular file that is open.
    pub fn of_file(file: File) -> Result<Source, CaptureError> {
        if file.metadata().map_err(CaptureError::Open)?.len() == 0 {
            return Ok(Source::Bytes(Vec::new()));
        }
        Mapped::new(file)
            .map(Source::File)
            .map_err(CaptureError::Open)
    }

    /// Whether these are the bytes of `file`, and not of another one of the same name.
    pub fn is(&self, file: &File) -> io::Result<bool> {
        let mapped = match self {
            Source::File(mapped) => mapped,
            Source::Bytes(_) => return Ok(file.metadata()?.len() == 0),
            Source::Part { .. } => return Ok(false),
        };
        let (ours, theirs) = (mapped.metadata()?, file.metadata()?);
        Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Source::File(mapped) => mapped.len(),
            Source::Bytes(bytes) => bytes.len() as u64,
            Source::Part { len, .. } => *len,
        }
    }

    /// Of `most` that a file may have beside what its bytes stand for, what these bytes may: captures in one file have it together.
    pub fn share_of(&self, most: u64) -> u64 {
        let Source::Part { whole, len, .. } = self else {
            return most;
        };
        let share = u128::from(most) * u128::from(*len) / u128::from(whole.len().max(1));
        u64::try_from(share).unwrap_or(most).min(most)
    }

    /// Replaces `out` by `count` bytes at `offset`; the caller has bounded `count`.
    pub fn read(&self, offset: u64, count: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let end = offset.saturating_add(count as u64);
        if let Source::Part { whole, start, len } = self {
            return match end <= *len {
                true => whole.read(start.saturating_add(offset), count, out),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let (start, end) = range.ok_or(io::ErrorKind::UnexpectedEof)?;
        #[cfg(test)]
        READ.with(|read| read.set(read.get() + (end - start) as u64));
        match self {
            Source::File(mapped) => mapped.read(start..end, out),
            Source::Bytes(bytes) => {
                out.clear();
                let part = bytes.get(start..end);
                out.extend_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Source::Part { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// As [`Source::read`], but less at the end of the file.
    pub fn read_up_to(&self, offset: u64, count: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let left = self.len().saturating_sub(offset);
        self.read(offset, left.min(count as u64) as usize, out)
    }
}

#[cfg(test)]
thread_local! {
    /// Bytes read by this thread: the work a file makes.
    pub(super) static READ: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// What people call a file that is not a regular one.
fn kind_of(file_type: std::fs::FileType) -> Option<&'static str> {
    if file_type.is_file() {
        None
    } else if file_type.is_dir() {
        Some("a directory")
    } else if file_type.is_fifo() {
        Some("a FIFO")
    } else if file_type.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}
