//! Which file a mapping maps: what tells it from every other file, read while its process lives.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use super::host::wall_offset;
use super::maps::{RawMapping, classify};
use crate::elf_file::{self, open_regular};
use crate::event::{BuildId, FileVersion, InodeKey, MappedFile, MappedKind, Pid, Timestamp};

/// Files seen, each kept once, and what was read of those whose build ID the kernel did not tell.
#[derive(Default)]
pub struct Files {
    known: HashSet<Rc<MappedFile>>,
    build_ids: HashMap<(InodeKey, FileVersion), Option<BuildId>>,
}

/// Beyond this many, files no process maps any more are forgotten.
const KEEP: usize = 4096;

impl Files {
    /// The file behind `raw`, a mapping of `process` that was made at `made` or, without one, is there now.
    pub fn identify(
        &mut self,
        process: Pid,
        raw: &RawMapping,
        made: Option<Timestamp>,
    ) -> Rc<MappedFile> {
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
            self.look_at(process, raw, made, &mut file);
        }
        self.keep(file)
    }

    /// Completes `file` from the mapped file itself: through the process's own view, because its paths are
    /// relative to its root and may lead elsewhere, or nowhere, for everybody else.
    fn look_at(
        &mut self,
        process: Pid,
        raw: &RawMapping,
        made: Option<Timestamp>,
        file: &mut MappedFile,
    ) {
        let Some((opened, named)) = open_mapped(process, raw, made) else {
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

/// Opens the mapped file: through `map_files`, which needs no path, else by its path as the process sees it or, when the
/// process is gone, as we do. A path counts only if it leads to the file that was mapped.
fn open_mapped(process: Pid, raw: &RawMapping, made: Option<Timestamp>) -> Option<(File, Named)> {
    let (_, bare) = classify(&raw.path);
    let suffixed = bare.len() != raw.path.len();
    let own = format!("/proc/{process}/root");
    let map_file = format!("/proc/{process}/map_files/{:x}-{:x}", raw.start, raw.end);
    let by_path = |root: &str, path: &[u8]| {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let found = open_regular(&Path::new(root).join(OsStr::from_bytes(path))).ok();
        found.filter(|file| is_mapped(file, raw) && !is_younger(file, made))
    };
    let literally = || by_path(&own, &raw.path).or_else(|| by_path("/", &raw.path));
    if suffixed && let Some(file) = literally() {
        return Some((file, Named::AsGiven));
    }
    // By now the number, and the addresses, can be somebody else's.
    let mut file = open_regular(Path::new(&map_file))
        .ok()
        .filter(|file| is_mapped(file, raw));
    if !suffixed {
        file = file
            .or_else(|| by_path(&own, bare))
            .or_else(|| by_path("/", bare));
    }
    Some((file?, Named::Otherwise))
}

/// Whether `file` came to be what it is after `made`: file systems give the inode number of a removed file to the next
/// one. Change times are as coarse as a clock tick.
fn is_younger(file: &File, made: Option<Timestamp>) -> bool {
    const TICK: i64 = 10_000_000;
    let Some(made) = made else { return false };
    let changed = file
        .metadata()
        .map(|meta| meta.ctime().saturating_mul(1_000_000_000) + meta.ctime_nsec());
    let made = made.0.cast_signed().saturating_add(wall_offset());
    changed.map_or(true, |changed| changed.saturating_add(TICK) > made)
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

/// The build ID of an ELF file; `None` for other files.
fn read_build_id(file: &File) -> Option<BuildId> {
    elf_file::read_build_id(file).ok().flatten()
}
