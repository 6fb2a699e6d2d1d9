//! Takes captures apart into first seeds: `cargo run --example seeds -- OUT_DIR CAPTURE...`

use std::fs;
use std::path::{Path, PathBuf};

use bprof::capture::Reader;
use bprof::format::descriptor::FrameKind;
use bprof::format::frame::FrameDecompressor;
use bprof_fuzz::capture;
use bprof_fuzz::parts::{self, Part};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let out = args.next().ok_or("seeds OUT_DIR CAPTURE...")?;
    for (number, path) in args.enumerate() {
        seeds(&out, number, &path)?;
    }
    Ok(())
}

fn seeds(out: &Path, number: usize, path: &Path) -> Result<()> {
    let put = |target: &str, name: String, bytes: &[u8]| -> Result<()> {
        let dir = out.join(target);
        fs::create_dir_all(&dir)?;
        Ok(fs::write(dir.join(name), bytes)?)
    };
    let file = fs::read(path)?;
    put("reader", format!("capture{number}"), &file)?;
    let reader = Reader::from_bytes(file.clone())?;
    let mut zstd = FrameDecompressor::new()?;
    let mut all = vec![Part {
        kind: 0,
        segment: 0,
        content: capture::facts(reader.header()),
    }];
    for (at, entry) in reader.frames().iter().enumerate() {
        let data = entry.data_offset() as usize..entry.end() as usize;
        let data = file.get(data).ok_or("a frame beyond the end")?;
        let mut content = Vec::new();
        zstd.decompress(data, entry.descriptor.uncompressed, &mut content)?;
        away(&mut content);
        let selector = match entry.descriptor.kind {
            FrameKind::KernelSymbols => Some(0),
            FrameKind::Vdso => Some(1),
            FrameKind::PerfMaps => Some(2),
            FrameKind::ElfLayouts => Some(3),
            FrameKind::End => Some(4),
            FrameKind::PackedSymbols => Some(5),
            FrameKind::PackedTable => Some(6),
            FrameKind::PackedFile => Some(7),
            _ => None,
        };
        if let Some(selector) = selector {
            let name = format!("frame{number}-{at}");
            put("tables", name, &[&[selector], &content[..]].concat())?;
        }
        all.push(Part {
            kind: entry.descriptor.kind.number(),
            segment: entry.descriptor.segment.saturating_sub(1) as u8,
            content,
        });
    }
    put("report", format!("parts{number}"), &parts::encode(&all))?;
    let segments: Vec<Part> = all.into_iter().filter(|part| part.kind == 1).collect();
    put(
        "segment",
        format!("parts{number}"),
        &parts::encode(&segments),
    )
}

/// No path may lead to a file of the machine that fuzzes.
fn away(content: &mut [u8]) {
    for (from, to) in [
        (b"/usr/", b"/usx/"),
        (b"/lib/", b"/lix/"),
        (b"/opt/", b"/opx/"),
    ] {
        for at in 0..content.len().saturating_sub(from.len()) {
            if content[at..].starts_with(from) {
                content[at..at + to.len()].copy_from_slice(to);
            }
        }
    }
}
