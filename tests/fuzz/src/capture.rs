//! Parts -> a capture that every check of sizes and checksums lets pass, whatever the parts hold.

use std::cell::RefCell;
use std::collections::HashMap;

use bprof::capture::Reader;
use bprof::capture::members::merge;
use bprof::event::{Timestamp, sample_flags};
use bprof::format::descriptor::{Descriptor, FrameKind};
use bprof::format::frame::FrameCompressor;
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::index::{self, FrameEntry};
use bprof::format::segment::{KnownNodes, SegmentFrame, StackNode, TableSizes};
use bprof::format::skippable;

use crate::parts::Part;

/// Frames of one segment so far.
#[derive(Default)]
struct Segment {
    frames: u32,
    sizes: TableSizes,
    user: Vec<StackNode>,
    kernel: Vec<StackNode>,
}

/// A header that any capture may have.
pub fn header() -> Header {
    Header {
        host: "box".to_owned(),
        boot_id: String::new(),
        kernel_release: "6.1".to_owned(),
        kernel_build_id: None,
        arch: "x86_64".to_owned(),
        page_size: 4096,
        clock_ticks: 100,
        cpus_online: 2,
        wall_offset_ns: 0,
        start_time: Timestamp(0),
        events: ["cpu-clock", "cycles"]
            .map(|name| EventInfo {
                name: name.to_owned(),
                sampling: Sampling::Frequency(99),
            })
            .to_vec(),
        target: "all".to_owned(),
        user_stack_limit: 127,
        kernel_stack_limit: 127,
        tool: "fuzz".to_owned(),
        degraded: Vec::new(),
        user_stacks: bprof::event::UserStacks::default(),
    }
}

/// The facts of a header, as a part has them.
pub fn facts(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes).expect("within limits");
    bytes[skippable::PREFIX + 32..bytes.len() - 4].to_vec()
}

/// The content of a header with these facts, whatever they are.
fn header_with(facts: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header().encode(&mut bytes).expect("within limits");
    bytes.drain(..skippable::PREFIX);
    bytes.truncate(12);
    bytes.extend((facts.len() as u32).to_le_bytes());
    bytes.extend(3u64.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(facts);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// Puts a capture together. Descriptors say of frames that cannot be decoded that there is nothing in them.
pub fn build(parts: &[Part]) -> Vec<u8> {
    let given = parts.iter().find(|part| part.kind == 0);
    let content = header_with(&given.map_or_else(|| facts(&header()), |part| part.content.clone()));
    let events = Header::decode(&content).map_or(0, |header| header.events.len());
    let mut file = Vec::new();
    frame(&mut file, &content);
    let mut segments: HashMap<u32, Segment> = HashMap::new();
    let mut entries = Vec::new();
    for (sequence, part) in parts.iter().filter(|part| part.kind != 0).enumerate() {
        let kind = FrameKind::from_number(part.kind);
        let mut descriptor = Descriptor {
            kind,
            required: kind == FrameKind::Segment,
            sequence: sequence as u32,
            segment: 0,
            ordinal: 0,
            compressed: 0,
            uncompressed: part.content.len() as u64,
            first: Timestamp::ZERO,
            last: Timestamp::ZERO,
            samples: 0,
            lost: 0,
            truncated: 0,
            data_crc: 0,
        };
        if kind == FrameKind::Segment {
            let number = u32::from(part.segment) + 1;
            let segment = segments.entry(number).or_insert_with(|| Segment {
                sizes: TableSizes::new(events),
                ..Segment::default()
            });
            descriptor.segment = number;
            describe(segment, &part.content, &mut descriptor);
        }
        let data = compressed(&part.content);
        descriptor.compressed = data.len() as u64;
        descriptor.data_crc = crc32c::crc32c(&data);
        let mut bytes = Vec::new();
        descriptor.encode(&mut bytes);
        let offset = file.len() as u64;
        frame(&mut file, &bytes);
        file.extend(data);
        entries.push(FrameEntry { offset, descriptor });
    }
    let mut bytes = Vec::new();
    index::encode(&mut bytes, &entries);
    frame(&mut file, &bytes);
    file
}

/// A file of the capture and one of another host.
pub fn beside_another(reader: &Reader) -> Vec<u8> {
    let other = Reader::from_bytes(build(&[Part {
        kind: 0,
        segment: 0,
        content: facts(&Header {
            host: "another".to_owned(),
            wall_offset_ns: 1_000_000_000,
            ..header()
        }),
    }]));
    let mut out = Vec::new();
    match merge(&[reader, &other.expect("a capture")], &mut out) {
        Ok(_) => out,
        // More events than samples can tell apart, or a header that has no room for both.
        Err(_) => build(&[]),
    }
}

fn frame(file: &mut Vec<u8>, content: &[u8]) {
    file.extend(skippable::MAGIC.to_le_bytes());
    file.extend((content.len() as u32).to_le_bytes());
    file.extend(content);
}

/// Puts the figures of a segment's next frame into its descriptor.
fn describe(segment: &mut Segment, content: &[u8], descriptor: &mut Descriptor) {
    descriptor.ordinal = segment.frames;
    segment.frames += 1;
    let known = KnownNodes {
        user: &segment.user,
        kernel: &segment.kernel,
    };
    let Ok((frame, sizes)) = SegmentFrame::decode(content, &segment.sizes, known) else {
        return;
    };
    const CUT: u8 = sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED;
    let times = || frame.samples.iter().map(|sample| sample.time);
    descriptor.first = times().min().unwrap_or_default();
    descriptor.last = times().max().unwrap_or_default();
    descriptor.samples = frame.samples.len() as u64;
    let cut = frame.samples.iter().filter(|s| s.flags & CUT != 0);
    descriptor.truncated = cut.count() as u64;
    let lost = frame.losses.iter().filter(|l| l.class.is_lost_sample());
    descriptor.lost = lost.fold(0, |sum, loss| loss.count.saturating_add(sum));
    segment.sizes = sizes;
    segment.user.extend(frame.user_nodes);
    segment.kernel.extend(frame.kernel_nodes);
}

fn compressed(content: &[u8]) -> Vec<u8> {
    thread_local! {
        static ZSTD: RefCell<Option<FrameCompressor>> = const { RefCell::new(None) };
    }
    let mut out = Vec::new();
    ZSTD.with_borrow_mut(|zstd| {
        let zstd = zstd.get_or_insert_with(|| FrameCompressor::new(1).expect("memory"));
        zstd.compress(content, &mut out).expect("within limits");
    });
    out
}
