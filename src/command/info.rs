//! `profiler info`.

use std::io::{self, BufWriter, Write, stdout};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::capture::Reader;
use crate::cli::InfoArgs;
use crate::counted::counted;
use crate::pipeline;
use crate::report::inventory;
use crate::report::text::{escaped, write_json};

use super::input::{capture, open_named, shown};
use super::progress::Bar;
use super::screen;

/// Tells what the capture is. The exit code is 1 when it is damaged.
pub fn run(args: &InfoArgs) -> anyhow::Result<ExitCode> {
    let reader = open_named(&args.file, "info")?;
    let mut out = BufWriter::new(stdout().lock());
    let told = match reader.is_merged() {
        true => merged(&reader, args.json, &mut out),
        false => one(&reader, args.json, &mut out),
    };
    let damage = match told.and_then(|damage| out.flush().map(|()| damage)) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        result => result.context("cannot write to standard output")?,
    };
    if !damage.is_empty() {
        bail!(
            "{} is damaged: {}",
            shown(capture(&args.file)),
            damage.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what one capture is; gives what of it is damaged.
fn one(reader: &Reader, json: bool, out: &mut dyn Write) -> io::Result<Vec<String>> {
    let found = pipeline::inventory(reader, &mut Bar::new(reader.frames().len()));
    match json {
        true => inventory::json(&found, out)?,
        false => inventory::text(&found, screen::of_report(true), out)?,
    }
    Ok(found.about.damage)
}

/// Prints what each of several captures is.
fn merged(reader: &Reader, json: bool, out: &mut dyn Write) -> io::Result<Vec<String>> {
    let mut damage: Vec<String> = reader.damage().iter().map(ToString::to_string).collect();
    let captures = reader.captures();
    let lacking = &reader.header().degraded;
    if json {
        write!(out, "{{\"degraded\":")?;
        write_json(lacking, out)?;
        write!(out, ",\"merged\":[")?;
    } else {
        writeln!(
            out,
            "merged of {}, {}, {}",
            counted(captures.len(), "capture"),
            counted(reader.samples(), "sample"),
            counted(reader.file_len(), "byte")
        )?;
        for text in lacking {
            writeln!(out, "degraded: {}", escaped(text))?;
        }
    }
    for (number, capture) in captures.into_iter().enumerate() {
        let number = number + 1;
        match (json, number) {
            (true, 1) => {}
            (true, _) => write!(out, ",")?,
            (false, _) => writeln!(out, "\ncapture {number}")?,
        }
        let found = one(capture, json, out)?;
        damage.extend(
            found
                .into_iter()
                .map(|text| format!("capture {number}: {text}")),
        );
    }
    if json {
        writeln!(out, "]}}")?;
    }
    Ok(damage)
}
