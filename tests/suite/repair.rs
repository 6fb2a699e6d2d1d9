//! `profiler repair`: a new capture of what can be read of a damaged one, which says what it is without.

use std::fs;
use std::path::Path;

use bprof::capture::repair::{Repaired, repair};
use bprof::capture::verify::verify;
use bprof::capture::{LossTotals, Reader};
use bprof::event::LossClass;
use bprof::format::descriptor::FrameKind;
use bprof::format::index::FrameEntry;

use super::golden::golden;
use super::report::fixture::{Run, Scene, subcommand};

const GOLDEN: [&str; 6] = [
    "calls.bprof",
    "family.bprof",
    "../v1.1/calls.bprof",
    "../v1.1/paths.bprof",
    "../v1.2/calls.bprof",
    "../v1.2/family.bprof",
];

/// Repairs in memory, and checks what must hold of every repair: the new capture is whole, ends as the old one does, and
/// holds or counts every sample of which the old one still tells.
fn repaired(bytes: Vec<u8>) -> Option<(Reader, Repaired)> {
    let old = Reader::from_bytes(bytes).ok()?;
    let (new, repaired) = repair(&old, Vec::new(), || {}).unwrap();
    assert_eq!(new.len() as u64, repaired.bytes);
    let new = Reader::from_bytes(new).unwrap();
    let found = verify(&new, || {});
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!((found.cut, found.samples), (None, repaired.samples));
    assert_eq!(new.end().is_some(), old.end().is_some());
    let by_end = old.end().map_or(0, |end| end.samples + end.lost);
    assert_eq!(
        new.samples() + new.lost_samples(),
        by_end.max(old.samples() + old.lost_samples()),
        "{repaired:?}"
    );
    let losses = losses(&new);
    assert_eq!(losses.of_class(LossClass::Damaged), repaired.lost_samples);
    assert_eq!(
        losses.of_class(LossClass::DamagedFrames),
        repaired.lost_frames
    );
    Some((new, repaired))
}

fn losses(reader: &Reader) -> LossTotals {
    let mut totals = LossTotals::default();
    for mut segment in reader.segments() {
        while segment.next_frame().unwrap().is_some() {}
        totals.merge(&segment.tables().losses);
    }
    totals
}

fn bytes_of(name: &str) -> Vec<u8> {
    fs::read(golden(name)).unwrap()
}

/// What is whole stays what it is: every frame, in its order.
#[test]
fn a_good_capture_is_taken_over_whole() {
    for name in GOLDEN {
        let old = Reader::from_bytes(bytes_of(name)).unwrap();
        let (new, repaired) = repaired(bytes_of(name)).unwrap();
        assert_eq!((repaired.lost_frames, repaired.lost_samples), (0, 0));
        let frames = |reader: &Reader| -> Vec<_> {
            let frames = reader.frames().iter().map(|entry| &entry.descriptor);
            frames
                .map(|d| (d.kind, d.segment, d.ordinal, d.data_crc, d.samples, d.lost))
                .filter(|(kind, ..)| *kind != FrameKind::End)
                .collect()
        };
        assert_eq!(frames(&new), frames(&old), "{name}");
        assert_eq!(new.end(), old.end(), "{name}");
        assert_eq!(new.header(), old.header(), "{name}");
    }
}

