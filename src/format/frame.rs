//! The zstd frames: content checksum and content size are always there, one frame for one descriptor.

use zstd::bulk::Decompressor;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective as Directive;
use zstd::zstd_safe::{
    self, CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, Strategy,
};

use super::error::{FormatError, Problem};
use super::limits;
use super::payload::Payload;

/// For columns: most of a frame is numbers without order, of which runs of three to five bytes come again by chance and cost more
/// as repetitions than as what they are. A late look at the next byte finds the longer of two runs. Tables and window are of
/// the size of a frame, so that little memory is touched for each.
const FOR_COLUMNS: [CParameter; 6] = [
    CParameter::Strategy(Strategy::ZSTD_lazy),
    CParameter::MinMatch(6),
    CParameter::WindowLog(17),
    CParameter::HashLog(14),
    CParameter::ChainLog(14),
    CParameter::SearchLog(3),
];

/// Makes zstd frames.
pub struct FrameCompressor {
    zstd: CCtx<'static>,
    ends: Vec<usize>,
}

impl FrameCompressor {
    /// With a zstd level (see [`zstd::compression_level_range`]).
    pub fn new(level: i32) -> std::io::Result<FrameCompressor> {
        Self::with(&[CParameter::CompressionLevel(level)])
    }

    /// With what suits the frames of a recording: smaller than with level 3, in the same time and with less memory.
    pub fn for_columns() -> std::io::Result<FrameCompressor> {
        Self::with(&FOR_COLUMNS)
    }

    fn with(parameters: &[CParameter]) -> std::io::Result<FrameCompressor> {
        let mut zstd = CCtx::try_create().ok_or(std::io::ErrorKind::OutOfMemory)?;
        let always = [
            CParameter::ChecksumFlag(true),
            CParameter::ContentSizeFlag(true),
        ];
        for parameter in parameters.iter().copied().chain(always) {
            let set = zstd.set_parameter(parameter);
            set.map_err(|code| std::io::Error::other(zstd_safe::get_error_name(code)))?;
        }
        Ok(FrameCompressor {
            zstd,
            ends: Vec::new(),
        })
    }

    /// Replaces `out` by `content` as one zstd frame.
    pub fn compress(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.ends.clear();
        self.compress_parts(content, out)
    }

    /// As [`FrameCompressor::compress`], with blocks that end at the payload's seams.
    pub fn compress_payload(
        &mut self,
        payload: &Payload,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        payload.parts(&mut self.ends);
        self.compress_parts(payload.as_slice(), out)
    }

    /// `content` with blocks that end at `self.ends`, and at its end.
    fn compress_parts(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        let value = content.len() as u64;
        let limit = limits::FRAME_CONTENT;
        if value > limit {
            return Err(error(Problem::OverLimit {
                what: "content size",
                value,
                limit,
            }));
        }
        out.clear();
        // What zstd wants for the whole, and the head of each block.
        out.reserve(zstd_safe::compress_bound(content.len()) + 8 * self.ends.len());
        let zstd = &mut self.zstd;
        zstd.reset(ResetDirective::SessionOnly).map_err(failed)?;
        zstd.set_pledged_src_size(Some(value)).map_err(failed)?;
        let mut out = OutBuffer::around(out);
        let mut rest = content;
        let mut start = 0;
        for end in &self.ends {
            let part = rest.split_at_checked(end.saturating_sub(start));
            let Some((part, behind)) = part.filter(|(_, behind)| !behind.is_empty()) else {
                break;
            };
            feed(zstd, &mut out, part, Directive::ZSTD_e_flush)?;
            (rest, start) = (behind, *end);
        }
        feed(zstd, &mut out, rest, Directive::ZSTD_e_end)?;
        let value = out.pos() as u64;
        let limit = limits::FRAME_COMPRESSED;
        if value > limit {
            return Err(error(Problem::OverLimit {
                what: "compressed size",
                value,
                limit,
            }));
        }
        Ok(())
    }
}

/// Compresses all of `part`, up to and with what `directive` says.
fn feed(
    zstd: &mut CCtx<'static>,
    out: &mut OutBuffer<'_, Vec<u8>>,
    part: &[u8],
    directive: Directive,
) -> Result<(), FormatError> {
    let mut input = InBuffer::around(part);
    loop {
        let (taken, given) = (input.pos, out.pos());
        let left = zstd
            .compress_stream2(out, &mut input, directive)
            .map_err(failed)?;
        if left == 0 && input.pos == part.len() {
            return Ok(());
        }
        if (taken, given) == (input.pos, out.pos()) {
            let text = "no room for the compressed bytes".to_owned();
            return Err(error(Problem::Zstd(text)));
        }
    }
}

