//! The program: parse, dispatch, exit code.

use std::process::ExitCode;

use bprof::cli::{Cli, Command};
use bprof::command;
use clap::Parser;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        #[cfg(feature = "record")]
        Command::Record(args) => command::record::run(&args),
        #[cfg(feature = "record")]
        Command::Doctor(args) => command::doctor::run(&args),
        Command::Report(args) => command::report::run(&args),
        Command::Pack(args) => command::pack::run(&args),
        Command::Info(args) => command::info::run(&args),
        Command::Verify(args) => command::verify::run(&args),
        Command::Import(args) => command::import::run(&args),
        Command::Merge(args) => command::merge::run(&args),
        Command::Completions(args) => command::completions::completions(&args),
        Command::Man(args) => command::completions::man(&args),
        Command::Repair(args) => command::repair::run(&args),
    };
    result.unwrap_or_else(|err| {
        command::tell(&format!("{err:#}"));
        ExitCode::FAILURE
    })
}
