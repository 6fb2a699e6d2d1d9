//! How much is copied of the stacks of each thread: no more than twice what its walks have needed lately.
//!
//! The sampling program knows where most stacks end. Of others it would copy all of the window each time, though a goroutine or a
//! thread below much thread-local memory rarely needs a tenth of it. Where copies are not enough it walks along frame pointers
//! besides, if it may.
//!
//! A frame can be larger than any copy (half a MiB in rustc). Once a walk has ended in one, what lies above it is copied as well: for
//! such a frame stays where it is as long as its function runs. If it does not, the next walk ends there as the last one did.
//!
//! Many samples are taken before the sampling program is told what was learnt of the first of them. They do not show that it was in
//! vain.

use hashbrown::HashMap;

use super::WINDOW;
use crate::event::{Pid, Timestamp};

/// Threads remembered at most; the sampling program's map has room for as many.
pub const THREADS: usize = 4096;
/// No window is smaller, in bytes.
const SMALLEST: u32 = 4 << 10;
/// Copies that are smaller are left alone. What they needed is not known: it must find room beside a large frame, too.
const LARGE: u32 = 8 << 10;
/// The largest window that leaves room for what lies beyond a large frame.
const LARGEST_OF_TWO: u32 = WINDOW / 2;
/// Walks looked at before a window is changed; after each that was cut by it four times as many.
const PATIENCE: u32 = 64;
const MOST_PATIENCE: u32 = 1 << 16;
/// Walks on end that go beyond the largest window before it is given up, and what is copied then.
const VAIN: u32 = 64;
const GIVEN_UP: u32 = 32 << 10;
/// So many later it is tried again.
const AGAIN: u32 = 4096;
/// What a function saves for its caller lies below the caller's frame, in no more bytes.
const SAVED: u64 = 128;

/// What the sampling program is to do with the stacks of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Bytes copied at most, a multiple of eight.
    pub bytes: u32,
    /// They are walked along frame pointers besides.
    pub also_walk: bool,
    /// What lies from here on is copied too, as far as there is room for it.
    pub beyond: Option<u64>,
}

impl Window {
    /// As `windows` of `bpf/profiler.bpf.c` has it.
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (beyond, rest) = bytes.split_at_mut(8);
        beyond.copy_from_slice(&self.beyond.unwrap_or(0).to_ne_bytes());
        let (window, also_walk) = rest.split_at_mut(4);
        window.copy_from_slice(&self.bytes.to_ne_bytes());
        also_walk.copy_from_slice(&u32::from(self.also_walk).to_ne_bytes());
        bytes
    }
}

/// What a walk has needed of its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// So many bytes, and all was well.
    Bytes(u32),
    /// More than there was.
    More,
    /// So many bytes, and what lies from an address on, beyond a large frame.
    Gap(u32, u64),
    /// What was copied beyond its top, and all was well.
    Beyond,
    /// It ended for another reason, where frame pointers may lead on.
    Other,
}

/// The windows of threads.
#[derive(Default)]
pub struct Windows {
    threads: HashMap<Pid, Thread, foldhash::fast::RandomState>,
    /// What the sampling program has not been told: the window of a thread, `None` for all of it.
    changes: Vec<(Pid, Option<Window>)>,
    may_walk: bool,
}

struct Thread {
    /// Bytes needed most since it was looked at last.
    needed: u32,
    walks: u32,
    patience: u32,
    /// Walks on end for which all of the window was not enough.
    vain: u32,
    told: Option<Window>,
    /// Since when the sampling program has been told, [`NOT_YET`] before it has.
    since: Timestamp,
}

const NOT_YET: Timestamp = Timestamp(u64::MAX);

impl Windows {
    /// `may_walk`: stacks may be walked along frame pointers besides.
    pub fn new(may_walk: bool) -> Windows {
        Windows {
            may_walk,
            ..Windows::default()
        }
    }

