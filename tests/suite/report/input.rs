//! Where a capture comes from: FILE, `-`, `< FILE`, and the usual name.

use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;

use super::fixture::{Bench, Run, Scene, Taken, header, subcommand};
use bprof::capture::CaptureWriter;

/// A capture of so many samples.
fn capture(samples: u64) -> Vec<u8> {
    let mut scene = Scene {
        writer: CaptureWriter::create(Vec::new(), &header()).unwrap(),
    };
    let app = scene.process(100, 500);
    scene.image(app, 0, 0, "app");
    for i in 0..samples {
        scene.sample(Taken {
            user: &[0x1000],
            ..Taken::of(app, 100, "app", 1_000_000_000 + i * 1000)
        });
    }
    scene.finish()
}

/// Whoever writes `< FILE` does not mean another capture that happens to lie there.
#[test]
fn a_capture_that_standard_input_is_redirected_from_is_read() {
    let bench = Bench::new();
    bench.capture("run.bprof", &capture(3));
    let other = bench.capture("other.bprof", &capture(7));
    let dir = other.parent().unwrap();
    let run = |name, args: &[&str], stdin| {
        let mut command = subcommand(name, args);
        Run::of(command.current_dir(dir).stdin(stdin))
    };
    let file = || Stdio::from(File::open(&other).unwrap());
    let redirected = run("report", &["--folded"], file());
    assert!(
        redirected
            .err
            .starts_with("profiler: reading standard input\n"),
        "{}",
        redirected.err
    );
    assert_eq!(redirected.ok(), "app-100;[unknown] 7\n");
    for command in ["info", "verify"] {
        let told = run(command, &[], file());
        assert!(told.err.contains("reading standard input"), "{}", told.err);
        let out = told.ok();
        assert!(
            out.contains("7 samples") || out.contains("samples       7;"),
            "{out}"
        );
    }
    let repaired = run("repair", &["-o", "good.bprof"], file()).ok();
    assert!(repaired.contains("7 samples"), "{repaired}");
    // It is not appended to under a name nobody gave.
    let packed = run("pack", &[], file());
    assert_eq!(packed.code, Some(1));
    assert!(
        packed.err.contains("with -o OUT where the packed one goes"),
        "{}",
        packed.err
    );
    // What is no capture, or no file, or named otherwise, is not asked.
    let text = bench.path("list.txt");
    fs::write(&text, "a\nb\n").unwrap();
    for stdin in [Stdio::null(), Stdio::from(File::open(&text).unwrap())] {
        let usual = run("report", &["--folded"], stdin);
        assert!(
            usual.err.starts_with("profiler: reading run.bprof\n"),
            "{}",
            usual.err
        );
        assert_eq!(usual.ok(), "app-100;[unknown] 3\n");
    }
    let named = run("report", &["--folded", "run.bprof"], file());
    assert_eq!(named.ok(), "app-100;[unknown] 3\n");
    // A pipe is read where it is asked for only; that is said.
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"no capture").unwrap();
    drop(writer);
    let piped = run("report", &["--folded"], Stdio::from(reader));
    let note = "reading run.bprof, not standard input: FILE would be `-` for that\n";
    assert!(piped.err.contains(note), "{}", piped.err);
    assert_eq!(piped.ok(), "app-100;[unknown] 3\n");
}

/// From a pipe, which is kept in a file without a name, and from where a file was already read to.
#[test]
fn all_commands_that_read_a_capture_read_standard_input() {
    let bench = Bench::new();
    let bytes = capture(7);
    let path = bench.capture("seven.bprof", &bytes);
    let dir = path.parent().unwrap();
    let piped = |name, args: &[&str], tmp: &str| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let bytes = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&bytes));
        let mut command = subcommand(name, args);
        let run = Run::of(command.current_dir(dir).env("TMPDIR", tmp).stdin(reader));
        let _ = writing.join().unwrap();
        run
    };
    let here = dir.to_str().unwrap();
    let files = || fs::read_dir(dir).unwrap().count();
    let before = files();
    assert_eq!(
        piped("report", &["--folded", "-"], here).ok(),
        "app-100;[unknown] 7\n"
    );
    assert_eq!(files(), before, "nothing is left of it");
    // Where no directory takes a file it is kept in memory.
    let without = piped("report", &["--folded", "-"], "/nowhere");
    assert_eq!(without.ok(), "app-100;[unknown] 7\n");
    assert!(piped("info", &["-"], here).ok().contains('7'));
    assert!(piped("verify", &["-"], here).ok().contains("7 samples"));
    piped("repair", &["-", "-o", "good.bprof"], here).ok();
    piped("pack", &["-", "-o", "packed.bprof"], here).ok();
    let other = bench.capture("three.bprof", &capture(3));
    let other = other.to_str().unwrap();
    piped("merge", &["-", other, "-o", "both.bprof"], here).ok();
    for (file, samples) in [("good.bprof", 7), ("packed.bprof", 7), ("both.bprof", 10)] {
        let mut command = subcommand("report", &["--folded", file]);
        let run = Run::of(command.current_dir(dir));
        assert_eq!(run.ok(), format!("app-100;[unknown] {samples}\n"), "{file}");
    }
    let nothing = Run::of(subcommand("report", &["-"]).stdin(Stdio::null()));
    assert_eq!(nothing.code, Some(1));
    assert!(
        nothing.err.starts_with("profiler: standard input: "),
        "{}",
        nothing.err
    );
}
