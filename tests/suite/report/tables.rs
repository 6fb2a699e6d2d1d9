//! Tables, trees and comparisons as a program: exit codes, messages, closed pipes, hostile names.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use bprof::capture::CaptureWriter;
use bprof::event::{BuildId, MappedFile, sample_flags};
use bprof::format::header::{EventInfo, Sampling};

use crate::golden::of_version;

use super::fixture::{BASE, Bench, KERNEL, Run, Scene, Taken, header, profiler, usual};

/// The usual capture with twice the samples in `mid` and a name that does harm, of another process number.
fn later(bench: &Bench, event: &str) -> Vec<u8> {
    let mut header = header();
    header.events = vec![EventInfo {
        name: event.into(),
        sampling: Sampling::Frequency(49),
    }];
    let mut s = Scene {
        writer: CaptureWriter::create(Vec::new(), &header).unwrap(),
    };
    let at = |function: &str| BASE + bench.elf.offset(function) + 5;
    let app = s.process(4242, 600);
    s.image(app, 0, 0, "app");
    s.map(app, 0, BASE, &bench.elf.mapped());
    let evil = s.process(4243, 700);
    s.image(evil, 0, 0, "# =x\n\x1b[31m<script>");
    s.kernel_symbols();
    for i in 0..8 {
        s.sample(Taken {
            user: &[at("mid"), at("main")],
            ..Taken::of(app, 4242, "app", 1_000_000_000 + i)
        });
    }
    s.sample(Taken {
        kernel: &[KERNEL + 0x10],
        flags: sample_flags::IN_KERNEL,
        ..Taken::of(evil, 4243, "evil", 1_100_000_000)
    });
    s.finish()
}

#[test]
fn a_function_that_is_not_there_is_said_and_no_file_is_left() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let out = bench.path("out.txt");
    for option in ["--callers", "--callees"] {
        let run = Run::of(profiler(&[option, "LEAF", "-o"]).arg(&out).arg(&capture));
        assert_eq!(run.code, Some(1));
        assert_eq!(
            run.err,
            "profiler: no function with samples is called LEAF; there is leaf\n"
        );
        assert!(!out.exists());
    }
    let names: Vec<_> = fs::read_dir(bench.dir.path()).unwrap().collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let callers = Run::report(&["--callers", "le"], &capture).ok();
    assert!(callers.contains("# le is: leaf\n"), "{callers}");
}

#[test]
fn views_that_cannot_be_combined_are_wrong_usage() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    for options in [
        &["--tree", "--callers", "leaf"][..],
        &["--tree", "--folded"],
        &["--json", "--csv"],
        &["--standard", "--json"],
        &["--folded", "--csv"],
        &["--missing", "--csv"],
        &["--tree", "--sort", "self"],
        &["--html", "x", "--json"],
        &["--diff", "x", "--html", "y"],
        &["--sort", "name"],
        &["--diff", "x", "--tree"],
        &["--diff", "x", "--standard"],
        &["--diff", "x", "--pprof", "y"],
    ] {
        assert_eq!(Run::report(options, &capture).code, Some(2), "{options:?}");
    }
    let help = Run::of(&mut profiler(&["--help"])).ok();
    for column in bprof::report::top::COLUMNS {
        assert!(help.contains(column), "{column}");
    }
}

#[test]
fn a_closed_pipe_is_quiet_for_programs_too() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let p = s.process(100, 500);
    s.image(p, 0, 0, "app");
    for i in 0..20_000u64 {
        let file = bench.elf.mapped();
        if i == 0 {
            s.map(p, 0, BASE, &file);
        }
        s.sample(Taken {
            user: &[BASE + 0x4000 + i],
            ..Taken::of(p, 100, "app", 1_000_000_000 + i)
        });
    }
    let capture = bench.capture("run.bprof", &s.finish());
    for view in [&["--csv"][..], &["--json"], &["--diff"]] {
        let mut command = profiler(view);
        if view == ["--diff"] {
            command.arg(&capture).arg("--csv");
        }
        command
            .arg(&capture)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        drop(out);
        let run = Run::from(child.wait_with_output().unwrap());
        assert_eq!(run.code, Some(0), "{view:?}: {}", run.err);
        assert!(!run.err.contains("profiler: cannot"), "{}", run.err);
    }
}

