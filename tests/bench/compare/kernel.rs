//! Memory that the kernel keeps for a process and that is in no number of the process itself: BPF maps and programs, and rings
//! of perf events.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

/// In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KernelMemory {
    /// Of BPF maps, rings among them.
    pub maps: u64,
    /// Of BPF programs.
    pub programs: u64,
    /// Of rings of perf events.
    pub perf_rings: u64,
}

impl KernelMemory {
    /// What the kernel keeps for `process` now, as it tells in `/proc` (of maps exactly since Linux 6.4).
    pub fn of(process: i32) -> KernelMemory {
        let mut memory = KernelMemory::default();
        // One thing can be open under several numbers.
        let (mut maps, mut programs) = (BTreeMap::new(), BTreeMap::new());
        let open = fs::read_dir(format!("/proc/{process}/fdinfo"));
        for fd in open.into_iter().flatten().flatten() {
            let text = fs::read_to_string(fd.path()).unwrap_or_default();
            let number = |name: &str| {
                let mut lines = text.lines();
                let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                value.and_then(|value| value.trim().parse::<u64>().ok())
            };
            let bytes = number("memlock").unwrap_or(0);
            if let Some(id) = number("map_id") {
                maps.insert(id, bytes);
            } else if let Some(id) = number("prog_id") {
                programs.insert(id, bytes);
            }
        }
        memory.maps = maps.values().sum();
        memory.programs = programs.values().sum();
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let rings = maps.lines().filter(|line| line.ends_with("[perf_event]"));
        let sizes = rings.filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some(address(end)? - address(start)?)
        });
        memory.perf_rings = sizes.sum();
        memory
    }

    pub fn sum(&self) -> u64 {
        self.maps + self.programs + self.perf_rings
    }
}
