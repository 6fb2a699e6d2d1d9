//! The descriptor in front of each zstd frame: what is in it, without decompressing it.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | 4 bytes | `BPFR` |
//! | 4 | u8 | kind |
//! | 5 | u8 | flags: bit 0 required; others 0, ignored |
//! | 6 | u16 | 0, ignored |
//! | 8 | u32 | sequence: 0, 1, 2, ... over all frames of the file |
//! | 12 | u32 | segment, from 1; 0 for frames of no segment |
//! | 16 | u32 | ordinal: 0, 1, 2, ... over the frames of the segment |
//! | 20 | u32 | 0, ignored |
//! | 24 | u64 | size of the zstd frame |
//! | 32 | u64 | size of its content |
//! | 40 | u64 | first time of its samples |
//! | 48 | u64 | last time of its samples |
//! | 56 | u64 | samples |
//! | 64 | u64 | samples lost |
//! | 72 | u64 | samples with a truncated stack |
//! | 80 | u32 | CRC-32C of the zstd frame |
//! | 84 | u32 | CRC-32C of bytes 0..84 |

use super::error::{FormatError, Problem};
use super::input::Input;
use super::{limits, skippable};
use crate::event::Timestamp;

/// First bytes of a descriptor.
pub const MAGIC: [u8; 4] = *b"BPFR";
/// Bytes of a descriptor.
pub const LEN: usize = 88;
/// Bytes of a descriptor as a skippable frame.
pub const FRAME_LEN: usize = skippable::PREFIX + LEN;
/// Flag: a reader that does not know the kind must refuse the capture.
pub const FLAG_REQUIRED: u8 = 1;

/// What a frame holds. Numbers are the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Table additions, samples, losses: [`SegmentFrame`](super::segment::SegmentFrame). 1.
    Segment,
    /// [`KernelSymbols`](super::aid::KernelSymbols). 2.
    KernelSymbols,
    /// [`Vdso`](super::aid::Vdso). 3.
    Vdso,
    /// [`End`](super::end::End). 6.
    End,
    /// A piece of a packed file: [`packed::file`](super::packed::file). 7.
    PackedFile,
    /// [`ElfLayouts`](super::aid::ElfLayouts). 8.
    ElfLayouts,
    /// [`PackedSymbols`](super::packed::symbols::PackedSymbols). 9.
    PackedSymbols,
    /// [`PackedTable`](super::packed::table::PackedTable). 10.
    PackedTable,
    /// [`PerfMaps`](super::aid::PerfMaps). 11.
    PerfMaps,
    /// A kind of a later version, or 4 and 5, which no recorder ever wrote.
    Unknown(u8),
}

impl FrameKind {
    /// The number in the file.
    pub fn number(self) -> u8 {
        match self {
            FrameKind::Segment => 1,
            FrameKind::KernelSymbols => 2,
            FrameKind::Vdso => 3,
            FrameKind::End => 6,
            FrameKind::PackedFile => 7,
            FrameKind::ElfLayouts => 8,
            FrameKind::PackedSymbols => 9,
            FrameKind::PackedTable => 10,
            FrameKind::PerfMaps => 11,
            FrameKind::Unknown(number) => number,
        }
    }

    /// What people read.
    pub fn label(self) -> String {
        match self {
            FrameKind::Segment => "segment",
            FrameKind::KernelSymbols => "kernel symbols",
            FrameKind::Vdso => "vdso",
            FrameKind::PerfMaps => "perf maps",
            FrameKind::ElfLayouts => "ELF layouts",
            FrameKind::End => "end",
            FrameKind::PackedFile => "packed file",
            FrameKind::PackedSymbols => "packed symbols",
            FrameKind::PackedTable => "packed symbol table",
            FrameKind::Unknown(number) => return format!("kind {number}"),
        }
        .to_owned()
    }

    /// The kind of a number.
    pub fn from_number(number: u8) -> FrameKind {
        match number {
            1 => FrameKind::Segment,
            2 => FrameKind::KernelSymbols,
            3 => FrameKind::Vdso,
            6 => FrameKind::End,
            7 => FrameKind::PackedFile,
            8 => FrameKind::ElfLayouts,
            9 => FrameKind::PackedSymbols,
            10 => FrameKind::PackedTable,
            11 => FrameKind::PerfMaps,
            other => FrameKind::Unknown(other),
        }
    }

    /// Whether this program can decode it.
    pub fn is_known(self) -> bool {
        !matches!(self, FrameKind::Unknown(_))
    }
}

/// The fields of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// What the frame holds.
    pub kind: FrameKind,
    /// A reader that does not know the kind must refuse the capture.
    pub required: bool,
    /// Number of the frame in the file.
    pub sequence: u32,
    /// Segment it belongs to, from 1; 0 for none.
    pub segment: u32,
    /// Number of the frame in its segment.
    pub ordinal: u32,
    /// Bytes of the zstd frame.
    pub compressed: u64,
    /// Bytes of its content.
    pub uncompressed: u64,
    /// Earliest sample; 0 without samples.
    pub first: Timestamp,
    /// Latest sample; 0 without samples.
    pub last: Timestamp,
    /// Samples in it.
    pub samples: u64,
    /// Samples it says are lost.
    pub lost: u64,
    /// Samples in it whose user or kernel stack is truncated.
    pub truncated: u64,
    /// CRC-32C of the zstd frame.
    pub data_crc: u32,
}

