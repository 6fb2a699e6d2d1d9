//! What the exports of single samples share: frames in order, stacks and events by number.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::profile::{SampleView, SymbolFrame};

/// What a sampled event is to other tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventUnit {
    /// `cpu-clock`, `cycles`.
    pub name: String,
    /// Nanoseconds of CPU time that a weight of 1 stands for; `None` where the event does not measure time.
    pub nanoseconds: Option<u64>,
    /// How many of the event a weight of 1 stands for, where that is fixed.
    pub period: Option<u64>,
}

impl EventUnit {
    /// Of the event `name` sampled `hz` times a second.
    pub fn of_frequency(name: &str, hz: u64) -> EventUnit {
        let nanoseconds = (1_000_000_000 + hz / 2)
            .checked_div(hz)
            .filter(|ns| *ns > 0);
        EventUnit {
            name: name.to_owned(),
            nanoseconds: nanoseconds.filter(|_| is_clock(name) || is_cycles(name)),
            period: nanoseconds.filter(|_| is_clock(name)),
        }
    }

    /// Of the event `name` sampled at each so many.
    pub fn of_period(name: &str, period: u64) -> EventUnit {
        EventUnit {
            name: name.to_owned(),
            nanoseconds: is_clock(name).then_some(period),
            period: Some(period),
        }
    }
}

/// The name without what comes after a colon: `cycles:u` counts as `cycles`.
fn base(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

fn is_clock(name: &str) -> bool {
    matches!(base(name), "cpu-clock" | "task-clock")
}

fn is_cycles(name: &str) -> bool {
    matches!(base(name), "cycles" | "cpu-cycles")
}

/// The CPU time of a weight, where the event measures time.
pub(super) fn nanoseconds(units: &[EventUnit], event: u8, weight: u64) -> Option<u64> {
    let unit = units.get(usize::from(event))?;
    Some(weight.saturating_mul(unit.nanoseconds?))
}

/// What perf would count of a weight: nanoseconds where the event measures time, else how many there were of it, where that is fixed.
pub(super) fn amount(units: &[EventUnit], event: u8, weight: u64) -> Option<u64> {
    let unit = units.get(usize::from(event))?;
    Some(weight.saturating_mul(unit.nanoseconds.or(unit.period)?))
}

/// A part of a stack.
pub(super) enum Part<'a> {
    /// Callers are missing here.
    Cut,
    /// A function.
    Function(&'a SymbolFrame),
}

/// Calls `each` with the whole stack, root first.
pub(super) fn root_first<'a>(sample: &SampleView<'a>, mut each: impl FnMut(Part<'a>)) {
    let (user_cut, kernel_cut) = sample.cuts();
    for (frames, cut) in [(sample.user, user_cut), (sample.kernel, kernel_cut)] {
        if cut {
            each(Part::Cut);
        }
        for frame in frames.iter().rev() {
            frame
                .resolution
                .chain
                .iter()
                .for_each(|part| each(Part::Function(part)));
        }
    }
}

/// Numbers for stacks of places. Samples with one number have the same names everywhere.
#[derive(Debug, Default)]
pub(super) struct StackNumbers {
    numbers: HashMap<Box<[u32]>, u32, RandomState>,
    key: Vec<u32>,
}

impl StackNumbers {
    /// The number of the sample's stack, and whether it is new.
    pub fn of(&mut self, sample: &SampleView<'_>) -> (u32, bool) {
        let key = &mut self.key;
        key.clear();
        let (user_cut, kernel_cut) = sample.cuts();
        key.push(u32::from(user_cut) | u32::from(kernel_cut) << 1);
        // Where user frames begin, so that lists of the same places are told apart.
        key.push(sample.kernel.len() as u32);
        let frames = sample.kernel.iter().chain(sample.user);
        key.extend(frames.map(|frame| frame.place));
        if let Some(number) = self.numbers.get(key.as_slice()) {
            return (*number, false);
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(key.as_slice().into(), number);
        (number, true)
    }
}

/// A thread as a sample tells of it. A thread number that is used again by another program is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ThreadKey {
    pub pid: u32,
    pub tid: u32,
    pub process: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clocks_and_cycles_are_time() {
        assert_eq!(
            EventUnit::of_frequency("cpu-clock", 99).nanoseconds,
            Some(10_101_010)
        );
        assert_eq!(
            EventUnit::of_frequency("cycles:u", 1000).nanoseconds,
            Some(1_000_000)
        );
        assert_eq!(EventUnit::of_frequency("cycles", 1000).period, None);
        assert_eq!(
            EventUnit::of_frequency("cache-misses", 1000).nanoseconds,
            None
        );
        assert_eq!(EventUnit::of_frequency("cycles", 0).nanoseconds, None);
        let cycles = EventUnit::of_period("cycles", 1_000_000);
        assert_eq!((cycles.nanoseconds, cycles.period), (None, Some(1_000_000)));
        assert_eq!(EventUnit::of_period("task-clock", 5).nanoseconds, Some(5));
    }
}
