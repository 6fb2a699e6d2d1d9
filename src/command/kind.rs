//! What kind of file an output is: it takes the place of one of its own kind, and of nothing else.
//!
//! Captures have a rule of their own: [`place`](crate::capture::place) keeps the one before.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, bail};
use flate2::read::GzDecoder;
use regex::bytes::Regex;

use crate::report::{diff, flamegraph, html, top, tree};

/// What a view writes into its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text of any view, for people and programs: it may take the place of another one's.
    Report,
    /// A picture of ours.
    Svg,
    /// A page of ours.
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
            Kind::Svg => "SVG of this program",
            Kind::Page => "HTML page of this program",
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
        // What can be run is a script, whatever it reads like.
        let is_script = || meta.permissions().mode() & 0o111 != 0 && is_folded(&start);
        if !self.begins(&start) || self == Kind::Report && is_script() {
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
            Kind::Svg => flamegraph::is_ours(start),
            Kind::Page => html::is_ours(start),
            // The first field is what is counted, of which the first is the name's number.
            Kind::Pprof => matches!(inflated(start)[..], [0x0a, _, 0x08, ..]),
            // Firefox has other categories, and speedscope another order.
            Kind::Firefox => inflated(start).starts_with(b"{\"meta\":{\"categories\":[{\"name\":\"Other\","),
            Kind::Speedscope => start.starts_with(
                b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"profiler ",
            ),
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

/// Whether a text begins as those of any view do.
fn is_report(start: &[u8]) -> bool {
    static HEAD: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let host = r"host: [^\n]*; recorded by [^\n]*\n";
        let json = r#""samples": \d+,\n  "(?:no_function|shares_of|damaged)": "#;
        let compared = r#""before": \{\n    "file": "#;
        Regex::new(&format!(
            r"\A(?:# {host}|# before: [^\n]*\n#   {host}|\{{\n  (?:{json}|{compared}))"
        ))
        .ok()
    });
    let csv = [&top::COLUMNS[..], &tree::COLUMNS, &diff::COLUMNS];
    let is_csv = csv
        .iter()
        .any(|columns| start.starts_with(format!("{}\n", columns.join(",")).as_bytes()));
    let is_headed = HEAD.as_ref().is_some_and(|head| head.is_match(start));
    is_headed || is_csv || is_folded(start) || is_perf_script(start)
}

/// Whether all lines are `frame;frame COUNT`, or with two counts, each stack once and in order, with more than one frame in some. Scripts
/// and tables can look like it: frames are as we write them, and lines sorted.
fn is_folded(start: &[u8]) -> bool {
    // The last line may be cut where the file goes on.
    let end = match start.len() < START {
        true => start.strip_suffix(b"\n"),
        false => memchr::memrchr(b'\n', start).and_then(|at| start.get(..at)),
    };
    let Some(lines) = end.and_then(|lines| std::str::from_utf8(lines).ok()) else {
        return false;
    };
    let without_count = |text| {
        let (rest, count): (&str, &str) = str::rsplit_once(text, ' ')?;
        let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        is_count.then_some(rest)
    };
    let mut stacks = Vec::new();
    for line in lines.split('\n') {
        let Some(stack) = without_count(line) else {
            return false;
        };
        let is_frame = |frame: &str| !frame.is_empty() && frame.trim() == frame;
        if !stack.split(';').all(is_frame) || stack.contains(char::is_control) {
            return false;
        }
        stacks.push((line, without_count(stack).unwrap_or(stack)));
    }
    // Comparisons have callers before their callees, the others are in the order of bytes.
    lines.contains(';')
        && (stacks.is_sorted_by(|(a, _), (b, _)| a < b)
            || stacks.is_sorted_by(|(_, a), (_, b)| a.split(';').lt(b.split(';'))))
}

