//! `profiler report` as a program: the text of every view, identity, exit codes and manners.

mod fixture;
mod identity;
mod manners;
mod views;
