//! The end of a recording: the capture closed, the person told, the command waited for.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};

use super::setup::Setup;
use super::{Ended, wait_for};
use crate::format::end::{End, EndReason};
use crate::record::drain::Drain;
use crate::record::host;
use crate::record::launch::{Running, shell_status};
use crate::record::options::{Options, Rate, Target};
use crate::record::progress::Summary;
use crate::record::signals::Signals;

/// Writes the end of the capture, says what was recorded, and waits for a command that outlives it.
pub(super) fn close(
    options: &Options,
    drain: Drain,
    setup: &Setup,
    time: Duration,
    ended: &Ended,
    command: Option<Running>,
    signals: &Signals,
) -> Result<u8> {
    let totals = drain.totals;
    let processes = setup.processes.sampled;
    let mut status = 0;
    let mut command = command;
    if let (Ended::Command, Some(command)) = (ended, &mut command) {
        status = shell_status(command.wait().context("cannot wait for the command")?);
    }
    let end = End {
        time: host::now(),
        reason: match ended {
            Ended::Command => EndReason::CommandExit(status),
            Ended::TargetsGone => EndReason::TargetsGone,
            Ended::Duration => EndReason::Duration,
            Ended::Signal(signal) => EndReason::Signal(*signal),
        },
        samples: totals.samples,
        lost: totals.lost,
        processes,
    };
    let bytes = drain.writer.finish(&end)?.bytes;
    if !options.quiet {
        let event = setup.sampling.event.name();
        let event = match setup.rate {
            Rate::Frequency(hz) => format!("{event} at {hz} Hz"),
            Rate::Period(period) => format!("{event}, one sample every {period}"),
        };
        let path = options.output.to_string_lossy();
        Summary {
            totals,
            processes,
            time,
            event: &event,
            path: &path,
            bytes,
        }
        .print();
    }
    if totals.samples == 0 {
        eprintln!(
            "note: not one sample was taken: {}",
            why_nothing(options, ended)
        );
    }
    if let (Some(mut command), false) = (command, *ended == Ended::Command) {
        status = outlive(&mut command, *ended, signals, options.quiet)?;
    }
    Ok(status.clamp(0, 255) as u8)
}

/// Why a recording can be empty, for the person who wonders.
fn why_nothing(options: &Options, ended: &Ended) -> &'static str {
    match (&options.target, ended) {
        (Target::Command(_), _) => "the command used less CPU time than lies between two samples",
        (_, Ended::TargetsGone) => "what was to be sampled ended before it used CPU time",
        _ => "what was to be sampled did not use CPU time",
    }
}

/// The recording is over and its command is not: passes on the signal that ended the recording, and further ones.
pub(super) fn outlive(
    command: &mut Running,
    ended: Ended,
    signals: &Signals,
    quiet: bool,
) -> Result<i32> {
    let mut signal = match ended {
        Ended::Signal(signal) => Some(signal),
        _ => None,
    };
    if signal.is_none() && !quiet {
        eprintln!("the command goes on; Ctrl-C ends it");
    }
    loop {
        if let Some(signal) = signal {
            // Ctrl-C at a terminal has reached the command already, and some programs take a second one as "now".
            if signal != libc::SIGINT || !shares_terminal() {
                command.signal(signal);
            }
        }
        let waited = {
            let fds = [command.pidfd.as_fd(), signals.pipe.as_fd()];
            wait_for(&fds, None)?
        };
        if waited.first() == Some(&true) {
            return Ok(shell_status(
                command.wait().context("cannot wait for the command")?,
            ));
        }
        signal = signals.take();
    }
}

/// Whether we are in the foreground of a terminal, where Ctrl-C goes to all of the process group.
fn shares_terminal() -> bool {
    File::open("/dev/tty").is_ok_and(|tty| {
        rustix::termios::tcgetpgrp(&tty).is_ok_and(|group| group == rustix::process::getpgrp())
    })
}
