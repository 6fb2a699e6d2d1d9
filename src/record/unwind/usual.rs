//! What the sampling program is told of code that keeps frame pointers (`struct usual` of `bpf/profiler.h`): where a chain of them leads
//! through nothing else, it leaves out of its copy of the stack what walks do not need.
//!
//! What it has left out may still be looked at by the tables of the mappings of that time: an address that is told here and is not what
//! it was any more ends a walk, it does not lead it astray. Such an address is taken back, and told no more. Where all that was told of
//! a program is of the very mappings of a sample, there is nothing to be looked at again.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use hashbrown::{HashMap, HashSet};
use rustix::mm::ProtFlags;

use crate::event::{Pid, Timestamp};
use crate::record::shared::Shared;

/// `USUAL_BITS` of `bpf/profiler.h`.
const BITS: u32 = 14;
/// `ADDRESS_BITS` of `bpf/profiler.h`.
const ADDRESS_BITS: u32 = 47;
/// Fewer frames are not worth to be told: `CHAIN_WORTH` of `bpf/profiler.h`.
pub const WORTH: usize = 8;
/// Bytes of a copy that are not worth to be shortened: `CHAIN_FROM` of `bpf/profiler.h`.
pub const FROM: u64 = 1024;
/// Frames in a chain at most: `CHAIN_FRAMES` of `bpf/profiler.h`.
pub const LONGEST: usize = 64;
/// Addresses remembered that are told no more. When there are as many, none is told any more.
const DISTRUSTED: usize = 1 << 14;

/// Programs of which it is remembered what was told. When there are as many, all is taken back.
const PROGRAMS: usize = 1 << 12;
/// A program that maps something else more often is not followed.
const CHANGES: u32 = 64;

/// What the sampling program reads.
pub struct Usual {
    keys: Shared,
    distrusted: HashSet<u64, foldhash::fast::RandomState>,
    /// By tag.
    programs: HashMap<u64, Told, foldhash::fast::RandomState>,
    /// The one that was asked for last.
    last: Option<Told>,
    now: fn() -> Timestamp,
}

/// A process in one of its images, in the form that user code is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// The process.
    pub process: Pid,
    /// How many programs it had run before.
    pub exec_id: u32,
}

/// What was told of a program.
#[derive(Debug, Clone, Copy)]
struct Told {
    program: Program,
    /// The number of its address space that all of it is of, for samples from then on. `None` when it is of several, or of
    /// several programs.
    of: Option<(u64, Timestamp)>,
    changes: u32,
}

impl Program {
    /// What the sampling program tells it by, as its `program_tag` has it. Others can have the same.
    fn tag(self) -> u64 {
        let process = self.process.0.wrapping_mul(0x9e37_79b1);
        let exec = self.exec_id.wrapping_mul(0x85eb_ca77);
        u64::from(process.wrapping_add(exec)) >> (32 - (64 - ADDRESS_BITS))
    }

    /// `None` of what is no address of user code.
    fn key(self, address: u64) -> Option<u64> {
        let is_user = address != 0 && address >> ADDRESS_BITS == 0;
        is_user.then_some(address | self.tag() << ADDRESS_BITS)
    }
}

