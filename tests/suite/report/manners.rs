//! Exit codes, broken pipes, full disks, odd files, damage.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use super::fixture::{Bench, Run, Scene, Taken, profiler, subcommand, usual};

const FOLDED: &str = "app-100;main;mid;leaf 2\n";

#[test]
fn standard_input_gives_the_same_report() {
    let bench = Bench::new();
    let bytes = usual(&bench.elf).finish();
    let capture = bench.capture("run.bprof", &bytes);
    for view in ["--folded", "--standard", "--top=5"] {
        let file = Run::report(&[view], &capture).ok();
        assert_eq!(Run::piped(&[view], &bytes).ok(), file);
        assert_eq!(Run::report(&[view], &capture).ok(), file);
    }
}

#[test]
fn a_capture_cut_by_a_kill_is_whole_up_to_there() {
    let bench = Bench::new();
    let bytes = usual(&bench.elf).cut();
    let run = Run::piped(&["--folded"], &bytes);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(
        run.err
            .contains("# capture: cut short, recording did not end in order"),
        "{}",
        run.err
    );
    assert!(run.out.contains(FOLDED), "{}", run.out);

    // In the middle of the second frame: the first one's samples are all there.
    let run = Run::piped(&["--folded"], &bytes[..bytes.len() - 10]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(
        run.err.contains("bytes at its end are not a whole frame"),
        "{}",
        run.err
    );
    assert_eq!(run.out.lines().count(), 2, "{}", run.out);
}

#[test]
fn a_damaged_capture_gives_a_partial_report_and_says_so() {
    let bench = Bench::new();
    let bytes = usual(&bench.elf).finish();
    // A byte of the second segment frame's content.
    let magic = bytes.windows(4).enumerate().filter(|(_, w)| *w == b"BPFR");
    let second = magic.map(|(at, _)| at).nth(3).unwrap();
    let mut broken = bytes.clone();
    broken[second + 130] ^= 1;
    for view in ["--folded", "--standard", "--top=9"] {
        let run = Run::piped(&[view], &broken);
        assert_eq!(run.code, Some(1), "{}", run.err);
        assert!(
            run.err
                .contains("profiler: standard input is damaged, the report is partial: byte "),
            "{}",
            run.err
        );
        assert!(run.out.contains("leaf"), "{}", run.out);
        assert!(
            format!("{}{}", run.out, run.err).contains("DAMAGED"),
            "{}",
            run.out
        );
    }
    // No cut and no flip of a bit ends in anything but an exit code and a message.
    for cut in (0..bytes.len()).step_by(97) {
        let run = Run::piped(&["--folded"], &bytes[..cut]);
        assert!(
            matches!(run.code, Some(0 | 1)),
            "cut at {cut}: {:?} {}",
            run.code,
            run.err
        );
        assert!(!run.err.contains("panicked"), "cut at {cut}: {}", run.err);
        let mut flipped = bytes.clone();
        flipped[cut] ^= 0x10;
        let run = Run::piped(&["--standard"], &flipped);
        assert!(
            matches!(run.code, Some(0 | 1)),
            "flip at {cut}: {:?} {}",
            run.code,
            run.err
        );
        assert!(!run.err.contains("panicked"), "flip at {cut}: {}", run.err);
    }
}

#[test]
fn what_is_no_capture_is_refused_with_a_message() {
    let bench = Bench::new();
    let text = bench.capture("notes.txt", b"hello, this is no capture at all");
    let empty = bench.capture("empty", b"");
    let fifo = bench.path("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    let missing = bench.path("missing");
    for path in [
        &text,
        &empty,
        &fifo,
        &missing,
        &bench.dir.path().to_path_buf(),
    ] {
        let run = Run::report(&[], path);
        assert_eq!(run.code, Some(1), "{}", path.display());
        assert!(
            run.err
                .starts_with(&format!("profiler: {}: ", path.display())),
            "{}",
            run.err
        );
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        assert_eq!(run.out, "");
    }
}

#[test]
fn wrong_usage_is_exit_2() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    for options in [
        &["--folded", "--standard"][..],
        &["--top", "0"],
        &["--nonsense"],
        &["--min-named", "x"],
    ] {
        assert_eq!(Run::report(options, &capture).code, Some(2), "{options:?}");
    }
    // Where no capture is named, it is the one that `record` writes then.
    let unnamed = |dir: &std::path::Path| Run::of(profiler::<&str>(&[]).current_dir(dir));
    let found = unnamed(bench.dir.path());
    assert_eq!(found.err, "profiler: reading run.bprof\n");
    assert_eq!(found.ok(), Run::report(&[], &capture).ok());
    let run = unnamed(std::path::Path::new("/proc"));
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("no capture was named"), "{}", run.err);
    let run = Run::report(&["--symfs", "/nowhere/at/all"], &capture);
    assert_eq!(run.code, Some(1));
    assert!(
        run.err
            .contains("--symfs /nowhere/at/all: no such directory"),
        "{}",
        run.err
    );
    let help = Run::of(&mut profiler(&["--help"])).ok();
    assert!(
        help.contains("Examples:") && help.contains("--symfs"),
        "{help}"
    );
}

