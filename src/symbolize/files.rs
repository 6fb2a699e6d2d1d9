//! Finding the file that was mapped, and believing it.
//!
//! A file is believed only if its build ID equals the recorded one. Where none was recorded its size and
//! modification time must be the recorded ones exactly; names from it are then counted as unverified, or not taken
//! at all ([`Options::require_build_id`](super::Options::require_build_id)).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hashbrown::HashMap;

use super::Options;
use super::debug_files::{self, DebugFile};
use super::functions::loads;
use super::search::{Candidate, Fetch, FileKind, Search};
use super::sections::Sections;
use crate::elf_file::{ElfError, OpenError, open_regular, read_build_id};
use crate::event::{BuildId, MappedFile};
use crate::format::aid::{ElfLayout, Load};
use crate::profile::Reason;

/// Files that are believed to be what was mapped.
pub(super) struct Believed {
    /// The file itself, unless only its debug file is here.
    pub binary: Option<Opened>,
    /// Its separate debug file.
    pub debug: Option<DebugFile>,
    /// Where its parts are loaded.
    pub loads: Vec<Load>,
    /// The build ID was compared; else only size and time were.
    pub verified: bool,
}

/// An ELF file that is open.
pub(super) struct Opened {
    /// Where it is on this machine.
    pub path: PathBuf,
    /// What is in it.
    pub sections: Rc<Sections>,
}

/// Why a file gives no names: the class, and what to tell the user about it.
#[derive(Debug)]
pub struct Disbelief {
    /// What is counted.
    pub reason: Reason,
    /// One clause: `/usr/bin/x has build ID 12ab, recorded was 34cd`.
    pub message: String,
}

impl Disbelief {
    fn new(reason: Reason, message: String) -> Disbelief {
        Disbelief { reason, message }
    }

    /// How much it tells: a file that is there and is another one says more than none.
    fn weight(&self) -> u8 {
        match self.reason {
            Reason::BuildIdDiffers | Reason::VersionDiffers => 4,
            Reason::NoBuildId | Reason::NothingToCompare => 3,
            Reason::FileMissing => 0,
            _ => 2,
        }
    }
}

/// Looks for files.
pub(super) struct Finder {
    search: Rc<Search>,
    require_build_id: bool,
    /// Recorded layouts by build ID and path.
    layouts: HashMap<(BuildId, Vec<u8>), Vec<Load>>,
    /// Those that all files of a build ID have; `None` where they differ.
    common_layouts: HashMap<BuildId, Option<Vec<Load>>>,
    /// Recorded paths of each build ID: one file can have several, seen from different roots.
    paths: HashMap<BuildId, Vec<Vec<u8>>>,
    /// Asked last.
    pub fetch: Option<Box<dyn Fetch>>,
}

impl Finder {
    /// A finder with the layouts a capture has.
    pub fn new(options: &Options, layouts: Vec<ElfLayout>) -> Finder {
        let mut finder = Finder {
            search: Rc::new(Search::new(options)),
            require_build_id: options.require_build_id,
            layouts: HashMap::new(),
            common_layouts: HashMap::new(),
            paths: HashMap::new(),
            fetch: None,
        };
        for layout in layouts {
            let Some(id) = layout.build_id else { continue };
            finder.known_path(&id, &layout.path);
            let common = finder.common_layouts.entry(id.clone());
            let common = common.or_insert_with(|| Some(layout.loads.clone()));
            common.take_if(|common| *common != layout.loads);
            let own = finder.layouts.entry((id, layout.path));
            own.or_insert(layout.loads);
        }
        finder
    }

    /// A file with this build ID was mapped from `path`.
    pub fn known_path(&mut self, id: &BuildId, path: &[u8]) {
        /// More tell nothing new.
        const MOST: usize = 16;
        let paths = self.paths.entry(id.clone()).or_default();
        if path.starts_with(b"/") && paths.len() < MOST && paths.iter().all(|known| known != path) {
            paths.push(path.to_vec());
        }
    }

    /// How the file that was mapped is laid out, as recorded. Files of one build ID can differ in that: `patchelf` and
    /// `objcopy` move parts and keep the ID.
    pub fn recorded_loads(&self, recorded: &MappedFile) -> Option<&[Load]> {
        let id = recorded.build_id.clone()?;
        let loads = self.layouts.get(&(id, recorded.path.clone()))?;
        (!loads.is_empty()).then_some(loads)
    }

