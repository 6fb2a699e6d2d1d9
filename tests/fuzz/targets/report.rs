//! Any content in a capture whose checksums are right, alone or beside another one: every report, of all of it and of parts, repaired.
#![no_main]

use bprof::capture::Reader;
use bprof_fuzz::{agree, capture, exports, mutate, parts, reports};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::parts(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    let file = capture::build(&parts::decode(data));
    // What is asked for besides depends on the input alone, so that it can be repeated.
    let choice = crc32c::crc32c(data);
    let Some(reader) = reports::read(file) else {
        return;
    };
    let reader = match choice % 8 {
        0 => Reader::from_bytes(capture::beside_another(&reader)).expect("what was merged opens"),
        _ => reader,
    };
    let profile = reports::all(&reader);
    agree::report_and_verify(&reader, &profile);
    match choice / 8 % 4 {
        0 => agree::repaired(&reader),
        1 => exports::compared(&reader, &profile),
        _ => exports::part(&reader, choice / 32),
    }
});
