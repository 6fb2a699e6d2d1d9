//! What grew and what shrank, for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::changes::{Change, Shares, changes};
use super::{Joined, Options, Side};
use crate::counted::counted;
use crate::report::layout::{self, column, fit, fit_name};
use crate::report::text::escaped;
use crate::report::top::Sort;
use crate::report::verdict;

/// Writes both verdicts and the tables.
pub fn write(joined: &Joined, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let changes = changes(joined, options.sort);
    layout::head(about(joined), options.style, out)?;
    if let Some(nothing) = nothing_compared(joined) {
        return writeln!(out, "\n{nothing}");
    }
    let (grown, rest): (Vec<&Change>, Vec<&Change>) = changes
        .iter()
        .partition(|change| change.shares(options.sort).change() > 0.0);
    let shrunk = rest
        .iter()
        .rev()
        .filter(|change| change.shares(options.sort).change() < 0.0);
    let shrunk: Vec<&Change> = shrunk.copied().collect();
    let limit = options.limit.unwrap_or(usize::MAX);
    let what = match options.sort {
        Sort::Own => "self",
        Sort::Total => "total",
    };
    let shown: Vec<&Change> = grown
        .iter()
        .take(limit)
        .chain(shrunk.iter().take(limit))
        .copied()
        .collect();
    let columns = Columns::new(joined, &shown, options);
    layout::head(columns.left_out(), options.style, out)?;
    for (list, how) in [(&grown, "more"), (&shrunk, "less")] {
        let (bold, end) = options.style.bold();
        let shown = list.len().min(limit);
        let all = counted(list.len(), "function");
        let title = format!("{how} {what} time: {shown} of {all}");
        writeln!(out, "\n{bold}{title}{end}")?;
        if shown > 0 {
            columns.title(out)?;
        }
        list.iter()
            .take(limit)
            .try_for_each(|change| columns.row(change, out))?;
    }
    if options.sort == Sort::Own {
        // Callers do not show where the time went down.
        let is_other = |change: &&Change| {
            !change.total.may_be_chance() && !shown.iter().any(|s| s.function == change.function)
        };
        let others = changes.iter().filter(is_other).count();
        if others > 0 {
            writeln!(
                out,
                "\nchanged in total time and not shown: {} (--sort total)",
                counted(others, "function")
            )?;
        }
    }
    if grown.is_empty() && shrunk.is_empty() {
        writeln!(out, "\nno function has another share than before")?;
    }
    Ok(())
}

/// That there is nothing to compare, where a capture, or what is selected of it, has no samples: then nothing has grown or shrunk, and
/// nothing is the same either.
pub fn nothing_compared(joined: &Joined) -> Option<String> {
    let sides = [&joined.before.0, &joined.after.0];
    let without = sides.iter().filter(|side| side.weight == 0);
    let paths: Vec<String> = without
        .map(|side| escaped(&side.path.to_string_lossy()).into_owned())
        .collect();
    let has = if paths.len() == 1 { "has" } else { "have" };
    let what = match sides.iter().any(|side| side.about.selected.is_some()) {
        true => "no samples of what is selected",
        false => "no samples",
    };
    (!paths.is_empty()).then(|| format!("nothing to compare: {} {has} {what}", paths.join(" and ")))
}

/// Says so when the stacks of one side were not walked as those of the other.
fn walked_differently(joined: &Joined) -> Option<String> {
    let way = |side: &Side| side.about.user_stacks.label();
    let (before, after) = (way(&joined.before.0), way(&joined.after.0));
    let said = |way: Option<&'static str>| way.unwrap_or("in a way it does not tell");
    (before != after).then(|| {
        format!(
            "user stacks were walked differently: before {}, after {}; callers, and so totals, differ by that too, self does not",
            said(before),
            said(after)
        )
    })
}

