//! The differential flame graph, which inferno draws of lines with two counts.

use std::io::{self, Write};

use hashbrown::HashMap;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::changes::{Shares, changes};
use super::stacks::{Line, Scale, Tree};
use super::{Joined, Side};
use crate::report::flamegraph::{
    Place, TALL, legend, mended, refilled, write_empty, write_with_legend,
};
use crate::report::layout::{cut_start, share};
use crate::report::text;
use crate::report::top::Sort;

/// What both counts are scaled to for the picture where AFTER has more: differences of colour are products of them.
const MOST_COUNTS: u64 = 1 << 40;
/// What is the same has this colour in what inferno draws, which hardly shows before its background.
const WHITE: Color = Color {
    r: 250,
    g: 250,
    b: 250,
};
const WHITE_FILL: &[u8] = b"rgb(250,250,250)";
/// And this one in the picture.
const GREY_FILL: &str = "rgb(218,218,218)";
/// What is less than full of red and blue in the greatest change, and in one that is next to none.
const STRONG: f64 = 100.0;
const FAINT: f64 = 208.0;
/// Columns of each path in the title.
const TITLE_PATH: usize = 45;
/// Frames that are drawn at most, about.
const MOST_FRAMES: usize = 1 << 15;

/// Draws the graph: as wide as AFTER, red where a function's own share grew, blue where it shrank, grey where that may well be chance.
pub fn flamegraph(joined: &Joined, out: &mut dyn Write) -> io::Result<()> {
    let mut options = flamegraph::Options::default();
    let tree = Tree::new(joined);
    let judge = Judge::new(joined, &tree);
    let mut left_out = String::new();
    let Lines {
        lines,
        mut grey,
        changed,
    } = loop {
        // Half of what inferno leaves out: nothing depends on how it rounds.
        let lines = lines(joined, &tree, &judge, options.min_width / 100.0 / 2.0)?;
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
    let inverted = rows.is_some_and(|rows| rows > TALL);
    if inverted {
        options.direction = Direction::Inverted;
        left_out.push_str("; deep: callers at the top");
    }
    options.subtitle = Some(format!(
        "width: samples after; colour: change of self time; {:.1} % of before is gone{left_out}",
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
    let legend = legend(
        &[
            (shade(1.0), "more"),
            (shade(-1.0), "less"),
            (GREY_FILL.to_owned(), "same or chance"),
        ],
        2,
    );
    let svg = coloured(&mended(&svg), &changed, inverted);
    write_with_legend(&svg, &legend, out)
}

/// What is beyond chance: of functions all over their stacks, as the tables tell it, and of a function in one place.
struct Judge<'j> {
    joined: &'j Joined,
    /// By the number of its text, the growth and the shrinkage of self time that all functions have which read so.
    functions: HashMap<u32, [f64; 2]>,
}

impl<'j> Judge<'j> {
    fn new(joined: &'j Joined, tree: &Tree) -> Judge<'j> {
        // Of each function with time of its own: its change, 0 where that may be chance.
        let own: HashMap<_, f64> = changes(joined, Sort::Own)
            .into_iter()
            .filter(|change| change.before.own > 0 || change.after.own > 0)
            .map(|change| match change.own.may_be_chance() {
                true => (change.function, 0.0),
                false => (change.function, change.own.change()),
            })
            .collect();
        let mut functions: HashMap<u32, [f64; 2]> = HashMap::new();
        for (frame, text) in joined.names.frames().iter().zip(&tree.frames) {
            let Some(change) = own.get(&(frame.name, frame.module)) else {
                continue;
            };
            // Of modules that have a function of that name each, what all grew by at least, and shrank by.
            let (up, down) = (change.max(0.0), change.min(0.0));
            let [grown, shrunk] = functions.entry(*text).or_insert([up, down]);
            (*grown, *shrunk) = (grown.min(up), shrunk.max(down));
        }
        Judge { joined, functions }
    }

    /// The change that the leaf of a line has part in: that of its function, or, where that goes the other way or may be
    /// chance, its own in this place. `None` where that may be chance too.
    fn change(&self, line: &Line<'_>) -> Option<f64> {
        let (before, after) = (&self.joined.before.0, &self.joined.after.0);
        let here = Shares::new(
            (line.own[0], before.weight),
            (line.own[1], after.weight),
            (before.samples, after.samples),
        );
        let [grown, shrunk] = self.functions.get(&line.leaf).copied().unwrap_or_default();
        let of_function = match here.change() {
            change if change > 0.0 => grown,
            change if change < 0.0 => shrunk,
            _ => 0.0,
        };
        match of_function {
            0.0 => (!here.may_be_chance()).then(|| here.change()),
            change => Some(change),
        }
    }
}

/// The picture with the colours of changes, which inferno has only of a box by itself, and a grey that can be seen. Names have no
/// quotes in it.
fn coloured(svg: &[u8], changed: &HashMap<Place, f64>, top_first: bool) -> Vec<u8> {
    // Of boxes that begin with one that has changed.
    const UNCHANGED: &[u8] = b"; 0.00%)</title>";
    let mut told = Vec::with_capacity(svg.len());
    let mut from = 0;
    for at in memchr::memmem::find_iter(svg, UNCHANGED) {
        told.extend_from_slice(svg.get(from..at).unwrap_or_default());
        from = at + UNCHANGED.len() - b")</title>".len();
    }
    told.extend_from_slice(svg.get(from..).unwrap_or_default());
    let changes = changed.values();
    let most = changes.fold(0.0, |most: f64, change| most.max(change.abs()));
    refilled(&told, top_first, |place, fill| match changed.get(&place) {
        Some(change) if fill != WHITE_FILL => Some(shade(change / most)),
        _ => Some(GREY_FILL.to_owned()),
    })
}

/// The colour of a change, from -1 to 1.
fn shade(change: f64) -> String {
    let rest = (FAINT + (STRONG - FAINT) * change.abs()) as u8;
    match change > 0.0 {
        true => format!("rgb(255,{rest},{rest})"),
        false => format!("rgb({rest},{rest},255)"),
    }
}

/// A stack none of whose names means something to inferno: `# ` at its beginning would be a comment, a number at the end of a name
/// a count. A blank that does not break is neither.
fn without_counts(stack: &str) -> String {
    let frames = stack.split(';').map(|frame| match frame.rsplit_once(' ') {
        Some((name, number)) if number.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{name}\u{a0}{number}")
        }
        _ => frame.to_owned(),
    });
    let mut stack = frames.collect::<Vec<_>>().join(";");
    if stack.starts_with("# ") {
        stack.replace_range(1..2, "\u{a0}");
    }
    stack
}

/// What inferno is given.
struct Lines {
    lines: Vec<String>,
    /// The frames that begin with a line of one count, which inferno would colour by their names.
    grey: PaletteMap,
    /// What the others have changed by.
    changed: HashMap<Place, f64>,
}

/// The lines of a picture. Of a stack whose change may well be chance there is only the count of AFTER, so that no change is
/// drawn or told; so it is of what is too small to be drawn, which is no change of its caller's.
fn lines(joined: &Joined, tree: &Tree, judge: &Judge<'_>, least: f64) -> io::Result<Lines> {
    let after = &joined.after.0;
    let mut scale = Scale::new(joined, after.weight.clamp(1, MOST_COUNTS));
    let mut all = Lines {
        lines: Vec::new(),
        grey: PaletteMap::default(),
        changed: HashMap::new(),
    };
    all.grey.insert("", WHITE);
    let mut start = 0;
    tree.for_each_line(least, &mut |line| {
        let [before, after] = scale.next(line.own);
        let [_, small] = scale.next(line.small);
        let stack = without_counts(&text::xml(line.stack));
        let change = judge.change(&line);
        match change {
            Some(change) => {
                let depth = stack.split(';').count();
                all.changed.insert((start, depth), change);
                all.lines.push(format!("{stack} {before} {after}"));
                if small > 0 {
                    all.lines.push(format!("{stack} {small}"));
                }
            }
            None => {
                for frame in stack.split(';') {
                    all.grey.insert(frame, WHITE);
                    all.grey.insert(frame.trim(), WHITE);
                }
                all.lines.push(format!("{stack} {}", after + small));
            }
        }
        start += after + small;
        Ok(())
    })?;
    Ok(all)
}

/// Share of BEFORE in stacks that AFTER has not at all, in percent.
fn percent_gone(joined: &Joined) -> f64 {
    let mut gone = 0u64;
    // Writes nothing, so it does not fail.
    let _ = Tree::new(joined).for_each_line(0.0, &mut |line| {
        if line.own[1] == 0 {
            gone = gone.saturating_add(line.own[0]);
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
        assert!(svg.contains("20.0 % of before is gone</text>"), "{svg}");
        for (color, meaning) in [
            ("rgb(255,100,100)", "more"),
            ("rgb(100,100,255)", "less"),
            ("rgb(218,218,218)", "same or chance"),
        ] {
            let (_, legend) = svg.split_once(&format!("fill=\"{color}\"/>")).unwrap();
            let (_, word) = legend.split_once("<tspan font-size=\"11\">").unwrap();
            assert!(word.starts_with(&format!("{meaning}</tspan>")), "{svg}");
        }
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
            (
                "down\u{a0}7 (200 samples, 20.00%; -30.00%)",
                "rgb(100,100,255)",
            ),
        ] {
            assert!(fill(&svg, title).starts_with(color), "{svg}");
        }
    }

    /// A function that is called in a thousand places has changed where none of them shows it; others it calls, and that call it, have not.
    #[test]
    fn a_change_spread_over_many_stacks_is_drawn() {
        let sides = [[10, 300, 0], [20, 600, 4]].map(|[hot, here, rare]| {
            let mut b = Builder::default();
            let p = b.process("app", 7);
            for place in 0..1000 {
                let caller = format!("f{place}");
                b.row(p, &[&caller, "hot"], hot);
                b.row(p, &[&caller, "hot", "even"], 40);
            }
            // No more than before, but elsewhere.
            b.row(p, &["here", "moved"], here);
            b.row(p, &["there", "moved"], 900 - here);
            b.row(p, &["rare"], rare);
            b.row(p, &["big"], 100_000);
            b.profile
        });
        let [before, after] = &sides;
        let joined = joined_of(before, after);
        let told = changes(&joined, Sort::Own);
        let hot = told
            .iter()
            .find(|c| joined.names.text(c.function.0) == "hot");
        assert!(hot.unwrap().own.change() > 0.05);
        assert!(!hot.unwrap().own.may_be_chance());
        let svg = text(&joined);
        let fills = |name: &str| -> Vec<&str> {
            let title = format!("<title>{name} (");
            let boxes = svg.split(&title).skip(1);
            boxes
                .map(|rest| {
                    let (_, fill) = rest.split_once("fill=\"").unwrap();
                    fill.split_once('"').unwrap().0
                })
                .collect()
        };
        assert_eq!(fills("hot"), ["rgb(255,100,100)"; 1000]);
        let moved: Vec<&str> = fills("moved").iter().map(|fill| &fill[..8]).collect();
        assert_eq!(moved, ["rgb(255,", "rgb(204,"]);
        assert_eq!(fills("f7"), ["rgb(218,218,218)"]);
        assert_eq!(fills("app"), ["rgb(218,218,218)"]);
        assert!(svg.contains("<title>hot (60 samples, 0.04%; +0.01%)</title>"));
        assert!(!svg.contains("; 0.00%)"));
    }

    /// What is too narrow to be drawn is no change of what calls it.
    #[test]
    fn a_caller_has_not_grown_because_what_it_calls_is_not_drawn() {
        let sides = [1, 3].map(|weight| {
            let mut b = Builder::default();
            let p = b.process("app", 7);
            b.row(p, &["main", "even"], 200_000);
            b.row(p, &["main", "up"], 1_000 * weight);
            for place in 0..10_000 {
                b.row(p, &["main", "many", &format!("f{place}")], weight);
            }
            b.profile
        });
        let svg = text(&joined_of(&sides[0], &sides[1]));
        let many = svg.split_once("<title>many (30,000 samples, ").unwrap().1;
        let (many, _) = many.split_once('"').unwrap();
        assert!(!many.contains(';'), "{many}");
        assert!(svg.contains("fill=\"rgb(255,"), "up has grown");
        assert!(!svg.contains("<title>f7 ("));
    }

    #[test]
    fn a_name_that_ends_in_a_number_is_one_box_with_what_it_calls() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["worker 3"], 10);
        b.row(p, &["worker 3", "f"], 10);
        let svg = text(&joined_of(&b.profile, &b.profile));
        fill(&svg, "worker\u{a0}3 (20 samples, 100.00%)");
    }

    #[test]
    fn colours_are_the_stronger_the_greater_the_change_and_never_the_grey() {
        assert_eq!(shade(1.0), "rgb(255,100,100)");
        assert_eq!(shade(-1.0), "rgb(100,100,255)");
        assert_eq!(shade(1e-6), "rgb(255,207,207)");
        assert_eq!(shade(-0.5), "rgb(154,154,255)");
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
