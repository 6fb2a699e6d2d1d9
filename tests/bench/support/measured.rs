//! Processes run for what they cost.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use serde::Serialize;

/// What a process and all it waited for have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Used {
    /// Seconds from start to end.
    pub wall: f64,
    /// CPU seconds, user and kernel.
    pub cpu: f64,
    /// Peak resident bytes of the largest process.
    pub rss: u64,
}

impl Used {
    /// Of processes that ran side by side.
    pub fn and(self, other: Used) -> Used {
        Used {
            wall: self.wall.max(other.wall),
            cpu: self.cpu + other.cpu,
            rss: self.rss.max(other.rss),
        }
    }
}

/// A process under way; it is ended when this is dropped.
pub struct Running {
    child: Option<Child>,
    began: Instant,
}

impl Running {
    /// Starts `command`.
    pub fn start(command: &mut Command) -> io::Result<Running> {
        let began = Instant::now();
        // The peak of what starts it counts as its own until it runs its program (`vfork`): it is made to be what there is now,
        // which has to be little. Where that cannot be, peaks are not lower than ours.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let child = command.spawn().map_err(|err| {
            let program = command.get_program().to_string_lossy();
            io::Error::new(err.kind(), format!("{program}: {err}"))
        })?;
        Ok(Running {
            child: Some(child),
            began,
        })
    }

    pub fn child(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    pub fn pid(&self) -> i32 {
        self.child
            .as_ref()
            .map_or(-1, |child| child.id().cast_signed())
    }

    /// Waits for its end.
    pub fn finish(mut self) -> io::Result<(Used, ExitStatus)> {
        let pid = self.pid();
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: both places are valid, and nobody else waits for this child.
        while unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) } < 0 {
            let err = io::Error::last_os_error();
            if err.kind() != io::ErrorKind::Interrupted {
                return Err(err);
            }
        }
        self.child = None;
        // SAFETY: zeroed, which is a value of it, and filled in by the kernel.
        let usage = unsafe { usage.assume_init() };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        let used = Used {
            wall: self.began.elapsed().as_secs_f64(),
            cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            rss: usage.ru_maxrss.cast_unsigned() * 1024,
        };
        Ok((used, ExitStatus::from_raw(status)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs `command` to its end, which must be a good one.
pub fn run(command: &mut Command) -> io::Result<Used> {
    let (used, status) = Running::start(command)?.finish()?;
    if !status.success() {
        let program = command.get_program().to_string_lossy();
        return Err(io::Error::other(format!("{program} has failed: {status}")));
    }
    Ok(used)
}
