//! Where the runs of a stack trie branch off: a hash table whose look-up costs one cache miss.

use crate::prefetch::prefetch;

/// Numbers by hash. What they stand for is compared by who asks.
#[derive(Debug, Default)]
pub struct Branches {
    /// A power of two of them, at most three quarters in use; one taken is found by going on from its hash.
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    hash: u32,
    /// The number + 1, 0 when the slot is free.
    entry: u32,
}

/// Slots of the smallest table.
const LEAST: usize = 1 << 10;

impl Branches {
    /// The first of those with this hash that `is` recognizes.
    pub fn find<T>(&self, hash: u32, mut is: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        // Ends: a quarter of the slots is free.
        while let Some(slot) = self.slots.get(at) {
            let number = slot.entry.checked_sub(1)?;
            if slot.hash == hash
                && let Some(found) = is(number)
            {
                return Some(found);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Begins to look for this hash.
    pub fn prefetch(&self, hash: u32) {
        let mask = self.slots.len().wrapping_sub(1);
        if let Some(slot) = self.slots.get(hash as usize & mask) {
            prefetch(slot);
        }
    }

    /// One with this hash, if the look-up of [`Branches::find`] would begin with it: nothing but a look at memory.
    pub fn first(&self, hash: u32) -> Option<u32> {
        let mask = self.slots.len().wrapping_sub(1);
        let slot = self.slots.get(hash as usize & mask)?;
        slot.entry.checked_sub(1).filter(|_| slot.hash == hash)
    }

    /// Adds a number, below 2^32 - 1.
    pub fn insert(&mut self, hash: u32, number: u32) {
        if 4 * (self.used + 1) > 3 * self.slots.len() {
            let larger = vec![Slot::default(); (2 * self.slots.len()).max(LEAST)];
            for slot in std::mem::replace(&mut self.slots, larger) {
                if slot.entry > 0 {
                    self.put(slot);
                }
            }
        }
        let entry = number + 1;
        self.put(Slot { hash, entry });
        self.used += 1;
    }

    fn put(&mut self, new: Slot) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = new.hash as usize & mask;
        while let Some(slot) = self.slots.get_mut(at) {
            if slot.entry == 0 {
                *slot = new;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Forgets all; memory is kept.
    pub fn clear(&mut self) {
        self.slots.fill(Slot::default());
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_one_hash_are_told_apart_while_the_table_grows() {
        let mut branches = Branches::default();
        assert_eq!(branches.find(5, Some), None);
        // Hashes at the end of the table go on at its beginning.
        let hash = |number: u32| {
            if number.is_multiple_of(2) {
                u32::MAX
            } else {
                number
            }
        };
        for number in 0..3000 {
            branches.insert(hash(number), number);
            let found = branches.find(hash(number), |n| (n == number).then_some(n));
            assert_eq!(found, Some(number));
        }
        for number in 0..3000 {
            let found = branches.find(hash(number), |n| (n == number).then_some(n));
            assert_eq!(found, Some(number));
            assert_eq!(branches.find(hash(number), |_| None::<u32>), None);
            let first = branches.first(hash(number));
            assert!(first.is_none_or(|first| hash(first) == hash(number)));
        }
        assert!(branches.slots.len() * 3 >= branches.used * 4);
        branches.clear();
        assert_eq!(branches.find(u32::MAX, Some), None);
    }
}
