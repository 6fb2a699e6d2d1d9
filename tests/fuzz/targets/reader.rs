//! Any bytes as a capture: opened, walked, verified, told about, repaired.
#![no_main]

use bprof_fuzz::{agree, mutate, reports};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::capture(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    if let Some(reader) = reports::read(data.to_vec()) {
        agree::repaired(&reader);
    }
});
