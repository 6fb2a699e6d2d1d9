//! THE BYTES of a capture: one file per section of `format-spec.md`, encode and decode side by side.
//!
//! A capture is a plain sequence of zstd frames and zstd skippable frames:
//!
//! ```text
//! [skippable: file header]                          header.rs
//! ( [skippable: descriptor] [zstd frame] )*         descriptor.rs, then by kind:
//!        kind Segment: tables added + samples       segment.rs: strings, files, mappings, spaces,
//!                                                   processes, tasks, addresses, stacks, samples, losses
//!        kind KernelSymbols, Vdso, PerfMaps, ElfLayouts aid.rs
//!        kind End                                   end.rs
//!        kind PackedFile, PackedSymbols, PackedTable packed/
//! [skippable: index]                                index.rs, a cache
//! ```
//!
//! Several captures can be in one file, each behind a skippable frame of its own: member.rs.
//!
//! Everything decoded here is hostile until checked: each length is capped and compared with the bytes
//! that are left before anything is allocated.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod addresses;
pub mod aid;
mod columns;
mod cost;
pub mod descriptor;
pub mod end;
pub mod error;
pub mod frame;
pub mod header;
pub mod index;
mod input;
mod leb128;
pub mod limits;
mod losses;
mod matches;
pub mod member;
pub(crate) mod meta;
pub mod packed;
pub mod payload;
pub mod process;
pub mod samples;
pub mod segment;
pub mod skippable;
mod stacks;
mod strings;
mod table_sizes;
