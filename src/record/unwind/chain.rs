//! Frames of a stack of which only what leads to their callers was copied (`struct chain` of `bpf/profiler.h`): functions that have made
//! the usual frame, of which each has beside the frame pointer of its caller the return address. Pure.

use super::copy::Part;

/// `CHAIN_BITS` of `bpf/profiler.h`.
const BITS: u32 = 48;

/// The frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain<'a> {
    /// Where the frame pointer leads: the first of them.
    pub first: u64,
    /// What the last has for the frame pointer of its caller.
    pub next: u64,
    /// The return address of each, and above it how many words up the next is.
    links: &'a [u64],
    /// What lies above the last.
    pub above: Part<'a>,
}

impl<'a> Chain<'a> {
    /// What follows the top of a stack in a record, and what comes behind it. `None` when that is too short.
    pub fn decode(words: &'a [u64]) -> Option<(Chain<'a>, &'a [u64])> {
        let ([first, next, count], rest) = words.split_first_chunk()?;
        let (links, rest) = rest.split_at_checked(usize::try_from(*count).ok()?)?;
        let (from, bytes, rest) = Part::head(rest)?;
        let (words, rest) = rest.split_at_checked(usize::try_from(bytes / 8).ok()?)?;
        let chain = Chain {
            first: *first,
            next: *next,
            links,
            above: Part { from, words },
        };
        Some((chain, rest))
    }

    /// The return addresses, from the leaf on.
    pub fn addresses(&self) -> impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + 'a {
        self.links.iter().map(|link| link & ((1 << BITS) - 1))
    }

    /// The words at `address`, if they are of these frames.
    pub fn read<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (word, number) in words.iter_mut().zip(0u64..) {
            *word = self.word(address.checked_add(number * 8)?)?;
        }
        Some(words)
    }

    fn word(&self, address: u64) -> Option<u64> {
        let mut frame = self.first;
        let mut links = self.links.iter().peekable();
        while let Some(link) = links.next() {
            let up = frame.checked_add((link >> BITS) * 8)?;
            let caller = if links.peek().is_some() {
                up
            } else {
                self.next
            };
            match address.checked_sub(frame)? {
                0 => return Some(caller),
                8 => return Some(link & ((1 << BITS) - 1)),
                _ => frame = up,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the sampling program puts it into the ring.
    fn words(frames: &[(u64, u64)], next: u64, above: (u64, &[u64])) -> Vec<u64> {
        let mut words = vec![frames[0].0, next, frames.len() as u64];
        let ups = frames.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let ups = ups.chain([0]);
        words.extend(
            frames
                .iter()
                .zip(ups)
                .map(|((_, back), up)| back | ((up / 8) << BITS)),
        );
        words.extend([above.0, above.1.len() as u64 * 8]);
        words.extend_from_slice(above.1);
        words
    }

    #[test]
    fn frames_are_where_they_were() {
        let frames = [(0x7000, 0x401000), (0x7040, 0x402000), (0x7_7000, 0x403000)];
        let mut words = words(&frames, 0x7_8000, (0x7_7010, &[5, 6, 7]));
        let length = words.len();
        words.push(9);
        let (chain, rest) = Chain::decode(&words).expect("a chain");
        assert_eq!(rest, [9]);
        assert_eq!((chain.first, chain.next), (0x7000, 0x7_8000));
        let addresses: Vec<u64> = chain.addresses().collect();
        assert_eq!(addresses, [0x401000, 0x402000, 0x403000]);
        let two = |at| chain.read::<2>(at);
        assert_eq!(two(0x7000), Some([0x7040, 0x401000]));
        assert_eq!(two(0x7040), Some([0x7_7000, 0x402000]));
        assert_eq!(two(0x7_7000), Some([0x7_8000, 0x403000]));
        assert_eq!([0x6ff8, 0x7008, 0x7010, 0x7_7008].map(two), [None; 4]);
        let one = |at| chain.read::<1>(at);
        assert_eq!(one(0x7048), Some([0x402000]));
        assert_eq!([0x7004, 0x7050, 0, u64::MAX].map(one), [None; 4]);
        assert_eq!(chain.above.at(0x7_7018), Some(&[6, 7][..]));
        for length in 0..length {
            assert_eq!(Chain::decode(&words[..length]), None, "{length}");
        }
    }

    /// Numbers that cannot be are refused, or lead nowhere.
    #[test]
    fn other_numbers_do_no_harm() {
        assert_eq!(Chain::decode(&[1, 2, u64::MAX, 4]), None);
        assert_eq!(Chain::decode(&[1, 2, 0, 4, u64::MAX, 5]), None);
        let words = [u64::MAX - 7, 2, 2, u64::MAX, u64::MAX, 4, 8, 5];
        let (chain, _) = Chain::decode(&words).expect("a chain");
        assert_eq!(chain.read::<2>(0), None);
        assert_eq!(chain.read::<1>(u64::MAX), None);
    }
}
