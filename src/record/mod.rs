//! LIVE: from the kernel to a capture.
//!
//! ```text
//! options    what to record          requirements  can it be done    host  facts for the header
//! target     whom, concretely        launch     a command, held before its exec
//! sampler    perf events ──interrupt──> bpf (bpf/profiler.bpf.c) ──> ring ──> wire ──> drain ──> capture::writer
//!   needed_types                 those of the kernel's types that bpf reads
//! unwind     stacks that were copied instead of walked, once it is known what was mapped
//! sideband   fork, exec, mmap, ... ─────────────────────────────> processes ──────────┘
//! procfs, maps, files, cgroups, address_space   what /proc knows     rooted    files as other processes see them
//! aside      a process that asks /proc and file systems that may not answer
//! kernel_names, layouts, jit     what names need beside samples, written off the sampling path
//!   asked_names, symbol_program  kernel symbols one by one (bpf/symbols.bpf.c), else table_names, kallsyms: all of them
//!   bpf_code, modules, places    code of the kernel that comes and goes
//! capabilities, own_code   what is given up once it runs         shared    memory of maps
//! session    the loop over all this  progress   what people see     output    the file
//! ```
//!
//! Nothing is symbolized here.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod address_space;
pub mod aside;
pub mod asked_names;
pub mod bpf;
pub mod bpf_code;
pub mod capabilities;
pub mod cgroups;
pub mod cpus;
pub mod drain;
pub mod files;
pub mod host;
pub mod jit;
pub mod kallsyms;
pub mod kernel_names;
pub mod launch;
pub mod layouts;
pub mod maps;
pub mod modules;
pub mod needed_types;
pub mod options;
pub mod output;
pub mod own_code;
pub mod places;
pub mod processes;
pub mod procfs;
pub mod progress;
pub mod requirements;
pub mod ring;
pub mod rooted;
pub mod sampler;
pub mod session;
pub mod shared;
pub mod sideband;
pub mod signals;
pub mod symbol_program;
pub mod table_names;
pub mod target;
pub mod unwind;
pub mod wire;

pub use options::Options;
pub use session::run;