/// Where the program is gone, what it did before is in one row, and that its functions were not there before is no finding.
#[test]
fn names_of_one_side_only_are_told() {
    let bench = Bench::new();
    let offset = bench.elf.offset("leaf");
    let here = bench.elf.mapped();
    let gone = MappedFile {
        build_id: BuildId::new(&[7; 20]),
        ..here.clone()
    };
    let capture = |name, file| bench.capture(name, &Scene::of(file, [offset; 9]).finish());
    let (with, without) = (
        capture("with.bprof", &here),
        capture("without.bprof", &gone),
    );
    let compared = |before: &Path, after: &Path| {
        let mut command = profiler(&["--diff"]);
        Run::of(command.arg(before).arg(after)).ok()
    };
    let told = "# code without names before: 100.0 % of all time in app, whose functions only seem to have grown\n";
    let text = compared(&without, &with);
    assert!(text.contains(told), "{text}");
    let told = "# code without names after: 100.0 % of all time in app, whose functions only seem to have shrunk\n";
    let text = compared(&with, &without);
    assert!(text.contains(told), "{text}");
    for one in [&with, &without] {
        let text = compared(one, one);
        assert!(!text.contains("code without names"), "{text}");
    }
}

#[test]
fn what_grew_is_told_whatever_names_say() {
    let bench = Bench::new();
    let before = bench.capture("before.bprof", &usual(&bench.elf).finish());
    let after = bench.capture("after.bprof", &later(&bench, "cpu-clock"));
    let compared = |options: &[&str]| {
        let mut command = profiler(options);
        Run::of(command.arg("--diff").arg(&before).arg(&after))
    };
    let text = compared(&[]).ok();
    let grown = text.split("more self time").nth(1).unwrap();
    let first = grown.lines().nth(2).unwrap();
    assert!(
        first.starts_with("  0.00%   88.89%   +88.89 ") && first.ends_with(" mid"),
        "{text}"
    );
    assert!(
        text.contains("before 0.06 s of CPU time, 6 samples; after 0.18 s of CPU time, 9 samples"),
        "{text}"
    );

    // Of each process name one root, and both sums are that of the second.
    let folded = compared(&["--folded"]).ok();
    let counts: Vec<[u64; 2]> = folded
        .lines()
        .map(|line| {
            let mut words = line.rsplitn(3, ' ');
            let after = words.next().unwrap().parse().unwrap();
            [words.next().unwrap().parse().unwrap(), after]
        })
        .collect();
    assert_eq!(
        [0, 1].map(|side| counts.iter().map(|c| c[side]).sum::<u64>()),
        [9, 9],
        "{folded}"
    );
    assert!(folded.contains("app;main;mid 0 8\n"), "{folded}");

    let svg = bench.path("diff.svg");
    let run = Run::of(
        profiler(&["--diff"])
            .arg(&before)
            .arg("--flamegraph")
            .arg(&svg)
            .arg(&after),
    );
    assert_eq!(run.ok(), "");
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("mid (8 samples, 88.89%; +88.89%)"), "{svg}");
    assert!(
        !svg.contains("<script>") || !svg.contains("31m<script>"),
        "{svg}"
    );
    let json = compared(&["--json"]).ok();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["after"]["samples"], 9);
    for text in [&text, &folded, &json] {
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text}");
    }
}

/// What a comparison is not: one message, wrong usage.
#[test]
fn comparisons_have_no_trees_and_pages() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let page = bench.path("out.html");
    let page = page.to_str().unwrap();
    for options in [
        &["--tree"][..],
        &["--callers", "mid"],
        &["--html", page],
        &["--addresses"],
    ] {
        let mut command = profiler(options);
        let run = Run::of(command.arg("--diff").arg(&capture).arg(&capture));
        assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{options:?}");
        let told = run.err.lines().next().unwrap();
        assert!(
            told.starts_with("error: the argument '") && told.contains(options[0]),
            "{told}"
        );
        assert!(
            run.err.contains("\nUsage: profiler report [VIEW] "),
            "{}",
            run.err
        );
    }
    assert!(!std::path::Path::new(page).exists());
}

