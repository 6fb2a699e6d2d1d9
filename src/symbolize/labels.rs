//! What files are called where their code has no name: two of one name must not be taken for each other, and each is called the
//! same whatever of a capture is reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::{HashMap, HashSet};
use sha2::{Digest, Sha256};

use crate::event::{BuildId, FileVersion, MappedFile};
use crate::format::aid::ElfLayout;
use crate::profile::shown::LABEL_DIGITS;
use crate::timeline::file_name;

/// The files of a report, shared by the captures it is of: all of which the captures have layouts, then those that are met besides.
#[derive(Debug, Clone, Default)]
pub struct Labels(Arc<Mutex<HashMap<String, OfName>>>);

/// The files of one name.
#[derive(Debug, Default)]
struct OfName {
    /// What each has behind its name, if anything.
    digits: HashMap<Identity, Option<String>>,
    used: HashSet<String>,
}

/// Whose code it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Identity {
    Id(BuildId),
    /// Without a build ID.
    Path(Vec<u8>, Option<FileVersion>),
}

impl Identity {
    fn of(path: &[u8], id: Option<&BuildId>, version: Option<FileVersion>) -> Identity {
        match id {
            Some(id) => Identity::Id(id.clone()),
            None => Identity::Path(path.to_vec(), version),
        }
    }

    /// Its build ID, else as many digits of what else tells it from others.
    fn digits(&self) -> String {
        let (path, version) = match self {
            Identity::Id(id) => return id.to_string(),
            Identity::Path(path, version) => (path, version),
        };
        let mut hash = Sha256::new();
        if let Some(version) = version {
            hash.update(version.size.to_le_bytes());
            hash.update(version.mtime_sec.to_le_bytes());
            hash.update(version.mtime_nsec.to_le_bytes());
        }
        hash.update(path);
        let hash = hash.finalize();
        hash.iter().take(20).map(|b| format!("{b:02x}")).collect()
    }
}

impl OfName {
    /// Of files that are known all at once: none of one, else as many digits as tell each from all others.
    fn known(identities: HashSet<Identity>) -> OfName {
        let mut all = OfName::default();
        if identities.len() < 2 {
            all.digits = identities.into_iter().map(|one| (one, None)).collect();
            return all;
        }
        let sorted: BTreeMap<String, Identity> = identities
            .into_iter()
            .map(|one| (one.digits(), one))
            .collect();
        let texts: Vec<String> = sorted.keys().cloned().collect();
        let common = |a: &String, b: &String| {
            let pairs = a.bytes().zip(b.bytes());
            pairs.take_while(|(a, b)| a == b).count()
        };
        for (number, (text, one)) in sorted.into_iter().enumerate() {
            // Those that have most in common are next to each other.
            let before = number.checked_sub(1).and_then(|before| texts.get(before));
            let beside = before.into_iter().chain(texts.get(number + 1));
            let shared = beside.map(|beside| common(&text, beside)).max();
            let len = LABEL_DIGITS.max(shared.unwrap_or(0) + 1);
            let digits: String = text.chars().take(len).collect();
            all.used.insert(digits.clone());
            all.digits.insert(one, Some(digits));
        }
        all
    }

    /// Of a file that may be met for the first time.
    fn of(&mut self, identity: Identity) -> Option<String> {
        if let Some(known) = self.digits.get(&identity) {
            return known.clone();
        }
        let digits = (!self.digits.is_empty()).then(|| {
            let text = identity.digits();
            let mut lens = LABEL_DIGITS..=text.len().max(LABEL_DIGITS);
            let shortened = |len| text.chars().take(len).collect::<String>();
            let free = lens.find(|len| !self.used.contains(&shortened(*len)));
            free.map_or_else(|| text.clone(), shortened)
        });
        self.used.extend(digits.clone());
        self.digits.insert(identity, digits.clone());
        digits
    }
}

impl Labels {
    /// For a report of captures that have layouts of these files, whether it has samples of them or not.
    pub fn of_layouts(layouts: impl IntoIterator<Item = ElfLayout>) -> Labels {
        let mut names: HashMap<String, HashSet<Identity>> = HashMap::new();
        for layout in layouts {
            let name = String::from_utf8_lossy(file_name(&layout.path)).into_owned();
            let identity = Identity::of(&layout.path, layout.build_id.as_ref(), layout.version);
            names.entry(name).or_default().insert(identity);
        }
        let names = names.into_iter();
        let names = names.map(|(name, files)| (name, OfName::known(files)));
        Labels(Arc::new(Mutex::new(names.collect())))
    }

