//! Stacks of single samples as a tree, for pictures that need the time of each.

use hashbrown::HashMap;

use crate::profile::{FrameKind, Names, SampleView, StackId, Stacks};

use super::folded::TRUNCATED;
use super::palette::Kind;
use super::samples::{Part, root_first};

/// Stacks that are kept apart at most: what a browser still shows in a second or two.
pub(super) const MOST_STACKS: usize = 1 << 20;
/// Stands for all others.
pub(super) const OVERFLOW: &str = "[more stacks than are kept]";

/// What a frame of the tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeFrame {
    pub kind: Kind,
    /// True text.
    pub name: Box<str>,
    pub module: Box<str>,
}

/// Collects stacks.
#[derive(Debug)]
pub(super) struct SampleTree {
    stacks: Stacks,
    frames: Vec<TreeFrame>,
    /// Numbers in `frames`, plus one, of frames of [`Names`].
    known: Vec<u32>,
    roots: HashMap<u32, Vec<u32>>,
}

const OVERFLOW_FRAME: u32 = 0;
const CUT_FRAME: u32 = 1;

impl Default for SampleTree {
    fn default() -> SampleTree {
        let mark = |name: &str| TreeFrame {
            kind: Kind::Mark,
            name: name.into(),
            module: "".into(),
        };
        SampleTree {
            stacks: Stacks::bounded(MOST_STACKS, OVERFLOW_FRAME),
            frames: vec![mark(OVERFLOW), mark(TRUNCATED)],
            known: Vec::new(),
            roots: HashMap::new(),
        }
    }
}

impl SampleTree {
    /// The frame of the sample's process, or that of its thread, below which its stack is put.
    pub fn root(&mut self, sample: &SampleView<'_>, threads: bool) -> u32 {
        let (number, text) = match threads {
            true => (sample.tid, thread_label(sample)),
            false => (sample.pid, format!("{}-{}", sample.process, sample.pid)),
        };
        let roots = self.roots.entry(number.0).or_default();
        let frames = &mut self.frames;
        let same = |root: &&u32| {
            let frame = frames.get(**root as usize);
            frame.is_some_and(|frame| *frame.name == *text)
        };
        if let Some(root) = roots.iter().find(same) {
            return *root;
        }
        roots.push(frames.len() as u32);
        frames.push(TreeFrame {
            kind: Kind::Mark,
            name: text.into(),
            module: "".into(),
        });
        frames.len() as u32 - 1
    }

    /// The stack of a sample on `root`.
    pub fn stack(&mut self, root: u32, names: &Names, sample: &SampleView<'_>) -> StackId {
        let mut at = self.stacks.push(0, root);
        root_first(sample, |part| {
            let frame = match part {
                Part::Cut => CUT_FRAME,
                Part::Function(part) => self.frame(names, part.frame),
            };
            at = self.stacks.push(at, frame);
        });
        at
    }

    fn frame(&mut self, names: &Names, number: u32) -> u32 {
        match self.known.get(number as usize) {
            Some(known) if *known > 0 => return known - 1,
            _ => {}
        }
        let Some(frame) = names.frames().get(number as usize) else {
            return OVERFLOW_FRAME;
        };
        let kind = match frame.kind {
            FrameKind::Kernel => Kind::Kernel,
            FrameKind::Truncated | FrameKind::LeftOut => Kind::Mark,
            FrameKind::User if frame.inlined => Kind::Inlined,
            FrameKind::User => Kind::User,
        };
        self.frames.push(TreeFrame {
            kind,
            name: names.text(frame.name).into(),
            module: names.text(frame.module).into(),
        });
        if self.known.len() <= number as usize {
            self.known.resize(number as usize + 1, 0);
        }
        if let Some(known) = self.known.get_mut(number as usize) {
            *known = self.frames.len() as u32;
        }
        self.frames.len() as u32 - 1
    }

    /// The stacks, of numbers of [`SampleTree::frames`].
    pub fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// All frames.
    pub fn frames(&self) -> &[TreeFrame] {
        &self.frames
    }

    /// Whether there were more stacks than are kept.
    pub fn is_full(&self) -> bool {
        self.stacks.len() > MOST_STACKS
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