    /// Whether another file with the build ID of `recorded` has the same code at the same addresses, and how the offsets of
    /// this one are translated is known.
    fn others_will_do(&self, recorded: &MappedFile) -> bool {
        let Some(id) = &recorded.build_id else {
            return false;
        };
        let common = self.common_layouts.get(id);
        self.recorded_loads(recorded).is_some() || matches!(common, Some(Some(_)))
    }

    /// Where files may be.
    pub fn search(&self) -> &Rc<Search> {
        &self.search
    }

    /// Finds the file recorded as `recorded`, and its debug file. `warn` is told of debug files that are not believed.
    pub fn believe(
        &mut self,
        recorded: &MappedFile,
        warn: &mut dyn FnMut(String),
    ) -> Result<Believed, Disbelief> {
        let wanted = Path::new(OsStr::from_bytes(&recorded.path));
        if !wanted.is_absolute() {
            let message = format!("{} is not an absolute path", wanted.display());
            return Err(Disbelief::new(Reason::FileMissing, message));
        }
        if recorded.build_id.is_none() && self.require_build_id {
            let message = format!("{} has no build ID, which is required", wanted.display());
            return Err(Disbelief::new(Reason::NoBuildId, message));
        }
        let (mut binary, mut disbelief) = match self.binary(recorded) {
            Ok(found) => (Some(found), None),
            Err(disbelief) => (None, Some(disbelief)),
        };
        let mut debug = None;
        // What was found by the build ID, or brought as a file, may be the debug file alone.
        if binary.as_ref().is_some_and(|b| b.sections.has_no_code()) {
            debug = binary.take().map(|b| DebugFile {
                path: b.path,
                sections: b.sections,
            });
        }
        let id = recorded.build_id.as_ref();
        let has_debug = |b: &Opened| b.sections.has(gimli::SectionId::DebugInfo);
        if debug.is_none() && !binary.as_ref().is_some_and(has_debug) {
            debug = debug_files::find(&self.search, binary.as_ref(), id, warn);
            if debug.is_none()
                && let Some(id) = id
            {
                debug = self
                    .fetched(id, FileKind::Debuginfo, warn)
                    .map(|opened| DebugFile {
                        path: opened.path,
                        sections: opened.sections,
                    });
            }
        }
        let own = self.recorded_loads(recorded);
        let common = || self.common_layouts.get(id?)?.as_deref();
        let mut known = own.or_else(common).map(<[Load]>::to_vec);
        let own = own.map(<[Load]>::to_vec);
        if binary.is_none() {
            // A whole program, kept for its debug information, stands for itself.
            let whole = debug.as_ref().filter(|d| !d.sections.has_no_code());
            if let Some(whole) = whole {
                known = known.or_else(|| Some(loads(whole.sections.bytes())));
            }
            if (debug.is_none() || known.is_none())
                && let Some(id) = id
            {
                binary = self.fetched(id, FileKind::Executable, warn);
            }
        }
        // What another path's file has is a last resort: the build ID does not vouch for the layout.
        let loads = match (&binary, own, known) {
            (_, Some(own), _) => own,
            (Some(binary), None, _) => loads(binary.sections.bytes()),
            (None, None, known) => known.unwrap_or_default(),
        };
        if binary.is_none() && (debug.is_none() || loads.is_empty()) {
            let message = match &debug {
                Some(debug) => format!(
                    "{} is a debug file, and where its code was in the program is not recorded",
                    debug.path.display()
                ),
                None => format!("{} is not there", wanted.display()),
            };
            return Err(disbelief
                .take()
                .unwrap_or_else(|| Disbelief::new(Reason::FileMissing, message)));
        }
        Ok(Believed {
            binary,
            debug,
            loads,
            verified: recorded.build_id.is_some(),
        })
    }

    /// The mapped file itself, by its own path or else by another that its build ID was recorded under; or the most telling
    /// reason why there is none.
    fn binary(&self, recorded: &MappedFile) -> Result<Opened, Disbelief> {
        let own = self.at_its_path(recorded);
        if own.is_ok() || !self.others_will_do(recorded) {
            return own;
        }
        let others = recorded.build_id.as_ref().and_then(|id| self.paths.get(id));
        let others = others.into_iter().flatten();
        for path in others.filter(|path| **path != recorded.path) {
            let elsewhere = MappedFile {
                path: path.clone(),
                ..recorded.clone()
            };
            if let Ok(found) = self.at_its_path(&elsewhere) {
                return Ok(found);
            }
        }
        own
    }

