//! Stacks as a tree.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{FrameId, StackId};

/// Stacks as a tree: a stack is its leaf's node, a node's parent its caller's. A caller's number is smaller than its
/// callee's.
#[derive(Debug)]
pub struct Stacks {
    /// (caller's stack, frame) of stack `i + 1`.
    nodes: Vec<(StackId, FrameId)>,
    /// Those nodes whose number is not their caller's + 1. Most nodes follow their caller, so that walking down a known
    /// stack is mostly walking through `nodes`; only where stacks part is the index asked.
    index: HashMap<(StackId, FrameId), StackId, RandomState>,
    /// Most nodes, and the frame that stands for every stack for which there is no room.
    limit: usize,
    mark: FrameId,
    overflow: Option<StackId>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        Stacks::bounded(u32::MAX as usize - 1, FrameId::MAX)
    }
}

impl Stacks {
    /// At most `limit` stacks and one more: of the frame `mark` only, which every stack is for which there is no room.
    pub fn bounded(limit: usize, mark: FrameId) -> Stacks {
        Stacks {
            nodes: Vec::new(),
            index: HashMap::default(),
            limit,
            mark,
            overflow: None,
        }
    }

    /// The stack `frame` called from `caller`.
    #[inline]
    pub fn push(&mut self, caller: StackId, frame: FrameId) -> StackId {
        if self.nodes.get(caller as usize) == Some(&(caller, frame)) {
            return caller + 1;
        }
        self.push_parted(caller, frame)
    }

    /// The stack `frame` called from `caller`, if it is there.
    pub fn find(&self, caller: StackId, frame: FrameId) -> Option<StackId> {
        if self.nodes.get(caller as usize) == Some(&(caller, frame)) {
            return Some(caller + 1);
        }
        self.index.get(&(caller, frame)).copied()
    }

    fn push_parted(&mut self, caller: StackId, frame: FrameId) -> StackId {
        if self.nodes.len() >= self.limit {
            return self.push_beyond(caller, frame);
        }
        let next = self.nodes.len() as StackId + 1;
        if next != caller + 1 {
            let id = *self.index.entry((caller, frame)).or_insert(next);
            if id != next {
                return id;
            }
        }
        self.nodes.push((caller, frame));
        next
    }

    #[cold]
    fn push_beyond(&mut self, caller: StackId, frame: FrameId) -> StackId {
        if let Some(id) = self.index.get(&(caller, frame)) {
            return *id;
        }
        *self.overflow.get_or_insert_with(|| {
            self.nodes.push((0, self.mark));
            self.nodes.len() as StackId
        })
    }

    /// (caller's stack, frame) of `stack`; `None` for the empty stack.
    pub fn leaf(&self, stack: StackId) -> Option<(StackId, FrameId)> {
        self.nodes.get((stack as usize).checked_sub(1)?).copied()
    }

