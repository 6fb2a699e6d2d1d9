//! The perf map of one process, opened as the process sees it and read piece by piece as it grows.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::lines::{Line, parse_line};
use crate::event::{Pid, Timestamp};
use crate::record::host::wall_offset;
use crate::record::procfs;
use crate::record::rooted::{Root, open_child};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Of the beginning and of the end of what has been read, so much is compared before what follows is taken for its
/// continuation.
const TAIL: usize = 64;
/// File systems stamp with a coarse clock, and clocks are set (ns).
const CLOCKS_DIFFER: i64 = 1_000_000_000;

/// Where a process has its map: `/tmp/perf-PID.map`, as its own root and PID namespace have it.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    name: String,
    /// Whose file it may be, beside root's.
    users: [u32; 2],
    /// When it must have been written to at least, in ns since 1970: an older one is of an earlier process of this number.
    not_before: i64,
}

impl Place {
    /// The place of `process`, which has to live and was started at `start`.
    pub fn of(process: Pid, start: Timestamp) -> io::Result<Place> {
        let directory = Root::of(process)?.directory(b"/tmp")?;
        let owner = procfs::read_owner(process)?;
        Ok(Place {
            directory,
            name: format!("perf-{}.map", owner.pid_inside),
            users: [owner.real_user, owner.effective_user],
            not_before: start
                .0
                .cast_signed()
                .saturating_add(wall_offset())
                .saturating_sub(CLOCKS_DIFFER),
        })
    }

    /// That of process `pid` in `dir`, whose file is ours.
    #[cfg(test)]
    pub fn in_dir(dir: &std::path::Path, pid: u32) -> Place {
        use rustix::fs::{Mode, OFlags};
        Place {
            directory: rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap(),
            name: format!("perf-{pid}.map"),
            users: [rustix::process::getuid().as_raw(); 2],
            not_before: 0,
        }
    }

    /// The map, if it is there, is the process's own or root's, and was written to while it ran.
    fn open(&self) -> io::Result<File> {
        let file = open_child(self.directory.as_fd(), &self.name)?;
        let meta = file.metadata()?;
        let (user, modified) = (meta.uid(), meta.mtime().saturating_mul(1_000_000_000));
        let own = user == 0 || self.users.contains(&user);
        if own && modified.saturating_add(meta.mtime_nsec()) >= self.not_before {
            Ok(file)
        } else {
            Err(io::Error::other("another's"))
        }
    }
}

/// What tells a file, and a state of it, from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
}

