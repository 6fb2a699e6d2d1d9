//! One recording: set up, sample until something ends it, close the capture in order.

mod finish;
mod setup;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::finish::{close, outlive};
use self::setup::{SLOWEST_POLL, Setup, poll_interval};
use super::bpf::{Counters, Program};
use super::drain::Drain;
use super::kallsyms::Kallsyms;
use super::kernel_names::KernelNames;
use super::launch::{Held, NotStarted, Running};
use super::options::{Event, Options, Rate, Target};
use super::output::{self, Output};
use super::processes::Writer;
use super::progress::Live;
use super::sideband::SideEvent;
use super::signals::Signals;
use super::{host, preflight, procfs, sampler, target};
use crate::capture::writer::CaptureWriter;
use crate::format::header::EventInfo;

/// Frames are written at least this often: what `kill -9` can cost.
const FLUSH: Duration = Duration::from_millis(900);
/// A segment lasts this long at most: what a damaged frame can spoil, and what a time slice has to decode.
const SEGMENT: Duration = Duration::from_secs(60);

/// Records as `options` say. Returns the exit status for the process: that of a launched command, else 0.
pub fn run(options: &Options) -> Result<u8> {
    output::check(&options.output)?;
    let degraded = preflight::check()?;
    raise_file_limit();
    let signals = Signals::new()?;
    let say = |text: String| {
        if !options.quiet {
            eprintln!("{text}");
        }
    };
    let rate = clamp(options.rate, &say);
    let found = target::find(&options.target)?;
    let held = match &options.target {
        Target::Command(words) => Some(Held::fork(words)?),
        _ => None,
    };
    let event = sampler::choose_event(options.event, rate)?;
    if options.event.is_none() && event == Event::CpuClock {
        say("no hardware cycle counter here: sampling cpu-clock".into());
    }
    let mut setup = Setup::new(
        options,
        rate,
        event,
        &found,
        held.as_ref().map(|h| h.pid),
        &say,
    )?;
    setup.degraded.extend(degraded);

    let output = Output::create(&options.output)?;
    let undo = output.undo();
    let recorded = match held {
        None => setup.enable().map(|()| None),
        // It execs only now; what it does before is told apart by time.
        Some(held) => setup.enable().and_then(|()| held.release()).map(Some),
    };
    let command = match recorded {
        Ok(command) => command,
        Err(err) => {
            undo.run();
            // A command that cannot be run is told as shells tell it.
            if let Some(not_started) = err.downcast_ref::<NotStarted>() {
                eprintln!("profiler: {not_started}");
                return Ok(not_started.exit_code());
            }
            return Err(err);
        }
    };
    record(options, setup, output, signals, command)
}

/// Lowers a frequency the kernel would refuse.
fn clamp(rate: Rate, say: &dyn Fn(String)) -> Rate {
    match (rate, sampler::max_frequency()) {
        (Rate::Frequency(asked), Some(most)) if asked > most => {
            say(format!(
                "{asked} Hz is above the kernel's limit: sampling at {most} Hz (kernel.perf_event_max_sample_rate)"
            ));
            Rate::Frequency(most)
        }
        _ => rate,
    }
}

/// One descriptor for each thread or CPU can be many.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it large targets fail later, with the reason.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// What ended a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Command,
    TargetsGone,
    Duration,
    Signal(i32),
}

/// A recording under way.
struct Session<'a> {
    options: &'a Options,
    setup: Setup,
    signals: Signals,
    command: Option<Running>,
    rings: RingBuffer<'a>,
    drain: &'a RefCell<Drain>,
    names: KernelNames,
    counters: Counters,
    events: Vec<SideEvent>,
    live: Live,
    began: Instant,
    next_flush: Instant,
    next_segment: Instant,
}

