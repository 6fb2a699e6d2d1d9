//! Outputs that are there already and are no files: pipes, and devices that take everything.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;

use crate::capture::place;

/// What an output is that is no new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    Stdout,
    Fifo,
    /// `/dev/null` and `/dev/full`.
    Device,
}

/// Devices that a capture may be written to, by number: the null device, and the one that is always full.
const DEVICES: [(u32, u32); 2] = [(1, 3), (1, 7)];

/// What is there at `path`, when that is no file; `None` when a file can be made there, or not, as [`place::check`] says.
pub(super) fn special(path: &Path) -> Result<Option<Special>> {
    if super::is_stdout(path) {
        if io::stdout().is_terminal() {
            bail!(
                "standard output is a terminal: pipe the capture somewhere, or name a file with -o"
            );
        }
        return Ok(Some(Special::Stdout));
    }
    // Links are followed only where the system makes them: `>(...)` of shells is one.
    let systems = path.starts_with("/dev") || path.starts_with("/proc");
    let found = match systems {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    };
    match found {
        Ok(meta) => of(path, &meta),
        Err(_) => Ok(None),
    }
}

fn of(path: &Path, meta: &Metadata) -> Result<Option<Special>> {
    let shown = path.display();
    let kind = meta.file_type();
    if kind.is_fifo() {
        // Names in /tmp can be taken by anyone, who would then read what this user may see.
        if !place::is_ours(meta.uid()) {
            bail!("{shown} is a pipe of another user and left alone: give another name with -o");
        }
        return Ok(Some(Special::Fifo));
    }
    let number = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    if kind.is_char_device() && DEVICES.contains(&number) {
        return Ok(Some(Special::Device));
    }
    match name(kind) {
        Some(name) => bail!("{shown} is {name} and left alone: give the name of a file with -o"),
        None => Ok(None),
    }
}

fn name(kind: FileType) -> Option<&'static str> {
    if kind.is_dir() {
        Some("a directory")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("a device")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        None
    }
}

/// Opens it, and never waits for that.
pub(super) fn open(path: &Path, special: Special) -> Result<File> {
    if special == Special::Stdout {
        let fd = io::stdout().as_fd().try_clone_to_owned();
        return Ok(fd.context("cannot write to standard output")?.into());
    }
    let shown = path.display();
    let file = File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    let file = match file {
        Err(err) if err.raw_os_error() == Some(libc::ENXIO) => {
            bail!("nobody reads the pipe {shown}: start its reader first")
        }
        file => file.with_context(|| format!("cannot open {shown}"))?,
    };
    // What is opened need not be what was looked at.
    let meta = file
        .metadata()
        .with_context(|| format!("cannot open {shown}"))?;
    if of(path, &meta)? != Some(special) {
        bail!("{shown} was changed just now: try again");
    }
    let flags = rustix::fs::fcntl_getfl(&file).unwrap_or(OFlags::NONBLOCK);
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)
        .with_context(|| format!("cannot open {shown}"))?;
    Ok(file)
}

/// Whether writing can have to wait for a reader.
pub(super) fn may_be_full(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_fifo() || kind.is_socket()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk must never be written over, and a terminal not be filled with bytes.
    #[test]
    fn only_devices_that_take_everything_are_written_to() {
        for (path, expected) in [
            ("/dev/null", Some(Special::Device)),
            ("/dev/full", Some(Special::Device)),
        ] {
            assert_eq!(special(Path::new(path)).expect("allowed"), expected);
        }
        for path in ["/dev/zero", "/dev/tty", "/dev/mem", "/dev", "/tmp"] {
            if Path::new(path).exists() {
                let refused = special(Path::new(path)).expect_err(path).to_string();
                assert!(refused.contains("left alone"), "{refused}");
            }
        }
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(special(&dir.path().join("new")).expect("allowed"), None);
        // A link that anybody can have made is not followed.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        assert_eq!(special(&link).expect("left to place::check"), None);
        assert!(super::super::check(&link).is_err());
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_not_a_wait() {
        let dir = tempfile::tempdir().expect("a directory");
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a FIFO");
        assert_eq!(special(&fifo).expect("allowed"), Some(Special::Fifo));
        let err = open(&fifo, Special::Fifo).expect_err("nobody reads");
        assert!(err.to_string().contains("nobody reads"), "{err}");
        let _reader = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&fifo)
            .expect("a reader");
        let file = open(&fifo, Special::Fifo).expect("somebody reads");
        assert!(may_be_full(&file));
        let flags = rustix::fs::fcntl_getfl(&file).expect("flags");
        assert!(!flags.contains(OFlags::NONBLOCK));
    }
}
