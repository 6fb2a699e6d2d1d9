//! Code that goes on where nothing has called it: behind handlers of signals, at the ends of coroutines, on stacks that Go changes.

use crate::common::workload::{RETURNS, RETURNS_STATIC, SWITCHES_GO};
use crate::common::{Bench, Folded, Stack};
use crate::unwind::record_at;

/// Handlers return many times a second.
const MANY_HZ: u32 = 1999;

/// How many stacks a report counts as ended for a reason.
fn ended(folded: &Folded, reason: &str) -> u64 {
    let counts = folded
        .verdict
        .lines()
        .flat_map(|line| line.split([',', ':']));
    let mut counts = counts.filter_map(|part| part.trim().strip_prefix(reason));
    counts.next().map_or(0, |count| {
        let digits = count.trim().chars().filter(char::is_ascii_digit);
        digits.collect::<String>().parse().expect("a count")
    })
}

/// The address behind the last instruction of the code that handlers return to belongs to nothing.
#[test]
fn samples_while_a_handler_returns_have_no_caller_that_is_made_up() {
    let bench = Bench::new();
    for program in [RETURNS, RETURNS_STATIC] {
        let (_, folded) = record_at(&bench, "auto", MANY_HZ, program, &["2"]);
        let returning = |s: &Stack| s.frames.iter().any(|f| f.contains("rt_sigreturn"));
        let returns = folded.only(returning);
        assert!(returns.total() > 50, "{folded}");
        let truth = |s: &Stack| s.has_chain(&["main", "outer", "step1", "step2", "sender"]);
        returns.check_none("a caller that never called", |s| s.has("main") && !truth(s));
        // While the kernel puts registers back, some are of one place and some of the other: such a stack ends at once, and is counted.
        returns.check_least("what was interrupted", 0.97, truth);
        let ended = ended(&folded, "no unwind info");
        assert!(ended * 100 < folded.total(), "{ended}: {folded}");
    }
}

/// Their stacks are made to return to the beginning of a function of the C library, with what need not be code above it.
#[test]
fn stacks_of_coroutines_end_where_they_begin() {
    let bench = Bench::new();
    for args in [&["1.5", "coroutines"][..], &["1.5", "coroutines", "linked"]] {
        let (_, folded) = record_at(&bench, "auto", MANY_HZ, RETURNS_STATIC, args);
        let spins = folded.only(|s| s.has("spins"));
        assert!(spins.total() * 10 > folded.total() * 9, "{folded}");
        spins.check_least("begun by the C library", 0.99, |s| {
            s.user().next() == Some("__start_context") && s.has_chain(&["turns", "spins"])
        });
        for reason in [
            "no unwind info",
            "bad frame",
            "return address in no known code",
        ] {
            let ended = ended(&folded, reason);
            assert!(ended * 100 < folded.total(), "{reason}, {ended}: {folded}");
        }
    }
}

/// Go's own unwind information does not know of them: what lies on the other stack is no caller.
#[test]
fn stacks_that_go_changes_end_there() {
    let bench = Bench::new();
    let (_, folded) = record_at(&bench, "auto", MANY_HZ, SWITCHES_GO, &["3"]);
    let switch = |frame: &str| {
        let name = frame.trim_end_matches(".abi0");
        ["runtime.systemstack", "runtime.mcall", "runtime.morestack"].contains(&name)
    };
    let switched = folded.only(|s| s.user().any(switch));
    assert!(switched.total() > 20, "{folded}");
    switched.check_none("a caller on another stack", |s| {
        s.user().skip(1).any(switch)
    });
    let ended = ended(&folded, "no unwind info");
    assert!(ended >= switched.total(), "{ended}: {folded}");
    // Where Go's handler returns to is no function of its own kind either.
    let handled = folded.only(|s| s.has("runtime.sigtramp") || s.has("runtime.sigtramp.abi0"));
    assert!(handled.total() > 20, "{folded}");
    handled.check_least("what was interrupted", 0.97, |s| {
        s.user()
            .nth(1)
            .is_some_and(|frame| !frame.starts_with("runtime.sig"))
    });
    let own = folded.only(|s| s.user_leaf() == Some("main.burns"));
    own.check_least("begun by a goroutine", 0.99, |s| {
        s.user()
            .next()
            .is_some_and(|root| root.starts_with("runtime.goexit"))
    });
}
