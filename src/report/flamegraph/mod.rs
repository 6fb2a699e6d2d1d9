//! `--flamegraph OUT.svg`: a flame graph, drawn by inferno.
//!
//! ```text
//! Profile -> merged  stacks that read alike are one, from the root or from the leaf  \
//!                                                                                    -> boxes -> svg (mend, mark)
//! samples -> chart   stacks of each thread in order of time                          /
//! ```

mod boxes;
pub mod chart;
mod mark;
mod mend;
mod merged;
mod svg;

use std::io::{self, Write};

use crate::profile::Profile;

use boxes::Boxes;
use svg::Picture;

pub use mark::is_ours;
pub(super) use mend::{Place, TALL, mended, refilled};
pub(super) use svg::{legend, write_empty, write_with_legend};

/// What is at the bottom of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// The outermost callers; flames rise from them.
    #[default]
    Callees,
    /// The functions that samples were taken in, at the top; below each hang its callers.
    Callers,
}

/// Writes an SVG. A profile without samples gives a picture that says so.
pub fn write(profile: &Profile, form: Form, out: &mut dyn Write) -> io::Result<()> {
    let merged = merged::Merged::new(profile);
    let weights = || profile.rows.iter().map(|row| row.weight);
    let (boxes, scale, least) =
        Boxes::at_most(merged.labels(), weights, |bounds, boxes| match form {
            Form::Callees => merged.roots_first(bounds, boxes),
            Form::Callers => merged.leaves_first(bounds, boxes),
        });
    let picture = Picture {
        about: &profile.about,
        boxes: &boxes,
        scale,
        least,
        labels: merged.labels(),
        inverted: form == Form::Callers,
        group: profile.by.noun(),
        note: match form {
            Form::Callees => "",
            Form::Callers => "callers hang below",
        },
    };
    picture.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Timestamp;
    use crate::profile::FrameKind;
    use crate::report::text::tests_support::Builder;

    fn svg_of(profile: &Profile, form: Form) -> String {
        let mut out = Vec::new();
        write(profile, form, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn svg(profile: &Profile) -> String {
        svg_of(profile, Form::Callees)
    }

    #[test]
    fn hostile_names_are_escaped() {
        let mut b = Builder::default();
        let p = b.process("</script><script>alert(1)", 7);
        b.row(p, &["a<b&\"c", "\u{1b}\0\u{ffff}", &"中".repeat(200)], 5);
        b.profile.about.host = "h\0<".into();
        for form in [Form::Callees, Form::Callers] {
            let svg = svg_of(&b.profile, form);
            assert!(svg.contains("a&lt;b&amp;&quot;c"));
            assert!(!svg.contains("<script>alert"));
            assert!(
                svg.chars()
                    .all(|c| !c.is_control() || c == '\n' || c == '\t')
            );
            assert!(!svg.contains('\u{ffff}'));
        }
    }

    /// What inferno would take for a comment, a second count, or a mark of its own.
    #[test]
    fn names_that_mean_something_to_inferno_are_names() {
        let mut b = Builder::default();
        let p = b.process("# note", 7);
        b.row(p, &["main", "worker 3"], 5);
        b.row(p, &["main", "odd_[k]"], 2);
        b.row(p, &["# 1", "-", " "], 1);
        let text = svg(&b.profile);
        for title in [
            "all (8 samples, 100%)",
            "#\u{a0}note-7 (8 samples, 100.00%)",
            "worker 3 (5 samples, 62.50%)",
            "odd_[k] (2 samples, 25.00%)",
            "#\u{a0}1 (1 sample, 12.50%)",
            "- (1 sample, 12.50%)",
        ] {
            assert!(text.contains(&format!("<title>{title}</title>")), "{title}");
        }
        let inverted = svg_of(&b.profile, Form::Callers);
        assert!(inverted.contains("<title>worker 3 (5 samples, 62.50%)</title>"));
        assert!(inverted.contains("<title>all (8 samples, 100%)</title>"));
    }

    #[test]
    fn kinds_have_colours_and_a_legend_tells_them() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row_of(
            p,
            &[(FrameKind::User, "read"), (FrameKind::Kernel, "vfs_read")],
            5,
        );
        let text = svg(&b.profile);
        let fill = |title: &str| {
            let after = text.split_once(&format!("<title>{title} (")).unwrap().1;
            let fill = after.split_once("fill=\"rgb(").unwrap().1;
            let (rgb, _) = fill.split_once(')').unwrap();
            let rgb: Vec<u32> = rgb.split(',').map(|n| n.parse().unwrap()).collect();
            (rgb[0], rgb[2])
        };
        let (red, blue) = fill("read");
        assert!(red > blue + 60, "user code is amber");
        let (red, blue) = fill("vfs_read");
        assert!(blue > red + 60, "kernel code is blue");
        for kind in ["user", "inlined", "kernel"] {
            assert!(text.contains(&format!(">{kind}</tspan>")), "{kind}");
        }
    }

    /// A million samples of which no function has many are a picture, not tens of megabytes of one.
    #[test]
    fn no_more_is_drawn_than_can_be_seen_and_the_graph_says_so() {
        let mut b = Builder::default();
        let p = b.process("wide", 7);
        b.profile.about.span = Some((Timestamp(1), Timestamp(2)));
        b.row(p, &["main", "hot"], 20_000);
        let narrow = |b: &mut Builder, paths: std::ops::Range<usize>| {
            for path in paths {
                let names: Vec<String> = (0..20).map(|depth| format!("f{path}_{depth}")).collect();
                let mut frames = vec!["main"];
                frames.extend(names.iter().map(String::as_str));
                b.row(p, &frames, 5);
            }
        };
        narrow(&mut b, 0..100);
        let drawn = |svg: &str| svg.matches("<rect").count();
        let few = svg(&b.profile);
        assert!(drawn(&few) > 2000 && few.contains("f99_19"));
        assert!(!few.contains("left out"));
        narrow(&mut b, 100..4000);
        let many = svg(&b.profile);
        assert!(drawn(&many) < 20, "{}", drawn(&many));
        assert!(many.contains("hot (20,000 samples, 50.00%)"));
        assert!(many.contains("main (40,000 samples, 100.00%)"));
        assert!(many.contains("frames below 0.02 % left out"));
        let callers = svg_of(&b.profile, Form::Callers);
        assert!(callers.contains("hot (20,000 samples, 50.00%)"));
        assert!(callers.contains("frames below 0.02 % left out"));
    }

    /// A recursion hundreds of calls deep, of one sample in a thousand, is no reason to show a thousand rows of background first.
    #[test]
    fn deep_stacks_begin_at_the_top() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "work"], 999);
        let row = |svg: &str, title: &str| -> f64 {
            let (_, rest) = svg.split_once(&format!("<title>{title} (")).unwrap();
            let (_, rest) = rest.split_once(" y=\"").unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let low = svg(&b.profile);
        assert!(row(&low, "all") > row(&low, "main") && !low.contains("callers at the top"));
        let names: Vec<String> = (0..400).map(|depth| format!("f{depth}")).collect();
        let frames: Vec<&str> = names.iter().map(String::as_str).collect();
        b.row(p, &frames, 1);
        let deep = svg(&b.profile);
        assert!(row(&deep, "all") < 100.0 && row(&deep, "main") < 150.0);
        assert!(row(&deep, "f399") > 6000.0);
        assert!(
            deep.contains("1000 samples, deep: callers at the top"),
            "{}",
            &deep[..20_000]
        );
        // What a search has found is told where it can be seen.
        let told = |id: &str| {
            let (_, rest) = deep.split_once(&format!("<text id=\"{id}\"")).unwrap();
            let (_, rest) = rest.split_once(" y=\"").unwrap();
            rest.split_once('"').unwrap().0.to_owned()
        };
        assert_eq!(told("matched"), told("details"));
    }

    /// What is told of a box under the pointer is not written over the legend, nor over the first box; and what starts a search can be seen.
    #[test]
    fn what_is_told_of_a_box_has_a_line_of_its_own() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "work"], 5);
        let svg = svg_of(&b.profile, Form::Callers);
        let number = |rest: &str, before: &str| -> f64 {
            let (_, rest) = rest.split_once(before).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let (_, legend) = svg.split_once("<g id=\"legend\">").unwrap();
        let (legend, frames) = legend.split_once("</g>").unwrap();
        let last = legend.rsplit_once("<text").unwrap().1;
        let legend_ends = number(last, " y=\"");
        let (_, details) = svg.split_once("<text id=\"details\"").unwrap();
        let details = number(details, " y=\"");
        let first_box = number(frames.split_once("<rect").unwrap().1, " y=\"");
        // Letters are 12 pixels high, and some go on a bit below.
        assert!(
            legend_ends + 3.0 <= details - 11.0,
            "{legend_ends} {details}"
        );
        assert!(details + 3.0 <= first_box, "{details} {first_box}");
        assert!(
            svg.contains("#search { text-anchor:end; cursor:pointer; }"),
            "{svg}"
        );
        assert!(!svg.contains("opacity:0.1"), "{svg}");
    }

    #[test]
    fn weights_no_sum_can_hold_are_shares_still() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["half"], 1 << 62);
        b.row(p, &["other"], 1 << 62);
        b.profile.rows[0].weight = u64::MAX / 2;
        b.profile.rows[1].weight = u64::MAX / 2;
        assert!(svg(&b.profile).contains("half (9,223,"));
        assert!(svg(&b.profile).contains(" samples, 50.00%)"));
    }

    #[test]
    fn no_samples_still_give_a_picture() {
        for form in [Form::Callees, Form::Callers] {
            let svg = svg_of(&Profile::default(), form);
            assert!(svg.contains("<svg") && svg.contains("no samples"), "{svg}");
        }
    }
}
