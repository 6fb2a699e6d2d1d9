//! The running kernel's symbols, read once into a compact table, so that captures can carry those that cover
//! recorded addresses.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use super::modules;
use crate::format::aid::{KernelSymbol, KernelSymbols};

/// Whether the kernel hides its addresses from us; a look at the beginning of the table is enough. A table that cannot be
/// read hides them too.
pub fn hidden() -> bool {
    let mut start = Vec::new();
    let read = File::open("/proc/kallsyms").and_then(|f| f.take(1 << 12).read_to_end(&mut start));
    let shown = |line: &[u8]| parse_line(line).is_some_and(|symbol| symbol.address != 0);
    read.is_err() || !start.split(|b| *b == b'\n').any(shown)
}

/// Every symbol of `/proc/kallsyms`: where it starts, and its name if it is code.
#[derive(Debug, Default)]
pub struct Kallsyms {
    /// Sorted by address.
    entries: Vec<Entry>,
    names: String,
    modules: Vec<String>,
    /// Where the text of each module ends at the latest.
    module_ends: HashMap<String, u64>,
    /// Runtime address of `_stext`, 0 when hidden.
    pub stext: u64,
    /// Where the kernel's idle routines are.
    pub idle_text: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u64,
    /// Of the name in `names`; data symbols have none, they only bound the code before them.
    name: u32,
    len: u16,
    /// Index into `modules`, plus one; 0 in the kernel proper.
    module: u16,
}

/// No kernel function is longer; a symbol whose successor is farther away does not reach it.
pub(super) const LONGEST: u64 = 1 << 20;
/// ... and none that is in no module (ftrace, kprobes) than a page.
const LONGEST_OUTSIDE: u64 = 1 << 12;
/// What the table gives as the module of BPF programs.
pub const BPF: &str = "bpf";

impl Kallsyms {
    /// Reads the table. `None` when addresses are hidden (`kptr_restrict`, no CAP_SYSLOG): all the same.
    pub fn read() -> io::Result<Option<Kallsyms>> {
        let text = BufReader::with_capacity(1 << 16, File::open("/proc/kallsyms")?);
        let mut table = Kallsyms::parse(text)?;
        if let Some(table) = &mut table {
            let loaded = modules::loaded();
            table.module_ends = loaded.into_iter().map(|m| (m.name, m.end)).collect();
        }
        Ok(table)
    }

    /// The name of the BPF code that starts at `start`.
    pub fn bpf_name(&self, start: u64) -> Option<String> {
        let symbol = self.symbol(start)?;
        (symbol.start == start && symbol.module.as_deref() == Some(BPF)).then_some(symbol.name)
    }

    pub(super) fn parse(mut text: impl BufRead) -> io::Result<Option<Kallsyms>> {
        let mut table = Kallsyms::default();
        let (mut idle_start, mut idle_end) = (0, 0);
        let mut line = Vec::new();
        while {
            line.clear();
            text.read_until(b'\n', &mut line)?
        } > 0
        {
            let Some(symbol) = parse_line(&line) else {
                continue;
            };
            match symbol.name {
                "_stext" => table.stext = symbol.address,
                "__cpuidle_text_start" => idle_start = symbol.address,
                "__cpuidle_text_end" => idle_end = symbol.address,
                _ => {}
            }
            // Per-CPU offsets and such are numbers, not places in the kernel.
            if symbol.address >= 1 << 63 {
                table.add(&symbol);
            }
        }
        table.entries.sort_by_key(|e| e.start);
        table.entries.shrink_to_fit();
        table.names.shrink_to_fit();
        let first = table.entries.first().map(|e| e.start);
        if first.is_none() || first == table.entries.last().map(|e| e.start) {
            return Ok(None);
        }
        table.idle_text = (idle_start < idle_end).then_some((idle_start, idle_end));
        Ok(Some(table))
    }

    /// As [`Kallsyms::read`], of any text.
    #[cfg(fuzzing)]
    pub fn fuzz_text(text: &[u8]) -> Option<Kallsyms> {
        Kallsyms::parse(text).ok().flatten()
    }

