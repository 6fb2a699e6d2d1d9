//! (file, offset, build ID) -> symbol, or the reason why there is none.
//!
//! Names come from five places and no other: what was packed into the capture; the file that was mapped with its debug files, if they are here and
//! believed; the kernel symbols, the vdso image and the perf maps saved in the capture. "No name" is
//! data, not an error: the frame gets a label and its [`Reason`] is counted.
//!
//! ```text
//! search   where a file may be            files        which of them is believed to be what was mapped
//! sysroot  paths below --symfs            debug_files  separate debug files, by build ID or checksum
//! sections an ELF file's bytes            elf          names from one file: DWARF first, then symbol tables
//! dwarf    functions, inlined, lines      functions    symbol tables          vmlinux  the kernel's lines
//! bounds   functions without a symbol     packed       what is in the capture
//! places   numbers of places and files    debuginfod   what servers have
//! ```
//!
//! Labels: `[libfoo.so+0x1234]` (file name and offset in the file: where the function begins, if unwind information tells, else of the
//! address itself), `[anon]` memory without a file,
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
pub mod functions;
pub mod kernel;
pub mod perf_map;

mod bounds;
mod debug_files;
mod dwarf;
mod elf;
mod files;
mod flat;
mod labels;
mod packed;
mod places;
mod resolve;
mod search;
mod sections;
mod sysroot;
mod vmlinux;

use std::path::PathBuf;
use std::sync::Arc;

use crate::capture::Pack;
use crate::event::{MappedFile, MappedKind};
use crate::format::aid::{ElfLayout, KernelSymbols, Load, PerfMap, Vdso};
use crate::profile::{FileProblem, Naming, Reason, Resolution};
use crate::timeline::file_name;

pub use elf::FilesUsed;
pub use labels::Labels;
pub use packed::{HitFile, SymbolsByOffset};
pub use places::Places;
pub use search::{Fetch, FileKind};
pub use vmlinux::KernelIdentity;

use bounds::Bounds;
use debuginfod::Debuginfod;
use elf::Module;
use files::{Disbelief, Finder};
use functions::{FunctionTable, loads};
use kernel::KernelTable;
use packed::Unpacked;
use perf_map::PerfMaps;
use vmlinux::Vmlinux;

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

/// Options of symbolization.
#[derive(Debug, Clone)]
pub struct Options {
    /// Recorded paths are looked up below these directories, first to last.
    pub symfs: Vec<PathBuf>,
    /// Directories with separate debug files, before the system's.
    pub debug_dirs: Vec<PathBuf>,
    /// Files without a build ID give no names.
    pub require_build_id: bool,
    /// The image of the recorded kernel.
    pub vmlinux: Option<PathBuf>,
    /// Source lines are wanted; without, line tables are not read. Inlined functions are found either way.
    pub lines: bool,
    /// What was packed into the capture is not used.
    pub ignore_pack: bool,
    /// Servers that are asked for files that are not here; `None`: nobody is asked.
    pub debuginfod: Option<debuginfod::Settings>,
    /// What files of one name are called, in all that is reported together.
    pub labels: Labels,
}

impl Default for Options {
    /// This machine's files, with lines.
    fn default() -> Options {
        Options {
            symfs: Vec::new(),
            debug_dirs: Vec::new(),
            require_build_id: false,
            vmlinux: None,
            lines: true,
            ignore_pack: false,
            debuginfod: None,
            labels: Labels::default(),
        }
    }
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

/// What the capture itself carries for names.
#[derive(Debug, Default)]
pub struct Aid {
    /// Kernel symbols.
    pub kernel: KernelSymbols,
    /// The vdso of 64-bit processes.
    pub vdso: Option<Vdso>,
    /// Perf maps.
    pub perf_maps: Vec<PerfMap>,
    /// Layouts of mapped files, for those that are gone and whose debug files are here.
    pub layouts: Vec<ElfLayout>,
    /// Which kernel it was; its `_stext` is taken from `kernel`.
    pub kernel_identity: KernelIdentity,
    /// What was packed.
    pub pack: Pack,
}

/// The vdso: its functions and where they are in the image.
struct VdsoTable {
    functions: FunctionTable,
    loads: Vec<Load>,
    bounds: Bounds,
    image: Vec<u8>,
}

impl VdsoTable {
    fn new(vdso: Vdso) -> Option<VdsoTable> {
        Some(VdsoTable {
            functions: FunctionTable::parse(&*vdso.image)?,
            loads: loads(&*vdso.image),
            bounds: Bounds::of(&vdso.image),
            image: vdso.image,
        })
    }

