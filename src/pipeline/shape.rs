//! Stacks of places -> stacks of functions, as they were asked for.

use super::Shape;
use super::stacks::{CUT, PlaceStacks};
use crate::counted::counted;
use crate::profile::{
    By, Frame, FrameId, FrameKind, Group, Names, Profile, Resolution, Row, StackId, Stacks,
};
use crate::symbolize::Symbolizer;

/// What stands for frames deeper than was asked for.
const DEEPER: &str = "[deeper]";
/// What stands for what is less than was asked for.
const OTHER: &str = "[other]";

/// The named stack of each stack of places, the empty one first. Places must be resolved.
pub(super) fn named_stacks(
    places: &PlaceStacks,
    symbolizer: &Symbolizer,
    shape: &Shape,
    names: &mut Names,
    stacks: &mut Stacks,
) -> Vec<StackId> {
    let marker = mark("[truncated]", FrameKind::Truncated, names);
    let mut chains = Chains::new(shape);
    let mut growth = Growth::new(shape, names);
    let mut named: Vec<StackId> = Vec::with_capacity(places.len() + 1);
    named.push(0);
    for (caller, place) in places.nodes() {
        let mut stack = named.get(caller as usize).copied().unwrap_or(0);
        if place == CUT {
            stack = growth.push_mark(stack, marker, stacks);
        } else if let Some(resolution) = symbolizer.resolution(place) {
            chains.each(place as usize, resolution, names, |frame, names| {
                stack = growth.push(stack, frame, names, stacks);
            });
        }
        named.push(stack);
    }
    named
}

/// How stacks grow by one frame.
struct Growth {
    merge_recursion: bool,
    max_depth: Option<u32>,
    deeper: FrameId,
    /// By stack, its functions, where it is asked how many.
    depths: Vec<u32>,
}

impl Growth {
    fn new(shape: &Shape, names: &mut Names) -> Growth {
        Growth {
            merge_recursion: shape.merge_recursion,
            max_depth: shape.max_depth,
            deeper: match shape.max_depth {
                Some(_) => mark(DEEPER, FrameKind::LeftOut, names),
                None => FrameId::MAX,
            },
            depths: vec![0],
        }
    }

    fn push(
        &mut self,
        caller: StackId,
        frame: FrameId,
        names: &Names,
        stacks: &mut Stacks,
    ) -> StackId {
        let leaf = || stacks.leaf(caller).map(|(_, frame)| frame);
        if self.merge_recursion && leaf().is_some_and(|leaf| same_function(leaf, frame, names)) {
            return caller;
        }
        let Some(most) = self.max_depth else {
            return stacks.push(caller, frame);
        };
        if leaf() == Some(self.deeper) {
            return caller;
        }
        let depth = self.depths.get(caller as usize).copied().unwrap_or(0);
        let frame = if depth < most { frame } else { self.deeper };
        let stack = stacks.push(caller, frame);
        self.set_depth(stack, depth + 1);
        stack
    }

    /// A mark is no function: it adds nothing to the depth.
    fn push_mark(&mut self, caller: StackId, mark: FrameId, stacks: &mut Stacks) -> StackId {
        if stacks
            .leaf(caller)
            .is_some_and(|(_, leaf)| leaf == self.deeper)
        {
            return caller;
        }
        let stack = stacks.push(caller, mark);
        if self.max_depth.is_some() {
            let depth = self.depths.get(caller as usize).copied().unwrap_or(0);
            self.set_depth(stack, depth);
        }
        stack
    }

    fn set_depth(&mut self, stack: StackId, depth: u32) {
        let at = stack as usize;
        if self.depths.len() <= at {
            self.depths.resize(at + 1, 0);
        }
        if let Some(slot) = self.depths.get_mut(at) {
            *slot = depth;
        }
    }
}

/// Whether two frames are one function, at whatever lines and addresses.
fn same_function(a: FrameId, b: FrameId, names: &Names) -> bool {
    let of = |frame: FrameId| {
        let frame = names.frames().get(frame as usize)?;
        Some((frame.name, frame.module, frame.kind))
    };
    a == b || of(a) == of(b)
}

/// Rows in order, those of one group, event and stack put together.
pub(super) fn merged(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_unstable_by_key(|row| (row.group, row.event, row.stack));
    rows.dedup_by(|row, kept| {
        let same = (row.group, row.event, row.stack) == (kept.group, kept.event, kept.stack);
        if same {
            kept.samples = kept.samples.saturating_add(row.samples);
            kept.weight = kept.weight.saturating_add(row.weight);
        }
        same
    });
    rows
}

/// Puts what is less than was asked for together, and says in [`About::shape`](crate::profile::About::shape) what stacks are
/// without.
pub(super) fn leave_out(profile: &mut Profile, shape: &Shape) {
    let mut clauses = Vec::new();
    if shape.no_inline {
        clauses.push("inlined functions left out".to_owned());
    }
    if shape.merge_recursion {
        clauses.push("direct recursion is one frame".to_owned());
    }
    if let Some(most) = shape.max_depth {
        let samples = counted(samples_in(profile, DEEPER), "sample");
        let most = counted(most, "frame");
        clauses.push(format!("deeper than {most} is {DEEPER} ({samples})"));
    }
    if shape.min_percent > 0.0 {
        let least = profile.total_weight() as f64 * shape.min_percent / 100.0;
        merge_small(profile, least);
        let samples = counted(samples_in(profile, OTHER), "sample");
        clauses.push(format!(
            "below {} % of the samples is {OTHER} ({samples})",
            shape.min_percent
        ));
    }
    profile.about.shape = clauses;
}

