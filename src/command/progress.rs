//! How far a long report is, on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::pipeline::Progress;

/// Shown only when the work takes longer than this.
const PATIENCE: Duration = Duration::from_millis(500);

/// A progress bar on stderr that appears when it takes long.
#[derive(Debug)]
pub struct Bar {
    /// `None` where nobody looks.
    start: Option<Instant>,
    frames: u64,
    total: u64,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// For `total` frames; shows nothing unless stderr is a terminal.
    pub fn new(total: usize) -> Bar {
        let start = stderr().is_terminal().then(Instant::now);
        Bar {
            start,
            frames: 0,
            total: total as u64,
            bar: None,
        }
    }

    fn show(&mut self) {
        if self.start.is_none_or(|start| start.elapsed() < PATIENCE) {
            return;
        }
        let total = self.total;
        let bar = self.bar.get_or_insert_with(|| {
            // Of several captures in one file it is not known how many there are.
            let template = match total {
                0 => "{msg} {pos} frames, {elapsed}",
                _ => "{msg} {bar:30} {pos}/{len} frames, {elapsed}",
            };
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total)
                .with_style(style)
                .with_message("reading")
        });
        bar.set_position(self.frames);
    }
}

impl Progress for Bar {
    fn frame(&mut self) {
        self.frames += 1;
        self.show();
    }

    fn symbolizing(&mut self) {
        self.show();
        if let Some(bar) = &self.bar {
            bar.set_message("looking up names");
        }
    }

    fn done(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.start = None;
    }
}
