//! `profiler record`.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::record::RecordArgs;
use crate::record;

/// Records; the exit status is that of a launched command.
pub fn run(args: &RecordArgs) -> Result<ExitCode> {
    // The parser cannot tell an empty command from none, which would sample the whole machine.
    if args.target.command.is_empty() && std::env::args_os().next_back().is_some_and(|a| a == "--")
    {
        eprintln!(
            "profiler: there is no command after --; leave -- out to sample the whole machine"
        );
        return Ok(ExitCode::from(2));
    }
    record::run(&args.options()).map(ExitCode::from)
}
