//! Finding a stack among those of a segment.
//!
//! A trie of which long stretches have no branch, so it is kept as *runs*: nodes with successive numbers of which each
//! is the caller of the next. What a stack has in common with earlier ones is compared along a run, which is memory in
//! order; only where it leaves a run is a hash table asked. What is new of it becomes one run.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::write_error::TablesFull;
use crate::format::limits;

/// A stack: the number of its leaf node from 1 on, 0 for the empty stack. Not the number it has in the file.
pub type Node = u32;

/// Every stack of a segment.
#[derive(Debug)]
pub struct StackTrie {
    /// Seeded anew for each: sampled programs cannot know which stacks would collide.
    hasher: RandomState,
    /// Most nodes.
    limit: usize,
    /// Of node n at n - 1.
    addresses: Vec<u64>,
    /// Ascending.
    runs: Vec<Run>,
    starts: Starts,
    /// Indexes into `runs`, by the parent and the first address of each.
    branches: HashTable<u32>,
}

/// Nodes from one number on up to the next run, each the parent of the one behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of its first node, which has the number one above.
    pub start: u32,
    /// Of its first node.
    pub parent: Node,
}

impl Default for StackTrie {
    fn default() -> StackTrie {
        StackTrie {
            hasher: RandomState::default(),
            limit: limits::TABLE as usize,
            addresses: Vec::new(),
            runs: Vec::new(),
            starts: Starts::default(),
            branches: HashTable::new(),
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
            let Some(run) = self.branch(node, *first) else {
                return self.append(node, rest);
            };
            let more = self.nodes(run).get(1..).unwrap_or_default();
            let known = more
                .iter()
                .zip(callees.iter().rev())
                .take_while(|(known, frame)| known == frame)
                .count();
            node = self.start(run) + known as u32 + 1;
            rest = callees.get(..callees.len() - known).unwrap_or_default();
        }
        Ok(node)
    }

    /// The run that begins with `address`, called from `parent`.
    fn branch(&self, parent: Node, address: u64) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, address));
        let found = self
            .branches
            .find(hash, |index| self.key(*index) == Some((parent, address)));
        found.copied()
    }

    fn key(&self, run: u32) -> Option<(Node, u64)> {
        let run = self.runs.get(run as usize)?;
        Some((run.parent, *self.addresses.get(run.start as usize)?))
    }

    /// Makes all of `frames`, called from `parent`, a new run.
    fn append(&mut self, parent: Node, frames: &[u64]) -> Result<Node, TablesFull> {
        let start = self.addresses.len();
        if frames.len() > self.limit.saturating_sub(start) {
            return Err(TablesFull);
        }
        let Some(first) = frames.last() else {
            return Ok(parent);
        };
        let index = self.runs.len() as u32;
        self.starts.append(start, frames.len(), index);
        self.addresses.extend(frames.iter().rev());
        let start = start as u32;
        self.runs.push(Run { start, parent });
        let StackTrie {
            hasher,
            addresses,
            runs,
            branches,
            ..
        } = self;
        let hash = hasher.hash_one((parent, *first));
        branches.insert_unique(hash, index, |index| {
            let run = runs.get(*index as usize);
            let key = run.and_then(|run| Some((run.parent, *addresses.get(run.start as usize)?)));
            hasher.hash_one(key.unwrap_or_default())
        });
        Ok(addresses.len() as Node)
    }

    fn start(&self, run: u32) -> u32 {
        self.runs.get(run as usize).map_or(0, |run| run.start)
    }

    /// The run a node is in; `None` for the empty stack.
    pub fn run_of(&self, node: Node) -> Option<u32> {
        self.starts.run_of((node as usize).checked_sub(1)?)
    }

    /// A run.
    pub fn run(&self, run: u32) -> Option<&Run> {
        self.runs.get(run as usize)
    }

    /// Addresses of the nodes of a run, outermost first.
    pub fn nodes(&self, run: u32) -> &[u64] {
        let run = run as usize;
        let end = self.runs.get(run + 1).map(|next| next.start as usize);
        let nodes = self.runs.get(run).and_then(|run| {
            let end = end.unwrap_or(self.addresses.len());
            self.addresses.get(run.start as usize..end)
        });
        nodes.unwrap_or_default()
    }

    /// Addresses of the nodes in the order of their numbers.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// How many runs there are.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Forgets all stacks; their memory is kept for the next ones.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.runs.clear();
        self.starts.clear();
        self.branches.clear();
    }
}

/// Which nodes begin a run, so that the run of a node is found in one look.
#[derive(Debug, Default)]
struct Starts {
    words: Vec<Word>,
}

/// Of 64 nodes.
#[derive(Debug, Clone, Copy)]
struct Word {
    bits: u64,
    /// Runs that begin before.
    before: u32,
}

impl Starts {
    /// Adds the run with this number: the `length` nodes from index `start` on, which follow those there are.
    fn append(&mut self, start: usize, length: usize, run: u32) {
        while self.words.len() * 64 < start + length {
            let begins_before = self.words.len() * 64 > start;
            self.words.push(Word {
                bits: 0,
                before: run + u32::from(begins_before),
            });
        }
        if let Some(word) = self.words.get_mut(start / 64) {
            word.bits |= 1 << (start % 64);
        }
    }

    fn run_of(&self, index: usize) -> Option<u32> {
        let word = self.words.get(index / 64)?;
        let up_to = word.bits & (u64::MAX >> (63 - index % 64));
        (word.before + up_to.count_ones()).checked_sub(1)
    }

    fn clear(&mut self) {
        self.words.clear();
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
            let Run { start, parent } = trie.runs[run as usize];
            let nodes = &trie.nodes(run)[..(node - start) as usize];
            frames.extend(nodes.iter().rev());
            node = parent;
        }
        frames
    }

    #[test]
    fn equal_stacks_get_equal_nodes_and_share_their_callers() {
        let mut trie = StackTrie::default();
        let a = trie.intern(&[10, 2, 1]).unwrap();
        let b = trie.intern(&[11, 2, 1]).unwrap();
        assert_ne!(a, b);
        assert_eq!(trie.intern(&[10, 2, 1]), Ok(a));
        assert_eq!(trie.addresses(), [1, 2, 10, 11]);
        assert_eq!(trie.intern(&[]), Ok(0));
        assert_eq!(trie.intern(&[2, 1]), Ok(2));
        assert_eq!(
            trie.runs,
            [(0, 0), (3, 2)].map(|(start, parent)| Run { start, parent })
        );
        assert_eq!(frames(&trie, b), [11, 2, 1]);
    }

    #[test]
    fn recursion_is_followed_to_its_end() {
        let mut trie = StackTrie::default();
        assert_eq!(trie.intern(&[7; 100]), Ok(100));
        assert_eq!(trie.intern(&[7; 100]), Ok(100));
        assert_eq!(trie.intern(&[7; 64]), Ok(64));
        assert_eq!(trie.intern(&[7; 200]), Ok(200));
        assert_eq!(trie.run_of(100), Some(0));
        assert_eq!(trie.run_of(101), Some(1));
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
        assert_eq!(trie.addresses(), [2, 3], "nothing of a refused stack");
        assert_eq!(trie.intern(&[6, 2]), Ok(3));
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
