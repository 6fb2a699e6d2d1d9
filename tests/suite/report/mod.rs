//! `profiler report` as a program: the text of every view, identity, exit codes and manners.

pub mod fixture;
mod identity;
mod manners;
mod views;
