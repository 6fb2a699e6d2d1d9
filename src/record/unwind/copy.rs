//! What the sampling program copies of a user stack (`struct user_copy` of `bpf/profiler.h`), decoded. Pure.

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

/// Registers and the top of the stack of user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackCopy<'a> {
    registers: &'a [u64],
    /// Address of the first word.
    pub from: u64,
    /// Stack memory, up.
    pub words: &'a [u64],
    /// What the kernel found along frame pointers, leaf first, if it was asked.
    pub walked: &'a [u64],
}

impl<'a> StackCopy<'a> {
    /// What follows the kernel stack in a record, with `count` words of stack; `None` when that is too short or of another
    /// architecture.
    pub fn decode(words: &'a [u64], count: usize) -> Option<StackCopy<'a>> {
        if !super::IS_SUPPORTED {
            return None;
        }
        let (registers, rest) = words.split_at_checked(SAVED)?;
        let ([from, _], rest) = rest.split_first_chunk()?;
        let (words, walked) = rest.split_at_checked(count)?;
        Some(StackCopy {
            registers,
            from: *from,
            words,
            walked,
        })
    }

    /// The address of the leaf, as a stack of one frame.
    pub fn leaf(&self) -> &'a [u64] {
        self.registers.get(IP..=IP).unwrap_or_default()
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
        self.from.saturating_add(self.words.len() as u64 * 8)
    }

    /// The word at `address`, if it was copied.
    #[inline]
    pub fn read(&self, address: u64) -> Option<u64> {
        self.words.get(self.place(address)?).copied()
    }

    /// The two words at `address`, if they were copied.
    #[inline]
    pub fn read_two(&self, address: u64) -> Option<[u64; 2]> {
        self.words
            .get(self.place(address)?..)?
            .first_chunk()
            .copied()
    }

    fn place(&self, address: u64) -> Option<usize> {
        let offset = address.checked_sub(self.from)?;
        if !offset.is_multiple_of(8) {
            return None;
        }
        usize::try_from(offset / 8).ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::unwind::registers::{RBP, RIP, RSP};

    /// As the sampling program puts it into the ring: `registers` are (DWARF number, value).
    pub fn words(registers: &[(u8, u64)], from: u64, stack: &[u64]) -> Vec<u64> {
        let mut words = vec![0; SAVED];
        for (register, value) in registers {
            words[PLACES[usize::from(*register)]] = *value;
        }
        words.extend([from, 0]);
        words.extend_from_slice(stack);
        words
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_and_memory_are_those_of_the_code() {
        let words = words(
            &[(RIP, 0x401000), (RSP, 0x7000), (RBP, 0x7010)],
            0x7000,
            &[1, 2, 3],
        );
        let copy = StackCopy::decode(&words, 2).expect("a copy");
        assert_eq!((copy.words, copy.walked), (&[1, 2][..], &[3][..]));
        let copy = StackCopy::decode(&words, 3).expect("a copy");
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
        assert_eq!(StackCopy::decode(&words, 4), None);
        assert_eq!(StackCopy::decode(&words[..21], 0), None);
    }
}
