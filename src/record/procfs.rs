//! What `/proc` says of processes. Its text is bytes: any name a file or process can have.
//!
//! The parsers are pure; the readers below them are the only ones that open anything.

use std::fs;
use std::io;

use crate::event::{InodeKey, Pid, prot};

/// The fields used of `/proc/PID/stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Name of the process's leader.
    pub comm: Vec<u8>,
    /// Parent.
    pub parent: Pid,
    /// A kernel thread (`PF_KTHREAD`).
    pub kernel: bool,
    /// Threads it has (field 20).
    pub threads: u32,
    /// Start time in clock ticks since boot (field 22).
    pub start_ticks: u64,
}

const PF_KTHREAD: u64 = 0x0020_0000;

/// Parses `/proc/PID/stat`. The name may hold anything, `)` and newlines included, so fields count from
/// the LAST `)`.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|b| *b == b'(')?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let comm = text.get(open + 1..close)?.to_vec();
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    // Words after the name: state is the first (field 3), so field N is word N - 3.
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        comm,
        parent: Pid(words.get(1)?.parse().ok()?),
        kernel: words.get(6)?.parse::<u64>().ok()? & PF_KTHREAD != 0,
        threads: words.get(17)?.parse().ok()?,
        start_ticks: words.get(19)?.parse().ok()?,
    })
}

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapsLine {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// [`prot`] bits.
    pub prot: u8,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Device and inode; `None` when there is no file.
    pub inode: Option<InodeKey>,
    /// Path or label, empty when there is none; " (deleted)" is still in it.
    pub path: Vec<u8>,
}

/// Parses one line of `/proc/PID/maps`: five fields, then blanks, then the rest of the line as bytes.
pub fn parse_maps_line(line: &[u8]) -> Option<MapsLine> {
    let mut rest = line;
    let mut field = || -> Option<&[u8]> {
        let from = rest.iter().position(|b| *b != b' ')?;
        let tail = rest.get(from..)?;
        let len = tail.iter().position(|b| *b == b' ').unwrap_or(tail.len());
        rest = tail.get(len..)?;
        tail.get(..len)
    };
    let (range, flags, offset, device, inode) = (field()?, field()?, field()?, field()?, field()?);
    let (start, end) = split_hex(range, b'-')?;
    let (major, minor) = split_hex(device, b':')?;
    let inode: u64 = std::str::from_utf8(inode).ok()?.parse().ok()?;
    let path = rest
        .iter()
        .position(|b| *b != b' ')
        .and_then(|at| rest.get(at..))
        .unwrap_or(b"");
    let has = |at: usize, c: u8, bit: u8| if flags.get(at) == Some(&c) { bit } else { 0 };
    (start < end).then(|| MapsLine {
        start,
        end,
        prot: has(0, b'r', prot::READ)
            | has(1, b'w', prot::WRITE)
            | has(2, b'x', prot::EXEC)
            | has(3, b's', prot::SHARED),
        offset: hex(offset).unwrap_or(0),
        inode: (inode != 0).then_some(InodeKey {
            major: major as u32,
            minor: minor as u32,
            inode,
        }),
        path: unescape_newlines(path),
    })
}

fn hex(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

fn split_hex(text: &[u8], at: u8) -> Option<(u64, u64)> {
    let mid = text.iter().position(|b| *b == at)?;
    Some((hex(text.get(..mid)?)?, hex(text.get(mid + 1..)?)?))
}

/// The kernel writes a newline in a path as `\012` and nothing else (`seq_path(m, path, "\n")`).
fn unescape_newlines(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

/// The cgroup v2 path in `/proc/PID/cgroup`: the line `0::PATH`.
pub fn parse_cgroup(text: &[u8]) -> Option<Vec<u8>> {
    text.split(|b| *b == b'\n')
        .find_map(|line| line.strip_prefix(b"0::"))
        .map(<[u8]>::to_vec)
}

/// Where cgroup v2 is mounted, from `/proc/self/mounts` (on hybrid hierarchies not at `/sys/fs/cgroup`).
pub fn parse_cgroup_mount(mounts: &[u8]) -> Option<Vec<u8>> {
    mounts.split(|b| *b == b'\n').find_map(|line| {
        let mut words = line.split(|b| *b == b' ');
        let (_, dir, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == b"cgroup2").then(|| unescape_mount(dir))
    })
}

/// `/proc/self/mounts` writes blank, tab, newline and backslash as three octal digits.
fn unescape_mount(dir: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(dir.len());
    let mut at = 0;
    while let Some(b) = dir.get(at) {
        let code = dir.get(at + 1..at + 4).filter(|_| *b == b'\\');
        let octal = code
            .and_then(|c| std::str::from_utf8(c).ok())
            .and_then(|c| u8::from_str_radix(c, 8).ok());
        out.push(octal.unwrap_or(*b));
        at += if octal.is_some() { 4 } else { 1 };
    }
    out
}

/// Processes that exist now.
pub fn list_processes() -> io::Result<Vec<Pid>> {
    list_numbers("/proc")
}

/// Threads a process has now.
pub fn list_threads(process: Pid) -> io::Result<Vec<Pid>> {
    list_numbers(&format!("/proc/{process}/task"))
}

fn list_numbers(dir: &str) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        if let Some(number) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) {
            found.push(Pid(number));
        }
    }
    Ok(found)
}

