//! Tests that need no privilege: they run anywhere, without recording.

mod agreement;
#[cfg(feature = "debuginfod")]
mod debuginfod;
mod exports;
mod format;
mod golden;
mod hostile;
mod info;
mod pack;
mod packed;
mod property;
mod repair;
mod report;
mod select;
mod spec;
mod tail;
mod verify;
