//! Steps told by DWARF expressions: signal trampolines, and what hand-written code says.

use gimli::{
    CfaRule, Encoding, EndianSlice, Evaluation, EvaluationResult, EvaluationStorage, Expression,
    Format, LittleEndian, Location, Piece, RegisterRule, UnwindTableRow, Value,
};

use super::copy::StackCopy;
use super::registers::{DWARF_COUNT, KEPT, RIP, RSP, Registers};
use super::rule::check_up;
use super::walk::End;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Operations of one expression at most: they can jump.
const OPERATIONS: u32 = 256;
const ENCODING: Encoding = Encoding {
    address_size: 8,
    format: Format::Dwarf32,
    version: 4,
};

/// Without allocations.
struct OnStack;

impl<'a> EvaluationStorage<Bytes<'a>> for OnStack {
    type Stack = [Value; 64];
    type ExpressionStack = [(Bytes<'a>, Bytes<'a>); 4];
    type Result = [Piece<Bytes<'a>>; 1];
}

/// Goes to the caller as `row` of a section says. That of a signal trampoline may be on another stack, and has all its
/// registers in memory.
pub fn apply(
    row: &UnwindTableRow<usize>,
    section: &[u8],
    is_signal: bool,
    registers: &mut Registers,
    copy: &StackCopy<'_>,
) -> Result<(), End> {
    let before = *registers;
    let frame = Frame {
        section,
        registers: &before,
        copy,
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => u8::try_from(register.0)
            .ok()
            .and_then(|register| before.get(register))
            .and_then(|base| base.checked_add_signed(*offset))
            .ok_or(End::BadFrame)?,
        CfaRule::Expression(expression) => frame.evaluate(*expression, None)?,
    };
    let value = |register: u8| -> Result<Option<u64>, End> {
        match row.register(gimli::Register(register.into())) {
            None | Some(RegisterRule::SameValue) => Ok(before.get(register)),
            Some(RegisterRule::Undefined) => Ok(None),
            Some(RegisterRule::Offset(offset)) => {
                let at = cfa.checked_add_signed(offset).ok_or(End::BadFrame)?;
                copy.read(at).map(Some).ok_or(End::Window)
            }
            Some(RegisterRule::ValOffset(offset)) => Ok(cfa.checked_add_signed(offset)),
            Some(RegisterRule::Register(from)) => {
                Ok(u8::try_from(from.0).ok().and_then(|from| before.get(from)))
            }
            Some(RegisterRule::Expression(expression)) => {
                let at = frame.evaluate(expression, Some(cfa))?;
                copy.read(at).map(Some).ok_or(End::Window)
            }
            Some(RegisterRule::ValExpression(expression)) => {
                frame.evaluate(expression, Some(cfa)).map(Some)
            }
            Some(_) => Ok(None),
        }
    };
    if row.register(gimli::X86_64::RA).is_none() {
        return Err(End::NoInfo);
    }
    let return_address = value(RIP)?.ok_or(End::Root)?;
    let sp = match row.register(gimli::X86_64::RSP) {
        Some(_) => value(RSP)?.ok_or(End::BadFrame)?,
        None => cfa,
    };
    if is_signal {
        for register in (0..DWARF_COUNT as u8).filter(|r| *r != RSP && *r != RIP) {
            let found = row.register(gimli::Register(register.into()));
            // Those it says nothing of are not those of the handler.
            let found = found.map(|_| value(register).unwrap_or(None));
            registers.set(register, found.flatten());
        }
    } else {
        check_up(before.sp(), sp)?;
        registers.keep_kept();
        for register in KEPT {
            registers.set(register, value(register).unwrap_or(None));
        }
    }
    registers.enter(sp, return_address);
    Ok(())
}

struct Frame<'a> {
    section: &'a [u8],
    registers: &'a Registers,
    copy: &'a StackCopy<'a>,
}

impl<'a> Frame<'a> {
    /// The address or value that an expression comes to, with `initial` on its stack.
    fn evaluate(
        &self,
        expression: gimli::UnwindExpression<usize>,
        initial: Option<u64>,
    ) -> Result<u64, End> {
        let end = expression.offset.saturating_add(expression.length);
        let bytes = self.section.get(expression.offset..end);
        let bytes = Bytes::new(bytes.ok_or(End::BadFrame)?, LittleEndian);
        let bytes: Expression<Bytes<'a>> = Expression(bytes);
        let mut evaluation = Evaluation::<Bytes<'a>, OnStack>::new_in(bytes.0, ENCODING);
        evaluation.set_max_iterations(OPERATIONS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().map_err(|_| End::BadFrame)?;
        for _ in 0..OPERATIONS {
            state = match state {
                EvaluationResult::Complete => {
                    let [piece] = evaluation.as_result() else {
                        return Err(End::BadFrame);
                    };
                    return match piece.location {
                        Location::Address { address } => Ok(address),
                        Location::Value {
                            value: Value::Generic(value),
                        } => Ok(value),
                        _ => Err(End::BadFrame),
                    };
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let register = u8::try_from(register.0).map_err(|_| End::BadFrame)?;
                    let value = self.registers.get(register).ok_or(End::BadFrame)?;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory {
                    address, size: 8, ..
                } => {
                    let value = self.copy.read(address).ok_or(End::Window)?;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                _ => return Err(End::BadFrame),
            }
            .map_err(|_| End::BadFrame)?;
        }
        Err(End::BadFrame)
    }
}
