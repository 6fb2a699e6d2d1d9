//! `--top N`: functions with module, self and total counts and shares.

use std::io::{self, Write};

use hashbrown::HashMap;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::profile::{FrameId, FrameKind, NameId, Profile, StackId};

use super::{text, verdict};

/// How the table is to look.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rows at most.
    pub limit: usize,
    /// Columns of the terminal; `None` cuts nothing.
    pub width: Option<usize>,
    /// Colour the rows by their share.
    pub color: bool,
}

/// What one function has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Weight of the samples taken in the function itself.
    pub own: u64,
    /// Weight of the samples with the function anywhere in the stack, each sample once.
    pub total: u64,
}

/// A function: name and module.
pub type Function = (NameId, NameId);

/// Counts of all functions, most own weight first, then most total, then by name.
pub fn functions(profile: &Profile) -> Vec<(Function, Counts)> {
    // Frames that print alike (inlined or not) are one function.
    let mut index: HashMap<Function, u32> = HashMap::new();
    let numbers: Vec<Option<u32>> = profile
        .names
        .frames()
        .iter()
        .map(|frame| {
            (frame.kind != FrameKind::Truncated).then(|| {
                let next = index.len() as u32;
                *index.entry((frame.name, frame.module)).or_insert(next)
            })
        })
        .collect();
    let counts = count(profile, &numbers, index.len());
    let mut functions: Vec<(Function, Counts)> = index
        .into_iter()
        .filter_map(|(function, number)| Some((function, *counts.get(number as usize)?)))
        .filter(|(_, counts)| counts.total > 0)
        .collect();
    let text = |f: &Function| (profile.names.text(f.0), profile.names.text(f.1));
    functions.sort_by(|(f, a), (g, b)| {
        (b.own, b.total)
            .cmp(&(a.own, a.total))
            .then_with(|| text(f).cmp(&text(g)))
    });
    functions
}

/// Counts of `functions` functions, of which each frame is the one in `numbers`.
fn count(profile: &Profile, numbers: &[Option<u32>], functions: usize) -> Vec<Counts> {
    let stacks = &profile.stacks;
    let mut weights = vec![0u64; stacks.len() + 1];
    for row in &profile.rows {
        if let Some(weight) = weights.get_mut(row.stack as usize) {
            *weight = weight.saturating_add(row.weight);
        }
    }
    let function = |frame: FrameId| numbers.get(frame as usize).copied().flatten();
    let mut counts = vec![Counts::default(); functions];
    for (stack, weight) in weights
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight > 0)
    {
        let leaf = stacks.frames(stack as StackId).find_map(function);
        if let Some(counts) = leaf.and_then(|f| counts.get_mut(f as usize)) {
            counts.own = counts.own.saturating_add(*weight);
        }
    }
    // From here on with the weights of callees: a caller's number is smaller.
    for (i, (caller, _)) in stacks.nodes().enumerate().rev() {
        let weight = weights.get(i + 1).copied().unwrap_or(0);
        if let Some(sum) = weights.get_mut(caller as usize) {
            *sum = sum.saturating_add(weight);
        }
    }
    // Down the tree, where a function counts unless it is among the callers already: recursion counts once.
    let callees = stacks.callees();
    let mut on_path = vec![false; functions];
    let mut todo: Vec<Step> = callees
        .of(0)
        .iter()
        .map(|stack| Step::Enter(*stack))
        .collect();
    while let Some(step) = todo.pop() {
        let stack = match step {
            Step::Enter(stack) => stack,
            Step::Leave(function) => {
                if let Some(on_path) = on_path.get_mut(function as usize) {
                    *on_path = false;
                }
                continue;
            }
        };
        if let Some(number) = stacks.leaf(stack).and_then(|(_, frame)| function(frame))
            && let Some(on_path) = on_path.get_mut(number as usize)
            && !*on_path
        {
            *on_path = true;
            todo.push(Step::Leave(number));
            if let Some(counts) = counts.get_mut(number as usize) {
                let weight = weights.get(stack as usize).copied().unwrap_or(0);
                counts.total = counts.total.saturating_add(weight);
            }
        }
        todo.extend(callees.of(stack).iter().map(|stack| Step::Enter(*stack)));
    }
    counts
}

/// A step of a walk down the tree of stacks.
enum Step {
    /// To this stack, from its caller.
    Enter(StackId),
    /// This function is not among the callers any more.
    Leave(u32),
}

/// Writes the verdict and the table.
pub fn write(profile: &Profile, options: Options, out: &mut dyn Write) -> io::Result<()> {
    for line in verdict::whole(profile) {
        writeln!(out, "# {line}")?;
    }
    let functions = functions(profile);
    let total = profile.total_weight();
    let shown = functions.len().min(options.limit);
    writeln!(
        out,
        "# {shown} of {} functions; shares are of {total} samples",
        functions.len()
    )?;
    let frameless: u64 = profile
        .rows
        .iter()
        .filter(|r| profile.stacks.frames(r.stack).next().is_none())
        .fold(0, |sum, r| sum.saturating_add(r.weight));
    if frameless > 0 {
        writeln!(
            out,
            "# {frameless} samples have no frames and belong to no function"
        )?;
    }
    let rows: Vec<Row> = functions
        .iter()
        .take(options.limit)
        .map(|((name, module), counts)| Row {
            counts: *counts,
            name: text::escaped(profile.names.text(*name)).into_owned(),
            module: text::escaped(profile.names.text(*module)).into_owned(),
        })
        .collect();
    table(&rows, total, options, out)
}

