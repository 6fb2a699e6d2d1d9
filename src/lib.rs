#![doc = "wip"]
pub mod capture;
pub mod event;
pub mod format;
#[cfg(feature = "record")]
pub mod record;
