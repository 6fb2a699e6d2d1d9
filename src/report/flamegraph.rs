//! `--flamegraph OUT.svg`: a flame graph of the folded stacks, drawn by inferno.

use std::io::{self, Write};

use inferno::flamegraph::{self, Options, TextTruncateDirection};

use crate::profile::Profile;

use super::{folded, text, verdict};

/// Writes an SVG. A profile without samples gives a graph that says so.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let about = &profile.about;
    let mut options = Options::default();
    // Narrow frames are not drawn, so there is no need to keep their lines in memory. Half of what inferno asks for: nothing
    // depends on how it rounds.
    let least = profile.total_weight() as f64 * (options.min_width / 100.0) / 2.0;
    let mut lines = Vec::new();
    folded::for_each_line(profile, least as u64, &mut |line| {
        lines.push(text::xml(line).into_owned());
        Ok(())
    })?;
    options.title = text::folded(&format!("{} on {}", about.target, about.host)).into_owned();
    if let Some((first, last)) = about.span {
        let seconds = last.since(first) as f64 / 1e9;
        options.subtitle = Some(format!(
            "{}, {seconds:.1} s, {} samples",
            verdict::wall_time(about, first),
            about.samples
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

    #[test]
    fn no_samples_still_give_a_picture() {
        assert!(svg(&Profile::default()).contains("<svg"));
    }
}
