//! The differential flame graph, which inferno draws of lines with two counts.

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::changes::Shares;
use super::stacks::{Scale, Tree};
use super::{Joined, Side};
use crate::report::flamegraph::{TALL, mended, write_empty, write_marked};
use crate::report::layout::{cut_start, share};
use crate::report::text;

/// What both counts are scaled to for the picture where AFTER has more: differences of colour are products of them.
const MOST_COUNTS: u64 = 1 << 40;
/// What is the same has this colour in what inferno draws, which hardly shows before its background.
const WHITE: Color = Color {
    r: 250,
    g: 250,
    b: 250,
};
const WHITE_FILL: &[u8] = b"fill=\"rgb(250,250,250)\"";
/// And this one in the picture.
const GREY_FILL: &[u8] = b"fill=\"rgb(218,218,218)\"";
/// Columns of each path in the title.
const TITLE_PATH: usize = 45;
/// Frames that are drawn at most, about.
const MOST_FRAMES: usize = 1 << 15;

/// Draws the graph: as wide as AFTER, red where a frame's own share grew, blue where it shrank, grey where that may well be chance.
pub fn flamegraph(joined: &Joined, out: &mut dyn Write) -> io::Result<()> {
    let mut options = flamegraph::Options::default();
    let tree = Tree::new(joined);
    let mut left_out = String::new();
    let Lines {
        lines, mut grey, ..
    } = loop {
        // Half of what inferno leaves out: nothing depends on how it rounds.
        let lines = lines(joined, &tree, options.min_width / 100.0 / 2.0)?;
        if lines.lines.len() <= MOST_FRAMES {
            break lines;
        }
        options.min_width *= 2.0;
        left_out = format!("; frames below {:.2} % left out", options.min_width);
    };
    let (before, after) = (&joined.before.0, &joined.after.0);
    let name = |side: &Side| {
        let path = text::folded(&side.path.to_string_lossy()).into_owned();
        text::xml(&cut_start(&path, TITLE_PATH)).into_owned()
    };
    options.title = format!("{} compared with {}", name(after), name(before));
    if after.weight == 0 {
        return write_empty(&options.title, "no samples after", out);
    }
    let rows = lines.iter().map(|line| line.split(';').count()).max();
    if rows.is_some_and(|rows| rows > TALL) {
        options.direction = Direction::Inverted;
        left_out.push_str("; deep: callers at the top");
    }
    options.subtitle = Some(format!(
        "width: samples after; in the frame itself: red more, blue less, grey the same or by chance; {:.1} % of before is gone, not \
         drawn{left_out}",
        percent_gone(joined)
    ));
    options.bgcolors = Some(BackgroundColor::Grey);
    options.palette_map = Some(&mut grey);
    options.count_name = "samples".to_owned();
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Keeps the lines in their order, last one first. Each frame's lines follow each other already, which the order of bytes
    // would not keep: of `f;x`, `f g;x` and `f 1 2` it has the second between the others.
    options.flame_chart = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(
        &mut options,
        lines.iter().rev().map(String::as_str),
        &mut svg,
    )?;
    write_marked(&with_grey(&mended(&svg)), out)
}

/// A picture in which what is the same can be seen. Names have no quotes in it.
fn with_grey(svg: &[u8]) -> Vec<u8> {
    let mut grey = Vec::new();
    let mut from = 0;
    for at in memchr::memmem::find_iter(svg, WHITE_FILL) {
        grey.extend_from_slice(svg.get(from..at).unwrap_or_default());
        grey.extend_from_slice(GREY_FILL);
        from = at + WHITE_FILL.len();
    }
    grey.extend_from_slice(svg.get(from..).unwrap_or_default());
    grey
}

/// What inferno is given.
struct Lines {
    lines: Vec<String>,
    /// The frames that begin with a line of one count, which inferno would colour by their names.
    grey: PaletteMap,
}

/// The lines of a picture. Of a stack whose change may well be chance there is only the count of AFTER, so that no change is
/// drawn or told.
fn lines(joined: &Joined, tree: &Tree, least: f64) -> io::Result<Lines> {
    let (before, after) = (&joined.before.0, &joined.after.0);
    let mut scale = Scale::new(joined, after.weight.clamp(1, MOST_COUNTS));
    let (mut lines, mut grey) = (Vec::new(), PaletteMap::default());
    grey.insert("", WHITE);
    tree.for_each_line(least, &mut |line, counts| {
        let shares = Shares::new(
            (counts[0], before.weight),
            (counts[1], after.weight),
            (before.samples, after.samples),
        );
        let [before, after] = scale.next(counts);
        let mut line = text::xml(line).into_owned();
        if line.starts_with("# ") {
            // inferno takes it for a comment; a blank that does not break is none to it.
            line.replace_range(1..2, "\u{a0}");
        }
        if shares.may_be_chance() {
            // A name that ends in a number has no second count.
            if let Some((name, number)) = line.rsplit_once(' ')
                && number.starts_with(|c: char| c.is_ascii_digit())
            {
                line = format!("{name}\u{a0}{number}");
            }
            for frame in line.split(';') {
                grey.insert(frame, WHITE);
                grey.insert(frame.trim(), WHITE);
            }
            lines.push(format!("{line} {after}"));
        } else {
            lines.push(format!("{line} {before} {after}"));
        }
        Ok(())
    })?;
    Ok(Lines { lines, grey })
}

