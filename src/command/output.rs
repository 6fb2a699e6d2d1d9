//! Where a report goes: standard output, or a file that is there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Read, StdoutLock, Write, stderr, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use indicatif::HumanBytes;

use super::kind::Kind;
use super::nameless::Nameless;
use crate::format::header;
use crate::report::text::escaped;

/// Bytes collected before they are written.
const BUFFER: usize = 1 << 16;

/// A place to write to. Opened before work starts, so that a bad path costs no waiting.
pub struct Output {
    sink: BufWriter<Sink>,
    kind: Kind,
}

enum Sink {
    Stdout(StdoutLock<'static>),
    /// A terminal, pipe or device that was named.
    Direct(File),
    File(Replacement),
}

/// A file that is to take the place of another one.
struct Replacement {
    new: Nameless,
    /// Its place, as it was named.
    shown: PathBuf,
}

impl Output {
    /// Standard output for `None` and `-`, else the file at `path`, in whose place something of that kind may be. `input` must
    /// not be that file.
    pub fn open(path: Option<&Path>, input: &Path, kind: Kind) -> anyhow::Result<Output> {
        let sink = match path {
            None => Sink::Stdout(stdout().lock()),
            Some(path) if path == Path::new("-") => Sink::Stdout(stdout().lock()),
            Some(path) => open_path(path, input, kind)?,
        };
        Ok(Output {
            sink: BufWriter::with_capacity(BUFFER, sink),
            kind,
        })
    }

    /// Writes what is left and puts the file in place. On a terminal that is said, and how to look at it.
    pub fn finish(mut self) -> io::Result<()> {
        self.sink.flush()?;
        match self.sink.get_mut() {
            Sink::Stdout(out) => out.flush(),
            Sink::Direct(file) => file.flush(),
            Sink::File(replacement) => {
                replacement.new.put_in_place()?;
                if stderr().is_terminal() {
                    let size = replacement.new.file.metadata()?.len();
                    let text = written(&replacement.shown, size, self.kind);
                    let _ = stderr().write_all(text.as_bytes());
                }
                Ok(())
            }
        }
    }
}

/// That a file was written, and what opens it.
fn written(path: &Path, size: u64, kind: Kind) -> String {
    let path = path.display().to_string();
    let path = escaped(&path);
    let opened = match kind {
        Kind::Report => String::new(),
        Kind::Svg | Kind::Page => "; open it in a browser".to_owned(),
        Kind::Pprof => format!("; open it with: go tool pprof -http : {path}"),
        Kind::Firefox => "; load it at https://profiler.firefox.com".to_owned(),
        Kind::Speedscope => "; load it at https://www.speedscope.app".to_owned(),
    };
    format!("wrote {path} ({}){opened}\n", HumanBytes(size))
}

/// Whether a file holds a capture, which a report must not replace.
fn is_capture(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
    read.is_ok() && header::is_capture(&start)
}

fn open_path(path: &Path, input: &Path, kind: Kind) -> anyhow::Result<Sink> {
    let shown = path.display();
    let existing = match fs::metadata(path) {
        Ok(meta) => Some(meta),
        Err(err) if err.kind() == io::ErrorKind::NotFound => None,
        Err(err) => return Err(err).with_context(|| format!("cannot write to {shown}")),
    };
    let target = match &existing {
        Some(meta) if meta.is_dir() => bail!("cannot write to {shown}: it is a directory"),
        Some(meta) if !meta.is_file() => {
            let file = OpenOptions::new().write(true).open(path);
            return Ok(Sink::Direct(
                file.with_context(|| format!("cannot write to {shown}"))?,
            ));
        }
        // A symbolic link stays one; what it leads to is replaced.
        Some(meta) => {
            if fs::metadata(input).is_ok_and(|m| same_file(&m, meta)) {
                bail!("cannot write to {shown}: it is the capture itself; give another name");
            }
            if is_capture(path) {
                bail!("cannot write to {shown}: it is a capture and left alone; give another name");
            }
            kind.check(path)?;
            // Replacing needs only the directory's permission, but a read-only file is not ours to replace.
            OpenOptions::new()
                .write(true)
                .open(path)
                .with_context(|| format!("cannot write to {shown}"))?;
            fs::canonicalize(path).with_context(|| format!("cannot write to {shown}"))?
        }
        None => path.to_path_buf(),
    };
    // As any new file's, less what the user's mask takes.
    let new = Nameless::create(&target, 0o666);
    let new = new.with_context(|| format!("cannot write to {shown}"))?;
    if let Some(meta) = existing {
        // As the file was; where that is refused the new file's own mode will do.
        let _ = new.file.set_permissions(meta.permissions());
    }
    Ok(Sink::File(Replacement {
        new,
        shown: path.to_path_buf(),
    }))
}

fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Stdout(out) => out.write(bytes),
            Sink::Direct(file) => file.write(bytes),
            Sink::File(replacement) => replacement.new.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Stdout(out) => out.flush(),
            Sink::Direct(file) => file.flush(),
            Sink::File(replacement) => replacement.new.file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) -> anyhow::Result<()> {
        let mut out = Output::open(Some(path), Path::new("none"), Kind::Report)?;
        out.write_all(text.as_bytes())?;
        Ok(out.finish()?)
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "a;old 1\n").unwrap();
        let mut out = Output::open(Some(&path), Path::new("none"), Kind::Report).unwrap();
        out.write_all(b"half").unwrap();
        drop(out);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a;old 1\n");
        write(&path, "a;new 2\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a;new 2\n");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("out", &link).unwrap();
        write(&link, "newer").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        let err = write(&link, "newest").unwrap_err().to_string();
        assert!(err.contains("link: it is there and no report"), "{err}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_file_is_written_to_and_the_capture_never() {
        write(Path::new("/dev/null"), "x").unwrap();
        assert!(write(Path::new("/dev/full"), "x").is_err());
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), "x").is_err());
        let capture = dir.path().join("run.bprof");
        fs::write(&capture, "capture").unwrap();
        let err = Output::open(Some(&capture), &capture, Kind::Report);
        let err = err.err().unwrap();
        assert!(err.to_string().contains("the capture itself"), "{err}");
        assert_eq!(fs::read_to_string(&capture).unwrap(), "capture");
    }
}
