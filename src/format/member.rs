//! Captures in a file of several: before each, in a skippable frame, that it begins and how long it is.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | 4 bytes | `BPMB` |
//! | 4 | u32 | number: 0, 1, 2, ... |
//! | 8 | u32 | captures in the file |
//! | 12 | u64 | size of the capture, whose first byte follows |
//! | 20 | u32 | CRC-32C of bytes 0..20 |

use super::skippable;

/// First bytes of the content.
pub const MAGIC: [u8; 4] = *b"BPMB";
/// Bytes of the content.
const LEN: usize = 24;
/// Bytes of the whole skippable frame.
pub const FRAME_LEN: usize = skippable::PREFIX + LEN;
/// Bytes that every one begins with.
pub const START: [u8; 12] = *b"\x5C\x2A\x4D\x18\x18\0\0\0BPMB";

/// What is said of a capture before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Which one of the file.
    pub number: u32,
    /// How many there are in the file.
    pub count: u32,
    /// Bytes.
    pub size: u64,
}

impl Member {
    /// The whole skippable frame.
    pub fn encode(self) -> [u8; FRAME_LEN] {
        let mut bytes = [0; FRAME_LEN];
        let parts = [
            &START[..],
            &self.number.to_le_bytes(),
            &self.count.to_le_bytes(),
            &self.size.to_le_bytes(),
        ];
        let filled = parts.into_iter().flatten();
        bytes
            .iter_mut()
            .zip(filled)
            .for_each(|(to, from)| *to = *from);
        let checked = bytes.get(skippable::PREFIX..FRAME_LEN - 4);
        let crc = crc32c::crc32c(checked.unwrap_or_default()).to_le_bytes();
        let end = bytes.iter_mut().skip(FRAME_LEN - 4);
        end.zip(crc).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Decodes a whole skippable frame; `None` when it is none of these, or damaged.
    pub fn decode(bytes: &[u8]) -> Option<Member> {
        let bytes: &[u8; FRAME_LEN] = bytes.first_chunk()?;
        let number = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
        let count = u32::from_le_bytes(*bytes.get(16..)?.first_chunk()?);
        let size = u64::from_le_bytes(*bytes.get(20..)?.first_chunk()?);
        let member = Member {
            number,
            count,
            size,
        };
        (member.encode() == *bytes).then_some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_that_differs_makes_it_none() {
        let member = Member {
            number: 7,
            count: 9,
            size: 1 << 40,
        };
        let bytes = member.encode();
        assert_eq!(Member::decode(&bytes), Some(member));
        for at in 0..bytes.len() {
            let mut bytes = bytes;
            bytes[at] ^= 0x10;
            assert_eq!(Member::decode(&bytes), None, "byte {at}");
        }
        assert_eq!(Member::decode(&bytes[..FRAME_LEN - 1]), None);
    }
}
