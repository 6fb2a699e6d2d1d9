//! Files of other processes, opened by the paths those see and with nothing taken on trust.
//!
//! A path is resolved inside the root of its process: absolute symbolic links and `..` stay in there. Nothing is opened
//! that is not a regular file: what a path leads to is looked at before it is opened for reading.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};

use crate::event::Pid;

/// A directory that paths are resolved in, as if it were the root.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    /// The root of `process`. Open, it keeps file systems of a process that has ended from going away.
    pub fn of(process: Pid) -> io::Result<Root> {
        Root::at(&format!("/proc/{process}/root"))
    }

    /// Our own.
    pub fn own() -> io::Result<Root> {
        Root::at("/")
    }

    fn at(path: &str) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Root(rustix::fs::openat(CWD, path, flags, Mode::empty())?))
    }

    /// A directory below, for [`open_child`]. It stays the same whatever is mounted over it.
    pub fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::DIRECTORY)
    }

    /// The regular file at `path`, which is absolute or seen from the root.
    pub fn open_regular(&self, path: &[u8]) -> io::Result<File> {
        reopen(self.resolve(path, OFlags::empty())?.as_fd())
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = OsStr::from_bytes(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC | flags;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve)?;
        Ok(fd)
    }
}

/// The regular file `name` in `directory` itself: no symbolic link, and nothing below or above.
pub fn open_child(directory: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = rustix::fs::openat2(directory, name, flags, Mode::empty(), resolve)?;
    reopen(fd.as_fd())
}

/// Opens for reading what `fd` (`O_PATH`) stands for, if it is a regular file.
fn reopen(fd: BorrowedFd<'_>) -> io::Result<File> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    if kind != FileType::RegularFile {
        let what = format!("not a regular file but {kind:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn read(file: io::Result<File>) -> Option<String> {
        let mut text = String::new();
        file.ok()?.read_to_string(&mut text).ok()?;
        Some(text)
    }

    #[test]
    fn links_stay_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path().to_str().unwrap()).unwrap();
        fs::create_dir_all(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/hostname"), "inside").unwrap();
        symlink("/etc/hostname", dir.path().join("absolute")).unwrap();
        symlink("../../../etc/hostname", dir.path().join("upward")).unwrap();
        symlink("/proc/self/root", dir.path().join("magic")).unwrap();
        for path in [
            "/etc/hostname",
            "etc/hostname",
            "/absolute",
            "/upward",
            "/../etc/hostname",
        ] {
            let found = read(root.open_regular(path.as_bytes()));
            assert_eq!(found.as_deref(), Some("inside"), "{path}");
        }
        assert!(root.open_regular(b"/magic/etc/hostname").is_err());
        assert!(
            Root::of(Pid(std::process::id()))
                .unwrap()
                .open_regular(b"/proc/self/exe")
                .is_err()
        );
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(dir.path().join("file"), "text").unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        let root = Root::at(dir.path().to_str().unwrap()).unwrap();
        assert!(root.open_regular(b"/fifo").is_err());
        assert!(root.open_regular(b"/").is_err());
        assert!(Root::own().unwrap().open_regular(b"/dev/null").is_err());
        let directory = root.directory(b"/").unwrap();
        let child = |name| read(open_child(directory.as_fd(), name));
        assert_eq!(child("file").as_deref(), Some("text"));
        assert_eq!(
            (child("link"), child("fifo"), child("../file")),
            (None, None, None)
        );
        assert_eq!(read(root.open_regular(b"/link")).as_deref(), Some("text"));
        assert!(Path::new(&fifo).exists());
    }
}
