//! The table for people.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::count::{Counter, Counts, Entries};
use super::{Entry, Options};
use crate::counted::{are, counted};
use crate::profile::{Names, Profile, SourceLine};
use crate::report::groups::groups;
use crate::report::layout::{self, column, cut, fit, fit_end, fit_name, percent};
use crate::report::{text, verdict};

/// Writes the verdict and the table.
pub fn write(profile: &Profile, options: Options, out: &mut dyn Write) -> io::Result<()> {
    layout::head(verdict::whole(profile), options.style, out)?;
    let mut counter = Counter::new(&profile.names, &profile.stacks);
    if options.by_group {
        return of_groups(profile, &mut counter, options, out);
    }
    let all = counter.entries(&[&profile.rows], options.sort);
    let least = layout::at_least(options.min_total, all.sum);
    let entries = all.at_least(least);
    let rows = rows(profile, &entries, options);
    let mut lines = vec![format!(
        "{} of {}; shares are of {}",
        rows.len(),
        counted(entries.functions, "function"),
        counted(entries.sum, "sample")
    )];
    let small = entries.functions - entries.list.len();
    if small > 0 {
        let own = entries.left_out(&entries.list);
        lines.push(format!(
            "{} below {} % in all {} left out, {} ({:.2} %) in them",
            counted(small, "function"),
            options.min_total,
            are(small),
            counted(own, "sample"),
            percent(own, entries.sum)
        ));
    }
    lines.extend(of_none(entries.of_none));
    layout::head(lines, options.style, out)?;
    let columns = Columns::new(&rows, options, 0);
    columns.title(out)?;
    rows.iter()
        .try_for_each(|row| columns.row(row, entries.sum, out))
}

/// A table for each group, below its name.
fn of_groups(
    profile: &Profile,
    counter: &mut Counter<'_>,
    options: Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    let groups = groups(profile);
    let total = profile.total_weight();
    let least = layout::at_least(options.min_percent, total);
    let shown = groups.iter().filter(|group| group.weight >= least);
    let most = options.most_groups.unwrap_or(usize::MAX);
    let shown: Vec<_> = shown.take(most).collect();
    let mut lines = vec![format!(
        "{} of {}; shares are of {}",
        shown.len(),
        counted(groups.len(), "group"),
        counted(total, "sample")
    )];
    if shown.len() < groups.len() {
        // The heaviest are first.
        let rest = groups.iter().skip(shown.len());
        let rest = rest.fold(0u64, |sum, group| sum.saturating_add(group.weight));
        let below = match shown.len() < most {
            true => format!("below {} % ", options.min_percent),
            false => String::new(),
        };
        let hint = match options.most_groups {
            Some(_) => "; --min-percent 0 shows all",
            None => "",
        };
        lines.push(format!(
            "{} {below}{} left out, {} ({:.2} %){hint}",
            counted(groups.len() - shown.len(), "group"),
            are(groups.len() - shown.len()),
            counted(rest, "sample"),
            percent(rest, total)
        ));
    }
    let mut tables = Vec::new();
    let mut of_none_sum = 0u64;
    for group in shown {
        let entries = counter.entries(&group.rows, options.sort);
        of_none_sum = of_none_sum.saturating_add(entries.of_none);
        let entries = entries.at_least(layout::at_least(options.min_total, total));
        let rows = rows(profile, &entries, options);
        tables.push((group, rows, entries.functions));
    }
    lines.extend(of_none(of_none_sum));
    layout::head(lines, options.style, out)?;
    let all: Vec<&Line> = tables.iter().flat_map(|(_, rows, _)| rows).collect();
    let columns = Columns::new(&all, options, 2);
    columns.title(out)?;
    for (group, rows, functions) in &tables {
        let (bold, end) = options.style.bold();
        let rest = format!(
            "  {}, {:.2} %, {} of {}",
            counted(group.weight, "sample"),
            percent(group.weight, total),
            rows.len(),
            counted(*functions, "function")
        );
        let name = text::escaped(&group.name);
        let width = options.style.width.map_or(usize::MAX, |width| {
            width.saturating_sub(rest.width()).max(NAME_MIN)
        });
        writeln!(out, "\n{bold}{}{end}{rest}", cut(&name, width))?;
        rows.iter()
            .try_for_each(|row| columns.row(row, total, out))?;
    }
    Ok(())
}

