//! (file, offset, build ID) -> symbol, or the reason why there is none.
//!
//! Names come from four places and no other: the file that was mapped, if it is here and believed
//! ([`files`]); the kernel symbols, the vdso image and the perf maps saved in the capture. "No name" is
//! data, not an error: the frame gets a label and its [`Reason`] is counted.
//!
//! Labels: `[libfoo.so+0x1234]` (file name and file offset), `[anon]` memory without a file,
//! `[memfd:name]` memory with a name but no path, `[heap]` and the like as the kernel calls them,
//! `[vdso+0x12]`, `[vsyscall]`, `[kernel+0xffffffff81001ff0]` (the address), `[unknown]` where nothing was known to be mapped.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod debuginfod;
pub mod files;
pub mod functions;
pub mod kernel;
pub mod perf_map;

mod companions;
mod elf;
mod packed;

use std::path::PathBuf;

use hashbrown::HashMap;

use crate::capture::Pack;
use crate::event::{BuildId, MappedFile, MappedKind};
use crate::format::aid::{KernelSymbols, PerfMap, Vdso};
use crate::profile::{
    FileProblem, Frame, FrameKind, NameId, Names, Naming, Reason, Resolution, SourceLine,
    SymbolFrame,
};
use crate::timeline::file_name;

use debuginfod::{Debuginfod, What};
use elf::{ElfReader, Symbol};
use files::{Believed, Disbelief};
use functions::{FunctionTable, demangle};
use kernel::KernelTable;
use packed::Unpacked;
pub use packed::{HitFile, Sources, SymbolsByOffset};
use perf_map::PerfMaps;

/// Number of a mapped file in a [`Symbolizer`].
pub type FileNumber = u32;
/// Number of a [`Place`] in a [`Symbolizer`].
pub type PlaceId = u32;

/// Where code is, independent of the process that ran it: what a name depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// In what.
    pub code: Code,
    /// The address is a return address: `code` is that of the byte before it, which belongs to the call.
    pub is_return: bool,
}

/// In what code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A mapped file of the given number, at this offset.
    File(FileNumber, u64),
    /// The vdso at this offset.
    Vdso(u64),
    /// The vsyscall page.
    Vsyscall,
    /// JIT code: perf map, line, bytes from its start.
    Jit(u32, u32, u64),
    /// The kernel at this address.
    Kernel(u64),
    /// Something mapped that has a label but no names.
    Labelled(FileNumber),
    /// Nothing that could be named, for this reason.
    Unknown(Reason),
}

/// What names are missing of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lacking {
    /// A mapped file.
    File(FileNumber),
    /// The kernel.
    Kernel,
    /// The vdso.
    Vdso,
}

/// Options of symbolization.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Recorded paths are looked up below this directory.
    pub symfs: Option<PathBuf>,
    /// What was packed into the capture is not used.
    pub ignore_pack: bool,
    /// Servers that are asked for files that are not here; `None`: nobody is asked.
    pub debuginfod: Option<debuginfod::Settings>,
}

/// What the capture itself carries for names.
#[derive(Debug, Default)]
pub struct Aid {
    /// Kernel symbols.
    pub kernel: KernelSymbols,
    /// The vdso of 64-bit processes.
    pub vdso: Option<Vdso>,
    /// Perf maps.
    pub perf_maps: Vec<PerfMap>,
    /// What was packed.
    pub pack: Pack,
    /// Build ID of the kernel that was recorded.
    pub kernel_build_id: Option<BuildId>,
}

/// Resolves places to names, each once.
pub struct Symbolizer {
    options: Options,
    elf: ElfReader,
    kernel: KernelTable,
    vdso: Option<FunctionTable>,
    perf_maps: PerfMaps,
    pack: Pack,
    kernel_build_id: Option<BuildId>,
    unpacked: Unpacked,
    debuginfod: Option<Debuginfod>,
    files: Vec<FileEntry>,
    file_index: HashMap<MappedFile, FileNumber>,
    places: Vec<Place>,
    place_index: HashMap<Place, PlaceId>,
    /// Of `places`, as far as they are resolved.
    resolutions: Vec<Resolution>,
    warnings: Vec<String>,
    naming: Naming,
}

