//! What kind of file an output is: it takes the place of one of its own kind, and of nothing else.
//!
//! Captures have a rule of their own: [`place`](crate::capture::place) keeps the one before.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, bail};
use flate2::read::GzDecoder;
use regex::bytes::Regex;

use crate::report::{diff, html, top, tree};

/// What a view writes into its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text of any view, for people and programs: it may take the place of another one's.
    Report,
    /// A picture.
    Svg,
    /// A page.
    Page,
    /// Compressed, for pprof.
    Pprof,
    /// Compressed, for the Firefox Profiler.
    Firefox,
    /// For speedscope.
    Speedscope,
}

/// Bytes of a file that tell what it is; a folded stack can be long.
const START: usize = 1 << 16;
/// Bytes that are inflated of what is compressed.
const INFLATED: u64 = 64;

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Kind::Report => "report",
            Kind::Svg => "SVG",
            Kind::Page => "HTML page",
            Kind::Pprof => "profile for pprof",
            Kind::Firefox => "profile for the Firefox Profiler",
            Kind::Speedscope => "profile for speedscope",
        }
    }

    /// Fails when there is something else at `path`: names of captures, sources and pictures are easily swapped. What is empty,
    /// as mktemp leaves it, and what is no file is nothing that could be spoilt.
    pub fn check(self, path: &Path) -> anyhow::Result<()> {
        let Ok(meta) = fs::metadata(path) else {
            return Ok(());
        };
        if !meta.is_file() || meta.len() == 0 {
            return Ok(());
        }
        let mut start = Vec::new();
        File::open(path)
            .and_then(|file| file.take(START as u64).read_to_end(&mut start))
            .with_context(|| format!("cannot write to {}", path.display()))?;
        if !self.begins(&start) {
            bail!(
                "cannot write to {}: it is there and no {}; remove it, or give another name",
                path.display(),
                self.label()
            );
        }
        Ok(())
    }

    /// Whether a file that begins like this is of the kind.
    fn begins(self, start: &[u8]) -> bool {
        match self {
            Kind::Report => is_report(start),
            Kind::Svg => is_svg(start),
            Kind::Page => {
                start.len() >= html::START.len() && {
                    let (start, _) = start.split_at(html::START.len());
                    start.eq_ignore_ascii_case(html::START)
                }
            }
            // The first field is what is counted, of which the first is the name's number.
            Kind::Pprof => matches!(inflated(start)[..], [0x0a, _, 0x08, ..]),
            Kind::Firefox => inflated(start).starts_with(b"{\"meta\":"),
            Kind::Speedscope => {
                let schema = b"\"https://www.speedscope.app/file-format-schema.json\"";
                let start = start.get(..start.len().min(256)).unwrap_or_default();
                start.starts_with(b"{") && memchr::memmem::find(start, schema).is_some()
            }
        }
    }
}

/// The beginning of what gzip has made `start` of; nothing where it has not.
fn inflated(start: &[u8]) -> Vec<u8> {
    let mut inflated = Vec::new();
    // What could be read before an error is in it.
    let _ = GzDecoder::new(start)
        .take(INFLATED)
        .read_to_end(&mut inflated);
    inflated
}

/// Whether the first element is `svg`, after declarations and comments.
fn is_svg(start: &[u8]) -> bool {
    static SVG: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let before = r"(?:\s|<\?(?s:.)*?\?>|<!--(?s:.)*?-->|<![^>]*>)*";
        Regex::new(&format!(r"^\u{{feff}}?{before}<svg[\s>]")).ok()
    });
    SVG.as_ref().is_some_and(|svg| svg.is_match(start))
}

/// Whether a text begins as those of any view do.
fn is_report(start: &[u8]) -> bool {
    let begins = |what: &str| start.starts_with(what.as_bytes());
    let csv = [&top::COLUMNS[..], &tree::COLUMNS, &diff::COLUMNS];
    let verdict = begins("# host: ") || begins("# before: ");
    let json = begins("{\n  \"samples\": ") || begins("{\n  \"before\": ");
    let csv = csv
        .iter()
        .any(|columns| begins(&format!("{}\n", columns.join(","))));
    verdict || json || csv || is_folded(start) || is_perf_script(start)
}

