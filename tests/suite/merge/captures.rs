//! Captures of one file told apart: `--by capture`, `--capture`.

use super::*;

/// Two rotations of one host, which nothing but time tells apart, and another host's capture.
fn three() -> Vec<u8> {
    let [first, other] = two();
    let second = capture("one", BOOT, 7300 * SECOND, "first_kernel", 4);
    merged(&[first, second, other])
}

fn top(bytes: &[u8], options: &[&str]) -> Run {
    Run::piped(&[&["--top", "3"], options].concat(), bytes)
}

#[test]
fn captures_are_told_apart_by_number_and_time() {
    let bytes = three();
    // As `info` numbers them.
    assert_eq!(
        folded(&bytes, &["--by", "capture"]),
        "\
capture 1 2023-11-15T00:13:20Z@one;[app+0x10];first_kernel_[k] 3
capture 2 2023-11-15T00:15:00Z@one;[app+0x10];first_kernel_[k] 4
capture 3 2023-11-15T00:15:00Z@two;[app+0x10];second_kernel_[k] 5
"
    );
    let rotated = merged(&[
        capture("one", BOOT, 7200 * SECOND, "kernel", 3),
        capture("one", BOOT, 7300 * SECOND, "kernel", 4),
    ]);
    let by = ["--by", "capture"];
    let expected = "\
capture 1 2023-11-15T00:13:20Z;[app+0x10];kernel_[k] 3
capture 2 2023-11-15T00:15:00Z;[app+0x10];kernel_[k] 4
";
    assert_eq!(folded(&rotated, &by), expected);
    // One capture alone has a name too.
    let csv = Run::piped(&["--csv", "--by", "capture"], &rotated).ok();
    assert!(
        csv.contains("\ncapture 2 2023-11-15T00:15:00Z,4,4,"),
        "{csv}"
    );
    let [one, _] = two();
    let alone = folded(&one, &by);
    assert!(
        alone.starts_with("capture 1 2023-11-15T00:13:20Z;"),
        "{alone}"
    );
}

#[test]
fn captures_are_selected_by_number() {
    let bytes = three();
    assert_eq!(
        folded(&bytes, &["--capture", "2"]),
        "app-100@one;[app+0x10];first_kernel_[k] 4\n"
    );
    assert_eq!(
        folded(&bytes, &["--capture", "2-3", "--by", "host"]),
        "one;[app+0x10];first_kernel_[k] 4\ntwo;[app+0x10];second_kernel_[k] 5\n"
    );
    // Samples in order of time, too.
    let script = Run::piped(&["--perf-script", "--capture", "1,3"], &bytes).ok();
    assert_eq!(script.matches("_kernel").count(), 8, "{script}");
    let told = top(&bytes, &["--capture", "2"]).ok();
    assert!(
        told.contains("# selected: capture 2: 4 of 12 samples\n"),
        "{told}"
    );
    let [one, _] = two();
    assert_eq!(folded(&one, &["--capture", "1"]), folded(&one, &[]));
}

#[test]
fn captures_that_are_not_there_are_told_with_those_that_are() {
    let bytes = three();
    let run = top(&bytes, &["--capture", "7"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let there = "no sample is of capture 7; there are (with their samples) \
                 capture 3 2023-11-15T00:15:00Z: 5, capture 2 2023-11-15T00:15:00Z: 4, capture 1 2023-11-15T00:13:20Z: 3";
    assert!(run.err.contains(there), "{}", run.err);
    let run = top(&bytes, &["--capture", "3", "--host", "one"]);
    let both = "no capture is of that number and that host";
    assert!(run.err.contains(both), "{}", run.err);
    // What is wrong with one that is asked for is not hidden by those that are not.
    let run = top(&bytes, &["--capture", "3", "--comm", "nobody"]);
    assert!(
        run.err.contains("no sample is of thread name nobody"),
        "{}",
        run.err
    );
    assert!(!run.err.contains("no sample is of capture"), "{}", run.err);
    let [one, _] = two();
    let run = top(&one, &["--capture", "2"]);
    let there = "there are (with their samples) capture 1 2023-11-15T00:13:20Z: 3";
    assert!(run.err.contains(there), "{}", run.err);
    for wrong in ["0", "x", "3-2", ""] {
        assert_eq!(top(&one, &["--capture", wrong]).code, Some(2), "{wrong}");
    }
}
