//! `comm-pid;main;...;leaf COUNT`: one line per stack, root first, for flame graph tools.
//!
//! Lines are in the order of their bytes and each stack occurs once, so that two runs on one capture are
//! identical. Frames of the kernel end in `_[k]`, a cut stack has `[truncated]` where frames are missing,
//! `;` in names becomes `:` and control characters U+FFFD. The last blank of a line separates the count.

use std::fmt::Write as _;
use std::io::{self, Write};

use hashbrown::HashMap;

use crate::profile::{Callees, FrameKind, Profile, StackId, Stacks};

use super::text;

/// Name of the frame that stands where callers were cut off.
pub const TRUNCATED: &str = "[truncated]";

/// Writes the whole profile.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for_each_line(profile, &mut |line| {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")
    })
}

/// Calls `each` with every line, without its newline.
pub fn for_each_line(
    profile: &Profile,
    each: &mut dyn FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let tree = Tree::new(profile);
    let mut line = String::new();
    // Depth is that of the deepest stack, which a capture chooses: a stack of our own, not recursion. All levels share one
    // list, of which each has a part; what comes first is last in it.
    let mut entries = Vec::new();
    let mut levels = vec![(0, 0)];
    tree.entries(ROOT, &mut entries);
    while let Some((first, length)) = levels.last().copied() {
        if entries.len() <= first {
            levels.pop();
            continue;
        }
        let Some(Entry { text, rest }) = entries.pop() else {
            break;
        };
        line.truncate(length);
        line.push_str(text);
        match rest {
            Rest::Count(count) => {
                // Writing to a string does not fail.
                let _ = write!(line, " {count}");
                each(&line)?;
            }
            Rest::Callees(node) => {
                line.push(';');
                levels.push((entries.len(), line.len()));
                tree.entries(node, &mut entries);
            }
        }
    }
    Ok(())
}

type Node = StackId;
const ROOT: Node = 0;

/// Stacks merged by what is printed of them.
struct Tree {
    /// Nodes, with texts in place of frames.
    nodes: Stacks,
    callees: Callees,
    /// Weight of the stacks that end in a node.
    own: Vec<u64>,
    texts: Vec<String>,
}

impl Tree {
    fn new(profile: &Profile) -> Tree {
        let mut texts = Vec::new();
        let mut index: HashMap<String, u32> = HashMap::new();
        let mut text_id = |texts: &mut Vec<String>, text: String| {
            *index.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() as u32 - 1
            })
        };
        let frames: Vec<u32> = profile
            .names
            .frames()
            .iter()
            .map(|frame| {
                let name = text::folded(profile.names.text(frame.name));
                let text = match frame.kind {
                    FrameKind::Kernel => format!("{name}_[k]"),
                    FrameKind::User => name.into_owned(),
                    FrameKind::Truncated => TRUNCATED.to_owned(),
                };
                text_id(&mut texts, text)
            })
            .collect();
        let roots: Vec<u32> = profile
            .processes
            .iter()
            .map(|p| {
                let name = text::folded(profile.names.text(p.name));
                text_id(&mut texts, format!("{name}-{}", p.key.tgid))
            })
            .collect();

        // Stacks share their callers, so each is walked once in a process. Rows are sorted by process: of each stack, the
        // node in the process that had it last.
        let mut known = vec![(u32::MAX, ROOT); profile.stacks.len() + 1];
        let mut nodes = Stacks::default();
        let mut own = Vec::new();
        let mut path = Vec::new();
        for row in &profile.rows {
            let Some(root) = roots.get(row.process as usize) else {
                continue;
            };
            let process = nodes.push(ROOT, *root);
            let mut at = row.stack;
            let mut node = loop {
                match known.get(at as usize) {
                    Some((of, node)) if *of == row.process => break *node,
                    _ => {}
                }
                let Some((caller, frame)) = profile.stacks.leaf(at) else {
                    break process;
                };
                path.push((at, frame));
                at = caller;
            };
            while let Some((stack, frame)) = path.pop() {
                let Some(text) = frames.get(frame as usize) else {
                    continue;
                };
                node = nodes.push(node, *text);
                if let Some(known) = known.get_mut(stack as usize) {
                    *known = (row.process, node);
                }
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

    /// Appends what follows in the lines below `node`, against the order of bytes. No text holds `;`, so no entry that
    /// goes on is the beginning of another one.
    fn entries<'a>(&'a self, node: Node, entries: &mut Vec<Entry<'a>>) {
        let first = entries.len();
        for child in self.callees.of(node) {
            let text = self.nodes.leaf(*child).map_or(u32::MAX, |(_, text)| text);
            let text = self.texts.get(text as usize).map_or("", |t| t);
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
    /// `;` and what the children of a node have.
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
