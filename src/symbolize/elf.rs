//! Names out of an ELF file that is believed, by blazesym: one batch per file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Builder, CodeInfo, Input, Sym, Symbolized, Symbolizer};
use object::read::ReadCache;

use super::companions::irregular;
use super::functions::{FunctionTable, demangle};
use crate::elf_file::open_regular;

/// What an offset of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Demangled name.
    pub name: String,
    /// Bytes from the start of the symbol to the offset, when that is known.
    pub offset: Option<u64>,
    /// Where in the source, in the function itself.
    pub source: Option<SourcePlace>,
    /// Functions inlined there, outermost first.
    pub inlined: Vec<(String, Option<SourcePlace>)>,
}

/// Path and line of a place in source text.
pub type SourcePlace = (String, u32);

/// Reads symbols of ELF files.
pub struct ElfReader {
    symbolizer: Symbolizer,
    debug_dirs: Option<Vec<PathBuf>>,
}

impl ElfReader {
    /// A reader that looks for separate debug files in the system's directories, or only below `root`.
    pub fn new(root: Option<&Path>) -> ElfReader {
        let debug_dirs = root.map(|root| vec![root.join("usr/lib/debug"), root.join("lib/debug")]);
        ElfReader {
            symbolizer: build(debug_dirs.as_deref()),
            debug_dirs,
        }
    }

    /// The symbols at `offsets` of the file at `path`, in their order; `None` where there is no name.
    ///
    /// A file whose debug information cannot be read is read without it; `warn` is then told why.
    /// Fails with a message when the file gives no names at all.
    pub fn symbols(
        &mut self,
        path: &Path,
        offsets: &[u64],
        warn: &mut dyn FnMut(String),
    ) -> Result<Vec<Option<Symbol>>, String> {
        let with_debug = match irregular(path, self.debug_dirs.as_deref()) {
            Some(odd) => Err(format!("{} is not a regular file", odd.display())),
            None => self.batch(path, offsets, true),
        };
        let mut symbols = match with_debug {
            Ok(symbols) => symbols,
            Err(err) => {
                let plain = self.batch(path, offsets, false)?;
                warn(format!(
                    "{}: debug information not used ({err}); names are from the symbol table",
                    path.display()
                ));
                plain
            }
        };
        self.fill_nameless(path, offsets, &mut symbols);
        Ok(symbols)
    }

    /// As [`ElfReader::symbols`], with names and lines of a separate debug file where that has some.
    pub fn symbols_with(
        &mut self,
        path: &Path,
        debug: Option<&Path>,
        offsets: &[u64],
        warn: &mut dyn FnMut(String),
    ) -> Result<Vec<Option<Symbol>>, String> {
        let own = self.symbols(path, offsets, warn);
        let table = debug.and_then(|_| {
            let file = open_regular(path).ok()?;
            FunctionTable::parse(&ReadCache::new(file))
        });
        let (Some(debug), Some(table)) = (debug, table) else {
            return own;
        };
        // The debug file's program headers say nothing about offsets in the mapped file.
        let addresses: Vec<Option<u64>> = offsets.iter().map(|o| table.address_of(*o)).collect();
        let asked: Vec<u64> = addresses.iter().copied().flatten().collect();
        let found = match self.call(debug, Input::VirtOffset(&asked), true) {
            Ok(found) => found,
            Err(err) => {
                warn(format!("{}: not used: {err}", debug.display()));
                return own;
            }
        };
        let mut found = found.into_iter();
        let own = own.unwrap_or_else(|_| vec![None; offsets.len()]);
        let both = own.into_iter().zip(addresses);
        Ok(both
            .map(|(own, address)| address.and_then(|_| found.next().flatten()).or(own))
            .collect())
    }

    /// Functions that DWARF leaves without a name have one in the symbol table.
    fn fill_nameless(&mut self, path: &Path, offsets: &[u64], symbols: &mut [Option<Symbol>]) {
        let nameless = |s: &Option<Symbol>| s.as_ref().is_some_and(|s| is_nameless(&s.name));
        let wanted: Vec<usize> = (0..symbols.len())
            .filter(|i| symbols.get(*i).is_some_and(nameless))
            .collect();
        if wanted.is_empty() {
            return;
        }
        let asked: Vec<u64> = wanted
            .iter()
            .filter_map(|i| offsets.get(*i).copied())
            .collect();
        let mut plain = self
            .batch(path, &asked, false)
            .unwrap_or_default()
            .into_iter();
        for i in wanted {
            let name = plain
                .next()
                .flatten()
                .map(|s| s.name)
                .filter(|n| !is_nameless(n));
            if let Some(slot) = symbols.get_mut(i) {
                match (slot.as_mut(), name) {
                    (Some(symbol), Some(name)) => symbol.name = name,
                    _ => *slot = None,
                }
            }
        }
    }

