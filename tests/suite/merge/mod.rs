//! `profiler merge`: several captures in one file, each with its own host, clock and kernel, told together.

mod captures;
mod lacking;
mod order;
mod twins;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bprof::capture::members::{MergeError, merge};
use bprof::capture::verify::verify;
use bprof::capture::{CaptureWriter, Reader};
use bprof::event::{MappedFile, MappedKind, Timestamp};
use bprof::format::aid::{KernelSymbol, KernelSymbols};
use bprof::format::header::Header;
use bprof::format::member::{FRAME_LEN, Member};
use bprof::pipeline::{self, Request};
use bprof::profile::By;
use bprof::symbolize::Options;

use crate::golden::of_version;
use crate::report::fixture::{
    BASE, Bench, KERNEL, Run, Scene, Taken, header, memory, profiler, subcommand,
};

/// A capture of `host`, whose clock began at `wall` (ns since 1970): `count` samples of process 100, a microsecond apart, in
/// kernel code that is called `kernel` there.
fn capture(host: &str, wall: i64, start: u64, kernel: &str, count: u64) -> Vec<u8> {
    let header = Header {
        host: host.to_owned(),
        boot_id: format!("{:08x}-boot", wall % 0xffff_ffff),
        wall_offset_ns: wall,
        start_time: Timestamp(start),
        ..header()
    };
    let mut scene = Scene {
        writer: CaptureWriter::create(Vec::new(), &header).unwrap(),
    };
    let app = scene.process(100, 500);
    scene.image(app, 0, 0, "app");
    let file = MappedFile {
        path: b"/srv/app".to_vec(),
        ..memory(MappedKind::File, "/srv/app")
    };
    scene.map(app, 0, BASE, &file);
    for i in 0..count {
        scene.sample(Taken {
            user: &[BASE + 0x10],
            kernel: &[KERNEL + 0x10],
            ..Taken::of(app, 100, "app", start + i * 1000)
        });
    }
    let symbol = KernelSymbol {
        start: KERNEL,
        end: KERNEL + 0x100,
        name: kernel.to_owned(),
        module: None,
    };
    let symbols = KernelSymbols {
        stext: KERNEL,
        symbols: vec![symbol],
    };
    scene.writer.kernel_symbols(&symbols).unwrap();
    scene.finish()
}

const SECOND: u64 = 1_000_000_000;
/// When host one was booted.
const BOOT: i64 = 1_700_000_000 * SECOND as i64;

/// Two hosts, booted an hour apart, with kernels of which one calls the same address another name.
fn two() -> [Vec<u8>; 2] {
    [
        capture("one", BOOT, 7200 * SECOND, "first_kernel", 3),
        capture(
            "two",
            BOOT + 3600 * SECOND as i64,
            3700 * SECOND,
            "second_kernel",
            5,
        ),
    ]
}

fn merged(captures: &[Vec<u8>]) -> Vec<u8> {
    let readers: Vec<Reader> = captures
        .iter()
        .map(|bytes| Reader::from_bytes(bytes.clone()).unwrap())
        .collect();
    let captures: Vec<&Reader> = readers.iter().flat_map(Reader::captures).collect();
    let mut out = Vec::new();
    let len = merge(&captures, &mut out).unwrap();
    assert_eq!(len, out.len() as u64);
    out
}

fn folded(bytes: &[u8], options: &[&str]) -> String {
    let options = [&["--folded"], options].concat();
    Run::piped(&options, bytes).ok()
}

