//! Finding a stack among those of a segment.
//!
//! A trie of which long stretches have no branch, so it is kept as *runs*: nodes with successive numbers of which each
//! is the caller of the next. What a stack has in common with earlier ones is compared along a run, which is memory in
//! order; only where it leaves a run is a hash table asked. What is new of it becomes one run. Most stacks have callers
//! that came lately: those are found at once ([`super::callers`]), whatever their depth, and only the leaf is looked for.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::branches::Branches;
use super::callers::{Callers, Key, Place};
use super::write_error::TablesFull;
use crate::format::limits;
use crate::prefetch::prefetch;

/// A stack: where its leaf node is in the trie, 0 for the empty stack. Not the number it has in the file.
pub type Node = u32;

/// Every stack of a segment.
#[derive(Debug)]
pub struct StackTrie {
    /// Seeded anew for each: sampled programs cannot know which stacks would collide.
    hasher: RandomState,
    /// Most nodes.
    limit: usize,
    /// Each run: the [`Head`], then the address of each node.
    words: Vec<u64>,
    run_count: u32,
    /// Places of heads.
    starts: Starts,
    /// Places of heads, by the run's parent and first address.
    branches: Branches,
    /// Where the callers of late stacks are.
    callers: Callers,
}

/// Fewer callers than this are followed through the trie: that takes no longer.
const FEW_CALLERS: usize = 6;
/// Stacks that are looked for together at most: enough that memory is always busy.
pub const TOGETHER: usize = 16;

/// How far looking for a stack has come.
#[derive(Debug, Clone, Copy, Default)]
struct Look<'a> {
    leaf: u64,
    /// Of the callers, if there are enough of them.
    key: Option<Key>,
    callers: Option<Place>,
    /// Of what is looked for in a hash table: callers and leaf, or `above` and the outermost of `rest`.
    hash: u32,
    /// A run that may begin with it.
    head: Option<u32>,
    /// The node looked for.
    next: Option<Node>,
    /// Of a stack whose callers did not come lately: it is followed, from its outermost frame on,
    under_way: bool,
    /// up to here so far,
    above: Place,
    /// and these are the frames below.
    rest: &'a [u64],
}

/// What precedes the nodes of a run in memory, so that one cache miss brings both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    parent: Node,
    length: u32,
}

impl From<u64> for Head {
    fn from(word: u64) -> Head {
        Head {
            parent: word as u32,
            length: (word >> 32) as u32,
        }
    }
}

impl From<Head> for u64 {
    fn from(head: Head) -> u64 {
        u64::from(head.length) << 32 | u64::from(head.parent)
    }
}

/// Nodes of which each is the parent of the one behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// 0, 1, 2, ... over the segment.
    pub index: u32,
    /// Where its head is: its first node is the one behind.
    head: u32,
}

impl Run {
    /// How far `node`, which is in this run, is from its first.
    pub fn offset(&self, node: Node) -> u32 {
        node.saturating_sub(self.head + 1)
    }
}

impl Default for StackTrie {
    fn default() -> StackTrie {
        StackTrie {
            hasher: RandomState::default(),
            limit: limits::TABLE as usize,
            words: Vec::new(),
            run_count: 0,
            starts: Starts::default(),
            branches: Branches::default(),
            callers: Callers::default(),
        }
    }
}

impl StackTrie {
    /// The node of a stack, leaf first; 0 when it is empty. `frames` is not deeper than [`limits::STACK_DEPTH`].
    /// A stack for which there is no room leaves nothing behind.
    pub fn intern(&mut self, frames: &[u64]) -> Result<Node, TablesFull> {
        let Some((leaf, callers)) = frames.split_first() else {
            return Ok(0);
        };
        if callers.len() < FEW_CALLERS {
            return self.follow(Place::default(), frames).map(|(node, _)| node);
        }
        self.intern_as(self.callers.key(callers), *leaf, Place::default(), frames)
    }

