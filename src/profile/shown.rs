//! Names as they are shown, and known again by that: what breaks lines and terminals is escaped or replaced.

use std::borrow::Cow;

use crate::event::BuildId;

/// Characters that would break a line or a terminal, or show text in another order than it has.
pub(crate) fn is_control(c: char) -> bool {
    // `char::is_control` is C0, DEL and C1; the two separators end lines for many readers; the rest turns text around.
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
                | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// `name` as a frame of a folded line: `;` becomes `:`, control characters U+FFFD.
pub fn folded(name: &str) -> Cow<'_, str> {
    let odd = |c: char| c == ';' || is_control(c);
    if !name.chars().any(odd) {
        return Cow::Borrowed(name);
    }
    let replace = |c| match c {
        ';' => ':',
        c if is_control(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    Cow::Owned(name.chars().map(replace).collect())
}

/// `name` for people: control characters as `\n`, `\t`, `\u{1b}`.
pub fn escaped(name: &str) -> Cow<'_, str> {
    if !name.chars().any(is_control) {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        match c {
            c if is_control(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a name is shown somewhere in a way that `is` asked for: one that is no UTF-8, or has characters that are not shown as they
/// are.
pub fn is_shown(name: &[u8], is: impl Fn(&str) -> bool) -> bool {
    let text = String::from_utf8_lossy(name);
    let odd = |c: char| c == ';' || is_control(c);
    if matches!(text, Cow::Borrowed(_)) && !text.chars().any(odd) {
        return false;
    }
    is(&text) || is(&escaped(&text)) || is(&folded(&text))
}

/// What [`escaped`] made this of, as far as it has such escapes; in a pattern, which has escapes of its own, they stand for no others.
pub fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let number = after
            .strip_prefix("u{")
            .and_then(|after| after.split_once('}'));
        let number = number.and_then(|(digits, after)| {
            let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
            Some((c, after))
        });
        let short = ['t', 'n', 'r'].into_iter().zip(['\t', '\n', '\r']);
        let short = short
            .into_iter()
            .find_map(|(letter, c)| Some((c, after.strip_prefix(letter)?)));
        match number.or(short).filter(|(c, _)| is_control(*c)) {
            Some((c, after)) => {
                out.push(c);
                rest = after;
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Hex digits of a build ID that tell files of one name apart in labels of their code: so many if they do, else more.
pub const LABEL_DIGITS: usize = 7;
/// As many as a build ID has at most.
const MOST_DIGITS: usize = 2 * BuildId::MAX_LEN;

/// The file name in the label of code without a name: `srv` of `srv#1a2b3c4`, which is not the only one of that name.
pub fn file_of_label(label: &str) -> &str {
    match label.rsplit_once('#') {
        Some((name, digits))
            if (1..=MOST_DIGITS).contains(&digits.len())
                && digits.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_label() {
        assert_eq!(file_of_label("srv#1a2b3c4"), "srv");
        assert_eq!(file_of_label("srv#2"), "srv");
        assert_eq!(file_of_label("srv#1a2b3c4d5e"), "srv");
        for name in ["c#", "c#script", "#", "a#1234567g", "x"] {
            assert_eq!(file_of_label(name), name);
        }
    }

    #[test]
    fn folded_frames_keep_blanks_and_lose_what_breaks_lines() {
        assert_eq!(folded("<[u8; 2] as T>::f"), "<[u8: 2] as T>::f");
        assert_eq!(folded("a b"), "a b");
        assert_eq!(
            folded("a\nb\tc\x1bd\x7fe\u{85}f\u{2028}"),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f\u{fffd}"
        );
        assert_eq!(folded("中"), "中");
    }

    #[test]
    fn escapes_show_the_true_name() {
        assert_eq!(escaped("a\nb\x1b[31m;\u{9b}"), "a\\nb\\u{1b}[31m;\\u{9b}");
        assert_eq!(escaped("a\\b"), "a\\b");
        assert_eq!(escaped("\u{202e}fdp.a"), "\\u{202e}fdp.a");
    }

    #[test]
    fn escapes_are_read_back() {
        for name in ["a\nb\tc\r", "\u{1b}[31m\u{9b}", "\u{202e}x", "plain"] {
            assert_eq!(unescaped(&escaped(name)), name);
        }
        for text in [
            r"\u{41}",
            r"\u{1b",
            r"\u{x}",
            r"\*",
            r"a\",
            r"\u{ffffffffff}",
        ] {
            assert_eq!(unescaped(text), text);
        }
    }

    #[test]
    fn odd_names_are_known_by_what_is_shown_of_them() {
        let known = |name: &[u8], shown: &str| is_shown(name, |text| text == shown);
        assert!(known(b"w\xffrk", "w\u{fffd}rk"));
        assert!(known(b"a;b\x1b\xff", "a;b\\u{1b}\u{fffd}"));
        assert!(known(b"a;b\x1b", "a:b\u{fffd}"));
        assert!(!known(b"a;b\x1b", "a:b\\u{1b}"));
        assert!(
            !known(b"plain", "plain"),
            "what is as it is shown is asked for as it is"
        );
    }
}
