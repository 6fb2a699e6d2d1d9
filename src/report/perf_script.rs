//! `--perf-script`: every sample as `perf script` prints it, for tools that read that.
//!
//! ```text
//! COMM PID/TID [CPU] SECONDS.MICROSECONDS: PERIOD EVENT:
//! <tab>ADDRESS FUNCTION+0xOFFSET (FILE)        leaf first; inlined functions without an offset, before the one they are in
//! <empty line>
//! ```
//!
//! Times are those of the recorded machine's clock since it was started. The period is what tools sum up: the sample's weight, so
//! that their counts are those of the other views, or what perf prints there, as is asked. Callers that were cut off are a frame
//! `[truncated]`.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use clap::ValueEnum;

use crate::profile::{About, FrameKind, Names, SampleFrame, SampleView};

use super::folded::TRUNCATED;
use super::samples::{EventUnit, amount};
use super::text::folded;

/// What the number before the event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Period {
    /// What the sample counts for: tools sum up samples
    #[default]
    Samples,
    /// CPU time in nanoseconds, or how many of an event that is no time; of a recording of perf as if each sample had stood for the
    /// same
    Periods,
}

/// Writes samples.
#[derive(Debug, Default)]
pub struct Samples {
    period: Period,
    units: Vec<EventUnit>,
    block: String,
}

impl Samples {
    /// For samples whose weights mean `units`, by event.
    pub fn new(period: Period, units: Vec<EventUnit>) -> Samples {
        Samples {
            period,
            units,
            block: String::new(),
        }
    }

    fn period(&self, sample: &SampleView<'_>) -> u64 {
        let (event, weight) = (sample.event, sample.weight);
        match self.period {
            Period::Samples => weight,
            Period::Periods => amount(&self.units, event, weight).unwrap_or(weight),
        }
    }

    /// Writes one sample.
    pub fn write(
        &mut self,
        about: &About,
        names: &Names,
        sample: &SampleView<'_>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let period = self.period(sample);
        self.block.clear();
        // Writing to a string does not fail.
        let _ = block(about, names, (sample, period), &mut self.block);
        out.write_all(self.block.as_bytes())
    }
}

fn block(
    about: &About,
    names: &Names,
    (sample, period): (&SampleView<'_>, u64),
    out: &mut String,
) -> fmt::Result {
    let event = about.events.get(usize::from(sample.event));
    let time = sample.time.0;
    // perf leaves it out where it has none.
    let cpu = sample.cpu.map(|cpu| format!("[{cpu:03}] "));
    writeln!(
        out,
        "{} {}/{} {}{}.{:06}: {:>10} {}: ",
        name(sample.comm),
        sample.pid,
        sample.tid,
        cpu.unwrap_or_default(),
        time / 1_000_000_000,
        time % 1_000_000_000 / 1000,
        period,
        event.map_or("?".into(), |event| folded(&event.name)),
    )?;
    let (user_cut, kernel_cut) = sample.cuts();
    for (frames, cut) in [(sample.kernel, kernel_cut), (sample.user, user_cut)] {
        for frame in frames {
            lines(frame, names, out)?;
        }
        if cut {
            writeln!(out, "\t{:>16x} {TRUNCATED} ([unknown])", 0)?;
        }
    }
    if sample.kernel.is_empty() && sample.user.is_empty() {
        // Without a frame, readers would leave the sample out.
        writeln!(out, "\t{:>16x} [unknown] ([unknown])", 0)?;
    }
    out.push('\n');
    Ok(())
}

/// A name without what would end its line or, at its start, make a reader take the blank for a separator.
fn name(text: &str) -> std::borrow::Cow<'_, str> {
    match text.trim().is_empty() {
        true => "[unnamed]".into(),
        false => folded(text.trim()),
    }
}

fn lines(frame: &SampleFrame<'_>, names: &Names, out: &mut String) -> fmt::Result {
    let resolution = frame.resolution;
    for (depth, part) in resolution.chain.iter().enumerate().rev() {
        let Some(function) = names.frames().get(part.frame as usize) else {
            continue;
        };
        write!(
            out,
            "\t{:>16x} {}",
            frame.address,
            name(names.text(function.name))
        )?;
        if let Some(offset) = resolution.offset.filter(|_| depth == 0) {
            write!(out, "+{offset:#x}")?;
        }
        match (function.kind, frame.file) {
            (FrameKind::User, Some((file, _))) => {
                // Readers take the last blank for the end of the name.
                let path = String::from_utf8_lossy(&file.path);
                writeln!(out, " ({})", folded(&path).replace(' ', "\u{a0}"))?;
            }
            _ => match names.text(function.module) {
                "" => writeln!(out, " ([unknown])")?,
                "[kernel]" => writeln!(out, " ([kernel.kallsyms])")?,
                module => writeln!(out, " ({})", folded(module).replace(' ', "\u{a0}"))?,
            },
        }
    }
    Ok(())
}
