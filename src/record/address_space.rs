//! The executable mappings of one image as the recorder follows them.

use std::ops::Range;
use std::rc::Rc;

use crate::event::{MappedFile, MappedKind, Timestamp};

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last; above `start`.
    pub end: u64,
    /// Offset of `start` in the file, in bytes.
    pub file_offset: u64,
    /// [`crate::event::prot`] bits.
    pub prot: u8,
    /// What is mapped.
    pub file: Rc<MappedFile>,
}

impl Mapping {
    /// Whether `whole` maps the same at the same addresses. The side-band tells of a file its build ID or its inode,
    /// `/proc` both.
    fn is_part_of(&self, whole: &Mapping) -> bool {
        let (file, other) = (&*self.file, &*whole.file);
        let same_file = match (&file.build_id, &other.build_id, file.inode, other.inode) {
            (Some(a), Some(b), ..) => a == b,
            (.., Some(a), Some(b)) => a == b,
            _ => true,
        };
        let same_place = file.kind != MappedKind::File
            || self.file_offset.wrapping_sub(self.start)
                == whole.file_offset.wrapping_sub(whole.start);
        (whole.start..whole.end).contains(&self.start)
            && self.end <= whole.end
            && (file.kind, &file.path) == (other.kind, &other.path)
            && same_file
            && same_place
    }
}

/// Adds `new` to `list`, which is sorted and without overlaps and stays so: what `new` covers is gone, and what
/// it covers in part keeps the rest.
pub fn place(list: &mut Vec<Mapping>, new: Mapping) {
    let first = list.partition_point(|m| m.end <= new.start);
    let last = list.partition_point(|m| m.start < new.end).max(first);
    let covered = list.get(first..last).unwrap_or_default();
    let before = covered.first().filter(|m| m.start < new.start);
    let before = before.map(|m| Mapping {
        end: new.start,
        ..m.clone()
    });
    let after = covered.last().filter(|m| m.end > new.end).map(|m| Mapping {
        start: new.end,
        file_offset: m
            .file_offset
            .saturating_add(new.end.saturating_sub(m.start)),
        ..m.clone()
    });
    list.splice(first..last, before.into_iter().chain([new]).chain(after));
}

/// The mappings of an image: those of a past moment, shared with forks, and what came since.
#[derive(Debug, Clone, Default)]
pub struct AddressSpace {
    base: Rc<Vec<Mapping>>,
    added: Vec<(Timestamp, Mapping)>,
    /// The main executable and, when that is a dynamic loader started by hand, the program it loaded.
    main: Vec<Rc<MappedFile>>,
}

impl AddressSpace {
    /// An address space read at once; `main` as described there.
    pub fn read(mut mappings: Vec<Mapping>, main: Vec<Rc<MappedFile>>) -> AddressSpace {
        mappings.sort_by_key(|m| m.start);
        let mut base = Vec::with_capacity(mappings.len());
        for mapping in mappings {
            place(&mut base, mapping);
        }
        AddressSpace {
            base: Rc::new(base),
            added: Vec::new(),
            main,
        }
    }

    /// Whether nothing is known to be mapped.
    pub fn is_empty(&self) -> bool {
        self.base.is_empty() && self.added.is_empty()
    }

    /// A mapping is made at `time`.
    pub fn add(&mut self, time: Timestamp, mapping: Mapping) {
        // The kernel maps the program first, then its loader; a loader started by hand maps the program next.
        if mapping.file.kind == MappedKind::File
            && self.main.len() < 2
            && !self.main.contains(&mapping.file)
        {
            self.main.push(mapping.file.clone());
        }
        self.added.push((time, mapping));
    }

    /// What a child forked now starts with.
    pub fn fork(&mut self) -> AddressSpace {
        AddressSpace {
            base: self.flatten(),
            added: Vec::new(),
            main: self.main.clone(),
        }
    }

