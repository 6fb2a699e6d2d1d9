//! What the file calls the stacks of a [`StackTrie`]: addresses are numbered in ascending order frame by frame, nodes in
//! the order samples need them, which is what makes them small on disk.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::trie::{Node, Run, StackTrie};
use crate::format::segment::StackNode;

/// The numbers given out in a segment.
#[derive(Debug, Default)]
pub struct Numbering {
    /// Of addresses in the file.
    addresses: HashMap<u64, u32, RandomState>,
    /// How far in the trie addresses have their numbers.
    addressed: u32,
    /// Of the first node of each run in the file, 0 where there is none. The others of the run count on.
    runs: Vec<u32>,
    written: u32,
    /// Runs to be written, innermost first.
    path: Vec<Run>,
}

impl Numbering {
    /// Appends the addresses that are new since the last call, ascending, and fixes their numbers.
    pub fn write_addresses(&mut self, trie: &StackTrie, out: &mut Vec<u64>) {
        let before = out.len();
        let known = self.addresses.len();
        for address in trie.new_addresses(&mut self.addressed) {
            self.addresses.entry(address).or_insert_with(|| {
                out.push(address);
                u32::MAX
            });
        }
        let new = out.get_mut(before..).unwrap_or_default();
        new.sort_unstable();
        for (number, address) in (known as u32..).zip(new) {
            self.addresses.insert(*address, number);
        }
    }

    /// The number in the file of a stack; appends the nodes it needs that are not in the file yet, by whole runs.
    /// [`Numbering::write_addresses`] comes first.
    pub fn write_stack(&mut self, trie: &StackTrie, stack: Node, out: &mut Vec<StackNode>) -> u32 {
        let Some(run) = trie.run_of(stack) else {
            return 0;
        };
        let first = match self.number(run) {
            Some(first) => first,
            None => self.write_runs(trie, run, out),
        };
        first + run.offset(stack)
    }

    /// The number of a run's first node, if it has one.
    fn number(&self, run: Run) -> Option<u32> {
        self.runs
            .get(run.index as usize)
            .copied()
            .filter(|first| *first > 0)
    }

    /// Writes a run, after those it hangs below. Gives the number of its first node.
    fn write_runs(&mut self, trie: &StackTrie, run: Run, out: &mut Vec<StackNode>) -> u32 {
        self.runs.resize(trie.run_count(), 0);
        self.path.clear();
        self.path.push(run);
        let (mut above, _) = trie.run(run);
        while let Some(run) = trie.run_of(above).filter(|run| self.number(*run).is_none()) {
            self.path.push(run);
            (above, _) = trie.run(run);
        }
        let mut first = 0;
        while let Some(run) = self.path.pop() {
            let (parent, nodes) = trie.run(run);
            let above = trie.run_of(parent);
            let mut parent = above.map_or(0, |above| {
                self.number(above).unwrap_or_default() + above.offset(parent)
            });
            first = self.written + 1;
            for address in nodes {
                let address = self.addresses.get(address).copied().unwrap_or_default();
                out.push(StackNode { parent, address });
                self.written += 1;
                parent = self.written;
            }
            if let Some(place) = self.runs.get_mut(run.index as usize) {
                *place = first;
            }
        }
        first
    }

    /// Forgets all numbers; memory is kept.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.addressed = 0;
        self.runs.clear();
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn node(parent: u32, address: u32) -> StackNode {
        StackNode { parent, address }
    }

    #[test]
    fn addresses_ascend_and_nodes_come_as_they_are_needed() {
        let (mut trie, mut numbers) = (StackTrie::default(), Numbering::default());
        let a = trie.intern(&[5, 9]).unwrap();
        let b = trie.intern(&[u64::MAX, 0]).unwrap();
        let mut addresses = Vec::new();
        numbers.write_addresses(&trie, &mut addresses);
        assert_eq!(addresses, [0, 5, 9, u64::MAX]);
        let mut nodes = Vec::new();
        assert_eq!(numbers.write_stack(&trie, b, &mut nodes), 2);
        assert_eq!(numbers.write_stack(&trie, a, &mut nodes), 4);
        assert_eq!(numbers.write_stack(&trie, a, &mut nodes), 4);
        assert_eq!(numbers.write_stack(&trie, 0, &mut nodes), 0);
        assert_eq!(nodes, [node(0, 0), node(1, 3), node(0, 2), node(3, 1)]);

        let c = trie.intern(&[7, 5, 9]).unwrap();
        addresses.clear();
        nodes.clear();
        numbers.write_addresses(&trie, &mut addresses);
        assert_eq!(addresses, [7]);
        assert_eq!(numbers.write_stack(&trie, c, &mut nodes), 5);
        assert_eq!(nodes, [node(4, 4)]);
    }

    #[test]
    fn a_run_below_the_middle_of_another_gets_its_parent() {
        let (mut trie, mut numbers) = (StackTrie::default(), Numbering::default());
        trie.intern(&[4, 3, 2, 1]).unwrap();
        trie.intern(&[6, 5, 2, 1]).unwrap();
        let deep = trie.intern(&[7, 5, 2, 1]).unwrap();
        let (mut addresses, mut nodes) = (Vec::new(), Vec::new());
        numbers.write_addresses(&trie, &mut addresses);
        assert_eq!(numbers.write_stack(&trie, deep, &mut nodes), 7);
        let run = [node(0, 0), node(1, 1), node(2, 2), node(3, 3)];
        assert_eq!(nodes[..4], run);
        assert_eq!(nodes[4..], [node(2, 4), node(5, 5), node(5, 6)]);
    }

    proptest! {
        #[test]
        fn every_stack_is_in_the_file_with_parents_first(
            frames in vec(vec((vec(0u64..4, 0..30), any::<bool>()), 0..20), 1..4)
        ) {
            let (mut trie, mut numbers) = (StackTrie::default(), Numbering::default());
            let (mut addresses, mut nodes) = (Vec::new(), Vec::new());
            for frame in &frames {
                let ids: Vec<_> = frame.iter().map(|(stack, _)| trie.intern(stack).unwrap()).collect();
                let new = addresses.len();
                numbers.write_addresses(&trie, &mut addresses);
                prop_assert!(addresses[new..].is_sorted());
                // Some are never written, or wait for a later frame.
                let wanted = frame.iter().zip(ids).filter(|((_, wanted), _)| *wanted);
                for ((stack, _), id) in wanted {
                    let mut number = numbers.write_stack(&trie, id, &mut nodes);
                    let mut back = Vec::new();
                    while number > 0 {
                        let node = nodes[number as usize - 1];
                        prop_assert!(node.parent < number);
                        back.push(addresses[node.address as usize]);
                        number = node.parent;
                    }
                    prop_assert_eq!(&back, stack);
                }
            }
            let mut distinct = addresses.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), addresses.len());
        }
    }
}
