//! `profiler info` and `profiler report --missing`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::golden::{golden, of_version};
use super::report::fixture::{Run, profiler, subcommand};

fn info(capture: &Path, options: &[&str]) -> Run {
    Run::of(subcommand("info", options).arg(capture))
}

fn as_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|err| panic!("{err}: {text}"))
}

#[test]
fn a_capture_tells_what_it_is() {
    let text = info(&golden("calls.bprof"), &[]).ok();
    assert_eq!(
        text,
        "\
format        1.0, written by profiler 0.1.0
file          2.46 KiB (2523 bytes)
host          vm, 2 CPUs
kernel        Linux 6.18.44-fc-v657 x86_64, build ID 48dc540c8b76393804ca8088dbfa7d42911a9444
boot          6a28579a-1808-4c1d-8e58-f9ed65cb8558
event         cpu-clock at 99 Hz
target        command calls
began         2026-11-29T20:33:30.402750101Z
samples from  2026-11-29T20:33:30.105442980Z to 2026-11-29T20:33:32.115562379Z, 2.010 s
samples       151; lost: 0
of            1 process, 1 thread, 1 image, 1 mapped file
segments      1
frames        segment                     3     1.02 KiB of     1.35 KiB
              kernel symbols              1        265 B of        328 B
              end                         1         27 B of         14 B
index         used
packed        nothing
capture       complete, ended by the command's exit, status 0
"
    );
}

