//! Names of kernel addresses the kernel is asked for one by one, soon after they were sampled.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::bpf_code::BpfCode;
use super::kallsyms::BPF;
use super::modules::Module;
use super::places::Places;
use super::symbol_program::SymbolProgram;
use crate::format::aid::KernelSymbol;

/// Who can be asked what is where in the kernel now.
pub trait Kernel {
    /// The code symbol that covers each of `addresses`, told in their order.
    fn name(
        &mut self,
        addresses: &[u64],
        told: impl FnMut(u64, Option<KernelSymbol>),
    ) -> Result<()>;

    /// The modules that are loaded.
    fn modules(&mut self) -> Vec<Module>;
}

impl Kernel for SymbolProgram {
    fn name(
        &mut self,
        addresses: &[u64],
        told: impl FnMut(u64, Option<KernelSymbol>),
    ) -> Result<()> {
        SymbolProgram::name(self, addresses, told)
    }

    fn modules(&mut self) -> Vec<Module> {
        super::modules::loaded()
    }
}

/// Symbols that have been told, and what has none yet.
pub struct AskedNames<K> {
    kernel: K,
    /// Symbols of the kernel's own code, which stays where it is: start and end of those that have been given out.
    fixed: BTreeMap<u64, u64>,
    /// Symbols of modules.
    modules: Places,
    /// Modules there were at the last look.
    loaded: Vec<Module>,
    /// Sampled addresses of BPF programs and of what has no symbol.
    others: BTreeSet<u64>,
    /// Wait to be asked for.
    waiting: BTreeSet<u64>,
}

impl<K: Kernel> AskedNames<K> {
    /// To be made before the first sample is looked at.
    pub fn new(mut kernel: K) -> AskedNames<K> {
        let loaded = kernel.modules();
        AskedNames {
            kernel,
            fixed: BTreeMap::new(),
            modules: Places::default(),
            loaded,
            others: BTreeSet::new(),
            waiting: BTreeSet::new(),
        }
    }

    /// Asks for the symbols that cover the `sampled` addresses, or the byte before each: a return address can be the first of
    /// the next function. Adds new ones that will stay true to `found`; those of modules and BPF programs are remembered.
    pub fn ask(
        &mut self,
        sampled: &[u64],
        bpf_code: &mut BpfCode,
        found: &mut Vec<KernelSymbol>,
    ) -> Result<()> {
        self.waiting.extend(sampled);
        let mut in_modules = Vec::new();
        // Most of the bytes before are covered by what the addresses themselves have told.
        for before in [0, 1] {
            let addresses: Vec<u64> = self
                .waiting
                .iter()
                .map(|address| address.wrapping_sub(before))
                .filter(|address| !self.is_fixed(*address) && !self.modules.knows(*address))
                .collect();
            let (fixed, others) = (&mut self.fixed, &mut self.others);
            self.kernel
                .name(&addresses, |address, symbol| match symbol {
                    Some(symbol) if symbol.module.is_none() => {
                        let is_new = fixed.insert(symbol.start, symbol.end).is_none();
                        found.extend(is_new.then_some(symbol));
                    }
                    Some(symbol) if symbol.module.as_deref() == Some(BPF) => {
                        // What the kernel told when it came is as good.
                        if !bpf_code.knows(address) {
                            bpf_code.add(symbol.start, symbol.end - symbol.start, &symbol.name);
                        }
                        others.insert(address.wrapping_add(before));
                    }
                    Some(symbol) => in_modules.push((address, symbol)),
                    None if before == 0 => {
                        others.insert(address);
                    }
                    None => {}
                })?;
        }
        self.waiting.clear();
        if !in_modules.is_empty() || !self.modules.is_empty() {
            self.follow_modules(in_modules)?;
        }
        Ok(())
    }

