//! Steps of ordinary code by absolute address, for address spaces that stand still: some nanoseconds each.
//!
//! Most functions find their caller by the stack or the frame pointer alone. Of their walks only those two registers are kept
//! here, and no mapping or file is looked up again. Whatever is not so simple is walked from its leaf as
//! [`walk`](super::walk) does it.

use std::rc::Rc;

use hashbrown::HashMap;

use super::copy::StackCopy;
use super::found::{Found, Named, Place};
use super::registers::{KEPT, RBP, RSP};
use super::rule::{Cfa, GONE, Rule, Step, UNCHANGED, check_up};
use crate::prefetch::prefetch;
use crate::record::address_space::Mapping;

/// Where the caller's frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// So many bytes above the stack pointer.
    Stack,
    /// Above the frame pointer, which points to that of the caller: as compilers do it that keep frame pointers. One is found from
    /// the other without any number of the step, so the next frame does not have to wait for it.
    UsualFrame,
    /// Above the frame pointer, otherwise.
    Frame,
    /// At what is in memory there.
    StackMemory,
    FrameMemory,
    /// Nowhere: this is the first function of a thread.
    Root,
    /// That cannot be told in this form.
    Elsewhere,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ordinary {
    offset: i32,
    /// As [`Rule::saved`] has it of the frame pointer.
    saved: i16,
    begins: Begins,
}

/// What is known of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Where it is.
    pub ip: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// Its frame pointer.
    pub fp: u64,
}

/// Where a step leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// To the caller.
    Caller(Frame),
    /// There is none.
    Root,
}

impl Ordinary {
    const ELSEWHERE: Ordinary = Ordinary {
        offset: 0,
        saved: UNCHANGED,
        begins: Begins::Elsewhere,
    };

    /// What was found for code at `ip`.
    pub fn of(found: Found, ip: u64) -> Ordinary {
        let rule = match found.step {
            // Its address is not written as it is.
            _ if found.named != Named::Usually => return Ordinary::ELSEWHERE,
            Step::Rule(rule) => rule,
            Step::Root => {
                return Ordinary {
                    begins: Begins::Root,
                    ..Ordinary::ELSEWHERE
                };
            }
            _ => return Ordinary::ELSEWHERE,
        };
        Self::of_rule(&rule, ip).unwrap_or(Ordinary::ELSEWHERE)
    }

    fn of_rule(rule: &Rule, ip: u64) -> Option<Ordinary> {
        let (begins, offset) = match rule.cfa {
            Cfa::Offset(RSP, offset) => (Begins::Stack, offset),
            Cfa::Offset(RBP, offset) => (Begins::Frame, offset),
            Cfa::Memory(RSP, offset) => (Begins::StackMemory, offset),
            Cfa::Memory(RBP, offset) => (Begins::FrameMemory, offset),
            Cfa::Stub(second) => {
                let pushed = i32::from(ip & 15 >= u64::from(second));
                (Begins::Stack, 8 + 8 * pushed)
            }
            Cfa::Offset(..) | Cfa::Memory(..) => return None,
        };
        if rule.is_frame_pointer() {
            return Some(Ordinary {
                offset: 16,
                saved: -2,
                begins: Begins::UsualFrame,
            });
        }
        let place = KEPT.iter().position(|register| *register == RBP)?;
        let saved = *rule.saved.get(place)?;
        (rule.return_address == -1 && saved != GONE).then_some(Ordinary {
            offset,
            saved,
            begins,
        })
    }

    /// Whether its caller's frame is found as compilers do it that keep frame pointers.
    #[inline]
    pub fn is_usual(self) -> bool {
        self.begins == Begins::UsualFrame
    }

