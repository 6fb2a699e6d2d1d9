//! `profiler report`.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::export::{self, Export};
use super::pictures::{self, Timed};
use crate::capture::Reader;
use crate::cli::ReportArgs;
use crate::pipeline::{self, Request, Sink};
use crate::profile::{About, Names, Naming, Profile, SampleView};
use crate::report::{flamegraph, folded, missing, standard, verdict};
use crate::symbolize::Options;

use super::kind::Kind;
use super::output::Output;
use super::progress::Bar;
use super::{input, screen, symbol_options, table, tell, usage};

/// Makes the report. The exit code is 1 when the capture is damaged.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    usage::check(args);
    let request = Request {
        symbols: Options {
            // Other views show no lines.
            lines: args.view.standard || args.view.pprof.is_some(),
            ..symbol_options(&args.names)?
        },
        selection: args.select.selection(),
        by: args.shape.by.unwrap_or_default(),
        shape: table::shape(args),
    };
    if let Some(before) = &args.tables.diff {
        return table::compare(args, before, request);
    }
    let file = input::capture(&args.file);
    let reader = input::open_named(&args.file, "report")?;
    let export = Export::wanted(&args.view);
    let exported = export.as_ref().and_then(|(_, path)| path.as_deref());
    let target = args
        .view
        .flamegraph
        .as_deref()
        .or(args.view.html.as_deref())
        .or(exported)
        .or(args.output.as_deref());
    let to_stdout = target.is_none_or(|path| path == Path::new("-"));
    if let Some((export, _)) = &export {
        export.check(to_stdout)?;
    }
    let kind = match &export {
        Some((export, _)) => export.kind(),
        None if args.view.html.is_some() => Kind::Page,
        None if args.view.flamegraph.is_some() => Kind::Svg,
        None => Kind::Report,
    };
    let output = Output::open(target, file, kind)?;
    let made = report(args, &reader, request, output, to_stdout);
    ends(made, target.filter(|_| !to_stdout), |done| {
        finish(args, file, &done)
    })
}

/// What is to be said of a report that was made, or not: `target` is the file it was written to.
pub(super) fn ends<T>(
    made: anyhow::Result<T>,
    target: Option<&Path>,
    finish: impl FnOnce(T) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let err = match made {
        Ok(done) => return finish(done),
        Err(err) => err,
    };
    match err.downcast_ref::<io::Error>().map(io::Error::kind) {
        None => Err(err),
        // Whoever read us has seen enough.
        Some(io::ErrorKind::BrokenPipe) => Ok(ExitCode::SUCCESS),
        Some(_) => Err(err).with_context(|| match target {
            Some(path) => format!("cannot write to {}", path.display()),
            None => "cannot write to standard output".to_owned(),
        }),
    }
}

/// What the exit code depends on.
pub(super) struct Done {
    pub about: About,
    pub naming: Naming,
}

fn report(
    args: &ReportArgs,
    reader: &Reader,
    request: Request,
    mut output: Output,
    to_stdout: bool,
) -> anyhow::Result<Done> {
    let mut warn = |message: &str| tell(message);
    if let Some((export, _)) = Export::wanted(&args.view) {
        let summary = export::write(export, reader, request, output, &mut warn)?;
        return Ok(Done {
            about: summary.about,
            naming: summary.naming,
        });
    }
    if let Some(picture) = Timed::wanted(args) {
        let summary = pictures::write(picture, reader, request, output, &mut warn)?;
        return Ok(Done {
            about: summary.about,
            naming: summary.naming,
        });
    }
    if args.view.standard {
        let mut sink = Printer {
            output,
            samples: standard::Samples::default(),
        };
        let summary = pipeline::stream(reader, request, &mut sink, &mut warn)?;
        output = sink.output;
        standard::closing(
            &summary.about,
            &summary.late_damage,
            &summary.naming,
            &mut output,
        )?;
        output.finish()?;
        return Ok(Done {
            about: summary.about,
            naming: summary.naming,
        });
    }
    let mut progress = Bar::new(reader.frames().len());
    let profile = if args.view.missing {
        pipeline::profile_with_missing(reader, request, &mut progress, &mut warn)
    } else {
        pipeline::profile(reader, request, &mut progress, &mut warn)
    };
    if args.view.missing && args.tables.json {
        tell_verdict(&profile);
        missing::json(&profile, &mut output)?;
    } else if args.view.missing {
        missing::text(&profile, screen::of_report(to_stdout), &mut output)?;
    } else {
        print(args, &profile, &mut output, to_stdout)?;
    }
    output.finish()?;
    Ok(Done {
        about: profile.about,
        naming: profile.naming,
    })
}

fn print(
    args: &ReportArgs,
    profile: &Profile,
    output: &mut Output,
    to_stdout: bool,
) -> anyhow::Result<()> {
    let view = &args.view;
    if view.folded || view.flamegraph.is_some() {
        tell_verdict(profile);
    }
    if view.folded {
        return Ok(folded::write(profile, output)?);
    }
    if view.flamegraph.is_some() {
        return Ok(flamegraph::write(profile, pictures::form(args), output)?);
    }
    table::print(args, profile, to_stdout, output)
}

/// The verdict on stderr, for outputs that programs read.
pub(super) fn tell_verdict(profile: &Profile) {
    screen::tell_head(verdict::whole(profile));
}

/// Says what is wrong with the capture at `file`.
pub(super) fn finish(args: &ReportArgs, file: &Path, done: &Done) -> anyhow::Result<ExitCode> {
    if let Some(nothing) = verdict::nothing_selected(&done.about) {
        tell(&nothing);
    }
    if let Some(warning) = verdict::warning(&done.naming) {
        tell(&warning);
    }
    if let (Some(wanted), Some(named)) = (args.min_named, done.naming.user_percent())
        && named < wanted
    {
        bail!("{named:.1} % of the user frames have names, --min-named asks for {wanted} %");
    }
    if done.about.is_damaged() {
        bail!(
            "{} is damaged, the report is partial: {}",
            input::shown(file),
            done.about.damage.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints samples as they come.
struct Printer {
    output: Output,
    samples: standard::Samples,
}

impl Sink for Printer {
    type Error = io::Error;

    fn open(&mut self, about: &About) -> io::Result<()> {
        standard::opening(about, &mut self.output)
    }

    fn sample(&mut self, about: &About, names: &Names, sample: &SampleView<'_>) -> io::Result<()> {
        self.samples.write(about, names, sample, &mut self.output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
