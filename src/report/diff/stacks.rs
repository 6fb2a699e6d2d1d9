//! Stacks with two counts: those of both captures, merged by what is printed of them; `--folded`.

use std::io::{self, Write};

use hashbrown::HashMap;

use super::Joined;
use crate::profile::{Callees, FrameKind, Row, StackId, Stacks};
use crate::report::folded::{NO_FRAMES, TRUNCATED};
use crate::report::layout::share;
use crate::report::text;

/// Writes `root;...;leaf BEFORE AFTER`, each stack once, callers before their callees, callees in the order of their names.
///
/// Counts of AFTER are its samples (weights); those of BEFORE are scaled so that their sum is the same. Where AFTER has no
/// samples, those of BEFORE are as they are.
pub fn folded(joined: &Joined, out: &mut dyn Write) -> io::Result<()> {
    let whole = match (joined.before.0.weight, joined.after.0.weight) {
        (before, 0) => before,
        (_, after) => after,
    };
    let mut scale = Scale::new(joined, whole);
    Tree::new(joined).for_each_line(0.0, &mut |line| {
        let [before, after] = scale.next(line.own);
        writeln!(out, "{} {before} {after}", line.stack)
    })
}

/// A stack as it is printed, with its counts before and after.
pub(super) struct Line<'t> {
    pub stack: &'t str,
    /// Number of the text of its leaf.
    pub leaf: u32,
    /// Samples of the leaf itself.
    pub own: [u64; 2],
    /// And of what it calls that is too small for lines of its own.
    pub small: [u64; 2],
}

/// Scales counts so that their sums are exactly what is asked for: each is what the sum so far grew by.
pub(super) struct Scale {
    whole: u64,
    weights: [u64; 2],
    sums: [u64; 2],
}

impl Scale {
    pub fn new(joined: &Joined, whole: u64) -> Scale {
        Scale {
            whole,
            weights: [joined.before.0.weight, joined.after.0.weight],
            sums: [0; 2],
        }
    }

    pub fn next(&mut self, counts: [u64; 2]) -> [u64; 2] {
        let mut scaled = [0; 2];
        for (((count, sum), weight), scaled) in counts
            .iter()
            .zip(&mut self.sums)
            .zip(self.weights)
            .zip(&mut scaled)
        {
            let of = |sum: u64| match u128::from(weight) {
                0 => 0,
                weight => ((u128::from(sum) * u128::from(self.whole) + weight / 2) / weight) as u64,
            };
            let before = of(*sum);
            *sum = sum.saturating_add(*count);
            *scaled = of(*sum).saturating_sub(before);
        }
        scaled
    }
}

/// Stacks of both, merged by what is printed of them.
pub(super) struct Tree {
    texts: Vec<String>,
    /// The number of the text of each frame.
    pub frames: Vec<u32>,
    nodes: Stacks,
    callees: Callees,
    own: Vec<[u64; 2]>,
    total: Vec<[u64; 2]>,
    weights: [u64; 2],
}

