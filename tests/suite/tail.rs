//! The end of a capture: cut by a kill or a loss of power, kept within a limit, or changed.

use std::fs;

use bprof::capture::verify::verify;
use bprof::capture::writer::WriteError;
use bprof::capture::{CaptureWriter, Reader};
use bprof::event::{LossClass, Timestamp};
use bprof::format::end::{End, EndReason};

use super::golden::golden;
use super::report::fixture::{Run, Scene, Taken, header, subcommand};

/// What has to be there: samples of all frames that end within the first `len` bytes.
fn samples_within(reader: &Reader, len: u64) -> u64 {
    let frames = reader.frames().iter().filter(|frame| frame.end() <= len);
    frames.map(|frame| frame.descriptor.samples).sum()
}

/// Damage and samples that can be read.
fn read(bytes: Vec<u8>) -> Option<(usize, u64)> {
    let reader = Reader::from_bytes(bytes).ok()?;
    let found = verify(&reader, || {});
    Some((found.damage.len(), found.samples))
}

/// After a loss of power the file has its length and zeros, or what was on the disk before the file, from any byte on: what is
/// before is all there, and no byte of it is called damaged.
#[test]
fn zeros_from_any_byte_on_are_a_cut() {
    for name in ["../v1.1/calls.bprof", "../v1.1/family.bprof"] {
        let bytes = fs::read(golden(name)).unwrap();
        let whole = Reader::from_bytes(bytes.clone()).unwrap();
        let first = whole.frames()[0].offset as usize;
        for len in first.max(bytes.len().saturating_sub(2500))..bytes.len() {
            let mut lost = bytes.clone();
            lost[len..].fill(0);
            let all = read(lost.clone()).unwrap_or_else(|| panic!("{name}: {len}"));
            // A frame that only lacks zeros is whole.
            let kept = samples_within(&whole, len as u64);
            assert!(
                all.1 >= kept && all.0 == 0,
                "{name}: zeros from {len}: {all:?}, {kept}"
            );
            // Up to the end of the block, or the file had room reserved.
            lost.resize(bytes.len().next_multiple_of(4096) + 4096, 0);
            assert_eq!(read(lost), Some(all), "{name}: {len}");
        }
    }
}

/// Pages are written in any order: one that is missing before one that is there is damage, which is told; what was brought to the
/// disk before is all there.
#[test]
fn a_page_that_is_missing_spoils_nothing_before_it() {
    const PAGE: usize = 512;
    let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
    let mut scene_samples = 0;
    let mut synced = Vec::new();
    for round in 0..6u64 {
        // Each a segment, so that one spoils no other.
        writer.start_segment().unwrap();
        let mut scene = Scene { writer };
        let app = scene.process(100, 500);
        scene.image(app, 0, 0, "app");
        for i in 0..200 {
            let address = 0x1000 + (i * 7919 + round * 31) % 4000;
            scene.sample(Taken {
                user: &[address, address * 3, address * 7],
                ..Taken::of(app, 100, "app", 1_000_000_000 * (round + 1) + i * i * 1013)
            });
            scene_samples += 1;
        }
        writer = scene.writer;
        writer.flush().unwrap();
        synced.push((writer.bytes_written() as usize, scene_samples));
    }
    let bytes = writer.get_ref().clone();
    assert!(bytes.len() > 8 * PAGE, "{}", bytes.len());
    for (end, samples) in synced {
        // The page in which the synced part ends was written with it.
        let pages = (end.next_multiple_of(PAGE)..bytes.len()).step_by(PAGE);
        for missing in pages {
            for shift in 0..8 {
                let mut lost = bytes.clone();
                let from = missing + shift * PAGE / 8;
                let to = (from + PAGE).min(lost.len());
                lost.get_mut(from..to).unwrap_or_default().fill(0);
                let changed = lost != bytes;
                let (damage, found) = read(lost).unwrap();
                assert!(found >= samples, "{found} of {samples}, {missing}");
                let cut = to == bytes.len();
                assert!(
                    damage > 0 || cut || !changed,
                    "nothing said: {from} of {}",
                    bytes.len()
                );
            }
        }
    }
}

/// A cut leaves the beginning of what would have come: bytes that are not that are damage, also a length that points behind the
/// end.
#[test]
fn a_changed_length_is_no_cut() {
    for name in ["calls.bprof", "../v1.1/calls.bprof", "../v1.1/family.bprof"] {
        let bytes = fs::read(golden(name)).unwrap();
        let first = Reader::from_bytes(bytes.clone()).unwrap().frames()[0].offset as usize;
        // All others are changed in the tests of `verify`.
        for at in first.max(bytes.len().saturating_sub(900))..bytes.len() {
            for bit in [1, 0x80] {
                let mut changed = bytes.clone();
                changed[at] ^= bit;
                let (damage, _) = read(changed).unwrap();
                assert!(
                    damage > 0,
                    "{name}: bit {bit:#x} of byte {at} was changed unseen"
                );
            }
        }
    }
}

