//! `profiler verify`.

use std::io::{self, Write, stdout};
use std::process::ExitCode;

use anyhow::Context;

use crate::capture::Damage;
use crate::capture::verify::{Verified, verify};
use crate::cli::VerifyArgs;
use crate::counted::counted;
use crate::pipeline::Progress;
use crate::report::text::escaped;

use super::input::open_named;
use super::progress::Bar;

/// Checks a capture. The exit code is 1 when any of it is damaged.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let reader = open_named(&args.file, "verify")?;
    let mut bar = Bar::new(reader.frames().len());
    let found = verify(&reader, || bar.frame());
    bar.done();
    match print(&found, &mut stdout().lock()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    Ok(match found.damage.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Where a damage is, what it is and what it spoils.
pub(super) fn damage_line(damage: &Damage) -> String {
    let kind = damage.kind.to_string();
    let kind = escaped(&kind);
    match (damage.frames, damage.samples) {
        (0 | 1, 0) => format!("byte {}: {kind}", damage.offset),
        (frames, samples) => format!(
            "byte {}: {kind} (spoils {}, {})",
            damage.offset,
            counted(frames, "frame"),
            counted(samples, "sample")
        ),
    }
}

fn print(found: &Verified, out: &mut dyn Write) -> io::Result<()> {
    for damage in &found.damage {
        writeln!(out, "{}", damage_line(damage))?;
    }
    let state = match (found.damage.len(), found.ended) {
        (0, true) => "no damage, complete".to_owned(),
        (0, false) => "no damage, recording was cut short".to_owned(),
        (places, _) => format!("damaged in {}", counted(places, "place")),
    };
    writeln!(
        out,
        "{}, {}: {state}",
        counted(found.frames, "frame"),
        counted(found.samples, "sample")
    )?;
    if let Some((offset, bytes)) = found.cut {
        writeln!(
            out,
            "the last {bytes} bytes, from byte {offset} on, are a frame that was not written to its end"
        )?;
    }
    Ok(())
}
