//! What text for people shares: columns, shares, colours, the width of the terminal.

use std::io::{self, Write};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Where text is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; `None` cuts and wraps nothing.
    pub width: Option<usize>,
    /// Colour what has large shares.
    pub color: bool,
}

impl Style {
    /// What begins and ends a part with this share of all samples, in percent.
    pub(super) fn tint(self, share: f64) -> (&'static str, &'static str) {
        match share {
            _ if !self.color => ("", ""),
            s if s >= 10.0 => ("\x1b[31m", "\x1b[0m"),
            s if s >= 2.0 => ("\x1b[33m", "\x1b[0m"),
            _ => ("", ""),
        }
    }

    /// `text` in a colour of ANSI terminals: 31 red, 32 green, 33 yellow, ...
    pub fn colored(self, text: &str, color: u8) -> String {
        match self.color {
            true => format!("\x1b[{color}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// `text` for a line that has so many columns before it: in lines that fit the terminal, those after the first `indent` columns to
    /// the right.
    pub fn wrapped(self, text: &str, before: usize, indent: usize) -> String {
        let Some(width) = self.width else {
            return text.to_owned();
        };
        let room = width.saturating_sub(before.max(indent));
        wrap(text, room).join(&format!("\n{:indent$}", ""))
    }

    /// What begins and ends a title.
    pub(super) fn bold(self) -> (&'static str, &'static str) {
        match self.color {
            true => ("\x1b[1m", "\x1b[0m"),
            false => ("", ""),
        }
    }

    /// What begins and ends what matters less.
    pub(super) fn dim(self) -> (&'static str, &'static str) {
        match self.color {
            true => ("\x1b[2m", "\x1b[0m"),
            false => ("", ""),
        }
    }
}

/// Writes lines about the report, each after `# `; wrapped between words where a terminal is narrower.
pub fn head(
    lines: impl IntoIterator<Item = String>,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    for line in lines {
        let Some(width) = style.width else {
            writeln!(out, "# {line}")?;
            continue;
        };
        // As far to the right as the line begins, and two more.
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let mut first = true;
        for part in wrap(line.trim_start(), width.saturating_sub(2 + blanks + 2)) {
            let indent = blanks + if first { 0 } else { 2 };
            writeln!(out, "# {:indent$}{part}", "")?;
            first = false;
        }
    }
    Ok(())
}

/// Writes a line of `start` and `text`; where a terminal is narrower, what does not fit in lines of its own, `indent` columns to the
/// right.
pub(super) fn paragraph(
    start: &str,
    text: &str,
    indent: usize,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(width) = style.width else {
        return writeln!(out, "{start}{text}");
    };
    let room = width.saturating_sub(indent.max(start.width()));
    for (number, part) in wrap(text, room).into_iter().enumerate() {
        match number {
            0 => writeln!(out, "{start}{part}")?,
            _ => writeln!(out, "{:indent$}{part}", "")?,
        }
    }
    Ok(())
}

/// `text` in lines of at most `width` columns; a longer word has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut start, mut end) = (0, 0);
    for word in text.split(' ') {
        // Words are parts of `text`, each after one blank but the first.
        let after = if end == 0 {
            word.len()
        } else {
            end + 1 + word.len()
        };
        let fits = text
            .get(start..after)
            .is_some_and(|line| line.width() <= width);
        if !fits && end > start {
            lines.extend(text.get(start..end));
            start = end + 1;
        }
        end = after;
    }
    lines.extend(text.get(start..));
    lines
}

/// `part` of `whole` in percent, 0 of nothing.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    share(part, whole) * 100.0
}

/// `part` of `whole`, from 0 to 1; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// The least that is `percent` of `whole`; at least 1.
pub(super) fn at_least(percent: f64, whole: u64) -> u64 {
    ((percent / 100.0 * whole as f64).ceil() as u64).max(1)
}

/// `text` in exactly `width` columns: cut with `…`, or filled with blanks.
pub(super) fn fit(text: &str, width: usize) -> String {
    let mut out = cut(text, width);
    fill(&mut out, width);
    out
}

/// `text` in a column that is usually `width` wide: on a terminal as [`fit`] has it, elsewhere whole.
pub(super) fn column(text: &str, width: usize, style: Style) -> String {
    match style.width {
        Some(_) => fit(text, width),
        None => {
            let mut out = text.to_owned();
            fill(&mut out, width);
            out
        }
    }
}

/// As [`fit`], but it is the beginning that is cut: of a path, the end says more.
pub(super) fn fit_end(text: &str, width: usize) -> String {
    let mut out = cut_start(text, width);
    fill(&mut out, width);
    out
}

fn fill(text: &mut String, width: usize) {
    let used = text.width();
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
}

/// `text` in at most `width` columns, cut between characters.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= width
    });
    let mut out: String = kept.collect();
    out.push('…');
    out
}

