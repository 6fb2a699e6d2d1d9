//! What a stack says: the right function at every edge, inlined functions, cut stacks, odd symbol
//! names.

use std::fs;

use crate::common::folded::TRUNCATED;
use crate::common::restore::Setting;
use crate::common::workload::{BURN_RUST, DEEP, FRAMELESS, INLINE_CPP, INLINE_RUST, ODDNAMES};
use crate::common::{Bench, Folded, HZ, Program, Recorded};

const MAX_STACK: &str = "/proc/sys/kernel/perf_event_max_stack";

/// Records `program SECONDS` and checks that every sample recorded is in the report.
fn record(bench: &Bench, program: Program, args: &[&str]) -> (Recorded, Folded) {
    let mut command = vec![program.build().into_os_string()];
    command.extend(args.iter().map(Into::into));
    let recorded = bench.record_command(&command).ok();
    let folded = recorded.folded();
    let said = recorded.summary_number("sample");
    assert_eq!(
        folded.total(),
        said,
        "samples of the report and of the recorder's summary\n{}",
        recorded.stderr
    );
    (recorded, folded)
}

/// A12: a caller whose call is its last instruction, and a leaf that is its function's first
/// instruction.
#[cfg(target_arch = "x86_64")]
#[test]
fn a12_addresses_on_the_edge_of_a_function() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, crate::common::workload::EDGES, &["0.6"]);
    recorded.truth().check_shares(&folded);
    folded.check_none("the function behind the caller", |s| s.has("after_never"));
    folded.check_none("the function before the leaf", |s| s.has("before_tight"));
    let never = folded.only(|s| s.has("never_returns"));
    never.check_least("the caller", 1.0, |s| {
        s.has_chain(&["calls_never", "never_returns"])
    });
    // It is written by hand, without unwind information: frame pointers lead on from its second sample on.
    never.check_least("its caller", 0.97, |s| {
        s.has_chain(&["main", "calls_never", "never_returns"])
    });
    let tight = folded.only(|s| s.has("tight_loop"));
    tight.check_least("the leaf", 1.0, |s| s.user_leaf() == Some("tight_loop"));

    // The address printed is the one recorded, not the one looked up.
    let standard = recorded.standard();
    let caller = standard
        .samples
        .iter()
        .flat_map(|s| &s.user)
        .find(|f| f.contains("calls_never"));
    let caller = caller.unwrap_or_else(|| panic!("no frame of calls_never\n{}", standard.head()));
    // push, mov and call are 1 + 3 + 5 bytes: the return address is the function's end.
    assert!(caller.contains("calls_never+0x9"), "{caller}");
}

/// A13: an inlined function is a frame below the one it is inlined into, by its demangled name.
#[test]
fn a13_inlined_functions() {
    for program in [INLINE_CPP, INLINE_RUST] {
        let bench = Bench::new();
        let (recorded, folded) = record(&bench, program, &["0.6"]);
        folded.check_least("drive, mid, leaf", 0.7, |s| {
            s.has_chain(&["inl_drive", "inl_mid", "inl_leaf"])
        });
        let inlined = |s: &crate::common::Stack| s.has("inl_mid") || s.has("inl_leaf");
        folded.check_none("an inlined function without the one it is in", |s| {
            inlined(s) && !s.has("inl_drive")
        });
        folded.check_none("a mangled name", |s| {
            s.user().any(|f| f.starts_with("_Z") || f.starts_with("_R"))
        });
        folded.check_none("an empty frame", |s| {
            s.frames.iter().any(|f| f.is_empty() || f == "??")
        });

        let standard = recorded.standard();
        let leaf = standard
            .samples
            .iter()
            .flat_map(|s| &s.user)
            .find(|f| f.contains("inl_leaf"));
        let leaf = leaf.unwrap_or_else(|| {
            panic!(
                "no inlined frame in the standard report\n{}",
                standard.head()
            )
        });
        assert!(leaf.contains("(inlined)"), "{leaf}");
        assert!(
            leaf.contains(program.source),
            "source file and line: {leaf}"
        );
    }
}

/// A14: along frame pointers a leaf without a frame hides its caller, nothing is made up for it, and the verdict says that it may be
/// so. By default its caller is there.
#[test]
fn a14_a_leaf_without_a_frame() {
    let bench = Bench::new();
    let frameless = FRAMELESS.build();
    let frameless = frameless.to_str().expect("a path in UTF-8");
    for (options, chain, told) in [
        (
            &["--unwind", "fp"][..],
            &["main", "outer", "bare_leaf"][..],
            "user stacks: walked along frame pointers; the caller",
        ),
        (
            &[],
            &["main", "outer", "skipped_caller", "bare_leaf"],
            "user stacks: walked by unwind information and frame pointers",
        ),
    ] {
        let rate = HZ.to_string();
        let args = [&["-F", &rate], options, &["--", frameless, "0.8"]].concat();
        let recorded = bench.record(&args).ok();
        let folded = recorded.folded();
        recorded.truth().check_count(&folded);
        let leaf = folded.only(|s| s.has("bare_leaf"));
        leaf.check_least("main to the leaf", 0.97, |s| s.has_chain(chain));
        leaf.check_none("the leaf twice", |s| s.times("bare_leaf") != 1);
        folded.check_none("padding", |s| s.user().any(|f| f == "[unknown]"));
        assert!(
            leaf.total() as f64 >= 0.9 * folded.total() as f64,
            "{folded}"
        );
        assert!(folded.verdict.contains(told), "{folded}");
    }
}