/// Modules whose code has names on one side only, which looks like a change of all their functions.
fn named_on_one_side(joined: &Joined) -> Vec<String> {
    /// Share of all time in code without names that is worth a line.
    const LEAST: f64 = 0.01;
    /// Share of all time, before and after, with and without names.
    #[derive(Default)]
    struct Module {
        nameless: [f64; 2],
        named: [f64; 2],
    }
    let mut modules: BTreeMap<&str, Module> = BTreeMap::new();
    for change in changes(joined, Sort::Own) {
        let (name, module) = change.function;
        let name = joined.names.text(name);
        let sums = modules.entry(joined.names.text(module)).or_default();
        let sums = match name.starts_with('[') && name.ends_with(']') {
            true => &mut sums.nameless,
            false => &mut sums.named,
        };
        let [before, after] = sums;
        *before += change.own.before;
        *after += change.own.after;
    }
    let mut lines = Vec::new();
    for (module, Module { nameless, named }) in modules {
        let ([before, after], [named_before, named_after]) = (nameless, named);
        for (here, there, is_more, what, seem) in [
            (before, after, named_after > named_before, "before", "grown"),
            (after, before, named_before > named_after, "after", "shrunk"),
        ] {
            if here >= LEAST && there < here / 2.0 && is_more {
                lines.push(format!(
                    "code without names {what}: {:.1} % of all time in {}, whose functions only seem to have {seem}",
                    here * 100.0,
                    escaped(module)
                ));
            }
        }
    }
    lines
}

/// What is compared, and how.
pub fn about(joined: &Joined) -> Vec<String> {
    let sides = [("before", &joined.before.0), ("after", &joined.after.0)];
    let mut lines = Vec::new();
    for (what, side) in sides {
        lines.push(format!("{what}: {}", escaped(&side.path.to_string_lossy())));
        let verdict = verdict::all(&side.about, &side.naming);
        lines.extend(verdict.into_iter().map(|line| format!("  {line}")));
    }
    let of = |(what, side): (&str, &Side)| match side.cpu_seconds() {
        Some(seconds) => format!(
            "{what} {seconds:.2} s of CPU time, {}",
            counted(side.samples, "sample")
        ),
        None => format!("{what} {}", counted(side.samples, "sample")),
    };
    lines.push(format!(
        "normalized: each in shares of its own sampled CPU time ({}); changes are in points, after minus before",
        sides.map(of).join("; ")
    ));
    lines.extend(nothing_compared(joined));
    lines.extend(walked_differently(joined));
    lines.extend(named_on_one_side(joined));
    if !joined.renamed.is_empty() {
        let renamed = joined.renamed.iter();
        let renamed = renamed.map(|(old, new)| format!("{} and {}", escaped(old), escaped(new)));
        lines.push(format!(
            "taken as the same before and after: {}",
            renamed.collect::<Vec<_>>().join("; ")
        ));
    }
    for (old, new, names) in joined.alike.iter().take(ALIKE) {
        let (old, new) = (escaped(old), escaped(new));
        lines.push(format!(
            "not the same: {old} (before) and {new} (after) have {} of one name; --same {old}={new} takes them as one",
            counted(*names, "function")
        ));
    }
    lines.push("~ within two standard errors: may well be chance".to_owned());
    lines
}

/// Modules that are told to look alike.
const ALIKE: usize = 3;

/// Narrowest column of function names, and of modules.
const NAME_MIN: usize = 16;
const MODULE_MIN: usize = 8;
const MODULE_MAX: usize = 40;
/// Columns of a share, of a change with its mark, of seconds.
const SHARE: usize = 7;
const CHANGE: usize = 8;
const SECONDS: usize = 10;
/// What both shares and changes of self and total take.
const FULL: usize = 2 * (2 * SHARE + CHANGE + 2 * 2) + 2;

/// Which columns there are, and how wide.
struct Columns<'a> {
    joined: &'a Joined,
    options: Options,
    /// Of the one that is not sorted by, only its change is shown.
    short: bool,
    seconds: bool,
    module: usize,
    name: usize,
}

