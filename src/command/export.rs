//! `profiler report` for other tools: samples as they come, into the file another program reads.

use std::io::{self, IsTerminal, Write, stdout};
use std::path::PathBuf;

use anyhow::bail;

use crate::capture::Reader;
use crate::cli::ViewArgs;
use crate::format::header::{EventInfo, Sampling};
use crate::pipeline::{self, Progress, Request, Sink, Summary};
use crate::profile::{About, Event, Names, SampleView};
use crate::report::samples::EventUnit;
use crate::report::{firefox, perf_script, pprof, speedscope, verdict};

use super::kind::Kind;
use super::output::Output;
use super::progress::Bar;
use super::screen;

/// For which tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Export {
    Pprof,
    Firefox,
    Speedscope,
    PerfScript(perf_script::Period),
}

impl Export {
    /// The one asked for, and the file it goes to if that is its option's.
    pub fn wanted(view: &ViewArgs) -> Option<(Export, Option<PathBuf>)> {
        let files = [
            (Export::Pprof, &view.pprof),
            (Export::Firefox, &view.firefox),
            (Export::Speedscope, &view.speedscope),
        ];
        let mut files = files.into_iter().filter(|(_, path)| path.is_some());
        match files.next() {
            Some((export, path)) => Some((export, path.clone())),
            None => view
                .perf_script
                .map(|period| (Export::PerfScript(period), None)),
        }
    }

    /// What its file is.
    pub fn kind(self) -> Kind {
        match self {
            Export::Pprof => Kind::Pprof,
            Export::Firefox => Kind::Firefox,
            Export::Speedscope => Kind::Speedscope,
            Export::PerfScript(_) => Kind::Report,
        }
    }

    /// Refuses to spoil a terminal.
    pub fn check(self, to_stdout: bool) -> anyhow::Result<()> {
        let compressed = matches!(self, Export::Pprof | Export::Firefox);
        if compressed && to_stdout && stdout().is_terminal() {
            bail!("a compressed profile is not for terminals; name a file, or a pipe after it");
        }
        Ok(())
    }
}

/// What the weights of the capture's samples mean.
pub(super) fn units(reader: &Reader) -> Vec<EventUnit> {
    let events = &reader.header().events;
    let named = pipeline::events(reader.header());
    let unit = |(event, named): (&EventInfo, &Event)| {
        let unit = match event.sampling {
            Sampling::Frequency(hz) => EventUnit::of_frequency(&event.name, hz),
            Sampling::Period(period) => EventUnit::of_period(&event.name, period),
        };
        // A merged capture can have one event at several rates.
        let is_one = events.iter().filter(|e| e.name == event.name).count() == 1;
        EventUnit {
            name: if is_one { unit.name } else { named.with_rate() },
            ..unit
        }
    };
    events.iter().zip(&named).map(unit).collect()
}

/// Reads the capture and writes the export. The verdict goes to standard error.
pub fn write(
    export: Export,
    reader: &Reader,
    request: Request,
    output: Output,
    warn: &mut dyn FnMut(&str),
) -> io::Result<Summary> {
    let mut exporter = Exporter {
        export,
        units: units(reader),
        output,
        collector: Collector::None,
        // What is printed line by line shows itself how far it is.
        bar: (!matches!(export, Export::PerfScript(_))).then(|| Bar::new(reader.frames().len())),
    };
    let summary = pipeline::stream(reader, request, &mut exporter, warn)?;
    if let Some(bar) = &mut exporter.bar {
        bar.done();
    }
    let Exporter {
        mut output,
        collector,
        ..
    } = exporter;
    tell_verdict(&summary);
    match collector {
        Collector::None | Collector::PerfScript(_) => {}
        Collector::Pprof(collector) => collector.write(&summary.about, &mut output)?,
        Collector::Firefox(collector) => collector.write(&mut output)?,
        Collector::Speedscope(collector) => collector.write(&summary.about, &mut output)?,
    }
    output.finish()?;
    Ok(summary)
}

/// The verdict on standard error; its losses and names are known at the end.
pub fn tell_verdict(summary: &Summary) {
    screen::tell_head(verdict::all(&summary.about, &summary.naming));
}

enum Collector {
    /// Before the stream is opened.
    None,
    Pprof(Box<pprof::Collector>),
    Firefox(Box<firefox::Collector>),
    Speedscope(Box<speedscope::Collector>),
    PerfScript(perf_script::Samples),
}

struct Exporter {
    export: Export,
    units: Vec<EventUnit>,
    output: Output,
    collector: Collector,
    bar: Option<Bar>,
}

impl Sink for Exporter {
    type Error = io::Error;

    fn open(&mut self, about: &About) -> io::Result<()> {
        let units = self.units.clone();
        self.collector = match self.export {
            Export::Pprof => Collector::Pprof(Box::new(pprof::Collector::new(units))),
            Export::Firefox => Collector::Firefox(Box::new(firefox::Collector::new(about, units))),
            Export::Speedscope => {
                Collector::Speedscope(Box::new(speedscope::Collector::new(units)))
            }
            Export::PerfScript(period) => {
                Collector::PerfScript(perf_script::Samples::new(period, units))
            }
        };
        Ok(())
    }

    fn sample(&mut self, about: &About, names: &Names, sample: &SampleView<'_>) -> io::Result<()> {
        match &mut self.collector {
            Collector::None => {}
            Collector::Pprof(collector) => collector.sample(names, sample),
            Collector::Firefox(collector) => collector.sample(names, sample),
            Collector::Speedscope(collector) => collector.sample(names, sample),
            Collector::PerfScript(samples) => {
                samples.write(about, names, sample, &mut self.output)?
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn frame(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.frame();
        }
    }
}
