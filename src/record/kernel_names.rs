//! The aid that names of kernel and vdso frames need, put into the capture while it grows.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::bpf_code::BpfCode;
use super::drain::Drain;
use super::kallsyms::{BPF, Kallsyms};
use super::maps;
use super::processes::Processes;
use crate::capture::writer::Written;
use crate::event::Pid;
use crate::format::aid::{KernelSymbol, Vdso};

/// Kernel symbols go into the capture after this time for the first time, then at ever longer intervals, so that a
/// recording that is killed has names too.
const FIRST_SYMBOLS: Duration = Duration::from_secs(2);
/// No longer than this between two times.
const RARELY: Duration = Duration::from_secs(16);

/// What is known of the kernel's symbols, and which addresses wait for theirs.
pub struct KernelNames {
    /// All symbols; `None` when they are hidden.
    pub table: Option<Kallsyms>,
    wanted: Vec<u64>,
    /// Starts of the symbols in the capture.
    written: HashSet<u64>,
    next: Instant,
    interval: Duration,
    vdso_wanted: bool,
    vdso_written: bool,
}

impl Default for KernelNames {
    fn default() -> KernelNames {
        KernelNames {
            table: None,
            wanted: Vec::new(),
            written: HashSet::new(),
            next: Instant::now() + FIRST_SYMBOLS,
            interval: FIRST_SYMBOLS,
            vdso_wanted: false,
            vdso_written: false,
        }
    }
}

impl KernelNames {
    /// Puts names of what has been sampled into the capture when it is time, or `at_end`.
    pub fn write(
        &mut self,
        written: &Written,
        drain: &mut Drain,
        processes: &Processes,
        bpf_code: &BpfCode,
        at_end: bool,
    ) -> Result<()> {
        self.wanted.extend_from_slice(&written.kernel);
        self.vdso_wanted |= processes.any_in_vdso(&written.user);
        if !at_end && Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + self.interval;
        self.interval = (self.interval * 2).min(RARELY);
        if self.vdso_wanted && !self.vdso_written {
            self.vdso_written = true;
            if let Some(image) = own_vdso() {
                drain.writer.vdso(&Vdso { image })?;
            }
        }
        let Some(table) = &self.table else {
            self.wanted.clear();
            return Ok(());
        };
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let mut found = table.covering(&self.wanted);
        // Modules and BPF programs come and go, and others take their place: only a second look at the end tells which
        // were there all the time.
        let fixed = |address: &u64| table.covers(*address) && !table.is_module(*address);
        found.symbols.retain(|symbol| symbol.module.is_none());
        self.wanted.retain(|address| !fixed(address));
        if at_end
            && !self.wanted.is_empty()
            && let Ok(Some(later)) = Kallsyms::read()
        {
            found.symbols.extend(lasting(table, &later, &self.wanted));
            let lasts = |start, name: &str| later.bpf_name(start).as_deref() == Some(name);
            found.symbols.extend(bpf_code.covering(&self.wanted, lasts));
            found.symbols.sort_by_key(|s| s.start);
        }
        found
            .symbols
            .retain(|symbol| self.written.insert(symbol.start));
        if !found.symbols.is_empty() {
            drain.writer.kernel_symbols(&found)?;
        }
        Ok(())
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

/// The vdso is the same in all 64-bit processes of a kernel, so our own will do.
fn own_vdso() -> Option<Vec<u8>> {
    let mapping = maps::read_executable(Pid(std::process::id())).ok()?;
    let vdso = mapping.into_iter().find(|m| m.path == b"[vdso]")?;
    let mut image = vec![0; (vdso.end - vdso.start) as usize];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut image, vdso.start)
        .ok()?;
    Some(image)
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
}
