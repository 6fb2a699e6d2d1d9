//! Self and total weights of functions.

use crate::profile::{Names, Profile, Row, SourceLine, StackId, Stacks};
use crate::report::weights::{Function, Functions, Weights};

/// What one function has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Weight of the samples taken in the function itself.
    pub own: u64,
    /// Weight of the samples with the function anywhere in the stack, each sample once.
    pub total: u64,
}

/// Which functions come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Those with most samples of their own, then with most in all.
    #[default]
    #[value(name = "self")]
    Own,
    /// Those with most samples in all, then of their own.
    Total,
}

impl Sort {
    /// What is compared; the larger one comes first.
    pub(crate) fn key(self, counts: &Counts) -> (u64, u64) {
        match self {
            Sort::Own => (counts.own, counts.total),
            Sort::Total => (counts.total, counts.own),
        }
    }
}

/// A function with its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Name and module.
    pub function: Function,
    /// Its weights.
    pub counts: Counts,
    /// The source line with most weight of its own, where lines were asked for and are known.
    pub line: Option<SourceLine>,
}

/// Counts of all functions, most own weight first, then most total, then by name.
pub fn functions(profile: &Profile) -> Vec<(Function, Counts)> {
    let mut counter = Counter::new(&profile.names, &profile.stacks);
    let entries = counter.entries(&[&profile.rows], Sort::Own).list;
    let pairs = entries.into_iter();
    pairs.map(|entry| (entry.function, entry.counts)).collect()
}

/// Functions of some rows, in order.
#[derive(Debug)]
pub(super) struct Entries {
    pub list: Vec<Entry>,
    /// How many there are, those that are left out among them.
    pub functions: usize,
    /// Weight of all samples.
    pub sum: u64,
    /// Weight of samples of no function.
    pub of_none: u64,
}

impl Entries {
    /// Without functions whose total is below `least`.
    pub fn at_least(mut self, least: u64) -> Entries {
        self.list.retain(|entry| entry.counts.total >= least);
        self
    }

    /// The first of them, as many as are asked for.
    pub fn limited(&self, limit: Option<usize>) -> &[Entry] {
        let count = limit.unwrap_or(usize::MAX).min(self.list.len());
        self.list.get(..count).unwrap_or_default()
    }

    /// Weight of the samples taken in functions that are not among `shown`.
    pub fn left_out(&self, shown: &[Entry]) -> u64 {
        let own = shown.iter().map(|entry| entry.counts.own);
        let shown = own.fold(self.of_none, u64::saturating_add);
        self.sum.saturating_sub(shown)
    }
}

/// Counts rows of one profile, all or some at a time.
pub(crate) struct Counter<'a> {
    names: &'a Names,
    stacks: &'a Stacks,
    pub functions: Functions,
    weights: Weights,
    /// By function: what was counted last.
    counts: Vec<Counts>,
    /// Functions with counts.
    counted: Vec<u32>,
    /// By function: the heaviest line, and its weight.
    lines: Vec<Option<(u64, SourceLine)>>,
    /// By frame: own weight.
    of_frames: Vec<u64>,
    /// By stack: its place among those that are walked.
    place: Vec<u32>,
    /// By function: it is among the callers.
    on_path: Vec<bool>,
}

