//! The capture a command reads: FILE, standard input, or that which `record` writes where it is told no name.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, stdin};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::tell;
use crate::capture::Reader;
use crate::cli::CAPTURE;
use crate::format::header;

/// Standard input as FILE.
const STDIN: &str = "-";
/// How a `perf.data` begins, a file or a stream.
const PERF: &[u8] = b"PERFILE2";

/// What a command reads: what was named. Without a name it is a capture that standard input was redirected from, `< FILE`, else
/// the capture of the usual name.
pub fn capture(named: &Option<PathBuf>) -> &Path {
    match named {
        Some(path) => path,
        None if is_redirected() => Path::new(STDIN),
        None => Path::new(CAPTURE),
    }
}

/// Whether this stands for standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// What messages call it.
pub fn shown(path: &Path) -> impl Display + '_ {
    match is_stdin(path) {
        true => Path::new("standard input").display(),
        false => path.display(),
    }
}

/// The capture at `path`, or on standard input for `-`.
pub fn open(path: &Path) -> anyhow::Result<Reader> {
    if is_stdin(path) {
        return Ok(open_stdin()?.0);
    }
    Reader::open(path)
        .map_err(|err| hint(err.into(), is_of_perf(path)))
        .with_context(|| path.display().to_string())
}

/// The capture on standard input, and the file that has its bytes: what a pipe gives is kept in one without a name.
pub fn open_stdin() -> anyhow::Result<(Reader, File)> {
    if stdin().is_terminal() {
        bail!("standard input is a terminal; pipe a capture into it");
    }
    let file = match redirected() {
        Some(file) => file,
        None => kept()?,
    };
    let is_perf = begins(&file, |start| start.starts_with(PERF));
    let reader = file.try_clone().map_err(anyhow::Error::from);
    let reader = reader.and_then(|file| Ok(Reader::from_file(file)?));
    let reader = reader.map_err(|err| hint(err, is_perf));
    Ok((reader.context("standard input")?, file))
}

/// The capture of a command's FILE. Where none was named it is said what is read.
pub fn open_named(file: &Option<PathBuf>, command: &str) -> anyhow::Result<Reader> {
    let path = capture(file);
    let reader = open(path).map_err(|err| unnamed(err, file, command))?;
    tell_unnamed(file, path);
    Ok(reader)
}

/// Says what is read where nothing was named.
pub fn tell_unnamed(file: &Option<PathBuf>, path: &Path) {
    if file.is_some() {
        return;
    }
    let piped = stdin_type().is_some_and(|kind| kind.is_fifo());
    let note = match is_stdin(path) || !piped {
        true => "",
        false => ", not standard input: FILE would be `-` for that",
    };
    tell(&format!("reading {}{note}", shown(path)));
}

/// Says what to name where nothing was.
pub fn unnamed(err: anyhow::Error, file: &Option<PathBuf>, command: &str) -> anyhow::Error {
    match file {
        None if !is_stdin(capture(file)) => err.context(format!(
            "no capture was named, and {CAPTURE} is what is taken then: profiler {command} FILE (`-` is standard input)"
        )),
        _ => err,
    }
}

fn stdin_type() -> Option<std::fs::FileType> {
    let file = File::from(stdin().as_fd().try_clone_to_owned().ok()?);
    Some(file.metadata().ok()?.file_type())
}

/// The regular file that standard input is, from its first byte on.
fn redirected() -> Option<File> {
    let mut file = File::from(stdin().as_fd().try_clone_to_owned().ok()?);
    let is_whole = file.metadata().ok()?.is_file() && file.stream_position().ok()? == 0;
    is_whole.then_some(file)
}

/// Whether standard input is a regular file that begins as a capture does, or as what perf has recorded, which is said then.
fn is_redirected() -> bool {
    let known = |start: &[u8]| header::is_capture(start) || start.starts_with(PERF);
    redirected().is_some_and(|file| begins(&file, known))
}

fn begins(file: &File, is: impl Fn(&[u8]) -> bool) -> bool {
    let mut start = [0; 64];
    let length = file.read_at(&mut start, 0).unwrap_or(0);
    is(start.get(..length).unwrap_or_default())
}

/// All that standard input gives, in a file without a name; in memory where no directory takes one.
fn kept() -> anyhow::Result<File> {
    let in_memory = || {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        rustix::fs::memfd_create("standard input", flags).map(File::from)
    };
    let mut file = tempfile::tempfile()
        .or_else(|_| Ok(in_memory()?))
        .map_err(|err: io::Error| anyhow::Error::new(err).context(NOT_KEPT))?;
    let mut from = stdin().lock();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(err).context("cannot read standard input"),
        };
        let bytes = buffer.get(..length).unwrap_or_default();
        io::Write::write_all(&mut file, bytes).context(NOT_KEPT)?;
    }
    file.rewind().context(NOT_KEPT)?;
    Ok(file)
}

const NOT_KEPT: &str = "what standard input gives cannot be kept in a temporary file (TMPDIR names the directory for it; or save the capture and \
                        name its file)";

fn is_of_perf(path: &Path) -> bool {
    // A FIFO would be waited for.
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    is_file && File::open(path).is_ok_and(|file| begins(&file, |start| start.starts_with(PERF)))
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