/// `/proc/PID/stat`; an error when the process is gone.
pub fn read_stat(process: Pid) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{process}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected stat"))
}

/// Whether a process runs: it is there, and if its first thread is a zombie, another one is not. One that cannot be looked
/// at, for want of a descriptor perhaps, is taken to run.
pub fn is_alive(process: Pid) -> bool {
    match fs::read(format!("/proc/{process}/stat")) {
        Ok(text) => is_alive_by(&text),
        Err(err) => !is_gone_by(&err),
    }
}

/// Whether there is no such process or thread any more.
pub fn is_gone(process: Pid) -> bool {
    fs::read(format!("/proc/{process}/stat")).is_err_and(|err| is_gone_by(&err))
}

fn is_gone_by(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::NotFound || err.raw_os_error() == Some(libc::ESRCH)
}

fn is_alive_by(stat: &[u8]) -> bool {
    let state = stat.rsplit(|b| *b == b')').next();
    let ended = matches!(state, Some([b' ', b'Z' | b'X', ..]));
    parse_stat(stat).is_some_and(|stat| !ended || stat.threads > 1)
}

/// Word `at` of `/proc/PID/stat` after the name (0 is field 3, the state), as a number.
pub fn stat_word(process: Pid, at: usize) -> Option<u64> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    let close = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// Number of the process a thread belongs to.
pub fn process_of_thread(thread: Pid) -> io::Result<Pid> {
    let status = fs::read(format!("/proc/{thread}/status"))?;
    status
        .split(|b| *b == b'\n')
        .find_map(|line| line.strip_prefix(b"Tgid:"))
        .and_then(|n| std::str::from_utf8(n).ok())
        .and_then(|n| n.trim().parse().ok())
        .map(Pid)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "status without Tgid"))
}

/// Whose a process is, and what it takes for its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its number in its own PID namespace.
    pub pid_inside: u32,
    /// Real user ID.
    pub real_user: u32,
    /// Effective user ID.
    pub effective_user: u32,
}

/// The owner in `/proc/PID/status`: `NStgid:` has the number in each namespace, outermost first; `Uid:` real and
/// effective user.
pub fn parse_owner(status: &[u8]) -> Option<Owner> {
    let numbers = |name: &[u8]| {
        let line = status
            .split(|b| *b == b'\n')
            .find_map(|line| line.strip_prefix(name))?;
        let words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        words
            .map(|word| word.parse().ok())
            .collect::<Option<Vec<u32>>>()
    };
    let users = numbers(b"Uid:")?;
    Some(Owner {
        pid_inside: *numbers(b"NStgid:")?.last()?,
        real_user: *users.first()?,
        effective_user: *users.get(1)?,
    })
}

