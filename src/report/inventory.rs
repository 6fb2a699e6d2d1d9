//! `profiler info`: what a capture is, for people and for scripts.

use std::collections::BTreeMap;
use std::io::{self, Write};

use indicatif::HumanBytes;
use serde::Serialize;

use crate::event::BuildId;
use crate::inventory::Inventory;

use super::layout::{self, Style};
use super::text::{escaped, write_json};
use super::verdict;
use crate::counted::counted;

/// Packed files that are listed.
const FILES: usize = 20;

/// Aligned lines for people.
pub fn text(inventory: &Inventory, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let about = &inventory.about;
    let mut lines: Vec<(&str, String)> = Vec::new();
    let mut line = |title, text: String| lines.push((title, text));
    let (major, minor) = inventory.format;
    line(
        "format",
        format!("{major}.{minor}, written by {}", escaped(&about.tool)),
    );
    line(
        "file",
        format!(
            "{} ({} bytes)",
            HumanBytes(inventory.file_size),
            inventory.file_size
        ),
    );
    line(
        "host",
        match about.cpus {
            0 => escaped(&about.host).into_owned(),
            cpus => format!("{}, {}", escaped(&about.host), counted(cpus, "CPU")),
        },
    );
    let id = inventory.kernel_build_id.as_ref();
    line(
        "kernel",
        format!(
            "{}, {}",
            escaped(&about.kernel),
            id.map_or("no build ID".to_owned(), |id| format!("build ID {id}"))
        ),
    );
    if !inventory.boot_id.is_empty() {
        line("boot", escaped(&inventory.boot_id).into_owned());
    }
    for event in &about.events {
        line(
            "event",
            format!("{} at {}", escaped(&event.name), event.rate),
        );
    }
    line("target", escaped(&about.target).into_owned());
    if let Some(way) = about.user_stacks.label() {
        line("user stacks", format!("walked {way}"));
    }
    line("began", verdict::wall_time(about, inventory.start));
    if let Some((first, last)) = about.span {
        line(
            "samples from",
            format!(
                "{} to {}, {}",
                verdict::wall_time(about, first),
                verdict::wall_time(about, last),
                verdict::seconds(last.since(first))
            ),
        );
    }
    let samples = verdict::samples(about);
    let samples = samples.strip_prefix("samples: ").unwrap_or(&samples);
    line("samples", samples.to_owned());
    for (class, count) in &about.losses {
        line("", format!("{} {count}", class.label()));
    }
    line(
        "of",
        [
            counted(inventory.processes, "process"),
            counted(inventory.threads, "thread"),
            counted(inventory.images, "image"),
            counted(inventory.files, "mapped file"),
        ]
        .join(", "),
    );
    line("segments", inventory.segments.to_string());
    for frames in inventory.frames.values() {
        line(
            "frames",
            format!(
                "{:<20} {:>8} {:>12} of {:>12}",
                frames.label,
                frames.count,
                HumanBytes(frames.compressed).to_string(),
                HumanBytes(frames.content).to_string()
            ),
        );
    }
    line("index", inventory.index.to_owned());
    let packed = &inventory.packed;
    line(
        "packed",
        match packed.level() {
            "none" => "nothing".to_owned(),
            level => format!(
                "{level}: {} of {}, {}, {}",
                counted(packed.symbols, "symbol"),
                counted(packed.symbol_files, "file"),
                counted(packed.tables, "symbol table"),
                counted(packed.files.len(), "whole file")
            ),
        },
    );
    for file in packed.files.iter().take(FILES) {
        let what = if file.debug { ", debug file" } else { "" };
        let whole = if file.whole { "" } else { ", not all of it" };
        line(
            "",
            format!(
                "{} ({}){what}: {}{whole}",
                escaped(&file.path),
                shown(file.build_id.as_ref()),
                HumanBytes(file.size)
            ),
        );
    }
    if packed.files.len() > FILES {
        line("", format!("and {} more", packed.files.len() - FILES));
    }
    for note in &about.degraded {
        line("degraded", escaped(note).into_owned());
    }
    let completeness = verdict::completeness(about);
    let completeness = completeness.strip_prefix("capture: ");
    line("capture", completeness.unwrap_or_default().to_owned());
    for damage in &about.damage {
        line("damage", escaped(damage).into_owned());
    }
    let mut before = "";
    for (title, text) in &lines {
        // A title stands once above all of its kind.
        let shown = if *title == before { "" } else { title };
        layout::paragraph(&format!("{shown:<13} "), text, 16, style, out)?;
        before = title;
    }
    Ok(())
}