/// What belongs to no function.
fn of_none(count: u64) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 sample has no frames and belongs to no function".to_owned()),
        _ => Some(format!(
            "{count} samples have no frames and belong to no function"
        )),
    }
}

/// A line of a table.
struct Line {
    counts: Counts,
    name: String,
    module: String,
    /// File and line.
    source: String,
}

fn rows(profile: &Profile, entries: &Entries, options: Options) -> Vec<Line> {
    let text = |name| text::escaped(profile.names.text(name)).into_owned();
    let shown = entries.limited(options.limit).iter();
    shown
        .map(
            |Entry {
                 function,
                 counts,
                 line,
             }| Line {
                counts: *counts,
                name: text(function.0),
                module: text(function.1),
                source: line.map_or_else(String::new, |line| source(&profile.names, line)),
            },
        )
        .collect()
}

fn source(names: &Names, source: SourceLine) -> String {
    let file = text::escaped(names.text(source.file));
    match source.line {
        0 => file.into_owned(),
        line => format!("{file}:{line}"),
    }
}

/// Narrowest column of function names, which come last because they are long.
const NAME_MIN: usize = 16;
/// Narrowest columns of modules and of source lines.
const TEXT_MIN: usize = 8;
/// Widest column of modules; longer ones are cut on a terminal.
const MODULE_MAX: usize = 40;
/// Widest column of source lines.
const SOURCE_MAX: usize = 60;

/// How wide each column is.
struct Columns {
    options: Options,
    indent: usize,
    own: usize,
    total: usize,
    module: usize,
    source: usize,
    name: usize,
}

impl Columns {
    fn new<L: std::borrow::Borrow<Line>>(rows: &[L], options: Options, indent: usize) -> Columns {
        let widest = |pick: &dyn Fn(&Line) -> usize, title: &str| {
            let widths = rows.iter().map(|row| pick(row.borrow()));
            widths.max().unwrap_or(0).max(title.len())
        };
        let own = widest(&|row| row.counts.own.to_string().len(), "self");
        let total = widest(&|row| row.counts.total.to_string().len(), "total");
        let mut module = widest(&|row| row.module.width(), "module").min(MODULE_MAX);
        let mut source = match options.lines {
            true => widest(&|row| row.source.width(), "line"),
            false => 0,
        };
        let mut name = usize::MAX;
        if let Some(width) = options.style.width {
            // Two counts, two shares of 7 columns, and 2 columns between each two.
            let mut left = width.saturating_sub(indent + own + total + 2 * 7 + 5 * 2);
            module = module.min(TEXT_MIN.max(left / 3));
            if options.lines {
                left = left.saturating_sub(2);
                source = source.min(SOURCE_MAX).min(TEXT_MIN.max(left / 3));
            }
            name = NAME_MIN.max(left.saturating_sub(module + source));
        }
        Columns {
            options,
            indent,
            own,
            total,
            module,
            source,
            name,
        }
    }

    fn title(&self, out: &mut dyn Write) -> io::Result<()> {
        let (bold, end) = self.options.style.bold();
        let (own, total, indent) = (self.own, self.total, self.indent);
        writeln!(
            out,
            "{bold}{:indent$}{:>own$}  {:>7}  {:>total$}  {:>7}  {}  {}function{end}",
            "",
            "self",
            "self%",
            "total",
            "total%",
            fit("module", self.module),
            self.source("line"),
        )
    }

    fn row(&self, row: &Line, sum: u64, out: &mut dyn Write) -> io::Result<()> {
        let share = percent(row.counts.own, sum);
        let all = percent(row.counts.total, sum);
        let (start, end) = self.options.style.tint(share);
        let (own, total, indent) = (self.own, self.total, self.indent);
        writeln!(
            out,
            "{start}{:indent$}{:>own$}  {share:>6.2}%  {:>total$}  {all:>6.2}%  {}  {}{}{end}",
            "",
            row.counts.own,
            row.counts.total,
            column(&row.module, self.module, self.options.style),
            self.source(&row.source),
            fit_name(&row.name, self.name)
        )
    }

