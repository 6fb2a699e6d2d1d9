//! The other files an ELF file names for its debug information, looked at before the library opens them.
//!
//! blazesym opens whatever has the name, and waits for ever for a FIFO's other end. Names come from the file, which
//! may be anybody's.

use std::fs;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object, ObjectSection};

use crate::elf_file::open_regular;

/// Where separate debug files are looked for by default.
const DEBUG_DIRS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// A debug file of `path` that is there and no regular file, wherever the library may look: by `.gnu_debuglink`,
/// `.gnu_debugaltlink` and `.debug_sup`, of the file and of its debug file, and beside it as `.dwp`.
pub(super) fn irregular(path: &Path, debug_dirs: Option<&[PathBuf]>) -> Option<PathBuf> {
    let dirs = match debug_dirs {
        Some(dirs) => dirs.to_vec(),
        None => DEBUG_DIRS.map(PathBuf::from).to_vec(),
    };
    let of_file = candidates(path, &dirs);
    let debug_files = of_file.iter().filter(|p| p.is_file());
    let further: Vec<PathBuf> = debug_files.flat_map(|p| candidates(p, &dirs)).collect();
    let mut all = of_file.into_iter().chain(further);
    all.find(|p| fs::metadata(p).is_ok_and(|meta| !meta.is_file()))
}

/// Whether an ELF file has debug information of its own.
pub(super) fn has_debug_info(path: &Path) -> bool {
    let Ok(file) = open_regular(path) else {
        return false;
    };
    let data = ReadCache::new(file);
    let Ok(elf) = object::File::parse(&data) else {
        return false;
    };
    [".debug_info", ".zdebug_info"]
        .into_iter()
        .any(|name| elf.section_by_name(name).is_some_and(|s| s.size() > 0))
}

/// Where the files may be that the ELF file `path` names; nowhere when it is none.
fn candidates(path: &Path, dirs: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(file) = open_regular(path) else {
        return Vec::new();
    };
    let mut dwp = path.as_os_str().to_owned();
    dwp.push(".dwp");
    let mut found = vec![PathBuf::from(dwp)];
    let canonical = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let beside = canonical.parent().unwrap_or(Path::new("/"));
    let below = beside.strip_prefix("/").unwrap_or(beside);
    for name in names(&ReadCache::new(file)) {
        found.extend(dirs.iter().map(|dir| dir.join(&name)));
        found.push(beside.join(&name));
        for dir in dirs {
            let places = below.ancestors().map(|at| dir.join(at).join(&name));
            found.extend(places);
        }
    }
    found
}

/// Names of debug files in an ELF file.
pub(super) fn names(data: &ReadCache<fs::File>) -> Vec<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let Ok(elf) = object::File::parse(data) else {
        return Vec::new();
    };
    // `.debug_sup`: a version of two bytes and a flag before the name.
    [
        (".gnu_debuglink", 0),
        (".gnu_debugaltlink", 0),
        (".debug_sup", 3),
    ]
    .into_iter()
    .filter_map(|(section, at)| {
        let section = elf.section_by_name(section)?.uncompressed_data().ok()?;
        let name = section.get(at..)?.split(|b| *b == 0).next()?;
        (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
    })
    .collect()
}
