//! The content of single frames, checked against their descriptors.

use std::io;

use super::damage::DamageKind;
use super::source::Source;
use crate::format::descriptor::{self, Descriptor};
use crate::format::error::{FormatError, Problem};
use crate::format::frame::FrameDecompressor;
use crate::format::index::FrameEntry;
use crate::format::segment::TablesEnd;
use crate::format::{limits, skippable};

/// Reads and checks the content of frames, with buffers that are used again.
#[derive(Default)]
pub(super) struct FrameReader {
    zstd: Option<FrameDecompressor>,
    bytes: Vec<u8>,
    content: Vec<u8>,
}

impl FrameReader {
    pub(super) fn content(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<&[u8], DamageKind> {
        let data = self.data(source, entry)?;
        let data = self.bytes.get(data).unwrap_or_default();
        let zstd = decompressor(&mut self.zstd)?;
        zstd.decompress(data, entry.descriptor.uncompressed, &mut self.content)
            .map_err(DamageKind::Format)?;
        Ok(&self.content)
    }

    /// The zstd frame as it is in the file, with the right checksum.
    pub(super) fn compressed(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<&[u8], DamageKind> {
        let data = self.data(source, entry)?;
        Ok(self.bytes.get(data).unwrap_or_default())
    }

    /// The first `count` bytes of a frame's content, or all of it, when the rest need not be decompressed. The frame's
    /// checksum is compared all the same.
    pub(super) fn start(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
        count: usize,
    ) -> Result<&[u8], DamageKind> {
        self.start_as(source, entry, |_| count)
    }

    /// Of a segment frame, what is in front of its samples: see [`FrameReader::start`]. `None` where its tables do not all
    /// come before its samples.
    pub(super) fn tables(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<Option<&[u8]>, DamageKind> {
        let size = entry.descriptor.uncompressed as usize;
        let content = self.start_as(source, entry, |start| match TablesEnd::find(start, size) {
            TablesEnd::Needs(count) | TablesEnd::At(count) => count,
            TablesEnd::Behind => 0,
        })?;
        Ok(match TablesEnd::find(content, size) {
            TablesEnd::At(end) => content.get(..end),
            TablesEnd::Needs(_) | TablesEnd::Behind => None,
        })
    }

    fn start_as(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
        needs: impl FnMut(&[u8]) -> usize,
    ) -> Result<&[u8], DamageKind> {
        let data = self.data(source, entry)?;
        let data = self.bytes.get(data).unwrap_or_default();
        let size = entry.descriptor.uncompressed;
        decompressor(&mut self.zstd)?
            .decompress_start(data, size, &mut self.content, needs)
            .map_err(DamageKind::Format)?;
        Ok(&self.content)
    }

    /// Reads a frame as it is in the file, and compares its descriptor and checksum. Gives where in the buffer the zstd
    /// frame is.
    fn data(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
    ) -> Result<std::ops::Range<usize>, DamageKind> {
        let compressed = entry.descriptor.compressed.min(limits::FRAME_COMPRESSED) as usize;
        let len = descriptor::FRAME_LEN + compressed;
        source
            .read(entry.offset, len, &mut self.bytes)
            .map_err(cannot_read)?;
        let split = self.bytes.split_at_checked(descriptor::FRAME_LEN);
        let (head, data) = split.ok_or(DamageKind::NoFrame)?;
        // An index may have led here: the frame must be the one it speaks of.
        let prefix = skippable::prefix(head).map_err(DamageKind::Format)?;
        let head = Descriptor::decode(head.get(skippable::PREFIX..).unwrap_or_default());
        let head = head.map_err(DamageKind::Format)?;
        if prefix != (skippable::MAGIC, descriptor::LEN as u32) || head != entry.descriptor {
            return Err(DamageKind::NoFrame);
        }
        if crc32c::crc32c(data) != entry.descriptor.data_crc {
            let problem = Problem::Checksum("compressed bytes");
            return Err(DamageKind::Format(FormatError::new(
                "zstd frame",
                0,
                problem,
            )));
        }
        Ok(descriptor::FRAME_LEN..len)
    }
}

fn decompressor(
    zstd: &mut Option<FrameDecompressor>,
) -> Result<&mut FrameDecompressor, DamageKind> {
    Ok(match zstd {
        Some(zstd) => zstd,
        none => none.insert(FrameDecompressor::new().map_err(cannot_read)?),
    })
}

fn cannot_read(err: io::Error) -> DamageKind {
    match err.kind() {
        io::ErrorKind::UnexpectedEof => {
            DamageKind::Io("the file became shorter while it was read".to_owned())
        }
        _ => DamageKind::Io(err.to_string()),
    }
}
