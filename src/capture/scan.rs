//! Finding the frames of a capture, in spite of damage, and in spite of an end that is missing.

mod content;
mod tail;

use std::io;

use memchr::memmem;

use self::tail::Tail;
use super::reader::{CaptureError, Damage, DamageKind};
use super::source::Source;
use crate::format::descriptor::{self, Descriptor};
use crate::format::error::{FormatError, Problem};
use crate::format::header::{self, Header};
use crate::format::index::{self, FrameEntry};
use crate::format::{limits, skippable};

/// Bytes read at a time when looking for the next frame after damage: few at first, since it may be near and a file can be
/// full of damage.
const FIRST_CHUNK: usize = 1 << 10;
const CHUNK: usize = 1 << 20;
/// Bytes of a file that tell what begins there: a whole descriptor.
const HEAD: usize = descriptor::FRAME_LEN;
/// Indexes that turn out bad after so many are not read.
const BAD_INDEXES: usize = 4;
/// How many damages are told apart; more of them only count.
const MAX_DAMAGES: usize = 1000;

/// What was learnt of a capture's frames without decompressing any.
#[derive(Debug)]
pub struct Scan {
    pub entries: Vec<FrameEntry>,
    pub damage: Vec<Damage>,
    pub cut_bytes: u64,
    pub index: IndexState,
}

/// What became of the index, which never changes what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// The frames were found by the index.
    Used,
    /// The file was scanned, and its index agrees or is of an earlier state of the file.
    Scanned,
    /// There is none.
    Missing,
    /// There is a damaged one at this byte.
    Damaged(u64),
}

/// Reads the header. Gives it and the offset of what follows.
pub fn header(source: &Source) -> Result<(Header, u64), CaptureError> {
    let (content, next) = header_content(source)?;
    let header = Header::decode(&content).map_err(CaptureError::Header)?;
    Ok((header, next))
}

/// Whether it is a file that holds captures; its header has been read.
pub fn is_merged(source: &Source) -> bool {
    header_content(source).is_ok_and(|(content, _)| header::is_merged(&content))
}

fn header_content(source: &Source) -> Result<(Vec<u8>, u64), CaptureError> {
    let mut bytes = Vec::new();
    source
        .read_up_to(0, skippable::PREFIX, &mut bytes)
        .map_err(CaptureError::Read)?;
    let whole = skippable::prefix(&bytes)
        .ok()
        .filter(|(magic, _)| *magic == skippable::MAGIC);
    if source.len() == 0 {
        return Err(CaptureError::Empty);
    }
    let not_ours = || CaptureError::Header(FormatError::new("file", 0, Problem::NotACapture));
    let (_, size) = whole.ok_or_else(not_ours)?;
    if u64::from(size) > header::MAX_CONTENT {
        return Err(not_ours());
    }
    let offset = skippable::PREFIX as u64;
    source
        .read_up_to(offset, size as usize, &mut bytes)
        .map_err(CaptureError::Read)?;
    if bytes.len() < size as usize && bytes.starts_with(&header::MAGIC) {
        return Err(CaptureError::CutInHeader {
            bytes: source.len(),
        });
    }
    Ok((bytes, offset + u64::from(size)))
}

/// Finds the frames from `start` on: by the index if there is a good one, else by walking the file.
pub fn frames(source: &Source, start: u64) -> Result<Scan, CaptureError> {
    let mut scan = match by_index(source, start).map_err(CaptureError::Read)? {
        Some(entries) => Scan {
            entries,
            damage: Vec::new(),
            cut_bytes: 0,
            index: IndexState::Used,
        },
        None => walk(source, start).map_err(CaptureError::Read)?,
    };
    let beyond = content::keep_within(&mut scan.entries, source);
    scan.damage.extend(beyond);
    let refused = scan
        .entries
        .iter()
        .find(|e| e.descriptor.required && !e.descriptor.kind.is_known());
    match refused {
        None => Ok(scan),
        Some(entry) => {
            let problem = Problem::RequiredKind(entry.descriptor.kind.number());
            Err(CaptureError::Header(FormatError::new(
                "file",
                entry.offset as usize,
                problem,
            )))
        }
    }
}

