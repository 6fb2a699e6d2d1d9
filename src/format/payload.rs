//! The content of a frame while it is written, with its seams: where numbers of one sort end and others begin.
//!
//! zstd codes the bytes of a block by how often each comes there. Times are noise and chain lengths are nearly all
//! alike: apart they take a tenth less than together. Seams say where a new block pays; a reader sees nothing of them.

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

    /// Replaces `ends` by where parts end: seams, but those that would make a part of less than `least` bytes beside
    /// other small ones. The last part ends with the bytes; without bytes there is none.
    pub fn parts(&self, least: usize, ends: &mut Vec<usize>) {
        ends.clear();
        let len = self.bytes.len();
        let mut last = 0;
        for seam in self.seams.iter().copied().chain([len]) {
            let seam = seam.clamp(last, len);
            if seam - last >= least {
                // What is small and lies before it stays together.
                ends.push(last);
                ends.push(seam);
            }
            last = seam;
        }
        ends.push(len);
        ends.dedup();
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

    fn parts(lengths: &[usize], least: usize) -> Vec<usize> {
        let mut payload = Payload::default();
        for length in lengths {
            let len = payload.bytes.len() + length;
            payload.bytes().resize(len, 0);
            payload.seam();
        }
        let mut ends = vec![7];
        payload.parts(least, &mut ends);
        ends
    }

    #[test]
    fn small_parts_stay_together() {
        assert_eq!(parts(&[], 10), [0; 0]);
        assert_eq!(parts(&[3], 10), [3]);
        assert_eq!(parts(&[3, 3, 30, 3, 3, 20, 40], 10), [6, 36, 42, 62, 102]);
        assert_eq!(parts(&[0, 0, 30, 0, 3], 10), [30, 33]);
    }

    #[test]
    fn what_is_cut_off_has_no_seams() {
        let mut payload = Payload::default();
        payload.bytes().extend([0; 20]);
        payload.seam();
        payload.bytes().extend([0; 20]);
        payload.seam();
        payload.bytes().truncate(20);
        let mut ends = Vec::new();
        payload.parts(1, &mut ends);
        assert_eq!(ends, [20]);
        payload.bytes().truncate(5);
        payload.seam();
        payload.bytes().extend([0; 9]);
        payload.parts(1, &mut ends);
        assert_eq!(ends, [5, 14]);
    }
}
