//! Numbers out of bytes that may end anywhere.

/// Bytes that are taken from the front.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `count` bytes, if there are so many.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// Passes over `count` numbers of eight bytes.
    pub fn skip_u64(&mut self, count: u64) -> Option<()> {
        let bytes = usize::try_from(count).ok()?.checked_mul(8)?;
        self.take(bytes).map(|_| ())
    }

    /// perf's string: a length, and so many bytes of which those after a zero do not count.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len).map(until_zero)
    }
}

/// Bytes up to the first zero.
pub fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}