    /// Takes symbols of modules that cover sampled addresses, unless other code may have been there meanwhile.
    fn follow_modules(&mut self, symbols: Vec<(u64, KernelSymbol)>) -> Result<()> {
        let now = self.kernel.modules();
        let before = std::mem::replace(&mut self.loaded, now);
        let is_gone =
            |module: &&Module, address| !self.loaded.contains(module) && module.holds(address);
        for (address, symbol) in symbols {
            let doubtful = before.iter().any(|module| is_gone(&module, address));
            match doubtful {
                true => self.modules.doubt(symbol.start, symbol.end),
                false => self.modules.add(&symbol),
            };
        }
        if before != self.loaded {
            // What is elsewhere or called otherwise now has taken the place of what was there.
            let known: Vec<u64> = self.modules.all().map(|symbol| symbol.start).collect();
            let modules = &mut self.modules;
            self.kernel.name(&known, |_, symbol| {
                if let Some(symbol) = symbol {
                    modules.add(&symbol);
                }
            })?;
        }
        Ok(())
    }

    /// At the end of the recording: symbols of modules and BPF programs that were alone in their places.
    pub fn finish(&mut self, bpf_code: &BpfCode) -> Vec<KernelSymbol> {
        let kernel = &mut self.kernel;
        let lasts = |start, name: &str| {
            let mut same = false;
            let asked = kernel.name(&[start], |_, symbol| {
                same = symbol.is_some_and(|s| s.start == start && s.name == name);
            });
            asked.is_ok() && same
        };
        let mut found = bpf_code.covering(self.others.iter().copied(), lasts);
        found.extend(self.modules.all());
        found
    }

    /// Sampled addresses that are not known to be of anything, and neither are the bytes before them.
    pub fn unknown(&self, bpf_code: &BpfCode) -> Vec<u64> {
        let known = |address| {
            self.is_fixed(address) || self.modules.knows(address) || bpf_code.knows(address)
        };
        let all = self.others.iter().copied();
        all.filter(|address| !known(*address) && !known(address.wrapping_sub(1)))
            .collect()
    }