    /// All mappings as they are now.
    fn flatten(&self) -> Rc<Vec<Mapping>> {
        if self.added.is_empty() {
            return self.base.clone();
        }
        Rc::new(self.until(Timestamp::MAX).0)
    }

    /// What was read to be the main executable, see [`AddressSpace`].
    pub fn set_main(&mut self, main: Vec<Rc<MappedFile>>) {
        self.main = main;
    }

    /// Forgets when mappings came that came before `time`: no older sample can arrive any more.
    pub fn settle(&mut self, time: Timestamp) {
        let split = self.added.partition_point(|(t, _)| *t <= time);
        if split > 0 {
            self.base = Rc::new(self.until(time).0);
            self.added.drain(..split);
        }
    }

    /// All mappings, if they have been the same for as long as anything can be asked of; others are elsewhere in memory.
    pub fn standing(&self) -> Option<&Rc<Vec<Mapping>>> {
        self.added.is_empty().then_some(&self.base)
    }

    /// How many mappings are kept.
    pub fn len(&self) -> usize {
        self.base.len() + self.added.len()
    }

    /// Forgets what was mapped before the last [`settle`](Self::settle) and overlaps none of `there`, which are address
    /// ranges in ascending order.
    pub fn keep_only(&mut self, there: &[Range<u64>]) {
        let is_there = |m: &&Mapping| {
            let at = there.partition_point(|range| range.end <= m.start);
            there.get(at).is_some_and(|range| range.start < m.end)
        };
        self.base = Rc::new(self.base.iter().filter(is_there).cloned().collect());
    }

    /// Whether all of `mappings` is known already, whatever else is.
    pub fn has_all(&self, mappings: &[Mapping]) -> bool {
        let known = self.flatten();
        mappings.iter().all(|mapping| {
            let at = known.partition_point(|m| m.end <= mapping.start);
            known.get(at).is_some_and(|known| mapping.is_part_of(known))
        })
    }

    /// Whether `mapping` takes the place of something else that is known.
    pub fn contradicts(&self, mapping: &Mapping) -> bool {
        let known = self.flatten();
        let first = known.partition_point(|m| m.end <= mapping.start);
        let overlapped = known.iter().skip(first);
        overlapped
            .take_while(|known| known.start < mapping.end)
            .any(|known| !known.is_part_of(mapping) && !mapping.is_part_of(known))
    }

    /// The mappings as of `time`, main executable first, and those that came later, in order.
    pub fn until(&self, time: Timestamp) -> (Vec<Mapping>, &[(Timestamp, Mapping)]) {
        let split = self.added.partition_point(|(t, _)| *t <= time);
        let mut list = self.base.as_ref().clone();
        let (now, later) = self.added.split_at(split);
        for (_, mapping) in now {
            place(&mut list, mapping.clone());
        }
        (list, later)
    }

    /// `list` with the main executable's mappings first: the order captures promise.
    pub fn main_first(&self, mut list: Vec<Mapping>) -> Vec<Mapping> {
        let rank = |m: &Mapping| {
            self.main
                .iter()
                .position(|f| Rc::ptr_eq(f, &m.file))
                .unwrap_or(self.main.len())
        };
        list.sort_by_key(rank);
        list
    }

    /// Where code is that no file names: ranges, ascending, with gaps in between. Memory that has been mapped over since
    /// may be among them.
    pub fn unnamed(&self) -> Vec<(u64, u64)> {
        let mappings = self.base.iter().chain(self.added.iter().map(|(_, m)| m));
        let unnamed = mappings.filter(|m| {
            matches!(
                m.file.kind,
                MappedKind::Anonymous | MappedKind::Memfd | MappedKind::Special
            )
        });
        let mut ranges: Vec<_> = unnamed.map(|m| (m.start, m.end)).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
        ranges
    }

    /// The mapping that covers `address` at `time`.
    pub fn at(&self, address: u64, time: Timestamp) -> Option<&Mapping> {
        let covers = |m: &&Mapping| (m.start..m.end).contains(&address);
        let made = self.added.iter().rev().filter(|(t, _)| *t <= time);
        let newest = made.map(|(_, m)| m).find(covers);
        newest.or_else(|| {
            let at = self.base.partition_point(|m| m.end <= address);
            self.base.get(at).filter(covers)
        })
    }

