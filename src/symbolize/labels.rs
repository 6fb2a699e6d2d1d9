//! What files are called where their code has no name: two of one name must not be taken for each other.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use crate::event::{BuildId, FileVersion, MappedFile};
use crate::profile::shown::LABEL_DIGITS;

/// The files that a report has met, shared by the captures it is of.
#[derive(Debug, Clone, Default)]
pub struct Labels(Arc<Mutex<HashMap<String, Vec<Identity>>>>);

/// Whose code it is.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    Id(BuildId),
    /// Without a build ID.
    Path(Vec<u8>, Option<FileVersion>),
}

impl Labels {
    /// What labels call `file`, whose name is `name`: that; of another file of that name, `name#` and how its build ID begins, or
    /// which of these files it is.
    pub(super) fn of(&self, file: &MappedFile, name: &str) -> String {
        let identity = match &file.build_id {
            Some(id) => Identity::Id(id.clone()),
            None => Identity::Path(file.path.clone(), file.version),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(name.to_owned()).or_default();
        let number = known.iter().position(|k| *k == identity);
        let number = number.unwrap_or_else(|| {
            known.push(identity);
            known.len() - 1
        });
        match (number, &file.build_id) {
            (0, _) => name.to_owned(),
            (_, Some(id)) => {
                let digits: String = id.to_string().chars().take(LABEL_DIGITS).collect();
                format!("{name}#{digits}")
            }
            (number, None) => format!("{name}#{}", number + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MappedKind;
    use crate::profile::shown::file_of_label;

    #[test]
    fn files_of_one_name_and_other_code_are_told_apart() {
        let file = |path: &str, id: Option<&[u8]>| MappedFile {
            kind: MappedKind::File,
            path: path.into(),
            build_id: id.and_then(BuildId::new),
            inode: None,
            version: None,
            deleted: false,
        };
        let labels = Labels::default();
        let shared = labels.clone();
        for (labels, path, id, label) in [
            (
                &labels,
                "/a/srv",
                Some(&[0x12, 0x34, 0x56, 0x78][..]),
                "srv",
            ),
            (
                &shared,
                "/b/srv",
                Some(&[0xab, 0xcd, 0xef, 0x01]),
                "srv#abcdef0",
            ),
            (&shared, "/c/srv", Some(&[0x12, 0x34, 0x56, 0x78]), "srv"),
            (&labels, "/c/srv", None, "srv#3"),
            (&labels, "/d/srv", Some(&[0xff]), "srv#ff"),
            (
                &labels,
                "/b/srv",
                Some(&[0xab, 0xcd, 0xef, 0x01]),
                "srv#abcdef0",
            ),
            (&labels, "/c/srv", None, "srv#3"),
        ] {
            assert_eq!(labels.of(&file(path, id), "srv"), label);
            assert_eq!(file_of_label(label), "srv");
        }
        assert_eq!(Labels::default().of(&file("/b/srv", None), "srv"), "srv");
    }
}
