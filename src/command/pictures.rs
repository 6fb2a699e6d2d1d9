//! `profiler report` for pictures that need the time of every sample.

use std::io;

use crate::capture::Reader;
use crate::cli::ReportArgs;
use crate::pipeline::{self, Progress, Request, Sink, Summary};
use crate::profile::{About, By, Names, SampleView};
use crate::report::flamegraph::{Form, chart};
use crate::report::html;

use super::export::tell_verdict;
use super::output::Output;
use super::progress::Bar;

/// What is drawn of a profile.
pub fn form(args: &ReportArgs) -> Form {
    match args.pictures.inverted {
        true => Form::Callers,
        false => Form::Callees,
    }
}

/// A picture of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// A flame chart.
    Chart,
    /// A page.
    Page,
}

impl Timed {
    /// The one asked for.
    pub fn wanted(args: &ReportArgs) -> Option<Timed> {
        match (args.pictures.flamechart, &args.view.html) {
            (true, _) => Some(Timed::Chart),
            (_, Some(_)) => Some(Timed::Page),
            _ => None,
        }
    }
}

/// Reads the capture and draws it. The verdict goes to standard error.
pub fn write(
    picture: Timed,
    reader: &Reader,
    request: Request,
    mut output: Output,
    warn: &mut dyn FnMut(&str),
) -> io::Result<Summary> {
    let mut painter = Painter {
        picture: Picture::new(picture, request.by),
        bar: Bar::new(reader.frames().len()),
    };
    let summary = pipeline::stream(reader, request, &mut painter, warn)?;
    painter.bar.done();
    tell_verdict(&summary);
    match painter.picture {
        Picture::Chart(collector) => collector.write(&summary.about, &mut output)?,
        Picture::Page(collector) => {
            collector.write(&summary.about, &summary.naming, &mut output)?;
        }
    }
    output.finish()?;
    Ok(summary)
}

struct Painter {
    picture: Picture,
    bar: Bar,
}

enum Picture {
    Chart(Box<chart::Collector>),
    Page(Box<html::Collector>),
}

impl Picture {
    fn new(picture: Timed, by: By) -> Picture {
        match picture {
            Timed::Chart => Picture::Chart(Box::default()),
            Timed::Page => Picture::Page(Box::new(html::Collector::by(by))),
        }
    }
}

impl Sink for Painter {
    type Error = io::Error;

    fn open(&mut self, _: &About) -> io::Result<()> {
        Ok(())
    }

    fn sample(&mut self, about: &About, names: &Names, sample: &SampleView<'_>) -> io::Result<()> {
        match &mut self.picture {
            Picture::Chart(collector) => collector.sample(names, sample),
            Picture::Page(collector) => collector.sample(about, names, sample),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn frame(&mut self) {
        self.bar.frame();
    }
}
