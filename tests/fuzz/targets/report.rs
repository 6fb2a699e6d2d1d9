//! Any content in a capture whose checksums are right: every report.
#![no_main]

use bprof_fuzz::{capture, mutate, parts, reports};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::parts(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    if let Some(reader) = reports::read(capture::build(&parts::decode(data))) {
        reports::all(&reader);
    }
});
