//! Where BPF programs are in the kernel. `/proc/kallsyms` tells their starts and not their ends, and only of those there are
//! now: what lies after the last program it lists can have been a program that is gone.
//!
//! Lengths are known of programs the kernel tells of when they come and go (`PERF_RECORD_KSYMBOL`), and of those that were
//! there before, which it can be asked for.

use std::collections::BTreeMap;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

use super::kallsyms::BPF;
use super::places::Places;
use crate::format::aid::KernelSymbol;

/// All BPF code there was since the recording began, as far as it is known.
#[derive(Debug, Default)]
pub struct BpfCode {
    places: Places,
    /// Records were lost: what may have taken the place of something is not known.
    doubtful: bool,
}

impl BpfCode {
    /// The code of programs that are there now, by their `name` at a start. Nothing without CAP_SYS_ADMIN.
    pub fn add_present(&mut self, name: impl Fn(u64) -> Option<String>) {
        let options = ProgInfoQueryOptions::default()
            .include_jited_ksyms(true)
            .include_jited_func_lens(true);
        for program in ProgInfoIter::with_query_opts(options) {
            let starts = program.jited_ksyms.iter().map(|start| *start as u64);
            for (start, len) in starts.zip(program.jited_func_lens) {
                if let Some(name) = name(start) {
                    self.add(start, u64::from(len), &name);
                }
            }
        }
    }

    /// There is code called `name`, or was until now.
    pub fn add(&mut self, start: u64, len: u64, name: &str) {
        let there_is_room = self.places.add(&KernelSymbol {
            start,
            end: start.saturating_add(len),
            name: name.into(),
            module: Some(BPF.into()),
        });
        self.doubtful |= !there_is_room;
    }

    /// Whether something is known to be at `address`, or to have been.
    pub fn knows(&self, address: u64) -> bool {
        self.places.knows(address)
    }

    /// Records that may have told of code were lost.
    pub fn records_lost(&mut self) {
        self.doubtful = true;
    }

    /// The symbols that cover `addresses`, or the byte before each, sorted and each once. `lasts` says whether a symbol of this
    /// start and name is there at the end of the recording.
    pub fn covering(
        &self,
        addresses: impl IntoIterator<Item = u64>,
        mut lasts: impl FnMut(u64, &str) -> bool,
    ) -> Vec<KernelSymbol> {
        let both = addresses
            .into_iter()
            .flat_map(|address| [address, address.wrapping_sub(1)]);
        let mut found: BTreeMap<u64, KernelSymbol> = BTreeMap::new();
        for address in both {
            if let Some(symbol) = self.places.find(address) {
                found.insert(symbol.start, symbol);
            }
        }
        let mut found: Vec<KernelSymbol> = found.into_values().collect();
        found.retain(|symbol| !self.doubtful || lasts(symbol.start, &symbol.name));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &BpfCode, addresses: &[u64]) -> Vec<String> {
        let found = code.covering(addresses.iter().copied(), |start, _| start == 0x100);
        found.into_iter().map(|s| s.name).collect()
    }

    #[test]
    fn code_ends_where_it_ends() {
        let mut code = BpfCode::default();
        code.add(0x100, 0x40, "a");
        code.add(0x200, 0x40, "b");
        code.add(0x200, 0x40, "b");
        assert_eq!(names(&code, &[0x100, 0x13f, 0x201]), ["a", "b"]);
        assert_eq!(names(&code, &[0x240]), ["b"], "a return address");
        assert_eq!(names(&code, &[0x141, 0x1ff, 0xff, 0x241]), [""; 0]);
    }

    #[test]
    fn a_place_that_was_used_twice_has_no_name() {
        let mut code = BpfCode::default();
        code.add(0x100, 0x40, "a");
        code.add(0x200, 0x40, "b");
        code.add(0x120, 0x100, "c");
        assert_eq!(names(&code, &[0x110, 0x130, 0x23f]), [""; 0]);
        code.add(0x110, 0x10, "d");
        assert_eq!(names(&code, &[0x110]), [""; 0]);
        code.add(0x240, 0x10, "e");
        assert_eq!(names(&code, &[0x248]), ["e"]);
    }

    #[test]
    fn after_a_loss_only_what_lasts_is_known() {
        let mut code = BpfCode::default();
        code.add(0x100, 0x40, "a");
        code.add(0x200, 0x40, "b");
        code.records_lost();
        assert_eq!(names(&code, &[0x100, 0x200]), ["a"]);
    }
}
