//! Functions with their shares before and after.

use super::Joined;
use crate::report::layout::share;
use crate::report::top::{Counter, Counts, Sort};
use crate::report::weights::Function;

/// A function, before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    pub function: Function,
    pub before: Counts,
    pub after: Counts,
    pub own: Shares,
    pub total: Shares,
}

impl Change {
    pub fn shares(&self, sort: Sort) -> Shares {
        match sort {
            Sort::Own => self.own,
            Sort::Total => self.total,
        }
    }
}

/// Shares of all CPU time, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shares {
    pub before: f64,
    pub after: f64,
    /// Differences up to this say nothing.
    chance: f64,
}

/// Standard errors within which a difference says nothing.
const CHANCE: f64 = 2.0;

impl Shares {
    /// Of what counts so much in so much in all, and of how many samples.
    ///
    /// What chance makes is that of two draws of one share, that of both together, as if samples were independent, with
    /// Yates's correction: half a sample on either side. Shares of few samples need it: by each's own error, four samples in
    /// one and none in the other would be no chance.
    pub fn new(before: (u64, u64), after: (u64, u64), samples: (u64, u64)) -> Shares {
        let (first, second) = (share(before.0, before.1), share(after.0, after.1));
        let (m, n) = (samples.0 as f64, samples.1 as f64);
        let chance = match samples {
            (0, _) | (_, 0) => 0.0,
            _ => {
                let both = (first * m + second * n) / (m + n);
                let each = 1.0 / m + 1.0 / n;
                CHANCE * ((both * (1.0 - both)).max(0.0) * each).sqrt() + each / 2.0
            }
        };
        Shares {
            before: first,
            after: second,
            chance,
        }
    }

    /// What it grew by; negative where it shrank.
    pub fn change(self) -> f64 {
        self.after - self.before
    }

    /// Whether sampling alone makes such a difference easily.
    pub fn may_be_chance(self) -> bool {
        self.change().abs() <= self.chance
    }
}

/// All functions of either capture, those that grew most first.
pub(super) fn changes(joined: &Joined, sort: Sort) -> Vec<Change> {
    let mut counter = Counter::new(&joined.names, &joined.stacks);
    let count = |counter: &mut Counter<'_>, rows| -> Vec<Counts> {
        counter.count(&[rows]);
        let all = 0..counter.functions.len() as u32;
        all.map(|number| counter.of(number)).collect()
    };
    let before = count(&mut counter, &joined.before.1);
    let after = count(&mut counter, &joined.after.1);
    let (first, second) = (&joined.before.0, &joined.after.0);
    let shares = |before, after| {
        Shares::new(
            (before, first.weight),
            (after, second.weight),
            (first.samples, second.samples),
        )
    };
    let pairs = before.into_iter().zip(after).enumerate();
    let changes = pairs.filter_map(|(number, (before, after))| {
        let function = counter.functions.get(number as u32)?;
        (before.total > 0 || after.total > 0).then(|| Change {
            function,
            before,
            after,
            own: shares(before.own, after.own),
            total: shares(before.total, after.total),
        })
    });
    let mut changes: Vec<Change> = changes.collect();
    let other = match sort {
        Sort::Own => Sort::Total,
        Sort::Total => Sort::Own,
    };
    let text = |change: &Change| {
        let (name, module) = change.function;
        (joined.names.text(name), joined.names.text(module))
    };
    changes.sort_by(|a, b| {
        let by = |sort| b.shares(sort).change().total_cmp(&a.shares(sort).change());
        by(sort)
            .then_with(|| by(other))
            .then_with(|| text(a).cmp(&text(b)))
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_few_samples_make_by_chance_is_told_apart() {
        let few = Shares::new((2, 10), (4, 10), (10, 10));
        assert!((few.change() - 0.2).abs() < 1e-12 && few.may_be_chance());
        let many = Shares::new((2000, 10_000), (4000, 10_000), (10_000, 10_000));
        assert!(!many.may_be_chance());
        // Nothing against a few, as two runs of one program have it.
        assert!(Shares::new((0, 470), (5, 711), (470, 711)).may_be_chance());
        assert!(Shares::new((0, 500), (4, 700), (500, 700)).may_be_chance());
        assert!(!Shares::new((0, 500), (12, 700), (500, 700)).may_be_chance());
        let none = Shares::new((0, 0), (4, 10), (0, 10));
        assert_eq!((none.before, none.after), (0.0, 0.4));
        assert!(Shares::new((0, 0), (0, 0), (0, 0)).may_be_chance());
    }
}
