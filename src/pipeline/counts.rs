//! Samples of a segment by their keys.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::grouping::Contexts;
use super::segment::Key;
use super::tally::Count;

/// Counts by key. Most user stacks occur with one key only: its count is found by the stack's number, and only those of
/// others are looked for.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Packed keys, each once, as they came.
    list: Vec<(u128, Count)>,
    /// By user stack: where in `list` the first key with it is, and 1; 0 where there is none yet.
    first: Vec<u32>,
    others: HashMap<u128, u32, FixedState>,
}

impl Counts {
    /// Makes room for user stacks below `count`.
    pub fn resize(&mut self, count: usize) {
        if self.first.len() < count {
            self.first.resize(count, 0);
        }
    }

    /// Counts a sample of `weight`.
    #[inline]
    pub fn add(&mut self, key: Key, weight: u64) {
        let packed = key.pack();
        let next = self.list.len() as u32;
        let count = Count { samples: 1, weight };
        let at = match self.first.get_mut(key.user as usize) {
            Some(first) if *first == 0 => {
                *first = next.saturating_add(1);
                next
            }
            Some(first) => match self.list.get_mut(*first as usize - 1) {
                Some((known, sum)) if *known == packed => return sum.add(count),
                _ => *self.others.entry(packed).or_insert(next),
            },
            None => *self.others.entry(packed).or_insert(next),
        };
        match self.list.get_mut(at as usize) {
            Some((_, sum)) => sum.add(count),
            None => self.list.push((packed, count)),
        }
    }

    /// Each key once with its context, ascending by key and then by context; nothing is counted after it. Where `contexts` are
    /// given, they are what the keys have in place of views.
    pub fn take_sorted(
        &mut self,
        contexts: Option<&Contexts>,
    ) -> impl Iterator<Item = (Key, u32, Count)> + '_ {
        self.first.clear();
        self.others.clear();
        let mut of_contexts = Vec::new();
        match contexts {
            None => self.list.sort_unstable_by_key(|(key, _)| *key),
            Some(contexts) => {
                of_contexts.extend(self.list.drain(..).map(|(packed, count)| {
                    let key = Key::unpack(packed);
                    let (view, _) = contexts.of(key.view);
                    (Key { view, ..key }.pack(), key.view, count)
                }));
                of_contexts.sort_unstable_by_key(|(key, context, _)| (*key, *context));
            }
        }
        let of_views = self.list.drain(..).map(|(packed, count)| {
            let key = Key::unpack(packed);
            (key, key.view, count)
        });
        let of_contexts = of_contexts
            .into_iter()
            .map(|(packed, context, count)| (Key::unpack(packed), context, count));
        of_views.chain(of_contexts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(view: u32, user: u32, kernel: u32) -> Key {
        Key {
            view,
            user,
            kernel,
            foreign: false,
            before_exec: false,
            user_cut: false,
            kernel_cut: false,
            event: 0,
        }
    }

    #[test]
    fn counts_of_a_key_are_put_together_whenever_they_come() {
        let mut counts = Counts::default();
        for round in 0..2 {
            // The last user stack has no room.
            counts.resize(3);
            for i in 0..1000u32 {
                counts.add(key(1, i % 4, i % 3), 2);
                counts.add(key(0, 2, 0), u64::from(i));
            }
            let list: Vec<_> = counts.take_sorted(None).collect();
            assert_eq!(list.len(), 13, "round {round}");
            assert!(list.windows(2).all(|two| two[0].0 < two[1].0));
            assert_eq!(list[0].0, key(0, 2, 0));
            assert_eq!((list[0].2.samples, list[0].2.weight), (1000, 499_500));
            assert_eq!(list[1].0, key(1, 0, 0));
            assert_eq!((list[1].2.samples, list[1].2.weight), (84, 168));
            let all: u64 = list.iter().map(|(.., count)| count.samples).sum();
            assert_eq!(all, 2000);
        }
        assert_eq!(counts.take_sorted(None).count(), 0);
    }

    #[test]
    fn counts_of_contexts_follow_the_key_of_their_view() {
        let (mut counts, mut contexts) = (Counts::default(), Contexts::default());
        counts.resize(10);
        for (view, detail, user) in [(5, 0, 1), (4, 0, 1), (5, 1, 1), (5, 0, 2), (5, 1, 1)] {
            counts.add(key(contexts.number(view, detail), user, 0), 1);
        }
        let list: Vec<_> = counts
            .take_sorted(Some(&contexts))
            .map(|(key, context, count)| (key.view, key.user, contexts.of(context), count.samples))
            .collect();
        let expected = [
            (4, 1, (4, 0), 1),
            (5, 1, (5, 0), 1),
            (5, 1, (5, 1), 2),
            (5, 2, (5, 0), 1),
        ];
        assert_eq!(list, expected);
    }
}
