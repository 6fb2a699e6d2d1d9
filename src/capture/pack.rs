//! What was packed into a capture, found by the identity of the mapped file.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::reader::{Damage, DamageKind, FrameReader};
use super::source::Source;
use crate::event::{BuildId, MappedFile};
use crate::format::aid::Load;
use crate::format::descriptor::FrameKind;
use crate::format::index::FrameEntry;
use crate::format::limits;
use crate::format::packed::FileKey;
use crate::format::packed::file::{self, PieceHead, Role};
use crate::format::packed::symbols::{AtOffset, PackedSymbols};
use crate::format::packed::table::{PackedFunction, PackedTable};

/// What a capture carries for names beside what was recorded.
///
/// Symbols of offsets are held in memory; tables and files are read when they are asked for.
#[derive(Debug, Default)]
pub struct Pack {
    source: Option<Arc<Source>>,
    keys: HashMap<FileKey, usize>,
    by_build_id: HashMap<BuildId, Vec<usize>>,
    contents: Vec<Content>,
    /// How much of what a reader takes is used up.
    pub(crate) symbols_room: Room,
    pub(crate) tables_room: Room,
}

/// What a reader still takes of one kind of frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    bytes: u64,
    entries: u64,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            bytes: limits::PACKED_ALL,
            entries: limits::PACKED_ENTRIES,
        }
    }
}

impl Room {
    /// Takes room for a frame; `false` when there is not so much.
    pub(crate) fn take(&mut self, bytes: u64, entries: u64) -> bool {
        let left = self.bytes.checked_sub(bytes);
        match left.zip(self.entries.checked_sub(entries)) {
            Some((bytes, entries)) => {
                *self = Room { bytes, entries };
                true
            }
            None => false,
        }
    }
}

/// What is packed under one key.
#[derive(Debug, Default)]
struct Content {
    frames: Vec<PackedSymbols>,
    /// (offset, frame, number in the frame), ascending, each offset once.
    symbols: Vec<(u64, u32, u32)>,
    tables: Vec<FrameEntry>,
    /// In all tables.
    functions: u64,
    pieces: Vec<(PieceHead, u64, FrameEntry)>,
}

/// A file that was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFile {
    /// For which mapped file.
    pub file: FileKey,
    /// What it is to it.
    pub role: Role,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes of it that are here, from its beginning on without a gap.
    pub here: u64,
    /// CRC-32C of the bytes here.
    pub crc: u32,
}

/// Why a packed file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// A part of it is missing in the capture.
    #[error("only {here} of its {size} bytes were packed")]
    Incomplete {
        /// Bytes that are here.
        here: u64,
        /// Bytes it had.
        size: u64,
    },
    /// A frame with a part of it cannot be used.
    #[error("the capture is damaged at byte {offset}: {kind}")]
    Damaged {
        /// Where the frame begins.
        offset: u64,
        /// What is wrong.
        kind: DamageKind,
    },
    /// The bytes are not those that were packed.
    #[error("its checksum does not match")]
    Checksum {
        /// Where the frame begins after which it does not.
        offset: u64,
    },
    /// It cannot be written.
    #[error("it cannot be unpacked: {0}")]
    Io(#[from] io::Error),
}

impl Pack {
    /// Reads what is packed in the frames of a capture, and says which of them cannot be used.
    pub(super) fn new(source: &Arc<Source>, entries: &[FrameEntry]) -> (Pack, Vec<Damage>) {
        let mut pack = Pack {
            source: Some(Arc::clone(source)),
            ..Pack::default()
        };
        let mut damage = Vec::new();
        let mut frames = FrameReader::default();
        for entry in entries {
            if let Err(kind) = pack.add(source, entry, &mut frames) {
                damage.push(Damage {
                    offset: entry.offset,
                    kind,
                    frames: 1,
                    samples: 0,
                });
            }
        }
        for content in &mut pack.contents {
            content.sort();
        }
        (pack, damage)
    }