    /// The column of the line and what is between it and the next, where it is shown.
    fn source(&self, source: &str) -> String {
        match self.options.lines {
            true => format!("{}  ", fit_end(source, self.source)),
            false => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::FrameKind;
    use crate::report::layout::Style;
    use crate::report::text::tests_support::Builder;

    fn render(profile: &Profile, options: Options) -> String {
        let mut out = Vec::new();
        write(profile, options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_has_counts_and_shares_and_says_what_it_is_of() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "f"], 4);
        b.row_of(
            p,
            &[(FrameKind::User, "main"), (FrameKind::Kernel, "irq")],
            6,
        );
        b.row(p, &[], 5);
        let text = render(&b.profile, Options::default());
        let expected = "\
# 3 of 3 functions; shares are of 15 samples
# 5 samples have no frames and belong to no function
self    self%  total   total%  module    function
   6   40.00%      6   40.00%  [kernel]  irq
   4   26.67%      4   26.67%  mod       f
   0    0.00%     10   66.67%  mod       main
";
        assert!(text.ends_with(expected), "{text}");
        let total = Options {
            sort: super::super::Sort::Total,
            limit: Some(1),
            ..Options::default()
        };
        let text = render(&b.profile, total);
        assert!(
            text.ends_with("function\n   0    0.00%     10   66.67%  mod     main\n"),
            "{text}"
        );
    }

    #[test]
    fn each_group_has_its_functions_and_small_ones_are_left_out_and_counted() {
        let mut b = Builder::default();
        let (big, small, little) = (
            b.process("big\n", 7),
            b.process("small", 8),
            b.process("little", 9),
        );
        b.row(big, &["main", "f"], 60);
        b.row(big, &["main", "g"], 20);
        b.row(small, &["main", "f"], 19);
        b.row(little, &["main"], 1);
        let options = Options {
            by_group: true,
            min_percent: 2.0,
            limit: Some(2),
            ..Options::default()
        };
        let text = render(&b.profile, options);
        let expected = "\
# 2 of 3 groups; shares are of 100 samples
# 1 group below 2 % is left out, 1 sample (1.00 %)
  self    self%  total   total%  module  function

big\\n-7  80 samples, 80.00 %, 2 of 3 functions
    60   60.00%     60   60.00%  mod     f
    20   20.00%     20   20.00%  mod     g

small-8  19 samples, 19.00 %, 2 of 2 functions
    19   19.00%     19   19.00%  mod     f
     0    0.00%     19   19.00%  mod     main
";
        assert!(text.ends_with(expected), "{text}");
    }

    /// Hundreds of processes are no table for each; which are not there, and how to see them, is told.
    #[test]
    fn no_more_groups_than_asked_for_and_how_to_see_the_others() {
        let mut b = Builder::default();
        for pid in 0..7 {
            let p = b.process("job", pid);
            b.row(p, &["main"], 20 - u64::from(pid));
        }
        let options = Options {
            by_group: true,
            most_groups: Some(5),
            min_percent: 0.5,
            ..Options::default()
        };
        let text = render(&b.profile, options);
        assert!(
            text.contains(
                "# 5 of 7 groups; shares are of 119 samples\n\
                 # 2 groups are left out, 29 samples (24.37 %); --min-percent 0 shows all\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("job-4 ") && !text.contains("job-5 "),
            "{text}"
        );
        let all = Options {
            most_groups: None,
            min_percent: 0.0,
            ..options
        };
        assert!(render(&b.profile, all).contains("# 7 of 7 groups;"));
    }

    #[test]
    fn wide_names_are_cut_between_characters_to_fit() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["中".repeat(100).as_str()], 1);
        b.row(p, &["a\x1b[31m"], 1);
        let style = |width, color| Style {
            width: Some(width),
            color,
        };
        let options = Options {
            style: style(60, false),
            ..Options::default()
        };
        let text = render(&b.profile, options);
        assert!(text.lines().all(|r| r.width() <= 60), "{text}");
        assert!(text.contains("中…"), "{text}");
        assert!(text.contains("a\\u{1b}[31m"), "{text}");
        let narrow = render(
            &b.profile,
            Options {
                style: style(5, true),
                limit: Some(1),
                ..Options::default()
            },
        );
        assert!(narrow.contains("\x1b[31m   1"), "{narrow}");
    }
}
