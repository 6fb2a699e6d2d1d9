//! Lines of the tree, and how levels are drawn in the width there is.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::walk::{Inlined, Label, Node, Sums};
use super::{Of, Options};
use crate::profile::{NameId, Names, Profile};
use crate::report::layout::{Style, fit_name, percent};
use crate::report::text;
use crate::report::weights::Functions;

/// Columns that a name keeps beside branches of three columns a level, and beside those of one: with less, levels are numbers.
const NAME_MIN: usize = 32;
const NAME_MIN_NARROW: usize = 24;
/// Columns of branches where no terminal asks for less.
const BRANCHES_MAX: usize = 240;
/// How levels are shown, which is the same in all lines: what is above what can be seen only so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guides {
    /// Branches of three columns a level.
    Wide,
    /// Of one column a level.
    Narrow,
    /// Numbers of so many digits.
    Numbers(usize),
}

impl Guides {
    /// What is before a name, with the blank between.
    fn shown(self, line: &Line) -> String {
        match self {
            Guides::Wide => {
                let wide = |guide| match guide {
                    '├' => "├─ ",
                    '└' => "└─ ",
                    '│' => "│  ",
                    _ => "   ",
                };
                line.branches.chars().map(wide).collect()
            }
            Guides::Narrow if line.branches.is_empty() => String::new(),
            Guides::Narrow => format!("{} ", line.branches),
            Guides::Numbers(digits) => match line.total {
                Some(_) => format!("{:>digits$} ", line.level()),
                None => format!("{:digits$} ", ""),
            },
        }
    }

    /// Columns of that.
    fn width(self, level: usize) -> usize {
        match self {
            Guides::Wide => level * 3,
            Guides::Narrow => level + usize::from(level > 0),
            Guides::Numbers(digits) => digits + 1,
        }
    }
}

/// The lines of a tree, which wait for the last one: how levels are shown depends on all of them.
pub(super) struct Lines<'a> {
    names: &'a Names,
    of: Of<'a>,
    style: Style,
    min_percent: f64,
    base: u64,
    /// Columns of the counts.
    digits: usize,
    /// By level of branches: more of them follow.
    more: Vec<bool>,
    /// By depth: the module.
    modules: Vec<Option<NameId>>,
    /// The line of the node before, of which there may be more.
    last: Option<Line>,
    /// Those before it.
    done: Vec<Line>,
}

/// A function, once or calling itself.
struct Line {
    function: Option<u32>,
    inlined: Inlined,
    times: usize,
    /// `None` where it goes on with a chain.
    total: Option<u64>,
    own: u64,
    share: f64,
    /// One character for each level.
    branches: String,
    name: String,
    module: Option<String>,
}

impl Line {
    fn level(&self) -> usize {
        self.branches.chars().count()
    }

    /// What follows the name.
    fn notes(&self) -> String {
        let mut notes = match self.times {
            1 => String::new(),
            times => format!(" ×{times}"),
        };
        notes.push_str(match self.inlined {
            Inlined::No => "",
            Inlined::Partly => " (partly inlined)",
            Inlined::Yes => " (inlined)",
        });
        notes
    }
}

