//! From stacks to the nodes of a tree, one after the other, callers before their callees.

use std::io;

use hashbrown::HashMap;

use super::{Of, Options};
use crate::profile::{Callees, FrameId, Profile, StackId};
use crate::report::callers::outermost;
use crate::report::groups::groups;
use crate::report::layout::at_least;
use crate::report::weights::{Functions, Weights};

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label<'a> {
    /// All samples.
    All,
    /// A group.
    Group(&'a str),
    /// The functions asked for.
    Asked,
    /// A function, by its number.
    Function(u32),
    /// So many nodes that are too small to be shown.
    LeftOut(usize),
}

/// Whether a function was inlined into what called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Inlined {
    #[default]
    No,
    /// By some of the code that is one node.
    Partly,
    Yes,
}

impl Inlined {
    fn of(inlined: bool) -> Inlined {
        match inlined {
            true => Inlined::Yes,
            false => Inlined::No,
        }
    }

    /// Of two that are one.
    pub fn and(self, other: Inlined) -> Inlined {
        match self == other {
            true => self,
            false => Inlined::Partly,
        }
    }
}

/// A node, as it is visited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'a> {
    pub label: Label<'a>,
    pub inlined: Inlined,
    /// Nodes above it.
    pub depth: usize,
    /// Levels of branches above it: a chain of single calls is on one level.
    pub level: usize,
    /// Goes on with the chain of the node before.
    pub joins: bool,
    /// Nothing else on its level follows below the same caller.
    pub is_last: bool,
    /// Weight of samples that end here: in callers' trees, that have no further caller.
    pub own: u64,
    /// With what is below.
    pub total: u64,
}

/// What the tree is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sums {
    /// Weight of all samples.
    pub all: u64,
    /// Weight that shares are of: all, or the samples with the function asked for.
    pub base: u64,
    /// Nodes and groups that are left out, what is below them not counted.
    pub left_out: usize,
    /// Their weight.
    pub left_out_weight: u64,
}

/// Stacks that are one node.
#[derive(Debug, Default)]
struct Part {
    function: u32,
    inlined: Inlined,
    own: u64,
    total: u64,
    stacks: Vec<(StackId, u64)>,
}

pub(super) struct Walk<'a> {
    profile: &'a Profile,
    pub functions: Functions,
    of: Of<'a>,
    by_group: bool,
    /// Whether what is left out is a node also where it is less than any that is shown.
    exact: bool,
    callees: Callees,
    weights: Weights,
    least: u64,
    sums: Sums,
}

type Each<'e> = dyn FnMut(&Functions, Node<'_>) -> io::Result<()> + 'e;

