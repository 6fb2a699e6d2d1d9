//! What a workload says about itself, and how near a recording must come to it.

use std::fmt::Write as _;

use super::{Folded, HZ};

/// The lines a workload printed.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// CPU seconds of each hot function, callees included; a function named twice is added up.
    pub functions: Vec<(String, f64)>,
    /// CPU seconds of the process. Of several processes: the last.
    pub cpu: f64,
    /// CPU seconds of its children, where it prints them.
    pub children: f64,
    text: String,
}

impl Truth {
    /// Reads `truth NAME SECONDS`, `cpu SECONDS`, `children SECONDS`; other lines stay available by
    /// [`Truth::word`].
    pub fn parse(text: &str) -> Truth {
        let mut truth = Truth {
            text: text.to_owned(),
            ..Truth::default()
        };
        let number = |s: &str| {
            s.parse::<f64>()
                .unwrap_or_else(|_| panic!("{s:?} is not a number in:\n{text}"))
        };
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["truth", name, seconds] => {
                    let seconds = number(seconds);
                    match truth.functions.iter_mut().find(|(n, _)| n == name) {
                        Some((_, sum)) => *sum += seconds,
                        None => truth.functions.push((name.to_string(), seconds)),
                    }
                }
                ["cpu", seconds] => truth.cpu = number(seconds),
                ["children", seconds] => truth.children = number(seconds),
                _ => {}
            }
        }
        truth
    }

    /// CPU seconds of `function`.
    pub fn of(&self, function: &str) -> f64 {
        let found = self.functions.iter().find(|(name, _)| name == function);
        found
            .unwrap_or_else(|| panic!("the workload said nothing of {function}:\n{}", self.text))
            .1
    }

    /// CPU seconds of all hot functions.
    pub fn sum(&self) -> f64 {
        self.functions.iter().map(|(_, s)| s).sum()
    }

    /// The last word of each line that begins with `start`.
    pub fn words(&self, start: &str) -> Vec<&str> {
        let lines = self.text.lines().filter(|l| l.starts_with(start));
        lines.filter_map(|l| l.rsplit(' ').next()).collect()
    }

    /// Fails unless each hot function has its share of the samples that are in any of them.
    ///
    /// Samples in `n` draws of probability `p` scatter by `sqrt(p (1 - p) / n)`; allowed are four
    /// times that and two points for what the truth itself misses (work between two looks at the
    /// clock).
    pub fn check_shares(&self, folded: &Folded) {
        assert!(
            self.functions.len() > 1,
            "shares of less than two functions say nothing:\n{}",
            self.text
        );
        let names: Vec<&str> = self
            .functions
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let n = folded.count(|stack| names.iter().any(|name| stack.has(name))) as f64;
        assert!(n > 0.0, "no sample in any of {names:?}\n{folded}");
        let mut wrong = String::new();
        for (name, seconds) in &self.functions {
            let expected = seconds / self.sum();
            let seen = folded.count(|stack| stack.has(name)) as f64 / n;
            let allowed = 4.0 * (expected * (1.0 - expected) / n).sqrt() + 0.02;
            if (seen - expected).abs() > allowed {
                writeln!(
                    wrong,
                    "{name}: {seen:.4} seen, {expected:.4} +- {allowed:.4} true ({n} samples)"
                )
                .unwrap();
            }
        }
        assert!(
            wrong.is_empty(),
            "shares differ from the truth:\n{wrong}{folded}"
        );
    }

    /// Fails unless the recording holds 90 % to 110 % of the samples that the process's CPU time
    /// should give at [`HZ`].
    pub fn check_count(&self, folded: &Folded) {
        check_count(folded, f64::from(HZ), self.cpu);
    }
}

/// Fails unless `folded` holds 90 % to 110 % of `hz * cpu` samples (and five more, for short runs).
pub fn check_count(folded: &Folded, hz: f64, cpu: f64) {
    let (seen, expected) = (folded.total() as f64, hz * cpu);
    assert!(
        (0.9 * expected..=1.1 * expected + 5.0).contains(&seen),
        "{seen} samples, but {cpu:.3} CPU seconds at {hz} Hz make {expected:.0}\n{folded}"
    );
}
