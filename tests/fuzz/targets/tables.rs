//! Every other record of the format by itself: the first byte says which.
#![no_main]

use bprof::event::{Pid, ProcessKey, Timestamp};
use bprof::format::aid::{ElfLayouts, KernelSymbols, PerfMaps, Vdso};
use bprof::format::descriptor::Descriptor;
use bprof::format::end::End;
use bprof::format::frame::FrameDecompressor;
use bprof::format::header::Header;
use bprof::format::packed::file;
use bprof::format::packed::symbols::PackedSymbols;
use bprof::format::packed::table::PackedTable;
use bprof::format::{index, limits};
use bprof::symbolize::functions::{FunctionTable, loads};
use bprof::symbolize::kernel::KernelTable;
use bprof::symbolize::perf_map::PerfMaps as PerfMapTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((selector, data)) = data.split_first() else {
        return;
    };
    match selector % 12 {
        0 => {
            if let Ok(mut symbols) = KernelSymbols::decode(data) {
                symbols.normalize();
                let pairs = || symbols.symbols.iter().zip(symbols.symbols.iter().skip(1));
                assert!(pairs().all(|(a, b)| a.start < a.end && a.end <= b.start));
                let addresses: Vec<u64> = symbols.symbols.iter().map(|s| s.start).collect();
                let table = KernelTable::new(symbols);
                for address in addresses {
                    table.find(address);
                    table.find(address.wrapping_sub(1));
                }
            }
        }
        1 => {
            if let Ok(vdso) = Vdso::decode(data) {
                FunctionTable::parse(&*vdso.image);
                loads(&*vdso.image);
            }
        }
        2 => {
            if let Ok(maps) = PerfMaps::decode(data) {
                let known: Vec<(ProcessKey, u64, u64)> = maps
                    .maps
                    .iter()
                    .flat_map(|map| map.symbols.iter().map(|s| (map.process, s.start, s.len)))
                    .take(100)
                    .collect();
                let until = maps.maps.last().map_or(0, |map| map.until.0);
                let table = PerfMapTable::new(maps.maps);
                for (process, start, len) in known {
                    for address in [start, start.wrapping_add(len / 2)] {
                        for time in [0, until / 2, until, u64::MAX] {
                            if let Some((map, line)) = table.find(process, Timestamp(time), address)
                            {
                                let symbol = table.symbol(map, line).expect("what was found");
                                assert!(address.wrapping_sub(symbol.start) < symbol.len);
                            }
                        }
                    }
                }
                let nobody = ProcessKey {
                    tgid: Pid(u32::MAX),
                    start_time: Timestamp(7),
                };
                table.boundaries(nobody);
            }
        }
        3 => drop(ElfLayouts::decode(data)),
        4 => drop(End::decode(data)),
        5 => {
            if let Ok(symbols) = PackedSymbols::decode(data) {
                for number in 0..symbols.len() {
                    symbols.symbol(number);
                }
                let mut bytes = Vec::new();
                symbols.encode(&mut bytes).expect("what was decoded");
                assert_eq!(PackedSymbols::decode(&bytes), Ok(symbols));
            }
        }
        6 => {
            if let Ok(table) = PackedTable::decode(data) {
                let mut bytes = Vec::new();
                table.encode(&mut bytes).expect("what was decoded");
                assert_eq!(PackedTable::decode(&bytes), Ok(table));
            }
        }
        7 => {
            if let Ok((head, bytes)) = file::decode(data) {
                let mut again = Vec::new();
                file::encode(&mut again, &head, bytes).expect("what was decoded");
                assert_eq!(file::decode(&again), Ok((head, bytes)));
            }
        }
        8 => drop(Header::decode(data)),
        9 => {
            if let Ok(entries) = index::decode(data) {
                for entry in &entries {
                    assert!(entry.end() >= entry.data_offset());
                }
            }
        }
        10 => {
            if let Ok(descriptor) = Descriptor::decode(data) {
                let mut bytes = Vec::new();
                descriptor.encode(&mut bytes);
                assert_eq!(Descriptor::decode(&bytes), Ok(descriptor));
            }
        }
        _ => {
            let size = data.first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
            let mut out = Vec::new();
            if let Ok(mut zstd) = FrameDecompressor::new()
                && let Ok(()) =
                    zstd.decompress(data.get(4..).unwrap_or_default(), size.into(), &mut out)
            {
                assert_eq!(out.len(), size as usize);
                assert!(out.len() as u64 <= limits::FRAME_CONTENT);
            }
        }
    }
});
