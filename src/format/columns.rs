//! A column: the same field of many records, one after the other.

use super::cost::Bytes;
use super::error::{FormatError, Problem};
use super::input::Input;
use super::leb128;
use super::payload::Out;

/// All values are equal and stored once. The reader must know the number of values from elsewhere.
const CONSTANT: u8 = 0;
/// LEB128 numbers.
const LEB128: u8 = 1;
/// LEB128 numbers, split: the first bytes of all, then the second bytes of those that have one, ...
const SPLIT: u8 = 2;

/// How a column's values are laid out when they are not all equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Number after number: repeated runs of numbers stay visible to zstd.
    Whole,
    /// Bytes of one significance together: cheaper for numbers without order.
    Split,
    /// The one that is expected to take less, repeated runs left aside.
    Either,
}

/// So many values tell which layout takes less.
const LOOKED_AT: usize = 4096;

impl Layout {
    /// The one to write `values` in.
    fn decided(self, values: &[u64]) -> Layout {
        if self != Layout::Either {
            return self;
        }
        let mut whole = Bytes::default();
        let mut split: [Bytes; leb128::MAX_LEN] = Default::default();
        let step = (values.len() / LOOKED_AT).max(1);
        for value in values.iter().step_by(step) {
            let mut rest = *value;
            for place in &mut split {
                let more = rest >= 0x80;
                let byte = (rest & 0x7f) as u8 | if more { 0x80 } else { 0 };
                whole.add(byte);
                place.add(byte);
                rest >>= 7;
                if !more {
                    break;
                }
            }
        }
        let split: f32 = split.iter().map(Bytes::block).sum();
        if split < whole.block() {
            Layout::Split
        } else {
            Layout::Whole
        }
    }
}

/// Whether a column may be stored as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// Yes: other bytes already stand for each record.
    Allowed,
    /// No: this column's bytes are what bounds the number of records.
    Never,
}

/// Appends `values`.
pub fn encode(out: &mut impl Out, values: &[u64], layout: Layout, constant: Constant) {
    out.seam();
    if constant == Constant::Allowed
        && let Some((first, others)) = values.split_first()
        && others.iter().all(|v| v == first)
    {
        out.bytes().push(CONSTANT);
        leb128::write(out.bytes(), *first);
        return;
    }
    match layout.decided(values) {
        Layout::Whole | Layout::Either => {
            let bytes = out.bytes();
            bytes.push(LEB128);
            values.iter().for_each(|v| leb128::write(bytes, *v));
        }
        Layout::Split => {
            out.bytes().push(SPLIT);
            let mut shift = 0;
            let mut longest = 1;
            while shift < longest * 7 {
                let bytes = out.bytes();
                for value in values
                    .iter()
                    .map(|v| v >> shift)
                    .filter(|v| shift == 0 || *v > 0)
                {
                    if value >= 0x80 {
                        bytes.push(value as u8 | 0x80);
                        longest = shift / 7 + 2;
                    } else {
                        bytes.push(value as u8);
                    }
                }
                shift += 7;
                out.seam();
            }
        }
    }
    out.seam();
}

/// Takes a column of `count` values, each at most `max`. `count` must be bounded by the caller.
pub fn decode(
    input: &mut Input<'_>,
    count: usize,
    what: &'static str,
    max: u64,
    constant: Constant,
) -> Result<Vec<u64>, FormatError> {
    if count == 0 {
        let encoding = input.u8(what)?;
        return if encoding <= SPLIT && encoding != CONSTANT {
            Ok(Vec::new())
        } else {
            Err(input.error(Problem::BadValue {
                what,
                value: u64::from(encoding),
            }))
        };
    }
    let at = input.clone();
    let encoding = input.u8(what)?;
    if encoding == CONSTANT && constant == Constant::Allowed {
        let value = input.leb_max(what, max)?;
        return Ok(vec![value; count]);
    }
    if encoding != LEB128 && encoding != SPLIT {
        return Err(at.error(Problem::BadValue {
            what,
            value: u64::from(encoding),
        }));
    }
    if count > input.rest().len() {
        let limit = input.rest().len() as u64;
        return Err(at.error(Problem::OverLimit {
            what,
            value: count as u64,
            limit,
        }));
    }
    if encoding == LEB128 {
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(input.leb_max(what, max)?);
        }
        return Ok(values);
    }
    let values = decode_split(input, count, what)?;
    match values.iter().find(|v| **v > max) {
        Some(value) => Err(at.error(Problem::OverLimit {
            what,
            value: *value,
            limit: max,
        })),
        None => Ok(values),
    }
}

