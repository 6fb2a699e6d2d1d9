//! How one address gets to its caller, in a form that takes nanoseconds.

use gimli::{CfaRule, RegisterRule, UnwindTableRow};

use super::copy::StackCopy;
use super::registers::{KEPT, RBP, RSP, Registers};
use super::walk::End;

/// Where the frame of the caller begins (the canonical frame address).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cfa {
    /// A register and an offset in bytes.
    Offset(u8, i32),
    /// What is in memory there: functions that align their stack.
    Memory(u8, i32),
    /// A word above the stack pointer, two from this byte of the 16-byte stub on: stubs of the PLT.
    Stub(u8),
}

/// In [`Rule::saved`]: the register is unchanged.
pub const UNCHANGED: i16 = i16::MAX;
/// In [`Rule::saved`]: its value is gone.
pub const GONE: i16 = i16::MIN;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The caller's frame.
    pub cfa: Cfa,
    /// Where the return address is, in words from there.
    pub return_address: i16,
    /// Where the registers of [`KEPT`] are, likewise.
    pub saved: [i16; KEPT.len()],
}

/// What is known of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It has a caller.
    Rule(Rule),
    /// As told by an expression that has to be evaluated each time, in the table of this place.
    Evaluate,
    /// What a signal has interrupted goes on where the kernel has kept it, on top of the stack.
    Interrupted,
    /// The first function of a thread.
    Root,
    /// It has left the stack that it was called on.
    Switches,
    /// Code that was generated and keeps frame pointers by custom.
    FramePointer,
    /// Nothing.
    Unknown,
}

impl Rule {
    /// What functions do that have pushed nothing yet.
    pub const RETURN: Rule = Rule {
        cfa: Cfa::Offset(RSP, 8),
        return_address: -1,
        saved: [UNCHANGED; KEPT.len()],
    };

    /// Whether it goes to the caller by the frame pointer, as the kernel does.
    pub fn is_frame_pointer(&self) -> bool {
        // Of the kept registers it is the second.
        let [_, saved, ..] = self.saved;
        self.cfa == Cfa::Offset(RBP, 16) && self.return_address == -1 && saved == -2
    }

    /// Where the caller's frame begins.
    pub fn frame(&self, registers: &Registers, copy: &StackCopy<'_>) -> Result<u64, End> {
        let (sp, ip) = (registers.sp(), registers.ip());
        let at = |register, offset: i32| {
            let base = registers.get(register).ok_or(End::BadFrame)?;
            base.checked_add_signed(offset.into()).ok_or(End::BadFrame)
        };
        let cfa = match self.cfa {
            Cfa::Offset(register, offset) => at(register, offset)?,
            Cfa::Memory(register, offset) => copy.read(at(register, offset)?).ok_or(End::Window)?,
            Cfa::Stub(second) => {
                let pushed = u64::from(ip & 15 >= u64::from(second));
                sp.checked_add(8 + 8 * pushed).ok_or(End::BadFrame)?
            }
        };
        check_up(sp, cfa)?;
        Ok(cfa)
    }

    /// Goes to the caller.
    pub fn apply(&self, registers: &mut Registers, copy: &StackCopy<'_>) -> Result<(), End> {
        let cfa = self.frame(registers, copy)?;
        let read = |words: i16| {
            let address = cfa.checked_add_signed(i64::from(words) * 8)?;
            copy.read(address)
        };
        let return_address = read(self.return_address).ok_or(End::Window)?;
        let before = *registers;
        registers.keep_kept();
        for (register, words) in KEPT.into_iter().zip(self.saved) {
            match words {
                UNCHANGED => registers.set(register, before.get(register)),
                GONE => registers.set(register, None),
                words => registers.set(register, read(words)),
            }
        }
        registers.enter(cfa, return_address);
        Ok(())
    }
}

/// A caller's frame lies above, by its return address at least, and is aligned as calls are.
pub fn check_up(sp: u64, cfa: u64) -> Result<(), End> {
    let up = cfa.checked_sub(sp).is_some_and(|by| by >= 8);
    if up && cfa.is_multiple_of(8) {
        Ok(())
    } else {
        Err(End::BadFrame)
    }
}

/// `DW_OP_breg0`, `DW_OP_deref`.
const BREG: u8 = 0x70;
const DEREF: u8 = 0x06;

