//! Names out of what was packed into the capture, before any file of this machine is looked at; and the way back, the
//! names that are to be packed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use hashbrown::HashMap;

use super::debug_files::DebugFile;
use super::elf::{Module, Symbol};
use super::files::{Believed, Opened};
use super::functions::{FunctionTable, KnownFunction, address_of, demangle, loads};
use super::resolve::Batch;
use super::sections::Sections;
use super::{Code, FileNumber, Symbolizer};
use crate::capture::pack::PackedFile;
use crate::elf_file::read_build_id;
use crate::event::{BuildId, MappedFile};
use crate::format::aid::Load;
use crate::format::packed::FileKey;
use crate::format::packed::file::Role;
use crate::format::packed::symbols::{AtOffset, PackedSymbol};
use crate::profile::{Names, Reason, SourceLine, SymbolFrame};

/// Offsets, ascending, with what is there.
pub type SymbolsByOffset = Vec<(u64, AtOffset)>;

/// A file samples have frames in.
#[derive(Debug)]
pub struct HitFile {
    /// Its number in the symbolizer.
    pub number: FileNumber,
    /// As recorded.
    pub file: MappedFile,
    /// Frames of samples without a name.
    pub unnamed: u64,
    /// Why this machine's file was not used; `None` when it was.
    pub problem: Option<Reason>,
    /// The offsets hit, ascending. Empty when the file was not used.
    pub symbols: SymbolsByOffset,
    /// The offsets hit when the file was not used, in no order.
    pub unresolved: Vec<u64>,
}

/// Symbols, and by offset how many bytes after the beginning of its function it is.
type Further = (Vec<Option<Symbol>>, HashMap<u64, u64>);

/// Packed files that were needed, for as long as they are used.
#[derive(Default)]
pub(super) struct Unpacked {
    modules: HashMap<FileNumber, Option<Module>>,
    tables: HashMap<FileNumber, Option<(Vec<Load>, FunctionTable)>>,
    bytes: u64,
}

impl Symbolizer {
    /// All symbols of one file: those packed, then those of files, then those of a packed symbol table.
    pub(super) fn batch(
        &mut self,
        file: FileNumber,
        mut offsets: Vec<u64>,
        names: &mut Names,
    ) -> Batch {
        offsets.sort_unstable();
        offsets.dedup();
        let entry = self.files.get(file as usize);
        let Some(mapped) = entry.map(|e| e.file.clone()) else {
            return Batch::default();
        };
        let refused = self.options.require_build_id && mapped.build_id.is_none();
        if self.pack.is_empty() || refused {
            return self.batch_of_files(file, offsets, names);
        }
        let packed = self.pack.symbols(&mapped, &offsets);
        let named = |packed: &Option<AtOffset>| matches!(packed, Some(AtOffset::Symbol(_)));
        let pairs = || offsets.iter().zip(&packed);
        let rest: Vec<u64> = pairs().filter(|p| !named(p.1)).map(|p| *p.0).collect();
        let unknown = pairs().filter(|p| p.1.is_none()).map(|p| *p.0);
        let further = self.beyond_hits(file, &mapped, &rest, names);
        let reasons = match &further {
            Err(reason) => unknown.map(|offset| (offset, *reason)).collect(),
            Ok(_) => HashMap::new(),
        };
        let (further, mut inside) = further.unwrap_or_default();
        for (offset, packed) in pairs() {
            if let Some(AtOffset::Nameless { inside: Some(told) }) = packed {
                inside.entry(*offset).or_insert(*told);
            }
        }
        let mut further = further.into_iter();
        let symbols = packed
            .into_iter()
            .map(|packed| match packed {
                Some(AtOffset::Symbol(symbol)) => Some(unpack(&symbol, names)),
                _ => further.next().flatten(),
            })
            .collect();
        Batch {
            offsets,
            symbols: Ok((mapped.build_id.is_some(), symbols)),
            reasons,
            inside,
        }
    }