fn decode_split(
    input: &mut Input<'_>,
    count: usize,
    what: &'static str,
) -> Result<Vec<u64>, FormatError> {
    let first = input.take(count, what)?;
    let mut values: Vec<u64> = first.iter().map(|b| u64::from(b & 0x7f)).collect();
    let mut open: Vec<usize> = first
        .iter()
        .enumerate()
        .filter(|(_, b)| **b & 0x80 != 0)
        .map(|(i, _)| i)
        .collect();
    let mut shift = 7;
    while !open.is_empty() {
        let bytes = input.take(open.len(), what)?;
        let mut bytes = bytes.iter();
        let mut bad = None;
        open.retain(|i| {
            let Some((byte, value)) = bytes.next().zip(values.get_mut(*i)) else {
                return false;
            };
            // 63 bits are full after the ninth byte: a tenth can only be 1, and the last is never 0.
            if *byte == 0 || (shift == 63 && *byte > 1) {
                bad = Some(u64::from(*byte));
            }
            *value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            byte & 0x80 != 0
        });
        if let Some(value) = bad {
            return Err(input.error(Problem::BadValue { what, value }));
        }
        shift += 7;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[u64], layout: Layout, constant: Constant) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, values, layout, constant);
        let mut input = Input::new("test", &out);
        let back = decode(&mut input, values.len(), "column", u64::MAX, constant);
        assert_eq!(back.as_deref(), Ok(values));
        assert_eq!(input.end("column"), Ok(()));
        for cut in 0..out.len() {
            let mut input = Input::new("test", out.get(..cut).unwrap_or_default());
            assert!(decode(&mut input, values.len(), "column", u64::MAX, constant).is_err());
        }
        out
    }

    #[test]
    fn every_layout_survives() {
        let values = [
            0,
            1,
            127,
            128,
            300,
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            1 << 56,
            5,
        ];
        for layout in [Layout::Whole, Layout::Split] {
            for constant in [Constant::Allowed, Constant::Never] {
                round_trip(&values, layout, constant);
                round_trip(&[], layout, constant);
            }
        }
    }

    #[test]
    fn bytes_are_as_the_specification_says() {
        assert_eq!(
            round_trip(&[300, 300], Layout::Whole, Constant::Allowed),
            [0, 0xac, 2]
        );
        assert_eq!(
            round_trip(&[300, 1], Layout::Whole, Constant::Allowed),
            [1, 0xac, 2, 1]
        );
        assert_eq!(
            round_trip(&[300, 1], Layout::Split, Constant::Allowed),
            [2, 0xac, 1, 2]
        );
        assert_eq!(
            round_trip(&[7, 7], Layout::Split, Constant::Never),
            [2, 7, 7]
        );
    }

    #[test]
    fn a_column_that_bounds_a_count_is_never_constant() {
        let mut input = Input::new("test", &[0, 5]);
        let err = decode(&mut input, 1 << 20, "column", 9, Constant::Never).unwrap_err();
        assert_eq!(
            err.problem,
            Problem::BadValue {
                what: "column",
                value: 0
            }
        );
    }

    #[test]
    fn the_layout_that_takes_less_is_taken() {
        let layout = |values: &[u64]| {
            let bytes = round_trip(values, Layout::Either, Constant::Never);
            bytes.first().copied()
        };
        let noise = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let wide: Vec<u64> = (0..2000).map(|i| noise(i) % 3000).collect();
        assert_eq!(layout(&wide), Some(SPLIT), "second bytes are few");
        let narrow: Vec<u64> = (0..2000).map(|i| noise(i) % 100).collect();
        assert_eq!(layout(&narrow), Some(LEB128), "there are no second bytes");
    }

    #[test]
    fn overlong_and_oversize_values_are_refused() {
        for bytes in [
            &[2u8, 0x80, 0][..],
            &[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[
                2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 1,
            ],
            &[1, 0x80, 0],
            &[3, 1],
        ] {
            let result = decode(
                &mut Input::new("t", bytes),
                1,
                "column",
                u64::MAX,
                Constant::Never,
            );
            assert!(result.is_err(), "{bytes:?} gave {result:?}");
        }
        assert!(decode(&mut Input::new("t", &[2, 9]), 1, "c", 8, Constant::Never).is_err());
        assert!(decode(&mut Input::new("t", &[0, 9]), 1, "c", 8, Constant::Allowed).is_err());
    }
}
