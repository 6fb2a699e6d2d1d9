//! Any bytes as a recording of Linux perf's: imported, and what is written verified.
#![no_main]

use std::io::Cursor;

use bprof::capture::Reader;
use bprof::capture::verify::verify;
use bprof::import::{Source, import};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut out = Vec::new();
    let source = Source::Stream(Box::new(Cursor::new(data.to_vec())));
    if import(source, &mut out).is_err() {
        return;
    }
    let reader = Reader::from_bytes(out).expect("a capture");
    let found = verify(&reader, || {});
    assert!(found.damage.is_empty(), "{:?}", found.damage);
});