/// A15: a stack deeper than the kernel's limit is marked at its root, and one that fits is not.
#[test]
fn a15_deep_stacks() {
    // First, since another test changes the limit while it has the bench.
    let bench = Bench::new();
    let limit: usize = fs::read_to_string(MAX_STACK)
        .expect("a limit")
        .trim()
        .parse()
        .expect("a number");
    let (recorded, folded) = record(&bench, DEEP, &[&(limit + 80).to_string(), "0.6"]);
    let deep = folded.only(|s| s.has("deep_spin"));
    deep.check_least("a marker at the root", 1.0, |s| s.frames[0] == TRUNCATED);
    deep.check_none("more than one marker", |s| s.times(TRUNCATED) != 1);
    deep.check_none("main, which was cut off", |s| s.has("main"));
    deep.check_none("another number of frames than the limit", |s| {
        s.user().count() != limit + 1
    });
    assert!(
        recorded.stderr.contains("truncated"),
        "the summary counts them\n{}",
        recorded.stderr
    );
    assert!(
        folded.verdict.contains("truncated"),
        "the verdict counts them\n{folded}"
    );

    let (_, folded) = record(&bench, DEEP, &[&(limit - 20).to_string(), "0.4"]);
    let deep = folded.only(|s| s.has("deep_spin"));
    deep.check_least("main", 1.0, |s| s.frames.iter().any(|f| f == "main"));
    deep.check_none("a marker", |s| s.has(TRUNCATED) || s.frames[0] == TRUNCATED);
    deep.check_none("another depth", |s| s.times("dive") != limit - 20);
}

/// A15: with a higher limit of the kernel, deeper stacks are whole.
#[test]
fn a15_a_higher_limit() {
    let bench = Bench::new();
    let _limit = Setting::set(MAX_STACK, "512");
    let (_, folded) = record(&bench, DEEP, &["200", "0.5"]);
    let deep = folded.only(|s| s.has("deep_spin"));
    deep.check_least("main", 1.0, |s| s.frames.iter().any(|f| f == "main"));
    deep.check_none("a marker", |s| s.frames[0] == TRUNCATED);
    deep.check_none("another depth", |s| s.times("dive") != 200);

    let (_, folded) = record(&bench, DEEP, &["600", "0.4"]);
    let deep = folded.only(|s| s.has("deep_spin"));
    deep.check_least("a marker at the root", 1.0, |s| {
        s.frames[0] == TRUNCATED && s.user().count() == 513
    });
}

/// A16: `;`, blanks and control characters in symbols and names stay one frame, and the last blank
/// is the count's.
#[test]
fn a16_odd_symbol_names() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, ODDNAMES, &["0.8", "c;o m\n"]);
    folded.check_none("another comm", |s| {
        s.comm != "c:o m\u{fffd}" && s.comm != ODDNAMES.name
    });
    let odd = folded.only(|s| s.has("odd_drive"));
    for name in ["Lcom/x/Y:::m", "two words 7"] {
        let own = odd.only(|s| s.frames.iter().any(|f| f == name));
        own.check_least(name, 1.0, |s| s.has_chain(&["main", "odd_drive", name]));
        let share = own.total() as f64 / odd.total() as f64;
        assert!((0.4..=0.6).contains(&share), "{name}: {share:.3}\n{folded}");
    }
    // The standard report keeps the name.
    let standard = recorded.standard();
    let kept = |name: &str| {
        standard
            .samples
            .iter()
            .flat_map(|s| &s.user)
            .any(|f| f.contains(name))
    };
    assert!(
        kept("Lcom/x/Y;::m") && kept("two words 7"),
        "{}",
        standard.head()
    );
}

/// A16: a Rust method on an array has a `;` in its demangled name.
#[test]
fn a16_a_rust_method_on_an_array() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, BURN_RUST, &["1", "0.8"]);
    recorded.truth().check_shares(&folded);
    let array = folded.only(|s| s.has("hot_array"));
    array.check_least("one frame", 1.0, |s| {
        s.frames
            .iter()
            .any(|f| f.contains("[u8: 2]") && f.contains("hot_array"))
    });
    array.check_least("right below its caller", 1.0, |s| {
        s.has_chain(&["drive", "hot_array"])
    });
}
