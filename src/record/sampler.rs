//! The perf events whose interrupts run the sampling program.

use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail};
use perf_event::events::{Hardware, Software};
use perf_event::{Builder, Counter, Sampler};

use super::options::{Event, Rate};
use super::sideband::{self, SideBand};
use crate::event::Pid;

/// Where events are opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// On each of these CPUs, for every task.
    Cpus(Vec<u32>),
    /// On each of these threads, and on nobody they start.
    Threads(Vec<Pid>),
}

/// Opened events, disabled until [`SamplingEvents::enable`].
pub struct SamplingEvents {
    /// With their CPU, unless they follow a thread.
    counters: Vec<(Option<u32>, Opened)>,
    /// Which event it became.
    pub event: Event,
    /// What was asked for, and what it is now.
    asked: Rate,
    rate: Rate,
    /// The program they run.
    bpf: i32,
    on_threads: bool,
    /// Events opened for threads that had one.
    reopened: usize,
}

/// Bytes of the ring in which the kernel tells of a thread's event: room for a second of throttling at each tick of 4 ms.
const THREAD_RING: usize = 32 << 10;

/// An opened event.
enum Opened {
    /// What the kernel tells of it comes with the side-band, or not at all.
    Plain(Counter),
    /// It follows its thread from CPU to CPU, and can share no CPU's ring.
    WithRing(Sampler),
}

impl Deref for Opened {
    type Target = Counter;

    fn deref(&self) -> &Counter {
        match self {
            Opened::Plain(counter) => counter,
            Opened::WithRing(sampler) => sampler,
        }
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Counter {
        match self {
            Opened::Plain(counter) => counter,
            Opened::WithRing(sampler) => sampler,
        }
    }
}

/// Events opened again at most: a program can start itself, set-uid, without end.
const MOST_REOPENED: usize = 256;

/// `/proc/sys/kernel/perf_event_max_sample_rate`: a higher frequency is refused by the kernel.
pub fn max_frequency() -> Option<u64> {
    fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// `/proc/sys/kernel/perf_event_max_stack`: how deep the kernel walks a stack.
pub fn max_stack() -> usize {
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_stack");
    limit
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(127)
}

/// Finds the event to sample: the one asked for, else cycles if the machine can count them, else the CPU clock.
pub fn choose_event(asked: Option<Event>) -> Result<Event> {
    let rate = Rate::Frequency(1);
    let probe = |event| match builder(event, rate)
        .any_pid()
        .any_cpu()
        .observe_self()
        .build()
    {
        Ok(_) => Ok(()),
        Err(err) => Err(err),
    };
    match asked {
        Some(Event::CpuClock) => Ok(Event::CpuClock),
        Some(Event::Cycles) => match probe(Event::Cycles) {
            Err(err) if not_there(&err) => bail!(
                "this machine cannot count cycles ({err}): it has no PMU that can be used, as is usual for \
                 virtual machines; use -e cpu-clock"
            ),
            _ => Ok(Event::Cycles),
        },
        None => match probe(Event::Cycles) {
            Err(err) if not_there(&err) => Ok(Event::CpuClock),
            // Another error will come again where it can be told in full.
            _ => Ok(Event::Cycles),
        },
    }
}

/// What kernels answer when there is no such counter.
fn not_there(err: &io::Error) -> bool {
    matches!(
        err.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP | libc::EINVAL)
    )
}

fn builder(event: Event, rate: Rate) -> Builder<'static> {
    let mut builder = match event {
        Event::Cycles => Builder::new(Hardware::CPU_CYCLES),
        Event::CpuClock => Builder::new(Software::CPU_CLOCK),
    };
    builder.include_kernel();
    if event == Event::Cycles {
        builder.exclude_guest(true);
    }
    match rate {
        Rate::Frequency(hz) => builder.sample_frequency(hz),
        Rate::Period(period) => builder.sample_period(period),
    };
    // As the side-band, so that what the kernel tells of these events can come with it.
    sideband::identified(&mut builder);
    builder
}

fn on_cpu(event: Event, rate: Rate, cpu: u32) -> io::Result<Opened> {
    let counter = builder(event, rate).any_pid().one_cpu(cpu as usize).build();
    counter.map(Opened::Plain)
}

