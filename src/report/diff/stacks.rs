//! Stacks with two counts: `--folded`, and the differential flame graph that inferno draws of such lines.

use std::io::{self, Write};

use hashbrown::HashMap;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::changes::Shares;
use super::{Joined, Side};
use crate::profile::{Callees, FrameKind, Row, StackId, Stacks};
use crate::report::flamegraph::{TALL, mended, write_empty, write_marked};
use crate::report::folded::{NO_FRAMES, TRUNCATED};
use crate::report::layout::{cut_start, share};
use crate::report::text;

/// Writes `root;...;leaf BEFORE AFTER`, each stack once, callers before their callees, callees in the order of their names.
///
/// Counts of AFTER are its samples (weights); those of BEFORE are scaled so that their sum is the same. Where AFTER has no
/// samples, those of BEFORE are as they are.
pub fn folded(joined: &Joined, out: &mut dyn Write) -> io::Result<()> {
    let whole = match (joined.before.0.weight, joined.after.0.weight) {
        (before, 0) => before,
        (_, after) => after,
    };
    let mut scale = Scale::new(joined, whole);
    Tree::new(joined).for_each_line(0.0, &mut |line, counts| {
        let [before, after] = scale.next(counts);
        writeln!(out, "{line} {before} {after}")
    })
}

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

/// Scales counts so that their sums are exactly what is asked for: each is what the sum so far grew by.
struct Scale {
    whole: u64,
    weights: [u64; 2],
    sums: [u64; 2],
}

impl Scale {
    fn new(joined: &Joined, whole: u64) -> Scale {
        Scale {
            whole,
            weights: [joined.before.0.weight, joined.after.0.weight],
            sums: [0; 2],
        }
    }

    fn next(&mut self, counts: [u64; 2]) -> [u64; 2] {
        let mut scaled = [0; 2];
        for (((count, sum), weight), scaled) in counts
            .iter()
            .zip(&mut self.sums)
            .zip(self.weights)
            .zip(&mut scaled)
        {
            let of = |sum: u64| match u128::from(weight) {
                0 => 0,
                weight => ((u128::from(sum) * u128::from(self.whole) + weight / 2) / weight) as u64,
            };
            let before = of(*sum);
            *sum = sum.saturating_add(*count);
            *scaled = of(*sum).saturating_sub(before);
        }
        scaled
    }
}

/// Stacks of both, merged by what is printed of them.
struct Tree {
    texts: Vec<String>,
    nodes: Stacks,
    callees: Callees,
    own: Vec<[u64; 2]>,
    total: Vec<[u64; 2]>,
    weights: [u64; 2],
}

impl Tree {
    fn new(joined: &Joined) -> Tree {
        let mut texts = Vec::new();
        let mut index: HashMap<String, u32> = HashMap::new();
        let mut number = |texts: &mut Vec<String>, text: String| {
            *index.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() as u32 - 1
            })
        };
        let frames = joined.names.frames().iter().map(|frame| {
            let name = text::folded(joined.names.text(frame.name));
            let text = match frame.kind {
                FrameKind::Kernel => format!("{name}_[k]"),
                FrameKind::User | FrameKind::LeftOut => name.into_owned(),
                FrameKind::Truncated => TRUNCATED.to_owned(),
            };
            number(&mut texts, text)
        });
        let frames: Vec<u32> = frames.collect();
        let roots = joined.groups.iter().map(|group| {
            let name = text::folded(joined.names.text(*group));
            (!name.is_empty()).then(|| number(&mut texts, name.into_owned()))
        });
        let roots: Vec<Option<u32>> = roots.collect();
        let no_frames = number(&mut texts, NO_FRAMES.to_owned());

        let mut tree = Tree {
            texts,
            nodes: Stacks::default(),
            callees: Stacks::default().callees(),
            own: vec![[0; 2]],
            total: Vec::new(),
            weights: [joined.before.0.weight, joined.after.0.weight],
        };
        let mut rows: Vec<(usize, &Row)> = Vec::new();
        rows.extend(joined.before.1.iter().map(|row| (0, row)));
        rows.extend(joined.after.1.iter().map(|row| (1, row)));
        rows.sort_by_key(|(_, row)| row.group);
        // Stacks share their callers, so each is walked once below a root: of each stack, the node below the root that had
        // it last.
        let mut known = vec![(u32::MAX, 0); joined.stacks.len() + 1];
        let mut path = Vec::new();
        for (side, row) in rows.into_iter().filter(|(_, row)| row.weight > 0) {
            let mut at = row.stack;
            let mut node = loop {
                match known.get(at as usize) {
                    Some((of, node)) if *of == row.group => break *node,
                    _ => {}
                }
                let Some((caller, frame)) = joined.stacks.leaf(at) else {
                    let root = roots.get(row.group as usize).copied().flatten();
                    break root.map_or(0, |root| tree.nodes.push(0, root));
                };
                path.push((at, frame));
                at = caller;
            };
            while let Some((stack, frame)) = path.pop() {
                let Some(text) = frames.get(frame as usize) else {
                    continue;
                };
                node = tree.nodes.push(node, *text);
                if let Some(known) = known.get_mut(stack as usize) {
                    *known = (row.group, node);
                }
            }
            if node == 0 {
                node = tree.nodes.push(0, no_frames);
            }
            tree.add(node, side, row.weight);
        }
        tree.own.resize(tree.nodes.len() + 1, [0; 2]);
        tree.callees = tree.nodes.callees();
        tree.sum_up();
        tree
    }

    fn add(&mut self, node: StackId, side: usize, weight: u64) {
        if self.own.len() <= node as usize {
            self.own.resize(node as usize + 1, [0; 2]);
        }
        let own = self
            .own
            .get_mut(node as usize)
            .and_then(|own| own.get_mut(side));
        if let Some(own) = own {
            *own = own.saturating_add(weight);
        }
    }

    fn sum_up(&mut self) {
        self.total.clone_from(&self.own);
        // Callers have smaller numbers than their callees.
        for (i, (caller, _)) in self.nodes.nodes().enumerate().rev() {
            let below = self.total.get(i + 1).copied().unwrap_or_default();
            if let Some(sum) = self.total.get_mut(caller as usize) {
                add(sum, below);
            }
        }
    }

    fn text(&self, node: StackId) -> &str {
        let text = self
            .nodes
            .leaf(node)
            .and_then(|(_, text)| self.texts.get(text as usize));
        text.map_or("", |text| text)
    }

    /// Calls `each` with every stack that has samples and its counts. What is below `least` of both sides, from 0 to 1, is
    /// counted for its caller.
    fn for_each_line(
        &self,
        least: f64,
        each: &mut dyn FnMut(&str, [u64; 2]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut line = String::new();
        let mut levels = vec![(0, self.below(0, least).1)];
        while let Some((length, below)) = levels.last_mut() {
            let Some(node) = below.pop() else {
                levels.pop();
                continue;
            };
            line.truncate(*length);
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(self.text(node));
            let (own, below) = self.below(node, least);
            if own != [0; 2] {
                each(&line, own)?;
            }
            levels.push((line.len(), below));
        }
        Ok(())
    }

    /// A node's own counts, with what is too small below it, and the others below it, the first last.
    fn below(&self, node: StackId, least: f64) -> ([u64; 2], Vec<StackId>) {
        let of =
            |list: &[[u64; 2]], node: StackId| list.get(node as usize).copied().unwrap_or_default();
        let mut own = of(&self.own, node);
        let mut below = Vec::new();
        for callee in self.callees.of(node) {
            let total = of(&self.total, *callee);
            let wide = |side: usize| {
                let (count, weight) = (total.get(side), self.weights.get(side));
                share(count.copied().unwrap_or(0), weight.copied().unwrap_or(0)) >= least
            };
            if wide(0) || wide(1) {
                below.push(*callee);
            } else {
                add(&mut own, total);
            }
        }
        below.sort_by(|a, b| self.text(*b).cmp(self.text(*a)));
        (own, below)
    }
}