    /// What labels call `file`, whose name is `name`: that, and if there are several files of that name, `#` and the beginning of its
    /// build ID, or of a checksum of its path, size and time.
    pub(super) fn of(&self, file: &MappedFile, name: &str) -> String {
        let identity = Identity::of(&file.path, file.build_id.as_ref(), file.version);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.entry_ref(name).or_default().of(identity) {
            Some(digits) => format!("{name}#{digits}"),
            None => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MappedKind;
    use crate::profile::shown::file_of_label;

    fn file(path: &str, id: Option<&[u8]>) -> MappedFile {
        MappedFile {
            kind: MappedKind::File,
            path: path.into(),
            build_id: id.and_then(BuildId::new),
            inode: None,
            version: None,
            deleted: false,
        }
    }

    fn layout(path: &str, id: Option<&[u8]>) -> ElfLayout {
        let file = file(path, id);
        ElfLayout {
            path: file.path,
            build_id: file.build_id,
            inode: None,
            version: None,
            loads: Vec::new(),
        }
    }

    const A: Option<&[u8]> = Some(&[0x12, 0x34, 0x56, 0x78]);
    const B: Option<&[u8]> = Some(&[0xab, 0xcd, 0xef, 0x01]);

    #[test]
    fn a_file_is_called_the_same_whatever_is_met_first() {
        let files = [
            ("/a/srv", A),
            ("/b/srv", B),
            ("/c/srv", A),
            ("/c/srv", None),
        ];
        let others = [("/lib/libc.so.6", A), ("/x/libc.so.6", A)];
        let layouts = || {
            files
                .iter()
                .chain(&others)
                .map(|(path, id)| layout(path, *id))
        };
        let labels = |order: &[usize]| -> Vec<String> {
            let labels = Labels::of_layouts(layouts());
            let mut found = vec![String::new(); files.len()];
            for number in order {
                let (path, id) = files[*number];
                // A capture of the same report.
                found[*number] = labels.clone().of(&file(path, id), "srv");
            }
            found
        };
        let all = labels(&[0, 1, 2, 3]);
        assert_eq!(all[..3], ["srv#1234567", "srv#abcdef0", "srv#1234567"]);
        assert_eq!(file_of_label(&all[3]), "srv");
        assert_eq!(all[3].len(), "srv#1234567".len());
        for (alone, label) in all.iter().enumerate() {
            assert_eq!(labels(&[alone])[alone], *label);
        }
        assert_eq!(labels(&[3, 2, 1, 0]), all);
        // The usual case: one file, wherever it lies.
        let labels = Labels::of_layouts(layouts());
        let libc = |path| labels.of(&file(path, A), "libc.so.6");
        assert_eq!(libc("/lib/libc.so.6"), "libc.so.6");
        assert_eq!(libc("/y/libc.so.6"), "libc.so.6");
    }

    #[test]
    fn files_without_a_layout_are_told_apart_too() {
        let labels = Labels::of_layouts([layout("/a/srv", A)]);
        for (path, id, label) in [
            ("/b/srv", B, "srv#abcdef0"),
            ("/a/srv", A, "srv"),
            ("/d/srv", Some(&[0xff][..]), "srv#ff"),
            ("/b/srv", B, "srv#abcdef0"),
        ] {
            assert_eq!(labels.of(&file(path, id), "srv"), label);
            assert_eq!(file_of_label(label), "srv");
        }
        let none = Labels::default();
        assert_eq!(none.of(&file("/b/srv", None), "srv"), "srv");
        assert_ne!(none.of(&file("/c/srv", None), "srv"), "srv");
        assert_eq!(none.of(&file("/b/srv", None), "srv"), "srv");
    }

    /// Anyone can choose a build ID.
    #[test]
    fn build_ids_that_begin_alike_are_told_apart() {
        let ids: [&[u8]; 4] = [
            &[0x12, 0x34, 0x56, 0x78, 0x9a],
            &[0x12, 0x34, 0x56, 0x78, 0x9b],
            &[0x12, 0x34, 0x56, 0x7f],
            &[0x12, 0x34, 0x56, 0x78],
        ];
        let expected = [
            "srv#123456789a",
            "srv#123456789b",
            "srv#1234567f",
            "srv#12345678",
        ];
        let labels = Labels::of_layouts(ids.map(|id| layout("/a/srv", Some(id))));
        for (id, label) in ids.iter().zip(expected) {
            assert_eq!(labels.of(&file("/a/srv", Some(id)), "srv"), label);
            assert_eq!(file_of_label(label), "srv");
        }
        // Met one after the other, none has what another has.
        let labels = Labels::default();
        let all: HashSet<String> = ids
            .iter()
            .map(|id| labels.of(&file("/a/srv", Some(id)), "srv"))
            .collect();
        assert_eq!(all.len(), ids.len(), "{all:?}");
    }
}