    fn at_its_path(&self, recorded: &MappedFile) -> Result<Opened, Disbelief> {
        let mut worst: Option<Disbelief> = None;
        for candidate in self.search.executables(recorded) {
            match open(candidate, recorded) {
                Ok(opened) => return Ok(opened),
                Err(disbelief) => {
                    if worst
                        .as_ref()
                        .is_none_or(|w| w.weight() < disbelief.weight())
                    {
                        worst = Some(disbelief);
                    }
                }
            }
        }
        Err(worst.unwrap_or_else(|| {
            let path = String::from_utf8_lossy(&recorded.path);
            let message = format!("{path} is not in any of the places that were given");
            Disbelief::new(Reason::FileMissing, message)
        }))
    }

    /// A file from elsewhere, compared.
    fn fetched(
        &mut self,
        id: &BuildId,
        kind: FileKind,
        warn: &mut dyn FnMut(String),
    ) -> Option<Opened> {
        let path = self.fetch.as_mut()?.fetch(id, kind, warn)?;
        match debug_files::open_by_id(&path, id) {
            Ok(sections) => Some(Opened { path, sections }),
            Err(problem) => {
                warn(format!("{}: not used: {problem}", path.display()));
                None
            }
        }
    }
}

/// Opens what is at a path and compares it.
fn open(candidate: Candidate, recorded: &MappedFile) -> Result<Opened, Disbelief> {
    let missing = |path: &Path, err: &io::Error| {
        let reason = match err.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidInput => Reason::FileMissing,
            _ => Reason::Unreadable,
        };
        let message = match reason {
            Reason::FileMissing => format!("{} is not there", path.display()),
            _ => format!("{} cannot be read: {err}", path.display()),
        };
        Disbelief { reason, message }
    };
    let path = candidate.map_err(|(path, err)| missing(&path, &err))?;
    let file = open_regular(&path).map_err(|err| match err {
        OpenError::NotRegular => Disbelief {
            reason: Reason::NotRegular,
            message: format!("{} is not a regular file", path.display()),
        },
        OpenError::Io(err) => missing(&path, &err),
    })?;
    compare(recorded, &path, &file)?;
    let sections = Sections::open(&file, false).map_err(|problem| Disbelief {
        reason: Reason::NotElf,
        message: format!("{} gives no names: {problem}", path.display()),
    })?;
    Ok(Opened {
        path,
        sections: Rc::new(sections),
    })
}

