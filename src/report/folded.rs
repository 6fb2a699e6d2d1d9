//! `comm-pid;main;...;leaf COUNT`: one line per stack, root first, for flame graph tools. The first frame is the group, if there
//! are groups; a stack without any frame is `[no frames]` where there are none.
//!
//! Lines are in the order of their bytes and each stack occurs once, so that two runs on one capture are
//! identical. Frames of the kernel end in `_[k]`, a cut stack has `[truncated]` where frames are missing,
//! `;` in names becomes `:` and control characters U+FFFD. The last blank of a line separates the count.

use std::fmt::Write as _;
use std::io::{self, Write};

use hashbrown::HashMap;

use crate::profile::{By, Callees, FrameKind, Profile, Row, StackId, Stacks};

use super::text;

/// Name of the frame that stands where callers were cut off.
pub const TRUNCATED: &str = "[truncated]";

/// What stands for a stack without any frame where there is no root frame either.
pub(super) const NO_FRAMES: &str = "[no frames]";

/// Writes the whole profile.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for_each_line(profile, 0, &mut |line| {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")
    })
}

/// Calls `each` with every line, without its newline.
///
/// Lines that follow each other and go on from one frame, and whose weights are less than `least` in all, are one line:
/// that frame, what the first of them goes on with, the sum. Each frame of `least` or more keeps its place and its weight.
pub fn for_each_line(
    profile: &Profile,
    least: u64,
    each: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let texts = Texts::new(profile);
    let runs = texts.runs(profile);
    let mut entries = Vec::new();
    for (number, runs) in runs.chunk_by(|a, b| a.root == b.root).enumerate() {
        let rows = || runs.iter().flat_map(|run| run.rows);
        let text = runs.first().map_or("", |run| texts.text(run.root));
        let is_own = |row: &&Row| row.stack == 0 && texts.no_frames.is_none();
        let own = rows().filter(is_own);
        let own = own.fold(0u64, |sum, row| sum.saturating_add(row.weight));
        if own > 0 {
            let rest = Rest::Count(own);
            entries.push((Entry { text, rest }, runs));
        }
        if rows().any(|row| !is_own(&row)) {
            let rest = Rest::Callees(number as u32);
            entries.push((Entry { text, rest }, runs));
        }
    }
    entries.sort_unstable_by(|(a, _), (b, _)| a.order(b));
    // Stacks share their callers, so each is walked once below a root: of each stack, the node below the root that had it
    // last.
    let mut known = vec![(u32::MAX, ROOT); profile.stacks.len() + 1];
    let mut line = String::new();
    for (Entry { text, rest }, runs) in entries {
        line.clear();
        line.push_str(text);
        match rest {
            Rest::Count(count) => {
                // Writing to a string does not fail.
                let _ = write!(line, " {count}");
                each(&line)?;
            }
            Rest::Callees(number) => {
                if texts.no_frames.is_none() {
                    line.push(';');
                }
                let rows = runs.iter().flat_map(|run| run.rows);
                let tree = Tree::new(
                    &texts,
                    &profile.stacks,
                    rows,
                    (number, known.as_mut_slice()),
                );
                tree.for_each_line(&mut line, least, each)?;
            }
        }
    }
    Ok(())
}

/// What is printed of frames and groups.
struct Texts {
    texts: Vec<String>,
    /// By frame.
    frames: Vec<u32>,
    /// By group.
    roots: Vec<u32>,
    /// What stands for the empty stack, where there are no roots.
    no_frames: Option<u32>,
}

/// The rows of a group.
struct Run<'a> {
    root: u32,
    rows: &'a [Row],
}

impl Texts {
    fn new(profile: &Profile) -> Texts {
        let mut texts = Vec::new();
        let mut index: HashMap<String, u32> = HashMap::new();
        let mut text_id = |texts: &mut Vec<String>, text: String| {
            *index.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() as u32 - 1
            })
        };
        let frames = profile.names.frames().iter().map(|frame| {
            let name = profile.names.frame_text(frame);
            let name = text::folded(&name);
            let text = match frame.kind {
                FrameKind::Kernel => format!("{name}_[k]"),
                FrameKind::User | FrameKind::LeftOut => name.into_owned(),
                FrameKind::Truncated => TRUNCATED.to_owned(),
            };
            text_id(&mut texts, text)
        });
        let frames = frames.collect();
        let roots = profile.groups.iter().map(|group| {
            let label = text::folded(profile.names.text(group.label));
            text_id(&mut texts, label.into_owned())
        });
        let roots = roots.collect();
        let no_frames = (profile.by == By::None).then(|| NO_FRAMES.to_owned());
        let no_frames = no_frames.map(|text| text_id(&mut texts, text));
        Texts {
            texts,
            frames,
            roots,
            no_frames,
        }
    }

    fn text(&self, text: u32) -> &str {
        self.texts.get(text as usize).map_or("", |t| t)
    }

    /// The rows of each group; those of groups that are printed alike follow each other.
    fn runs<'a>(&self, profile: &'a Profile) -> Vec<Run<'a>> {
        let runs = profile.rows.chunk_by(|a, b| a.group == b.group);
        let mut runs: Vec<Run<'a>> = runs
            .filter_map(|rows| {
                let root = *self.roots.get(rows.first()?.group as usize)?;
                Some(Run { root, rows })
            })
            .collect();
        runs.sort_by_key(|run| run.root);
        runs
    }
}