/// A frame that is not there at all takes with it those of its segment that build on it, and no other.
#[test]
fn what_follows_a_missing_frame_is_kept() {
    for name in ["../v1.2/calls.bprof", "../v1.3/full.bprof"] {
        let bytes = bytes_of(name);
        let old = Reader::from_bytes(bytes.clone()).unwrap();
        let frames = old.frames();
        for gone in &frames[..frames.len() - 1] {
            let mut without = bytes.clone();
            without.drain(gone.offset as usize..gone.end() as usize);
            let (new, repaired) = repaired(without).unwrap();
            let is_lost = |entry: &&FrameEntry| {
                let (entry, gone) = (&entry.descriptor, &gone.descriptor);
                let builds_on = entry.segment == gone.segment && entry.ordinal > gone.ordinal;
                entry.sequence == gone.sequence
                    || (entry.kind == FrameKind::Segment && gone.kind == entry.kind && builds_on)
            };
            let lost = frames.iter().filter(is_lost).count();
            assert_eq!(repaired.lost_frames, lost as u64, "{name}: {gone:?}");
            let left = frames.iter().filter(|entry| !is_lost(entry));
            let kept: Vec<_> = left.map(|e| e.descriptor.data_crc).collect();
            let new: Vec<_> = new.frames().iter().map(|e| e.descriptor.data_crc).collect();
            // The last are the losses, and the end.
            assert_eq!(
                new[..kept.len() - 1],
                kept[..kept.len() - 1],
                "{name}: {gone:?}"
            );
        }
    }
}

/// Wherever a byte is wrong, what is left is whole, and nothing is missing without being counted.
#[test]
fn whatever_byte_is_damaged_the_repaired_capture_is_whole() {
    for name in ["calls.bprof", "../v1.2/family.bprof", "../v1.1/calls.bprof"] {
        let bytes = bytes_of(name);
        let original = Reader::from_bytes(bytes.clone()).unwrap();
        let all = original.samples() + original.lost_samples();
        for at in (0..bytes.len()).step_by(13) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let Some((new, repaired)) = repaired(damaged) else {
                continue;
            };
            let told = new.samples() + new.lost_samples();
            let cut = repaired.found.cut.is_some();
            // What the end says is missing is counted.
            assert!(
                told == all || (told < all && (repaired.lost_frames > 0 || cut)),
                "{name}, byte {at}: {told} of {all}, {repaired:?}"
            );
        }
    }
}

/// A cut end, damage before it, and a segment that goes on behind a damaged frame.
#[test]
fn frames_that_build_on_a_damaged_one_are_left_out_and_counted() {
    let bytes = bytes_of("calls.bprof");
    let old = Reader::from_bytes(bytes.clone()).unwrap();
    let segment: Vec<_> = old
        .frames()
        .iter()
        .filter(|entry| entry.descriptor.kind == FrameKind::Segment)
        .collect();
    assert_eq!(segment.len(), 3);
    for first in 0..3 {
        let mut damaged = bytes.clone();
        damaged[segment[first].offset as usize + 120] ^= 1;
        let (new, repaired) = repaired(damaged).unwrap();
        let samples = |of: &[&bprof::format::index::FrameEntry]| {
            of.iter().map(|e| e.descriptor.samples).sum::<u64>()
        };
        assert_eq!(repaired.lost_frames, 3 - first as u64);
        assert_eq!(repaired.lost_samples, samples(&segment[first..]));
        assert_eq!(repaired.samples, samples(&segment[..first]));
        let end = new.end().unwrap();
        assert_eq!(
            (end.samples, end.lost),
            (repaired.samples, repaired.lost_samples)
        );
    }
    // A descriptor that is gone takes its number of samples with it, unless the index or the end has it, but not that there
    // was a frame.
    let mut damaged = bytes.clone();
    damaged[segment[2].offset as usize + 20] ^= 1;
    let (_, without) = repaired(damaged.clone()).unwrap();
    let known = segment[2].descriptor.samples;
    assert_eq!((without.lost_frames, without.lost_samples), (1, known));
    damaged.pop();
    let (_, without) = repaired(damaged.clone()).unwrap();
    assert_eq!((without.lost_frames, without.lost_samples), (1, known));
    let end = old
        .frames()
        .iter()
        .find(|e| e.descriptor.kind == FrameKind::End);
    damaged[end.unwrap().offset as usize + 120] ^= 1;
    let (_, without) = repaired(damaged).unwrap();
    assert_eq!((without.lost_frames, without.lost_samples), (2, 0));

    let cut = bytes[..segment[2].offset as usize + 200].to_vec();
    let (_, without) = repaired(cut).unwrap();
    assert_eq!((without.lost_frames, without.lost_samples), (0, 0));
    assert_eq!(without.found.cut, Some((segment[2].offset, 200)));
}