impl<'a> Counter<'a> {
    pub fn new(names: &'a Names, stacks: &'a Stacks) -> Counter<'a> {
        let functions = Functions::new(names);
        Counter {
            names,
            stacks,
            weights: Weights::new(stacks),
            counts: vec![Counts::default(); functions.len()],
            counted: Vec::new(),
            lines: vec![None; functions.len()],
            of_frames: vec![0; names.frames().len()],
            place: vec![0; stacks.len() + 1],
            on_path: vec![false; functions.len()],
            functions,
        }
    }

    /// Counts `rows`. What each function has is in [`Counter::of`] then; gives the weight of all.
    pub fn count(&mut self, rows: &[&[Row]]) -> u64 {
        for function in self.counted.drain(..) {
            if let Some(counts) = self.counts.get_mut(function as usize) {
                *counts = Counts::default();
            }
            if let Some(line) = self.lines.get_mut(function as usize) {
                *line = None;
            }
        }
        self.weights.count(self.stacks, rows);
        self.count_own();
        self.count_total();
        self.weights.sum()
    }

    /// What a function has of the rows counted last.
    pub fn of(&self, function: u32) -> Counts {
        let counts = self.counts.get(function as usize);
        counts.copied().unwrap_or_default()
    }

    /// Counts `rows` and lists their functions.
    pub(super) fn entries(&mut self, rows: &[&[Row]], sort: Sort) -> Entries {
        let sum = self.count(rows);
        let entries = self.counted.iter().filter_map(|number| {
            Some(Entry {
                function: self.functions.get(*number)?,
                counts: self.of(*number),
                line: self.lines.get(*number as usize)?.map(|(_, line)| line),
            })
        });
        let mut list: Vec<Entry> = entries.collect();
        let text = |f: &Function| (self.names.text(f.0), self.names.text(f.1));
        list.sort_by(|a, b| {
            let heavier = sort.key(&b.counts).cmp(&sort.key(&a.counts));
            heavier.then_with(|| text(&a.function).cmp(&text(&b.function)))
        });
        let of_functions = list
            .iter()
            .fold(0u64, |sum, entry| sum.saturating_add(entry.counts.own));
        Entries {
            functions: list.len(),
            list,
            sum,
            of_none: sum.saturating_sub(of_functions),
        }
    }

    fn count_own(&mut self) {
        let mut frames = Vec::new();
        for stack in self.weights.touched() {
            let weight = self.weights.own(*stack);
            if weight == 0 {
                continue;
            }
            // What stands for frames that were left out is not its caller's own.
            let leaf = self.stacks.leaf(*stack).map(|(_, frame)| frame);
            let is_function = |frame: &u32| self.functions.function(*frame).is_some();
            let Some(frame) = leaf.filter(is_function) else {
                continue;
            };
            if let Some(own) = self.of_frames.get_mut(frame as usize) {
                if *own == 0 {
                    frames.push(frame);
                }
                *own = own.saturating_add(weight);
            }
        }
        // In the order of frames: of equal lines, always the same one.
        frames.sort_unstable();
        for frame in frames {
            let Some(own) = self.of_frames.get_mut(frame as usize).map(std::mem::take) else {
                continue;
            };
            let Some(number) = self.functions.function(frame) else {
                continue;
            };
            if let Some(counts) = self.counts.get_mut(number as usize) {
                counts.own = counts.own.saturating_add(own);
            }
            if let Some(line) = self
                .names
                .frames()
                .get(frame as usize)
                .and_then(|f| f.source)
                && let Some(best) = self.lines.get_mut(number as usize)
                && best.is_none_or(|(weight, _)| weight < own)
            {
                *best = Some((own, line));
            }
        }
    }

    /// Down the tree, where a function counts unless it is among the callers already: recursion counts once.
    fn count_total(&mut self) {
        let touched = self.weights.touched();
        for (i, stack) in touched.iter().enumerate() {
            if let Some(place) = self.place.get_mut(*stack as usize) {
                *place = i as u32 + 1;
            }
        }
        // Of the stacks touched: callees as lists of which each begins with the last one.
        let mut first = vec![0u32; touched.len() + 1];
        let mut next = vec![0u32; touched.len() + 1];
        for (i, stack) in touched.iter().enumerate() {
            let caller = self.stacks.leaf(*stack).map_or(0, |(caller, _)| caller);
            let caller = match caller {
                0 => 0,
                caller => self.place.get(caller as usize).copied().unwrap_or(0),
            };
            if let (Some(first), Some(next)) = (first.get_mut(caller as usize), next.get_mut(i + 1))
            {
                *next = *first;
                *first = i as u32 + 1;
            }
        }
        let mut todo: Vec<Step> = Vec::new();
        let enter = |todo: &mut Vec<Step>, place: u32| {
            let mut at = first.get(place as usize).copied().unwrap_or(0);
            while at != 0 {
                todo.push(Step::Enter(at));
                at = next.get(at as usize).copied().unwrap_or(0);
            }
        };
        enter(&mut todo, 0);
        while let Some(step) = todo.pop() {
            let place = match step {
                Step::Enter(place) => place,
                Step::Leave(function) => {
                    if let Some(on_path) = self.on_path.get_mut(function as usize) {
                        *on_path = false;
                    }
                    continue;
                }
            };
            let stack: StackId = match touched.get(place as usize - 1) {
                Some(stack) => *stack,
                None => continue,
            };
            let frame = self.stacks.leaf(stack).map(|(_, frame)| frame);
            if let Some(number) = frame.and_then(|frame| self.functions.function(frame))
                && let Some(on_path) = self.on_path.get_mut(number as usize)
                && !*on_path
            {
                *on_path = true;
                todo.push(Step::Leave(number));
                if let Some(counts) = self.counts.get_mut(number as usize) {
                    if counts.total == 0 {
                        self.counted.push(number);
                    }
                    counts.total = counts.total.saturating_add(self.weights.total(stack));
                }
            }
            enter(&mut todo, place);
        }
    }
}

