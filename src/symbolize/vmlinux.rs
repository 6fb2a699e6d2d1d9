//! Lines and inlined functions of kernel code, from the image of the very kernel that was sampled.
//!
//! Names and offsets stay those the recorder saved. An image is believed only if its build ID is the recorded
//! kernel's, and is laid over the recorded addresses by `_stext`, which the kernel may have moved (KASLR).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::{Object, ObjectSymbol};

use super::debug_files::open_by_id;
use super::elf::{Module, Symbol};
use super::files::{Believed, Opened};
use super::search::Search;
use super::sections::Sections;
use crate::event::BuildId;
use crate::profile::Names;

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
    module: Module,
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
                Ok((sections, text, moved)) => {
                    let believed = Believed {
                        binary: Some(Opened { path, sections }),
                        debug: None,
                        loads: Vec::new(),
                        verified: true,
                    };
                    return Some(Vmlinux {
                        module: Module::open(believed, lines, search, warn),
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

    /// The image's sections, the runtime addresses of its code, and by how much they were moved.
    fn open(
        kernel: &KernelIdentity,
        path: &Path,
    ) -> Result<(Rc<Sections>, Range<u64>, u64), String> {
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
        Ok((sections, kernel.stext..end.wrapping_add(moved), moved))
    }

    /// What the image says of a runtime address.
    pub fn symbol(
        &mut self,
        address: u64,
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Option<Symbol> {
        if !self.text.contains(&address) {
            return None;
        }
        let inside = address.wrapping_sub(self.moved);
        let symbol = self.module.symbol(inside, names, warn);
        symbol.filter(|_| !self.module.has_shrunk())
    }
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
