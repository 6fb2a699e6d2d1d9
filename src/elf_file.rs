//! Files that may be anything, opened with care, and what the headers of those that are ELF files say; for Go, what its functions are.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod go;

use std::fs::{self, File};
use std::io;
use std::path::Path;

use object::elf::{self, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::event::BuildId;
use crate::format::aid::Load;
use crate::format::limits;

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

/// What an ELF file says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Headers {
    /// Its GNU build ID, from its note segments as the kernel reads it, else its note sections.
    pub build_id: Option<BuildId>,
    /// Its PT_LOAD program headers, in file order; none when there are more than [`limits::LOADS`].
    pub loads: Vec<Load>,
}

/// The GNU build ID of an ELF file: [`Headers::build_id`].
pub fn read_build_id(file: &File) -> Result<Option<BuildId>, ElfError> {
    Ok(read_headers(file)?.build_id)
}

/// The headers of an ELF file.
pub fn read_headers(file: &File) -> Result<Headers, ElfError> {
    let file = file.try_clone().map_err(ElfError::Io)?;
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache) {
        Ok(FileKind::Elf32) => headers_of::<elf::FileHeader32<Endianness>, _>(&cache),
        Ok(FileKind::Elf64) => headers_of::<elf::FileHeader64<Endianness>, _>(&cache),
        _ => Err(ElfError::NotElf),
    }
}

fn headers_of<'d, H, R>(data: R) -> Result<Headers, ElfError>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let build_id = build_id_of::<H, R>(data)?;
    let header = H::parse(data).map_err(|_| ElfError::NotElf)?;
    let endian = header.endian().map_err(|_| ElfError::NotElf)?;
    let segments = header.program_headers(endian, data).unwrap_or(&[]);
    let mut loads: Vec<Load> = segments
        .iter()
        .filter(|s| s.p_type(endian) == PT_LOAD)
        .map(|s| Load {
            offset: s.p_offset(endian).into(),
            vaddr: s.p_vaddr(endian).into(),
            file_size: s.p_filesz(endian).into(),
            mem_size: s.p_memsz(endian).into(),
            flags: s.p_flags(endian).0,
        })
        .collect();
    if loads.len() as u64 > limits::LOADS {
        loads.clear();
    }
    Ok(Headers { build_id, loads })
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

/// Build ID of the running kernel: `/sys/kernel/notes` is its note section.
pub fn running_kernel_build_id() -> Option<BuildId> {
    let notes = fs::read("/sys/kernel/notes").ok()?;
    let mut notes =
        NoteIterator::<elf::FileHeader64<Endianness>>::new(Endianness::default(), 4, &notes)
            .ok()?;
    while let Ok(Some(note)) = notes.next() {
        let gnu = note.name() == elf::ELF_NOTE_GNU;
        if gnu && note.n_type(Endianness::default()) == elf::NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}
