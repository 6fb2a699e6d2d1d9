//! The capture file: made new, for its owner only, and never in the place of something else.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::format::header::is_capture;

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

/// Refuses a place where no capture could be written, before any work is done.
pub fn check(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(_) => {
            replaceable(path)?;
            let old = old_name(path);
            if fs::symlink_metadata(&old).is_ok() {
                replaceable(&old)?;
            }
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(err).with_context(|| format!("cannot write {}", path.display())),
    }
    let dir = path
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let meta = fs::metadata(dir).with_context(|| format!("cannot write into {}", dir.display()))?;
    if !meta.is_dir() {
        bail!(
            "cannot write {}: {} is not a directory",
            path.display(),
            dir.display()
        );
    }
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK)
        .with_context(|| format!("cannot write into {}", dir.display()))
}

/// Only a capture may be moved away for a new one.
fn replaceable(path: &Path) -> Result<()> {
    let mut start = Vec::new();
    let meta = fs::symlink_metadata(path)?;
    if meta.is_symlink() {
        bail!(
            "{} is a symbolic link and left alone: give the name of a file with -o",
            path.display()
        );
    }
    if meta.is_file() {
        File::open(path)
            .and_then(|f| f.take(64).read_to_end(&mut start))
            .with_context(|| {
                format!(
                    "{} exists and cannot be read: give another name with -o",
                    path.display()
                )
            })?;
    }
    if !is_capture(&start) {
        bail!(
            "{} exists and is not a capture: it is left alone; give another name with -o",
            path.display()
        );
    }
    Ok(())
}

fn old_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    PathBuf::from(name)
}

impl Output {
    /// Makes the file; a capture that has its name becomes `FILE.old`. The file is locked (`flock`) while it is open.
    pub fn create(path: &Path) -> Result<Output> {
        check(path)?;
        let mut old = None;
        if fs::symlink_metadata(path).is_ok() {
            let name = old_name(path);
            fs::rename(path, &name)
                .with_context(|| format!("cannot keep {} as .old", path.display()))?;
            old = Some(name);
        }
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
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