    /// A stack of `thread` at `time`, of which `copied` bytes were there, was walked.
    pub fn walked(&mut self, thread: Pid, time: Timestamp, copied: u32, needed: Needed) {
        let is_well = matches!(needed, Needed::Bytes(_) | Needed::Beyond);
        if !self.threads.contains_key(&thread) {
            let is_left_alone = match needed {
                Needed::Bytes(_) => copied < LARGE,
                Needed::Beyond => true,
                Needed::More | Needed::Gap(..) => false,
                Needed::Other => !self.may_walk,
            };
            if is_left_alone {
                return;
            }
        }
        if self.threads.len() >= THREADS {
            // Most of them have ended.
            let told = self.threads.drain().filter(|(_, t)| t.told.is_some());
            self.changes.extend(told.map(|(thread, _)| (thread, None)));
        }
        let may_walk = self.may_walk;
        let known = self.threads.entry(thread).or_insert(Thread {
            needed: 0,
            walks: 0,
            patience: PATIENCE,
            vain: 0,
            told: None,
            since: Timestamp(0),
        });
        let now = known.told.map_or(WINDOW, |told| told.bytes);
        let beyond = known.told.and_then(|told| told.beyond);
        // Where more of it could be had the copy is as large as its window.
        let was_full = copied + 8 >= now;
        let window = match needed {
            // Copied before the window was as small as it is now.
            Needed::Bytes(bytes) if beyond.is_some() && bytes > now => {
                known.vain = 0;
                known.told.map(|told| Window {
                    bytes: twice(bytes).min(LARGEST_OF_TWO).max(now),
                    ..told
                })
            }
            Needed::Bytes(bytes) => {
                known.vain = 0;
                known.needed = known.needed.max(bytes);
                known.walks += 1;
                if known.walks < known.patience {
                    return;
                }
                let enough = twice(known.needed);
                (enough <= WINDOW / 2).then_some(Window {
                    bytes: enough,
                    also_walk: false,
                    beyond: None,
                })
            }
            Needed::Beyond => {
                // As long as it is of use, nothing is changed.
                known.vain = 0;
                known.walks = 0;
                return;
            }
            Needed::Gap(bytes, frame) if known.vain < VAIN => {
                known.vain += u32::from(time >= known.since);
                // What is known of other stacks of the thread holds.
                let least = known.told.map_or(LARGE, |told| told.bytes.max(LARGE));
                let least = match least {
                    WINDOW => LARGE,
                    least => least.min(LARGEST_OF_TWO),
                };
                Some(Window {
                    bytes: twice(bytes.max(known.needed)).clamp(least, LARGEST_OF_TWO),
                    also_walk: false,
                    beyond: Some(frame.saturating_sub(SAVED) & !7),
                })
            }
            Needed::More if was_full && beyond.is_some() && now < LARGEST_OF_TWO => Some(Window {
                // Each time many samples are cut until it is larger.
                bytes: now.saturating_mul(4).min(LARGEST_OF_TWO),
                also_walk: false,
                beyond,
            }),
            Needed::More | Needed::Gap(..) if was_full => {
                known.vain = known.vain.saturating_add(1);
                let given_up = known.vain >= VAIN;
                if given_up && known.vain >= VAIN + AGAIN {
                    known.vain = 0;
                }
                let bytes = if given_up { GIVEN_UP } else { WINDOW };
                Some(Window {
                    bytes,
                    also_walk: may_walk,
                    beyond: None,
                })
            }
            Needed::More | Needed::Gap(..) | Needed::Other => Some(Window {
                bytes: now,
                also_walk: may_walk,
                beyond,
            }),
        };
        known.walks = 0;
        known.needed = 0;
        let usual = Window {
            bytes: WINDOW,
            also_walk: false,
            beyond: None,
        };
        let window = window.filter(|window| *window != usual);
        if window != known.told {
            if !is_well && known.told.is_some() {
                known.patience = known.patience.saturating_mul(4).min(MOST_PATIENCE);
            }
            known.told = window;
            known.since = NOT_YET;
            self.changes.push((thread, window));
        }
    }

    /// What the sampling program is to be told, in this order and `now`.
    pub fn take_changes(&mut self, now: Timestamp) -> Vec<(Pid, Option<Window>)> {
        for (thread, _) in &self.changes {
            if let Some(known) = self.threads.get_mut(thread) {
                known.since = now;
            }
        }
        std::mem::take(&mut self.changes)
    }
}

