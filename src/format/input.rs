//! Reading checked bytes: nothing is taken that is not there.

use super::error::{FormatError, Problem};
use super::leb128;

/// The rest of a part being decoded.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    part: &'static str,
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Input<'a> {
    /// All of `bytes`, which errors call `part`.
    pub fn new(part: &'static str, bytes: &'a [u8]) -> Input<'a> {
        Input {
            part,
            rest: bytes,
            offset: 0,
        }
    }

    /// Bytes not yet taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// `problem` where the input stands.
    pub fn error(&self, problem: Problem) -> FormatError {
        FormatError::new(self.part, self.offset, problem)
    }

    /// The next `count` bytes, which are (part of) `what`.
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| self.error(Problem::CutShort(what)))?;
        self.rest = rest;
        self.offset += count;
        Ok(taken)
    }

    /// The next `count` bytes as an input of their own.
    pub fn section(&mut self, count: usize, what: &'static str) -> Result<Input<'a>, FormatError> {
        let offset = self.offset;
        let rest = self.take(count, what)?;
        Ok(Input {
            part: self.part,
            rest,
            offset,
        })
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FormatError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or_else(|| self.error(Problem::CutShort(what)))?;
        self.rest = rest;
        self.offset += N;
        Ok(*taken)
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, FormatError> {
        self.array::<1>(what).map(u8::from_le_bytes)
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, FormatError> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// An unsigned LEB128 number.
    pub fn leb(&mut self, what: &'static str) -> Result<u64, FormatError> {
        match leb128::read(self.rest) {
            leb128::Read::Value(value, len) => {
                self.rest = self.rest.get(len..).unwrap_or_default();
                self.offset += len;
                Ok(value)
            }
            leb128::Read::CutShort => Err(self.error(Problem::CutShort(what))),
            leb128::Read::TooLong => Err(self.error(Problem::OverLimit {
                what,
                value: u64::MAX,
                limit: u64::MAX,
            })),
            leb128::Read::Overlong => Err(self.error(Problem::BadValue { what, value: 0 })),
        }
    }

    /// A LEB128 number that is at most `limit`.
    pub fn leb_max(&mut self, what: &'static str, limit: u64) -> Result<u64, FormatError> {
        let at = self.clone();
        let value = self.leb(what)?;
        if value > limit {
            return Err(at.error(Problem::OverLimit { what, value, limit }));
        }
        Ok(value)
    }

    /// A LEB128 number of things of at least one byte each: at most `limit`, and at most what is left.
    pub fn count(&mut self, what: &'static str, limit: u64) -> Result<usize, FormatError> {
        let at = self.clone();
        let value = self.leb_max(what, limit)?;
        let limit = self.rest.len() as u64;
        if value > limit {
            return Err(at.error(Problem::OverLimit { what, value, limit }));
        }
        Ok(value as usize)
    }

    /// Fails unless everything was taken.
    pub fn end(&self, what: &'static str) -> Result<(), FormatError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.error(Problem::LeftOver {
            what,
            count: self.rest.len() as u64,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_numbers_are_little_endian_and_bounded() {
        let mut input = Input::new("test", &[1, 2, 0, 3, 0, 0, 0, 4]);
        assert_eq!(input.u8("a"), Ok(1));
        assert_eq!(input.u16("b"), Ok(2));
        assert_eq!(input.u32("c"), Ok(3));
        let err = input.u64("d").unwrap_err();
        assert_eq!(err.to_string(), "test, byte 7: d is cut short");
    }

    #[test]
    fn a_count_is_never_more_than_the_bytes_left() {
        assert_eq!(Input::new("t", &[2, 0, 0]).count("n", 9), Ok(2));
        let err = Input::new("t", &[3, 0, 0]).count("n", 9).unwrap_err();
        assert_eq!(
            err.problem,
            Problem::OverLimit {
                what: "n",
                value: 3,
                limit: 2
            }
        );
        let err = Input::new("t", &[2, 0, 0]).count("n", 1).unwrap_err();
        assert_eq!(
            err.problem,
            Problem::OverLimit {
                what: "n",
                value: 2,
                limit: 1
            }
        );
    }
}