    fn add(&mut self, symbol: &Line<'_>) {
        let mut entry = Entry {
            start: symbol.address,
            name: 0,
            len: 0,
            module: 0,
        };
        if symbol.is_code() {
            entry.name = self.names.len() as u32;
            entry.len = symbol.name.len().min(usize::from(u16::MAX)) as u16;
            self.names.push_str(symbol.name);
        }
        if let Some(module) = symbol.module {
            // Symbols of a module stand together.
            if self.modules.last().is_none_or(|last| last != module) {
                self.modules.push(module.into());
            }
            entry.module = self.modules.len().min(usize::from(u16::MAX)) as u16;
        }
        self.entries.push(entry);
    }

    /// The symbols that cover `addresses`, or the byte before each: a return address can be the first of the next
    /// function. Sorted and each once.
    pub fn covering(&self, addresses: &[u64]) -> KernelSymbols {
        let both = addresses
            .iter()
            .flat_map(|address| [*address, address.wrapping_sub(1)]);
        let mut found: Vec<KernelSymbol> =
            both.filter_map(|address| self.symbol(address)).collect();
        found.sort_by_key(|s| s.start);
        found.dedup_by_key(|s| s.start);
        KernelSymbols {
            stext: self.stext,
            symbols: found,
        }
    }

    /// Whether a code symbol covers `address`.
    pub fn covers(&self, address: u64) -> bool {
        self.symbol(address).is_some() || self.symbol(address.wrapping_sub(1)).is_some()
    }

    /// Whether `address`, or the byte before it, belongs to a module or BPF program.
    pub fn is_module(&self, address: u64) -> bool {
        [address, address.wrapping_sub(1)]
            .into_iter()
            .filter_map(|address| self.symbol(address))
            .any(|symbol| symbol.module.is_some())
    }

    /// The code symbol that covers `address`.
    pub fn symbol(&self, address: u64) -> Option<KernelSymbol> {
        let after = self.entries.partition_point(|e| e.start <= address);
        let start = self.entries.get(after.checked_sub(1)?)?.start;
        let next = self.entries.get(after).map_or(u64::MAX, |e| e.start);
        // Of several names for one address the first code symbol of the table.
        let first = self.entries.partition_point(|e| e.start < start);
        let entry = self.entries.get(first..after)?.iter().find(|e| e.len > 0)?;
        let module = usize::from(entry.module)
            .checked_sub(1)
            .and_then(|m| self.modules.get(m));
        let outside = start.saturating_add(LONGEST_OUTSIDE);
        let limit = match module {
            None => start.saturating_add(LONGEST),
            Some(module) => self.module_ends.get(module).copied().unwrap_or(outside),
        };
        let end = next.min(limit);
        let name = self
            .names
            .get(entry.name as usize..entry.name as usize + usize::from(entry.len))?;
        (address < end).then(|| KernelSymbol {
            start,
            end,
            name: name.into(),
            module: module.cloned(),
        })
    }
}

struct Line<'a> {
    address: u64,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

impl Line<'_> {
    fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W') && !is_marker(self.name)
    }
}

/// A label of the linker script: it bounds what is before it and is nothing itself.
pub(super) fn is_marker(name: &str) -> bool {
    let section = |suffix: &str| name.starts_with("__") && name.ends_with(suffix);
    matches!(
        name,
        "_text" | "_stext" | "_etext" | "_sinittext" | "_einittext" | "_end"
    ) || section("_text_start")
        || section("_text_end")
}

