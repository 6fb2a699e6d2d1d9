//! Stacks that read alike are one: boxes of a profile, from the roots or from the leaves.

use std::cmp::Ordering;

use crate::profile::{Profile, Row, StackId, Stacks};
use crate::report::folded::NO_FRAMES;
use crate::report::palette::{Kind, Labels};

use super::boxes::{Bounds, Boxes, Drawn, TooMany};

/// A profile with what is printed of it.
pub(super) struct Merged<'a> {
    profile: &'a Profile,
    labels: Labels,
    /// Labels of frames.
    frames: Vec<u32>,
    /// Labels of the groups; `None` where stacks have no root frame.
    roots: Vec<Option<u32>>,
    /// That of a stack without any frame, where there is no root frame either.
    no_frames: u32,
    /// Places of labels in the order of their texts.
    ranks: Vec<u32>,
}

impl<'a> Merged<'a> {
    pub fn new(profile: &'a Profile) -> Merged<'a> {
        let mut labels = Labels::default();
        let names = &profile.names;
        let frames = names.frames().iter().map(|frame| {
            let (name, module) = (names.frame_text(frame), names.text(frame.module));
            labels.number(Kind::of(frame, names.text(frame.name)), &name, module)
        });
        let frames = frames.collect();
        let roots = (0..profile.groups.len() as u32).map(|group| {
            let root = profile.root(group);
            root.map(|text| labels.number(Kind::Mark, text, ""))
        });
        let roots = roots.collect();
        let no_frames = labels.number(Kind::Mark, NO_FRAMES, "");
        let ranks = labels.ranks();
        Merged {
            profile,
            labels,
            frames,
            roots,
            no_frames,
            ranks,
        }
    }

    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The label a row's stack stands on, if any.
    fn root(&self, row: &Row) -> Option<u32> {
        let root = self.roots.get(row.group as usize).copied().flatten();
        root.or((row.stack == 0).then_some(self.no_frames))
    }

    fn order(&self, a: u32, b: u32) -> Ordering {
        let rank = |label: u32| self.ranks.get(label as usize);
        rank(a).cmp(&rank(b))
    }

    /// Roots at the bottom, callees on their callers, in the order of their names.
    pub fn roots_first(&self, bounds: Bounds, boxes: &mut Boxes) -> Result<(), TooMany> {
        let (nodes, weights) = self.tree(bounds);
        let callees = nodes.callees();
        let label = |node: StackId| nodes.leaf(node).map_or(u32::MAX, |(_, label)| label);
        let weight = |node: StackId| weights.get(node as usize).copied().unwrap_or(0);
        // Nodes to draw with their place, the next one last: depth is that of the deepest stack, which a capture chooses.
        let mut todo: Vec<(StackId, u32, u64)> = Vec::new();
        let mut next: Vec<StackId> = Vec::new();
        let (mut caller, mut depth, mut start) = (0, 0, 0);
        loop {
            next.clear();
            next.extend(callees.of(caller));
            next.sort_unstable_by(|a, b| self.order(label(*a), label(*b)));
            let first = todo.len();
            for node in &next {
                if weight(*node) >= bounds.least {
                    todo.push((*node, depth, start));
                }
                start += weight(*node);
            }
            todo.get_mut(first..).unwrap_or_default().reverse();
            let Some((node, of_node, left)) = todo.pop() else {
                return Ok(());
            };
            boxes.push(Drawn {
                depth: of_node,
                start: left,
                width: weight(node),
                label: label(node),
            })?;
            (caller, depth, start) = (node, of_node + 1, left);
        }
    }

    /// Stacks of labels, roots included, and the weight of each with its callees.
    fn tree(&self, bounds: Bounds) -> (Stacks, Vec<u64>) {
        let stacks = &self.profile.stacks;
        let mut nodes = Stacks::default();
        let mut weights: Vec<u64> = vec![0];
        // Stacks share their callers: of each, its node below the root it was last met under.
        let mut known: Vec<(Option<Option<u32>>, StackId)> = vec![(None, 0); stacks.len() + 1];
        let mut path = Vec::new();
        for row in &self.profile.rows {
            let root = self.root(row);
            let mut at = row.stack;
            let mut node = loop {
                match known.get(at as usize) {
                    Some((Some(under), node)) if *under == root => break *node,
                    _ => {}
                }
                let Some((caller, frame)) = stacks.leaf(at) else {
                    break root.map_or(0, |root| nodes.push(0, root));
                };
                path.push((at, frame));
                at = caller;
            };
            while let Some((stack, frame)) = path.pop() {
                let Some(label) = self.frames.get(frame as usize) else {
                    continue;
                };
                node = nodes.push(node, *label);
                if let Some(known) = known.get_mut(stack as usize) {
                    *known = (Some(root), node);
                }
            }
            if weights.len() <= node as usize {
                weights.resize(node as usize + 1, 0);
            }
            if let Some(sum) = weights.get_mut(node as usize) {
                *sum += bounds.weight(row.weight);
            }
        }
        weights.resize(nodes.len() + 1, 0);
        // Callers have smaller numbers than their callees.
        for (i, (caller, _)) in nodes.nodes().enumerate().rev() {
            let weight = weights.get(i + 1).copied().unwrap_or(0);
            if let Some(sum) = weights.get_mut(caller as usize) {
                *sum += weight;
            }
        }
        (nodes, weights)
    }

    /// Leaves first, on each its callers, the roots last.
    ///
    /// Nothing is merged that is not drawn: rows are put in the order of what they have at a depth, and each run of them that has
    /// the same there is a box, whose part of the rows is then put in the order of the next depth.
    pub fn leaves_first(&self, bounds: Bounds, boxes: &mut Boxes) -> Result<(), TooMany> {
        let rows = self.profile.rows.iter();
        let mut paths: Vec<Path> = rows
            .map(|row| Path {
                stack: row.stack,
                root: self.root(row),
                weight: bounds.weight(row.weight),
            })
            .collect();
        let mut todo: Vec<(std::ops::Range<usize>, Drawn)> = Vec::new();
        let (mut range, mut depth, mut start) = (0..paths.len(), 0, 0);
        loop {
            let part = paths.get_mut(range.clone()).unwrap_or_default();
            part.sort_unstable_by(|a, b| match (self.next(a), self.next(b)) {
                (Some(a), Some(b)) => self.order(a, b),
                // What ends here is the room at the right.
                (a, b) => b.is_some().cmp(&a.is_some()),
            });
            let (first, mut end) = (todo.len(), range.start);
            for run in part.chunk_by(|a, b| self.next(a) == self.next(b)) {
                let width = run.iter().map(|path| path.weight).sum();
                let of_run = end..end + run.len();
                end = of_run.end;
                let label = run.first().and_then(|path| self.next(path));
                if let Some(label) = label.filter(|_| width >= bounds.least) {
                    let drawn = Drawn {
                        depth,
                        start,
                        width,
                        label,
                    };
                    todo.push((of_run, drawn));
                }
                start += width;
            }
            todo.get_mut(first..).unwrap_or_default().reverse();
            let Some((of_next, drawn)) = todo.pop() else {
                return Ok(());
            };
            boxes.push(drawn)?;
            for path in paths.get_mut(of_next.clone()).unwrap_or_default() {
                match self.profile.stacks.leaf(path.stack) {
                    Some((caller, _)) => path.stack = caller,
                    None => path.root = None,
                }
            }
            (range, depth, start) = (of_next, drawn.depth + 1, drawn.start);
        }
    }

    /// What comes next on the way to the root.
    fn next(&self, path: &Path) -> Option<u32> {
        match self.profile.stacks.leaf(path.stack) {
            Some((_, frame)) => self.frames.get(frame as usize).copied(),
            None => path.root,
        }
    }
}

/// A row on the way to its root: what is left of its stack, then its root.
struct Path {
    stack: StackId,
    root: Option<u32>,
    weight: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::By;
    use crate::report::text::tests_support::Builder;

