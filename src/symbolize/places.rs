//! Numbers for places and the files they are in. They depend on nothing but what is put in and in which order, so
//! that threads can number places each for itself and put them together afterwards.

use hashbrown::HashMap;

use super::{Code, FileNumber, Place, PlaceId};
use crate::event::MappedFile;
use crate::profile::Reason;

/// Places and files, each once.
#[derive(Debug)]
pub struct Places {
    /// Most places; all others are one more.
    limit: usize,
    files: Vec<MappedFile>,
    file_index: HashMap<MappedFile, FileNumber>,
    places: Vec<Place>,
    place_index: HashMap<Place, PlaceId>,
}

impl Default for Places {
    fn default() -> Places {
        Places::bounded(PlaceId::MAX as usize / 2)
    }
}

impl Places {
    /// Of `limit` places at most; all others are one, which nothing is known of.
    pub fn bounded(limit: usize) -> Places {
        Places {
            limit,
            files: Vec::new(),
            file_index: HashMap::default(),
            places: Vec::new(),
            place_index: HashMap::default(),
        }
    }

    /// The number of `file`. Files that differ only in inode or deletion are one: names depend on path
    /// and content.
    pub fn file(&mut self, file: &MappedFile) -> FileNumber {
        let key = MappedFile {
            inode: None,
            deleted: false,
            ..file.clone()
        };
        let next = self.files.len() as FileNumber;
        let files = &mut self.files;
        *self.file_index.entry(key).or_insert_with_key(|key| {
            files.push(key.clone());
            next
        })
    }

    /// The number of `place`.
    pub fn place(&mut self, place: Place) -> PlaceId {
        if self.places.len() >= self.limit {
            return self.place_beyond(place);
        }
        let next = self.places.len() as PlaceId;
        let id = *self.place_index.entry(place).or_insert(next);
        if id == next {
            self.places.push(place);
        }
        id
    }

    #[cold]
    fn place_beyond(&mut self, place: Place) -> PlaceId {
        let beyond = Place {
            code: Code::Unknown(Reason::TooMany),
            is_return: false,
        };
        let known = self.place_index.get(&place);
        if let Some(id) = known.or_else(|| self.place_index.get(&beyond)) {
            return *id;
        }
        let id = self.places.len() as PlaceId;
        self.place_index.insert(beyond, id);
        self.places.push(beyond);
        id
    }

    /// All files, by number.
    pub fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// All places, by number.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether nothing is mapped where a place is, in a process whose mappings are known.
    pub fn is_unmapped(&self, place: PlaceId) -> bool {
        self.places
            .get(place as usize)
            .is_some_and(|at| at.code == Code::Unknown(Reason::NotMapped))
    }

    /// Takes in all of `other`, in its order, and gives the number each of its places has here.
    pub fn merge(&mut self, other: &Places) -> Vec<PlaceId> {
        let files: Vec<FileNumber> = other.files.iter().map(|file| self.file(file)).collect();
        let file = |number: FileNumber| files.get(number as usize).copied().unwrap_or(number);
        other
            .places
            .iter()
            .map(|place| {
                let code = match place.code {
                    Code::File(number, offset) => Code::File(file(number), offset),
                    Code::Labelled(number) => Code::Labelled(file(number)),
                    code => code,
                };
                self.place(Place { code, ..*place })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MappedKind;

    fn file(path: &str) -> MappedFile {
        MappedFile {
            kind: MappedKind::File,
            path: path.into(),
            build_id: None,
            inode: None,
            version: None,
            deleted: false,
        }
    }

    fn put(places: &mut Places, list: &[(&str, u64)]) {
        for (path, offset) in list {
            let code = Code::File(places.file(&file(path)), *offset);
            places.place(Place {
                code,
                is_return: true,
            });
        }
    }

    #[test]
    fn parts_put_together_in_order_have_the_numbers_of_the_whole() {
        let parts = [
            &[("/a", 1), ("/b", 1), ("/a", 2)][..],
            &[("/c", 5), ("/a", 2), ("/b", 3), ("/b", 1)],
        ];
        let mut whole = Places::default();
        let mut merged = Places::default();
        let mut maps = Vec::new();
        for part in parts {
            put(&mut whole, part);
            let mut own = Places::default();
            put(&mut own, part);
            maps.push(merged.merge(&own));
        }
        assert_eq!(merged.files(), whole.files());
        assert_eq!(merged.places(), whole.places());
        assert_eq!(maps, [vec![0, 1, 2], vec![3, 2, 4, 1]]);
    }

    #[test]
    fn beyond_the_limit_all_are_one() {
        let at = |address| Place {
            code: Code::Kernel(address),
            is_return: true,
        };
        let mut places = Places::bounded(2);
        let ids = [1, 2, 3, 1, 4].map(|address| places.place(at(address)));
        assert_eq!(ids, [0, 1, 2, 0, 2]);
        let mut other = Places::default();
        for address in [5, 2, 6] {
            other.place(at(address));
        }
        assert_eq!(places.merge(&other), [2, 1, 2]);
        assert_eq!(places.places().len(), 3);
        assert_eq!(places.places()[2].code, Code::Unknown(Reason::TooMany));
    }

    #[test]
    fn inode_and_deletion_do_not_tell_files_apart() {
        let mut places = Places::default();
        let first = places.file(&file("/a"));
        let deleted = MappedFile {
            deleted: true,
            ..file("/a")
        };
        assert_eq!(places.file(&deleted), first);
        assert_eq!(places.files().len(), 1);
    }
}