/// Samples until something ends it, and closes the capture.
fn record(
    options: &Options,
    mut setup: Setup,
    output: Output,
    signals: Signals,
    command: Option<Running>,
) -> Result<u8> {
    let began = Instant::now();
    let undo = output.undo();
    // Samples already gather in the rings: this takes about as long as ten of them.
    let (writer, table) = match begin_capture(options, &mut setup, output) {
        Ok(begun) => begun,
        Err(err) => {
            undo.run();
            return without_recording(err, command, &signals);
        }
    };
    let idle_text = table
        .as_ref()
        .and_then(|t| t.idle_text)
        .filter(|_| !options.idle);
    let drain = RefCell::new(Drain::new(writer, setup.depths, setup.command));
    let rings = rings(&setup.program, &drain, idle_text)?;
    let (outcome, signals, command, setup) = Session {
        options,
        signals,
        command,
        rings,
        drain: &drain,
        names: KernelNames::new(table),
        counters: Counters::default(),
        events: Vec::new(),
        live: Live::new(options.quiet),
        began,
        next_flush: began + FLUSH,
        next_segment: began + SEGMENT,
        setup,
    }
    .run();
    let status = match outcome {
        Ok(end) => close(
            options,
            drain.into_inner(),
            &setup,
            began.elapsed(),
            &end,
            command,
            &signals,
        )?,
        // What is written stays readable.
        Err(err) => return without_recording(err, command, &signals),
    };
    Ok(status)
}

/// Reads the kernel's symbols and writes the head of the capture.
fn begin_capture(
    options: &Options,
    setup: &mut Setup,
    output: Output,
) -> Result<(Writer, Option<Kallsyms>)> {
    let table = read_kernel_symbols(options, setup)?;
    let (event, rate) = (setup.sampling.event, setup.rate);
    let header = host::header(host::Decided {
        events: vec![EventInfo {
            name: event.name().into(),
            sampling: rate.into(),
        }],
        target: options.target.describe(),
        user_stack_limit: setup.depths.user as u32,
        kernel_stack_limit: setup.depths.kernel as u32,
        cpus_online: setup.online as u32,
        degraded: setup.degraded.clone(),
    });
    Ok((CaptureWriter::create(output, &header)?, table))
}

/// Recording has failed. A command that runs is not harmed by that.
fn without_recording(
    err: anyhow::Error,
    command: Option<Running>,
    signals: &Signals,
) -> Result<u8> {
    let Some(mut command) = command else {
        return Err(err);
    };
    eprintln!("profiler: {err:#}; recording has ended, the command goes on");
    outlive(&mut command, Ended::Duration, signals, true)?;
    Ok(1)
}

/// Waits until one of `fds` is readable or the time is over; which ones are.
fn wait_for(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let timeout = timeout.map(|t| Timespec {
        tv_sec: t.as_secs() as i64,
        tv_nsec: t.subsec_nanos().into(),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(err) => return Err(err).context("cannot wait for samples (poll)"),
    }
    Ok(polled.iter().map(|p| !p.revents().is_empty()).collect())
}

fn read_kernel_symbols(options: &Options, setup: &mut Setup) -> Result<Option<Kallsyms>> {
    let mut degraded = Vec::new();
    let table = match Kallsyms::read() {
        Ok(Some(table)) => Some(table),
        Ok(None) => {
            degraded.push(
                "kernel addresses are hidden (kernel.kptr_restrict, or no CAP_SYSLOG): kernel frames will have no names"
                    .to_string(),
            );
            None
        }
        Err(err) => {
            degraded.push(format!(
                "/proc/kallsyms cannot be read ({err}): kernel frames will have no names"
            ));
            None
        }
    };
    let idle_text = table.as_ref().and_then(|t| t.idle_text);
    if !options.idle {
        setup.program.set_idle_text(idle_text)?;
        if idle_text.is_none() && options.target == Target::System {
            degraded.push(
                "where the kernel idles is not known: interrupt work on idle CPUs is left out with idle".into(),
            );
        }
    }
    if !options.quiet {
        degraded.iter().for_each(|text| eprintln!("note: {text}"));
    }
    setup.degraded.extend(degraded);
    Ok(table)
}

fn rings<'a>(
    program: &Program,
    drain: &'a RefCell<Drain>,
    idle_text: Option<(u64, u64)>,
) -> Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    for ring in program.rings() {
        builder.add(ring, move |record: &[u8]| {
            drain.borrow_mut().take(record, idle_text);
            0
        })?;
    }
    builder.build().context("cannot map the rings")
}

