//! Stacks of places -> stacks of functions, as they were asked for.

use super::Shape;
use super::stacks::{CUT, PlaceStacks};
use crate::profile::{Frame, FrameId, FrameKind, Names, Resolution, StackId, Stacks};
use crate::symbolize::Symbolizer;

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
    let mut named: Vec<StackId> = Vec::with_capacity(places.len() + 1);
    named.push(0);
    for (caller, place) in places.nodes() {
        let mut stack = named.get(caller as usize).copied().unwrap_or(0);
        if place == CUT {
            stack = stacks.push(stack, marker);
        } else if let Some(resolution) = symbolizer.resolution(place) {
            chains.each(place as usize, resolution, names, |frame| {
                stack = stacks.push(stack, frame);
            });
        }
        named.push(stack);
    }
    named
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
        mut each: impl FnMut(FrameId),
    ) {
        let shape = self.shape;
        if !(shape.lines || shape.addresses || shape.no_inline) {
            return resolution.chain.iter().for_each(|part| each(part.frame));
        }
        if self.known.len() <= place {
            self.known.resize(place + 1, None);
        }
        if let Some(slot) = self.known.get_mut(place) {
            let chain = slot.get_or_insert_with(|| chain(shape, resolution, names));
            chain.iter().for_each(|frame| each(*frame));
        }
    }
}

fn chain(shape: &Shape, resolution: &Resolution, names: &mut Names) -> Box<[FrameId]> {
    let most = if shape.no_inline { 1 } else { usize::MAX };
    let parts = resolution.chain.iter().take(most).enumerate();
    let frames = parts.filter_map(|(depth, part)| {
        let frame = *names.frames().get(part.frame as usize)?;
        Some(names.frame_id(Frame {
            source: part.source.filter(|_| shape.lines),
            address: resolution.offset.filter(|_| shape.addresses && depth == 0),
            ..frame
        }))
    });
    frames.collect()
}