/// The name of a function in at most `width` columns. Of one that is longer first go what is between `<` and `>` and its arguments,
/// then its beginning where that is namespaces: those of one library all begin alike.
pub(super) fn fit_name(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    match without_arguments(name) {
        Some(short) if short.width() <= width => short,
        Some(short) if short.contains("::") => cut_start(&short, width),
        _ => cut(name, width),
    }
}

/// `a<b, c>::d(e)` as `a<…>::d(…)`; `None` where brackets do not match.
fn without_arguments(name: &str) -> Option<String> {
    let mut out = String::new();
    // Brackets that have to be closed, and whether they are printed.
    let mut open: Vec<(char, bool)> = Vec::new();
    let mut shown = true;
    for (at, c) in name.char_indices() {
        let (before, rest) = (name.get(..at)?, name.get(at..)?);
        let of_operator = ["operator", "operator<", "operator>", "operator-"];
        let is_operator = of_operator.iter().any(|o| before.ends_with(o)) && "<>".contains(c)
            || before.ends_with("operator") && c == '('
            || before.ends_with("operator(")
            || c == '>' && before.ends_with('-');
        match c {
            _ if is_operator => {}
            '<' | '(' => {
                // `<T as Trait>::f` is called by what is in it.
                let is_name =
                    !shown || before.is_empty() || rest.starts_with("(anonymous namespace)");
                open.push((if c == '<' { '>' } else { ')' }, is_name));
                if !is_name {
                    let is_empty = rest.chars().nth(1) == Some(if c == '<' { '>' } else { ')' });
                    out.push(c);
                    out.push_str(if is_empty { "" } else { "…" });
                    shown = false;
                    continue;
                }
            }
            '>' | ')' => {
                let (expected, is_name) = open.pop()?;
                if c != expected {
                    return None;
                }
                shown |= !is_name;
            }
            _ => {}
        }
        if shown {
            out.push(c);
        }
    }
    open.is_empty().then_some(out)
}

