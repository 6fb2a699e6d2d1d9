//! A file in memory that may shrink while it is read (a quota, a copy under way), which the kernel answers with
//! SIGBUS: here it is an error like any other.
//!
//! A handler puts zeros in the place of pages that are gone, for our mappings only; every other SIGBUS goes where
//! it went before.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::Mmap;

/// A file mapped for reading.
#[derive(Debug)]
pub struct Mapped {
    file: File,
    map: Guarded,
    /// Bytes that may have become memory of this process since all were let go.
    touched: AtomicUsize,
}

/// All pages are let go when so many bytes may be mapped: captures are read from front to back, and pages that stay mapped
/// count as memory of this process, which would grow with the file.
const FORGET: usize = 4 << 20;
/// The kernel maps what it has in memory around a page that is asked for: so much before and after what is read (bytes).
const AROUND: usize = 64 << 10;

/// The bytes of a mapped file; those of pages that are gone since are zeros.
#[derive(Debug)]
pub struct Guarded {
    map: Mmap,
    slot: &'static Slot,
}

/// Where one mapping lies, for the handler, which may take no lock.
#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    /// A page was gone.
    shrunk: AtomicBool,
}

/// Files mapped at one time at most.
const SLOTS: usize = 8192;
static RANGES: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        shrunk: AtomicBool::new(false),
    }
}; SLOTS];

impl Guarded {
    /// Maps all of `file`, which is a regular file.
    pub fn new(file: &File) -> io::Result<Guarded> {
        install()?;
        let free = RANGES
            .iter()
            .find(|slot| !slot.taken.swap(true, Ordering::AcqRel));
        let slot = free.ok_or_else(|| io::Error::other("too many files are open"))?;
        // SAFETY: the bytes may change under us. They are hostile input to everything, and nothing that was found out
        // about them is relied on for safety.
        let map = match unsafe { Mmap::map(file) } {
            Ok(map) => map,
            Err(err) => {
                slot.taken.store(false, Ordering::Release);
                return Err(err);
            }
        };
        let start = map.as_ptr() as usize;
        slot.shrunk.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(start + map.len(), Ordering::Release);
        Ok(Guarded { map, slot })
    }

    /// Whether bytes that were asked for were gone: what was read is not what was in the file.
    pub fn has_shrunk(&self) -> bool {
        self.slot.shrunk.load(Ordering::Acquire)
    }
}

impl Deref for Guarded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.slot.end.store(0, Ordering::Release);
        self.slot.start.store(0, Ordering::Release);
        self.slot.taken.store(false, Ordering::Release);
    }
}

impl Mapped {
    /// Maps all of `file`, which is a regular file.
    pub fn new(file: File) -> io::Result<Mapped> {
        let map = Guarded::new(&file)?;
        let touched = AtomicUsize::new(0);
        Ok(Mapped { file, map, touched })
    }

    /// What the system says of the file now.
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// Length when it was mapped, in bytes.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Replaces `out` by the bytes of `range`; an error when the file does not have them, or has them no more.
    pub fn read(&self, range: std::ops::Range<usize>, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        let end = range.end as u64;
        out.extend_from_slice(self.map.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        let more = out.len().saturating_add(2 * AROUND);
        if self.touched.fetch_add(more, Ordering::Relaxed) >= FORGET {
            self.touched.store(0, Ordering::Relaxed);
            // SAFETY: of a file mapped for reading; whoever looks there next gets the same pages again.
            let _ = unsafe {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                self.map.map.unchecked_advise(advice)
            };
        }
        // The rest of a page the file still has in part reads as zeros without any signal.
        if self.map.has_shrunk() || self.file.metadata()?.len() < end {
            out.clear();
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: OnceLock<usize> = OnceLock::new();

fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let _ = PAGE.set(rustix::param::page_size());
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: plain system calls with structures of our own; zeroed is a valid sigaction.
        unsafe {
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
            }
            let _ = PREVIOUS.set(before.assume_init());
            let mut ours: libc::sigaction = MaybeUninit::zeroed().assume_init();
            ours.sa_sigaction = on_sigbus as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
            }
        }
        Ok(())
    });
    installed.map_err(io::Error::from_raw_os_error)
}

/// Runs in a signal: only atomics and system calls.
extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let page = PAGE.get().copied().unwrap_or(4096);
    for slot in &RANGES {
        let range = slot.start.load(Ordering::Acquire)..slot.end.load(Ordering::Acquire);
        if range.contains(&address) {
            let at = (address & !(page - 1)) as *mut libc::c_void;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the page is inside a mapping of ours that is only read and has no content any more.
            let mapped = unsafe { libc::mmap(at, page, libc::PROT_READ, flags, -1, 0) };
            if mapped != libc::MAP_FAILED {
                slot.shrunk.store(true, Ordering::Release);
                return;
            }
        }
    }
    // Not ours: as if we had never been here. Without a handler of somebody else's the fault comes again and ends
    // the process as it would have.
    if let Some(before) = PREVIOUS.get() {
        let theirs = before.sa_sigaction;
        if theirs != libc::SIG_DFL
            && theirs != libc::SIG_IGN
            && before.sa_flags & libc::SA_SIGINFO != 0
        {
            // SAFETY: it was registered as a handler of this type.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute::<usize, _>(theirs) };
            return handler(signal, info, context);
        }
        // SAFETY: puts back what the kernel gave us.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_shrinks_is_an_error_and_not_a_signal() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(16 * 4096).expect("longer");
        let mapped = Mapped::new(file.try_clone().expect("a copy")).expect("mapped");
        let mut out = Vec::new();
        mapped.read(0..5000, &mut out).expect("still there");
        assert_eq!(out.len(), 5000);
        file.set_len(4096).expect("shorter");
        let err = mapped.read(0..16 * 4096, &mut out).expect_err("gone");
        assert_eq!((err.kind(), out.len()), (io::ErrorKind::UnexpectedEof, 0));
        assert!(
            mapped.read(0..10, &mut out).is_err(),
            "what was read before may be wrong too"
        );
        assert_eq!(
            mapped.read(0..17 * 4096, &mut out).map_err(|e| e.kind()),
            Err(io::ErrorKind::UnexpectedEof)
        );
        let slot = mapped.map.slot;
        drop(mapped);
        assert!(!slot.taken.load(Ordering::Relaxed));
    }
}
