//! Recorded in one world, reported in another: a program whose root file system is gone when the report is made is named
//! from a copy of that file system or from what was packed, and else not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::workload::BURN_C;
use crate::common::{Bench, Folded, HZ, PROFILER, Recorded};

/// Where the program is inside its root, and nowhere else on this machine.
const INSIDE: &str = "/srv/bprof inside/burn_c";

/// A root file system with the program and the libraries it needs, as a directory of the test.
fn make_root(bench: &Bench) -> PathBuf {
    let root = bench.path("root");
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let program = BURN_C.build();
    let place = |from: &Path, to: PathBuf| {
        fs::create_dir_all(to.parent().expect("an absolute path")).expect("a directory");
        fs::copy(from, &to).unwrap_or_else(|err| panic!("cannot copy {}: {err}", from.display()));
    };
    place(&program, below(INSIDE));
    let needs = Command::new("ldd")
        .arg(&program)
        .output()
        .expect("ldd runs");
    let needs = String::from_utf8(needs.stdout).expect("ldd prints text");
    for library in needs
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        place(Path::new(library), below(library));
    }
    root
}

/// Records the program in a mount namespace of its own, with a tmpfs as its root that ends with it.
fn record_inside(bench: &Bench, root: &Path) -> Recorded {
    let mount = bench.path("mnt");
    fs::create_dir(&mount).expect("a mount point");
    let script =
        "mount -t tmpfs none \"$1\" && cp -a \"$2\"/. \"$1\" && exec chroot \"$1\" \"$3\" 1 1";
    let recorded = bench.record(&[
        "-F".as_ref(),
        HZ.to_string().as_ref(),
        "--".as_ref(),
        "unshare".as_ref(),
        "--mount".as_ref(),
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        "sh".as_ref(),
        mount.as_os_str(),
        root.as_os_str(),
        INSIDE.as_ref(),
    ]);
    let left = fs::read_dir(&mount)
        .expect("the mount point is there")
        .count();
    assert_eq!(left, 0, "its root is gone");
    recorded.ok()
}

/// `profiler ARGS...`: standard output; fails unless it ends with 0.
fn profiler(args: &[&Path]) -> String {
    let output = Command::new(PROFILER)
        .args(args)
        .output()
        .expect("profiler starts");
    assert!(
        output.status.success(),
        "profiler {args:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

fn is_burn(name: &str) -> bool {
    ["hot_a", "hot_b", "hot_c"].contains(&name)
}

#[test]
fn a_program_in_a_root_that_is_gone_is_named_from_a_copy_or_a_pack_and_not_otherwise() {
    let bench = Bench::new();
    let root = make_root(&bench);
    let recorded = record_inside(&bench, &root);
    let of_program = |folded: &Folded| folded.only(|s| s.comm == "burn_c");

    let without = of_program(&recorded.folded());
    without.check_none("a name without the file", |s| {
        s.frames.iter().any(|frame| is_burn(frame))
    });
    without.check_share("file and offset", 0.9..=1.0, |s| {
        s.frames.iter().any(|frame| frame.starts_with("[burn_c+0x"))
    });
    let (missing, _) = recorded.report(&["--missing"]);
    let lacking = |line: &str| line.contains(INSIDE) && line.contains("file missing");
    assert!(missing.lines().any(lacking), "{missing}");

    let symfs = root.to_str().expect("UTF-8");
    let (named_text, verdict) = recorded.report(&["--folded", "--symfs", symfs]);
    let named = of_program(&Folded::parse(&named_text, &verdict));
    recorded.truth().check_shares(&named);

    let packed = bench.path("packed.bprof");
    profiler(&[
        Path::new("pack"),
        &recorded.capture,
        Path::new("--symfs"),
        &root,
        Path::new("-o"),
        &packed,
    ]);
    fs::remove_dir_all(&root).expect("the copy goes too");
    let report = |view: &str| profiler(&[Path::new("report"), Path::new(view), &packed]);
    assert_eq!(report("--folded"), named_text);
    // A linkage stub has no name in any file; nothing else lacks.
    let missing = report("--missing");
    let lacks = |line: &str| line.contains(INSIDE) && line.contains("file missing");
    assert!(!missing.lines().any(lacks), "{missing}");
}
