//! Records with copied stacks, kept until what their processes had mapped is known.

use crate::event::Timestamp;

/// What may wait at one time, in words (32 MiB). Rings hold no more but on machines with many CPUs.
const MOST: usize = 4 << 20;

/// The records.
#[derive(Default)]
pub struct Held {
    words: Vec<u64>,
    /// Time, place and length in `words`, weight.
    records: Vec<(Timestamp, usize, usize, u32)>,
}

impl Held {
    /// Keeps a record, which is words as those of a ring are. `false` when there is no room for it.
    pub fn push(&mut self, time: Timestamp, weight: u32, record: &[u8]) -> bool {
        let count = record.len() / 8;
        if self.words.len() + count > MOST {
            return false;
        }
        let at = self.words.len();
        // SAFETY: any eight bytes are a u64.
        match unsafe { record.align_to::<u64>() } {
            ([], words, _) => self.words.extend_from_slice(words),
            _ => {
                let (words, _) = record.as_chunks();
                self.words
                    .extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
            }
        }
        self.records.push((time, at, count, weight));
        true
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What their samples count for together.
    pub fn weight(&self) -> u64 {
        self.records.iter().map(|r| u64::from(r.3)).sum()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.words.clear();
        self.records.clear();
    }

    /// The records up to `horizon`, which are then to be [dropped](Self::drop_until).
    pub fn until(&self, horizon: Timestamp) -> impl Iterator<Item = &[u8]> {
        let ready = self.records.iter().filter(move |r| r.0 <= horizon);
        ready.filter_map(|(_, at, count, _)| {
            let words = self.words.get(*at..at + count)?;
            // SAFETY: a u64 is eight bytes.
            Some(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) })
        })
    }

    /// Drops the records up to `horizon`.
    pub fn drop_until(&mut self, horizon: Timestamp) {
        let (words, mut kept) = (&mut self.words, 0);
        self.records.retain_mut(|(time, at, count, _)| {
            let stays = *time > horizon;
            if stays {
                words.copy_within(*at..*at + *count, kept);
                *at = kept;
                kept += *count;
            }
            stays
        });
        words.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_wait_for_their_time_and_come_once() {
        let record = |n: u8, words: usize| vec![n; 8 * words];
        let mut held = Held::default();
        for (time, n, words) in [(5, 1, 2), (9, 2, 3), (6, 3, 1), (7, 4, 4)] {
            assert!(held.push(Timestamp(time), 2, &record(n, words)));
        }
        let take = |held: &mut Held, until| {
            let taken: Vec<_> = held.until(Timestamp(until)).map(<[u8]>::to_vec).collect();
            held.drop_until(Timestamp(until));
            taken
        };
        assert_eq!(held.weight(), 8);
        assert_eq!(take(&mut held, 4), Vec::<Vec<u8>>::new());
        assert_eq!(take(&mut held, 6), [record(1, 2), record(3, 1)]);
        assert!(held.push(Timestamp(8), 2, &record(5, 2)));
        assert_eq!(take(&mut held, 8), [record(4, 4), record(5, 2)]);
        assert_eq!((held.len(), held.words.len()), (1, 3));
        assert_eq!(take(&mut held, 100), [record(2, 3)]);
        assert!(held.is_empty() && held.words.is_empty());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut held = Held::default();
        let record = vec![0; 32 << 10];
        let fit = (0..2000).take_while(|_| held.push(Timestamp(1), 1, &record));
        assert_eq!(fit.count(), 1024);
    }
}