    /// Bytes from where the function begins that covers `offset`, for code without a symbol.
    fn inside(&self, offset: u64) -> Option<u64> {
        let address = functions::address_of(&self.loads, offset)?;
        let start = self.bounds.start(&self.image, || &[], address)?;
        address.checked_sub(start)
    }
}

/// Resolves places to names, each once.
pub struct Symbolizer {
    options: Options,
    finder: Finder,
    kernel: KernelTable,
    kernel_identity: KernelIdentity,
    /// Looked for when the first kernel address is resolved.
    vmlinux: Option<Option<Vmlinux>>,
    vdso: Option<VdsoTable>,
    perf_maps: Arc<PerfMaps>,
    pack: Pack,
    unpacked: Unpacked,
    places: Places,
    /// Of the files of `places`, as far as they were taken in.
    files: Vec<FileEntry>,
    /// Of `places`, as far as they are resolved.
    resolutions: Vec<Resolution>,
    warnings: Vec<String>,
    naming: Naming,
}

struct FileEntry {
    file: MappedFile,
    name: String,
    /// What labels of its code call it.
    label: String,
    /// Looked for when it is first needed.
    state: Option<Result<Module, Disbelief>>,
    /// Frames of samples without a name.
    unnamed: u64,
    /// Why they have none; of several reasons, one that has to do with the file.
    reason: Option<Reason>,
}

impl Symbolizer {
    /// A symbolizer with the aid of one capture.
    pub fn new(options: Options, aid: Aid) -> Symbolizer {
        let kernel_identity = KernelIdentity {
            stext: aid.kernel.stext,
            ..aid.kernel_identity
        };
        let mut finder = Finder::new(&options, aid.layouts);
        if let Some(settings) = options.debuginfod.clone() {
            finder.fetch = Some(Box::new(Debuginfod::new(settings)));
        }
        Symbolizer {
            finder,
            pack: if options.ignore_pack {
                Pack::default()
            } else {
                aid.pack
            },
            unpacked: Unpacked::default(),
            options,
            kernel: KernelTable::new(aid.kernel),
            kernel_identity,
            vmlinux: None,
            vdso: aid.vdso.and_then(VdsoTable::new),
            perf_maps: Arc::new(PerfMaps::new(aid.perf_maps)),
            places: Places::default(),
            files: Vec::new(),
            resolutions: Vec::new(),
            warnings: Vec::new(),
            naming: Naming::default(),
        }
    }

    /// Files that no place here has are asked for there.
    pub fn set_fetch(&mut self, fetch: Box<dyn Fetch>) {
        self.finder.fetch = Some(fetch);
    }

    /// The files a mapped file's names came from; `None` when it has not been needed, or was not believed.
    pub fn files_used(&self, file: FileNumber) -> Option<&FilesUsed> {
        let state = self.files.get(file as usize)?.state.as_ref()?;
        state.as_ref().ok().map(Module::used)
    }

    /// The saved perf maps.
    pub fn perf_maps(&self) -> &Arc<PerfMaps> {
        &self.perf_maps
    }

    /// The number of `file`: see [`Places::file`].
    pub fn file(&mut self, file: &MappedFile) -> FileNumber {
        self.places.file(file)
    }

    /// The number of `place`.
    pub fn place(&mut self, place: Place) -> PlaceId {
        self.places.place(place)
    }

    /// All places and files, to number more of them.
    pub fn places(&mut self) -> &mut Places {
        &mut self.places
    }

    /// Takes in the files that are new in `places`.
    fn take_in_files(&mut self) {
        for file in self.places.files().iter().skip(self.files.len()) {
            let id = file.build_id.as_ref();
            if let Some(id) = id.filter(|_| file.kind == MappedKind::File) {
                self.finder.known_path(id, &file.path);
            }
            let name = String::from_utf8_lossy(file_name(&file.path)).into_owned();
            self.files.push(FileEntry {
                file: file.clone(),
                label: self.options.labels.of(file, &name),
                name,
                state: None,
                unnamed: 0,
                reason: None,
            });
        }
    }

    /// What a place stands for; `None` before [`Symbolizer::resolve`].
    pub fn resolution(&self, place: PlaceId) -> Option<&Resolution> {
        self.resolutions.get(place as usize)
    }

    /// The file a place is in, and at which offset; for a return address that of the byte before.
    pub fn file_of(&self, place: PlaceId) -> Option<(&MappedFile, u64)> {
        match self.places.places().get(place as usize)?.code {
            Code::File(file, offset) => Some((self.places.files().get(file as usize)?, offset)),
            _ => None,
        }
    }

    /// Counts a frame at `place`, which must have been resolved, of samples that count for `weight`.
    pub fn count(&mut self, place: PlaceId, weight: u64) {
        let (Some(at), Some(resolution)) = (
            self.places.places().get(place as usize),
            self.resolutions.get(place as usize),
        ) else {
            return;
        };
        let naming = &mut self.naming;
        let (total, named) = match at.code {
            Code::Kernel(_) => (&mut naming.kernel_total, &mut naming.kernel_named),
            _ => (&mut naming.user_total, &mut naming.user_named),
        };
        // Weights are the capture's word.
        let add = |sum: &mut u64| *sum = sum.saturating_add(weight);
        add(total);
        match resolution.unnamed {
            None => add(named),
            Some(reason) => add(naming.unnamed.entry(reason).or_default()),
        }
        if resolution.unverified && resolution.unnamed.is_none() {
            add(&mut naming.unverified);
        }
        if let (Code::File(file, _), Some(reason)) = (at.code, resolution.unnamed)
            && let Some(entry) = self.files.get_mut(file as usize)
        {
            add(&mut entry.unnamed);
            if reason != Reason::NoSymbol {
                entry.reason = Some(reason);
            }
        }
    }

    /// What would have to be brought to name a place, and why it has no name; `None` when it has one or nothing would help.
    pub fn lacking(&self, place: PlaceId) -> Option<(Lacking, Reason)> {
        let reason = self.resolution(place)?.unnamed?;
        match self.places.places().get(place as usize)?.code {
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

    /// Counts samples whose user stack was ended where it left known code, by what they count for.
    pub fn count_ended_early(&mut self, weight: u64) {
        self.naming.ended_early = self.naming.ended_early.saturating_add(weight);
    }

    /// Counts samples inside `execve` whose user stack is not shown, by what they count for.
    pub fn count_before_exec(&mut self, weight: u64) {
        self.naming.before_exec = self.naming.before_exec.saturating_add(weight);
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
                detail: match &f.state {
                    Some(Err(found))
                        if found.reason != Reason::FileMissing && f.reason.is_some() =>
                    {
                        Some(found.message.clone())
                    }
                    _ => None,
                },
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
}

#[cfg(test)]
mod tests;
