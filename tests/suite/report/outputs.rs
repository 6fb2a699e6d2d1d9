//! Files that views are written to: they take the place of their like, and of nothing else.

use std::fs;

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
