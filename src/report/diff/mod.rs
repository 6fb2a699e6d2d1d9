//! `--diff BEFORE AFTER`: two captures side by side, each in shares of its own sampled CPU time.
//!
//! ```text
//! join    two profiles -> one set of names and stacks, joined by name        changes  functions, before and after
//!   same  what has another name in the other capture
//! table   text for people      data  JSON, CSV      stacks  stacks with two counts: folded lines -> graph  flame graph
//! ```

mod changes;
mod data;
mod graph;
mod join;
mod same;
mod stacks;
mod table;

use std::path::PathBuf;

pub use data::{COLUMNS, csv, json};
pub use graph::flamegraph;
pub use join::Joined;
pub use same::Renamed;
pub use stacks::folded;
pub use table::{about, nothing_compared, write};

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
    /// What is said to be the same under two names is not there.
    #[error(
        "--same {old}={new}: BEFORE has no module or process {old} with samples, or AFTER no {new}"
    )]
    NotThere {
        /// Its name in the first.
        old: String,
        /// And in the second.
        new: String,
    },
    /// Weights of one capture are of several events.
    #[error(
        "{path} has samples of several events ({events}), which cannot be summed up: choose one of each capture, as in --event {first}"
    )]
    Several {
        /// The capture.
        path: PathBuf,
        /// Its events.
        events: String,
        /// One of them.
        first: String,
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
                first: names.first().cloned().unwrap_or_default(),
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
        let (before, after) = (input("before.bprof", before), input("after.bprof", after));
        Joined::new(&before, &after, &[]).unwrap()
    }

    #[test]
    fn the_same_twice_has_no_change() {
        let profile = before();
        let joined = Joined::new(&input("a", &profile), &input("b", &profile), &[]).unwrap();
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

    /// A program of one version.
    fn version(module: &str, functions: &[(&str, u64)]) -> Profile {
        let mut b = Builder::default();
        let p = b.process(module, 7);
        for (name, weight) in functions {
            b.row(p, &["main", name], *weight);
        }
        let profile = b.profile;
        // The builder has one module.
        let mut renamed = Profile {
            about: profile.about.clone(),
            ..Profile::default()
        };
        for (caller, frame) in profile.stacks.nodes() {
            let frame = profile.names.frames()[frame as usize];
            let name = renamed.names.intern(profile.names.text(frame.name));
            let module = renamed.names.intern(module);
            let frame = renamed
                .names
                .frame_id(crate::profile::Frame::new(name, module, frame.kind));
            renamed.stacks.push(caller, frame);
        }
        let label = renamed.names.intern(&format!("{module}-7"));
        renamed.groups = profile.groups.clone();
        renamed.groups[0].label = label;
        renamed.rows = profile.rows;
        renamed
    }

    fn functions(joined: &Joined) -> Vec<String> {
        let changes = changes::changes(joined, Sort::Own).into_iter();
        let mut list: Vec<String> = changes
            .map(|c| {
                let text = |name| joined.names.text(name);
                let (before, after) = (c.before.own, c.after.own);
                format!(
                    "{} {} {before} {after}",
                    text(c.function.1),
                    text(c.function.0)
                )
            })
            .collect();
        list.sort();
        list
    }

    #[test]
    fn another_version_has_the_same_functions() {
        let one = version("app-1.2", &[("f", 10), ("[app-1.2+0x10]", 3), ("old", 5)]);
        let two = version("app-1.3", &[("f", 30), ("[app-1.3+0x99]", 4), ("new", 2)]);
        let joined = joined_of(&one, &two);
        assert_eq!(
            functions(&joined),
            [
                "app-1.2 old 5 0",
                "app-1.3 [app-1.3] 3 4",
                "app-1.3 f 10 30",
                "app-1.3 main 0 0",
                "app-1.3 new 0 2",
            ]
        );
        let renamed = ("app-1.2".to_owned(), "app-1.3".to_owned());
        assert_eq!(joined.renamed, [renamed]);
        assert_eq!(joined.alike, []);
        let mut folded = Vec::new();
        super::folded(&joined, &mut folded).unwrap();
        assert_eq!(
            String::from_utf8(folded).unwrap(),
            "app-1.3;main;[app-1.3] 6 4\napp-1.3;main;f 20 30\napp-1.3;main;new 0 2\napp-1.3;main;old 10 0\n"
        );
    }

    #[test]
    fn another_name_is_another_program_unless_someone_says_so() {
        let one = version("app.old", &[("f", 10), ("g", 2)]);
        let two = version("app", &[("f", 30), ("g", 4)]);
        let joined = joined_of(&one, &two);
        assert_eq!(functions(&joined).len(), 6, "{:?}", functions(&joined));
        assert_eq!(joined.renamed, []);
        assert_eq!(joined.alike, [("app.old".to_owned(), "app".to_owned(), 3)]);
        let said = [("app.old".to_owned(), "app".to_owned())];
        let joined = Joined::new(&input("a", &one), &input("b", &two), &said).unwrap();
        assert_eq!(
            functions(&joined),
            ["app f 10 30", "app g 2 4", "app main 0 0"]
        );
        assert_eq!(
            (&joined.renamed[..], &joined.alike[..]),
            (&said[..], &[][..])
        );
        let nobody = [("app.old".to_owned(), "nobody".to_owned())];
        let refused = Joined::new(&input("a", &one), &input("b", &two), &nobody);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .starts_with("--same app.old=nobody: ")
        );
    }

    #[test]
    fn other_events_are_not_compared() {
        let profile = before();
        let mut other = input("other", &profile);
        other.units = vec![EventUnit::of_frequency("cycles", 100)];
        let refused = Joined::new(&input("a", &profile), &other, &[]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "cpu-clock of the one and cycles of the other cannot be compared: record both with the same event (-e)"
        );
        // Of a merged capture with several rates.
        other.units = vec![EventUnit {
            name: "cpu-clock:ppp@49Hz".into(),
            ..EventUnit::of_frequency("cpu-clock:ppp", 49)
        }];
        Joined::new(&input("a", &profile), &other, &[]).unwrap();
        let empty = Profile::default();
        other.profile = &empty;
        Joined::new(&input("a", &profile), &other, &[]).unwrap();

        let mut two = before();
        two.rows[0].event = 1;
        let mut several = input("two", &two);
        several.units.push(EventUnit::of_period("page-faults", 1));
        let refused = Joined::new(&several, &several, &[]).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("two has samples of several events (cpu-clock, page-faults)"),
            "{refused}"
        );
    }
}