    /// As [`StackTrie::intern`] of a stack with this leaf, whose callers have this key. `rest` of it is below `above`.
    fn intern_as(
        &mut self,
        key: Key,
        leaf: u64,
        above: Place,
        rest: &[u64],
    ) -> Result<Node, TablesFull> {
        if let Some(place) = self.callers.get(key) {
            let hash = self.branch_hash(place.node, leaf);
            return match self.next(place, leaf) {
                Some(node) => Ok(node),
                None => self.leaf(place, leaf, hash),
            };
        }
        let (node, place) = self.follow(above, rest)?;
        self.callers.put(key, place);
        Ok(node)
    }

    /// As [`StackTrie::intern`] of each of `stacks`, into `nodes`, at most [`TOGETHER`] of them. What they have to wait for
    /// from memory they wait for together.
    pub fn intern_together(
        &mut self,
        stacks: &[&[u64]],
        nodes: &mut [Result<Node, TablesFull>; TOGETHER],
    ) {
        let mut looks = [Look::default(); TOGETHER];
        for (look, stack) in looks.iter_mut().zip(stacks) {
            if let Some((leaf, callers)) = stack.split_first()
                && callers.len() >= FEW_CALLERS
            {
                look.leaf = *leaf;
                look.rest = stack;
                look.key = Some(self.callers.key(callers));
            }
        }
        // The steps of one wait for each other; those of different ones do not.
        for key in looks.iter().filter_map(|look| look.key) {
            self.callers.prefetch(key);
        }
        for look in &mut looks {
            look.callers = look.key.and_then(|key| self.callers.get(key));
            look.under_way = look.key.is_some() && look.callers.is_none();
            if let Some(callers) = look.callers {
                look.hash = self.branch_hash(callers.node, look.leaf);
                self.branches.prefetch(look.hash);
                self.prefetch(callers.node + 1);
            }
        }
        for look in &mut looks {
            if let Some(callers) = look.callers {
                look.next = self.next(callers, look.leaf);
                look.head = self.branches.first(look.hash);
                if let Some(head) = look.head {
                    self.prefetch(head);
                }
            }
        }
        for look in &mut looks {
            if let Some(head) = look.head
                && let Some(callers) = look.callers
                && look.next.is_none()
                && let Some((parent, nodes)) = self.run_at(head)
                && (parent, nodes.first()) == (callers.node, Some(&look.leaf))
            {
                look.next = Some(head + 1);
            }
        }
        self.follow_together(&mut looks);
        for ((look, stack), node) in looks.iter().zip(stacks).zip(nodes) {
            *node = match (look.next, look.callers, look.key) {
                (Some(node), _, _) => Ok(node),
                (None, Some(callers), _) => self.leaf(callers, look.leaf, look.hash),
                (None, None, Some(key)) => self.intern_as(key, look.leaf, look.above, look.rest),
                (None, None, None) => self.intern(stack),
            };
        }
    }

    /// Follows stacks as far as they are known, but for their last step.
    fn follow_together(&self, looks: &mut [Look<'_>; TOGETHER]) {
        loop {
            let mut ended = true;
            for look in looks.iter_mut().filter(|look| look.under_way) {
                if let Some(first) = look.rest.last() {
                    look.hash = self.branch_hash(look.above.node, *first);
                    self.branches.prefetch(look.hash);
                    ended = false;
                }
            }
            if ended {
                return;
            }
            for look in looks.iter_mut().filter(|look| look.under_way) {
                look.head = self.branches.first(look.hash);
                if let Some(head) = look.head {
                    self.prefetch(head);
                    self.prefetch(head + 8);
                }
            }
            for look in looks.iter_mut().filter(|look| look.under_way) {
                let below = self.below(look.head, look.above, look.rest);
                look.under_way = below.is_some();
                (look.above, look.rest) = below.unwrap_or((look.above, look.rest));
            }
        }
    }

    /// Where the frames in `rest`, which are below `above`, leave the run with this head, and which are left then. `None` if
    /// they do not begin as the run does, or if none are left.
    fn below<'a>(
        &self,
        head: Option<u32>,
        above: Place,
        rest: &'a [u64],
    ) -> Option<(Place, &'a [u64])> {
        let (head, (first, callees)) = (head?, rest.split_last()?);
        let (parent, nodes) = self.run_at(head)?;
        let (address, more) = nodes.split_first()?;
        if (parent, address) != (above.node, first) {
            return None;
        }
        let known = common(more, callees);
        let rest = callees
            .get(..callees.len() - known)
            .filter(|rest| !rest.is_empty())?;
        let node = head + 1 + known as u32;
        let goes_on = known < more.len();
        Some((Place { node, goes_on }, rest))
    }

