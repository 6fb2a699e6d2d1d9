//! What was lost, left out or cut, and why.

use crate::counted::counted;
use crate::event::LossClass;
use crate::profile::About;

use super::is_imported;
use super::samples::in_samples;

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
        !c.is_lost_sample()
            && !is_truncation(c)
            && !is_of_unwinding(c)
            && c != LossClass::RateChanged
    });
    let ended = list(
        "user stacks that could not be walked to the root",
        LossClass::is_unwind_end,
    );
    let partly = list("user stacks walked in part", |c| {
        c == LossClass::UnwindFramePointer
    });
    [lost, other, rate_changes(about, when), ended, partly]
        .into_iter()
        .flatten()
        .collect()
}

/// How often the rate was changed to keep the CPU limit; nothing is missing for that.
fn rate_changes(about: &About, when: &str) -> Option<String> {
    let changes = about.losses.get(&LossClass::RateChanged);
    let changes = changes.copied().filter(|changes| *changes > 0)?;
    let mut line = format!(
        "CPU limit: to keep it the rate was changed {}{when}",
        counted(changes, "time")
    );
    if about.weight > about.samples && about.samples > 0 {
        line.push_str(&format!(
            "; samples count for more where it was lower, for {:.2} on average",
            about.weight as f64 / about.samples as f64
        ));
    }
    Some(line)
}

/// How many stacks are cut, as soon as they are counted.
pub(super) fn truncated(about: &About) -> Option<String> {
    let count = about.truncated?;
    let mut line = format!("truncated stacks: {}", in_samples(count));
    let causes = match count {
        0 => Vec::new(),
        _ => cut_by(about),
    };
    match &causes[..] {
        [] => {}
        [(_, one)] => line.push_str(&format!(": {one}")),
        _ => {
            let of_causes = causes.iter().map(|(n, _)| *n);
            let causes = causes.iter();
            let causes: Vec<_> = causes.map(|(n, cause)| format!("{n} {cause}")).collect();
            line.push_str(&format!(": {}", causes.join("; ")));
            let all = of_causes.fold(0u64, u64::saturating_add);
            if all > count {
                line.push_str(&format!("; {} by several of these", all - count));
            }
        }
    }
    Some(line)
}

/// Why stacks are cut, as far as the capture tells, each with how many, and what keeps more of them.
fn cut_by(about: &About) -> Vec<(u64, String)> {
    let of = |class| about.losses.get(&class).copied().unwrap_or(0);
    let deep = of(LossClass::UserTruncated).saturating_add(of(LossClass::KernelTruncated));
    let deeper = match (is_imported(about), about.stack_limit) {
        (true, _) => "as perf recorded them".to_owned(),
        (false, 0) => "deeper than kernel.perf_event_max_stack, which can be raised".to_owned(),
        (false, limit) => format!(
            "deeper than {limit} frames (kernel.perf_event_max_stack can be raised before recording)"
        ),
    };
    let causes = [
        (deep, deeper),
        (
            of(LossClass::UnwindWindow),
            "beyond what could be copied of the stack (stack window)".to_owned(),
        ),
        (
            of(LossClass::StackShortened),
            "cut because the ring was nearly full (a larger --ring-size or a lower -F keeps them)"
                .to_owned(),
        ),
    ];
    causes.into_iter().filter(|(n, _)| *n > 0).collect()
}

/// Whether it tells how the walk of a user stack went.
pub(super) fn is_of_unwinding(class: LossClass) -> bool {
    class.is_unwind_end() || class == LossClass::UnwindFramePointer
}

fn is_truncation(class: LossClass) -> bool {
    matches!(class, LossClass::UserTruncated | LossClass::KernelTruncated)
}

#[cfg(test)]
mod tests {
    use super::super::tests::about;
    use super::*;

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

    /// Each cause that the capture tells, and what to raise.
    #[test]
    fn why_stacks_are_cut() {
        let line = |losses: &[(LossClass, u64)], tool: &str, limit| {
            let about = About {
                losses: losses.iter().copied().collect(),
                truncated: Some(9),
                tool: tool.to_owned(),
                stack_limit: limit,
                ..about()
            };
            truncated(&about).unwrap()
        };
        let cut = "truncated stacks: in 9 samples";
        let deep = (LossClass::UserTruncated, 5);
        assert_eq!(line(&[], "x", 127), cut);
        assert_eq!(
            line(&[deep], "x", 0),
            format!("{cut}: deeper than kernel.perf_event_max_stack, which can be raised")
        );
        assert_eq!(
            line(&[deep], "perf, imported by profiler 0", 127),
            format!("{cut}: as perf recorded them")
        );
        assert_eq!(
            line(
                &[
                    deep,
                    (LossClass::UnwindWindow, 3),
                    (LossClass::StackShortened, 1)
                ],
                "x",
                64
            ),
            format!(
                "{cut}: 5 deeper than 64 frames (kernel.perf_event_max_stack can be raised before recording); \
                 3 beyond what could be copied of the stack (stack window); \
                 1 cut because the ring was nearly full (a larger --ring-size or a lower -F keeps them)"
            )
        );
        let both = [(LossClass::UnwindWindow, 8), (LossClass::StackShortened, 3)];
        let line = line(&both, "x", 64);
        assert!(line.ends_with("; 2 by several of these"), "{line}");
        let none = About {
            truncated: Some(0),
            ..about()
        };
        assert_eq!(truncated(&none).unwrap(), "truncated stacks: in 0 samples");
    }

    /// A lower rate leaves nothing out: samples count for more.
    #[test]
    fn changes_of_the_rate_are_told_by_themselves() {
        let about = About {
            losses: [(LossClass::RateChanged, 2), (LossClass::Idle, 7)].into(),
            samples: 100,
            weight: 250,
            ..about()
        };
        assert_eq!(
            losses(&about),
            [
                "left out or missing: idle 7",
                "CPU limit: to keep it the rate was changed 2 times; samples count for more where it was lower, for 2.50 on average",
            ]
        );
    }
}