impl Descriptor {
    /// Of a frame that is not required, of no segment, and without samples; its place and sizes are still to be filled in.
    pub fn of_kind(kind: FrameKind) -> Descriptor {
        Descriptor {
            kind,
            required: false,
            sequence: 0,
            segment: 0,
            ordinal: 0,
            compressed: 0,
            uncompressed: 0,
            first: Timestamp::ZERO,
            last: Timestamp::ZERO,
            samples: 0,
            lost: 0,
            truncated: 0,
            data_crc: 0,
        }
    }

    /// Appends the descriptor, without its skippable frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.push(self.kind.number());
        out.push(if self.required { FLAG_REQUIRED } else { 0 });
        out.extend_from_slice(&0u16.to_le_bytes());
        for word in [self.sequence, self.segment, self.ordinal, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for word in [
            self.compressed,
            self.uncompressed,
            self.first.0,
            self.last.0,
            self.samples,
            self.lost,
            self.truncated,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.data_crc.to_le_bytes());
        let crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the [`LEN`] bytes of a descriptor and checks what can be checked without the frame.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor, FormatError> {
        const PART: &str = "descriptor";
        let whole = Input::new(PART, bytes);
        let mut input = whole.clone();
        let checked = input.take(LEN - 4, PART)?;
        let crc = input.u32(PART)?;
        input.end(PART)?;
        let mut input = Input::new(PART, checked);
        let magic = input.take(MAGIC.len(), "magic")?;
        if magic != MAGIC || crc != crc32c::crc32c(checked) {
            return Err(whole.error(Problem::Checksum(PART)));
        }
        let kind = FrameKind::from_number(input.u8("kind")?);
        let flags = input.u8("flags")?;
        input.u16("reserved")?;
        let sequence = input.u32("sequence")?;
        let segment = input.u32("segment")?;
        let ordinal = input.u32("ordinal")?;
        input.u32("reserved")?;
        let compressed = input.u64("compressed size")?;
        let uncompressed = input.u64("content size")?;
        let first = Timestamp(input.u64("first time")?);
        let last = Timestamp(input.u64("last time")?);
        let samples = input.u64("samples")?;
        let lost = input.u64("lost")?;
        let truncated = input.u64("truncated")?;
        let data_crc = input.u32("checksum")?;
        let required = flags & FLAG_REQUIRED != 0;
        let at_most = |what, value, limit| {
            if value <= limit {
                Ok(())
            } else {
                Err(whole.error(Problem::OverLimit { what, value, limit }))
            }
        };
        at_most("compressed size", compressed, limits::FRAME_COMPRESSED)?;
        at_most("content size", uncompressed, limits::FRAME_CONTENT)?;
        at_most("samples", samples, limits::FRAME_SAMPLES.min(uncompressed))?;
        at_most("truncated samples", truncated, samples)?;
        at_most("first time", first.0, last.0)?;
        Ok(Descriptor {
            kind,
            required,
            sequence,
            segment,
            ordinal,
            compressed,
            uncompressed,
            first,
            last,
            samples,
            lost,
            truncated,
            data_crc,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Descriptor {
        Descriptor {
            kind: FrameKind::Segment,
            required: true,
            sequence: 2,
            segment: 3,
            ordinal: 4,
            compressed: 5,
            uncompressed: 600,
            first: Timestamp(7),
            last: Timestamp(8),
            samples: 9,
            lost: 10,
            truncated: 1,
            data_crc: 12,
        }
    }

    fn bytes(descriptor: &Descriptor) -> Vec<u8> {
        let mut out = Vec::new();
        descriptor.encode(&mut out);
        assert_eq!(out.len(), LEN);
        out
    }

    #[test]
    fn every_kind_survives() {
        for number in 0..=255 {
            let kind = FrameKind::from_number(number);
            assert_eq!(kind.number(), number);
            let descriptor = Descriptor {
                kind,
                required: number % 2 == 0,
                ..descriptor()
            };
            assert_eq!(Descriptor::decode(&bytes(&descriptor)), Ok(descriptor));
        }
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_noticed() {
        let bytes = bytes(&descriptor());
        for bit in 0..LEN * 8 {
            let mut flipped = bytes.clone();
            if let Some(byte) = flipped.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            assert!(Descriptor::decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..LEN {
            assert!(Descriptor::decode(bytes.get(..len).unwrap_or_default()).is_err());
        }
    }

    #[test]
    fn impossible_values_are_refused_in_spite_of_a_good_checksum() {
        for bad in [
            Descriptor {
                compressed: limits::FRAME_COMPRESSED + 1,
                ..descriptor()
            },
            Descriptor {
                uncompressed: limits::FRAME_CONTENT + 1,
                ..descriptor()
            },
            Descriptor {
                samples: 601,
                ..descriptor()
            },
            Descriptor {
                truncated: 10,
                ..descriptor()
            },
            Descriptor {
                first: Timestamp(9),
                ..descriptor()
            },
        ] {
            assert!(Descriptor::decode(&bytes(&bad)).is_err(), "{bad:?}");
        }
    }
}
