//! Where a file may be, in the order in which places are asked. Whether what is there is believed is
//! [`files`](super::files)' business.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Options;
use super::sysroot::{below, merged_twin, resolve_below};
use crate::event::{BuildId, MappedFile};

/// Where distributions put separate debug files.
const DEBUG_DIR: &str = "/usr/lib/debug";

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// The file that was mapped.
    Executable,
    /// Its debug file.
    Debuginfo,
}

impl FileKind {
    /// What debuginfod calls it, on the wire and in its cache.
    pub fn debuginfod_name(self) -> &'static str {
        match self {
            FileKind::Executable => "executable",
            FileKind::Debuginfo => "debuginfo",
        }
    }
}

/// Brings files from elsewhere, when no place here has them.
pub trait Fetch {
    /// The file of a build ID; `None` when it is not to be had. It is compared like any other. What the user should
    /// know goes to `warn`.
    fn fetch(
        &mut self,
        build_id: &BuildId,
        kind: FileKind,
        warn: &mut dyn FnMut(String),
    ) -> Option<PathBuf>;
}

/// A directory of debug files, on this machine or below another machine's root.
#[derive(Debug, Clone)]
pub(super) struct DebugDir {
    root: Option<PathBuf>,
    dir: PathBuf,
}

impl DebugDir {
    /// The path of `name` in it.
    fn at(&self, name: &Path) -> io::Result<PathBuf> {
        match &self.root {
            Some(root) => resolve_below(root, &self.dir.join(name)),
            None => Ok(self.dir.join(name)),
        }
    }
}

/// All places.
#[derive(Debug)]
pub(super) struct Search {
    symfs: Vec<PathBuf>,
    debug_dirs: Vec<DebugDir>,
    /// debuginfod's caches.
    caches: Vec<PathBuf>,
}

/// A path where a file may be, or why there can be none.
pub(super) type Candidate = Result<PathBuf, (PathBuf, io::Error)>;

impl Search {
    pub fn new(options: &Options) -> Search {
        let own = |root: &PathBuf| DebugDir {
            root: Some(root.clone()),
            dir: DEBUG_DIR.into(),
        };
        let here = |dir: PathBuf| DebugDir { root: None, dir };
        let given = options.debug_dirs.iter().cloned();
        Search {
            symfs: options.symfs.clone(),
            debug_dirs: options
                .symfs
                .iter()
                .map(own)
                .chain(given.map(here))
                .chain([here(DEBUG_DIR.into())])
                .collect(),
            caches: caches(|name| env::var_os(name)),
        }
    }

    /// Where the mapped file may be.
    pub fn executables(&self, recorded: &MappedFile) -> Vec<Candidate> {
        let wanted = Path::new(OsStr::from_bytes(&recorded.path));
        let mut all: Vec<Candidate> = Vec::new();
        for root in &self.symfs {
            let mut found = |path: &Path| {
                let found = resolve_below(root, path);
                all.push(found.map_err(|err| (below(root, path), err)));
            };
            found(wanted);
            if let Some(twin) = merged_twin(wanted) {
                found(&twin);
            }
        }
        if let Some(id) = &recorded.build_id {
            let names = self.debug_dirs.iter().map(|dir| dir.at(&by_id(id, "")));
            all.extend(names.filter_map(Result::ok).map(Ok));
            all.extend(self.cached(id, FileKind::Executable).map(Ok));
        }
        // Below another root nothing vouches for a file of this machine but its build ID.
        if self.symfs.is_empty() || recorded.build_id.is_some() {
            all.push(Ok(wanted.to_path_buf()));
        }
        all
    }

    /// Where the debug file of a build ID may be.
    pub fn debug_files(&self, id: &BuildId) -> Vec<PathBuf> {
        let names = self
            .debug_dirs
            .iter()
            .map(|dir| dir.at(&by_id(id, ".debug")));
        let mut all: Vec<PathBuf> = names.filter_map(Result::ok).collect();
        all.extend(self.cached(id, FileKind::Debuginfo));
        all
    }

    /// Where the debug file may be that the file at `path` calls `name`.
    pub fn linked(&self, path: &Path, name: &Path) -> Vec<PathBuf> {
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let beside = canonical.parent().unwrap_or(Path::new("/"));
        let mut all = vec![beside.join(name), beside.join(".debug").join(name)];
        // Below another root the path goes on from there.
        let inside = self.symfs.iter().find_map(|root| {
            let root = root.canonicalize().ok()?;
            beside.strip_prefix(root).ok()
        });
        let inside = inside.unwrap_or(beside);
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        for dir in &self.debug_dirs {
            let places = [inside.join(name), name.to_path_buf()];
            all.extend(places.iter().filter_map(|place| dir.at(place).ok()));
        }
        all
    }

