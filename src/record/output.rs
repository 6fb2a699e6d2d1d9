//! Where the capture goes: a file made new, for its owner only, and never in the place of something else; or a pipe.
//!
//! A file has some room reserved beyond what is written, so that a disk that gets full is noticed while the capture can still
//! be ended in order: with its names, its losses and its end.

mod kind;
mod sync;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FallocateFlags;

use self::kind::Special;
use self::sync::Sync;
use crate::capture::place;
use crate::capture::writer::NoRoom;

/// Bytes of the disk that are kept free for the end of the capture.
const RESERVE: u64 = 1 << 20;
/// A capture begins where so many bytes are free: its header takes a page.
pub const LEAST_ROOM: u64 = RESERVE + (4 << 10);
/// Of what is kept free, frames of samples leave so many to what names need.
const FOR_THE_END: u64 = 128 << 10;
/// So much can be written to a pipe that has room, without waiting.
const PIPE_PIECE: usize = 4096;
/// After a signal, a pipe that nobody reads is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is being written to.
#[derive(Debug)]
pub struct Output {
    file: File,
    /// `None` when it is no file of ours.
    path: Option<PathBuf>,
    /// A pipe, which may be full.
    pipe: bool,
    /// Bytes written so far.
    pub bytes: u64,
    /// Where the capture that was there before has gone.
    old: Option<PathBuf>,
    reserve: Reserve,
    sync: Option<Sync>,
    /// The last signal, when it has not been acted upon.
    signal: Arc<AtomicUsize>,
}

/// Room on the disk for what is not written yet.
#[derive(Debug)]
enum Reserve {
    /// Up to this byte of the file.
    Until(u64),
    /// Nothing more can be had: up to where there is room, and the system's error.
    Last(u64, rustix::io::Errno),
    /// It cannot be had on this file system, or is no longer wanted.
    None,
}

/// Refuses a place where no capture could be written, before any work is done.
pub fn check(path: &Path) -> Result<()> {
    match kind::special(path)? {
        Some(_) => Ok(()),
        None => place::check(path),
    }
}