    /// One call of blazesym. It panics on some broken files; that costs the file, not the report.
    fn batch(
        &mut self,
        path: &Path,
        offsets: &[u64],
        debug_syms: bool,
    ) -> Result<Vec<Option<Symbol>>, String> {
        self.call(path, Input::FileOffset(offsets), debug_syms)
    }

    fn call(
        &mut self,
        path: &Path,
        input: Input<&[u64]>,
        debug_syms: bool,
    ) -> Result<Vec<Option<Symbol>>, String> {
        let mut elf = Elf::new(path);
        elf.debug_syms = debug_syms;
        let source = Source::Elf(elf);
        let symbolizer = &self.symbolizer;
        let result = catch_unwind(AssertUnwindSafe(|| {
            let found = symbolizer
                .symbolize(&source, input)
                .map_err(|err| format!("{err:#}"))?;
            let mut judge = Judge { path, table: None };
            Ok(found.iter().map(|s| judge.accept(s)).collect())
        }));
        result.unwrap_or_else(|_| {
            self.symbolizer = build(self.debug_dirs.as_deref());
            Err("the file is broken".to_owned())
        })
    }
}

fn build(debug_dirs: Option<&[PathBuf]>) -> Symbolizer {
    // Inlined functions need `code_info`; line tables are read only for units that are hit.
    let builder = Builder::default()
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        .enable_demangling(true);
    match debug_dirs {
        Some(dirs) => builder.set_debug_dirs(Some(dirs)).build(),
        None => builder.build(),
    }
}

fn is_nameless(name: &str) -> bool {
    name.is_empty() || name == "??"
}

/// Decides whether a symbol may name an address.
struct Judge<'a> {
    path: &'a Path,
    /// Read when first needed; the inner `None` means it could not be.
    table: Option<Option<FunctionTable>>,
}

impl Judge<'_> {
    fn accept(&mut self, found: &Symbolized<'_>) -> Option<Symbol> {
        let sym = found.as_sym()?;
        match sym.size {
            Some(size) if size > 0 => {
                let inside = sym.offset < size;
                let mut symbol = inside.then(|| convert(sym))?;
                self.qualify(sym, &mut symbol.name);
                Some(symbol)
            }
            _ => {
                let address = sym.addr.checked_add(sym.offset as u64)?;
                let mut symbol = convert(sym);
                let table = self.table()?;
                let function = table.find(address);
                symbol.offset = function.map(|f| address - f.start);
                // DWARF functions of several ranges come without address and size. The name is right.
                if sym.addr == 0 && !table.has_at_zero(&sym.name) {
                    return Some(symbol);
                }
                // A symbol without a size may be a label, a version marker or data: only what the
                // symbol table has as a function there counts.
                symbol.name = demangle(&function?.name);
                Some(symbol)
            }
        }
    }

    /// DWARF has some names of C++ and Rust without what they are in; then that of the symbol table says more.
    fn qualify(&mut self, sym: &Sym<'_>, name: &mut String) {
        let plain = !name.contains("::") && !name.contains('(');
        let address = sym.addr.checked_add(sym.offset as u64);
        let function = address
            .filter(|_| plain && sym.code_info.is_some())
            .and_then(|address| self.table()?.find(address));
        if let Some(function) = function {
            let full = demangle(&function.name);
            if full.contains("::") && full.contains(name.as_str()) {
                *name = full;
            }
        }
    }

    fn table(&mut self) -> Option<&FunctionTable> {
        let path = self.path;
        self.table
            .get_or_insert_with(|| {
                let file = open_regular(path).ok()?;
                FunctionTable::parse(&ReadCache::new(file))
            })
            .as_ref()
    }
}

fn convert(sym: &Sym<'_>) -> Symbol {
    let inlined = sym.inlined.iter().map(|f| {
        // An inlined function without a name is shown as the function it is in.
        let name = if is_nameless(&f.name) {
            &sym.name
        } else {
            &f.name
        };
        (name.to_string(), f.code_info.as_ref().map(source))
    });
    Symbol {
        name: sym.name.to_string(),
        offset: Some(sym.offset as u64),
        source: sym.code_info.as_deref().map(source),
        inlined: inlined.collect(),
    }
}

fn source(info: &CodeInfo<'_>) -> SourcePlace {
    (
        info.to_path().to_string_lossy().into_owned(),
        info.line.unwrap_or(0),
    )
}
