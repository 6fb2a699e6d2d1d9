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
            // As `nohup` wants it, for us and the command.
            if signal == libc::SIGHUP && is_ignored(signal) {
                continue;
            }
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)
                .and_then(|_| signal_hook::low_level::pipe::register(signal, write.try_clone()?))
                .context("cannot watch for signals")?;
        }
        Ok(Signals { pipe, last })
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

fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zeroes is a value of this type, and the call only fills it in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
