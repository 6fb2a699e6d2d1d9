//! Kernel addresses by the symbols the recorder saved, never by those of this machine's kernel.

use crate::format::aid::{KernelSymbol, KernelSymbols};

/// The saved kernel symbols, sorted by address.
#[derive(Debug, Default)]
pub struct KernelTable {
    symbols: Vec<KernelSymbol>,
}

impl KernelTable {
    /// A table of what was saved. Symbols of hidden addresses (0) and empty ranges name nothing.
    pub fn new(saved: KernelSymbols) -> KernelTable {
        let mut symbols = saved.symbols;
        symbols.retain(|s| s.start != 0 && s.start < s.end);
        symbols.sort_by(|a, b| (a.start, a.end, &a.name).cmp(&(b.start, b.end, &b.name)));
        KernelTable { symbols }
    }

    /// The symbol that covers `address`.
    pub fn find(&self, address: u64) -> Option<&KernelSymbol> {
        let at = self
            .symbols
            .partition_point(|s| s.start <= address)
            .checked_sub(1)?;
        self.symbols.get(at).filter(|s| address < s.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_beyond_the_last_symbol_has_no_name() {
        let symbol = |start, end, name: &str| KernelSymbol {
            start,
            end,
            name: name.into(),
            module: None,
        };
        let table = KernelTable::new(KernelSymbols {
            stext: 0x100,
            symbols: vec![
                symbol(0x200, 0x210, "b"),
                symbol(0x100, 0x180, "a"),
                symbol(0, 9, "hidden"),
            ],
        });
        let name = |address| table.find(address).map(|s| s.name.as_str());
        assert_eq!(name(0x100), Some("a"));
        assert_eq!(name(0x17f), Some("a"));
        assert_eq!(name(0x180), None);
        assert_eq!(name(0x20f), Some("b"));
        assert_eq!(name(0x210), None);
        assert_eq!(name(5), None);
        assert_eq!(name(u64::MAX), None);
    }
}
