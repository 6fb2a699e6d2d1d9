//! `--flamegraph OUT.svg`: a flame graph of the folded stacks, drawn by inferno.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options, TextTruncateDirection};

use crate::profile::Profile;

use super::{folded, text, verdict};

/// Frames that are drawn at most, about: what fits on no screen takes ten megabytes of SVG and many more to draw.
const MOST_FRAMES: usize = 1 << 15;
/// Percent of the width: what is wider is always drawn.
const WIDE: f64 = 0.5;

/// Lines of what is wide enough to be drawn, and what the graph's subtitle says of the rest when that is more than what is
/// narrower than a tenth of a pixel.
fn lines(profile: &Profile, options: &mut Options<'_>) -> io::Result<(Vec<String>, String)> {
    let mut left_out = String::new();
    loop {
        // Narrow frames are not drawn, so there is no need to keep their lines in memory. Half of what inferno asks for:
        // nothing depends on how it rounds.
        let least = profile.total_weight() as f64 * (options.min_width / 100.0) / 2.0;
        let most = match options.min_width < WIDE {
            true => MOST_FRAMES,
            false => usize::MAX,
        };
        let mut lines: Vec<String> = Vec::new();
        let mut frames = 0;
        let written = folded::for_each_line(profile, least as u64, &mut |line| {
            let line = text::xml(line).into_owned();
            frames += new_frames(lines.last().map_or("", |last| last), &line);
            lines.push(line);
            match frames > most {
                true => Err(io::ErrorKind::FileTooLarge.into()),
                false => Ok(()),
            }
        });
        if frames <= most {
            return written.map(|()| (lines, left_out));
        }
        options.min_width *= 2.0;
        left_out = format!(", frames below {:.2} % left out", options.min_width);
    }
}

/// How many frames of `line` are not those of the line before.
fn new_frames(before: &str, line: &str) -> usize {
    let mut before = before.split(';');
    let frames = line.split(';');
    let shared = frames
        .clone()
        .take_while(|frame| before.next() == Some(frame));
    frames.count() - shared.count()
}

/// Writes an SVG. A profile without samples gives a graph that says so.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let about = &profile.about;
    let mut options = Options::default();
    let (lines, left_out) = lines(profile, &mut options)?;
    options.title = text::folded(&format!("{} on {}", about.target, about.host)).into_owned();
    if let Some((first, last)) = about.span {
        let seconds = last.since(first) as f64 / 1e9;
        options.subtitle = Some(format!(
            "{}, {seconds:.1} s, {} samples{left_out}",
            verdict::wall_time(about, first),
            about.samples_shown()
        ));
    }
    options.count_name = "samples".to_owned();
    options.deterministic = true;
    // What a function is called stands at the beginning.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // Lines are sorted already. Without any, inferno writes a graph that says there is nothing in it and
    // then reports that as an error.
    let empty = lines.is_empty();
    match flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out) {
        Err(_) if empty => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Timestamp;
    use crate::report::text::tests_support::Builder;

    fn svg(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hostile_names_are_escaped() {
        let mut b = Builder::default();
        let p = b.process("</script><script>alert(1)", 7);
        b.row(p, &["a<b&\"c", "\u{1b}\0\u{ffff}", &"中".repeat(200)], 5);
        b.profile.about.host = "h\0<".into();
        let svg = svg(&b.profile);
        assert!(svg.contains("a&lt;b&amp;&quot;c"));
        assert!(!svg.contains("<script>alert"));
        assert!(
            svg.chars()
                .all(|c| !c.is_control() || c == '\n' || c == '\t')
        );
        assert!(!svg.contains('\u{ffff}'));
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
        assert!(many.contains("frames below 0.04 % left out"));
    }

    #[test]
    fn new_frames_are_those_after_the_common_callers() {
        assert_eq!(new_frames("", "a;b 1"), 2);
        assert_eq!(new_frames("a;b 1", "a;c;d 2"), 2);
        assert_eq!(new_frames("a;b 1", "a;bb 2"), 1);
    }

    #[test]
    fn no_samples_still_give_a_picture() {
        assert!(svg(&Profile::default()).contains("<svg"));
    }
}
