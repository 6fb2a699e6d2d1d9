//! Names out of what was packed into the capture, before any file of this machine is looked at; and the way back, the
//! names that are to be packed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use object::read::ReadCache;

use super::elf::Symbol;
use super::functions::{FunctionTable, demangle};
use super::{Batch, Code, FileNumber, Symbolizer, companions};
use crate::capture::pack::{Packed, PackedFile};
use crate::elf_file::{open_regular, read_build_id};
use crate::event::{BuildId, MappedFile};
use crate::format::packed::FileKey;
use crate::format::packed::file::Role;
use crate::format::packed::symbols::PackedSymbol;
use crate::profile::{Frame, Names, Reason, Resolution, SourceLine, SymbolFrame};
use crate::timeline::file_name;

/// Bytes of packed files that are unpacked in one run at most.
const UNPACK_ALL: u64 = 16 << 30;

/// Offsets, ascending, with the symbols there, if any.
pub type SymbolsByOffset = Vec<(u64, Option<PackedSymbol>)>;

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
    /// The offsets hit, ascending; `None` where the file has no symbol. Empty when the file was not used.
    pub symbols: SymbolsByOffset,
    /// The offsets hit when the file was not used, in no order.
    pub unresolved: Vec<u64>,
}

/// The files of this machine that a mapped file's names come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The mapped file itself.
    pub executable: PathBuf,
    /// Its separate debug file.
    pub debug: Option<PathBuf>,
}

/// Packed files that were needed, as files of their own for as long as they are used.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    dir: Option<tempfile::TempDir>,
    files: HashMap<FileNumber, Option<PathBuf>>,
    tables: HashMap<FileNumber, Option<FunctionTable>>,
    bytes: u64,
}

impl Symbolizer {
    /// All symbols of one file: those packed, then those of files, then those of a packed symbol table.
    pub(super) fn batch(&mut self, file: FileNumber, mut offsets: Vec<u64>) -> Batch {
        offsets.sort_unstable();
        offsets.dedup();
        let entry = self.files.get(file as usize);
        let Some(mapped) = entry.map(|e| e.file.clone()) else {
            return Batch::default();
        };
        if self.pack.is_empty() {
            return self.batch_of_files(file, offsets);
        }
        let packed = self.pack.symbols(&mapped, &offsets);
        let named = |packed: &Packed| matches!(packed, Packed::Symbol(_));
        let pairs = || offsets.iter().zip(&packed);
        let rest: Vec<u64> = pairs().filter(|p| !named(p.1)).map(|p| *p.0).collect();
        let unknown = pairs().filter(|p| *p.1 == Packed::Unknown).map(|p| *p.0);
        let further = self.beyond_hits(file, &mapped, &rest);
        let reasons = match &further {
            Err(reason) => unknown.map(|offset| (offset, *reason)).collect(),
            Ok(_) => HashMap::new(),
        };
        let mut further = further.unwrap_or_default().into_iter();
        let symbols = packed
            .into_iter()
            .map(|packed| match packed {
                Packed::Symbol(symbol) => Some(unpack(symbol)),
                _ => further.next().flatten(),
            })
            .collect();
        Batch {
            offsets,
            symbols: Ok((mapped.build_id.is_some(), symbols)),
            reasons,
        }
    }

    /// Symbols at offsets that the pack does not name one by one.
    fn beyond_hits(
        &mut self,
        file: FileNumber,
        mapped: &MappedFile,
        offsets: &[u64],
    ) -> Result<Vec<Option<Symbol>>, Reason> {
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = match self.unpacked_file(file, mapped) {
            Some(path) => {
                let warnings = &mut self.warnings;
                let mut warn = |message| warnings.push(message);
                self.elf.symbols(&path, offsets, &mut warn).ok()
            }
            None => None,
        };
        let mut failed = None;
        if found.is_none() {
            match self.batch_of_files(file, offsets.to_vec()).symbols {
                Ok((_, symbols)) => found = Some(symbols),
                Err(reason) => failed = Some(reason),
            }
        }
        let (pack, tables) = (&self.pack, &mut self.unpacked.tables);
        let table = tables.entry(file).or_insert_with(|| {
            let (loads, functions) = pack.table(mapped)?;
            Some(FunctionTable::of_packed(&loads, functions))
        });
        let symbols = match (found, failed) {
            (Some(symbols), _) => symbols,
            (None, Some(reason)) if table.is_none() => return Err(reason),
            (None, _) => vec![None; offsets.len()],
        };
        let by_table = |offset: &u64| {
            let table = table.as_ref()?;
            let address = table.address_of(*offset)?;
            let function = table.find(address)?;
            Some(Symbol {
                name: demangle(&function.name),
                offset: Some(address - function.start),
                source: None,
                inlined: Vec::new(),
            })
        };
        let both = symbols.into_iter().zip(offsets);
        Ok(both
            .map(|(s, offset)| s.or_else(|| by_table(offset)))
            .collect())
    }

