//! `profiler report`.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::export::{self, Export};
use crate::capture::Reader;
use crate::cli::{ReportArgs, ViewArgs};
use crate::pipeline::{self, Request, Sink};
use crate::profile::{About, Names, Naming, Profile, SampleView};
use crate::report::{flamegraph, folded, missing, standard, top, verdict};
use crate::symbolize::Options;

use super::output::{self, Output};
use super::progress::Bar;
use super::{open, symbol_options, tell};

/// Rows of the default view.
const TOP: usize = 20;

/// Makes the report. The exit code is 1 when the capture is damaged.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let symbols = Options {
        // Other views show no lines.
        lines: args.view.standard || args.view.pprof.is_some(),
        ..symbol_options(&args.names)?
    };
    let request = Request {
        hosts: args.host.clone(),
        ..Request::from(symbols)
    };
    let reader = open(&args.file)?;
    check_hosts(&reader, &args.host)?;
    let export = Export::wanted(&args.view);
    let file = export.as_ref().and_then(|(_, path)| path.as_deref());
    let target = args
        .view
        .flamegraph
        .as_deref()
        .or(file)
        .or(args.output.as_deref());
    let to_stdout = target.is_none_or(|path| path == Path::new("-"));
    if let Some(path) = args.view.flamegraph.as_deref().filter(|_| !to_stdout) {
        output::only_over_svg(path)?;
    }
    if let Some((export, _)) = &export {
        export.check(target, to_stdout)?;
    }
    let output = Output::open(target, &args.file)?;
    match report(args, &reader, request, output, to_stdout) {
        Ok(done) => finish(args, &done),
        // Whoever read us has seen enough.
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(err) => Err(err).with_context(|| match target {
            Some(path) if !to_stdout => format!("cannot write to {}", path.display()),
            _ => "cannot write to standard output".to_owned(),
        }),
    }
}

/// Refuses a host that no capture is of.
fn check_hosts(reader: &Reader, wanted: &[String]) -> anyhow::Result<()> {
    let hosts = pipeline::hosts(reader);
    let is = |host: &String, name: &String| host == name || host.split('#').next() == Some(name);
    let unknown = wanted
        .iter()
        .find(|name| !hosts.iter().any(|host| is(host, name)));
    match unknown {
        Some(name) => bail!("--host {name}: the capture is of {}", hosts.join(", ")),
        None => Ok(()),
    }
}

/// What the exit code depends on.
struct Done {
    about: About,
    naming: Naming,
}

fn report(
    args: &ReportArgs,
    reader: &Reader,
    request: Request,
    mut output: Output,
    to_stdout: bool,
) -> io::Result<Done> {
    let mut warn = |message: &str| tell(message);
    if let Some((export, _)) = Export::wanted(&args.view) {
        let summary = export::write(export, reader, request, output, &mut warn)?;
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
    if args.view.missing && args.json {
        tell_verdict(&profile);
        missing::json(&profile, &mut output)?;
    } else if args.view.missing {
        missing::text(&profile, &mut output)?;
    } else {
        print(&args.view, &profile, &mut output, to_stdout)?;
    }
    output.finish()?;
    Ok(Done {
        about: profile.about,
        naming: profile.naming,
    })
}

fn print(
    view: &ViewArgs,
    profile: &Profile,
    output: &mut Output,
    to_stdout: bool,
) -> io::Result<()> {
    if view.folded || view.flamegraph.is_some() {
        tell_verdict(profile);
    }
    if view.folded {
        return folded::write(profile, output);
    }
    if view.flamegraph.is_some() {
        return flamegraph::write(profile, output);
    }
    let terminal = to_stdout && stdout().is_terminal();
    let options = top::Options {
        limit: view.top.map_or(TOP, |n| n as usize),
        width: terminal.then(terminal_width).flatten(),
        color: terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    top::write(profile, options, output)
}

/// The verdict on stderr, for outputs that programs read.
fn tell_verdict(profile: &Profile) {
    let lines = verdict::whole(profile)
        .into_iter()
        .map(|line| format!("# {line}\n"));
    let _ = stderr().write_all(lines.collect::<String>().as_bytes());
}

fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

fn finish(args: &ReportArgs, done: &Done) -> anyhow::Result<ExitCode> {
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
            args.file.display(),
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
