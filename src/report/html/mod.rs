//! `--html OUT.html`: one page with the verdict, a heat map over time, a flame graph and a table of functions.
//!
//! ```text
//! samples, in order of time -> time    which cell of the heat map                      \
//!                           -> tree    of stacks, as other pictures of samples have it  -> counts -> pack -> page
//! ```
//!
//! The page needs nothing but itself: its policy lets no request out and no script run but its own. Names come as data, which is
//! only ever shown as text.

mod counts;
mod pack;
mod time;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use sha2::{Digest, Sha256};

use crate::counted::counted;
use crate::profile::{About, By, Names, Naming, SampleView};

use super::sample_tree::SampleTree;
use super::{text, verdict};

use counts::Counts;
use time::Cells;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// In the order in which they need each other.
const SCRIPTS: [&str; 4] = [
    include_str!("data.js"),
    include_str!("heat.js"),
    include_str!("flame.js"),
    include_str!("page.js"),
];

/// How a page of ours begins, and how those began that had no mark.
const STARTS: [&[u8]; 2] = [
    b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"generator\" content=\"profiler report\">\n",
    b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
      content=\"default-src 'none'; script-src 'sha256-",
];

/// Whether what begins like this is a page that this program has written.
pub fn is_ours(start: &[u8]) -> bool {
    STARTS.iter().any(|ours| start.starts_with(ours))
}

/// Characters of a target or host that a page has in its title.
const TITLE: usize = 300;

/// Collects samples.
#[derive(Debug, Default)]
pub struct Collector {
    tree: SampleTree,
    cells: Option<Cells>,
    counts: Counts,
    by: By,
}

impl Collector {
    /// For samples in such groups.
    pub fn by(by: By) -> Collector {
        Collector {
            by,
            ..Collector::default()
        }
    }

    /// Takes the next sample in.
    pub fn sample(&mut self, about: &About, names: &Names, sample: &SampleView<'_>) {
        let root = (self.by != By::None).then(|| self.tree.root(sample.group));
        let stack = self.tree.stack(root, names, sample);
        let cells = self
            .cells
            .get_or_insert_with(|| Cells::of(about.span, sample.time));
        self.counts
            .add(cells.of_time(sample.time), stack, sample.weight);
        if self.counts.is_full() {
            self.make_room();
        }
    }

    /// Makes the cells larger until their samples fit.
    fn make_room(&mut self) {
        self.counts.compact();
        while self.counts.is_large()
            && let Some(cells) = &mut self.cells
        {
            cells.double();
            self.counts.halve_cells();
        }
    }

    /// Writes the page.
    pub fn write(mut self, about: &About, naming: &Naming, out: &mut dyn Write) -> io::Result<()> {
        self.make_room();
        let cells = self.cells.unwrap_or_default();
        let script = SCRIPTS.concat();
        let title = |text: &str| text::html(&text::escaped(&text::cut(text, TITLE)));
        let lines = lines(about, naming);
        let mut rest = PAGE;
        while let Some((before, after)) = rest.split_once("{{") {
            out.write_all(before.as_bytes())?;
            let (place, after) = after.split_once("}}").unwrap_or((after, ""));
            rest = after;
            match place {
                "policy" => write!(
                    out,
                    "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
                    hash(&script),
                    hash(STYLE)
                )?,
                "style" => out.write_all(STYLE.as_bytes())?,
                "script" => out.write_all(script.as_bytes())?,
                "title" => write!(out, "{} on {}", title(&about.target), title(&about.host))?,
                "target" => out.write_all(title(&about.target).as_bytes())?,
                "host" => out.write_all(title(&about.host).as_bytes())?,
                "facts" => out.write_all(text::html(&facts(about)).as_bytes())?,
                "attention" if needs_attention(about, naming) => {
                    out.write_all(b" class=\"attention\"")?;
                }
                "outcome" => out.write_all(text::html(&outcome(about, naming)).as_bytes())?,
                "verdict" => {
                    for line in &lines {
                        write!(out, "<li>{}</li>", text::html(line))?;
                    }
                }
                "data" => {
                    let mut base64 = EncoderWriter::new(&mut *out, &STANDARD);
                    pack::write(&self.tree, self.by, &self.counts, &cells, &mut base64)?;
                    base64.finish()?;
                }
                _ => {}
            }
        }
        out.write_all(rest.as_bytes())
    }
}

/// All of the verdict.
fn lines(about: &About, naming: &Naming) -> Vec<String> {
    let mut lines = verdict::all(about, naming);
    lines.extend(verdict::warning(naming));
    lines
}

/// When, how long, how much.
fn facts(about: &About) -> String {
    let mut facts = Vec::new();
    if let Some((first, last)) = about.span {
        facts.push(verdict::wall_second(about, first));
        facts.push(verdict::seconds(last.since(first)));
    }
    facts.push(verdict::shown(about));
    facts.push(format!("{} lost", about.lost));
    if let Some(truncated) = about.truncated.filter(|n| *n > 0) {
        facts.push(format!("{truncated} with truncated stacks"));
    }
    let events = about.events.iter();
    facts.extend(events.map(|e| format!("{} at {}", text::escaped(&e.name), e.rate)));
    facts.join(", ")
}

