//! How far long work is, on a terminal.

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

/// A progress bar of bytes on stderr that appears when it takes long, and goes when it is dropped.
#[derive(Debug)]
pub struct Bytes {
    /// `None` where nobody looks.
    start: Option<Instant>,
    bar: Option<ProgressBar>,
    what: &'static str,
}

impl Bytes {
    /// Shows nothing unless stderr is a terminal.
    pub fn new() -> Bytes {
        Bytes {
            start: stderr().is_terminal().then(Instant::now),
            bar: None,
            what: "",
        }
    }

    /// So many bytes are done, `of` those there are, where that is known.
    pub fn show(&mut self, what: &'static str, bytes: u64, of: Option<u64>) {
        if self.start.is_none_or(|start| start.elapsed() < PATIENCE) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| ProgressBar::new(0));
        if std::mem::replace(&mut self.what, what) != what {
            let template = match of {
                None => "{msg} {bytes}, {elapsed}",
                Some(_) => "{msg} {bar:30} {bytes}/{total_bytes}, {elapsed}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_length(of.unwrap_or(0));
            bar.set_message(what);
        }
        bar.set_position(bytes);
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
