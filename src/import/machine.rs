//! Whether this is the machine that was recorded, and has not been booted since: only then do its kernel and its files tell
//! of what ran.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::elf_file::{self, Headers, open_regular, running_kernel_build_id};
use crate::event::{BuildId, FileVersion, InodeKey};

/// What a recording tells of its machine.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    pub host: Option<String>,
    pub release: Option<String>,
    pub kernel: Option<BuildId>,
    /// The symbol perf found the kernel by, and where it was.
    pub text: Option<(String, u64)>,
}

/// What of this machine may be believed.
#[derive(Debug, Clone)]
pub struct Machine {
    /// It is the one recorded, in the same boot; else why not.
    pub same_boot: Result<(), String>,
    /// Its kernel is that which was recorded, where it was; else why not.
    pub same_kernel: Result<(), String>,
    /// When recording began, by this machine's clock and not later than that.
    began: Option<SystemTime>,
}

/// How far apart clocks may be that should go alike: so much, and so much of the time they have run.
const DRIFT: Duration = Duration::from_secs(10);
const DRIFT_PARTS: u32 = 10_000;

/// What records and their file tell of time.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Of the first record and of the latest, by perf's clock.
    pub first: u64,
    pub latest: u64,
    /// When the file was last written; of a stream that is now.
    pub written: SystemTime,
}

impl Machine {
    /// Compares what was recorded with what is here.
    pub fn new(recorded: &Recorded, times: Times) -> Machine {
        let same_place = same_place(recorded);
        let same_boot = same_place.clone().and_then(|()| same_boot(times));
        let same_kernel = match &same_boot {
            Ok(()) => Ok(()),
            Err(why) => same_place.and_then(|()| same_kernel(recorded, why)),
        };
        Machine {
            began: began(times),
            same_boot,
            same_kernel,
        }
    }

    /// The file at `path`, if it is the one that was mapped: the same inode, and not written to since recording began.
    pub fn file(&self, path: &[u8], inode: InodeKey, generation: u64) -> Option<FoundFile> {
        self.same_boot.as_ref().ok()?;
        let began = self.began?;
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let file = open_regular(path).ok()?;
        let meta = file.metadata().ok()?;
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let same = device == (inode.major, inode.minor)
            && meta.ino() == inode.inode
            && generation_of(&file).unwrap_or(0) == generation
            && meta.modified().ok()? < began;
        if !same {
            return None;
        }
        let changed = Duration::new(u64::try_from(meta.ctime()).ok()?, meta.ctime_nsec() as u32);
        let untouched = SystemTime::UNIX_EPOCH.checked_add(changed)? < began;
        Some(FoundFile {
            version: FileVersion {
                size: meta.size(),
                mtime_sec: meta.mtime(),
                mtime_nsec: meta.mtime_nsec() as u32,
            },
            headers: elf_file::read_headers(&file).unwrap_or_default(),
            untouched,
        })
    }
}

/// When recording began, by this machine's clock, and not later than that.
fn began(times: Times) -> Option<SystemTime> {
    let lasted = Duration::from_nanos(times.latest.saturating_sub(times.first));
    let by_file = times.written.checked_sub(lasted)?;
    let by_clock = booted()?.checked_add(Duration::from_nanos(times.first))?;
    by_file.min(by_clock).checked_sub(Duration::from_secs(2))
}

/// When perf's clock was 0: it runs with this one.
fn booted() -> Option<SystemTime> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, now.tv_nsec as u32);
    SystemTime::now().checked_sub(now)
}

/// perf's clock begins when the machine is booted: what its last record and the file say of that moment must be what this
/// machine says.
fn same_boot(times: Times) -> Result<(), String> {
    let ran = Duration::from_nanos(times.latest);
    let apart = |then: SystemTime, now: SystemTime| {
        now.duration_since(then)
            .unwrap_or_else(|err| err.duration())
    };
    let agree = booted()
        .zip(times.written.checked_sub(ran))
        .is_some_and(|(now, then)| apart(then, now) <= DRIFT + ran / DRIFT_PARTS);
    match agree {
        true => Ok(()),
        false => Err("the machine was booted since, or the file is a copy".into()),
    }
}

/// A file that was mapped.
#[derive(Debug, Clone)]
pub struct FoundFile {
    pub headers: Headers,
    pub version: FileVersion,
    /// Nothing of its inode has changed since recording began. perf itself may have made a link to it, so that this is not
    /// known.
    pub untouched: bool,
}

/// The same host, with its kernel where it was.
fn same_place(recorded: &Recorded) -> Result<(), String> {
    let name = rustix::system::uname();
    let text = |s: &CStr| Some(s.to_string_lossy().into_owned());
    let (Some(_), Some(_)) = (&recorded.host, &recorded.release) else {
        // In a pipe older versions of perf do not, and its options and other tools can leave it out.
        return Err(
            "perf did not write of which host and kernel it is, so that it cannot be compared with this machine".into(),
        );
    };
    if recorded.host != text(name.nodename()) {
        return Err("it was recorded on another machine".into());
    }
    if recorded.release != text(name.release()) {
        return Err("it was recorded with another kernel than this machine runs now".into());
    }
    let Some((symbol, address)) = &recorded.text else {
        return Err("it does not say where the kernel was".into());
    };
    match address_of(symbol) {
        None | Some(0) => Err("this kernel hides its addresses from this user".into()),
        Some(here) if here != *address => Err("the machine was booted anew since".into()),
        Some(_) => Ok(()),
    }
}

/// `otherwise` says why it cannot be told without the kernel's build ID.
fn same_kernel(recorded: &Recorded, otherwise: &str) -> Result<(), String> {
    match (&recorded.kernel, running_kernel_build_id()) {
        (None, _) => Err(format!("{otherwise}, and it has no build ID of the kernel")),
        (Some(then), Some(now)) if *then == now => Ok(()),
        _ => Err("another kernel runs now".into()),
    }
}

/// The running kernel's address of `symbol`, 0 when hidden.
fn address_of(symbol: &str) -> Option<u64> {
    let table = BufReader::new(File::open("/proc/kallsyms").ok()?);
    // It is among the first.
    table.lines().take(10_000).find_map(|line| {
        let line = line.ok()?;
        let mut words = line.split_ascii_whitespace();
        let address = words.next()?;
        let name = words.nth(1)?;
        (name == symbol).then(|| u64::from_str_radix(address, 16).ok())?
    })
}

/// Tells an inode from an earlier one of its number, where the file system does.
fn generation_of(file: &File) -> Option<u64> {
    // _IOR('v', 1, long)
    const GET_VERSION: libc::c_ulong = 0x8008_7601;
    let mut generation: libc::c_long = 0;
    // SAFETY: the request writes at most a `long` to where the pointer leads.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION as _, &raw mut generation) };
    (result == 0).then_some(u64::from(generation as u32))
}

/// The layout of the file at `path`, if it has the build ID.
pub fn layout(path: &[u8], id: &BuildId) -> Option<Headers> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    fs::metadata(path).ok()?;
    let file = open_regular(path).ok()?;
    let headers = elf_file::read_headers(&file).ok()?;
    (headers.build_id.as_ref() == Some(id) && !headers.loads.is_empty()).then_some(headers)
}
