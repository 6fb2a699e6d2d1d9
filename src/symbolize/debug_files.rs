//! Debug information that is not in the file it belongs to: separate debug files, what dwz has moved out, split units,
//! and the symbol table in `.gnu_debugdata`.
//!
//! Each is believed by its build ID, a checksum, or the ID of its unit, never by its name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gimli::SectionId;
use object::{Object, ObjectSection};

use super::dwarf::Companions;
use super::files::Opened;
use super::search::Search;
use super::sections::Sections;
use crate::elf_file::{ElfError, OpenError, open_regular, read_build_id};
use crate::event::BuildId;

/// A symbol table packed into `.gnu_debugdata` inflates to no more.
const MAX_MINI: u64 = 1 << 30;
/// Memory its decoder may ask for, in KiB.
const MAX_DICTIONARY: u32 = 128 << 10;

/// A separate debug file that is believed.
pub(super) struct DebugFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub sections: Rc<Sections>,
}

/// Finds the debug file of `binary`, or of the build ID alone. The first that is there and not believed is told to `warn`
/// when none is found.
pub(super) fn find(
    search: &Search,
    binary: Option<&Opened>,
    id: Option<&BuildId>,
    warn: &mut dyn FnMut(String),
) -> Option<DebugFile> {
    let mut refused: Option<String> = None;
    let mut refuse = |path: &Path, problem: String| {
        refused.get_or_insert(format!(
            "{}: debug file not used: {problem}",
            path.display()
        ));
    };
    if let Some(id) = id {
        for path in search.debug_files(id) {
            match open_by_id(&path, id) {
                Ok(sections) => return Some(DebugFile { path, sections }),
                Err(Refusal::Missing) => {}
                Err(other) => refuse(&path, other.to_string()),
            }
        }
    }
    if let Some(binary) = binary
        && let Some((name, sum)) = debug_link(&binary.sections)
    {
        for path in search.linked(&binary.path, &name) {
            match open_by_link(&path, id, sum) {
                Ok(sections) => return Some(DebugFile { path, sections }),
                Err(Refusal::Missing) => {}
                Err(other) => refuse(&path, other.to_string()),
            }
        }
    }
    if let Some(refused) = refused {
        warn(refused);
    }
    None
}

/// Why a file is not what was looked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// There is none.
    #[error("it is not there")]
    Missing,
    /// A FIFO, a directory, a device.
    #[error("it is not a regular file")]
    NotRegular,
    /// The system refused.
    #[error("it cannot be read: {0}")]
    Io(io::Error),
    /// No ELF file, or a broken one.
    #[error("it is no ELF file that can be read: {0}")]
    NotElf(String),
    /// Of another build.
    #[error("its build ID is {0}, wanted is {1}")]
    OtherBuild(String, BuildId),
    /// Not the one whose checksum was noted.
    #[error("its checksum is not the one in the program's debug link")]
    OtherSum,
}

fn open_file(path: &Path) -> Result<File, Refusal> {
    open_regular(path).map_err(|err| match err {
        OpenError::NotRegular => Refusal::NotRegular,
        OpenError::Io(err)
            if matches!(
                err.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::InvalidInput
            ) =>
        {
            Refusal::Missing
        }
        OpenError::Io(err) => Refusal::Io(err),
    })
}

fn build_id(file: &File) -> Result<Option<BuildId>, Refusal> {
    read_build_id(file).map_err(|err| match err {
        ElfError::NotElf => Refusal::NotElf("not ELF".to_owned()),
        ElfError::Io(err) => Refusal::Io(err),
    })
}

/// Opens a file that must have the build ID `id`.
pub(super) fn open_by_id(path: &Path, id: &BuildId) -> Result<Rc<Sections>, Refusal> {
    let file = open_file(path)?;
    match build_id(&file)? {
        Some(found) if found == *id => {}
        found => {
            let found = found.map_or("none".to_owned(), |found| found.to_string());
            return Err(Refusal::OtherBuild(found, id.clone()));
        }
    }
    sections(&file)
}

/// Opens a file that a debug link leads to. Where both have build IDs these decide, else the checksum does.
fn open_by_link(path: &Path, id: Option<&BuildId>, sum: u32) -> Result<Rc<Sections>, Refusal> {
    let file = open_file(path)?;
    match (build_id(&file)?, id) {
        (Some(found), Some(id)) if found == *id => {}
        (Some(found), Some(id)) => {
            return Err(Refusal::OtherBuild(found.to_string(), id.clone()));
        }
        _ if checksum(&file).map_err(Refusal::Io)? == sum => {}
        _ => return Err(Refusal::OtherSum),
    }
    sections(&file)
}

fn sections(file: &File) -> Result<Rc<Sections>, Refusal> {
    let sections = Sections::open(file, false).map_err(Refusal::NotElf)?;
    Ok(Rc::new(sections))
}

/// CRC-32 of a whole file, as in `.gnu_debuglink`.
fn checksum(mut file: &File) -> io::Result<u32> {
    file.rewind()?;
    let mut hasher = crc32fast::Hasher::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let len = file.read(&mut block)?;
        let Some(part) = block.get(..len).filter(|part| !part.is_empty()) else {
            return Ok(hasher.finalize());
        };
        hasher.update(part);
    }
}