#[test]
fn scripts_get_the_same() {
    let found = as_json(&info(&golden("../v1.1/family.bprof"), &["--json"]).ok());
    let original = fs::metadata(golden("family.bprof")).unwrap().len();
    let frames = found["frames"].as_array().unwrap();
    let kinds: Vec<(u64, u64)> = frames
        .iter()
        .map(|f| (f["kind"].as_u64().unwrap(), f["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(kinds, [(1, 4), (2, 1), (7, 3), (9, 3), (10, 3)]);
    assert!(found["file_size"].as_u64().unwrap() > original);
    assert_eq!(found["packed"]["level"], "full");
    assert_eq!(found["packed"]["symbols"], 19);
    assert_eq!(found["packed"]["symbol_files"], 3);
    assert_eq!(found["packed"]["tables"], 3);
    assert_eq!(
        found["packed"]["files"][0],
        json!({ "path": "/opt/bprof-golden/family",
                "build_id": "c6ee0f9c0f6c9b209c957571b735f9b0ef24ec32",
                "debug": false, "size": 8888, "whole": true })
    );
    let rest = [
        ("format", json!("1.0")),
        ("tool", json!("profiler 0.1.0")),
        ("host", json!("vm")),
        ("cpus", json!(2)),
        (
            "kernel",
            json!({ "release": "6.18.44-fc-v657", "arch": "x86_64",
                    "build_id": "48dc540c8b76393804ca8088dbfa7d42911a9444" }),
        ),
        ("events", json!([{ "name": "cpu-clock", "rate": "49 Hz" }])),
        ("target", json!("command family")),
        ("user_stacks", json!(null)),
        ("span_seconds", json!(3.897992372)),
        ("samples", json!(200)),
        ("lost", json!(0)),
        ("truncated", json!(0)),
        ("losses", json!({})),
        ("processes", json!(3)),
        ("threads", json!(5)),
        ("images", json!(4)),
        ("files", json!(3)),
        ("segments", json!(1)),
        ("complete", json!(false)),
        ("ended", json!(null)),
        ("cut_bytes", json!(0)),
        ("damage", json!([])),
        ("degraded", json!([])),
    ];
    for (key, value) in rest {
        assert_eq!(found[key], value, "{key}");
    }
}

/// Since 1.5 a capture tells how its user stacks were walked.
#[test]
fn how_stacks_were_walked_is_told() {
    for (name, word, line) in [
        ("calls", "auto", "by unwind information and frame pointers"),
        ("family", "fp", "along frame pointers"),
    ] {
        let path = of_version("v1.5", &format!("{name}.bprof"));
        let found = as_json(&info(&path, &["--json"]).out);
        assert_eq!(found["user_stacks"], json!(word));
        let text = info(&path, &[]).out;
        let found = text.lines().find(|l| l.starts_with("user stacks"));
        assert!(found.is_some_and(|l| l.ends_with(&format!("walked {line}"))));
    }
}

/// What differs in that is told where captures are looked at together.
#[test]
fn stacks_that_were_walked_differently_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| of_version("v1.5", &format!("{name}.bprof"));
    let all = dir.path().join("all.bprof");
    let mut merge = subcommand("merge", &["-o"]);
    Run::of(merge.arg(&all).arg(of("calls")).arg(of("family"))).ok();
    let told = Run::of(profiler(&["--top=1"]).arg(&all)).out;
    let how = "\n# user stacks: walked along frame pointers (capture 2), walked by unwind information and frame pointers \
               (capture 1)\n";
    assert!(told.contains(how), "{told}");
    let diff = |before: &str| {
        let mut diff = profiler(&["--diff"]);
        Run::of(diff.arg(of(before)).arg(of("family"))).out
    };
    let different = diff("calls");
    assert!(different.contains("walked differently: before by unwind information and frame pointers, after along frame pointers;"), "{different}");
    assert!(!diff("family").contains("walked differently"));
}

#[test]
fn cut_and_damaged_captures_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.bprof");
    let mut bytes = fs::read(golden("calls.bprof")).unwrap();
    fs::write(&path, &bytes[..1200]).unwrap();
    let run = info(&path, &["--json"]);
    let found = as_json(&run.out);
    assert_eq!((run.code, &found["complete"]), (Some(0), &json!(false)));
    assert!(found["cut_bytes"].as_u64().unwrap() > 0);
    assert_eq!(found["damage"], json!([]));

    let at = bytes
        .windows(4)
        .position(|w| w == b"\x28\xb5\x2f\xfd")
        .unwrap()
        + 20;
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let run = info(&path, &["--json"]);
    let found = as_json(&run.out);
    assert_eq!((run.code, &found["complete"]), (Some(1), &json!(false)));
    assert!(run.err.contains("is damaged: byte "), "{}", run.err);
    assert_eq!(found["damage"].as_array().unwrap().len(), 1);
    let run = info(&path, &[]);
    assert_eq!(run.code, Some(1));
    assert!(run.out.contains("\ncapture       DAMAGED"), "{}", run.out);

    fs::write(&path, "no capture").unwrap();
    let run = info(&path, &[]);
    assert_eq!((run.code, &*run.out), (Some(1), ""));
    assert!(run.err.contains("not a capture"), "{}", run.err);
}

fn missing(capture: &str, root: &str, options: &[&str]) -> Run {
    let mut command = profiler(options);
    let command = command.args(["--missing", "--symfs"]);
    Run::of(command.arg(golden(root)).arg(golden(capture)))
}

#[test]
fn files_that_are_needed_are_listed() {
    let text = missing("family.bprof", "src", &[]).ok();
    let (_, table) = text.split_once("\n\n").unwrap();
    let expected = "   SHARE    SAMPLES     FRAMES  FILE
 75.50 %        151        541  /opt/bprof-golden/family (build ID c6ee0f9c0f6c9b209c957571b735f9b0ef24ec32): file missing
 12.50 %         25         75  /opt/bprof-golden/two (build ID ebf8f54b6474e4e4bab40ce7aee6c5fbc3229174): file missing
 12.00 %         24         72  /opt/bprof-golden/one (build ID bfbf774674a6170ea265e3638f1b4afc7afb92ee): file missing
  0.50 %          1          4  [kernel] (build ID 48dc540c8b76393804ca8088dbfa7d42911a9444): no kernel symbol
";
    assert!(table.starts_with(expected), "{table}");
    assert!(
        table.contains("--symfs DIR") && table.contains("profiler pack"),
        "{table}"
    );

    let found = as_json(&missing("family.bprof", "src", &["--json"]).ok());
    assert_eq!(found["samples"], 200);
    let list = found["missing"].as_array().unwrap();
    assert_eq!(list.len(), 4);
    assert_eq!(
        list[1],
        json!({ "kind": "file", "path": "/opt/bprof-golden/two",
                "build_id": "ebf8f54b6474e4e4bab40ce7aee6c5fbc3229174",
                "reason": "file missing", "samples": 25, "share": 0.125, "frames": 75 })
    );
}

#[test]
fn nothing_missing_is_an_empty_list() {
    let text = missing("calls.bprof", "files", &[]).ok();
    assert!(text.ends_with("\nNo file is missing: all frames that files can name have names.\n"));
    for (capture, root) in [("calls.bprof", "files"), ("../v1.1/calls.bprof", "src")] {
        let found = as_json(&missing(capture, root, &["--json"]).ok());
        assert_eq!(found["missing"], json!([]), "{capture}");
    }
    let run = Run::of(profiler(&["--json", "--folded"]).arg(golden("calls.bprof")));
    assert_eq!(run.code, Some(2), "folded lines are no JSON");
}
