//! Two profiles as one: names, functions and stacks that print alike are the same, and functions of one name in what is the same
//! module under [another name](super::same).

use std::borrow::Cow;
use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use super::same::{self, Renamed};
use super::{Input, NotComparable, Side};
use crate::profile::shown::file_of_label;
use crate::profile::{
    By, Frame, FrameId, Group, NameId, Names, Profile, Row, StackId, Stacks, counted_event,
};

/// Two profiles over one set of names and stacks.
#[derive(Debug)]
pub struct Joined {
    /// Strings and functions of both.
    pub names: Names,
    /// Stacks of both.
    pub stacks: Stacks,
    /// Names of groups of both, without process numbers, which are others in every run; empty where there are no groups.
    pub(super) groups: Vec<NameId>,
    /// The first capture, its rows by group and stack.
    pub before: (Side, Vec<Row>),
    /// The second.
    pub after: (Side, Vec<Row>),
    /// Modules and groups taken as one though their names differ, in the order of names.
    pub renamed: Vec<Renamed>,
    /// Modules that functions of the same names are in and that are not taken as one, with how many names.
    pub alike: Vec<(String, String, usize)>,
}

/// The name of an event without its rate, which it has where one capture has several: shares can be compared whatever the rate.
fn without_rate(event: &str) -> &str {
    match event.rsplit_once('@') {
        Some((name, rate)) if rate.ends_with("Hz") || rate.starts_with("every") => name,
        _ => event,
    }
}

impl Joined {
    /// Joins two profiles of the same event. What is `said` to be the same are names of modules and groups; others are taken as
    /// one where they only differ in their version.
    pub fn new(
        before: &Input<'_>,
        after: &Input<'_>,
        said: &[Renamed],
    ) -> Result<Joined, NotComparable> {
        let sides = (before.side()?, after.side()?);
        if let (Some(first), Some(second)) = (&sides.0.event, &sides.1.event)
            && counted_event(without_rate(first)) != counted_event(without_rate(second))
        {
            return Err(NotComparable::Events {
                before: first.clone(),
                after: second.clone(),
            });
        }
        let modules = (modules(before.profile), modules(after.profile));
        let of_modules = same::pairs(names(&modules.0), names(&modules.1), said);
        let groups = (groups(before.profile), groups(after.profile));
        let of_groups = same::pairs(
            groups.0.iter().map(|name| &**name),
            groups.1.iter().map(|name| &**name),
            said,
        );
        let unknown = said
            .iter()
            .find(|(old, new)| of_modules.get(old) != Some(new) && of_groups.get(old) != Some(new));
        if let Some((old, new)) = unknown {
            return Err(NotComparable::NotThere {
                old: old.clone(),
                new: new.clone(),
            });
        }
        let renames = Renames {
            modules: &of_modules,
            groups: &of_groups,
            after: &modules.1,
        };
        let mut join = Join::default();
        let before = join.rows(before.profile, Some(&renames));
        let after = join.rows(after.profile, None);
        let of_groups = of_groups.iter().map(|(a, b)| (a.clone(), b.clone()));
        let mut renamed: Vec<Renamed> = join.used.iter().cloned().chain(of_groups).collect();
        renamed.sort();
        renamed.dedup();
        Ok(Joined {
            names: join.names,
            stacks: join.stacks,
            groups: join.groups,
            before: (sides.0, before),
            after: (sides.1, after),
            renamed,
            alike: same::alike(&modules.0, &modules.1, &of_modules),
        })
    }
}

/// Names of functions, by module.
type Modules<'p> = BTreeMap<&'p str, HashSet<&'p str>>;

/// What functions a profile has frames of; labels of code without a name are none.
fn modules(profile: &Profile) -> Modules<'_> {
    let mut modules = Modules::new();
    for frame in profile.names.frames() {
        let (name, module) = (
            profile.names.text(frame.name),
            profile.names.text(frame.module),
        );
        if !module.is_empty() {
            modules.entry(module).or_default().insert(name);
        }
    }
    modules
}

fn names<'m>(modules: &'m Modules<'_>) -> impl Iterator<Item = &'m str> {
    modules.keys().copied()
}

/// What groups are called that go by the name of a program or thread; those that go by numbers are none.
fn groups(profile: &Profile) -> Vec<Cow<'_, str>> {
    let named = matches!(profile.by, By::Process | By::Thread | By::Comm | By::Exe);
    let groups = profile.groups.iter().filter(|_| named);
    groups.map(|group| name(profile, group)).collect()
}

/// What things of BEFORE are called in AFTER.
struct Renames<'a> {
    modules: &'a HashMap<String, String>,
    groups: &'a HashMap<String, String>,
    after: &'a Modules<'a>,
}