/// `text` in at most `width` columns, without its beginning.
pub(super) fn cut_start(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let kept = text.chars().rev().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= width
    });
    let kept: usize = kept.map(char::len_utf8).sum();
    format!("…{}", text.get(text.len() - kept..).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_the_report_are_wrapped_between_words() {
        let written = |text: &str, width| {
            let mut out = Vec::new();
            let style = Style {
                width,
                color: false,
            };
            head([text.to_owned()], style, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written("one two three", None), "# one two three\n");
        assert_eq!(written("one two three", Some(11)), "# one two\n#   three\n");
        assert_eq!(
            written("  /a/long/path is not there", Some(16)),
            "#   /a/long/path\n#     is not\n#     there\n"
        );
        assert_eq!(written("", Some(3)), "# \n");
        assert_eq!(written("中中中 b", Some(1)), "# 中中中\n#   b\n");
    }

    #[test]
    fn messages_are_wrapped_on_terminals_and_coloured_where_colour_is_wanted() {
        let style = |width, color| Style { width, color };
        let text = "one two three four";
        assert_eq!(style(None, false).wrapped(text, 10, 2), text);
        assert_eq!(
            style(Some(20), false).wrapped(text, 10, 2),
            "one two\n  three four"
        );
        assert_eq!(style(Some(40), false).wrapped(text, 10, 2), text);
        assert_eq!(style(None, true).colored("ok", 32), "\x1b[32mok\x1b[0m");
        assert_eq!(style(None, false).colored("ok", 32), "ok");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("中中中", 5), "中中…");
        assert_eq!(cut("中中中", 4), "中…");
        assert_eq!(fit("ab", 4), "ab  ");
        let terminal = Style {
            width: Some(80),
            color: false,
        };
        assert_eq!(column("abcdef", 4, terminal), "abc…");
        let file = Style::default();
        assert_eq!(
            (column("abcdef", 4, file), column("ab", 4, file)),
            ("abcdef".to_owned(), "ab  ".to_owned())
        );
        assert_eq!(fit_end("src/deep/file.c:42", 10), "…file.c:42");
        assert_eq!(fit_end("中中中", 6), "中中中");
        assert_eq!(fit_end("中中中", 4), "…中 ");
    }

    #[test]
    fn long_names_keep_what_tells_them_apart() {
        for (name, short) in [
            (
                "ns::map<int, std::less<int>>::at(int const&) const",
                "ns::map<…>::at(…) const",
            ),
            ("void f<a>()", "void f<…>()"),
            ("a::operator<(b)", "a::operator<(…)"),
            ("a::operator<<<b>(c)", "a::operator<<<…>(…)"),
            ("a::operator()(b) const", "a::operator()(…) const"),
            ("a::operator->()", "a::operator->()"),
            (
                "(anonymous namespace)::f(int)",
                "(anonymous namespace)::f(…)",
            ),
            ("<Vec<u8> as Read>::read", "<Vec<…> as Read>::read"),
            (
                "f::{lambda(int)#1}::operator()(int) const",
                "f::{lambda(…)#1}::operator()(…) const",
            ),
            (
                "core::ops::FnOnce<fn() -> u8>::call",
                "core::ops::FnOnce<…>::call",
            ),
            ("main", "main"),
        ] {
            assert_eq!(without_arguments(name).as_deref(), Some(short), "{name}");
        }
        for name in ["a<b", "a>b", "f(<)>", "[anon]>"] {
            assert_eq!(without_arguments(name), None, "{name}");
        }
        assert_eq!(fit_name("ns::a<b>::f(c)", 14), "ns::a<b>::f(c)");
        assert_eq!(fit_name("ns::a<bbb>::f(c)", 15), "ns::a<…>::f(…)");
        assert_eq!(fit_name("ns::a<bbb>::f(c)", 8), "…>::f(…)");
        assert_eq!(fit_name("a_long_name_of_c", 7), "a_long…");
        assert_eq!(fit_name("odd<name_of_c", 7), "odd<na…");
    }

    #[test]
    fn what_does_not_fit_goes_on_below_itself() {
        let text = |width| {
            let mut out = Vec::new();
            let style = Style {
                width,
                color: false,
            };
            paragraph("title  ", "one two three", 9, style, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(None), "title  one two three\n");
        assert_eq!(text(Some(22)), "title  one two three\n");
        assert_eq!(text(Some(16)), "title  one two\n         three\n");
        assert_eq!(text(Some(1)), "title  one\n         two\n         three\n");
    }

    #[test]
    fn the_least_that_is_shown_is_never_nothing() {
        assert_eq!((at_least(0.5, 2000), at_least(0.5, 2001)), (10, 11));
        assert_eq!((at_least(0.0, 2000), at_least(0.5, 0)), (1, 1));
        assert_eq!((percent(1, 4), percent(1, 0)), (25.0, 0.0));
    }
}