type Node = StackId;
const ROOT: Node = 0;

/// The stacks below one root, merged by what is printed of them.
struct Tree<'a> {
    /// Nodes, with texts in place of frames.
    nodes: Stacks,
    callees: Callees,
    /// Weight of the stacks that end in a node.
    own: Vec<u64>,
    texts: &'a Texts,
}

impl<'t> Tree<'t> {
    /// The tree of `rows`. `known` has nodes of this root where its number is there.
    fn new<'r>(
        texts: &'t Texts,
        stacks: &Stacks,
        rows: impl Iterator<Item = &'r Row>,
        (number, known): (u32, &mut [(u32, Node)]),
    ) -> Tree<'t> {
        let mut nodes = Stacks::default();
        let mut own = Vec::new();
        let mut path = Vec::new();
        for row in rows {
            let mut at = row.stack;
            let mut node = loop {
                match known.get(at as usize) {
                    Some((of, node)) if *of == number => break *node,
                    _ => {}
                }
                let Some((caller, frame)) = stacks.leaf(at) else {
                    break ROOT;
                };
                path.push((at, frame));
                at = caller;
            };
            while let Some((stack, frame)) = path.pop() {
                let Some(text) = texts.frames.get(frame as usize) else {
                    continue;
                };
                node = nodes.push(node, *text);
                if let Some(known) = known.get_mut(stack as usize) {
                    *known = (number, node);
                }
            }
            if let (ROOT, Some(text)) = (node, texts.no_frames) {
                node = nodes.push(ROOT, text);
            }
            if own.len() <= node as usize {
                own.resize(node as usize + 1, 0u64);
            }
            if let Some(own) = own.get_mut(node as usize) {
                *own = own.saturating_add(row.weight);
            }
        }
        Tree {
            callees: nodes.callees(),
            nodes,
            own,
            texts,
        }
    }

    /// Calls `each` with every line that goes on from `line`, which ends in `;` or is empty.
    fn for_each_line(
        &self,
        line: &mut String,
        least: u64,
        each: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        let below = if least > 0 { self.below() } else { Vec::new() };
        // Depth is that of the deepest stack, which a capture chooses: a stack of our own, not recursion. All levels share
        // one list, of which each has a part; what comes first is last in it.
        let mut entries = Vec::new();
        let mut levels = Vec::new();
        let mut node = ROOT;
        loop {
            let first = entries.len();
            self.entries(node, &mut entries);
            match below.get(node as usize) {
                Some(sum) if *sum < least => {
                    if let Some(next) = entries.last().filter(|_| *sum > 0) {
                        line.push_str(next.text);
                        let _ = write!(line, " {sum}");
                        each(line)?;
                    }
                    entries.truncate(first);
                }
                _ => levels.push((first, line.len())),
            }
            node = loop {
                let Some((first, length)) = levels.last().copied() else {
                    return Ok(());
                };
                let next = (entries.len() > first).then(|| entries.pop()).flatten();
                let Some(Entry { text, rest }) = next else {
                    levels.pop();
                    continue;
                };
                line.truncate(length);
                line.push_str(text);
                match rest {
                    Rest::Count(count) => {
                        let _ = write!(line, " {count}");
                        each(line)?;
                    }
                    Rest::Callees(node) => {
                        line.push(';');
                        break node;
                    }
                }
            };
        }
    }

    /// Of each node, the weight of the stacks that go on from it.
    fn below(&self) -> Vec<u64> {
        let mut below = vec![0u64; self.nodes.len() + 1];
        // Callers have smaller numbers than their callees.
        for (i, (caller, _)) in self.nodes.nodes().enumerate().rev() {
            let own = self.own.get(i + 1).copied().unwrap_or(0);
            let whole = below.get(i + 1).map_or(0, |sum| sum.saturating_add(own));
            if let Some(sum) = below.get_mut(caller as usize) {
                *sum = sum.saturating_add(whole);
            }
        }
        below
    }

    /// Appends what follows in the lines below `node`, against the order of bytes. No text holds `;`, so no entry that
    /// goes on is the beginning of another one.
    fn entries(&self, node: Node, entries: &mut Vec<Entry<'t>>) {
        let first = entries.len();
        for child in self.callees.of(node) {
            let text = self.nodes.leaf(*child).map_or(u32::MAX, |(_, text)| text);
            let text = self.texts.text(text);
            match self.own.get(*child as usize) {
                None | Some(0) => {}
                Some(own) => entries.push(Entry {
                    text,
                    rest: Rest::Count(*own),
                }),
            }
            if !self.callees.of(*child).is_empty() {
                entries.push(Entry {
                    text,
                    rest: Rest::Callees(*child),
                });
            }
        }
        if let Some(entries) = entries.get_mut(first..).filter(|e| e.len() > 1) {
            entries.sort_unstable_by(|a, b| b.order(a));
        }
    }
}

