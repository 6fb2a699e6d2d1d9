//! Spans of time as people give them.

use std::str::FromStr;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp as Wall};

use crate::event::Timestamp;

/// From a time on, and before another: `10s..25s`, `..25s`, `2026-11-30T08:00:00..08:05:00`, `40%..60%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeRange {
    /// The first time that is in it; `None`: from the beginning on.
    pub from: Option<TimePoint>,
    /// The first time after it that is not; `None`: to the end.
    pub until: Option<TimePoint>,
}

/// A time in a capture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TimePoint {
    /// So many nanoseconds after the first sample.
    AfterFirst(u64),
    /// On the wall clock: nanoseconds since 1970.
    Wall(i128),
    /// Percent of the time from the first sample to the last.
    Percent(f64),
}

/// What times of a capture are counted from.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// First and last sample.
    pub span: (Timestamp, Timestamp),
    /// Add this to a [`Timestamp`] for nanoseconds since 1970.
    pub wall_offset_ns: i64,
}

/// A span of time of a capture: from the one on, and before the other, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSpan {
    /// The first nanosecond in it.
    pub from: Timestamp,
    /// The first one after it.
    pub until: Option<Timestamp>,
}

impl TimeSpan {
    /// Whether `time` is in it.
    pub fn contains(self, time: Timestamp) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }

    /// Whether anything from `first` to `last`, both included, is in it.
    pub fn meets(self, first: Timestamp, last: Timestamp) -> bool {
        self.from <= last && self.until.is_none_or(|until| first < until)
    }

    /// Whether all from `first` to `last`, both included, is in it.
    pub fn covers(self, first: Timestamp, last: Timestamp) -> bool {
        self.contains(first) && self.contains(last)
    }
}

impl TimeRange {
    /// The span it is in a capture.
    pub fn on(self, scale: Scale) -> TimeSpan {
        let time = |point: TimePoint| point.on(scale).max(0);
        let whole = |time: i128| u64::try_from(time).ok().map(Timestamp);
        TimeSpan {
            // What begins after all times there are begins at the last one and ends before it.
            from: self.from.map_or(Timestamp::ZERO, |point| {
                whole(time(point)).unwrap_or(Timestamp::MAX)
            }),
            until: self.until.and_then(|point| whole(time(point))),
        }
    }
}

impl TimePoint {
    /// Nanoseconds of the capture's clock.
    fn on(self, scale: Scale) -> i128 {
        let (first, last) = (i128::from(scale.span.0.0), i128::from(scale.span.1.0));
        match self {
            TimePoint::AfterFirst(nanoseconds) => first + i128::from(nanoseconds),
            TimePoint::Wall(nanoseconds) => {
                nanoseconds.saturating_sub(i128::from(scale.wall_offset_ns))
            }
            // All of it is 100 %, the last sample too.
            TimePoint::Percent(percent) if percent >= 100.0 => last + 1,
            TimePoint::Percent(percent) => {
                let length = (last - first + 1).max(1);
                first + (length as f64 * (percent / 100.0)) as i128
            }
        }
    }
}

/// What is wrong with a span of time, and what is right.
const FORMS: &str = "give FROM..UNTIL, such as 10s..25s, ..1m30s, 40%..60%, 2026-11-30T08:00:00..08:05:00 (UTC, or with an offset: +02:00)";

impl FromStr for TimeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeRange, String> {
        let (from, until) = text.split_once("..").ok_or(FORMS)?;
        let (from, until) = (from.trim(), until.trim());
        if from.is_empty() && until.is_empty() {
            return Err(format!("it begins and ends nowhere: {FORMS}"));
        }
        let is_there = |text: &&str| !text.is_empty();
        let from_point = Some(from).filter(is_there).map(point).transpose()?;
        let until = Some(until).filter(is_there);
        let until = until
            .map(|text| match date_of(from, from_point) {
                Some(begin) if text.parse::<Time>().is_ok() => time_of_day(text, begin),
                _ => point(text),
            })
            .transpose()?;
        let range = TimeRange {
            from: from_point,
            until,
        };
        match (range.from, range.until) {
            (Some(TimePoint::AfterFirst(a)), Some(TimePoint::AfterFirst(b))) if a >= b => {}
            (Some(TimePoint::Wall(a)), Some(TimePoint::Wall(b))) if a >= b => {}
            (Some(TimePoint::Percent(a)), Some(TimePoint::Percent(b))) if a >= b => {}
            _ => return Ok(range),
        }
        Err("it ends before it begins, or where it begins".to_owned())
    }
}

fn point(text: &str) -> Result<TimePoint, String> {
    if let Some(number) = text.strip_suffix('%') {
        return match number.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(TimePoint::Percent(percent)),
            _ => Err(format!("`{text}` is no share from 0% to 100%")),
        };
    }
    if let Some(nanoseconds) = after_first(text) {
        return Ok(TimePoint::AfterFirst(nanoseconds));
    }
    if let Some(wall) = wall(text) {
        return Ok(TimePoint::Wall(wall.as_nanosecond()));
    }
    match text.parse::<Time>() {
        Ok(_) => Err(format!(
            "`{text}` is a time of which day? give its date with it: 2026-11-30T{text}"
        )),
        Err(_) => Err(format!("`{text}` is no time: {FORMS}")),
    }
}

/// Seconds, or a time with units such as `1m30s`.
fn after_first(text: &str) -> Option<u64> {
    let from_seconds = |seconds: f64| {
        let nanoseconds = (seconds * 1e9).round();
        (0.0..1e19)
            .contains(&nanoseconds)
            .then_some(nanoseconds as u64)
    };
    if let Ok(seconds) = text.parse::<f64>() {
        return from_seconds(seconds);
    }
    if text.contains(':') || !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let duration: SignedDuration = text.parse().ok()?;
    u64::try_from(duration.as_nanos()).ok()
}