/// Most bytes that a beginning grows by at once: how long content says it is need not be true.
const STEP: usize = 1 << 20;

/// Reads zstd frames.
pub struct FrameDecompressor {
    zstd: Decompressor<'static>,
    /// For beginnings.
    stream: Option<DCtx<'static>>,
}

impl FrameDecompressor {
    /// Fails only when memory does.
    pub fn new() -> std::io::Result<FrameDecompressor> {
        Ok(FrameDecompressor {
            zstd: Decompressor::new()?,
            stream: None,
        })
    }

    /// Replaces `out` by the content of `frame`: exactly one zstd frame, of exactly `size` bytes, which the
    /// frame itself must say too before anything is allocated.
    pub fn decompress(
        &mut self,
        frame: &[u8],
        size: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        out.clear();
        check_size(frame, size)?;
        let len = zstd_safe::find_frame_compressed_size(frame).map_err(failed)?;
        if len != frame.len() {
            let count = frame.len().saturating_sub(len) as u64;
            return Err(error(Problem::LeftOver {
                what: "zstd frame",
                count,
            }));
        }
        out.reserve_exact(size as usize);
        self.zstd
            .decompress_to_buffer(frame, out)
            .map_err(zstd_error)?;
        if out.len() as u64 != size {
            let value = out.len() as u64;
            return Err(error(Problem::BadValue {
                what: "content size",
                value,
            }));
        }
        Ok(())
    }

    /// Replaces `out` by the beginning of the content of `frame`, which has `size` bytes in all: `needs` is shown what there
    /// is, from nothing on, and says how many bytes it needs, until it has them. Blocks behind those are not
    /// decompressed, and the content's checksum is not compared.
    pub fn decompress_start(
        &mut self,
        frame: &[u8],
        size: u64,
        out: &mut Vec<u8>,
        mut needs: impl FnMut(&[u8]) -> usize,
    ) -> Result<(), FormatError> {
        out.clear();
        check_size(frame, size)?;
        let zstd = match &mut self.stream {
            Some(zstd) => zstd,
            none => {
                let text = || error(Problem::Zstd("no memory".to_owned()));
                none.insert(DCtx::try_create().ok_or_else(text)?)
            }
        };
        zstd.reset(ResetDirective::SessionOnly).map_err(failed)?;
        let mut input = InBuffer::around(frame);
        loop {
            let needed = needs(out).min(size as usize);
            if needed <= out.len() {
                return Ok(());
            }
            while out.len() < needed {
                let (have, taken) = (out.len(), input.pos);
                out.resize(needed.min(have + STEP), 0);
                let mut room = OutBuffer::around_pos(&mut out[..], have);
                zstd.decompress_stream(&mut room, &mut input)
                    .map_err(failed)?;
                let len = room.pos();
                out.truncate(len);
                if (have, taken) == (len, input.pos) {
                    let text = "the frame ends before its content".to_owned();
                    return Err(error(Problem::Zstd(text)));
                }
            }
        }
    }
}

/// Whether a frame says that its content has `size` bytes, and that is within the limit.
fn check_size(frame: &[u8], size: u64) -> Result<(), FormatError> {
    let limit = limits::FRAME_CONTENT;
    if size > limit {
        return Err(error(Problem::OverLimit {
            what: "content size",
            value: size,
            limit,
        }));
    }
    let declared = zstd_safe::get_frame_content_size(frame)
        .map_err(|_| error(Problem::Zstd("not a zstd frame".to_owned())))?;
    if declared != Some(size) {
        let value = declared.unwrap_or(u64::MAX);
        return Err(error(Problem::BadValue {
            what: "content size of the zstd frame",
            value,
        }));
    }
    Ok(())
}

fn failed(code: usize) -> FormatError {
    error(Problem::Zstd(zstd_safe::get_error_name(code).to_owned()))
}

fn zstd_error(err: std::io::Error) -> FormatError {
    error(Problem::Zstd(err.to_string()))
}

