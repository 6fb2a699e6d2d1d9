//! Appending frames to a capture that is there: after everything it has, numbered on, and a new index at the end.

use std::io::Write;

use super::reader::Reader;
use super::write_error::WriteError;
use super::writer::DEFAULT_LEVEL;
use crate::format::descriptor::{Descriptor, FrameKind};
use crate::format::frame::FrameCompressor;
use crate::format::index::{self, FrameEntry};
use crate::format::{limits, skippable};

/// Writes frames behind a capture's last whole frame.
pub struct Appender<W> {
    out: W,
    zstd: FrameCompressor,
    entries: Vec<FrameEntry>,
    sequence: u32,
    offset: u64,
    data: Vec<u8>,
    block: Vec<u8>,
}

impl<W: Write> Appender<W> {
    /// Appends to the capture that `reader` reads. `out` writes behind [`Reader::whole_len`].
    pub fn new(out: W, reader: &Reader) -> Result<Appender<W>, WriteError> {
        let entries = reader.frames().to_vec();
        let last = entries.last().map(|entry| entry.descriptor.sequence);
        Ok(Appender {
            out,
            zstd: FrameCompressor::new(DEFAULT_LEVEL).map_err(WriteError::Zstd)?,
            sequence: last.map_or(0, |last| last.saturating_add(1)),
            offset: reader.whole_len(),
            entries,
            data: Vec::new(),
            block: Vec::new(),
        })
    }

    /// The beginning of a new capture, whose header of `offset` bytes is written.
    pub fn after_header(out: W, offset: u64) -> Result<Appender<W>, WriteError> {
        Ok(Appender {
            out,
            zstd: FrameCompressor::new(DEFAULT_LEVEL).map_err(WriteError::Zstd)?,
            entries: Vec::new(),
            sequence: 0,
            offset,
            data: Vec::new(),
            block: Vec::new(),
        })
    }

    /// Appends one frame with one write.
    pub fn frame(&mut self, kind: FrameKind, content: &[u8]) -> Result<(), WriteError> {
        self.described(content, Descriptor::of_kind(kind))
    }

    /// Appends `content` with one write. What of `descriptor` says where and how large it is, is set here.
    pub fn described(&mut self, content: &[u8], descriptor: Descriptor) -> Result<(), WriteError> {
        let mut data = std::mem::take(&mut self.data);
        self.zstd.compress(content, &mut data)?;
        let descriptor = Descriptor {
            compressed: data.len() as u64,
            uncompressed: content.len() as u64,
            data_crc: crc32c::crc32c(&data),
            ..descriptor
        };
        let written = self.compressed(&data, descriptor);
        self.data = data;
        written
    }

    /// Appends a zstd frame as it is; of its `descriptor` the sequence is set here.
    pub fn compressed(&mut self, data: &[u8], descriptor: Descriptor) -> Result<(), WriteError> {
        let descriptor = Descriptor {
            sequence: self.sequence,
            ..descriptor
        };
        self.block.clear();
        skippable::encode(&mut self.block, |out| {
            descriptor.encode(out);
            Ok(())
        })?;
        self.block.extend_from_slice(data);
        let offset = self.offset;
        self.write_block()?;
        self.sequence = self.sequence.saturating_add(1);
        self.entries.push(FrameEntry { offset, descriptor });
        Ok(())
    }

    /// Writes the index of all frames, unless there are more than an index may have. Gives `out` back and the length of
    /// the whole file.
    pub fn finish(mut self) -> Result<(W, u64), WriteError> {
        if self.entries.len() as u64 <= limits::INDEX_ENTRIES {
            let Appender { block, entries, .. } = &mut self;
            block.clear();
            skippable::encode(block, |out| {
                index::encode(out, entries);
                Ok(())
            })?;
            self.write_block()?;
        }
        let offset = self.offset;
        self.out
            .flush()
            .map_err(|source| WriteError::Io { offset, source })?;
        Ok((self.out, self.offset))
    }

    /// Length of the file as far as it is written.
    pub fn len(&self) -> u64 {
        self.offset
    }

    /// Whether nothing is written, which can only be before a header.
    pub fn is_empty(&self) -> bool {
        self.offset == 0
    }

    fn write_block(&mut self) -> Result<(), WriteError> {
        let offset = self.offset;
        self.out
            .write_all(&self.block)
            .map_err(|source| WriteError::Io { offset, source })?;
        self.offset += self.block.len() as u64;
        Ok(())
    }
}