/// Whatever the limit: the file is never longer, all that was taken is a sample or counted as lost, and it ends in order.
#[test]
fn a_limit_is_kept_to_and_what_does_not_fit_is_counted() {
    for limit in (1500..9000u64).step_by(83) {
        let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
        writer.limit_to(limit);
        let mut taken = 0u64;
        let mut full = false;
        for round in 0..100u64 {
            let mut scene = Scene { writer };
            let app = scene.process(100 + round as u32, 500);
            scene.image(app, 0, 0, "app");
            for i in 0..50 {
                let address = 0x1000 + (i * 7919 + round * 31) % 4000;
                let time = 1_000_000_000 * (round + 1) + i * i * 1013;
                scene.sample(Taken {
                    user: &[address, address * 3],
                    ..Taken::of(app, 100, "app", time)
                });
                taken += 1;
            }
            writer = scene.writer;
            writer.loss(LossClass::RingFull, Some(1), 3);
            taken += 3;
            match writer.flush() {
                Ok(()) => {}
                Err(WriteError::Full { .. }) => {
                    full = true;
                    break;
                }
                Err(err) => panic!("{err}"),
            }
        }
        assert!(full, "{limit}");
        assert!(writer.unwritten().samples > 0);
        // What it counts has to find room too.
        let counted = writer.flush().is_ok();
        let end = End {
            time: Timestamp(1),
            reason: EndReason::Failure("a limit".into()),
            samples: writer.samples_written(),
            lost: 0,
            processes: 1,
        };
        let bytes = writer.finish(&end).unwrap();
        assert!(bytes.len() as u64 <= limit, "{} of {limit}", bytes.len());
        let reader = Reader::from_bytes(bytes).unwrap();
        assert!(reader.end().is_some());
        let found = verify(&reader, || {});
        assert!(found.damage.is_empty(), "{limit}: {:?}", found.damage);
        assert!(counted, "{limit}");
        assert_eq!(reader.samples() + reader.lost_samples(), taken, "{limit}");
    }
}

/// Towards a limit frames become smaller, so that what finds no room is what came at once, not a second or all there is; and it
/// counts for as much as it would have in the file.
#[test]
fn little_is_lost_at_a_limit() {
    const BATCH: u64 = 100;
    const WEIGHT: u64 = 4;
    for limit in (16 << 10..300 << 10).step_by(7919) {
        let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
        writer.limit_to(limit);
        let mut scene = Scene { writer };
        let app = scene.process(100, 500);
        scene.image(app, 0, 0, "app");
        let mut taken = 0;
        // Batches as they are drained; a frame by the clock has thirty.
        for batch in 1.. {
            for i in 0..BATCH {
                let address = 0x1000 + (i * 7919 + batch * 31) % 4000;
                scene.sample(Taken {
                    user: &[address, address * 3 + batch, address * 7],
                    weight: WEIGHT,
                    ..Taken::of(app, 100, "app", (batch * BATCH + i) * 1_000_000)
                });
                taken += 1;
            }
            let before = scene.writer.bytes_written();
            if scene.writer.frame_is_full() || batch % 30 == 0 {
                match scene.writer.flush() {
                    Ok(()) => {}
                    Err(WriteError::Full { .. }) => break,
                    Err(err) => panic!("{err}"),
                }
            }
            if scene.writer.bytes_written() > before && scene.writer.is_nearly_full() {
                break;
            }
        }
        let mut writer = scene.writer;
        let unwritten = writer.unwritten();
        assert_eq!(unwritten.weight, WEIGHT * unwritten.samples);
        assert!(unwritten.samples <= 2 * BATCH, "{limit}: {unwritten:?}");
        writer.flush().unwrap();
        let samples = writer.samples_written();
        let end = End {
            time: Timestamp(1),
            reason: EndReason::Failure("a limit".into()),
            samples,
            lost: unwritten.weight,
            processes: 1,
        };
        let bytes = writer.finish(&end).unwrap();
        let used = bytes.len() as u64;
        assert!(used <= limit && used > limit / 2, "{used} of {limit}");
        let reader = Reader::from_bytes(bytes).unwrap();
        assert_eq!(samples + unwritten.samples, taken, "{limit}");
        assert_eq!(reader.lost_samples(), unwritten.weight, "{limit}");
    }
}

/// The end's totals hold where frames tell of less: what is lost without a cause is lost, and samples it tells of that are not there
/// are damage, for a report as for `verify`.
#[test]
fn the_totals_of_the_end_hold() {
    let capture = |more: u64, lost: u64| {
        let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
        writer.loss(LossClass::RingFull, Some(1), 3);
        let mut scene = Scene { writer };
        let app = scene.process(100, 500);
        scene.image(app, 0, 0, "app");
        scene.sample(Taken {
            user: &[0x1234],
            ..Taken::of(app, 100, "app", 1_000_000_000)
        });
        let end = End {
            time: Timestamp(2_000_000_000),
            reason: EndReason::Duration,
            samples: 1 + more,
            lost,
            processes: 1,
        };
        scene.writer.finish(&end).unwrap()
    };
    let lost = |bytes: Vec<u8>| Reader::from_bytes(bytes).unwrap().lost_samples();
    assert_eq!([0, 3, 10].map(|told| lost(capture(0, told))), [3, 3, 10]);
    let dir = tempfile::tempdir().unwrap();
    let run = |command: &str, bytes: &[u8]| {
        let file = dir.path().join("run.bprof");
        fs::write(&file, bytes).unwrap();
        Run::of(subcommand(command, &[] as &[&str]).arg(file))
    };
    let report = run("report", &capture(0, 10));
    let told = "lost: 10 (90.9 % of those taken)\n# lost by cause: ring full 3, not told 7\n";
    assert!(report.out.contains(told), "{}", report.out);
    let missing = capture(5, 3);
    for command in ["report", "info", "verify"] {
        let run = run(command, &missing);
        let said = format!("{}{}", run.out, run.err);
        assert!(said.contains("number of samples"), "{command}: {said}");
        assert_eq!(run.code, Some(1), "{command}: {said}");
    }
}
