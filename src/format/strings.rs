//! The strings section: names and paths as bytes, not necessarily UTF-8.
//!
//! LEB128 count, then the LEB128 length of each, then the bytes of all.

use super::error::FormatError;
use super::input::Input;
use super::{leb128, limits};

/// Appends `strings`.
pub fn encode(out: &mut Vec<u8>, strings: &[Vec<u8>]) {
    leb128::write(out, strings.len() as u64);
    strings
        .iter()
        .for_each(|s| leb128::write(out, s.len() as u64));
    strings.iter().for_each(|s| out.extend_from_slice(s));
}

/// Takes a strings section.
pub fn decode(input: &mut Input<'_>) -> Result<Vec<Vec<u8>>, FormatError> {
    let count = input.count("string count", limits::TABLE)?;
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        lengths.push(input.leb_max("string length", limits::STRING)? as usize);
    }
    lengths
        .into_iter()
        .map(|len| Ok(input.take(len, "string")?.to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::error::Problem;

    #[test]
    fn any_bytes_survive() {
        let strings = vec![b"".to_vec(), b"a b;\n\xff\0".to_vec(), vec![b'x'; 64 << 10]];
        let mut out = Vec::new();
        encode(&mut out, &strings);
        assert_eq!(decode(&mut Input::new("t", &out)), Ok(strings));
    }

    #[test]
    fn oversize_strings_and_absurd_counts_are_refused() {
        let mut out = vec![1];
        leb128::write(&mut out, limits::STRING + 1);
        let err = decode(&mut Input::new("t", &out)).unwrap_err();
        let limit = limits::STRING;
        let problem = Problem::OverLimit {
            what: "string length",
            value: limit + 1,
            limit,
        };
        assert_eq!(err.problem, problem);
        let mut out = Vec::new();
        leb128::write(&mut out, limits::TABLE);
        assert!(decode(&mut Input::new("t", &out)).is_err());
        assert!(decode(&mut Input::new("t", &[2, 1, 1, b'a'])).is_err());
    }
}