fn error(problem: Problem) -> FormatError {
    FormatError::new("zstd frame", 0, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        FrameCompressor::new(3)
            .unwrap()
            .compress(content, &mut out)
            .unwrap();
        out
    }

    fn content(frame: &[u8], size: u64) -> Result<Vec<u8>, FormatError> {
        let mut out = Vec::new();
        FrameDecompressor::new()
            .unwrap()
            .decompress(frame, size, &mut out)
            .map(|()| out)
    }

    #[test]
    fn content_survives_and_its_size_must_be_the_one_announced() {
        let text = b"abcabcabcabc".repeat(100);
        let frame = frame(&text);
        assert_eq!(content(&frame, 1200), Ok(text));
        assert!(content(&frame, 1199).is_err());
        assert!(content(&frame, 1201).is_err());
        assert_eq!(content(&self::frame(b""), 0), Ok(vec![]));
    }

    #[test]
    fn parts_of_a_payload_are_one_frame() {
        use crate::format::payload::Out;
        let noise = |bits: u32, seed: u32| {
            let byte = move |i: u32| ((i + seed).wrapping_mul(0x9E37_79B1) >> (32 - bits)) as u8;
            (0..4000).map(byte)
        };
        let mut payload = Payload::default();
        for (i, bits) in [8, 1, 4, 2].into_iter().enumerate() {
            payload.bytes().extend(noise(bits, i as u32));
            payload.seam();
        }
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        let mut zstd = FrameCompressor::new(3).unwrap();
        zstd.compress(payload.as_slice(), &mut whole).unwrap();
        for _ in 0..2 {
            zstd.compress_payload(&payload, &mut parts).unwrap();
            assert_eq!(content(&parts, 16_000).as_deref(), Ok(payload.as_slice()));
            assert_ne!(parts, whole);
        }
        zstd.compress_payload(&Payload::default(), &mut parts)
            .unwrap();
        assert_eq!(content(&parts, 0), Ok(vec![]));
    }

    #[test]
    fn of_a_start_no_block_behind_it_is_decompressed() {
        use crate::format::payload::Out;
        let mut payload = Payload::default();
        for byte in 0..4u8 {
            // Letters of a few kinds without a pattern: neither one run nor raw bytes.
            let letter = |i: u32| byte * 16 + (i.wrapping_mul(0x9E37_79B1) >> 29) as u8;
            payload.bytes().extend((0..4000).map(letter));
            payload.seam();
        }
        let mut frame = Vec::new();
        let mut zstd = FrameCompressor::new(3).unwrap();
        zstd.compress_payload(&payload, &mut frame).unwrap();
        let start = |frame: &[u8], needed: usize| {
            let mut out = vec![7];
            let mut zstd = FrameDecompressor::new().unwrap();
            // Again with the same buffers.
            for _ in 0..2 {
                let asked = |have: &[u8]| needed.min(have.len() + 1000);
                zstd.decompress_start(frame, 16_000, &mut out, asked)?;
            }
            Ok::<_, FormatError>(out)
        };
        let whole = payload.as_slice();
        for needed in [0, 1, 4000, 8001, 16_000, usize::MAX] {
            let len = needed.min(16_000);
            assert_eq!(start(&frame, needed).as_deref(), Ok(&whole[..len]));
        }
        // Nothing of what is behind the half is right.
        let half = frame.len() / 2;
        frame[half + 200..].fill(0x55);
        assert_eq!(start(&frame, 8000).as_deref(), Ok(&whole[..8000]));
        assert!(start(&frame, 16_000).is_err());
        frame.truncate(half);
        assert!(start(&frame, 16_000).is_err());
        assert!(
            FrameDecompressor::new()
                .unwrap()
                .decompress_start(&frame, 15_999, &mut Vec::new(), |_| 1)
                .is_err()
        );
    }

    #[test]
    fn frames_without_a_size_two_frames_and_bombs_are_refused() {
        let two = [frame(b"a"), frame(b"b")].concat();
        let problem = Problem::LeftOver {
            what: "zstd frame",
            count: frame(b"b").len() as u64,
        };
        assert_eq!(content(&two, 1).unwrap_err().problem, problem);
        let mut stream = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        std::io::Write::write_all(&mut stream, b"abc").unwrap();
        assert!(content(&stream.finish().unwrap(), 3).is_err());
        let mut bomb = zstd::bulk::Compressor::new(19).unwrap();
        let bomb = bomb
            .compress(&vec![0; limits::FRAME_CONTENT as usize + 1])
            .unwrap();
        assert!(bomb.len() < 100_000);
        assert!(content(&bomb, limits::FRAME_CONTENT + 1).is_err());
        assert!(content(&bomb, limits::FRAME_CONTENT).is_err());
    }

    #[test]
    fn flipped_bits_never_change_the_content() {
        let text: Vec<u8> = (0..=255).collect();
        let frame = frame(&text);
        let mut unnoticed = 0;
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            if let Some(byte) = flipped.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            match content(&flipped, 256) {
                Ok(content) if content == text => unnoticed += 1,
                Ok(other) => panic!("bit {bit} gave {other:?}"),
                Err(_) => {}
            }
        }
        // zstd's frame header has one bit without a meaning; the descriptor's checksum covers it.
        assert_eq!(unnoticed, 1);
    }
}
