//! Which modules, and which processes, of two captures are the same under another name: of another version, or as the user says.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

/// Something that has two names: (BEFORE's, AFTER's).
pub type Renamed = (String, String);

/// Names that only differ in their version numbers, where each capture has just one such name: `libfoo.so.1.0.3` and
/// `libfoo.so.1.0.4`, `server-1.2` and `server-1.3`, `server` and `server-2`. With `said`, what the user says is the same.
///
/// Of several versions side by side nobody can tell which one became which: none of them is taken for another.
pub(super) fn pairs<'n>(
    before: impl IntoIterator<Item = &'n str>,
    after: impl IntoIterator<Item = &'n str>,
    said: &[Renamed],
) -> HashMap<String, String> {
    let said_before = |name: &str| said.iter().any(|(old, _)| old == name);
    let said_after = |name: &str| said.iter().any(|(_, new)| new == name);
    let (before, after): (HashSet<&str>, HashSet<&str>) =
        (before.into_iter().collect(), after.into_iter().collect());
    let mut pairs: HashMap<String, String> = said
        .iter()
        .filter(|(old, new)| before.contains(&**old) && after.contains(&**new))
        .cloned()
        .collect();
    let (old, new) = (by_stem(&before, said_before), by_stem(&after, said_after));
    for (stem, names) in old {
        if let ([old], Some([new])) = (&names[..], new.get(&stem).map(Vec::as_slice))
            && !after.contains(old)
            && !before.contains(new)
        {
            pairs.insert((*old).to_owned(), (*new).to_owned());
        }
    }
    pairs
}

/// The names that have the same stem, those left out that are `said` to be something else's.
fn by_stem<'n>(
    names: &HashSet<&'n str>,
    said: impl Fn(&str) -> bool,
) -> BTreeMap<String, Vec<&'n str>> {
    let mut stems: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names.iter().filter(|name| !said(name)) {
        if let Some(stem) = stem(name) {
            stems.entry(stem).or_default().push(name);
        }
    }
    stems
}

/// A name without its version numbers: digits after a point, a line or a plus, with these and a `v` between. Digits that end a
/// word are part of its name: sha1sum is no version of sha256sum, x264 none of x265. None of labels in square brackets, which
/// no file is called, and where no letter is left.
fn stem(name: &str) -> Option<String> {
    if name.starts_with('[') {
        return None;
    }
    let mut stem = String::new();
    let mut in_version = false;
    for c in name.chars() {
        in_version = c.is_ascii_digit()
            && (in_version
                || stem
                    .strip_suffix('v')
                    .unwrap_or(&stem)
                    .ends_with(SEPARATORS));
        if !in_version {
            stem.push(c);
            continue;
        }
        // `-v2`, and the letter is no part of a word.
        let word = stem
            .strip_suffix('v')
            .filter(|rest| rest.ends_with(SEPARATORS));
        let length = word.unwrap_or(&stem).trim_end_matches(SEPARATORS).len();
        stem.truncate(length);
    }
    stem.contains(char::is_alphabetic).then_some(stem)
}

const SEPARATORS: [char; 4] = ['.', '-', '_', '+'];

