//! Files that views are written to: they take the place of their like, and of nothing else.

use std::fs;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::fixture::{Bench, Run, profiler, usual};

/// Every option that names a file to write, with what goes before it.
const OUTPUTS: [&[&str]; 14] = [
    &["-o"],
    &["--tree", "-o"],
    &["--folded", "-o"],
    &["--standard", "-o"],
    &["--missing", "-o"],
    &["--json", "-o"],
    &["--csv", "-o"],
    &["--perf-script", "-o"],
    &["--flamegraph"],
    &["--inverted", "--flamegraph"],
    &["--html"],
    &["--pprof"],
    &["--firefox"],
    &["--speedscope"],
];

#[test]
fn a_file_of_another_kind_is_never_replaced() {
    use std::io::Write;
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let mut archive = GzEncoder::new(Vec::new(), Compression::default());
    archive.write_all(b"src/main.c\0\0\0").unwrap();
    let others: [(&str, Vec<u8>); 8] = [
        (
            "busy.c",
            b"/* draws <svg > */\nint main(void) { return 0; }\n".to_vec(),
        ),
        ("package.json", b"{\n  \"name\": \"x\"\n}\n".to_vec()),
        ("src.tar.gz", archive.finish().unwrap()),
        ("notes.txt", b"# Notes\n\n1. Do this 3\n".to_vec()),
        ("plot.dat", b"1 2\n3 4\n".to_vec()),
        ("table.csv", b"self,total\n1,2\n".to_vec()),
        (
            "pom.xml",
            b"<?xml version=\"1.0\"?>\n<project><svg /></project>\n".to_vec(),
        ),
        ("run.perf", b"PERFILE2........".to_vec()),
    ];
    for output in OUTPUTS {
        for (name, content) in &others {
            let path = bench.capture(name, content);
            let run = Run::of(profiler(output).arg(&path).arg(&capture));
            assert_eq!(run.code, Some(1), "{output:?} {name}");
            let told = format!("{name}: it is there and no ");
            assert!(run.err.contains(&told), "{output:?}: {}", run.err);
            assert!(
                run.err.contains("remove it, or give another name"),
                "{}",
                run.err
            );
            assert_eq!(&fs::read(&path).unwrap(), content, "{output:?} {name}");
        }
        // Again into the same file, and into an empty one.
        let path = bench.capture("out", b"");
        for _ in 0..2 {
            Run::of(profiler(output).arg(&path).arg(&capture)).ok();
        }
        assert!(!fs::read(&path).unwrap().is_empty(), "{output:?}");
    }
}

/// SVG and HTML of other programs, also of those that draw flame graphs, and scripts that read like folded stacks.
#[test]
fn what_only_looks_like_ours_is_never_replaced() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let inferno = "<?xml version=\"1.0\" standalone=\"no\"?><!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"x\">\
                   <svg version=\"1.1\" width=\"1200\" height=\"94\" onload=\"init(evt)\"><!--Flame graph stack visualization.-->\
                   <g id=\"legend\"/></svg>";
    for (name, content, options) in [
        ("other.svg", inferno, &["--flamegraph"][..]),
        (
            "logo.svg",
            "<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
            &["--flamegraph"],
        ),
        (
            "logo.svg",
            "<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
            &["--diff", "run.bprof", "--flamegraph"],
        ),
        (
            "index.html",
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<title>x</title>",
            &["--html"],
        ),
        ("run.sh", "cd /srv; ./server 8080\n", &["--folded", "-o"]),
        (
            "waits",
            "stop;sleep 3\nstart;sleep 1\n",
            &["--folded", "-o"],
        ),
        ("data.csv", "b;c 1\na;b 2\n", &["-o"]),
    ] {
        let path = bench.capture(name, content.as_bytes());
        let run = Run::of(
            profiler(options)
                .arg(&path)
                .arg(&capture)
                .current_dir(bench.dir.path()),
        );
        assert_eq!(run.code, Some(1), "{name}");
        let told = format!("{name}: it is there and no ");
        assert!(run.err.contains(&told), "{name}: {}", run.err);
        assert_eq!(fs::read(&path).unwrap(), content.as_bytes(), "{name}");
    }
}