/// A part of a line.
struct Entry<'a> {
    text: &'a str,
    rest: Rest,
}

/// What comes after it.
enum Rest {
    /// A blank and the count; the line ends.
    Count(u64),
    /// `;` and what the children of a node, or those of the root of this number, have.
    Callees(Node),
}

impl Entry<'_> {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let (a, b) = (self.text.as_bytes(), other.text.as_bytes());
        let common = a.len().min(b.len());
        // Where one text is the beginning of the other, what follows decides.
        a.get(..common).cmp(&b.get(..common)).then_with(|| {
            if a.len() == b.len() {
                self.next().cmp(&other.next())
            } else {
                self.whole().cmp(&other.whole())
            }
        })
    }

    /// The byte that follows; of equal texts one goes on and one does not.
    fn next(&self) -> u8 {
        match self.rest {
            Rest::Count(_) => b' ',
            Rest::Callees(_) => b';',
        }
    }

    fn whole(&self) -> String {
        match self.rest {
            Rest::Count(count) => format!("{} {count}", self.text),
            Rest::Callees(_) => format!("{};", self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    fn lines(profile: &Profile) -> Vec<String> {
        let mut out = Vec::new();
        write(profile, &mut out).unwrap();
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn stacks_are_merged_and_sorted_by_bytes() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "b"], 2);
        b.row(p, &["main", "a b"], 1);
        b.row(p, &["main", "a"], 3);
        b.row(p, &["main"], 5);
        b.row(p, &["main", "a", "x"], 4);
        b.row(p, &["main", "b"], 40);
        b.row(p, &[], 9);
        let lines = lines(&b.profile);
        assert_eq!(
            lines,
            [
                "app-7 9",
                "app-7;main 5",
                "app-7;main;a 3",
                "app-7;main;a b 1",
                "app-7;main;a;x 4",
                "app-7;main;b 42",
            ]
        );
        let mut sorted = lines.clone();
        sorted.sort();
        assert_eq!(lines, sorted);
    }

    #[test]
    fn counts_and_names_with_blanks_keep_the_order_of_bytes() {
        let mut b = Builder::default();
        let p = b.process("a b", 1);
        for (i, name) in ["foo", "foo 1", "foo 10 3", "foo:", "foo\u{1}", "fo", "foo;"]
            .iter()
            .enumerate()
        {
            b.row(p, &[name], 10u64.pow(i as u32));
            b.row(p, &[name, "deep"], 2);
        }
        let lines = lines(&b.profile);
        let mut sorted = lines.clone();
        sorted.sort();
        assert_eq!(lines, sorted);
        assert!(lines.contains(&"a b-1;foo\u{fffd} 10000".to_owned()));
        // `foo;` and `foo:` print alike, so they are one.
        assert!(lines.contains(&"a b-1;foo: 1001000".to_owned()));
        assert!(lines.contains(&"a b-1;foo:;deep 4".to_owned()));
    }

    #[test]
    fn what_is_less_than_asked_for_is_one_line_in_its_place() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "a"], 20);
        b.row(p, &["main", "a", "y", "z"], 2);
        b.row(p, &["main", "a", "x"], 3);
        b.row(p, &["main", "a", "x", "deep"], 4);
        b.row(p, &["main", "a(int)"], 1);
        b.row(p, &["main", "b", "large"], 9);
        b.row(p, &["main", "b", "large", "small"], 5);
        b.row(p, &["main", "b", "little"], 1);
        let mut lines = Vec::new();
        let mut each = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        for_each_line(&b.profile, 10, &mut each).unwrap();
        assert_eq!(
            lines,
            [
                "app-7;main;a 20",
                "app-7;main;a(int) 1",
                "app-7;main;a;x 9",
                "app-7;main;b;large 9",
                "app-7;main;b;large;small 5",
                "app-7;main;b;little 1",
            ]
        );
        let mut sorted = lines.clone();
        sorted.sort();
        assert_eq!(lines, sorted);
    }

    #[test]
    fn kernel_frames_and_cut_stacks_are_marked() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row_of(
            p,
            &[
                (FrameKind::Truncated, "x"),
                (FrameKind::User, "leaf"),
                (FrameKind::Kernel, "irq"),
            ],
            1,
        );
        assert_eq!(lines(&b.profile), ["app-7;[truncated];leaf;irq_[k] 1"]);
    }

    #[test]
    fn a_very_deep_stack_is_no_problem() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &vec!["f"; 100_000], 1);
        assert_eq!(lines(&b.profile)[0].len(), "app-7".len() + 200_000 + 2);
    }
}
