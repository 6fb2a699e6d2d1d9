//! How large captures are: of the same workload for the same time, and of a machine that does nothing.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::Plan;
use crate::contender::{Contender, Recorded, Tools};
use crate::support::measured::{self, Running};
use crate::support::say;
use crate::workload::{Mix, Workload};

/// Captures of one workload, one by each recorder.
#[derive(Serialize)]
pub struct Size {
    pub name: String,
    #[serde(skip)]
    pub mix: Mix,
    pub seconds: f64,
    captures: Vec<Capture>,
}

#[derive(Serialize)]
struct Capture {
    contender: &'static str,
    recorded: Recorded,
}

impl Size {
    /// Records with one after the other.
    pub fn measure(
        tools: &Tools,
        plan: &Plan,
        seconds: f64,
        contenders: &[Contender],
    ) -> Result<Size> {
        let name = format!("{}:{}:{seconds}", plan.mix.name(), plan.hz);
        let workload = Workload::start(plan.mix, &tools.work)?;
        let mut captures = Vec::new();
        println!("\n{name}: captures of {seconds} s at {} Hz", plan.hz);
        for contender in contenders {
            say(&format!("  {name}: {}", contender.name()));
            let command = contender.command(tools, plan.mix, workload.pid(), plan.hz, seconds)?;
            let Some(mut command) = command else { continue };
            measured::run(&mut command)?;
            let recorded = contender.counted(tools)?;
            fs::remove_file(contender.capture(tools))?;
            println!(
                "{:<22} {:>11} bytes {:>8} samples {:>7.1} B/sample, {} lost",
                contender.says(),
                recorded.bytes,
                recorded.samples,
                recorded.bytes as f64 / recorded.samples as f64,
                recorded.lost,
            );
            captures.push(Capture {
                contender: contender.name(),
                recorded,
            });
        }
        Ok(Size {
            name,
            mix: plan.mix,
            seconds,
            captures,
        })
    }

    fn bytes(&self, contender: Contender) -> Option<f64> {
        let of = |capture: &&Capture| capture.contender == contender.name();
        Some(self.captures.iter().find(of)?.recorded.bytes as f64)
    }

    /// How many times smaller ours is.
    pub fn times_smaller(&self, other: Contender) -> Option<f64> {
        Some(self.bytes(other)? / self.bytes(Contender::Profiler)?)
    }
}

/// What a recording of the whole machine grows by while nothing runs.
#[derive(Serialize)]
pub struct Idle {
    pub name: String,
    pub seconds: f64,
    pub bytes_a_second: f64,
}

/// What a recording begins with is written by then, and until it ends.
const BEGUN: f64 = 3.0;

impl Idle {
    pub fn measure(tools: &Tools, hz: u64, seconds: f64) -> Result<Idle> {
        let name = format!("idle:{hz}");
        say(&format!("{name}: {seconds} s in which nothing should run"));
        let contender = Contender::Profiler;
        let command = contender.command(tools, Mix::Mixed, 0, hz, seconds + 2.0 * BEGUN)?;
        let running = Running::start(&mut command.context("no recorder")?)?;
        let wait = |seconds| sleep(Duration::from_secs_f64(seconds));
        let size = || {
            let file = fs::metadata(contender.capture(tools));
            file.map(|file| file.len()).context(contender.said(tools))
        };
        wait(BEGUN);
        let before = size()?;
        wait(seconds);
        let bytes_a_second = (size()? - before) as f64 / seconds;
        running.finish()?;
        fs::remove_file(contender.capture(tools))?;
        println!("\n{name}: the capture grows by {bytes_a_second:.0} B/s");
        Ok(Idle {
            name,
            seconds,
            bytes_a_second,
        })
    }
}