    fn drawn(profile: &Profile, leaves_first: bool, least: u64) -> Vec<String> {
        let merged = Merged::new(profile);
        let weights = || profile.rows.iter().map(|row| row.weight);
        let (boxes, _, _) = Boxes::at_most(merged.labels(), weights, |bounds, boxes| {
            let bounds = Bounds { least, ..bounds };
            match leaves_first {
                true => merged.leaves_first(bounds, boxes),
                false => merged.roots_first(bounds, boxes),
            }
        });
        let text = |label| merged.labels().text(label);
        boxes
            .drawn()
            .iter()
            .map(|b| {
                let indent = "  ".repeat(b.depth as usize);
                format!("{indent}{} {}+{}", text(b.label), b.start, b.width)
            })
            .collect()
    }

    fn profile() -> Profile {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        let q = b.process("job", 8);
        b.row(p, &["main", "read"], 3);
        b.row(p, &["main", "work", "read"], 4);
        b.row(p, &["main"], 1);
        b.row(p, &[], 2);
        b.row(q, &["read"], 5);
        b.profile
    }

    #[test]
    fn callees_stand_on_their_callers() {
        assert_eq!(
            drawn(&profile(), false, 1),
            [
                "app-7 0+10",
                "  main 0+8",
                "    read 0+3",
                "    work 3+4",
                "      read 3+4",
                "job-8 10+5",
                "  read 10+5",
            ]
        );
        assert_eq!(
            drawn(&profile(), false, 4)[..3],
            ["app-7 0+10", "  main 0+8", "    work 3+4"]
        );
    }

    #[test]
    fn without_groups_nothing_is_lost() {
        let ungrouped = Profile {
            by: By::None,
            ..profile()
        };
        assert_eq!(
            drawn(&ungrouped, false, 1),
            [
                "[no frames] 0+2",
                "main 2+8",
                "  read 2+3",
                "  work 5+4",
                "    read 5+4",
                "read 10+5",
            ]
        );
        assert_eq!(
            drawn(&ungrouped, true, 1),
            [
                "[no frames] 0+2",
                "main 2+1",
                "read 3+12",
                "  main 3+3",
                "  work 6+4",
                "    main 6+4",
            ]
        );
    }

    #[test]
    fn a_leaf_is_one_box_with_all_its_callers() {
        assert_eq!(
            drawn(&profile(), true, 1),
            [
                "app-7 0+2",
                "main 2+1",
                "  app-7 2+1",
                "read 3+12",
                "  job-8 3+5",
                "  main 8+3",
                "    app-7 8+3",
                "  work 11+4",
                "    main 11+4",
                "      app-7 11+4",
            ]
        );
        assert_eq!(
            drawn(&profile(), true, 4),
            [
                "read 3+12",
                "  job-8 3+5",
                "  work 11+4",
                "    main 11+4",
                "      app-7 11+4"
            ]
        );
    }
}
