//! `--diff BEFORE AFTER`: two captures side by side, each in shares of its own sampled CPU time.
//!
//! ```text
//! join    two profiles -> one set of names and stacks, joined by name        changes  functions, before and after
//! table   text for people      data  JSON, CSV      stacks  stacks with two counts: folded lines, flame graph
//! ```

mod changes;
mod data;
mod join;
mod stacks;
mod table;

use std::path::PathBuf;

pub use data::{csv, json};
pub use join::Joined;
pub use stacks::{flamegraph, folded};
pub use table::{about, write};

use super::layout::Style;
use super::samples::EventUnit;
use super::top::Sort;
use crate::profile::{About, Naming, Profile};

/// One of the two captures.
#[derive(Debug, Clone)]
pub struct Side {
    /// Its path as given.
    pub path: PathBuf,
    /// What it says about itself.
    pub about: About,
    /// How its frames were named.
    pub naming: Naming,
    /// Samples.
    pub samples: u64,
    /// Sum of their weights.
    pub weight: u64,
    /// CPU time that a weight of 1 stands for, where the event measures time.
    nanoseconds: Option<u64>,
    /// The event of its samples.
    event: Option<String>,
}

impl Side {
    /// Sampled CPU time in seconds, where the event measures time.
    pub fn cpu_seconds(&self) -> Option<f64> {
        self.seconds(self.weight)
    }

    /// CPU time of a weight.
    fn seconds(&self, weight: u64) -> Option<f64> {
        Some(weight as f64 * self.nanoseconds? as f64 / 1e9)
    }
}

/// Why two captures cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotComparable {
    /// What is counted is not the same.
    #[error(
        "{before} of the one and {after} of the other cannot be compared: record both with the same event (-e)"
    )]
    Events {
        /// Event of the first.
        before: String,
        /// Event of the second.
        after: String,
    },
    /// Weights of one capture are of several events.
    #[error(
        "{path} has samples of several events ({events}), which cannot be summed up: choose one of both captures with --event"
    )]
    Several {
        /// The capture.
        path: PathBuf,
        /// Its events.
        events: String,
    },
}

/// What is shown, and how it is to look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Functions at most, of those that grew and of those that shrank. `None` leaves none out.
    pub limit: Option<usize>,
    /// Whether it is self or total that grew or shrank.
    pub sort: Sort,
    /// Where the text is shown.
    pub style: Style,
}

/// What a capture and its profile are to a comparison.
#[derive(Debug)]
pub struct Input<'a> {
    /// Path as given.
    pub path: PathBuf,
    /// Everything counted.
    pub profile: &'a Profile,
    /// What weights mean, by event.
    pub units: Vec<EventUnit>,
}

impl Input<'_> {
    fn side(&self) -> Result<Side, NotComparable> {
        let profile = self.profile;
        let mut events: Vec<u8> = profile
            .rows
            .iter()
            .filter(|r| r.weight > 0)
            .map(|r| r.event)
            .collect();
        events.sort_unstable();
        events.dedup();
        let unit = |event: &u8| self.units.get(usize::from(*event));
        let name = |event: &u8| unit(event).map_or("?", |unit| &unit.name).to_owned();
        if events.len() > 1 {
            let names: Vec<String> = events.iter().map(name).collect();
            return Err(NotComparable::Several {
                path: self.path.clone(),
                events: names.join(", "),
            });
        }
        let event = events.first();
        Ok(Side {
            path: self.path.clone(),
            about: profile.about.clone(),
            naming: profile.naming.clone(),
            samples: profile
                .rows
                .iter()
                .fold(0, |sum, row| row.samples.saturating_add(sum)),
            weight: profile.total_weight(),
            // Without samples there is nothing to multiply.
            nanoseconds: event
                .or(Some(&0))
                .and_then(unit)
                .and_then(|unit| unit.nanoseconds),
            event: event.map(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    /// Runs that are counted each 10 ms.
    fn input<'a>(path: &str, profile: &'a Profile) -> Input<'a> {
        Input {
            path: path.into(),
            profile,
            units: vec![EventUnit::of_frequency("cpu-clock", 100)],
        }
    }

    pub fn before() -> Profile {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "hot"], 50);
        b.row(p, &["main", "cold"], 30);
        b.row(p, &["gone", "[mod+0x12]"], 0);
        b.row(p, &["gone"], 20);
        b.profile
    }

    /// Twice as long, under another number, with other numbers of names and stacks.
    fn after() -> Profile {
        let mut b = Builder::default();
        let p = b.process("app", 8);
        b.row(p, &["main", "cold"], 50);
        b.row(p, &["main", "hot"], 150);
        b.profile
    }

    pub fn joined() -> Joined {
        joined_of(&before(), &after())
    }

    pub fn joined_of(before: &Profile, after: &Profile) -> Joined {
        Joined::new(&input("before.bprof", before), &input("after.bprof", after)).unwrap()
    }

    #[test]
    fn the_same_twice_has_no_change() {
        let profile = before();
        let joined = Joined::new(&input("a", &profile), &input("b", &profile)).unwrap();
        assert_eq!(joined.before.1, joined.after.1);
        for sort in [Sort::Own, Sort::Total] {
            let changes = changes::changes(&joined, sort);
            assert_eq!(changes.len(), 4);
            assert!(
                changes
                    .iter()
                    .all(|change| change.own.change() == 0.0 && change.total.change() == 0.0)
            );
        }
    }

    #[test]
    fn other_events_are_not_compared() {
        let profile = before();
        let mut other = input("other", &profile);
        other.units = vec![EventUnit::of_frequency("cycles", 100)];
        let refused = Joined::new(&input("a", &profile), &other).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cpu-clock of the one and cycles of the other cannot be compared: record both with the same event (-e)"
        );
        let empty = Profile::default();
        other.profile = &empty;
        Joined::new(&input("a", &profile), &other).unwrap();

        let mut two = before();
        two.rows[0].event = 1;
        let mut several = input("two", &two);
        several.units.push(EventUnit::of_period("page-faults", 1));
        let refused = Joined::new(&several, &several).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("two has samples of several events (cpu-clock, page-faults)"),
            "{refused}"
        );
    }
}
