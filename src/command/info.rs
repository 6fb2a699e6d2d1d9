//! `profiler info`.

use std::io::{self, BufWriter, Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::cli::InfoArgs;
use crate::pipeline;
use crate::report::inventory;

use super::open;
use super::progress::Bar;

/// Tells what the capture is. The exit code is 1 when it is damaged.
pub fn run(args: &InfoArgs) -> anyhow::Result<ExitCode> {
    let reader = open(&args.file)?;
    let found = pipeline::inventory(&reader, &mut Bar::new(reader.frames().len()));
    let mut out = BufWriter::new(stdout().lock());
    let print = match args.json {
        true => inventory::json,
        false => inventory::text,
    };
    match print(&found, &mut out).and_then(|()| out.flush()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    if found.about.is_damaged() {
        bail!(
            "{} is damaged: {}",
            args.file.display(),
            found.about.damage.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}
