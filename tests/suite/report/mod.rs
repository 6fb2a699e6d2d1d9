//! `profiler report` as a program: the text of every view, identity, exit codes and manners.

mod debug_files;
pub mod fixture;
mod identity;
mod input;
mod kernel;
mod manners;
mod nameless;
mod outputs;
mod pictures;
mod plt;
mod symbols;
mod tables;
mod views;
mod weights;