struct FileEntry {
    file: MappedFile,
    name: String,
    /// Looked for when it is first needed.
    state: Option<Result<Believed, Disbelief>>,
    /// A downloaded debug file, once it was asked for.
    debug: Option<Option<PathBuf>>,
    /// Frames of samples without a name.
    unnamed: u64,
    /// Why they have none; of several reasons, one that has to do with the file.
    reason: Option<Reason>,
}

impl Symbolizer {
    /// A symbolizer with the aid of one capture.
    pub fn new(options: Options, aid: Aid) -> Symbolizer {
        Symbolizer {
            elf: ElfReader::new(options.symfs.as_deref()),
            pack: if options.ignore_pack {
                Pack::default()
            } else {
                aid.pack
            },
            kernel_build_id: aid.kernel_build_id,
            unpacked: Unpacked::default(),
            debuginfod: options.debuginfod.clone().map(Debuginfod::new),
            options,
            kernel: KernelTable::new(aid.kernel),
            vdso: aid.vdso.and_then(|v| FunctionTable::parse(&*v.image)),
            perf_maps: PerfMaps::new(aid.perf_maps),
            files: Vec::new(),
            file_index: HashMap::new(),
            places: Vec::new(),
            place_index: HashMap::new(),
            resolutions: Vec::new(),
            warnings: Vec::new(),
            naming: Naming::default(),
        }
    }

    /// The saved perf maps.
    pub fn perf_maps(&self) -> &PerfMaps {
        &self.perf_maps
    }

    /// The number of `file`. Files that differ only in inode or deletion are one: names depend on path
    /// and content.
    pub fn file(&mut self, file: &MappedFile) -> FileNumber {
        let key = MappedFile {
            inode: None,
            deleted: false,
            ..file.clone()
        };
        let next = self.files.len() as FileNumber;
        *self.file_index.entry(key).or_insert_with_key(|key| {
            self.files.push(FileEntry {
                file: key.clone(),
                name: String::from_utf8_lossy(file_name(&key.path)).into_owned(),
                state: None,
                debug: None,
                unnamed: 0,
                reason: None,
            });
            next
        })
    }

    /// The number of `place`.
    pub fn place(&mut self, place: Place) -> PlaceId {
        let next = self.places.len() as PlaceId;
        let id = *self.place_index.entry(place).or_insert(next);
        if id == next {
            self.places.push(place);
        }
        id
    }

    /// What a place stands for; `None` before [`Symbolizer::resolve`].
    pub fn resolution(&self, place: PlaceId) -> Option<&Resolution> {
        self.resolutions.get(place as usize)
    }

    /// Counts `samples` samples with a frame at `place`, which must have been resolved.
    pub fn count(&mut self, place: PlaceId, samples: u64) {
        let (Some(at), Some(resolution)) = (
            self.places.get(place as usize),
            self.resolutions.get(place as usize),
        ) else {
            return;
        };
        let naming = &mut self.naming;
        let (total, named) = match at.code {
            Code::Kernel(_) => (&mut naming.kernel_total, &mut naming.kernel_named),
            _ => (&mut naming.user_total, &mut naming.user_named),
        };
        *total += samples;
        match resolution.unnamed {
            None => *named += samples,
            Some(reason) => *naming.unnamed.entry(reason).or_default() += samples,
        }
        if resolution.unverified && resolution.unnamed.is_none() {
            naming.unverified += samples;
        }
        if let (Code::File(file, _), Some(reason)) = (at.code, resolution.unnamed)
            && let Some(entry) = self.files.get_mut(file as usize)
        {
            entry.unnamed += samples;
            if reason != Reason::NoSymbol {
                entry.reason = Some(reason);
            }
        }
    }

