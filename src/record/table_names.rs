//! Names of kernel addresses from the whole of `/proc/kallsyms`, where the kernel cannot be asked for single ones: read when the
//! recording begins, and again at its end if modules or BPF programs were sampled.

use std::collections::HashSet;

use super::bpf_code::BpfCode;
use super::kallsyms::{BPF, Kallsyms};
use crate::format::aid::KernelSymbol;

/// The table, and which addresses wait for their symbols.
pub struct TableNames {
    table: Kallsyms,
    wanted: Vec<u64>,
    /// Starts of the symbols that have been given out.
    given: HashSet<u64>,
}

impl TableNames {
    /// With the table of when the recording began.
    pub fn new(table: Kallsyms) -> TableNames {
        TableNames {
            table,
            wanted: Vec::new(),
            given: HashSet::new(),
        }
    }

    /// Adds symbols that cover `sampled` addresses to `found`, of the kernel's own code.
    pub fn look_up(&mut self, sampled: &[u64], found: &mut Vec<KernelSymbol>) {
        self.wanted.extend_from_slice(sampled);
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let table = &self.table;
        let mut symbols = table.covering(&self.wanted).symbols;
        // Modules and BPF programs come and go, and others take their place: only a second look at the end tells which
        // were there all the time.
        let fixed = |address: &u64| table.covers(*address) && !table.is_module(*address);
        symbols.retain(|symbol| symbol.module.is_none());
        self.wanted.retain(|address| !fixed(address));
        symbols.retain(|symbol| self.given.insert(symbol.start));
        found.extend(symbols);
    }

    /// At the end of the recording: symbols of modules and BPF programs. `read` reads the table once more.
    pub fn finish(
        &mut self,
        bpf_code: &BpfCode,
        read: impl FnOnce() -> Option<Kallsyms>,
    ) -> Vec<KernelSymbol> {
        if self.wanted.is_empty() {
            return Vec::new();
        }
        let Some(later) = read() else {
            return Vec::new();
        };
        let lasts = |start, name: &str| later.bpf_name(start).as_deref() == Some(name);
        let mut symbols = lasting(&self.table, &later, &self.wanted);
        symbols.extend(bpf_code.covering(self.wanted.iter().copied(), lasts));
        symbols.retain(|symbol| self.given.insert(symbol.start));
        symbols
    }
}

/// Symbols of the table `now` that cover `wanted` addresses and are not of code that took the place of other code since the
/// table `then`. Code that came where nothing was is among them: what ran there is what is there.
fn lasting(then: &Kallsyms, now: &Kallsyms, wanted: &[u64]) -> Vec<KernelSymbol> {
    let same = |a: &KernelSymbol, b: &KernelSymbol| {
        (a.start, &a.name, &a.module) == (b.start, &b.name, &b.module)
    };
    // A symbol ends where the next one begins, and there was none where code has come since. So one that is still there
    // was never longer than it is now.
    let is_still_there = |symbol: &KernelSymbol| {
        let mut at_its_start = now.covering(&[symbol.start]).symbols.into_iter();
        at_its_start.any(|now| same(&now, symbol))
    };
    let mut symbols = now.covering(wanted).symbols;
    // Of BPF programs the tables do not tell where they end: see `BpfCode`.
    symbols.retain(|symbol| symbol.module.as_deref() != Some(BPF));
    symbols.retain(|symbol| {
        let within = |address: &u64| {
            [*address, address.wrapping_sub(1)]
                .iter()
                .any(|a| (symbol.start..symbol.end).contains(a))
        };
        let addresses: Vec<u64> = wanted.iter().copied().filter(|a| within(a)).collect();
        then.covering(&addresses)
            .symbols
            .iter()
            .filter(|before| before.start < symbol.end && symbol.start < before.end)
            .all(|before| same(before, symbol) || is_still_there(before))
    });
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of a kernel and what `others` has besides.
    fn table(others: &str) -> Kallsyms {
        let kernel = "ffffffff81000000 T _stext\nffffffff81000100 T _etext\n";
        let text = format!("{kernel}{others}");
        let table = Kallsyms::parse(text.as_bytes()).expect("readable");
        table.expect("addresses")
    }

    fn names(then: &str, now: &str, wanted: &[u64]) -> Vec<String> {
        let symbols = lasting(&table(then), &table(now), wanted);
        symbols.into_iter().map(|s| s.name).collect()
    }

    const BASE: u64 = 0xffff_ffff_c000_0000;

    #[test]
    fn code_that_lasted_is_named_whatever_came_behind_it() {
        let then = "ffffffffc0000100 t first\t[mod]\nffffffffc0000200 t second\t[mod]\n";
        let more = format!("{then}ffffffffc0000300 t third\t[mod2]\n");
        let wanted = [BASE + 0x110, BASE + 0x210, BASE + 0x310];
        assert_eq!(names(then, then, &wanted[..2]), ["first", "second"]);
        // It was loaded meanwhile, into room that nothing used.
        assert_eq!(names(then, &more, &wanted), ["first", "second", "third"]);
        // It was unloaded: nothing tells how far it reached.
        assert_eq!(names(&more, then, &wanted[..2]), ["first", "second"]);
        assert_eq!(names("", then, &wanted[..1]), ["first"], "loaded meanwhile");
    }

    #[test]
    fn code_that_took_the_place_of_other_code_is_not_named() {
        let then = "ffffffffc0000100 t old\t[mod]\nffffffffc0000400 t old_end\t[mod]\n";
        let wanted = [BASE + 0x210];
        for now in [
            "ffffffffc0000100 t new\t[mod]\nffffffffc0000400 t new_end\t[mod]\n",
            // Of another module, or at another place.
            "ffffffffc0000100 t old\t[other]\nffffffffc0000400 t old_end\t[other]\n",
            "ffffffffc0000200 t new\t[mod2]\nffffffffc0000400 t new_end\t[bpf]\n",
            "ffffffffc0000080 t new\t[mod]\nffffffffc0000400 t new_end\t[mod]\n",
        ] {
            assert_eq!(names(then, now, &wanted), [""; 0], "{now}");
        }
        assert_eq!(names(then, "", &wanted), [""; 0], "gone");
    }

    #[test]
    fn the_kernels_own_code_is_named_at_once_and_once() {
        let module = "ffffffffc0000100 t code\t[mod]\nffffffffc0000200 t end\t[mod]\n";
        let mut names = TableNames::new(table(&format!("ffffffff81000010 t one\n{module}")));
        let mut found = Vec::new();
        names.look_up(&[0xffff_ffff_8100_0011, BASE + 0x110], &mut found);
        names.look_up(&[0xffff_ffff_8100_0012], &mut found);
        let told: Vec<_> = found.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(told, ["one"]);
        let symbols = names.finish(&BpfCode::default(), || Some(table(module)));
        let told: Vec<_> = symbols.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(told, ["code"]);
        let none = |_: &str| -> Option<Kallsyms> { panic!("read for nothing") };
        let mut names = TableNames::new(table(module));
        assert_eq!(names.finish(&BpfCode::default(), || none("")), []);
    }
}
