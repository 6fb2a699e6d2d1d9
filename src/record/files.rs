//! Which file a mapping maps: what tells it from every other file, read while its process lives.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::address_space::Mapping;
use super::aside::Aside;
use super::host::wall_offset;
use super::layouts::Layouts;
use super::maps::{DELETED, RawMapping, classify};
use super::rooted::Root;
use crate::elf_file::{self, Headers, open_regular};
use crate::event::{BuildId, FileVersion, MappedFile, MappedKind, Pid, Timestamp};

/// Files seen, each kept once.
#[derive(Default)]
pub struct Files {
    known: HashSet<Rc<MappedFile>>,
    /// How they are laid out.
    pub layouts: Layouts,
    /// What was seen of mappings that are identified next, by process and start.
    ahead: HashMap<(Pid, u64), Option<SeenFile>>,
}

/// Beyond this many, files no process maps any more are forgotten.
const KEEP: usize = 4096;

impl Files {
    /// The file behind `raw`, a mapping of `process` that was made at `made` or, without one, is there now. Without `aside`
    /// this process looks at it.
    pub fn identify(
        &mut self,
        aside: Option<&mut Aside>,
        process: Pid,
        raw: &RawMapping,
        made: Option<Timestamp>,
    ) -> Rc<MappedFile> {
        let (mut file, wish) = self.described(raw);
        if wish != Wish::Nothing {
            let seen = match (self.ahead.remove(&(process, raw.start)), aside) {
                (Some(seen), _) => seen,
                (None, Some(aside)) => aside.file(process, raw, made),
                (None, None) => see(process, raw, made),
            };
            self.complete(seen, raw, &mut file);
        }
        self.keep(file)
    }

    /// Looks at all that [`Files::identify`] would have to look at one by one, `mapped` by these processes now and to be
    /// identified next.
    pub fn look_ahead<'m>(
        &mut self,
        aside: &mut Aside,
        mapped: impl Iterator<Item = (Pid, &'m RawMapping)>,
    ) {
        let mut laid_out = HashSet::new();
        let wished = |(_, raw): &(Pid, &RawMapping)| match self.described(raw) {
            (_, Wish::Nothing) => false,
            (_, Wish::Version) => true,
            // The first that is found will do for all.
            (file, Wish::Layout) => laid_out.insert(file),
        };
        let asked: Vec<_> = mapped.filter(wished).collect();
        let seen = aside.files(&asked, None);
        let keys = asked.iter().map(|(process, raw)| (*process, raw.start));
        self.ahead = keys.zip(seen).collect();
    }

    /// What a mapping tells by itself, and whether its file has to be looked at.
    fn described(&self, raw: &RawMapping) -> (MappedFile, Wish) {
        let (kind, bare) = classify(&raw.path);
        let file = MappedFile {
            kind,
            path: bare.to_vec(),
            build_id: raw.build_id.clone(),
            inode: raw.inode,
            version: None,
            deleted: kind == MappedKind::File && bare.len() != raw.path.len(),
        };
        let has_layout = matches!(kind, MappedKind::File | MappedKind::Memfd);
        let wish = if kind == MappedKind::File && (file.build_id.is_none() || file.deleted) {
            Wish::Version
        } else if has_layout && self.layouts.wants(&file) {
            Wish::Layout
        } else {
            Wish::Nothing
        };
        (file, wish)
    }

    /// Completes `file` from what was seen of it.
    fn complete(&mut self, seen: Option<SeenFile>, raw: &RawMapping, file: &mut MappedFile) {
        let Some(seen) = seen else {
            self.layouts.failed(file);
            return;
        };
        if seen.named_as_given {
            // A file that really is called "... (deleted)".
            file.path.clone_from(&raw.path);
            file.deleted = false;
        }
        if file.build_id.is_some() {
            if self.layouts.wants(file) {
                // What was found by its path and inode number alone can lie on another device.
                if seen.headers.build_id == file.build_id {
                    self.layouts.add(file, &seen.headers.loads);
                } else {
                    self.layouts.failed(file);
                }
            }
            return;
        }
        let Some(version) = seen.version else { return };
        file.version = seen.headers.build_id.is_none().then_some(version);
        file.build_id = seen.headers.build_id;
        self.layouts.add(file, &seen.headers.loads);
    }