fn on_thread(event: Event, rate: Rate, thread: Pid) -> io::Result<Opened> {
    let mut builder = builder(event, rate);
    builder.observe_pid(thread.0.cast_signed()).any_cpu();
    match builder.build()?.sampled(THREAD_RING) {
        Ok(sampler) => Ok(Opened::WithRing(sampler)),
        // There may be no more memory for rings, which a user without CAP_IPC_LOCK has little of.
        Err(_) => builder.build().map(Opened::Plain),
    }
}

impl SamplingEvents {
    /// Opens `event` at `places` and connects it with the program `bpf`; `warn` is told of places left out.
    pub fn open(
        event: Event,
        rate: Rate,
        places: &Where,
        bpf: i32,
        mut warn: impl FnMut(String),
    ) -> Result<SamplingEvents> {
        let mut counters = Vec::new();
        let mut add = |counter: io::Result<Opened>,
                       cpu: Option<u32>,
                       place: &dyn Fn() -> String|
         -> Result<()> {
            let opened = counter.and_then(|mut c| c.set_bpf(bpf).map(|()| c));
            match opened {
                Ok(counter) => counters.push((cpu, counter)),
                Err(err) => match left_out(&err) {
                    Some(LeftOut::Ended) => {}
                    Some(LeftOut::Offline) => warn(format!("{} is not sampled: {err}", place())),
                    None => {
                        return Err(err).with_context(|| {
                            format!("cannot sample {} {rate} on {}", event.name(), place())
                        });
                    }
                },
            }
            Ok(())
        };
        match places {
            Where::Cpus(cpus) => {
                for &cpu in cpus {
                    add(on_cpu(event, rate, cpu), Some(cpu), &|| {
                        format!("CPU {cpu}")
                    })?;
                }
            }
            Where::Threads(threads) => {
                for &thread in threads {
                    add(on_thread(event, rate, thread), None, &|| {
                        format!("thread {thread}")
                    })?;
                }
            }
        }
        if counters.is_empty() {
            bail!("there is nothing to sample: no such CPU or thread any more");
        }
        Ok(SamplingEvents {
            counters,
            event,
            asked: rate,
            rate,
            bpf,
            on_threads: matches!(places, Where::Threads(_)),
            reopened: 0,
        })
    }

    /// Closes the event of a CPU that is gone.
    pub fn close_cpu(&mut self, cpu: u32) {
        self.counters.retain(|(on, _)| *on != Some(cpu));
    }

    /// Samples a CPU that came online, unless it is threads that are sampled: their events follow them.
    pub fn open_cpu(&mut self, cpu: u32) -> io::Result<()> {
        if self.on_threads {
            return Ok(());
        }
        self.add(Some(cpu), on_cpu(self.event, self.rate, cpu)?)
    }