fn is_perf_script(start: &[u8]) -> bool {
    static LINE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^[^\n]+ \d+/\d+ (?:\[\d{3,}\] )?\d+\.\d{6}: +\d+ [^\n]+: \n\t").ok()
    });
    LINE.as_ref().is_some_and(|line| line.is_match(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pictures and pages of other programs, also of inferno, are theirs.
    #[test]
    fn only_what_we_draw_is_our_picture() {
        let other = "<?xml version=\"1.0\"?>\n<!DOCTYPE svg PUBLIC \"a\">\n<svg version=\"1.1\"><g id=\"legend\">";
        assert!(!Kind::Svg.begins(other.as_bytes()));
        assert!(
            !Kind::Page
                .begins(b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
        );
        let mut graph = Vec::new();
        let nothing = crate::profile::Profile::default();
        flamegraph::write(&nothing, flamegraph::Form::Callees, &mut graph).unwrap();
        let mut page = Vec::new();
        html::Collector::default()
            .write(&nothing.about, &nothing.naming, &mut page)
            .unwrap();
        assert!(Kind::Svg.begins(&graph) && Kind::Page.begins(&page));
        assert!(!Kind::Svg.begins(&page) && !Kind::Page.begins(&graph));
    }

    #[test]
    fn what_begins_like_a_report_is_one() {
        let csv = format!("{}\n1,2", top::COLUMNS.join(","));
        let lines = (0..1000).map(|i| format!("{};f{i:04} 1\n", "a".repeat(100)));
        let long: String = lines.collect();
        for report in [
            "# host: web1, Linux, 2 CPUs; recorded by profiler 0.1.0\n",
            "# before: a.bprof\n#   host: web1, Linux, 2 CPUs; recorded by profiler 0.1.0\n",
            "{\n  \"samples\": 3,\n  \"no_function\": 0,",
            "{\n  \"samples\": 3,\n  \"damaged\": false,",
            "{\n  \"before\": {\n    \"file\": \"a\"",
            &csv,
            "main 4\nmain;f 3\n",
            "a;b 4 1\na;b;c 3 1\na;b c 3 1\n",
            "a b;f g 3 4\n",
            &long,
            "a b 7/8 [003] 1.000001:          1 cpu-clock: \n\tffff f+0x1 (x)\n",
            "a b 7/8 1.000001:          1 cpu-clock: \n\tffff f+0x1 (x)\n",
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
            "{\n  \"samples\": 3,\n  \"rate\": 44100",
            "{\n  \"before\": 3",
            "self,total\n1,2\n",
            "# A title\n",
            "# host: web1\nserver: x\n",
            "int main(void) { return 0; }\n",
            // Scripts and tables.
            "cd /tmp; sleep 10\n",
            "a=1;; b 2\n",
            "sync;sleep 3\necho;sleep 1\n",
            "\ta;b 1\n",
            "a;b 1\na;b 1\n",
            "a;b 1",
        ] {
            assert!(!is_report(other.as_bytes()), "{other}");
        }
    }

    /// One line of shell can be a folded stack to the letter: what can be run is left alone.
    #[test]
    fn what_can_be_run_is_no_report() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "make;sleep 10\n").unwrap();
        let with_mode = |mode| {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            Kind::Report.check(file.path())
        };
        with_mode(0o644).unwrap();
        let refused = with_mode(0o755).unwrap_err().to_string();
        assert!(refused.contains("it is there and no report"), "{refused}");
    }

    #[test]
    fn what_is_compressed_is_looked_into() {
        use std::io::Write;
        let gzip = |bytes: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            gzip.write_all(bytes).unwrap();
            gzip.finish().unwrap()
        };
        let (pprof, firefox) = (
            [0x0a, 4, 8, 1, 16, 2],
            b"{\"meta\":{\"categories\":[{\"name\":\"Other\",\"color\":",
        );
        assert!(Kind::Pprof.begins(&gzip(&pprof)) && Kind::Firefox.begins(&gzip(firefox)));
        for other in [
            &b"busybox/"[..],
            b"",
            b"{\"meta\":{\"categories\":[{\"name\":\"Idle\",",
        ] {
            for kind in [Kind::Pprof, Kind::Firefox] {
                assert!(!kind.begins(&gzip(other)) && !kind.begins(other));
            }
        }
        assert!(!Kind::Pprof.begins(&pprof) && !Kind::Firefox.begins(&gzip(&pprof)));
        let ours = b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"profiler 0.1.0\"";
        assert!(Kind::Speedscope.begins(ours));
        assert!(!Kind::Speedscope.begins(b"{\"name\":\"package\"}"));
        let theirs = b"{\"exporter\":\"speedscope@1.20\",\"$schema\":\"https://www.speedscope.app/file-format-schema.json\"";
        assert!(!Kind::Speedscope.begins(theirs));
    }
}
