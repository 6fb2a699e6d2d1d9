//! Flame graphs and pages as files; what they do in a browser is in `browser`.

use std::fs;

use super::fixture::{Bench, Run, profiler, usual};

#[test]
fn pictures_are_the_same_each_time_and_the_verdict_is_told() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let folded = Run::report(&["--folded"], &capture);
    for options in [
        &["--flamegraph", "-"][..],
        &["--flamegraph", "-", "--inverted"],
        &["--flamegraph", "-", "--flamechart"],
        &["--html", "-"],
    ] {
        let run = Run::report(options, &capture);
        assert_eq!(run.err, folded.err, "{options:?}");
        let first = run.ok();
        assert_eq!(Run::report(options, &capture).ok(), first, "{options:?}");
    }
}

/// Kernel and user functions, the cut stack and the processes, each with its samples.
#[test]
fn every_form_has_all_samples() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let titles = |options: &[&str]| {
        let svg = Run::report(options, &capture).ok();
        let titles = svg.split("<title>").skip(1);
        let mut titles: Vec<String> = titles
            .map(|t| t.split_once("</title>").unwrap().0.to_owned())
            .collect();
        titles.sort();
        titles
    };
    let plain = titles(&["--flamegraph", "-"]);
    for title in [
        "all (6 samples, 100%)",
        "app-100 (5 samples, 83.33%)",
        "[truncated] (1 sample, 16.67%)",
        "do_syscall_64 (1 sample, 16.67%)",
    ] {
        assert!(plain.contains(&title.to_owned()), "{title} in {plain:?}");
    }
    let inverted = titles(&["--flamegraph", "-", "--inverted"]);
    for title in [
        "all (6 samples, 100%)",
        "leaf (3 samples, 50.00%)",
        "mid (3 samples, 50.00%)",
        "main (2 samples, 33.33%)",
        "[truncated] (1 sample, 16.67%)",
        "app-100 (2 samples, 33.33%)",
    ] {
        assert!(
            inverted.contains(&title.to_owned()),
            "{title} in {inverted:?}"
        );
    }
    let chart = titles(&["--flamegraph", "-", "--flamechart"]);
    for title in [
        "all (6 samples, 100%)",
        "app 100/100 (4 samples, 66.67%)",
        "worker 100/101 (app) (1 sample, 16.67%)",
        "kworker/0:1 7/7 (1 sample, 16.67%)",
        "leaf (2 samples, 33.33%)",
    ] {
        assert!(chart.contains(&title.to_owned()), "{title} in {chart:?}");
    }
}

#[test]
fn only_pages_are_replaced_by_pages() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let page = bench.path("run.html");
    let write = || Run::of(profiler(&["--html"]).arg(&page).arg(&capture));
    write().ok();
    let first = fs::read(&page).unwrap();
    write().ok();
    assert_eq!(fs::read(&page).unwrap(), first);
    fs::write(&page, "my notes").unwrap();
    let refused = write();
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("no HTML page"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&page).unwrap(), "my notes");
}

#[test]
fn forms_are_forms_of_a_flame_graph() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    for options in [
        &["--inverted"][..],
        &["--flamechart", "--folded"],
        &["--html", "-", "--inverted"],
        &["--flamegraph", "-", "--inverted", "--flamechart"],
        &["--flamegraph", "-", "--html", "-"],
        &["--html", "-", "-o", "x"],
    ] {
        assert_eq!(Run::report(options, &capture).code, Some(2), "{options:?}");
    }
}
