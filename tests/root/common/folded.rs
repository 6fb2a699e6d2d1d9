//! `profiler report --folded`, as something to ask questions of.

use std::fmt;

/// One line: a stack and how often it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The first field without its PID.
    pub comm: String,
    /// The PID at the end of the first field.
    pub pid: u32,
    /// Frames from the root to the leaf, as printed.
    pub frames: Vec<String>,
    /// Samples.
    pub count: u64,
}

impl Stack {
    fn parse(line: &str) -> Option<Stack> {
        let (stack, count) = line.rsplit_once(' ')?;
        let mut frames = stack.split(';').map(str::to_owned);
        let process = frames.next()?;
        let (comm, pid) = process.rsplit_once('-')?;
        Some(Stack {
            comm: comm.to_owned(),
            pid: pid.parse().ok()?,
            frames: frames.collect(),
            count: count.parse().ok()?,
        })
    }

    /// Whether a frame is `function`: the word, with whatever namespace, arguments or hash the
    /// language puts around.
    pub fn has(&self, function: &str) -> bool {
        self.frames.iter().any(|frame| is_function(frame, function))
    }

    /// The frames of user space.
    pub fn user(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.frames
            .iter()
            .map(String::as_str)
            .filter(|frame| !frame.ends_with("_[k]"))
    }

    /// Whether the frames hold `chain` one right below the other, root first.
    pub fn has_chain(&self, chain: &[&str]) -> bool {
        self.frames.windows(chain.len()).any(|frames| {
            frames
                .iter()
                .zip(chain)
                .all(|(frame, name)| is_function(frame, name))
        })
    }

    /// How many frames are `function`.
    pub fn times(&self, function: &str) -> usize {
        self.frames
            .iter()
            .filter(|frame| is_function(frame, function))
            .count()
    }

    /// The innermost user frame.
    pub fn user_leaf(&self) -> Option<&str> {
        self.user().next_back()
    }

    /// Whether its user frames hold an address instead of a name.
    pub fn has_unnamed(&self) -> bool {
        self.user()
            .any(|frame| frame.starts_with('[') && frame != TRUNCATED)
    }
}

/// The marker at the root of a stack that was cut.
pub const TRUNCATED: &str = "[truncated]";

/// Whether `frame` names `function` as a whole word.
pub fn is_function(frame: &str, function: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    frame.match_indices(function).any(|(at, _)| {
        let before = frame[..at].chars().next_back();
        let after = frame[at + function.len()..].chars().next();
        !before.is_some_and(word) && !after.is_some_and(word)
    })
}

/// A folded report.
#[derive(Debug, Clone)]
pub struct Folded {
    /// Its lines.
    pub stacks: Vec<Stack>,
    /// What the report said about its completeness.
    pub verdict: String,
}

impl Folded {
    /// Reads a report; fails on a line that is none.
    pub fn parse(text: &str, verdict: &str) -> Folded {
        let parse =
            |line| Stack::parse(line).unwrap_or_else(|| panic!("not a folded line: {line:?}"));
        Folded {
            stacks: text.lines().map(parse).collect(),
            verdict: verdict.to_owned(),
        }
    }

    /// The stacks that `wanted` picks, with the same verdict.
    pub fn only(&self, wanted: impl Fn(&Stack) -> bool) -> Folded {
        let stacks = self.stacks.iter().filter(|s| wanted(s)).cloned().collect();
        Folded {
            stacks,
            verdict: self.verdict.clone(),
        }
    }

    /// Samples in stacks that `wanted` picks.
    pub fn count(&self, wanted: impl Fn(&Stack) -> bool) -> u64 {
        self.stacks
            .iter()
            .filter(|s| wanted(s))
            .map(|s| s.count)
            .sum()
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.count(|_| true)
    }

    /// Share of all samples in stacks that `wanted` picks; fails without samples.
    pub fn share(&self, wanted: impl Fn(&Stack) -> bool) -> f64 {
        assert!(self.total() > 0, "no samples at all\n{self}");
        self.count(wanted) as f64 / self.total() as f64
    }

    /// Fails when a stack that `wrong` picks is there.
    pub fn check_none(&self, what: &str, wrong: impl Fn(&Stack) -> bool) {
        let found = self.only(wrong);
        assert!(found.stacks.is_empty(), "{what}:\n{found}");
    }

    /// Fails unless at least `least` of the samples are in stacks that `wanted` picks.
    pub fn check_least(&self, what: &str, least: f64, wanted: impl Fn(&Stack) -> bool) {
        let share = self.share(wanted);
        assert!(
            share >= least,
            "{what}: {share:.4} of the samples, at least {least} wanted\n{self}"
        );
    }

    /// Fails unless the share of samples that `wanted` picks is within `range`.
    pub fn check_share(
        &self,
        what: &str,
        range: std::ops::RangeInclusive<f64>,
        wanted: impl Fn(&Stack) -> bool,
    ) {
        let share = self.share(wanted);
        assert!(
            range.contains(&share),
            "{what}: {share:.4} of the samples, {range:?} wanted\n{self}"
        );
    }
}

/// What was recorded, for the message of a failed check: the verdict and the heaviest stacks.
impl fmt::Display for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- verdict\n{}", self.verdict.trim_end())?;
        writeln!(
            f,
            "--- heaviest of {} stacks, {} samples",
            self.stacks.len(),
            self.total()
        )?;
        let mut stacks: Vec<&Stack> = self.stacks.iter().collect();
        stacks.sort_by_key(|s| std::cmp::Reverse(s.count));
        for stack in stacks.into_iter().take(20) {
            let line = stack.frames.join(";");
            let cut: String = line.chars().take(400).collect();
            writeln!(f, "{:6} {}-{};{cut}", stack.count, stack.comm, stack.pid)?;
        }
        Ok(())
    }
}

#[test]
fn functions_are_whole_words() {
    assert!(is_function("hot_a", "hot_a"));
    assert!(is_function(
        "field::Piston::hot_alpha(unsigned long)",
        "hot_alpha"
    ));
    assert!(is_function(
        "<[u8: 2] as burn_rust::Hot>::hot_array",
        "hot_array"
    ));
    assert!(is_function("do_syscall_64_[k]", "do_syscall_64_[k]"));
    assert!(!is_function("hot_alpha", "hot_a"));
    assert!(!is_function("shot_a", "hot_a"));
}

#[test]
fn a_line_splits_at_its_last_blank_and_dash() {
    let stack = Stack::parse("a b-c-12;main;two words;do_exit_[k] 34").expect("a folded line");
    assert_eq!(
        (stack.comm.as_str(), stack.pid, stack.count),
        ("a b-c", 12, 34)
    );
    assert_eq!(stack.frames, ["main", "two words", "do_exit_[k]"]);
    assert_eq!(stack.user_leaf(), Some("two words"));
    assert_eq!(Stack::parse("no count"), None);
}
