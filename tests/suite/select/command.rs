//! Selections as people give them: what is printed, said and refused.

use std::fs;
use std::path::Path;

use crate::golden::of_version;
use crate::report::fixture::{Bench, Run, Taken, profiler, usual};
use crate::select::scene;

fn count(folded: &str) -> u64 {
    let lines = folded.lines();
    lines
        .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn every_view_is_of_the_selection_and_says_so() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let top = Run::report(&["--pid", "7", "--top", "5"], &capture).ok();
    for line in [
        "# samples: 6; lost: 0\n",
        "# selected: pid 7: 1 of 6 samples\n",
        "# truncated stacks: in 0 samples\n",
        "# frames named: user none sampled, kernel 50.0 % (1 of 2)\n",
        "shares are of 1 sample\n",
    ] {
        assert!(top.contains(line), "{line}: {top}");
    }
    assert!(!top.contains("leaf"), "{top}");

    let standard = Run::report(
        &["--standard", "--comm", "work*", "--comm", "kw*"],
        &capture,
    )
    .ok();
    assert_eq!(standard.matches("cpu-clock\n").count(), 2, "{standard}");
    assert!(
        standard.contains("# selected: thread name work* or kw*\n"),
        "{standard}"
    );
    let closing = "# selected: thread name work* or kw*: 2 of 6 samples\n";
    assert!(standard.contains(closing), "{standard}");

    let script = Run::report(&["--perf-script", "--cpu", "1"], &capture);
    assert_eq!(script.out.matches("cpu-clock").count(), 2, "{}", script.out);
    assert!(
        script.err.contains("# selected: CPU 1: 2 of 6 samples\n"),
        "{}",
        script.err
    );

    let graph = Run::report(&["--flamegraph", "-", "--time", "1s.."], &capture).ok();
    assert!(graph.contains("3 samples"), "{graph}");
    assert!(!graph.contains("do_syscall_64"), "{graph}");

    let missing = Run::report(&["--missing", "--json", "--kernel-only"], &capture).ok();
    let missing: serde_json::Value = serde_json::from_str(&missing).unwrap();
    assert_eq!(missing["samples"], 2);
}

#[test]
fn questions_combine() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let folded = |options: &[&str]| {
        let options = [&["--folded"], options].concat();
        Run::report(&options, &capture).ok()
    };
    assert_eq!(count(&folded(&[])), 6);
    assert_eq!(
        folded(&["--symbol", "^do_sys", "--module", "app"]),
        "app-100;main;mid;entry_SYSCALL_64_[k];do_syscall_64_[k] 1\n"
    );
    assert_eq!(
        folded(&["--user-only", "--symbol", "^do_sys"]),
        "",
        "what is left out has no names to be selected by"
    );
    assert_eq!(
        folded(&["--user-only", "--tid", "101"]),
        "app-100;main;mid 1\n"
    );
    assert_eq!(
        folded(&["--kernel-only", "--by", "none"]),
        "[kernel+0xffffffff81001ff0]_[k];nft_do_chain_[k] 1\nentry_SYSCALL_64_[k];do_syscall_64_[k] 1\n"
    );
    assert_eq!(count(&folded(&["--exe", "app"])), 5);
    assert_eq!(
        count(&folded(&[
            "--exe",
            bench.elf.path.to_str().unwrap(),
            "--cpu",
            "0"
        ])),
        4
    );
    assert_eq!(
        count(&folded(&["--event", "cpu-clock", "--host", "web*"])),
        6
    );
    assert_eq!(count(&folded(&["--module", "[nf_tables]"])), 1);
    // 2023-11-14T22:13:21 is the first sample.
    assert_eq!(
        count(&folded(&["--time", "2023-11-14T22:13:21..22:13:22"])),
        3
    );
    assert_eq!(
        count(&folded(&["--time", "2023-11-14T23:13:22+01:00.."])),
        3
    );
    assert_eq!(
        count(&folded(&["--time", "0%..1%", "--time", "1s..1.006s"])),
        4
    );
    let by_thread = folded(&["--by", "thread", "--user-only", "--time", "..0.5s"]);
    assert_eq!(
        by_thread,
        "app-100;main;mid;leaf 2\nworker-101;main;mid 1\n"
    );
}

/// A program that is not known is asked for as it is shown.
#[test]
fn what_is_not_known_is_selected_by_what_stands_for_it() {
    let bench = Bench::new();
    let mut s = usual(&bench.elf);
    let unknown = s.process(9, 900);
    s.image(unknown, 0, 0, "a");
    s.sample(Taken {
        user: &[0x1000],
        ..Taken::of(unknown, 9, "a", 2_020_000_000)
    });
    let capture = bench.capture("run.bprof", &s.finish());
    let count = |options: &[&str]| {
        let options = [&["--folded", "--by", "exe"], options].concat();
        Run::report(&options, &capture).ok()
    };
    assert_eq!(count(&["--exe", "?"]), "?;[unknown] 1\n");
    let kernel = count(&["--exe", "[kernel thread]"]);
    assert!(
        kernel.starts_with("[kernel thread];") && kernel.lines().count() == 1,
        "{kernel}"
    );
    let all = Run::report(&["--folded", "--by", "cgroup"], &capture).ok();
    let unknown = Run::report(&["--folded", "--by", "cgroup", "--cgroup", "?"], &capture).ok();
    assert_eq!(unknown, all);
    let help = Run::of(&mut profiler(&["--help"])).ok();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("`?` is one that is not known"), "{help}");
}