    /// The packed file as a file, if there is one that is whole and what it is said to be.
    fn unpacked_file(&mut self, file: FileNumber, mapped: &MappedFile) -> Option<PathBuf> {
        if let Some(known) = self.unpacked.files.get(&file) {
            return known.clone();
        }
        let packed = self.pack.files(mapped);
        let path = packed
            .iter()
            .find(|p| p.role == Role::Executable)
            .and_then(|executable| {
                let debug = packed.iter().find(|p| p.role == Role::Debug);
                let unpacked = self.unpack(file, mapped, executable, debug);
                unpacked
                    .map_err(|message| {
                        let shown = String::from_utf8_lossy(&mapped.path);
                        self.warnings
                            .push(format!("{shown}: the packed file is not used: {message}"));
                    })
                    .ok()
            });
        self.unpacked.files.insert(file, path.clone());
        path
    }

    fn unpack(
        &mut self,
        number: FileNumber,
        mapped: &MappedFile,
        executable: &PackedFile,
        debug: Option<&PackedFile>,
    ) -> Result<PathBuf, String> {
        let dir = match &self.unpacked.dir {
            Some(dir) => dir.path(),
            None => {
                let dir = tempfile::Builder::new().prefix("profiler-").tempdir();
                let dir = dir.map_err(|err| format!("no temporary directory: {err}"))?;
                self.unpacked.dir.insert(dir).path()
            }
        };
        let dir = dir.join(number.to_string());
        fs::create_dir(&dir).map_err(|err| format!("{}: {err}", dir.display()))?;
        let path = dir.join(plain_name(&mapped.path).unwrap_or("executable".into()));
        self.write(executable, &path, mapped)?;
        if let Some(debug) = debug
            && let Some(beside) = debug_name(&path).map(|name| dir.join(name))
            && beside != path
        {
            // Without it there are still the names of the executable.
            if let Err(message) = self.write(debug, &beside, mapped) {
                let shown = String::from_utf8_lossy(&mapped.path);
                self.warnings.push(format!(
                    "{shown}: the packed debug file is not used: {message}"
                ));
                let _ = fs::remove_file(&beside);
            }
        }
        Ok(path)
    }

    fn write(
        &mut self,
        packed: &PackedFile,
        path: &Path,
        mapped: &MappedFile,
    ) -> Result<(), String> {
        self.unpacked.bytes = self.unpacked.bytes.saturating_add(packed.size);
        if self.unpacked.bytes > UNPACK_ALL {
            return Err("the packed files are too large".to_owned());
        }
        let io = |err: std::io::Error| format!("{}: {err}", path.display());
        let mut file = File::create_new(path).map_err(io)?;
        self.pack
            .unpack(packed, &mut file)
            .map_err(|err| err.to_string())?;
        match (&mapped.build_id, &mapped.version) {
            (Some(wanted), _) => {
                let file = File::open(path).map_err(io)?;
                check_build_id(&file, wanted)
            }
            (None, Some(version))
                if packed.role == Role::Executable && version.size != packed.size =>
            {
                Err(format!(
                    "it has {} bytes, recorded were {}",
                    packed.size, version.size
                ))
            }
            _ => Ok(()),
        }
    }

    /// What is packed for a kernel address, as `frame` with another name and what was inlined there.
    pub(super) fn packed_kernel(
        &self,
        address: u64,
        back: u64,
        frame: Frame,
        names: &mut Names,
    ) -> Option<Resolution> {
        if self.pack.is_empty() {
            return None;
        }
        let key = FileKey::of_kernel(self.kernel_build_id.as_ref()?);
        let Some(Packed::Symbol(symbol)) = self.pack.symbols_of(&key, &[address]).pop() else {
            return None;
        };
        let parts = std::iter::once((symbol.name, symbol.source)).chain(symbol.inlined);
        let chain = parts.enumerate().map(|(depth, (name, source))| {
            let name = names.intern(&name);
            let source = source.map(|(file, line)| SourceLine {
                file: names.intern(&file),
                line,
            });
            let frame = Frame {
                name,
                inlined: depth > 0,
                ..frame
            };
            SymbolFrame {
                frame: names.frame_id(frame),
                source,
            }
        });
        Some(Resolution {
            chain: chain.collect(),
            offset: symbol.inside.map(|inside| inside.saturating_add(back)),
            unnamed: None,
            unverified: false,
        })
    }

    /// Kernel addresses of which more is known here than the capture has: lines, and what was inlined. With the key to
    /// pack them under.
    pub fn kernel_hits(&self, names: &Names) -> Option<(FileKey, SymbolsByOffset)> {
        let key = FileKey::of_kernel(self.kernel_build_id.as_ref()?);
        let mut symbols: BTreeMap<u64, Option<PackedSymbol>> = BTreeMap::new();
        for (place, resolution) in self.places.iter().zip(&self.resolutions) {
            let Code::Kernel(address) = place.code else {
                continue;
            };
            let chain = &resolution.chain;
            let more = chain.len() > 1 || chain.iter().any(|part| part.source.is_some());
            if more && resolution.unnamed.is_none() {
                let back = u64::from(place.is_return);
                let inside = resolution.offset.and_then(|o| o.checked_sub(back));
                symbols.insert(address, pack(chain, inside, names));
            }
        }
        (!symbols.is_empty()).then(|| (key, symbols.into_iter().collect()))
    }

