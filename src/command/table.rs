//! `profiler report` of functions and calls: tables, trees, and two captures side by side.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::export::units;
use super::kind::Kind;
use super::output::Output;
use super::progress::Bar;
use super::report::{Done, ends, finish, tell_verdict};
use super::{input, screen, tell};
use crate::cli::ReportArgs;
use crate::pipeline::{self, Request, Shape};
use crate::profile::{By, Profile};
use crate::report::callers;
use crate::report::diff::{self, Input, Joined};
use crate::report::{top, tree};

/// Functions of the default view.
const TOP: usize = 20;
/// Functions of each group where there are several.
const TOP_OF_GROUP: usize = 5;
/// Groups where nobody says how small ones may be.
const GROUPS: usize = 20;

/// How programs get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Csv,
}

impl Form {
    fn of(args: &ReportArgs) -> Form {
        match (args.tables.json, args.tables.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        }
    }
}

/// Functions at most: programs get all of them where nobody says how many.
fn limit(args: &ReportArgs, form: Form, default: usize) -> Option<usize> {
    let asked = args.view.top.map(|n| n as usize);
    asked.or((form == Form::Text).then_some(default))
}

/// How stacks are to look. Tables and trees leave out what is small themselves, and say how much: a function with many small stacks is not
/// small.
pub fn shape(args: &ReportArgs) -> Shape {
    let asked = args.shape.shape();
    let of_stacks = args.view.folded || args.view.flamegraph.is_some();
    Shape {
        min_percent: if of_stacks { asked.min_percent } else { 0.0 },
        ..asked
    }
}

/// Prints a table or a tree of a profile.
pub fn print(
    args: &ReportArgs,
    profile: &Profile,
    to_stdout: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let form = Form::of(args);
    if form != Form::Text {
        tell_verdict(profile);
    }
    let tables = &args.tables;
    let by_group = args.shape.by.is_some_and(|by| by != By::None);
    let min_percent = args.shape.min_percent;
    let min_percent = min_percent.unwrap_or(tree::Options::MIN_PERCENT);
    let found = match tables.callers.as_deref().or(tables.callees.as_deref()) {
        Some(asked) => Some(callers::find(profile, asked)?),
        None => None,
    };
    let of = match &found {
        Some(found) if tables.callers.is_some() => Some(tree::Of::Callers(found)),
        Some(found) => Some(tree::Of::Callees(found)),
        None => tables.tree.then_some(tree::Of::All),
    };
    if let Some(of) = of {
        let options = tree::Options {
            by_group,
            min_percent,
            style: screen::of_report(to_stdout),
        };
        match form {
            Form::Text => tree::write(profile, of, options, out)?,
            Form::Json => tree::json(profile, of, options, out)?,
            Form::Csv => tree::csv(profile, of, options, out)?,
        }
        return Ok(());
    }
    let options = top::Options {
        limit: limit(args, form, if by_group { TOP_OF_GROUP } else { TOP }),
        sort: tables.sort.unwrap_or_default(),
        by_group,
        most_groups: args.shape.min_percent.is_none().then_some(GROUPS),
        lines: args.shape.lines,
        min_percent,
        min_total: args.shape.min_percent.unwrap_or(0.0),
        style: screen::of_report(to_stdout),
    };
    match form {
        Form::Text => top::write(profile, options, out)?,
        Form::Json => top::json(profile, options, out)?,
        Form::Csv => top::csv(profile, options, out)?,
    }
    Ok(())
}

/// Compares a capture with the one before.
pub fn compare(args: &ReportArgs, before: &Path, request: Request) -> anyhow::Result<ExitCode> {
    let after = input::capture(&args.file);
    if [before, after].iter().all(|path| input::is_stdin(path)) {
        bail!("only one of the two captures can be standard input");
    }
    let target = args.view.flamegraph.as_deref().or(args.output.as_deref());
    let to_stdout = target.is_none_or(|path| path == Path::new("-"));
    let kind = match args.view.flamegraph {
        Some(_) => Kind::Svg,
        None => Kind::Report,
    };
    let out = Output::open(target, after, kind)?;
    input::tell_unnamed(&args.file, after);
    let mut profiles = Vec::new();
    for path in [before, after] {
        let reader = input::open(path)?;
        let mut progress = Bar::new(reader.frames().len());
        let mut warn = |message: &str| tell(message);
        let profile = pipeline::profile(&reader, request.clone(), &mut progress, &mut warn);
        profiles.push((path, profile, units(&reader)));
    }
    let inputs: Vec<Input<'_>> = profiles
        .iter()
        .map(|(path, profile, units)| Input {
            path: path.to_path_buf(),
            profile,
            units: units.clone(),
        })
        .collect();
    let [first, second] = &inputs[..] else {
        bail!("two captures were read, and are not there");
    };
    let same = &args.tables.same;
    let joined = Joined::new(first, second, same).context("nothing was compared")?;
    let written = write(args, &joined, to_stdout, out);
    ends(
        written.map_err(Into::into),
        target.filter(|_| !to_stdout),
        |()| {
            let mut code = ExitCode::SUCCESS;
            for (path, profile, _) in profiles {
                let done = Done {
                    about: profile.about,
                    naming: profile.naming,
                };
                code = finish(args, path, &done)?;
            }
            Ok(code)
        },
    )
}

fn write(args: &ReportArgs, joined: &Joined, to_stdout: bool, mut out: Output) -> io::Result<()> {
    let form = Form::of(args);
    let options = diff::Options {
        limit: limit(args, form, TOP),
        sort: args.tables.sort.unwrap_or_default(),
        style: screen::of_report(to_stdout),
    };
    let is_text = form == Form::Text && !args.view.folded && args.view.flamegraph.is_none();
    if !is_text {
        screen::tell_head(diff::about(joined));
    }
    if args.view.folded {
        diff::folded(joined, &mut out)?;
    } else if args.view.flamegraph.is_some() {
        diff::flamegraph(joined, &mut out)?;
    } else {
        match form {
            Form::Text => diff::write(joined, options, &mut out)?,
            Form::Json => diff::json(joined, options, &mut out)?,
            Form::Csv => diff::csv(joined, options, &mut out)?,
        }
    }
    out.finish()
}
