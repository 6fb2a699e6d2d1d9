//! Stacks of one segment -> lists of frames, for the view that shows each sample.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::segment::{Key, Segment, ViewId, kernel_place};
use super::stacks::{BEFORE_EXEC, STRAY};
use crate::capture::{StackTable, Tables};
use crate::format::limits;
use crate::symbolize::{PlaceId, Places};

/// Addresses with their places, leaf first.
#[derive(Debug)]
pub(super) struct List {
    frames: Box<[(u64, PlaceId)]>,
    held: Held,
}

/// Shared by all samples that have it.
pub(super) type Frames = Rc<List>;

/// How many frames there are in all lists that somebody still has: what they take of memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Rc<Cell<usize>>);

impl Held {
    pub fn frames(&self) -> usize {
        self.0.get()
    }

    fn list(&self, frames: &[(u64, PlaceId)]) -> Frames {
        self.0.set(self.0.get() + frames.len());
        Rc::new(List {
            frames: frames.into(),
            held: self.clone(),
        })
    }
}

impl Deref for List {
    type Target = [(u64, PlaceId)];

    fn deref(&self) -> &[(u64, PlaceId)] {
        &self.frames
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let frames = &self.held.0;
        frames.set(frames.get().saturating_sub(self.frames.len()));
    }
}

/// Lists remembered at most, of user and of kernel stacks, and frames in them.
const REMEMBERED: usize = 1 << 14;
const FRAMES_REMEMBERED: usize = 1 << 19;

/// Lists by what they depend on, the latest.
#[derive(Debug)]
struct Remembered<K> {
    lists: HashMap<K, Frames>,
    frames: usize,
}

impl<K> Default for Remembered<K> {
    fn default() -> Remembered<K> {
        Remembered {
            lists: HashMap::new(),
            frames: 0,
        }
    }
}

impl<K: std::hash::Hash + Eq> Remembered<K> {
    fn get(&self, key: &K) -> Option<Frames> {
        self.lists.get(key).map(Rc::clone)
    }

    fn put(&mut self, key: K, list: &Frames) {
        if self.lists.len() >= REMEMBERED || self.frames >= FRAMES_REMEMBERED {
            self.lists.clear();
            self.frames = 0;
        }
        self.frames += list.len();
        self.lists.insert(key, Rc::clone(list));
    }
}

/// Places of addresses, the latest: one of several that meet in a slot is remembered.
#[derive(Debug, Default)]
struct RecentPlaces {
    slots: Vec<Option<(AddressKey, PlaceId)>>,
}

/// An address of a table by number, in a view, as that of a leaf or as return address.
type AddressKey = ((ViewId, bool), u32, bool);

/// Slots of [`RecentPlaces`]: a power of two.
const RECENT: usize = 1 << 15;

impl RecentPlaces {
    fn place(&mut self, key: AddressKey, look_up: impl FnOnce() -> PlaceId) -> PlaceId {
        if self.slots.is_empty() {
            self.slots.resize(RECENT, None);
        }
        let at = FixedState::default().hash_one(key) as usize % RECENT;
        match self.slots.get_mut(at) {
            Some(Some((known, place))) if *known == key => *place,
            Some(slot) => slot.insert((key, look_up())).1,
            None => look_up(),
        }
    }
}

/// Turns the stacks of one segment into lists of frames, remembering the latest.
#[derive(Debug)]
pub(super) struct FrameLists {
    held: Held,
    /// By view, whether it is foreign, whether the stack is cut, stack.
    user: Remembered<(ViewId, bool, bool, u32)>,
    kernel: Remembered<u32>,
    user_places: RecentPlaces,
    kernel_places: RecentPlaces,
    list: Vec<(u64, PlaceId)>,
}

