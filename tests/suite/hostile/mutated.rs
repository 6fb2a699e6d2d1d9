//! Captures changed in every way there is: what `verify`, reports and `repair` say of one agrees, and repair always gives a capture
//! that is good.

use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bprof::capture::members::merge;
use bprof::capture::repair::{RepairError, repair};
use bprof::capture::verify::{Verified, verify};
use bprof::capture::{CaptureError, Reader};
use bprof::format::descriptor::{Descriptor, FrameKind};
use bprof::format::frame::{FrameCompressor, FrameDecompressor};
use bprof::format::index::{self, FrameEntry};
use bprof::format::skippable;
use bprof::pipeline;
use bprof::symbolize::Options;

use super::super::golden::of_version;
use super::super::report::fixture::{Run, subcommand};
use super::{on_threads, random};

const GOLDEN: [(&str, &str); 11] = [
    ("v1", "calls.bprof"),
    ("v1.1", "calls.bprof"),
    ("v1.1", "paths.bprof"),
    ("v1.2", "calls.bprof"),
    ("v1.2", "family.bprof"),
    ("v1.3", "family.bprof"),
    ("v1.3", "full.bprof"),
    ("v1.3", "repaired.bprof"),
    ("v1.4", "hosts.bprof"),
    ("v1.5", "calls.bprof"),
    ("v1.6", "nameless.bprof"),
];

/// As many as take some seconds; `MUTATIONS=100000` for more.
const MUTATIONS: usize = 1500;

struct Frame {
    descriptor: Descriptor,
    /// Compressed.
    data: Vec<u8>,
}

/// A capture, taken apart.
struct Parts {
    header: Vec<u8>,
    frames: Vec<Frame>,
}

impl Parts {
    fn of(bytes: &[u8]) -> Parts {
        let reader = Reader::from_bytes(bytes.to_vec()).unwrap();
        let of = |entry: &FrameEntry| Frame {
            descriptor: entry.descriptor.clone(),
            data: bytes[entry.data_offset() as usize..entry.end() as usize].to_vec(),
        };
        Parts {
            header: bytes[..reader.frames()[0].offset as usize].to_vec(),
            frames: reader.frames().iter().map(of).collect(),
        }
    }

    /// With right checksums, and the index of what there is.
    fn bytes(&self, with_index: bool) -> Vec<u8> {
        let mut out = self.header.clone();
        let mut entries = Vec::new();
        for frame in &self.frames {
            let offset = out.len() as u64;
            let descriptor = frame.descriptor.clone();
            skippable::encode(&mut out, |out| {
                descriptor.encode(out);
                Ok(())
            })
            .unwrap();
            out.extend(&frame.data);
            entries.push(FrameEntry { offset, descriptor });
        }
        if with_index {
            skippable::encode(&mut out, |out| {
                index::encode(out, &entries);
                Ok(())
            })
            .unwrap();
        }
        out
    }

    fn renumber(&mut self) {
        for (sequence, frame) in self.frames.iter_mut().enumerate() {
            frame.descriptor.sequence = sequence as u32;
        }
    }
}

/// A number that is none of the usual ones, mostly.
fn odd(random: &mut impl FnMut(usize) -> usize, usual: u64) -> u64 {
    match random(8) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::from(u32::MAX),
        3 => usual.wrapping_sub(1),
        4 => usual << random(40),
        5 => random(usize::MAX) as u64,
        _ => usual.wrapping_add(1),
    }
}

/// Changes bytes: some bits, a piece that comes again, is missing, or is zeros.
fn scribble(bytes: &mut Vec<u8>, random: &mut impl FnMut(usize) -> usize) {
    for _ in 0..1 + random(3) {
        let len = bytes.len();
        if len < 4 {
            return;
        }
        let start = random(len);
        let piece = start..len.min(start + 1 + random(64));
        match random(8) {
            0 => bytes.truncate(start),
            1 => drop(bytes.drain(piece)),
            2 => bytes[piece].fill(0),
            3 => {
                let again = bytes[piece].to_vec();
                let at = random(len);
                bytes.splice(at..at, again);
            }
            4 => bytes[start] = odd(random, u64::from(bytes[start])) as u8,
            _ => bytes[start] ^= 1 << random(8),
        }
    }
}

