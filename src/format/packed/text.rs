//! Strings that are UTF-8, kept as one text. The bytes are those of the strings section of a segment.

use crate::format::error::{FormatError, Problem};
use crate::format::input::Input;
use crate::format::{leb128, limits};

/// Many strings in one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Texts {
    text: String,
    /// Where in `text` each string ends.
    ends: Vec<u32>,
}

impl Texts {
    /// Adds a string and gives its number. The caller bounds the sum of all (see [`limits::AID`]).
    pub fn push(&mut self, string: &str) -> u32 {
        self.text.push_str(string);
        self.ends.push(self.text.len() as u32);
        self.ends.len() as u32 - 1
    }

    pub fn get(&self, number: u32) -> Option<&str> {
        let at = number as usize;
        let end = *self.ends.get(at)? as usize;
        let start = match at.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.text.get(start..end)
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all strings.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        leb128::write(out, self.ends.len() as u64);
        let mut start = 0;
        for end in &self.ends {
            leb128::write(out, u64::from(end - start));
            start = *end;
        }
        out.extend_from_slice(self.text.as_bytes());
    }

    pub fn decode(input: &mut Input<'_>) -> Result<Texts, FormatError> {
        let count = input.count("string count", limits::PACKED_SYMBOLS)?;
        let mut ends = Vec::with_capacity(count);
        let mut sum = 0u64;
        let most = input.rest().len() as u64;
        for _ in 0..count {
            let at = input.clone();
            let value = input.leb_max("string length", limits::PACKED_STRING)?;
            sum += value;
            if sum > most {
                let what = "string length";
                let limit = most;
                return Err(at.error(Problem::OverLimit { what, value, limit }));
            }
            ends.push(sum as u32);
        }
        let at = input.clone();
        let bytes = input.take(sum as usize, "strings")?;
        let bad = || {
            at.error(Problem::Record {
                what: "string",
                reason: "not UTF-8".to_owned(),
            })
        };
        let text = str::from_utf8(bytes).map_err(|_| bad())?;
        if ends.iter().any(|end| !text.is_char_boundary(*end as usize)) {
            return Err(bad());
        }
        Ok(Texts {
            text: text.to_owned(),
            ends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive_and_are_utf8() {
        let mut texts = Texts::default();
        for (i, string) in ["", "main", "中", "a\n;b", ""].into_iter().enumerate() {
            assert_eq!(texts.push(string), i as u32);
            assert_eq!(texts.get(i as u32), Some(string));
        }
        assert_eq!(texts.get(5), None);
        let mut out = Vec::new();
        texts.encode(&mut out);
        assert_eq!(Texts::decode(&mut Input::new("t", &out)), Ok(texts));
        // Split inside a character, no UTF-8 at all, lengths beyond the end.
        for bad in [
            &[2, 1, 2, 0xe4, 0xb8, 0xad][..],
            &[1, 1, 0xff],
            &[1, 2, b'a'],
            &[2, 0xff, 0x7f, 1, b'a'],
        ] {
            assert!(Texts::decode(&mut Input::new("t", bad)).is_err(), "{bad:?}");
        }
    }
}