/// Numbers of addresses of a stack, leaf first.
fn addresses(table: &StackTable, stack: u32) -> impl Iterator<Item = u32> + '_ {
    let mut next = stack;
    let nodes = std::iter::from_fn(move || {
        let node = table.node(next)?;
        next = node.parent;
        Some(node.address)
    });
    nodes.take(limits::STACK_DEPTH)
}

impl FrameLists {
    /// None yet. Those to come are counted in `held`.
    pub fn new(held: &Held) -> FrameLists {
        FrameLists {
            held: held.clone(),
            user: Remembered::default(),
            kernel: Remembered::default(),
            user_places: RecentPlaces::default(),
            kernel_places: RecentPlaces::default(),
            list: Vec::new(),
        }
    }

    /// User frames of `key`.
    pub fn user(
        &mut self,
        key: Key,
        segment: &mut Segment,
        tables: &Tables,
        places: &mut Places,
    ) -> Frames {
        if key.before_exec && key.user != 0 {
            return self.held.list(&[(0, BEFORE_EXEC)]);
        }
        let remembered = (key.view, key.foreign, key.user_cut, key.user);
        if let Some(list) = self.user.get(&remembered) {
            return list;
        }
        let context = (key.view, key.foreign);
        let memo = &mut self.user_places;
        let list = &mut self.list;
        list.clear();
        let mut depth = 0;
        let mut left = false;
        for number in addresses(&tables.user, key.user) {
            depth += 1;
            let Some(address) = tables.user.addresses.get(number as usize) else {
                break;
            };
            if left {
                continue;
            }
            let is_return = depth > 1;
            let place = memo.place((context, number, is_return), || {
                segment.user_place(tables, places, context, (*address, is_return))
            });
            left = is_return && places.is_unmapped(place);
            if !left {
                list.push((*address, place));
            }
        }
        if left || (depth == 1 && !key.user_cut) {
            list.push((0, STRAY));
        }
        let list = self.held.list(&self.list);
        self.user.put(remembered, &list);
        list
    }

    /// Kernel frames of `key`.
    pub fn kernel(&mut self, key: Key, tables: &Tables, places: &mut Places) -> Frames {
        if let Some(list) = self.kernel.get(&key.kernel) {
            return list;
        }
        let memo = &mut self.kernel_places;
        let list = &mut self.list;
        list.clear();
        for (depth, number) in addresses(&tables.kernel, key.kernel).enumerate() {
            let Some(address) = tables.kernel.addresses.get(number as usize) else {
                break;
            };
            let is_return = depth > 0;
            let place = memo.place(((0, false), number, is_return), || {
                kernel_place(places, (*address, is_return))
            });
            list.push((*address, place));
        }
        let list = self.held.list(&self.list);
        self.kernel.put(key.kernel, &list);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_held_as_long_as_anybody_has_their_list() {
        let held = Held::default();
        let mut remembered = Remembered::default();
        let first = held.list(&[(1, 1), (2, 2)]);
        remembered.put(1, &first);
        drop(first);
        assert_eq!(held.frames(), 2);
        // Far more than is remembered, in lists that are far fewer.
        for key in 2..100 {
            remembered.put(key, &held.list(&vec![(0, 0); FRAMES_REMEMBERED / 10]));
        }
        assert!(held.frames() < 2 * FRAMES_REMEMBERED);
        assert!(remembered.get(&1).is_none() && remembered.get(&99).is_some());
        drop(remembered);
        assert_eq!(held.frames(), 0);
    }

    #[test]
    fn a_recent_place_is_that_of_its_own_address_only() {
        let mut recent = RecentPlaces::default();
        for round in 0..2 {
            for number in 0..3 * RECENT as u32 {
                for view in [(1, false), (1, true), (2, false)] {
                    let expected = number * 8 + view.0 * 2 + u32::from(view.1);
                    let key = (view, number, round == 1);
                    assert_eq!(recent.place(key, || expected), expected);
                    assert_eq!(recent.place(key, || 0), expected, "remembered");
                }
            }
        }
    }
}