    /// What would have to be brought to name a place, and why it has no name; `None` when it has one or nothing would help.
    pub fn lacking(&self, place: PlaceId) -> Option<(Lacking, Reason)> {
        let reason = self.resolution(place)?.unnamed?;
        match self.places.get(place as usize)?.code {
            Code::File(file, _) => Some((Lacking::File(file), reason)),
            Code::Kernel(_) => Some((Lacking::Kernel, reason)),
            Code::Vdso(_) => Some((Lacking::Vdso, reason)),
            _ => None,
        }
    }

    /// A file by its number.
    pub fn mapped_file(&self, file: FileNumber) -> Option<&MappedFile> {
        self.files.get(file as usize).map(|entry| &entry.file)
    }

    /// Counts `samples` samples whose user stack was ended where it left known code.
    pub fn count_ended_early(&mut self, samples: u64) {
        self.naming.ended_early = self.naming.ended_early.saturating_add(samples);
    }

    /// Counts `samples` samples inside `execve` whose user stack is not shown.
    pub fn count_before_exec(&mut self, samples: u64) {
        self.naming.before_exec = self.naming.before_exec.saturating_add(samples);
    }

    /// Whether nothing is mapped where a place is, in a process whose mappings are known.
    pub fn is_unmapped(&self, place: PlaceId) -> bool {
        self.places
            .get(place as usize)
            .is_some_and(|at| at.code == Code::Unknown(Reason::NotMapped))
    }

    /// How frames were named, of those counted.
    pub fn naming(&self) -> Naming {
        let mut naming = self.naming.clone();
        naming.files = self
            .files
            .iter()
            .filter(|f| f.unnamed > 0)
            .map(|f| FileProblem {
                path: String::from_utf8_lossy(&f.file.path).into_owned(),
                build_id: f.file.build_id.clone(),
                reason: f.reason.unwrap_or(Reason::NoSymbol),
                frames: f.unnamed,
            })
            .collect();
        naming
            .files
            .sort_by(|a, b| b.frames.cmp(&a.frames).then_with(|| a.path.cmp(&b.path)));
        naming
    }

    /// Messages about files, since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Resolves all places that are not yet: one batch per file, each offset once.
    pub fn resolve(&mut self, names: &mut Names) {
        let first = self.resolutions.len();
        let mut by_file: HashMap<FileNumber, Vec<u64>> = HashMap::new();
        for place in self.places.iter().skip(first) {
            if let Code::File(file, offset) = place.code {
                by_file.entry(file).or_default().push(offset);
            }
        }
        let mut batches: Vec<(FileNumber, Vec<u64>)> = by_file.into_iter().collect();
        batches.sort_unstable_by_key(|(file, _)| *file);
        let mut batches: HashMap<FileNumber, Batch> = batches
            .into_iter()
            .map(|(file, offsets)| (file, self.batch(file, offsets)))
            .collect();
        for i in first..self.places.len() {
            let Some(place) = self.places.get(i).copied() else {
                break;
            };
            let resolution = self.name(place, &mut batches, names);
            self.resolutions.push(resolution);
        }
    }

    /// All symbols of one file, by files of this machine. `offsets` ascend, each once.
    fn batch_of_files(&mut self, file: FileNumber, offsets: Vec<u64>) -> Batch {
        let debug = self.download(file);
        let Some(entry) = self.files.get_mut(file as usize) else {
            return Batch::default();
        };
        let symfs = self.options.symfs.as_deref();
        let state = entry
            .state
            .get_or_insert_with(|| files::believe(&entry.file, symfs));
        let symbols = match state {
            Err(disbelief) => Err(disbelief.reason),
            Ok(believed) => {
                let warnings = &mut self.warnings;
                let mut warn = |message| warnings.push(message);
                let debug = debug.as_deref();
                match self
                    .elf
                    .symbols_with(&believed.path, debug, &offsets, &mut warn)
                {
                    Ok(symbols) => Ok((believed.verified, symbols)),
                    Err(message) => {
                        warn(format!("{}: no names: {message}", believed.path.display()));
                        *state = Err(Disbelief {
                            reason: Reason::NotElf,
                            message,
                        });
                        Err(Reason::NotElf)
                    }
                }
            }
        };
        Batch {
            offsets,
            symbols,
            reasons: HashMap::new(),
        }
    }

