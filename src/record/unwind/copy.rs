//! What the sampling program copies of a user stack (`struct user_copy` of `bpf/profiler.h`), decoded. Pure.

use super::chain::Chain;
use super::found::{Place, Way};
use super::quick::Frame;
use super::registers::{DWARF_COUNT, Registers};

/// Words of `struct user_regs`, as `arch/x86/include/uapi/asm/ptrace.h` has them.
const SAVED: usize = 21;
/// Where a register of a DWARF number is there.
const PLACES: [usize; DWARF_COUNT] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];
/// Where the frame pointer, the instruction pointer and the stack pointer are.
const FP: usize = 4;
const IP: usize = 16;
const SP: usize = 19;
/// What the instruction for system calls keeps the address behind it in, and the number of the call, negative outside of one.
const CX: usize = 11;
const CALL: usize = 15;

/// Stack memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// Address of the first word.
    pub from: u64,
    /// The words, up.
    pub words: &'a [u64],
}

impl<'a> Part<'a> {
    /// Splits off the header of a part: where it begins, and its bytes.
    pub(super) fn head(words: &'a [u64]) -> Option<(u64, u64, &'a [u64])> {
        let ([from, bytes], rest) = words.split_first_chunk()?;
        Some((*from, *bytes, rest))
    }

    /// The address behind the last word.
    pub fn end(&self) -> u64 {
        self.from.saturating_add(self.words.len() as u64 * 8)
    }

    /// The words from `address` on.
    #[inline]
    pub(super) fn at(&self, address: u64) -> Option<&'a [u64]> {
        let offset = address.checked_sub(self.from)?;
        if !offset.is_multiple_of(8) {
            return None;
        }
        self.words.get(usize::try_from(offset / 8).ok()?..)
    }
}

/// Registers and parts of the stack of user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackCopy<'a> {
    registers: &'a [u64],
    /// The top of its stack.
    pub top: Part<'a>,
    /// What there is of what lies on top of that, if not all of it.
    pub chain: Option<Chain<'a>>,
    /// What was copied of what lies beyond a large frame, or of the stack that a signal has interrupted whose handler has its own.
    pub beyond: Option<Part<'a>>,
    /// What the kernel found along frame pointers, leaf first, if it was asked.
    pub walked: &'a [u64],
}

impl<'a> StackCopy<'a> {
    /// What follows the kernel stack in a record, with `count` words of stack, `chained` if there is a chain; `None` when that is too
    /// short or of another architecture.
    pub fn decode(words: &'a [u64], count: usize, chained: bool) -> Option<StackCopy<'a>> {
        if !super::IS_SUPPORTED {
            return None;
        }
        let (registers, rest) = words.split_at_checked(SAVED)?;
        let (from, bytes, rest) = Part::head(rest)?;
        let (words, walked) = rest.split_at_checked(count)?;
        let first = usize::try_from(bytes / 8).unwrap_or(count).min(count);
        let (words, more) = words.split_at_checked(first)?;
        let (chain, more) = match chained {
            true => Chain::decode(more).map(|(chain, more)| (Some(chain), more))?,
            false => (None, more),
        };
        let beyond = match more {
            [] => None,
            more => {
                let (from, _, words) = Part::head(more)?;
                Some(Part { from, words })
            }
        };
        Some(StackCopy {
            registers,
            top: Part { from, words },
            chain,
            beyond,
            walked,
        })
    }

    /// The address of the leaf, as a stack of one frame.
    pub fn leaf(&self) -> &'a [u64] {
        self.registers.get(IP..=IP).unwrap_or_default()
    }

    /// Where the code is. It is in a system call, and not at the beginning of a handler that the kernel has just set up or where such
    /// a call is to be done again, if the address is still the one that the instruction has kept.
    pub fn place(&self) -> Place {
        let value = |place: usize| self.registers.get(place).copied().unwrap_or(0);
        let (ip, in_call) = (value(IP), value(CALL).cast_signed() >= 0);
        let way = if in_call && value(CX) == ip {
            Way::InSystemCall
        } else {
            Way::Runs
        };
        Place { ip, way }
    }

    /// Those of its registers that ordinary code is walked by.
    pub fn frame(&self) -> Frame {
        let value = |place: usize| self.registers.get(place).copied().unwrap_or(0);
        Frame {
            ip: value(IP),
            sp: value(SP),
            fp: value(FP),
        }
    }

    /// The registers of the user code.
    pub fn registers(&self) -> Registers {
        let value = |place: usize| self.registers.get(place).copied().unwrap_or(0);
        Registers::new(PLACES.map(value))
    }

    /// The address behind the last word: where the stack ends, unless it goes on beyond what was copied.
    pub fn end(&self) -> u64 {
        self.beyond
            .map_or_else(|| self.top_end(), |part| part.end())
    }

    fn top_end(&self) -> u64 {
        self.chain.map_or(self.top, |chain| chain.above).end()
    }

    /// How much of the top of the stack is known, in bytes.
    pub fn top_bytes(&self) -> u64 {
        self.top_end().saturating_sub(self.top.from)
    }

    /// Whether a frame that begins at `sp` is beyond the top.
    pub fn is_beyond(&self, sp: u64) -> bool {
        self.beyond
            .is_some_and(|part| (part.from..=part.end()).contains(&sp))
    }

    /// The word at `address`, if it was copied.
    #[inline]
    pub fn read(&self, address: u64) -> Option<u64> {
        self.chunk(address).map(|[word]| word)
    }

