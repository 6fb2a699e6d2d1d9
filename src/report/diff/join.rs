//! Two profiles as one: names, functions and stacks that print alike are the same.

use std::borrow::Cow;

use hashbrown::HashMap;

use super::{Input, NotComparable, Side};
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
}

impl Joined {
    /// Joins two profiles of the same event.
    pub fn new(before: &Input<'_>, after: &Input<'_>) -> Result<Joined, NotComparable> {
        let sides = (before.side()?, after.side()?);
        if let (Some(first), Some(second)) = (&sides.0.event, &sides.1.event)
            && counted_event(first) != counted_event(second)
        {
            return Err(NotComparable::Events {
                before: first.clone(),
                after: second.clone(),
            });
        }
        let mut join = Join::default();
        let before = join.rows(before.profile);
        let after = join.rows(after.profile);
        Ok(Joined {
            names: join.names,
            stacks: join.stacks,
            groups: join.groups,
            before: (sides.0, before),
            after: (sides.1, after),
        })
    }
}

#[derive(Default)]
struct Join {
    names: Names,
    stacks: Stacks,
    groups: Vec<NameId>,
    group_index: HashMap<NameId, u32>,
}

impl Join {
    /// The rows of `profile` with numbers of what is joined.
    fn rows(&mut self, profile: &Profile) -> Vec<Row> {
        let frames = profile.names.frames();
        let frames: Vec<FrameId> = frames
            .iter()
            .map(|frame| self.frame(profile, frame))
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
            .map(|group| self.group(&name(profile, group)))
            .collect();
        let rows = profile.rows.iter().map(|row| Row {
            group: groups.get(row.group as usize).copied().unwrap_or(0),
            event: 0,
            stack: stacks.get(row.stack as usize).copied().unwrap_or(0),
            ..*row
        });
        rows.collect()
    }

    fn frame(&mut self, profile: &Profile, frame: &Frame) -> FrameId {
        let name = self
            .names
            .intern(&without_offset(profile.names.text(frame.name)));
        let module = self.names.intern(profile.names.text(frame.module));
        // Whether a compiler inlines it is no matter of what it is, nor are lines and addresses.
        self.names.frame_id(Frame::new(name, module, frame.kind))
    }

    fn group(&mut self, name: &str) -> u32 {
        let name = self.names.intern(name);
        let next = self.groups.len() as u32;
        let number = *self.group_index.entry(name).or_insert(next);
        if number == next {
            self.groups.push(name);
        }
        number
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

/// The label of a frame without a name, `[libfoo.so+0x1234]`, without its offset, which is of one build: `[libfoo.so]`.
fn without_offset(name: &str) -> Cow<'_, str> {
    let label = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let parts = label.and_then(|label| label.rsplit_once("+0x"));
    match parts {
        Some((module, offset))
            if !offset.is_empty() && offset.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            Cow::Owned(format!("[{module}]"))
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
