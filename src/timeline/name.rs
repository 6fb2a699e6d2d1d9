//! Which program an image runs, also when its main executable is a dynamic loader that was told to run it.

use crate::event::{MappedFile, MappedKind};

use super::{Tables, Timeline, View};

impl Timeline {
    /// The file name of the program that runs in `view` when it was started as `ld.so PROGRAM`: the
    /// first file of the image, after the loader, that is not a shared library by its name.
    pub fn loaded_program<'a>(
        &self,
        view: View,
        tables: Tables<'_>,
        files: &'a [MappedFile],
    ) -> Option<&'a [u8]> {
        let mut paths = self.image_files(view, tables, files)?;
        let first = paths.next()?;
        is_loader(file_name(first)).then(|| loaded(paths).map(file_name))?
    }

    /// The path of the program that runs in `view`: the image's first file, or the one that a dynamic loader was told to run.
    pub fn program<'a>(
        &self,
        view: View,
        tables: Tables<'_>,
        files: &'a [MappedFile],
    ) -> Option<&'a [u8]> {
        let mut paths = self.image_files(view, tables, files)?;
        let first = paths.next()?;
        match is_loader(file_name(first)) {
            true => loaded(paths).or(Some(first)),
            false => Some(first),
        }
    }

    /// Paths of the files of an image, in the order they became known.
    fn image_files<'a, 'b>(
        &'b self,
        view: View,
        tables: Tables<'b>,
        files: &'a [MappedFile],
    ) -> Option<impl Iterator<Item = &'a [u8]> + use<'a, 'b>> {
        let image = self.image(view)?;
        let first_list = image.epochs.first();
        let list = first_list
            .and_then(|e| tables.spaces.get(e.space as usize))
            .map_or(&[][..], |space| &space.mappings)
            .iter()
            .map(|p| p.mapping);
        // The list comes first unless mappings were told of before it was read.
        let (before, after) = image.maps.split(first_list.map_or(0, |e| e.first_map));
        let mappings = before.chain(list).chain(after);
        let files = mappings.filter_map(move |mapping| {
            let template = tables.mappings.get(mapping as usize)?;
            files.get(template.file as usize)
        });
        let files = files.filter(|file| file.kind == MappedKind::File);
        Some(files.map(|file| &*file.path))
    }
}

/// The first of `paths` that is neither a loader nor a shared library by its name.
fn loaded<'a>(mut paths: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    paths.find(|path| {
        let name = file_name(path);
        !is_loader(name) && !is_shared_library(name)
    })
}

/// The part of a path after its last `/`.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// Whether `name`, a file name or a `comm` (cut at 15 bytes), is that of a dynamic loader: `ld.so`,
/// `ld64.so.2`, `ld-2.31.so`, `ld-linux-x86-64.so.2`, `ld-musl-x86_64.so.1`.
pub fn is_loader(name: &[u8]) -> bool {
    if name.starts_with(b"ld-linux") || name.starts_with(b"ld-musl") {
        return true;
    }
    let stem = name
        .strip_prefix(b"ld64")
        .or_else(|| name.strip_prefix(b"ld"));
    stem.is_some_and(|rest| {
        rest == b".so"
            || rest.starts_with(b".so.")
            || (rest.starts_with(b"-") && is_shared_library(rest))
    })
}

/// `libfoo.so`, `libfoo.so.1.2`, `libfoo-1.2.so`.
fn is_shared_library(name: &[u8]) -> bool {
    name.ends_with(b".so") || name.windows(4).any(|w| w == b".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_and_libraries_are_told_by_name() {
        for name in [
            "ld.so",
            "ld.so.1",
            "ld64.so.2",
            "ld-2.31.so",
            "ld-linux-x86-64",
            "ld-musl-x86_64.so.1",
        ] {
            assert!(is_loader(name.as_bytes()), "{name}");
        }
        for name in [
            "ld", "ldconfig", "ld-gold", "lld", "app.so", "ld-x", "old.so",
        ] {
            assert!(!is_loader(name.as_bytes()), "{name}");
        }
        assert!(is_shared_library(b"libc.so.6"));
        assert!(is_shared_library(b"plug.so"));
        assert!(!is_shared_library(b"app.sort"));
        assert_eq!(file_name(b"/a b/c"), b"c");
        assert_eq!(file_name(b"c"), b"c");
    }
}
