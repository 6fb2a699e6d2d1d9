//! What a file of captures has lost is told by every report of it, also after a repair and when it is merged again; captures
//! that were packed, repaired or cut are merged like others.

use std::path::Path;

use super::{BOOT, FRAME_LEN, Reader, SECOND, capture, folded, merge, merged, two, verify};
use crate::report::fixture::{Bench, Elf, Run, Scene, profiler, subcommand};

/// The merged file without its first capture, or with one whose first byte is wrong.
fn spoiled() -> [Vec<u8>; 2] {
    let [one, two] = two();
    let whole = merged(&[one.clone(), two.clone()]);
    let second = whole.len() - two.len() - FRAME_LEN;
    let first = second - one.len() - FRAME_LEN;
    let missing = [&whole[..first], &whole[second..]].concat();
    let mut unreadable = whole.clone();
    unreadable[first + FRAME_LEN] ^= 1;
    [missing, unreadable]
}

const LACKING: &str = "degraded: repaired: 1 of 2 captures are missing, with all their samples";

/// Every view tells it: on its first lines, or on standard error.
fn is_told(path: &Path, bench: &Bench, text: &str) {
    for view in [
        &["--folded"][..],
        &["--standard"],
        &["--top", "5"],
        &["--tree"],
        &["--callers", "kernel"],
        &["--callees", "kernel"],
        &["--missing"],
        &["--missing", "--json"],
        &["--json"],
        &["--csv"],
        &["--perf-script"],
        &["--flamegraph", "OUT"],
        &["--html", "OUT"],
        &["--pprof", "OUT"],
        &["--firefox", "OUT"],
        &["--speedscope", "OUT"],
    ] {
        let out = bench.path("out");
        let _ = std::fs::remove_file(&out);
        let mut command = profiler(&[] as &[&str]);
        for word in view {
            match *word {
                "OUT" => command.arg(&out),
                word => command.arg(word),
            };
        }
        let run = Run::of(command.arg(path));
        assert_eq!(run.code, Some(0), "{view:?}: {}", run.err);
        let written = std::fs::read_to_string(&out).unwrap_or_default();
        let all = [run.out, run.err, written].concat();
        assert!(all.contains(text), "{view:?} does not tell: {all}");
    }
}

#[test]
fn a_repair_says_which_captures_are_missing() {
    let bench = Bench::new();
    for bytes in spoiled() {
        let damaged = bench.capture("damaged.bprof", &bytes);
        let good = bench.path("good.bprof");
        let run = Run::of(subcommand("repair", &["-o"]).arg(&good).arg(&damaged));
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert!(
            run.out
                .contains("left out: 1 capture of which nothing is there or can be read"),
            "{}",
            run.out
        );
        assert!(!run.out.contains("no frame is missing"), "{}", run.out);
        let reader = Reader::open(&good).unwrap();
        assert!(verify(&reader, || {}).damage.is_empty());
        assert_eq!((reader.samples(), reader.captures().len()), (5, 1));
        is_told(&good, &bench, LACKING);
        let info = Run::of(&mut subcommand("info", &[&good])).ok();
        assert!(info.contains(LACKING), "{info}");
        let json = Run::of(subcommand("info", &["--json"]).arg(&good)).ok();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            json["degraded"][0],
            LACKING.trim_start_matches("degraded: ")
        );
        // It stays so when it is repaired or merged again.
        let again = bench.path("again.bprof");
        let run = Run::of(subcommand("repair", &["-o"]).arg(&again).arg(&good));
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert!(Run::report(&["--top", "3"], &again).ok().contains(LACKING));
        let third = capture("three", BOOT, 9000 * SECOND, "third_kernel", 2);
        let third = bench.capture("third.bprof", &third);
        let all = bench.path("all.bprof");
        Run::of(subcommand("merge", &["-o"]).arg(&all).args([&good, &third])).ok();
        assert!(Run::report(&["--top", "3"], &all).ok().contains(LACKING));
        // Merged as it is, damaged, it is told too.
        let run = Run::of(
            subcommand("merge", &["-o"])
                .arg(&all)
                .args([&damaged, &third]),
        );
        assert_eq!(run.code, Some(0), "{}", run.err);
        let report = Run::report(&["--top", "3"], &all).ok();
        assert!(
            report.contains("degraded: merged from a damaged file: "),
            "{report}"
        );
        for path in [&good, &again, &all] {
            std::fs::remove_file(path).unwrap();
        }
    }
    // Nothing is left.
    let [one, two_] = two();
    let whole = merged(&[one.clone(), two_.clone()]);
    let head = whole.len() - one.len() - two_.len() - 2 * FRAME_LEN;
    let empty = bench.capture("empty.bprof", &whole[..head]);
    let out = bench.path("none.bprof");
    let run = Run::of(subcommand("repair", &["-o"]).arg(&out).arg(&empty));
    assert_eq!((run.code, out.exists()), (Some(1), false), "{}", run.err);
    assert!(
        run.err.contains("none of the captures in it can be read"),
        "{}",
        run.err
    );
}