#[test]
fn a_selection_of_nothing_says_why_and_what_there_is() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    for (options, why) in [
        (
            &["--pid", "8"][..],
            "no sample is of pid 8; there are (with their samples) 100 (app): 5, 7 (kworker/0:1): 1",
        ),
        (
            &["--comm", "nginx"],
            "no sample is of thread name nginx; there are (with their samples) app: 4, kworker/0:1: 1, worker: 1",
        ),
        (
            &["--cpu", "4-7"],
            "no sample is of CPU 4-7; there are (with their samples) 0: 4, 1: 2",
        ),
        (
            &["--event", "cycles"],
            "no sample is of event cycles; there are (with their samples) cpu-clock: 6",
        ),
        (
            &["--time", "5s.."],
            "no sample is of time 5s..; there are samples from 0s to 1.010s",
        ),
        (
            &["--pid", "7", "--comm", "app"],
            "each of these is in the capture, but no sample is of all of them",
        ),
        (
            &["--symbol", "nothing_like_it"],
            "6 samples are selected otherwise, and no stack of these has such a name",
        ),
        (
            &["--cgroup", "/db"],
            "no sample is of cgroup /db; there are (with their samples) ?: 6",
        ),
        (
            &["--host", "web2"],
            "no sample is of host web2; there are (with their samples) web1: 6",
        ),
    ] {
        for view in ["--folded", "--standard", "--top=3"] {
            let run = Run::report(&[options, &[view]].concat(), &capture);
            assert_eq!(run.code, Some(0), "{options:?} {view}: {}", run.err);
            let told = format!("profiler: nothing is selected: {why}\n");
            assert!(run.err.contains(&told), "{options:?} {view}: {}", run.err);
            match view {
                "--folded" => assert_eq!(run.out, ""),
                _ => {
                    let lost = match options[0] {
                        "--time" => "; lost in the frames of that time: 0",
                        _ => "",
                    };
                    let verdict = format!(": 0 of 6 samples{lost}\n#   {why}\n");
                    assert!(
                        run.out.contains(&verdict),
                        "{options:?} {view}: {}",
                        run.out
                    );
                }
            }
        }
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_read() {
    for (options, what) in [
        (&["--time", "25s..10s"][..], "ends before it begins"),
        (&["--time", "10s"], "give FROM..UNTIL"),
        (&["--time", "08:00:00.."], "time of which day?"),
        (&["--cpu", "3-1"], "must not be larger"),
        (&["--pid", "x"], "invalid digit"),
        (&["--symbol", "("], "unclosed group"),
        (&["--module", "a)("], "unopened group"),
        (&["--comm", ""], "a name is needed"),
        (&["--kernel-only", "--user-only"], "cannot be used with"),
        (&["--standard", "--by", "thread"], "cannot be used with"),
        (&["--pprof", "x", "--max-depth", "3"], "cannot be used with"),
        (&["--missing", "--no-inline"], "cannot be used with"),
        (&["--by", "colour"], "possible values: process, thread"),
        (&["--max-depth", "0"], "not in 1.."),
        (&["--min-percent", "200"], "0 to 100"),
    ] {
        let run = Run::report(options, "no-such-capture".as_ref());
        assert_eq!(run.code, Some(2), "{options:?}: {}", run.err);
        assert!(run.err.contains(what), "{options:?}: {}", run.err);
    }
}

/// A line for a part of a capture in which samples were lost and stacks cut, byte for byte.
#[test]
fn losses_of_a_time_are_those_of_its_frames() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &scene::bytes(5));
    let symfs = bench.dir.path().to_str().unwrap();
    let run = |options: &[&str]| {
        let options = [&["--folded", "--symfs", symfs], options].concat();
        Run::report(&options, &capture).err
    };
    let (whole, part) = (run(&[]), run(&["--time", "..50%"]));
    let line = |text: &str, begin: &str| {
        let line = text.lines().find(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("{begin}: {text}")).to_owned()
    };
    let number = |text: &str, begin: &str| {
        let at = text.rfind(begin).unwrap() + begin.len();
        let digits: String = text[at..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<u64>().unwrap()
    };
    // What is known of the whole capture stays.
    let samples = line(&whole, "# samples: ");
    for of in ["# samples: ", "; lost: "] {
        let samples = [&whole, &part].map(|text| number(&line(text, "# samples: "), of));
        assert_eq!(samples[0], samples[1], "{of}");
    }
    let of_time = line(&part, "# selected: time ..50%: ");
    let lost = number(&of_time, "; lost in the frames of that time: ");
    assert!(lost > 0 && lost < number(&samples, "; lost: "), "{of_time}");
    let by_cause = line(&part, "# lost by cause in the frames of that time: ");
    assert_eq!(number(&by_cause, "ring full "), lost);
    let by_cause = line(&whole, "# lost by cause: ");
    assert_eq!(
        number(&by_cause, "ring full "),
        number(&samples, "; lost: ")
    );
    let pid = run(&["--pid", "100"]);
    let selected = line(&pid, "# selected: pid 100: ");
    assert!(
        selected.ends_with("; losses are those of the whole capture"),
        "{selected}"
    );
    assert_eq!(line(&pid, "# lost by cause: "), by_cause);
    // The whole has more cut stacks than the part.
    let cut = |text: &str| number(&line(text, "# truncated stacks: "), "in ");
    assert!(cut(&part) > 0 && cut(&part) < cut(&whole));
}

