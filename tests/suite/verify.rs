//! `profiler verify`: whatever is changed in a capture is found, and nothing is in one that was not.

use std::fs;
use std::io::Write;
use std::path::Path;

use bprof::capture::Reader;
use bprof::capture::verify::{Verified, verify};

use super::golden::golden;
use super::report::fixture::{Run, subcommand};

const GOLDEN: [&str; 5] = [
    "calls.bprof",
    "family.bprof",
    "../v1.1/calls.bprof",
    "../v1.1/family.bprof",
    "../v1.1/paths.bprof",
];

fn run(capture: &Path) -> Run {
    Run::of(subcommand::<&str>("verify", &[]).arg(capture))
}

fn check(bytes: Vec<u8>) -> Option<Verified> {
    let reader = Reader::from_bytes(bytes).ok()?;
    Some(verify(&reader, || {}))
}

#[test]
fn captures_as_they_were_written_are_good() {
    for name in GOLDEN {
        let text = run(&golden(name)).ok();
        let state = match name.ends_with("family.bprof") {
            true => "no damage, recording was cut short\n",
            false => "no damage, complete\n",
        };
        assert!(text.ends_with(state), "{name}: {text}");
    }
    let text = run(&golden("calls.bprof")).ok();
    assert_eq!(text, "5 frames, 151 samples: no damage, complete\n");
}

/// Recorded and packed captures: a changed byte is found, at that byte or before it, or the capture cannot be opened.
#[test]
fn every_changed_byte_is_found() {
    for name in ["calls.bprof", "../v1.1/calls.bprof", "../v1.1/family.bprof"] {
        let bytes = fs::read(golden(name)).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            // A capture that cannot be opened at all says so.
            let Some(found) = check(changed) else {
                continue;
            };
            let first = found.damage.first().map(|damage| damage.offset);
            assert!(
                first.is_some_and(|offset| offset <= at as u64),
                "{name}: byte {at} was changed; {found:?}"
            );
        }
    }
}

/// An end that is missing is no damage, wherever it is missing from.
#[test]
fn a_cut_capture_is_not_damaged() {
    let bytes = fs::read(golden("../v1.1/calls.bprof")).unwrap();
    for len in 0..bytes.len() {
        let Some(found) = check(bytes[..len].to_vec()) else {
            continue;
        };
        assert!(found.damage.is_empty(), "{len} bytes: {:?}", found.damage);
    }
}

#[test]
fn damage_is_told_with_its_place_and_what_it_spoils() {
    let path = golden("calls.bprof");
    let bytes = fs::read(&path).unwrap();
    let offsets: Vec<u64> = Reader::open(&path)
        .unwrap()
        .frames()
        .iter()
        .map(|entry| entry.offset)
        .collect();
    let mut changed = bytes.clone();
    // Inside the compressed bytes of the first frame.
    changed[offsets[0] as usize + 130] ^= 1;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&changed).unwrap();
    let failed = run(file.path());
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    let expected = format!(
        "byte {}: zstd frame, byte 0: the checksum of the compressed bytes does not match (spoils 3 frames, 151 samples)\n\
         5 frames, 0 samples: damaged in 1 place\n",
        offsets[0]
    );
    assert_eq!(failed.out, expected);

    // Later frames of its segment are checked too.
    changed[offsets[2] as usize + 130] ^= 1;
    let damage = check(changed).unwrap().damage;
    let found: Vec<u64> = damage.iter().map(|damage| damage.offset).collect();
    assert_eq!(found, [offsets[0], offsets[2]]);

    let cut = check(bytes[..offsets[2] as usize + 150].to_vec()).unwrap();
    assert_eq!(cut.cut, Some((offsets[2], 150)));
    assert!(!cut.ended);
}
