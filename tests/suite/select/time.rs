//! What of a segment is read for a time: of the frames before it only what names need.

use bprof::capture::Reader;
use bprof::format::skippable;
use bprof::pipeline::Selection;
use bprof::profile::By;

use super::lines::{Lines, of_profile, of_stream, profile, request};
use super::scene::Random;
use crate::report::fixture::{BASE, Scene, Taken, memory};
use bprof::event::MappedKind;

const FRAMES: u64 = 6;
const SAMPLES: u64 = 4000;

/// One segment of some frames, of one program; the samples of frame k are taken in the time k * SAMPLES ..
fn capture() -> Vec<u8> {
    let mut random = Random(11);
    let mut s = Scene::new();
    let p = s.process(42, 100);
    s.image(p, 0, 0, "app");
    s.map(p, 0, BASE, &memory(MappedKind::File, "/usr/bin/app"));
    for frame in 0..FRAMES {
        for at in 0..SAMPLES {
            let leaf = BASE + random.below(64) * 16;
            s.sample(Taken {
                user: &[leaf, BASE + frame * 8, BASE],
                cpu: (at % 2) as u32,
                ..Taken::of(p, 42, "app", 1_000_000 + frame * SAMPLES + at)
            });
        }
        s.writer.flush().unwrap();
    }
    s.finish()
}

fn at(time: &str) -> Selection {
    Selection {
        times: vec![time.parse().unwrap()],
        ..Selection::default()
    }
}

/// What both ways through a capture give for a time, and the damage they tell.
fn read(reader: &Reader, time: &str) -> (Lines, Vec<String>) {
    let profile = profile(reader, request(at(time), By::Process));
    let (lines, summary) = of_stream(reader, request(at(time), By::Process), |_| true);
    assert_eq!(of_profile(&profile), lines, "{time}");
    assert_eq!(profile.about.damage, summary.about.damage, "{time}");
    (lines, summary.about.damage)
}

#[test]
fn samples_before_a_time_are_not_decompressed() {
    let whole = capture();
    let reader = Reader::from_bytes(whole.clone()).unwrap();
    let mut bytes = whole.clone();
    let frames = reader.frames();
    let frames = frames.iter().filter(|e| e.descriptor.segment == 1);
    let index = frames.clone().map(|e| e.offset).max().unwrap();
    for entry in frames.take(FRAMES as usize - 1) {
        let data = entry.offset as usize + skippable::PREFIX + 88;
        let size = entry.descriptor.compressed as usize;
        // Of the samples, which are behind the tables, no byte stays as it was, and the checksums are right.
        bytes[data + size * 3 / 4..data + size].fill(0xff);
        let mut descriptor = entry.descriptor.clone();
        descriptor.data_crc = crc32c::crc32c(&bytes[data..data + size]);
        let mut head = Vec::new();
        descriptor.encode(&mut head);
        let place = entry.offset as usize + skippable::PREFIX;
        bytes[place..place + head.len()].copy_from_slice(&head);
    }
    // Without the index, whose descriptors are the old ones.
    let magic = bytes.windows(4).rposition(|b| b == b"BPIX").unwrap();
    let magic = bytes[..magic].windows(4).rposition(|b| b == b"BPIX");
    bytes.truncate(magic.unwrap() - skippable::PREFIX);
    assert!(bytes.len() as u64 > index);
    let garbled = Reader::from_bytes(bytes).unwrap();

    let last = format!("{}ns..", (FRAMES - 1) * SAMPLES);
    let (lines, damage) = read(&reader, &last);
    assert_eq!(lines.values().sum::<u64>(), SAMPLES);
    assert_eq!(damage, [""; 0]);
    assert_eq!(read(&garbled, &last), (lines, damage));
    // Where those samples are asked for, it is seen what they are.
    let (lines, damage) = read(&garbled, &format!("{}ns..", (FRAMES - 2) * SAMPLES));
    assert_eq!(lines, Lines::new());
    assert_eq!(damage.len(), 1, "{damage:?}");
}

/// A program that was run before the time, and of which only samples tell.
#[test]
fn an_exec_that_was_lost_before_a_time_costs_the_names_in_it() {
    let taken = |p, exec_id, time| Taken {
        user: &[BASE + 16],
        exec_id,
        ..Taken::of(p, 42, "app", time)
    };
    let scene = |exec: bool, before: &[u32]| {
        let mut s = Scene::new();
        let p = s.process(42, 100);
        s.image(p, 0, 0, "app");
        s.map(p, 0, BASE, &memory(MappedKind::File, "/usr/bin/app"));
        let other = s.process(43, 100);
        s.image(other, 0, 0, "other");
        s.sample(taken(other, 3, 1_000_000));
        for (i, exec_id) in before.iter().enumerate() {
            s.sample(taken(p, *exec_id, 1_000_001 + i as u64));
            s.writer.flush().unwrap();
        }
        if exec {
            s.image(p, 1_000_500, 1, "next");
            s.map(
                p,
                1_000_500,
                BASE,
                &memory(MappedKind::File, "/usr/bin/next"),
            );
        }
        s.sample(taken(p, 9, 1_001_000));
        Reader::from_bytes(s.finish()).unwrap()
    };
    let lines = |reader: &Reader| {
        let (lines, damage) = read(reader, "900ns..");
        assert_eq!(damage, [""; 0]);
        lines.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(lines(&scene(false, &[9, 9])), ["app-42;[app+0x10]"]);
    assert_eq!(lines(&scene(false, &[8, 9])), ["app-42;[unknown]"]);
    assert_eq!(lines(&scene(false, &[9, 8])), ["app-42;[unknown]"]);
    // The smaller number was another program's, as the capture knows.
    assert_eq!(lines(&scene(true, &[8, 8])), ["next-42;[next+0x10]"]);
}
