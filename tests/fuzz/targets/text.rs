//! What a recorder reads as text: /proc and perf maps, which any process can write to. The first byte says what.
#![no_main]

use bprof::record::{cpus, jit, kallsyms, maps, modules, procfs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((selector, text)) = data.split_first() else {
        return;
    };
    let lines = || text.split(|b| *b == b'\n');
    match selector % 8 {
        0 => drop(procfs::parse_stat(text)),
        1 => {
            for line in lines().filter_map(procfs::parse_maps_line) {
                let raw = maps::RawMapping::from(line);
                maps::classify(&raw.path);
            }
        }
        2 => {
            procfs::parse_cgroup(text);
            procfs::parse_cgroup_mount(text);
        }
        3 => drop(procfs::parse_owner(text)),
        4 => {
            if let Some(table) = kallsyms::Kallsyms::fuzz_text(text) {
                let some = [0, 1 << 63, 0xffff_ffff_8100_0000, u64::MAX];
                let covering = table.covering(&some).symbols;
                let pairs = covering.iter().zip(covering.iter().skip(1));
                assert!(pairs.into_iter().all(|(a, b)| a.end <= b.start));
                for address in some {
                    if let Some(symbol) = table.symbol(address) {
                        assert!((symbol.start..symbol.end).contains(&address));
                    }
                }
            }
        }
        5 => {
            for module in modules::fuzz_text(text) {
                module.holds(module.start);
            }
        }
        6 => drop(std::str::from_utf8(text).map(cpus::parse_list)),
        _ => {
            // Readings of one map: a line of nothing but `=` divides them.
            let readings: Vec<&[u8]> = text.split(|b| *b == b'=').collect();
            let wanted: Vec<u64> = (0..64)
                .map(|i| i * 0x40)
                .chain([u64::MAX, 1 << 47])
                .collect();
            for reading in jit::fuzz_text(&readings, &wanted) {
                let pairs = reading.iter().zip(reading.iter().skip(1));
                assert!(pairs.into_iter().all(|(a, b)| a.start + a.len <= b.start));
                assert!(reading.iter().all(|line| line.len > 0));
            }
        }
    }
});
