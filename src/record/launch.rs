//! A command to be sampled from its first instruction: forked early, held until sampling is set up.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};

use crate::event::Pid;

/// The forked child, waiting to exec.
pub struct Held {
    /// Its process number, which the command will have.
    pub pid: Pid,
    go: PipeWriter,
    spawner: JoinHandle<io::Result<Child>>,
    name: String,
}

/// A command that runs.
pub struct Running {
    child: Child,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
}

/// Why a command did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {name}: {source}")]
pub struct NotStarted {
    name: String,
    source: io::Error,
}

impl NotStarted {
    /// As shells do: 127 when there is no such command, 126 when it may not be run.
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

impl Held {
    /// Forks the child; it waits before exec. With `to_stderr` what it prints goes to standard error, because standard output is
    /// the capture's.
    pub fn fork(words: &[OsString], to_stderr: bool) -> Result<Held> {
        let Some((program, arguments)) = words.split_first() else {
            bail!("no command to run")
        };
        let (mut told, mut tell) = io::pipe().context("cannot make a pipe")?;
        let (wait, go) = io::pipe().context("cannot make a pipe")?;
        let (wait_fd, go_fd) = (wait.as_raw_fd(), go.as_raw_fd());
        let mut command = Command::new(program);
        command.args(arguments);
        if to_stderr {
            command.stdout(io::stderr());
        }
        // SAFETY: between fork and exec this only reads and writes pipes, closes a descriptor and ends the process, which is
        // allowed there; it allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let told = tell.write_all(&std::process::id().to_ne_bytes());
                // Our copy of the writing end, or the end of the recorder would not end the wait.
                libc::close(go_fd);
                // Nobody is left to be told of an error: to give it back would end in a message of an abort.
                if told.and_then(|()| hold(wait_fd)).is_err() {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
        // `spawn` comes back only after exec, so it waits in a thread of its own.
        let spawner = thread::Builder::new()
            .name("launch".into())
            .spawn(move || {
                let child = command.spawn();
                drop(wait);
                child
            })
            .context("cannot start a thread")?;
        let mut pid = [0; 4];
        let name = program.to_string_lossy().into_owned();
        if let Err(err) = told.read_exact(&mut pid) {
            drop(go);
            let cause = match spawner.join() {
                Ok(Err(cause)) => cause,
                _ => err,
            };
            return Err(cause).with_context(|| format!("cannot fork to run {name}"));
        }
        Ok(Held {
            pid: Pid(u32::from_ne_bytes(pid)),
            go,
            spawner,
            name,
        })
    }

    /// Lets it exec.
    pub fn release(mut self) -> Result<Running> {
        // When the child is gone already, `join` says why.
        let _ = self.go.write_all(&[1]);
        drop(self.go);
        let child = match self.spawner.join() {
            Ok(Ok(child)) => child,
            Ok(Err(source)) => {
                return Err(NotStarted {
                    name: self.name,
                    source,
                }
                .into());
            }
            Err(_) => bail!("cannot run {}: the launching thread failed", self.name),
        };
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .context("cannot watch the command (pidfd_open)")?;
        Ok(Running { child, pidfd })
    }
}

/// Waits for the recorder's word; its end without one ends the child too.
fn hold(fd: i32) -> io::Result<()> {
    let mut word = 0u8;
    loop {
        // SAFETY: one byte of our own stack.
        match unsafe { libc::read(fd, (&raw mut word).cast(), 1) } {
            1 => return Ok(()),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        }
    }
}

impl Running {
    /// Passes a signal on.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so its number is still its own.
        unsafe { libc::kill(self.child.id().cast_signed(), signal) };
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// An exit status as a shell shows it: the code, or 128 and the signal.
pub fn shell_status(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|s| 128 + s))
        .unwrap_or(1)
}
