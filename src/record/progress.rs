//! What the person at the terminal sees while and after recording.

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::drain::Totals;
use crate::counted::noun;

/// What the person at the terminal sees while it records.
pub struct Live {
    shown: Shown,
    started: Instant,
    last: (Instant, u64),
}

/// Where it is shown.
enum Shown {
    /// Nowhere: stderr is no terminal, or nothing is wanted.
    Nowhere,
    /// As a line on stderr that changes in place.
    Line(ProgressBar),
    /// In the title of the terminal, which a command writes to as well: a line would be written over its output and it
    /// over the line, and nobody but the terminal knows where its cursor is.
    Title,
}

/// How often a line changes.
const EVERY: Duration = Duration::from_millis(250);
/// How often a title changes.
const EVERY_TITLE: Duration = Duration::from_secs(1);
/// Control sequences of xterm, which other terminals know or pass over: keep the title, begin and end another, put the
/// kept one back.
const KEEP_TITLE: &str = "\x1b[22;2t";
const TITLE: (&str, &str) = ("\x1b]2;", "\x07");
const TITLE_BACK: &str = "\x1b[23;2t";

impl Live {
    /// Shows nothing when `quiet`, and when stderr is no terminal. `shared`: a command writes to the terminal too.
    pub fn new(quiet: bool, shared: bool) -> Live {
        let shown = match (std::io::stderr().is_terminal() && !quiet, shared) {
            (false, _) => Shown::Nowhere,
            (true, true) if knows_titles(std::env::var_os("TERM").as_deref()) => {
                put(KEEP_TITLE);
                Shown::Title
            }
            (true, true) => Shown::Nowhere,
            (true, false) => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                if let Ok(style) = ProgressStyle::with_template("{msg}") {
                    bar.set_style(style);
                }
                Shown::Line(bar)
            }
        };
        let now = Instant::now();
        Live {
            shown,
            started: now,
            last: (now, 0),
        }
    }

    /// Shows where things are.
    pub fn update(&mut self, totals: &Totals, bytes: u64) {
        let every = match &self.shown {
            Shown::Nowhere => return,
            Shown::Line(_) => EVERY,
            Shown::Title => EVERY_TITLE,
        };
        let (then, before) = self.last;
        let since = then.elapsed();
        if since < every {
            return;
        }
        self.last = (Instant::now(), totals.samples);
        let rate = (totals.samples - before) as f64 / since.as_secs_f64();
        let text = format!(
            "recording {:.0} s: {} {} ({rate:.0}/s), {} lost, {} written",
            self.started.elapsed().as_secs_f64(),
            HumanCount(totals.samples),
            noun(totals.samples, "sample"),
            HumanCount(totals.lost),
            HumanBytes(bytes),
        );
        match &self.shown {
            Shown::Nowhere => {}
            Shown::Line(bar) => {
                bar.set_message(format!("{text}; Ctrl-C ends it"));
                bar.tick();
            }
            Shown::Title if has_lines() => put(&format!("{}{text}{}", TITLE.0, TITLE.1)),
            Shown::Title => {}
        }
    }

    /// Says something, above the line.
    pub fn say(&self, text: &str) {
        let print = || put(&format!("{text}\n"));
        match &self.shown {
            Shown::Line(bar) => bar.suspend(print),
            _ => print(),
        }
    }

    /// Takes it away.
    pub fn clear(&self) {
        match &self.shown {
            Shown::Nowhere => {}
            Shown::Line(bar) => bar.finish_and_clear(),
            Shown::Title => put(TITLE_BACK),
        }
    }
}