/// Modules that only one of the two has, and functions of the same names are in: (BEFORE's, AFTER's, how many names), those with
/// most first. They are not the same unless someone says so.
pub(super) fn alike(
    before: &BTreeMap<&str, HashSet<&str>>,
    after: &BTreeMap<&str, HashSet<&str>>,
    pairs: &HashMap<String, String>,
) -> Vec<(String, String, usize)> {
    let paired: HashSet<&str> = pairs.values().map(String::as_str).collect();
    let old = before
        .iter()
        .filter(|(name, _)| !after.contains_key(**name) && !pairs.contains_key(**name));
    let mut found = Vec::new();
    for (old, theirs) in old {
        let new = after
            .iter()
            .filter(|(name, _)| !before.contains_key(**name) && !paired.contains(**name));
        for (new, ours) in new {
            let common = theirs.intersection(ours).count();
            // Every program has a main().
            if common >= 2 && common * 2 >= theirs.len().min(ours.len()) {
                found.push(((*old).to_owned(), (*new).to_owned(), common));
            }
        }
    }
    found.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, &a.1).cmp(&(&b.0, &b.1))));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(old: &str, new: &str) -> Vec<Renamed> {
        vec![(old.to_owned(), new.to_owned())]
    }

    #[test]
    fn a_version_is_digits_and_what_parts_them() {
        for (name, expected) in [
            ("server-1.2", Some("server")),
            ("server", Some("server")),
            ("server-v2", Some("server")),
            ("dev2", Some("dev2")),
            ("sha256sum", Some("sha256sum")),
            ("x264", Some("x264")),
            ("utf16.so", Some("utf16.so")),
            ("libfoo.so.1.0.3", Some("libfoo.so")),
            ("libfoo-2.31.so", Some("libfoo.so")),
            ("libabsl_base.so.20220623", Some("libabsl_base.so")),
            ("python3.11", Some("python3")),
            ("[kernel]", None),
            ("1.2", None),
            ("", None),
        ] {
            assert_eq!(stem(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn only_what_cannot_be_anything_else_is_the_same() {
        let of = |before: &[&'static str], after: &[&'static str], said: &[Renamed]| {
            let pairs = pairs(before.iter().copied(), after.iter().copied(), said);
            let mut list: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}={b}")).collect();
            list.sort();
            list.join(" ")
        };
        assert_eq!(
            of(&["libc.so.6", "app-1.2"], &["app-1.3", "libc.so.6"], &[]),
            "app-1.2=app-1.3"
        );
        // Two versions at once, on either side or on both.
        assert_eq!(of(&["l.so.1", "l.so.2"], &["l.so.3"], &[]), "");
        assert_eq!(of(&["l.so.1"], &["l.so.2", "l.so.3"], &[]), "");
        assert_eq!(of(&["l.so.1", "l.so.2"], &["l.so.2", "l.so.3"], &[]), "");
        assert_eq!(of(&["old", "[anon1]"], &["new", "[anon2]"], &[]), "");
        assert_eq!(of(&["old"], &["new"], &said("old", "new")), "old=new");
        assert_eq!(of(&["old"], &["new"], &said("other", "new")), "");
        // What the user says of one says nothing of those that both have.
        assert_eq!(
            of(&["s.1", "s.2"], &["s.1", "s.2"], &said("s.1", "s.2")),
            "s.1=s.2"
        );
        assert_eq!(
            of(
                &["l.so.1", "l.so.2"],
                &["l.so.3"],
                &said("l.so.1", "l.so.3")
            ),
            "l.so.1=l.so.3"
        );
        // What is left when one of two is spoken for.
        assert_eq!(
            of(
                &["l.so.1", "l.so.2"],
                &["l.so.3", "l.so.4"],
                &said("l.so.1", "l.so.3")
            ),
            "l.so.1=l.so.3 l.so.2=l.so.4"
        );
    }

    #[test]
    fn modules_that_look_alike_are_only_told() {
        let of = |modules: &[(&'static str, &[&'static str])]| -> BTreeMap<&'static str, HashSet<&'static str>> {
            let sets = modules.iter().map(|(m, names)| (*m, names.iter().copied().collect()));
            sets.collect()
        };
        let before = of(&[
            ("app.old", &["main", "f", "g"]),
            ("ls", &["main", "x"]),
            ("libc", &["read"]),
        ]);
        let after = of(&[
            ("app", &["main", "f", "h"]),
            ("cat", &["main", "y"]),
            ("libc", &["read"]),
        ]);
        let none = HashMap::new();
        assert_eq!(
            alike(&before, &after, &none),
            [("app.old".to_owned(), "app".to_owned(), 2)]
        );
        let known = HashMap::from([("app.old".to_owned(), "app".to_owned())]);
        assert_eq!(alike(&before, &after, &known), []);
    }
}