#[derive(Default)]
struct Join {
    /// Modules of which functions were taken as those of another.
    used: HashSet<Renamed>,
    names: Names,
    stacks: Stacks,
    groups: Vec<NameId>,
    group_index: HashMap<NameId, u32>,
}

impl Join {
    /// The rows of `profile` with numbers of what is joined.
    fn rows(&mut self, profile: &Profile, renames: Option<&Renames<'_>>) -> Vec<Row> {
        let frames = profile.names.frames();
        let frames: Vec<FrameId> = frames
            .iter()
            .map(|frame| self.frame(profile, frame, renames))
            .collect();
        let mut stacks: Vec<StackId> = vec![0];
        for (caller, frame) in profile.stacks.nodes() {
            let caller = stacks.get(caller as usize).copied().unwrap_or(0);
            let frame = frames.get(frame as usize).copied().unwrap_or(FrameId::MAX);
            stacks.push(self.stacks.push(caller, frame));
        }
        let groups: Vec<u32> = profile
            .groups
            .iter()
            .map(|group| self.group(&name(profile, group), renames))
            .collect();
        let rows = profile.rows.iter().map(|row| Row {
            group: groups.get(row.group as usize).copied().unwrap_or(0),
            event: 0,
            stack: stacks.get(row.stack as usize).copied().unwrap_or(0),
            ..*row
        });
        rows.collect()
    }

    fn frame(
        &mut self,
        profile: &Profile,
        frame: &Frame,
        renames: Option<&Renames<'_>>,
    ) -> FrameId {
        let mut name = without_offset(profile.names.text(frame.name));
        let mut module = profile.names.text(frame.module);
        if let Some((ours, renamed)) = renames.and_then(|r| r.function(&name, module)) {
            self.used.insert((module.to_owned(), renamed.to_owned()));
            (name, module) = (ours, renamed);
        }
        let name = self.names.intern(&name);
        let module = self.names.intern(module);
        // Whether a compiler inlines it is no matter of what it is, nor are lines and addresses.
        self.names.frame_id(Frame::new(name, module, frame.kind))
    }

    fn group(&mut self, name: &str, renames: Option<&Renames<'_>>) -> u32 {
        let renamed = renames.and_then(|renames| renames.groups.get(name));
        let name = self.names.intern(renamed.map_or(name, |renamed| renamed));
        let next = self.groups.len() as u32;
        let number = *self.group_index.entry(name).or_insert(next);
        if number == next {
            self.groups.push(name);
        }
        number
    }
}

impl<'a> Renames<'a> {
    /// What a function of BEFORE is in AFTER, where its module has another name there and a function of its name.
    fn function(&self, name: &str, module: &str) -> Option<(Cow<'a, str>, &'a str)> {
        let renamed = self.modules.get(module)?;
        let (renamed, theirs) = self.after.get_key_value(&**renamed)?;
        // Code without a name is called after its module.
        if name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) == Some(module) {
            return Some((format!("[{renamed}]").into(), renamed));
        }
        theirs
            .get(name)
            .map(|name| (Cow::Borrowed(*name), *renamed))
    }
}

/// What a group is called in any run: without the number of its process or thread. Empty where there are no groups.
fn name<'a>(profile: &'a Profile, group: &Group) -> Cow<'a, str> {
    if profile.by == By::None {
        return "".into();
    }
    let label = profile.names.text(group.label);
    let number = group.tid.or(group.process.map(|process| process.tgid));
    let Some(number) = number.map(|number| format!("-{number}")) else {
        return label.into();
    };
    if let Some(name) = label.strip_suffix(&number) {
        return name.into();
    }
    // Of a merged capture its host follows.
    match label.rsplit_once(&format!("{number}@")) {
        Some((name, host)) => format!("{name}@{host}").into(),
        None => label.into(),
    }
}

/// The label of a frame without a name, `[libfoo.so+0x1234]` or `[libfoo.so#1a2b3c4+0x1234]`, without what is of one build:
/// `[libfoo.so]`.
fn without_offset(name: &str) -> Cow<'_, str> {
    let label = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let parts = label.and_then(|label| label.rsplit_once("+0x"));
    match parts {
        Some((module, offset))
            if !offset.is_empty() && offset.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            Cow::Owned(format!("[{}]", file_of_label(module)))
        }
        _ => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_lose_their_offset() {
        assert_eq!(without_offset("[libfoo.so+0x12aF]"), "[libfoo.so]");
        assert_eq!(without_offset("[a+0x1+0x2]"), "[a+0x1]");
        assert_eq!(without_offset("[libfoo.so#1a2b3c4+0x12]"), "[libfoo.so]");
        for name in [
            "[libfoo.so]",
            "[anon]",
            "f+0x12",
            "[a+0x]",
            "[a+0xg]",
            "",
            "[",
        ] {
            assert_eq!(without_offset(name), name);
        }
    }
}
