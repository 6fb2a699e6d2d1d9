//! LIVE: from the kernel to a capture.
//!
//! ```text
//! options    what to record          preflight  can it be done    host  facts for the header
//! target     whom, concretely        launch     a command, held before its exec
//! sampler    perf events ──interrupt──> bpf (bpf/profiler.bpf.c) ──ring──> wire ──> drain ──> capture::writer
//! sideband   fork, exec, mmap, ... ─────────────────────────────> processes ──────────┘
//! procfs, maps, files, cgroups, address_space   what /proc knows     rooted    files as other processes see them
//! kernel_names, kallsyms, bpf_code, layouts, jit     what names need beside samples, written off the sampling path
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
pub mod bpf;
pub mod bpf_code;
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
pub mod options;
pub mod output;
pub mod preflight;
pub mod processes;
pub mod procfs;
pub mod progress;
pub mod ring;
pub mod rooted;
pub mod sampler;
pub mod session;
pub mod sideband;
pub mod signals;
pub mod target;
pub mod wire;

pub use options::Options;
pub use session::run;
