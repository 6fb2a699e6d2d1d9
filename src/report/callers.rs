//! `--callers FUNC`, `--callees FUNC`: which functions FUNC is. The trees around them are those of [`tree`](super::tree).

use regex::RegexBuilder;

use super::text::escaped;
use super::weights::{Functions, Weights};
use crate::profile::shown::is_shown;
use crate::profile::{Profile, StackId};

/// Bytes a compiled pattern may take.
const PATTERN_SIZE: usize = 1 << 20;
/// Functions that are named where there are many.
const NAMED: usize = 5;

/// The functions that were asked for, taken as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Numbers of functions, heaviest first.
    pub(super) numbers: Vec<u32>,
    /// Their names, in the same order, each once.
    pub names: Vec<String>,
    /// What was asked for.
    pub asked: String,
}

/// There is no function of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no function with samples is called {asked}{hint}")]
pub struct NotFound {
    asked: String,
    hint: String,
}

impl Found {
    /// What the functions are called in one line.
    pub fn title(&self) -> String {
        match &self.names[..] {
            [name] => escaped(name).into_owned(),
            [] => escaped(&self.asked).into_owned(),
            names => format!("{} functions like {}", names.len(), escaped(&self.asked)),
        }
    }

    /// Which they are, where that is not plain.
    pub fn explained(&self) -> Option<String> {
        if self.names.is_empty() || self.names == [&self.asked[..]] {
            return None;
        }
        let names = self.names.iter().take(NAMED).map(|name| escaped(name));
        let mut line = format!(
            "{} is: {}",
            escaped(&self.asked),
            names.collect::<Vec<_>>().join("; ")
        );
        if self.names.len() > NAMED {
            line.push_str(&format!("; and {} more", self.names.len() - NAMED));
        }
        Some(line)
    }
}

/// The functions with samples that are called `asked`; without any, those whose names contain it; without any, those whose
/// names it matches as a regular expression. A profile without samples has none, which is no reason to doubt the name.
pub fn find(profile: &Profile, asked: &str) -> Result<Found, NotFound> {
    if profile.total_weight() == 0 {
        return Ok(Found {
            numbers: Vec::new(),
            names: Vec::new(),
            asked: asked.to_owned(),
        });
    }
    let functions = Functions::new(&profile.names);
    let mut weights = Weights::new(&profile.stacks);
    weights.count(&profile.stacks, &[&profile.rows]);
    let mut of_functions = vec![0u64; functions.len()];
    for stack in weights.touched() {
        let number = profile
            .stacks
            .leaf(*stack)
            .and_then(|(_, frame)| functions.function(frame));
        if let Some(sum) = number.and_then(|number| of_functions.get_mut(number as usize)) {
            *sum = sum.saturating_add(weights.total(*stack));
        }
    }
    let name = |number: &u32| functions.text(&profile.names, *number).0;
    let sampled = || {
        (0..functions.len() as u32)
            .filter(|n| of_functions.get(*n as usize).is_some_and(|w| *w > 0))
    };
    // As it is, or as it is shown.
    let called = |n: &u32, is: &dyn Fn(&str) -> bool| {
        let name = name(n);
        is(name) || is_shown(name.as_bytes(), is)
    };
    let all = |is: &dyn Fn(&str) -> bool| sampled().filter(|n| called(n, is)).collect();
    let mut numbers: Vec<u32> = all(&|name| name == asked);
    if numbers.is_empty() {
        numbers = all(&|name| name.contains(asked));
    }
    let mut hint = String::new();
    let mut pattern = |text: &str, any_case| {
        let built = RegexBuilder::new(text)
            .case_insensitive(any_case)
            .size_limit(PATTERN_SIZE)
            .build();
        built
            .map_err(|err| hint = format!(", and it is no regular expression: {}", last_line(&err)))
            .ok()
    };
    if numbers.is_empty()
        && let Some(pattern) = pattern(asked, false)
    {
        numbers = all(&|name| pattern.is_match(name));
    }
    if numbers.is_empty() {
        let alike = pattern(&regex::escape(asked), true);
        let alike = sampled().find(|n| alike.as_ref().is_some_and(|p| p.is_match(name(n))));
        if let Some(number) = alike {
            hint = format!("; there is {}", escaped(name(&number)));
        } else if hint.is_empty() {
            hint = "; --top lists those there are".to_owned();
        }
        let asked = escaped(asked).into_owned();
        return Err(NotFound { asked, hint });
    }
    let weight = |n: &u32| of_functions.get(*n as usize).copied().unwrap_or(0);
    numbers.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| name(a).cmp(name(b))));
    let mut names: Vec<String> = Vec::new();
    let mut seen = hashbrown::HashSet::new();
    for number in &numbers {
        if seen.insert(name(number)) {
            names.push(name(number).to_owned());
        }
    }
    Ok(Found {
        numbers,
        names,
        asked: asked.to_owned(),
    })
}