/// Pictures and pages of before they had a mark are ours still.
#[test]
fn older_pictures_are_ours() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let marks = [
        "<!-- drawn by profiler report -->",
        "<meta name=\"generator\" content=\"profiler report\">\n",
    ];
    let nothing = ["--comm", "nobody", "--flamegraph"];
    let compared = ["--diff", "run.bprof", "--flamegraph"];
    for options in [&["--flamegraph"][..], &["--html"], &nothing, &compared] {
        let path = bench.path("out");
        let draw = || {
            let mut command = profiler(options);
            command
                .arg(&path)
                .arg(&capture)
                .current_dir(bench.dir.path());
            Run::of(&mut command).ok();
            fs::read_to_string(&path).unwrap()
        };
        let ours = draw();
        let older = marks
            .iter()
            .fold(ours.clone(), |text, mark| text.replace(mark, ""));
        assert_eq!(
            ours.len() - older.len(),
            match options[0] {
                "--html" => marks[1].len(),
                _ => marks[0].len(),
            }
        );
        // Without a mark there were comparisons with another text only, and legends a bit lower.
        let older = older
            .replace(
                "; colour: change of self time; ",
                "; in the frame itself: red more, blue less, grey the same or by chance; ",
            )
            .replace(
                "<g id=\"legend\"><rect x=\"10\" y=\"32\"",
                "<g id=\"legend\"><rect x=\"10\" y=\"36\"",
            );
        fs::write(&path, older).unwrap();
        assert_eq!(draw(), ours);
        fs::remove_file(&path).unwrap();
    }
}

/// On a terminal, which `script` makes, what was written is told with its size and what opens it; in a pipe nothing is.
#[test]
fn what_was_written_is_told_on_a_terminal() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let program = profiler::<&str>(&[]).get_program().to_owned();
    for (options, opened) in [
        ("--flamegraph out", "; open it in a browser"),
        ("--html out", "; open it in a browser"),
        ("--pprof out", "; open it with: go tool pprof -http : out"),
        ("--firefox out", "; load it at https://profiler.firefox.com"),
        (
            "--speedscope out",
            "; load it at https://www.speedscope.app",
        ),
        (
            "--diff run.bprof --flamegraph out",
            "; open it in a browser",
        ),
        ("--tree -o out", ""),
    ] {
        let command = format!("'{}' report {options} run.bprof", program.display());
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]);
        let run = Run::of(script.current_dir(bench.dir.path()).stdin(Stdio::null()));
        assert_eq!(run.code, Some(0), "{options}: {}{}", run.out, run.err);
        let size = fs::metadata(bench.path("out")).unwrap().len();
        let told: Vec<&str> = run
            .out
            .lines()
            .filter(|line| line.starts_with("wrote "))
            .collect();
        let [told] = told[..] else {
            panic!("{options}: {}", run.out);
        };
        assert!(
            told.starts_with("wrote out (") && told.trim_end().ends_with(&format!("B){opened}")),
            "{told}"
        );
        assert!(size < 1024 || told.contains("KiB"), "{size}: {told}");
        let mut piped = profiler(&options.split(' ').collect::<Vec<_>>());
        let piped = Run::of(piped.arg(&capture).current_dir(bench.dir.path()));
        assert!(!piped.err.contains("wrote "), "{}", piped.err);
        piped.ok();
        fs::remove_file(bench.path("out")).unwrap();
    }
}

#[test]
fn a_report_takes_the_place_of_one_in_another_form() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let path = bench.path("out");
    let diff = ["--diff", capture.to_str().unwrap()];
    let of_diff = |form: &'static str| [&diff[..], &[form, "-o"]].concat();
    let forms: Vec<Vec<&str>> = OUTPUTS[..8]
        .iter()
        .map(|form| form.to_vec())
        .chain([
            [&diff[..], &["-o"]].concat(),
            of_diff("--json"),
            of_diff("--csv"),
            of_diff("--folded"),
        ])
        .chain([
            vec!["--tree", "--csv", "-o"],
            vec!["--callers", "mid", "--json", "-o"],
        ])
        .collect();
    for form in forms.iter().chain(&forms[..1]) {
        Run::of(profiler(form).arg(&path).arg(&capture)).ok();
    }
    assert!(fs::read_to_string(&path).unwrap().starts_with("# host: "));
    // Pictures and reports are no kin.
    Run::of(profiler(&["--flamegraph"]).arg(&path).arg(&capture));
    assert!(fs::read_to_string(&path).unwrap().starts_with("# host: "));
}