    /// Files with places, and their symbols as far as they are resolved, in the order of their paths.
    pub fn hits(&self, names: &Names) -> Vec<HitFile> {
        let mut by_file: BTreeMap<FileNumber, BTreeMap<u64, Option<PackedSymbol>>> =
            BTreeMap::new();
        let mut problems: BTreeMap<FileNumber, (Reason, Vec<u64>)> = BTreeMap::new();
        for (place, resolution) in self.places.iter().zip(&self.resolutions) {
            let Code::File(file, offset) = place.code else {
                continue;
            };
            let symbols = by_file.entry(file).or_default();
            match resolution.unnamed {
                None => {
                    let back = u64::from(place.is_return);
                    let inside = resolution.offset.and_then(|o| o.checked_sub(back));
                    symbols.insert(offset, pack(&resolution.chain, inside, names));
                }
                Some(Reason::NoSymbol) => {
                    symbols.entry(offset).or_insert(None);
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

    /// Where the names of a file come from; `None` when no file of this machine is believed.
    pub fn sources(&self, file: FileNumber) -> Option<Sources> {
        let entry = self.files.get(file as usize)?;
        let believed = entry.state.as_ref()?.as_ref().ok()?;
        let executable = believed.path.clone();
        let root = self.options.symfs.as_deref();
        let downloaded = entry.debug.clone().flatten();
        let debug =
            downloaded.or_else(|| debug_file(&executable, entry.file.build_id.as_ref(), root));
        Some(Sources { executable, debug })
    }
}

/// The separate debug file of `path` on this machine. Only one with the build ID wanted is one.
pub(super) fn debug_file(
    path: &Path,
    id: Option<&BuildId>,
    root: Option<&Path>,
) -> Option<PathBuf> {
    let is_the_one = |path: &PathBuf| match (open_regular(path), id) {
        (Ok(file), Some(wanted)) => check_build_id(&file, wanted).is_ok(),
        _ => false,
    };
    debug_candidates(path, id, root)
        .into_iter()
        .find(is_the_one)
}

/// Where the separate debug file of `path` may be.
fn debug_candidates(path: &Path, id: Option<&BuildId>, root: Option<&Path>) -> Vec<PathBuf> {
    let root = root.unwrap_or(Path::new("/"));
    let dirs = [root.join("usr/lib/debug"), root.join("lib/debug")];
    let mut found = Vec::new();
    if let Some((first, rest)) = id.and_then(|id| split_hex(&id.to_string())) {
        found.extend(dirs.iter().map(|dir| {
            let name = format!("{rest}.debug");
            dir.join(".build-id").join(&first).join(name)
        }));
    }
    if let (Some(name), Some(beside)) = (debug_name(path), path.parent()) {
        found.push(beside.join(&name));
        found.push(beside.join(".debug").join(&name));
        let below = beside.strip_prefix(root).unwrap_or(beside);
        found.extend(dirs.iter().map(|dir| dir.join(below).join(&name)));
    }
    found
}

fn split_hex(hex: &str) -> Option<(String, String)> {
    let (first, rest) = hex.split_at_checked(2)?;
    (!rest.is_empty()).then(|| (first.to_owned(), rest.to_owned()))
}

/// The name an ELF file gives its debug file, without directories.
fn debug_name(path: &Path) -> Option<PathBuf> {
    let file = open_regular(path).ok()?;
    let names = companions::names(&ReadCache::new(file));
    names.first()?.file_name().map(PathBuf::from)
}

/// The last part of a recorded path, if it can be a file name.
fn plain_name(path: &[u8]) -> Option<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let name = file_name(path);
    let usual = !name.is_empty() && name.len() <= 255 && !name.contains(&0);
    let usual = usual && name != b"." && name != b".." && !name.contains(&b'/');
    usual.then(|| PathBuf::from(OsStr::from_bytes(name)))
}

fn check_build_id(file: &File, wanted: &BuildId) -> Result<(), String> {
    match read_build_id(file) {
        Ok(Some(id)) if id == *wanted => Ok(()),
        Ok(Some(id)) => Err(format!("it has build ID {id}, recorded was {wanted}")),
        _ => Err(format!("it has no build ID, recorded was {wanted}")),
    }
}

fn unpack(symbol: PackedSymbol) -> Symbol {
    Symbol {
        name: symbol.name,
        offset: symbol.inside,
        source: symbol.source,
        inlined: symbol.inlined,
    }
}

fn pack(chain: &[SymbolFrame], inside: Option<u64>, names: &Names) -> Option<PackedSymbol> {
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
    Some(PackedSymbol {
        name,
        inside,
        source,
        inlined: parts.collect(),
    })
}