    /// From `frame` to its caller; `None` when that takes more than this.
    #[inline]
    pub fn apply(self, frame: Frame, copy: &StackCopy<'_>) -> Option<Reached> {
        if self.begins == Begins::UsualFrame {
            let sp = frame.fp.checked_add(16)?;
            check_up(frame.sp, sp).ok()?;
            let [fp, ip] = copy.read_two(frame.fp)?;
            return Some(Reached::Caller(Frame { ip, sp, fp }));
        }
        let base = match self.begins {
            Begins::Stack | Begins::StackMemory => frame.sp,
            Begins::UsualFrame | Begins::Frame | Begins::FrameMemory => frame.fp,
            Begins::Root => return Some(Reached::Root),
            Begins::Elsewhere => return None,
        };
        let at = base.checked_add_signed(self.offset.into())?;
        let cfa = match self.begins {
            Begins::StackMemory | Begins::FrameMemory => copy.read(at)?,
            _ => at,
        };
        check_up(frame.sp, cfa).ok()?;
        let read = |words: i16| copy.read(cfa.checked_add_signed(i64::from(words) * 8)?);
        Some(Reached::Caller(Frame {
            ip: read(-1)?,
            sp: cfa,
            fp: match self.saved {
                UNCHANGED => frame.fp,
                words => read(words)?,
            },
        }))
    }
}

/// Steps kept, 16 bytes each: 256 KiB. In pairs: those of a program that is sampled all over are enough to fall on each other.
const KEPT_STEPS: usize = 1 << 14;
const PAIRS: usize = KEPT_STEPS / 2;
/// Address spaces known at one time.
const SPACES: usize = 256;
/// User addresses are below this bit, and above it is the number of their space.
const SPACE_BIT: u32 = 48;
/// In a key: the code runs there, and has not called.
const RUNS: u64 = 1 << 47;

type Spaces = HashMap<*const Vec<Mapping>, (u64, Rc<Vec<Mapping>>), foldhash::fast::RandomState>;

/// The steps.
pub struct Quick {
    /// Of a pair the one that came last is first.
    steps: Box<[Pair; PAIRS]>,
    /// By where their mappings are, which are kept so that they stay there.
    spaces: Spaces,
    /// The one that was asked for last.
    last: (*const Vec<Mapping>, u64),
    numbers: u64,
    /// How often all was forgotten.
    generation: u64,
}

type Pair = [(u64, Ordinary); 2];
const NOTHING: Pair = [(0, Ordinary::ELSEWHERE); 2];