    /// The node of the stack of which `rest`, not empty, is below `above`, and the place of its callers.
    fn follow(&mut self, mut above: Place, mut rest: &[u64]) -> Result<(Node, Place), TablesFull> {
        loop {
            let Some((first, callees)) = rest.split_last() else {
                return Ok((above.node, above));
            };
            let hash = self.branch_hash(above.node, *first);
            let Some((head, more)) = self.branch(above.node, *first, hash) else {
                let node = self.append(above.node, rest, hash)?;
                let callers = if rest.len() > 1 {
                    Place::before(node)
                } else {
                    above
                };
                return Ok((node, callers));
            };
            let known = common(more, callees);
            let node = head + 1 + known as u32;
            let goes_on = known < more.len();
            rest = callees.get(..callees.len() - known).unwrap_or_default();
            if rest.is_empty() {
                let callers = if known > 0 {
                    Place::before(node)
                } else {
                    above
                };
                return Ok((node, callers));
            }
            above = Place { node, goes_on };
        }
    }

    /// Begins to load a node.
    fn prefetch(&self, node: Node) {
        if let Some(word) = self.words.get(node as usize) {
            prefetch(word);
        }
    }

    /// The node behind these callers in memory, if it is of this leaf.
    fn next(&self, callers: Place, leaf: u64) -> Option<Node> {
        let next = callers.node + 1;
        let is = callers.goes_on && self.words.get(next as usize) == Some(&leaf);
        is.then_some(next)
    }

    /// The node of the stack with this leaf and these callers, where a run begins or is to begin; `hash` is of both.
    fn leaf(&mut self, callers: Place, leaf: u64, hash: u32) -> Result<Node, TablesFull> {
        match self.branch(callers.node, leaf, hash) {
            Some((head, _)) => Ok(head + 1),
            None => self.append(callers.node, &[leaf], hash),
        }
    }

    fn branch_hash(&self, parent: Node, first: u64) -> u32 {
        (self.hasher.hash_one((parent, first)) >> 32) as u32
    }

    /// The run below `parent` that begins with this address: where its head is, and the nodes behind its first. `hash` is of
    /// the two.
    fn branch(&self, parent: Node, first: u64, hash: u32) -> Option<(u32, &[u64])> {
        self.branches.find(hash, |head| {
            let (above, nodes) = self.run_at(head)?;
            let (address, more) = nodes.split_first()?;
            (above == parent && *address == first).then_some((head, more))
        })
    }

    /// Makes all of `frames`, which are not empty, a new run called from `parent`; `hash` is of that and the first.
    fn append(&mut self, parent: Node, frames: &[u64], hash: u32) -> Result<Node, TablesFull> {
        if frames.len() > self.limit.saturating_sub(self.node_count()) {
            return Err(TablesFull);
        }
        let head = self.words.len();
        let length = frames.len() as u32;
        self.words.push(Head { parent, length }.into());
        self.words.extend(frames.iter().rev());
        self.starts.append(head, self.words.len(), self.run_count);
        self.branches.insert(hash, head as u32);
        self.run_count += 1;
        Ok(self.words.len() as Node - 1)
    }

    /// Parent and addresses of the run whose head is there.
    fn run_at(&self, head: u32) -> Option<(Node, &[u64])> {
        let (word, nodes) = self.words.get(head as usize..)?.split_first()?;
        let head = Head::from(*word);
        Some((head.parent, nodes.get(..head.length as usize)?))
    }

    /// The run a node is in; `None` for the empty stack.
    pub fn run_of(&self, node: Node) -> Option<Run> {
        if node == 0 {
            None
        } else {
            self.starts.run_of(node)
        }
    }

    /// The parent of a run's first node, and the addresses of its nodes, outermost first.
    pub fn run(&self, run: Run) -> (Node, &[u64]) {
        self.run_at(run.head).unwrap_or_default()
    }