/// The name and the checksum of the debug file, as the file itself says.
fn debug_link(sections: &Sections) -> Option<(PathBuf, u32)> {
    let elf = object::File::parse(sections.bytes()).ok()?;
    let (name, sum) = elf.gnu_debuglink().ok()??;
    // A name, not a path: it must not lead anywhere else.
    let name = Path::new(OsStr::from_bytes(name)).file_name()?;
    Some((PathBuf::from(name), sum))
}

/// What dwz has moved out of a debug file.
pub(super) enum Supplement {
    /// Nothing.
    None,
    /// The file that has it.
    Found(Rc<Sections>),
    /// It is needed and not here.
    NotFound(PathBuf),
}

/// Finds what dwz has moved out of the debug file at `path`: believed by the build ID that is noted there.
pub(super) fn supplement(search: &Search, path: &Path, sections: &Sections) -> Supplement {
    let Ok(elf) = object::File::parse(sections.bytes()) else {
        return Supplement::None;
    };
    let link = elf.gnu_debugaltlink().ok().flatten();
    let Some((name, id)) = link.or_else(|| supplementary_link(&elf)) else {
        return Supplement::None;
    };
    let name = Path::new(OsStr::from_bytes(name));
    let Some(id) = BuildId::new(id) else {
        return Supplement::NotFound(name.to_path_buf());
    };
    let mut candidates = search.debug_files(&id);
    if name.is_absolute() {
        candidates.extend(search.named(name));
    } else {
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        candidates.extend(canonical.parent().map(|dir| dir.join(name)));
    }
    if let Some(file) = name.file_name() {
        candidates.extend(search.in_debug_dirs(&Path::new(".dwz").join(file)));
    }
    let found = candidates
        .iter()
        .find_map(|path| open_by_id(path, &id).ok());
    found.map_or_else(
        || Supplement::NotFound(name.to_path_buf()),
        Supplement::Found,
    )
}

/// DWARF 5's own form of the link: version (2 bytes), whether this is the supplementary file, its name, length and bytes
/// of its ID.
fn supplementary_link<'d>(elf: &object::File<'d>) -> Option<(&'d [u8], &'d [u8])> {
    let section = elf.section_by_name(".debug_sup")?.data().ok()?;
    let (head, rest) = section.split_at_checked(3)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (name, rest) = rest.split_at_checked(end)?;
    let (len, id) = rest.get(1..)?.split_first()?;
    let id = id.get(..usize::from(*len))?;
    // Of a supplementary file itself the flag is 1.
    (head.last() == Some(&0)).then_some((name, id))
}

/// Files with the units that a debug file has only skeletons of.
pub(super) struct SplitFiles {
    search: Rc<Search>,
    /// The debug file, and the program if that is another.
    of: Vec<PathBuf>,
    packages: Option<Vec<Rc<Sections>>>,
}

impl SplitFiles {
    pub fn new(search: Rc<Search>, of: Vec<PathBuf>) -> SplitFiles {
        SplitFiles {
            search,
            of,
            packages: None,
        }
    }

    fn open(path: &Path) -> Option<Rc<Sections>> {
        let file = open_file(path).ok()?;
        let sections = Sections::open(&file, true).ok()?;
        sections
            .has(SectionId::DebugInfo)
            .then(|| Rc::new(sections))
    }
}

impl Companions for SplitFiles {
    fn split(&mut self, comp_dir: Option<&[u8]>, name: &[u8]) -> Vec<Rc<Sections>> {
        let of = &self.of;
        let packages = self.packages.get_or_insert_with(|| {
            let names = of.iter().map(|path| {
                let mut name = path.as_os_str().to_owned();
                name.push(".dwp");
                PathBuf::from(name)
            });
            names.filter_map(|path| SplitFiles::open(&path)).collect()
        });
        let mut all = packages.clone();
        let name = Path::new(OsStr::from_bytes(name));
        let dir = comp_dir.map_or(Path::new("/"), |dir| Path::new(OsStr::from_bytes(dir)));
        let mut candidates = self.search.named(&dir.join(name));
        for path in &self.of {
            let beside = path.parent().unwrap_or(Path::new("/"));
            candidates.push(beside.join(name));
            candidates.extend(name.file_name().map(|name| beside.join(name)));
        }
        let absolute = candidates.iter().filter(|path| path.is_absolute());
        all.extend(absolute.filter_map(|path| SplitFiles::open(path)));
        all
    }
}

/// The ELF file in `.gnu_debugdata`, which has the symbols that were stripped. `None` when there is no such section.
pub(super) fn mini_debug_info(sections: &Sections) -> Option<Result<Vec<u8>, String>> {
    let elf = object::File::parse(sections.bytes()).ok()?;
    let packed = elf.section_by_name(".gnu_debugdata")?.data().ok()?;
    let reader = lzma_rust2::XzReader::new_mem_limit(packed, true, MAX_DICTIONARY);
    let mut image = Vec::new();
    let read = reader.take(MAX_MINI + 1).read_to_end(&mut image);
    Some(match read {
        Ok(len) if len as u64 > MAX_MINI => Err("it is too large".to_owned()),
        Ok(_) => Ok(image),
        Err(err) => Err(err.to_string()),
    })
}
