//! Signals that end a recording.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

/// Signals that end a recording, as a descriptor to wait on and a number to look at.
pub struct Signals {
    /// Readable when a signal has come.
    pub pipe: UnixStream,
    last: Arc<AtomicUsize>,
}

impl Signals {
    const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    /// Watches from now on.
    pub fn new() -> Result<Signals> {
        let (pipe, write) = UnixStream::pair().context("cannot make a pipe")?;
        pipe.set_nonblocking(true).context("cannot make a pipe")?;
        let last = Arc::new(AtomicUsize::new(0));
        // A file that may not grow any more (RLIMIT_FSIZE) is an error of the write, not the end of us.
        signal_hook::flag::register(libc::SIGXFSZ, Arc::default())
            .context("cannot watch for signals")?;
        for signal in Signals::ENDING {
            // `nohup` asks that the end of a terminal be survived.
            if signal == libc::SIGHUP && is_ignored(signal) {
                continue;
            }
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)
                .and_then(|_| signal_hook::low_level::pipe::register(signal, write.try_clone()?))
                .context("cannot watch for signals")?;
        }
        Ok(Signals { pipe, last })
    }

    /// Where the number of the signal is until it is taken; 0 without one.
    pub fn last(&self) -> Arc<AtomicUsize> {
        self.last.clone()
    }

    /// The signal that came, if one did since the last call.
    pub fn take(&self) -> Option<i32> {
        let mut sink = [0; 64];
        while (&self.pipe).read(&mut sink).is_ok_and(|n| n > 0) {}
        match self.last.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
}

/// Whether we were started with `signal` ignored.
fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks, into a structure of our own for which all zeros is a value.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
