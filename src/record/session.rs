//! One recording: set up, sample until something ends it, close the capture in order.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::bpf::{Config, Counters, Filter, Program};
use super::drain::Drain;
use super::kallsyms::Kallsyms;
use super::launch::{Held, NotStarted, Running, shell_status};
use super::options::{Event, Options, Rate, Target};
use super::output::{self, Output};
use super::processes::{Processes, Scope};
use super::progress::{Live, Summary};
use super::sampler::{self, Inherit, SamplingEvents, Where};
use super::sideband::{SideBand, SideEvent};
use super::target::{self, Found};
use super::wire::Depths;
use super::{cpus, host, maps, preflight, procfs};
use crate::capture::writer::CaptureWriter;
use crate::event::Pid;
use crate::format::aid::Vdso;
use crate::format::end::{End, EndReason};
use crate::format::header::EventInfo;

/// Frames are written at least this often: what `kill -9` can cost.
const FLUSH: Duration = Duration::from_millis(900);
/// A segment lasts this long at most: what a damaged frame can spoil, and what a time slice has to decode.
const SEGMENT: Duration = Duration::from_secs(60);
/// Rings are looked at this often at least.
const SLOWEST_POLL: Duration = Duration::from_millis(200);
/// Kernel symbols go into the capture after this time for the first time, then at ever longer intervals, so that a
/// recording that is killed has names too.
const FIRST_SYMBOLS: Duration = Duration::from_secs(2);
/// Deeper stacks than this are not kept, whatever the kernel would walk.
const DEEPEST: usize = 4096;

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
    let recorded = match held {
        None => setup.enable().and_then(|()| Ok(None)),
        Some(held) => held.release().map(Some),
    };
    let command = match recorded {
        Ok(command) => command,
        Err(err) => {
            output.discard();
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

/// Everything that has to be there before the first sample, opened in the order that loses nothing: side-band, then
/// the processes that run already, then the sampling events.
struct Setup {
    program: Program,
    sampling: SamplingEvents,
    side_band: SideBand,
    processes: Processes,
    rate: Rate,
    ring_bytes: u32,
    depths: Depths,
    online: usize,
    command: Option<Pid>,
    /// Recording ends with these.
    ends_with_targets: bool,
    /// Single threads to be watched for their end.
    threads: Vec<Pid>,
    degraded: Vec<String>,
}

impl Setup {
    fn new(
        options: &Options,
        rate: Rate,
        event: Event,
        found: &Found,
        command: Option<Pid>,
        say: &dyn Fn(String),
    ) -> Result<Setup> {
        let online = cpus::online()?;
        let depth = sampler::max_stack().min(DEEPEST);
        let depths = Depths {
            user: depth,
            kernel: depth,
        };
        let ring_bytes = options.ring_bytes.unwrap_or_else(|| ring_size(rate, event));
        let program = Program::load(&Config {
            filter: match found {
                Found::Filtered(kept) => kept.filter(),
                _ => Filter::None,
            },
            skip_idle: !options.idle,
            depths,
            ring_bytes,
            online: &online,
            possible: cpus::possible_count()?,
        })?;
        let side_band = SideBand::open(&online)?;
        let scope = match found {
            Found::Filtered(_) => Scope::All,
            _ => Scope::Known,
        };
        let mut processes = Processes::new(scope, host::clock_ticks());
        let inherit = if options.inherit {
            Inherit::All
        } else {
            Inherit::Threads
        };
        let mut threads = Vec::new();
        let places = match found {
            Found::Filtered(_) => Where::Cpus(online.clone()),
            Found::Processes(pids) => {
                target::threads_of(pids, |thread| {
                    threads.push(thread);
                    Ok(())
                })?;
                Where::Threads(std::mem::take(&mut threads), inherit)
            }
            Found::Threads(tids, _) => {
                threads.clone_from(tids);
                Where::Threads(tids.clone(), Inherit::Nobody)
            }
            Found::Command => Where::OnExec(command.unwrap_or_default(), inherit),
        };
        let mut degraded = Vec::new();
        let mut warn = |text: String| {
            say(text.clone());
            degraded.push(text);
        };
        let sampling = SamplingEvents::open(event, rate, &places, program.fd(), &mut warn)?;
        if !side_band.has_build_ids {
            warn("this kernel tells no build IDs (5.12 does): files are read for them".into());
        }
        match found {
            Found::Filtered(_) => snapshot_all(&mut processes)?,
            Found::Processes(pids) | Found::Threads(_, pids) => {
                for pid in pids {
                    processes.snapshot(*pid, host::now());
                }
            }
            Found::Command => {
                processes.snapshot(command.unwrap_or_default(), host::now());
            }
        }
        Ok(Setup {
            program,
            sampling,
            side_band,
            processes,
            rate,
            ring_bytes,
            depths,
            online: online.len(),
            command,
            ends_with_targets: matches!(found, Found::Processes(_)),
            threads,
            degraded,
        })
    }

    fn enable(&mut self) -> Result<()> {
        self.sampling.enable()
    }
}

/// Every process there is, those that appear meanwhile too.
fn snapshot_all(processes: &mut Processes) -> Result<()> {
    for _pass in 0..4 {
        let listed = procfs::list_processes().context("cannot list /proc")?;
        let new: Vec<Pid> = listed
            .into_iter()
            .filter(|pid| !processes.knows(*pid))
            .collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            processes.snapshot(pid, host::now());
        }
    }
    Ok(())
}

/// Samples a second and CPU, about.
fn expected_hz(rate: Rate, event: Event) -> u64 {
    match (rate, event) {
        (Rate::Frequency(hz), _) => hz.max(1),
        (Rate::Period(period), Event::CpuClock) => 1_000_000_000 / period.max(1),
        // At the clock of a usual CPU.
        (Rate::Period(period), Event::Cycles) => 3_000_000_000 / period.max(1),
    }
}

/// Room for about a second of usual stacks: the recorder looks far more often, but may be kept from it.
fn ring_size(rate: Rate, event: Event) -> u32 {
    const USUAL: u64 = 512;
    let bytes = expected_hz(rate, event)
        .saturating_mul(USUAL)
        .clamp(256 << 10, 2 << 20);
    bytes.next_power_of_two() as u32
}

/// How often the rings are looked at: often enough that they stay three quarters empty with deep stacks.
fn poll_interval(rate: Rate, event: Event, ring_bytes: u32) -> Duration {
    const DEEP: u64 = 1024;
    let rate = expected_hz(rate, event).saturating_mul(DEEP).max(1);
    Duration::from_micros(u64::from(ring_bytes / 4) * 1_000_000 / rate)
        .clamp(Duration::from_millis(10), SLOWEST_POLL)
}

/// What is known of the kernel's symbols, and which addresses wait for theirs.
struct KernelNames {
    table: Option<Kallsyms>,
    wanted: Vec<u64>,
    /// Starts of the symbols in the capture.
    written: HashSet<u64>,
    next: Instant,
    interval: Duration,
    vdso_written: bool,
}

impl KernelNames {
    fn new(table: Option<Kallsyms>) -> KernelNames {
        KernelNames {
            table,
            wanted: Vec::new(),
            written: HashSet::new(),
            next: Instant::now() + FIRST_SYMBOLS,
            interval: FIRST_SYMBOLS,
            vdso_written: false,
        }
    }

    /// Puts names of what has been sampled into the capture when it is time, or `at_end`.
    fn write(&mut self, drain: &mut Drain, processes: &Processes, at_end: bool) -> Result<()> {
        self.wanted.extend(drain.writer.take_kernel_addresses());
        if !at_end && Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + self.interval;
        self.interval *= 2;
        if processes.vdso_sampled && !self.vdso_written {
            self.vdso_written = true;
            if let Some(image) = own_vdso() {
                drain.writer.vdso(&Vdso { image })?;
            }
        }
        let Some(table) = &self.table else {
            return Ok(());
        };
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let mut found = table.covering(&self.wanted);
        if at_end && self.wanted.iter().any(|address| !table.covers(*address)) {
            // Modules and BPF programs come and go; a later table knows those that came.
            if let Ok(Some(later)) = Kallsyms::read() {
                self.wanted.retain(|address| !table.covers(*address));
                found.symbols.extend(later.covering(&self.wanted).symbols);
                found.symbols.sort_by_key(|s| s.start);
            }
        }
        self.wanted.clear();
        found
            .symbols
            .retain(|symbol| self.written.insert(symbol.start));
        if !found.symbols.is_empty() {
            drain.writer.kernel_symbols(&found)?;
        }
        Ok(())
    }
}

/// The vdso is the same in all 64-bit processes of a kernel, so our own will do.
fn own_vdso() -> Option<Vec<u8>> {
    let mapping = maps::read_executable(Pid(std::process::id())).ok()?;
    let vdso = mapping.into_iter().find(|m| m.path == b"[vdso]")?;
    let mut image = vec![0; (vdso.end - vdso.start) as usize];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut image, vdso.start)
        .ok()?;
    Some(image)
}

