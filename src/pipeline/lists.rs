//! Stacks of one segment -> lists of frames, for the view that shows each sample.

use std::rc::Rc;

use hashbrown::HashMap;

use super::segment::{Key, Segment, ViewId, kernel_place};
use super::stacks::{BEFORE_EXEC, STRAY};
use crate::capture::{StackTable, Tables};
use crate::format::limits;
use crate::symbolize::{PlaceId, Places};

/// Addresses with their places, leaf first.
pub(super) type Frames = Rc<[(u64, PlaceId)]>;

/// Lists remembered at most.
const REMEMBERED: usize = 1 << 14;
/// Addresses remembered at most, over all views.
const ADDRESSES: usize = 1 << 20;

/// A place that is not looked up yet: no place has this number.
const UNKNOWN: PlaceId = PlaceId::MAX;

/// Places of the addresses of a table by number: as that of a leaf, and as return address.
type AddressPlaces = Vec<[PlaceId; 2]>;

/// Turns the stacks of one segment into lists of frames, remembering the latest.
#[derive(Debug, Default)]
pub(super) struct FrameLists {
    user: HashMap<(ViewId, bool, u32), Frames>,
    kernel: HashMap<u32, Frames>,
    user_places: HashMap<(ViewId, bool), AddressPlaces>,
    kernel_places: AddressPlaces,
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

/// The place of an address, remembered.
fn place(
    memo: &mut AddressPlaces,
    number: u32,
    is_return: bool,
    look_up: impl FnOnce() -> PlaceId,
) -> PlaceId {
    let at = number as usize;
    if memo.len() <= at {
        memo.resize(at + 1, [UNKNOWN; 2]);
    }
    let slot = memo.get_mut(at);
    match slot.and_then(|slots| slots.get_mut(usize::from(is_return))) {
        Some(slot) => {
            if *slot == UNKNOWN {
                *slot = look_up();
            }
            *slot
        }
        None => look_up(),
    }
}

impl FrameLists {
    /// User frames of `key`.
    pub fn user(
        &mut self,
        key: Key,
        segment: &mut Segment,
        tables: &Tables,
        places: &mut Places,
    ) -> Frames {
        if key.before_exec && key.user != 0 {
            return Rc::from([(0, BEFORE_EXEC)]);
        }
        if let Some(list) = self.user.get(&(key.view, key.foreign, key.user)) {
            return Rc::clone(list);
        }
        let context = (key.view, key.foreign);
        let views = self.user_places.len() + 1;
        if views.saturating_mul(tables.user.addresses.len()) > ADDRESSES
            && !self.user_places.contains_key(&context)
        {
            self.user_places.clear();
        }
        let memo = self.user_places.entry(context).or_default();
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
            let place = place(memo, number, is_return, || {
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
        let list: Frames = Rc::from(&list[..]);
        if self.user.len() >= REMEMBERED {
            self.user.clear();
        }
        self.user
            .insert((key.view, key.foreign, key.user), Rc::clone(&list));
        list
    }

    /// Kernel frames of `key`.
    pub fn kernel(&mut self, key: Key, tables: &Tables, places: &mut Places) -> Frames {
        if self.kernel.len() >= REMEMBERED {
            self.kernel.clear();
        }
        let memo = &mut self.kernel_places;
        let list = self.kernel.entry(key.kernel).or_insert_with(|| {
            let numbers = addresses(&tables.kernel, key.kernel).enumerate();
            numbers
                .filter_map(|(depth, number)| {
                    let address = *tables.kernel.addresses.get(number as usize)?;
                    let is_return = depth > 0;
                    let place = place(memo, number, is_return, || {
                        kernel_place(places, (address, is_return))
                    });
                    Some((address, place))
                })
                .collect()
        });
        Rc::clone(list)
    }
}