    fn add(
        &mut self,
        source: &Source,
        entry: &FrameEntry,
        frames: &mut FrameReader,
    ) -> Result<(), DamageKind> {
        let bytes = entry.descriptor.uncompressed;
        match entry.descriptor.kind {
            FrameKind::PackedSymbols => {
                let content = frames.content(source, entry)?;
                let symbols = PackedSymbols::decode(content).map_err(DamageKind::Format)?;
                if !self.symbols_room.take(bytes, symbols.entries()) {
                    return Err(DamageKind::TooMuchPacked);
                }
                if let Some(content) = self.content_mut(&symbols.file) {
                    content.frames.push(symbols);
                }
            }
            FrameKind::PackedTable => {
                let content = frames.content(source, entry)?;
                let table = PackedTable::decode(content).map_err(DamageKind::Format)?;
                if !self.tables_room.take(bytes, table.functions.len() as u64) {
                    return Err(DamageKind::TooMuchPacked);
                }
                if let Some(content) = self.content_mut(&table.file) {
                    content.tables.push(entry.clone());
                    content.functions += table.functions.len() as u64;
                }
            }
            FrameKind::PackedFile => {
                // Its bytes are decompressed when the file is unpacked.
                let start = frames.start(source, entry, file::HEAD_BYTES)?;
                let (head, len) = file::decode_head(start, entry.descriptor.uncompressed)
                    .map_err(DamageKind::Format)?;
                if let Some(content) = self.content_mut(&head.file) {
                    content.pieces.push((head, len, entry.clone()));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn content_mut(&mut self, key: &FileKey) -> Option<&mut Content> {
        let next = self.contents.len();
        let number = match self.keys.get(key) {
            Some(number) => *number,
            None => {
                self.keys.insert(key.clone(), next);
                if let Some(id) = &key.build_id {
                    self.by_build_id.entry(id.clone()).or_default().push(next);
                }
                self.contents.push(Content::default());
                next
            }
        };
        self.contents.get_mut(number)
    }

    /// Whether nothing is packed.
    pub fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// What was packed for `file` itself. Offsets of another file of its build ID may be laid out differently.
    fn content(&self, key: &FileKey) -> Option<&Content> {
        self.contents.get(*self.keys.get(key)?)
    }

    /// What was packed for `file` first, then for others of its build ID.
    fn contents(&self, file: &MappedFile) -> Vec<&Content> {
        let Some(key) = FileKey::of(file) else {
            return Vec::new();
        };
        let own = self.keys.get(&key).copied();
        let same = key
            .build_id
            .as_ref()
            .and_then(|id| self.by_build_id.get(id));
        let same = same.into_iter().flatten().copied();
        own.into_iter()
            .chain(same.filter(|number| Some(*number) != own))
            .filter_map(|number| self.contents.get(number))
            .collect()
    }

    /// What is packed of `offsets` of `file`, in their order; `None` where that is nothing: the offset was not hit when it was packed,
    /// or the file was missing.
    pub fn symbols(&self, file: &MappedFile, offsets: &[u64]) -> Vec<Option<AtOffset>> {
        match FileKey::of(file) {
            Some(key) => self.symbols_of(&key, offsets),
            None => vec![None; offsets.len()],
        }
    }

    /// As [`Pack::symbols`], by the key.
    pub fn symbols_of(&self, key: &FileKey, offsets: &[u64]) -> Vec<Option<AtOffset>> {
        let content = self.content(key);
        let find = |offset: &u64| content?.find(*offset);
        offsets.iter().map(find).collect()
    }

    /// The symbol table packed for `file`; `None` when there is none. Functions are sorted by start.
    pub fn table(&self, file: &MappedFile) -> Option<(Vec<Load>, Vec<PackedFunction>)> {
        let source = self.source.as_deref()?;
        let content = self.table_of(file)?;
        let mut frames = FrameReader::default();
        let mut loads = Vec::new();
        let mut functions = Vec::new();
        for entry in &content.tables {
            // What is damaged was told when the pack was opened.
            let table = frames.content(source, entry).ok().map(PackedTable::decode);
            if let Some(Ok(table)) = table {
                loads = table.loads;
                functions.extend(table.functions);
            }
        }
        functions.sort_by_key(|f| f.start);
        Some((loads, functions))
    }

    /// Functions in the symbol table packed for `file`; fewer than it has when its pack was interrupted.
    pub fn table_functions(&self, file: &MappedFile) -> u64 {
        self.table_of(file).map_or(0, |content| content.functions)
    }

    fn table_of(&self, file: &MappedFile) -> Option<&Content> {
        let content = self.content(&FileKey::of(file)?)?;
        (!content.tables.is_empty()).then_some(content)
    }

    /// The files packed for `file`, then for others of its build ID.
    pub fn files(&self, file: &MappedFile) -> Vec<PackedFile> {
        let contents = self.contents(file);
        contents.into_iter().flat_map(Content::files).collect()
    }

    /// Bytes of all packed files together that are unpacked at most: what the capture can hold honestly.
    pub fn most_unpacked(&self) -> u64 {
        let len = self.source.as_ref().map_or(0, |source| source.len());
        let honest = len.saturating_mul(limits::UNPACKED_TIMES);
        honest
            .saturating_add(limits::UNPACKED_BASE)
            .min(limits::UNPACKED)
    }

    /// All keys with what is packed under them: symbols, whether a table, files.
    pub fn listing(&self) -> Vec<(FileKey, usize, bool, Vec<PackedFile>)> {
        let list = self.keys.iter().filter_map(|(key, number)| {
            let c = self.contents.get(*number)?;
            Some((
                key.clone(),
                c.symbols.len(),
                !c.tables.is_empty(),
                c.files(),
            ))
        });
        let mut list: Vec<_> = list.collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }

    /// Writes the bytes of a packed file to `out`, piece by piece, and checks them.
    pub fn unpack(&self, packed: &PackedFile, out: &mut dyn Write) -> Result<(), UnpackError> {
        let incomplete = UnpackError::Incomplete {
            here: packed.here,
            size: packed.size,
        };
        if packed.here < packed.size {
            return Err(incomplete);
        }
        let content = self
            .keys
            .get(&packed.file)
            .and_then(|n| self.contents.get(*n));
        let (Some(source), Some(content)) = (self.source.as_deref(), content) else {
            return Err(incomplete);
        };
        let mut frames = FrameReader::default();
        let mut crc = 0;
        for (head, entry) in content.pieces_of(packed.role, packed.size) {
            let damaged = |kind| UnpackError::Damaged {
                offset: entry.offset,
                kind,
            };
            let bytes = frames.content(source, entry).map_err(damaged)?;
            let (_, bytes) = file::decode(bytes).map_err(|err| damaged(DamageKind::Format(err)))?;
            crc = crc32c::crc32c_append(crc, bytes);
            if crc != head.crc {
                let offset = entry.offset;
                return Err(UnpackError::Checksum { offset });
            }
            out.write_all(bytes)?;
        }
        Ok(())
    }
}

impl Content {
    /// Later frames count more.
    fn sort(&mut self) {
        for (number, frame) in self.frames.iter().enumerate() {
            let offsets = frame.offsets().iter().enumerate();
            self.symbols
                .extend(offsets.map(|(i, offset)| (*offset, number as u32, i as u32)));
        }
        self.symbols
            .sort_unstable_by_key(|(offset, frame, _)| (*offset, std::cmp::Reverse(*frame)));
        self.symbols.dedup_by_key(|(offset, ..)| *offset);
        self.symbols.shrink_to_fit();
        self.pieces
            .sort_by_key(|(head, len, _)| (head.role, head.size, head.offset, *len));
    }

    fn find(&self, offset: u64) -> Option<AtOffset> {
        let at = self
            .symbols
            .binary_search_by_key(&offset, |(o, ..)| *o)
            .ok()?;
        let (_, frame, number) = self.symbols.get(at)?;
        self.frames.get(*frame as usize)?.symbol(*number as usize)
    }

    /// Pieces of one file that follow each other from its beginning. Those that overlap are not taken.
    fn pieces_of(&self, role: Role, size: u64) -> impl Iterator<Item = (&PieceHead, &FrameEntry)> {
        let mut next = 0;
        self.pieces
            .iter()
            .filter(move |(head, ..)| (head.role, head.size) == (role, size))
            .filter_map(move |(head, len, entry)| {
                let first_of_empty = size == 0 && *len == 0;
                if head.offset != next || (*len == 0 && !first_of_empty) {
                    return None;
                }
                next += len;
                Some((head, entry))
            })
    }

    fn files(&self) -> Vec<PackedFile> {
        let mut files: Vec<PackedFile> = Vec::new();
        for (head, ..) in &self.pieces {
            let known = |f: &PackedFile| (f.role, f.size) == (head.role, head.size);
            if files.last().is_some_and(known) {
                continue;
            }
            let mut file = PackedFile {
                file: head.file.clone(),
                role: head.role,
                size: head.size,
                here: 0,
                crc: 0,
            };
            let last = self.pieces_of(head.role, head.size).last();
            if let Some((last, entry)) = last {
                let len = self.pieces.iter().find(|(_, _, e)| e == entry);
                file.here = last.offset + len.map_or(0, |(_, len, _)| *len);
                file.crc = last.crc;
            }
            files.push(file);
        }
        files
    }
}