    /// (caller's stack, frame) of stack 1 and all after it.
    pub fn nodes(
        &self,
    ) -> impl DoubleEndedIterator<Item = (StackId, FrameId)> + ExactSizeIterator + '_ {
        self.nodes.iter().copied()
    }

    /// A value for every stack, the empty one's first: that of its caller with what its own frame adds to it.
    pub fn inherit<T: Copy>(&self, empty: T, mut add: impl FnMut(T, FrameId) -> T) -> Vec<T> {
        let mut values = Vec::with_capacity(self.nodes.len() + 1);
        values.push(empty);
        for (caller, frame) in &self.nodes {
            let above = values.get(*caller as usize).copied().unwrap_or(empty);
            values.push(add(above, *frame));
        }
        values
    }

    /// Number of stacks, the empty one left out.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there was no room for some.
    pub fn is_cut(&self) -> bool {
        self.overflow.is_some()
    }

    /// Whether there is no stack but the empty one.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The frames of `stack`, leaf first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut at = stack;
        std::iter::from_fn(move || {
            let (caller, frame) = self.leaf(at)?;
            at = caller;
            Some(frame)
        })
    }

    /// The callees of every stack.
    pub fn callees(&self) -> Callees {
        let mut first = vec![0u32; self.nodes.len() + 2];
        for (caller, _) in &self.nodes {
            if let Some(count) = first.get_mut(*caller as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for first in &mut first {
            sum += *first;
            *first = sum;
        }
        // `first[caller]` is moved on to the end of the list while it is filled, which is where the next one begins.
        let mut list = vec![0; self.nodes.len()];
        for (i, (caller, _)) in self.nodes.iter().enumerate() {
            if let Some(next) = first.get_mut(*caller as usize) {
                if let Some(slot) = list.get_mut(*next as usize) {
                    *slot = i as StackId + 1;
                }
                *next += 1;
            }
        }
        Callees { ends: first, list }
    }
}

/// The callees of every stack of [`Stacks`], of each in ascending order.
#[derive(Debug)]
pub struct Callees {
    /// Of each stack, where its callees end in `list`, which is where those of the next begin.
    ends: Vec<u32>,
    list: Vec<StackId>,
}

impl Callees {
    /// Those of `stack`; of the empty stack, the stacks of one frame.
    pub fn of(&self, stack: StackId) -> &[StackId] {
        let before = (stack as usize).checked_sub(1);
        let start = before.map_or(Some(0), |i| self.ends.get(i).copied());
        let end = self.ends.get(stack as usize).copied();
        let range = start.zip(end).map(|(a, b)| a as usize..b as usize);
        range.and_then(|range| self.list.get(range)).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number_however_they_come() {
        let mut stacks = Stacks::default();
        let push = |stacks: &mut Stacks, frames: &[u32]| {
            frames.iter().fold(0, |at, frame| stacks.push(at, *frame))
        };
        assert_eq!(push(&mut stacks, &[1, 2, 3]), 3);
        assert_eq!(push(&mut stacks, &[1, 4]), 4);
        // 5 is not a callee of 4, though its number is next.
        assert_eq!(push(&mut stacks, &[1, 2, 4]), 5);
        assert_eq!(push(&mut stacks, &[2]), 6);
        assert_eq!(push(&mut stacks, &[2, 9]), 7);
        for (frames, id) in [
            (&[1, 2, 3][..], 3),
            (&[1, 4], 4),
            (&[1, 2, 4], 5),
            (&[2, 9], 7),
        ] {
            assert_eq!(push(&mut stacks, frames), id);
            let find = |at: Option<_>, frame: &u32| at.and_then(|at| stacks.find(at, *frame));
            assert_eq!(frames.iter().fold(Some(0), find), Some(id));
        }
        assert_eq!((stacks.find(4, 5), stacks.find(0, 9)), (None, None));
        assert_eq!(stacks.len(), 7);
        assert_eq!(stacks.frames(5).collect::<Vec<_>>(), [4, 2, 1]);
        assert_eq!(stacks.leaf(0), None);
    }

    #[test]
    fn a_stack_without_room_is_the_mark() {
        let mut stacks = Stacks::bounded(3, 77);
        let a = stacks.push(0, 1);
        let b = stacks.push(a, 2);
        let c = stacks.push(0, 3);
        let full = stacks.push(b, 4);
        assert_eq!(stacks.frames(full).collect::<Vec<_>>(), [77]);
        assert_eq!((stacks.push(full, 5), stacks.push(0, 6)), (full, full));
        assert_eq!(
            (stacks.push(0, 1), stacks.push(a, 2), stacks.push(0, 3)),
            (a, b, c)
        );
        assert_eq!(stacks.len(), 4);
    }

    #[test]
    fn many_callees_are_found_again() {
        let mut stacks = Stacks::default();
        let root = stacks.push(0, 7);
        let callees: Vec<u32> = (0..100).map(|frame| stacks.push(root, frame)).collect();
        let below: Vec<u32> = callees.iter().map(|at| stacks.push(*at, 5)).collect();
        assert_eq!(stacks.len(), 201);
        for (frame, (callee, below)) in callees.iter().zip(&below).enumerate() {
            assert_eq!(stacks.push(root, frame as u32), *callee);
            assert_eq!(stacks.push(*callee, 5), *below);
            assert_eq!(stacks.leaf(*callee), Some((root, frame as u32)));
        }
        assert_eq!(stacks.len(), 201);
        assert_eq!(stacks.nodes().len(), 201);
    }

    #[test]
    fn a_stack_inherits_from_its_callers() {
        let mut stacks = Stacks::default();
        for (caller, frame) in [(0, 1), (1, 2), (1, 4), (0, 8), (3, 16)] {
            stacks.push(caller, frame);
        }
        let sums = stacks.inherit(0, |above, frame| above + frame);
        assert_eq!(sums, [0, 1, 3, 5, 8, 21]);
    }

    #[test]
    fn every_stack_is_among_its_callers_callees() {
        let mut stacks = Stacks::default();
        for (caller, frame) in [(0, 1), (1, 2), (1, 3), (0, 4), (2, 5), (0, 6)] {
            stacks.push(caller, frame);
        }
        let callees = stacks.callees();
        assert_eq!(callees.of(0), [1, 4, 6]);
        assert_eq!(callees.of(1), [2, 3]);
        assert_eq!(callees.of(2), [5]);
        assert!(callees.of(6).is_empty() && callees.of(7).is_empty());
        assert!(Stacks::default().callees().of(0).is_empty());
    }
}