/// `ffffffff81000000 T name\t[module]`.
fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let (address, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => (name, Some(module)),
        None => (rest, None),
    };
    let module = module.map(|m| m.trim().trim_start_matches('[').trim_end_matches(']'));
    Some(Line {
        address: u64::from_str_radix(address, 16).ok()?,
        kind: *kind.as_bytes().first()?,
        name,
        module,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T first
ffffffff81000100 t second
ffffffff81000200 T __cpuidle_text_start
ffffffff81000200 t idle
ffffffff81000280 T __cpuidle_text_end
ffffffff81000280 t last
ffffffff81000300 T _etext
ffffffff81800000 D data
ffffffffc0001000 t mod_fn\t[nf_tables]
ffffffffc0001100 t bpf_prog_1234_sample\t[bpf]
";

    fn name(table: &Kallsyms, address: u64) -> Option<String> {
        table.symbol(address).map(|s| match s.module {
            Some(module) => format!("{} [{module}]", s.name),
            None => s.name,
        })
    }

    #[test]
    fn an_address_gets_the_symbol_that_covers_it_and_no_other() {
        let table = Kallsyms::parse(TABLE.as_bytes())
            .expect("readable")
            .expect("addresses");
        assert_eq!(table.stext, 0xffff_ffff_8100_0000);
        assert_eq!(
            table.idle_text,
            Some((0xffff_ffff_8100_0200, 0xffff_ffff_8100_0280))
        );
        assert_eq!(
            name(&table, 0xffff_ffff_8100_0000).as_deref(),
            Some("first")
        );
        assert_eq!(
            name(&table, 0xffff_ffff_8100_01ff).as_deref(),
            Some("second")
        );
        assert_eq!(name(&table, 0xffff_ffff_8100_02ff).as_deref(), Some("last"));
        assert_eq!(name(&table, 0xffff_ffff_8100_0300), None, "after the text");
        assert_eq!(name(&table, 0xffff_ffff_8180_0010), None, "data");
        assert_eq!(
            name(&table, 0xffff_ffff_c000_1008).as_deref(),
            Some("mod_fn [nf_tables]")
        );
        assert_eq!(
            name(&table, 0xffff_ffff_c000_1108).as_deref(),
            Some("bpf_prog_1234_sample [bpf]")
        );
        assert_eq!(
            name(&table, 0xffff_ffff_d000_0000),
            None,
            "far above the last symbol"
        );
        assert_eq!(name(&table, 0xffff_ffff_8000_0000), None, "below the first");
        let covering = table.covering(&[0xffff_ffff_8100_0104, 0xffff_ffff_8100_0108]);
        assert_eq!(covering.symbols.len(), 1);
        assert_eq!(covering.symbols[0].end, 0xffff_ffff_8100_0200);
        // A call as the last instruction of `second` returns to the first byte of the next function.
        let names: Vec<_> = table.covering(&[0xffff_ffff_8100_0200]).symbols;
        let names: Vec<_> = names.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["second", "idle"]);
    }

    #[test]
    fn a_module_ends_where_it_ends() {
        let mut table = Kallsyms::parse(
            &b"ffffffff81000000 T _stext\nffffffffc0001000 t last\t[m]\nffffffffc0900000 t probe\t[__builtin__kprobes]\n"[..],
        )
        .expect("readable")
        .expect("addresses");
        table.module_ends = [("m".to_owned(), 0xffff_ffff_c000_2000)].into();
        assert_eq!(
            name(&table, 0xffff_ffff_c000_1fff).as_deref(),
            Some("last [m]")
        );
        assert_eq!(name(&table, 0xffff_ffff_c000_2000), None);
        let probe = "probe [__builtin__kprobes]";
        assert_eq!(name(&table, 0xffff_ffff_c090_0fff).as_deref(), Some(probe));
        assert_eq!(name(&table, 0xffff_ffff_c090_1000), None);
        assert_eq!(table.bpf_name(0xffff_ffff_c090_0000), None);
    }

    #[test]
    fn hidden_addresses_are_no_table() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 T first\n";
        assert!(
            Kallsyms::parse(hidden.as_bytes())
                .expect("readable")
                .is_none()
        );
        assert!(Kallsyms::parse(&b""[..]).expect("readable").is_none());
        let single = "ffffffff81000000 T a\nffffffff81000000 T b\n";
        assert!(
            Kallsyms::parse(single.as_bytes())
                .expect("readable")
                .is_none()
        );
    }
}
