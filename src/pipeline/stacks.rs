//! Stacks of one segment -> stacks of places.
//!
//! Samples were counted by view and stack numbers before; here every address is looked up once per view, and every
//! node of a stack trie that a counted stack has.

use super::segment::{Key, Segment, ViewId, kernel_place};
use crate::capture::{Reader, StackTable, Tables};
use crate::format::limits;
use crate::profile::Stacks;
use crate::symbolize::{PlaceId, Places};

/// Stacks whose frames are places, shared by all segments.
pub(super) type PlaceStacks = Stacks;

/// No stacks yet, of this capture. One that is made to have more distinct stacks than bytes can honestly stand for has the others
/// cut.
pub(super) fn place_stacks(reader: &Reader) -> PlaceStacks {
    let more = STACKS_PER_BYTE.saturating_mul(reader.file_len());
    let most = reader.share_of(FEW_STACKS).saturating_add(more);
    Stacks::bounded(most.min(MOST_STACKS) as usize, CUT)
}

/// No places yet, of this capture; as with its stacks, there are no more than its bytes can stand for.
pub(super) fn places(reader: &Reader) -> Places {
    let more = reader.file_len();
    let most = reader.share_of(FEW_PLACES).saturating_add(more);
    Places::bounded(most.min(MOST_STACKS) as usize)
}

/// Places that any capture may have, and one for each of its bytes besides. Recorded ones have one for each six bytes, where all stacks are deep
/// and differ.
const FEW_PLACES: u64 = 1 << 18;
/// Nodes of all stacks: some gigabyte.
const MOST_STACKS: u64 = 1 << 26;
/// Nodes of all stacks that any capture may have, and for each of its bytes besides: recorded ones have a node for each four bytes,
/// where all stacks are deep and differ.
const FEW_STACKS: u64 = 1 << 20;
/// See [`FEW_STACKS`].
const STACKS_PER_BYTE: u64 = 4;

/// Stands for a place in [`PlaceStacks`] where callers were cut off.
pub(super) const CUT: PlaceId = PlaceId::MAX;

/// Stands for a place where a frame-pointer walk left the program's code, or found no caller. Code built without frame pointers uses
/// the register for other things, and the walk then takes whatever it points to for return addresses: from the
/// first of them that is no code, nothing towards the root is known. Such frames are not shown, but counted.
pub(super) const STRAY: PlaceId = PlaceId::MAX - 1;

/// Stands for a user stack that is left out: see [`Key::before_exec`].
pub(super) const BEFORE_EXEC: PlaceId = PlaceId::MAX - 2;

/// (caller, number of the address) of a node. A caller has a smaller number than its callee, always.
fn node(table: &StackTable, stack: u32) -> Option<(u32, u32)> {
    let node = table.node(stack)?;
    (node.parent < stack).then_some((node.parent, node.address))
}

/// Nodes of a stack that are followed.
const DEEPEST: u32 = limits::STACK_DEPTH as u32;

/// Of each node, how many there are up to the root; `None` where there are too few nodes for one that is too deep.
fn depths(table: &StackTable) -> Option<Vec<u32>> {
    if table.nodes.len() <= limits::STACK_DEPTH {
        return None;
    }
    let mut depths = vec![0u32];
    for node in &table.nodes {
        let above = depths.get(node.parent as usize).copied().unwrap_or(0);
        depths.push(above + 1);
    }
    Some(depths)
}

/// Numbers by small numbers, which can be forgotten all at once.
#[derive(Debug)]
struct Memo {
    /// Values of other rounds are forgotten.
    round: u32,
    slots: Vec<(u32, u32)>,
}

impl Memo {
    fn new() -> Memo {
        Memo {
            round: 1,
            slots: Vec::new(),
        }
    }

    fn forget(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.slots.fill((0, 0));
            self.round = 1;
        }
    }

    /// Makes room for numbers below `count`.
    fn resize(&mut self, count: usize) {
        if self.slots.len() < count {
            self.slots.resize(count, (0, 0));
        }
    }

    fn get(&self, at: u32) -> Option<u32> {
        let (round, value) = *self.slots.get(at as usize)?;
        (round == self.round).then_some(value)
    }

    fn set(&mut self, at: u32, value: u32) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            *slot = (self.round, value);
        }
    }
}

/// The stacks of one table as callers, remembered where a walk from another stack may come by.
#[derive(Debug)]
struct Known {
    /// By node: another node than the next is called from it, or a stack ended in a callee of it.
    parts: Vec<bool>,
    stacks: Memo,
    /// By node, its depth, where any is deeper than stacks are followed.
    depths: Option<Vec<u32>>,
}

impl Known {
    fn new() -> Known {
        Known {
            parts: Vec::new(),
            stacks: Memo::new(),
            depths: None,
        }
    }

