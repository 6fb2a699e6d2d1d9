//! Where a new capture may be written: never in the place of something that is not a capture, and whose it is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::Reader;
use crate::format::header::is_capture;

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
        let file = File::open(path).and_then(|mut file| {
            Read::by_ref(&mut file).take(64).read_to_end(&mut start)?;
            Ok(file)
        });
        let file = file.with_context(|| {
            format!(
                "{} exists and cannot be read: give another name with -o",
                path.display()
            )
        })?;
        // A recording holds a lock; its file would be moved away under it, and by the next one be removed.
        let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
        if lock == Err(rustix::io::Errno::WOULDBLOCK) {
            bail!(
                "{} is being recorded, or packed, by another process: give another name with -o",
                path.display()
            );
        }
    }
    if !is_capture(&start) {
        bail!(
            "{} exists and is not a capture: it is left alone; give another name with -o",
            path.display()
        );
    }
    if !is_ours(meta.uid()) && is_shared(path) {
        bail!(
            "{} is another user's, in a directory that all share: it is left alone; give another name with -o",
            path.display()
        );
    }
    Ok(())
}

/// Whether the directory of `path` is one like /tmp.
fn is_shared(path: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    fs::metadata(dir.unwrap_or(Path::new("."))).is_ok_and(|meta| meta.mode() & STICKY != 0)
}

/// The number in an environment variable that sudo sets.
fn sudo(name: &str) -> Option<u32> {
    let root = rustix::process::geteuid().is_root();
    std::env::var(name).ok().filter(|_| root)?.parse().ok()
}

/// Whether a file of user `uid` is this user's, or under sudo that of who called it.
pub fn is_ours(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw() || sudo("SUDO_UID") == Some(uid)
}

/// Under sudo a capture belongs to who called it, who will want to read it. Where that cannot be (some network file
/// systems) it stays root's.
pub fn give_to_invoker(file: &File) {
    if let Some(uid) = sudo("SUDO_UID") {
        let _ = std::os::unix::fs::fchown(file, Some(uid), sudo("SUDO_GID"));
    }
}

/// Whether a capture is whole and has no sample, as that of a command that was mistyped.
fn has_nothing(path: &Path) -> bool {
    Reader::open(path).is_ok_and(|reader| {
        let samples = reader.frames().iter().any(|e| e.descriptor.samples > 0);
        !samples && reader.end().is_some() && reader.damage().is_empty() && !reader.is_merged()
    })
}

/// The name a capture gets that makes room for a new one.
pub fn old_name(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    PathBuf::from(name)
}

/// Renames a capture at `path`, if there is one, to [`old_name`], which it gives back. One without samples does not take the
/// place of another there, and is removed.
pub fn make_room(path: &Path) -> Result<Option<PathBuf>> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(None);
    }
    let name = old_name(path);
    if fs::symlink_metadata(&name).is_ok() && has_nothing(path) {
        fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
        return Ok(None);
    }
    fs::rename(path, &name).with_context(|| format!("cannot keep {} as .old", path.display()))?;
    Ok(Some(name))
}
