//! How text looks where it goes: the terminal's width, and colour.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;

use crate::report::layout::{self, Style};

/// Of a report, and of all else that is printed for people.
pub fn of_report(to_stdout: bool) -> Style {
    let terminal = to_stdout && stdout().is_terminal();
    Style {
        width: terminal.then(|| width(stdout())).flatten(),
        color: terminal && takes_color(),
    }
}

/// Whether colour is wanted (no-color.org), and the terminal knows any.
fn takes_color() -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// Of messages on standard error.
pub fn of_messages() -> Style {
    Style {
        width: stderr().is_terminal().then(|| width(stderr())).flatten(),
        color: false,
    }
}

/// Writes what is said of a report on standard error.
pub fn tell_head(lines: Vec<String>) {
    let style = of_messages();
    let mut text = Vec::new();
    // In one piece, between what others write there; a closed one is no reason to stop.
    let _ = layout::head(lines, style, &mut text).and_then(|()| stderr().write_all(&text));
}

fn width(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