fn shown(id: Option<&BuildId>) -> String {
    id.map_or("no build ID".to_owned(), |id| format!("build ID {id}"))
}

/// What an imported recording does not tell is `None`.
fn known(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[derive(Serialize)]
struct Document<'a> {
    format: String,
    tool: &'a str,
    file_size: u64,
    host: Option<&'a str>,
    boot_id: Option<&'a str>,
    cpus: Option<u32>,
    kernel: Kernel<'a>,
    events: Vec<Event<'a>>,
    target: &'a str,
    user_stacks: Option<&'static str>,
    start: String,
    first_sample: Option<String>,
    last_sample: Option<String>,
    span_seconds: f64,
    samples: u64,
    weight: u64,
    lost: u64,
    truncated: u64,
    losses: BTreeMap<&'static str, u64>,
    processes: u64,
    threads: u64,
    images: u64,
    files: u64,
    segments: u64,
    frames: Vec<Frames<'a>>,
    index: &'a str,
    packed: Packed<'a>,
    complete: bool,
    ended: Option<&'a str>,
    cut_bytes: u64,
    damage: &'a [String],
    damaged_samples: u64,
    degraded: &'a [String],
}

#[derive(Serialize)]
struct Kernel<'a> {
    release: Option<&'a str>,
    arch: Option<&'a str>,
    build_id: Option<String>,
}

#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    rate: &'a str,
}

#[derive(Serialize)]
struct Frames<'a> {
    kind: u8,
    name: &'a str,
    count: u64,
    compressed: u64,
    content: u64,
}

#[derive(Serialize)]
struct Packed<'a> {
    level: &'a str,
    symbols: u64,
    symbol_files: u64,
    tables: u64,
    files: Vec<PackedFile<'a>>,
}

#[derive(Serialize)]
struct PackedFile<'a> {
    path: &'a str,
    build_id: Option<String>,
    debug: bool,
    size: u64,
    whole: bool,
}

/// The same for scripts.
pub fn json(inventory: &Inventory, out: &mut dyn Write) -> io::Result<()> {
    let about = &inventory.about;
    let (major, minor) = inventory.format;
    let id = |id: &Option<BuildId>| id.as_ref().map(ToString::to_string);
    let packed = &inventory.packed;
    let document = Document {
        format: format!("{major}.{minor}"),
        tool: &about.tool,
        file_size: inventory.file_size,
        host: known(&about.host).filter(|host| *host != "?"),
        boot_id: known(&inventory.boot_id),
        cpus: Some(about.cpus).filter(|cpus| *cpus > 0),
        kernel: Kernel {
            release: known(&inventory.kernel_release),
            arch: known(&inventory.arch),
            build_id: id(&inventory.kernel_build_id),
        },
        events: about
            .events
            .iter()
            .map(|e| Event {
                name: &e.name,
                rate: &e.rate,
            })
            .collect(),
        target: &about.target,
        user_stacks: about.user_stacks.name(),
        start: verdict::wall_time(about, inventory.start),
        first_sample: about
            .span
            .map(|(first, _)| verdict::wall_time(about, first)),
        last_sample: about.span.map(|(_, last)| verdict::wall_time(about, last)),
        span_seconds: about
            .span
            .map_or(0.0, |(first, last)| last.since(first) as f64 / 1e9),
        samples: about.samples,
        weight: about.weight,
        lost: about.lost,
        truncated: inventory.truncated_stacks,
        losses: about
            .losses
            .iter()
            .map(|(class, count)| (class.label(), *count))
            .collect(),
        processes: inventory.processes,
        threads: inventory.threads,
        images: inventory.images,
        files: inventory.files,
        segments: inventory.segments,
        frames: inventory
            .frames
            .iter()
            .map(|(kind, frames)| Frames {
                kind: *kind,
                name: &frames.label,
                count: frames.count,
                compressed: frames.compressed,
                content: frames.content,
            })
            .collect(),
        index: inventory.index,
        packed: Packed {
            level: packed.level(),
            symbols: packed.symbols,
            symbol_files: packed.symbol_files,
            tables: packed.tables,
            files: packed
                .files
                .iter()
                .map(|f| PackedFile {
                    path: &f.path,
                    build_id: id(&f.build_id),
                    debug: f.debug,
                    size: f.size,
                    whole: f.whole,
                })
                .collect(),
        },
        complete: about.ended.is_some() && !about.is_damaged(),
        ended: about.ended.as_deref(),
        cut_bytes: about.cut_bytes,
        damage: &about.damage,
        damaged_samples: about.damaged_samples,
        degraded: &about.degraded,
    };
    write_json(&document, out)
}
