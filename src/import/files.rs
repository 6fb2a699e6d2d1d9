//! Which file a mapping maps, with what tells it from every other: perf gives the inode with the mapping, and a table of
//! build IDs by path, which it reads from the files when recording ends.

use std::collections::{HashMap, HashSet};

use super::bytes::{Bytes, until_zero};
use super::machine::{self, Machine};
use crate::event::{BuildId, InodeKey, MappedFile, MappedKind, classify};
use crate::format::aid::{ElfLayout, ElfLayouts, Load};

/// What a record says of a mapped file.
#[derive(Debug, Clone, Default)]
pub struct Told<'a> {
    pub path: &'a [u8],
    pub build_id: Option<BuildId>,
    /// Inode and its generation.
    pub inode: Option<(InodeKey, u64)>,
}

/// A file of this machine that is the one that was mapped, and its layout.
type LookedAt = (MappedFile, Vec<Load>);

/// Files seen.
pub struct Files {
    list: Vec<MappedFile>,
    numbers: HashMap<MappedFile, u32>,
    /// By path; `None` where there are several.
    by_path: HashMap<Vec<u8>, Option<BuildId>>,
    /// Paths at which there were several files, so that a build ID by the path is that of any of them.
    ambiguous: HashSet<Vec<u8>>,
    looked_at: HashMap<(Vec<u8>, InodeKey), Option<LookedAt>>,
    layouts: Vec<ElfLayout>,
}

/// The name perf has for the kernel in its table.
const KERNEL: &[u8] = b"[kernel.kallsyms]";
/// In the misc field of an entry: the build ID's length is told.
const SIZE_IS_TOLD: u16 = 1 << 15;
/// Layouts of one frame.
const OF_FRAME: usize = 4096;

impl Files {
    pub fn new(table: &[u8], ambiguous: HashSet<Vec<u8>>) -> Files {
        let mut files = Files {
            list: Vec::new(),
            numbers: HashMap::new(),
            by_path: HashMap::new(),
            ambiguous,
            looked_at: HashMap::new(),
            layouts: Vec::new(),
        };
        let mut bytes = Bytes(table);
        let mut entry = || {
            let (_, misc, size) = (bytes.u32()?, bytes.u16()?, bytes.u16()?);
            let body = bytes.take(usize::from(size).checked_sub(8)?)?;
            Some((misc, body))
        };
        while let Some((misc, body)) = entry() {
            files.add_build_id(misc, body);
        }
        files
    }

    /// An entry of the table, or a record of the same form.
    pub fn add_build_id(&mut self, misc: u16, body: &[u8]) {
        let entry = || {
            let mut body = Bytes(body);
            body.u32()?;
            let id = body.take(24)?;
            let len = match misc & SIZE_IS_TOLD != 0 {
                true => usize::from(*id.get(20)?).min(20),
                // Of old, all build IDs had twenty bytes, as those of most linkers have.
                false => 20,
            };
            Some((until_zero(body.0), BuildId::new(id.get(..len)?)?))
        };
        if let Some((path, id)) = entry() {
            let path = match path.starts_with(KERNEL) || is_guest_free_kernel(path) {
                true => KERNEL,
                false => path,
            };
            let known = self
                .by_path
                .entry(path.to_vec())
                .or_insert_with(|| Some(id.clone()));
            if known.as_ref() != Some(&id) {
                *known = None;
            }
        }
    }

    /// The kernel's build ID.
    pub fn kernel(&self) -> Option<BuildId> {
        self.by_path.get(KERNEL).cloned().flatten()
    }

    /// The number of the file that a record tells of.
    pub fn identify(&mut self, told: &Told<'_>, machine: &Machine) -> u32 {
        let (kind, bare) = classify(told.path);
        let mut file = MappedFile {
            kind,
            path: bare.to_vec(),
            build_id: told.build_id.clone(),
            inode: told
                .inode
                .map(|(inode, _)| inode)
                .filter(|key| key.inode != 0),
            version: None,
            deleted: kind == MappedKind::File && bare.len() != told.path.len(),
        };
        if kind == MappedKind::File && file.build_id.is_none() {
            let by_path = self.by_path.get(told.path).cloned().flatten();
            file.build_id = by_path.filter(|_| !self.ambiguous.contains(told.path));
            if file.build_id.is_none() {
                file = self.look_at(file, told, machine);
            }
        }
        if let Some(number) = self.numbers.get(&file) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.numbers.insert(file.clone(), number);
        self.list.push(file);
        number
    }

    /// Completes `file` from what is at its path here.
    fn look_at(&mut self, file: MappedFile, told: &Told<'_>, machine: &Machine) -> MappedFile {
        let Some((key, generation)) = told.inode.filter(|_| file.inode.is_some() && !file.deleted)
        else {
            return file;
        };
        let looked_at = self
            .looked_at
            .entry((file.path.clone(), key))
            .or_insert_with(|| {
                let found = machine.file(&file.path, key, generation)?;
                let mut file = file.clone();
                match found.headers.build_id.filter(|_| found.untouched) {
                    Some(id) => file.build_id = Some(id),
                    // As well as size and time can tell: such names are counted as unverified.
                    None => file.version = Some(found.version),
                }
                Some((file, found.headers.loads))
            });
        looked_at.as_ref().map_or(file, |(file, _)| file.clone())
    }

    pub fn get(&self, number: u32) -> Option<&MappedFile> {
        self.list.get(number as usize)
    }

    /// The layouts of files that are in the capture, as far as they are here and surely the same.
    pub fn layouts_of(&mut self, written: HashSet<MappedFile>) -> Vec<ElfLayouts> {
        for file in written {
            let loads = match (&file.build_id, file.inode) {
                (Some(id), _) => machine::layout(&file.path, id).map(|headers| headers.loads),
                (None, Some(inode)) => {
                    let key = (file.path.clone(), inode);
                    let looked_at = self.looked_at.get(&key).and_then(Option::as_ref);
                    looked_at.map(|(_, loads)| loads.clone())
                }
                _ => None,
            };
            let Some(loads) = loads.filter(|loads| !loads.is_empty()) else {
                continue;
            };
            self.layouts.push(ElfLayout {
                path: file.path,
                build_id: file.build_id,
                inode: file.inode,
                version: file.version,
                loads,
            });
        }
        self.layouts.sort_by(|a, b| a.path.cmp(&b.path));
        let layouts = std::mem::take(&mut self.layouts);
        let frames = layouts.chunks(OF_FRAME);
        frames
            .map(|layouts| ElfLayouts {
                layouts: layouts.to_vec(),
            })
            .collect()
    }
}

/// perf may tell of the kernel by the path of its image.
fn is_guest_free_kernel(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/')
        .next()
        .is_some_and(|name| name == b"vmlinux" || name.starts_with(b"vmlinux-"))
}
