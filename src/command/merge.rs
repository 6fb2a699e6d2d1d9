//! `profiler merge`.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::beside::{Beside, refuse_same};
use super::input::{is_stdin, open, shown};
use super::tell;
use crate::capture::members::{MergeError, merge_lacking};
use crate::capture::{Reader, place};
use crate::cli::MergeArgs;
use crate::counted::counted;
use crate::report::text::escaped;

/// Merges. The exit code is 0 when all captures are in the file, also those that are damaged: they are there as they were.
pub fn run(args: &MergeArgs) -> Result<ExitCode> {
    let out = &args.output;
    if args.files.iter().filter(|path| is_stdin(path)).count() > 1 {
        bail!("standard input can be read once: give `-` once");
    }
    place::check(out)?;
    let mut readers: Vec<(&Path, Reader)> = Vec::new();
    for path in &args.files {
        if !is_stdin(path) {
            refuse_same(path, out, "give another name with -o")?;
        }
        readers.push((path, open(path)?));
    }
    let mut captures: Vec<(&Path, &Reader)> = Vec::new();
    let mut lacking: Vec<String> = Vec::new();
    for (path, reader) in &readers {
        if reader.is_merged() {
            lacking.extend(reader.header().degraded.iter().cloned());
            for damage in reader.damage() {
                tell(&format!("{}: {damage}", shown(path)));
                lacking.push(format!("merged from a damaged file: {}", damage.kind));
            }
        }
        captures.extend(reader.captures().into_iter().map(|one| (*path, one)));
    }
    for (path, reader) in &captures {
        tell_problems(path, reader);
    }
    let of: Vec<&Reader> = captures.iter().map(|(_, reader)| *reader).collect();
    let (beside, mut file) =
        Beside::create(out).with_context(|| format!("cannot write {}", out.display()))?;
    let size = merge_lacking(&of, lacking, &mut file).map_err(|err| told(err, &captures))?;
    beside
        .put_in_place(&file)
        .with_context(|| format!("cannot write {}", out.display()))?;
    let samples = of.iter().map(|reader| reader.samples());
    let samples = samples.fold(0, u64::saturating_add);
    let line = format!(
        "merged {} with {} into {} ({})",
        counted(of.len(), "capture"),
        counted(samples, "sample"),
        escaped(&out.display().to_string()),
        counted(size, "byte")
    );
    match writeln!(stdout().lock(), "{line}") {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What of a capture is not as it was meant.
fn tell_problems(path: &Path, reader: &Reader) {
    if reader.cut_bytes() > 0 {
        tell(&format!(
            "{}: the last {} bytes are no whole frame (it was killed while it wrote) and are left out",
            shown(path),
            reader.cut_bytes()
        ));
    }
    if !reader.damage().is_empty() {
        tell(&format!(
            "{} is damaged and merged as it is; profiler repair leaves out what is damaged",
            shown(path)
        ));
    }
}

/// Names the files of captures that go by numbers.
fn told(err: MergeError, captures: &[(&Path, &Reader)]) -> anyhow::Error {
    let name = |number: usize| {
        let path = captures.get(number).map(|(path, _)| shown(path));
        path.map_or_else(String::new, |path| path.to_string())
    };
    match err {
        MergeError::Same(one, other) => anyhow::anyhow!(
            "{} and {} hold the same recording: leave one out",
            name(one),
            name(other)
        ),
        MergeError::Read(number, err) => {
            anyhow::Error::new(err).context(format!("cannot read {}", name(number)))
        }
        other => anyhow::Error::new(other).context("cannot merge"),
    }
}