#[test]
fn the_same_capture_twice_has_no_change() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let mut command = profiler(&["--diff"]);
    let text = Run::of(command.arg(&capture).arg(&capture)).ok();
    assert!(
        text.contains("\nno function has another share than before\n"),
        "{text}"
    );
    let mut command = profiler(&["--folded", "--diff"]);
    let folded = Run::of(command.arg(&capture).arg(&capture)).ok();
    for line in folded.lines() {
        let mut words = line.rsplitn(3, ' ');
        assert_eq!(words.next(), words.next(), "{folded}");
    }
    assert!(folded.lines().count() > 3);
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let bench = Bench::new();
    let before = bench.capture("before.bprof", &usual(&bench.elf).finish());
    let cycles = bench.capture("cycles.bprof", &later(&bench, "cycles"));
    let compared = |before: &std::path::Path, after: &std::path::Path| {
        Run::of(profiler(&["--diff"]).arg(before).arg(after))
    };
    let run = compared(&before, &cycles);
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    assert!(
        run.err
            .contains("cpu-clock of the one and cycles of the other cannot be compared"),
        "{}",
        run.err
    );
    let run = compared(std::path::Path::new("-"), std::path::Path::new("-"));
    assert_eq!(run.code, Some(1));
    assert!(
        run.err
            .contains("only one of the two captures can be standard input"),
        "{}",
        run.err
    );
    let none = bench.capture("none.bprof", &Scene::new().finish());
    for (first, second) in [(&before, &none), (&none, &before), (&none, &none)] {
        let text = compared(first, second).ok();
        assert!(
            text.contains("# nothing to compare: ") && text.contains("\n\nnothing to compare: "),
            "{text}"
        );
        assert!(
            !text.contains("more self time") && !text.contains("another share"),
            "{text}"
        );
        let svg = bench.path("none.svg");
        let mut command = profiler(&["--diff"]);
        Run::of(command.arg(first).arg("--flamegraph").arg(&svg).arg(second)).ok();
        assert!(fs::read_to_string(svg).unwrap().contains("</svg>"));
    }
    // What is damaged is compared as far as it can be read, and the exit code says so.
    let mut broken = usual(&bench.elf).finish();
    let magic = broken.windows(4).enumerate().filter(|(_, w)| *w == b"BPFR");
    let second = magic.map(|(at, _)| at).nth(3).unwrap();
    broken[second + 130] ^= 1;
    let broken = bench.capture("broken.bprof", &broken);
    for (first, second) in [(&before, &broken), (&broken, &before)] {
        let run = compared(first, second);
        assert_eq!(run.code, Some(1));
        assert!(
            run.out.contains("DAMAGED") && run.out.contains("less self time"),
            "{}",
            run.out
        );
        assert!(
            run.err
                .contains("broken.bprof is damaged, the report is partial"),
            "{}",
            run.err
        );
    }
}

/// A function with many small stacks is not small: what `--min-percent` leaves out of a table are functions.
#[test]
fn a_table_without_small_functions_has_the_same_numbers() {
    let capture = of_version("v1.1", "paths.bprof");
    let files = of_version("v1.1", "files");
    let table = |options: &[&str]| {
        let mut command = profiler(options);
        Run::of(command.arg("--symfs").arg(&files).arg(&capture)).ok()
    };
    let csv = |options: &[&str]| -> Vec<String> {
        let text = table(&[&["--csv"], options].concat());
        text.lines().skip(1).map(str::to_owned).collect()
    };
    let share = |line: &String| -> f64 { line.split(',').nth(5).unwrap().parse().unwrap() };
    let (all, large) = (csv(&[]), csv(&["--min-percent", "5"]));
    let expected: Vec<String> = all.iter().filter(|l| share(l) >= 0.05).cloned().collect();
    assert!(expected.len() > 3 && expected.len() < all.len(), "{all:?}");
    // The last line is what is left out, and so the sum is as it was.
    let (other, large) = large.split_last().unwrap();
    assert!(other.ends_with(",,,,[other]"), "{other}");
    assert_eq!(large, expected);
    let own = |line: &String| -> u64 { line.split(',').nth(2).unwrap().parse().unwrap() };
    let sum = |lines: &[String]| lines.iter().map(own).sum::<u64>();
    assert_eq!(sum(large) + own(other), sum(&all));
    let text = table(&["--min-percent", "5"]);
    let left_out = all.len() - expected.len();
    let told = format!(
        "# {left_out} functions below 5 % in all are left out, 1 sample (0.41 %) in them\n"
    );
    assert!(text.contains(&told), "{text}");
}

/// Each capture by itself would have other functions left out, which then had grown from nothing.
#[test]
fn comparisons_are_of_whole_stacks() {
    let capture = of_version("v1.2", "calls.bprof");
    for option in [&["--min-percent", "20"][..], &["--lines"], &["--addresses"]] {
        let mut command = profiler(option);
        let run = Run::of(command.arg("--diff").args([&capture, &capture]));
        assert_eq!(run.code, Some(2), "{option:?}: {}", run.err);
    }
}

/// What perf calls `cpu-clock:ppp` is the same event as ours.
#[test]
fn a_recording_of_perf_is_compared_with_our_own() {
    let bench = Bench::new();
    let of_perf = bench.capture("perf.bprof", &later(&bench, "cpu-clock:ppp"));
    let own = bench.capture("own.bprof", &usual(&bench.elf).finish());
    let mut command = profiler(&["--diff"]);
    let text = Run::of(command.args([&of_perf, &own])).ok();
    assert!(text.contains("mid"), "{text}");
    let of_users = bench.capture("users.bprof", &later(&bench, "cpu-clock:u"));
    let refused = Run::of(profiler(&["--diff"]).args([&of_users, &own]));
    assert_eq!(refused.code, Some(1));
}

#[test]
fn a_recording_of_perf_is_told_from_no_capture() {
    let data = of_version("import", "calls.data");
    let run = Run::report(&[], &data);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("profiler import"), "{}", run.err);
}
