//! How complete a report is: the lines that open each of them.
//!
//! ```text
//! samples  how many, what they count for, why there are none      naming  which frames have names, and what lacks
//! ```

mod naming;
mod samples;

use jiff::Timestamp as Wall;

use crate::event::{LossClass, Timestamp, UserStacks};
use crate::profile::{About, Naming, Profile, counted_event};

use super::text::escaped;
use crate::counted::{are, counted};

pub use naming::{naming, warning};
use samples::{counting_for, in_samples, no_samples};
pub(super) use samples::{samples, shown};

/// Damaged places that are listed.
const DAMAGES: usize = 5;

/// Everything, for views that come after all samples were read and add them up.
pub fn whole(profile: &Profile) -> Vec<String> {
    let mut lines = all(&profile.about, &profile.naming);
    lines.extend(several_events(&profile.about));
    lines
}

/// Everything that is known when all samples were read.
pub fn all(about: &About, named: &Naming) -> Vec<String> {
    let mut lines = opening(about);
    lines.extend(naming(named, is_unwound(about)));
    lines
}

/// That samples of different events are added up.
fn several_events(about: &About) -> Option<String> {
    let mut names: Vec<&str> = about
        .events
        .iter()
        .map(|event| counted_event(&event.name))
        .collect();
    names.sort_unstable();
    names.dedup();
    let selected = about.selected.as_ref();
    let is_selected = selected.is_some_and(|s| s.what.iter().any(|w| w.starts_with("event ")));
    (names.len() > 1 && !is_selected).then(|| {
        let names = names.join(", ");
        format!("several events: samples of {} are counted as if they were of one; --event NAME selects one", escaped(&names))
    })
}

/// What is known before any sample is decoded.
pub fn opening(about: &About) -> Vec<String> {
    let mut lines = vec![
        format!(
            "host: {}, {}, {}; recorded by {}",
            escaped(&about.host),
            escaped(&about.kernel),
            counted(about.cpus, "CPU"),
            escaped(&about.tool)
        ),
        format!(
            "event: {}; target: {}",
            events(about),
            escaped(&about.target)
        ),
    ];
    lines.extend(user_stacks(about));
    if let Some((first, last)) = about.span {
        lines.push(format!(
            "time: {} to {}, {}",
            wall_time(about, first),
            wall_time(about, last),
            seconds(last.since(first))
        ));
    }
    lines.push(samples(about));
    lines.extend(no_samples(about));
    lines.extend(selection(about));
    lines.extend(losses(about));
    lines.extend(truncated(about));
    lines.push(completeness(about));
    for damage in about.damage.iter().take(DAMAGES) {
        lines.push(format!("  {}", escaped(damage)));
    }
    if about.damage.len() > DAMAGES {
        lines.push(format!("  and {} more", about.damage.len() - DAMAGES));
    }
    lines.extend(
        about
            .degraded
            .iter()
            .map(|note| format!("degraded: {}", escaped(note))),
    );
    lines
}

/// How user stacks were walked, and what that misses without a word.
fn user_stacks(about: &About) -> Option<String> {
    let way = about.user_stacks.label()?;
    let misses = match about.user_stacks {
        UserStacks::FramePointers => {
            "; the caller of a function that keeps none is missing, which nothing tells"
        }
        _ => "",
    };
    Some(format!("user stacks: walked {way}{misses}"))
}

/// What of the capture was asked for, and how stacks were asked for.
pub fn selection(about: &About) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(selected) = &about.selected {
        let what = selected.what.join(", ");
        let mut line = format!("selected: {}", escaped(&what));
        if let Some(samples) = selected.samples {
            let all = counted(about.samples, "sample");
            line.push_str(&format!(": {samples} of {all}"));
            line.push_str(&counting_for(samples, selected.weight));
        }
        match selected.lost {
            _ if selected.samples.is_none() => {}
            Some(lost) => line.push_str(&format!("; lost in the frames of that time: {lost}")),
            None if about.lost > 0 || !about.losses.is_empty() => {
                line.push_str("; losses are those of the whole capture");
            }
            None => {}
        }
        lines.push(line);
        let nothing = selected.nothing.iter();
        lines.extend(nothing.map(|sentence| format!("  {}", escaped(sentence))));
    }
    if !about.shape.is_empty() {
        lines.push(format!("stacks: {}", about.shape.join(", ")));
    }
    lines
}

/// How many stacks are cut, as soon as they are counted.
fn truncated(about: &About) -> Option<String> {
    let count = about.truncated?;
    Some(format!("truncated stacks: {}", in_samples(count)))
}