#[test]
fn each_capture_is_named_by_its_own_tables() {
    let bytes = merged(&two());
    assert_eq!(
        folded(&bytes, &[]),
        "app-100@one;[app+0x10];first_kernel_[k] 3\napp-100@two;[app+0x10];second_kernel_[k] 5\n"
    );
    assert_eq!(
        folded(&bytes, &["--host", "two"]),
        "app-100@two;[app+0x10];second_kernel_[k] 5\n"
    );
    // Times from the beginning are from that of all of them, 100 s before the second one began.
    assert_eq!(
        folded(&bytes, &["--time", "50s..200s"]),
        "app-100@two;[app+0x10];second_kernel_[k] 5\n"
    );
    let told = Run::piped(&["--top", "3", "--host", "two"], &bytes).ok();
    assert!(told.contains("host two"), "{told}");
    let reader = Reader::from_bytes(bytes).unwrap();
    let by_host = |by| {
        let request = Request {
            by,
            ..Request::from(Options::default())
        };
        let profile = pipeline::profile(&reader, request, &mut (), &mut |_| {});
        let rows = profile.rows.iter();
        let rows = rows.map(|row| {
            (
                profile.root(row.group).unwrap_or("").to_owned(),
                row.samples,
            )
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!(by_host(By::Host), [("one".into(), 3), ("two".into(), 5)]);
    // The same program on both: the kernel function tells the rows apart.
    assert_eq!(by_host(By::Comm), [("app".into(), 3), ("app".into(), 5)]);
}

/// Rotations of one host are one host: processes keep their names and go on.
#[test]
fn captures_of_one_host_are_counted_together() {
    let rotated = [
        capture("one", BOOT, 10 * SECOND, "kernel", 3),
        capture("one", BOOT, 20 * SECOND, "kernel", 4),
    ];
    let bytes = merged(&rotated);
    assert_eq!(folded(&bytes, &[]), "app-100;[app+0x10];kernel_[k] 7\n");
    let reader = Reader::from_bytes(bytes).unwrap();
    assert_eq!((reader.samples(), reader.captures().len()), (7, 2));
    assert_eq!(pipeline::hosts(&reader), ["one"]);
    // Two machines of one name, at the same time.
    let twins = [
        capture("vm", BOOT, 10 * SECOND, "kernel", 3),
        capture("vm", BOOT + 1000, 10 * SECOND, "kernel", 4),
    ];
    let text = folded(&merged(&twins), &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines.iter().all(|line| line.starts_with("app-100@vm#")),
        "{text}"
    );
}

/// Each capture's times are its own clock's: every sample has the time of day it has alone.
#[test]
fn times_are_those_of_each_capture() {
    let captures = two();
    let standard = |bytes: &[u8]| Run::piped(&["--standard"], bytes).ok();
    let times = |text: &str| -> Vec<String> {
        let samples = text.lines().filter(|line| line.contains("[cpu "));
        samples.map(|line| line[..30].to_owned()).collect()
    };
    let alone: Vec<String> = captures
        .iter()
        .flat_map(|bytes| times(&standard(bytes)))
        .collect();
    let mut sorted = alone.clone();
    sorted.sort();
    let together = standard(&merged(&captures));
    assert_eq!(times(&together), sorted);
    assert_eq!(sorted.len(), 8);
    let line = together
        .lines()
        .find(|line| line.starts_with("# time: "))
        .unwrap();
    let (first, last) = (&sorted[0], &sorted[7]);
    assert!(
        line.contains(&format!("{first} to {last}")),
        "{line} of {sorted:?}"
    );
    assert!(together.starts_with("# host: one, two, "), "{together}");
    // What other tools get agrees: samples are counted once, and by host.
    let script = Run::piped(&["--perf-script"], &merged(&captures)).ok();
    let stacks = script.matches("first_kernel").count() + script.matches("second_kernel").count();
    assert_eq!(stacks, 8, "{script}");
}

#[test]
fn the_same_recording_is_not_merged_twice() {
    let [one, two] = two();
    let readers = [&one, &two, &one].map(|bytes| Reader::from_bytes(bytes.clone()).unwrap());
    let err = merge(&readers.each_ref(), &mut Vec::new()).unwrap_err();
    assert!(matches!(err, MergeError::Same(0, 2)), "{err}");
    let bench = Bench::new();
    let (a, b) = (
        bench.capture("a.bprof", &one),
        bench.capture("b.bprof", &one),
    );
    let out = bench.path("all.bprof");
    let run = Run::of(subcommand("merge", &["-o"]).arg(&out).args([&a, &b]));
    assert_eq!(run.code, Some(1));
    let said = format!(
        "{} and {} hold the same recording",
        a.display(),
        b.display()
    );
    assert!(run.err.contains(&said), "{}", run.err);
    assert!(!out.exists());
}

/// Merged captures are merged as their parts, and the order of what is given does not matter for what is told.
#[test]
fn merging_again_flattens() {
    let [one, two] = two();
    let three = capture("three", BOOT, 9000 * SECOND, "third_kernel", 2);
    let nested = merged(&[merged(&[one.clone(), two.clone()]), three.clone()]);
    assert_eq!(nested, merged(&[one.clone(), two.clone(), three.clone()]));
    let other = merged(&[three, two, one]);
    assert_eq!(folded(&nested, &[]), folded(&other, &[]));
    assert_eq!(Reader::from_bytes(nested).unwrap().captures().len(), 3);
}

#[test]
fn all_commands_take_merged_captures() {
    let bench = Bench::new();
    let [one, two] = two();
    let paths = [
        bench.capture("one.bprof", &one),
        bench.capture("two.bprof", &two),
    ];
    let all = bench.path("all.bprof");
    let out = Run::of(subcommand("merge", &["-o"]).arg(&all).args(&paths)).ok();
    assert!(
        out.starts_with("merged 2 captures with 8 samples into "),
        "{out}"
    );
    let status = Command::new("zstd")
        .args(["-t", "-q"])
        .arg(&all)
        .status()
        .unwrap();
    assert!(status.success());
    let verified = Run::of(&mut subcommand("verify", &[&all])).ok();
    assert!(
        verified.contains("8 samples: no damage, complete"),
        "{verified}"
    );
    let info = Run::of(&mut subcommand("info", &[&all])).ok();
    assert!(
        info.starts_with("merged of 2 captures, 8 samples, "),
        "{info}"
    );
    let json = Run::of(subcommand("info", &["--json"]).arg(&all)).ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let hosts = json["merged"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["host"].clone());
    assert_eq!(hosts.collect::<Vec<_>>(), ["one", "two"]);
    let packed = Run::of(&mut subcommand("pack", &[&all]));
    assert_eq!(packed.code, Some(1));
    assert!(
        packed
            .err
            .contains("pack each where it was recorded, then merge them"),
        "{}",
        packed.err
    );
    let repaired = bench.path("good.bprof");
    Run::of(subcommand("repair", &["-o"]).arg(&repaired).arg(&all)).ok();
    let report = |path: &Path| Run::report(&["--folded"], path).ok();
    assert_eq!(report(&repaired), report(&all));
    let missing = Run::report(&["--missing"], &all).ok();
    let lines = missing.lines().filter(|line| !line.starts_with('#'));
    let of_app = lines.filter(|line| line.contains("/srv/app")).count();
    assert_eq!(of_app, 1, "{missing}");
    for export in ["--pprof", "--firefox", "--speedscope"] {
        let run = Run::of(profiler(&[export]).arg(bench.path("export")).arg(&all));
        assert_eq!(run.code, Some(0), "{export}: {}", run.err);
        fs::remove_file(bench.path("export")).unwrap();
    }
    // From a pipe, beside a file.
    let mut piped = subcommand("merge", &["-o"]);
    piped.arg(bench.path("piped.bprof")).arg("-").arg(&paths[1]);
    piped
        .stdin(fs::File::open(&paths[0]).unwrap())
        .stdout(Stdio::null());
    assert!(piped.status().unwrap().success());
    assert_eq!(report(&bench.path("piped.bprof")), report(&all));
}

/// A capture that is damaged, or was cut by a kill, spoils no other.
#[test]
fn damage_stays_where_it_is() {
    let [one, two] = two();
    let whole = merged(&[one.clone(), two.clone()]);
    let bench = Bench::new();
    let cut = bench.capture("cut.bprof", &one[..one.len() - 380]);
    let good = bench.capture("two.bprof", &two);
    let out = bench.path("all.bprof");
    let run = Run::of(subcommand("merge", &["-o"]).arg(&out).args([&cut, &good]));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("are no whole frame"), "{}", run.err);
    assert!(
        Command::new("zstd")
            .args(["-t", "-q"])
            .arg(&out)
            .status()
            .unwrap()
            .success()
    );
    let report = Run::report(&["--top", "3"], &out).ok();
    assert!(report.contains("# capture: cut short"), "{report}");
    // Wherever bytes change, there is no panic, and the other capture is all there.
    let second = whole.len() - two.len();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let Ok(reader) = Reader::from_bytes(bytes) else {
            assert!(at < second - one.len(), "byte {at}");
            continue;
        };
        let found = verify(&reader, || {});
        assert!(
            !found.damage.is_empty() || found.cut.is_some() || !found.ended,
            "byte {at}"
        );
        let counts: Vec<u64> = reader.captures().iter().map(|r| r.samples()).collect();
        if at > second {
            assert_eq!(counts[0], 3, "byte {at}");
        } else if at > second - one.len() && at < second - FRAME_LEN {
            assert_eq!(counts.last(), Some(&5), "byte {at}");
        }
        pipeline::profile(&reader, Request::default(), &mut (), &mut |_| {});
    }
    let mut last = 0;
    for len in 0..whole.len() {
        let Ok(reader) = Reader::from_bytes(whole[..len].to_vec()) else {
            assert_eq!(last, 0, "{len} bytes");
            continue;
        };
        assert!(reader.samples() >= last, "{len} bytes");
        last = reader.samples();
    }
    assert_eq!(last, 8);
}

/// Such a file is written as a whole, so a capture that is not in it any more, or twice, is damage and is told.
#[test]
fn captures_that_are_missing_or_there_twice_are_damage() {
    let [one, two] = two();
    let whole = merged(&[one.clone(), two.clone()]);
    let second = whole.len() - two.len() - FRAME_LEN;
    let start = second - one.len() - FRAME_LEN;
    let (head, first, last) = (&whole[..start], &whole[start..second], &whole[second..]);
    for (bytes, samples, told) in [
        ([head, first].concat(), 3, "1 of the 2 captures are missing"),
        ([head, last].concat(), 5, "1 of the 2 captures are missing"),
        (
            [head, first, first, last].concat(),
            8,
            "capture 1 is there again",
        ),
        (head.to_vec(), 0, "no capture is in it"),
        (
            whole[..second + 10].to_vec(),
            3,
            "1 of the 2 captures are missing",
        ),
    ] {
        let reader = Reader::from_bytes(bytes.clone()).unwrap();
        assert_eq!(reader.samples(), samples, "{told}");
        let damage = verify(&reader, || {}).damage;
        assert!(
            damage.iter().any(|d| d.to_string().contains(told)),
            "{told}: {damage:?}"
        );
        let run = Run::piped(&["--folded"], &bytes);
        assert_eq!(run.code, Some(1), "{told}");
        assert!(run.err.contains(told), "{}", run.err);
    }
}

/// Sizes that no file has, captures in captures, and thousands of them.
#[test]
fn hostile_files_of_captures_are_bounded() {
    let [one, two] = two();
    let start = merged(&[]);
    let with = |members: &[(u64, &[u8])]| {
        let mut bytes = start.clone();
        for (number, (size, content)) in members.iter().enumerate() {
            let member = Member {
                count: members.len() as u32,
                number: number as u32,
                size: *size,
            };
            bytes.extend(member.encode());
            bytes.extend(*content);
        }
        Reader::from_bytes(bytes).unwrap()
    };
    let len = one.len() as u64;
    for size in [0, 1, len - 1, len + 1, len + 1000, u64::MAX - 40, u64::MAX] {
        let reader = with(&[(size, &one), (two.len() as u64, &two)]);
        let profile = pipeline::profile(&reader, Request::default(), &mut (), &mut |_| {});
        assert!(profile.about.samples <= 8, "{size}");
        verify(&reader, || {});
    }
    let nested = merged(&[one.clone(), two.clone()]);
    let reader = with(&[(nested.len() as u64, &nested), (len, &one)]);
    assert_eq!(reader.samples(), 3);
    assert!(
        reader.damage()[0]
            .to_string()
            .contains("it holds captures itself"),
        "{:?}",
        reader.damage()
    );
    let many: Vec<(u64, &[u8])> = (0..5000).map(|_| (0, &b""[..])).collect();
    let reader = with(&many);
    assert_eq!(reader.samples(), 0);
    let last = reader
        .damage()
        .iter()
        .any(|d| d.to_string().contains("more captures"));
    assert!(last, "{:?}", reader.damage().last());
    assert_eq!(with(&[]).samples(), 0);
    let empty = Run::piped(&["--top", "3"], &start);
    assert_eq!(empty.code, Some(1), "{}", empty.err);
}

fn golden(name: &str) -> PathBuf {
    of_version("v1.4", name)
}

/// Captures merged by the first program that could must open for ever, and give these reports.
#[test]
fn the_golden_file_of_captures_opens_for_ever() {
    let files = of_version("v1.2", "files");
    for (view, expected) in [
        (&["--folded"][..], "hosts.folded"),
        (&["--top", "15"], "hosts.top"),
        (&["--standard"], "hosts.standard"),
    ] {
        let mut command = profiler(view);
        let run = Run::of(
            command
                .arg("--symfs")
                .arg(&files)
                .arg(golden("hosts.bprof")),
        );
        assert_eq!(run.code, Some(0), "{}", run.err);
        let expected = fs::read(golden(expected)).unwrap();
        assert_eq!(run.out, String::from_utf8_lossy(&expected), "{view:?}");
    }
    let reader = Reader::open(&golden("hosts.bprof")).unwrap();
    assert!(verify(&reader, || {}).damage.is_empty());
    assert_eq!(reader.version(), (1, 4));
    // Each capture in it is one of those it was made of, byte for byte.
    let all = fs::read(golden("hosts.bprof")).unwrap();
    let parts = [
        of_version("v1.3", "calls.bprof"),
        of_version("v1.2", "family.bprof"),
    ];
    for part in parts {
        let part = fs::read(part).unwrap();
        let whole = Reader::from_bytes(part.clone()).unwrap().whole_len() as usize;
        assert!(all.windows(whole).any(|window| window == &part[..whole]));
    }
    // A program that does not know of captures in captures says so: the bit is one it has to know.
    assert_eq!(all[24..32], 4u64.to_le_bytes());
}