    /// Addresses of the runs from the one on whose head is at `*from`, which becomes the end of the last.
    pub fn new_addresses<'a>(&'a self, from: &'a mut u32) -> impl Iterator<Item = u64> + 'a {
        let runs = std::iter::from_fn(move || {
            let (_, nodes) = self.run_at(*from)?;
            *from += 1 + nodes.len() as u32;
            Some(nodes)
        });
        runs.flatten().copied()
    }

    /// How many runs there are.
    pub fn run_count(&self) -> usize {
        self.run_count as usize
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.words.len() - self.run_count as usize
    }

    /// Forgets all stacks; their memory is kept for the next ones.
    pub fn clear(&mut self) {
        self.words.clear();
        self.run_count = 0;
        self.starts.clear();
        self.branches.clear();
        self.callers.clear();
    }
}

/// How many of these nodes, outermost first, are those of the outermost of `frames`.
fn common(nodes: &[u64], frames: &[u64]) -> usize {
    let pairs = nodes.iter().zip(frames.iter().rev());
    pairs.take_while(|(node, frame)| node == frame).count()
}

/// Where runs begin, so that the run of a node is found in one look.
#[derive(Debug, Default)]
struct Starts {
    groups: Vec<Group>,
}

/// Of 64 words.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Which of them are heads.
    heads: u64,
    /// Runs that begin before.
    before: u32,
}

impl Starts {
    /// Adds the run with this number, from its head to its end: it follows the one before.
    fn append(&mut self, head: usize, end: usize, run: u32) {
        while self.groups.len() * 64 < end {
            let begun = self.groups.len() * 64 > head;
            self.groups.push(Group {
                heads: 0,
                before: run + u32::from(begun),
            });
        }
        if let Some(group) = self.groups.get_mut(head / 64) {
            group.heads |= 1 << (head % 64);
        }
    }

    fn run_of(&self, node: Node) -> Option<Run> {
        let mut at = node as usize / 64;
        let group = self.groups.get(at)?;
        let mut heads = group.heads & (u64::MAX >> (63 - node % 64));
        let index = (group.before + heads.count_ones()).checked_sub(1)?;
        while heads == 0 {
            at = at.checked_sub(1)?;
            heads = self.groups.get(at)?.heads;
        }
        let head = at as u32 * 64 + heads.ilog2();
        Some(Run { index, head })
    }

