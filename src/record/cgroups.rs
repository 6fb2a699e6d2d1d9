//! cgroup v2 numbers, as samples carry them, to paths.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::procfs;

/// Paths of cgroups, told by the side-band or found below the mount.
pub struct Cgroups {
    mount: Option<PathBuf>,
    paths: HashMap<u64, Vec<u8>>,
    next_scan: Instant,
    wait: Duration,
}

/// An unknown number makes the hierarchy be read again, but not more often than this.
const SCAN_AGAIN: Duration = Duration::from_secs(1);
/// Numbers that stay unknown make it rarer, up to this.
const SCAN_RARELY: Duration = Duration::from_secs(64);

/// Deeper than any sane hierarchy.
const MAX_DEPTH: usize = 64;

impl Cgroups {
    /// Finds where cgroup v2 is mounted; without a mount no cgroup has a path.
    pub fn find() -> Cgroups {
        Cgroups {
            mount: mount_point(),
            paths: HashMap::new(),
            next_scan: Instant::now(),
            wait: SCAN_AGAIN,
        }
    }

    /// Path of cgroup `id` from the root of the hierarchy (`/` is the root itself).
    pub fn path(&mut self, id: u64) -> Option<&[u8]> {
        if !self.paths.contains_key(&id) && Instant::now() >= self.next_scan {
            self.scan();
        }
        self.paths.get(&id).map(Vec::as_slice)
    }

    /// Remembers a cgroup the side-band told of.
    pub fn add(&mut self, id: u64, path: Vec<u8>) {
        self.paths.insert(id, path);
    }

    fn scan(&mut self) {
        self.next_scan = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(SCAN_RARELY);
        let Some(mount) = self.mount.clone() else {
            return;
        };
        // The number of a cgroup is the inode number of its directory; that of the root is always 1.
        self.paths.insert(1, b"/".to_vec());
        let mut todo = vec![(mount, Vec::new())];
        while let Some((dir, path)) = todo.pop() {
            let Ok(entries) = fs::read_dir(&dir) else {
                continue;
            };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                    continue;
                }
                let mut below: Vec<u8> = path.clone();
                below.push(b'/');
                below.extend_from_slice(entry.file_name().as_bytes());
                self.paths.insert(entry.ino(), below.clone());
                if below.iter().filter(|b| **b == b'/').count() < MAX_DEPTH {
                    todo.push((entry.path(), below));
                }
            }
        }
    }
}

/// Where cgroup v2 is mounted.
pub fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mounts").ok()?;
    let dir = procfs::parse_cgroup_mount(&mounts)?;
    Some(Path::new(OsStr::from_bytes(&dir)).to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_told_by_the_kernel_are_kept_and_unknown_numbers_have_none() {
        let mut cgroups = Cgroups {
            mount: None,
            paths: HashMap::new(),
            next_scan: Instant::now(),
            wait: SCAN_AGAIN,
        };
        cgroups.add(77, b"/a/b c".to_vec());
        assert_eq!(cgroups.path(77), Some(&b"/a/b c"[..]));
        assert_eq!(cgroups.path(78), None);
    }
}
