//! How far a long report is, on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shown only when the work takes longer than this.
const PATIENCE: Duration = Duration::from_millis(500);

/// A progress bar on stderr that appears when it takes long.
#[derive(Debug)]
pub struct Progress {
    /// `None` where nobody looks.
    start: Option<Instant>,
    frames: u64,
    total: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// For `total` frames; shows nothing unless stderr is a terminal.
    pub fn new(total: usize) -> Progress {
        let start = stderr().is_terminal().then(Instant::now);
        Progress {
            start,
            frames: 0,
            total: total as u64,
            bar: None,
        }
    }

    /// Shows nothing, ever.
    pub fn hidden() -> Progress {
        Progress {
            start: None,
            frames: 0,
            total: 0,
            bar: None,
        }
    }

    /// One more frame is read.
    pub fn frame(&mut self) {
        self.frames += 1;
        self.show();
    }

    /// All are read, names are looked up.
    pub fn symbolizing(&mut self) {
        self.show();
        if let Some(bar) = &self.bar {
            bar.set_message("looking up names");
        }
    }

    /// Takes the bar away.
    pub fn done(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.start = None;
    }

    fn show(&mut self) {
        if self.start.is_none_or(|start| start.elapsed() < PATIENCE) {
            return;
        }
        let total = self.total;
        let bar = self.bar.get_or_insert_with(|| {
            let template = "{msg} {bar:30} {pos}/{len} frames, {elapsed}";
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total)
                .with_style(style)
                .with_message("reading")
        });
        bar.set_position(self.frames);
    }
}
