//! Runs told in a few lines.

use serde_json::{Value, json};

use crate::contender::Contender;
use crate::run::Run;
use crate::support::statistics::Summary;

/// Summaries of each contender, and of ours against the others.
pub fn compare(runs: &[Run], contenders: &[Contender]) -> Value {
    let mut of_each = serde_json::Map::new();
    for contender in contenders {
        let own = || runs.iter().filter(|run| run.contender == contender.name());
        let of = |what: fn(&Run) -> f64| Summary::of(own().map(what));
        let mut summary = json!({
            "slow_down": of(|run| run.slow_down),
            "above_floor": Summary::of(above_floor(runs, *contender)),
        });
        if *contender != Contender::Floor {
            summary["recorder_cpu"] = json!(of(|run| run.recorder.cpu));
            summary["recorder_wall"] = json!(of(|run| run.recorder.wall));
            summary["peak_rss"] = json!(of(|run| run.recorder.rss as f64));
            summary["start_up"] = json!(Summary::of(own().filter_map(|run| run.start_up)));
            summary["kernel_memory"] = json!(of(|run| run.kernel.sum() as f64));
            summary["bytes"] = json!(of(|run| run.recorded.bytes as f64));
            summary["samples"] = json!(of(|run| run.recorded.samples as f64));
            summary["samples_of_expected"] =
                json!(of(|run| run.recorded.samples as f64 / run.expected));
            summary["bytes_a_sample"] = json!(of(
                |run| run.recorded.bytes as f64 / run.recorded.samples as f64
            ));
            summary["to_root"] = json!(Summary::of(own().filter_map(|run| run.recorded.to_root)));
            summary["lost"] = json!(own().map(|run| run.recorded.lost).sum::<u64>());
        }
        of_each.insert(contender.name().into(), summary);
    }
    let mut ratios = serde_json::Map::new();
    for other in contenders.iter().filter(|c| c.is_perf()) {
        let ratio = |what: &str| {
            let median = |name: &str| of_each.get(name)?[what]["median"].as_f64();
            let (ours, theirs) = (median("profiler")?, median(other.name())?);
            Some(ours / theirs)
        };
        ratios.insert(
            other.name().into(),
            json!({
                "slow_down": ratio("slow_down"),
                "above_floor": ratio("above_floor"),
                "recorder_cpu": ratio("recorder_cpu"),
                "peak_rss": ratio("peak_rss"),
                "kernel_memory": ratio("kernel_memory"),
                "bytes": ratio("bytes"),
                "bytes_a_sample": ratio("bytes_a_sample"),
            }),
        );
    }
    json!({ "contenders": of_each, "profiler_to": ratios })
}

/// In each round, what a contender costs beyond the floor of that round.
fn above_floor(runs: &[Run], contender: Contender) -> Vec<f64> {
    let floor = |round| {
        let mut floors = runs
            .iter()
            .filter(|run| run.contender == Contender::Floor.name());
        floors.find(|run| run.round == round)
    };
    runs.iter()
        .filter(|run| run.contender == contender.name())
        .filter_map(|run| Some(run.slow_down - floor(run.round)?.slow_down))
        .collect()
}

/// Prints what [`compare`] has found.
pub fn print(compared: &Value, contenders: &[Contender]) {
    println!(
        "{:<22} {:>18} {:>9} {:>7} {:>12} {:>9} {:>12} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6}",
        "",
        "slow-down (mean, sd)",
        "p95",
        "median",
        "above floor",
        "start-up",
        "recorder CPU",
        "peak RSS",
        "in kernel",
        "B/sample",
        "of exp.",
        "to root",
        "lost"
    );
    for contender in contenders {
        let one = &compared["contenders"][contender.name()];
        let percent = |what: &str, which: &str| one[what][which].as_f64().map(|v| v * 100.0);
        let show = |value: Option<f64>, unit: &str, digits: usize| match value {
            Some(value) => format!("{value:.digits$}{unit}"),
            None => "-".into(),
        };
        let median = |what: &str| one[what]["median"].as_f64();
        let mean = show(percent("slow_down", "mean"), " %", 2);
        let sd = show(percent("slow_down", "deviation"), " %", 2);
        println!(
            "{:<22} {:>18} {:>9} {:>7} {:>12} {:>9} {:>12} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6}",
            contender.says(),
            format!("{mean}, {sd}"),
            show(percent("slow_down", "p95"), " %", 2),
            show(percent("slow_down", "median"), " %", 2),
            show(percent("above_floor", "median"), " %", 2),
            show(median("start_up").map(|s| s * 1e3), " ms", 0),
            show(median("recorder_cpu"), " s", 3),
            show(median("peak_rss").map(|b| b / 1e6), " MB", 1),
            show(median("kernel_memory").map(|b| b / 1e6), " MB", 2),
            show(median("bytes_a_sample"), "", 1),
            show(percent("samples_of_expected", "median"), " %", 1),
            show(percent("to_root", "median"), " %", 2),
            one["lost"]
                .as_u64()
                .map_or("-".into(), |lost| lost.to_string()),
        );
    }
    let Some(ratios) = compared["profiler_to"].as_object() else {
        return;
    };
    for (other, ratio) in ratios {
        let of = |what: &str| match ratio[what].as_f64() {
            Some(ratio) => format!("{ratio:.3}"),
            None => "-".into(),
        };
        println!(
            "profiler / {other}: slow-down {}, above floor {}, recorder CPU {}, peak RSS {}, in kernel {}, bytes {}, bytes a sample {}",
            of("slow_down"),
            of("above_floor"),
            of("recorder_cpu"),
            of("peak_rss"),
            of("kernel_memory"),
            of("bytes"),
            of("bytes_a_sample"),
        );
    }
}
