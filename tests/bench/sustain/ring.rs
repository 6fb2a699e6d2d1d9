//! The ring of one CPU as the kernel's is: whole records, one writer, one reader, and a record without room is lost and
//! counted.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bprof::capture::writer::TOGETHER;

/// Positions count words since the beginning, so that they never wrap here.
pub struct Ring {
    words: Box<[UnsafeCell<u64>]>,
    written: AtomicUsize,
    read: AtomicUsize,
    lost: AtomicU64,
    fullest: AtomicUsize,
    wakes: AtomicBool,
}

// SAFETY: words between `read` and `written` are only read, the others only written, each by one thread; the positions are
// handed over with release and acquire.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `bytes`, all of it touched.
    pub fn new(bytes: usize) -> Ring {
        Ring {
            words: (0..bytes / 8).map(|_| UnsafeCell::new(u64::MAX)).collect(),
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            fullest: AtomicUsize::new(0),
            wakes: AtomicBool::new(false),
        }
    }

    /// Words that wait.
    fn waiting(&self) -> usize {
        self.written.load(Ordering::Relaxed) - self.read.load(Ordering::Acquire)
    }

    /// So much waits that the sampling program cuts stacks. For the thread that puts records in.
    pub fn is_nearly_full(&self) -> bool {
        self.waiting() >= self.words.len() / 4 * 3
    }

    /// Whether a record since the last call was the one that made it half full, by which the sampling program wakes the
    /// recorder.
    pub fn has_woken(&self) -> bool {
        self.wakes.swap(false, Ordering::Relaxed)
    }

    /// Puts in a record of several parts, or counts it as lost. For one thread.
    pub fn put(&self, parts: [&[u64]; 3]) -> bool {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let (mut at, read) = (
            self.written.load(Ordering::Relaxed),
            self.read.load(Ordering::Acquire),
        );
        let size = self.words.len();
        // A record is in one piece: what does not fit before the end begins again at the start.
        let left = size - at % size;
        let skipped = if left < len + 1 { left } else { 0 };
        if at + skipped + len + 1 - read > size {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let set = |at: usize, word: u64| {
            // SAFETY: within, since it is taken modulo the length; not yet handed over, so nobody reads it.
            unsafe { *self.words[at % size].get() = word }
        };
        if skipped > 0 {
            set(at, 0);
            at += skipped;
        }
        set(at, len as u64);
        let words = parts.iter().flat_map(|part| part.iter());
        for (i, word) in words.enumerate() {
            set(at + 1 + i, *word);
        }
        let after = at + 1 + len;
        self.written.store(after, Ordering::Release);
        if at - read < size / 2 && after - read >= size / 2 {
            self.wakes.store(true, Ordering::Relaxed);
        }
        self.fullest.fetch_max(after - read, Ordering::Relaxed);
        true
    }

    /// Takes out what there is, some records at a time as the recorder does. For one thread.
    pub fn consume(&self, mut take: impl FnMut(&[&[u8]])) {
        let (mut at, written) = (
            self.read.load(Ordering::Relaxed),
            self.written.load(Ordering::Acquire),
        );
        let size = self.words.len();
        while at < written {
            let mut together: [&[u8]; TOGETHER] = [&[]; TOGETHER];
            let mut count = 0;
            while at < written && count < TOGETHER {
                let place = at % size;
                // SAFETY: handed over, so nobody writes it until `read` has gone beyond it.
                let len = unsafe { *self.words[place].get() } as usize;
                if len == 0 {
                    at += size - place;
                    continue;
                }
                let record = &self.words[place + 1..place + 1 + len];
                // SAFETY: as above, for all words of the record; a cell is laid out as what is in it.
                together[count] =
                    unsafe { std::slice::from_raw_parts(record.as_ptr().cast::<u8>(), len * 8) };
                count += 1;
                at += len + 1;
            }
            take(&together[..count]);
            self.read.store(at, Ordering::Release);
        }
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Of all its words, the most that waited at once.
    pub fn fullest(&self) -> f64 {
        self.fullest.load(Ordering::Relaxed) as f64 / self.words.len() as f64
    }
}