/// One instruction of an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Quick {
    /// None known.
    pub fn new() -> Quick {
        Quick {
            steps: Box::new([NOTHING; PAIRS]),
            spaces: HashMap::default(),
            last: (std::ptr::null(), 0),
            numbers: 0,
            generation: 0,
        }
    }

    /// Forgets all steps.
    pub fn clear(&mut self) {
        self.steps.fill(NOTHING);
        self.spaces.clear();
        self.last = (std::ptr::null(), 0);
        self.numbers = 0;
        self.generation += 1;
    }

    /// Tells an address space from all others there ever were.
    pub fn identity(&self, space: u64) -> u64 {
        self.generation << 16 | space
    }

    /// Begins to load the step of code.
    pub fn prefetch(&self, space: u64, place: Place) {
        let key = Quick::key(space, place);
        if let Some(step) = key.and_then(|key| self.steps.get(Self::place(key))) {
            prefetch(step);
        }
    }

    /// Gives back what only this still knows of: the processes have ended, or mapped something else.
    pub fn tidy(&mut self) {
        self.spaces
            .retain(|_, (_, mappings)| Rc::strong_count(mappings) > 1);
        self.last = (std::ptr::null(), 0);
    }

    /// The number of an address space; another one has another.
    pub fn space(&mut self, mappings: &Rc<Vec<Mapping>>) -> u64 {
        let place = Rc::as_ptr(mappings);
        if self.last.0 == place {
            return self.last.1;
        }
        let known = self.spaces.get(&place).map(|(number, _)| *number);
        let number = known.unwrap_or_else(|| {
            if self.spaces.len() >= SPACES {
                self.tidy();
            }
            // Numbers have 16 bits, of which 0 is that of no space.
            if self.spaces.len() >= SPACES || self.numbers >= 0xffff {
                self.clear();
            }
            self.numbers += 1;
            let known = (self.numbers, mappings.clone());
            self.spaces.insert(place, known);
            self.numbers
        });
        self.last = (place, number);
        number
    }

    /// What tells code at a place in a space. `None` where no user code is.
    #[inline]
    pub fn key(space: u64, place: Place) -> Option<Key> {
        let (at, runs) = (place.at(), if place.is_called() { 0 } else { RUNS });
        (at < RUNS).then_some(Key(space << SPACE_BIT | at | runs))
    }

    fn place(key: Key) -> usize {
        (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PAIRS.ilog2())) as usize
    }

    /// The step of code, if it is kept.
    #[inline]
    pub fn known(&self, key: Key) -> Option<Ordinary> {
        let [(first, step), (second, other)] = self.steps.get(Self::place(key))?;
        if *first == key.0 {
            Some(*step)
        } else {
            (*second == key.0).then_some(*other)
        }
    }

    /// Keeps a step, in place of one that was there before.
    pub fn keep(&mut self, key: Key, step: Ordinary) {
        if let Some(pair) = self.steps.get_mut(Self::place(key)) {
            let [first, _] = *pair;
            *pair = [(key.0, step), first];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::unwind::found::Way;

    #[test]
    fn a_kept_step_is_small() {
        assert_eq!(size_of::<(u64, Ordinary)>(), 16);
    }

    /// A number is of one address space for as long as anything is kept under it.
    #[test]
    fn address_spaces_are_told_apart() {
        let mut quick = Quick::new();
        let spaces: Vec<_> = (0..3).map(|_| Rc::new(Vec::new())).collect();
        let numbers: Vec<u64> = spaces.iter().map(|space| quick.space(space)).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!([0, 2, 1].map(|at| quick.space(&spaces[at])), [1, 3, 2]);
        let key = |number, runs: bool| {
            let place = Place {
                ip: 0x1000 + u64::from(!runs),
                way: if runs { Way::Runs } else { Way::Called },
            };
            Quick::key(number, place).expect("a user address")
        };
        let step = Ordinary::of(Step::Rule(Rule::RETURN).into(), 0x1000);
        quick.keep(key(1, true), step);
        assert_eq!(quick.known(key(1, true)), Some(step));
        for other in [key(1, false), key(2, true)] {
            assert_eq!(quick.known(other), None);
        }
        let kernel = Place {
            ip: (1 << 47) + 1,
            way: Way::Called,
        };
        assert_eq!(Quick::key(1, kernel), None);
        let kept = spaces[1].clone();
        drop(spaces);
        quick.tidy();
        assert_eq!((quick.spaces.len(), quick.space(&kept)), (1, 2));
        // Many come and stay: all is forgotten, numbers begin anew.
        let many: Vec<_> = (0..SPACES).map(|_| Rc::new(Vec::new())).collect();
        for space in &many {
            quick.space(space);
        }
        assert!(quick.spaces.len() <= SPACES);
        assert_eq!(quick.known(key(1, true)), None);
    }

    #[test]
    fn what_cannot_be_told_in_short_is_left_to_others() {
        let rule = |rule| Ordinary::of(Step::Rule(rule).into(), 0).begins;
        assert_eq!(rule(Rule::RETURN), Begins::Stack);
        let other_register = Rule {
            cfa: Cfa::Offset(10, 8),
            ..Rule::RETURN
        };
        let elsewhere = Rule {
            return_address: -2,
            ..Rule::RETURN
        };
        let lost = Rule {
            saved: [GONE; KEPT.len()],
            ..Rule::RETURN
        };
        for step in [other_register, elsewhere, lost] {
            assert_eq!(rule(step), Begins::Elsewhere, "{step:?}");
        }
        for step in [
            Step::Evaluate,
            Step::Interrupted,
            Step::FramePointer,
            Step::Unknown,
        ] {
            assert_eq!(Ordinary::of(step.into(), 0), Ordinary::ELSEWHERE);
        }
        for named in [Named::There, Named::Before] {
            let step = Step::Root;
            assert_eq!(Ordinary::of(Found { step, named }, 0), Ordinary::ELSEWHERE);
        }
        // A stub of the PLT has pushed a word from its second instruction on.
        let stub = |ip| {
            let rule = Rule {
                cfa: Cfa::Stub(11),
                ..Rule::RETURN
            };
            Ordinary::of(Step::Rule(rule).into(), ip).offset
        };
        assert_eq!([0x1000, 0x100b, 0x100f].map(stub), [8, 16, 16]);
    }
}
