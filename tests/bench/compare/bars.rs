//! What is wanted of the profiler beside perf, and what this run has reached of it, with its spread.

use serde::Serialize;
use serde_json::{Value, json};

use crate::contender::Contender;
use crate::folding::Way;
use crate::run::Run;
use crate::sizes::{Idle, Size};
use crate::support::statistics::Summary;
use crate::workload::Mix;

/// A figure, over the rounds.
#[derive(Debug, Clone, Copy, Serialize)]
struct Reached {
    median: f64,
    min: f64,
    max: f64,
}

impl From<Summary> for Reached {
    fn from(summary: Summary) -> Reached {
        Reached {
            median: summary.median,
            min: summary.min,
            max: summary.max,
        }
    }
}

impl Reached {
    fn once(value: f64) -> Reached {
        Summary::of([value]).map_or(
            Reached {
                median: value,
                min: value,
                max: value,
            },
            Reached::from,
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Need {
    AtMost,
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Met,
    Missed,
    /// By the median, but not in each round.
    MetByMedian,
    MissedByMedian,
}

impl Verdict {
    fn says(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::MetByMedian => "met by the median, not in each round",
            Verdict::MissedByMedian => "MISSED by the median, not in each round",
        }
    }
}

#[derive(Debug, Clone, Serialize)]
struct Bar {
    run: String,
    what: String,
    reached: Reached,
    need: Need,
    needed: f64,
    unit: &'static str,
}

impl Bar {
    fn verdict(&self) -> Verdict {
        let passes = |value: f64| match self.need {
            Need::AtMost => value <= self.needed,
            Need::AtLeast => value >= self.needed,
        };
        let Reached { median, min, max } = self.reached;
        match (passes(median), passes(min) && passes(max)) {
            (true, true) => Verdict::Met,
            (true, false) => Verdict::MetByMedian,
            (false, _) if passes(min) || passes(max) => Verdict::MissedByMedian,
            (false, _) => Verdict::Missed,
        }
    }
}

/// All bars of a run of the benchmark.
#[derive(Default)]
pub struct Bars(Vec<Bar>);

impl Bars {
    fn add(
        &mut self,
        (run, what): (&str, String),
        reached: Option<Reached>,
        (need, needed, unit): (Need, f64, &'static str),
    ) {
        let Some(reached) = reached else { return };
        self.0.push(Bar {
            run: run.into(),
            what,
            reached,
            need,
            needed,
            unit,
        });
    }

    /// Of all rounds of one workload. There are none for code without frame pointers: perf does not get its stacks along those.
    pub fn recording(&mut self, name: &str, mix: Mix, runs: &[Run]) {
        let most_rss = match mix {
            Mix::Deep => 24.0,
            Mix::Mixed => 48.0,
            _ => return,
        };
        let (most, least) = (Need::AtMost, Need::AtLeast);
        let ours = || {
            let profiler = Contender::Profiler.name();
            runs.iter().filter(move |run| run.contender == profiler)
        };
        let of = |what: &dyn Fn(&Run) -> Option<f64>| {
            Summary::of(ours().filter_map(what)).map(Reached::from)
        };
        // Beside perf in the same round; the floor is the same for both.
        let beside = |what: &dyn Fn(&Run, &Run) -> f64| {
            let perf = Contender::Perf.name();
            let of_round = |ours: &Run| {
                let same = |run: &&Run| run.contender == perf && run.round == ours.round;
                Some(what(ours, runs.iter().find(same)?))
            };
            of(&of_round)
        };
        let slower = beside(&|ours, perf| (ours.slow_down - perf.slow_down) * 100.0);
        let what = "slow-down, less that of perf record -g".to_owned();
        self.add((name, what), slower, (most, 0.0, " points"));
        let cpu = beside(&|ours, perf| ours.recorder.cpu / perf.recorder.cpu);
        let what = "recorder CPU, of that of perf record -g".to_owned();
        self.add((name, what), cpu, (most, 0.5, ""));
        let first = of(&|run| run.start_up.map(|seconds| seconds * 1e3));
        let what = "start to first sample".to_owned();
        self.add((name, what), first, (most, 150.0, " ms"));
        let rss = of(&|run| Some(run.recorder.rss as f64 / 1e6));
        let what = "peak RSS of the recorder".to_owned();
        self.add((name, what), rss, (most, most_rss, " MB"));
        let samples = of(&|run| Some(run.recorded.samples as f64 / run.expected * 100.0));
        let what = "samples, of those expected".to_owned();
        self.add((name, what), samples, (least, 99.0, " %"));
    }

    /// Of captures of one workload by several recorders.
    pub fn sizes(&mut self, size: &Size) {
        for (other, deep, mixed) in [(Contender::Perf, 35.0, 12.0), (Contender::PerfZ, 7.0, 3.0)] {
            let needed = match size.mix {
                Mix::Deep => deep,
                Mix::Mixed => mixed,
                _ => continue,
            };
            let what = format!("capture: times smaller than that of {}", other.says());
            let times = size.times_smaller(other).map(Reached::once);
            self.add((&size.name, what), times, (Need::AtLeast, needed, ""));
        }
    }

    /// Of a recording of a machine that does nothing.
    pub fn idle(&mut self, idle: &Idle) {
        let what = "growth of the capture".to_owned();
        let grows = Some(Reached::once(idle.bytes_a_second));
        self.add((&idle.name, what), grows, (Need::AtMost, 1000.0, " B/s"));
    }

    /// Of reports, as `folding` tells them.
    pub fn reporting(&mut self, folded: &Value) {
        let number =
            |way: Way, what: &str, which: &str| folded["reports"][way.name()][what][which].as_f64();
        let samples = folded["recordings"][Contender::Profiler.name()]["recorded"]["samples"]
            .as_u64()
            .unwrap_or_default();
        let run = format!("{samples} samples");
        for (other, needed) in [(Way::ScriptAndCollapse, 50.0), (Way::PerfReport, 10.0)] {
            for (what, says) in [("wall", "wall time"), ("cpu", "CPU time")] {
                let times = |theirs: &str, ours: &str| {
                    Some(number(other, what, theirs)? / number(Way::Profiler, what, ours)?)
                };
                let reached = || {
                    Some(Reached {
                        median: times("median", "median")?,
                        min: times("min", "max")?,
                        max: times("max", "min")?,
                    })
                };
                let what = format!("--folded: times less {says} than {}", other.name());
                self.add((&run, what), reached(), (Need::AtLeast, needed, ""));
            }
        }
        let rss = || {
            let rss = |which| Some(number(Way::Profiler, "rss", which)? / 1e6);
            Some(Reached {
                median: rss("median")?,
                min: rss("min")?,
                max: rss("max")?,
            })
        };
        let what = "--folded: peak RSS".to_owned();
        self.add((&run, what), rss(), (Need::AtMost, 100.0, " MB"));
    }

    /// As a table.
    pub fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        let number = |value: f64| {
            let digits = if value.abs() < 10.0 { 2 } else { 1 };
            format!("{value:.digits$}")
        };
        println!("\nbars: medians, and the least and the most of all rounds");
        println!("{:<16} {:<64} {:>28}  {:>18}", "", "", "reached", "needed");
        for bar in &self.0 {
            let Reached { median, min, max } = bar.reached;
            let (reached, once) = if min < max {
                let range = format!("{} ({} to {})", number(median), number(min), number(max));
                (range, "")
            } else {
                (number(median), ", measured once")
            };
            let need = match bar.need {
                Need::AtMost => "at most",
                Need::AtLeast => "at least",
            };
            println!(
                "{:<16} {:<64} {reached:>28}  {:>18}  {}{once}",
                bar.run,
                bar.what,
                format!("{need} {}{}", bar.needed, bar.unit),
                bar.verdict().says(),
            );
        }
    }

    /// For the file of results.
    pub fn json(&self) -> Value {
        let one = |bar: &Bar| json!({ "bar": bar, "verdict": bar.verdict() });
        self.0.iter().map(one).collect()
    }
}