/// The line that opens to all of the verdict: whether the capture is whole, and what of it is not.
fn outcome(about: &About, naming: &Naming) -> String {
    let mut parts = vec![verdict::completeness(about)];
    parts.extend(lacks(about, naming));
    parts.join("; ")
}

/// What a reader of the page is to know first, a clause each. How complete the capture is has a line of its own.
fn lacks(about: &About, naming: &Naming) -> Vec<String> {
    let mut lacks = Vec::new();
    if about.lost > 0 {
        lacks.push(format!("{} lost", counted(about.lost, "sample")));
    }
    if let Some(truncated) = about.truncated.filter(|n| *n > 0) {
        lacks.push(format!(
            "truncated stacks in {}",
            counted(truncated, "sample")
        ));
    }
    if !about.degraded.is_empty() {
        lacks.push("recording was degraded".to_owned());
    }
    if verdict::warning(naming).is_some()
        && let Some(percent) = naming.user_percent()
    {
        lacks.push(format!("only {percent:.1} % of the user frames have names"));
    }
    lacks
}

/// Whether what a page shows is not all there was.
fn needs_attention(about: &About, naming: &Naming) -> bool {
    about.is_damaged() || about.ended.is_none() || !lacks(about, naming).is_empty()
}

/// As a policy names a script or a style.
fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in the page is found by the browser where it ends.
    #[test]
    fn scripts_and_styles_do_not_end_themselves() {
        let script = SCRIPTS.concat();
        assert!(!script.to_lowercase().contains("</script") && !script.contains("<!--"));
        assert!(!STYLE.to_lowercase().contains("</style"));
        assert!(!script.contains("innerHTML") && !script.contains("http"));
    }

    /// The contrast of two colours `#rrggbb`, by the formula of WCAG 2.
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex: &str| {
            let channel = |at: usize| {
                let value = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
                match value <= 0.03928 {
                    true => value / 12.92,
                    false => ((value + 0.055) / 1.055).powf(2.4),
                }
            };
            0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
        };
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    /// By day and by night, text is readable, fields have edges, and a cell with a sample is not taken for an empty one.
    #[test]
    fn what_is_shown_can_be_seen() {
        let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").unwrap();
        for (scheme, css, heat) in [("light", light, 1.4), ("dark", dark, 2.2)] {
            let color = |name: &str| {
                let (_, rest) = css.split_once(&format!("--{name}: ")).unwrap();
                rest[..7].to_owned()
            };
            for (front, back, least) in [
                ("text", "back", 7.0),
                ("text", "field", 7.0),
                ("quiet", "back", 4.5),
                ("quiet", "field", 4.5),
                ("link", "back", 4.5),
                ("alarm", "back", 4.5),
                ("edge", "back", 3.0),
                ("edge", "field", 3.0),
            ] {
                let found = contrast(&color(front), &color(back));
                assert!(found >= least, "{scheme}: {front} on {back} {found:.2}");
            }
            let (_, stops) = SCRIPTS[1].split_once(&format!("{scheme}: [\"")).unwrap();
            let found = contrast(&stops[..7], &color("empty"));
            assert!(found >= heat, "{scheme}: one sample on none {found:.2}");
        }
    }

    /// What lacks is in one line, so that the graph is on the first screen.
    #[test]
    fn what_lacks_is_a_line_that_opens() {
        let page = |about: &About, naming: &Naming| {
            let mut out = Vec::new();
            Collector::default().write(about, naming, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let whole = About {
            ended: Some("the time asked for".into()),
            truncated: Some(0),
            ..About::default()
        };
        let good = page(&whole, &Naming::default());
        let summary = "<summary>capture: complete, ended by the time asked for</summary>";
        assert!(good.contains("<details id=\"verdict\">") && good.contains(summary));
        let lacking = About {
            lost: 3,
            truncated: Some(1),
            degraded: vec!["no kernel symbols".into()],
            ..whole
        };
        let naming = Naming {
            user_named: 1,
            user_total: 4,
            ..Naming::default()
        };
        let bad = page(&lacking, &naming);
        assert!(bad.contains("<details id=\"verdict\" class=\"attention\">"));
        assert!(bad.contains(
            "<summary>capture: complete, ended by the time asked for; 3 samples lost; truncated stacks in 1 sample; \
             recording was degraded; only 25.0 % of the user frames have names</summary>"
        ));
        assert!(page(&About::default(), &Naming::default()).contains(" class=\"attention\""));
    }

    #[test]
    fn a_page_without_samples_is_whole() {
        let about = About {
            target: "{{data}}<script>".into(),
            host: "\"'&\u{202e}".into(),
            ..About::default()
        };
        let mut out = Vec::new();
        Collector::default()
            .write(&about, &Naming::default(), &mut out)
            .unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(
            page.contains("<title>{{data}}&lt;script&gt; on &quot;&#39;&amp;\\u{202e}</title>"),
            "{}",
            &page[..1000]
        );
        assert_eq!(page.matches("<script").count(), 2);
    }
}
