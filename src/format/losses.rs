//! The losses section: what is missing, by cause and CPU.
//!
//! LEB128 count, then for each: class, CPU + 1 (0: none), number; all LEB128.

use super::error::FormatError;
use super::input::Input;
use super::segment::Loss;
use super::{leb128, limits};
use crate::event::LossClass;

/// Appends `losses`.
pub fn encode(out: &mut Vec<u8>, losses: &[Loss]) {
    leb128::write(out, losses.len() as u64);
    for loss in losses {
        leb128::write(out, loss.class as u64);
        leb128::write(out, loss.cpu.map_or(0, |cpu| u64::from(cpu) + 1));
        leb128::write(out, loss.count);
    }
}

/// Takes a losses section. Classes of later versions are left out: a descriptor's total still has them.
pub fn decode(input: &mut Input<'_>) -> Result<Vec<Loss>, FormatError> {
    let count = input.count("loss count", limits::FRAME_LOSSES)?;
    let mut losses = Vec::new();
    for _ in 0..count {
        let class = input.leb_max("loss class", u64::from(u16::MAX))? as u16;
        let cpu = input.leb_max("loss CPU", limits::CPUS)?;
        let count = input.leb("number lost")?;
        if let Some(class) = LossClass::from_number(class) {
            losses.push(Loss {
                class,
                cpu: cpu.checked_sub(1).map(|cpu| cpu as u32),
                count,
            });
        }
    }
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_survives_and_unknown_ones_are_left_out() {
        let mut losses: Vec<Loss> = LossClass::ALL
            .into_iter()
            .map(|class| Loss {
                class,
                cpu: Some(class as u32),
                count: 1 << (class as u32),
            })
            .collect();
        losses.push(Loss {
            class: LossClass::SideBand,
            cpu: None,
            count: u64::MAX,
        });
        let mut out = Vec::new();
        encode(&mut out, &losses);
        let mut input = Input::new("t", &out);
        assert_eq!(decode(&mut input), Ok(losses));
        assert_eq!(input.end("losses"), Ok(()));
        let some = Loss {
            class: LossClass::RingFull,
            cpu: None,
            count: 5,
        };
        let bytes = [2, 0xff, 0x7f, 1, 9, 1, 0, 5];
        assert_eq!(decode(&mut Input::new("t", &bytes)), Ok(vec![some]));
    }
}
