//! A flame chart: stacks in the order of time, one thread after the other.
//!
//! The width is CPU time sampled, not time on the clock: where a thread did not run it takes no room.

use std::io::{self, Write};

use hashbrown::HashMap;

use crate::profile::{About, By, Names, SampleView, StackId, Stacks};
use crate::report::palette::Labels;
use crate::report::sample_tree::SampleTree;

use super::boxes::{Bounds, Boxes, Drawn, TooMany};
use super::svg::Picture;

/// Collects samples.
#[derive(Debug, Default)]
pub struct Collector {
    tree: SampleTree,
    /// In the order of their first samples.
    threads: Vec<Thread>,
    /// By root frame.
    index: HashMap<u32, usize>,
}

#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    weight: u64,
    /// Stack and weight; equal stacks that follow each other are one.
    runs: Vec<(StackId, u64)>,
}

impl Collector {
    /// Takes the next sample in: samples come in the order of time.
    pub fn sample(&mut self, names: &Names, sample: &SampleView<'_>) {
        let root = self.tree.root(&thread_label(sample));
        let stack = self.tree.stack(Some(root), names, sample);
        let threads = &mut self.threads;
        let thread = *self.index.entry(root).or_insert_with(|| {
            threads.push(Thread {
                pid: sample.pid.0,
                ..Thread::default()
            });
            threads.len() - 1
        });
        let Some(thread) = threads.get_mut(thread) else {
            return;
        };
        thread.weight = thread.weight.saturating_add(sample.weight);
        match thread.runs.last_mut() {
            Some((last, weight)) if *last == stack => {
                *weight = weight.saturating_add(sample.weight);
            }
            _ => thread.runs.push((stack, sample.weight)),
        }
    }

    /// Writes an SVG.
    pub fn write(&self, about: &About, out: &mut dyn Write) -> io::Result<()> {
        let mut labels = Labels::default();
        let frames = self.tree.frames().iter();
        let frames: Vec<u32> = frames
            .map(|frame| labels.number(frame.kind, &frame.name, &frame.module))
            .collect();
        let threads = self.in_order();
        let runs = || threads.iter().flat_map(|thread| &thread.runs);
        let weights = || runs().map(|(_, weight)| *weight);
        let (boxes, scale, least) = Boxes::at_most(&labels, weights, |bounds, boxes| {
            draw(self.tree.stacks(), &frames, runs(), bounds, boxes)
        });
        let note = match self.tree.is_cut() {
            true => "each thread in order of time, heaviest first, more stacks than are kept",
            false => "each thread in order of time, heaviest first",
        };
        let picture = Picture {
            about,
            boxes: &boxes,
            scale,
            least,
            labels: &labels,
            inverted: false,
            group: By::Thread.noun(),
            note,
        };
        picture.write(out)
    }

    /// Threads of the process with most weight first, of each the one with most weight first.
    fn in_order(&self) -> Vec<&Thread> {
        let mut processes: HashMap<u32, u64> = HashMap::new();
        for thread in &self.threads {
            let sum = processes.entry(thread.pid).or_default();
            *sum = sum.saturating_add(thread.weight);
        }
        let mut threads: Vec<&Thread> = self.threads.iter().collect();
        threads.sort_by_key(|thread| {
            let process = processes.get(&thread.pid).copied().unwrap_or(0);
            std::cmp::Reverse((process, thread.pid, thread.weight))
        });
        threads
    }
}

/// `worker 100/101 (app)`, as the view of every sample has it.
fn thread_label(sample: &SampleView<'_>) -> String {
    match sample.comm == sample.process {
        true => format!("{} {}/{}", sample.comm, sample.pid, sample.tid),
        false => format!(
            "{} {}/{} ({})",
            sample.comm, sample.pid, sample.tid, sample.process
        ),
    }
}

/// Boxes of stacks one after the other: what follows each other with the same callers is one box.
fn draw<'a>(
    stacks: &Stacks,
    labels: &[u32],
    runs: impl Iterator<Item = &'a (StackId, u64)>,
    bounds: Bounds,
    boxes: &mut Boxes,
) -> Result<(), TooMany> {
    // Boxes that go on: their stack, and where they begin.
    let mut open: Vec<(StackId, u64)> = Vec::new();
    let mut path: Vec<StackId> = Vec::new();
    let mut at = 0;
    let close = |open: &mut Vec<(StackId, u64)>, from: usize, at: u64, boxes: &mut Boxes| {
        while open.len() > from
            && let Some((stack, start)) = open.pop()
        {
            let label = stacks.leaf(stack);
            let label = label.and_then(|(_, frame)| labels.get(frame as usize));
            if let Some(label) = label.filter(|_| at - start >= bounds.least) {
                boxes.push(Drawn {
                    depth: open.len() as u32,
                    start,
                    width: at - start,
                    label: *label,
                })?;
            }
        }
        Ok(())
    };
    for (stack, weight) in runs {
        path.clear();
        let mut node = *stack;
        while let Some((caller, _)) = stacks.leaf(node) {
            path.push(node);
            node = caller;
        }
        path.reverse();
        let same = path.iter().zip(&open).take_while(|(a, (b, _))| *a == b);
        let same = same.count();
        close(&mut open, same, at, boxes)?;
        open.extend(path.iter().skip(same).map(|stack| (*stack, at)));
        at += bounds.weight(*weight);
    }
    close(&mut open, 0, at, boxes)?;
    boxes.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_last_as_long_as_their_callers_stay() {
        let mut stacks = Stacks::default();
        let push = |stacks: &mut Stacks, frames: &[u32]| {
            frames.iter().fold(0, |at, frame| stacks.push(at, *frame))
        };
        let (ab, ac, a) = (
            push(&mut stacks, &[0, 1]),
            push(&mut stacks, &[0, 2]),
            push(&mut stacks, &[0]),
        );
        let runs = [(ab, 2), (ac, 3), (ab, 1), (a, 4)];
        let labels = [0, 1, 2];
        let weights = || runs.iter().map(|(_, weight)| *weight);
        let (boxes, _, _) = Boxes::at_most(&Labels::default(), weights, |bounds, boxes| {
            draw(&stacks, &labels, runs.iter(), bounds, boxes)
        });
        let drawn: Vec<_> = boxes
            .drawn()
            .iter()
            .map(|b| (b.depth, b.start, b.width, b.label))
            .collect();
        assert_eq!(
            drawn,
            [(0, 0, 10, 0), (1, 0, 2, 1), (1, 2, 3, 2), (1, 5, 1, 1)]
        );
    }
}
