//! Paths below a directory that stands for another machine's root.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Symbolic links followed in one path, as the kernel does.
const MAX_LINKS: usize = 40;

/// Directories that are the same directory below `/usr` and above on systems with a merged `/usr`.
const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// `path` as a process whose root is `root` would resolve it: neither `..` nor symbolic links leave `root`.
pub(super) fn resolve_below(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut todo: Vec<PathBuf> = vec![path.to_path_buf()];
    let mut inside = PathBuf::new();
    let mut links = 0;
    while let Some(rest) = todo.pop() {
        let mut parts = rest.components();
        let Some(part) = parts.next() else { continue };
        let rest = parts.as_path().to_path_buf();
        todo.push(rest);
        match part {
            Component::RootDir => inside = PathBuf::new(),
            Component::ParentDir => {
                inside.pop();
            }
            Component::Normal(name) => {
                let full = root.join(&inside).join(name);
                if fs::symlink_metadata(&full)?.is_symlink() {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(io::Error::other("too many symbolic links"));
                    }
                    todo.push(fs::read_link(&full)?);
                } else {
                    inside.push(name);
                }
            }
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(root.join(inside))
}

/// `path` below `root` as text, `..` taken out.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    let mut out = root.to_path_buf();
    for part in path.components() {
        if let Component::Normal(name) = part {
            out.push(name);
        }
    }
    out
}

/// The other name an absolute path has where `/lib` is `/usr/lib`: a copy of a root may have lost the link.
pub(super) fn merged_twin(path: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix("/").ok()?;
    if let Ok(inside) = rest.strip_prefix("usr") {
        let first = inside.components().next()?.as_os_str();
        return MERGED
            .iter()
            .any(|dir| first == *dir)
            .then(|| Path::new("/").join(inside));
    }
    let first = rest.components().next()?.as_os_str();
    MERGED
        .iter()
        .any(|dir| first == *dir)
        .then(|| Path::new("/usr").join(rest))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_below_a_root_stays_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/x"), b"in").unwrap();
        fs::write(dir.path().join("secret"), b"out").unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/usr/lib/x", root.join("absolute")).unwrap();
        symlink("../../secret", root.join("escape")).unwrap();
        symlink("loop", root.join("loop")).unwrap();

        let at = |path: &str| resolve_below(&root, Path::new(path));
        let x = root.join("usr/lib/x");
        assert_eq!(at("/lib/x").unwrap(), x);
        assert_eq!(at("/absolute").unwrap(), x);
        assert_eq!(at("/../../usr/./lib/../lib/x").unwrap(), x);
        assert!(at("/../secret").is_err());
        assert!(at("/escape").is_err());
        assert!(at("/loop").is_err());
    }

    #[test]
    fn merged_directories_have_two_names() {
        let twin = |path: &str| merged_twin(Path::new(path)).map(|p| p.display().to_string());
        assert_eq!(twin("/lib/a/b.so").as_deref(), Some("/usr/lib/a/b.so"));
        assert_eq!(twin("/usr/lib64/b.so").as_deref(), Some("/lib64/b.so"));
        assert_eq!(twin("/usr/share/b.so"), None);
        assert_eq!(twin("/opt/lib/b.so"), None);
        assert_eq!(twin("lib/b.so"), None);
        assert_eq!(twin("/"), None);
        assert_eq!(twin("/usr"), None);
    }
}