#[test]
fn a_report_of_a_repaired_capture_says_what_it_is_without() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in.bprof"), dir.path().join("out.bprof"));
    let mut bytes = bytes_of("calls.bprof");
    let first = Reader::open(&golden("calls.bprof")).unwrap().frames()[0].offset;
    bytes[first as usize + 130] ^= 1;
    fs::write(&input, &bytes).unwrap();

    let repair = run(&input, &out);
    let text = repair.out;
    assert_eq!(repair.code, Some(1), "nothing is left to report");
    let told = format!(
        "profiler: no sample of {} could be saved: {} has none, only what could be read beside them\n",
        input.display(),
        out.display()
    );
    assert_eq!(repair.err, told);
    let size = fs::metadata(&out).unwrap().len();
    assert_eq!(
        text,
        format!(
            "byte {first}: zstd frame, byte 0: the checksum of the compressed bytes does not match (spoils 3 frames, 151 \
             samples)\n\
             left out: 3 frames, with 151 samples as far as that is known\n\
             {}: 2 frames, 0 samples, {size} bytes\n",
            out.display()
        )
    );
    assert_eq!(fs::read(&input).unwrap(), bytes, "never changed");
    let verified = Run::of(subcommand::<&str>("verify", &[]).arg(&out)).ok();
    assert_eq!(verified, "3 frames, 0 samples: no damage, complete\n");
    let report = Run::of(subcommand::<&str>("report", &[]).arg(&out)).ok();
    assert!(
        report.contains("# samples: 0; lost: 151 (100.0 %"),
        "{report}"
    );
    for line in [
        "lost by cause: in damaged frames 151\n",
        "capture: repaired, without 3 damaged frames; recording ended by the command's exit, status 0\n",
        "degraded: repaired: 3 damaged frames, with 151 samples as far as that is known, are left out\n",
    ] {
        assert!(report.contains(line), "{report}");
    }
}

/// As long as there is any sample it has worked, and a good capture that never had one is no failure.
#[test]
fn some_samples_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in.bprof"), dir.path().join("out.bprof"));
    let mut bytes = bytes_of("calls.bprof");
    let reader = Reader::open(&golden("calls.bprof")).unwrap();
    let second = reader
        .frames()
        .iter()
        .filter(|e| e.descriptor.samples > 0)
        .nth(1);
    bytes[second.unwrap().offset as usize + 130] ^= 1;
    fs::write(&input, &bytes).unwrap();
    assert!(run(&input, &out).ok().contains("left out: 2 frames"));
    fs::write(&input, Scene::new().finish()).unwrap();
    assert!(run(&input, &out).ok().contains(" 0 samples, "));
}

#[test]
fn nothing_is_overwritten_that_is_no_capture() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.bprof");
    fs::write(&input, bytes_of("calls.bprof")).unwrap();
    let same = run(&input, &input);
    assert_eq!(same.code, Some(1));
    assert!(same.err.contains("is the capture itself"), "{}", same.err);
    let text = dir.path().join("text");
    fs::write(&text, "mine").unwrap();
    let refused = run(&input, &text);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("is not a capture"), "{}", refused.err);
    assert_eq!(fs::read(&text).unwrap(), b"mine");
    let none = run(&text, &dir.path().join("new"));
    assert_eq!(none.code, Some(1));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");

    // What is at OUT would be kept as OUT.old: in the place of the capture that is read.
    let old = dir.path().join("in.bprof.old");
    fs::write(&old, bytes_of("family.bprof")).unwrap();
    let refused = run(&old, &input);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("would replace"), "{}", refused.err);
    assert_eq!(fs::read(&old).unwrap(), bytes_of("family.bprof"));
    assert_eq!(fs::read(&input).unwrap(), bytes_of("calls.bprof"));
}

fn run(input: &Path, out: &Path) -> Run {
    Run::of(
        subcommand::<&str>("repair", &[])
            .arg(input)
            .arg("-o")
            .arg(out),
    )
}
