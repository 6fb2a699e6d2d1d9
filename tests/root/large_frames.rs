//! Frames that are larger than any copy of a stack, beside ordinary ones.

use crate::common::workload::HUGE;
use crate::common::{Bench, HZ, Stack};
use crate::unwind::{is_whole, record_at};

/// Records `huge`, which touches so much of its frame and calls so many turns, in both ways. Fails unless these shares of the stacks
/// of both of its functions are whole.
fn check(touched: &str, turns: &str, huge_least: f64, deep_least: f64) {
    let bench = Bench::new();
    for unwind in ["dwarf", "auto"] {
        let (_, folded) = record_at(&bench, unwind, HZ, HUGE, &["3", touched, turns]);
        let huge = folded.only(|s| s.has("huge"));
        let deep = folded.only(|s| s.has("rec"));
        assert!(huge.total() > 1500 && deep.total() > 400, "{folded}");
        huge.check_least("whole stacks of huge", huge_least, is_whole);
        let all = |s: &Stack| is_whole(s) && s.times("rec") == 100;
        deep.check_least("whole stacks of rec", deep_least, all);
    }
}

/// What lies above the large frame is copied though little lies below it. Ordinary deep stacks of the same thread lose nothing by it.
#[test]
fn stacks_beside_a_large_frame_that_was_hardly_touched() {
    // It takes a fifth of a second to see where the frame is, and more on a busy machine.
    check("64", "1", 0.8, 0.95);
}

/// Hundreds of samples are taken before the first is looked at: that they lack what lies above the large frame says nothing of whether
/// it will be found.
#[test]
fn stacks_with_a_large_frame_on_end() {
    check("8192", "400", 0.8, 0.7);
}
