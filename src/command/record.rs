//! `profiler record`.

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::record::RecordArgs;
use crate::record;

/// Records; the exit status is that of a launched command.
pub fn run(args: &RecordArgs) -> Result<ExitCode> {
    record::run(&args.options()).map(ExitCode::from)
}
