//! One recording: set up, sample until something ends it, close the capture in order.

mod cpus;
mod finish;
mod governor;
mod rate;
mod room;
mod setup;
pub(super) use setup::memory_per_cpu;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::finish::{close, outlive};
use self::governor::Governor;
use self::room::Shortage;
use self::setup::{Forked, POLL, Setup};
use super::aside::Aside;
use super::bpf::Counters;
use super::drain::Drain;
use super::jit::Jit;
use super::launch::{Held, NotStarted, Running};
use super::options::{Event, Options, Target, Unwind};
use super::output::{self, Output};
use super::progress::Live;
use super::ring::Rings;
use super::sideband::SideEvent;
use super::signals::Signals;
use super::unwind::Unwinder;
use super::unwind::windows::Windows;
use super::{capabilities, host, own_code, procfs, requirements, sampler, target};
use crate::capture::writer::CaptureWriter;
use crate::event::{LossClass, Timestamp, UserStacks};
use crate::format::header::{EventInfo, Header};

/// Frames are written at least this often: what `kill -9` can cost.
const FLUSH: Duration = Duration::from_millis(900);
/// A segment lasts this long at most: what a damaged frame can spoil, and what a time slice has to decode.
const SEGMENT: Duration = Duration::from_secs(60);
/// Samples are timed to 2 to this power nanoseconds, less than the timer's jitter: to the nanosecond, times take a
/// byte and a half more each.
const TIME_UNIT: u32 = 10;

/// Records as `options` say. Returns the exit status for the process: that of a launched command, else 0.
pub fn run(options: &Options) -> Result<u8> {
    own_code::keep_little();
    requirements::check()?;
    output::check(&options.output)?;
    // Before there is anything it should not have. Where it cannot be, the recorder looks at files itself.
    let aside = Aside::start().ok();
    let signals = Signals::new()?;
    let say = |text: String| {
        if !options.quiet {
            eprintln!("{text}");
        }
    };
    let mut missing = Vec::new();
    let found = target::find(&options.target, &mut |text| missing.push(text))?;
    for text in &missing {
        eprintln!("warning: {text}");
    }
    let held = match &options.target {
        Target::Command(words) => Some(Held::fork(words, output::is_stdout(&options.output))?),
        _ => None,
    };
    // After the fork: a command's limits are its own.
    raise_file_limit();
    let event = sampler::choose_event(options.event)?;
    let (rate, told) = rate::kept(
        options.rate,
        event,
        sampler::max_frequency(),
        options.cpu_limit.is_some(),
    );
    // Also with -q: it is not what was asked for that is measured.
    for text in told {
        eprintln!("{text}");
    }
    if options.event.is_none() && event == Event::CpuClock {
        say("no hardware cycle counter here: sampling cpu-clock".into());
    }
    let command = held.as_ref().map(|h| h.pid);
    let forked = Forked { command, aside };
    let mut setup = Setup::new(options, rate, event, &found, forked, &say)?;
    setup.degraded.extend(missing);
    if let Some(text) = requirements::unseen(&options.target) {
        say(format!("note: {text}"));
        setup.degraded.push(text.into());
    }
    if setup.names.are_hidden() {
        let text = "kernel addresses are hidden (no CAP_SYSLOG, or kernel.kptr_restrict is 2): kernel frames will have \
                    no names, and interrupt work on idle CPUs cannot be told from idle";
        say(format!("note: {text}"));
        setup.degraded.push(text.into());
    }
    let mut output = Output::create(&options.output, options.sync)?;
    output.give_up_at(signals.last());
    let undo = output.undo();
    let outcome = record(options, setup, output, signals, held);
    outcome.or_else(|failed| match failed {
        // Nothing has been recorded.
        Failed::AtStart(err) => {
            undo.run();
            // Whoever would have read the capture is gone already.
            if room::is_closed_pipe(&err) && command.is_none() {
                return Ok(0);
            }
            match err.downcast_ref::<NotStarted>() {
                // As shells tell it.
                Some(not_started) => {
                    eprintln!("profiler: {not_started}");
                    Ok(not_started.exit_code())
                }
                None => Err(err),
            }
        }
        Failed::UnderWay(err) => Err(err),
    })
}

/// Why a recording failed: before its first sample, or later, when what is written is worth keeping.
enum Failed {
    AtStart(anyhow::Error),
    UnderWay(anyhow::Error),
}

