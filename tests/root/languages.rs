//! Whole stacks of code that is not the usual C, C++ or Rust with glibc: each compared with what the program knows of itself.

use crate::common::folded::TRUNCATED;
use crate::common::workload::{
    SHADOW_GO, SHADOW_GO_BARE, SHADOW_GO_STRIPPED, SHADOW_GO_STRIPPED_PIE, SHADOW_MUSL,
};
use crate::common::{Bench, HZ};
use crate::unwind::{Shadow, record_at};

/// Where goroutines begin.
const GOEXIT: &str = "runtime.goexit";

/// Go tells debuggers how each of its functions is left, those written by hand too.
#[test]
fn stacks_of_a_go_program() {
    let bench = Bench::new();
    for (args, root) in [
        (&["300", "2"][..], "main.main"),
        (&["300", "2", "routines"], "main.onRoutine"),
    ] {
        let (recorded, folded) = record_at(&bench, "auto", HZ, SHADOW_GO, args);
        let shadow = Shadow::of(&recorded);
        shadow.check(&folded, root);
        let own = folded.only(|s| s.user().any(|frame| shadow.is_own(frame)));
        assert!(own.total() * 2 > folded.total(), "{folded}");
        own.check_least("begun by a goroutine", 0.99, |s| {
            s.user().next().is_some_and(|root| root.starts_with(GOEXIT))
                && shadow.own(s).first().is_some_and(|own| own == root)
        });
        let copies = own.only(|s| s.has("runtime.memmove"));
        assert!(copies.total() * 10 > own.total(), "{folded}");
        copies.check_least("memmove by its caller", 0.99, |s| s.has("main.copies"));
    }
}

/// Without what debuggers are told, frame pointers are followed, and that is said: only a function without one hides its caller.
#[test]
fn stacks_of_a_go_program_by_frame_pointers() {
    let bench = Bench::new();
    let (recorded, folded) = record_at(&bench, "auto", HZ, SHADOW_GO_BARE, &["300", "2"]);
    let shadow = Shadow::of(&recorded);
    let burns = folded.only(|s| s.user_leaf() == Some("main.burns"));
    assert!(burns.total() * 5 > folded.total(), "{folded}");
    shadow.check(&burns, "main.main");
    // What a goroutine begins with has a frame pointer of 0.
    burns.check_least("begun by the first goroutine", 0.99, |s| {
        s.user().next() == Some("runtime.main") && s.has("main.main")
    });
    assert!(
        folded.verdict.contains("user stacks walked in part"),
        "{folded}"
    );
}

/// Without symbols functions are named by what the runtime has, which a pack carries at every level to where the program is not.
#[test]
fn names_of_a_stripped_go_program() {
    let bench = Bench::new();
    let nowhere = bench.path("nowhere");
    std::fs::create_dir(&nowhere).expect("a directory");
    let nowhere = nowhere.to_str().expect("UTF-8");
    for program in [SHADOW_GO_STRIPPED, SHADOW_GO_STRIPPED_PIE] {
        let (recorded, folded) = record_at(&bench, "fp", HZ, program, &["300", "2"]);
        let shadow = Shadow::of(&recorded);
        let burns = folded.only(|s| s.user_leaf() == Some("main.burns"));
        assert!(burns.total() * 5 > folded.total(), "{folded}");
        shadow.check(&burns, "main.main");
        burns.check_least("main", 0.99, |s| s.has("main.main"));
        folded.check_least("a name", 0.99, |s| {
            !s.user().any(|frame| frame.starts_with("[shadow_go"))
        });
        let (named, _) = recorded.report(&["--folded"]);
        let elsewhere = ["--folded", "--symfs", nowhere];
        assert!(!recorded.report(&elsewhere).0.contains("main.burns"));
        for level in ["hits", "symtab", "full"] {
            let mut pack = bench.profiler();
            pack.args(["pack", "--symbols", level]).arg(bench.capture());
            let output = pack.output().expect("the packer starts");
            assert!(output.status.success(), "{output:?}");
            assert_eq!(recorded.report(&elsewhere).0, named, "{level}");
        }
    }
}

/// The C library of Alpine, of which the distribution's build says nothing of how its functions are left: stacks reach main,
/// those of its own functions end there, and that is told.
#[test]
fn stacks_of_a_program_with_musl() {
    let bench = Bench::new();
    let (recorded, folded) = record_at(&bench, "auto", HZ, SHADOW_MUSL, &["300", "2"]);
    let shadow = Shadow::of(&recorded);
    shadow.check(&folded, "main");
    let burns = folded.only(|s| s.user_leaf() == Some("burns"));
    assert!(burns.total() * 5 > folded.total(), "{folded}");
    // Below what the library calls, a walk ends in the library.
    let direct = burns.only(|s| {
        // What was cut because the machine had no time for us says so.
        !s.has("compares") && !s.has("on_signal") && s.frames[0] != TRUNCATED
    });
    assert!(direct.total() * 20 > burns.total(), "{folded}");
    direct.check_least("main", 0.995, |s| {
        shadow.own(s).first().is_some_and(|own| own == "main")
    });
    assert!(folded.verdict.contains("no unwind info"), "{folded}");
}
