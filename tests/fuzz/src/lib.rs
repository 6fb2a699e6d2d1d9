//! What the fuzz targets share.
//!
//! ```text
//! parts     a capture as its parts: what is fuzzed where checksums would end it
//! mutate    changes to parts, sections of segments, and to captures with the checksums made right again
//! capture   parts -> a capture whose checksums, sizes and descriptors are right
//! agree     a capture -> verify, repair and reports of it say the same
//! reports   a capture -> every report, and what may never be in one
//! exports   a capture -> what other programs read of it, parts of it, two side by side
//! ```

pub mod agree;
pub mod capture;
pub mod exports;
pub mod mutate;
pub mod parts;
pub mod reports;