    fn is_fixed(&self, address: u64) -> bool {
        let symbol = self.fixed.range(..=address).next_back();
        symbol.is_some_and(|(_, end)| address < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symbols and modules there are at the moment.
    #[derive(Default)]
    struct Fake {
        symbols: Vec<KernelSymbol>,
        modules: Vec<Module>,
        asked: Vec<u64>,
    }

    impl Kernel for Fake {
        fn name(
            &mut self,
            addresses: &[u64],
            mut told: impl FnMut(u64, Option<KernelSymbol>),
        ) -> Result<()> {
            self.asked.extend(addresses);
            for address in addresses {
                let covers = |s: &&KernelSymbol| (s.start..s.end).contains(address);
                told(*address, self.symbols.iter().find(covers).cloned());
            }
            Ok(())
        }

        fn modules(&mut self) -> Vec<Module> {
            self.modules.clone()
        }
    }

    fn symbol(start: u64, end: u64, name: &str, module: &str) -> KernelSymbol {
        KernelSymbol {
            start,
            end,
            name: name.into(),
            module: (!module.is_empty()).then(|| module.into()),
        }
    }

    fn module(name: &str, start: u64) -> Module {
        Module {
            name: name.into(),
            start,
            end: start + 0x1000,
        }
    }

    fn asked(symbols: &[KernelSymbol], modules: &[Module]) -> (AskedNames<Fake>, BpfCode) {
        let kernel = Fake {
            symbols: symbols.into(),
            modules: modules.into(),
            asked: Vec::new(),
        };
        (AskedNames::new(kernel), BpfCode::default())
    }

    impl AskedNames<Fake> {
        fn told(&mut self, sampled: &[u64], bpf_code: &mut BpfCode) -> Vec<KernelSymbol> {
            let mut found = Vec::new();
            self.ask(sampled, bpf_code, &mut found).unwrap();
            found
        }
    }

    fn names(symbols: Vec<KernelSymbol>) -> Vec<String> {
        symbols.into_iter().map(|s| s.name).collect()
    }

    #[test]
    fn the_kernel_is_asked_once() {
        let (one, two) = (
            symbol(0x100, 0x200, "one", ""),
            symbol(0x200, 0x300, "two", ""),
        );
        let (mut names_of, mut bpf) = asked(&[one.clone(), two.clone()], &[]);
        // A call as the last instruction of `one` returns to the first byte of `two`.
        let found = names_of.told(&[0x200, 0x210, 0x400], &mut bpf);
        assert_eq!(found, [two, one]);
        names_of.kernel.asked.clear();
        let found = names_of.told(&[0x110, 0x2ff], &mut bpf);
        assert_eq!(found, []);
        assert_eq!(names_of.kernel.asked, [0; 0]);
        assert_eq!(names_of.unknown(&bpf), [0x400]);
        assert_eq!(names_of.finish(&bpf), []);
    }

    #[test]
    fn what_was_unloaded_keeps_its_names() {
        let code = symbol(0x8100, 0x8200, "f", "m");
        let (mut names_of, mut bpf) = asked(std::slice::from_ref(&code), &[module("m", 0x8000)]);
        assert_eq!(names_of.told(&[0x8110], &mut bpf), []);
        names_of.kernel.symbols.clear();
        names_of.kernel.modules.clear();
        assert_eq!(names_of.told(&[0x8120], &mut bpf), []);
        assert_eq!(names_of.finish(&bpf), [code]);
    }

    #[test]
    fn code_in_the_place_of_other_code_has_no_name() {
        let old = symbol(0x8100, 0x8200, "old", "m");
        for new in [
            symbol(0x8100, 0x8200, "new", "n"),
            symbol(0x8000, 0x9000, "new", "n"),
            symbol(0x8100, 0x8200, "old", "n"),
            symbol(0x8080, 0x8180, "bpf_prog_1", BPF),
        ] {
            let (mut names_of, mut bpf) = asked(std::slice::from_ref(&old), &[module("m", 0x8000)]);
            names_of.told(&[0x8110], &mut bpf);
            names_of.kernel.symbols = vec![new.clone()];
            names_of.kernel.modules = vec![module("n", 0x8000)];
            names_of.told(&[], &mut bpf);
            assert_eq!(names(names_of.finish(&bpf)), [""; 0], "{new:?}");
        }
    }

    #[test]
    fn a_module_that_came_since_the_last_look_counts_only_in_free_room() {
        let new = symbol(0x8100, 0x8200, "new", "n");
        for (before, expected) in [
            (vec![], vec!["new"]),
            (vec![module("m", 0x8000)], vec![]),
            (vec![module("m", 0x9000)], vec!["new"]),
        ] {
            let (mut names_of, mut bpf) = asked(std::slice::from_ref(&new), &before);
            names_of.kernel.modules = vec![module("n", 0x8000)];
            names_of.told(&[0x8110], &mut bpf);
            assert_eq!(names(names_of.finish(&bpf)), expected, "{before:?}");
        }
    }

    #[test]
    fn bpf_programs_end_where_they_end() {
        let program = symbol(0x9100, 0x9140, "bpf_prog_1_a", BPF);
        let (mut names_of, mut bpf) = asked(std::slice::from_ref(&program), &[]);
        // Gone before it could be asked for; the kernel told of it.
        bpf.add(0x9200, 0x40, "bpf_prog_2_b");
        let addresses = [0x9110, 0x9140, 0x9210, 0x9300];
        assert_eq!(names_of.told(&addresses, &mut bpf), []);
        let found = names(names_of.finish(&bpf));
        assert_eq!(found, ["bpf_prog_1_a", "bpf_prog_2_b"]);
        assert_eq!(names_of.unknown(&bpf), [0x9300]);
        bpf.records_lost();
        assert_eq!(names(names_of.finish(&bpf)), ["bpf_prog_1_a"]);
        // Another one in its place.
        bpf.add(0x9120, 0x40, "bpf_prog_3_c");
        assert_eq!(names(names_of.finish(&bpf)), [""; 0]);
    }
}
