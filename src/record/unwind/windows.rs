//! How much is copied of the stacks of each thread: no more than twice what its walks have needed lately.
//!
//! The sampling program knows where most stacks end. Of others it would copy all of the window each time, though a goroutine or a
//! thread below much thread-local memory rarely needs a tenth of it.

use hashbrown::HashMap;

use super::WINDOW;
use crate::event::Pid;

/// Threads remembered at most; the sampling program's map has room for as many.
pub const THREADS: usize = 4096;
/// No window is smaller, in bytes.
const SMALLEST: u32 = 4 << 10;
/// Copies that are smaller are left alone.
const LARGE: u32 = 8 << 10;
/// Walks looked at before a window is changed; after each that was cut by it four times as many.
const PATIENCE: u32 = 64;
const MOST_PATIENCE: u32 = 1 << 16;

/// The windows of threads.
#[derive(Default)]
pub struct Windows {
    threads: HashMap<Pid, Thread, foldhash::fast::RandomState>,
    /// What the sampling program has not been told: the window of a thread, `None` for all of it.
    changes: Vec<(Pid, Option<u32>)>,
}

struct Thread {
    /// Bytes needed most since it was looked at last.
    needed: u32,
    walks: u32,
    patience: u32,
    told: Option<u32>,
}

impl Windows {
    /// A stack of `thread` was walked through `needed` of the `copied` bytes; `None`: it went on beyond them.
    pub fn walked(&mut self, thread: Pid, copied: u32, needed: Option<u32>) {
        if copied < LARGE && !self.threads.contains_key(&thread) {
            return;
        }
        if self.threads.len() >= THREADS {
            // Most of them have ended.
            let told = self.threads.drain().filter(|(_, t)| t.told.is_some());
            self.changes.extend(told.map(|(thread, _)| (thread, None)));
        }
        let known = self.threads.entry(thread).or_insert(Thread {
            needed: 0,
            walks: 0,
            patience: PATIENCE,
            told: None,
        });
        let Some(needed) = needed else {
            known.walks = 0;
            known.needed = 0;
            if known.told.take().is_some() {
                known.patience = known.patience.saturating_mul(4).min(MOST_PATIENCE);
                self.changes.push((thread, None));
            }
            return;
        };
        known.needed = known.needed.max(needed);
        known.walks += 1;
        if known.walks < known.patience {
            return;
        }
        let enough = known.needed.saturating_mul(2).max(SMALLEST);
        let enough = enough.checked_next_power_of_two().unwrap_or(WINDOW);
        let window = (enough <= WINDOW / 2).then_some(enough);
        known.walks = 0;
        known.needed = 0;
        if window != known.told {
            known.told = window;
            self.changes.push((thread, window));
        }
    }

    /// What the sampling program is to be told, in this order.
    pub fn take_changes(&mut self) -> Vec<(Pid, Option<u32>)> {
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(windows: &mut Windows, times: u32, copied: u32, needed: Option<u32>) {
        for _ in 0..times {
            windows.walked(Pid(7), copied, needed);
        }
    }

    #[test]
    fn a_window_shrinks_to_what_is_needed_and_grows_at_once() {
        let mut windows = Windows::default();
        walk(&mut windows, 1000, 4000, Some(3000));
        assert_eq!(windows.take_changes(), [], "small ones are left alone");
        walk(&mut windows, 63, WINDOW, Some(100));
        assert_eq!(windows.take_changes(), []);
        walk(&mut windows, 1, WINDOW, Some(2500));
        assert_eq!(windows.take_changes(), [(Pid(7), Some(8 << 10))]);
        walk(&mut windows, 64, 8 << 10, Some(100));
        assert_eq!(windows.take_changes(), [(Pid(7), Some(4 << 10))]);
        walk(&mut windows, 1, 4 << 10, None);
        assert_eq!(windows.take_changes(), [(Pid(7), None)]);
        walk(&mut windows, 255, WINDOW, Some(100));
        assert_eq!(windows.take_changes(), [], "once bitten");
        walk(&mut windows, 1, WINDOW, Some(100));
        assert_eq!(windows.take_changes(), [(Pid(7), Some(4 << 10))]);
        walk(&mut windows, 256, WINDOW, Some(20 << 10));
        assert_eq!(windows.take_changes(), [(Pid(7), None)]);
    }

    #[test]
    fn threads_are_bounded() {
        let mut windows = Windows::default();
        walk(&mut windows, 64, WINDOW, Some(100));
        for thread in 100..100 + THREADS as u32 {
            windows.walked(Pid(thread), WINDOW, Some(100));
        }
        assert!(windows.threads.len() <= THREADS);
        let changes = [(Pid(7), Some(4 << 10)), (Pid(7), None)];
        assert_eq!(windows.take_changes(), changes);
    }
}