/// One descriptor for each thread or CPU can be many.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Without it large targets fail later, with the reason.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A CPU puts what happens into its ring this much later at most (ns): then what all of them tell is in order.
const SETTLE: u64 = 2_000_000;

/// A batch so much later takes in all that has happened until now.
const SOON: Duration = Duration::from_millis(3);

/// How much of what has come a batch takes.
#[derive(Debug, Clone, Copy)]
enum Reach {
    /// What no CPU can add anything earlier to.
    Settled,
    /// All.
    All,
}

/// What ended a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Command,
    TargetsGone,
    Duration,
    Signal(i32),
    /// There is no room for more of the capture.
    NoRoom(Shortage),
}

/// A recording under way.
struct Session<'a> {
    options: &'a Options,
    setup: Setup,
    signals: Signals,
    command: Option<Running>,
    /// Of the CPUs there were at the start, and of each that came.
    rings: Rings,
    drain: &'a RefCell<Drain>,
    jit: Jit,
    counters: Counters,
    events: VecDeque<SideEvent>,
    live: Live,
    /// What the file's length is limited by, if it is.
    limited: Option<Shortage>,
    /// That the disk is slow has been told.
    told_behind: bool,
    /// Where what recording may cost is limited.
    governor: Option<Governor>,
    /// The kernel's throttling has been told.
    throttling_told: bool,
    began: Instant,
    next_flush: Instant,
    next_segment: Instant,
    /// Nothing has been flushed yet: what comes first (tables of mapped files, of the capture) takes code that is not needed
    /// later.
    is_starting: bool,
}

/// Samples until something ends it, and closes the capture.
fn record(
    options: &Options,
    mut setup: Setup,
    output: Output,
    signals: Signals,
    held: Option<Held>,
) -> Result<u8, Failed> {
    let mut writer = CaptureWriter::create(output, &header(options, &setup))
        .map_err(|err| Failed::AtStart(room::not_begun(err, options)))?;
    writer.set_time_unit(TIME_UNIT);
    let limited = room::limit(options, &mut writer);
    let mut drain = Drain::new(writer, setup.depths, setup.command);
    if setup.copies {
        drain.unwinder = Unwinder::new(setup.processes.aside.clone());
        if let Some(unwinder) = &mut drain.unwinder {
            unwinder.usual = setup.program.usual();
        }
        drain.windows = Windows::new(options.unwind == Unwind::Auto);
    }
    let drain = RefCell::new(drain);
    let mut rings = Rings::new().map_err(Failed::AtStart)?;
    for ring in setup.program.rings() {
        rings
            .add(ring.as_fd(), setup.ring_bytes)
            .map_err(Failed::AtStart)?;
    }
    setup.sampling.enable().map_err(Failed::AtStart)?;
    // It execs only now; what it does before is told apart by time.
    let command = held
        .map(Held::release)
        .transpose()
        .map_err(Failed::AtStart)?;
    let began = Instant::now();
    let shared = command.is_some()
        && (std::io::stdout().is_terminal() || output::is_stdout(&options.output));
    let governor = options
        .cpu_limit
        .map(|percent| Governor::new(percent, setup.rate, began))
        .transpose()
        .map_err(Failed::AtStart)?;
    let (outcome, signals, mut command, setup) = Session {
        options,
        signals,
        command,
        rings,
        drain: &drain,
        jit: Jit::default(),
        counters: Counters::default(),
        events: VecDeque::new(),
        live: Live::new(options.quiet, shared),
        limited,
        told_behind: false,
        governor,
        throttling_told: false,
        began,
        next_flush: began + FLUSH,
        next_segment: began + SEGMENT,
        is_starting: true,
        setup,
    }
    .run();
    let drain = drain.into_inner();
    outcome
        .and_then(|ended| {
            close(
                options,
                drain,
                &setup,
                began.elapsed(),
                &ended,
                &mut command,
            )
        })
        .and_then(|(ended, status)| {
            let status = match (ended, &mut command) {
                (Ended::Command, _) | (_, None) => status,
                (_, Some(command)) => outlive(command, ended, &signals, options.quiet)?,
            };
            let failed = matches!(ended, Ended::NoRoom(shortage) if shortage.is_failure());
            Ok(if failed { 1 } else { status })
        })
        .or_else(|err| {
            // Whoever read the capture has seen enough.
            let closed = room::is_closed_pipe(&err);
            match &mut command {
                None if closed => Ok(0),
                None => Err(err),
                // What is written stays readable, and a command is not harmed by our trouble.
                Some(command) => {
                    if !closed {
                        eprintln!("profiler: {err:#}; the command goes on");
                    }
                    let status = outlive(command, Ended::Duration, &signals, true)?;
                    Ok(if closed { status } else { 1 })
                }
            }
        })
        .map(|status| status.clamp(0, 255) as u8)
        .map_err(Failed::UnderWay)
}

