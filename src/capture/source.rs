//! Where a capture's bytes come from: a file, or memory.
//!
//! Files are read and not mapped: what was read once would otherwise count as this process's memory as long as it runs,
//! and a file that shrinks is an error here and no signal.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::reader::CaptureError;

/// The bytes of a capture.
#[derive(Debug)]
pub enum Source {
    /// A regular file.
    File(RegularFile),
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// A file as long as it was when it was opened.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    len: u64,
    /// It was found to be shorter since: nothing that is read from now on can be believed.
    shrunk: AtomicBool,
}

impl RegularFile {
    fn read(&self, offset: u64, count: usize, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        let end = offset.saturating_add(count as u64);
        if end > self.len || self.shrunk.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.resize(count, 0);
        self.file.read_exact_at(out, offset).inspect_err(|err| {
            out.clear();
            if err.kind() == io::ErrorKind::UnexpectedEof {
                self.shrunk.store(true, Ordering::Relaxed);
            }
        })
    }
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
        let metadata = file.metadata().map_err(CaptureError::Open)?;
        refuse(metadata.file_type())?;
        if metadata.len() == 0 {
            return Ok(Source::Bytes(Vec::new()));
        }
        Ok(Source::File(RegularFile {
            len: metadata.len(),
            file,
            shrunk: AtomicBool::new(false),
        }))
    }

    /// Whether these are the bytes of `file`, and not of another one of the same name.
    pub fn is(&self, file: &File) -> io::Result<bool> {
        let Source::File(ours) = self else {
            return Ok(file.metadata()?.len() == 0);
        };
        let (ours, theirs) = (ours.file.metadata()?, file.metadata()?);
        Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Source::File(file) => file.len,
            Source::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Replaces `out` by `count` bytes at `offset`; the caller has bounded `count`.
    pub fn read(&self, offset: u64, count: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let end = offset.saturating_add(count as u64);
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let (start, end) = range.ok_or(io::ErrorKind::UnexpectedEof)?;
        #[cfg(test)]
        READ.with(|read| read.set(read.get() + (end - start) as u64));
        match self {
            Source::File(file) => file.read(offset, count, out),
            Source::Bytes(bytes) => {
                out.clear();
                let part = bytes.get(start..end);
                out.extend_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("capture");
        std::fs::write(&path, vec![7; 16 * 4096]).expect("written");
        let source = Source::open(&path).expect("opened");
        let mut out = Vec::new();
        source.read(10, 5000, &mut out).expect("still there");
        assert_eq!(out, [7; 5000]);
        let eof = Some(io::ErrorKind::UnexpectedEof);
        let beyond = source.read(1, 16 * 4096, &mut out);
        assert_eq!((beyond.err().map(|e| e.kind()), out.len()), (eof, 0));
        let file = OpenOptions::new().write(true).open(&path).expect("opened");
        file.set_len(4096).expect("shorter");
        let gone = source.read(0, 16 * 4096, &mut out);
        assert_eq!((gone.err().map(|e| e.kind()), out.len()), (eof, 0));
        assert!(
            source.read(0, 10, &mut out).is_err(),
            "what was read before may be wrong too"
        );
    }
}