/// What samples count for in place of whose leaf `mark` stands, or of whose group.
fn samples_in(profile: &Profile, mark: &str) -> u64 {
    let (names, frames) = (&profile.names, profile.names.frames());
    let is_mark = |frame: FrameId| {
        let frame = frames.get(frame as usize);
        frame.is_some_and(|f| f.kind == FrameKind::LeftOut && names.text(f.name) == mark)
    };
    let rows = profile.rows.iter().filter(|row| {
        let leaf = profile.stacks.leaf(row.stack);
        match leaf {
            Some((_, frame)) => is_mark(frame),
            None => {
                let group = profile.groups.get(row.group as usize);
                group.is_some_and(|g| g.process.is_none() && names.text(g.label) == mark)
            }
        }
    });
    rows.map(|row| row.weight).fold(0, u64::saturating_add)
}

/// Puts stacks below each caller, and groups, together that weigh less than `least`.
fn merge_small(profile: &mut Profile, least: f64) {
    let is_small = |weight: u64| (weight as f64) < least;
    let other = mark(OTHER, FrameKind::LeftOut, &mut profile.names);
    let mut rows = std::mem::take(&mut profile.rows);
    // Weights of callees with those below them, of one group at a time; 0 where it has none.
    let mut weights = vec![0u64; profile.stacks.len() + 1];
    let mut small_groups = None;
    for rows in rows.chunk_by_mut(|a, b| a.group == b.group) {
        let all = rows
            .iter()
            .map(|row| row.weight)
            .fold(0, u64::saturating_add);
        if is_small(all) && profile.by != By::None {
            let group = *small_groups.get_or_insert_with(|| {
                profile.groups.push(Group {
                    label: profile.names.intern(OTHER),
                    process: None,
                    tid: None,
                });
                profile.groups.len() as u32 - 1
            });
            for row in rows {
                (row.group, row.stack) = (group, 0);
            }
            continue;
        }
        let nodes = weigh(rows, &profile.stacks, &mut weights);
        for row in rows {
            let weight = |stack: StackId| weights.get(stack as usize).copied().unwrap_or(0);
            let mut at = row.stack;
            while at != 0 && is_small(weight(at)) {
                at = profile.stacks.leaf(at).map_or(0, |(caller, _)| caller);
            }
            if at != row.stack {
                row.stack = profile.stacks.push(at, other);
            }
        }
        for node in nodes {
            if let Some(weight) = weights.get_mut(node as usize) {
                *weight = 0;
            }
        }
    }
    profile.rows = merged(rows);
}

/// Adds up `weights` of the stacks of `rows` and of all their callers, and says which stacks these are.
fn weigh(rows: &[Row], stacks: &Stacks, weights: &mut [u64]) -> Vec<StackId> {
    let mut nodes = std::collections::BTreeSet::new();
    for row in rows {
        let mut at = row.stack;
        while at != 0 && nodes.insert(at) {
            at = stacks.leaf(at).map_or(0, |(caller, _)| caller);
        }
        if let Some(weight) = weights.get_mut(row.stack as usize) {
            *weight = weight.saturating_add(row.weight);
        }
    }
    // A callee has a larger number than its caller.
    for node in nodes.iter().rev() {
        let weight = weights.get(*node as usize).copied().unwrap_or(0);
        let caller = stacks.leaf(*node).map_or(0, |(caller, _)| caller);
        if let Some(sum) = weights.get_mut(caller as usize).filter(|_| caller != 0) {
            *sum = sum.saturating_add(weight);
        }
    }
    // That of the empty stack is not asked for.
    if let Some(weight) = weights.first_mut() {
        *weight = 0;
    }
    nodes.into_iter().collect()
}

/// A frame that is no function.
fn mark(text: &str, kind: FrameKind, names: &mut Names) -> FrameId {
    let name = names.intern(text);
    names.frame_id(Frame::new(name, Names::EMPTY, kind))
}

/// The functions at places, as asked for: each place once.
struct Chains<'a> {
    shape: &'a Shape,
    /// By place, where they are not simply those that were found.
    known: Vec<Option<Box<[FrameId]>>>,
}

impl Chains<'_> {
    fn new(shape: &Shape) -> Chains<'_> {
        Chains {
            shape,
            known: Vec::new(),
        }
    }

    /// Calls `each` with every function, outermost first.
    fn each(
        &mut self,
        place: usize,
        resolution: &Resolution,
        names: &mut Names,
        mut each: impl FnMut(FrameId, &Names),
    ) {
        let shape = self.shape;
        if !(shape.lines || shape.addresses || shape.no_inline) {
            let names = &*names;
            return resolution
                .chain
                .iter()
                .for_each(|part| each(part.frame, names));
        }
        if self.known.len() <= place {
            self.known.resize(place + 1, None);
        }
        if let Some(slot) = self.known.get_mut(place) {
            let chain = slot.get_or_insert_with(|| chain(shape, resolution, names));
            let names = &*names;
            chain.iter().for_each(|frame| each(*frame, names));
        }
    }
}

fn chain(shape: &Shape, resolution: &Resolution, names: &mut Names) -> Box<[FrameId]> {
    let most = if shape.no_inline { 1 } else { usize::MAX };
    let parts = resolution.chain.iter().take(most).enumerate();
    let frames = parts.filter_map(|(depth, part)| {
        let frame = *names.frames().get(part.frame as usize)?;
        let told = shape.addresses && depth == 0;
        let exact = resolution.exact.filter(|_| told);
        Some(names.frame_id(Frame {
            name: exact.unwrap_or(frame.name),
            source: part.source.filter(|_| shape.lines),
            address: resolution.offset.filter(|_| told && exact.is_none()),
            ..frame
        }))
    });
    frames.collect()
}
