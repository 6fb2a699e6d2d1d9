//! Names as people give them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use globset::GlobMatcher;
use regex::Regex;

use crate::profile::shown::{is_shown, unescaped};
use crate::timeline::file_name;

/// A name, or a pattern for the whole of it: `*`, `?`, `[a-z]`, `{a,b}`. A name that looks like a pattern matches itself too, and a
/// `?` alone, or what is in square brackets as a whole, nothing else: it stands for what is not known, or is a label. Names match as they are, and as reports show them.
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    pattern: GlobMatcher,
    /// With the characters that escapes of reports stand for, where it has any.
    unescaped: Option<GlobMatcher>,
}

impl Glob {
    /// Whether it is the name of `name`, or matches it.
    pub fn matches(&self, name: &[u8]) -> bool {
        let is = |name: &[u8]| {
            let is_match = || self.pattern.is_match(Path::new(OsStr::from_bytes(name)));
            self.text.as_bytes() == name || (self.text != "?" && is_match())
        };
        let unescaped = self.unescaped.as_ref();
        is(name)
            || unescaped.is_some_and(|glob| glob.is_match(Path::new(OsStr::from_bytes(name))))
            || is_shown(name, |shown| is(shown.as_bytes()))
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Glob {
    type Err = String;

    fn from_str(text: &str) -> Result<Glob, String> {
        if text.is_empty() {
            return Err("a name is needed".to_owned());
        }
        let pattern = match globset::Glob::new(text) {
            Ok(glob) if !is_label(text) => glob,
            // A name that only looks like one.
            _ => globset::Glob::new(&globset::escape(text)).map_err(|err| err.to_string())?,
        };
        Ok(Glob {
            text: text.to_owned(),
            pattern: pattern.compile_matcher(),
            unescaped: match unescaped(text) {
                Cow::Borrowed(_) => None,
                Cow::Owned(text) if is_label(&text) => {
                    globset::Glob::new(&globset::escape(&text)).ok()
                }
                Cow::Owned(text) => globset::Glob::new(&text).ok(),
            }
            .map(|glob| glob.compile_matcher()),
        })
    }
}

/// A path, or the file name at its end where the pattern has no `/`.
#[derive(Debug, Clone)]
pub struct PathPattern(Glob);

impl PathPattern {
    /// Whether it is the path `path`, or its file name.
    pub fn matches(&self, path: &[u8]) -> bool {
        match self.0.text.contains('/') {
            true => self.0.matches(path),
            false => self.0.matches(file_name(path)),
        }
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        self.0.text()
    }
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<PathPattern, String> {
        text.parse().map(PathPattern)
    }
}

/// A name, or a regular expression for the whole of it.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: String,
    /// `None` for a label in square brackets, which would be a set of letters.
    pattern: Option<Regex>,
}

impl NamePattern {
    /// Whether it is `name`, or matches all of it.
    pub fn matches(&self, name: &str) -> bool {
        let is = |name: &str| {
            self.text == name || self.pattern.as_ref().is_some_and(|p| p.is_match(name))
        };
        is(name) || is_shown(name.as_bytes(), is)
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<NamePattern, String> {
        if text.is_empty() {
            return Err("a name is needed".to_owned());
        }
        let pattern = match is_label(text) {
            true => None,
            false => {
                // Alone first: what is wrong with it is to be said of what was given.
                Regex::new(text).map_err(|err| err.to_string())?;
                Some(Regex::new(&format!("^(?:{text})$")).map_err(|err| err.to_string())?)
            }
        };
        Ok(NamePattern {
            text: text.to_owned(),
            pattern,
        })
    }
}

/// Whether it is a label in square brackets, such as `[kernel thread]`, which would be a set of letters as a pattern.
fn is_label(text: &str) -> bool {
    let inside = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    inside.is_some_and(|text| !text.contains(['[', ']', '\\']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_is_of_the_whole_name_and_matches_itself() {
        let cases: [(&str, &[u8], bool); 21] = [
            ("worker", b"worker", true),
            ("worker", b"worker-1", false),
            ("work*", b"worker-1", true),
            ("kworker/*", b"kworker/0:1-events", true),
            ("k*", b"kworker/0:1", true),
            ("w?rker", b"w\xffrker", true),
            ("[ab]", b"[ab]", true),
            ("[ab]", b"a", false),
            ("[ab]*", b"a", true),
            ("[kernel thread]", b"[kernel thread]", true),
            ("[kernel thread]", b"k", false),
            ("[a", b"[a", true),
            ("{a,b}x", b"bx", true),
            ("?", b"?", true),
            ("?", b"a", false),
            ("??", b"ab", true),
            ("w\u{fffd}rker", b"w\xffrker", true),
            (r"a\u{1b}[0m", b"a\x1b[0m", true),
            (r"a\nb*", b"a\nb;c", true),
            ("a\u{fffd}b:c", b"a\nb;c", true),
            ("a:b", b"a_b", false),
        ];
        for (pattern, name, expected) in cases {
            let glob: Glob = pattern.parse().unwrap();
            assert_eq!(glob.matches(name), expected, "{pattern}");
        }
        assert!("".parse::<Glob>().is_err());
    }

    #[test]
    fn a_path_pattern_without_a_slash_is_of_the_file_name() {
        let cases = [
            ("bash", "/usr/bin/bash", true),
            ("bash", "/usr/bin/bash/x", false),
            ("/usr/bin/bash", "/usr/bin/bash", true),
            ("/usr/*/bash", "/usr/bin/bash", true),
            ("bin/bash", "/usr/bin/bash", false),
            ("*/bin/bash", "/usr/bin/bash", true),
            ("python3*", "/usr/bin/python3.11", true),
        ];
        for (pattern, path, expected) in cases {
            let pattern: PathPattern = pattern.parse().unwrap();
            let matches = pattern.matches(path.as_bytes());
            assert_eq!(matches, expected, "{} {path}", pattern.text());
        }
    }

    #[test]
    fn a_module_is_named_or_matched_as_a_whole() {
        let cases = [
            ("libc.so.6", "libc.so.6", true),
            ("libc", "libcrypto.so.3", false),
            ("libc.*", "libcrypto.so.3", true),
            ("a|b", "b", true),
            ("a|b", "xb", false),
            ("libstdc++.so.6", "libstdc++.so.6", true),
            ("[kernel]", "[kernel]", true),
            ("[kernel]", "k", false),
            (r"\[.*\]", "[nf_tables]", true),
            ("[a-z]+[s]", "apps", true),
            (r"[a\u{9b}]", "[a\u{9b}]", true),
            ("a:b", "a;b", true),
        ];
        for (pattern, name, expected) in cases {
            let pattern: NamePattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(name), expected, "{} {name}", pattern.text());
        }
        assert!("(".parse::<NamePattern>().is_err());
        assert!("a)(b".parse::<NamePattern>().is_err());
    }
}