    /// What an executable mapping maps at `address` now, if one covers it.
    pub fn covering(&self, address: u64) -> Option<MappedKind> {
        self.at(address, Timestamp::MAX).map(|m| m.file.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BuildId;

    fn file(path: &str) -> Rc<MappedFile> {
        Rc::new(MappedFile {
            kind: MappedKind::File,
            path: path.into(),
            build_id: None,
            inode: None,
            version: None,
            deleted: false,
        })
    }

    fn map(start: u64, end: u64, offset: u64, path: &str) -> Mapping {
        Mapping {
            start,
            end,
            file_offset: offset,
            prot: 5,
            file: file(path),
        }
    }

    fn shape(list: &[Mapping]) -> Vec<(u64, u64, u64, String)> {
        list.iter()
            .map(|m| {
                (
                    m.start,
                    m.end,
                    m.file_offset,
                    String::from_utf8_lossy(&m.file.path).into_owned(),
                )
            })
            .collect()
    }

    #[test]
    fn a_new_mapping_takes_exactly_what_it_covers() {
        let mut list = vec![map(10, 20, 100, "a"), map(30, 40, 200, "b")];
        place(&mut list, map(15, 35, 0, "c"));
        assert_eq!(
            shape(&list),
            [
                (10, 15, 100, "a".into()),
                (15, 35, 0, "c".into()),
                (35, 40, 205, "b".into())
            ]
        );
        let mut list = vec![map(10, 40, 100, "a")];
        place(&mut list, map(20, 30, 7, "n"));
        assert_eq!(
            shape(&list),
            [
                (10, 20, 100, "a".into()),
                (20, 30, 7, "n".into()),
                (30, 40, 120, "a".into())
            ]
        );
        let mut list = vec![map(10, 20, 0, "a")];
        place(&mut list, map(20, 30, 0, "b"));
        place(&mut list, map(0, 10, 0, "z"));
        place(&mut list, map(10, 20, 5, "a2"));
        assert_eq!(
            shape(&list),
            [
                (0, 10, 0, "z".into()),
                (10, 20, 5, "a2".into()),
                (20, 30, 0, "b".into())
            ]
        );
        place(&mut list, map(0, 100, 0, "all"));
        assert_eq!(shape(&list), [(0, 100, 0, "all".into())]);
    }

    #[test]
    fn a_fork_starts_with_what_its_parent_has_then_and_only_that() {
        let mut parent = AddressSpace::default();
        parent.add(Timestamp(1), map(10, 20, 0, "prog"));
        let mut child = parent.fork();
        parent.add(Timestamp(5), map(30, 40, 0, "plug.so"));
        child.add(Timestamp(6), map(50, 60, 0, "own.so"));
        assert!([15, 55, 35].map(|a| child.covering(a).is_some()) == [true, true, false]);
        assert!([35, 55].map(|a| parent.covering(a).is_some()) == [true, false]);
        assert_eq!(parent.until(Timestamp(4)).1.len(), 1);
        let at = |address, time| parent.at(address, Timestamp(time)).is_some();
        assert_eq!([at(35, 4), at(35, 5), at(15, 1)], [false, true, true]);
        parent.settle(Timestamp(4));
        assert_eq!(parent.until(Timestamp::ZERO).0.len(), 1);
        parent.settle(Timestamp(5));
        assert_eq!(parent.until(Timestamp::ZERO).0.len(), 2);
        assert_eq!(parent.until(Timestamp::ZERO).1.len(), 0);
    }

    #[test]
    fn only_what_is_there_no_more_and_was_settled_is_forgotten() {
        let mut space = AddressSpace::default();
        for (time, start) in [(1, 0x1000), (2, 0x3000), (3, 0x5000), (9, 0x7000)] {
            space.add(Timestamp(time), map(start, start + 0x1000, 0, "a"));
        }
        space.settle(Timestamp(5));
        // What is there need not begin and end where it was mapped; what is not settled stays.
        space.keep_only(&[0x800..0x1800, 0x4000..0x5001]);
        let starts = |space: &AddressSpace| -> Vec<u64> {
            let list = space.until(Timestamp::MAX).0;
            list.iter().map(|m| m.start).collect()
        };
        assert_eq!(starts(&space), [0x1000, 0x5000, 0x7000]);
        assert_eq!(space.len(), 3);
        space.settle(Timestamp(9));
        space.keep_only(&[]);
        assert!(space.is_empty());
    }

    #[test]
    fn what_proc_shows_is_known_when_events_told_it() {
        let mut space = AddressSpace::default();
        space.add(Timestamp(1), map(0x1000, 0x4000, 0x1000, "/lib/a.so"));
        let seen = |start, end, offset, path| space.has_all(&[map(start, end, offset, path)]);
        assert!(space.has_all(&[]));
        assert!(seen(0x1000, 0x4000, 0x1000, "/lib/a.so"));
        assert!(seen(0x2000, 0x3000, 0x2000, "/lib/a.so"), "a part of it");
        assert!(
            !seen(0x2000, 0x3000, 0x1000, "/lib/a.so"),
            "another part of the file"
        );
        assert!(!seen(0x1000, 0x4000, 0x1000, "/lib/b.so"));
        assert!(
            !seen(0x3000, 0x5000, 0x3000, "/lib/a.so"),
            "more than is known"
        );
        assert!(!seen(0x9000, 0xa000, 0, "/lib/a.so"));
        let mut other = map(0x1000, 0x4000, 0x1000, "/lib/a.so");
        Rc::make_mut(&mut other.file).build_id = BuildId::new(&[1, 2]);
        assert!(
            space.has_all(std::slice::from_ref(&other)),
            "events told no build ID"
        );
        space.add(Timestamp(2), other.clone());
        Rc::make_mut(&mut other.file).build_id = BuildId::new(&[3, 4]);
        assert!(!space.has_all(&[other]));
    }

    #[test]
    fn another_program_at_the_same_place_contradicts_what_is_known() {
        let mut space = AddressSpace::default();
        space.add(Timestamp(1), map(0x1000, 0x4000, 0x1000, "/bin/one"));
        let contradicts =
            |start, end, offset, path| space.contradicts(&map(start, end, offset, path));
        assert!(contradicts(0x1000, 0x4000, 0x1000, "/bin/two"));
        assert!(contradicts(0x0, 0x1001, 0, "/bin/two"));
        assert!(
            contradicts(0x1000, 0x4000, 0x2000, "/bin/one"),
            "another part"
        );
        assert!(!contradicts(0x1000, 0x4000, 0x1000, "/bin/one"));
        assert!(
            !contradicts(0x1000, 0x8000, 0x1000, "/bin/one"),
            "it has grown"
        );
        assert!(
            !contradicts(0x2000, 0x3000, 0x2000, "/bin/one"),
            "a part of it"
        );
        assert!(!contradicts(0x4000, 0x5000, 0, "/lib/new.so"));
        assert!(!contradicts(0x0, 0x1000, 0, "/lib/new.so"));
    }

    #[test]
    fn the_main_executable_comes_first() {
        let mut space = AddressSpace::default();
        space.add(Timestamp(1), map(0x7000, 0x8000, 0, "/lib/ld.so"));
        space.add(Timestamp(2), map(0x5000, 0x6000, 0, "/bin/app"));
        space.add(Timestamp(3), map(0x1000, 0x2000, 0, "/lib/libc.so"));
        let list = space.main_first(space.until(Timestamp::MAX).0);
        let names: Vec<_> = shape(&list).into_iter().map(|m| m.3).collect();
        assert_eq!(names, ["/lib/ld.so", "/bin/app", "/lib/libc.so"]);
    }
}
