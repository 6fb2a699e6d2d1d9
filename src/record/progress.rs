//! What the person at the terminal sees while and after recording.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::drain::Totals;

/// The live line on stderr, on a terminal only.
pub struct Live {
    bar: Option<ProgressBar>,
    started: Instant,
    last: (Instant, u64),
}

/// How often the line changes.
const EVERY: Duration = Duration::from_millis(250);

impl Live {
    /// A line unless `quiet` or stderr is no terminal.
    pub fn new(quiet: bool) -> Live {
        let now = Instant::now();
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{msg}") {
                bar.set_style(style);
            }
            bar
        });
        Live {
            bar,
            started: now,
            last: (now, 0),
        }
    }

    /// Shows where things are.
    pub fn update(&mut self, totals: &Totals, bytes: u64) {
        let Some(bar) = &self.bar else { return };
        let (then, before) = self.last;
        let since = then.elapsed();
        if since < EVERY {
            return;
        }
        self.last = (Instant::now(), totals.samples);
        let rate = (totals.samples - before) as f64 / since.as_secs_f64();
        bar.set_message(format!(
            "recording {:.0} s: {} samples ({rate:.0}/s), {} lost, {} written; Ctrl-C ends it",
            self.started.elapsed().as_secs_f64(),
            HumanCount(totals.samples),
            HumanCount(totals.lost),
            HumanBytes(bytes),
        ));
        bar.tick();
    }

    /// Says something, above the line.
    pub fn say(&self, text: &str) {
        let print = || {
            let _ = writeln!(std::io::stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
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
            idle,
            side_band_lost,
            not_followed,
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
        if self.maps_missed > 0 {
            let processes = plural(self.maps_missed, "process", "processes");
            text += &format!(", mappings missed of {processes}");
        }
        let each = if samples > 0 {
            format!(", {:.1} bytes a sample", self.bytes as f64 / samples as f64)
        } else {
            String::new()
        };
        let quoted = shell_quote(self.path);
        text += &format!("\nwrote {} ({}{each})\n", self.path, HumanBytes(self.bytes));
        if lost > 0 {
            text += "some samples were lost: a larger --ring-size or a lower -F keeps more\n";
        }
        text += &format!("next: profiler report {quoted}\n");
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
    fn the_summary_says_what_was_lost_and_what_to_type_next() {
        let totals = Totals {
            samples: 1200,
            truncated: 1,
            lost: 3,
            idle: 7,
            side_band_lost: 0,
            not_followed: 2,
        };
        let summary = Summary {
            totals,
            processes: 1,
            maps_missed: 1,
            time: Duration::from_millis(2500),
            event: "cpu-clock at 99 Hz",
            path: "my run.bprof",
            bytes: 12_000,
        };
        assert_eq!(
            summary.text(),
            "recorded 1,200 samples of 1 process in 2.5 s (cpu-clock at 99 Hz)\n\
             lost 3, truncated stacks 1, idle left out 7, child processes not followed 2, mappings missed of 1 process\n\
             wrote my run.bprof (11.72 KiB, 10.0 bytes a sample)\n\
             some samples were lost: a larger --ring-size or a lower -F keeps more\n\
             next: profiler report 'my run.bprof'\n"
        );
    }
}
