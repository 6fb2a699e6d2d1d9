//! A capture that may grow no more: the recording ends in order, and what did not fit is counted.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Result, anyhow};
use indicatif::{HumanBytes, HumanCount};

use super::{Ended, Session};
use crate::capture::writer::WriteError;
use crate::counted::{are, noun};
use crate::format::end::End;
use crate::record::drain::Totals;
use crate::record::options::{Options, Target};
use crate::record::output::LEAST_ROOM;
use crate::record::processes::Writer;

/// What there is not enough of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    /// Of what `--max-size` allows.
    Asked,
    /// Of what the limit of file sizes allows (RLIMIT_FSIZE).
    FileSize,
    /// Of the disk, or of this user's share of it: the number of the system's error.
    Disk(i32),
}

impl Shortage {
    /// Whether nobody has asked for it.
    pub fn is_failure(self) -> bool {
        self != Shortage::Asked
    }

    /// For reports, after "ended by".
    pub fn label(self) -> &'static str {
        match self {
            Shortage::Asked => "the size asked for (--max-size)",
            Shortage::FileSize => "the limit of file sizes (RLIMIT_FSIZE)",
            Shortage::Disk(libc::EDQUOT) => "the user's quota on the disk",
            Shortage::Disk(_) => "a full disk",
        }
    }

    /// Says at once why recording has ended.
    pub fn tell(self, options: &Options, totals: &Totals, time: Duration) {
        let path = options.output.display();
        let kept = kept(totals.samples, time);
        let text = match self {
            Shortage::Asked if options.quiet => return,
            Shortage::Asked => {
                let size = HumanBytes(options.max_size.unwrap_or_default());
                format!("{path} has reached {size} (--max-size): recording has ended")
            }
            Shortage::FileSize => format!(
                "profiler: cannot write more to {path}: {}; {kept}; raise the limit of file sizes (ulimit -f)",
                io::Error::from_raw_os_error(libc::EFBIG)
            ),
            Shortage::Disk(number) => format!(
                "profiler: cannot write more to {path}: {}; {kept}; make room there, or name a file on another disk with -o",
                io::Error::from_raw_os_error(number)
            ),
        };
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// What a failure has left.
fn kept(samples: u64, time: Duration) -> String {
    format!(
        "recording has ended after {:.1} s, the {} {} written until then {} kept",
        time.as_secs_f64(),
        HumanCount(samples),
        noun(samples, "sample"),
        are(samples)
    )
}

/// Sees to it that the capture stays within what is asked for and allowed. Gives which of the two it is.
pub(super) fn limit(options: &Options, writer: &mut Writer) -> Option<Shortage> {
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    let allowed = allowed.filter(|_| writer.get_ref().is_own_file());
    let (bytes, shortage) = match (options.max_size, allowed) {
        (None, None) => return None,
        (Some(asked), allowed) if allowed.is_none_or(|allowed| asked <= allowed) => {
            (asked, Shortage::Asked)
        }
        (_, allowed) => (allowed?, Shortage::FileSize),
    };
    writer.limit_to(bytes);
    Some(shortage)
}

/// Whether an error is that of a pipe nobody reads any more.
pub(super) fn is_closed_pipe(err: &anyhow::Error) -> bool {
    let kind = match err.downcast_ref::<WriteError>() {
        Some(WriteError::Io { source, .. }) => source.kind(),
        _ => return false,
    };
    kind == io::ErrorKind::BrokenPipe
}

fn is_full(err: &anyhow::Error) -> bool {
    matches!(err.downcast_ref(), Some(WriteError::Full { .. }))
}

/// Without what did not fit.
fn what_fits(result: Result<()>) -> Result<()> {
    match result {
        Err(err) if is_full(&err) => Ok(()),
        result => result,
    }
}

/// An error of the device, with what it leaves.
fn unwritable(
    err: anyhow::Error,
    options: &Options,
    samples: u64,
    time: Duration,
) -> anyhow::Error {
    match err.downcast_ref::<WriteError>() {
        Some(WriteError::Io { offset, source }) if source.kind() != io::ErrorKind::BrokenPipe => {
            failed(source, *offset, options, samples, time)
        }
        _ => err,
    }
}

fn failed(
    source: &io::Error,
    offset: u64,
    options: &Options,
    samples: u64,
    time: Duration,
) -> anyhow::Error {
    let path = options.output.display();
    let kept = kept(samples, time);
    let advice = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, or name a file on another disk with -o"
        }
        io::ErrorKind::FileTooLarge => "; raise the limit of file sizes (ulimit -f)",
        io::ErrorKind::TimedOut => "",
        _ => "; name a file on another disk with -o, the kernel's log may say more",
    };
    anyhow!("cannot write {path} (at byte {offset}): {source}; {kept}{advice}")
}

