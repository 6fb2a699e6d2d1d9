//! `examples/hottest.rs`: what a newcomer runs first.

use std::path::Path;

use super::golden::of_version;
use super::report::fixture::{Run, subcommand};

/// All of it but how it takes its argument.
#[path = "../../examples/hottest.rs"]
#[allow(dead_code)]
mod hottest;

#[test]
fn the_example_names_the_hottest_function() {
    // Packed, so that it names itself.
    let dir = tempfile::tempdir().unwrap();
    let packed = dir.path().join("calls.bprof");
    let mut pack = subcommand("pack", &["--symfs"]);
    pack.arg(of_version("v1.2", "files")).arg("-o").arg(&packed);
    Run::of(pack.arg(of_version("v1.2", "calls.bprof"))).ok();
    assert_eq!(
        hottest::hottest(&packed).unwrap(),
        "alpha (calls): 61 of 158 samples; 100.0 % of the user frames have names, 0 samples lost"
    );
    let refused = hottest::hottest(Path::new("/dev/null")).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("is a device, not a regular file"),
        "{refused}"
    );
}
