//! What the benchmarks share.

// Each of them uses a part.
#![allow(dead_code)]

pub mod machine;
pub mod measured;
pub mod statistics;
pub mod synthetic;

/// Says on stderr what is under way: standard output has the results.
pub fn say(text: &str) {
    eprintln!("{text}");
}

/// Whether the program was started for its own sake. `cargo bench` without a target starts all; those that take minutes and
/// measure other processes are left out then, and say so.
pub fn is_wanted(name: &str, how: &str) -> bool {
    let wanted = std::env::args().skip(1).any(|arg| arg != "--bench");
    if !wanted {
        say(&format!("{name}: left out; {how}"));
    }
    wanted
}
