//! Layouts of the ELF files in the capture: each is read once, off the sampling path, and written once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::event::{BuildId, FileVersion, InodeKey, MappedFile};
use crate::format::aid::{ElfLayout, ElfLayouts, Load};

/// Files remembered at most; further ones have no layout in the capture.
const MOST: usize = 1 << 16;
/// A file that could not be opened is tried so often: each try comes with a process that maps it.
const TRIES: u8 = 16;
/// Bytes of layouts of one frame, about, and of all: a reader takes 64 MiB of aid.
const FRAME: usize = 1 << 20;
const GIVEN_OUT: usize = 16 << 20;
/// Bytes of layouts held of files that are not in the capture yet; with more they have none.
const HELD: usize = 16 << 20;

/// What is known of each file, told apart by build ID and path or else by inode and version. The build ID alone would not
/// do: tools that change a program's layout (patchelf, objcopy) leave it as it is.
#[derive(Debug, Default)]
pub struct Layouts {
    /// By build ID and hash of the path.
    by_id: HashMap<(BuildId, u64), State>,
    hasher: RandomState,
    by_inode: HashMap<(InodeKey, FileVersion), State>,
    /// Read, in the capture, and without their layout there yet.
    ready: Vec<ElfLayout>,
    /// Bytes given out, about.
    given_out: usize,
    /// Bytes held of files that are not in the capture yet, about.
    held: usize,
}

#[derive(Debug)]
enum State {
    /// `wanted`: the file is in the capture.
    Unread {
        tries: u8,
        wanted: bool,
    },
    Read(Box<ElfLayout>),
    /// Written, or nothing that has a layout.
    Done,
}

impl Layouts {
    /// Whether `file`, which has a build ID, should be read.
    pub fn wants(&self, file: &MappedFile) -> bool {
        let Some(id) = &file.build_id else {
            return false;
        };
        match self.by_id.get(&self.key(id, &file.path)) {
            Some(State::Unread { tries, .. }) => *tries < TRIES,
            Some(_) => false,
            None => self.has_room(),
        }
    }

    fn key(&self, id: &BuildId, path: &[u8]) -> (BuildId, u64) {
        (id.clone(), self.hasher.hash_one(path))
    }

    fn has_room(&self) -> bool {
        self.by_id.len() + self.by_inode.len() < MOST
    }

    /// `file` could not be opened.
    pub fn failed(&mut self, file: &MappedFile) {
        if let Some(State::Unread { tries, .. }) = self.state(file) {
            *tries = tries.saturating_add(1);
        }
    }

    /// `file` has been read and has these PT_LOAD headers; none if it is no ELF file.
    pub fn add(&mut self, file: &MappedFile, loads: &[Load]) {
        let held = self.held;
        let Some(state) = self.state(file) else {
            return;
        };
        let State::Unread { wanted, .. } = *state else {
            return;
        };
        let size = size_of(&file.path, loads);
        if loads.is_empty() || (!wanted && held + size > HELD) {
            *state = State::Done;
            return;
        }
        let layout = ElfLayout {
            path: file.path.clone(),
            build_id: file.build_id.clone(),
            inode: file.inode,
            version: file.version,
            loads: loads.to_vec(),
        };
        if wanted {
            *state = State::Done;
            self.ready.push(layout);
        } else {
            *state = State::Read(Box::new(layout));
            self.held += size;
        }
    }

    /// `file` is in the capture.
    pub fn written(&mut self, file: &MappedFile) {
        let Some(state) = self.state(file) else {
            return;
        };
        match state {
            State::Unread { wanted, .. } => *wanted = true,
            State::Done => {}
            State::Read(_) => {
                if let State::Read(layout) = std::mem::replace(state, State::Done) {
                    self.held -= size_of(&layout.path, &layout.loads);
                    self.ready.push(*layout);
                }
            }
        }
    }

    /// Layouts to be written now, as many as one frame takes.
    pub fn take(&mut self) -> Option<ElfLayouts> {
        let mut layouts = Vec::new();
        let mut size = 0;
        while size < FRAME
            && let Some(layout) = self.ready.pop()
        {
            size += size_of(&layout.path, &layout.loads);
            layouts.push(layout);
        }
        self.given_out += size;
        (!layouts.is_empty() && self.given_out <= GIVEN_OUT).then_some(ElfLayouts { layouts })
    }