/// The frames by the index, when it lies at the end and accounts for every byte between the header and
/// itself, indexes of earlier states left out. Its descriptors are compared with those in the file when their frames are read.
fn by_index(source: &Source, start: u64) -> io::Result<Option<Vec<FrameEntry>>> {
    let mut bytes = Vec::new();
    let trailer = source.len().saturating_sub(index::TRAILER as u64);
    source.read_up_to(trailer, index::TRAILER, &mut bytes)?;
    let Some(size) = index::size_from_trailer(&bytes) else {
        return Ok(None);
    };
    let Some(offset) = source.len().checked_sub(size + skippable::PREFIX as u64) else {
        return Ok(None);
    };
    source.read(offset, skippable::PREFIX, &mut bytes)?;
    if skippable::prefix(&bytes)
        .ok()
        .map(|(magic, len)| (magic, u64::from(len)))
        != Some((skippable::MAGIC, size))
    {
        return Ok(None);
    }
    source.read(offset + skippable::PREFIX as u64, size as usize, &mut bytes)?;
    let Ok(entries) = index::decode(&bytes) else {
        return Ok(None);
    };
    let mut next = start;
    for (sequence, entry) in entries.iter().enumerate() {
        let follows = entry.offset == next || index_spans(source, next, entry.offset)?;
        if !follows || entry.descriptor.sequence as usize != sequence {
            return Ok(None);
        }
        next = entry.end();
    }
    let follows = next == offset || index_spans(source, next, offset)?;
    Ok(follows.then_some(entries))
}

/// Whether an index of an earlier state of the file lies from `start` to `end` exactly.
pub fn index_spans(source: &Source, start: u64, end: u64) -> io::Result<bool> {
    let mut bytes = Vec::new();
    let largest = (index::FIXED as u64) + limits::INDEX_ENTRIES * index::ENTRY as u64;
    let content = start + skippable::PREFIX as u64;
    let Some(size) = end.checked_sub(content).filter(|size| *size <= largest) else {
        return Ok(false);
    };
    source.read_up_to(start, skippable::PREFIX, &mut bytes)?;
    if skippable::prefix(&bytes).ok() != Some((skippable::MAGIC, size as u32)) {
        return Ok(false);
    }
    source.read_up_to(content, size as usize, &mut bytes)?;
    Ok(index::decode(&bytes).is_ok())
}

/// What begins at some place of a file.
enum Found {
    Frame(Descriptor),
    /// Something without a meaning; the next begins there.
    Skip(u64),
    Index {
        good: bool,
        end: u64,
    },
    /// The file ends inside its compressed bytes.
    CutFrame,
    /// Nothing good, or the file ends inside it.
    Damaged(DamageKind),
    /// Another capture: nothing after it belongs to this one.
    Foreign,
}

