//! What the program does for each command: from arguments to an exit code.

mod beside;
pub mod completions;
#[cfg(feature = "record")]
pub mod doctor;
mod export;
pub mod import;
pub mod info;
mod input;
mod kind;
pub mod merge;
mod nameless;
mod output;
pub mod pack;
mod pictures;
mod progress;
#[cfg(feature = "record")]
pub mod record;
pub mod repair;
pub mod report;
mod screen;
mod table;
mod usage;
pub mod verify;

use std::io::{Write, stderr};

use anyhow::bail;

use crate::cli::SymbolArgs;
use crate::report::text::escaped;
use crate::symbolize::Options;
use crate::symbolize::debuginfod;

/// Checks where names are to come from.
fn symbol_options(args: &SymbolArgs) -> anyhow::Result<Options> {
    for (option, dirs) in [("--symfs", &args.symfs), ("--debug-dir", &args.debug_dir)] {
        if let Some(dir) = dirs.iter().find(|dir| !dir.is_dir()) {
            bail!("{option} {}: no such directory", dir.display());
        }
    }
    if let Some(file) = args.vmlinux.as_ref().filter(|file| !file.is_file()) {
        let problem = match file.exists() {
            true => "not a regular file",
            false => "no such file",
        };
        bail!("--vmlinux {}: {problem}", file.display());
    }
    let debuginfod = match args.debuginfod {
        false => None,
        true => Some(
            debuginfod::Settings::from_env()
                .map_err(|err| anyhow::anyhow!("--debuginfod: {err}"))?,
        ),
    };
    Ok(Options {
        symfs: args.symfs.clone(),
        debug_dirs: args.debug_dir.clone(),
        require_build_id: args.require_build_id,
        vmlinux: args.vmlinux.clone(),
        debuginfod,
        ..Options::default()
    })
}

/// One line on stderr, on a terminal wrapped between words; a closed one is no reason to stop. Messages can have paths and names out of a
/// capture or of files.
pub fn tell(message: &str) {
    const WHO: &str = "profiler: ";
    let message = escaped(message);
    let shown = screen::of_messages().wrapped(&message, WHO.len(), 2);
    let _ = stderr().write_all(format!("{WHO}{shown}\n").as_bytes());
}