/// What only the end knows, of views that begin before all samples were read: their opening goes without it.
pub fn closing(about: &About, named: &Naming) -> Vec<String> {
    let mut lines = match about.selected {
        Some(_) => selection(about),
        None if about.weight > about.samples => vec![samples(about)],
        None => Vec::new(),
    };
    lines.extend(no_samples(about));
    lines.extend(losses(about));
    lines.extend(truncated(about));
    lines.extend(naming(named, is_unwound(about)));
    lines
}

/// Whether stacks were walked by unwind information, as far as it shows, or by another recorder, which has options of its own.
fn is_unwound(about: &About) -> bool {
    if about.tool.contains("imported by profiler") {
        return true;
    }
    match about.user_stacks {
        UserStacks::FramePointers => return false,
        UserStacks::UnwindInfo | UserStacks::Both => return true,
        UserStacks::Untold => {}
    }
    let mut classes = about.losses.iter();
    classes.any(|(class, count)| *count > 0 && is_of_unwinding(*class))
}

/// What was lost or left out, by cause.
pub fn losses(about: &About) -> Vec<String> {
    let dated = about.selected.as_ref().is_some_and(|s| s.lost.is_some());
    let when = if dated {
        " in the frames of that time"
    } else {
        ""
    };
    let causes = |pick: fn(LossClass) -> bool| -> Vec<String> {
        about
            .losses
            .iter()
            .filter(|(class, count)| **count > 0 && pick(**class))
            .map(|(class, count)| format!("{} {count}", class.label()))
            .collect()
    };
    let told = |title: &str, causes: Vec<String>| {
        (!causes.is_empty()).then(|| format!("{title}{when}: {}", causes.join(", ")))
    };
    let list = |title: &str, pick| told(title, causes(pick));
    let mut of_lost = causes(LossClass::is_lost_sample);
    // Only the end may have had room to tell, and that without causes.
    let of_known = about.losses.iter().filter(|(c, _)| c.is_lost_sample());
    let known = of_known.fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let unknown = about.lost.saturating_sub(known);
    if unknown > 0 && about.selected.is_none() && !of_lost.is_empty() {
        of_lost.push(format!("not told {unknown}"));
    }
    let lost = told("lost by cause", of_lost);
    let other = list("left out or missing", |c| {
        !c.is_lost_sample() && !is_truncation(c) && !is_of_unwinding(c)
    });
    let ended = list(
        "user stacks that could not be walked to the root",
        LossClass::is_unwind_end,
    );
    let partly = list("user stacks walked in part", |c| {
        c == LossClass::UnwindFramePointer
    });
    [lost, other, ended, partly].into_iter().flatten().collect()
}

/// A warning where nothing was selected, which is not to be taken for an idle machine.
pub fn nothing_selected(about: &About) -> Option<String> {
    let selected = about.selected.as_ref()?;
    let is_empty = selected.samples == Some(0);
    is_empty.then(|| format!("nothing is selected: {}", selected.nothing.join("; ")))
}

/// `time` on the wall clock: UTC, RFC 3339, nanoseconds.
pub fn wall_time(about: &About, time: Timestamp) -> String {
    let nanoseconds = i128::from(time.0) + i128::from(about.wall_offset_ns);
    match Wall::from_nanosecond(nanoseconds) {
        Ok(wall) => format!("{wall:.9}"),
        // Beyond the years jiff knows.
        Err(_) => format!("{nanoseconds} ns since 1970"),
    }
}

/// `time` on the wall clock, to the second, for titles.
pub(super) fn wall_second(about: &About, time: Timestamp) -> String {
    let nanoseconds = i128::from(time.0) + i128::from(about.wall_offset_ns);
    match Wall::from_nanosecond(nanoseconds) {
        Ok(wall) => wall.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => wall_time(about, time),
    }
}

fn is_of_unwinding(class: LossClass) -> bool {
    class.is_unwind_end() || class == LossClass::UnwindFramePointer
}

fn is_truncation(class: LossClass) -> bool {
    matches!(class, LossClass::UserTruncated | LossClass::KernelTruncated)
}

fn events(about: &About) -> String {
    let events: Vec<String> = about
        .events
        .iter()
        .map(|e| format!("{} at {}", escaped(&e.name), e.rate))
        .collect();
    if events.is_empty() {
        "none".to_owned()
    } else {
        events.join(", ")
    }
}

