//! Where the callers of late stacks are in the trie, by a hash of all of them.
//!
//! Following a deep stack costs a few cache misses at each branch, and programs come back to the same callers with another
//! leaf. They are recognized by 108 bits of a keyed hash that nobody outside can know: two that are taken for each other are
//! less likely than a flipped bit in memory.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::trie::Node;
use crate::prefetch::prefetch;

/// Of the callers of a stack in the trie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The innermost.
    pub node: Node,
    /// The next node in memory is called by it.
    pub goes_on: bool,
}

impl Place {
    /// Of the caller of a node that is not the first of its run.
    pub fn before(node: Node) -> Place {
        let node = node.saturating_sub(1);
        Place {
            node,
            goes_on: true,
        }
    }
}

/// Stands for the callers of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    low: u64,
    high: u64,
}

/// Places of callers. New ones evict those that were not used lately.
#[derive(Debug)]
pub struct Callers {
    secrets: [u64; 4],
    /// None until the first is put, then [`BUCKETS`].
    buckets: Vec<Bucket>,
}

/// One cache line. The one used last comes first.
///
/// Four, because callers that come again and again fall into buckets as they like: with places for twice as many as there are,
/// two in a bucket would lose a tenth of them to each other.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket([Slot; 4]);

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    low: u64,
    /// Of the high half of the key the lower 31 bits, then whether the run goes on. The upper bits are the bucket's.
    high: u32,
    /// 0 when the slot is free.
    node: Node,
}

impl Slot {
    fn is(&self, key: Key) -> bool {
        self.low == key.low && self.high >> 1 == check(key) && self.node > 0
    }
}

/// A power of two; what they take fits into a second-level cache (512 KiB).
const BUCKETS: usize = 1 << 13;

impl Default for Callers {
    fn default() -> Callers {
        let seed = RandomState::default();
        Callers {
            secrets: [0u64, 1, 2, 3].map(|i| seed.hash_one(i)),
            buckets: Vec::new(),
        }
    }
}

impl Callers {
    /// Stands for these callers.
    pub fn key(&self, callers: &[u64]) -> Key {
        let [a, b, c, d] = self.secrets;
        let (pairs, rest) = callers.as_chunks::<2>();
        let length = callers.len() as u64;
        let mut low = a ^ length;
        let mut high = c ^ length;
        // Two chains that wait for nothing of each other.
        for [x, y] in pairs {
            low = folded(low ^ x, b ^ y);
            high = folded(high ^ y, d ^ x);
        }
        for x in rest {
            low = folded(low ^ x, b);
            high = folded(high ^ x, d);
        }
        Key {
            low: folded(low, a),
            high: folded(high, c),
        }
    }

    /// Begins to look for these callers.
    pub fn prefetch(&self, key: Key) {
        if let Some(bucket) = self.buckets.get(bucket(key)) {
            prefetch(bucket);
        }
    }

    /// Where these callers are, if they came lately.
    pub fn get(&mut self, key: Key) -> Option<Place> {
        let Bucket(slots) = self.buckets.get_mut(bucket(key))?;
        let at = slots.iter().position(|slot| slot.is(key))?;
        let found = *slots.get(at)?;
        if at > 0 {
            slots.copy_within(..at, 1);
            *slots.first_mut()? = found;
        }
        Some(Place {
            node: found.node,
            goes_on: found.high & 1 != 0,
        })
    }

    /// Remembers where callers are that [`Callers::get`] does not know.
    pub fn put(&mut self, key: Key, place: Place) {
        if self.buckets.is_empty() {
            self.buckets.resize(BUCKETS, Bucket::default());
        }
        if let Some(Bucket(slots)) = self.buckets.get_mut(bucket(key)) {
            let [first, second, third, _] = *slots;
            let new = Slot {
                low: key.low,
                high: check(key) << 1 | u32::from(place.goes_on),
                node: place.node,
            };
            *slots = [new, first, second, third];
        }
    }

    /// Forgets all; memory is kept.
    pub fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
    }
}

fn bucket(key: Key) -> usize {
    (key.high >> 32) as usize & (BUCKETS - 1)
}

fn check(key: Key) -> u32 {
    key.high as u32 & (u32::MAX >> 1)
}

/// Both halves of the product: each bit of it depends on bits of both.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_tell_order_length_and_each_address() {
        let callers = Callers::default();
        let mut seen = HashSet::new();
        let mut check = |stack: &[u64]| {
            let key = callers.key(stack);
            assert_eq!(key, callers.key(stack));
            assert!(seen.insert((key.low, key.high)), "{stack:?}");
        };
        for length in 0..40 {
            check(&vec![0; length]);
            check(&vec![7; length + 1]);
        }
        let stack: Vec<u64> = (1..=41).map(|i| 0x5555_0000_0000 + i * 16).collect();
        check(&stack);
        for at in 0..stack.len() {
            for bit in 0..64 {
                let mut other = stack.clone();
                other[at] ^= 1 << bit;
                check(&other);
            }
            for other_at in 0..at {
                let mut other = stack.clone();
                other.swap(at, other_at);
                check(&other);
            }
        }
    }

    #[test]
    fn what_is_put_is_found_while_it_is_used() {
        let mut callers = Callers::default();
        let key = |low| Key { low, high: 5 << 32 };
        let place = |node| Place {
            node,
            goes_on: node.is_multiple_of(2),
        };
        assert_eq!(callers.get(key(1)), None);
        for node in 1..=5 {
            callers.put(key(node.into()), place(node));
            assert_eq!(callers.get(key(node.into())), Some(place(node)));
        }
        assert_eq!(callers.get(key(1)), None);
        // In another order than they were put in.
        for node in [3, 5, 2, 4, 2] {
            assert_eq!(callers.get(key(node.into())), Some(place(node)));
        }
        callers.put(key(6), place(6));
        assert_eq!(callers.get(key(3)), None);
        for node in [2, 4, 5, 6] {
            assert_eq!(callers.get(key(node.into())), Some(place(node)));
        }
        let other = Key {
            low: 4,
            high: 5 << 32 | 1,
        };
        assert_eq!(callers.get(other), None);
        assert_eq!(
            callers.get(Key {
                low: 0,
                high: 5 << 32
            }),
            None
        );
        callers.clear();
        assert_eq!(callers.get(key(2)), None);
    }
}