    fn begin(&mut self, table: &StackTable) {
        self.stacks.forget();
        self.stacks.resize(table.nodes.len() + 1);
        self.parts.clear();
        self.parts.resize(table.nodes.len() + 1, false);
        for (before, node) in table.nodes.iter().enumerate() {
            if node.parent as usize != before {
                self.part(node.parent);
            }
        }
        self.depths = depths(table).filter(|depths| depths.iter().any(|d| *d > DEEPEST));
    }

    /// Whether the stack that ends in a callee of `caller` is deeper than stacks are followed.
    fn is_cut(&self, caller: u32) -> bool {
        let depths = self.depths.as_ref();
        depths.is_some_and(|depths| depths.get(caller as usize).is_some_and(|d| *d >= DEEPEST))
    }

    /// The callers of a stack that is too deep, as far as they are followed. Nothing of it is remembered, since another
    /// stack that goes this way begins elsewhere.
    fn walk_cut(table: &StackTable, caller: u32, path: &mut Vec<(u32, u32)>) {
        path.clear();
        let mut at = caller;
        while let Some((parent, address)) = node(table, at)
            && path.len() + 1 < limits::STACK_DEPTH
        {
            // The empty stack, of which nothing is remembered.
            path.push((0, address));
            at = parent;
        }
    }

    fn part(&mut self, number: u32) {
        if let Some(parts) = self.parts.get_mut(number as usize) {
            *parts = true;
        }
    }

    fn parts(&self, number: u32) -> bool {
        self.parts.get(number as usize).copied().unwrap_or(false)
    }

    /// Walks from `caller` towards the root as far as nothing is known, and gives the stack that is known there, or
    /// `base` at the root. What was passed is left in `path`.
    fn walk_up(
        &mut self,
        table: &StackTable,
        caller: u32,
        base: u32,
        path: &mut Vec<(u32, u32)>,
    ) -> u32 {
        path.clear();
        // Many stacks may end along one chain: none of them is to walk further than to the next.
        self.part(caller);
        let mut at = caller;
        loop {
            if self.parts(at)
                && let Some(stack) = self.stacks.get(at)
            {
                return stack;
            }
            let Some((parent, address)) = node(table, at) else {
                return base;
            };
            path.push((at, address));
            at = parent;
        }
    }

    /// As [`Known::walk_up`], or as far as a stack is followed.
    fn callers(
        &mut self,
        table: &StackTable,
        caller: u32,
        base: u32,
        path: &mut Vec<(u32, u32)>,
    ) -> u32 {
        if self.is_cut(caller) {
            Known::walk_cut(table, caller, path);
            return base;
        }
        self.walk_up(table, caller, base, path)
    }

    fn set(&mut self, number: u32, stack: u32) {
        if number != 0 && self.parts(number) {
            self.stacks.set(number, stack);
        }
    }
}

/// What the addresses of a view are.
#[derive(Debug)]
struct AddressMemo {
    /// As return addresses; where nothing is mapped, [`STRAY`].
    callers: Memo,
    leaves: Memo,
}

impl AddressMemo {
    fn new() -> AddressMemo {
        AddressMemo {
            callers: Memo::new(),
            leaves: Memo::new(),
        }
    }

    fn forget(&mut self, addresses: usize) {
        for memo in [&mut self.callers, &mut self.leaves] {
            memo.resize(addresses);
            memo.forget();
        }
    }
}

/// Turns the stacks of segments into stacks of places, each node once per view. Keys should come sorted: what was looked up
/// is forgotten with each change of what it depends on.
#[derive(Debug)]
pub(super) struct Lookup {
    /// What `user_places` are of.
    view: Option<(ViewId, bool)>,
    user_places: AddressMemo,
    /// What `user` is of: the view, and whether the stack is cut.
    context: Option<((ViewId, bool), bool)>,
    /// User stacks as callers.
    user: Known,
    kernel_places: AddressMemo,
    /// The user stack that `kernel` is on top of.
    base: Option<u32>,
    /// Kernel stacks as callers.
    kernel: Known,
    path: Vec<(u32, u32)>,
}

impl Lookup {
    pub fn new() -> Lookup {
        Lookup {
            view: None,
            user_places: AddressMemo::new(),
            context: None,
            user: Known::new(),
            kernel_places: AddressMemo::new(),
            base: None,
            kernel: Known::new(),
            path: Vec::new(),
        }
    }

    /// Begins a segment, all of whose frames are in `tables`.
    pub fn begin(&mut self, tables: &Tables) {
        self.view = None;
        self.context = None;
        self.base = None;
        self.user.begin(&tables.user);
        self.kernel.begin(&tables.kernel);
        self.kernel_places.forget(tables.kernel.addresses.len());
    }

