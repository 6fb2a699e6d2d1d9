//! Records for real: every test here samples a workload with eBPF and compares the report with what
//! the workload knows about itself.
//!
//! Needs root (or CAP_BPF and CAP_PERFMON) and `gcc`, `g++`, `rustc` and `node`; run it with `make test`.
//! Without the privileges each test fails and says so: a test that did not run has not passed.
//!
//! System-wide recordings would disturb each other, so the tests take turns (see
//! [`common::Bench`]).

mod anonymous;
#[cfg(target_arch = "x86_64")]
mod chains;
mod common;
mod cpus;
mod devices;
mod events;
mod files;
mod hung;
mod identity;
mod import;
mod jit;
mod kernel;
mod killed;
#[cfg(target_arch = "x86_64")]
mod languages;
#[cfg(target_arch = "x86_64")]
mod large_frames;
mod output;
mod overload;
mod pack;
mod privileges;
mod processes;
#[cfg(target_arch = "x86_64")]
mod returns;
mod room;
mod roundtrip;
mod soak;
mod stacks;
#[cfg(target_arch = "x86_64")]
mod stepping;
mod targets;
#[cfg(target_arch = "x86_64")]
mod unwind;
#[cfg(target_arch = "x86_64")]
mod unwound_files;
