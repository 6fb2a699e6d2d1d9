//! User stacks of code that keeps no frame pointers: walked here, from what the sampling program has copied, by the unwind
//! information of the mapped files.
//!
//! ```text
//! copy    registers and stack memory of one sample        registers   their values while the walk goes up
//! tables  the unwind information of one file              files       those of all files that were walked through
//! rule    how one address gets to its caller, compiled    eval        the same for what cannot be compiled
//! held    copies, until what their samples need is known  walk        address by address to the root
//! found   what the tables have for one place               code        what instructions say where no table does
//! windows how much of a thread's stack is copied          quick       the same for ordinary code, in nanoseconds
//! usual   code of which copies need less                  chain       such copies
//! interrupted  where that of a handler's thread goes on   go          what Go says of functions that have no caller there
//! ```
//!
//! A frame is never made up: each address lies in code that was mapped at that time, each step goes up the stack, and a walk that
//! cannot go on ends there, with a reason that is counted. Stack contents are forgotten with the walk; only addresses
//! reach the capture.
//!
//! All files here are hostile. What is done for one address is bounded (see the constants in [`tables`] and [`eval`]), and a walk
//! has no more steps than a stack has frames.

mod chain;
mod code;
mod copy;
mod eval;
mod files;
mod found;
mod go;
pub mod held;
pub mod interrupted;
#[cfg(all(test, target_arch = "x86_64"))]
mod made;
mod quick;
mod registers;
mod rule;
pub mod tables;
pub mod usual;
mod walk;
pub mod windows;

pub use copy::StackCopy;
#[cfg(test)]
pub(crate) use copy::tests as copies;
pub use walk::{Code, End, Unwinder, Walked};

/// Bytes of a user stack that are copied at most, what lies below the stack pointer included.
pub const WINDOW: u32 = 128 << 10;

/// Whether stacks can be walked here on this architecture.
pub const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

#[cfg(test)]
mod tests;
