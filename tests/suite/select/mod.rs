//! What is selected of a capture, what it is grouped by, how its stacks are shaped.

mod command;
mod lines;
mod scene;
mod shape;
mod sums;
mod time;
