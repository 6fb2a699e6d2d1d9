//! Executable mappings of a process that already runs: `PROCMAP_QUERY` where the kernel has it (6.11),
//! else the text of `/proc/PID/maps`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use super::procfs::{MapsLine, parse_maps_line};
use crate::event::{BuildId, InodeKey, Pid, prot};
pub use crate::event::{DELETED, classify};

/// A mapping as the kernel tells it, in `/proc` or in the side-band.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawMapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// [`prot`] bits.
    pub prot: u8,
    /// Path or label as given, " (deleted)" included.
    pub path: Vec<u8>,
    /// Device and inode, when told.
    pub inode: Option<InodeKey>,
    /// Build ID, when told.
    pub build_id: Option<BuildId>,
}

/// What a process that already runs has mapped.
#[derive(Debug, Serialize, Deserialize)]
pub struct SeenProcess {
    /// Executable ones, ascending.
    pub mappings: Vec<RawMapping>,
    /// Where its executable is, with the suffix of one that was deleted.
    pub exe: Option<Vec<u8>>,
    /// Its arguments, each with a 0 behind it, if its executable may be a dynamic loader: only they tell what that loaded.
    pub arguments: Vec<u8>,
}

/// Reads what `process` has mapped. An error when it is gone or may not be read.
pub(super) fn read_process(process: Pid) -> io::Result<SeenProcess> {
    let mappings = read_executable(process)?;
    let exe = fs::read_link(format!("/proc/{process}/exe")).ok();
    let exe = exe.map(|path| path.into_os_string().into_vec());
    let name = exe
        .iter()
        .flat_map(|path| path.rsplit(|b| *b == b'/'))
        .next();
    let arguments = match name {
        Some(name) if name.starts_with(b"ld") => {
            fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    Ok(SeenProcess {
        mappings,
        exe,
        arguments,
    })
}

/// The executable mappings of `process`, ascending. An error when it is gone or may not be read.
pub fn read_executable(process: Pid) -> io::Result<Vec<RawMapping>> {
    let path = format!("/proc/{process}/maps");
    let maps = File::open(&path)?;
    let mut mappings = match query_all(&maps) {
        Err(err) if err.raw_os_error() == Some(libc::ENOTTY) => {
            with_exact_paths(process, read_text(&path)?)
        }
        other => other?,
    };
    // After a chroot these are paths of ours; the kernel's records have those of the process.
    if let Ok(root) = fs::read_link(format!("/proc/{process}/root")) {
        for mapping in &mut mappings {
            if let Some(inside) = path_inside(root.as_os_str().as_bytes(), &mapping.path) {
                mapping.path = inside.to_vec();
            }
        }
    }
    Ok(mappings)
}

/// The path that `path` has for a process whose root is `root`; `None` where it is the same.
fn path_inside<'p>(root: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    let inside = path.strip_prefix(root)?;
    (root.starts_with(b"/") && inside.starts_with(b"/")).then_some(inside)
}

fn read_text(path: &str) -> io::Result<Vec<RawMapping>> {
    let text = fs::read(path)?;
    let lines = text.split(|b| *b == b'\n').filter_map(parse_maps_line);
    Ok(lines
        .filter(|line| line.prot & prot::EXEC != 0)
        .map(RawMapping::from)
        .collect())
}

/// The text has `\\012` for a newline in a path, and nothing for a backslash, so that both can be meant: the link in `map_files`
/// tells which.
fn with_exact_paths(process: Pid, mut mappings: Vec<RawMapping>) -> Vec<RawMapping> {
    for mapping in &mut mappings {
        if !mapping.path.contains(&b'\n') {
            continue;
        }
        let link = format!(
            "/proc/{process}/map_files/{:x}-{:x}",
            mapping.start, mapping.end
        );
        if let Ok(exact) = fs::read_link(link) {
            mapping.path = exact.into_os_string().into_vec();
        }
    }
    mappings
}

impl From<MapsLine> for RawMapping {
    fn from(line: MapsLine) -> RawMapping {
        RawMapping {
            start: line.start,
            end: line.end,
            file_offset: line.offset,
            prot: line.prot,
            path: line.path,
            inode: line.inode,
            build_id: None,
        }
    }
}

/// `struct procmap_query` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::c_ulong = (3 << 30)
    | ((size_of::<ProcmapQuery>() as libc::c_ulong) << 16)
    | ((b'f' as libc::c_ulong) << 8)
    | 17;
const QUERY_EXECUTABLE: u64 = 4;
const QUERY_COVERING_OR_NEXT: u64 = 16;

fn query_all(maps: &File) -> io::Result<Vec<RawMapping>> {
    let mut found = Vec::new();
    let mut name = [0u8; 4096];
    let mut build_id = [0u8; BuildId::MAX_LEN];
    let mut from = 0;
    loop {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_flags: QUERY_COVERING_OR_NEXT | QUERY_EXECUTABLE,
            query_addr: from,
            vma_name_size: name.len() as u32,
            build_id_size: build_id.len() as u32,
            vma_name_addr: name.as_mut_ptr() as u64,
            build_id_addr: build_id.as_mut_ptr() as u64,
            ..ProcmapQuery::default()
        };
        // SAFETY: `query` is the structure the kernel expects and says its own size; the two buffers it
        // points to outlive the call and are as long as it says.
        if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } != 0 {
            let err = io::Error::last_os_error();
            return if err.raw_os_error() == Some(libc::ENOENT) {
                Ok(found)
            } else {
                Err(err)
            };
        }
        let name_len = (query.vma_name_size as usize).saturating_sub(1);
        found.push(RawMapping {
            start: query.vma_start,
            end: query.vma_end,
            file_offset: query.vma_offset,
            prot: (query.vma_flags & 0xf) as u8,
            path: name.get(..name_len).unwrap_or(b"").to_vec(),
            inode: (query.inode != 0).then_some(InodeKey {
                major: query.dev_major,
                minor: query.dev_minor,
                inode: query.inode,
            }),
            build_id: build_id
                .get(..query.build_id_size as usize)
                .and_then(BuildId::new),
        });
        // A mapping that ends where it starts would never end; the kernel has none.
        from = query.vma_end.max(from + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MappedKind;

    #[test]
    fn paths_are_those_of_the_process() {
        let inside = |root: &str, path: &'static str| {
            path_inside(root.as_bytes(), path.as_bytes()).map(<[u8]>::to_vec)
        };
        assert_eq!(
            inside("/srv/jail", "/srv/jail/bin/x"),
            Some(b"/bin/x".to_vec())
        );
        assert_eq!(inside("/srv/jail", "/srv/jailer/x"), None);
        assert_eq!(inside("/srv/jail", "/usr/bin/x"), None);
        assert_eq!(inside("/srv/jail", "[vdso]"), None);
        assert_eq!(inside("/", "/usr/bin/x"), None);
        assert_eq!(inside("", "/usr/bin/x"), None);
    }

    #[test]
    fn labels_are_never_files() {
        let kinds = [
            (
                &b"/usr/lib/libc.so.6"[..],
                MappedKind::File,
                &b"/usr/lib/libc.so.6"[..],
            ),
            (b"/tmp/a b (deleted)", MappedKind::File, b"/tmp/a b"),
            (b"", MappedKind::Anonymous, b""),
            (b"//anon", MappedKind::Anonymous, b"//anon"),
            (
                b"[anon:JIT code]",
                MappedKind::Anonymous,
                b"[anon:JIT code]",
            ),
            (b"[anon_shmem:x]", MappedKind::Anonymous, b"[anon_shmem:x]"),
            (b"/dev/zero (deleted)", MappedKind::Anonymous, b"/dev/zero"),
            (b"/memfd:jit (deleted)", MappedKind::Memfd, b"/memfd:jit"),
            (
                b"/SYSV00000000 (deleted)",
                MappedKind::Memfd,
                b"/SYSV00000000",
            ),
            (b"[vdso]", MappedKind::Vdso, b"[vdso]"),
            (b"[heap]", MappedKind::Special, b"[heap]"),
            (
                b"anon_inode:[perf_event]",
                MappedKind::Special,
                b"anon_inode:[perf_event]",
            ),
        ];
        for (path, kind, bare) in kinds {
            assert_eq!(
                classify(path),
                (kind, bare),
                "{:?}",
                String::from_utf8_lossy(path)
            );
        }
    }

    #[test]
    fn a_newline_and_what_looks_like_one_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let me = Pid(std::process::id());
        for name in ["a\nb", "a\\012b", "a\\012b\nc"] {
            let path = dir.path().join(name);
            fs::write(&path, [0; 4096]).unwrap();
            let file = File::open(&path).unwrap();
            // SAFETY: nothing else refers to the new mapping, whose content nobody reads.
            let mapped = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_READ | libc::PROT_EXEC,
                    libc::MAP_PRIVATE,
                    file.as_raw_fd(),
                    0,
                )
            };
            // A file system mounted noexec says nothing about us.
            if mapped == libc::MAP_FAILED {
                continue;
            }
            let text = read_text(&format!("/proc/{me}/maps")).unwrap();
            let read = with_exact_paths(me, text);
            // SAFETY: the mapping made above.
            unsafe { libc::munmap(mapped, 4096) };
            let found = read.iter().find(|m| m.start == mapped as u64).unwrap();
            let may_follow_links = rustix::process::geteuid().is_root();
            if may_follow_links {
                use std::os::unix::ffi::OsStrExt;
                assert_eq!(found.path, path.as_os_str().as_bytes());
            }
        }
    }

    #[test]
    fn both_ways_of_reading_agree_on_ourselves() {
        let me = Pid(std::process::id());
        let queried = read_executable(me).expect("our own maps");
        let text = read_text(&format!("/proc/{me}/maps")).expect("our own maps");
        let text: Vec<_> = text.iter().filter(|m| m.path != b"[vsyscall]").collect();
        assert!(!queried.is_empty());
        assert_eq!(queried.len(), text.len());
        for (q, t) in queried.iter().zip(text) {
            assert_eq!((q.start, q.end, q.prot), (t.start, t.end, t.prot));
            assert_eq!((&q.path, q.inode), (&t.path, t.inode));
            // The text has an offset for anonymous memory too, which means nothing.
            assert!(t.inode.is_none() || q.file_offset == t.file_offset);
        }
    }
}