fn walk(source: &Source, start: u64) -> io::Result<Scan> {
    let mut scan = Scan {
        entries: Vec::new(),
        damage: Vec::new(),
        cut_bytes: 0,
        index: IndexState::Missing,
    };
    let mut bytes = Vec::new();
    let mut pos = start;
    let mut next_sequence = 0u32;
    let mut damaged_since_frame = false;
    let mut bad_indexes = 0;
    let mut tail = Tail::of(source)?;
    while pos < source.len() {
        let left = source.len() - pos;
        match look(source, pos, bad_indexes, &mut bytes)? {
            Found::Frame(descriptor) => {
                let entry = FrameEntry {
                    offset: pos,
                    descriptor,
                };
                let sequence = entry.descriptor.sequence;
                pos = entry.end();
                if sequence < next_sequence {
                    scan.damaged(entry.offset, DamageKind::Repeated(sequence));
                    continue;
                }
                if sequence > next_sequence && !damaged_since_frame {
                    let missing = DamageKind::Missing {
                        first: next_sequence,
                        next: sequence,
                    };
                    scan.damaged(entry.offset, missing);
                }
                damaged_since_frame = false;
                next_sequence = sequence.saturating_add(1);
                scan.entries.push(entry);
            }
            // What is left of a descriptor can look like something without a meaning.
            Found::Skip(next) => {
                if tail.ends_by(source, next)? && tail.is_cut(source, pos, &scan.entries)? {
                    scan.cut_bytes = left;
                    break;
                }
                pos = next;
            }
            Found::Index { good: true, end } => {
                scan.index = IndexState::Scanned;
                pos = end;
            }
            Found::Index { good: false, .. } => {
                bad_indexes += 1;
                // Its length may be wrong too.
                let next = find_frame(source, pos + 1)?;
                if next.is_none() && tail.is_cut(source, pos, &scan.entries)? {
                    scan.cut_bytes = left;
                    break;
                }
                scan.index = IndexState::Damaged(pos);
                pos = next.unwrap_or(source.len());
            }
            Found::CutFrame => {
                scan.cut_bytes = left;
                break;
            }
            Found::Foreign => {
                scan.damaged(pos, DamageKind::Foreign { bytes: left });
                break;
            }
            Found::Damaged(kind) => {
                let next = find_frame(source, pos + 1)?;
                if next.is_none() && tail.is_cut(source, pos, &scan.entries)? {
                    scan.cut_bytes = left;
                    break;
                }
                scan.damaged(pos, kind);
                damaged_since_frame = true;
                pos = next.unwrap_or(source.len());
            }
        }
    }
    if let Some(last) = scan.entries.last()
        && scan.damage.last().is_none_or(|d| d.offset < last.offset)
        && tail.has_cut(source, last)?
    {
        scan.cut_bytes = source.len() - last.offset;
        scan.entries.pop();
    }
    Ok(scan)
}

impl Scan {
    fn damaged(&mut self, offset: u64, kind: DamageKind) {
        if self.damage.len() < MAX_DAMAGES {
            self.damage.push(Damage {
                offset,
                kind,
                frames: 0,
                samples: 0,
            });
        }
    }
}

/// What begins at `pos`, in a file with `bad_indexes` before.
fn look(source: &Source, pos: u64, bad_indexes: usize, bytes: &mut Vec<u8>) -> io::Result<Found> {
    source.read_up_to(pos, HEAD, bytes)?;
    let left = source.len() - pos;
    let Ok((magic, size)) = skippable::prefix(bytes) else {
        return Ok(Found::Damaged(DamageKind::NoFrame));
    };
    if !skippable::is_skippable(magic) {
        return Ok(Found::Damaged(DamageKind::NoFrame));
    }
    let end = pos
        .saturating_add(skippable::PREFIX as u64)
        .saturating_add(u64::from(size));
    let content = bytes.get(skippable::PREFIX..).unwrap_or_default();
    let begins = |magic: &[u8]| content.starts_with(magic);
    if magic == skippable::MAGIC && begins(&descriptor::MAGIC) {
        if size as usize != descriptor::LEN || left < HEAD as u64 {
            return Ok(Found::Damaged(DamageKind::NoFrame));
        }
        return Ok(match Descriptor::decode(content) {
            Err(err) => Found::Damaged(DamageKind::Format(err)),
            Ok(descriptor) if descriptor.compressed > left - HEAD as u64 => Found::CutFrame,
            Ok(descriptor) => Found::Frame(descriptor),
        });
    }
    if magic == skippable::MAGIC && begins(&header::MAGIC) {
        return Ok(Found::Foreign);
    }
    if magic == skippable::MAGIC && begins(&index::MAGIC) {
        // Each bad one costs the time of reading all of it, and a file can be nothing but bad ones.
        let largest = (index::FIXED as u64) + limits::INDEX_ENTRIES * index::ENTRY as u64;
        if bad_indexes >= BAD_INDEXES || u64::from(size) > largest {
            return Ok(Found::Index { good: false, end });
        }
        if end > source.len() {
            return Ok(Found::Damaged(DamageKind::NoFrame));
        }
        source.read(pos + skippable::PREFIX as u64, size as usize, bytes)?;
        return Ok(Found::Index {
            good: index::decode(bytes).is_ok(),
            end,
        });
    }
    if end > source.len() {
        return Ok(Found::Damaged(DamageKind::NoFrame));
    }
    Ok(Found::Skip(end))
}