fn compare(recorded: &MappedFile, path: &Path, file: &File) -> Result<(), Disbelief> {
    let shown = path.display();
    if let Some(wanted) = &recorded.build_id {
        let found = read_build_id(file).map_err(|err| match err {
            ElfError::NotElf => Disbelief {
                reason: Reason::NotElf,
                message: format!("{shown} is not an ELF file"),
            },
            ElfError::Io(err) => Disbelief {
                reason: Reason::Unreadable,
                message: format!("{shown} cannot be read: {err}"),
            },
        })?;
        return match found {
            Some(id) if id == *wanted => Ok(()),
            Some(id) => Err(Disbelief {
                reason: Reason::BuildIdDiffers,
                message: format!("{shown} has build ID {id}, recorded was {wanted}"),
            }),
            None => Err(Disbelief {
                reason: Reason::BuildIdDiffers,
                message: format!("{shown} has no build ID, recorded was {wanted}"),
            }),
        };
    }
    let Some(wanted) = &recorded.version else {
        return Err(Disbelief {
            reason: Reason::NothingToCompare,
            message: format!("{shown}: neither build ID nor size and time were recorded"),
        });
    };
    let meta = file.metadata().map_err(|err| Disbelief {
        reason: Reason::Unreadable,
        message: format!("{shown} cannot be read: {err}"),
    })?;
    let same = meta.len() == wanted.size
        && meta.mtime() == wanted.mtime_sec
        && meta.mtime_nsec() == i64::from(wanted.mtime_nsec);
    if same {
        Ok(())
    } else {
        Err(Disbelief {
            reason: Reason::VersionDiffers,
            message: format!("{shown} has another size or modification time than was recorded"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::{BuildId, FileVersion, MappedKind};

    fn recorded(path: &Path) -> MappedFile {
        MappedFile {
            kind: MappedKind::File,
            path: path.as_os_str().as_bytes().to_vec(),
            build_id: None,
            inode: None,
            version: None,
            deleted: false,
        }
    }

    fn reason(file: &MappedFile) -> Option<Reason> {
        reason_with(file, Options::default())
    }

    fn reason_with(file: &MappedFile, options: Options) -> Option<Reason> {
        let mut finder = Finder::new(&options, Vec::new());
        finder.believe(file, &mut |_| {}).err().map(|d| d.reason)
    }

    #[test]
    fn without_a_build_id_size_and_time_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prog");
        fs::copy("/proc/self/exe", &path).unwrap();
        let meta = fs::metadata(&path).unwrap();
        let mut file = recorded(&path);
        assert_eq!(reason(&file), Some(Reason::NothingToCompare));
        let version = FileVersion {
            size: meta.len(),
            mtime_sec: meta.mtime(),
            mtime_nsec: meta.mtime_nsec() as u32,
        };
        file.version = Some(version);
        let mut finder = Finder::new(&Options::default(), Vec::new());
        assert!(!finder.believe(&file, &mut |_| {}).unwrap().verified);
        let strict = Options {
            require_build_id: true,
            ..Options::default()
        };
        assert_eq!(reason_with(&file, strict), Some(Reason::NoBuildId));
        file.version = Some(FileVersion {
            mtime_nsec: version.mtime_nsec ^ 1,
            ..version
        });
        assert_eq!(reason(&file), Some(Reason::VersionDiffers));
        file.version = Some(FileVersion {
            size: version.size + 1,
            ..version
        });
        assert_eq!(reason(&file), Some(Reason::VersionDiffers));
        // A build ID was recorded: size and time do not count.
        file.version = Some(version);
        file.build_id = BuildId::new(&[1, 2, 3]);
        assert_eq!(reason(&file), Some(Reason::BuildIdDiffers));
        fs::write(&path, b"12345").unwrap();
        assert_eq!(reason(&file), Some(Reason::NotElf));
    }

    #[test]
    fn a_file_is_found_by_another_path_its_build_id_was_recorded_under() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prog");
        fs::copy("/proc/self/exe", &path).unwrap();
        let id = read_build_id(&File::open(&path).unwrap()).unwrap().unwrap();
        let mut file = recorded(Path::new("/inside/prog"));
        file.build_id = Some(id.clone());
        let layout = |path: &[u8], vaddr| ElfLayout {
            path: path.to_vec(),
            build_id: Some(id.clone()),
            inode: None,
            version: None,
            loads: vec![Load {
                offset: 0,
                vaddr,
                file_size: 9,
                mem_size: 9,
                flags: 5,
            }],
        };
        let found = |layouts: Vec<ElfLayout>, file: &MappedFile| {
            let mut finder = Finder::new(&Options::default(), layouts);
            finder.known_path(&id, path.as_os_str().as_bytes());
            let found = finder.believe(file, &mut |_| {}).ok();
            found.and_then(|b| Some((b.binary?.path, b.loads[0].vaddr)))
        };
        // Nothing says how its offsets are to be translated.
        assert_eq!(found(vec![], &file), None);
        let of_other = || layout(path.as_os_str().as_bytes(), 7);
        assert_eq!(found(vec![of_other()], &file), Some((path.clone(), 0)));
        // Its own layout holds; where there are several and none is its own, nobody knows.
        let own = layout(b"/inside/prog", 5);
        assert_eq!(found(vec![of_other(), own], &file), Some((path.clone(), 5)));
        let third = layout(b"/inside/third", 5);
        assert_eq!(found(vec![of_other(), third], &file), None);
        // Of another build it is another file.
        file.build_id = BuildId::new(&[1, 2, 3]);
        assert_eq!(found(vec![of_other()], &file), None);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for path in [
            &fifo,
            &link,
            &dir.path().to_path_buf(),
            &PathBuf::from("/dev/zero"),
        ] {
            assert_eq!(
                reason(&recorded(path)),
                Some(Reason::NotRegular),
                "{}",
                path.display()
            );
        }
        assert_eq!(
            reason(&recorded(&dir.path().join("none"))),
            Some(Reason::FileMissing)
        );
        assert_eq!(
            reason(&recorded(Path::new("relative"))),
            Some(Reason::FileMissing)
        );
        let mut nul = recorded(Path::new("/tmp/x"));
        nul.path.push(0);
        assert_eq!(reason(&nul), Some(Reason::FileMissing));
    }
}
