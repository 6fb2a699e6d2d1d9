//! The index at the end: where each frame is. A cache of what a scan of the file finds.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | 4 bytes | `BPIX` |
//! | 4 | u32 | number n of entries |
//! | 8 | n x 96 bytes | u64 offset of the skippable frame with the descriptor, 88 bytes descriptor |
//! | 8 + 96 n | u32 | CRC-32C of bytes 0..8 + 96 n |
//! | 12 + 96 n | u32 | size of this content: 20 + 96 n |
//! | 16 + 96 n | 4 bytes | `BPIX` |
//!
//! The last eight bytes of the file lead to it.

use super::descriptor::{self, Descriptor};
use super::error::{FormatError, Problem};
use super::input::Input;
use super::limits;

/// First and last bytes of an index.
pub const MAGIC: [u8; 4] = *b"BPIX";
/// Bytes at the end of a file that tell where its index begins: size and magic.
pub const TRAILER: usize = 8;
/// Bytes besides the entries.
pub const FIXED: usize = 20;
/// Bytes of an entry.
pub const ENTRY: usize = 8 + descriptor::LEN;
const PART: &str = "index";

/// A frame of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameEntry {
    /// Where the skippable frame with its descriptor begins, in bytes from the beginning of the file.
    pub offset: u64,
    /// Its descriptor.
    pub descriptor: Descriptor,
}

impl FrameEntry {
    /// Where the zstd frame begins.
    pub fn data_offset(&self) -> u64 {
        self.offset.saturating_add(descriptor::FRAME_LEN as u64)
    }

    /// Where the frame after it begins.
    pub fn end(&self) -> u64 {
        self.data_offset()
            .saturating_add(self.descriptor.compressed)
    }
}

/// Appends the index's content.
pub fn encode(out: &mut Vec<u8>, entries: &[FrameEntry]) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.offset.to_le_bytes());
        entry.descriptor.encode(out);
    }
    let crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
    let size = (FIXED + entries.len() * ENTRY) as u32;
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(&MAGIC);
}

/// The size of an index's content that `trailer`, the last [`TRAILER`] bytes of a file, announces.
pub fn size_from_trailer(trailer: &[u8]) -> Option<u64> {
    let mut input = Input::new(PART, trailer);
    let size = input.u32("size").ok()?;
    let most = FIXED as u64 + limits::INDEX_ENTRIES * ENTRY as u64;
    let ours = input.rest() == MAGIC && size as usize >= FIXED && u64::from(size) <= most;
    ours.then_some(u64::from(size))
}

/// Decodes an index's content.
pub fn decode(bytes: &[u8]) -> Result<Vec<FrameEntry>, FormatError> {
    let whole = Input::new(PART, bytes);
    let mut input = whole.clone();
    let checked = input.take(bytes.len().saturating_sub(FIXED - 8), PART)?;
    let crc = input.u32("checksum")?;
    let size = input.u32("size")?;
    let magic = input.take(MAGIC.len(), "magic")?;
    input.end(PART)?;
    if magic != MAGIC || size as usize != bytes.len() || crc != crc32c::crc32c(checked) {
        return Err(whole.error(Problem::Checksum(PART)));
    }
    let mut input = Input::new(PART, checked);
    let magic = input.take(MAGIC.len(), "magic")?;
    if magic != MAGIC {
        return Err(whole.error(Problem::Checksum(PART)));
    }
    let count = u64::from(input.u32("number of entries")?);
    let limit = limits::INDEX_ENTRIES.min((input.rest().len() / ENTRY) as u64);
    if count > limit {
        let what = "number of entries";
        return Err(input.error(Problem::OverLimit {
            what,
            value: count,
            limit,
        }));
    }
    let mut entries = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let offset = input.u64("offset")?;
        let descriptor = Descriptor::decode(input.take(descriptor::LEN, "descriptor")?)?;
        entries.push(FrameEntry { offset, descriptor });
    }
    input.end(PART)?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Timestamp;
    use crate::format::descriptor::FrameKind;

    fn entry(n: u32) -> FrameEntry {
        let descriptor = Descriptor {
            kind: FrameKind::Segment,
            required: true,
            sequence: n,
            segment: 1,
            ordinal: n,
            compressed: 100,
            uncompressed: 200,
            first: Timestamp(1),
            last: Timestamp(2),
            samples: 3,
            lost: 4,
            truncated: 0,
            data_crc: 5,
        };
        FrameEntry {
            offset: u64::from(n) * 196,
            descriptor,
        }
    }

    #[test]
    fn an_index_survives_and_is_found_from_its_end() {
        for count in [0, 1, 3] {
            let entries: Vec<_> = (0..count).map(entry).collect();
            let mut out = Vec::new();
            encode(&mut out, &entries);
            assert_eq!(decode(&out).as_deref(), Ok(&entries[..]));
            let trailer = out.get(out.len() - TRAILER..).unwrap_or_default();
            assert_eq!(size_from_trailer(trailer), Some(out.len() as u64));
            for bit in 0..out.len() * 8 {
                let mut flipped = out.clone();
                if let Some(byte) = flipped.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                assert!(decode(&flipped).is_err(), "bit {bit}");
            }
        }
        assert_eq!(size_from_trailer(b"\xff\xff\xff\xffBPIX"), None);
        assert_eq!(size_from_trailer(b"\x13\0\0\0BPIX"), None);
        assert_eq!(size_from_trailer(b"\x14\0\0\0BPIY"), None);
        assert_eq!(size_from_trailer(b"BPIX"), None);
    }
}
