//! Tests that need no privilege: they run anywhere, without recording.

mod agreement;
mod format;
mod golden;
mod property;
mod report;
mod spec;
