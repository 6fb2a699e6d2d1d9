//! Whether a capture's last bytes are what a recorder leaves that was killed, or a machine that lost power, or are damage.
//!
//! What is appended is a frame or the index of all frames before. So a cut leaves the beginning of one of the two, and after a loss
//! of power zeros may follow, of blocks that were never written. Anything else was changed.

use std::io;

use super::CHUNK;
use crate::capture::source::Source;
use crate::format::index::{self, FrameEntry};
use crate::format::{descriptor, header, limits, skippable};

/// Where a file's last zeros begin, found when it is asked for.
pub(super) struct Tail {
    /// A later version may write what this one does not know.
    later_version: bool,
    written: Option<u64>,
}

impl Tail {
    pub fn of(source: &Source) -> io::Result<Tail> {
        let at = (skippable::PREFIX + header::MAGIC.len() + 2) as u64;
        let mut minor = Vec::new();
        source.read_up_to(at, 2, &mut minor)?;
        let minor = <[u8; 2]>::try_from(minor.as_slice()).map(u16::from_le_bytes);
        Ok(Tail {
            later_version: minor.is_ok_and(|minor| minor > header::MINOR),
            written: None,
        })
    }

    /// Length of the file without the zeros at its end.
    fn written(&mut self, source: &Source) -> io::Result<u64> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let mut chunk = Vec::new();
        let mut end = source.len();
        // Few bytes first: most files have no zeros there.
        let mut size = 1 << 10;
        while end > 0 {
            let start = end.saturating_sub(size as u64);
            source.read(start, (end - start) as usize, &mut chunk)?;
            if let Some(last) = chunk.iter().rposition(|byte| *byte != 0) {
                end = start + last as u64 + 1;
                break;
            }
            end = start;
            size = CHUNK;
        }
        self.written = Some(end);
        Ok(end)
    }

    /// Whether nothing but zeros is from `pos` on.
    pub fn ends_by(&mut self, source: &Source, pos: u64) -> io::Result<bool> {
        Ok(self.written(source)? <= pos)
    }

    /// Whether the file was cut at, or after, `pos`, where no frame is whole and after which none begins. `before` are the
    /// frames before.
    pub fn is_cut(&mut self, source: &Source, pos: u64, before: &[FrameEntry]) -> io::Result<bool> {
        let written = self.written(source)?;
        if written <= pos {
            return Ok(true);
        }
        let index_len = (before.len() as u64 <= limits::INDEX_ENTRIES)
            .then_some(index::FIXED + before.len() * index::ENTRY);
        let longest = index_len.unwrap_or_default().max(descriptor::LEN) + skippable::PREFIX;
        let len = (written - pos).min(longest as u64 + 1) as usize;
        let mut bytes = Vec::new();
        source.read(pos, len, &mut bytes)?;
        Ok(begins_frame(&bytes, before)
            || (index_len.is_some() && begins_index(&bytes, before))
            || (self.later_version && begins_unknown(&bytes, source.len() - pos)))
    }

    /// Whether the file was cut inside the last frame, which is as long as it says because zeros follow.
    pub fn has_cut(&mut self, source: &Source, last: &FrameEntry) -> io::Result<bool> {
        let written = self.written(source)?;
        if written == source.len() || last.end() <= written {
            return Ok(false);
        }
        let mut crc = 0;
        let mut chunk = Vec::new();
        let mut pos = last.data_offset();
        while pos < last.end() {
            let len = (last.end() - pos).min(CHUNK as u64);
            source.read(pos, len as usize, &mut chunk)?;
            crc = crc32c::crc32c_append(crc, &chunk);
            pos += len;
        }
        Ok(crc != last.descriptor.data_crc)
    }
}

/// Whether `bytes` are a part of a descriptor that follows on `before`.
fn begins_frame(bytes: &[u8], before: &[FrameEntry]) -> bool {
    // A whole one has a checksum, which was wrong.
    if bytes.len() >= descriptor::FRAME_LEN {
        return false;
    }
    let mut start = prefix(descriptor::LEN, &descriptor::MAGIC);
    // Kind, flags, reserved.
    let known = start.len();
    let sequence = before
        .last()
        .map_or(0, |last| last.descriptor.sequence.saturating_add(1));
    start.extend_from_slice(&[0; 4]);
    start.extend_from_slice(&sequence.to_le_bytes());
    let same = |from: usize, to: usize| {
        let to = to.min(bytes.len());
        from >= to || bytes.get(from..to) == start.get(from..to)
    };
    same(0, known) && same(known + 4, start.len())
}

/// Whether `bytes` are a part of the index of `before`.
fn begins_index(bytes: &[u8], before: &[FrameEntry]) -> bool {
    let mut content = Vec::new();
    index::encode(&mut content, before);
    let mut whole = prefix(content.len(), &[]);
    whole.extend_from_slice(&content);
    whole.len() > bytes.len() && whole.starts_with(bytes)
}

/// Whether `bytes`, of which there are `left`, are a part of something that a reader passes over.
fn begins_unknown(bytes: &[u8], left: u64) -> bool {
    match skippable::prefix(bytes) {
        Ok((magic, size)) => {
            skippable::is_skippable(magic) && u64::from(size) + skippable::PREFIX as u64 > left
        }
        Err(_) => true,
    }
}

fn prefix(size: usize, magic: &[u8]) -> Vec<u8> {
    let mut start = skippable::MAGIC.to_le_bytes().to_vec();
    start.extend_from_slice(&(size as u32).to_le_bytes());
    start.extend_from_slice(magic);
    start
}
