#![doc = "wip"]
pub mod event;
pub mod format;
