//! The end of a recording: the capture closed, the person told, the command waited for.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result};

use super::setup::Setup;
use super::{Ended, room, wait_for};
use crate::format::end::{End, EndReason};
use crate::record::drain::Drain;
use crate::record::launch::{Running, shell_status};
use crate::record::options::{Options, Target};
use crate::record::progress::Summary;
use crate::record::signals::Signals;
use crate::record::{host, output};

/// Writes the end of the capture and says what was recorded. Gives what ended it and the command's exit status, 0 if it
/// still runs or there is none.
pub(super) fn close(
    options: &Options,
    drain: Drain,
    setup: &Setup,
    time: Duration,
    ended: &Ended,
    command: &mut Option<Running>,
) -> Result<(Ended, i32)> {
    let totals = drain.totals;
    let processes = setup.processes.sampled;
    let status = match (ended, command) {
        (Ended::Command, Some(command)) => {
            shell_status(command.wait().context("cannot wait for the command")?)
        }
        _ => 0,
    };
    let end = End {
        time: host::now(),
        reason: match ended {
            Ended::Command => EndReason::CommandExit(status),
            Ended::TargetsGone => EndReason::TargetsGone,
            Ended::Duration => EndReason::Duration,
            Ended::Signal(signal) => EndReason::Signal(*signal),
            Ended::NoRoom(shortage) => EndReason::Failure(shortage.label().to_owned()),
        },
        samples: totals.samples,
        lost: totals.lost,
        processes,
    };
    if let Ended::NoRoom(shortage) = ended {
        shortage.tell(options, &totals, time);
    }
    let is_file = drain.writer.get_ref().is_own_file();
    let kept = drain.writer.get_ref().kept();
    let kept = kept.map(|old| old.to_string_lossy().into_owned());
    let bytes = room::finish(drain.writer, &end, *ended, options, time)?;
    if !options.quiet {
        let event = format!("{} {}", setup.sampling.event.name(), setup.rate);
        let path = match output::is_stdout(&options.output) {
            true => "standard output".into(),
            false => options.output.to_string_lossy(),
        };
        let summary = Summary {
            totals,
            processes,
            maps_missed: setup.processes.maps_missed,
            time,
            event: &event,
            path: &path,
            kept: kept.as_deref(),
            is_file,
            bytes,
        };
        summary.print();
    }
    if totals.samples == 0 && totals.lost == 0 {
        eprintln!(
            "note: not one sample was taken: {}",
            why_nothing(options, ended)
        );
    }
    Ok((*ended, status))
}

/// Why a recording can be empty, for the person who wonders.
fn why_nothing(options: &Options, ended: &Ended) -> &'static str {
    match (&options.target, ended) {
        (Target::Command(_), _) => "the command used less CPU time than lies between two samples",
        (_, Ended::TargetsGone) => {
            "what was to be sampled ended before it used as much CPU time as lies between two samples"
        }
        _ => "what was to be sampled did not use as much CPU time as lies between two samples",
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