/// A frame that cannot be read costs its own capture that frame, which the reports of the repaired file tell by its capture.
#[test]
fn what_a_capture_lost_is_told_of_that_capture() {
    let bench = Bench::new();
    let [one, two] = two();
    let mut bytes = merged(&[one.clone(), two.clone()]);
    let first = bytes.len() - two.len() - FRAME_LEN - one.len();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let frame = reader.captures()[0].frames()[0].clone();
    bytes[first + frame.end() as usize - 3] ^= 1;
    let damaged = bench.capture("damaged.bprof", &bytes);
    let good = bench.path("good.bprof");
    let run = Run::of(subcommand("repair", &["-o"]).arg(&good).arg(&damaged));
    assert_eq!(run.code, Some(0), "{}", run.err);
    is_told(
        &good,
        &bench,
        "degraded: capture 1 (one): repaired: 1 damaged frame, with 3 samples",
    );
    let top = Run::report(&["--top", "3"], &good).ok();
    assert!(top.contains("# samples: 5; lost: 3"), "{top}");
}

/// Packed, repaired and cut captures keep what they have.
#[test]
fn whatever_was_done_to_a_capture_it_can_be_merged() {
    let bench = Bench::new();
    let elf = Elf::compile(bench.path("").as_path(), "app");
    let offsets = [elf.offset("leaf"), elf.offset("main")];
    let named = Scene::of(&elf.mapped(), offsets).finish();
    let packed = bench.capture("packed.bprof", &named);
    Run::of(&mut subcommand("pack", &[&packed])).ok();
    let [one, two] = two();
    let cut = bench.capture("cut.bprof", &one[..one.len() - 380]);
    let two = bench.capture("two.bprof", &two);
    let repaired = bench.path("repaired.bprof");
    Run::of(subcommand("repair", &["-o"]).arg(&repaired).arg(&two)).ok();
    let all = bench.path("all.bprof");
    let run = Run::of(
        subcommand("merge", &["-o"])
            .arg(&all)
            .args([&packed, &cut, &repaired]),
    );
    assert_eq!(run.code, Some(0), "{}", run.err);
    // The program is gone: its names are in the pack.
    std::fs::remove_file(&elf.path).unwrap();
    let report = Run::report(&["--folded"], &all);
    assert_eq!(report.code, Some(0), "{}", report.err);
    assert!(report.out.contains(";leaf 1"), "{}", report.out);
    assert!(report.out.contains("first_kernel_[k] 3"), "{}", report.out);
    assert!(report.out.contains("second_kernel_[k] 5"), "{}", report.out);
    let reader = Reader::open(&all).unwrap();
    assert!(verify(&reader, || {}).damage.is_empty());
    // Each is told as it is.
    let top = Run::report(&["--top", "3"], &all).ok();
    assert!(
        top.contains("capture 2 (one): recording did not end in order"),
        "{top}"
    );
}

/// A repaired or packed copy is the same recording as what it was made of.
#[test]
fn copies_of_a_recording_are_not_merged_with_it() {
    let bench = Bench::new();
    let [one, two_] = two();
    let (one, other) = (
        bench.capture("one.bprof", &one),
        bench.capture("two.bprof", &two_),
    );
    let repaired = bench.path("repaired.bprof");
    Run::of(subcommand("repair", &["-o"]).arg(&repaired).arg(&one)).ok();
    let readers = [&one, &other, &repaired].map(|path| Reader::open(path).unwrap());
    let err = merge(&readers.each_ref(), &mut Vec::new()).unwrap_err();
    assert!(err.to_string().contains("are the same recording"), "{err}");
    assert!(folded(&two_, &[]).ends_with("5\n"));
}

/// A merged file is put in its place whole: one that is shorter is a copy that is not.
#[test]
fn a_file_that_ends_before_its_last_capture_does_is_damaged() {
    let bench = Bench::new();
    let bytes = merged(&two());
    let short = bench.capture("short.bprof", &bytes[..bytes.len() - 100]);
    let missing = "the last 100 bytes of capture 2 are missing";
    let run = Run::of(&mut subcommand("verify", &[&short]));
    assert_eq!(run.code, Some(1), "{}", run.out);
    assert!([run.out, run.err].concat().contains(missing));
    let good = bench.path("good.bprof");
    let run = Run::of(subcommand("repair", &["-o"]).arg(&good).arg(&short));
    assert_eq!(run.code, Some(0), "{}", run.err);
    is_told(&good, &bench, missing);
}

/// Standard input may be the very file that would be replaced.
#[test]
fn a_repair_of_standard_input_never_replaces_it() {
    let bench = Bench::new();
    let [one, _] = two();
    let kept = bench.capture("run.bprof.old", &one);
    let run_bprof = bench.capture("run.bprof", &one);
    for input in [&kept, &run_bprof] {
        let mut command = subcommand("repair", &["-o"]);
        command.arg(&run_bprof).arg("-");
        command.stdin(std::fs::File::open(input).unwrap());
        let run = Run::of(&mut command);
        assert_eq!(run.code, Some(1), "{}", run.out);
        assert!(run.err.contains("the capture itself"), "{}", run.err);
        assert_eq!(std::fs::read(&kept).unwrap(), one);
    }
}
