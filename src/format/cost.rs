//! What bytes are expected to take when zstd codes each by how often it comes, repeated runs left aside.

/// The head of a block.
const BLOCK: f32 = 3.0;
/// zstd codes no byte in more bits,
const LONGEST_CODE: f32 = 11.0;
/// and nothing that is shorter.
const SHORTEST_CODED: u32 = 64;

/// How often each byte comes.
#[derive(Debug, Clone)]
pub struct Bytes {
    counts: [u32; 256],
    len: u32,
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes {
            counts: [0; 256],
            len: 0,
        }
    }
}

impl Bytes {
    /// Counts `bytes`.
    pub fn of(bytes: &[u8]) -> Bytes {
        let mut counted = Bytes::default();
        bytes.iter().for_each(|byte| counted.add(*byte));
        counted
    }

    /// One more.
    pub fn add(&mut self, byte: u8) {
        if let Some(count) = self.counts.get_mut(byte as usize) {
            *count += 1;
            self.len += 1;
        }
    }

    /// Those of both.
    pub fn and(&self, other: &Bytes) -> Bytes {
        let mut sum = self.clone();
        sum.len += other.len;
        let pairs = sum.counts.iter_mut().zip(&other.counts);
        pairs.for_each(|(sum, more)| *sum += more);
        sum
    }

    /// Bytes of a block that holds them and nothing else.
    pub fn block(&self) -> f32 {
        let len = self.len as f32;
        let present = (0u16..).zip(&self.counts).filter(|(_, count)| **count > 0);
        let (mut bits, mut distinct, mut last) = (0.0, 0.0, 0.0);
        for (byte, count) in present {
            let count = *count as f32;
            bits += count * (len / count).log2().clamp(1.0, LONGEST_CODE);
            distinct += 1.0;
            last = f32::from(byte);
        }
        if distinct <= 1.0 {
            return if len > 0.0 { BLOCK + 1.0 } else { 0.0 };
        }
        if self.len < SHORTEST_CODED {
            return BLOCK + 1.0 + len;
        }
        // The lengths of the codes: four bits for each byte up to the last, or those in turn coded by how often they come.
        let table = (last / 2.0).min(5.0 + distinct / 3.0);
        // Of the literals, and where their streams of codes begin; and that nothing is repeated.
        let heads = if self.len < 256 { 3.0 } else { 11.0 };
        BLOCK + (heads + table + bits / 8.0).min(1.0 + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::frame::FrameCompressor;

    /// Numbers without order: there is nothing repeated in them.
    fn noise(len: usize, values: u64) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % values
        };
        (0..len).map(|_| next() as u8).collect()
    }

    #[test]
    fn blocks_take_about_what_is_expected() {
        let frame = |bytes: &[u8]| {
            let mut out = Vec::new();
            let mut zstd = FrameCompressor::for_columns().unwrap();
            zstd.compress(bytes, &mut out).unwrap();
            // Magic, descriptor, size of the content (in one byte up to 255) and checksum.
            out.len() as f32 - if bytes.len() < 256 { 10.0 } else { 11.0 }
        };
        for values in [20, 100, 128, 200, 256] {
            for len in [10, 100, 300, 1000, 3000, 20_000] {
                let bytes = noise(len, values);
                let (expected, real) = (Bytes::of(&bytes).block(), frame(&bytes));
                let most = 12.0 + real * 0.1;
                assert!(
                    (expected - real).abs() <= most,
                    "{len} bytes of {values}: {expected}, not {real}"
                );
            }
        }
        assert_eq!(Bytes::of(&[7; 1000]).block(), 4.0);
        assert_eq!(Bytes::default().block(), 0.0);
    }

    #[test]
    fn both_are_counted_together() {
        let (a, b) = (noise(500, 40), noise(700, 3));
        let both = Bytes::of(&a).and(&Bytes::of(&b));
        assert_eq!(both.block(), Bytes::of(&[a, b].concat()).block());
    }
}