/// Signals that end a recording, as a descriptor to wait on and a number to look at.
struct Signals {
    pipe: UnixStream,
    last: Arc<AtomicUsize>,
}

impl Signals {
    const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    fn new() -> Result<Signals> {
        let (pipe, write) = UnixStream::pair().context("cannot make a pipe")?;
        pipe.set_nonblocking(true).context("cannot make a pipe")?;
        let last = Arc::new(AtomicUsize::new(0));
        for signal in Signals::ENDING {
            signal_hook::flag::register_usize(signal, last.clone(), signal as usize)
                .and_then(|_| signal_hook::low_level::pipe::register(signal, write.try_clone()?))
                .context("cannot watch for signals")?;
        }
        Ok(Signals { pipe, last })
    }

    /// The signal that came, if one did since the last call.
    fn take(&self) -> Option<i32> {
        let mut sink = [0; 64];
        while (&self.pipe).read(&mut sink).is_ok_and(|n| n > 0) {}
        match self.last.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
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
    // Samples already gather in the rings: this takes about as long as ten of them.
    let table = read_kernel_symbols(options, &mut setup)?;
    let idle_text = table
        .as_ref()
        .and_then(|t| t.idle_text)
        .filter(|_| !options.idle);
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
    let writer = CaptureWriter::create(output, &header)?;
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
        Err(err) => {
            // What is written stays readable; a command is not harmed by our trouble.
            if let Some(mut command) = command {
                eprintln!("profiler: {err:#}; recording has ended, the command goes on");
                let _ = command.wait();
            }
            return Err(err);
        }
    };
    Ok(status)
}

/// Writes the end of the capture, says what was recorded, and waits for a command that outlives it.
fn close(
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
    let (_, bytes) = drain.writer.finish(&end)?;
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
fn outlive(command: &mut Running, ended: Ended, signals: &Signals, quiet: bool) -> Result<i32> {
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
        let deadline = self.options.duration.map(|d| self.began + d);
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
