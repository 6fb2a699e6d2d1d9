//! The writer and the reader of captures, over the bytes of [`format`](crate::format).
//!
//! The writer takes facts and samples in any order that names things before they are used, keeps one
//! segment's tables, and appends one frame each time it is flushed. The reader walks the frames of a file
//! in spite of damage and gives segments that can be decoded on their own, on any thread.
//!
//! ```text
//! incoming  stacks and samples -> trie (branches, callers: found by hash) -> numbering  what a frame adds
//!                                 intern  all other tables                   rounding   coarser times
//!                                   -> writer, append -> file -> source -> scan -> reader -> frames -> segments, tables, aids, pack
//! damage  what can be wrong with it
//! vdso  the image without its code      place  where a file may be written      verify  every byte checked
//! repair  what is good of a damaged capture, as a new one      members  several captures in one file
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod aids;
pub mod append;
mod branches;
mod callers;
mod damage;
mod frames;
mod incoming;
mod intern;
pub mod members;
mod numbering;
pub mod pack;
pub mod place;
pub mod reader;
pub mod repair;
mod rounding;
mod scan;
mod segments;
mod source;
pub mod tables;
mod trie;
mod vdso;
pub mod verify;
mod write_error;
pub mod writer;

pub use append::Appender;
pub use pack::Pack;
pub use reader::{
    Aids, CaptureError, Damage, DamageKind, FrameData, Member, PassedOver, Reader, SegmentReader,
};
pub use scan::IndexState;
pub use tables::{LossTotals, NewEntries, StackTable, Tables};
pub use writer::{CaptureWriter, SampleInput, TablesFull, WriteError};
