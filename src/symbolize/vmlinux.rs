//! Lines and inlined functions of kernel code, from the image of the very kernel that was sampled.
//!
//! Names and offsets stay those the recorder saved. An image is believed only if its build ID is the recorded
//! kernel's, and is laid over the recorded addresses by `_stext`, which the kernel may have moved (KASLR). blazesym reads
//! it: as a file, so that it never looks at the kernel of this machine.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Builder, CodeInfo, Input, Sym, Symbolizer};
use object::{Object, ObjectSymbol};

use super::debug_files::open_by_id;
use super::elf::Symbol;
use super::search::Search;
use crate::event::BuildId;
use crate::profile::{Names, SourceLine};

/// What a capture says about its kernel.
#[derive(Debug, Clone, Default)]
pub struct KernelIdentity {
    /// Build ID, when it was recorded.
    pub build_id: Option<BuildId>,
    /// `uname -r`.
    pub release: String,
    /// Runtime address of `_stext`, 0 when hidden.
    pub stext: u64,
}

/// The image of the recorded kernel.
pub(super) struct Vmlinux {
    path: PathBuf,
    /// Source lines are wanted.
    lines: bool,
    blazesym: Symbolizer,
    /// Runtime addresses it knows.
    text: Range<u64>,
    /// Runtime address minus that in the image.
    moved: u64,
}

impl Vmlinux {
    /// Opens the image: the one `given`, else one found by its build ID. `warn` is told why a given one is not used.
    pub fn find(
        kernel: &KernelIdentity,
        given: Option<&Path>,
        lines: bool,
        search: &Rc<Search>,
        warn: &mut dyn FnMut(String),
    ) -> Option<Vmlinux> {
        let mut refuse = |path: &Path, problem: String| {
            warn(format!(
                "{}: not used: {problem}; kernel names are those saved in the capture, without lines",
                path.display()
            ));
        };
        let candidates = match given {
            Some(path) => vec![path.to_path_buf()],
            None => candidates(kernel, search),
        };
        for path in candidates {
            match Vmlinux::open(kernel, &path) {
                Ok((text, moved)) => {
                    return Some(Vmlinux {
                        path,
                        lines,
                        blazesym: build(),
                        text,
                        moved,
                    });
                }
                Err(problem) if given.is_some() => refuse(&path, problem),
                Err(_) => {}
            }
        }
        None
    }

    /// The runtime addresses of the image's code, and by how much they were moved.
    fn open(kernel: &KernelIdentity, path: &Path) -> Result<(Range<u64>, u64), String> {
        let id = kernel.build_id.as_ref();
        let id = id.ok_or("the capture has no kernel build ID to compare it with")?;
        if kernel.stext == 0 {
            return Err("the capture does not say where the kernel was (_stext)".to_owned());
        }
        let sections = open_by_id(path, id).map_err(|refusal| refusal.to_string())?;
        let elf = object::File::parse(sections.bytes()).map_err(|err| err.to_string())?;
        let (mut start, mut end) = (None, None);
        for symbol in elf.symbols() {
            match symbol.name_bytes() {
                Ok(b"_stext") => start = Some(symbol.address()),
                Ok(b"_etext") => end = Some(symbol.address()),
                _ => {}
            }
        }
        let (Some(start), Some(end)) = (start, end) else {
            return Err("it has no symbols _stext and _etext".to_owned());
        };
        let moved = kernel.stext.wrapping_sub(start);
        Ok((kernel.stext..end.wrapping_add(moved), moved))
    }

    /// What the image says of runtime addresses.
    pub fn symbols(
        &mut self,
        addresses: &[u64],
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Vec<Option<Symbol>> {
        let known: Vec<u64> = addresses
            .iter()
            .filter(|address| self.text.contains(address))
            .map(|address| address.wrapping_sub(self.moved))
            .collect();
        if known.is_empty() {
            return vec![None; addresses.len()];
        }
        let mut found = self.look_up(&known, names).unwrap_or_else(|problem| {
            warn(format!(
                "{}: not used: {problem}; kernel names are those saved in the capture, without lines",
                self.path.display()
            ));
            // Not asked again.
            self.text = 0..0;
            Vec::new()
        });
        let mut found = found.drain(..);
        let of = |address| self.text.contains(address).then(|| found.next().flatten());
        addresses.iter().map(of).map(Option::flatten).collect()
    }

    /// What blazesym finds at addresses of the image. It panics on some broken files; that costs the image, not the report.
    fn look_up(&self, known: &[u64], names: &mut Names) -> Result<Vec<Option<Symbol>>, String> {
        let source = Source::Elf(Elf::new(&self.path));
        let input = Input::VirtOffset(known);
        let found = catch_unwind(AssertUnwindSafe(|| self.blazesym.symbolize(&source, input)));
        let found = found.map_err(|_| "it is broken".to_owned())?;
        let found = found.map_err(|err| format!("{err:#}"))?;
        Ok(found
            .iter()
            .map(|found| Some(self.convert(found.as_sym()?, names)))
            .collect())
    }

    fn convert(&self, sym: &Sym<'_>, names: &mut Names) -> Symbol {
        let mut source = |info: Option<&CodeInfo<'_>>| {
            let info = info.filter(|_| self.lines)?;
            Some(SourceLine {
                file: names.intern(&info.to_path().to_string_lossy()),
                line: info.line.unwrap_or(0),
            })
        };
        let own = source(sym.code_info.as_deref());
        let lines: Vec<_> = sym
            .inlined
            .iter()
            .map(|f| source(f.code_info.as_ref()))
            .collect();
        let called = sym.inlined.iter().map(|f| names.intern(&f.name));
        let inlined = called.collect::<Vec<_>>().into_iter().zip(lines).collect();
        Symbol {
            name: names.intern(&sym.name),
            offset: Some(sym.offset as u64),
            source: own,
            inlined,
        }
    }
}

/// Inlined functions come only with line tables.
fn build() -> Symbolizer {
    Builder::default()
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        .build()
}

/// Where distributions put the image.
fn candidates(kernel: &KernelIdentity, search: &Search) -> Vec<PathBuf> {
    let Some(id) = &kernel.build_id else {
        return Vec::new();
    };
    let mut all = search.debug_files(id);
    let release = &kernel.release;
    // A release is a word; a capture may say anything.
    if !release.is_empty() && !release.contains('/') && release != ".." {
        for name in [
            format!("boot/vmlinux-{release}"),
            format!("lib/modules/{release}/vmlinux"),
            format!("usr/lib/modules/{release}/vmlinux"),
        ] {
            all.extend(search.in_debug_dirs(Path::new(&name)));
        }
    }
    all
}
