//! What the program does for each command: from arguments to an exit code.

mod beside;
pub mod completions;
#[cfg(feature = "record")]
pub mod doctor;
mod export;
pub mod import;
pub mod info;
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
mod table;
mod usage;
pub mod verify;

use std::fs::File;
use std::io::{IsTerminal, Read, Write, stderr, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::capture::Reader;
use crate::cli::{self, CAPTURE, SymbolArgs};
use crate::report::text::escaped;
use crate::symbolize::Options;
use crate::symbolize::debuginfod;

/// The capture at `path`, or on standard input for `-`.
fn open(path: &Path) -> anyhow::Result<Reader> {
    if path == Path::new("-") {
        if stdin().is_terminal() {
            bail!("standard input is a terminal; pipe a capture into it");
        }
        let mut bytes = Vec::new();
        stdin()
            .lock()
            .read_to_end(&mut bytes)
            .context("cannot read standard input")?;
        let is_perf = bytes.starts_with(PERF);
        return Reader::from_bytes(bytes)
            .map_err(|err| hint(err.into(), is_perf))
            .context("standard input");
    }
    Reader::open(path)
        .map_err(|err| hint(err.into(), is_of_perf(path)))
        .with_context(|| path.display().to_string())
}

/// The capture of a command's FILE. Where none was named it is that which `record` writes where it is told no name, and that is said.
fn open_named(file: &Option<PathBuf>, command: &str) -> anyhow::Result<Reader> {
    let reader = open(cli::capture(file)).map_err(|err| unnamed(err, file, command))?;
    if file.is_none() {
        tell(&format!("reading {CAPTURE}"));
    }
    Ok(reader)
}

/// Says what to name where nothing was.
fn unnamed(err: anyhow::Error, file: &Option<PathBuf>, command: &str) -> anyhow::Error {
    match file {
        Some(_) => err,
        None => err.context(format!(
            "no capture was named, and {CAPTURE} is what is taken then: profiler {command} FILE"
        )),
    }
}

/// How a `perf.data` begins, a file or a stream.
const PERF: &[u8] = b"PERFILE2";

fn is_of_perf(path: &Path) -> bool {
    let mut start = [0; PERF.len()];
    // A FIFO would be waited for.
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    let read = |mut file: File| file.read_exact(&mut start);
    is_file && File::open(path).and_then(read).is_ok() && start == PERF
}

/// Says what to do with what another program has recorded.
fn hint(err: anyhow::Error, is_perf: bool) -> anyhow::Error {
    match is_perf {
        true => anyhow::anyhow!(
            "this is a recording of Linux perf: make a capture of it with profiler import PERF.DATA -o run.bprof"
        ),
        false => err,
    }
}

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

/// One line on stderr; a closed one is no reason to stop. Messages can have paths and names out of a capture or of files.
pub fn tell(message: &str) {
    let _ = writeln!(stderr(), "profiler: {}", escaped(message));
}
