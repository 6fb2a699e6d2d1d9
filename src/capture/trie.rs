//! Finding a stack among those of a segment.
//!
//! A trie of which long stretches have no branch, so it is kept as *runs*: nodes with successive numbers of which each
//! is the caller of the next. What a stack has in common with earlier ones is compared along a run, which is memory in
//! order; only where it leaves a run is a hash table asked. What is new of it becomes one run.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::branches::Branches;
use super::write_error::TablesFull;
use crate::format::limits;

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
        }
    }
}

impl StackTrie {
    /// The node of a stack, leaf first; 0 when it is empty. `frames` is not deeper than [`limits::STACK_DEPTH`].
    /// A stack for which there is no room leaves nothing behind.
    pub fn intern(&mut self, frames: &[u64]) -> Result<Node, TablesFull> {
        let mut node: Node = 0;
        let mut rest = frames;
        while let Some((first, callees)) = rest.split_last() {
            let hash = (self.hasher.hash_one((node, *first)) >> 32) as u32;
            let known = self.branches.find(hash, |head| {
                let (parent, nodes) = self.run_at(head)?;
                let (address, more) = nodes.split_first()?;
                (parent == node && address == first).then_some((head, more))
            });
            let Some((head, more)) = known else {
                return self.append(node, rest, hash);
            };
            let known = more
                .iter()
                .zip(callees.iter().rev())
                .take_while(|(known, frame)| known == frame)
                .count();
            node = head + 1 + known as u32;
            rest = callees.get(..callees.len() - known).unwrap_or_default();
        }
        Ok(node)
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
    }
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

    proptest! {
        /// Few addresses, so that stacks branch, recur and end inside each other.
        #[test]
        fn stacks_come_out_as_they_went_in(
            stacks in vec(vec(0u64..3, 0..90), 0..60),
            again in vec(any::<proptest::sample::Index>(), 0..20),
        ) {
            let mut trie = StackTrie::default();
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
