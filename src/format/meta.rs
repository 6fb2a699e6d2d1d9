//! Metadata records: `serde` types written by bincode 2 with `config::standard()`, always within a limit.
//!
//! `format-spec.md` spells the resulting bytes out, so that nobody needs bincode to read a capture.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::{FormatError, Problem};
use super::input::Input;
use super::limits;

/// Appends one record.
pub fn encode<T: Serialize>(
    out: &mut Vec<u8>,
    what: &'static str,
    record: &T,
) -> Result<(), FormatError> {
    let offset = out.len();
    bincode::serde::encode_into_std_write(record, out, bincode::config::standard())
        .map(|_| ())
        .map_err(|err| bad_record(what, offset, &err))
}

/// Takes one record of at most [`limits::RECORD`] bytes.
pub fn decode<T: DeserializeOwned>(
    input: &mut Input<'_>,
    what: &'static str,
) -> Result<T, FormatError> {
    let config = bincode::config::standard().with_limit::<{ limits::RECORD }>();
    let (record, used) = bincode::serde::decode_from_slice(input.rest(), config)
        .map_err(|err| input.error(reason(what, &err)))?;
    input.take(used, what)?;
    Ok(record)
}

/// Takes a record that is a whole frame of its own, all of it; at most [`limits::AID`] bytes.
pub fn decode_frame<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, FormatError> {
    let mut input = Input::new(what, bytes);
    let value = bytes.len() as u64;
    if value > limits::AID as u64 {
        let limit = limits::AID as u64;
        return Err(input.error(Problem::OverLimit {
            what: "content size",
            value,
            limit,
        }));
    }
    let config = bincode::config::standard().with_limit::<{ limits::AID }>();
    let (record, used) = bincode::serde::decode_from_slice(bytes, config)
        .map_err(|err| input.error(reason(what, &err)))?;
    input.take(used, what)?;
    input.end(what)?;
    Ok(record)
}

/// Appends a list: LEB128 count, then the records.
pub fn encode_list<T: Serialize>(
    out: &mut Vec<u8>,
    what: &'static str,
    records: &[T],
) -> Result<(), FormatError> {
    super::leb128::write(out, records.len() as u64);
    records
        .iter()
        .try_for_each(|record| encode(out, what, record))
}

/// Takes a list of at most `limit` records, each of which takes at least one byte.
pub fn decode_list<T: DeserializeOwned>(
    input: &mut Input<'_>,
    what: &'static str,
    limit: u64,
) -> Result<Vec<T>, FormatError> {
    let count = input.count(what, limit)?;
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(decode(input, what)?);
    }
    Ok(records)
}

/// For `deserialize_with`: a vector of at most [`limits::AID_ENTRIES`], which takes no more memory than those before it is refused.
pub fn entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Entries<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
        type Value = Vec<T>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "at most {} entries", limits::AID_ENTRIES)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = list.next_element()? {
                if entries.len() as u64 >= limits::AID_ENTRIES {
                    return Err(A::Error::custom("more entries than the format allows"));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_seq(Entries(PhantomData))
}

fn bad_record(what: &'static str, offset: usize, err: &dyn std::fmt::Display) -> FormatError {
    FormatError::new(what, offset, reason(what, err))
}

fn reason(what: &'static str, err: &dyn std::fmt::Display) -> Problem {
    Problem::Record {
        what,
        reason: err.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The encodings `format-spec.md` spells out.
    #[test]
    fn bincode_writes_the_bytes_the_specification_says() {
        fn bytes<T: Serialize>(value: T) -> Vec<u8> {
            let mut out = Vec::new();
            encode(&mut out, "value", &value).unwrap();
            out
        }
        assert_eq!(bytes(250u32), [250]);
        assert_eq!(bytes(251u32), [251, 251, 0]);
        assert_eq!(bytes(65_536u32), [252, 0, 0, 1, 0]);
        assert_eq!(bytes(1u64 << 32), [253, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes(255u8), [255]);
        assert_eq!(bytes(-1i32), [1]);
        assert_eq!(bytes(1i64), [2]);
        assert_eq!(bytes(-200i64), [251, 143, 1]);
        assert_eq!(bytes(true), [1]);
        assert_eq!(bytes(None::<u32>), [0]);
        assert_eq!(bytes(Some(7u32)), [1, 7]);
        assert_eq!(bytes("ab"), [2, b'a', b'b']);
        assert_eq!(bytes(vec![3u32, 4]), [2, 3, 4]);
    }

    #[test]
    fn absurd_lengths_fail_without_allocating_them() {
        let mut bytes = vec![253];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode_frame::<String>("name", &bytes).is_err());
        assert!(decode_frame::<Vec<u64>>("list", &bytes).is_err());
        assert!(decode::<Vec<u64>>(&mut Input::new("list", &bytes), "list").is_err());
    }

    #[test]
    fn a_list_has_no_more_entries_than_allowed() {
        #[derive(Debug, Deserialize)]
        struct List(#[serde(deserialize_with = "entries")] Vec<u64>);
        let most = limits::AID_ENTRIES as usize;
        for (count, fits) in [(most, true), (most + 1, false)] {
            let mut content = vec![252];
            content.extend_from_slice(&(count as u32).to_le_bytes());
            content.resize(content.len() + count, 0);
            let decoded = decode_frame::<List>("list", &content);
            assert_eq!(decoded.map(|list| list.0.len()).ok(), fits.then_some(count));
        }
    }

    #[test]
    fn bytes_after_a_record_are_refused() {
        assert_eq!(decode_frame::<u32>("number", &[7]), Ok(7));
        let err = decode_frame::<u32>("number", &[7, 0]).unwrap_err();
        assert_eq!(
            err.problem,
            Problem::LeftOver {
                what: "number",
                count: 1
            }
        );
    }
}
