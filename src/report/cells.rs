//! CSV, safe to open in a spreadsheet.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use super::text::escaped;

/// `text` as a cell, before it is quoted: as [`escaped`], and nothing that a spreadsheet takes for a formula, since it would
/// run what a name says. Such text has `'` before it, which is what spreadsheets themselves put there.
pub(super) fn cell(text: &str) -> Cow<'_, str> {
    match text.chars().find(|c| *c != ' ') {
        Some('=' | '+' | '-' | '@' | '\u{ff1d}' | '\u{ff0b}' | '\u{ff0d}' | '\u{ff20}') => {
            Cow::Owned(format!("'{}", escaped(text)))
        }
        _ => escaped(text),
    }
}

/// Records of cells, quoted as RFC 4180 says.
pub(super) struct Csv<W: Write> {
    writer: csv::Writer<W>,
}

impl<W: Write> Csv<W> {
    /// Writes the names of the columns.
    pub fn new(columns: &[&str], out: W) -> io::Result<Csv<W>> {
        let mut writer = csv::WriterBuilder::new()
            .has_headers(false)
            .from_writer(out);
        writer.write_record(columns).map_err(error)?;
        Ok(Csv { writer })
    }

    /// Writes a record, of which each text is a [`cell`].
    pub fn record(&mut self, record: impl Serialize) -> io::Result<()> {
        self.writer.serialize(record).map_err(error)
    }

    /// Writes what is left.
    pub fn finish(mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// With the kind it had: a pipe that was closed is no failure.
fn error(err: csv::Error) -> io::Error {
    match err.into_kind() {
        csv::ErrorKind::Io(err) => err,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for (text, expected) in [
            ("main", "main"),
            ("a-b=c", "a-b=c"),
            ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
            ("  +1", "'  +1"),
            ("-[NSView draw]", "'-[NSView draw]"),
            ("@plt", "'@plt"),
            ("\u{ff1d}1", "'\u{ff1d}1"),
            // As text it begins with a backslash.
            ("\t=1", "\\t=1"),
            ("\r\n", "\\r\\n"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }

    #[test]
    fn a_closed_pipe_is_told_as_one() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut csv = Csv::new(&["a"], Closed).unwrap();
        let failed = (0..100_000).find_map(|i| csv.record((i,)).err());
        assert_eq!(failed.unwrap().kind(), io::ErrorKind::BrokenPipe);
        assert!(csv.finish().is_err());
    }
}
