//! Tests that need no privilege: they run anywhere, without recording.

mod agreement;
mod browser;
#[cfg(feature = "debuginfod")]
mod debuginfod;
mod example;
mod exports;
mod format;
mod golden;
mod hostile;
mod import;
mod info;
mod merge;
mod pack;
mod packed;
mod property;
mod repair;
mod report;
mod select;
mod snapshots;
mod spec;
mod tail;
mod verify;
