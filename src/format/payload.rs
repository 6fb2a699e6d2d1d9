//! The content of a frame while it is written, with its seams: where numbers of one sort end and others begin.
//!
//! zstd codes the bytes of a block by how often each comes there. Times are noise and chain lengths are nearly all
//! alike: apart they take a tenth less than together. Seams say where a new block may pay, which depends on how much there is
//! of each: a block brings its table of codes. A reader sees nothing of them.

use super::cost::Bytes;

/// So many bytes are a part of their own: what is beside them changes little.
const LARGE: usize = 8 << 10;

/// What encoders append to.
pub trait Out {
    /// What is there, to be appended to.
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Bytes of another sort follow.
    fn seam(&mut self);
}

/// Bytes whose seams nobody asks for.
impl Out for Vec<u8> {
    fn bytes(&mut self) -> &mut Vec<u8> {
        self
    }

    fn seam(&mut self) {}
}

/// Bytes and their seams.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    bytes: Vec<u8>,
    /// Ascending. Bytes may have been cut off again, so the last ones may be beyond the end.
    seams: Vec<usize>,
}

impl Payload {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all; memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.seams.clear();
    }

    /// Replaces `ends` by where parts end: at those seams where two blocks are expected to take less than one. The last part
    /// ends with the bytes; without bytes there is none.
    pub fn parts(&self, ends: &mut Vec<usize>) {
        ends.clear();
        let len = self.bytes.len();
        let mut start = 0;
        let mut last = 0;
        // Of the part that is growing; `None` when that is large.
        let mut part = Some((Bytes::default(), 0.0));
        for seam in self.seams.iter().copied().chain([len]) {
            let seam = seam.clamp(last, len);
            if seam == last {
                continue;
            }
            let piece = self.bytes.get(last..seam).filter(|p| p.len() < LARGE);
            let piece = piece.map(Bytes::of).map(|p| (p.block(), p));
            let joined = part
                .zip(piece.as_ref())
                .and_then(|((part, cost), (more, piece))| {
                    let both = part.and(piece);
                    let block = both.block();
                    (block <= cost + more).then_some((both, block))
                });
            let goes_on = joined.is_some();
            if !goes_on && last > start {
                ends.push(last);
                start = last;
            }
            part = joined.or_else(|| piece.map(|(cost, piece)| (piece, cost)));
            last = seam;
        }
        ends.push(len);
        ends.retain(|end| *end > 0);
    }
}

impl Out for Payload {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn seam(&mut self) {
        let at = self.bytes.len();
        while self.seams.pop_if(|seam| *seam >= at).is_some() {}
        self.seams.push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where parts end, with a seam behind each piece.
    fn parts(pieces: &[&[u8]]) -> Vec<usize> {
        let mut payload = Payload::default();
        for piece in pieces {
            payload.bytes().extend_from_slice(piece);
            payload.seam();
        }
        let mut ends = vec![7];
        payload.parts(&mut ends);
        ends
    }

    /// A thousand bytes, and as many without one of those.
    fn unlike() -> (Vec<u8>, Vec<u8>) {
        let low: Vec<u8> = (0..1000u32).map(|i| (i * i % 37) as u8).collect();
        let high = low.iter().map(|byte| byte | 0x80).collect();
        (low, high)
    }

    #[test]
    fn what_is_alike_or_small_stays_together() {
        let (low, high) = unlike();
        assert_eq!(parts(&[]), [0; 0]);
        assert_eq!(parts(&[&[1, 2, 3]]), [3]);
        assert_eq!(parts(&[&low, &low]), [2000], "alike");
        assert_eq!(parts(&[&low, &high]), [1000, 2000]);
        assert_eq!(parts(&[&low, &high[..3], &[], &low]), [2003], "small");
        assert_eq!(parts(&[&low[..20], &high[..20]]), [40]);
        let large = low.repeat(9);
        assert_eq!(parts(&[&large, &large, &low]), [9000, 18_000, 19_000]);
        assert_eq!(parts(&[&low, &large]), [1000, 10_000]);
    }

    #[test]
    fn what_is_cut_off_has_no_seams() {
        let (low, high) = unlike();
        let mut payload = Payload::default();
        payload.bytes().extend(&low);
        payload.seam();
        payload.bytes().extend(&high);
        payload.seam();
        payload.bytes().truncate(1000);
        let mut ends = Vec::new();
        payload.parts(&mut ends);
        assert_eq!(ends, [1000]);
        payload.bytes().truncate(700);
        payload.seam();
        payload.bytes().extend(&high);
        payload.parts(&mut ends);
        assert_eq!(ends, [700, 1700]);
    }
}
