//! Files that may be anything, opened with care, and the build ID of those that are ELF files.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

use std::fs::{self, File};
use std::io;
use std::path::Path;

use object::elf::{self, NT_GNU_BUILD_ID, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use rustix::fs::{Mode, OFlags};

use crate::event::BuildId;

/// Notes are small; larger ones are not looked into.
const MAX_NOTES: u64 = 1 << 20;

/// Why a path could not be opened as a regular file.
#[derive(Debug)]
pub enum OpenError {
    /// It leads to a FIFO, device, directory or socket.
    NotRegular,
    /// The system refused.
    Io(io::Error),
}

/// Opens a regular file and nothing else: never waits for the other end of a FIFO, never touches a device
/// beyond opening it.
pub fn open_regular(path: &Path) -> Result<File, OpenError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    // Opening some devices has effects, so look first; what was opened is then looked at again.
    if !fs::metadata(path).map_err(OpenError::Io)?.is_file() {
        return Err(OpenError::NotRegular);
    }
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| OpenError::Io(e.into()))?;
    let file = File::from(fd);
    if file.metadata().map_err(OpenError::Io)?.is_file() {
        Ok(file)
    } else {
        Err(OpenError::NotRegular)
    }
}

/// Why an ELF file told nothing.
#[derive(Debug)]
pub enum ElfError {
    /// It is no ELF file.
    NotElf,
    /// It cannot be read.
    Io(io::Error),
}

/// The GNU build ID of an ELF file, from its note segments as the kernel reads it, else its note sections.
pub fn read_build_id(file: &File) -> Result<Option<BuildId>, ElfError> {
    let file = file.try_clone().map_err(ElfError::Io)?;
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache) {
        Ok(FileKind::Elf32) => build_id_of::<elf::FileHeader32<Endianness>, _>(&cache),
        Ok(FileKind::Elf64) => build_id_of::<elf::FileHeader64<Endianness>, _>(&cache),
        _ => Err(ElfError::NotElf),
    }
}

fn build_id_of<'d, H, R>(data: R) -> Result<Option<BuildId>, ElfError>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let header = H::parse(data).map_err(|_| ElfError::NotElf)?;
    let endian = header.endian().map_err(|_| ElfError::NotElf)?;
    let find = |notes: Option<NoteIterator<'d, H>>| {
        let mut notes = notes?;
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                return BuildId::new(note.desc());
            }
        }
        None
    };
    let segments = header.program_headers(endian, data).unwrap_or(&[]);
    let by_segment = segments
        .iter()
        .filter(|s| s.p_type(endian) == PT_NOTE && s.p_filesz(endian).into() <= MAX_NOTES)
        .find_map(|s| find(s.notes(endian, data).ok().flatten()));
    if by_segment.is_some() {
        return Ok(by_segment);
    }
    let sections = header.section_headers(endian, data).unwrap_or(&[]);
    Ok(sections
        .iter()
        .filter(|s| s.sh_size(endian).into() <= MAX_NOTES)
        .find_map(|s| find(s.notes(endian, data).ok().flatten())))
}