/// Share of BEFORE in stacks that AFTER has not at all, in percent.
fn percent_gone(joined: &Joined) -> f64 {
    let mut gone = 0u64;
    // Writes nothing, so it does not fail.
    let _ = Tree::new(joined).for_each_line(0.0, &mut |_, [before, after]| {
        if after == 0 {
            gone = gone.saturating_add(before);
        }
        Ok(())
    });
    share(gone, joined.before.0.weight) * 100.0
}

#[cfg(test)]
mod tests {
    use super::super::tests::{joined, joined_of};
    use super::*;
    use crate::report::text::tests_support::Builder;

    fn text(joined: &Joined) -> String {
        let mut out = Vec::new();
        flamegraph(joined, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_graph_is_red_where_it_grew_and_blue_where_it_shrank() {
        let svg = text(&joined());
        assert!(svg.contains("hot (150 samples, 75.00%; +25.00%)"), "{svg}");
        assert!(
            svg.contains("<title>cold (50 samples, 25.00%)</title>"),
            "{svg}"
        );
        assert!(svg.contains("rgb(255,100,100)"), "{svg}");
        assert!(svg.contains("20.0 % of before is gone, not drawn"), "{svg}");
        let mut b = [Builder::default(), Builder::default()];
        for (b, weights) in b.iter_mut().zip([[500, 500], [800, 200]]) {
            let p = b.process("app", 7);
            b.row(p, &["up"], weights[0]);
            b.row(p, &["down 7"], weights[1]);
        }
        let [before, after] = b.map(|b| b.profile);
        let svg = text(&joined_of(&before, &after));
        for (title, color) in [
            ("up (800 samples, 80.00%; +30.00%)", "rgb(255,100,100)"),
            ("down 7 (200 samples, 20.00%; -30.00%)", "rgb(100,100,255)"),
        ] {
            assert!(fill(&svg, title).starts_with(color), "{svg}");
        }
    }

    /// How the box of this title is filled.
    fn fill<'s>(svg: &'s str, title: &str) -> &'s str {
        let (_, rest) = svg.split_once(&format!("<title>{title}</title>")).unwrap();
        rest.split_once("fill=\"").unwrap().1
    }

    #[test]
    fn what_may_be_chance_is_grey_and_has_no_change() {
        let svg = text(&joined());
        let cold = fill(&svg, "cold (50 samples, 25.00%)");
        assert!(cold.starts_with("rgb(218,218,218)"), "{svg}");
        let svg = text(&before_twice());
        let (_, frames) = svg.split_once("<svg id=\"frames\"").unwrap();
        assert_eq!(frames.matches("<rect").count(), 6);
        assert_eq!(frames.matches("fill=\"rgb(218,218,218)\"").count(), 6);
        assert_eq!(frames.matches("%; ").count(), 0);
        // A number at the end of a name is no count.
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["worker 3"], 10);
        let svg = text(&joined_of(&b.profile, &b.profile));
        fill(&svg, "worker\u{a0}3 (10 samples, 100.00%)");
    }

    fn before_twice() -> Joined {
        let joined = joined();
        Joined {
            after: joined.before.clone(),
            ..joined
        }
    }

    /// Where the order of bytes would part what is below one frame.
    #[test]
    fn names_that_begin_alike_are_no_problem() {
        let mut b = Builder::default();
        let p = b.process("# a", 1);
        for stack in [&["f"][..], &["f g"], &["f", "x"], &["f g", "x"], &["f\0<&"]] {
            b.row(p, stack, 10);
        }
        let svg = text(&joined_of(&b.profile, &b.profile));
        assert_eq!(svg.matches("<title>f (").count(), 1, "{svg}");
        assert!(svg.contains("f\u{fffd}&lt;&amp; ("), "{svg}");
        assert!(svg.contains("#\u{a0}a (50 samples, "), "{svg}");
    }

    #[test]
    fn no_samples_after_still_give_a_picture() {
        let nothing = Builder::default().profile;
        let svg = text(&joined_of(&super::super::tests::before(), &nothing));
        assert!(
            svg.contains("<svg") && svg.contains(">no samples after<"),
            "{svg}"
        );
    }
}
