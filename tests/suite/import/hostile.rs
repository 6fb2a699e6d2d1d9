//! Recordings that are damaged, or made to do harm: what can be read is imported and the rest told, in bounded memory.

use std::fs;

use super::made::{MARK_USER, Made, Map, USER};
use super::{golden, imported, map};
use crate::report::fixture::{Run, subcommand};

const GOLDEN: [&str; 5] = [
    "calls.data",
    "packed.data",
    "stream.data",
    "family.data",
    "dwarf.data",
];

fn bytes_of(name: &str) -> Vec<u8> {
    fs::read(golden(name)).unwrap()
}

/// Wherever a recording is cut, what is before is there and the cut is told; of a stream a cut between two records looks like
/// its end.
#[test]
fn what_is_cut_is_imported_up_to_the_cut() {
    for name in GOLDEN {
        let whole = bytes_of(name);
        let (all, _) = imported(whole.clone()).unwrap();
        let mut last = 0;
        for len in (0..whole.len()).step_by(whole.len() / 97) {
            let Ok((reader, now)) = imported(whole[..len].to_vec()) else {
                assert_eq!(last, 0, "{name}: {len} bytes");
                continue;
            };
            assert!(
                (last..=all.samples()).contains(&reader.samples()),
                "{name}: {len} bytes"
            );
            last = reader.samples();
            if name != "stream.data" {
                assert!(!now.damage.is_empty(), "{name}: {len} bytes");
            }
        }
        assert!(last > all.samples() / 2, "{name}");
    }
}

#[test]
fn a_partial_import_fails_and_leaves_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let (cut, capture) = (dir.path().join("cut.data"), dir.path().join("cut.bprof"));
    let whole = bytes_of("calls.data");
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let run = Run::of(subcommand("import", &["-o"]).arg(&capture).arg(&cut));
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(run.err.contains("the file is cut"), "{}", run.err);
    let report = Run::of(subcommand("report", &["--top", "3"]).arg(&capture)).ok();
    assert!(report.contains("# capture: cut short"), "{report}");
    assert!(
        report.contains("# degraded: perf.data is damaged"),
        "{report}"
    );
    // One that perf was killed over has no length yet.
    let mut killed = whole.clone();
    killed[48..56].fill(0);
    let (reader, imported_now) = imported(killed).unwrap();
    assert!(reader.samples() > 0);
    let said = "perf did not end it: it was killed, or still records";
    assert!(
        imported_now.damage[0].contains(said),
        "{:?}",
        imported_now.damage
    );
}

#[test]
fn flipped_bytes_do_no_harm() {
    for name in GOLDEN {
        let whole = bytes_of(name);
        for at in (0..whole.len()).step_by(29) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at / 29 % 8);
            // Whatever comes of it: no panic, and a capture that verifies.
            let _ = imported(bytes);
        }
    }
}

/// Sizes and counts that no file has cost nothing but a message.
#[test]
fn absurd_lengths_are_refused() {
    let whole = bytes_of("calls.data");
    for (at, len) in [(8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8), (72, 8)] {
        for value in [0, 1, u64::MAX, u64::MAX / 2, 1 << 40] {
            let mut bytes = whole.clone();
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes());
            let _ = imported(bytes);
        }
    }
    let record = |misc: u16| {
        let mut made = Made::default();
        let code = Map {
            time: 10,
            ..map(7, "/bin/a", 1, 0)
        };
        made.map_with_id(code, [1; 20], 255);
        made.map_with_id(code, [1; 20], 20);
        made.sample(misc, (7, 7), 100, &[MARK_USER, 0x40_0010]);
        // So many strings, events, ids.
        for feature in [3, 4, 5, 6, 7, 11, 12, 2, 29] {
            made.feature(feature, &[0xff; 64]);
        }
        made
    };
    let (reader, imported_now) = imported(record(USER).file()).unwrap();
    assert_eq!((reader.samples(), imported_now.samples), (1, 1));
    assert!(
        imported_now
            .notes
            .join(" ")
            .contains("damaged records of processes, left out, so that names may be missing: 1")
    );
    // A call chain longer than its record.
    let mut made = Made::default();
    let mut body = [0u8; 48];
    body[32..40].fill(0xff);
    made.record(9, USER, &body);
    made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
    assert_eq!(imported(made.file()).unwrap().1.lost, 1);
}

/// Compressed records that unpack to thousands of times their size end the import, not the memory.
#[test]
fn a_bomb_is_defused() {
    let mut made = Made::default();
    made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
    let mut plain = Made::default();
    plain.record(82, 0, &[0; 1000]);
    let one = plain.stream()[16 + 8 + 128..].to_vec();
    let many = one.repeat((300 << 20) / one.len());
    let packed = zstd::bulk::compress(&many, 19).unwrap();
    assert!(packed.len() < 60_000, "{}", packed.len());
    made.record(81, 0, &packed);
    let (reader, imported_now) = imported(made.file()).unwrap();
    assert_eq!(reader.samples(), 1);
    assert!(
        imported_now.damage[0].contains("absurdly much"),
        "{:?}",
        imported_now.damage
    );
}

/// Counts as large as there are go no further: neither an overflow nor a small sum that looks right.
#[test]
fn losses_beyond_counting_stay_beyond_counting() {
    const LOST: u32 = 2;
    const LOST_SAMPLES: u32 = 13;
    for counts in [
        [Some(u64::MAX), None],
        [None, Some(u64::MAX)],
        [Some(u64::MAX), Some(1)],
        [Some(u64::MAX), Some(u64::MAX)],
    ] {
        let mut made = Made::default();
        made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
        // Two of each, a sample and a mapping that are cut.
        for _ in 0..2 {
            for (kind, count) in [LOST, LOST_SAMPLES].into_iter().zip(counts) {
                let Some(count) = count else { continue };
                let body = match kind {
                    LOST => [1, count].map(u64::to_le_bytes).concat(),
                    _ => count.to_le_bytes().to_vec(),
                };
                made.told(kind, 0, body, (7, 7), 200);
            }
            made.record(9, USER, &[0; 8]);
            made.record(10, USER, &[0; 8]);
        }
        let (reader, imported_now) = imported(made.file()).unwrap();
        assert_eq!(reader.samples(), 1, "{counts:?}");
        let samples = match counts {
            [_, Some(1)] => 4,
            _ => u64::MAX,
        };
        assert_eq!(imported_now.lost, samples, "{counts:?}");
        assert_eq!(imported_now.left_out, 4, "{counts:?}");
    }
}
