//! What the program does for each offline command: from arguments to an exit code.

mod output;
pub mod report;