    fn state(&mut self, file: &MappedFile) -> Option<&mut State> {
        let room = self.has_room();
        let new = State::Unread {
            tries: 0,
            wanted: false,
        };
        match (&file.build_id, file.inode, file.version) {
            (Some(id), ..) => {
                let key = self.key(id, &file.path);
                match room {
                    true => Some(self.by_id.entry(key).or_insert(new)),
                    false => self.by_id.get_mut(&key),
                }
            }
            (None, Some(inode), Some(version)) if room => {
                Some(self.by_inode.entry((inode, version)).or_insert(new))
            }
            (None, Some(inode), Some(version)) => self.by_inode.get_mut(&(inode, version)),
            _ => None,
        }
    }
}

/// Bytes of a layout, about.
fn size_of(path: &[u8], loads: &[Load]) -> usize {
    64 + path.len() + std::mem::size_of_val(loads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MappedKind;

    const LOAD: Load = Load {
        offset: 0,
        vaddr: 0x1000,
        file_size: 5,
        mem_size: 6,
        flags: 5,
    };

    fn file(path: &str, id: Option<u8>, inode: u64) -> MappedFile {
        MappedFile {
            kind: MappedKind::File,
            path: path.into(),
            build_id: id.and_then(|id| BuildId::new(&[id])),
            inode: Some(InodeKey {
                major: 1,
                minor: 2,
                inode,
            }),
            version: id.is_none().then_some(FileVersion {
                size: 1,
                mtime_sec: 2,
                mtime_nsec: 3,
            }),
            deleted: false,
        }
    }

    fn paths(layouts: &mut Layouts) -> Vec<String> {
        let taken = layouts.take().into_iter().flat_map(|list| list.layouts);
        taken
            .map(|l| String::from_utf8_lossy(&l.path).into_owned())
            .collect()
    }

    #[test]
    fn a_layout_is_written_once_whatever_comes_first() {
        let mut layouts = Layouts::default();
        let (early, late) = (file("early", Some(1), 1), file("late", None, 2));
        layouts.add(&early, &[LOAD]);
        assert_eq!(paths(&mut layouts), [""; 0], "not in the capture yet");
        layouts.written(&early);
        layouts.written(&late);
        layouts.written(&file("early", Some(1), 9));
        assert_eq!(paths(&mut layouts), ["early"]);
        layouts.add(&late, &[LOAD]);
        layouts.add(&late, &[LOAD]);
        layouts.add(&early, &[LOAD]);
        layouts.written(&late);
        assert_eq!(paths(&mut layouts), ["late"]);
        assert!(!layouts.wants(&early));
    }

    #[test]
    fn files_of_one_build_id_have_their_own_layouts() {
        let mut layouts = Layouts::default();
        let (first, second) = (file("first", Some(1), 1), file("second", Some(1), 2));
        layouts.written(&first);
        layouts.written(&second);
        layouts.add(&first, &[LOAD]);
        assert!(layouts.wants(&second) && !layouts.wants(&first));
        layouts.add(&second, &[Load { offset: 8, ..LOAD }]);
        let mut taken = layouts.take().unwrap().layouts;
        taken.sort_by_key(|layout| layout.loads[0].offset);
        assert_eq!(taken[0].path, b"first");
        assert_eq!(taken[1].path, b"second");
        assert_eq!(taken[1].loads[0].offset, 8);
    }

    #[test]
    fn what_cannot_be_read_is_tried_again_but_not_for_ever() {
        let mut layouts = Layouts::default();
        let gone = file("gone", Some(1), 1);
        for _ in 0..TRIES {
            assert!(layouts.wants(&gone));
            layouts.failed(&gone);
        }
        assert!(!layouts.wants(&gone));
        let script = file("script", Some(2), 2);
        layouts.written(&script);
        layouts.add(&script, &[]);
        assert!(!layouts.wants(&script));
        assert_eq!(paths(&mut layouts), [""; 0]);
    }

    #[test]
    fn only_so_much_is_held_of_files_that_may_never_be_sampled() {
        let mut layouts = Layouts::default();
        let many = vec![LOAD; 1024];
        let most = HELD as u64 / size_of(b"0000", &many) as u64;
        let name = |number: u64| format!("{number:04}");
        for number in 0..=most {
            layouts.add(&file(&name(number), None, number), &many);
        }
        layouts.written(&file(&name(most), None, most));
        assert_eq!(paths(&mut layouts), [""; 0]);
        layouts.written(&file(&name(0), None, 0));
        assert_eq!(paths(&mut layouts), ["0000"]);
        // There is room again.
        layouts.add(&file("next", None, most + 1), &many);
        layouts.written(&file("next", None, most + 1));
        assert_eq!(paths(&mut layouts), ["next"]);
    }
}