fn header(options: &Options, setup: &Setup) -> Header {
    host::header(host::Decided {
        events: vec![EventInfo {
            name: setup.sampling.event.name().into(),
            sampling: setup.rate.into(),
        }],
        target: options.target.describe(),
        user_stack_limit: setup.depths.user as u32,
        kernel_stack_limit: setup.depths.kernel as u32,
        cpus_online: setup.online as u32,
        degraded: setup.degraded.clone(),
        user_stacks: match options.unwind {
            _ if !setup.copies => UserStacks::FramePointers,
            Unwind::Dwarf => UserStacks::UnwindInfo,
            _ => UserStacks::Both,
        },
    })
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

impl Session<'_> {
    /// Samples until something ends it; the rings are gone afterwards.
    fn run(mut self) -> (Result<Ended>, Signals, Option<Running>, Setup) {
        let outcome = self
            .read_kernel_symbols()
            .inspect(|()| capabilities::keep_needed())
            .inspect(|()| own_code::give_back())
            .and_then(|()| self.sample())
            .and_then(|ended| self.stop(ended));
        self.setup.sampling.disable();
        let outcome = outcome.or_else(|err| self.end_without_room(err));
        self.live.clear();
        (outcome, self.signals, self.command, self.setup)
    }

    /// Where the kernel cannot be asked for single symbols. Where it idles is known only then.
    fn read_kernel_symbols(&mut self) -> Result<()> {
        let setup = &mut self.setup;
        setup.names.read_table(&mut setup.side_band.bpf_code);
        if !self.options.idle {
            let idle_text = setup.names.idle_text;
            self.drain.borrow_mut().idle_text = idle_text;
            setup.program.set_idle_text(idle_text)?;
        }
        Ok(())
    }

    /// Takes samples until something ends it.
    fn sample(&mut self) -> Result<Ended> {
        // One beyond all clocks is none.
        let deadline = self
            .options
            .duration
            .and_then(|d| self.began.checked_add(d));
        let mut next_look = self.began;
        let mut written = self.drain.borrow().writer.bytes_written();
        loop {
            let until = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            // What was read of processes holds from the next batch on.
            let interval = match self.setup.processes.has_readings() {
                true => SOON,
                false => POLL,
            };
            let timeout = until.map_or(interval, |u| u.min(interval));
            let until_flush = self.next_flush.saturating_duration_since(Instant::now());
            let command_ended = self.wait(timeout.min(until_flush))?;
            let now = Instant::now();
            // Before what has come is written: it may have to be doubted.
            self.follow_cpus(now >= self.next_flush)?;
            self.batch(Reach::Settled)?;
            if now >= self.next_flush {
                self.flush(now)?;
            }
            let bytes = self.drain.borrow().writer.bytes_written();
            if bytes != written {
                written = bytes;
                if let Some(shortage) = self.shortage() {
                    return Ok(Ended::NoRoom(shortage));
                }
            }
            self.live.update(&self.drain.borrow().totals, bytes);
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
                next_look = now + POLL;
                if self.targets_gone() {
                    return Ok(Ended::TargetsGone);
                }
            }
        }
    }

    /// Waits for something to do. Whether the command has ended.
    fn wait(&self, timeout: Duration) -> Result<bool> {
        let mut fds = vec![self.signals.pipe.as_fd(), self.rings.wakes()];
        fds.extend(self.setup.side_band.fds());
        fds.extend(self.command.as_ref().map(|c| c.pidfd.as_fd()));
        let ready = wait_for(&fds, Some(timeout))?;
        Ok(self.command.is_some() && ready.last() == Some(&true))
    }

    fn targets_gone(&self) -> bool {
        if !self.setup.threads.is_empty() {
            return self.setup.threads.iter().all(|tid| procfs::is_gone(*tid));
        }
        self.setup.ends_with_targets && !self.setup.processes.any_alive()
    }

    /// Takes out what there is: samples first, then what the side-band told.
    fn batch(&mut self, reach: Reach) -> Result<()> {
        let settled = || Timestamp(host::now().0.saturating_sub(SETTLE));
        let mut drain = self.drain.borrow_mut();
        let setup = &mut self.setup;
        if setup.copies {
            let heard = settled();
            setup.side_band.drain(&mut self.events);
            drain.hear(&mut setup.processes, &mut self.events, heard);
        }
        let processes = &setup.processes;
        self.rings
            .consume(|records| drain.take_of(records, Some(processes)));
        drop(drain);
        let settled = settled();
        self.setup.side_band.drain(&mut self.events);
        let now = host::now();
        let horizon = match reach {
            Reach::Settled => settled,
            Reach::All => now,
        };
        let mut drain = self.drain.borrow_mut();
        let processes = &mut self.setup.processes;
        drain.finish_batch(processes, &mut self.events, horizon, now)?;
        for (thread, window) in drain.windows.take_changes(host::now()) {
            // Where it cannot be told, more is copied than is needed.
            let _ = self.setup.program.set_window(thread, window);
        }
        // All that was told before the snapshot has come.
        processes.snapshot_done();
        self.jit.follow(processes);
        let without_events = std::mem::take(&mut processes.without_events);
        for process in without_events {
            // Of the threads of a process that calls execve the one that does is left, under the number of the process.
            if self.setup.threads.contains(&process) {
                match self.setup.sampling.open_thread(process) {
                    // It has really ended.
                    Err(err) if err.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(err) => self.live.say(&format!(
                        "warning: thread {process} has started a set-uid program and cannot be sampled any more: {err}"
                    )),
                    Ok(()) => {}
                }
                drain.lose(LossClass::ThreadLate, None, 1);
            }
        }
        Ok(())
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
            drain.segment_is_due = true;
        }
        let mut throttled = std::mem::take(&mut self.setup.side_band.throttled);
        self.setup.sampling.throttled(|cpu| {
            *throttled.entry(cpu).or_default() += 1;
        });
        for (cpu, times) in &throttled {
            drain.lose(LossClass::Throttled, *cpu, *times);
        }
        drain.flush()?;
        self.next_flush = now + FLUSH;
        drop(drain);
        if !throttled.is_empty() && !std::mem::replace(&mut self.throttling_told, true) {
            let limit =
                sampler::max_frequency().map_or_else(String::new, |hz| format!(", now {hz}"));
            self.live.say(&format!(
                "warning: the kernel throttles sampling (kernel.perf_event_max_sample_rate{limit}): samples are missing; \
                 a lower -F avoids it"
            ));
        }
        for text in self.setup.processes.take_news() {
            self.live.say(&format!("warning: {text}"));
        }
        self.govern(now)?;
        self.write_aid(false)?;
        if std::mem::take(&mut self.is_starting) {
            own_code::give_back();
        }
        Ok(())
    }

    /// Writes what names need beside samples, of all that has been flushed. Where one kind fails the others are tried all the
    /// same: at a full disk a small one may still fit.
    fn write_aid(&mut self, at_end: bool) -> Result<()> {
        let mut drain = self.drain.borrow_mut();
        let drain = &mut *drain;
        let processes = &mut self.setup.processes;
        let written = drain.writer.take_written();
        processes.files_written(&written.files);
        let mut layouts = Ok(());
        while let Some(more) = processes.take_layouts()
            && layouts.is_ok()
        {
            layouts = drain.writer.elf_layouts(&more);
        }
        let bpf_code = &mut self.setup.side_band.bpf_code;
        let names = self
            .setup
            .names
            .write(&written, drain, processes, bpf_code, at_end);
        let jit = self.jit.write(&written, drain, at_end);
        layouts?;
        names.and(jit)
    }

    /// Ends sampling and takes out the rest.
    fn stop(&mut self, ended: Ended) -> Result<Ended> {
        self.follow_cpus(true)?;
        self.setup.sampling.disable();
        // What was still under way on another CPU comes with the second.
        self.batch(Reach::Settled)?;
        self.batch(Reach::All)?;
        self.flush(Instant::now())?;
        self.write_aid(true)?;
        Ok(ended)
    }
}