/// Other content, with a descriptor that says so.
fn recode(frame: &mut Frame, random: &mut impl FnMut(usize) -> usize) {
    let mut content = Vec::new();
    let mut zstd = FrameDecompressor::new().unwrap();
    zstd.decompress(&frame.data, frame.descriptor.uncompressed, &mut content)
        .unwrap();
    scribble(&mut content, random);
    let mut zstd = FrameCompressor::new(3).unwrap();
    zstd.compress(&content, &mut frame.data).unwrap();
    frame.descriptor.uncompressed = content.len() as u64;
    frame.descriptor.compressed = frame.data.len() as u64;
    frame.descriptor.data_crc = crc32c::crc32c(&frame.data);
}

fn describe(descriptor: &mut Descriptor, random: &mut impl FnMut(usize) -> usize) {
    match random(9) {
        0 => descriptor.sequence = odd(random, descriptor.sequence.into()) as u32,
        1 => descriptor.segment = odd(random, descriptor.segment.into()) as u32,
        2 => descriptor.ordinal = odd(random, descriptor.ordinal.into()) as u32,
        3 => descriptor.first.0 = odd(random, descriptor.first.0),
        4 => descriptor.last.0 = odd(random, descriptor.last.0),
        5 => descriptor.samples = odd(random, descriptor.samples),
        6 => descriptor.lost = odd(random, descriptor.lost),
        7 => descriptor.truncated = odd(random, descriptor.truncated),
        _ => descriptor.kind = FrameKind::from_number(random(13) as u8),
    }
}

/// A golden capture changed by the numbers of `random`.
fn mutated(random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let golden = |random: &mut dyn FnMut(usize) -> usize| {
        let (version, name) = GOLDEN[random(GOLDEN.len())];
        fs::read(of_version(version, name)).unwrap()
    };
    let mut bytes = golden(random);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    if reader.is_merged() {
        return mutated_members(bytes, &reader, random);
    }
    let mut parts = Parts::of(&bytes);
    for _ in 0..1 + random(3) {
        let count = parts.frames.len();
        let at = random(count.max(1));
        match random(10) {
            _ if count == 0 => {}
            0 => drop(parts.frames.remove(at)),
            1 => parts.frames.swap(at, random(count)),
            2 => {
                let Frame { descriptor, data } = &parts.frames[at];
                let again = Frame {
                    descriptor: descriptor.clone(),
                    data: data.clone(),
                };
                parts.frames.insert(random(count), again);
            }
            3 => {
                let other = golden(random);
                let other = Reader::from_bytes(other.clone())
                    .is_ok_and(|reader| !reader.is_merged())
                    .then(|| Parts::of(&other));
                if let Some(mut other) = other {
                    let from = random(other.frames.len());
                    parts.frames.insert(at, other.frames.remove(from));
                }
            }
            4 | 5 => describe(&mut parts.frames[at].descriptor, random),
            6 => scribble(&mut parts.header, random),
            _ => recode(&mut parts.frames[at], random),
        }
        // Changes are seen by the numbers of frames, unless they are made right.
        if random(2) == 0 {
            parts.renumber();
        }
    }
    bytes = parts.bytes(random(2) == 0);
    if random(3) == 0 {
        scribble(&mut bytes, random);
    }
    bytes
}

/// Captures in a file of several: again, missing, changed, in another order.
fn mutated_members(
    bytes: Vec<u8>,
    reader: &Reader,
    random: &mut impl FnMut(usize) -> usize,
) -> Vec<u8> {
    let starts: Vec<usize> = reader.members().iter().map(|m| m.offset as usize).collect();
    let ends = starts.iter().skip(1).map(|start| start - ANNOUNCED);
    let ends: Vec<usize> = ends.chain([bytes.len()]).collect();
    let ranges: Vec<Range<usize>> = starts
        .iter()
        .zip(ends)
        .map(|(s, e)| s - ANNOUNCED..e)
        .collect();
    let mut out = bytes[..ranges[0].start].to_vec();
    for _ in 0..1 + random(4) {
        let range = ranges[random(ranges.len())].clone();
        let mut member = bytes[range.clone()].to_vec();
        match random(4) {
            0 => scribble(&mut member, random),
            // The number of it, which is to be of each only once.
            1 => {
                let number = reader.members().len() as u32 + random(3) as u32;
                member = announced(number, &bytes[range.start + ANNOUNCED..range.end]);
            }
            _ => {}
        }
        out.extend(member);
    }
    out
}

/// Bytes in front of each capture of a file of several.
const ANNOUNCED: usize = bprof::format::member::FRAME_LEN;

