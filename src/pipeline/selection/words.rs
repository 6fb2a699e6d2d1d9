//! A selection in words, for what a report says about itself.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use jiff::Timestamp as Wall;

use super::{CodeKind, Selection, TimePoint, TimeRange};

impl Selection {
    /// One clause for each kind of question: `pid 7 or 9`, `CPU 0-3`, `time 10s..25s`. Empty when all is asked for.
    pub fn words(&self) -> Vec<String> {
        let Selection {
            pids,
            tids,
            comms,
            exes,
            cgroups,
            cpus,
            events,
            hosts,
            captures,
            code,
            symbols,
            modules,
            times,
        } = self;
        let range = |numbers: &RangeInclusive<u32>| match (numbers.start(), numbers.end()) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        };
        let clauses = [
            clause("time", times),
            clause("host", hosts.iter().map(|glob| glob.text())),
            clause("capture", captures.iter().map(range)),
            clause("event", events),
            clause("CPU", cpus.iter().map(range)),
            clause("cgroup", cgroups),
            clause("program", exes.iter().map(|exe| exe.text())),
            clause("pid", pids),
            clause("tid", tids),
            clause("thread name", comms.iter().map(|glob| glob.text())),
            clause("symbol", symbols.iter().map(|regex| format!("/{regex}/"))),
            clause("module", modules.iter().map(|pattern| pattern.text())),
            code.map(|code| match code {
                CodeKind::User => "user frames only".to_owned(),
                CodeKind::Kernel => "kernel frames only".to_owned(),
            }),
        ];
        clauses.into_iter().flatten().collect()
    }
}

fn clause<T: Display>(what: &str, values: impl IntoIterator<Item = T>) -> Option<String> {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    (!values.is_empty()).then(|| format!("{what} {}", values.join(" or ")))
}

impl Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(from) = self.from {
            write!(f, "{from}")?;
        }
        f.write_str("..")?;
        self.until.map_or(Ok(()), |until| write!(f, "{until}"))
    }
}

impl Display for TimePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimePoint::AfterFirst(nanoseconds) => write!(f, "{}s", *nanoseconds as f64 / 1e9),
            TimePoint::Percent(percent) => write!(f, "{percent}%"),
            TimePoint::Wall(nanoseconds) => match Wall::from_nanosecond(*nanoseconds) {
                Ok(wall) => write!(f, "{wall}"),
                Err(_) => write!(f, "{nanoseconds} ns since 1970"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Pid;

    #[test]
    fn a_selection_is_told_as_it_was_asked_for() {
        let selection = Selection {
            pids: vec![Pid(7), Pid(9)],
            cpus: vec![0..=3, 5..=5],
            comms: vec!["work*".parse().unwrap()],
            times: vec!["10s..1m30.5s".parse().unwrap(), "40%..".parse().unwrap()],
            symbols: vec![regex::Regex::new("^main$").unwrap()],
            captures: vec![2..=2],
            code: Some(CodeKind::Kernel),
            ..Selection::default()
        };
        assert_eq!(
            selection.words(),
            [
                "time 10s..90.5s or 40%..",
                "capture 2",
                "CPU 0-3 or 5",
                "pid 7 or 9",
                "thread name work*",
                "symbol /^main$/",
                "kernel frames only"
            ]
        );
        let wall: TimeRange = "2026-11-30T08:00:00+02:00..08:05:00".parse().unwrap();
        assert_eq!(
            wall.to_string(),
            "2026-11-30T06:00:00Z..2026-11-30T06:05:00Z"
        );
        assert_eq!(Selection::default().words(), [""; 0]);
    }
}