impl State {
    fn of(file: &File) -> io::Result<State> {
        let meta = file.metadata()?;
        Ok(State {
            file: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

/// A perf map as far as it has been read.
#[derive(Debug, Default)]
pub struct MapFile {
    open: Option<File>,
    seen: Option<State>,
    /// Bytes of whole lines taken in.
    offset: u64,
    /// The first of these.
    head: Vec<u8>,
    /// The last of these.
    tail: Vec<u8>,
}

/// What a look at a perf map found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// There is no such file.
    Nothing,
    /// As it was.
    Same,
    /// More lines may follow.
    Grown,
    /// Not what has been read: it begins anew.
    Anew,
}

impl MapFile {
    /// Looks whether there is something to read. With no place the file known is looked at again.
    pub fn look(&mut self, place: Option<&Place>) -> Found {
        if let Some(file) = place.and_then(|place| place.open().ok()) {
            self.open = Some(file);
        }
        let Some(file) = &self.open else {
            return Found::Nothing;
        };
        let Ok(state) = State::of(file) else {
            return Found::Nothing;
        };
        let before = self.seen.replace(state);
        if before == Some(state) {
            return Found::Same;
        }
        let same_file = before.is_none_or(|before| before.file == state.file);
        if same_file && state.size >= self.offset && self.continues(file) {
            return Found::Grown;
        }
        self.offset = 0;
        self.head.clear();
        self.tail.clear();
        Found::Anew
    }

    /// Whether what has been read is still in front of what follows.
    fn continues(&self, file: &File) -> bool {
        let is_there = |known: &[u8], start: u64| {
            let mut now = [0; TAIL];
            now.get_mut(..known.len())
                .is_some_and(|now| file.read_exact_at(now, start).is_ok() && *now == *known)
        };
        let tail = self.offset.saturating_sub(self.tail.len() as u64);
        is_there(&self.head, 0) && is_there(&self.tail, tail)
    }

    /// Reads on for about a chunk, and hands out whole lines. `false` at the end: what has no newline yet waits.
    pub fn read(&mut self, mut each: impl FnMut(&Line<'_>)) -> bool {
        let Some(file) = &self.open else { return false };
        let mut chunk = vec![0; CHUNK];
        let mut len = 0;
        while len < CHUNK {
            let Some(rest) = chunk.get_mut(len..) else {
                break;
            };
            match file.read_at(rest, self.offset + len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                // What cannot be read now may be later.
                Err(_) => break,
            }
        }
        let full = len == CHUNK;
        let read = chunk.get(..len).unwrap_or_default();
        let whole = match memchr::memrchr(b'\n', read) {
            Some(last) => last + 1,
            // No line is so long: garbage is passed over.
            None if full => len,
            None => 0,
        };
        let whole = read.get(..whole).unwrap_or_default();
        for line in whole.split(|b| *b == b'\n') {
            if let Some(line) = parse_line(line) {
                each(&line);
            }
        }
        self.offset += whole.len() as u64;
        let missing = TAIL.saturating_sub(self.head.len());
        self.head.extend(whole.iter().take(missing));
        let from = whole.len().saturating_sub(TAIL);
        self.tail.extend(whole.get(from..).unwrap_or_default());
        let more = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..more);
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::Path;

    fn all(map: &mut MapFile) -> Vec<String> {
        let mut names = Vec::new();
        while map.read(|line| names.push(String::from_utf8_lossy(line.name).into_owned())) {}
        names
    }

    fn append(path: &Path, text: &str) {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn a_map_is_read_as_it_grows_and_anew_when_it_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let (path, place) = (dir.path().join("perf-7.map"), Place::in_dir(dir.path(), 7));
        let mut map = MapFile::default();
        assert_eq!(map.look(Some(&place)), Found::Nothing);
        append(&path, "10 1 a\ngarbage\n20 1 b\r\n30 1 cut");
        assert_eq!(map.look(Some(&place)), Found::Grown);
        assert_eq!(all(&mut map), ["a", "b"]);
        assert_eq!(map.look(Some(&place)), Found::Same);
        append(&path, " off\n40 1 d\n");
        assert_eq!(map.look(Some(&place)), Found::Grown);
        assert_eq!(all(&mut map), ["cut off", "d"]);

        // Longer than before, but not the same before that.
        std::fs::write(&path, "10 1 other\n".repeat(9)).unwrap();
        assert_eq!(map.look(Some(&place)), Found::Anew);
        assert_eq!(all(&mut map).len(), 9);
        std::fs::write(&path, "50 1 short\n").unwrap();
        assert_eq!(map.look(Some(&place)), Found::Anew);
        assert_eq!(all(&mut map), ["short"]);

        // Its last line is where it was, after others.
        std::fs::write(&path, "one 1\n50 1 short\n").unwrap();
        assert_eq!(map.look(Some(&place)), Found::Anew);
        assert_eq!(all(&mut map), ["short"]);
        append(&path, "60 1 next\n");
        assert_eq!(map.look(Some(&place)), Found::Grown);
        assert_eq!(all(&mut map), ["next"]);
        std::fs::write(&path, "two 2\n50 1 short\n60 1 next\n70 1 more\n").unwrap();
        assert_eq!(map.look(Some(&place)), Found::Anew);
        assert_eq!(all(&mut map), ["short", "next", "more"]);
        std::fs::write(&path, "50 1 short\n").unwrap();
        assert_eq!(map.look(Some(&place)), Found::Anew);
        assert_eq!(all(&mut map), ["short"]);

        // The file known is still there when its name is not.
        append(&path, "60 1 last\n");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(map.look(None), Found::Grown);
        assert_eq!(all(&mut map), ["last"]);
        append(&path, "10 1 next\n");
        assert_eq!(map.look(Some(&place)), Found::Anew);
    }

    #[test]
    fn large_maps_and_lines_without_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let (path, place) = (dir.path().join("perf-7.map"), Place::in_dir(dir.path(), 7));
        let mut text = "x".repeat(CHUNK + 10);
        text.push('\n');
        for i in 0..100_000 {
            text += &format!("{:x} 10 function number {i}\n", 0x1000 + i * 16);
        }
        append(&path, &text);
        let mut map = MapFile::default();
        assert_eq!(map.look(Some(&place)), Found::Grown);
        assert_eq!(all(&mut map).len(), 100_000);
        assert_eq!(map.offset, text.len() as u64);
    }

    #[test]
    fn what_is_not_a_file_of_its_own_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf-7.map");
        let mut place = Place::in_dir(dir.path(), 7);
        let other = dir.path().join("other");
        append(&other, "10 1 a\n");
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert_eq!(MapFile::default().look(Some(&place)), Found::Nothing);
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(MapFile::default().look(Some(&place)), Found::Grown);
        place.not_before = i64::MAX;
        assert_eq!(MapFile::default().look(Some(&place)), Found::Nothing);
        place.not_before = 0;
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
            assert_eq!(MapFile::default().look(Some(&place)), Found::Nothing);
        }
    }
}