/// The rule of a row, in a section of these bytes, outside of signal trampolines.
pub fn compile(row: &UnwindTableRow<usize>, section: &[u8]) -> Step {
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            match (u8::try_from(register.0), i32::try_from(*offset)) {
                (Ok(register), Ok(offset)) => Some(Cfa::Offset(register, offset)),
                _ => None,
            }
        }
        CfaRule::Expression(expression) => {
            let end = expression.offset.saturating_add(expression.length);
            section.get(expression.offset..end).and_then(known)
        }
    };
    let Some(cfa) = cfa else {
        return Step::Evaluate;
    };
    let words = |offset: i64| {
        let words = i16::try_from(offset / 8).ok()?;
        (offset % 8 == 0 && words != GONE && words != UNCHANGED).then_some(words)
    };
    let mut rule = Rule {
        cfa,
        ..Rule::RETURN
    };
    match row.register(gimli::X86_64::RA) {
        Some(RegisterRule::Undefined) => return Step::Root,
        Some(RegisterRule::Offset(offset)) => match words(offset) {
            Some(words) => rule.return_address = words,
            None => return Step::Evaluate,
        },
        None => return Step::Unknown,
        Some(_) => return Step::Evaluate,
    }
    if row.register(gimli::X86_64::RSP).is_some() {
        return Step::Evaluate;
    }
    for (register, saved) in KEPT.into_iter().zip(&mut rule.saved) {
        *saved = match row.register(gimli::Register(register.into())) {
            None | Some(RegisterRule::SameValue) => UNCHANGED,
            Some(RegisterRule::Undefined) => GONE,
            Some(RegisterRule::Offset(offset)) => match words(offset) {
                Some(words) => words,
                None => return Step::Evaluate,
            },
            Some(_) => return Step::Evaluate,
        };
    }
    Step::Rule(rule)
}

/// The two kinds of expression that compilers and linkers write for ordinary code.
fn known(expression: &[u8]) -> Option<Cfa> {
    // breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus
    if let [
        0x77,
        8,
        0x80,
        0,
        0x3f,
        0x1a,
        lit @ 0x30..=0x3f,
        0x2a,
        0x33,
        0x24,
        0x22,
    ] = expression
    {
        return Some(Cfa::Stub(lit - 0x30));
    }
    // bregN offset; deref
    let (last, rest) = expression.split_last()?;
    let (first, offset) = rest.split_first()?;
    let register = first.checked_sub(BREG).filter(|r| *r < 16)?;
    let offset = match offset {
        [one] if one & 0x80 == 0 => i32::from((one << 1).cast_signed() >> 1),
        [low, high] if low & 0x80 != 0 && high & 0x80 == 0 => {
            let both = i32::from(low & 0x7f) | i32::from(*high) << 7;
            (both << 18) >> 18
        }
        _ => return None,
    };
    (*last == DEREF).then_some(Cfa::Memory(register, offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::unwind::copies;
    use crate::record::unwind::registers::RIP;

    #[test]
    fn a_kept_step_is_small() {
        assert!(size_of::<Option<(u32, u64, Step)>>() <= 48);
    }

    #[test]
    fn ordinary_expressions_are_compiled() {
        let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(known(&plt), Some(Cfa::Stub(11)));
        assert_eq!(known(&[0x76, 0x78, 6]), Some(Cfa::Memory(RBP, -8)));
        assert_eq!(known(&[0x77, 0xa0, 1, 6]), Some(Cfa::Memory(RSP, 160)));
        assert_eq!(known(&[0x76, 0xf0, 0x7e, 6]), Some(Cfa::Memory(RBP, -144)));
        for other in [
            &[0x76, 0x78][..],
            &[],
            &[6],
            &[0x76, 0x78, 6, 0x23],
            &[0x90, 0, 6],
        ] {
            assert_eq!(known(other), None, "{other:x?}");
        }
    }

    /// Every step goes up, by aligned words that were copied, or is none.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_step_that_does_not_go_up_is_none() {
        let stack = [10, 11, 12, 13];
        let words = copies::words(&[(RIP, 5), (RSP, 0x7000), (RBP, 0x7010)], 0x7000, &stack);
        let copy = StackCopy::decode(&words, stack.len(), false).expect("a copy");
        let apply = |cfa| {
            let mut registers = copy.registers();
            let rule = Rule {
                cfa,
                ..Rule::RETURN
            };
            let done = rule.apply(&mut registers, &copy);
            done.map(|()| (registers.sp(), registers.ip()))
        };
        assert_eq!(apply(Cfa::Offset(RSP, 8)), Ok((0x7008, 10)));
        assert_eq!(apply(Cfa::Offset(RBP, 16)), Ok((0x7020, 13)));
        assert_eq!(apply(Cfa::Offset(RSP, 0)), Err(End::BadFrame));
        assert_eq!(apply(Cfa::Offset(RSP, -8)), Err(End::BadFrame));
        assert_eq!(apply(Cfa::Offset(RSP, 12)), Err(End::BadFrame));
        assert_eq!(apply(Cfa::Offset(RSP, 48)), Err(End::Window));
        assert_eq!(apply(Cfa::Memory(RSP, 0)), Err(End::BadFrame));
        assert_eq!(apply(Cfa::Memory(RBP, 16)), Err(End::Window));
        assert_eq!(apply(Cfa::Offset(99, 8)), Err(End::BadFrame));
        let mut registers = copy.registers();
        registers.keep_kept();
        let rule = Rule {
            cfa: Cfa::Offset(10, 8),
            ..Rule::RETURN
        };
        assert_eq!(rule.apply(&mut registers, &copy), Err(End::BadFrame));
    }
}