/// In one piece, so that it comes between two writes of a command and not into one. A closed stderr is nobody's concern.
fn put(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Whether a terminal of this type takes the sequences, or passes over them.
fn knows_titles(terminal: Option<&OsStr>) -> bool {
    terminal.is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// Whether what is written to the terminal are lines. Programs that take all of its screen read keys one by one, and may
/// be in the middle of a control sequence of their own.
fn has_lines() -> bool {
    rustix::termios::tcgetattr(std::io::stderr()).is_ok_and(|attributes| {
        let modes = attributes.local_modes;
        modes.contains(rustix::termios::LocalModes::ICANON)
    })
}

/// What is said at the end.
#[derive(Debug)]
pub struct Summary<'a> {
    /// Counts.
    pub totals: Totals,
    /// Distinct processes with samples.
    pub processes: u64,
    /// Of these, some mappings could not be read.
    pub maps_missed: u64,
    /// How long it sampled.
    pub time: Duration,
    /// The event and its rate: `cpu-clock at 99 Hz`.
    pub event: &'a str,
    /// The capture.
    pub path: &'a str,
    /// What the capture that was there before is called now.
    pub kept: Option<&'a str>,
    /// Whether it is a file, which can be read now.
    pub is_file: bool,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Summary<'_> {
    /// Prints it to stderr. A closed stderr is nobody's concern.
    pub fn print(&self) {
        let _ = std::io::stderr().write_all(self.text().as_bytes());
    }

    fn text(&self) -> String {
        let Totals {
            samples,
            truncated,
            lost,
            no_room,
            idle,
            side_band_lost,
            not_followed,
            shortened,
            least_rate,
            throttled,
        } = self.totals;
        let plural = |n: u64, one: &str, many: &str| {
            format!("{} {}", HumanCount(n), if n == 1 { one } else { many })
        };
        let mut text = format!(
            "recorded {} of {} in {:.1} s ({})\n",
            plural(samples, "sample", "samples"),
            plural(self.processes, "process", "processes"),
            self.time.as_secs_f64(),
            self.event,
        );
        text += &format!(
            "lost {}, truncated stacks {}",
            HumanCount(lost),
            HumanCount(truncated)
        );
        if shortened > 0 {
            text += &format!(
                " ({} because the ring was nearly full)",
                HumanCount(shortened)
            );
        }
        if idle > 0 {
            text += &format!(", idle left out {}", HumanCount(idle));
        }
        if side_band_lost > 0 {
            text += &format!(", process events lost {}", HumanCount(side_band_lost));
        }
        if not_followed > 0 {
            text += &format!(
                ", child processes not followed {}",
                HumanCount(not_followed)
            );
        }
        if throttled > 0 {
            let times = plural(throttled, "time", "times");
            text += &format!(", throttled by the kernel {times}");
        }
        if self.maps_missed > 0 {
            let processes = plural(self.maps_missed, "process", "processes");
            text += &format!(", mappings missed of {processes}");
        }
        if least_rate > 1 {
            text += &format!(
                "\nthe rate was lowered to keep the CPU limit, to 1/{least_rate} at the lowest"
            );
        }
        let each = if samples > 0 {
            format!(", {:.1} bytes a sample", self.bytes as f64 / samples as f64)
        } else {
            String::new()
        };
        let quoted = shell_quote(self.path);
        text += &format!("\nwrote {} ({}{each})\n", self.path, HumanBytes(self.bytes));
        if let Some(kept) = self.kept {
            text += &format!(
                "{} was there already: the capture before is {kept} now\n",
                self.path
            );
        }
        if no_room > 0 {
            text += &format!(
                "{} found no room in the file: more room, or a lower -F, keeps more\n",
                plural(no_room, "sample", "samples")
            );
        }
        if lost > no_room {
            text += "some samples were lost: a larger --ring-size or a lower -F keeps more\n";
        }
        if samples > 0 && self.is_file {
            text += &format!("next: profiler report {quoted}\n");
            text += &format!("to read it elsewhere: profiler pack {quoted}\n");
        }
        text
    }
}

/// `path` so that a shell takes it for one word.
fn shell_quote(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    // Neither an option nor standard input is meant.
    let path = if path.starts_with('-') {
        format!("./{path}")
    } else {
        path.to_owned()
    };
    if !path.is_empty() && path.chars().all(plain) {
        return path;
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_next_names_the_file_and_nothing_else() {
        for (path, typed) in [
            ("a/b-1.bprof", "a/b-1.bprof"),
            ("it's", r"'it'\''s'"),
            ("-", "./-"),
            ("--top", "./--top"),
            ("", "''"),
        ] {
            assert_eq!(shell_quote(path), typed);
        }
    }

    #[test]
    fn a_terminal_without_control_sequences_has_no_title() {
        let knows = |name: Option<&str>| knows_titles(name.map(OsStr::new));
        assert!(knows(Some("xterm-256color")) && knows(Some("tmux")));
        assert!(!knows(Some("dumb")) && !knows(Some("")) && !knows(None));
    }

    #[test]
    fn the_summary_says_what_was_lost_and_what_to_type_next() {
        let totals = Totals {
            samples: 1200,
            truncated: 1,
            lost: 3,
            no_room: 1,
            idle: 7,
            side_band_lost: 0,
            not_followed: 2,
            shortened: 0,
            least_rate: 0,
            throttled: 0,
        };
        let summary = Summary {
            totals,
            processes: 1,
            maps_missed: 1,
            time: Duration::from_millis(2500),
            event: "cpu-clock at 99 Hz",
            path: "my run.bprof",
            kept: Some("my run.bprof.old"),
            is_file: true,
            bytes: 12_000,
        };
        assert_eq!(
            summary.text(),
            "recorded 1,200 samples of 1 process in 2.5 s (cpu-clock at 99 Hz)\n\
             lost 3, truncated stacks 1, idle left out 7, child processes not followed 2, mappings missed of 1 process\n\
             wrote my run.bprof (11.72 KiB, 10.0 bytes a sample)\n\
             my run.bprof was there already: the capture before is my run.bprof.old now\n\
             1 sample found no room in the file: more room, or a lower -F, keeps more\n\
             some samples were lost: a larger --ring-size or a lower -F keeps more\n\
             next: profiler report 'my run.bprof'\n\
             to read it elsewhere: profiler pack 'my run.bprof'\n"
        );
        let piped = Summary {
            path: "standard output",
            kept: None,
            is_file: false,
            ..summary
        };
        let text = piped.text();
        assert!(
            text.contains("wrote standard output (") && !text.contains("profiler "),
            "{text}"
        );
    }
}
