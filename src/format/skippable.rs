//! zstd skippable frames: u32 magic, u32 size of the content, content. zstd tools pass over them.

use super::error::{FormatError, Problem};
use super::input::Input;

/// The magic number of ours. Frames with any of the other fifteen (see [`is_skippable`]) mean nothing.
pub const MAGIC: u32 = 0x184D_2A5C;
/// The magic number of a zstd frame with data.
pub const ZSTD_MAGIC: u32 = 0xFD2F_B528;
/// Bytes in front of the content.
pub const PREFIX: usize = 8;

/// Whether a frame with this magic number is skippable.
pub fn is_skippable(magic: u32) -> bool {
    magic & 0xFFFF_FFF0 == 0x184D_2A50
}

/// Appends a frame with what `content` writes.
pub fn encode(
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    content(out)?;
    let value = (out.len() - start) as u64;
    let limit = u64::from(u32::MAX);
    let too_long = Problem::OverLimit {
        what: "content",
        value,
        limit,
    };
    let len =
        u32::try_from(value).map_err(|_| FormatError::new("skippable frame", at, too_long))?;
    if let Some(place) = out.get_mut(at..start) {
        place.copy_from_slice(&len.to_le_bytes());
    }
    Ok(())
}

/// Magic number and content size at the beginning of `bytes`.
pub fn prefix(bytes: &[u8]) -> Result<(u32, u32), FormatError> {
    let mut input = Input::new("frame", bytes);
    Ok((input.u32("frame")?, input.u32("frame")?))
}
