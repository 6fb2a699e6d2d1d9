//! The tables of a segment being written: each thing once, found again by its content.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::write_error::TablesFull;
use crate::format::limits;
use crate::format::segment::StackNode;

/// Numbers for values that are not looked at again: strings, files, mappings, lists, tasks.
#[derive(Debug)]
pub struct Interner<T> {
    ids: HashMap<T, u32, RandomState>,
}

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner {
            ids: HashMap::with_hasher(RandomState::default()),
        }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The number of `key`; a new one is made of `owned(key)` and also given to `pending`.
    pub fn intern<Q>(
        &mut self,
        key: &Q,
        pending: &mut Vec<T>,
        owned: impl Fn(&Q) -> T,
    ) -> Result<u32, TablesFull>
    where
        Q: ?Sized + Hash + hashbrown::Equivalent<T>,
    {
        if let Some(id) = self.ids.get(key) {
            return Ok(*id);
        }
        let id = self.ids.len();
        if id as u64 >= limits::TABLE {
            return Err(TablesFull);
        }
        self.ids.insert(owned(key), id as u32);
        pending.push(owned(key));
        Ok(id as u32)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.ids.clear();
    }
}

/// One stack trie with its addresses. Numbers given out while samples come in are provisional; when a
/// frame is made, addresses are numbered in ascending order and nodes in the order samples need them,
/// which is what makes them small on disk.
#[derive(Debug)]
pub struct StackInterner {
    hasher: RandomState,
    seed: u64,
    /// Most entries of each table.
    limit: usize,
    addresses: Vec<u64>,
    address_ids: HashTable<u32>,
    /// Node n is at n - 1; `address` is provisional.
    nodes: Vec<StackNode>,
    node_ids: HashTable<u32>,
    /// Hash of the caller chain of a stack, and its node.
    callers: HashTable<Callers>,
    /// By provisional number: the number in the file.
    final_addresses: Vec<u32>,
    /// By provisional number - 1: the number in the file, 0 while there is none.
    final_nodes: Vec<u32>,
    written_nodes: u32,
    path: Vec<u32>,
    fresh: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Callers {
    hash: [u64; 2],
    node: u32,
}

impl Default for StackInterner {
    fn default() -> StackInterner {
        let hasher = RandomState::default();
        StackInterner {
            // Unknown to the sampled programs, so that none can make stacks that collide.
            seed: std::hash::RandomState::new().hash_one(0u8),
            hasher,
            limit: limits::TABLE as usize,
            addresses: Vec::new(),
            address_ids: HashTable::new(),
            nodes: Vec::new(),
            node_ids: HashTable::new(),
            callers: HashTable::new(),
            final_addresses: Vec::new(),
            final_nodes: Vec::new(),
            written_nodes: 0,
            path: Vec::new(),
            fresh: Vec::new(),
        }
    }
}

impl StackInterner {
    /// The provisional number of a stack, leaf first; 0 when it is empty. `frames` is not deeper than
    /// [`limits::STACK_DEPTH`].
    pub fn intern(&mut self, frames: &[u64]) -> Result<u32, TablesFull> {
        let Some((leaf, callers)) = frames.split_first() else {
            return Ok(0);
        };
        let parent = self.callers(callers)?;
        self.child(parent, *leaf)
    }

    /// The node of a caller chain. Most samples share it with an earlier one, whatever their leaf.
    fn callers(&mut self, callers: &[u64]) -> Result<u32, TablesFull> {
        if callers.is_empty() {
            return Ok(0);
        }
        let hash = xxh3_128_with_seed(bytemuck::cast_slice(callers), self.seed);
        let hash = [hash as u64, (hash >> 64) as u64];
        if let Some(found) = self.callers.find(hash[0], |c| c.hash == hash) {
            return Ok(found.node);
        }
        let mut frames = callers.iter().rev();
        let node = frames.try_fold(0, |parent, address| self.child(parent, *address))?;
        let found = Callers { hash, node };
        self.callers.insert_unique(hash[0], found, |c| c.hash[0]);
        Ok(node)
    }

    /// The node of `address` called from `parent`. One that finds no room leaves its callers in the trie,
    /// which are written only if a sample needs them.
    fn child(&mut self, parent: u32, address: u64) -> Result<u32, TablesFull> {
        let address = self.address(address)?;
        let node = StackNode { parent, address };
        let StackInterner {
            hasher,
            nodes,
            node_ids,
            ..
        } = self;
        let hash = hasher.hash_one(node);
        let at = |id: &u32| nodes.get(*id as usize - 1);
        if let Some(id) = node_ids.find(hash, |id| at(id) == Some(&node)) {
            return Ok(*id);
        }
        if nodes.len() >= self.limit {
            return Err(TablesFull);
        }
        let id = nodes.len() as u32 + 1;
        node_ids.insert_unique(hash, id, |id| hasher.hash_one(at(id).unwrap_or(&node)));
        nodes.push(node);
        self.final_nodes.push(0);
        Ok(id)
    }

    fn address(&mut self, address: u64) -> Result<u32, TablesFull> {
        let StackInterner {
            hasher,
            addresses,
            address_ids,
            ..
        } = self;
        let hash = hasher.hash_one(address);
        let at = |id: &u32| addresses.get(*id as usize);
        if let Some(id) = address_ids.find(hash, |id| at(id) == Some(&address)) {
            return Ok(*id);
        }
        if addresses.len() >= self.limit {
            return Err(TablesFull);
        }
        let id = addresses.len() as u32;
        address_ids.insert_unique(hash, id, |id| hasher.hash_one(at(id).unwrap_or(&address)));
        addresses.push(address);
        Ok(id)
    }

