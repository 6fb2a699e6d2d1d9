//! Frames of a segment: what can be decoded is encoded and decoded again to the same.
#![no_main]

use bprof::format::segment::{KnownNodes, Matchers, SegmentFrame, TableSizes};
use bprof_fuzz::{mutate, parts};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::parts(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    let mut sizes = TableSizes::new(2);
    let (mut user, mut kernel) = (Vec::new(), Vec::new());
    for part in parts::decode(data) {
        let known = KnownNodes {
            user: &user,
            kernel: &kernel,
        };
        let Ok((frame, after)) = SegmentFrame::decode(&part.content, &sizes, known) else {
            continue;
        };
        let mut bytes = Vec::new();
        let encoded = frame.encode(&sizes, &mut Matchers::new(known), &mut bytes);
        // What a writer may write is less than what a reader takes.
        if encoded.is_ok() {
            let again = SegmentFrame::decode(&bytes, &sizes, known).expect("our own bytes");
            assert_eq!((&again.0, again.1), (&frame, after));
        }
        user.extend(frame.user_nodes);
        kernel.extend(frame.kernel_nodes);
        sizes = after;
    }
});