    /// Symbols at offsets that the pack does not name one by one, and how far in functions those are that have none.
    fn beyond_hits(
        &mut self,
        file: FileNumber,
        mapped: &MappedFile,
        offsets: &[u64],
        names: &mut Names,
    ) -> Result<Further, Reason> {
        if offsets.is_empty() {
            return Ok(Further::default());
        }
        let by_pack = self.unpacked_symbols(file, mapped, offsets, names);
        let by_files = match by_pack {
            Some(symbols) => Ok(symbols),
            None => {
                let batch = self.batch_of_files(file, offsets.to_vec(), names);
                let inside = batch.inside;
                batch.symbols.map(|(_, symbols)| (symbols, inside))
            }
        };
        let (pack, tables) = (&self.pack, &mut self.unpacked.tables);
        let finder = &self.finder;
        let table = tables.entry(file).or_insert_with(|| {
            let (loads, functions) = pack.table(mapped)?;
            let recorded = finder.recorded_loads(mapped).map(<[Load]>::to_vec);
            let loads = recorded.unwrap_or(loads);
            let known = functions.iter().map(|f| KnownFunction {
                start: f.start,
                size: f.len,
                name: &f.name,
                sized: f.sized,
            });
            Some((loads, FunctionTable::known(known)))
        });
        let (symbols, inside) = match (by_files, &table) {
            (Ok(found), _) => found,
            (Err(reason), None) => return Err(reason),
            (Err(_), Some(_)) => (vec![None; offsets.len()], HashMap::new()),
        };
        let mut by_table = |offset: &u64| {
            let (loads, table) = table.as_ref()?;
            let address = address_of(loads, *offset)?;
            let function = table.function(table.find(address)?)?;
            Some(Symbol {
                name: names.intern(&demangle(table.name(function))),
                offset: address.checked_sub(function.start),
                source: None,
                inlined: Vec::new(),
            })
        };
        let both = symbols.into_iter().zip(offsets);
        let symbols = both.map(|(symbol, offset)| symbol.or_else(|| by_table(offset)));
        Ok((symbols.collect(), inside))
    }

    /// What the packed file says, if there is one that is whole and what it is said to be.
    fn unpacked_symbols(
        &mut self,
        file: FileNumber,
        mapped: &MappedFile,
        offsets: &[u64],
        names: &mut Names,
    ) -> Option<Further> {
        if !self.unpacked.modules.contains_key(&file) {
            let module = self.unpack_module(mapped);
            self.unpacked.modules.insert(file, module);
        }
        let module = self.unpacked.modules.get_mut(&file)?.as_mut()?;
        let warnings = &mut self.warnings;
        let mut warn = |message| warnings.push(message);
        let symbols = module.symbols(offsets, names, &mut warn);
        let inside = module.inside(offsets, &symbols);
        Some((symbols, inside))
    }

    fn unpack_module(&mut self, mapped: &MappedFile) -> Option<Module> {
        let packed = self.pack.files(mapped);
        let mut open = |role, what: &str| {
            // What an interrupted pack has left may lie beside what a later one has finished.
            let of_role = || packed.iter().filter(|p| p.role == role);
            let packed = of_role().find(|p| p.here == p.size);
            let opened = self.unpack(packed.or_else(|| of_role().next())?, mapped);
            opened
                .map_err(|message| {
                    let shown = String::from_utf8_lossy(&mapped.path);
                    self.warnings
                        .push(format!("{shown}: the packed {what} is not used: {message}"));
                })
                .ok()
        };
        let sections = open(Role::Executable, "file")?;
        let debug = open(Role::Debug, "debug file");
        let path = PathBuf::from(OsStr::from_bytes(&mapped.path));
        let recorded = self.finder.recorded_loads(mapped).map(<[Load]>::to_vec);
        let believed = Believed {
            loads: recorded.unwrap_or_else(|| loads(sections.bytes())),
            debug: debug.map(|sections| DebugFile {
                path: path.clone(),
                sections,
            }),
            binary: Some(Opened { path, sections }),
            verified: mapped.build_id.is_some(),
        };
        let warnings = &mut self.warnings;
        let mut warn = |message| warnings.push(message);
        let lines = self.options.lines;
        Some(Module::open(
            believed,
            lines,
            self.finder.search(),
            &mut warn,
        ))
    }

    /// A packed file as one without a name, compared with what was mapped.
    fn unpack(&mut self, packed: &PackedFile, mapped: &MappedFile) -> Result<Rc<Sections>, String> {
        self.unpacked.bytes = self.unpacked.bytes.saturating_add(packed.size);
        if self.unpacked.bytes > self.pack.most_unpacked() {
            return Err("the packed files are larger than such a capture can hold".to_owned());
        }
        let mut file = tempfile::tempfile().map_err(|err| format!("no temporary file: {err}"))?;
        self.pack
            .unpack(packed, &mut file)
            .map_err(|err| err.to_string())?;
        match (&mapped.build_id, &mapped.version) {
            (Some(wanted), _) => check_build_id(&file, wanted)?,
            (None, Some(version))
                if packed.role == Role::Executable && version.size != packed.size =>
            {
                return Err(format!(
                    "it has {} bytes, recorded were {}",
                    packed.size, version.size
                ));
            }
            _ => {}
        }
        Ok(Rc::new(Sections::open(&file, false)?))
    }

    /// What is packed for a kernel address: its name, lines, and what was inlined there.
    pub(super) fn packed_kernel(&self, address: u64, names: &mut Names) -> Option<Symbol> {
        if self.pack.is_empty() {
            return None;
        }
        let key = FileKey::of_kernel(self.kernel_identity.build_id.as_ref()?);
        match self.pack.symbols_of(&key, &[address]).pop() {
            Some(Some(AtOffset::Symbol(symbol))) => Some(unpack(&symbol, names)),
            _ => None,
        }
    }