    fn clear(&mut self) {
        self.groups.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The stack of a node, leaf first.
    fn frames(trie: &StackTrie, mut node: Node) -> Vec<u64> {
        let mut frames = Vec::new();
        while let Some(run) = trie.run_of(node) {
            let (parent, nodes) = trie.run(run);
            let nodes = &nodes[..=run.offset(node) as usize];
            frames.extend(nodes.iter().rev());
            node = parent;
        }
        frames
    }

    fn addresses(trie: &StackTrie) -> Vec<u64> {
        trie.new_addresses(&mut 0).collect()
    }

    #[test]
    fn equal_stacks_get_equal_nodes_and_share_their_callers() {
        let mut trie = StackTrie::default();
        let a = trie.intern(&[10, 2, 1]).unwrap();
        let b = trie.intern(&[11, 2, 1]).unwrap();
        assert_ne!(a, b);
        assert_eq!(trie.intern(&[10, 2, 1]), Ok(a));
        assert_eq!(addresses(&trie), [1, 2, 10, 11]);
        assert_eq!((trie.node_count(), trie.run_count()), (4, 2));
        assert_eq!(trie.intern(&[]), Ok(0));
        assert_eq!(trie.intern(&[2, 1]), Ok(2));
        assert_eq!(
            trie.run_of(b).map(|run| trie.run(run)),
            Some((2, &[11][..]))
        );
        assert_eq!(frames(&trie, b), [11, 2, 1]);
    }

    #[test]
    fn recursion_is_followed_to_its_end() {
        let mut trie = StackTrie::default();
        assert_eq!(trie.intern(&[7; 100]), Ok(100));
        assert_eq!(trie.intern(&[7; 100]), Ok(100));
        assert_eq!(trie.intern(&[7; 64]), Ok(64));
        assert_eq!(trie.intern(&[7; 200]), Ok(201));
        assert_eq!(trie.run_of(100), Some(Run { index: 0, head: 0 }));
        assert_eq!(
            trie.run_of(102),
            Some(Run {
                index: 1,
                head: 101
            })
        );
        assert_eq!(
            trie.run_of(201),
            Some(Run {
                index: 1,
                head: 101
            })
        );
    }

    #[test]
    fn full_tables_refuse_new_stacks_and_know_old_ones() {
        let mut trie = StackTrie {
            limit: 3,
            ..StackTrie::default()
        };
        let old = trie.intern(&[3, 2]).unwrap();
        assert_eq!(trie.intern(&[5, 4]), Err(TablesFull));
        assert_eq!(trie.intern(&[3, 2]), Ok(old));
        assert_eq!(addresses(&trie), [2, 3], "nothing of a refused stack");
        assert_eq!(trie.intern(&[6, 2]), Ok(4));
        assert_eq!(trie.intern(&[7, 2]), Err(TablesFull));
        trie.clear();
        assert_eq!(trie.intern(&[5, 4]), Ok(2));
    }

    #[test]
    fn leaves_below_known_callers_are_found_wherever_their_runs_lie() {
        let callers = [9, 8, 7, 6, 5, 4, 3, 2, 1];
        let with = |leaf: u64| [&[leaf][..], &callers].concat();
        let mut trie = StackTrie::default();
        let first = trie.intern(&with(20)).unwrap();
        let others: Vec<Node> = (21..40)
            .map(|leaf| trie.intern(&with(leaf)).unwrap())
            .collect();
        assert_eq!(trie.intern(&with(20)), Ok(first));
        assert_eq!(trie.intern(&callers), Ok(first - 1));
        for (leaf, node) in (21..).zip(others) {
            assert_eq!(trie.intern(&with(leaf)), Ok(node));
            assert_eq!(frames(&trie, node), with(leaf));
        }
        // What follows in memory the end of a run is no child of it.
        let deep = trie.intern(&[30, 29, 28, 27, 26, 25, 24, 23]).unwrap();
        let head = trie.words[deep as usize];
        trie.intern(&[77]).unwrap();
        let next = trie.words[deep as usize + 1];
        for leaf in [head, next] {
            let stack = [leaf, 30, 29, 28, 27, 26, 25, 24, 23];
            let node = trie.intern(&stack).unwrap();
            assert_eq!(trie.intern(&stack), Ok(node));
            assert_eq!(frames(&trie, node), stack);
        }
        trie.clear();
        assert_eq!(trie.intern(&with(20)), Ok(10));
    }

    proptest! {
        /// Few addresses, so that stacks branch, recur and end inside each other.
        #[test]
        fn stacks_come_out_as_they_went_in(
            stacks in vec(vec(0u64..3, 0..90), 0..60),
            again in vec(any::<proptest::sample::Index>(), 0..20),
        ) {
            let mut trie = StackTrie::default();
            let mut other = StackTrie::default();
            let all: Vec<&[u64]> = stacks.iter().map(Vec::as_slice).collect();
            for together in all.chunks(TOGETHER) {
                let mut nodes = [Ok(0); TOGETHER];
                other.intern_together(together, &mut nodes);
                for (stack, node) in together.iter().zip(nodes) {
                    prop_assert_eq!(&frames(&other, node.unwrap()), stack);
                    prop_assert_eq!(other.intern(stack), node);
                }
            }
            let mut nodes = HashMap::new();
            let repeated = again.iter().filter(|_| !stacks.is_empty()).map(|i| i.get(&stacks));
            for stack in stacks.iter().chain(repeated) {
                let node = trie.intern(stack).unwrap();
                prop_assert_eq!(*nodes.entry(stack.clone()).or_insert(node), node);
                prop_assert_eq!(&frames(&trie, node), stack);
            }
            let distinct: std::collections::HashSet<_> = nodes.values().collect();
            prop_assert_eq!(distinct.len(), nodes.len());
            for (stack, node) in &nodes {
                prop_assert_eq!(&frames(&trie, *node), stack);
            }
        }
    }
}
