//! A piece of a packed file.
//!
//! ```text
//! record PieceHead
//! the piece's bytes
//! ```

use serde::{Deserialize, Serialize};

use super::{FileKey, FormatError, Problem, limits};
use crate::format::input::Input;
use crate::format::meta;

const WHAT: &str = "packed file";

/// What the packed file is to the mapped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The file that was mapped.
    Executable,
    /// Its separate debug file.
    Debug,
}

/// What a piece says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PieceHead {
    /// For which mapped file.
    pub file: FileKey,
    /// What the packed file is to it.
    pub role: Role,
    /// Bytes of the whole file.
    pub size: u64,
    /// Where in the file this piece begins.
    pub offset: u64,
    /// CRC-32C of the file's bytes from its beginning to the end of this piece.
    pub crc: u32,
}

/// Bytes of content that hold the head of any piece.
pub const HEAD_BYTES: usize = limits::STRING as usize + 256;

/// Appends a frame's content.
pub fn encode(out: &mut Vec<u8>, head: &PieceHead, bytes: &[u8]) -> Result<(), FormatError> {
    meta::encode(out, WHAT, head)?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// The head of a piece, and the number of its bytes, by the first [`HEAD_BYTES`] of a content of `size` bytes.
pub fn decode_head(start: &[u8], size: u64) -> Result<(PieceHead, u64), FormatError> {
    let mut input = Input::new(WHAT, start);
    let whole = input.clone();
    let head: PieceHead = meta::decode(&mut input, "head")?;
    head.file.check(WHAT)?;
    let used = (start.len() - input.rest().len()) as u64;
    let len = size.saturating_sub(used);
    let at_most = |what, value, limit| {
        if value <= limit {
            Ok(())
        } else {
            Err(whole.error(Problem::OverLimit { what, value, limit }))
        }
    };
    at_most("size of the piece", len, limits::PACKED_PIECE)?;
    at_most("size of the file", head.size, limits::PACKED_FILE)?;
    let end = head.offset.saturating_add(len);
    at_most("end of the piece", end, head.size)?;
    if len == 0 && head.size > 0 {
        let what = "size of the piece";
        return Err(whole.error(Problem::BadValue { what, value: 0 }));
    }
    Ok((head, len))
}

/// Decodes a frame's content.
pub fn decode(content: &[u8]) -> Result<(PieceHead, &[u8]), FormatError> {
    let (head, len) = decode_head(content, content.len() as u64)?;
    let start = content.len().saturating_sub(len as usize);
    Ok((head, content.get(start..).unwrap_or_default()))
}
