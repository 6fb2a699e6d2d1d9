//! What the header of the capture says of a recording of perf's.

use std::time::{SystemTime, UNIX_EPOCH};

use linux_perf_event_reader::{AttrFlags, ClockId, PerfClock, SampleFormat, SamplingPolicy};

use super::attrs::Attr;
use super::bytes::Bytes;
use super::container::{Container, feature};
use super::machine::Recorded;
use super::sample::{READ_GROUP, Shape};
use super::survey::Survey;
use crate::capture::members::cut_text;
use crate::event::{BuildId, Timestamp, UserStacks};
use crate::format::header::{EventInfo, Header, Sampling};

/// Bytes of a text of the header at most.
const TEXT: usize = 4096;

/// What is known before the first sample.
pub struct Facts {
    pub recorded: Recorded,
    pub arch: String,
    release: String,
    cpus: u32,
    perf: String,
    system_wide: bool,
    clock: Option<Clock>,
    events: Vec<EventInfo>,
    stack_limit: u32,
    degraded: Vec<String>,
}

/// The clock of the records, read together with the time of day.
struct Clock {
    id: u32,
    wall: u64,
    time: u64,
}

impl Facts {
    /// `shapes` are of the events that are sampled, `sampled`.
    pub fn of(container: &Container, sampled: &[&Attr], shapes: &[Shape]) -> Facts {
        let text = |number| container.text(number).map(cut);
        let arch = text(feature::ARCH).unwrap_or_default();
        let cpus = container.features.get(&feature::NRCPUS);
        let cpus = cpus.and_then(|bytes| Bytes(bytes.get(4..)?).u32());
        Facts {
            recorded: Recorded {
                host: text(feature::HOSTNAME),
                release: text(feature::OSRELEASE),
                kernel: None,
                text: None,
            },
            release: text(feature::OSRELEASE).unwrap_or_default(),
            cpus: cpus.unwrap_or(0),
            perf: text(feature::VERSION).unwrap_or_default(),
            system_wide: is_system_wide(container),
            clock: clock(container),
            events: sampled.iter().map(|attr| event(attr)).collect(),
            stack_limit: shapes.iter().map(Shape::stack_limit).max().unwrap_or(0),
            degraded: degraded(sampled, shapes),
            arch,
        }
    }

    /// The header; `start` is the time of the first record.
    pub fn header(
        &self,
        start: u64,
        kernel: Option<BuildId>,
        survey: Option<&Survey>,
        modified: Option<SystemTime>,
        further: Vec<String>,
    ) -> Header {
        let mut degraded = self.degraded.clone();
        degraded.extend(further);
        let wall = self.wall_offset(survey, modified, &mut degraded);
        if let Some(damage) = survey.and_then(|survey| survey.damage.as_ref()) {
            degraded.push(format!(
                "perf.data is damaged, what follows is missing: {damage}"
            ));
        }
        let whom = match self.system_wide {
            true => "system-wide",
            false => "as told to perf record",
        };
        let perf = match self.perf.is_empty() {
            true => "perf".to_owned(),
            false => format!("perf {}", self.perf),
        };
        Header {
            host: self.recorded.host.clone().unwrap_or_default(),
            boot_id: String::new(),
            kernel_release: self.release.clone(),
            kernel_build_id: kernel,
            arch: self.arch.clone(),
            page_size: 0,
            clock_ticks: 0,
            cpus_online: self.cpus,
            wall_offset_ns: wall,
            start_time: Timestamp(start),
            events: self.events.clone(),
            target: whom.to_owned(),
            user_stack_limit: self.stack_limit,
            kernel_stack_limit: self.stack_limit,
            tool: format!("{perf}, imported by profiler {}", env!("CARGO_PKG_VERSION")),
            degraded,
            user_stacks: UserStacks::Untold,
        }
    }

    /// What to add to the records' times for the time of day.
    fn wall_offset(
        &self,
        survey: Option<&Survey>,
        modified: Option<SystemTime>,
        degraded: &mut Vec<String>,
    ) -> i64 {
        if let Some(clock) = &self.clock {
            return clock.wall.wrapping_sub(clock.time).cast_signed();
        }
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        match (survey, modified) {
            (Some(survey), Some(modified)) => {
                degraded.push(
                    "times of day: perf did not record them (-k mono does); the file's modification time is taken for the \
                     end of the recording"
                        .into(),
                );
                let modified = u64::try_from(modified.as_nanos()).unwrap_or(0);
                modified.wrapping_sub(survey.latest).cast_signed()
            }
            _ => {
                degraded.push(
                    "times of day: perf did not record them (-k mono does): times are shown as if the machine had been \
                     started in 1970"
                        .into(),
                );
                0
            }
        }
    }
}

