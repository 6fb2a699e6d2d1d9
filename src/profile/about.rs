//! What a capture says about itself, and what of it was asked for.

use std::collections::BTreeMap;

use crate::event::{LossClass, Timestamp, UserStacks};

/// Facts of the capture: where from, what was asked, how much of it is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Host name; `?` where it is not known.
    pub host: String,
    /// Kernel release and machine, as far as they are known.
    pub kernel: String,
    /// CPUs online; 0 where it is not known.
    pub cpus: u32,
    /// Program that recorded.
    pub tool: String,
    /// What was to be sampled.
    pub target: String,
    /// Sampled events with their rates.
    pub events: Vec<Event>,
    /// Add this to a [`Timestamp`] for nanoseconds since 1970.
    pub wall_offset_ns: i64,
    /// Nanoseconds from the beginning of the recording to its end, where it ended in order.
    pub duration: Option<u64>,
    /// First and last sample.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Samples in the capture.
    pub samples: u64,
    /// What they count for: the sum of their weights; 0 where it is not known yet.
    pub weight: u64,
    /// Samples that are known to be lost.
    pub lost: u64,
    /// Everything lost or left out, by cause, where the cause is known already.
    pub losses: BTreeMap<LossClass, u64>,
    /// What samples count for whose stack is shown cut at the depth limit, of those selected; `None` where they are not counted yet.
    pub truncated: Option<u64>,
    /// Why recording ended; `None` when the capture does not say (it was cut short).
    pub ended: Option<String>,
    /// Bytes at the end that are not a whole frame.
    pub cut_bytes: u64,
    /// What is damaged, with its place.
    pub damage: Vec<String>,
    /// Samples that are in damaged frames and not in the report, as far as known.
    pub damaged_samples: u64,
    /// What the recorder could not have, one sentence each.
    pub degraded: Vec<String>,
    /// How user stacks were walked.
    pub user_stacks: UserStacks,
    /// How they were walked in captures of one file that differ in it, one clause each.
    pub walked: Vec<String>,
    /// Frames at which stacks were cut; 0 where it is not known.
    pub stack_limit: u32,
    /// What of the capture was asked for; `None`: all of it.
    pub selected: Option<Selected>,
    /// What stacks are without because it was asked for, one clause each.
    pub shape: Vec<String>,
}

impl About {
    /// Whether bytes of the capture are not what was written.
    pub fn is_damaged(&self) -> bool {
        !self.damage.is_empty()
    }

    /// Samples that views are of: those selected, as soon as they are counted, or all.
    pub fn samples_shown(&self) -> u64 {
        let selected = self.selected.as_ref();
        selected.and_then(|s| s.samples).unwrap_or(self.samples)
    }

    /// What the samples count for that views are of, as far as it is known.
    pub fn weight_shown(&self) -> u64 {
        match &self.selected {
            Some(Selected {
                samples: Some(_),
                weight,
                ..
            }) => *weight,
            _ if self.weight > 0 => self.weight,
            _ => self.samples,
        }
    }
}

/// A part of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selected {
    /// What was asked for, one clause each: `pid 7`, `time 10s..25s`.
    pub what: Vec<String>,
    /// Samples in it; `None` as long as they are not counted.
    pub samples: Option<u64>,
    /// What they count for: the sum of their weights.
    pub weight: u64,
    /// Where it was asked when: samples lost in the frames of that time. [`About::losses`] are then those of these frames.
    pub lost: Option<u64>,
    /// Why there is nothing in it, one sentence each.
    pub nothing: Vec<String>,
}

/// A sampled event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `cycles`, `cpu-clock`.
    pub name: String,
    /// In words: `99 Hz`, `every 1000000`.
    pub rate: String,
}

impl Event {
    /// The name with the rate, for where one event was sampled at several: `cpu-clock@99Hz`.
    pub fn with_rate(&self) -> String {
        format!("{}@{}", self.name, self.rate.replace(' ', ""))
    }

    /// Whether `asked` is its name, alone or with the rate.
    pub fn is_called(&self, asked: &str) -> bool {
        asked == self.name || asked == self.with_rate()
    }
}

/// The event of a name without what says how precisely its place is to be known: perf's `cpu-clock:ppp` counts what `cpu-clock` does.
pub fn counted_event(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifiers)) if modifiers.chars().all(|c| matches!(c, 'p' | 'P')) => event,
        _ => name,
    }
}
