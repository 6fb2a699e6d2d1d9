//! Boxes to SVG.

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};

use crate::profile::About;
use crate::report::palette::{Kind, Labels, Rgb};
use crate::report::{text, verdict};

use super::boxes::Boxes;
use super::mark::write_marked;
use super::mend::{TALL, mended};

/// What comes before the boxes in what inferno writes.
const FRAMES: &[u8] = b"<svg id=\"frames\"";

/// What stands for processes that are not drawn, with the mark inferno leaves out.
const GAP: &str = "[too narrow to draw]_[w]";

/// Everything that is drawn.
pub(super) struct Picture<'a> {
    pub about: &'a About,
    pub boxes: &'a Boxes,
    /// What weights of boxes have to be multiplied with.
    pub scale: f64,
    /// Percent of the width below which boxes are left out, where that could be seen.
    pub least: Option<f64>,
    pub labels: &'a Labels,
    /// First boxes at the top.
    pub inverted: bool,
    /// What one group is.
    pub group: &'static str,
    /// What kind of picture it is.
    pub note: &'a str,
}

impl Picture<'_> {
    /// Writes the SVG.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.boxes.drawn().is_empty() {
            return self.empty(out);
        }
        let mut palette = PaletteMap::default();
        for drawn in self.boxes.drawn() {
            let [r, g, b] = self.labels.color(drawn.label);
            palette.insert(self.labels.marked(drawn.label), Color { r, g, b });
        }
        let [r, g, b] = Kind::Mark.middle();
        palette.insert("", Color { r, g, b });
        palette.insert(GAP, Color { r, g, b });
        let mut options = Options::default();
        options.palette_map = Some(&mut palette);
        options.bgcolors = Some(BackgroundColor::Grey);
        options.title = self.title();
        options.subtitle = Some(self.subtitle());
        options.count_name = "samples".to_owned();
        options.name_type = "".to_owned();
        options.factor = self.scale;
        // Narrow boxes are left out already.
        options.min_width = 0.0;
        // What a function is called stands at the beginning.
        options.text_truncate_direction = TextTruncateDirection::Right;
        if self.begins_at_top() {
            options.direction = Direction::Inverted;
        }
        // Lines are in order: as a flame chart they stay in it, last one first.
        options.flame_chart = true;
        let mut lines = self.boxes.lines(GAP, |label| self.labels.marked(label));
        lines.reverse();
        let mut svg = Vec::new();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
        let svg = mended(&svg);
        write_with_legend(&svg, &self.legend(), out)
    }

    /// Whether the first boxes are at the top: of deep stacks, of which there are few, one would else see only the background above them.
    fn begins_at_top(&self) -> bool {
        self.inverted || self.boxes.rows() > TALL
    }

    fn title(&self) -> String {
        let title = format!("{} on {}", self.about.target, self.about.host);
        text::escaped(&text::cut(&text::xml(&title), 200)).into_owned()
    }

    fn subtitle(&self) -> String {
        let about = self.about;
        let mut parts = Vec::new();
        if let Some((first, last)) = about.span {
            parts.push(verdict::wall_second(about, first));
            parts.push(format!("{:.1} s", last.since(first) as f64 / 1e9));
        }
        parts.push(verdict::shown(about));
        if about.lost > 0 {
            parts.push(format!("{} lost", about.lost));
        }
        if about.is_damaged() {
            parts.push("DAMAGED".to_owned());
        }
        if !self.note.is_empty() {
            parts.push(self.note.to_owned());
        }
        if self.begins_at_top() && !self.inverted {
            parts.push("deep: callers at the top".to_owned());
        }
        if let Some(percent) = self.least {
            parts.push(format!("frames below {percent:.2} % left out"));
        }
        parts.join(", ")
    }

    /// Colours of kinds that are not there too, so that nobody looks for them.
    fn legend(&self) -> String {
        let kinds = Kind::ALL.into_iter();
        let entries: Vec<_> = kinds
            .map(|kind| (css(kind.middle()), kind.label(self.group)))
            .collect();
        legend(&entries, 3)
    }

    fn empty(&self, out: &mut dyn Write) -> io::Result<()> {
        write_empty(&self.title(), "no samples", out)
    }
}

/// Squares of colours and what they stand for, left of the subtitle, so many in a row. Two rows end above the line that tells the name
/// of a box.
pub(in crate::report) fn legend(entries: &[(String, &str)], in_a_row: usize) -> String {
    let mut legend = String::from("<g id=\"legend\">");
    for (i, (color, label)) in entries.iter().enumerate() {
        let (x, y) = (10 + i % in_a_row * 62, 40 + i / in_a_row * 13);
        legend.push_str(&format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"9\" height=\"9\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{y}\"><tspan font-size=\"11\">{label}</tspan></text>",
            y - 8,
            x + 12,
        ));
    }
    legend.push_str("</g>");
    legend
}

/// Writes a picture of inferno's, marked and with a legend.
pub(in crate::report) fn write_with_legend(
    svg: &[u8],
    legend: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let at = memchr::memmem::find(svg, FRAMES).unwrap_or(svg.len());
    let (before, frames) = svg.split_at(at);
    write_marked(before, out)?;
    out.write_all(legend.as_bytes())?;
    out.write_all(frames)
}

/// A picture of nothing, which says so.
pub(in crate::report) fn write_empty(
    title: &str,
    why: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let svg = format!(
        "<?xml version=\"1.0\" standalone=\"no\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"80\" viewBox=\"0 0 1200 80\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#f8f8f8\"/>\n\
         <text x=\"600\" y=\"30\" text-anchor=\"middle\" font-family=\"monospace\" font-size=\"17\">{}</text>\n\
         <text x=\"600\" y=\"56\" text-anchor=\"middle\" font-family=\"monospace\" font-size=\"12\">{}</text>\n\
         </svg>\n",
        text::html(title),
        text::html(why)
    );
    write_marked(svg.as_bytes(), out)
}

fn css([r, g, b]: Rgb) -> String {
    format!("rgb({r},{g},{b})")
}