#[test]
fn the_capture_that_record_writes_is_read_where_none_is_named() {
    let bench = Bench::new();
    let mut command = profiler(&["--folded"]);
    let run = Run::of(command.current_dir(bench.dir.path()));
    assert_eq!(run.code, Some(1));
    assert!(
        run.err.contains("no capture was named, and run.bprof"),
        "{}",
        run.err
    );
    bench.capture("run.bprof", &usual(&bench.elf).finish());
    let mut command = profiler(&["--folded"]);
    let run = Run::of(command.current_dir(bench.dir.path()));
    assert!(
        run.err.contains("profiler: reading run.bprof\n"),
        "{}",
        run.err
    );
    assert_eq!(count(&run.ok()), 6);
    // Compared with itself, because the other one was forgotten.
    let mut command = profiler(&["--diff", "run.bprof"]);
    let run = Run::of(command.current_dir(bench.dir.path()));
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains("AFTER is missing"), "{}", run.err);
    let mut command = profiler(&["--diff", "run.bprof", "run.bprof"]);
    Run::of(command.current_dir(bench.dir.path())).ok();
}

/// Names in a capture are hostile, also where they are told instead of what was asked for.
#[test]
fn what_there_is_is_told_safely() {
    let bench = Bench::new();
    let mut s = usual(&bench.elf);
    let evil = s.process(666, 600);
    s.image(evil, 0, 0, "e\u{1b}[31m\n");
    s.sample(crate::report::fixture::Taken::of(
        evil,
        666,
        "e\u{1b}[31m\n",
        2_020_000_000,
    ));
    let capture = bench.capture("run.bprof", &s.finish());
    let run = Run::report(&["--comm", "x\u{1b}"], &capture);
    assert!(run.err.contains("e\\u{1b}[31m\\n: 1"), "{}", run.err);
    for text in [&run.err, &run.out] {
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    fs::remove_file(capture).unwrap();
}

/// A name that cannot be wrong, because there is nothing it could be of, is no failure: the report says why there is nothing.
#[test]
fn callers_of_nothing_are_an_empty_report() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    for view in ["--callers", "--callees"] {
        let run = Run::report(&["--comm", "nobody", view, "leaf"], &capture);
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert!(run.out.contains("\n      0    0.00%"), "{}", run.out);
        let why = "profiler: nothing is selected: no sample is of thread name nobody; there are ";
        assert!(run.err.starts_with(why), "{}", run.err);
        let run = Run::report(&["--comm", "nobody", view, "leaf", "--json"], &capture);
        let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
        assert_eq!(
            (&value["samples"], &value["nodes"][0]["function"]),
            (&0.into(), &"leaf".into())
        );
    }
    let run = Run::report(&["--callers", "nobody"], &capture);
    assert_eq!(run.code, Some(1));
}

/// A merged capture has one event at several rates. What the refusal to compare them advises works, also against another rate.
#[test]
fn rates_of_one_event_are_told_apart() {
    let merged = of_version("v1.4", "hosts.bprof");
    let plain = of_version("v1.2", "calls.bprof");
    let compared = |options: &[&str], before: &Path, after: &Path| {
        Run::of(profiler(options).arg("--diff").arg(before).arg(after))
    };
    let refused = compared(&[], &merged, &merged);
    assert_eq!(refused.code, Some(1));
    let (_, advised) = refused.err.trim().rsplit_once("--event ").unwrap();
    assert_eq!(advised, "cpu-clock@99Hz", "{}", refused.err);
    let same = compared(&["--event", advised], &merged, &merged).ok();
    assert!(
        same.contains("selected: event cpu-clock@99Hz: 30 of 298 samples"),
        "{same}"
    );
    let other = compared(
        &["--event", "cpu-clock@49Hz,cpu-clock@99Hz"],
        &plain,
        &merged,
    );
    assert_eq!(other.code, Some(1), "merged has both: {}", other.out);
    let other = compared(&["--event", "cpu-clock@99Hz"], &plain, &merged).ok();
    assert!(
        other.contains("before 1.60 s of CPU time, 158 samples; after "),
        "{other}"
    );
    let none = Run::report(&["--event", "cpu-clock@7Hz"], &plain);
    assert!(
        none.err
            .contains("there are (with their samples) cpu-clock@99Hz: 158"),
        "{}",
        none.err
    );
}