    /// Appends the addresses that are new since the last call, ascending, and fixes their numbers.
    pub fn write_addresses(&mut self, out: &mut Vec<u64>) {
        let StackInterner {
            addresses,
            final_addresses,
            fresh,
            ..
        } = self;
        let written = final_addresses.len();
        fresh.clear();
        fresh.extend(written as u32..addresses.len() as u32);
        fresh.sort_unstable_by_key(|id| addresses.get(*id as usize));
        final_addresses.resize(addresses.len(), 0);
        for (i, id) in fresh.iter().enumerate() {
            if let Some((place, address)) = final_addresses
                .get_mut(*id as usize)
                .zip(addresses.get(*id as usize))
            {
                *place = (written + i) as u32;
                out.push(*address);
            }
        }
    }

    /// The number in the file of the stack with this provisional number; appends the nodes it needs that
    /// are not in the file yet. [`StackInterner::write_addresses`] comes first.
    pub fn write_stack(&mut self, stack: u32, out: &mut Vec<StackNode>) -> u32 {
        let StackInterner {
            nodes,
            final_nodes,
            final_addresses,
            path,
            written_nodes,
            ..
        } = self;
        path.clear();
        let mut node = stack;
        let mut parent = 0;
        while let Some(index) = (node as usize).checked_sub(1) {
            match final_nodes.get(index) {
                Some(0) => path.push(node),
                Some(known) => {
                    parent = *known;
                    break;
                }
                None => break,
            }
            node = nodes.get(index).map_or(0, |n| n.parent);
        }
        for node in path.iter().rev() {
            let index = *node as usize - 1;
            let Some((content, place)) = nodes.get(index).zip(final_nodes.get_mut(index)) else {
                continue;
            };
            let address = final_addresses
                .get(content.address as usize)
                .copied()
                .unwrap_or(0);
            out.push(StackNode { parent, address });
            *written_nodes += 1;
            *place = *written_nodes;
            parent = *written_nodes;
        }
        parent
    }

    /// The largest of the tables, in entries.
    pub fn len(&self) -> usize {
        self.nodes
            .len()
            .max(self.addresses.len())
            .max(2 * self.callers.len())
    }

    /// Forgets all stacks; their memory is kept for the next ones.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.address_ids.clear();
        self.nodes.clear();
        self.node_ids.clear();
        self.callers.clear();
        self.final_addresses.clear();
        self.final_nodes.clear();
        self.written_nodes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_get_equal_numbers_and_share_their_callers() {
        let mut stacks = StackInterner::default();
        let a = stacks.intern(&[10, 2, 1]).unwrap();
        let b = stacks.intern(&[11, 2, 1]).unwrap();
        assert_ne!(a, b);
        assert_eq!(stacks.intern(&[10, 2, 1]), Ok(a));
        assert_eq!(stacks.nodes.len(), 4);
        assert_eq!(stacks.intern(&[]), Ok(0));
        let caller = stacks.intern(&[2, 1]).unwrap();
        assert_eq!(stacks.nodes.len(), 4);
        assert_eq!(
            stacks.nodes.get(a as usize - 1).map(|n| n.parent),
            Some(caller)
        );
    }

    #[test]
    fn full_tables_refuse_new_stacks_and_know_old_ones() {
        let mut stacks = StackInterner {
            limit: 3,
            ..StackInterner::default()
        };
        let old = stacks.intern(&[3, 2]).unwrap();
        assert_eq!(stacks.intern(&[5, 4]), Err(TablesFull));
        assert_eq!(stacks.intern(&[3, 2]), Ok(old));
        assert_eq!(stacks.intern(&[6, 2]), Err(TablesFull));
        let mut addresses = Vec::new();
        stacks.write_addresses(&mut addresses);
        assert_eq!(addresses, [2, 3, 4]);
        let mut nodes = Vec::new();
        assert_eq!(stacks.write_stack(old, &mut nodes), 2);
        stacks.clear();
        assert!(stacks.intern(&[5, 4]).is_ok());
    }

    #[test]
    fn numbers_in_the_file_are_ordered_by_address_and_by_need() {
        let mut stacks = StackInterner::default();
        let a = stacks.intern(&[5, 9]).unwrap();
        let b = stacks.intern(&[u64::MAX, 0]).unwrap();
        let mut addresses = Vec::new();
        stacks.write_addresses(&mut addresses);
        assert_eq!(addresses, [0, 5, 9, u64::MAX]);
        let mut nodes = Vec::new();
        assert_eq!(stacks.write_stack(b, &mut nodes), 2);
        assert_eq!(stacks.write_stack(a, &mut nodes), 4);
        assert_eq!(stacks.write_stack(a, &mut nodes), 4);
        assert_eq!(stacks.write_stack(0, &mut nodes), 0);
        let node = |parent, address| StackNode { parent, address };
        assert_eq!(nodes, [node(0, 0), node(1, 3), node(0, 2), node(3, 1)]);

        let c = stacks.intern(&[7, 5, 9]).unwrap();
        addresses.clear();
        nodes.clear();
        stacks.write_addresses(&mut addresses);
        assert_eq!(addresses, [7]);
        assert_eq!(stacks.write_stack(c, &mut nodes), 5);
        assert_eq!(nodes, [node(4, 4)]);
    }
}
