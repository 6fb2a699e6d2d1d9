//! Finding the file that was mapped, and believing it.
//!
//! A file is believed only if its build ID equals the recorded one. Where none was recorded its size and
//! modification time must be the recorded ones exactly; names from it are then counted as unverified.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::elf_file::{ElfError, OpenError, open_regular, read_build_id};
use crate::event::MappedFile;
use crate::profile::Reason;

/// A file whose names may be used.
#[derive(Debug)]
pub struct Believed {
    /// Where it is on this machine, symbolic links resolved.
    pub path: PathBuf,
    /// Its build ID was compared; else only size and time were.
    pub verified: bool,
}

/// Why a file gives no names: the class, and what to tell the user about it.
#[derive(Debug)]
pub struct Disbelief {
    /// What is counted.
    pub reason: Reason,
    /// One clause: `/usr/bin/x has build ID 12ab, recorded was 34cd`.
    pub message: String,
}

/// Symbolic links followed in one path, as the kernel does.
const MAX_LINKS: usize = 40;

/// Finds the file recorded as `recorded`, below `root` when given, and compares it.
pub fn believe(recorded: &MappedFile, root: Option<&Path>) -> Result<Believed, Disbelief> {
    let wanted = Path::new(OsStr::from_bytes(&recorded.path));
    if !wanted.is_absolute() {
        let message = format!("{} is not an absolute path", wanted.display());
        return Err(Disbelief {
            reason: Reason::FileMissing,
            message,
        });
    }
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
    let path = match root {
        Some(root) => {
            resolve_below(root, wanted).map_err(|err| missing(&below(root, wanted), &err))?
        }
        None => wanted.to_path_buf(),
    };
    let file = open_regular(&path).map_err(|err| match err {
        OpenError::NotRegular => Disbelief {
            reason: Reason::NotRegular,
            message: format!("{} is not a regular file", path.display()),
        },
        OpenError::Io(err) => missing(&path, &err),
    })?;
    compare(recorded, &path, &file)?;
    Ok(Believed {
        path,
        verified: recorded.build_id.is_some(),
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

/// `path` below `root` as text, `..` taken out.
fn below(root: &Path, path: &Path) -> PathBuf {
    let mut out = root.to_path_buf();
    for part in path.components() {
        if let Component::Normal(name) = part {
            out.push(name);
        }
    }
    out
}

/// `path` as a process whose root is `root` would resolve it: neither `..` nor symbolic links leave `root`.
fn resolve_below(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut todo: Vec<PathBuf> = vec![path.to_path_buf()];
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(rest) = todo.pop() {
        let mut parts = rest.components();
        let Some(part) = parts.next() else { continue };
        let rest = parts.as_path().to_path_buf();
        todo.push(rest);
        match part {
            Component::RootDir => inside = PathBuf::new(),
            Component::ParentDir => {
                inside.pop();
            }
            Component::Normal(name) => {
                let full = root.join(&inside).join(name);
                if fs::symlink_metadata(&full)?.is_symlink() {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::other("too many symbolic links"));
                    }
                    todo.push(fs::read_link(&full)?);
                } else {
                    inside.push(name);
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(root.join(inside))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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

    fn reason(file: &MappedFile, root: Option<&Path>) -> Option<Reason> {
        believe(file, root).err().map(|d| d.reason)
    }

    #[test]
    fn without_a_build_id_size_and_time_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prog");
        fs::write(&path, b"12345").unwrap();
        let meta = fs::metadata(&path).unwrap();
        let mut file = recorded(&path);
        assert_eq!(reason(&file, None), Some(Reason::NothingToCompare));
        let version = FileVersion {
            size: 5,
            mtime_sec: meta.mtime(),
            mtime_nsec: meta.mtime_nsec() as u32,
        };
        file.version = Some(version);
        assert!(!believe(&file, None).unwrap().verified);
        file.version = Some(FileVersion {
            mtime_nsec: version.mtime_nsec ^ 1,
            ..version
        });
        assert_eq!(reason(&file, None), Some(Reason::VersionDiffers));
        file.version = Some(FileVersion { size: 6, ..version });
        assert_eq!(reason(&file, None), Some(Reason::VersionDiffers));
        // A build ID was recorded: size and time do not count, and this is no ELF file.
        file.version = Some(version);
        file.build_id = BuildId::new(&[1, 2, 3]);
        assert_eq!(reason(&file, None), Some(Reason::NotElf));
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
        symlink(&fifo, &link).unwrap();
        for path in [
            &fifo,
            &link,
            &dir.path().to_path_buf(),
            &PathBuf::from("/dev/zero"),
        ] {
            assert_eq!(
                reason(&recorded(path), None),
                Some(Reason::NotRegular),
                "{}",
                path.display()
            );
        }
        assert_eq!(
            reason(&recorded(&dir.path().join("none")), None),
            Some(Reason::FileMissing)
        );
        assert_eq!(
            reason(&recorded(Path::new("relative")), None),
            Some(Reason::FileMissing)
        );
        let mut nul = recorded(Path::new("/tmp/x"));
        nul.path.push(0);
        assert_eq!(reason(&nul, None), Some(Reason::FileMissing));
    }

    #[test]
    fn a_path_below_a_root_stays_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/x"), b"in").unwrap();
        fs::write(dir.path().join("secret"), b"out").unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/usr/lib/x", root.join("absolute")).unwrap();
        symlink("../../secret", root.join("escape")).unwrap();
        symlink("loop", root.join("loop")).unwrap();

        let at = |path: &str| resolve_below(&root, Path::new(path));
        let x = root.join("usr/lib/x");
        assert_eq!(at("/lib/x").unwrap(), x);
        assert_eq!(at("/absolute").unwrap(), x);
        assert_eq!(at("/../../usr/./lib/../lib/x").unwrap(), x);
        assert!(at("/../secret").is_err());
        assert!(at("/escape").is_err());
        assert!(at("/loop").is_err());
    }
}
