//! Memory of a BPF map, shared with the kernel.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Mapped memory.
pub struct Shared {
    start: NonNull<u8>,
    length: usize,
}

impl Shared {
    /// Maps `length` bytes of `fd` from `offset` on.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, length: usize, prot: ProtFlags) -> Result<Shared> {
        // SAFETY: a new mapping where the kernel chooses.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                prot,
                MapFlags::SHARED,
                fd,
                offset,
            )?
        };
        let start: NonNull<u8> = NonNull::new(start.cast()).context("mapped at 0")?;
        // A worker aside that outlives us must not keep it.
        // SAFETY: what was just mapped, of which nothing is changed for this process.
        let _ = unsafe { madvise(start.as_ptr().cast(), length, Advice::LinuxDontFork) };
        Ok(Shared { start, length })
    }

    /// Its first byte: as many as were asked for are mapped as long as `self`.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