fn announced(number: u32, capture: &[u8]) -> Vec<u8> {
    let member = bprof::format::member::Member {
        number,
        count: number + 1,
        size: capture.len() as u64,
    };
    [&member.encode()[..], capture].concat()
}

/// Fails where what is said of a capture does not agree.
fn check(bytes: Vec<u8>, options: &Options) {
    let reader = match Reader::from_bytes(bytes) {
        Ok(reader) => reader,
        Err(CaptureError::Header(_) | CaptureError::CutInHeader { .. } | CaptureError::Empty) => {
            return;
        }
        Err(err) => panic!("{err}"),
    };
    let found = verify(&reader, || {});
    let request = options.clone().into();
    let profile = pipeline::profile(&reader, request, &mut (), &mut |_| {});
    let about = &profile.about;
    let told = about.is_damaged() || about.damaged_samples > 0;
    assert!(
        !told || !found.damage.is_empty(),
        "only the report says: {:?}",
        about.damage
    );
    let shown = profile.rows.iter().map(|row| row.samples).sum::<u64>();
    assert_eq!(
        shown, found.samples,
        "shown and verified: {:?}",
        found.damage
    );
    let lacking = found.damage.iter().any(|damage| damage.samples > 0);
    assert!(told || !lacking, "the report is silent: {:?}", found.damage);

    let (repaired, what) = match repair(&reader, Vec::new(), || {}) {
        Ok(done) => done,
        Err(RepairError::Nothing) if reader.is_merged() && reader.members().is_empty() => return,
        Err(err) => panic!("repair: {err}: {:?}", found.damage),
    };
    assert_eq!(what.samples, found.samples, "{:?}", found.damage);
    assert_eq!(what.bytes, repaired.len() as u64);
    let after = Reader::from_bytes(repaired).unwrap();
    let Verified {
        damage,
        samples,
        cut,
        ..
    } = verify(&after, || {});
    assert!(damage.is_empty(), "{damage:?} after {:?}", found.damage);
    assert_eq!((samples, cut), (found.samples, None));
    let again = pipeline::profile(&after, options.clone().into(), &mut (), &mut |_| {});
    assert!(!again.about.is_damaged(), "{:?}", again.about.damage);
    let shown = again.rows.iter().map(|row| row.samples).sum::<u64>();
    assert_eq!(shown, found.samples, "shown of what was repaired");
}

#[test]
fn whatever_is_changed_is_told_alike_and_repaired() {
    let count = std::env::var("MUTATIONS").map_or(MUTATIONS, |n| n.parse().expect("a number"));
    let empty = tempfile::tempdir().unwrap();
    let options = Options {
        symfs: vec![empty.path().to_owned()],
        ..Options::default()
    };
    let failed = std::sync::Mutex::new(Vec::new());
    on_threads(count, |number| {
        let mut random = random((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let bytes = mutated(&mut random);
        let done = catch_unwind(AssertUnwindSafe(|| check(bytes, &options)));
        if done.is_err() {
            failed.lock().unwrap().push(number);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {count}: {failed:?}", failed.len());
}

/// Two that only differ by what is damaged in them are one recording: what is repaired of them is there once.
#[test]
fn a_recording_that_is_twice_in_a_file_is_repaired() {
    let bytes = fs::read(of_version("v1.2", "calls.bprof")).unwrap();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let mut other = Parts::of(&bytes);
    // Of another recording by its first frame, which is damaged.
    let first = &mut other.frames[0];
    first.data[20] ^= 1;
    first.descriptor.data_crc ^= 1;
    let other = Reader::from_bytes(other.bytes(true)).unwrap();
    let mut merged = Vec::new();
    merge(&[&whole, &other], &mut merged).unwrap();
    check(merged, &Options::default());
}

/// Of captures none of which can be opened nothing can be repaired: that is said, and no file of no captures is written.
#[test]
fn nothing_is_made_of_captures_that_are_all_gone() {
    let bytes = fs::read(of_version("v1.4", "hosts.bprof")).unwrap();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut changed = bytes.clone();
    for member in reader.members() {
        changed[member.offset as usize + 50] ^= 1;
    }
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in.bprof"), dir.path().join("out.bprof"));
    fs::write(&input, changed).unwrap();
    let mut command = subcommand::<&str>("repair", &[]);
    let run = Run::of(command.arg(&input).arg("-o").arg(&out));
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(
        run.err.contains("none of the captures in it can be read"),
        "{}",
        run.err
    );
    assert!(!out.exists());
}
