//! What the program does for each command: from arguments to an exit code.

mod output;
#[cfg(feature = "record")]
pub mod record;
pub mod report;
