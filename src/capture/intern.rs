//! The tables of a segment being written: each thing once, found again by its content.

use std::hash::Hash;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::write_error::TablesFull;
use crate::format::limits;

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
