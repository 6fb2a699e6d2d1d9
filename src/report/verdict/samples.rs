//! How many samples there are, what they count for, and why there are none.

use crate::counted::counted;
use crate::event::LossClass;
use crate::profile::About;

use super::{events, seconds};

/// In so many samples.
pub(super) fn in_samples(count: u64) -> String {
    format!("in {}", counted(count, "sample"))
}

/// What samples count for, where that is another number.
pub(super) fn counting_for(samples: u64, weight: u64) -> String {
    match weight > samples {
        true => format!(", which count as {weight}"),
        false => String::new(),
    }
}

/// The samples that a picture is of, and what they count for.
pub(in crate::report) fn shown(about: &About) -> String {
    let samples = about.samples_shown();
    let weight = counting_for(samples, about.weight_shown());
    format!("{}{weight}", counted(samples, "sample"))
}

/// Why there are no samples at all, as far as the capture tells, when all of it is read.
pub(super) fn no_samples(about: &About) -> Option<String> {
    if about.samples > 0 || about.truncated.is_none() {
        return None;
    }
    let left_out = |class| about.losses.get(&class).copied().filter(|count| *count > 0);
    let mut why = Vec::new();
    if about.is_damaged() {
        why.push("what there was may be in what is damaged".to_owned());
    }
    if about.lost > 0 {
        why.push("all that were taken are lost".to_owned());
    }
    if let Some(idle) = left_out(LossClass::Idle) {
        why.push(format!(
            "CPUs were idle ({} of that left out; record --idle keeps them)",
            counted(idle, "sample")
        ));
    }
    if left_out(LossClass::Launcher).is_some() {
        why.push("the command used CPU time only before its program began".to_owned());
    }
    if why.is_empty() {
        let time = about.duration.map(seconds);
        let time = time.map_or_else(String::new, |time| format!(" in {time}"));
        why.push(match &about.ended {
            None => "the recording was cut short before any was written".to_owned(),
            Some(_) => format!(
                "what was to be sampled used less CPU time{time} than there is from one sample to the next ({}): it may have waited, or \
                 ended soon; a higher -F takes more samples",
                events(about)
            ),
        });
    }
    Some(format!("no samples: {}", why.join("; ")))
}

/// Samples, what they count for, and those lost.
pub(in crate::report) fn samples(about: &About) -> String {
    let lowered = about.losses.contains_key(&LossClass::RateChanged);
    let mut line = format!("samples: {}", about.samples);
    line.push_str(&counting_for(about.samples, about.weight));
    if lowered && about.weight > about.samples {
        line.push_str(" because the rate was lowered");
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

#[cfg(test)]
mod tests {
    use super::super::opening;
    use super::super::tests::about;
    use super::*;

    #[test]
    fn samples_of_a_lowered_rate_say_what_they_count_as() {
        let mut lowered = About {
            weight: 1900,
            ..about()
        };
        lowered.losses.insert(LossClass::RateChanged, 2);
        let lines = opening(&lowered);
        assert_eq!(
            lines[3..7],
            [
                "samples: 900, which count as 1900 because the rate was lowered; lost: 100 (5.0 % of those taken)",
                "lost by cause: ring full 100",
                "left out or missing: idle 7",
                "CPU limit: to keep it the rate was changed 2 times; samples count for more where it was lower, for 2.11 on average",
            ]
        );
        lowered.losses.remove(&LossClass::RateChanged);
        assert_eq!(
            opening(&lowered)[3],
            "samples: 900, which count as 1900; lost: 100 (10.0 % of those taken)"
        );
    }

    #[test]
    fn where_there_are_none_the_reason_is_told_as_far_as_it_is_known() {
        let none = |about: About| {
            no_samples(&About {
                samples: 0,
                ..about
            })
        };
        let told = |about: About| none(about).unwrap();
        let idle = About {
            losses: [(LossClass::Idle, 1)].into(),
            lost: 0,
            ..about()
        };
        assert_eq!(
            told(idle.clone()),
            "no samples: CPUs were idle (1 sample of that left out; record --idle keeps them)"
        );
        let lost = About {
            losses: [(LossClass::Launcher, 2)].into(),
            ..about()
        };
        assert_eq!(
            told(lost),
            "no samples: all that were taken are lost; the command used CPU time only before its program began"
        );
        let short = About {
            losses: Default::default(),
            lost: 0,
            duration: Some(3_000_000),
            ..about()
        };
        assert_eq!(
            told(short.clone()),
            "no samples: what was to be sampled used less CPU time in 0.003 s than there is from one sample to the next \
             (cpu-clock at 99 Hz): it may have waited, or ended soon; a higher -F takes more samples"
        );
        let cut = About {
            ended: None,
            ..short.clone()
        };
        assert_eq!(
            told(cut),
            "no samples: the recording was cut short before any was written"
        );
        let damaged = About {
            damage: vec!["byte 7".into()],
            ..short
        };
        assert_eq!(
            told(damaged),
            "no samples: what there was may be in what is damaged"
        );
        // Before all is read, nothing is known of it.
        let early = About {
            truncated: None,
            ..idle
        };
        assert_eq!((none(early), no_samples(&about())), (None, None));
    }
}