    fn keep(&mut self, file: MappedFile) -> Rc<MappedFile> {
        if let Some(known) = self.known.get(&file) {
            return known.clone();
        }
        if self.known.len() >= KEEP {
            self.known.retain(|known| Rc::strong_count(known) > 1);
        }
        let file = Rc::new(file);
        self.known.insert(file.clone());
        file
    }
}

/// Why a file is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// It need not be.
    Nothing,
    /// For its headers; what tells it from others is known.
    Layout,
    /// For what tells it from others.
    Version,
}

/// What a look at a mapped file tells.
#[derive(Debug, Serialize, Deserialize)]
pub struct SeenFile {
    /// Its path is as the kernel gave it, " (deleted)" included.
    pub named_as_given: bool,
    /// Its size and when it was modified.
    pub version: Option<FileVersion>,
    /// Of an ELF file; of another there are none.
    pub headers: Headers,
}

/// Looks at a mapped file: through the process's own view, because its paths are relative to its root and may lead
/// elsewhere, or nowhere, for everybody else. `None` when it cannot be had.
pub(super) fn see(process: Pid, raw: &RawMapping, made: Option<Timestamp>) -> Option<SeenFile> {
    let (opened, named) = open_mapped(process, raw, made)?;
    Some(SeenFile {
        named_as_given: matches!(named, Named::AsGiven),
        version: opened.metadata().ok().map(|meta| version_of(&meta)),
        headers: read_headers(&opened),
    })
}

/// A mapping as it was told.
pub(super) fn raw_of(mapping: &Mapping) -> RawMapping {
    let file = &*mapping.file;
    let mut path = file.path.clone();
    if file.deleted {
        path.extend_from_slice(DELETED);
    }
    RawMapping {
        start: mapping.start,
        end: mapping.end,
        file_offset: mapping.file_offset,
        prot: mapping.prot,
        path,
        inode: file.inode,
        build_id: file.build_id.clone(),
    }
}

/// Opens what `mapping` of `process` maps, as long as it can be had; nothing else that is in its place by now.
pub(super) fn open_again(process: Pid, mapping: &Mapping) -> Option<File> {
    let file = &*mapping.file;
    let (opened, _) = open_mapped(process, &raw_of(mapping), None)?;
    let same = match (&file.build_id, file.version) {
        (Some(build_id), _) => read_build_id(&opened).as_ref() == Some(build_id),
        (None, Some(version)) => version_of(&opened.metadata().ok()?) == version,
        // A file that could not be looked at in time: another one may have its inode by now.
        (None, None) if file.kind == MappedKind::File => false,
        // Of other kinds, opened by where they are mapped.
        (None, None) => true,
    };
    same.then_some(opened)
}

fn version_of(meta: &Metadata) -> FileVersion {
    FileVersion {
        size: meta.size(),
        mtime_sec: meta.mtime(),
        mtime_nsec: meta.mtime_nsec() as u32,
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
    let (kind, bare) = classify(&raw.path);
    let suffixed = bare.len() != raw.path.len();
    let map_file = format!("/proc/{process}/map_files/{:x}-{:x}", raw.start, raw.end);
    let by_path_in = |root: std::io::Result<Root>, path: &[u8]| {
        let found = root.and_then(|root| root.open_regular(path)).ok();
        found.filter(|file| is_mapped(file, raw) && !is_younger(file, made))
    };
    let by_path =
        |path: &[u8]| by_path_in(Root::of(process), path).or_else(|| by_path_in(Root::own(), path));
    // Other kinds have names that are no paths.
    let has_path = kind == MappedKind::File;
    if suffixed
        && has_path
        && let Some(file) = by_path(&raw.path)
    {
        return Some((file, Named::AsGiven));
    }
    // By now the number, and the addresses, can be somebody else's.
    let mut file = open_regular(Path::new(&map_file))
        .ok()
        .filter(|file| is_mapped(file, raw));
    if !suffixed && has_path {
        file = file.or_else(|| by_path(bare));
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

/// The headers of an ELF file; nothing for other files.
fn read_headers(file: &File) -> Headers {
    elf_file::read_headers(file).unwrap_or_default()
}