impl Tree {
    pub fn new(joined: &Joined) -> Tree {
        let mut texts = Vec::new();
        let mut index: HashMap<String, u32> = HashMap::new();
        let mut number = |texts: &mut Vec<String>, text: String| {
            *index.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() as u32 - 1
            })
        };
        let frames = joined.names.frames().iter().map(|frame| {
            let name = text::folded(joined.names.text(frame.name));
            let text = match frame.kind {
                FrameKind::Kernel => format!("{name}_[k]"),
                FrameKind::User | FrameKind::LeftOut => name.into_owned(),
                FrameKind::Truncated => TRUNCATED.to_owned(),
            };
            number(&mut texts, text)
        });
        let frames: Vec<u32> = frames.collect();
        let roots = joined.groups.iter().map(|group| {
            let name = text::folded(joined.names.text(*group));
            (!name.is_empty()).then(|| number(&mut texts, name.into_owned()))
        });
        let roots: Vec<Option<u32>> = roots.collect();
        let no_frames = number(&mut texts, NO_FRAMES.to_owned());

        let mut tree = Tree {
            texts,
            frames: Vec::new(),
            nodes: Stacks::default(),
            callees: Stacks::default().callees(),
            own: vec![[0; 2]],
            total: Vec::new(),
            weights: [joined.before.0.weight, joined.after.0.weight],
        };
        let mut rows: Vec<(usize, &Row)> = Vec::new();
        rows.extend(joined.before.1.iter().map(|row| (0, row)));
        rows.extend(joined.after.1.iter().map(|row| (1, row)));
        rows.sort_by_key(|(_, row)| row.group);
        // Stacks share their callers, so each is walked once below a root: of each stack, the node below the root that had
        // it last.
        let mut known = vec![(u32::MAX, 0); joined.stacks.len() + 1];
        let mut path = Vec::new();
        for (side, row) in rows.into_iter().filter(|(_, row)| row.weight > 0) {
            let mut at = row.stack;
            let mut node = loop {
                match known.get(at as usize) {
                    Some((of, node)) if *of == row.group => break *node,
                    _ => {}
                }
                let Some((caller, frame)) = joined.stacks.leaf(at) else {
                    let root = roots.get(row.group as usize).copied().flatten();
                    break root.map_or(0, |root| tree.nodes.push(0, root));
                };
                path.push((at, frame));
                at = caller;
            };
            while let Some((stack, frame)) = path.pop() {
                let Some(text) = frames.get(frame as usize) else {
                    continue;
                };
                node = tree.nodes.push(node, *text);
                if let Some(known) = known.get_mut(stack as usize) {
                    *known = (row.group, node);
                }
            }
            if node == 0 {
                node = tree.nodes.push(0, no_frames);
            }
            tree.add(node, side, row.weight);
        }
        tree.frames = frames;
        tree.own.resize(tree.nodes.len() + 1, [0; 2]);
        tree.callees = tree.nodes.callees();
        tree.sum_up();
        tree
    }

    fn add(&mut self, node: StackId, side: usize, weight: u64) {
        if self.own.len() <= node as usize {
            self.own.resize(node as usize + 1, [0; 2]);
        }
        let own = self
            .own
            .get_mut(node as usize)
            .and_then(|own| own.get_mut(side));
        if let Some(own) = own {
            *own = own.saturating_add(weight);
        }
    }

    fn sum_up(&mut self) {
        self.total.clone_from(&self.own);
        // Callers have smaller numbers than their callees.
        for (i, (caller, _)) in self.nodes.nodes().enumerate().rev() {
            let below = self.total.get(i + 1).copied().unwrap_or_default();
            if let Some(sum) = self.total.get_mut(caller as usize) {
                add(sum, below);
            }
        }
    }

    fn text(&self, node: StackId) -> &str {
        let text = self.texts.get(self.leaf(node) as usize);
        text.map_or("", |text| text)
    }

    /// Number of a node's text.
    fn leaf(&self, node: StackId) -> u32 {
        self.nodes.leaf(node).map_or(u32::MAX, |(_, text)| text)
    }

    /// Calls `each` with every stack that has samples, callers first. What is below `least` of both sides, from 0 to 1, has no line
    /// of its own.
    pub fn for_each_line(
        &self,
        least: f64,
        each: &mut dyn FnMut(Line<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut line = String::new();
        let mut levels = vec![(0, self.below(0, least).1)];
        while let Some((length, below)) = levels.last_mut() {
            let Some(node) = below.pop() else {
                levels.pop();
                continue;
            };
            line.truncate(*length);
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(self.text(node));
            let (small, below) = self.below(node, least);
            let own = self.own.get(node as usize).copied().unwrap_or_default();
            if own != [0; 2] || small != [0; 2] {
                each(Line {
                    stack: &line,
                    leaf: self.leaf(node),
                    own,
                    small,
                })?;
            }
            levels.push((line.len(), below));
        }
        Ok(())
    }

    /// Counts of what is too small below a node, and the others below it, the first last.
    fn below(&self, node: StackId, least: f64) -> ([u64; 2], Vec<StackId>) {
        let mut small = [0; 2];
        let mut below = Vec::new();
        for callee in self.callees.of(node) {
            let total = self.total.get(*callee as usize).copied();
            let total = total.unwrap_or_default();
            let wide = |side: usize| {
                let (count, weight) = (total.get(side), self.weights.get(side));
                share(count.copied().unwrap_or(0), weight.copied().unwrap_or(0)) >= least
            };
            if wide(0) || wide(1) {
                below.push(*callee);
            } else {
                add(&mut small, total);
            }
        }
        below.sort_by(|a, b| self.text(*b).cmp(self.text(*a)));
        (small, below)
    }
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{joined, joined_of};
    use super::*;
    use crate::profile::By;
    use crate::report::text::tests_support::Builder;

    fn text(joined: &Joined) -> String {
        let mut out = Vec::new();
        folded(joined, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn folded_lines_have_both_counts_scaled_to_one_sum() {
        assert_eq!(
            text(&joined()),
            "app;gone 40 0\napp;main;cold 60 50\napp;main;hot 100 150\n"
        );
        let mut odd = Builder::default();
        let p = odd.process("a", 1);
        for name in ["x", "y", "z"] {
            odd.row(p, &[name], 1);
        }
        let mut one = Builder::default();
        let p = one.process("a", 1);
        one.row(p, &["x"], 10);
        let joined = joined_of(&odd.profile, &one.profile);
        assert_eq!(text(&joined), "a;x 3 10\na;y 4 0\na;z 3 0\n");
        let nothing = Builder::default().profile;
        assert_eq!(text(&joined_of(&one.profile, &nothing)), "a;x 10 0\n");
        assert_eq!(text(&joined_of(&nothing, &nothing)), "");
        let mut rootless = Builder::default();
        let p = rootless.process("a", 1);
        rootless.row(p, &["x"], 2);
        rootless.row(p, &[], 1);
        rootless.profile.by = By::None;
        assert_eq!(
            text(&joined_of(&rootless.profile, &rootless.profile)),
            "[no frames] 1 1\nx 2 2\n"
        );
    }
}