impl Session<'_> {
    /// Whether what was just written leaves too little room to go on. Also says so when the disk does not keep up.
    pub(super) fn shortage(&mut self) -> Option<Shortage> {
        let mut drain = self.drain.borrow_mut();
        let writer = &mut drain.writer;
        if let Some(behind) = writer.get_ref().behind()
            && !self.told_behind
        {
            self.told_behind = true;
            self.live.say(&format!(
                "warning: the disk of {} is slow: bringing it up to date takes {:.0} s so far, --sync asks for less; if power \
                 fails, what was written since is lost",
                self.options.output.display(),
                behind.as_secs_f64()
            ));
        }
        if let Some(number) = writer.get_ref().disk_full() {
            use_reserve(writer);
            return Some(Shortage::Disk(number));
        }
        self.limited.filter(|_| writer.is_nearly_full())
    }

    /// After a failure to write: if only for want of room, what can be told in what is left is written.
    pub(super) fn end_without_room(&mut self, err: anyhow::Error) -> Result<Ended> {
        let mut drain = self.drain.borrow_mut();
        if !is_full(&err) {
            let samples = drain.writer.samples_written();
            return Err(unwritable(err, self.options, samples, self.began.elapsed()));
        }
        let shortage = match (drain.writer.get_ref().disk_full(), self.limited) {
            (None, Some(limited)) => limited,
            (number, _) => Shortage::Disk(number.unwrap_or(libc::ENOSPC)),
        };
        use_reserve(&mut drain.writer);
        drain.give_up();
        self.rings.consume(|records| drain.take(records));
        let counted = self
            .setup
            .program
            .losses(&mut self.counters, |class, cpu, count| {
                drain.lose(class, Some(cpu), count);
            });
        let flushed = what_fits(drain.flush());
        drop(drain);
        counted?;
        flushed?;
        what_fits(self.write_aid(true))?;
        Ok(Ended::NoRoom(shortage))
    }
}

/// What was kept free for it takes the end.
fn use_reserve(writer: &mut Writer) {
    if let Some(bytes) = writer.get_mut().use_reserve() {
        writer.limit_to(bytes);
    }
}

/// Ends the capture. Gives its length.
pub(super) fn finish(
    writer: Writer,
    end: &End,
    ended: Ended,
    options: &Options,
    time: Duration,
) -> Result<u64> {
    let bytes = writer.bytes_written();
    let samples = writer.samples_written();
    match writer.finish(end) {
        Ok(output) => output
            .finish()
            .map_err(|source| failed(&source, bytes, options, samples, time)),
        // Without its end it is a capture cut short. That there is no room was told.
        Err(WriteError::Full { .. }) if matches!(ended, Ended::NoRoom(_)) => Ok(bytes),
        Err(err) => Err(unwritable(err.into(), options, samples, time)),
    }
}

/// The capture's beginning could not be written.
pub(super) fn not_begun(err: WriteError, options: &Options) -> anyhow::Error {
    if let WriteError::Full { source, .. } = &err {
        let path = options.output.display();
        let need = LEAST_ROOM >> 10;
        let command = match options.target {
            Target::Command(_) => "; the command was not started",
            _ => "",
        };
        return anyhow!(
            "cannot write {path}: {source}: a capture needs {need} KiB to begin with, so that its end finds room whatever comes; make room \
             there, or name a file on another disk with -o{command}"
        );
    }
    anyhow::Error::new(err).context(format!("cannot write {}", options.output.display()))
}