/// A date and time with an offset, or in UTC.
fn wall(text: &str) -> Option<Wall> {
    let in_utc = |civil: DateTime| TimeZone::UTC.to_timestamp(civil).ok();
    let parsed = text.parse::<Wall>().ok();
    parsed.or_else(|| in_utc(text.parse().ok()?))
}

/// When a span begins, as the clock there shows it, with that clock's offset.
fn date_of(from: &str, point: Option<TimePoint>) -> Option<(DateTime, SignedDuration)> {
    let Some(TimePoint::Wall(nanoseconds)) = point else {
        return None;
    };
    let utc = TimeZone::UTC.to_datetime(Wall::from_nanosecond(nanoseconds).ok()?);
    let shown: DateTime = match from.strip_suffix(['Z', 'z']) {
        Some(text) => text.parse().ok()?,
        None => from.parse().ok()?,
    };
    Some((shown, shown.duration_since(utc)))
}

/// A time of the day on which a span begins, or of the next day if it is earlier.
fn time_of_day(
    text: &str,
    (begin, offset): (DateTime, SignedDuration),
) -> Result<TimePoint, String> {
    let far = |_| format!("`{text}` is too far away");
    let time: Time = text.parse().map_err(far)?;
    let mut end = begin.date().to_datetime(time);
    if end < begin {
        end = end.checked_add(Span::new().days(1)).map_err(far)?;
    }
    let utc = end.checked_sub(offset).map_err(far)?;
    let wall = TimeZone::UTC.to_timestamp(utc).map_err(far)?;
    Ok(TimePoint::Wall(wall.as_nanosecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> TimeRange {
        text.parse().unwrap_or_else(|err| panic!("{text}: {err}"))
    }

    /// From 1,000 s to 1,100 s on the capture's clock, which reads 0 at 2026-11-30T08:00:00 UTC.
    const SCALE: Scale = Scale {
        span: (Timestamp(1_000_000_000_000), Timestamp(1_099_999_999_999)),
        wall_offset_ns: 1_796_025_600_000_000_000,
    };

    fn on(text: &str) -> (u64, Option<u64>) {
        let span = range(text).on(SCALE);
        (span.from.0, span.until.map(|time| time.0))
    }

    #[test]
    fn times_are_counted_from_the_first_sample() {
        let s = 1_000_000_000;
        assert_eq!(on("10s..25s"), (1_010 * s, Some(1_025 * s)));
        assert_eq!(on("10..1m30s"), (1_010 * s, Some(1_090 * s)));
        assert_eq!(on("..1.5s"), (0, Some(1_001 * s + s / 2)));
        assert_eq!(on("500ms.."), (1_000 * s + s / 2, None));
        assert_eq!(on("0%..50%"), (1_000 * s, Some(1_050 * s)));
        assert_eq!(on("50%..100%"), (1_050 * s, Some(1_100 * s)));
        assert_eq!(on("10s..100%"), (1_010 * s, Some(1_100 * s)));
    }

    #[test]
    fn times_of_the_wall_clock_are_of_any_zone() {
        let s = 1_000_000_000;
        let expected = (1_000 * s, Some(1_060 * s));
        assert_eq!(on("2026-11-30T08:16:40..2026-11-30T08:17:40"), expected);
        assert_eq!(on("2026-11-30T08:16:40..08:17:40"), expected);
        assert_eq!(on("2026-11-30 08:16:40Z..08:17:40"), expected);
        assert_eq!(on("2026-11-30T10:16:40+02:00..10:17:40"), expected);
        assert_eq!(on("2026-11-30T10:16:40+02:00..60s"), expected);
        // The next day.
        assert_eq!(on("2026-11-29T23:00:00..08:17:40"), (0, Some(1_060 * s)));
        assert_eq!(on("..2026-11-30T08:17:40.5"), (0, Some(1_060 * s + s / 2)));
    }

    #[test]
    fn nonsense_is_told_with_what_would_be_right() {
        for (text, problem) in [
            ("", "give FROM..UNTIL"),
            ("10s", "give FROM..UNTIL"),
            ("..", "begins and ends nowhere"),
            ("25s..10s", "ends before it begins"),
            ("10s..10s", "ends before it begins"),
            ("60%..40%", "ends before it begins"),
            ("0%..101%", "`101%` is no share"),
            ("-5s..", "`-5s` is no time"),
            ("NaN..", "`NaN` is no time"),
            ("1e300..", "`1e300` is no time"),
            ("08:00:00..08:05:00", "time of which day?"),
            ("..08:05:00", "time of which day?"),
            ("2026-13-30T08:00:00..", "is no time"),
            ("tomorrow..", "is no time"),
        ] {
            let error = text.parse::<TimeRange>().unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn a_span_that_begins_after_all_times_holds_none() {
        let last = Scale {
            span: (Timestamp(5), Timestamp::MAX),
            wall_offset_ns: 0,
        };
        let all = range("0%..100%").on(last);
        assert!(all.contains(Timestamp::MAX) && all.contains(Timestamp(5)));
        assert!(!all.contains(Timestamp(4)));
        let none = range("..1970-01-01T00:00:00").on(last);
        assert!(!none.contains(Timestamp::ZERO) && !none.meets(Timestamp(0), Timestamp(9)));
        assert!(none.until == Some(Timestamp::ZERO));
        let part = range("10s..20s").on(SCALE);
        let at = |s: u64| Timestamp(s * 1_000_000_000);
        assert!(part.meets(at(1_000), at(1_010)) && !part.meets(at(1_020), at(1_030)));
        assert!(part.covers(at(1_010), at(1_019)) && !part.covers(at(1_010), at(1_020)));
    }
}