/// The owner of a process.
pub fn read_owner(process: Pid) -> io::Result<Owner> {
    let status = fs::read(format!("/proc/{process}/status"))?;
    parse_owner(&status)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat_line(comm: &[u8]) -> Vec<u8> {
        let mut line = b"4321 (".to_vec();
        line.extend_from_slice(comm);
        line.extend_from_slice(
            b") S 17 4321 4321 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2",
        );
        line
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_gone() {
        let gone = |errno| is_gone_by(&io::Error::from_raw_os_error(errno));
        assert!(gone(libc::ENOENT) && gone(libc::ESRCH));
        assert!(!gone(libc::EMFILE) && !gone(libc::EACCES));
        assert!(is_gone(Pid(u32::MAX)) && !is_gone(Pid(std::process::id())));
    }

    #[test]
    fn a_zombie_is_alive_while_another_thread_is() {
        let stat = |state: &str, threads: u32| {
            let rest =
                format!("17 1 1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 987654 1000 2");
            is_alive_by(format!("4321 (a) Z) {state} {rest}").as_bytes())
        };
        assert!(stat("S", 1) && stat("R", 3) && stat("Z", 2));
        assert!(!stat("Z", 1) && !stat("X", 1) && !is_alive_by(b""));
    }

    #[test]
    fn stat_fields_count_from_the_last_parenthesis() {
        for comm in [&b"sh"[..], b"a) S 1 (b c", b"two\nlines", b"\xff\xfe)", b""] {
            let stat = parse_stat(&stat_line(comm)).expect("a stat line");
            assert_eq!(stat.comm, comm);
            assert_eq!(
                (stat.parent, stat.start_ticks, stat.kernel),
                (Pid(17), 987_654, false)
            );
            assert_eq!(stat.threads, 1);
        }
        assert_eq!(parse_stat(b"1 (cut) S 2 3"), None);
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b")("), None);
    }

    #[test]
    fn maps_lines_of_every_shape() {
        let line = parse_maps_line(
            b"55d0c0000000-55d0c0002000 r-xp 00001000 103:0a 1234 /tmp/a b/pro  g (deleted)",
        )
        .expect("a line");
        assert_eq!(
            (line.start, line.end, line.offset),
            (0x55d0_c000_0000, 0x55d0_c000_2000, 0x1000)
        );
        assert_eq!(line.prot, prot::READ | prot::EXEC);
        assert_eq!(
            line.inode,
            Some(InodeKey {
                major: 0x103,
                minor: 0xa,
                inode: 1234
            })
        );
        assert_eq!(line.path, b"/tmp/a b/pro  g (deleted)");

        let anon = parse_maps_line(b"7f00-8f00 rw-s 00000000 00:00 0 ").expect("a line");
        assert_eq!((anon.path.as_slice(), anon.inode), (&b""[..], None));
        assert_eq!(anon.prot, prot::READ | prot::WRITE | prot::SHARED);

        let named =
            parse_maps_line(b"7f00-8f00 ---p 00000000 00:00 0        [anon:x y]").expect("a line");
        assert_eq!(named.path, b"[anon:x y]");

        let high =
            parse_maps_line(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]")
                .expect("a line");
        assert_eq!(high.start, 0xffff_ffff_ff60_0000);

        let odd = parse_maps_line(b"1-2 r-xp 0 00:01 5 /a\\012b\xff\\x").expect("a line");
        assert_eq!(odd.path, b"/a\nb\xff\\x");

        for bad in [
            &b""[..],
            b"x",
            b"1-2",
            b"2-1 r-xp 0 0:0 0",
            b"1-2 r-xp 0 00 0 /x",
        ] {
            assert_eq!(parse_maps_line(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_number_inside_is_the_last() {
        // A name can hold anything but a newline, which the kernel writes as two characters.
        let status =
            b"Name:\tUid:\t5\nTgid:\t4242\nUid:\t1000\t0\t1000\t1000\nNStgid:\t4242\t17\t1\n";
        let owner = Owner {
            pid_inside: 1,
            real_user: 1000,
            effective_user: 0,
        };
        assert_eq!(parse_owner(status), Some(owner));
        for bad in [
            &b""[..],
            b"NStgid:\t1\n",
            b"Uid:\t1\t1\nNStgid:\n",
            b"Uid:\t1\nNStgid:\t1\n",
        ] {
            assert_eq!(parse_owner(bad), None);
        }
        let me = read_owner(Pid(std::process::id())).expect("our own status");
        assert_eq!(me.real_user, rustix::process::getuid().as_raw());
    }

    #[test]
    fn cgroup_v2_is_found_on_hybrid_hierarchies() {
        let text = b"12:cpu:/a\n1:name=systemd:/b\n0::/user.slice/x y\n";
        assert_eq!(parse_cgroup(text).as_deref(), Some(&b"/user.slice/x y"[..]));
        assert_eq!(parse_cgroup(b"1:cpu:/\n"), None);
        let mounts = b"tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/uni\\040fied cgroup2 rw 0 0\n";
        assert_eq!(
            parse_cgroup_mount(mounts).as_deref(),
            Some(&b"/sys/fs/cgroup/uni fied"[..])
        );
        assert_eq!(parse_cgroup_mount(b"proc /proc proc rw 0 0\n"), None);
    }
}
