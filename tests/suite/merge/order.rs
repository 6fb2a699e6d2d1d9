//! Samples of merged captures come in order of time, and times select across them.

use bprof::event::Timestamp;
use bprof::pipeline::{self, Request, Sink};
use bprof::profile::{About, Names, SampleView};

use super::{BOOT, Reader, SECOND, capture, folded, merged};
use crate::report::fixture::{Bench, Run, profiler};

/// Hosts that were booted an hour apart and recorded at the same time: samples of `one` at 0, 1, 2, ... us from 7200 s after its
/// boot, those of `two` half a microsecond (and a rest that the format keeps) later.
fn at_the_same_time(counts: [u64; 2]) -> Vec<u8> {
    let hour = 3600 * SECOND;
    merged(&[
        capture("one", BOOT, 7200 * SECOND, "first_kernel", counts[0]),
        capture(
            "two",
            BOOT + hour as i64,
            hour + 500,
            "second_kernel",
            counts[1],
        ),
    ])
}

/// Time and process of each sample, as they come, with the kernel function of its own capture.
#[derive(Default)]
struct Order(Vec<(Timestamp, String)>);

impl Sink for Order {
    type Error = std::convert::Infallible;

    fn open(&mut self, _: &About) -> Result<(), Self::Error> {
        Ok(())
    }

    fn sample(
        &mut self,
        _: &About,
        names: &Names,
        sample: &SampleView<'_>,
    ) -> Result<(), Self::Error> {
        let kernel = sample.kernel[0].resolution.chain[0].frame;
        let name = names.text(names.frames()[kernel as usize].name);
        let host = name.trim_end_matches("_kernel");
        let of_host = match sample.process {
            "app" | "app@one" => "first",
            _ => "second",
        };
        assert_eq!(host, of_host);
        self.0.push((sample.time, sample.process.to_owned()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

fn order(bytes: Vec<u8>) -> (Vec<(Timestamp, String)>, Vec<String>) {
    let reader = Reader::from_bytes(bytes).unwrap();
    let (mut order, mut warnings) = (Order::default(), Vec::new());
    let summary = pipeline::stream(
        &reader,
        Request::default(),
        &mut order,
        &mut |text: &str| {
            warnings.push(text.to_owned());
        },
    );
    let Ok(summary) = summary;
    assert_eq!(summary.about.samples, order.0.len() as u64);
    (order.0, warnings)
}

#[test]
fn samples_of_hosts_that_recorded_together_take_turns() {
    let (order, warnings) = order(at_the_same_time([40, 30]));
    assert_eq!(warnings, [""; 0]);
    assert_eq!(order.len(), 70);
    assert!(order.is_sorted_by_key(|(time, _)| *time), "{order:?}");
    let hosts: Vec<&str> = order.iter().map(|(_, process)| &**process).collect();
    assert_eq!(hosts[..60], ["app@one", "app@two"].repeat(30));
    assert_eq!(hosts[60..], ["app@one"; 10]);
}

/// More captures than are read at one time, and rotations that follow each other: none is missing.
#[test]
fn many_captures_are_all_given() {
    let rotations: Vec<Vec<u8>> = (0..50)
        .rev()
        .map(|n| capture("one", BOOT, (10 + n) * SECOND, "first_kernel", 3))
        .collect();
    let (given, warnings) = order(merged(&rotations));
    assert_eq!((given.len(), warnings.len()), (150, 0));
    assert!(given.is_sorted());
    // Of that many at the same time some have to wait, which is said once.
    let hosts: Vec<Vec<u8>> = (0..40)
        .map(|n| capture("one", BOOT, 10 * SECOND + n, "first_kernel", 3))
        .collect();
    let (given, warnings) = order(merged(&hosts));
    assert_eq!((given.len(), warnings.len()), (120, 1));
    assert!(
        warnings[0].contains("more than 32 captures"),
        "{warnings:?}"
    );
}

/// What reads samples one by one for another tool gets them in that order too.
#[test]
fn standard_and_exports_are_in_order_of_time() {
    let bytes = at_the_same_time([4, 4]);
    let standard = Run::piped(&["--standard"], &bytes).ok();
    let who = standard.lines().filter(|line| line.contains("[cpu "));
    let hosts: Vec<bool> = who.map(|line| line.contains("@two")).collect();
    assert_eq!(hosts, [false, true].repeat(4));
    let script = Run::piped(&["--perf-script"], &bytes).ok();
    let kernels = script.lines().filter_map(|line| {
        let first = line.contains("first_kernel");
        (first || line.contains("second_kernel")).then_some(first)
    });
    assert_eq!(kernels.collect::<Vec<_>>(), [true, false].repeat(4));
}

/// Times of the day and from the beginning are those of all captures, whatever clock each has.
#[test]
fn times_select_across_captures() {
    let bytes = at_the_same_time([40, 40]);
    let count = |time: &str| {
        let text = folded(&bytes, &["--time", time, "--by", "host"]);
        let count = |host: &str| {
            let line = text.lines().find(|line| line.starts_with(host));
            line.map_or(0, |line| {
                line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
            })
        };
        (count("one;"), count("two;"))
    };
    assert_eq!(count("0s..1s"), (40, 40));
    // The format keeps times in steps of a microsecond.
    let (one, two) = count("0%..25%");
    assert!(
        (9..=11).contains(&one) && (9..=11).contains(&two),
        "{one} {two}"
    );
    let (one, two) = count("75%..100%");
    assert!(
        (9..=11).contains(&one) && (9..=11).contains(&two),
        "{one} {two}"
    );
    // BOOT is 2023-11-14T22:13:20Z, two hours later both begin.
    assert_eq!(count("2023-11-15T00:13:20..00:13:21"), (40, 40));
    assert_eq!(count("2023-11-15T00:13:21..00:13:22"), (0, 0));
}

/// Shares of a merged file are those of all its captures together.
#[test]
fn merged_captures_are_compared() {
    let bench = Bench::new();
    let before = bench.capture("before.bprof", &at_the_same_time([30, 10]));
    let after = bench.capture("after.bprof", &at_the_same_time([10, 30]));
    let mut command = profiler(&["--diff"]);
    let run = Run::of(command.arg(&before).args(["--json"]).arg(&after));
    assert_eq!(run.code, Some(0), "{}", run.err);
    let json: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let functions = json["functions"].as_array().unwrap();
    let of = |name: &str| functions.iter().find(|f| f["function"] == name).unwrap();
    let counts = |name: &str| {
        let own = &of(name)["self"];
        let share = |side: &str| own[side].as_f64().unwrap();
        let shares = share("before_share") / share("after_share");
        (own["before"].as_u64(), own["after"].as_u64(), shares)
    };
    let (before, after, shares) = counts("first_kernel");
    assert_eq!((before, after), (Some(30), Some(10)), "{}", run.out);
    assert!((shares - 3.0).abs() < 1e-9, "{shares}");
    let (before, after, shares) = counts("second_kernel");
    assert_eq!((before, after), (Some(10), Some(30)));
    assert!((shares - 1.0 / 3.0).abs() < 1e-9, "{shares}");
}