    /// Where `path`, which a file names, may be: below each root, then here.
    pub fn named(&self, path: &Path) -> Vec<PathBuf> {
        let roots = self.symfs.iter();
        let mut all: Vec<PathBuf> = roots
            .filter_map(|root| resolve_below(root, path).ok())
            .collect();
        all.push(path.to_path_buf());
        all
    }

    /// Where a file of this name below a directory of debug files may be.
    pub fn in_debug_dirs(&self, name: &Path) -> Vec<PathBuf> {
        let dirs = self.debug_dirs.iter();
        dirs.filter_map(|dir| dir.at(name).ok()).collect()
    }

    fn cached(&self, id: &BuildId, kind: FileKind) -> impl Iterator<Item = PathBuf> + '_ {
        let name = Path::new(&id.to_string()).join(kind.debuginfod_name());
        self.caches.iter().map(move |cache| cache.join(&name))
    }
}

/// `.build-id/12/34567...` with what is put behind.
fn by_id(id: &BuildId, behind: &str) -> PathBuf {
    let hex = id.to_string();
    let (first, rest) = hex.split_at_checked(2).unwrap_or((&hex, ""));
    Path::new(".build-id")
        .join(first)
        .join(format!("{rest}{behind}"))
}

/// The caches of debuginfod's client, by its own rules.
fn caches(env: impl Fn(&str) -> Option<std::ffi::OsString>) -> Vec<PathBuf> {
    let dir = |name: &str| {
        let value = env(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from).filter(|path| path.is_absolute())
    };
    if let Some(cache) = dir("DEBUGINFOD_CACHE_PATH") {
        return vec![cache];
    }
    let home = dir("HOME");
    let base = dir("XDG_CACHE_HOME").or_else(|| home.as_ref().map(|home| home.join(".cache")));
    // An older client's directory is still used where it exists.
    [
        base.map(|base| base.join("debuginfod_client")),
        home.map(|home| home.join(".debuginfod_client_cache")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MappedKind;

    #[test]
    fn places_are_asked_in_the_documented_order() {
        let options = Options {
            symfs: vec!["/one".into(), "/two".into()],
            debug_dirs: vec!["/debug".into()],
            ..Options::default()
        };
        let mut search = Search::new(&options);
        search.caches = vec!["/cache".into()];
        let mut file = MappedFile {
            kind: MappedKind::File,
            path: b"/lib/x.so".to_vec(),
            build_id: BuildId::new(&[0xab, 0xcd, 0xef]),
            inode: None,
            version: None,
            deleted: false,
        };
        let shown = |file: &MappedFile| -> Vec<String> {
            let all = search.executables(file).into_iter();
            all.map(|c| c.unwrap_or_else(|(path, _)| path).display().to_string())
                .collect()
        };
        let expected = [
            "/one/lib/x.so",
            "/one/usr/lib/x.so",
            "/two/lib/x.so",
            "/two/usr/lib/x.so",
            "/debug/.build-id/ab/cdef",
            "/usr/lib/debug/.build-id/ab/cdef",
            "/cache/abcdef/executable",
            "/lib/x.so",
        ];
        assert_eq!(shown(&file), expected);
        let id = file.build_id.take().unwrap();
        assert_eq!(shown(&file), expected[..4]);
        assert_eq!(
            search.debug_files(&id),
            [
                "/debug/.build-id/ab/cdef.debug",
                "/usr/lib/debug/.build-id/ab/cdef.debug",
                "/cache/abcdef/debuginfo",
            ]
            .map(PathBuf::from)
        );
        assert_eq!(
            search.linked(Path::new("/opt/bin/prog"), Path::new("prog.debug")),
            [
                "/opt/bin/prog.debug",
                "/opt/bin/.debug/prog.debug",
                "/debug/opt/bin/prog.debug",
                "/debug/prog.debug",
                "/usr/lib/debug/opt/bin/prog.debug",
                "/usr/lib/debug/prog.debug",
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn the_cache_is_where_the_client_has_it() {
        let with = |set: &'static [(&str, &str)]| {
            caches(|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
        };
        assert_eq!(
            with(&[("DEBUGINFOD_CACHE_PATH", "/c"), ("HOME", "/h")]),
            [PathBuf::from("/c")]
        );
        assert_eq!(
            with(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]),
            ["/x/debuginfod_client", "/h/.debuginfod_client_cache"].map(PathBuf::from)
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "")]),
            ["/h/.cache/debuginfod_client", "/h/.debuginfod_client_cache"].map(PathBuf::from)
        );
        assert!(with(&[]).is_empty());
    }
}