/// A window of twice what is needed.
fn twice(bytes: u32) -> u32 {
    let enough = bytes.saturating_mul(2).max(SMALLEST);
    enough.checked_next_power_of_two().unwrap_or(WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1);

    fn walk(windows: &mut Windows, times: u32, copied: u32, needed: Needed) {
        for _ in 0..times {
            windows.walked(Pid(7), NOW, copied, needed);
        }
    }

    fn told(windows: &mut Windows) -> Vec<Option<(u32, bool)>> {
        let changes = windows.take_changes(NOW).into_iter();
        let of = |(thread, window): (Pid, Option<Window>)| {
            assert_eq!(thread, Pid(7));
            window.map(|w| (w.bytes, w.also_walk))
        };
        changes.map(of).collect()
    }

    #[test]
    fn a_window_shrinks_to_what_is_needed_and_grows_at_once() {
        let mut windows = Windows::default();
        walk(&mut windows, 1000, 4000, Needed::Bytes(3000));
        assert_eq!(told(&mut windows), [], "small ones are left alone");
        walk(&mut windows, 63, WINDOW, Needed::Bytes(100));
        assert_eq!(told(&mut windows), []);
        walk(&mut windows, 1, WINDOW, Needed::Bytes(2500));
        assert_eq!(told(&mut windows), [Some((8 << 10, false))]);
        walk(&mut windows, 64, 8 << 10, Needed::Bytes(100));
        assert_eq!(told(&mut windows), [Some((4 << 10, false))]);
        walk(&mut windows, 1, 4 << 10, Needed::More);
        assert_eq!(told(&mut windows), [None]);
        walk(&mut windows, 255, WINDOW, Needed::Bytes(100));
        assert_eq!(told(&mut windows), [], "once bitten");
        walk(&mut windows, 1, WINDOW, Needed::Bytes(100));
        assert_eq!(told(&mut windows), [Some((4 << 10, false))]);
        walk(&mut windows, 256, WINDOW, Needed::Bytes(WINDOW / 2 + 8));
        assert_eq!(told(&mut windows), [None]);
    }

    /// A stack that ends elsewhere, like that of a signal handler, is not there to be copied, and needs no larger window.
    #[test]
    fn a_copy_that_is_smaller_than_its_window_grows_by_no_other() {
        let mut windows = Windows::default();
        walk(&mut windows, 64, WINDOW, Needed::Bytes(100));
        assert_eq!(told(&mut windows), [Some((4 << 10, false))]);
        walk(&mut windows, 100, 2000, Needed::More);
        assert_eq!(told(&mut windows), []);
    }

    /// What is deeper than any window costs no more than it has to; now and then it is tried again.
    #[test]
    fn the_largest_window_is_given_up_when_it_is_never_enough() {
        let mut windows = Windows::default();
        walk(&mut windows, 63, WINDOW, Needed::More);
        assert_eq!(told(&mut windows), []);
        walk(&mut windows, 1, WINDOW, Needed::More);
        assert_eq!(told(&mut windows), [Some((32 << 10, false))]);
        walk(&mut windows, AGAIN, 32 << 10, Needed::More);
        assert_eq!(told(&mut windows), []);
        walk(&mut windows, 1, 32 << 10, Needed::More);
        assert_eq!(told(&mut windows), [None]);
    }

    #[test]
    fn frame_pointers_are_followed_where_a_copy_is_not_enough() {
        let mut windows = Windows::new(true);
        walk(&mut windows, 1, 2000, Needed::Other);
        assert_eq!(told(&mut windows), [Some((WINDOW, true))]);
        walk(&mut windows, 63, 2000, Needed::Bytes(1000));
        walk(&mut windows, 1, WINDOW, Needed::More);
        assert_eq!(told(&mut windows), []);
        walk(&mut windows, 64, 2000, Needed::Bytes(1000));
        assert_eq!(told(&mut windows), [Some((4 << 10, false))]);
        walk(&mut windows, 1, 4 << 10, Needed::More);
        assert_eq!(told(&mut windows), [Some((WINDOW, true))]);
        let mut without = Windows::default();
        walk(&mut without, 1, 2000, Needed::Other);
        assert_eq!(told(&mut without), []);
    }

    fn told_beyond(windows: &mut Windows) -> Vec<Option<(u32, Option<u64>)>> {
        let changes = windows.take_changes(NOW).into_iter();
        changes
            .map(|(_, window)| window.map(|w| (w.bytes, w.beyond)))
            .collect()
    }

    /// What lies above a frame that is larger than any copy is copied as long as that is of use.
    #[test]
    fn what_lies_beyond_a_large_frame_is_copied_too() {
        let mut windows = Windows::new(true);
        walk(&mut windows, 1, WINDOW, Needed::Gap(3000, 0x9_0088));
        let first = Some((8 << 10, Some(0x9_0008)));
        assert_eq!(told_beyond(&mut windows), [first]);
        walk(&mut windows, 1000, 8 << 10, Needed::Beyond);
        assert_eq!(told_beyond(&mut windows), []);
        // It is deeper below the large frame, and then the frame is elsewhere.
        walk(&mut windows, 1, 8 << 10, Needed::More);
        walk(&mut windows, 1, 32 << 10, Needed::Gap(100, 0x8_0080));
        let then = [
            Some((32 << 10, Some(0x9_0008))),
            Some((32 << 10, Some(0x8_0000))),
        ];
        assert_eq!(told_beyond(&mut windows), then);
        // The function has returned.
        walk(&mut windows, 1 << 16, 2000, Needed::Bytes(1000));
        assert_eq!(told_beyond(&mut windows), [Some((4 << 10, None))]);
        // It is never of use.
        for at in 0..u64::from(VAIN) {
            walk(&mut windows, 1, 4 << 10, Needed::Gap(100, at << 20));
            let told = [Some((8 << 10, Some((at << 20).saturating_sub(SAVED))))];
            assert_eq!(told_beyond(&mut windows), told);
        }
        walk(&mut windows, AGAIN - 1, 32 << 10, Needed::Gap(100, 1 << 20));
        assert_eq!(told_beyond(&mut windows), [Some((32 << 10, None))]);
    }

    /// Samples that were taken before the sampling program was told do not show that it was told in vain.
    #[test]
    fn what_was_copied_before_it_was_told_is_not_in_vain() {
        let mut windows = Windows::new(true);
        let gap = Needed::Gap(100, 0x9_0080);
        walk(&mut windows, 1000, 9 << 10, gap);
        let told = Some((8 << 10, Some(0x9_0000)));
        assert_eq!(told_beyond(&mut windows), [told]);
        for _ in 0..1000 {
            windows.walked(Pid(7), Timestamp(0), 9 << 10, gap);
        }
        assert_eq!(told_beyond(&mut windows), []);
        walk(&mut windows, VAIN, 8 << 10, gap);
        let given_up = Some((32 << 10, None));
        assert_eq!(told_beyond(&mut windows), [given_up]);
    }

    /// A thread that has a large frame at times keeps room for its other stacks.
    #[test]
    fn other_stacks_than_that_with_the_large_frame_keep_their_room() {
        let (deep, gap) = (Needed::Bytes(9000), Needed::Gap(100, 0x9_0080));
        let told = |bytes| Some((bytes, Some(0x9_0000)));
        // Seen before the large frame, or behind it by what was copied before.
        let mut before = Windows::new(true);
        walk(&mut before, 1, 9 << 10, deep);
        walk(&mut before, 1, 9 << 10, gap);
        assert_eq!(told_beyond(&mut before), [told(32 << 10)]);
        let mut behind = Windows::new(true);
        walk(&mut behind, 1, 9 << 10, gap);
        walk(&mut behind, 10, 9 << 10, deep);
        assert_eq!(told_beyond(&mut behind), [told(8 << 10), told(32 << 10)]);
        // As it was learnt without.
        let mut learnt = Windows::new(true);
        walk(&mut learnt, PATIENCE, WINDOW, deep);
        walk(&mut learnt, 1, 9 << 10, gap);
        let first = Some((32 << 10, None));
        assert_eq!(told_beyond(&mut learnt), [first, told(32 << 10)]);
    }

    /// A handler that has a stack of its own says nothing of the thread's.
    #[test]
    fn what_a_signal_interrupted_changes_nothing() {
        let mut windows = Windows::new(true);
        walk(&mut windows, 1000, WINDOW, Needed::Beyond);
        assert_eq!((told(&mut windows).len(), windows.threads.len()), (0, 0));
    }

    #[test]
    fn the_sampling_program_is_told_in_its_own_layout() {
        use crate::record::bpf::types::window;
        let bytes = Window {
            bytes: 4096,
            also_walk: true,
            beyond: Some(0x1234_5678_9abc),
        }
        .encode();
        // SAFETY: plain integers, of which there are as many bytes.
        let there: window = unsafe { std::mem::transmute(bytes) };
        let found = (there.beyond, there.bytes, there.also_walk);
        assert_eq!(found, (0x1234_5678_9abc, 4096, 1));
    }

    #[test]
    fn threads_are_bounded() {
        let mut windows = Windows::default();
        walk(&mut windows, 64, WINDOW, Needed::Bytes(100));
        for thread in 100..100 + THREADS as u32 {
            windows.walked(Pid(thread), NOW, WINDOW, Needed::Bytes(100));
        }
        assert!(windows.threads.len() <= THREADS);
        assert_eq!(told(&mut windows), [Some((4 << 10, false)), None]);
    }
}
