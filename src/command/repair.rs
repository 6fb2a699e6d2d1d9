//! `profiler repair`.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::beside::{Beside, refuse_same};
use super::input::{capture, open, open_named, shown};
use super::progress::Bar;
use super::verify::damage_line;
use crate::capture::place;
use crate::capture::repair::{Repaired, repair};
use crate::capture::verify::verify;
use crate::cli::RepairArgs;
use crate::counted::counted;
use crate::pipeline::Progress;

/// Lines of damage that are shown; `verify` shows all.
const SHOWN: usize = 20;

/// Repairs. The exit code is 0 when the new capture is whole and has samples, however few of the old one, or when none are missing.
pub fn run(args: &RepairArgs) -> Result<ExitCode> {
    let (path, out) = (capture(&args.file), &args.output);
    refuse_same(path, out, "it is never changed: give another name with -o")?;
    place::check(out)?;
    let reader = open_named(&args.file, "repair -o OUT")?;
    let mut bar = Bar::new(reader.frames().len());
    let (beside, file) =
        Beside::create(out).with_context(|| format!("cannot write {}", out.display()))?;
    let written = repair(&reader, &file, || bar.frame());
    bar.done();
    let (_, repaired) =
        written.with_context(|| format!("cannot repair {} into {}", shown(path), out.display()))?;
    // What is good by itself could still be too much together.
    let again =
        open(&beside.path()).with_context(|| format!("cannot read back {}", out.display()))?;
    if let Some(damage) = verify(&again, || {}).damage.first() {
        bail!(
            "{}: what is left of it contradicts itself: {damage}",
            shown(path)
        );
    }
    let placed = beside.put_in_place(&file);
    placed.with_context(|| format!("cannot write {}", out.display()))?;
    match print(&repaired, out, &mut stdout().lock()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    let is_whole = repaired.found.damage.is_empty()
        && repaired.lost_frames == 0
        && repaired.lost_captures == 0;
    if repaired.samples == 0 && !is_whole {
        bail!(
            "no sample of {} could be saved: {} has none, only what could be read beside them",
            shown(path),
            out.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn print(repaired: &Repaired, path: &Path, out: &mut dyn Write) -> io::Result<()> {
    let found = &repaired.found;
    for damage in found.damage.iter().take(SHOWN) {
        writeln!(out, "{}", damage_line(damage))?;
    }
    if found.damage.len() > SHOWN {
        let more = found.damage.len() - SHOWN;
        let more = counted(more, "more place");
        writeln!(out, "and {more}: profiler verify lists them")?;
    }
    if let Some((offset, bytes)) = found.cut {
        writeln!(
            out,
            "the last {bytes} bytes, from byte {offset} on, are a frame that was not written to its end: left out"
        )?;
    }
    if repaired.lost_captures > 0 {
        writeln!(
            out,
            "left out: {} of which nothing is there or can be read",
            counted(repaired.lost_captures, "capture")
        )?;
    }
    match (repaired.lost_frames, repaired.lost_samples) {
        (0, _) if repaired.lost_captures > 0 => {}
        (0, _) => writeln!(out, "no frame is missing")?,
        (frames, samples) => writeln!(
            out,
            "left out: {}, with {} as far as that is known",
            counted(frames, "frame"),
            counted(samples, "sample")
        )?,
    }
    writeln!(
        out,
        "{}: {}, {}, {}",
        crate::report::text::escaped(&path.display().to_string()),
        counted(repaired.frames, "frame"),
        counted(repaired.samples, "sample"),
        counted(repaired.bytes, "byte")
    )
}
