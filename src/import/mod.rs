//! Linux perf's `perf.data`, as a capture: read as hostile as a capture is, written by the ordinary writer.
//!
//! ```text
//! container  header, events, features -> records  whole and unpacked, in order of time -> convert
//! convert    sample  stacks apart | side_band -> processes, files  who ran what | kernel  its names -> CaptureWriter
//! machine    is this the machine, and the boot, that was recorded?     survey  what only all records together tell
//! ```
//!
//! `linux-perf-event-reader` reads attributes and single records. What is around them is read here: sizes that come from
//! the file are checked before anything is allocated, and what is damaged costs what follows it and no more.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod attrs;
mod bytes;
mod container;
mod convert;
mod facts;
mod files;
mod kernel;
mod machine;
mod processes;
mod records;
mod sample;
mod side_band;
mod survey;

use std::fs::File;
use std::io::{self, Read, Seek, Write};

use anyhow::{Context, Result, bail};

use container::{Container, PIPE_HEADER};
use survey::Survey;

/// What became of a `perf.data`.
#[derive(Debug, Clone, Default)]
pub struct Imported {
    /// Samples in the capture.
    pub samples: u64,
    /// Samples perf lost.
    pub lost: u64,
    /// Processes with samples.
    pub processes: u64,
    /// What could not be read, and why: the capture is partial.
    pub damage: Vec<String>,
    /// Samples, and records of processes, that are damaged and left out.
    pub left_out: u64,
    /// What the capture is without, as its header says it.
    pub degraded: Vec<String>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// What an import is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What comes from a pipe, and perf writes only into files, is copied into a temporary file.
    Copying,
    /// All records are looked at, for what the beginning of a capture has to say.
    Looking,
    /// Records are read and the capture is written.
    Importing,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub step: Step,
    /// Bytes of `perf.data` read in this step.
    pub bytes: u64,
    /// Of so many; `None` where that is not known, of a pipe.
    pub of: Option<u64>,
}

/// Is told from time to time.
type Tell<'t> = &'t mut dyn FnMut(Progress);

/// Records between two times at which somebody is told.
const OFTEN: u64 = 1 << 12;
/// Bytes read at a time from a pipe.
const PIECE: usize = 1 << 18;

/// A `perf.data` to be read.
pub enum Source {
    /// A regular file.
    File(File),
    /// Whatever comes.
    Stream(Box<dyn Read>),
}

impl Source {
    /// As it is, or for a stream that perf writes only into files, a temporary file of it.
    fn open(self, tell: Tell<'_>) -> Result<(Container, Option<File>)> {
        match self {
            Source::File(file) => Ok((Container::of_file(again(&file)?)?, Some(file))),
            Source::Stream(mut stream) => {
                let mut start = Vec::new();
                let head = stream.by_ref().take(PIPE_HEADER as u64);
                io::BufReader::new(head)
                    .read_to_end(&mut start)
                    .context("cannot be read")?;
                if container::is_pipe(&start)? {
                    let stream = io::BufReader::with_capacity(PIECE, stream);
                    return Ok((Container::of_stream(Box::new(stream))?, None));
                }
                let mut file = tempfile::tempfile().context("no temporary file")?;
                file.write_all(&start)
                    .and_then(|()| copy(&mut stream, &mut file, tell))
                    .context("cannot be copied into a temporary file")?;
                let mut container = Container::of_file(again(&file)?)?;
                // Its times are those of the copy.
                container.modified = None;
                Ok((container, Some(file)))
            }
        }
    }
}

/// The same file, from its beginning.
fn again(file: &File) -> io::Result<File> {
    let mut file = file.try_clone()?;
    file.rewind()?;
    Ok(file)
}

fn copy(from: &mut dyn Read, to: &mut File, tell: Tell<'_>) -> io::Result<()> {
    let mut bytes = 0;
    loop {
        let piece = io::copy(&mut Read::take(&mut *from, PIECE as u64), to)?;
        if piece == 0 {
            return Ok(());
        }
        bytes += piece;
        tell(Progress {
            step: Step::Copying,
            bytes,
            of: None,
        });
    }
}

/// Reads `source` and writes what it holds as a capture into `out`. One of a damaged `perf.data` has no end, like one whose
/// recording was killed.
///
/// # Errors
/// It is no `perf.data`, or one of which nothing can be used; then what is in `out` is no whole capture.
pub fn import<W: Write>(source: Source, out: W) -> Result<Imported> {
    import_with(source, out, &mut |_| {})
}

/// As [`import`], and tells how far it is.
///
/// # Errors
/// As those of [`import`].
pub fn import_with<W: Write>(
    source: Source,
    out: W,
    tell: &mut dyn FnMut(Progress),
) -> Result<Imported> {
    let (mut container, file) = source.open(tell)?;
    let mut survey = None;
    if let Some(file) = file {
        let modified = container.modified;
        survey = Some(Survey::of(&mut container, tell)?);
        container = Container::of_file(again(&file)?)?;
        container.modified = modified;
    }
    if survey.as_ref().is_some_and(|survey| survey.samples == 0) {
        let why = container
            .damage()
            .map_or_else(String::new, |d| format!(" ({d})"));
        bail!("it holds no samples{why}");
    }
    convert::convert(container, survey, out, tell)
}
