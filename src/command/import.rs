//! `profiler import`.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::beside::{Beside, refuse_same};
use super::progress::Bytes;
use super::tell;
use crate::capture::place;
use crate::cli::ImportArgs;
use crate::counted::counted;
use crate::import::{Imported, Source, Step, import_with};
use crate::report::text::escaped;

/// Imports. The exit code is 0 when all of the file is in the capture.
pub fn run(args: &ImportArgs) -> Result<ExitCode> {
    let (path, out) = (&args.file, &args.output);
    refuse_same(path, out, "it is never changed: give another name with -o")?;
    place::check(out)?;
    let source = source(path)?;
    let (beside, file) =
        Beside::create(out).with_context(|| format!("cannot write {}", out.display()))?;
    let mut bar = Bytes::new();
    let imported = import_with(source, &file, &mut |progress| {
        let what = match progress.step {
            Step::Copying => "reading",
            Step::Looking => "looking through",
            Step::Importing => "importing",
        };
        bar.show(what, progress.bytes, progress.of);
    });
    drop(bar);
    let imported = imported.with_context(|| format!("cannot import {}", path.display()))?;
    let size = file.metadata()?.len();
    beside
        .put_in_place(&file)
        .with_context(|| format!("cannot write {}", out.display()))?;
    for damage in &imported.damage {
        tell(&format!(
            "{}: {damage}; what could be read before that is in {}",
            path.display(),
            out.display()
        ));
    }
    match print(&imported, out, size, &mut stdout().lock()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    Ok(match imported.damage.is_empty() && imported.left_out == 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn source(path: &Path) -> Result<Source> {
    if path == Path::new("-") {
        if stdin().is_terminal() {
            bail!("standard input is a terminal; pipe what perf records into it");
        }
        return Ok(Source::Stream(Box::new(stdin().lock())));
    }
    let cannot = || format!("cannot read {}", path.display());
    if fs::metadata(path).with_context(cannot)?.is_dir() {
        bail!(
            "{} is a directory: recordings with threads of their own (perf record --threads) cannot be imported",
            path.display()
        );
    }
    let file = File::open(path).with_context(cannot)?;
    Ok(match file.metadata().with_context(cannot)?.is_file() {
        true => Source::File(file),
        false => Source::Stream(Box::new(file)),
    })
}

fn print(imported: &Imported, path: &Path, size: u64, out: &mut dyn Write) -> io::Result<()> {
    for line in imported.degraded.iter().chain(&imported.notes) {
        writeln!(out, "note: {}", escaped(line))?;
    }
    writeln!(
        out,
        "imported {} of {}; lost {}",
        counted(imported.samples, "sample"),
        counted(imported.processes, "process"),
        imported.lost
    )?;
    writeln!(
        out,
        "wrote {} ({})",
        escaped(&path.display().to_string()),
        counted(size, "byte")
    )
}
