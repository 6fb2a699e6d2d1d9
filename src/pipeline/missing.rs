//! Which samples have frames without a name, by what would have to be brought to name them. Counts are what samples count for.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::profile::{Missing, MissingKind, Reason};
use crate::symbolize::Lacking;

use super::Counter;

/// Number of a set of things that lack; 0 is the empty one.
type SetId = u32;

/// Sets of things that lack, as lists that share their beginnings.
#[derive(Default)]
struct Sets {
    /// (rest of the set, thing) of set `i + 1`.
    nodes: Vec<(SetId, Lacking)>,
    index: HashMap<(SetId, Lacking), SetId>,
}

impl Sets {
    fn things(&self, set: SetId) -> impl Iterator<Item = Lacking> + '_ {
        let mut at = set;
        std::iter::from_fn(move || {
            let (rest, thing) = *self.nodes.get((at as usize).checked_sub(1)?)?;
            at = rest;
            Some(thing)
        })
    }

    fn with(&mut self, set: SetId, thing: Lacking) -> SetId {
        if let Some(known) = self.index.get(&(set, thing)) {
            return *known;
        }
        let id = if self.things(set).any(|t| t == thing) {
            set
        } else {
            self.nodes.push((set, thing));
            self.nodes.len() as SetId
        };
        self.index.insert((set, thing), id);
        id
    }
}

#[derive(Default)]
struct Count {
    samples: u64,
    frames: u64,
    reason: Option<Reason>,
}

/// What lacks, most samples first. Places must be resolved.
pub(super) fn missing(counter: &Counter) -> Vec<Missing> {
    let nodes = || counter.stacks.nodes();
    let lacking = |place| counter.symbolizer.lacking(place);
    let mut counts: BTreeMap<Lacking, Count> = BTreeMap::new();

    // Downwards: what lacks on the way from the root to each node.
    let mut sets = Sets::default();
    let mut set_of: Vec<SetId> = Vec::with_capacity(counter.stacks.len() + 1);
    set_of.push(0);
    for (caller, place) in nodes() {
        let above = set_of.get(caller as usize).copied().unwrap_or(0);
        set_of.push(match lacking(place) {
            Some((thing, _)) => sets.with(above, thing),
            None => above,
        });
    }
    let mut samples_of_set: HashMap<SetId, u64> = HashMap::new();
    let mut samples = vec![0u64; counter.stacks.len() + 1];
    for ((_, _, stack), count) in counter.rows.iter() {
        let set = set_of.get(stack as usize).copied().unwrap_or(0);
        let sum = samples_of_set.entry(set).or_default();
        *sum = sum.saturating_add(count.weight);
        if let Some(sum) = samples.get_mut(stack as usize) {
            *sum = sum.saturating_add(count.weight);
        }
    }
    for (set, samples) in samples_of_set {
        for thing in sets.things(set) {
            let count = counts.entry(thing).or_default();
            count.samples = count.samples.saturating_add(samples);
        }
    }

    // Upwards: each node passes its samples on to its caller.
    for (i, (caller, place)) in nodes().enumerate().rev() {
        let here = samples.get(i + 1).copied().unwrap_or(0);
        if let Some(sum) = samples.get_mut(caller as usize) {
            *sum = sum.saturating_add(here);
        }
        if let Some((thing, reason)) = lacking(place) {
            let count = counts.entry(thing).or_default();
            count.frames = count.frames.saturating_add(here);
            if count.reason.is_none_or(|r| r == Reason::NoSymbol) {
                count.reason = Some(reason);
            }
        }
    }

    let mut list: Vec<Missing> = counts
        .into_iter()
        .filter(|(_, count)| count.samples > 0)
        .map(|(thing, count)| {
            let (kind, path, build_id) = match thing {
                Lacking::File(number) => {
                    let file = counter.symbolizer.mapped_file(number);
                    let path = file.map_or(&b""[..], |f| &f.path);
                    let path = String::from_utf8_lossy(path).into_owned();
                    let build_id = file.and_then(|f| f.build_id.clone());
                    (MissingKind::File, path, build_id)
                }
                Lacking::Kernel => {
                    let build_id = counter.kernel_build_id.clone();
                    (MissingKind::Kernel, "[kernel]".to_owned(), build_id)
                }
                Lacking::Vdso => (MissingKind::Vdso, "[vdso]".to_owned(), None),
            };
            Missing {
                kind,
                path,
                build_id,
                reason: count.reason.unwrap_or(Reason::NoSymbol),
                samples: count.samples,
                frames: count.frames,
            }
        })
        .collect();
    list.sort_by(|a, b| {
        let by_share = (b.samples, b.frames).cmp(&(a.samples, a.frames));
        by_share.then_with(|| (a.kind, &a.path, &a.build_id).cmp(&(b.kind, &b.path, &b.build_id)))
    });
    list
}
