#![doc = "wip"]
pub mod capture;
pub mod event;
pub mod format;
