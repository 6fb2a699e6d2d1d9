//! Options of `profiler report` that say nothing together, beside those that clap knows of.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::input;
use crate::cli::{Cli, ReportArgs};

/// Ends the program, as for other wrong usage, when an option would have no effect.
pub fn check(args: &ReportArgs) {
    if let Some(problem) = problem(args) {
        let mut cli = Cli::command();
        cli.build();
        let report = cli.find_subcommand_mut("report");
        let error =
            |command: &mut clap::Command| command.error(ErrorKind::ArgumentConflict, problem);
        match report {
            Some(report) => error(report).exit(),
            None => error(&mut cli).exit(),
        }
    }
}

fn problem(args: &ReportArgs) -> Option<&'static str> {
    let (view, tables) = (&args.view, &args.tables);
    let is_of_stacks = view.folded || view.flamegraph.is_some();
    let is_tree = tables.tree || tables.callers.is_some() || tables.callees.is_some();
    // `requires` alone is not enough: clap takes the option that is required for one that another view rules out.
    if (args.pictures.inverted || args.pictures.flamechart) && view.flamegraph.is_none() {
        return Some("--inverted and --flamechart are forms of --flamegraph OUT");
    }
    if let (Some(before), None) = (&tables.diff, &args.file)
        && is_same(before, input::capture(&args.file))
    {
        return Some(
            "--diff BEFORE AFTER: AFTER is missing, and the capture that is read where none is named is BEFORE itself",
        );
    }
    if args.shape.addresses && !is_of_stacks {
        return Some(
            "--addresses tells frames of stacks apart: it needs --folded or --flamegraph OUT (a table has source lines with --lines)",
        );
    }
    if args.shape.lines && is_tree {
        return Some(
            "--lines is for --top, --folded and --flamegraph OUT: a tree has functions only",
        );
    }
    None
}

/// Whether both names lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    of(one).is_some_and(|file| Some(file) == of(other))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Command;

    fn told(options: &[&str]) -> Option<&'static str> {
        let all = ["profiler", "report"]
            .into_iter()
            .chain(options.iter().copied());
        match Cli::parse_from(all).command {
            Command::Report(args) => problem(&args),
            _ => None,
        }
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        for options in [
            &["--addresses"][..],
            &["--addresses", "--top", "5"],
            &["--addresses", "--tree"],
            &["--addresses", "--csv"],
            &["--lines", "--tree"],
            &["--lines", "--callers", "f", "--json"],
            &["--inverted", "--html", "x"],
        ] {
            assert!(told(options).is_some(), "{options:?}");
        }
        for options in [
            &["--addresses", "--folded"][..],
            &["--addresses", "--lines", "--flamegraph", "x"],
            &["--lines"],
            &["--lines", "--csv"],
            &["--inverted", "--flamegraph", "x"],
            &[],
        ] {
            assert_eq!(told(options), None, "{options:?}");
        }
    }
}
