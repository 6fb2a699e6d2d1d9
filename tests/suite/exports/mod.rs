//! Exports for other tools, read independently of what wrote them: function totals and sums are those of our own views.

mod manners;
pub mod read;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use bprof::capture::{CaptureWriter, SampleInput};
use bprof::event::{Pid, Timestamp, sample_flags};
use bprof::format::header::{EventInfo, Sampling};
use bprof::format::process::Task;
use bprof::report::pprof::proto;
use serde_json::Value;

use super::report::fixture::{BASE, Bench, KERNEL, Run, Scene, Taken, header, profiler, usual};
pub use read::{Case, golden};
use read::{
    Totals, add, collapsed, firefox_totals, go_top, goldens, ours, pprof, pprof_totals,
    speedscope_totals,
};

#[test]
fn functions_have_the_totals_of_our_own_views_in_every_export() {
    for case in goldens() {
        let profile = case.profile();
        let expected = ours(&profile);
        assert!(expected.len() > 5, "{expected:?}");
        let decoded = pprof(&case.export("--pprof"));
        assert_eq!(pprof_totals(&decoded, 0), expected);
        let period = decoded.period as u64;
        let sum: i64 = decoded.sample.iter().map(|sample| sample.value[0]).sum();
        assert_eq!(sum as u64, profile.about.samples);
        for sample in &decoded.sample {
            assert_eq!(sample.value[1] as u64, sample.value[0] as u64 * period);
        }
        assert_eq!(
            speedscope_totals(&case.export("--speedscope"), "nanoseconds", period),
            expected
        );
        assert_eq!(
            firefox_totals(&case.export("--firefox")),
            (expected, profile.about.samples)
        );
    }
}

#[test]
fn go_tool_pprof_shows_our_numbers() {
    for case in goldens() {
        let path = case.dir.path().join("out.pb.gz");
        fs::write(&path, case.export("--pprof")).unwrap();
        let mut shown = go_top(&path, case.dir.path());
        shown.remove("[truncated]");
        assert_eq!(shown, ours(&case.profile()));
    }
}

#[test]
fn mappings_have_the_recorded_build_ids() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let path = bench.path("out.pb.gz");
    Run::of(profiler(&["--pprof"]).arg(&path).arg(&capture)).ok();
    let profile = pprof(&fs::read(path).unwrap());
    let text = |number: i64| profile.string_table[number as usize].as_str();
    let mapping = profile
        .mapping
        .iter()
        .find(|m| text(m.filename).ends_with("/app"))
        .unwrap();
    assert_eq!(text(mapping.build_id), bench.elf.build_id().to_string());
    assert!(mapping.has_functions);
    // As it was mapped: from the base of the fixture on, which maps offset 0 there.
    let main = bench.elf.range("main");
    let location = profile.location.iter().find(|location| {
        let name = |line: &proto::Line| text(profile.function[line.function_id as usize - 1].name);
        location.mapping_id == mapping.id && location.line.iter().any(|line| name(line) == "main")
    });
    let location = location.unwrap();
    let offset = location.address - mapping.memory_start + mapping.file_offset;
    assert_eq!(offset, bench.elf.offset("main") + 4, "{main:?}");
    // The thread `worker` is told apart from its process.
    let labels: BTreeSet<_> = profile
        .sample
        .iter()
        .map(|s| (s.label[1].num, text(s.label[2].str)))
        .collect();
    assert!(
        labels.contains(&(101, "worker")) && labels.contains(&(100, "app")),
        "{labels:?}"
    );
}

