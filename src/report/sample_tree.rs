//! Stacks of single samples as a tree, for pictures that need the time of each.

use hashbrown::HashMap;

use crate::profile::{Names, SampleView, StackId, Stacks};

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
    roots: HashMap<Box<str>, u32>,
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
    /// The root frame of that text.
    pub fn root(&mut self, text: &str) -> u32 {
        if let Some(root) = self.roots.get(text) {
            return *root;
        }
        self.frames.push(TreeFrame {
            kind: Kind::Mark,
            name: text.into(),
            module: "".into(),
        });
        let root = self.frames.len() as u32 - 1;
        self.roots.insert(text.into(), root);
        root
    }

    /// The stack of a sample, on `root` if there is one; up to where it is known, and a mark, when there is no room for another one.
    pub fn stack(&mut self, root: Option<u32>, names: &Names, sample: &SampleView<'_>) -> StackId {
        let mut at = root.map_or(0, |root| self.stacks.push(0, root));
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
        self.frames.push(TreeFrame {
            kind: Kind::of(frame, names.text(frame.name)),
            name: names.frame_text(frame).into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Pid, Timestamp};
    use crate::profile::{Frame, FrameKind, Resolution, SampleFrame, SymbolFrame};

    /// Functions of stacks that find no room are not booked to others.
    #[test]
    fn what_finds_no_room_is_marked_where_it_parts() {
        let mut names = Names::default();
        let resolutions: Vec<Resolution> = ["main", "known", "new"]
            .map(|name| {
                let frame = Frame::new(names.intern(name), Names::EMPTY, FrameKind::User);
                let frame = names.frame_id(frame);
                Resolution {
                    chain: [SymbolFrame {
                        frame,
                        source: None,
                    }]
                    .into(),
                    offset: None,
                    exact: None,
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
                cpu: Some(0),
                pid: Pid(7),
                tid: Pid(7),
                comm: "app",
                process: "app",
                group: "app-7",
                event: 0,
                flags: 0,
                weight: 1,
                kernel: &[],
                user: &user,
            };
            let root = tree.root(sample.group);
            let stack = tree.stack(Some(root), &names, &sample);
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