/// Seconds with milliseconds.
pub(super) fn seconds(nanoseconds: u64) -> String {
    format!("{:.3} s", nanoseconds as f64 / 1e9)
}

/// Whether the capture is whole, and what ended it.
pub(super) fn completeness(about: &About) -> String {
    let mut line = match &about.ended {
        _ if about.is_damaged() => format!(
            "capture: DAMAGED, this report is partial; {} {} in damaged frames",
            counted(about.damaged_samples, "sample"),
            are(about.damaged_samples)
        ),
        Some(reason) => match about.losses.get(&LossClass::DamagedFrames) {
            Some(frames) => format!(
                "capture: repaired, without {}; recording ended by {}",
                counted(*frames, "damaged frame"),
                escaped(reason)
            ),
            None => format!("capture: complete, ended by {}", escaped(reason)),
        },
        None => {
            "capture: cut short, recording did not end in order; all samples up to the cut are here"
                .to_owned()
        }
    };
    if about.cut_bytes > 0 {
        line.push_str(&format!(
            "; {} at its end {} not a whole frame",
            counted(about.cut_bytes, "byte"),
            are(about.cut_bytes)
        ));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Event;

    pub(super) fn about() -> About {
        About {
            host: "web1".into(),
            kernel: "Linux 6.18.0 x86_64".into(),
            cpus: 2,
            tool: "bprof 0.1.0".into(),
            target: "system-wide".into(),
            events: vec![Event {
                name: "cpu-clock".into(),
                rate: "99 Hz".into(),
            }],
            wall_offset_ns: 1_700_000_000_000_000_000,
            span: Some((Timestamp(1_000_000_000), Timestamp(11_500_000_001))),
            samples: 900,
            lost: 100,
            losses: [
                (LossClass::RingFull, 100),
                (LossClass::Idle, 7),
                (LossClass::UserTruncated, 3),
            ]
            .into(),
            truncated: Some(3),
            ended: Some("the time asked for".into()),
            ..About::default()
        }
    }

    #[test]
    fn a_whole_capture() {
        assert_eq!(
            opening(&about()),
            [
                "host: web1, Linux 6.18.0 x86_64, 2 CPUs; recorded by bprof 0.1.0",
                "event: cpu-clock at 99 Hz; target: system-wide",
                "time: 2023-11-14T22:13:21.000000000Z to 2023-11-14T22:13:31.500000001Z, 10.500 s",
                "samples: 900; lost: 100 (10.0 % of those taken)",
                "lost by cause: ring full 100",
                "left out or missing: idle 7",
                "truncated stacks: in 3 samples",
                "capture: complete, ended by the time asked for",
            ]
        );
    }

    #[test]
    fn why_walks_of_stacks_ended() {
        let mut about = about();
        about.losses = [
            (LossClass::UnwindNoInfo, 4),
            (LossClass::UnwindWindow, 2),
            (LossClass::UnwindFramePointer, 9),
            (LossClass::Idle, 7),
        ]
        .into();
        assert_eq!(
            losses(&about),
            [
                "left out or missing: idle 7",
                "user stacks that could not be walked to the root: no unwind info 4, stack window 2",
                "user stacks walked in part: by frame pointers through code without unwind info 9",
            ]
        );
    }

    /// Lost samples count for what they would have counted for, so they are compared with weights.
    #[test]
    fn cut_and_damaged_captures_say_so() {
        let cut = About {
            ended: None,
            cut_bytes: 17,
            ..about()
        };
        assert_eq!(
            opening(&cut).last().unwrap(),
            "capture: cut short, recording did not end in order; all samples up to the cut are here; \
             17 bytes at its end are not a whole frame"
        );
        let damage = (0..7)
            .map(|i| format!("offset {i}: bad checksum"))
            .collect();
        let broken = About {
            damage,
            damaged_samples: 12,
            host: "a\nb".into(),
            ..about()
        };
        let lines = opening(&broken);
        assert!(
            lines.contains(
                &"capture: DAMAGED, this report is partial; 12 samples are in damaged frames"
                    .to_owned()
            )
        );
        assert!(lines.contains(&"  offset 4: bad checksum".to_owned()));
        assert_eq!(lines.last().unwrap(), "  and 2 more");
        assert!(lines.iter().all(|l| !l.contains('\n')));
    }

    #[test]
    fn absurd_times_are_printed_too() {
        let about = About {
            wall_offset_ns: i64::MAX,
            ..About::default()
        };
        assert_eq!(
            wall_time(&about, Timestamp::MAX),
            "2846-10-30T23:21:50.564327422Z"
        );
    }
}
