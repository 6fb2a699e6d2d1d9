//! What `profiler pack` appends, so that names need none of the recording machine's files: the symbols of the offsets
//! hit ([`symbols`]), whole symbol tables ([`table`]), and the files themselves in pieces ([`file`](mod@file)).
//!
//! Everything is filed under the identity of the mapped file ([`FileKey`]), never under its path alone.

pub mod file;
pub mod symbols;
pub mod table;
mod text;

use serde::{Deserialize, Serialize};

use super::error::{FormatError, Problem};
use super::limits;
use super::process::check_build_id;
use crate::event::{BuildId, FileVersion, MappedFile, MappedKind};

/// Which mapped file something was packed for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileKey {
    /// Path as recorded.
    pub path: Vec<u8>,
    /// Build ID as recorded: it alone says which content is meant.
    pub build_id: Option<BuildId>,
    /// Size and modification time as recorded; only without a build ID.
    pub version: Option<FileVersion>,
}

impl FileKey {
    /// The key of a mapped file; `None` when it is no file, or was recorded without anything that identifies it.
    pub fn of(file: &MappedFile) -> Option<FileKey> {
        let version = match file.build_id {
            Some(_) => None,
            None => file.version,
        };
        let known = file.build_id.is_some() || version.is_some();
        (file.kind == MappedKind::File && known).then(|| FileKey {
            path: file.path.clone(),
            build_id: file.build_id.clone(),
            version,
        })
    }

    /// The key of the kernel with this build ID: offsets are runtime addresses.
    pub fn of_kernel(build_id: &BuildId) -> FileKey {
        FileKey {
            path: b"[kernel]".to_vec(),
            build_id: Some(build_id.clone()),
            version: None,
        }
    }

    /// What a key must be before anything under it is used.
    fn check(&self, what: &'static str) -> Result<(), FormatError> {
        let error = |problem| FormatError::new(what, 0, problem);
        check_build_id(self.build_id.as_ref()).map_err(error)?;
        let value = self.path.len() as u64;
        if value > limits::STRING {
            let limit = limits::STRING;
            let what = "path";
            return Err(error(Problem::OverLimit { what, value, limit }));
        }
        if self.build_id.is_some() == self.version.is_some() {
            let what = "identity";
            return Err(error(Problem::BadValue { what, value: 0 }));
        }
        Ok(())
    }
}