/// `info`, `verify`, `pack` and `repair` take the capture that `record` writes, as `report` does, and say so.
#[test]
fn commands_without_a_file_take_that_of_the_usual_name() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let empty = bench.path("empty");
    fs::create_dir(&empty).unwrap();
    let commands: [(&str, &[&str]); 4] = [
        ("info", &["--json"]),
        ("verify", &[]),
        ("repair", &["-o", "good.bprof"]),
        ("pack", &[]),
    ];
    for (command, options) in commands {
        let mut unnamed = subcommand(command, options);
        let run = Run::of(unnamed.current_dir(bench.dir.path()));
        assert!(run.err.contains("run.bprof"), "{command}: {}", run.err);
        let out = run.ok();
        if command != "pack" {
            let mut named = subcommand(command, options);
            if command == "repair" {
                fs::remove_file(bench.path("good.bprof")).unwrap();
            }
            let named = Run::of(named.arg(&capture).current_dir(bench.dir.path())).ok();
            assert_eq!(out, named, "{command}");
        }
        let run = Run::of(subcommand(command, options).current_dir(&empty));
        assert_eq!(run.code, Some(1), "{command}");
        let told = "no capture was named, and run.bprof is what is taken then: profiler ";
        assert!(run.err.contains(told), "{command}: {}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{command}: {}", run.err);
        let help = Run::of(&mut subcommand(command, &["--help"])).ok();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains("else run.bprof") || help.contains("run.bprof where none is named"),
            "{command}: {help}"
        );
    }
    let info = Run::of(subcommand::<&str>("info", &[]).arg(&capture)).ok();
    assert!(info.contains("\npacked        hits: "), "{info}");
}

#[test]
fn a_closed_pipe_is_quiet_and_a_full_disk_is_not() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let p = s.process(100, 500);
    s.image(p, 0, 0, "app");
    for i in 0..20_000u64 {
        s.sample(Taken {
            user: &[i],
            ..Taken::of(p, 100, "app", 1_000_000_000 + i)
        });
    }
    let capture = bench.capture("run.bprof", &s.finish());
    for view in ["--standard", "--folded"] {
        let mut command = profiler(&[view]);
        command
            .arg(&capture)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let run = Run::from(child.wait_with_output().unwrap());
        assert_eq!(run.code, Some(0), "{view}: {}", run.err);
        assert!(!line.is_empty());
        assert!(
            !run.err.contains("panicked") && !run.err.contains("Broken pipe"),
            "{}",
            run.err
        );

        let full = || {
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
        };
        let run = Run::of(profiler(&[view]).arg(&capture).stdout(full()));
        assert_eq!(run.code, Some(1), "{view}");
        assert!(
            run.err.contains("cannot write to standard output"),
            "{}",
            run.err
        );
        // A full disk behind standard error is nobody's fault.
        let run = Run::of(
            profiler(&[view])
                .arg(&capture)
                .stdout(Stdio::null())
                .stderr(full()),
        );
        assert_eq!(run.code, Some(0), "{view}");
    }
}

#[test]
fn an_output_file_is_whole_or_not_there() {
    let bench = Bench::new();
    let bytes = usual(&bench.elf).finish();
    let capture = bench.capture("run.bprof", &bytes);
    let expected = Run::report(&["--folded"], &capture).ok();
    let out = bench.path("out.folded");
    let to = |path: &Path| Run::of(profiler(&["--folded", "-o"]).arg(path).arg(&capture));
    assert_eq!(to(&out).ok(), "");
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);
    assert_eq!(to(Path::new("-")).ok(), expected);
    assert_eq!(to(Path::new("/dev/null")).ok(), "");

    let run = to(&capture);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("it is the capture itself"), "{}", run.err);
    assert_eq!(fs::read(&capture).unwrap(), bytes);
    let run = to(&bench.path("none/out"));
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("none/out"), "{}", run.err);

    let svg = bench.path("run.svg");
    Run::of(profiler(&["--flamegraph"]).arg(&svg).arg(&capture)).ok();
    assert!(
        fs::read_to_string(&svg)
            .unwrap()
            .contains("<title>leaf (2 samples, 33.33%)</title>")
    );
    let names: Vec<_> = fs::read_dir(bench.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        names.iter().all(|n| !n.to_string_lossy().ends_with(".tmp")),
        "{names:?}"
    );
}