fn add(sum: &mut [u64; 2], more: [u64; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{joined, joined_of};
    use super::*;
    use crate::profile::By;
    use crate::report::text::tests_support::Builder;

    fn text(write: fn(&Joined, &mut dyn Write) -> io::Result<()>, joined: &Joined) -> String {
        let mut out = Vec::new();
        write(joined, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn folded_lines_have_both_counts_scaled_to_one_sum() {
        assert_eq!(
            text(folded, &joined()),
            "app;gone 40 0\napp;main;cold 60 50\napp;main;hot 100 150\n"
        );
        let mut odd = Builder::default();
        let p = odd.process("a", 1);
        for name in ["x", "y", "z"] {
            odd.row(p, &[name], 1);
        }
        let mut one = Builder::default();
        let p = one.process("a", 1);
        one.row(p, &["x"], 10);
        let joined = joined_of(&odd.profile, &one.profile);
        assert_eq!(text(folded, &joined), "a;x 3 10\na;y 4 0\na;z 3 0\n");
        let nothing = Builder::default().profile;
        assert_eq!(
            text(folded, &joined_of(&one.profile, &nothing)),
            "a;x 10 0\n"
        );
        assert_eq!(text(folded, &joined_of(&nothing, &nothing)), "");
        let mut rootless = Builder::default();
        let p = rootless.process("a", 1);
        rootless.row(p, &["x"], 2);
        rootless.row(p, &[], 1);
        rootless.profile.by = By::None;
        assert_eq!(
            text(folded, &joined_of(&rootless.profile, &rootless.profile)),
            "[no frames] 1 1\nx 2 2\n"
        );
    }

    #[test]
    fn the_graph_is_red_where_it_grew_and_blue_where_it_shrank() {
        let svg = text(flamegraph, &joined());
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
        let svg = text(flamegraph, &joined_of(&before, &after));
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
        let svg = text(flamegraph, &joined());
        let cold = fill(&svg, "cold (50 samples, 25.00%)");
        assert!(cold.starts_with("rgb(218,218,218)"), "{svg}");
        let svg = text(flamegraph, &before_twice());
        let (_, frames) = svg.split_once("<svg id=\"frames\"").unwrap();
        assert_eq!(frames.matches("<rect").count(), 6);
        assert_eq!(frames.matches("fill=\"rgb(218,218,218)\"").count(), 6);
        assert_eq!(frames.matches("%; ").count(), 0);
        // A number at the end of a name is no count.
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["worker 3"], 10);
        let svg = text(flamegraph, &joined_of(&b.profile, &b.profile));
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
        let svg = text(flamegraph, &joined_of(&b.profile, &b.profile));
        assert_eq!(svg.matches("<title>f (").count(), 1, "{svg}");
        assert!(svg.contains("f\u{fffd}&lt;&amp; ("), "{svg}");
        assert!(svg.contains("#\u{a0}a (50 samples, "), "{svg}");
    }

    #[test]
    fn no_samples_after_still_give_a_picture() {
        let nothing = Builder::default().profile;
        let svg = text(
            flamegraph,
            &joined_of(&super::super::tests::before(), &nothing),
        );
        assert!(
            svg.contains("<svg") && svg.contains(">no samples after<"),
            "{svg}"
        );
    }
}