    /// Asks the servers, if any, for what is not here of a file: all of it, or its debug file, which is given back.
    fn download(&mut self, file: FileNumber) -> Option<PathBuf> {
        let net = self.debuginfod.as_mut()?;
        let entry = self.files.get_mut(file as usize)?;
        let id = entry.file.build_id.clone()?;
        let symfs = self.options.symfs.as_deref();
        let warnings = &mut self.warnings;
        let mut warn = |message| warnings.push(message);
        let state = entry
            .state
            .get_or_insert_with(|| files::believe(&entry.file, symfs));
        if state.is_err()
            && let Some(path) = net.fetch(&id, What::Executable, &mut warn)
        {
            *state = Ok(Believed {
                path,
                verified: true,
            });
        }
        let believed = state.as_ref().ok()?;
        let debug = entry.debug.get_or_insert_with(|| {
            let has_own = companions::has_debug_info(&believed.path)
                || packed::debug_file(&believed.path, Some(&id), symfs).is_some();
            if has_own {
                return None;
            }
            net.fetch(&id, What::Debuginfo, &mut warn)
        });
        debug.clone()
    }

    fn name(
        &self,
        place: Place,
        batches: &mut HashMap<FileNumber, Batch>,
        names: &mut Names,
    ) -> Resolution {
        let back = u64::from(place.is_return);
        let user = |names: &mut Names, name: &str, module: &str| Frame {
            name: names.intern(name),
            module: names.intern(module),
            kind: FrameKind::User,
            inlined: false,
        };
        match place.code {
            Code::File(file, offset) => {
                let module = self.files.get(file as usize).map_or("", |f| &f.name);
                match batches
                    .get_mut(&file)
                    .map_or(Err(Reason::NoSymbol), |b| b.find(offset))
                {
                    Ok((verified, symbol)) => {
                        let module = names.intern(module);
                        named_by_elf(symbol, module, back, !verified, names)
                    }
                    Err(reason) => {
                        let label = format!("[{module}+{:#x}]", offset.saturating_add(back));
                        unnamed(user(names, &label, module), reason, names)
                    }
                }
            }
            Code::Vdso(offset) => {
                let image = self.vdso.as_ref();
                let found = image.and_then(|v| {
                    let address = v.address_of(offset)?;
                    v.find(address).map(|f| (f, address - f.start))
                });
                match found {
                    Some((f, inside)) => {
                        named(user(names, &f.name, "[vdso]"), Some(inside + back), names)
                    }
                    None => {
                        let reason = if image.is_some() {
                            Reason::NoSymbol
                        } else {
                            Reason::NoVdso
                        };
                        let label = format!("[vdso+{:#x}]", offset.saturating_add(back));
                        unnamed(user(names, &label, "[vdso]"), reason, names)
                    }
                }
            }
            Code::Vsyscall => named(user(names, "[vsyscall]", "[vsyscall]"), None, names),
            Code::Jit(map, line, inside) => match self.perf_maps.symbol(map, line) {
                Some(symbol) if !symbol.name.is_empty() => {
                    let name = String::from_utf8_lossy(&symbol.name);
                    named(user(names, &name, "[jit]"), Some(inside + back), names)
                }
                _ => unnamed(user(names, "[anon]", "[anon]"), Reason::Anonymous, names),
            },
            Code::Kernel(address) => {
                let found = self.kernel.find(address);
                let name = found.map_or_else(
                    || format!("[kernel+{:#x}]", address.saturating_add(back)),
                    |s| demangle(&s.name),
                );
                let module = found.and_then(|s| s.module.as_deref()).unwrap_or("kernel");
                let frame = Frame {
                    name: names.intern(&name),
                    module: names.intern(&format!("[{module}]")),
                    kind: FrameKind::Kernel,
                    inlined: false,
                };
                if let Some(packed) = self.packed_kernel(address, back, frame, names) {
                    return packed;
                }
                match found {
                    Some(s) => named(frame, Some(address - s.start + back), names),
                    None => unnamed(frame, Reason::NoKernelSymbol, names),
                }
            }
            Code::Labelled(file) => {
                let (label, reason) = self
                    .files
                    .get(file as usize)
                    .map_or(("[anon]".to_owned(), Reason::Anonymous), |f| label(&f.file));
                unnamed(user(names, &label, &label), reason, names)
            }
            Code::Unknown(reason) => unnamed(user(names, "[unknown]", ""), reason, names),
        }
    }
}

