//! Memory asked for before it is needed, so that the wait for it is over by then.

/// Begins to load the cache line `place` begins in. Only a hint: it has no effect that can be seen.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    prefetch_at(std::ptr::from_ref(place).cast());
}

/// As [`prefetch`], of any address: one that is not mapped is ignored.
#[inline]
pub(crate) fn prefetch_at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of x86-64, reads nothing a program can see, and faults on no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