    /// Kernel addresses of which more is known here than the capture has: lines, and what was inlined. With the key to
    /// pack them under.
    pub fn kernel_hits(&self, names: &Names) -> Option<(FileKey, SymbolsByOffset)> {
        let key = FileKey::of_kernel(self.kernel_identity.build_id.as_ref()?);
        let mut symbols: BTreeMap<u64, AtOffset> = BTreeMap::new();
        for (place, resolution) in self.places.places().iter().zip(&self.resolutions) {
            let Code::Kernel(address) = place.code else {
                continue;
            };
            let chain = &resolution.chain;
            let more = chain.len() > 1
                || chain.iter().any(|part| part.source.is_some())
                || self.kernel.find(address).is_none();
            if more && resolution.unnamed.is_none() {
                let back = u64::from(place.is_return);
                let inside = resolution.offset.and_then(|o| o.checked_sub(back));
                symbols.extend(pack(chain, inside, names).map(|symbol| (address, symbol)));
            }
        }
        (!symbols.is_empty()).then(|| (key, symbols.into_iter().collect()))
    }

    /// Files with places, and their symbols as far as they are resolved, in the order of their paths.
    pub fn hits(&self, names: &Names) -> Vec<HitFile> {
        let mut by_file: BTreeMap<FileNumber, BTreeMap<u64, AtOffset>> = BTreeMap::new();
        let mut problems: BTreeMap<FileNumber, (Reason, Vec<u64>)> = BTreeMap::new();
        for (place, resolution) in self.places.places().iter().zip(&self.resolutions) {
            let Code::File(file, offset) = place.code else {
                continue;
            };
            let symbols = by_file.entry(file).or_default();
            let back = u64::from(place.is_return);
            let inside = resolution.offset.and_then(|o| o.checked_sub(back));
            match resolution.unnamed {
                None => {
                    let symbol = pack(&resolution.chain, inside, names);
                    symbols.extend(symbol.map(|symbol| (offset, symbol)));
                }
                Some(Reason::NoSymbol) => {
                    let here = symbols.entry(offset);
                    here.or_insert(AtOffset::Nameless { inside });
                }
                Some(reason) => {
                    let (_, offsets) = problems.entry(file).or_insert_with(|| (reason, Vec::new()));
                    offsets.push(offset);
                }
            }
        }
        let mut files: Vec<HitFile> = by_file
            .into_iter()
            .filter_map(|(number, symbols)| {
                let entry = self.files.get(number as usize)?;
                let (problem, unresolved) = match problems.remove(&number) {
                    Some((reason, offsets)) => (Some(reason), offsets),
                    None => (None, Vec::new()),
                };
                Some(HitFile {
                    number,
                    file: entry.file.clone(),
                    unnamed: entry.unnamed,
                    problem,
                    symbols: symbols.into_iter().collect(),
                    unresolved,
                })
            })
            .collect();
        files.sort_by(|a, b| (&a.file.path, a.number).cmp(&(&b.file.path, b.number)));
        files
    }
}

fn check_build_id(file: &File, wanted: &BuildId) -> Result<(), String> {
    match read_build_id(file) {
        Ok(Some(id)) if id == *wanted => Ok(()),
        Ok(Some(id)) => Err(format!("it has build ID {id}, recorded was {wanted}")),
        _ => Err(format!("it has no build ID, recorded was {wanted}")),
    }
}

fn unpack(symbol: &PackedSymbol, names: &mut Names) -> Symbol {
    let source = |source: &Option<(String, u32)>, names: &mut Names| {
        let (file, line) = source.as_ref()?;
        Some(SourceLine {
            file: names.intern(file),
            line: *line,
        })
    };
    Symbol {
        name: names.intern(&symbol.name),
        offset: symbol.inside,
        source: source(&symbol.source, names),
        inlined: symbol
            .inlined
            .iter()
            .map(|(name, place)| (names.intern(name), source(place, names)))
            .collect(),
    }
}

fn pack(chain: &[SymbolFrame], inside: Option<u64>, names: &Names) -> Option<AtOffset> {
    let parts = chain.iter().map(|part| {
        let name = names
            .frames()
            .get(part.frame as usize)
            .map_or("", |f| names.text(f.name));
        let source = part.source.map(|s| (names.text(s.file).to_owned(), s.line));
        (name.to_owned(), source)
    });
    let mut parts = parts;
    let (name, source) = parts.next()?;
    Some(AtOffset::Symbol(PackedSymbol {
        name,
        inside,
        source,
        inlined: parts.collect(),
    }))
}
