//! The tree for people.

use std::io::{self, Write};

use super::lines::{Guides, Lines};
use super::walk::{Sums, Walk};
use super::{Of, Options};
use crate::counted::{are, counted};
use crate::profile::Profile;
use crate::report::layout::{self, percent};
use crate::report::verdict;

/// What is said where levels are numbers.
const NUMBERED: &str = "the tree is too deep to be drawn in this width, so levels are numbers: each line hangs below the nearest one above that has a \
                        smaller number, and lines without a number go on with the chain above";

/// Writes the verdict and the tree.
pub fn write(
    profile: &Profile,
    of: Of<'_>,
    options: Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    layout::head(verdict::whole(profile), options.style, out)?;
    let mut walk = Walk::new(profile, of, options, false);
    // What is left out is told first, so the tree waits.
    let mut lines = Lines::new(profile, of, options, walk.sums());
    walk.run(&mut |functions, node| {
        lines.add(functions, node);
        Ok(())
    })?;
    lines.flush();
    let guides = lines.guides();
    let mut about = about(of, options, walk.sums());
    if let Guides::Numbers(_) = guides {
        about.push(NUMBERED.to_owned());
    }
    layout::head(about, options.style, out)?;
    lines.write(guides, out)
}

/// What the tree is of, and what it is without.
fn about(of: Of<'_>, options: Options, sums: Sums) -> Vec<String> {
    let mut lines = Vec::new();
    match of.found() {
        None => lines.push(format!(
            "call tree; shares are of {}",
            counted(sums.all, "sample")
        )),
        Some(found) => {
            let (what, note) = match of {
                Of::Callers(_) => ("callers", "each is called by those below it"),
                _ => ("callees", "of recursive calls, below the outermost one"),
            };
            lines.extend(found.explained());
            lines.push(format!(
                "{what} of {} ({note}); shares are of the {} with it, {:.2} % of all {}",
                found.title(),
                counted(sums.base, "sample"),
                percent(sums.base, sums.all),
                sums.all
            ));
        }
    }
    if sums.left_out > 0 {
        lines.push(format!(
            "{} below {} % {} left out, {} ({:.2} %) in all",
            counted(sums.left_out, "call"),
            options.min_percent,
            are(sums.left_out),
            counted(sums.left_out_weight, "sample"),
            percent(sums.left_out_weight, sums.base)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;
    use crate::profile::FrameKind;
    use crate::report::callers::find;
    use crate::report::layout::Style;
    use crate::report::text::tests_support::Builder;

    fn profile() -> Profile {
        let mut b = Builder::default();
        let (p, q) = (b.process("app", 7), b.process("other", 8));
        b.row(p, &["main", "run", "loop", "hot"], 50);
        b.row(p, &["main", "run", "loop", "cold", "hot"], 30);
        b.row(q, &["start", "hot", "cold", "hot"], 10);
        b.row_of(
            q,
            &[
                (FrameKind::Truncated, "[truncated]"),
                (FrameKind::Kernel, "irq"),
            ],
            8,
        );
        b.row(q, &["tiny"], 1);
        b.row(q, &[], 1);
        b.profile
    }

    fn render(of: Of<'_>, options: Options) -> String {
        let mut out = Vec::new();
        write(&profile(), of, options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines = text
            .lines()
            .skip_while(|line| !line.contains("shares are of"));
        lines.map(|line| format!("{line}\n")).collect()
    }

    const TWO: Options = Options {
        by_group: false,
        min_percent: 2.0,
        style: Style {
            width: None,
            color: false,
        },
    };

    #[test]
    fn chains_are_on_one_level_and_what_is_small_is_left_out_and_counted() {
        assert_eq!(
            render(Of::All, TWO),
            "\
# call tree; shares are of 100 samples
# 1 call below 2 % is left out, 1 sample (1.00 %) in all
samples   total%    self%
    100  100.00%    1.00%  all
     80   80.00%           ├─ main  mod
                           │  run
                           │  loop
     50   50.00%   50.00%  │  ├─ hot
     30   30.00%           │  └─ cold
                   30.00%  │     hot
     10   10.00%           ├─ start  mod
                           │  hot
                           │  cold
                   10.00%  │  hot
      8    8.00%           └─ [truncated]
                    8.00%     irq  [kernel]
"
        );
    }

    #[test]
    fn callers_are_below_what_they_call_and_recursion_counts_once() {
        let found = find(&profile(), "hot").unwrap();
        assert_eq!(
            render(Of::Callers(&found), TWO),
            "\
# callers of hot (each is called by those below it); shares are of the 90 samples with it, 90.00 % of all 100
samples   total%
     90  100.00%  hot
     50   55.56%  ├─ loop  mod
                  │  run
                  │  main
     30   33.33%  ├─ cold  mod
                  │  loop
                  │  run
                  │  main
     10   11.11%  └─ start  mod
"
        );
        let cold = find(&profile(), "cold").unwrap();
        assert_eq!(
            render(Of::Callees(&cold), TWO),
            "\
# callees of cold (of recursive calls, below the outermost one); shares are of the 40 samples with it, 40.00 % of all 100
samples   total%    self%
     40  100.00%           cold
                  100.00%  hot  mod
"
        );
    }

    #[test]
    fn groups_are_roots_where_they_are_asked_for() {
        let options = Options {
            by_group: true,
            min_percent: 9.0,
            ..TWO
        };
        let found = find(&profile(), "cold").unwrap();
        assert_eq!(
            render(Of::Callers(&found), options),
            "\
# callers of cold (each is called by those below it); shares are of the 40 samples with it, 40.00 % of all 100
samples   total%
     40  100.00%  all
     30   75.00%  ├─ app-7
     30   75.00%  │  └─ cold
                  │     loop  mod
                  │     run
                  │     main
     10   25.00%  └─ other-8
     10   25.00%     └─ cold
                        hot  mod
                        start
"
        );
        let text = render(Of::All, options);
        assert!(
            text.contains("     20   20.00%    1.00%  └─ other-8\n"),
            "{text}"
        );
        assert!(
            text.contains("# 2 calls below 9 % are left out, 9 samples (9.00 %) in all\n"),
            "{text}"
        );
        assert!(
            text.ends_with("      9    9.00%              └─ … 2 below 9 %\n"),
            "{text}"
        );
    }

    #[test]
    fn deep_and_wide_trees_fit_the_terminal() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        let names: Vec<String> = (0..200)
            .map(|i| format!("function_number_{i}_中\x1b"))
            .collect();
        for depth in 1..200 {
            let stack: Vec<&str> = names.iter().take(depth).map(String::as_str).collect();
            b.row(p, &stack, 1);
        }
        let options = Options {
            min_percent: 0.0,
            style: Style {
                width: Some(80),
                color: false,
            },
            ..TWO
        };
        let mut out = Vec::new();
        write(&b.profile, Of::All, options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), 201);
        assert!(lines.iter().all(|line| line.width() <= 80), "{text}");
        assert!(
            lines
                .iter()
                .skip(2)
                .all(|line| line.contains("function_number_")),
            "{text}"
        );
        assert!(!text.contains('\x1b'));
        // In a file there is an end to it too.
        let options = Options {
            style: Style::default(),
            ..options
        };
        let mut out = Vec::new();
        write(&b.profile, Of::All, options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let widest = text.lines().map(UnicodeWidthStr::width).max();
        assert!(widest < Some(350), "{widest:?}");
    }

    #[test]
    fn a_function_that_calls_itself_again_and_again_is_one_line() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "f", "f", "f", "g", "f"], 6);
        b.row(p, &["other", "f", "f"], 2);
        b.row(p, &["other", "f", "f", "f"], 2);
        let mut out = Vec::new();
        write(&b.profile, Of::All, TWO, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = "\
     10  100.00%           all
      6   60.00%           ├─ main  mod
                           │  f ×3
                           │  g
                   60.00%  │  f
      4   40.00%           └─ other  mod
                   20.00%     f ×2
      2   20.00%   20.00%     └─ f
";
        assert!(text.ends_with(expected), "{text}");
    }

    /// As in the samples of `--standard`; what is in one line and was inlined in one place only says so.
    #[test]
    fn what_was_inlined_is_marked() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "leaf", "leaf"], 4);
        b.row(p, &["main", "mixed"], 3);
        b.row(p, &["main", "mixed", "x"], 3);
        let profile = &mut b.profile;
        for name in ["leaf", "mixed"] {
            let frames = profile.names.frames().iter().copied();
            let plain = frames
                .into_iter()
                .find(|f| profile.names.text(f.name) == name);
            let inlined = crate::profile::Frame {
                inlined: true,
                ..plain.unwrap()
            };
            let frame = profile.names.frame_id(inlined);
            let (main, _) = profile.stacks.leaf(profile.rows[1].stack).unwrap();
            let stack = profile.stacks.push(main, frame);
            profile.rows.push(crate::profile::Row {
                stack,
                samples: 5,
                weight: 5,
                ..profile.rows[0]
            });
        }
        profile.rows.remove(0);
        let render = |of| {
            let mut out = Vec::new();
            write(profile, of, TWO, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = render(Of::All);
        assert!(
            text.ends_with(
                "\
     16  100.00%           all
     16  100.00%           └─ main  mod
     11   68.75%   50.00%     ├─ mixed (partly inlined)
      3   18.75%   18.75%     │  └─ x
      5   31.25%   31.25%     └─ leaf (inlined)
"
            ),
            "{text}"
        );
        let found = find(profile, "x").unwrap();
        let callers = render(Of::Callers(&found));
        assert!(
            callers.ends_with(" mixed  mod\n                  main\n"),
            "{callers}"
        );
    }

    #[test]
    fn no_samples_are_no_tree_and_no_crash() {
        let mut out = Vec::new();
        write(&Profile::default(), Of::All, Options::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("      0    0.00%           all\n"), "{text}");
    }
}