struct Row {
    counts: Counts,
    name: String,
    module: String,
}

/// Narrowest column of function names, which come last because they are long.
const NAME_MIN: usize = 16;
/// Narrowest column of modules.
const MODULE_MIN: usize = 8;
/// Widest column of modules; longer ones are cut.
const MODULE_MAX: usize = 40;

fn table(rows: &[Row], total: u64, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let digits = |pick: fn(&Counts) -> u64, title: &str| {
        let widest = rows
            .iter()
            .map(|r| pick(&r.counts).to_string().len())
            .max()
            .unwrap_or(0);
        widest.max(title.len())
    };
    let (own, all) = (digits(|c| c.own, "self"), digits(|c| c.total, "total"));
    let widest = rows.iter().map(|r| r.module.width()).max().unwrap_or(0);
    let mut module = widest.clamp("module".len(), MODULE_MAX);
    let mut name = usize::MAX;
    if let Some(width) = options.width {
        // Two counts, two shares of 7 columns, and 2 columns between each two.
        let left = width.saturating_sub(own + all + 2 * 7 + 5 * 2);
        module = module.min(MODULE_MIN.max(left / 3));
        name = NAME_MIN.max(left.saturating_sub(module));
    }
    let (bold, end) = if options.color {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let title = fit("module", module);
    writeln!(
        out,
        "{bold}{:>own$}  {:>7}  {:>all$}  {:>7}  {title}  function{end}",
        "self", "self%", "total", "total%"
    )?;
    for row in rows {
        let share = percent(row.counts.own, total);
        let (start, end) = match share {
            _ if !options.color => ("", ""),
            s if s >= 10.0 => ("\x1b[31m", "\x1b[0m"),
            s if s >= 2.0 => ("\x1b[33m", "\x1b[0m"),
            _ => ("", ""),
        };
        writeln!(
            out,
            "{start}{:>own$}  {share:>6.2}%  {:>all$}  {:>6.2}%  {}  {}{end}",
            row.counts.own,
            row.counts.total,
            percent(row.counts.total, total),
            fit(&row.module, module),
            cut(&row.name, name)
        )?;
    }
    Ok(())
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// `text` in exactly `width` columns: cut with `…`, or filled with blanks.
fn fit(text: &str, width: usize) -> String {
    let mut out = cut(text, width);
    let used = out.width();
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

/// `text` in at most `width` columns, cut between characters.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    const PLAIN: Options = Options {
        limit: 20,
        width: None,
        color: false,
    };

    fn render(profile: &Profile, options: Options) -> String {
        let mut out = Vec::new();
        write(profile, options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn recursion_counts_once_and_markers_are_no_functions() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "f", "g", "f", "f"], 3);
        b.row(p, &["main", "f"], 1);
        b.row_of(p, &[(FrameKind::Truncated, "x"), (FrameKind::User, "g")], 2);
        b.row_of(
            p,
            &[(FrameKind::User, "main"), (FrameKind::Kernel, "irq")],
            4,
        );
        b.row(p, &[], 5);
        let found: Vec<_> = functions(&b.profile)
            .into_iter()
            .map(|((name, _), c)| (b.profile.names.text(name).to_owned(), c.own, c.total))
            .collect();
        let expected = [("f", 4, 4), ("irq", 4, 4), ("g", 2, 5), ("main", 0, 8)]
            .map(|(n, o, t)| (n.to_owned(), o, t));
        assert_eq!(found, expected);
        let text = render(&b.profile, PLAIN);
        assert!(
            text.contains("# 4 of 4 functions; shares are of 15 samples\n"),
            "{text}"
        );
        assert!(text.contains("# 5 samples have no frames"), "{text}");
        assert!(
            text.contains("   4   26.67%      4   26.67%  mod       f\n"),
            "{text}"
        );
        assert!(
            text.contains("   4   26.67%      4   26.67%  [kernel]  irq\n"),
            "{text}"
        );
    }

    #[test]
    fn wide_names_are_cut_between_characters_to_fit() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["中".repeat(100).as_str()], 1);
        b.row(p, &["a\x1b[31m"], 1);
        let text = render(
            &b.profile,
            Options {
                width: Some(60),
                ..PLAIN
            },
        );
        let rows: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|r| r.width() <= 60), "{text}");
        assert!(text.contains("中…"), "{text}");
        assert!(text.contains("a\\u{1b}[31m"), "{text}");
        let narrow = render(
            &b.profile,
            Options {
                width: Some(5),
                limit: 1,
                color: true,
            },
        );
        assert!(narrow.contains("\x1b[31m   1"), "{narrow}");
    }
}
