//! Which frames have to be read for a selection.
//!
//! Frames of a segment build on those before them, so that of a segment the first ones up to the last one asked for are read:
//! those of other times without their samples. Nothing is read of a segment in which no frame is asked for.

use hashbrown::HashSet;

use super::{Filter, TimeSpan};
use crate::capture::{Reader, SegmentReader};
use crate::event::Timestamp;
use crate::format::index::FrameEntry;

/// How much of each segment is read.
#[derive(Debug)]
pub(in crate::pipeline) struct Plan {
    /// By segment, frames to read from its first on.
    frames: Vec<usize>,
    /// Offsets in the file of the frames that hold any time that is asked for; `None`: all do.
    dated: Option<HashSet<u64>>,
    /// Samples lost by the time of those frames.
    lost: Option<u64>,
}

impl Plan {
    /// What `filter` needs of a capture.
    pub fn new(reader: &Reader, filter: &Filter) -> Plan {
        let Some(spans) = filter.times() else {
            return Plan {
                frames: reader.segments().map(|s| s.frames().count()).collect(),
                dated: None,
                lost: None,
            };
        };
        let all: Vec<&FrameEntry> = reader.segments().flat_map(|s| s.frames()).collect();
        let times = times(&all);
        let mut dated = HashSet::new();
        let mut lost = 0u64;
        for (entry, (first, last)) in all.iter().zip(times) {
            if meets(spans, first, last) {
                dated.insert(entry.offset);
                lost = lost.saturating_add(entry.descriptor.lost);
            }
        }
        let needed = |segment: SegmentReader<'_>| {
            let frames = segment.frames().enumerate();
            let asked = frames.filter(|(_, entry)| dated.contains(&entry.offset));
            asked.map(|(at, _)| at + 1).last().unwrap_or(0)
        };
        Plan {
            frames: reader.segments().map(needed).collect(),
            dated: Some(dated),
            lost: Some(lost),
        }
    }

    /// The segments to read, each with the number of its frames that are read.
    pub fn segments<'a>(
        &'a self,
        reader: &'a Reader,
    ) -> impl Iterator<Item = (SegmentReader<'a>, usize)> + 'a {
        let segments = reader.segments().zip(self.frames.iter().copied());
        segments.filter(|(_, frames)| *frames > 0)
    }

    /// Whether every frame is read.
    pub fn is_whole(&self) -> bool {
        self.dated.is_none()
    }

    /// Whether a frame holds any time that is asked for.
    pub fn is_dated(&self, entry: &FrameEntry) -> bool {
        let dated = self.dated.as_ref();
        dated.is_none_or(|dated| dated.contains(&entry.offset))
    }

    /// Samples lost while those frames were recorded, where it is asked when.
    pub fn lost(&self) -> Option<u64> {
        self.lost
    }
}

fn meets(spans: &[TimeSpan], first: Timestamp, last: Timestamp) -> bool {
    spans.iter().any(|span| span.meets(first, last))
}

/// From when to when each frame is. One without samples, which may tell of losses, is from that before it to that after it.
fn times(frames: &[&FrameEntry]) -> Vec<(Timestamp, Timestamp)> {
    let mut times: Vec<(Timestamp, Timestamp)> = Vec::with_capacity(frames.len());
    let mut before = Timestamp::ZERO;
    for entry in frames {
        let frame = &entry.descriptor;
        if frame.samples > 0 {
            before = frame.last;
        }
        times.push((
            if frame.samples > 0 {
                frame.first
            } else {
                before
            },
            frame.last,
        ));
    }
    let mut after = Timestamp::MAX;
    for (entry, time) in frames.iter().zip(&mut times).rev() {
        match entry.descriptor.samples {
            0 => time.1 = after.max(time.0),
            _ => after = time.0,
        }
    }
    times
}