impl Session<'_> {
    /// Samples until something ends it; the rings are gone afterwards.
    fn run(mut self) -> (Result<Ended>, Signals, Option<Running>, Setup) {
        let outcome = self.sample().and_then(|ended| self.stop(ended));
        self.setup.sampling.disable();
        self.live.clear();
        (outcome, self.signals, self.command, self.setup)
    }

    /// Takes samples until something ends it.
    fn sample(&mut self) -> Result<Ended> {
        let interval = poll_interval(
            self.setup.rate,
            self.setup.sampling.event,
            self.setup.ring_bytes,
        );
        // One beyond all clocks is none.
        let deadline = self
            .options
            .duration
            .and_then(|d| self.began.checked_add(d));
        let mut next_look = self.began;
        loop {
            let until = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let timeout = until.map_or(interval, |u| u.min(interval));
            let command_ended = self.wait(timeout)?;
            self.batch()?;
            let now = Instant::now();
            if now >= self.next_flush {
                self.flush(now)?;
            }
            let drain = self.drain.borrow();
            self.live
                .update(&drain.totals, drain.writer.bytes_written());
            drop(drain);
            if let Some(signal) = self.signals.take() {
                return Ok(Ended::Signal(signal));
            }
            if command_ended {
                return Ok(Ended::Command);
            }
            if deadline.is_some_and(|d| now >= d) {
                return Ok(Ended::Duration);
            }
            if now >= next_look {
                next_look = now + SLOWEST_POLL;
                if self.targets_gone() {
                    return Ok(Ended::TargetsGone);
                }
            }
        }
    }

    /// Waits for something to do. Whether the command has ended.
    fn wait(&self, timeout: Duration) -> Result<bool> {
        // SAFETY: the descriptor is that of the rings, which live as long as `self`.
        let rings = unsafe { BorrowedFd::borrow_raw(self.rings.epoll_fd()) };
        let mut fds = vec![rings, self.signals.pipe.as_fd()];
        fds.extend(self.setup.side_band.fds());
        fds.extend(self.command.as_ref().map(|c| c.pidfd.as_fd()));
        let ready = wait_for(&fds, Some(timeout))?;
        Ok(self.command.is_some() && ready.last() == Some(&true))
    }

    fn targets_gone(&self) -> bool {
        if !self.setup.threads.is_empty() {
            return self
                .setup
                .threads
                .iter()
                .all(|tid| procfs::read_stat(*tid).is_err());
        }
        self.setup.ends_with_targets && !self.setup.processes.any_alive()
    }

    /// Takes out what there is: samples first, then what the side-band told.
    fn batch(&mut self) -> Result<()> {
        self.rings.consume().context("cannot read the rings")?;
        self.setup.side_band.drain(&mut self.events);
        let mut drain = self.drain.borrow_mut();
        drain.finish_batch(&mut self.setup.processes, &mut self.events, host::now())
    }

    fn flush(&mut self, now: Instant) -> Result<()> {
        let mut drain = self.drain.borrow_mut();
        self.setup
            .program
            .losses(&mut self.counters, |class, cpu, count| {
                drain.lose(class, Some(cpu), count);
            })?;
        if now >= self.next_segment {
            self.next_segment = now + SEGMENT;
            drain.start_segment(&mut self.setup.processes)?;
        } else {
            drain.flush()?;
        }
        self.next_flush = now + FLUSH;
        self.names.write(&mut drain, &self.setup.processes, false)
    }

    /// Ends sampling and takes out the rest.
    fn stop(&mut self, ended: Ended) -> Result<Ended> {
        self.setup.sampling.disable();
        self.setup.processes.snapshot_done();
        // What was still under way on another CPU comes with the second.
        self.batch()?;
        self.batch()?;
        self.flush(Instant::now())?;
        let mut drain = self.drain.borrow_mut();
        self.names.write(&mut drain, &self.setup.processes, true)?;
        Ok(ended)
    }
}