fn cut(mut text: String) -> String {
    cut_text(&mut text, TEXT);
    text
}

/// Whether perf was told to record everything.
fn is_system_wide(container: &Container) -> bool {
    let words = || {
        let mut bytes = Bytes(container.features.get(&feature::CMDLINE)?);
        let count = bytes.u32()?;
        Some((0..count).map_while(move |_| bytes.string()))
    };
    let Some(words) = words() else { return false };
    let mut own = words.take_while(|word| *word != b"--");
    own.any(|word| word == b"-a" || word == b"--all-cpus")
}

fn clock(container: &Container) -> Option<Clock> {
    const VERSION: u32 = 1;
    let mut bytes = Bytes(container.features.get(&feature::CLOCK_DATA)?);
    (bytes.u32()? == VERSION).then_some(())?;
    let clock = Clock {
        id: bytes.u32()?,
        wall: bytes.u64()?,
        time: bytes.u64()?,
    };
    let of = |attr: &Attr| match attr.attr.clock {
        PerfClock::ClockId(id) => ClockId::from_u32(clock.id) == Some(id),
        PerfClock::Default => false,
    };
    container.attrs.list.iter().all(of).then_some(clock)
}

fn event(attr: &Attr) -> EventInfo {
    let sampling = match attr.attr.sampling_policy {
        SamplingPolicy::Frequency(hz) => Sampling::Frequency(hz),
        SamplingPolicy::Period(period) => Sampling::Period(period.get()),
        SamplingPolicy::NoSampling => Sampling::Period(0),
    };
    let name = attr.name.clone().filter(|name| !name.is_empty());
    EventInfo {
        name: cut(name.unwrap_or_else(|| kind_name(attr))),
        sampling,
    }
}

/// What an event without a name is called.
fn kind_name(attr: &Attr) -> String {
    use linux_perf_event_reader::{
        HardwareEventId as H, PerfEventType as T, SoftwareCounterType as S,
    };
    match attr.attr.type_ {
        T::Hardware(H::CpuCycles, _) => "cycles".into(),
        T::Hardware(H::Instructions, _) => "instructions".into(),
        T::Software(S::CpuClock) => "cpu-clock".into(),
        T::Software(S::TaskClock) => "task-clock".into(),
        T::Software(S::PageFaults) => "page-faults".into(),
        T::Tracepoint(id) => format!("tracepoint {id}"),
        other => format!("{other:?}").chars().take(60).collect(),
    }
}

/// What samples are without.
fn degraded(sampled: &[&Attr], shapes: &[Shape]) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    let mut say = |so: bool, text: &str| {
        if so {
            list.push(text.to_owned());
        }
    };
    say(
        shapes.iter().any(|shape| shape.dwarf),
        "user stacks: perf copied stack memory to unwind it later (--call-graph dwarf), which import does not: of user \
         code there is the innermost frame only; --call-graph fp has callers",
    );
    say(
        shapes.iter().any(|shape| !shape.has_chain),
        "stacks: perf recorded none (-g does): each sample is the address it was taken at",
    );
    say(
        shapes.iter().any(|shape| !shape.has_cpu),
        "CPUs: perf did not record them (--sample-cpu does), so they are not known of any sample",
    );
    say(
        sampled
            .iter()
            .any(|attr| attr.has(SampleFormat::BRANCH_STACK)),
        "branches: recorded, and not imported",
    );
    say(
        shapes
            .iter()
            .any(|s| s.has(SampleFormat::READ) && s.read_format & READ_GROUP != 0),
        "groups of events: of those sampled with their leader (:S) the leader's samples are imported, and no counts of the others",
    );
    let without = |flag| move |attr: &&Attr| attr.attr.flags.contains(flag);
    say(
        sampled.iter().any(without(AttrFlags::EXCLUDE_KERNEL)),
        "kernel code was not sampled",
    );
    say(
        sampled
            .iter()
            .any(without(AttrFlags::EXCLUDE_CALLCHAIN_KERNEL)),
        "kernel stacks were not recorded",
    );
    list
}