    /// Samples a thread again that the kernel took the event from. The one it had stays open, since those that its children
    /// have would end with it: so this is done only so often. That it is done no more is an error once.
    pub fn open_thread(&mut self, thread: Pid) -> io::Result<()> {
        self.reopened = self.reopened.saturating_add(1);
        match self.reopened {
            ..=MOST_REOPENED => self.add(None, on_thread(self.event, self.rate, thread)?),
            number if number == MOST_REOPENED + 1 => {
                Err(io::Error::other("this has happened too often"))
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, cpu: Option<u32>, mut counter: Opened) -> io::Result<()> {
        counter.set_bpf(self.bpf)?;
        counter.enable()?;
        self.counters.push((cpu, counter));
        Ok(())
    }

    /// Lets the kernel tell in the side-band of each CPU when it stops these events for a while. Events of threads have rings of
    /// their own: see [`SamplingEvents::throttled`]. Without it (older kernels) nothing else is different.
    pub fn tell_throttling(&self, side_band: &SideBand) {
        for (cpu, counter) in &self.counters {
            if let Some(ring) = cpu.and_then(|cpu| side_band.fd(cpu)) {
                // SAFETY: takes two descriptors that are open, by number.
                unsafe { libc::ioctl(counter.as_raw_fd(), SET_OUTPUT, ring) };
            }
        }
    }

    /// Calls `each` with the CPU for each time that the kernel stopped a thread's event for the rest of a tick, since the last call.
    pub fn throttled(&mut self, mut each: impl FnMut(Option<u32>)) {
        for (_, opened) in &mut self.counters {
            if let Opened::WithRing(sampler) = opened {
                sideband::throttled(sampler, &mut each);
            }
        }
    }

    /// Samples at one in about `weight` of the rate asked for. What a sample then counts for.
    pub fn set_fraction(&mut self, weight: u32) -> io::Result<u32> {
        let (rate, weight) = fraction(self.asked, self.event, weight);
        self.rate = rate;
        let (Rate::Frequency(value) | Rate::Period(value)) = rate;
        for (_, counter) in &self.counters {
            // SAFETY: reads the number it is given a pointer to.
            if unsafe { libc::ioctl(counter.as_raw_fd(), SET_PERIOD, &raw const value) } != 0 {
                let err = io::Error::last_os_error();
                // Of a thread that has ended.
                if err.raw_os_error() != Some(libc::ESRCH) {
                    return Err(err);
                }
            }
        }
        Ok(weight)
    }

    /// Samples from now on.
    pub fn enable(&mut self) -> Result<()> {
        self.counters
            .iter_mut()
            .try_for_each(|(_, counter)| counter.enable())
            .context("cannot start sampling")
    }

    /// Samples no more. A thread that is gone is no error.
    pub fn disable(&mut self) {
        for (_, counter) in &mut self.counters {
            let _ = counter.disable();
        }
    }
}

/// `PERF_EVENT_IOC_PERIOD`: a period, or of events with a frequency the frequency.
const SET_PERIOD: libc::Ioctl = 0x4008_2404;
/// `PERF_EVENT_IOC_SET_OUTPUT`
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// A rate of about one in `weight` of what was asked for, and the weight that makes it right.
fn fraction(asked: Rate, event: Event, weight: u32) -> (Rate, u32) {
    let of = u64::from(weight.max(1));
    match (asked, event) {
        (Rate::Period(period), _) => (Rate::Period(period.saturating_mul(of)), weight),
        // The kernel has made a period of it.
        (Rate::Frequency(hz), Event::CpuClock) => {
            let period = 1_000_000_000 / hz.max(1);
            (Rate::Period(period.saturating_mul(of)), weight)
        }
        // Only whole numbers are frequencies: one that divides what was asked for best.
        (Rate::Frequency(hz), Event::Cycles) => {
            let fits = |weight: &u32| *weight == 1 || u64::from(*weight) <= hz;
            let candidates = (weight.max(1)..weight.max(1).saturating_mul(3)).filter(fits);
            let best = candidates.min_by_key(|weight| hz % u64::from(*weight));
            let weight = best.unwrap_or(1);
            (Rate::Frequency(hz / u64::from(weight)), weight)
        }
    }
}

/// A place that cannot be sampled while the rest is worth having.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeftOut {
    /// The thread has ended.
    Ended,
    /// The CPU went offline since the list was read.
    Offline,
}

fn left_out(err: &io::Error) -> Option<LeftOut> {
    match err.raw_os_error()? {
        libc::ESRCH => Some(LeftOut::Ended),
        libc::ENODEV => Some(LeftOut::Offline),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_that_is_gone_does_not_end_the_recording() {
        let of = |errno| left_out(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ENODEV), Some(LeftOut::Offline));
        assert_eq!(of(libc::ESRCH), Some(LeftOut::Ended));
        assert_eq!(of(libc::EACCES), None);
        assert_eq!(of(libc::EMFILE), None);
    }

    /// Weight times rate is the rate asked for, as near as the kernel can be told.
    #[test]
    fn a_fraction_of_the_rate_has_the_weight_that_makes_up_for_it() {
        let clock = |weight| fraction(Rate::Frequency(999), Event::CpuClock, weight);
        assert_eq!(clock(1), (Rate::Period(1_001_001), 1));
        assert_eq!(clock(8), (Rate::Period(8_008_008), 8));
        let period = fraction(Rate::Period(500), Event::Cycles, 4);
        assert_eq!(period, (Rate::Period(2000), 4));
        for hz in [99, 100, 997, 4999, 20011] {
            for weight in [1, 2, 4, 8, 16] {
                let (rate, used) = fraction(Rate::Frequency(hz), Event::Cycles, weight);
                let Rate::Frequency(got) = rate else {
                    panic!("{rate:?}");
                };
                let missing = hz - got * u64::from(used);
                assert!(missing * 50 <= hz, "{hz} Hz: {got} Hz of weight {used}");
                assert!((weight..3 * weight).contains(&used));
            }
        }
    }

    #[test]
    fn a_machine_without_counters_is_told_in_several_ways() {
        for errno in [libc::ENOENT, libc::ENODEV, libc::ENXIO, libc::EOPNOTSUPP] {
            assert!(not_there(&io::Error::from_raw_os_error(errno)), "{errno}");
        }
        assert!(!not_there(&io::Error::from_raw_os_error(libc::EACCES)));
    }
}
