//! What a recording has of its kernel, and the names of kernel addresses as far as this machine knows them.

use std::collections::BTreeSet;

use super::bytes::{Bytes, until_zero};
use super::machine::Machine;
use crate::format::aid::{KernelSymbol, KernelSymbols};

/// Modules and BPF programs kept at most.
const MOST: usize = 1 << 18;
/// In the flags of a record of kernel code: it is gone.
const GONE: u16 = 1;

/// Kernel code as a recording tells of it.
#[derive(Debug, Default)]
pub struct Kernel {
    /// The symbol perf found the kernel by, and its address.
    pub text: Option<(String, u64)>,
    modules: Vec<Module>,
    /// BPF programs and the like: perf has their names.
    told: Vec<KernelSymbol>,
    /// Addresses that want names.
    addresses: BTreeSet<u64>,
}

#[derive(Debug)]
struct Module {
    name: String,
    start: u64,
    end: u64,
}

impl Kernel {
    /// Kernel code is mapped: the kernel itself, or a module.
    pub fn map(&mut self, start: u64, len: u64, offset: u64, path: &[u8]) {
        let path = String::from_utf8_lossy(path);
        if let Some(symbol) = path.strip_prefix("[kernel.kallsyms]") {
            if !symbol.is_empty() && self.text.is_none() {
                self.text = Some((symbol.to_owned(), offset));
            }
            return;
        }
        let file = path.rsplit('/').next().unwrap_or_default();
        let name = file.trim_start_matches('[').trim_end_matches(']');
        let name = name.split(".ko").next().unwrap_or_default();
        if self.modules.len() < MOST && !name.is_empty() {
            self.modules.push(Module {
                name: name.replace('-', "_"),
                start,
                end: start.saturating_add(len),
            });
        }
    }

    /// A record of code the kernel has made at run time.
    pub fn code(&mut self, body: &[u8]) {
        let record = || {
            let mut body = Bytes(body);
            let (start, len) = (body.u64()?, body.u32()?);
            let (_, flags) = (body.u16()?, body.u16()?);
            let name = String::from_utf8_lossy(until_zero(body.0)).into_owned();
            Some((start, u64::from(len), flags, name))
        };
        let Some((start, len, flags, name)) = record() else {
            return;
        };
        if flags & GONE != 0 || len == 0 || name.is_empty() || self.told.len() >= MOST {
            return;
        }
        self.told.push(KernelSymbol {
            start,
            end: start.saturating_add(len),
            name,
            module: Some("bpf".to_owned()),
        });
    }

    /// These addresses are in the capture.
    pub fn wants(&mut self, addresses: &[u64]) {
        self.addresses.extend(addresses);
    }

    /// Where `_stext` was, as far as that is known.
    fn stext(&self) -> u64 {
        match &self.text {
            // On x86 both are the same.
            Some((symbol, address)) if symbol == "_stext" || symbol == "_text" => *address,
            _ => 0,
        }
    }

    /// The names of all addresses asked for, and why there are not more.
    pub fn symbols(&mut self, machine: &Machine, arch: &str) -> (KernelSymbols, Option<String>) {
        let addresses: Vec<u64> = std::mem::take(&mut self.addresses).into_iter().collect();
        let mut symbols: Vec<KernelSymbol> = Vec::new();
        let mut problem = None;
        match machine.same_kernel.clone().and_then(|()| table(&addresses)) {
            Ok(found) => {
                let loaded = loaded();
                let sure = |symbol: &KernelSymbol| self.is_as_recorded(symbol, &loaded);
                symbols.extend(found.into_iter().filter(sure));
            }
            Err(why) => problem = Some(why),
        }
        self.drop_unsure();
        let hit = |symbol: &&KernelSymbol| {
            let first = addresses.partition_point(|address| *address < symbol.start);
            // A return address can be the first behind it.
            let first = addresses.get(first);
            first.is_some_and(|address| *address <= symbol.end)
        };
        symbols.extend(self.told.iter().filter(hit).cloned());
        symbols.sort_by_key(|symbol| symbol.start);
        let problem = problem.filter(|_| !addresses.is_empty());
        let stext = match arch {
            "x86_64" => self.stext(),
            _ => 0,
        };
        (KernelSymbols { stext, symbols }, problem)
    }

    /// Where code came after other code was gone, neither name is sure.
    fn drop_unsure(&mut self) {
        let key = |s: &KernelSymbol| (s.start, s.end, s.name.clone());
        self.told.sort_by_cached_key(key);
        self.told.dedup();
        let mut reaches = 0;
        let mut unsure = vec![false; self.told.len()];
        for number in 0..self.told.len() {
            let Some(symbol) = self.told.get(number) else {
                break;
            };
            if symbol.start < reaches {
                let from = number.saturating_sub(1);
                unsure.iter_mut().skip(from).take(2).for_each(|u| *u = true);
            }
            reaches = reaches.max(symbol.end);
        }
        let mut unsure = unsure.into_iter();
        self.told.retain(|_| !unsure.next().unwrap_or(false));
    }

    /// Modules come and go: one that lies elsewhere now names nothing.
    fn is_as_recorded(&self, symbol: &KernelSymbol, loaded: &[(String, u64)]) -> bool {
        let Some(module) = &symbol.module else {
            return true;
        };
        let name = module.replace('-', "_");
        let mut modules = self.modules.iter();
        modules.any(|known| {
            let here = |(loaded, start): &(String, u64)| *loaded == name && *start == known.start;
            known.name == name
                && known.start <= symbol.start
                && symbol.end <= known.end
                && loaded.iter().any(here)
        })
    }
}

/// The symbols of the running kernel that cover `addresses`.
#[cfg(feature = "record")]
fn table(addresses: &[u64]) -> Result<Vec<KernelSymbol>, String> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    match crate::record::kallsyms::Kallsyms::read() {
        Ok(Some(table)) => Ok(table.covering(addresses).symbols),
        Ok(None) => Err("this kernel hides its addresses from this user".into()),
        Err(err) => Err(format!("/proc/kallsyms cannot be read: {err}")),
    }
}

/// Reading them is part of the recording half.
#[cfg(not(feature = "record"))]
fn table(_: &[u64]) -> Result<Vec<KernelSymbol>, String> {
    Err("this program was built without its recording half".into())
}

/// Modules that are loaded, and where.
#[cfg(feature = "record")]
fn loaded() -> Vec<(String, u64)> {
    let loaded = crate::record::modules::loaded().into_iter();
    loaded
        .map(|module| (module.name.replace('-', "_"), module.start))
        .collect()
}

#[cfg(not(feature = "record"))]
fn loaded() -> Vec<(String, u64)> {
    Vec::new()
}
