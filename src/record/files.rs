//! Which file a mapping maps: what tells it from every other file, read while its process lives.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef, elf};

use super::maps::{RawMapping, classify};
use crate::event::{BuildId, FileVersion, InodeKey, MappedFile, MappedKind, Pid};

/// Files seen, each kept once, and what was read of those whose build ID the kernel did not tell.
#[derive(Default)]
pub struct Files {
    known: HashSet<Rc<MappedFile>>,
    build_ids: HashMap<(InodeKey, FileVersion), Option<BuildId>>,
}

/// Beyond this many, files no process maps any more are forgotten.
const KEEP: usize = 4096;

impl Files {
    /// The file behind `raw`, a mapping of `process`.
    pub fn identify(&mut self, process: Pid, raw: &RawMapping) -> Rc<MappedFile> {
        let (kind, bare) = classify(&raw.path);
        let mut file = MappedFile {
            kind,
            path: bare.to_vec(),
            build_id: raw.build_id.clone(),
            inode: raw.inode,
            version: None,
            deleted: kind == MappedKind::File && bare.len() != raw.path.len(),
        };
        if kind == MappedKind::File && (file.build_id.is_none() || file.deleted) {
            self.look_at(process, raw, &mut file);
        }
        self.keep(file)
    }

    /// Completes `file` from the mapped file itself: through the process's own view, because its paths are
    /// relative to its root and may lead elsewhere, or nowhere, for everybody else.
    fn look_at(&mut self, process: Pid, raw: &RawMapping, file: &mut MappedFile) {
        let Some((opened, named)) = open_mapped(process, raw) else {
            return;
        };
        if let Named::AsGiven = named {
            // A file that really is called "... (deleted)".
            file.path.clone_from(&raw.path);
            file.deleted = false;
        }
        if file.build_id.is_some() {
            return;
        }
        let Ok(meta) = opened.metadata() else { return };
        let version = FileVersion {
            size: meta.size(),
            mtime_sec: meta.mtime(),
            mtime_nsec: meta.mtime_nsec() as u32,
        };
        let build_id = match file.inode {
            Some(inode) => self
                .build_ids
                .entry((inode, version))
                .or_insert_with(|| read_build_id(&opened))
                .clone(),
            None => read_build_id(&opened),
        };
        file.version = build_id.is_none().then_some(version);
        file.build_id = build_id;
    }

    fn keep(&mut self, file: MappedFile) -> Rc<MappedFile> {
        if let Some(known) = self.known.get(&file) {
            return known.clone();
        }
        if self.known.len() >= KEEP {
            self.known.retain(|known| Rc::strong_count(known) > 1);
            self.build_ids.clear();
        }
        let file = Rc::new(file);
        self.known.insert(file.clone());
        file
    }
}

enum Named {
    /// The path as the kernel gave it, suffix included, leads to the file.
    AsGiven,
    /// It does not, or there is no suffix.
    Otherwise,
}

/// Opens the mapped file: through the process's root when the path still leads to the same inode, else through
/// `map_files`, which needs no path. After the process is gone our own root is tried, by the same rule.
fn open_mapped(process: Pid, raw: &RawMapping) -> Option<(File, Named)> {
    let (_, bare) = classify(&raw.path);
    let suffixed = bare.len() != raw.path.len();
    let own = format!("/proc/{process}/root");
    let map_file = format!("/proc/{process}/map_files/{:x}-{:x}", raw.start, raw.end);
    let below = |root: &str, path: &[u8]| {
        Path::new(root).join(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(path)))
    };
    // By now the number, and the addresses, can be somebody else's.
    let open = |path: &Path| open_regular(path).filter(|file| is_mapped(file, raw));
    if suffixed
        && let Some(file) = [&*own, "/"]
            .iter()
            .find_map(|root| open(&below(root, &raw.path)))
    {
        return Some((file, Named::AsGiven));
    }
    let by_path = |root: &str| {
        if suffixed {
            None
        } else {
            open(&below(root, bare))
        }
    };
    let file = by_path(&own)
        .or_else(|| open(Path::new(&map_file)))
        .or_else(|| by_path("/"))?;
    Some((file, Named::Otherwise))
}

/// Never blocks on a FIFO and never has a side effect on a device.
fn open_regular(path: &Path) -> Option<File> {
    // Look before opening: opening a device can already do something.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Whether `file`, found by its path, is the one mapped: by inode or build ID, whichever the kernel told. The device is
/// not compared: the kernel tells that of the superblock, `stat` on btrfs and overlayfs another.
fn is_mapped(file: &File, raw: &RawMapping) -> bool {
    match (raw.inode, &raw.build_id) {
        (Some(told), _) => file.metadata().is_ok_and(|meta| meta.ino() == told.inode),
        (None, Some(told)) => read_build_id(file).as_ref() == Some(told),
        (None, None) => false,
    }
}

/// The GNU build ID in the PT_NOTE segments of an ELF file; `None` for other files.
fn read_build_id(file: &File) -> Option<BuildId> {
    let cache = ReadCache::new(file);
    let ident: &[u8] = (&cache).read_bytes_at(0, 5).ok()?;
    match ident.get(4)? {
        1 => elf_build_id::<elf::FileHeader32<Endianness>>(&cache),
        2 => elf_build_id::<elf::FileHeader64<Endianness>>(&cache),
        _ => None,
    }
}

fn elf_build_id<'d, H: FileHeader<Endian = Endianness>>(data: impl ReadRef<'d>) -> Option<BuildId> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    header
        .program_headers(endian, data)
        .ok()?
        .iter()
        .find_map(|segment| {
            let mut notes = segment.notes(endian, data).ok()??;
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                    return BuildId::new(note.desc());
                }
            }
            None
        })
}