impl<'a> Columns<'a> {
    fn new(joined: &'a Joined, shown: &[&Change], options: Options) -> Columns<'a> {
        let module = |change: &&Change| escaped(joined.names.text(change.function.1)).width();
        let widest = shown.iter().map(module).max().unwrap_or(0);
        let mut module = widest.clamp("module".len(), MODULE_MAX);
        let mut name = usize::MAX;
        let (before, after) = (&joined.before.0, &joined.after.0);
        let mut seconds = before.cpu_seconds().is_some() && after.cpu_seconds().is_some();
        let mut short = false;
        if let Some(width) = options.style.width {
            short = width < FULL + SECONDS + 2 + MODULE_MIN + 2 + 2 * NAME_MIN;
            seconds &= width >= 100 || !short;
            let used = if short { FULL - 2 * SHARE - 4 } else { FULL };
            let used = used + if seconds { SECONDS + 2 } else { 0 };
            let left = width.saturating_sub(used + 2 * 2);
            module = module.min(MODULE_MIN.max(left / 3));
            name = NAME_MIN.max(left.saturating_sub(module));
        }
        Columns {
            joined,
            options,
            short,
            seconds,
            module,
            name,
        }
    }

    /// What a wider terminal would show.
    fn left_out(&self) -> Option<String> {
        let (before, after) = (&self.joined.before.0, &self.joined.after.0);
        let is_time = before.cpu_seconds().is_some() && after.cpu_seconds().is_some();
        let other = match self.options.sort {
            Sort::Own => "before and after of total",
            Sort::Total => "before and after of self",
        };
        let all = [(self.short, other), (is_time && !self.seconds, "CPU s")];
        let all: Vec<&str> = all
            .iter()
            .filter(|(out, _)| *out)
            .map(|(_, what)| *what)
            .collect();
        (!all.is_empty()).then(|| {
            format!(
                "this terminal is too narrow for {}: a wider one, or a pipe, has them",
                all.join(", and ")
            )
        })
    }

    /// Whether self is shown with both shares, and total.
    fn whole(&self, sort: Sort) -> bool {
        !self.short || self.options.sort == sort
    }

    fn title(&self, out: &mut dyn Write) -> io::Result<()> {
        let (bold, end) = self.options.style.bold();
        let mut line = String::new();
        for (sort, what) in [(Sort::Own, "self"), (Sort::Total, "total")] {
            if self.whole(sort) {
                line.push_str(&format!("{:>SHARE$}  {:>SHARE$}  ", "before", "after"));
            }
            line.push_str(&format!("{what:>width$}   ", width = CHANGE - 1));
        }
        if self.seconds {
            line.push_str(&format!("{:>SECONDS$}  ", "CPU s"));
        }
        writeln!(
            out,
            "{bold}{line}{}  function{end}",
            fit("module", self.module)
        )
    }

    fn row(&self, change: &Change, out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for sort in [Sort::Own, Sort::Total] {
            let shares = change.shares(sort);
            if self.whole(sort) {
                for share in [shares.before, shares.after] {
                    line.push_str(&format!("{:>6.2}%  ", share * 100.0));
                }
            }
            line.push_str(&points(shares));
            line.push_str("  ");
        }
        if self.seconds {
            let (before, after) = (&self.joined.before.0, &self.joined.after.0);
            let weights = match self.options.sort {
                Sort::Own => (change.before.own, change.after.own),
                Sort::Total => (change.before.total, change.after.total),
            };
            let more = after.seconds(weights.1).zip(before.seconds(weights.0));
            let more = more.map_or(0.0, |(after, before)| after - before);
            line.push_str(&format!("{:>SECONDS$}  ", signed(more, 2)));
        }
        let shares = change.shares(self.options.sort);
        let (start, end) = match self.options.style.color && !shares.may_be_chance() {
            true if shares.change() > 0.0 => ("\x1b[31m", "\x1b[0m"),
            true => ("\x1b[34m", "\x1b[0m"),
            false => ("", ""),
        };
        let text = |name| escaped(self.joined.names.text(name));
        writeln!(
            out,
            "{start}{line}{}  {}{end}",
            column(&text(change.function.1), self.module, self.options.style),
            fit_name(&text(change.function.0), self.name)
        )
    }
}

/// A change in points, with its mark.
fn points(shares: Shares) -> String {
    let mark = if shares.may_be_chance() { '~' } else { ' ' };
    format!(
        "{:>width$}{mark}",
        signed(shares.change() * 100.0, 2),
        width = CHANGE - 1
    )
}

/// With a sign, unless it is printed as nothing.
fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    match text.contains(|c: char| matches!(c, '1'..='9')) {
        true => text,
        false => format!("{:.digits$}", 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::joined;
    use super::*;
    use crate::report::layout::Style;

    fn render(sort: Sort, style: Style) -> String {
        let options = Options {
            limit: Some(2),
            sort,
            style,
        };
        let mut out = Vec::new();
        write(&joined(), options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn growth_and_shrinkage_are_told_apart_with_their_shares() {
        let text = render(Sort::Own, Style::default());
        let (_, tables) = text.split_once("may well be chance\n").unwrap();
        assert_eq!(
            tables,
            "
more self time: 1 of 1 function
 before    after     self    before    after    total        CPU s  module  function
 50.00%   75.00%   +25.00    50.00%   75.00%   +25.00        +1.00  mod     hot

less self time: 2 of 2 functions
 before    after     self    before    after    total        CPU s  module  function
 20.00%    0.00%   -20.00    20.00%    0.00%   -20.00        -0.20  mod     gone
 30.00%   25.00%    -5.00~   30.00%   25.00%    -5.00~       +0.20  mod     cold

changed in total time and not shown: 1 function (--sort total)
"
        );
        assert!(text.contains("# normalized: each in shares of its own sampled CPU time (before 1.00 s of CPU time, 100 samples; after 2.00 s of CPU time, 200 samples)"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns() {
        let style = Style {
            width: Some(80),
            color: false,
        };
        let text = render(Sort::Own, style);
        assert!(text.lines().all(|line| line.width() <= 80), "{text}");
        let told = "# this terminal is too narrow for before and after of total, and CPU s: a\n#   wider one, or a pipe, has them\n";
        assert!(text.contains(told), "{text}");
        assert!(
            text.contains(" before    after     self     total   module  function\n"),
            "{text}"
        );
        let wide = Style {
            width: Some(200),
            ..style
        };
        assert!(render(Sort::Total, wide).contains("CPU s"));
        assert!(!render(Sort::Total, wide).contains("too narrow"));
    }

    /// An empty side is no growth of everything, and two empty sides are not the same.
    #[test]
    fn where_there_are_no_samples_nothing_is_compared() {
        use super::super::tests::{before, joined_of};
        let nothing = crate::profile::Profile::default();
        let text = |joined: &Joined| {
            let options = Options {
                limit: Some(2),
                sort: Sort::Own,
                style: Style::default(),
            };
            let mut out = Vec::new();
            write(joined, options, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let end = |joined: &Joined| text(joined).split_once("\n\n").unwrap().1.to_owned();
        assert_eq!(
            end(&joined_of(&before(), &nothing)),
            "nothing to compare: after.bprof has no samples\n"
        );
        assert_eq!(
            end(&joined_of(&nothing, &nothing)),
            "nothing to compare: before.bprof and after.bprof have no samples\n"
        );
        let same = end(&joined_of(&before(), &before()));
        assert!(
            same.ends_with("\nno function has another share than before\n"),
            "{same}"
        );
    }

    #[test]
    fn nothing_has_no_sign() {
        assert_eq!(
            (signed(0.001, 2), signed(-0.001, 2)),
            ("0.00".to_owned(), "0.00".to_owned())
        );
        assert_eq!(
            (signed(0.01, 2), signed(-1.0, 2)),
            ("+0.01".to_owned(), "-1.00".to_owned())
        );
    }
}