impl<'a> Lines<'a> {
    /// None yet.
    pub fn new(profile: &'a Profile, of: Of<'a>, options: Options, sums: Sums) -> Lines<'a> {
        Lines {
            names: &profile.names,
            of,
            style: options.style,
            min_percent: options.min_percent,
            base: sums.base,
            digits: sums.base.to_string().len().max("samples".len()),
            more: Vec::new(),
            modules: Vec::new(),
            last: None,
            done: Vec::new(),
        }
    }

    /// Whether samples can be taken in a node itself.
    fn has_own(&self) -> bool {
        !matches!(self.of, Of::Callers(_))
    }

    fn title(&self) -> String {
        let own = if self.has_own() { "    self%" } else { "" };
        format!("{:>1$}   total%{own}", "samples", self.digits)
    }

    /// Takes the next node.
    pub fn add(&mut self, functions: &Functions, node: Node<'_>) {
        let branches = self.branches(node);
        let (name, module) = self.name(functions, node);
        let function = match node.label {
            Label::Function(number) => Some(number),
            _ => None,
        };
        if let Some(last) = &mut self.last
            && node.joins
            && function.is_some()
            && last.function == function
        {
            last.times += 1;
            last.inlined = last.inlined.and(node.inlined);
            last.own = node.own;
            return;
        }
        self.flush();
        self.last = Some(Line {
            function,
            inlined: node.inlined,
            times: 1,
            total: (!node.joins).then_some(node.total),
            own: node.own,
            branches,
            name,
            module,
            share: percent(node.total, self.base),
        });
    }

    /// Takes the line that waited for more of the same function.
    pub fn flush(&mut self) {
        self.done.extend(self.last.take());
    }

    /// Columns of the counts.
    fn counts_width(&self) -> usize {
        self.digits + if self.has_own() { 18 } else { 9 }
    }

    /// Columns for all that follows the counts.
    fn room(&self) -> Option<usize> {
        let width = self.style.width?;
        Some(width.saturating_sub(self.counts_width() + 2))
    }

    /// How levels are shown, so that every name has room.
    pub fn guides(&self) -> Guides {
        let fit = |guides: Guides, name_min: usize| {
            self.done.iter().all(|line| {
                let used = guides.width(line.level());
                let wanted = || (line.name.width() + line.notes().width()).min(name_min);
                self.room()
                    .map_or(used <= BRANCHES_MAX, |room| used + wanted() <= room)
            })
        };
        if fit(Guides::Wide, NAME_MIN) {
            return Guides::Wide;
        }
        if fit(Guides::Narrow, NAME_MIN_NARROW) {
            return Guides::Narrow;
        }
        let deepest = self.done.iter().map(Line::level).max().unwrap_or(0);
        Guides::Numbers(deepest.to_string().len())
    }

    /// Writes the title and all lines.
    pub fn write(&self, guides: Guides, out: &mut dyn Write) -> io::Result<()> {
        let (bold, end) = self.style.bold();
        writeln!(out, "{bold}{}{end}", self.title())?;
        self.done
            .iter()
            .try_for_each(|line| self.write_line(line, guides, out))
    }

    fn write_line(&self, of: &Line, guides: Guides, out: &mut dyn Write) -> io::Result<()> {
        let (start, end) = self.style.tint(of.share);
        let digits = self.digits;
        let mut line = match of.total {
            // As many as the node before.
            None => format!("{:digits$}{:9}", "", ""),
            Some(total) => format!("{total:>digits$}  {:>6.2}%", of.share),
        };
        if self.has_own() {
            line.push_str(&match of.own {
                0 => format!("{:9}", ""),
                own => format!("  {:>6.2}%", percent(own, self.base)),
            });
        }
        let shown = guides.shown(of);
        let mut notes = of.notes();
        let left = self.room().map_or(usize::MAX, |room| {
            room.saturating_sub(shown.width() + notes.width()).max(8)
        });
        let (dim, plain) = self.style.dim();
        let name = fit_name(&of.name, left);
        if let Some(module) = &of.module
            && name.width() + module.width() + 2 <= left
        {
            notes.push_str(&format!("  {dim}{module}{plain}"));
        }
        let line = format!("{start}{line}{end}  {dim}{shown}{plain}{start}{name}{end}{notes}");
        writeln!(out, "{}", line.trim_end())
    }

    /// The lines that lead to the node, one character for each level.
    fn branches(&mut self, node: Node<'_>) -> String {
        let mut out = String::new();
        self.more.resize(node.level + 1, false);
        if !node.joins
            && let Some(more) = self.more.get_mut(node.level)
        {
            *more = !node.is_last;
        }
        for (level, more) in self.more.iter().enumerate().skip(1) {
            let here = level == node.level && !node.joins;
            out.push(match (here, more) {
                (true, true) => '├',
                (true, false) => '└',
                (false, true) => '│',
                (false, false) => ' ',
            });
        }
        out
    }

    /// What the node is called, and its module where that is not its caller's.
    fn name(&mut self, functions: &Functions, node: Node<'_>) -> (String, Option<String>) {
        let name = match node.label {
            Label::All => "all".to_owned(),
            Label::Group(name) => text::escaped(name).into_owned(),
            Label::Asked => self
                .of
                .found()
                .map_or_else(String::new, |found| found.title()),
            Label::LeftOut(count) => format!("… {count} below {} %", self.min_percent),
            Label::Function(number) => {
                text::escaped(functions.text(self.names, number).0).into_owned()
            }
        };
        self.modules.resize(node.depth, None);
        let module = match node.label {
            Label::Function(number) => functions.get(number).map(|(_, module)| module),
            _ => None,
        };
        let before = self.modules.last().copied().flatten();
        self.modules.push(module);
        let other = module.filter(|module| before != Some(*module));
        let other = other.map(|module| text::escaped(self.names.text(module)).into_owned());
        (name, other.filter(|module| !module.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::write;
    use super::*;
    use crate::report::text::tests_support::Builder;

    /// A profile of a chain of branches: at each level of `names` one is called that goes on, and one that ends.
    fn branching(names: &[&str]) -> Profile {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        for depth in 1..=names.len() {
            b.row(p, &names[..depth], 10);
            let mut other = names[..depth].to_vec();
            other.push("other");
            b.row(p, &other, 10);
        }
        b.profile
    }

    fn in_columns(profile: &Profile, width: usize) -> String {
        let style = Style {
            width: Some(width),
            color: false,
        };
        let mut out = Vec::new();
        write(
            profile,
            Of::All,
            Options {
                style,
                ..Options::default()
            },
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Who calls whom can be seen in every width: all lines of a tree show levels alike, and names keep room.
    #[test]
    fn a_narrow_terminal_hides_no_level() {
        let profile = branching(&["first", "a_name_that_is_as_long_as_many", "third"]);
        assert_eq!(
            in_columns(&profile, 70),
            "\
samples   total%    self%
     60  100.00%           all
     60  100.00%   16.67%  └─ first  mod
     40   66.67%   16.67%     ├─ a_name_that_is_as_long_as_many
     20   33.33%   16.67%     │  ├─ third
     10   16.67%   16.67%     │  │  └─ other
     10   16.67%   16.67%     │  └─ other
     10   16.67%   16.67%     └─ other
"
        );
        assert_eq!(
            in_columns(&profile, 60),
            "\
samples   total%    self%
     60  100.00%           all
     60  100.00%   16.67%  └ first  mod
     40   66.67%   16.67%   ├ a_name_that_is_as_long_as_many
     20   33.33%   16.67%   │├ third
     10   16.67%   16.67%   ││└ other
     10   16.67%   16.67%   │└ other
     10   16.67%   16.67%   └ other
"
        );
        assert_eq!(
            in_columns(&profile, 50),
            "\
samples   total%    self%
     60  100.00%           0 all
     60  100.00%   16.67%  1 first  mod
     40   66.67%   16.67%  2 a_name_that_is_as_lo…
     20   33.33%   16.67%  3 third
     10   16.67%   16.67%  4 other
     10   16.67%   16.67%  3 other
     10   16.67%   16.67%  2 other
"
        );
    }

    /// Of the numbers it is said what they are, in files too, where it takes more levels.
    #[test]
    fn levels_are_numbers_where_branches_have_no_room() {
        let names: Vec<String> = (0..300).map(|i| format!("f{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for (levels, deepest) in [
            (40, "├─ f39".to_owned()),
            (120, "├ f119".to_owned()),
            (300, " 300 f299".to_owned()),
        ] {
            let mut out = Vec::new();
            let options = Options {
                min_percent: 0.0,
                ..Options::default()
            };
            write(&branching(&names[..levels]), Of::All, options, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let told = text.contains("so levels are numbers: each line hangs below");
            assert_eq!(told, levels == 300, "{text}");
            assert!(text.contains(deepest.trim_end()), "{text}");
        }
    }
}
