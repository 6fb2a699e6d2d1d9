//! A recording that is packed needs none of the machine's files any more.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::workload::INLINE_CPP;
use crate::common::{Bench, PROFILER, Running};

const VIEWS: [&[&str]; 3] = [&["--folded"], &["--standard"], &["--top", "100"]];

fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|err| panic!("{command:?} does not start: {err}"))
}

fn pack(bench: &Bench, options: &[&str]) -> (Option<i32>, String) {
    let mut command = bench.profiler();
    let output = run(command.arg("pack").args(options).arg(bench.capture()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// What reports print; their verdicts are on standard error for `--folded`, and lines with `#` in the others.
fn printed(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command:?}\n{said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A root directory with the reporter, its libraries where nobody has mapped them from, and nothing else.
struct Elsewhere {
    root: PathBuf,
}

impl Elsewhere {
    fn new(bench: &Bench) -> Elsewhere {
        let root = bench.path("elsewhere");
        fs::create_dir_all(root.join("loaded")).expect("a directory");
        fs::create_dir_all(root.join("tmp")).expect("a directory");
        fs::copy(PROFILER, root.join("profiler")).expect("the reporter is copied");
        let listed = printed(Command::new("ldd").arg(PROFILER));
        // `libc.so.6 => /lib/.../libc.so.6 (0x...)` and `/lib64/ld-linux-x86-64.so.2 (0x...)`.
        for path in listed.split_whitespace().filter(|w| w.starts_with('/')) {
            let name = Path::new(path).file_name().expect("a file name");
            let name = match name.as_encoded_bytes().starts_with(b"ld-") {
                true => OsStr::new("loader"),
                false => name,
            };
            fs::copy(path, root.join("loaded").join(name)).expect("a library is copied");
        }
        Elsewhere { root }
    }

    /// The report of a copy of the bench's capture.
    fn report(&self, bench: &Bench, view: &[&str]) -> String {
        fs::copy(bench.capture(), self.root.join("run.bprof")).expect("the capture is copied");
        let mut command = Command::new("chroot");
        command
            .arg(&self.root)
            .args(["/loaded/loader", "--library-path", "/loaded", "/profiler"])
            .arg("report")
            .args(view)
            .arg("/run.bprof");
        printed(&mut command)
    }
}

/// The first line in which two reports differ, verdict lines about the capture's length left out.
#[track_caller]
fn assert_same(found: &str, expected: &str, what: &str) {
    let mut pairs = found.lines().zip(expected.lines());
    if let Some((found, expected)) = pairs.find(|(found, expected)| found != expected) {
        panic!("{what}: found\n{found}\nexpected\n{expected}");
    }
    assert!(found == expected, "{what}: one is longer");
}

#[test]
fn a_packed_recording_is_reported_in_an_empty_root_as_on_this_machine() {
    let bench = Bench::new();
    let program = INLINE_CPP.build();
    let program = program.to_str().expect("UTF-8");
    // Programs and libraries of the system beside one with lines and inlined functions.
    let script = format!("{program}; seq 300000 | sort -R | md5sum; find /usr/lib | gzip | wc -c");
    let recorded = bench.record(&["-F", "499", "--", "sh", "-c", &script]).ok();
    let reports = || VIEWS.map(|view| recorded.report(view).0);
    let expected = reports();
    let elsewhere = Elsewhere::new(&bench);
    let stranger = elsewhere.report(&bench, &["--folded"]);
    assert_ne!(stranger, expected[0], "nothing is packed yet");

    for level in ["hits", "symtab", "full"] {
        let (code, said) = pack(&bench, &["--symbols", level]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("packed "), "{said}");
        assert!(!said.contains("could not be packed"), "{said}");
        for (view, expected) in VIEWS.into_iter().zip(&expected) {
            let what = format!("{level} {view:?}");
            assert_same(&elsewhere.report(&bench, view), expected, &what);
        }
        let (_, said) = pack(&bench, &["--symbols", level]);
        assert!(said.contains("nothing was added"), "{said}");
    }
    assert_eq!(reports(), expected, "and here as before");
}

#[test]
fn a_recording_under_way_is_not_packed() {
    let bench = Bench::new();
    let running = Running::start_sampling(&bench, &["-F", "99", "-a"]);
    let (code, said) = pack(&bench, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is still being recorded"), "{said}");
    running.interrupt();
    let (code, said) = pack(&bench, &[]);
    assert_eq!(code, Some(0), "{said}");
}
