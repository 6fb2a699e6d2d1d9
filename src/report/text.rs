//! Making true names safe for an output: folded lines, terminals, XML.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use crate::profile::shown::is_control;
pub use crate::profile::shown::{escaped, folded};

/// Writes `value` as indented JSON and a newline, with escapes as [`json`] has them.
pub fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut text = without_controls(serde_json::to_string_pretty(value)?);
    text.push('\n');
    out.write_all(text.as_bytes())
}

/// `value` as JSON in one line. Strings have escapes for all control characters, not only for those that JSON asks for: people look
/// at it on a terminal.
pub fn json(value: &impl Serialize) -> io::Result<String> {
    Ok(without_controls(serde_json::to_string(value)?))
}

/// JSON with escapes in place of control characters.
fn without_controls(json: String) -> String {
    // A newline in a string is escaped already: what is left are those between lines.
    let odd = |c: char| is_control(c) && c != '\n';
    if !json.chars().any(odd) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        match c {
            c if odd(c) => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

/// `text` without the characters XML 1.0 forbids.
pub fn xml(text: &str) -> Cow<'_, str> {
    let forbidden = |c: char| {
        (c.is_control() && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if !text.chars().any(forbidden) {
        return Cow::Borrowed(text);
    }
    let replace = |c| {
        if forbidden(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    Cow::Owned(text.chars().map(replace).collect())
}

/// The first `most` characters of `text`, and `…` where there are more.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// `text` in HTML or XML, between tags or in quotes.
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters that JSON leaves as they are, and terminals and readers do not.
    #[test]
    fn json_is_safe_to_look_at_and_means_the_same() {
        let value = "a\"\n\u{7f}\u{9b}31m\u{2028}\u{202e}\u{2066}中";
        let mut out = Vec::new();
        write_json(&[value], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "[\n  \"a\\\"\\n\\u007f\\u009b31m\\u2028\\u202e\\u2066中\"\n]\n"
        );
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [value]);
        let line = json(&[value]).unwrap();
        assert_eq!(
            line,
            "[\"a\\\"\\n\\u007f\\u009b31m\\u2028\\u202e\\u2066中\"]"
        );
    }

    #[test]
    fn cut_at_characters() {
        assert_eq!(cut("中中", 2), "中中");
        assert_eq!(cut("中中文", 2), "中中…");
        assert_eq!(
            html("<a href='x'>&\""),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;"
        );
    }

    #[test]
    fn xml_has_no_forbidden_characters() {
        assert_eq!(
            xml("a\0b\u{1b}\u{ffff}\n<"),
            "a\u{fffd}b\u{fffd}\u{fffd}\n<"
        );
    }
}

/// Profiles for the tests of views.
#[cfg(test)]
pub mod tests_support {
    use crate::event::{Pid, ProcessKey, Timestamp};
    use crate::profile::{Event, Frame, FrameKind, Group, Profile, Row};

    /// Builds a profile row by row.
    #[derive(Default)]
    pub struct Builder {
        /// What is built.
        pub profile: Profile,
    }

    impl Builder {
        /// Adds a process.
        pub fn process(&mut self, name: &str, pid: u32) -> u32 {
            let label = self.profile.names.intern(&format!("{name}-{pid}"));
            let key = ProcessKey {
                tgid: Pid(pid),
                start_time: Timestamp(1),
            };
            self.profile.groups.push(Group {
                label,
                process: Some(key),
                tid: None,
            });
            self.profile.groups.len() as u32 - 1
        }

        /// Adds a row of user frames in a module `mod`, root first.
        pub fn row(&mut self, group: u32, stack: &[&str], weight: u64) {
            let frames: Vec<_> = stack.iter().map(|name| (FrameKind::User, *name)).collect();
            self.row_of(group, &frames, weight);
        }

        /// Adds a row of any frames, root first.
        pub fn row_of(&mut self, group: u32, frames: &[(FrameKind, &str)], weight: u64) {
            let profile = &mut self.profile;
            if profile.about.events.is_empty() {
                profile.about.events.push(Event {
                    name: "cpu-clock".into(),
                    rate: "99 Hz".into(),
                });
            }
            let mut stack = 0;
            for (kind, name) in frames {
                let module = match kind {
                    FrameKind::User => "mod",
                    FrameKind::Kernel => "[kernel]",
                    FrameKind::Truncated | FrameKind::LeftOut => "",
                };
                let (name, module) = (profile.names.intern(name), profile.names.intern(module));
                let frame = Frame::new(name, module, *kind);
                let frame = profile.names.frame_id(frame);
                stack = profile.stacks.push(stack, frame);
            }
            profile.rows.push(Row {
                group,
                event: 0,
                stack,
                samples: weight,
                weight,
            });
            profile.about.samples += weight;
        }
    }
}
