//! Two machines of one name that recorded at the same time: each can be asked for by what it is called, in every view.

use std::io::Read;

use bprof::pipeline::hosts;

use super::{BOOT, Reader, SECOND, capture, merged};
use crate::report::fixture::{Bench, Run, profiler};

/// Three samples of one, five of the other.
fn twins() -> (Vec<u8>, [String; 2]) {
    let bytes = merged(&[
        capture("vm", BOOT, 10 * SECOND, "first_kernel", 3),
        capture("vm", BOOT + 1000, 10 * SECOND, "second_kernel", 5),
    ]);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let names = hosts(&reader);
    let [one, two] = &names[..] else {
        panic!("{names:?}");
    };
    assert!(one.starts_with("vm#") && two.starts_with("vm#") && one != two);
    let names = [one.clone(), two.clone()];
    (bytes, names)
}

#[test]
fn a_twin_is_selected_in_every_view() {
    let (bytes, hosts) = twins();
    let bench = Bench::new();
    let path = bench.capture("twins.bprof", &bytes);
    let run = |view: &[&str], host: &str| {
        let mut command = profiler(view);
        let run = Run::of(command.args(["--host", host]).arg(&path));
        assert_eq!(run.code, Some(0), "{view:?}: {}", run.err);
        run
    };
    let file = |view: &str, host: &str| {
        let out = bench.path("out");
        let _ = std::fs::remove_file(&out);
        let mut command = profiler(&[view]);
        let run = Run::of(command.arg(&out).args(["--host", host]).arg(&path));
        assert_eq!(run.code, Some(0), "{view}: {}", run.err);
        std::fs::read(&out).unwrap()
    };
    for (host, kernel, other, count) in [
        (&hosts[0], "first_kernel", "second_kernel", 3usize),
        (&hosts[1], "second_kernel", "first_kernel", 5),
    ] {
        let says_only = |text: &str| {
            assert!(text.contains(kernel), "{host}: {text}");
            assert!(!text.contains(other), "{host}: {text}");
        };
        let folded = run(&["--folded"], host);
        assert_eq!(
            folded.out,
            format!("app-100@{host};[app+0x10];{kernel}_[k] {count}\n")
        );
        let selected = format!("selected: host {host}: {count} of 8 samples");
        assert!(folded.err.contains(&selected), "{}", folded.err);
        let by_host = run(&["--folded", "--by", "host"], host).out;
        assert_eq!(by_host, format!("{host};[app+0x10];{kernel}_[k] {count}\n"));
        for view in [
            &["--top", "5"][..],
            &["--tree"],
            &["--callers", "_kernel"],
            &["--callees", "_kernel"],
            &["--csv"],
        ] {
            says_only(&run(view, host).out);
        }
        let json: serde_json::Value = serde_json::from_str(&run(&["--json"], host).out).unwrap();
        let functions = json["functions"].as_array().unwrap();
        let function = functions.iter().find(|f| f["function"] == kernel).unwrap();
        assert_eq!(function["self"], count, "{function}");
        let standard = run(&["--standard"], host).out;
        says_only(&standard);
        assert_eq!(standard.matches("[cpu ").count(), count);
        let script = run(&["--perf-script"], host).out;
        says_only(&script);
        assert_eq!(script.matches(kernel).count(), count);
        let missing = run(&["--missing", "--json"], host).out;
        let missing: serde_json::Value = serde_json::from_str(&missing).unwrap();
        assert_eq!(missing["missing"][0]["samples"], count, "{missing}");
        for view in ["--flamegraph", "--speedscope"] {
            says_only(&String::from_utf8(file(view, host)).unwrap());
        }
        for view in ["--pprof", "--firefox"] {
            let mut text = Vec::new();
            let bytes = file(view, host);
            flate2::read::GzDecoder::new(&bytes[..])
                .read_to_end(&mut text)
                .unwrap();
            says_only(&String::from_utf8_lossy(&text));
        }
        assert!(!file("--html", host).is_empty());
        // Against itself nothing has changed; the other one is not in it.
        let diff = run(&["--diff", &path.display().to_string(), "--csv"], host).out;
        says_only(&diff);
    }
    // Both of them by the name they have in common; nobody by one that neither has.
    let both = run(&["--folded", "--by", "none"], "vm").out;
    assert_eq!(
        both,
        "[app+0x10];first_kernel_[k] 3\n[app+0x10];second_kernel_[k] 5\n"
    );
    let both = run(&["--folded", "--by", "none"], "vm#*").out;
    assert_eq!(both.lines().count(), 2);
    let nobody = run(&["--folded"], "vm#2");
    assert_eq!(nobody.out, "");
    assert!(
        nobody.err.contains(&hosts[0]) && nobody.err.contains(&hosts[1]),
        "{}",
        nobody.err
    );
}