/// Whether `path` means standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Output {
    /// Makes the file, or opens what is there when it is a pipe; a capture that has its name becomes `FILE.old`. The file is
    /// locked (`flock`) while it is open. What is written is brought to the disk each `sync`, if at all.
    pub fn create(path: &Path, sync: Option<Duration>) -> Result<Output> {
        let special = kind::special(path)?;
        let mut output = match special {
            Some(special) => Output::of_special(path, special)?,
            None => Output::new_file(path)?,
        };
        let regular = output.file.metadata().is_ok_and(|meta| meta.is_file());
        if let Some(every) = sync.filter(|_| regular) {
            output.sync = Some(Sync::new(every));
        }
        Ok(output)
    }

    fn of_special(path: &Path, special: Special) -> Result<Output> {
        let file = kind::open(path, special)?;
        Ok(Output {
            pipe: kind::may_be_full(&file),
            file,
            path: None,
            bytes: 0,
            old: None,
            reserve: Reserve::None,
            sync: None,
            signal: Arc::default(),
        })
    }

    fn new_file(path: &Path) -> Result<Output> {
        place::check(path)?;
        let old = place::make_room(path)?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        place::give_to_invoker(&file);
        // Says that it is being written, to those who would append; where there are no locks it goes without.
        let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        Ok(Output {
            file,
            path: Some(path.to_path_buf()),
            pipe: false,
            bytes: 0,
            old,
            reserve: Reserve::Until(0),
            sync: None,
            signal: Arc::default(),
        })
    }

    /// How to take the file away again.
    pub fn undo(&self) -> Undo {
        Undo {
            path: self.path.clone(),
            old: self.old.clone(),
        }
    }

    /// A pipe that nobody reads is not waited for any longer once there is a signal in `signal`.
    pub fn give_up_at(&mut self, signal: Arc<AtomicUsize>) {
        self.signal = signal;
    }

    /// Whether it is a regular file made by this recording, which the limit of file sizes holds for.
    pub fn is_own_file(&self) -> bool {
        self.path.is_some()
    }

    /// What the capture is called now that was there before.
    pub fn kept(&self) -> Option<&Path> {
        self.old.as_deref()
    }

    /// How far the disk is behind, when it does not keep up with the interval asked for.
    pub fn behind(&self) -> Option<Duration> {
        self.sync.as_ref().and_then(Sync::behind)
    }

    /// The number of the system's error, when the disk has no more room than what is reserved.
    pub fn disk_full(&self) -> Option<i32> {
        match self.reserve {
            Reserve::Last(_, err) => Some(err.raw_os_error()),
            _ => None,
        }
    }

    /// Uses what is reserved from now on. Gives the length up to which there is room, when that is known.
    pub fn use_reserve(&mut self) -> Option<u64> {
        match std::mem::replace(&mut self.reserve, Reserve::None) {
            Reserve::Until(end) | Reserve::Last(end, _) => Some(end),
            Reserve::None => None,
        }
    }

    /// Everything is written: brings it to the disk and gives back what was reserved.
    pub fn finish(mut self) -> io::Result<u64> {
        self.release();
        if let Some(sync) = self.sync.take() {
            sync.finish(&self.file)?;
        }
        Ok(self.bytes)
    }

    /// Sees to it that the disk has room for `count` bytes more, and for the end after them.
    fn reserve(&mut self, count: u64) -> io::Result<()> {
        let end = self.bytes + count;
        let refused = match self.reserve {
            Reserve::None => return Ok(()),
            Reserve::Until(until) if end + RESERVE <= until => return Ok(()),
            Reserve::Last(until, _) if end + FOR_THE_END <= until => return Ok(()),
            Reserve::Last(_, err) => err.into(),
            Reserve::Until(until) => {
                let more = end + RESERVE - until;
                match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, until, more) {
                    Ok(()) => {
                        self.reserve = Reserve::Until(until + more);
                        return Ok(());
                    }
                    Err(err) if is_full(err) => {
                        self.reserve = Reserve::Last(until, err);
                        if end + FOR_THE_END <= until {
                            return Ok(());
                        }
                        err.into()
                    }
                    // Not here, then.
                    Err(_) => {
                        self.reserve = Reserve::None;
                        return Ok(());
                    }
                }
            }
        };
        Err(NoRoom(refused).into_io())
    }

    /// Gives back what was reserved and not used.
    fn release(&mut self) {
        if self.path.is_some() && !matches!(self.reserve, Reserve::Until(0)) {
            // As long as it is: that frees what lies behind. Where it fails the file only takes more of the disk.
            let _ = self.file.set_len(self.bytes);
        }
        self.reserve = Reserve::None;
    }

    /// Waits until a pipe takes something. A recording can be ended meanwhile.
    fn wait_for_room(&self) -> io::Result<()> {
        const LOOK: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        let mut told = None;
        loop {
            let mut polled = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::OUT)];
            match poll(&mut polled, Some(&LOOK)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // Also when nobody reads any more, which the write tells.
                Ok(_) => return Ok(()),
                Err(err) => return Err(err.into()),
            }
            if self.signal.load(Ordering::SeqCst) != 0 {
                let told = *told.get_or_insert_with(Instant::now);
                if told.elapsed() > PATIENCE {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "its reader takes nothing more out of the pipe",
                    ));
                }
            }
        }
    }
}

/// Whether a file system says that there is no room, for anybody or for this user.
fn is_full(err: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(err, Errno::NOSPC | Errno::DQUOT)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(sync) = &mut self.sync {
            sync.tick(&self.file, self.path.as_deref(), self.bytes)?;
        }
        self.reserve(bytes.len() as u64)?;
        let mut piece = bytes;
        if self.pipe {
            self.wait_for_room()?;
            piece = bytes.get(..PIPE_PIECE).unwrap_or(bytes);
        }
        let written = self.file.write(piece)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.release();
    }
}

/// Takes away a file in which nothing was recorded, and puts an older capture back.
#[derive(Debug)]
pub struct Undo {
    path: Option<PathBuf>,
    old: Option<PathBuf>,
}

impl Undo {
    /// Does so. What cannot be undone is no worse than an empty capture, and the reason for it is told already.
    pub fn run(self) {
        let Some(path) = &self.path else {
            return;
        };
        let _ = fs::remove_file(path);
        if let Some(old) = &self.old {
            let _ = fs::rename(old, path);
        }
    }
}
