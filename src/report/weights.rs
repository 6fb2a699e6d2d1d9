//! Functions of frames, and weights of stacks: what counting views begin with.

use hashbrown::HashMap;

use crate::profile::{FrameId, FrameKind, NameId, Names, Row, StackId, Stacks};

/// A function: name and module.
pub type Function = (NameId, NameId);

/// The functions of all frames. Frames that print alike (inlined or not, at whatever line) are one function.
#[derive(Debug)]
pub(super) struct Functions {
    list: Vec<Function>,
    numbers: Vec<u32>,
    /// Of a frame that stands for others: callers that were cut off, what was left out.
    marker: Vec<bool>,
}

impl Functions {
    pub fn new(names: &Names) -> Functions {
        let mut index: HashMap<Function, u32> = HashMap::new();
        let (mut list, mut marker) = (Vec::new(), Vec::new());
        let numbers = names.frames().iter().map(|frame| {
            let function = (frame.name, frame.module);
            let next = list.len() as u32;
            let number = *index.entry(function).or_insert(next);
            if number == next {
                list.push(function);
                marker.push(!matches!(frame.kind, FrameKind::User | FrameKind::Kernel));
            }
            number
        });
        let numbers = numbers.collect();
        Functions {
            list,
            numbers,
            marker,
        }
    }

    /// How many there are, marks for missing frames among them.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The number of a frame's function, or of the mark it is.
    pub fn number(&self, frame: FrameId) -> Option<u32> {
        self.numbers.get(frame as usize).copied()
    }

    /// Whether `number` is no function, but a mark for missing frames.
    pub fn is_mark(&self, number: u32) -> bool {
        self.marker.get(number as usize).copied().unwrap_or(true)
    }

    /// The function of a frame; none where it is a mark for missing frames.
    pub fn function(&self, frame: FrameId) -> Option<u32> {
        self.number(frame).filter(|number| !self.is_mark(*number))
    }

    /// Name and module.
    pub fn get(&self, number: u32) -> Option<Function> {
        self.list.get(number as usize).copied()
    }

    /// Name and module as they are.
    pub fn text<'n>(&self, names: &'n Names, number: u32) -> (&'n str, &'n str) {
        let (name, module) = self.get(number).unwrap_or((Names::EMPTY, Names::EMPTY));
        (names.text(name), names.text(module))
    }
}

/// Weights of stacks in some rows, and of their callers.
#[derive(Debug)]
pub(super) struct Weights {
    own: Vec<u64>,
    total: Vec<u64>,
    /// Stacks with a total, the empty one left out: callers before their callees.
    touched: Vec<StackId>,
    sum: u64,
}

impl Weights {
    /// For all stacks; nothing is counted yet.
    pub fn new(stacks: &Stacks) -> Weights {
        Weights {
            own: vec![0; stacks.len() + 1],
            total: vec![0; stacks.len() + 1],
            touched: Vec::new(),
            sum: 0,
        }
    }

    /// Counts `rows`, and what was counted before no more. Takes time for the stacks of these rows only.
    pub fn count(&mut self, stacks: &Stacks, rows: &[&[Row]]) {
        for stack in self.touched.drain(..).chain([0]) {
            for list in [&mut self.own, &mut self.total] {
                if let Some(weight) = list.get_mut(stack as usize) {
                    *weight = 0;
                }
            }
        }
        self.sum = 0;
        let rows = rows.iter().copied().flatten();
        for row in rows.filter(|row| row.weight > 0) {
            let Some(own) = self.own.get_mut(row.stack as usize) else {
                continue;
            };
            *own = own.saturating_add(row.weight);
            self.sum = self.sum.saturating_add(row.weight);
            let mut at = row.stack;
            // Up to what another stack has come by. A total that is not 0 says so until all are known.
            while let Some((caller, _)) = stacks.leaf(at)
                && let Some(total) = self.total.get_mut(at as usize)
                && *total == 0
            {
                *total = 1;
                self.touched.push(at);
                at = caller;
            }
        }
        if self.touched.len() < self.total.len() / 8 {
            self.touched.sort_unstable();
        } else {
            let totals = self.total.iter().enumerate();
            let touched = totals.filter(|(_, total)| **total > 0);
            self.touched.clear();
            self.touched
                .extend(touched.map(|(stack, _)| stack as StackId));
        }
        for stack in &self.touched {
            if let Some(total) = self.total.get_mut(*stack as usize) {
                *total = self.own.get(*stack as usize).copied().unwrap_or(0);
            }
        }
        for stack in self.touched.iter().rev() {
            let weight = self.total.get(*stack as usize).copied().unwrap_or(0);
            // The empty stack keeps what is its own.
            if let Some((caller, _)) = stacks.leaf(*stack).filter(|(caller, _)| *caller > 0)
                && let Some(sum) = self.total.get_mut(caller as usize)
            {
                *sum = sum.saturating_add(weight);
            }
        }
    }

    /// Weight of all that was counted.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Weight of the samples with this stack.
    pub fn own(&self, stack: StackId) -> u64 {
        self.own.get(stack as usize).copied().unwrap_or(0)
    }

    /// Weight of the samples with this stack or one that goes on from it; of the empty stack, all.
    pub fn total(&self, stack: StackId) -> u64 {
        match stack {
            0 => self.sum,
            stack => self.total.get(stack as usize).copied().unwrap_or(0),
        }
    }

    /// Stacks with a total, callers first.
    pub fn touched(&self) -> &[StackId] {
        &self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    #[test]
    fn only_the_rows_given_count() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "f"], 3);
        b.row(p, &["main", "g"], 4);
        b.row(p, &[], 5);
        let profile = &b.profile;
        let stack = |row: usize| profile.rows[row].stack;
        let (main, _) = profile.stacks.leaf(stack(0)).unwrap();
        let mut weights = Weights::new(&profile.stacks);
        weights.count(&profile.stacks, &[&profile.rows]);
        assert_eq!(
            (weights.sum(), weights.total(0), weights.own(0)),
            (12, 12, 5)
        );
        assert_eq!((weights.total(main), weights.own(main)), (7, 0));
        weights.count(&profile.stacks, &[&profile.rows[..1]]);
        assert_eq!((weights.sum(), weights.own(0)), (3, 0));
        assert_eq!((weights.total(main), weights.total(stack(1))), (3, 0));
        assert_eq!(weights.touched(), [main, stack(0)]);
    }
}
