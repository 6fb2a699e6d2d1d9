//! How complete a report is: the lines that open each of them.

use jiff::Timestamp as Wall;

use crate::event::{LossClass, Timestamp};
use crate::profile::{About, Naming, Profile, Reason, counted_event};

use super::text::escaped;

/// Files without names that are listed.
const FILES: usize = 5;
/// Damaged places that are listed.
const DAMAGES: usize = 5;

/// Everything, for views that come after all samples were read.
pub fn whole(profile: &Profile) -> Vec<String> {
    let mut lines = opening(&profile.about);
    lines.extend(naming(&profile.naming));
    lines.extend(several_events(&profile.about));
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
            "host: {}, {}, {} CPUs; recorded by {}",
            escaped(&about.host),
            escaped(&about.kernel),
            about.cpus,
            escaped(&about.tool)
        ),
        format!(
            "event: {}; target: {}",
            events(about),
            escaped(&about.target)
        ),
    ];
    if let Some((first, last)) = about.span {
        lines.push(format!(
            "time: {} to {}, {}",
            wall_time(about, first),
            wall_time(about, last),
            seconds(last.since(first))
        ));
    }
    lines.push(samples(about));
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

/// What of the capture was asked for, and how stacks were asked for.
pub fn selection(about: &About) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(selected) = &about.selected {
        let what = selected.what.join(", ");
        let mut line = format!("selected: {}", escaped(&what));
        if let Some(samples) = selected.samples {
            line.push_str(&format!(": {samples} of {} samples", about.samples));
            if selected.weight > samples {
                line.push_str(&format!(", which count as {}", selected.weight));
            }
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

/// How many stacks were cut, as far as it is known of what was asked for.
fn truncated(about: &About) -> Option<String> {
    let count = match &about.selected {
        None => about.truncated,
        Some(selected) => {
            selected.samples?;
            selected.truncated
        }
    };
    Some(format!("truncated stacks: {}", in_samples(count)))
}

/// What only the end knows of a part that was asked for.
pub fn selected(about: &About) -> Vec<String> {
    match about.selected {
        None => Vec::new(),
        Some(_) => selection(about)
            .into_iter()
            .chain(truncated(about))
            .collect(),
    }
}

/// What was lost or left out, by cause.
pub fn losses(about: &About) -> Vec<String> {
    let dated = about.selected.as_ref().is_some_and(|s| s.lost.is_some());
    let when = if dated {
        " in the frames of that time"
    } else {
        ""
    };
    let list = |title: &str, pick: fn(LossClass) -> bool| {
        let causes: Vec<String> = about
            .losses
            .iter()
            .filter(|(class, count)| **count > 0 && pick(**class))
            .map(|(class, count)| format!("{} {count}", class.label()))
            .collect();
        (!causes.is_empty()).then(|| format!("{title}{when}: {}", causes.join(", ")))
    };
    let lost = list("lost by cause", LossClass::is_lost_sample);
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

/// How frames were named.
pub fn naming(naming: &Naming) -> Vec<String> {
    let share = |what: &str, named: u64, total: u64| {
        if total == 0 {
            return format!("{what} none sampled");
        }
        let percent = named as f64 * 100.0 / total as f64;
        format!("{what} {percent:.1} % ({named} of {total})")
    };
    let mut line = format!(
        "frames named: {}, {}",
        share("user", naming.user_named, naming.user_total),
        share("kernel", naming.kernel_named, naming.kernel_total)
    );
    if naming.unverified > 0 {
        line.push_str(&format!("; {} unverified (no build ID)", naming.unverified));
    }
    let mut lines = vec![line];
    if naming.ended_early > 0 {
        lines.push(format!(
            "stacks that ended early: {} (usually of code built without frame pointers: record it with --unwind auto)",
            in_samples(naming.ended_early)
        ));
    }
    if naming.before_exec > 0 {
        lines.push(format!(
            "user stacks left out: {} inside execve (of the program before)",
            in_samples(naming.before_exec)
        ));
    }
    if !naming.unnamed.is_empty() {
        let reasons: Vec<String> = naming
            .unnamed
            .iter()
            .map(|(reason, count)| format!("{} {count}", reason.label()))
            .collect();
        lines.push(format!("frames without a name: {}", reasons.join(", ")));
    }
    for file in naming.files.iter().take(FILES) {
        let id = file
            .build_id
            .as_ref()
            .map_or("no build ID".to_owned(), |id| format!("build ID {id}"));
        let detail = file.detail.as_ref();
        lines.push(format!(
            "  {} ({id}): {}, {} frames{}",
            escaped(&file.path),
            file.reason.label(),
            file.frames,
            detail.map_or_else(String::new, |detail| format!("; {}", escaped(detail)))
        ));
    }
    if naming.files.len() > FILES {
        lines.push(format!("  and {} more files", naming.files.len() - FILES));
    }
    lines
}

/// A warning where nothing was selected, which is not to be taken for an idle machine.
pub fn nothing_selected(about: &About) -> Option<String> {
    let selected = about.selected.as_ref()?;
    let is_empty = selected.samples == Some(0);
    is_empty.then(|| format!("nothing is selected: {}", selected.nothing.join("; ")))
}

/// A warning when most user frames have no name.
pub fn warning(naming: &Naming) -> Option<String> {
    let percent = naming.user_percent()?;
    (percent < 50.0).then(|| {
        // Files help only where it is files that lack.
        let unnamed = naming.user_total.saturating_sub(naming.user_named);
        let of_files: u64 = naming.files.iter().map(|file| file.frames).sum();
        let of_user = naming
            .unnamed
            .iter()
            .filter(|(reason, _)| **reason != Reason::NoKernelSymbol);
        let most = of_user.max_by_key(|(_, count)| **count);
        let advice = match (naming.files.first(), most) {
            (Some(file), _) if of_files >= unnamed.div_ceil(2) => {
                let path = escaped(&file.path);
                match file.reason {
                    Reason::NoSymbol => format!(
                        "; most are missing in {path}, which has no symbols for them: install its debug symbols or \
                         build it with symbols"
                    ),
                    reason => format!(
                        "; {path} is needed most ({}): bring the recorded file and use --symfs DIR, or run \
                         profiler pack on the machine that has it; --missing lists all",
                        reason.label()
                    ),
                }
            }
            (_, Some((reason, _))) => format!("; most of the others: {}", reason.label()),
            (_, None) => String::new(),
        };
        format!("warning: only {percent:.1} % of the user frames have names{advice}")
    })
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

fn in_samples(count: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("in {count} sample{plural}")
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

pub(super) fn seconds(nanoseconds: u64) -> String {
    format!("{:.3} s", nanoseconds as f64 / 1e9)
}

fn samples(about: &About) -> String {
    let lowered = about.losses.contains_key(&LossClass::RateChanged);
    let mut line = format!("samples: {}", about.samples);
    if lowered && about.weight > about.samples {
        line.push_str(&format!(
            ", which count as {} because the rate was lowered",
            about.weight
        ));
    }
    line.push_str(&format!("; lost: {}", about.lost));
    if about.lost > 0 {
        // Both as if sampled at the rate asked for.
        let kept = if lowered { about.weight } else { about.samples };
        let taken = kept.max(about.samples) as f64 + about.lost as f64;
        line.push_str(&format!(
            " ({:.1} % of those taken)",
            about.lost as f64 * 100.0 / taken
        ));
    }
    line
}

pub(super) fn completeness(about: &About) -> String {
    let mut line = match &about.ended {
        _ if about.is_damaged() => format!(
            "capture: DAMAGED, this report is partial; {} samples are in damaged frames",
            about.damaged_samples
        ),
        Some(reason) => match about.losses.get(&LossClass::DamagedFrames) {
            Some(frames) => format!(
                "capture: repaired, without {frames} damaged frames; recording ended by {}",
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
            "; {} bytes at its end are not a whole frame",
            about.cut_bytes
        ));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BuildId;
    use crate::profile::{Event, FileProblem};

    fn about() -> About {
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
            truncated: 3,
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
                "user stacks walked in part: by frame pointers through generated code 9",
            ]
        );
    }

    /// Lost samples count for what they would have counted for, so they are compared with weights.
    #[test]
    fn samples_of_a_lowered_rate_say_what_they_count_as() {
        let mut lowered = About {
            weight: 1900,
            ..about()
        };
        lowered.losses.insert(LossClass::RateChanged, 2);
        let lines = opening(&lowered);
        assert_eq!(
            lines[3..6],
            [
                "samples: 900, which count as 1900 because the rate was lowered; lost: 100 (5.0 % of those taken)",
                "lost by cause: ring full 100",
                "left out or missing: idle 7, rate changed to keep the CPU limit 2",
            ]
        );
        lowered.losses.remove(&LossClass::RateChanged);
        assert_eq!(
            opening(&lowered)[3],
            "samples: 900; lost: 100 (10.0 % of those taken)"
        );
    }

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
    fn names_are_counted_and_missing_files_are_named() {
        let naming_ = Naming {
            user_named: 40,
            user_total: 100,
            kernel_named: 5,
            kernel_total: 5,
            unverified: 4,
            unnamed: [(Reason::FileMissing, 50), (Reason::NoSymbol, 10)].into(),
            files: vec![FileProblem {
                path: "/usr/lib/libx.so".into(),
                build_id: BuildId::new(&[0xab, 0xcd]),
                reason: Reason::FileMissing,
                frames: 50,
                detail: None,
            }],
            ended_early: 3,
            before_exec: 2,
        };
        assert_eq!(
            naming(&naming_),
            [
                "frames named: user 40.0 % (40 of 100), kernel 100.0 % (5 of 5); 4 unverified (no build ID)",
                "stacks that ended early: in 3 samples (usually of code built without frame pointers: record it with --unwind auto)",
                "user stacks left out: in 2 samples inside execve (of the program before)",
                "frames without a name: file missing 50, no symbol 10",
                "  /usr/lib/libx.so (build ID abcd): file missing, 50 frames",
            ]
        );
        assert_eq!(
            warning(&naming_).unwrap(),
            "warning: only 40.0 % of the user frames have names; /usr/lib/libx.so is needed most \
             (file missing): bring the recorded file and use --symfs DIR, or run profiler pack on the machine that has it; \
             --missing lists all"
        );
        let mut elsewhere = naming_.clone();
        elsewhere.user_named = 10;
        elsewhere
            .unnamed
            .extend([(Reason::Anonymous, 52), (Reason::NoKernelSymbol, 70)]);
        elsewhere.files[0].frames = 10;
        assert_eq!(
            warning(&elsewhere).unwrap(),
            "warning: only 10.0 % of the user frames have names; most of the others: anonymous memory"
        );
        assert_eq!(
            warning(&Naming {
                user_named: 50,
                ..naming_
            }),
            None
        );
        assert_eq!(warning(&Naming::default()), None);
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