impl Usual {
    /// The memory of the map `usual`.
    pub fn map(map: BorrowedFd<'_>, now: fn() -> Timestamp) -> Result<Usual> {
        let bytes = size_of::<u64>() << BITS;
        let keys = Shared::new(map, 0, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Usual {
            keys,
            distrusted: HashSet::default(),
            programs: HashMap::default(),
            last: None,
            now,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: there are 2^BITS words, mapped as long as `self`, which the kernel only reads.
        unsafe {
            let start = self.keys.start().cast::<AtomicU64>();
            std::slice::from_raw_parts(start.as_ptr(), 1 << BITS)
        }
    }

    /// The two places where a key may be.
    fn places(&self, key: u64) -> [&AtomicU64; 2] {
        let place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize;
        let words = self.words();
        // SAFETY: there are as many words as numbers of this many bits.
        [place, place ^ 1].map(|place| unsafe { words.get_unchecked(place) })
    }

    /// Whether all that was told of a program at `time` is of this address space.
    #[inline]
    pub fn is_of(&mut self, program: Program, space: u64, time: Timestamp) -> bool {
        if self.last.is_none_or(|told| told.program != program) {
            self.last = self.programs.get(&program.tag()).copied();
        }
        self.last.is_some_and(|told| {
            let of = told.of.filter(|_| told.program == program);
            of.is_some_and(|(of, since)| of == space && time >= since)
        })
    }

    /// From now on what is told of `program` is of this address space: what was told of another one is taken back.
    pub fn begin(&mut self, program: Program, space: u64) {
        let known = self.programs.get(&program.tag()).copied();
        if known.is_some_and(|told| {
            told.program == program && told.of.is_none_or(|(of, _)| of == space)
        }) {
            return;
        }
        if known.is_none() && self.programs.len() >= PROGRAMS {
            self.words()
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
            self.programs.clear();
        }
        let changes = known.map_or(0, |told| told.changes + 1);
        let is_followed = known.is_none_or(|told| told.program == program) && changes <= CHANGES;
        if known.is_some() && is_followed {
            let tag = program.tag();
            for word in self.words() {
                if word.load(Ordering::Relaxed) >> ADDRESS_BITS == tag {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        let told = Told {
            program,
            // The sampling program may have read it until now, or until all was taken back.
            of: is_followed.then(|| (space, (self.now)())),
            changes,
        };
        self.programs.insert(program.tag(), told);
        self.last = None;
    }

    /// Whether the sampling program knows a return address.
    #[cfg(test)]
    pub fn knows(&self, program: Program, address: u64) -> bool {
        let key = program.key(address);
        let is_in = |key: u64| {
            let mut places = self.places(key).into_iter();
            places.any(|place| place.load(Ordering::Relaxed) == key)
        };
        key.is_some_and(is_in)
    }

    /// Tells a return address into a function that has made the usual frame, in the address space that was [begun](Self::begin) with.
    #[inline]
    pub fn tell(&self, program: Program, address: u64) {
        let Some(key) = program.key(address) else {
            return;
        };
        let [own, neighbour] = self.places(key);
        let there = [own, neighbour].map(|place| place.load(Ordering::Relaxed));
        // Each write takes the line from all CPUs.
        if !there.contains(&key)
            && self.distrusted.len() < DISTRUSTED
            && !self.distrusted.contains(&key)
        {
            let place = if there == [0, 0] || there.last() != Some(&0) {
                own
            } else {
                neighbour
            };
            place.store(key, Ordering::Relaxed);
        }
    }

    /// Tells a return address no more: a stack that was shortened because of it did not lead to its root.
    pub fn distrust(&mut self, program: Program, address: u64) {
        let Some(key) = program.key(address) else {
            return;
        };
        if self.distrusted.len() < DISTRUSTED {
            self.distrusted.insert(key);
        }
        for place in self.places(key) {
            if place.load(Ordering::Relaxed) == key {
                place.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// One that no program reads, at time 50.
    pub fn usual() -> Usual {
        let file = tempfile::tempfile().expect("a file");
        file.set_len((size_of::<u64>() << BITS) as u64)
            .expect("its length");
        Usual::map(file.as_fd(), || Timestamp(50)).expect("a mapping")
    }

    fn program(process: u32, exec_id: u32) -> Program {
        let process = Pid(process);
        Program { process, exec_id }
    }

    #[test]
    fn what_is_told_is_known_until_it_is_distrusted() {
        let mut usual = usual();
        let (told, other) = (program(10, 1), program(10, 2));
        assert!(!usual.knows(told, 0x1000));
        usual.tell(told, 0x1000);
        assert!(usual.knows(told, 0x1000));
        assert!(!usual.knows(other, 0x1000));
        assert!(!usual.knows(told, 0x1001));
        usual.distrust(told, 0x1000);
        assert!(!usual.knows(told, 0x1000));
        usual.tell(told, 0x1000);
        assert!(!usual.knows(told, 0x1000), "it is told no more");
        for nowhere in [0, 1 << ADDRESS_BITS, u64::MAX] {
            usual.tell(told, nowhere);
            assert!(!usual.knows(told, nowhere));
        }
    }

    /// As many bits as are above an address.
    #[test]
    fn a_tag_leaves_addresses_alone() {
        for (process, exec_id) in [(1, 0), (4_194_304, 7), (u32::MAX, u32::MAX)] {
            let tag = program(process, exec_id).tag();
            assert!(tag < 1 << (64 - ADDRESS_BITS), "{tag:#x}");
        }
    }

    /// What was told of other mappings, or may have been, is looked at again.
    #[test]
    fn what_is_told_is_of_one_address_space() {
        let mut usual = usual();
        let (told, other) = (program(10, 1), program(11, 1));
        let is_of = |usual: &mut Usual, space, time| usual.is_of(told, space, Timestamp(time));
        assert!(!is_of(&mut usual, 3, 60), "nothing was told");
        usual.begin(told, 3);
        usual.begin(other, 3);
        usual.tell(told, 0x1000);
        usual.tell(other, 0x1000);
        assert!(is_of(&mut usual, 3, 50));
        assert!(!is_of(&mut usual, 3, 49), "another may have been told then");
        assert!(!is_of(&mut usual, 4, 60));
        usual.begin(told, 4);
        assert!(!usual.knows(told, 0x1000), "it was of other mappings");
        assert!(usual.knows(other, 0x1000));
        assert!(is_of(&mut usual, 4, 60));
        assert!(!is_of(&mut usual, 3, 60));
        for space in 5..5 + u64::from(CHANGES) {
            usual.begin(told, space);
        }
        let last = 4 + u64::from(CHANGES);
        assert!(!is_of(&mut usual, last, 60), "it changes all the time");
        usual.tell(told, 0x2000);
        usual.begin(told, last + 1);
        assert!(usual.knows(told, 0x2000));
        assert!(!is_of(&mut usual, last + 1, 60));
    }

    /// Two programs may have one tag: neither is trusted then.
    #[test]
    fn programs_with_one_tag_are_not_trusted() {
        let mut usual = usual();
        let first = program(10, 0);
        let second = (11..).map(|process| program(process, 0));
        let second = second.clone().find(|second| second.tag() == first.tag());
        let second = second.expect("there are more processes than tags");
        usual.begin(first, 3);
        assert!(usual.is_of(first, 3, Timestamp(60)));
        assert!(!usual.is_of(second, 3, Timestamp(60)));
        usual.begin(second, 3);
        assert!(!usual.is_of(first, 3, Timestamp(60)));
        assert!(!usual.is_of(second, 3, Timestamp(60)));
        usual.begin(first, 3);
        assert!(!usual.is_of(first, 3, Timestamp(60)));
    }

    /// Few are remembered: with the others all that was told of them is gone.
    #[test]
    fn too_many_programs_are_forgotten_together() {
        let mut usual = usual();
        let mut begun = Vec::new();
        for process in 0.. {
            let next = program(process, 0);
            let is_new = !begun.iter().any(|old: &Program| old.tag() == next.tag());
            if is_new {
                usual.begin(next, 1);
                usual.tell(next, 0x1000 + u64::from(process));
                begun.push(next);
            }
            if begun.len() > PROGRAMS {
                break;
            }
        }
        let [first, .., last] = begun[..] else {
            panic!("there are many")
        };
        assert!(!usual.knows(first, 0x1000));
        assert!(!usual.is_of(first, 1, Timestamp(60)));
        assert!(usual.is_of(last, 1, Timestamp(60)));
    }
}
