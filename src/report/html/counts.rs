//! How often each stack was seen in each cell of time.

use crate::profile::StackId;

/// Counts that are kept at most: a page of some megabytes.
const MOST: usize = 1 << 20;

/// How often one stack was seen in one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub cell: u32,
    pub stack: StackId,
    pub weight: u64,
}

/// Counts of all cells.
#[derive(Debug)]
pub(super) struct Counts {
    counts: Vec<Count>,
    /// At how many equal ones are looked for.
    full: usize,
    most: usize,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::bounded(MOST)
    }
}

impl Counts {
    fn bounded(most: usize) -> Counts {
        Counts {
            counts: Vec::new(),
            full: most * 2,
            most,
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, cell: u32, stack: StackId, weight: u64) {
        match self.counts.last_mut() {
            Some(last) if (last.cell, last.stack) == (cell, stack) => {
                last.weight = last.weight.saturating_add(weight);
            }
            _ => self.counts.push(Count {
                cell,
                stack,
                weight,
            }),
        }
    }

    /// Whether it is time to look for equal ones.
    pub fn is_full(&self) -> bool {
        self.counts.len() >= self.full
    }

    /// Whether there are more than are kept.
    pub fn is_large(&self) -> bool {
        self.counts.len() > self.most
    }

    /// One count for each cell and stack, in their order.
    pub fn compact(&mut self) {
        self.counts
            .sort_unstable_by_key(|count| (count.cell, count.stack));
        self.counts.dedup_by(|count, kept| {
            let same = (count.cell, count.stack) == (kept.cell, kept.stack);
            if same {
                kept.weight = kept.weight.saturating_add(count.weight);
            }
            same
        });
    }

    /// Makes one cell of each two.
    pub fn halve_cells(&mut self) {
        for count in &mut self.counts {
            count.cell /= 2;
        }
        self.compact();
    }

    /// The counts; in order after [`Counts::compact`].
    pub fn all(&self) -> &[Count] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_one_and_nothing_is_lost() {
        let mut counts = Counts::bounded(4);
        for i in 0..8u32 {
            counts.add(i / 2, i % 2 + 1, 3);
            counts.add(i / 2, i % 2 + 1, 1);
        }
        assert!(counts.is_full());
        counts.compact();
        assert_eq!(counts.all().len(), 8);
        assert!(counts.is_large());
        counts.halve_cells();
        assert!(!counts.is_large());
        let all: Vec<_> = counts
            .all()
            .iter()
            .map(|c| (c.cell, c.stack, c.weight))
            .collect();
        assert_eq!(all, [(0, 1, 8), (0, 2, 8), (1, 1, 8), (1, 2, 8)]);
    }
}