/// The next place from `from` on where a descriptor with a good checksum begins.
fn find_frame(source: &Source, from: u64) -> io::Result<Option<u64>> {
    let mut pattern = Vec::with_capacity(skippable::PREFIX + descriptor::MAGIC.len());
    pattern.extend_from_slice(&skippable::MAGIC.to_le_bytes());
    pattern.extend_from_slice(&(descriptor::LEN as u32).to_le_bytes());
    pattern.extend_from_slice(&descriptor::MAGIC);
    let finder = memmem::Finder::new(&pattern);
    let mut chunk = Vec::new();
    let mut pos = from;
    let mut size = FIRST_CHUNK;
    while source.len().saturating_sub(pos) >= HEAD as u64 {
        source.read_up_to(pos, size, &mut chunk)?;
        size = (size * 2).min(CHUNK);
        for hit in finder.find_iter(&chunk) {
            let content = chunk
                .get(hit + skippable::PREFIX..hit + HEAD)
                .unwrap_or_default();
            if Descriptor::decode(content).is_ok() {
                return Ok(Some(pos + hit as u64));
            }
        }
        // The last bytes may be the beginning of a descriptor.
        pos += (chunk.len() - (HEAD - 1)) as u64;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::source::READ;
    use crate::format::descriptor::FrameKind;

    /// A frame of a kind nobody knows, with `content` bytes.
    fn frame(sequence: u32, content: usize) -> Vec<u8> {
        let descriptor = Descriptor {
            sequence,
            compressed: content as u64,
            ..Descriptor::of_kind(FrameKind::from_number(200))
        };
        let mut out = skippable_frame(descriptor::LEN as u32);
        descriptor.encode(&mut out);
        out.resize(out.len() + content, 7);
        out
    }

    fn skippable_frame(size: u32) -> Vec<u8> {
        [skippable::MAGIC.to_le_bytes(), size.to_le_bytes()].concat()
    }

    /// How much of it was read to find its frames.
    fn walked(file: Vec<u8>) -> (Scan, u64) {
        let source = Source::Bytes(file);
        READ.set(0);
        let scan = walk(&source, 0).expect("memory can be read");
        (scan, READ.get())
    }

    /// Bad indexes as long as any can be, each before a frame: all but the first few are not read.
    #[test]
    fn a_file_of_bad_indexes_is_not_read_again_for_each() {
        const BAD: u32 = 400;
        let largest = index::FIXED as u64 + limits::INDEX_ENTRIES * index::ENTRY as u64;
        let mut file = Vec::new();
        for sequence in 0..BAD {
            file.extend(skippable_frame(largest as u32));
            file.extend(index::MAGIC);
            file.extend(frame(sequence, 20));
        }
        // Room for the last one.
        file.resize(file.len() + largest as usize, 7);
        let len = file.len() as u64;
        let (scan, read) = walked(file);
        assert_eq!(scan.entries.len(), BAD as usize);
        assert!(matches!(scan.index, IndexState::Damaged(_)));
        assert!(read <= 7 * len, "{read} bytes read of {len}");
    }

    /// Damage between each two frames costs what lies between them, about.
    #[test]
    fn a_file_of_damage_is_not_read_again_for_each() {
        let file: Vec<u8> = (0..2000)
            .flat_map(|sequence| [b"damage".to_vec(), frame(sequence, 20)].concat())
            .collect();
        let len = file.len() as u64;
        let (scan, read) = walked(file);
        assert_eq!((scan.entries.len(), scan.damage.len()), (2000, MAX_DAMAGES));
        assert!(read <= 20 * len, "{read} bytes read of {len}");
    }

    /// Good indexes in mid-file are those of an earlier end, and each is read once.
    #[test]
    fn a_file_of_good_indexes_is_read_once() {
        let mut file = Vec::new();
        for sequence in 0..500 {
            file.extend(frame(sequence, 20));
            let mut content = Vec::new();
            index::encode(&mut content, &[]);
            file.extend(skippable_frame(content.len() as u32));
            file.extend(content);
        }
        let len = file.len() as u64;
        let (scan, read) = walked(file);
        assert_eq!((scan.entries.len(), scan.damage.len()), (500, 0));
        assert_eq!(scan.index, IndexState::Scanned);
        assert!(read <= 3 * len, "{read} bytes read of {len}");
    }
}