/// A step of a walk down the tree of stacks.
enum Step {
    /// To the stack of this place, from its caller.
    Enter(u32),
    /// This function is not among the callers any more.
    Leave(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Frame, FrameKind};
    use crate::report::text::tests_support::Builder;

    #[test]
    fn recursion_counts_once_and_markers_are_no_functions() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "f", "g", "f", "f"], 3);
        b.row(p, &["main", "f"], 1);
        b.row_of(p, &[(FrameKind::Truncated, "x"), (FrameKind::User, "g")], 2);
        b.row_of(
            p,
            &[(FrameKind::User, "main"), (FrameKind::Kernel, "irq")],
            4,
        );
        b.row(p, &[], 5);
        b.row_of(p, &[(FrameKind::Truncated, "x")], 2);
        b.row_of(
            p,
            &[(FrameKind::Truncated, "x"), (FrameKind::LeftOut, "y")],
            4,
        );
        let text = |f: Function| b.profile.names.text(f.0).to_owned();
        let found = functions(&b.profile);
        let found: Vec<_> = found
            .into_iter()
            .map(|(f, c)| (text(f), c.own, c.total))
            .collect();
        let named = |list: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
            list.iter()
                .map(|(n, o, t)| ((*n).to_owned(), *o, *t))
                .collect()
        };
        let expected = [("f", 4, 4), ("irq", 4, 4), ("g", 2, 5), ("main", 0, 8)];
        assert_eq!(found, named(&expected));

        let mut counter = Counter::new(&b.profile.names, &b.profile.stacks);
        let all = counter.entries(&[&b.profile.rows], Sort::Total);
        assert_eq!((all.sum, all.of_none), (21, 11));
        let order: Vec<_> = all.list.iter().map(|e| text(e.function)).collect();
        assert_eq!(order, ["main", "g", "f", "irq"]);
        // What was counted before leaves no trace.
        let some = counter.entries(&[&b.profile.rows[1..2]], Sort::Own);
        let found: Vec<_> = some
            .list
            .iter()
            .map(|e| (text(e.function), e.counts.own, e.counts.total))
            .collect();
        assert_eq!(found, named(&[("f", 1, 1), ("main", 0, 1)]));
        assert_eq!((some.sum, some.of_none), (1, 0));
    }

    /// Frames differ by their line; the function does not.
    #[test]
    fn a_function_has_the_line_that_most_of_its_own_samples_are_in() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        let profile = &mut b.profile;
        let (name, module, file) = (
            profile.names.intern("f"),
            profile.names.intern("mod"),
            profile.names.intern("f.c"),
        );
        for (line, weight) in [(1, 3), (2, 4), (3, 4), (2, 1)] {
            let frame = Frame {
                source: Some(SourceLine { file, line }),
                ..Frame::new(name, module, FrameKind::User)
            };
            let frame = profile.names.frame_id(frame);
            let caller = profile.stacks.push(0, frame);
            // Calls itself: lines of callers do not count.
            let stack = profile.stacks.push(caller, frame);
            profile.rows.push(Row {
                group: p,
                event: 0,
                stack,
                samples: weight,
                weight,
            });
        }
        let mut counter = Counter::new(&profile.names, &profile.stacks);
        let found = counter.entries(&[&profile.rows], Sort::Own).list;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].counts, Counts { own: 12, total: 12 });
        assert_eq!(found[0].line, Some(SourceLine { file, line: 2 }));
        let found = counter.entries(&[&profile.rows[..1]], Sort::Own).list;
        assert_eq!(found[0].line, Some(SourceLine { file, line: 1 }));
    }
}