/// What is wrong with a pattern, without the picture of it.
fn last_line(err: &regex::Error) -> String {
    let text = err.to_string();
    let line = text.lines().last().unwrap_or("").trim();
    escaped(line.trim_start_matches("error: ")).into_owned()
}

/// Where the functions found are outermost in the stacks counted, with the weight of all samples below: a function that
/// calls itself, at whatever distance, counts once.
pub(super) fn outermost(
    profile: &Profile,
    functions: &Functions,
    weights: &Weights,
    found: &Found,
) -> Vec<(StackId, u64)> {
    let mut wanted = vec![false; functions.len()];
    for number in &found.numbers {
        if let Some(wanted) = wanted.get_mut(*number as usize) {
            *wanted = true;
        }
    }
    let mut inside = vec![false; profile.stacks.len() + 1];
    let mut outermost = Vec::new();
    for stack in weights.touched() {
        let Some((caller, frame)) = profile.stacks.leaf(*stack) else {
            continue;
        };
        let mut is_inside = inside.get(caller as usize).copied().unwrap_or(false);
        let number = functions.number(frame);
        if !is_inside && number.is_some_and(|n| wanted.get(n as usize).copied().unwrap_or(false)) {
            outermost.push((*stack, weights.total(*stack)));
            is_inside = true;
        }
        if let Some(inside) = inside.get_mut(*stack as usize) {
            *inside = is_inside;
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    fn profile() -> Profile {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "drive(int)", "hot"], 5);
        b.row(p, &["main", "drive(long)", "hot_alpha"], 2);
        b.row(p, &["Main", "a\x1bb", "hot_alpha"], 2);
        b.profile
    }

    #[test]
    fn exact_names_come_before_parts_and_parts_before_patterns() {
        let profile = profile();
        let names = |asked: &str| find(&profile, asked).map(|f| f.names);
        assert_eq!(names("hot").unwrap(), ["hot"]);
        assert_eq!(names("alpha").unwrap(), ["hot_alpha"]);
        assert_eq!(names("drive(").unwrap(), ["drive(int)", "drive(long)"]);
        assert_eq!(names("^hot").unwrap(), ["hot", "hot_alpha"]);
        assert_eq!(names("drive.int").unwrap(), ["drive(int)"]);
        for shown in ["a\x1bb", r"a\u{1b}b", "a\u{fffd}b", r"\u{1b}b"] {
            assert_eq!(names(shown).unwrap(), ["a\x1bb"], "{shown}");
        }
        let said = |asked: &str| names(asked).unwrap_err().to_string();
        assert_eq!(
            said("HOT"),
            "no function with samples is called HOT; there is hot"
        );
        assert_eq!(
            said("zz"),
            "no function with samples is called zz; --top lists those there are"
        );
        assert!(said("(zz\x1b").starts_with(
            "no function with samples is called (zz\\u{1b}, and it is no regular expression: "
        ));
        assert!(said("(zz").ends_with("unclosed group"), "{}", said("(zz"));
    }

    #[test]
    fn without_samples_no_name_is_wrong() {
        let found = find(&Profile::default(), "hot").unwrap();
        assert_eq!((found.title().as_str(), found.explained()), ("hot", None));
        assert!(found.numbers.is_empty() && found.names.is_empty());
    }

    #[test]
    fn what_was_taken_for_the_function_is_told_unless_it_is_plain() {
        let profile = profile();
        let found = |asked| find(&profile, asked).unwrap();
        assert_eq!(found("hot").explained(), None);
        assert_eq!(found("hot").title(), "hot");
        assert_eq!(found("alpha").explained().unwrap(), "alpha is: hot_alpha");
        assert_eq!(
            found("a\x1b").explained().unwrap(),
            "a\\u{1b} is: a\\u{1b}b"
        );
        assert_eq!(found("drive").title(), "2 functions like drive");
        assert_eq!(
            found("drive").explained().unwrap(),
            "drive is: drive(int); drive(long)"
        );
    }
}
