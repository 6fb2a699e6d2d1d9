//! The rate that is kept of the one asked for, and what is to be said of it.

use crate::record::options::{Event, Rate};

/// The kernel makes no shorter periods of cpu-clock, without a word (`perf_swevent_init_hrtimer`).
const SHORTEST_NS: u64 = 10_000;
/// Samples a second of each CPU from which on taking them may well be what the machine does most: each costs some microseconds, more where
/// stacks are deep.
const MANY: u64 = 20_000;

/// A frequency the kernel would not refuse (above `most`), a period it would keep; and a line for each thing that is not as asked for, or
/// that the machine will feel, unless what is taken is limited anyway.
pub fn kept(asked: Rate, event: Event, most: Option<u64>, is_limited: bool) -> (Rate, Vec<String>) {
    let mut told = Vec::new();
    let rate = match (asked, most) {
        (Rate::Frequency(asked), Some(most)) if asked > most => {
            told.push(format!(
                "{asked} Hz is above the kernel's limit: sampling at {most} Hz (kernel.perf_event_max_sample_rate)"
            ));
            Rate::Frequency(most)
        }
        (Rate::Period(asked), _) if event == Event::CpuClock && asked < SHORTEST_NS => {
            told.push(format!(
                "{asked} ns is below what the kernel's clock does: sampling every {SHORTEST_NS} ns"
            ));
            Rate::Period(SHORTEST_NS)
        }
        (rate, _) => rate,
    };
    let hz = match rate {
        Rate::Frequency(hz) => Some(hz),
        Rate::Period(period) if event == Event::CpuClock => 1_000_000_000u64.checked_div(period),
        Rate::Period(_) => None,
    };
    if let Some(hz) = hz.filter(|hz| *hz > MANY && !is_limited) {
        told.push(format!(
            "warning: {hz} samples a second of each CPU can take much of its time, and so much that the machine hardly answers; 999 is \
             enough for most questions, and --cpu-limit PCT bounds what is taken"
        ));
    }
    (rate, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_asked_for_is_told() {
        use Event::{CpuClock, Cycles};
        use Rate::{Frequency, Period};
        let most = Some(50_000);
        for (asked, event, rate, lines) in [
            (Frequency(999), CpuClock, Frequency(999), &[][..]),
            (Frequency(20_000), Cycles, Frequency(20_000), &[]),
            (
                Frequency(50_000),
                CpuClock,
                Frequency(50_000),
                &["warning: 50000 samples"],
            ),
            (
                Frequency(200_000),
                CpuClock,
                Frequency(50_000),
                &[
                    "200000 Hz is above the kernel's limit: sampling at 50000 Hz",
                    "warning: 50000 samples",
                ],
            ),
            (
                Period(5),
                CpuClock,
                Period(10_000),
                &[
                    "5 ns is below what the kernel's clock does",
                    "warning: 100000 samples",
                ],
            ),
            (Period(1_000_000), CpuClock, Period(1_000_000), &[]),
            (Period(5), Cycles, Period(5), &[]),
        ] {
            let (kept, told) = kept(asked, event, most, false);
            assert_eq!((kept, told.len()), (rate, lines.len()), "{told:?}");
            assert!(
                told.iter()
                    .zip(lines)
                    .all(|(told, line)| told.starts_with(line)),
                "{told:?}"
            );
        }
        let (rate, told) = kept(Frequency(60_000), CpuClock, None, true);
        assert_eq!((rate, told), (Frequency(60_000), Vec::new()));
    }
}
