//! What comes out of kernel rings: samples of the BPF program, and the side-band's records.
#![no_main]

use bprof::event::sample_flags;
use bprof::record::{sideband, wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((selector, record)) = data.split_first() else {
        return;
    };
    if selector & 1 == 0 {
        sideband::fuzz_record(record, selector & 2 == 0);
        return;
    }
    // A ring aligns records.
    let words: Vec<u64> = record
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let depths = wire::Depths {
        user: 1 + usize::from(selector >> 1),
        kernel: 8,
    };
    for record in [&bytes[..], bytes.get(1..).unwrap_or_default(), record] {
        if let Some(sample) = wire::decode(record, depths) {
            assert!(sample.user.len() * 8 + sample.kernel.len() * 8 <= record.len());
            assert_eq!(sample.flags & !sample_flags::ALL, 0);
            let cut = sample.flags & sample_flags::USER_TRUNCATED != 0;
            // Kept short when the ring was nearly full.
            let depth = if sample.short {
                depths.user.min(8)
            } else {
                depths.user
            };
            assert_eq!(cut, sample.copy.is_none() && sample.user.len() >= depth);
            assert!(sample.weight >= 1);
        }
    }
});