    /// The two words at `address`, if they were copied.
    #[inline]
    pub fn read_two(&self, address: u64) -> Option<[u64; 2]> {
        self.chunk(address)
    }

    #[inline]
    fn chunk<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let at_top = self.top.at(address).and_then(<[u64]>::first_chunk);
        match at_top {
            Some(words) => Some(*words),
            None => self.elsewhere(address),
        }
    }

    fn elsewhere<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let parts = [self.chain.map(|chain| chain.above), self.beyond];
        let mut parts = parts.into_iter().flatten();
        let words = parts.find_map(|part| part.at(address)?.first_chunk().copied());
        words.or_else(|| self.chain?.read(address))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::unwind::registers::{RBP, RIP, RSP};

    /// As the sampling program puts it into the ring: `registers` are (DWARF number, value).
    pub fn words(registers: &[(u8, u64)], from: u64, stack: &[u64]) -> Vec<u64> {
        let mut words = vec![0; SAVED];
        words[CALL] = u64::MAX;
        for (register, value) in registers {
            words[PLACES[usize::from(*register)]] = *value;
        }
        words.extend([from, stack.len() as u64 * 8]);
        words.extend_from_slice(stack);
        words
    }

    /// Makes it a copy of code in a system call, of what [`words`] has made.
    pub fn enter_system_call(words: &mut [u64], number: u64) {
        words[CALL] = number;
        words[CX] = words[IP];
    }

    /// Adds a part that begins at `from` to what [`words`] has made. Words of stack it has more then.
    pub fn add_part(words: &mut Vec<u64>, from: u64, stack: &[u64]) -> usize {
        words.extend([from, stack.len() as u64 * 8]);
        words.extend_from_slice(stack);
        2 + stack.len()
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_and_memory_are_those_of_the_code() {
        let words = words(
            &[(RIP, 0x401000), (RSP, 0x7000), (RBP, 0x7010)],
            0x7000,
            &[1, 2, 3],
        );
        let copy = StackCopy::decode(&words, 2, false).expect("a copy");
        assert_eq!((copy.top.words, copy.walked), (&[1, 2][..], &[3][..]));
        let copy = StackCopy::decode(&words, 3, false).expect("a copy");
        assert_eq!(copy.leaf(), [0x401000]);
        let registers = copy.registers();
        assert_eq!(registers.get(RSP), Some(0x7000));
        assert_eq!(registers.get(RBP), Some(0x7010));
        assert_eq!(registers.ip(), 0x401000);
        let frame = copy.frame();
        assert_eq!((frame.ip, frame.sp, frame.fp), (0x401000, 0x7000, 0x7010));
        let read = |at| copy.read(at);
        assert_eq!([0x7000, 0x7010].map(read), [Some(1), Some(3)]);
        assert_eq!(copy.read_two(0x7008), Some([2, 3]));
        assert_eq!(
            [0x7010, 0x7018, 0x7004].map(|at| copy.read_two(at)),
            [None; 3]
        );
        assert_eq!([0x6ff8, 0x7018, 0x7001, 0, u64::MAX].map(read), [None; 5]);
        assert_eq!(StackCopy::decode(&words, 4, false), None);
        assert_eq!(StackCopy::decode(&words[..21], 0, false), None);
    }

    /// Only what the instruction for system calls leaves behind shows that it was the last.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn in_a_system_call_is_what_has_called_one() {
        let mut words = words(&[(RIP, 0x401002), (RSP, 0x7000)], 0x7000, &[1]);
        let way = |words: &[u64]| {
            StackCopy::decode(words, 1, false)
                .expect("a copy")
                .place()
                .way
        };
        assert_eq!(way(&words), Way::Runs);
        words[CX] = 0x401002;
        assert_eq!(way(&words), Way::Runs, "it has returned");
        enter_system_call(&mut words, 15);
        assert_eq!(way(&words), Way::InSystemCall);
        words[IP] = 0x402000;
        assert_eq!(way(&words), Way::Runs, "a handler was set up");
    }

    /// Each address is of one part or of none, and no value spans both.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_second_part_is_where_it_says() {
        let mut words = words(&[(RIP, 0x401000), (RSP, 0x7000)], 0x7000, &[1, 2]);
        let count = 2 + add_part(&mut words, 0x9000, &[3, 4, 5]);
        words.push(6);
        let copy = StackCopy::decode(&words, count, false).expect("a copy");
        assert_eq!(copy.walked, [6]);
        let read = [0x7000, 0x7008, 0x7010, 0x8ff8, 0x9000, 0x9010, 0x9018].map(|at| copy.read(at));
        assert_eq!(read, [Some(1), Some(2), None, None, Some(3), Some(5), None]);
        let two = [0x7000, 0x7008, 0x9000, 0x9008, 0x9010].map(|at| copy.read_two(at));
        assert_eq!(two, [Some([1, 2]), None, Some([3, 4]), Some([4, 5]), None]);
        let beyond = [0x7000, 0x7010, 0x8ff8, 0x9000, 0x9018, 0x9020].map(|sp| copy.is_beyond(sp));
        assert_eq!(beyond, [false, false, false, true, true, false]);
        assert_eq!(copy.end(), 0x9018);
        // One without room for what precedes it.
        assert_eq!(StackCopy::decode(&words, 3, false), None);
        // A length that cannot be is no more than there is.
        words[SAVED + 1] = u64::MAX;
        let copy = StackCopy::decode(&words, count, false).expect("a copy");
        assert_eq!((copy.top.words.len(), copy.beyond), (count, None));
    }
}
