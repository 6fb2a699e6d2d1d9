//! The capture file: made new, for its owner only, and never in the place of something else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::capture::place;
/// The file being written.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    /// Bytes written so far.
    pub bytes: u64,
    /// Where the capture that was there before has gone.
    old: Option<PathBuf>,
}

pub use crate::capture::place::check;

impl Output {
    /// Makes the file; a capture that has its name becomes `FILE.old`. The file is locked (`flock`) while it is open.
    pub fn create(path: &Path) -> Result<Output> {
        check(path)?;
        let old = place::make_room(path)?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        give_to_invoker(&file);
        // Says that it is being written, to those who would append; where there are no locks it goes without.
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        Ok(Output {
            file,
            path: path.to_path_buf(),
            bytes: 0,
            old,
        })
    }

    /// How to take the file away again.
    pub fn undo(&self) -> Undo {
        Undo {
            path: self.path.clone(),
            old: self.old.clone(),
        }
    }
}

/// Takes away a file in which nothing was recorded, and puts an older capture back.
#[derive(Debug)]
pub struct Undo {
    path: PathBuf,
    old: Option<PathBuf>,
}

impl Undo {
    /// Does so. What cannot be undone is no worse than an empty capture, and the reason for it is told already.
    pub fn run(self) {
        let _ = fs::remove_file(&self.path);
        if let Some(old) = &self.old {
            let _ = fs::rename(old, &self.path);
        }
    }
}

/// Under sudo the capture belongs to who called it, who will want to read it. Where that cannot be (some network file
/// systems) it stays root's.
fn give_to_invoker(file: &File) {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if rustix::process::geteuid().is_root()
        && let Some(uid) = number("SUDO_UID")
    {
        let _ = std::os::unix::fs::fchown(file, Some(uid), number("SUDO_GID"));
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
