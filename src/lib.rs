//! Linux sampling profiler: what `profiler record` writes on the machine that is looked at, and what
//! `profiler report` makes of it on any machine, at any time.
//!
//! ```text
//! record, on the production box                             report, anywhere, later
//! ------------------------------                            -----------------------
//! perf event (cycles | cpu-clock, per CPU; -t: per thread)  run.bprof (memory-mapped)
//!   -> BPF program: filter (descendants followed at fork),    -> frames checked and decoded, segments in parallel
//!      walk the kernel stack, copy or walk the user stack
//!   -> ring buffer (no wake-up per sample)                    -> timeline: (process, time) -> image -> mapping
//!   -> drain: walk copied stacks, intern stacks,              -> samples selected, and counted by group and stack
//!      build columns                                           -> unique (file, offset) set, one batch per file
//! kernel side-band (mmap2+build id, comm, fork, exit)         -> DWARF and symbols of files verified by build ID
//!   -> process records                                        -> Profile: interned stacks, weights, losses
//! /proc/PID/maps and headers of mapped files, asked of a      -> standard | folded | top-N | other views
//!   process aside, which may hang  -> process records
//! now and then, and at the end: kernel symbols hit, vdso,
//!   JIT lines hit, layouts of ELF files
//!   -> self-contained zstd frames  ->  run.bprof
//! pack: symbols, tables or files of what was hit  ->  appended to run.bprof
//! import: perf.data of Linux perf  ->  run.bprof               merge: several captures, each as it was  ->  all.bprof
//! ```
//!
//! Nothing is symbolized in `record`. Nothing live (/proc, /sys, the running kernel, a process) is asked
//! in `report`: the same capture gives the same report on any machine that has the same files.
//!
//! # As a library
//!
//! Captures can be read without the `record` feature (`default-features = false`): a [`capture::Reader`] opens one,
//! [`pipeline::profile`] makes a [`profile::Profile`] of it, which each view of [`report`] writes or counts;
//! [`pipeline::stream()`] hands out every sample with its names instead. `examples/hottest.rs` is a whole program.
//!
//! ```
//! use bprof::{capture::Reader, pipeline, report::{folded, top}, symbolize::Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reader = Reader::open("tests/golden/v1.2/calls.bprof".as_ref())?;
//! let options = Options { symfs: vec!["tests/golden/v1.2/files".into()], ..Options::default() };
//! let profile = pipeline::profile(&reader, options.into(), &mut (), &mut |warning| eprintln!("{warning}"));
//! assert_eq!(profile.total_weight(), profile.about.samples);
//!
//! let functions = top::functions(&profile);
//! let ((name, _module), counts) = functions[0];
//! println!("{}: {} samples of its own", profile.names.text(name), counts.own);
//!
//! let mut lines = Vec::new();
//! folded::write(&profile, &mut lines)?;
//! assert!(String::from_utf8(lines)?.contains(profile.names.text(name)));
//! # Ok(())
//! # }
//! ```
//!
//! The modules, in the order of the data:

pub mod event;

pub(crate) mod counted;

pub(crate) mod mapped;

pub(crate) mod prefetch;

pub mod elf_file;

pub mod format;

pub mod capture;

#[cfg(feature = "record")]
pub mod record;

pub mod import;

pub mod timeline;

pub mod symbolize;

pub mod profile;

pub mod inventory;

pub mod pipeline;

pub mod report;

pub mod cli;

pub mod command;
