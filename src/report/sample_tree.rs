//! Stacks of single samples as a tree, for pictures that need the time of each.

use hashbrown::HashMap;

use crate::profile::{FrameKind, Names, SampleView, StackId, Stacks};

use super::folded::TRUNCATED;
use super::palette::Kind;
use super::samples::{Part, root_first};

/// Stacks that are kept apart, about: what a browser still shows in a second or two.
const MOST_STACKS: usize = 1 << 20;
/// Stands for callees that are left out, once there are as many.
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
    /// How many stacks are kept whole.
    most: usize,
    cut: bool,
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
            stacks: Stacks::default(),
            frames: vec![mark(OVERFLOW), mark(TRUNCATED)],
            known: Vec::new(),
            roots: HashMap::new(),
            most: MOST_STACKS,
            cut: false,
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

    /// The stack of a sample on `root`; up to where it is known, and a mark, when there is no room for another one.
    pub fn stack(&mut self, root: u32, names: &Names, sample: &SampleView<'_>) -> StackId {
        let mut at = self.stacks.push(0, root);
        let full = self.stacks.len() >= self.most;
        let mut cut = false;
        root_first(sample, |part| {
            if cut {
                return;
            }
            let frame = match part {
                Part::Cut => CUT_FRAME,
                Part::Function(part) => self.frame(names, part.frame),
            };
            at = match full {
                false => self.stacks.push(at, frame),
                true => self.stacks.find(at, frame).unwrap_or_else(|| {
                    cut = true;
                    self.stacks.push(at, OVERFLOW_FRAME)
                }),
            };
        });
        self.cut |= cut;
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
    pub fn is_cut(&self) -> bool {
        self.cut
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Pid, Timestamp};
    use crate::profile::{Frame, Resolution, SampleFrame, SymbolFrame};

    /// Functions of stacks that find no room are not booked to others.
    #[test]
    fn what_finds_no_room_is_marked_where_it_parts() {
        let mut names = Names::default();
        let resolutions: Vec<Resolution> = ["main", "known", "new"]
            .map(|name| {
                let frame = Frame {
                    name: names.intern(name),
                    module: Names::EMPTY,
                    kind: FrameKind::User,
                    inlined: false,
                };
                let frame = names.frame_id(frame);
                Resolution {
                    chain: [SymbolFrame {
                        frame,
                        source: None,
                    }]
                    .into(),
                    offset: None,
                    unnamed: None,
                    unverified: false,
                }
            })
            .into();
        let frames = |stack: &[usize]| -> Vec<SampleFrame<'_>> {
            let leaf_first = stack.iter().rev().map(|at| SampleFrame {
                address: 0,
                place: 0,
                resolution: &resolutions[*at],
                file: None,
            });
            leaf_first.collect()
        };
        let mut tree = SampleTree {
            most: 3,
            ..SampleTree::default()
        };
        let mut add = |stack: &[usize]| {
            let user = frames(stack);
            let sample = SampleView {
                time: Timestamp(0),
                cpu: 0,
                pid: Pid(7),
                tid: Pid(7),
                comm: "app",
                process: "app",
                event: 0,
                flags: 0,
                weight: 1,
                kernel: &[],
                user: &user,
            };
            let root = tree.root(&sample, false);
            let stack = tree.stack(root, &names, &sample);
            let frames = tree.stacks().frames(stack);
            let names = frames.map(|frame| tree.frames()[frame as usize].name.to_string());
            (names.collect::<Vec<_>>().join(" "), tree.is_cut())
        };
        assert_eq!(add(&[0, 1]), ("known main app-7".into(), false));
        assert_eq!(add(&[0, 1]), ("known main app-7".into(), false));
        let cut = format!("{OVERFLOW} main app-7");
        assert_eq!(add(&[0, 2, 1]), (cut, true));
        assert_eq!(add(&[0]), ("main app-7".into(), true));
    }
}
