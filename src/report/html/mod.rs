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

/// How every page begins.
pub const START: &[u8] = b"<!doctype html>";

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
                "open" if needs_attention(about) => out.write_all(b" open")?,
                "outcome" => out.write_all(text::html(&verdict::completeness(about)).as_bytes())?,
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
    let events = about.events.iter();
    facts.extend(events.map(|e| format!("{} at {}", text::escaped(&e.name), e.rate)));
    facts.join(", ")
}

/// Whether what a page shows is not all there was.
fn needs_attention(about: &About) -> bool {
    about.is_damaged() || about.ended.is_none() || about.lost > 0 || !about.degraded.is_empty()
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
