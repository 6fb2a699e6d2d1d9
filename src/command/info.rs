//! `profiler info`.
use crate::cli::InfoArgs;
use std::process::ExitCode;
/// x
pub fn run(_args: &InfoArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