/// The label of memory that no file names.
fn label(file: &MappedFile) -> (String, Reason) {
    let path = String::from_utf8_lossy(&file.path);
    let path = path.trim_start_matches('/');
    match file.kind {
        MappedKind::Anonymous => ("[anon]".to_owned(), Reason::Anonymous),
        _ if path.is_empty() => ("[anon]".to_owned(), Reason::Anonymous),
        _ if path.starts_with('[') => (path.to_owned(), Reason::NoPath),
        _ => (format!("[{path}]"), Reason::NoPath),
    }
}

fn named(frame: Frame, offset: Option<u64>, names: &mut Names) -> Resolution {
    let chain = Box::new([SymbolFrame {
        frame: names.frame_id(frame),
        source: None,
    }]);
    Resolution {
        chain,
        offset,
        unnamed: None,
        unverified: false,
    }
}

fn unnamed(frame: Frame, reason: Reason, names: &mut Names) -> Resolution {
    Resolution {
        unnamed: Some(reason),
        ..named(frame, None, names)
    }
}

fn named_by_elf(
    symbol: &Symbol,
    module: NameId,
    back: u64,
    unverified: bool,
    names: &mut Names,
) -> Resolution {
    let own = (&symbol.name, &symbol.source);
    let inlined = symbol.inlined.iter().map(|(name, source)| (name, source));
    let chain = std::iter::once(own)
        .chain(inlined)
        .enumerate()
        .map(|(depth, (name, source))| {
            let name = names.intern(name);
            let source = source.as_ref().map(|(file, line)| SourceLine {
                file: names.intern(file),
                line: *line,
            });
            let frame = Frame {
                name,
                module,
                kind: FrameKind::User,
                inlined: depth > 0,
            };
            SymbolFrame {
                frame: names.frame_id(frame),
                source,
            }
        })
        .collect();
    Resolution {
        chain,
        offset: symbol.offset.map(|offset| offset + back),
        unnamed: None,
        unverified,
    }
}

/// The symbols of one file at the offsets asked for.
struct Batch {
    /// Ascending, each once.
    offsets: Vec<u64>,
    /// Whether the file's build ID was compared, and the symbols at `offsets`; or why there are none.
    symbols: Result<(bool, Vec<Option<Symbol>>), Reason>,
    /// Why some offsets have none, where it is not that the file has no symbol there.
    reasons: HashMap<u64, Reason>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            offsets: Vec::new(),
            symbols: Err(Reason::NoSymbol),
            reasons: HashMap::new(),
        }
    }
}

impl Batch {
    fn find(&self, offset: u64) -> Result<(bool, &Symbol), Reason> {
        let (verified, symbols) = self.symbols.as_ref().map_err(|reason| *reason)?;
        let at = self
            .offsets
            .binary_search(&offset)
            .map_err(|_| Reason::NoSymbol)?;
        match symbols.get(at) {
            Some(Some(symbol)) => Ok((*verified, symbol)),
            _ => Err(self
                .reasons
                .get(&offset)
                .copied()
                .unwrap_or(Reason::NoSymbol)),
        }
    }
}

#[cfg(test)]
mod tests;
