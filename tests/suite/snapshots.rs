//! The text of every table, tree and comparison of golden captures, compared with what is kept in `tests/snapshots`.
//!
//! Numbers in them never change: captures do not. Where a view is to look another way, `BPROF_SNAPSHOTS=new cargo test --test
//! suite snapshots` writes them anew; look at the difference before it is committed.

use std::fs;
use std::path::{Path, PathBuf};

use bprof::profile::Profile;
use bprof::report::layout::Style;
use bprof::report::{callers, top, tree};

use super::exports::{Case, golden};
use super::report::fixture::{Run, profiler, subcommand};

/// Names what is to be done when a view was changed on purpose.
const RENEW: &str = "BPROF_SNAPSHOTS=new cargo test --locked --test suite snapshots";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// Compares `found` with the snapshot of this name, or writes it.
#[track_caller]
fn check(name: &str, found: &str) {
    let path = directory().join(name);
    if std::env::var_os("BPROF_SNAPSHOTS").is_some_and(|value| value == "new") {
        fs::write(&path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path)
        .unwrap_or_else(|err| panic!("{}: {err}; write it with\n  {RENEW}", path.display()));
    if expected == found {
        return;
    }
    let lines = expected.lines().zip(found.lines());
    let same = lines.take_while(|(a, b)| a == b).count();
    let line = |text: &str| {
        text.lines()
            .nth(same)
            .unwrap_or("(no more lines)")
            .to_owned()
    };
    panic!(
        "{} differs from line {} on:\n  expected {}\n  found    {}\nIf the view was changed on purpose: {RENEW}",
        path.display(),
        same + 1,
        line(&expected),
        line(found)
    );
}

/// What `profiler report OPTIONS` prints of a capture. From the directory of captures, so that paths in it are short.
fn printed(case: &Case, options: &[&str]) -> String {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut command = profiler(options);
    command.current_dir(&golden).arg("--symfs").arg(&case.files);
    Run::of(command.arg(case.capture.strip_prefix(&golden).unwrap())).ok()
}

#[test]
fn tables_look_as_ever() {
    for (version, name) in [
        ("v1.2", "calls"),
        ("v1.2", "family"),
        ("v1.3", "family"),
        ("v1.1", "paths"),
    ] {
        let case = golden(version, &format!("{name}.bprof"));
        for (view, options) in [
            ("top-total.txt", &["--top=12", "--sort=total"][..]),
            ("top.csv", &["--top=12", "--csv"]),
            ("top.json", &["--top=4", "--json"]),
            ("tree.txt", &["--tree"]),
            ("tree.csv", &["--tree", "--csv"]),
            ("top-lines.txt", &["--top=8", "--lines"]),
            ("top-by-comm.txt", &["--top=3", "--by=comm"]),
            ("top-by-thread.csv", &["--top=2", "--by=thread", "--csv"]),
            (
                "tree-by-process.txt",
                &["--tree", "--by=process", "--min-percent=5"],
            ),
        ] {
            check(
                &format!("{version}-{name}-{view}"),
                &printed(&case, options),
            );
        }
    }
}

#[test]
fn callers_and_callees_look_as_ever() {
    let case = golden("v1.2", "calls.bprof");
    for (view, options) in [
        ("callers.txt", &["--callers", "do_syscall_64"][..]),
        ("callees.txt", &["--callees", "copy"]),
        ("callers.json", &["--callers", "beta", "--json"]),
        ("callees.csv", &["--callees", "beta", "--csv"]),
        ("callers-recursive.txt", &["--callers", "deep"]),
        ("callers-pattern.txt", &["--callers", "_caller$"]),
    ] {
        check(&format!("v1.2-calls-{view}"), &printed(&case, options));
    }
}

#[test]
fn comparisons_look_as_ever() {
    let case = golden("v1.2", "calls.bprof");
    let before = ["--diff", "v1/calls.bprof", "--symfs", "v1/files"];
    for (view, options) in [
        ("diff.txt", &["--top=5"][..]),
        ("diff-total.txt", &["--top=5", "--sort=total"]),
        ("diff.csv", &["--csv"]),
        ("diff.json", &["--json", "--top=2"]),
        ("diff.folded", &["--folded"]),
    ] {
        let options = [&before[..], options].concat();
        check(&format!("v1.2-calls-{view}"), &printed(&case, &options));
    }
}

#[test]
fn what_single_samples_and_files_are_shown_as_looks_as_ever() {
    let case = golden("v1.2", "calls.bprof");
    for (view, options) in [
        (
            "perf-script.txt",
            &["--perf-script", "--time", "..500ms"][..],
        ),
        ("standard.txt", &["--standard", "--time", "..500ms"]),
        ("speedscope.json", &["--speedscope", "-", "--time", "..1s"]),
        ("nothing.txt", &["--pid", "1"]),
    ] {
        check(&format!("v1.2-calls-{view}"), &printed(&case, options));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    // With none of the files.
    for (view, options) in [
        ("missing.txt", &["--missing"][..]),
        ("missing.json", &["--missing", "--json"]),
    ] {
        let mut command = profiler(options);
        command.current_dir(&golden).args(["--symfs", "v1.2/src"]);
        let text = Run::of(command.arg("v1.2/calls.bprof")).ok();
        check(&format!("v1.2-calls-{view}"), &text);
    }
    for (view, options) in [("info.txt", &[][..]), ("info.json", &["--json"])] {
        let mut command = subcommand("info", options);
        let text = Run::of(command.current_dir(&golden).arg("v1.2/calls.bprof")).ok();
        check(&format!("v1.2-calls-{view}"), &text);
    }
    let mut merged = subcommand("info", &["v1.4/hosts.bprof"]);
    let merged = Run::of(merged.current_dir(&golden)).ok();
    check("v1.4-hosts-info.txt", &merged);
}

/// Every box of a picture, with its colour: what is around them is inferno's.
#[test]
fn pictures_have_the_same_boxes_as_ever() {
    let case = golden("v1.2", "calls.bprof");
    for (view, options) in [
        ("flamegraph.txt", &[][..]),
        ("inverted.txt", &["--inverted"]),
        ("flamechart.txt", &["--flamechart"]),
        ("diff-flamegraph.txt", &["--diff", "v1/calls.bprof"]),
    ] {
        let svg = printed(&case, &[&["--flamegraph", "-"], options].concat());
        let boxes = svg.split("<title>").skip(1).map(|rest| {
            let (title, rest) = rest.split_once("</title>").unwrap();
            let (_, rest) = rest.split_once("fill=\"").unwrap();
            let (color, _) = rest.split_once('"').unwrap();
            format!("{color} {title}\n")
        });
        check(&format!("v1.2-calls-{view}"), &boxes.collect::<String>());
    }
}

/// As on a terminal of 80 columns, which is said to the view: there is none in tests.
#[test]
fn eighty_columns_are_enough() {
    let case = golden("v1.2", "family.bprof");
    let profile = case.profile();
    let style = Style {
        width: Some(80),
        color: false,
    };
    let text = |write: &dyn Fn(&Profile, &mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&profile, &mut out);
        let text = String::from_utf8(out).unwrap();
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None);
        text
    };
    let options = top::Options {
        by_group: true,
        limit: Some(3),
        style,
        ..top::Options::default()
    };
    let by_group = text(&|profile, out| top::write(profile, options, out).unwrap());
    check("v1.2-family-top-80.txt", &by_group);
    let options = tree::Options {
        by_group: true,
        style,
        ..tree::Options::default()
    };
    let all = text(&|profile, out| tree::write(profile, tree::Of::All, options, out).unwrap());
    check("v1.2-family-tree-80.txt", &all);
    let found = callers::find(&profile, "_spin").unwrap();
    let of = tree::Of::Callers(&found);
    let callers = text(&|profile, out| tree::write(profile, of, options, out).unwrap());
    check("v1.2-family-callers-80.txt", &callers);
}
