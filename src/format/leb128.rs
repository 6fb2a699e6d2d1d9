//! Unsigned LEB128, and zigzag for signed numbers.

/// Most bytes a 64-bit number takes.
pub const MAX_LEN: usize = 10;

/// Appends `value`.
pub fn write(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What was found at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// A number and how many bytes it took.
    Value(u64, usize),
    /// The bytes end inside a number.
    CutShort,
    /// More than 64 bits.
    TooLong,
    /// Padded with zero bits: there is one encoding of each number, and this is not it.
    Overlong,
}

/// Reads one number from the beginning of `bytes`.
pub fn read(bytes: &[u8]) -> Read {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().take(MAX_LEN).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if i == MAX_LEN - 1 && *byte > 1 {
            return Read::TooLong;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            if bits == 0 && i > 0 {
                return Read::Overlong;
            }
            return Read::Value(value, i + 1);
        }
    }
    if bytes.len() < MAX_LEN {
        Read::CutShort
    } else {
        Read::TooLong
    }
}

/// 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_in_the_fewest_bytes() {
        for (value, len) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (16_383, 2),
            (16_384, 3),
            (u64::from(u32::MAX), 5),
            (i64::MAX as u64, 9),
            (u64::MAX, 10),
        ] {
            let mut out = Vec::new();
            write(&mut out, value);
            assert_eq!(out.len(), len, "{value}");
            assert_eq!(read(&out), Read::Value(value, len));
            out.pop();
            assert_eq!(read(&out), Read::CutShort);
        }
    }

    #[test]
    fn what_is_no_number_is_told_apart() {
        assert_eq!(read(&[]), Read::CutShort);
        assert_eq!(read(&[0x80, 0]), Read::Overlong);
        assert_eq!(read(&[0xff; 9]), Read::CutShort);
        assert_eq!(read(&[0xff; 10]), Read::TooLong);
        assert_eq!(
            read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
            Read::TooLong
        );
    }

    #[test]
    fn zigzag_interleaves() {
        for (signed, unsigned) in [
            (0, 0),
            (-1, 1),
            (1, 2),
            (-2, 3),
            (i64::MAX, u64::MAX - 1),
            (i64::MIN, u64::MAX),
        ] {
            assert_eq!(zigzag(signed), unsigned);
            assert_eq!(unzigzag(unsigned), signed);
        }
    }
}
