//! The sections of an ELF file, mapped, and inflated when they are first needed.

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::thread;

use gimli::SectionId;
use object::{CompressionFormat, Object, ObjectSection};

use crate::mapped::Guarded;

/// Sections larger than this are not inflated.
const MAX_INFLATED: u64 = 4 << 30;
/// Nor larger than so many bytes and so many times what is compressed: debug information shrinks to a third, rarely to a tenth, and
/// a file can be made to inflate to a thousand times its size.
const INFLATED_BASE: u64 = 64 << 20;
const INFLATED_TIMES: u64 = 64;

/// An ELF file.
pub(super) struct Sections {
    map: Guarded,
    /// Debug sections, by [`SectionId`].
    debug: Vec<Section>,
}

struct Section {
    id: SectionId,
    place: Range<usize>,
    /// `None`: as it is.
    compressed: Option<(CompressionFormat, u64)>,
    inflated: OnceCell<Result<Vec<u8>, String>>,
}

/// The sections names and lines are made of; line tables, and unwind information for functions without a name, last.
const NEEDED: [SectionId; 10] = [
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugStr,
    SectionId::DebugLineStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugAddr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugLine,
    SectionId::DebugFrame,
];

/// What a `.dwp` file must have besides. Its index of type units, which are not needed, is broken in those of binutils.
const OF_PACKAGES: [SectionId; 6] = [
    SectionId::DebugCuIndex,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugTypes,
];

