//! Profiles of several captures as one: what has the same names is the same.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{
    FrameId, FrameKind, Group, Missing, MissingKind, NameId, Names, Naming, Profile, Reason, Row,
    SourceLine, StackId,
};
use crate::event::BuildId;

/// How a profile becomes a part of another.
pub struct Joined<'a> {
    /// Of each of its events, the number in the other.
    pub events: &'a [u8],
    /// The label of each of its groups there.
    pub label: &'a dyn Fn(&str) -> String,
}

impl Names {
    /// The number here of what has the number `frame` in `theirs`.
    pub fn adopt(&mut self, theirs: &Names, frame: FrameId) -> FrameId {
        let Some(theirs_frame) = theirs.frames.get(frame as usize) else {
            let name = self.intern("");
            return self.frame_id(super::Frame::new(name, Names::EMPTY, FrameKind::User));
        };
        let mut frame = *theirs_frame;
        frame.name = self.intern(theirs.text(frame.name));
        frame.module = self.intern(theirs.text(frame.module));
        let source = frame.source.map(|source| self.adopt_source(theirs, source));
        frame.source = source;
        self.frame_id(frame)
    }

    /// The same place in source text, by its path.
    pub fn adopt_source(&mut self, theirs: &Names, source: SourceLine) -> SourceLine {
        SourceLine {
            file: self.intern(theirs.text(source.file)),
            line: source.line,
        }
    }
}

impl Profile {
    /// Takes in all that `other` has counted; not what it says about its capture. Rows of the same group, event and
    /// stack are not one yet.
    pub fn absorb(&mut self, other: Profile, joined: &Joined<'_>) {
        let theirs = &other.names;
        let numbers = 0..theirs.frames.len() as FrameId;
        let frames: Vec<FrameId> = numbers
            .map(|frame| self.names.adopt(theirs, frame))
            .collect();
        let mut stacks: Vec<StackId> = Vec::with_capacity(other.stacks.len() + 1);
        stacks.push(0);
        for (caller, frame) in other.stacks.nodes() {
            let caller = stacks.get(caller as usize).copied().unwrap_or(0);
            let frame = frames.get(frame as usize).copied().unwrap_or(0);
            stacks.push(self.stacks.push(caller, frame));
        }
        let known = self.groups.iter().enumerate();
        let mut known: HashMap<Group, u32> = known.map(|(i, g)| (*g, i as u32)).collect();
        let mut groups = Vec::with_capacity(other.groups.len());
        for group in &other.groups {
            let label: NameId = self.names.intern(&(joined.label)(theirs.text(group.label)));
            let group = Group { label, ..*group };
            let next = self.groups.len() as u32;
            let number = *known.entry(group).or_insert(next);
            if number == next {
                self.groups.push(group);
            }
            groups.push(number);
        }
        self.rows.extend(other.rows.iter().map(|row| {
            Row {
                group: groups.get(row.group as usize).copied().unwrap_or(0),
                event: joined
                    .events
                    .get(usize::from(row.event))
                    .copied()
                    .unwrap_or(0),
                stack: stacks.get(row.stack as usize).copied().unwrap_or(0),
                ..*row
            }
        }));
        self.naming.add(other.naming);
        self.add_missing(other.missing);
    }

    fn add_missing(&mut self, more: Vec<Missing>) {
        type Key = (MissingKind, String, Option<BuildId>, Reason);
        let key = |m: &Missing| -> Key { (m.kind, m.path.clone(), m.build_id.clone(), m.reason) };
        let known = self.missing.iter().enumerate();
        let known: HashMap<Key, usize> = known.map(|(i, m)| (key(m), i)).collect();
        for missing in more {
            let same = known.get(&key(&missing)).copied();
            match same.and_then(|at| self.missing.get_mut(at)) {
                Some(known) => {
                    known.samples = known.samples.saturating_add(missing.samples);
                    known.frames = known.frames.saturating_add(missing.frames);
                }
                None => self.missing.push(missing),
            }
        }
        self.missing.sort_by_key(|missing| Reverse(missing.samples));
    }
}

impl Naming {
    /// Adds what another capture's frames came to.
    pub fn add(&mut self, more: Naming) {
        let sums = [
            (&mut self.user_named, more.user_named),
            (&mut self.user_total, more.user_total),
            (&mut self.kernel_named, more.kernel_named),
            (&mut self.kernel_total, more.kernel_total),
            (&mut self.unverified, more.unverified),
            (&mut self.ended_early, more.ended_early),
            (&mut self.before_exec, more.before_exec),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        for (reason, count) in more.unnamed {
            let sum = self.unnamed.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
        for file in more.files {
            let same = self.files.iter_mut().find(|known| {
                (&known.path, &known.build_id, known.reason)
                    == (&file.path, &file.build_id, file.reason)
            });
            match same {
                Some(known) => known.frames = known.frames.saturating_add(file.frames),
                None => self.files.push(file),
            }
        }
        self.files.sort_by_key(|file| Reverse(file.frames));
    }
}