impl<'a> Walk<'a> {
    pub fn new(profile: &'a Profile, of: Of<'a>, options: Options, exact: bool) -> Walk<'a> {
        let functions = Functions::new(&profile.names);
        let mut weights = Weights::new(&profile.stacks);
        weights.count(&profile.stacks, &[&profile.rows]);
        let all = weights.sum();
        let base = match of.found() {
            None => all,
            Some(found) => sum(&outermost(profile, &functions, &weights, found)),
        };
        Walk {
            profile,
            functions,
            of,
            by_group: options.by_group,
            exact,
            callees: profile.stacks.callees(),
            weights,
            least: at_least(options.min_percent, base),
            sums: Sums {
                all,
                base,
                ..Sums::default()
            },
        }
    }

    /// What the tree is of; what was left out is known after the walk.
    pub fn sums(&self) -> Sums {
        self.sums
    }

    /// Calls `each` with every node.
    pub fn run(&mut self, each: &mut Each<'_>) -> io::Result<()> {
        if !self.by_group {
            let root = self.root();
            let label = self.of.found().map_or(Label::All, |_| Label::Asked);
            return self.tree(label, root, (0, 0, true), each);
        }
        let profile = self.profile;
        let mut list = Vec::new();
        for group in groups(profile) {
            let weight = match self.of {
                Of::All => group.weight,
                _ => {
                    self.weights.count(&profile.stacks, &group.rows);
                    self.root().total
                }
            };
            list.push((group, weight));
        }
        list.retain(|(_, weight)| *weight > 0);
        list.sort_by(|(a, w), (b, v)| v.cmp(w).then_with(|| a.name.cmp(&b.name)));
        let kept = list.partition_point(|(_, weight)| *weight >= self.least);
        let rest = list.get(kept..).unwrap_or_default();
        let rest_weight = rest
            .iter()
            .fold(0u64, |sum, (_, weight)| sum.saturating_add(*weight));
        let rest = self.leave_out(rest.len(), rest_weight);
        let node = |label, depth, is_last, own, total| Node {
            label,
            inlined: Inlined::No,
            depth,
            level: depth,
            joins: false,
            is_last,
            own,
            total,
        };
        each(
            &self.functions,
            node(Label::All, 0, true, 0, self.sums.base),
        )?;
        for (i, (group, weight)) in list.iter().take(kept).enumerate() {
            self.weights.count(&profile.stacks, &group.rows);
            let root = self.root();
            let is_last = i + 1 == kept && rest.is_none();
            let label = Label::Group(&group.name);
            if let Of::All = self.of {
                self.tree(label, root, (1, 1, is_last), each)?;
            } else {
                each(&self.functions, node(label, 1, is_last, 0, *weight))?;
                self.tree(Label::Asked, root, (2, 2, true), each)?;
            }
        }
        match rest {
            Some((count, weight)) => each(
                &self.functions,
                node(Label::LeftOut(count), 1, true, 0, weight),
            ),
            None => Ok(()),
        }
    }

    /// The node where what was counted last begins.
    fn root(&self) -> Part {
        let stacks = match self.of.found() {
            None => vec![(0, self.weights.sum())],
            Some(found) => outermost(self.profile, &self.functions, &self.weights, found),
        };
        let own = match self.of {
            Of::Callers(_) => self.without_caller(&stacks),
            _ => stacks.iter().fold(0u64, |sum, (stack, _)| {
                sum.saturating_add(self.weights.own(*stack))
            }),
        };
        Part {
            function: 0,
            inlined: Inlined::No,
            own,
            total: sum(&stacks),
            stacks,
        }
    }

    /// Counts nodes that are left out; what is to be said of them in the tree.
    fn leave_out(&mut self, count: usize, weight: u64) -> Option<(usize, u64)> {
        self.sums.left_out += count;
        self.sums.left_out_weight = self.sums.left_out_weight.saturating_add(weight);
        (weight > 0 && (self.exact || weight >= self.least)).then_some((count, weight))
    }

    /// Visits a node and all below it. Depth is that of the deepest stack, which a capture chooses: a list of our own, not
    /// recursion.
    fn tree(
        &mut self,
        label: Label<'_>,
        root: Part,
        (depth, level, is_last): (usize, usize, bool),
        each: &mut Each<'_>,
    ) -> io::Result<()> {
        let first = Node {
            label,
            inlined: Inlined::No,
            depth,
            level,
            joins: false,
            is_last,
            own: root.own,
            total: root.total,
        };
        each(&self.functions, first)?;
        let mut levels = vec![self.below(&root, first)];
        loop {
            let Some(level) = levels.last_mut() else {
                return Ok(());
            };
            let Some(part) = level.parts.next() else {
                if let Some((count, weight)) = level.left_out.take() {
                    let node = Node {
                        label: Label::LeftOut(count),
                        inlined: Inlined::No,
                        is_last: true,
                        own: 0,
                        total: weight,
                        ..level.node
                    };
                    each(&self.functions, node)?;
                }
                levels.pop();
                continue;
            };
            let node = Node {
                label: Label::Function(part.function),
                inlined: part.inlined,
                is_last: level.parts.len() == 0 && level.left_out.is_none(),
                own: part.own,
                total: part.total,
                ..level.node
            };
            each(&self.functions, node)?;
            levels.push(self.below(&part, node));
        }
    }

    /// What is below a node.
    fn below(&mut self, part: &Part, node: Node<'_>) -> Level {
        let mut parts = match self.of {
            Of::Callers(_) => self.callers(part),
            _ => self.callees(part),
        };
        let only = parts.len() == 1 && part.own == 0 && node.label != Label::All;
        let joins = only && parts.first().is_some_and(|only| only.total == part.total);
        let text = |part: &Part| self.functions.text(&self.profile.names, part.function);
        parts.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| text(a).cmp(&text(b))));
        let kept = parts.partition_point(|part| part.total >= self.least);
        let rest = parts.get(kept..).unwrap_or_default();
        let weight = rest
            .iter()
            .fold(0u64, |sum, part| sum.saturating_add(part.total));
        let left_out = self.leave_out(rest.len(), weight);
        parts.truncate(kept);
        Level {
            parts: parts.into_iter(),
            left_out,
            node: Node {
                label: Label::All,
                depth: node.depth + 1,
                level: node.level + usize::from(!joins),
                joins,
                ..node
            },
        }
    }

    fn callees(&self, part: &Part) -> Vec<Part> {
        let mut parts = Parts::default();
        for (stack, _) in &part.stacks {
            for callee in self.callees.of(*stack) {
                let total = self.weights.total(*callee);
                let frame = self.profile.stacks.leaf(*callee).map(|(_, frame)| frame);
                if let Some(what) = frame.and_then(|frame| self.what(frame))
                    && total > 0
                {
                    parts.add(what, *callee, self.weights.own(*callee), total);
                }
            }
        }
        parts.list
    }

    /// The function of a frame, and whether it was inlined.
    fn what(&self, frame: FrameId) -> Option<(u32, Inlined)> {
        let function = self.functions.number(frame)?;
        let frame = self.profile.names.frames().get(frame as usize)?;
        Some((function, Inlined::of(frame.inlined)))
    }

    fn callers(&self, part: &Part) -> Vec<Part> {
        let mut parts = Parts::default();
        for (stack, weight) in &part.stacks {
            let caller = self
                .profile
                .stacks
                .leaf(*stack)
                .map_or(0, |(caller, _)| caller);
            let frame = self.profile.stacks.leaf(caller).map(|(_, frame)| frame);
            if let Some(what) = frame.and_then(|frame| self.what(frame)) {
                parts.add(what, caller, 0, *weight);
            }
        }
        for part in &mut parts.list {
            // Stacks that have met are one from here on.
            part.stacks.sort_unstable();
            part.stacks.dedup_by(|other, kept| {
                let same = other.0 == kept.0;
                if same {
                    kept.1 = kept.1.saturating_add(other.1);
                }
                same
            });
            part.own = self.without_caller(&part.stacks);
        }
        parts.list
    }

    fn without_caller(&self, stacks: &[(StackId, u64)]) -> u64 {
        let leaf = |stack: StackId| self.profile.stacks.leaf(stack);
        let ends = stacks
            .iter()
            .filter(|(stack, _)| leaf(*stack).is_none_or(|(caller, _)| caller == 0));
        ends.fold(0u64, |sum, (_, weight)| sum.saturating_add(*weight))
    }
}

/// Nodes below one caller.
struct Level {
    parts: std::vec::IntoIter<Part>,
    left_out: Option<(usize, u64)>,
    /// What all of them have in common.
    node: Node<'static>,
}

/// Nodes by function.
#[derive(Default)]
struct Parts {
    index: HashMap<u32, usize>,
    list: Vec<Part>,
}

impl Parts {
    fn add(&mut self, (function, inlined): (u32, Inlined), stack: StackId, own: u64, total: u64) {
        let at = *self.index.entry(function).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push(Part {
                function,
                inlined,
                ..Part::default()
            });
        }
        if let Some(part) = self.list.get_mut(at) {
            part.inlined = part.inlined.and(inlined);
            part.own = part.own.saturating_add(own);
            part.total = part.total.saturating_add(total);
            part.stacks.push((stack, total));
        }
    }
}

fn sum(stacks: &[(StackId, u64)]) -> u64 {
    stacks
        .iter()
        .fold(0, |sum, (_, weight)| sum.saturating_add(*weight))
}