/// Weights that are not 1, and two events of which one is no clock.
fn weighted(bench: &Bench) -> Vec<u8> {
    let mut header = header();
    let event = |name: &str, sampling| EventInfo {
        name: name.into(),
        sampling,
    };
    header.events = vec![
        event("cpu-clock", Sampling::Frequency(1000)),
        event("page-faults", Sampling::Period(10)),
    ];
    let mut s = Scene {
        writer: CaptureWriter::create(Vec::new(), &header).unwrap(),
    };
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    s.map(app, 0, BASE, &bench.elf.mapped());
    let comm = s.writer.string(b"a b").unwrap();
    let task = s.writer.task(Task {
        process: app,
        tid: Pid(100),
        exec_id: 1,
        comm,
    });
    let task = task.unwrap();
    let at = |f: &str| BASE + bench.elf.offset(f);
    for (i, (event, weight, user)) in [
        (0, 3, vec![at("leaf"), at("main") + 5]),
        (1, 7, vec![at("leaf"), at("main") + 5]),
        (1, 1 << 33, vec![at("main")]),
        (0, 1, vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let sample = SampleInput {
            time: Timestamp(1_000_000_000 + i as u64),
            cpu: 0,
            task,
            user: &user,
            kernel: &[],
            weight,
            flags: 0,
            event,
        };
        s.writer.sample(&sample).unwrap();
    }
    s.finish()
}

#[test]
fn weights_and_several_events_are_kept_apart() {
    let bench = Bench::new();
    let case = Case {
        capture: bench.capture("run.bprof", &weighted(&bench)),
        files: PathBuf::from("/"),
        dir: tempfile::tempdir().unwrap(),
    };
    let profile = pprof(&case.export("--pprof"));
    let text = |number: i64| profile.string_table[number as usize].as_str();
    let types: Vec<_> = profile
        .sample_type
        .iter()
        .map(|t| (text(t.r#type), text(t.unit)))
        .collect();
    let expected = [
        ("cpu-clock-samples", "count"),
        ("cpu-clock-cpu", "nanoseconds"),
        ("page-faults-samples", "count"),
        ("page-faults-events", "count"),
    ];
    assert_eq!(types, expected);
    let sums: Vec<i64> = (0..4)
        .map(|i| profile.sample.iter().map(|s| s.value[i]).sum())
        .collect();
    assert_eq!(sums, [2, 4_000_000, 2, 10 * (7 + (1 << 33))]);
    assert_eq!(pprof_totals(&profile, 3)["leaf"], (70, 70));

    let file: Value = serde_json::from_slice(&case.export("--speedscope")).unwrap();
    let shown: BTreeMap<_, _> = file["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| {
            let text = |key: &str| p[key].as_str().unwrap().to_owned();
            (
                (text("name"), text("unit")),
                p["endValue"].as_u64().unwrap(),
            )
        })
        .collect();
    let key = |name: &str, unit: &str| (name.to_owned(), unit.to_owned());
    let expected = BTreeMap::from([
        (key("app 100/100 (cpu-clock)", "nanoseconds"), 4_000_000),
        (key("app 100/100 (page-faults)", "none"), 7 + (1 << 33)),
    ]);
    assert_eq!(shown, expected);

    let (totals, sum) = firefox_totals(&case.export("--firefox"));
    assert_eq!(sum, 4 + 7 + (1 << 33));
    assert_eq!(totals["main"], (1 << 33, 3 + 7 + (1 << 33)));
}

#[test]
fn perf_script_text_is_folded_to_our_counts() {
    for case in goldens() {
        let profile = case.profile();
        let mut command = profiler(&["--perf-script", "--symfs"]);
        let text = Run::of(command.arg(&case.files).arg(&case.capture)).ok();
        let folded = collapsed(&text, None);
        assert_eq!(folded.values().sum::<u64>(), profile.about.samples);
        let mut found = Totals::new();
        for (stack, count) in &folded {
            add(
                &mut found,
                stack
                    .split(';')
                    .skip(1)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev(),
                *count,
            );
        }
        // inferno takes arguments off names; names without any are as they are.
        let plain = |totals: Totals| -> Totals {
            let keep = |name: &String| !name.contains(['(', '<', '"']) && name != "[unknown]";
            totals.into_iter().filter(|(name, _)| keep(name)).collect()
        };
        let (found, expected) = (plain(found), plain(ours(&profile)));
        assert!(expected.len() > 5);
        assert_eq!(found, expected);
    }
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &weighted(&bench));
    let text = Run::report(&["--perf-script"], &capture).ok();
    let expected = BTreeMap::from([
        ("a_b;[unknown]".to_owned(), 1),
        ("a_b;main;leaf".to_owned(), 3),
    ]);
    assert_eq!(collapsed(&text, Some("cpu-clock")), expected);
    let expected = BTreeMap::from([
        ("a_b;main".to_owned(), 1 << 33),
        ("a_b;main;leaf".to_owned(), 7),
    ]);
    assert_eq!(collapsed(&text, Some("page-faults")), expected);
    // As perf counts them: nanoseconds, and page faults.
    let text = Run::report(&["--perf-script=periods"], &capture).ok();
    let time = BTreeMap::from([
        ("a_b;[unknown]".to_owned(), 1_000_000),
        ("a_b;main;leaf".to_owned(), 3_000_000),
    ]);
    assert_eq!(collapsed(&text, Some("cpu-clock")), time);
    let faults = expected
        .into_iter()
        .map(|(stack, samples)| (stack, 10 * samples));
    assert_eq!(collapsed(&text, Some("page-faults")), faults.collect());
}

#[test]
fn hostile_names_break_no_export() {
    let bench = Bench::new();
    let mut s = usual(&bench.elf);
    let evil = s.process(200, 600);
    let name = "x\n\t\"</script>\\\u{1b};\u{2028}\u{202e}\u{9b}";
    s.image(evil, 0, 0, name);
    s.sample(Taken {
        user: &[0x77],
        kernel: &[KERNEL + 0x10],
        flags: sample_flags::IN_KERNEL | sample_flags::KERNEL_TRUNCATED,
        ..Taken::of(evil, 200, name, 3_000_000_000)
    });
    let case = Case {
        capture: bench.capture("run.bprof", &s.finish()),
        files: PathBuf::from("/"),
        dir: tempfile::tempdir().unwrap(),
    };
    let expected = ours(&case.profile());
    let profile = pprof(&case.export("--pprof"));
    assert_eq!(pprof_totals(&profile, 0), expected);
    assert!(profile.string_table.iter().any(|text| text == name));
    let period = profile.period as u64;
    assert_eq!(
        speedscope_totals(&case.export("--speedscope"), "nanoseconds", period),
        expected
    );
    let speedscope = String::from_utf8(case.export("--speedscope")).unwrap();
    let raw = |c: char| c.is_control() && c != '\n' || "\u{2028}\u{202e}".contains(c);
    assert!(!speedscope.contains(raw), "{speedscope}");
    assert!(speedscope.contains("\\u2028\\u202e\\u009b"), "{speedscope}");
    assert_eq!(firefox_totals(&case.export("--firefox")).0, expected);
    let text = Run::report(&["--perf-script"], &case.capture).ok();
    assert!(
        text.chars()
            .all(|c| !c.is_control() || c == '\n' || c == '\t'),
        "{text}"
    );
    assert_eq!(collapsed(&text, None).values().sum::<u64>(), 7);
}