/// Whether all lines are `frame;frame COUNT`, or with two counts, with more than one frame in some.
fn is_folded(start: &[u8]) -> bool {
    // The last line may be cut.
    let end = match start.len() < START {
        true => start.len(),
        false => memchr::memrchr(b'\n', start).unwrap_or(0),
    };
    let lines = start.get(..end).unwrap_or_default();
    let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
    let is_counted = |line: &[u8]| {
        let count = memchr::memrchr(b' ', line).and_then(|at| line.get(at + 1..));
        count.is_some_and(|count| !count.is_empty() && count.iter().all(u8::is_ascii_digit))
    };
    memchr::memchr(b';', lines).is_some() && lines.split(|byte| *byte == b'\n').all(is_counted)
}

fn is_perf_script(start: &[u8]) -> bool {
    static LINE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[^\n]+ \d+/\d+ \[\d{3,}\] \d+\.\d{6}: +\d+ [^\n]+: \n\t").ok()
    });
    LINE.as_ref().is_some_and(|line| line.is_match(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_a_picture_is_one() {
        for svg in [
            "<svg xmlns=\"x\">",
            "<?xml version=\"1.0\"?>\n<!DOCTYPE svg PUBLIC \"a\">\n<!-- a > b -->\n<svg version=\"1.1\">",
            "\u{feff} <svg>",
        ] {
            assert!(Kind::Svg.begins(svg.as_bytes()), "{svg}");
        }
        for other in [
            "int main(void) { return 0; } // <svg >",
            "<html><body><svg ></svg>",
            "<!-- <svg > -->",
            "<svgx >",
            "<?xml version=\"1.0\"?><project><svg />",
        ] {
            assert!(!Kind::Svg.begins(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_begins_like_a_report_is_one() {
        let csv = format!("{}\n1,2", top::COLUMNS.join(","));
        let long = format!("{};f 1\n", "a".repeat(100)).repeat(1000);
        for report in [
            "# host: web1, Linux\n",
            "# before: a.bprof\n",
            "{\n  \"samples\": 3,",
            &csv,
            "main;f 3\nmain 4\n",
            "a b;f g 3 4\n",
            &long,
            "a b 7/8 [003] 1.000001:          1 cpu-clock: \n\tffff f+0x1 (x)\n",
        ] {
            assert!(is_report(report.as_bytes()), "{report}");
        }
        for other in [
            "hello\n",
            "root:x:0:0:root:/root:/bin/bash\n",
            "a;b\n",
            "x 1\ny 2\n",
            "a;b 1\n\nc;d 2\n",
            "{\"samples\": 3}",
            "self,total\n1,2\n",
            "# A title\n",
            "int main(void) { return 0; }\n",
        ] {
            assert!(!is_report(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_is_compressed_is_looked_into() {
        use std::io::Write;
        let gzip = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        };
        let (pprof, firefox) = ([0x0a, 4, 8, 1, 16, 2], b"{\"meta\":{\"a\":1}}");
        assert!(Kind::Pprof.begins(&gzip(&pprof)) && Kind::Firefox.begins(&gzip(firefox)));
        for other in [&b"busybox/"[..], b"", b"{\"me\":1}"] {
            for kind in [Kind::Pprof, Kind::Firefox] {
                assert!(!kind.begins(&gzip(other)) && !kind.begins(other));
            }
        }
        assert!(!Kind::Pprof.begins(&pprof) && !Kind::Firefox.begins(&gzip(&pprof)));
        let ours = b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",";
        assert!(Kind::Speedscope.begins(ours));
        assert!(!Kind::Speedscope.begins(b"{\"name\":\"package\"}"));
    }
}
