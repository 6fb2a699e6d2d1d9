//! How much a capture may hold by the size of its file: zstd lets a few bytes stand for very many, which no recorder ever has.

use super::super::reader::{Damage, DamageKind};
use super::super::source::Source;
use crate::format::descriptor::FrameKind;
use crate::format::index::FrameEntry;
use crate::format::limits;

/// Leaves out the frames of segments beyond what a file of these bytes may hold. Gives what is told of them.
pub(super) fn keep_within(entries: &mut Vec<FrameEntry>, source: &Source) -> Option<Damage> {
    let most = limits::SEGMENTS_TIMES.saturating_mul(source.len());
    let most = most.saturating_add(source.share_of(limits::SEGMENTS_BASE));
    let mut sum = 0u64;
    let mut beyond: Option<Damage> = None;
    entries.retain(|entry| {
        let frame = &entry.descriptor;
        if frame.kind != FrameKind::Segment {
            return true;
        }
        sum = sum.saturating_add(frame.uncompressed);
        if sum <= most {
            return true;
        }
        let damage = beyond.get_or_insert(Damage {
            offset: entry.offset,
            kind: DamageKind::TooMuchContent,
            frames: 0,
            samples: 0,
        });
        damage.frames = damage.frames.saturating_add(1);
        damage.samples = damage.samples.saturating_add(frame.samples);
        false
    });
    beyond
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::descriptor::Descriptor;

    #[test]
    fn what_is_beyond_is_left_out_and_counted() {
        let frame = |kind, uncompressed, samples| FrameEntry {
            offset: samples,
            descriptor: Descriptor {
                uncompressed,
                samples,
                ..Descriptor::of_kind(kind)
            },
        };
        let most = limits::SEGMENTS_BASE + 1000 * limits::SEGMENTS_TIMES;
        let mut entries = vec![
            frame(FrameKind::Segment, most - 5, 1),
            // Has limits of its own.
            frame(FrameKind::PackedFile, most, 2),
            frame(FrameKind::Segment, 5, 3),
        ];
        let file = Source::Bytes(vec![0; 1000]);
        assert_eq!(keep_within(&mut entries, &file), None);
        entries.push(frame(FrameKind::Segment, 1, 4));
        entries.push(frame(FrameKind::End, 1, 0));
        entries.push(frame(FrameKind::Segment, u64::MAX, 5));
        let told = keep_within(&mut entries, &file);
        let expected = Damage {
            offset: 4,
            kind: DamageKind::TooMuchContent,
            frames: 2,
            samples: 9,
        };
        assert_eq!(told, Some(expected));
        let left: Vec<u64> = entries.iter().map(|entry| entry.offset).collect();
        assert_eq!(left, [1, 2, 3, 0]);
    }

    /// Thousands of tiny captures in one file have no more together than one as large.
    #[test]
    fn captures_in_a_file_share_what_it_may_have() {
        let whole = Arc::new(Source::Bytes(vec![0; 1 << 16]));
        let part = Source::Part {
            whole,
            start: 100,
            len: 1 << 6,
        };
        assert_eq!(part.share_of(1 << 20), 1 << 10);
        assert_eq!(Source::Bytes(vec![0; 5]).share_of(7), 7);
    }
}