impl Sections {
    /// Maps `file`. With `split` its sections are those of a `.dwo` or `.dwp` file.
    pub fn open(file: &File, split: bool) -> Result<Sections, String> {
        let map = Guarded::new(file).map_err(|err| err.to_string())?;
        let elf = object::File::parse(&*map).map_err(|err| err.to_string())?;
        if !elf.is_little_endian() {
            return Err("big-endian files are not supported".to_owned());
        }
        let package: &[SectionId] = if split { &OF_PACKAGES } else { &[] };
        let debug = NEEDED.iter().chain(package).filter_map(|id| {
            let id = *id;
            let name = if split { id.dwo_name()? } else { id.name() };
            // The older way to compress changes the name.
            let section = elf.section_by_name(name).or_else(|| {
                let old = name.strip_prefix(".debug_")?;
                elf.section_by_name(&format!(".zdebug_{old}"))
            })?;
            let (place, compressed) = match section.compressed_file_range() {
                Ok(range) => {
                    let start = usize::try_from(range.offset).ok()?;
                    let len = usize::try_from(range.compressed_size).ok()?;
                    let compressed = match range.format {
                        CompressionFormat::None => None,
                        format => Some((format, range.uncompressed_size)),
                    };
                    (start..start.saturating_add(len), compressed)
                }
                // It is there all the same: it must not look as if there were none.
                Err(_) => (0..1, Some((CompressionFormat::Unknown, 0))),
            };
            // A debug section of a file whose debug information is elsewhere has no bytes.
            (!place.is_empty()).then(|| Section {
                id,
                place,
                compressed,
                inflated: OnceCell::new(),
            })
        });
        let debug = debug.collect();
        Ok(Sections { map, debug })
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Whether bytes that were asked for are gone: the file became shorter after it was opened.
    pub fn have_shrunk(&self) -> bool {
        self.map.has_shrunk()
    }

    /// Whether it is a debug file: the sections for code are there, their bytes are not. Its program headers say nothing about
    /// where those bytes are in the program.
    pub fn has_no_code(&self) -> bool {
        let Ok(elf) = object::File::parse(&*self.map) else {
            return false;
        };
        let mut code = elf.sections().filter(is_code).peekable();
        code.peek().is_some() && code.all(|section| section.file_range().is_none())
    }

    /// Whether there is such a section with bytes in the file.
    pub fn has(&self, id: SectionId) -> bool {
        self.debug.iter().any(|section| section.id == id)
    }

    /// Inflates those of the sections that are `wanted`, side by side: what is needed of a large debug file is needed at once.
    pub fn inflate(&self, wanted: impl Fn(SectionId) -> bool) {
        let sections = self.debug.iter();
        let sections: Vec<&Section> = sections
            .filter(|section| section.compressed.is_some() && wanted(section.id))
            .filter(|section| section.inflated.get().is_none())
            .collect();
        thread::scope(|scope| {
            let threads = sections.iter().filter_map(|section| {
                let raw = self.map.get(section.place.clone())?;
                let (format, size) = section.compressed?;
                let id = section.id;
                Some((
                    *section,
                    scope.spawn(move || inflated(id, raw, format, size)),
                ))
            });
            for (section, thread) in threads.collect::<Vec<_>>() {
                // Where that fails, it is inflated when it is asked for.
                if let Ok(bytes) = thread.join() {
                    let _ = section.inflated.set(bytes);
                }
            }
        });
    }

    /// A section's bytes, none when it is not there.
    pub fn get(&self, id: SectionId) -> Result<&[u8], String> {
        let Some(section) = self.debug.iter().find(|section| section.id == id) else {
            return Ok(&[]);
        };
        let raw = self.map.get(section.place.clone());
        let raw = raw.ok_or_else(|| format!("{} lies outside of the file", id.name()))?;
        let Some((format, size)) = section.compressed else {
            return Ok(raw);
        };
        let bytes = section
            .inflated
            .get_or_init(|| inflated(id, raw, format, size));
        bytes.as_deref().map_err(Clone::clone)
    }
}

fn inflated(
    id: SectionId,
    raw: &[u8],
    format: CompressionFormat,
    size: u64,
) -> Result<Vec<u8>, String> {
    inflate(raw, format, size).map_err(|problem| format!("{} {problem}", id.name()))
}

fn is_code<'d, 'f>(section: &object::Section<'d, 'f>) -> bool {
    let wanted = object::elf::SHF_EXECINSTR.0 | object::elf::SHF_ALLOC.0;
    match section.flags() {
        object::SectionFlags::Elf { sh_flags, .. } => sh_flags.0 & wanted == wanted,
        _ => false,
    }
}

/// Inflates a section that is said to have `size` bytes.
fn inflate(raw: &[u8], format: CompressionFormat, size: u64) -> Result<Vec<u8>, String> {
    let honest = (raw.len() as u64).saturating_mul(INFLATED_TIMES);
    if size > honest.saturating_add(INFLATED_BASE).min(MAX_INFLATED) {
        return Err(format!("would inflate to {size} bytes"));
    }
    let mut out = Vec::new();
    let read = match format {
        CompressionFormat::Zlib => flate2::read::ZlibDecoder::new(raw)
            .take(size + 1)
            .read_to_end(&mut out),
        CompressionFormat::Zstandard => zstd::stream::read::Decoder::new(raw)
            .and_then(|decoder| decoder.take(size + 1).read_to_end(&mut out)),
        _ => {
            return Err("is compressed in a way that is not known here".to_owned());
        }
    };
    match read {
        Ok(len) if len as u64 == size => Ok(out),
        Ok(_) => Err("has another size than its header says when inflated".to_owned()),
        Err(err) => Err(format!("cannot be inflated: {err}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn sections_inflate_to_the_size_they_say() {
        let text = b"abc".repeat(1000);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        let zstd = zstd::bulk::compress(&text, 1).unwrap();
        for (bytes, format) in [
            (&zlib, CompressionFormat::Zlib),
            (&zstd, CompressionFormat::Zstandard),
        ] {
            assert_eq!(inflate(bytes, format, 3000).as_deref(), Ok(&text[..]));
            assert!(inflate(bytes, format, 2999).is_err());
            assert!(inflate(bytes, format, 3001).is_err());
            assert!(inflate(&bytes[..bytes.len() - 6], format, 3000).is_err());
            assert!(inflate(bytes, format, u64::MAX).is_err());
            let bomb = INFLATED_BASE + INFLATED_TIMES * bytes.len() as u64 + 1;
            let refused = inflate(bytes, format, bomb).unwrap_err();
            assert!(refused.starts_with("would inflate"), "{refused}");
        }
        let unknown = inflate(&zlib, CompressionFormat::Unknown, 3000).unwrap_err();
        assert!(unknown.contains("not known"), "{unknown}");
    }
}