    /// The stack of places of `key`, root first: the mark if it is cut, user frames, kernel frames.
    ///
    /// One mark at most: where the user stack is whole and the kernel stack cut, it is between the two.
    pub fn stack(
        &mut self,
        key: Key,
        segment: &mut Segment,
        tables: &Tables,
        places: &mut Places,
        stacks: &mut PlaceStacks,
    ) -> u32 {
        let user_cut = key.user_cut && key.user != 0 && !key.before_exec;
        let base = if user_cut { stacks.push(0, CUT) } else { 0 };
        let user = match node(&tables.user, key.user) {
            Some(_) if key.before_exec => stacks.push(0, BEFORE_EXEC),
            None => base,
            Some(leaf) => {
                self.enter((key.view, key.foreign), user_cut, tables);
                self.user_stack(leaf, base, segment, tables, places, stacks)
            }
        };
        let Some(leaf) = node(&tables.kernel, key.kernel) else {
            return user;
        };
        let base = if key.kernel_cut && !user_cut {
            stacks.push(user, CUT)
        } else {
            user
        };
        self.kernel_stack(leaf, base, tables, places, stacks)
    }

    fn enter(&mut self, view: (ViewId, bool), user_cut: bool, tables: &Tables) {
        if self.view != Some(view) {
            self.view = Some(view);
            self.user_places.forget(tables.user.addresses.len());
        }
        if self.context != Some((view, user_cut)) {
            self.context = Some((view, user_cut));
            self.user.stacks.forget();
        }
    }

    /// The stack of places of the user node `(caller, address)`, which ends in `base` towards the root.
    fn user_stack(
        &mut self,
        (parent, address): (u32, u32),
        base: u32,
        segment: &mut Segment,
        tables: &Tables,
        places: &mut Places,
        stacks: &mut PlaceStacks,
    ) -> u32 {
        let mut stack = self
            .user
            .callers(&tables.user, parent, base, &mut self.path);
        while let Some((number, address)) = self.path.pop() {
            let place = match self.user_places.callers.get(address) {
                Some(place) => place,
                None => self.user_place((address, true), segment, tables, places),
            };
            stack = if place == STRAY {
                stacks.push(0, STRAY)
            } else {
                stacks.push(stack, place)
            };
            self.user.set(number, stack);
        }
        if stack == 0 {
            // No caller at all: only the first function of a thread has none.
            stack = stacks.push(0, STRAY);
        }
        let place = match self.user_places.leaves.get(address) {
            Some(place) => place,
            None => self.user_place((address, false), segment, tables, places),
        };
        stacks.push(stack, place)
    }

    fn user_place(
        &mut self,
        (address, is_return): (u32, bool),
        segment: &mut Segment,
        tables: &Tables,
        places: &mut Places,
    ) -> PlaceId {
        let value = tables.user.addresses.get(address as usize);
        let value = value.copied().unwrap_or(0);
        let view = self.view.unwrap_or_default();
        let mut place = segment.user_place(tables, places, view, (value, is_return));
        let memo = if is_return {
            if places.is_unmapped(place) {
                place = STRAY;
            }
            &mut self.user_places.callers
        } else {
            &mut self.user_places.leaves
        };
        memo.set(address, place);
        place
    }

    /// The stack of places of the kernel node `(caller, address)` on top of `base`.
    fn kernel_stack(
        &mut self,
        (parent, address): (u32, u32),
        base: u32,
        tables: &Tables,
        places: &mut Places,
        stacks: &mut PlaceStacks,
    ) -> u32 {
        if self.base != Some(base) {
            self.base = Some(base);
            self.kernel.stacks.forget();
        }
        let mut stack = self
            .kernel
            .callers(&tables.kernel, parent, base, &mut self.path);
        let memo = &mut self.kernel_places;
        let mut place = |memo: &mut Memo, address: u32, is_return| {
            memo.get(address).unwrap_or_else(|| {
                let value = tables.kernel.addresses.get(address as usize);
                let value = value.copied().unwrap_or(0);
                let place = kernel_place(places, (value, is_return));
                memo.set(address, place);
                place
            })
        };
        while let Some((number, address)) = self.path.pop() {
            stack = stacks.push(stack, place(&mut memo.callers, address, true));
            self.kernel.set(number, stack);
        }
        stacks.push(stack, place(&mut memo.leaves, address, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_forgets_all_at_once() {
        let mut memo = Memo::new();
        memo.resize(3);
        assert_eq!(memo.get(1), None);
        memo.set(1, 7);
        assert_eq!(
            (memo.get(1), memo.get(2), memo.get(3)),
            (Some(7), None, None)
        );
        memo.forget();
        assert_eq!(memo.get(1), None);
        memo.round = u32::MAX;
        memo.set(2, 9);
        memo.forget();
        assert_eq!((memo.get(2), memo.round), (None, 1));
    }
}
