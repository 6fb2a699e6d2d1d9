//! `profiler import` of what perf records here and now: the workload's own account is the truth for it as for our recordings,
//! and names of kernel code are those of this kernel.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::workload::BURN_C;
use crate::common::{Bench, Folded, HZ, PROFILER, Truth};

/// Runs `perf record OPTIONS -o NAME -- COMMAND` (into a pipe with `-`): the file, and what the command printed.
fn perf(bench: &Bench, options: &[&str], command: &[&str]) -> (PathBuf, String) {
    let (file, printed) = (bench.path("perf.data"), bench.path("printed"));
    let piped = options.contains(&"-");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-N", "-F", &HZ.to_string()]);
    perf.args(options);
    if piped {
        // The command shares its standard output.
        perf.args(["--", "sh", "-c", "out=$1; shift; \"$@\" >\"$out\"", "sh"]);
        perf.arg(&printed);
        perf.stdout(File::create(&file).expect("a file for perf"));
    } else {
        perf.arg("-o").arg(&file).arg("--");
        perf.stdout(File::create(&printed).expect("a file for the command"));
    }
    let output = perf
        .args(command)
        .stderr(Stdio::piped())
        .output()
        .expect("perf is installed (Debian: linux-perf)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{perf:?}: {said}");
    let printed = std::fs::read_to_string(&printed).expect("text");
    (file, printed)
}

fn profiler(args: &[&Path]) -> (String, String) {
    let output = Command::new(PROFILER)
        .args(args)
        .output()
        .expect("profiler starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stderr);
    assert!(output.status.success(), "profiler {args:?}: {said}");
    (text(&output.stdout), said)
}

fn imported(bench: &Bench, file: &Path) -> Folded {
    let capture = bench.capture();
    let _ = std::fs::remove_file(&capture);
    profiler(&["import".as_ref(), file, "-o".as_ref(), &capture]);
    let (verified, _) = profiler(&["verify".as_ref(), &capture]);
    assert!(verified.contains("no damage, complete"), "{verified}");
    let (text, verdict) = profiler(&["report".as_ref(), "--folded".as_ref(), &capture]);
    Folded::parse(&text, &verdict)
}

/// In every form that perf records in.
#[test]
fn an_import_has_the_shares_the_workload_knows() {
    let bench = Bench::new();
    let program = BURN_C.build();
    let program = program.to_str().expect("UTF-8");
    let forms: [&[&str]; 4] = [
        &["-g"],
        &["-g", "-z", "--buildid-mmap"],
        &["-g", "-o", "-"],
        &["-g", "-a", "-k", "mono"],
    ];
    for form in forms {
        let (file, printed) = perf(&bench, form, &[program, "2", "1"]);
        let folded = imported(&bench, &file).only(|stack| stack.comm == "burn_c");
        let truth = Truth::parse(&printed);
        truth.check_shares(&folded);
        truth.check_count(&folded);
        folded.check_least(
            &format!("{form:?}: main's thread calls drive"),
            0.95,
            |stack| stack.has("drive"),
        );
    }
}

/// On the machine that recorded, in the same boot.
#[test]
fn kernel_code_has_the_names_of_the_kernel_that_ran() {
    let bench = Bench::new();
    let command = [
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=64k",
        "count=100000",
    ];
    let (file, _) = perf(&bench, &["-g"], &command);
    let folded = imported(&bench, &file).only(|stack| stack.comm == "dd");
    folded.check_least("dd reads zeros in the kernel", 0.5, |stack| {
        stack.has("read_zero_[k]") || stack.has("read_iter_zero_[k]")
    });
    folded.check_none("a kernel frame without a name", |stack| {
        stack
            .frames
            .iter()
            .any(|frame| frame.starts_with("[kernel+0x"))
    });
}
