//! From places to names: one batch per file, each offset once, then a [`Resolution`] for each place.

use hashbrown::HashMap;

use super::elf::{Module, Symbol};
use super::files::Disbelief;
use super::functions::{address_of, demangle};
use super::vmlinux::Vmlinux;
use super::{Code, FileNumber, Place, Symbolizer};
use crate::event::{MappedFile, MappedKind};
use crate::profile::{Frame, FrameKind, NameId, Names, Reason, Resolution, SymbolFrame};

impl Symbolizer {
    /// Resolves all places that are not yet: one batch per file, each offset once.
    pub fn resolve(&mut self, names: &mut Names) {
        self.take_in_files();
        let first = self.resolutions.len();
        let mut by_file: HashMap<FileNumber, Vec<u64>> = HashMap::new();
        let mut kernel = Vec::new();
        for place in self.places.places().iter().skip(first) {
            match place.code {
                Code::File(file, offset) => by_file.entry(file).or_default().push(offset),
                Code::Kernel(address) => kernel.push(address),
                _ => {}
            }
        }
        let mut files: Vec<(FileNumber, Vec<u64>)> = by_file.into_iter().collect();
        files.sort_unstable_by_key(|(file, _)| *file);
        let mut batches = Batches {
            files: files
                .into_iter()
                .map(|(file, offsets)| (file, self.batch(file, offsets, names)))
                .collect(),
            kernel: self.kernel_batch(kernel, names),
        };
        for i in first..self.places.places().len() {
            let Some(place) = self.places.places().get(i).copied() else {
                break;
            };
            let resolution = self.name(place, &mut batches, names);
            self.resolutions.push(resolution);
        }
    }

    /// All symbols of one file, by files of this machine. `offsets` ascend, each once.
    pub(super) fn batch_of_files(
        &mut self,
        file: FileNumber,
        offsets: Vec<u64>,
        names: &mut Names,
    ) -> Batch {
        let Some(entry) = self.files.get_mut(file as usize) else {
            return Batch::default();
        };
        let warnings = &mut self.warnings;
        let mut warn = |message| warnings.push(message);
        let finder = &mut self.finder;
        let lines = self.options.lines;
        let state = entry.state.get_or_insert_with(|| {
            let believed = finder.believe(&entry.file, &mut warn)?;
            Ok(Module::open(believed, lines, finder.search(), &mut warn))
        });
        let mut inside = HashMap::new();
        let symbols = match state {
            Err(disbelief) => Err(disbelief.reason),
            Ok(module) => {
                let symbols = module.symbols(&offsets, names, &mut warn);
                inside = module.inside(&offsets, &symbols);
                match module.has_shrunk() {
                    false => Ok((module.verified, symbols)),
                    true => Err(Reason::Unreadable),
                }
            }
        };
        if let (Err(Reason::Unreadable), Some(Ok(_))) = (&symbols, &entry.state) {
            let path = String::from_utf8_lossy(&entry.file.path);
            let message = format!("{path} became shorter while it was read");
            warn(format!("{message}: it gives no names from here on"));
            let reason = Reason::Unreadable;
            entry.state = Some(Err(Disbelief { reason, message }));
        }
        Batch {
            offsets,
            symbols,
            inside,
            ..Batch::default()
        }
    }

    /// What the image of the kernel says of addresses.
    fn kernel_batch(&mut self, mut addresses: Vec<u64>, names: &mut Names) -> Batch {
        if addresses.is_empty() {
            return Batch::default();
        }
        addresses.sort_unstable();
        addresses.dedup();
        let warnings = &mut self.warnings;
        let mut warn = |message| warnings.push(message);
        let (options, finder, identity) = (&self.options, &self.finder, &self.kernel_identity);
        let vmlinux = self.vmlinux.get_or_insert_with(|| {
            let given = options.vmlinux.as_deref();
            Vmlinux::find(identity, given, options.lines, finder.search(), &mut warn)
        });
        let Some(vmlinux) = vmlinux else {
            return Batch::default();
        };
        let symbols = Ok((true, vmlinux.symbols(&addresses, names, &mut warn)));
        Batch {
            offsets: addresses,
            symbols,
            ..Batch::default()
        }
    }

    fn name(&self, place: Place, batches: &mut Batches, names: &mut Names) -> Resolution {
        let back = u64::from(place.is_return);
        let user = |names: &mut Names, name: &str, module: &str| {
            Frame::new(names.intern(name), names.intern(module), FrameKind::User)
        };
        match place.code {
            Code::File(file, offset) => {
                let known = self.files.get(file as usize);
                let (module, label) = known.map_or(("", ""), |f| (&*f.name, &*f.label));
                let batch = batches.files.get(&file);
                match batch.map_or(Err(Reason::NoSymbol), |b| b.find(offset)) {
                    Ok((verified, symbol)) => {
                        let number = names.intern(module);
                        let whole = named_by_elf(symbol, (number, FrameKind::User), back, names);
                        let exact = whole.offset.is_none().then(|| {
                            let at = label_at(label, offset.saturating_add(back));
                            names.intern(&format!("{} {at}", names.text(symbol.name)))
                        });
                        Resolution {
                            unverified: !verified,
                            exact,
                            ..whole
                        }
                    }
                    Err(reason) => {
                        let inside = batch.and_then(|batch| batch.inside.get(&offset).copied());
                        let code = Nameless {
                            image: label,
                            module,
                            offset,
                            inside: inside.filter(|_| reason == Reason::NoSymbol),
                        };
                        code.resolution(back, reason, names)
                    }
                }
            }
            Code::Vdso(offset) => {
                let image = self.vdso.as_ref();
                let found = image.and_then(|v| {
                    let address = address_of(&v.loads, offset)?;
                    let function = v.functions.function(v.functions.find(address)?)?;
                    Some((v.functions.name(function), address - function.start))
                });
                match found {
                    Some((name, inside)) => {
                        named(user(names, name, "[vdso]"), Some(inside + back), names)
                    }
                    None => {
                        let reason = if image.is_some() {
                            Reason::NoSymbol
                        } else {
                            Reason::NoVdso
                        };
                        let code = Nameless {
                            image: "vdso",
                            module: "[vdso]",
                            offset,
                            inside: image.and_then(|v| v.inside(offset)),
                        };
                        code.resolution(back, reason, names)
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
                let batch = batches.kernel.find(address);
                let image = batch.ok().map(|(_, symbol)| symbol);
                self.kernel_name(address, back, image, names)
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

impl Symbolizer {
    /// The saved symbol of a kernel address, with what the kernel's `image` adds to it: inlined functions and lines.
    fn kernel_name(
        &self,
        address: u64,
        back: u64,
        image: Option<&Symbol>,
        names: &mut Names,
    ) -> Resolution {
        let found = self.kernel.find(address);
        let module = found.and_then(|s| s.module.as_deref()).unwrap_or("kernel");
        let module = names.intern(&format!("[{module}]"));
        if let Some(packed) = self.packed_kernel(address, names) {
            return named_by_elf(&packed, (module, FrameKind::Kernel), back, names);
        }
        if let Some(image) = image {
            let saved = found.map(|s| (names.intern(&demangle(&s.name)), Some(address - s.start)));
            let (name, offset) = saved.unwrap_or((image.name, image.offset));
            let symbol = Symbol {
                name,
                offset,
                ..image.clone()
            };
            return named_by_elf(&symbol, (module, FrameKind::Kernel), back, names);
        }
        let name = found.map_or_else(
            || format!("[kernel+{:#x}]", address.saturating_add(back)),
            |s| demangle(&s.name),
        );
        let frame = Frame::new(names.intern(&name), module, FrameKind::Kernel);
        match found {
            Some(s) => named(frame, Some(address - s.start + back), names),
            None => unnamed(frame, Reason::NoKernelSymbol, names),
        }
    }
}

/// Code without a name.
struct Nameless<'a> {
    /// What labels call the file.
    image: &'a str,
    module: &'a str,
    offset: u64,
    /// How many bytes after the beginning of a function it is.
    inside: Option<u64>,
}

impl Nameless<'_> {
    /// All of a function has one label, by where it begins.
    fn resolution(&self, back: u64, reason: Reason, names: &mut Names) -> Resolution {
        let exact = label_at(self.image, self.offset.saturating_add(back));
        let mut labelled = |label: &str| {
            let (label, module) = (names.intern(label), names.intern(self.module));
            unnamed(Frame::new(label, module, FrameKind::User), reason, names)
        };
        // Captures can say anything.
        let inside = self.inside.filter(|inside| *inside <= self.offset);
        let Some(inside) = inside else {
            return labelled(&exact);
        };
        let function = labelled(&label_at(self.image, self.offset - inside));
        Resolution {
            offset: Some(inside.saturating_add(back)),
            exact: Some(names.intern(&exact)),
            ..function
        }
    }
}

/// What stands for code of a file that has no name.
fn label_at(module: &str, offset: u64) -> String {
    format!("[{module}+{offset:#x}]")
}

/// The label of memory that no file names.
pub(super) fn label(file: &MappedFile) -> (String, Reason) {
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
        exact: None,
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
    (module, kind): (NameId, FrameKind),
    back: u64,
    names: &mut Names,
) -> Resolution {
    let own = (symbol.name, symbol.source);
    let chain = std::iter::once(own)
        .chain(symbol.inlined.iter().copied())
        .enumerate()
        .map(|(depth, (name, source))| {
            let frame = Frame {
                inlined: depth > 0,
                ..Frame::new(name, module, kind)
            };
            SymbolFrame {
                frame: names.frame_id(frame),
                source,
            }
        })
        .collect();
    Resolution {
        chain,
        offset: symbol.offset.map(|offset| offset.saturating_add(back)),
        exact: None,
        unnamed: None,
        unverified: false,
    }
}

/// What was looked up before names are given.
struct Batches {
    files: HashMap<FileNumber, Batch>,
    kernel: Batch,
}

/// The symbols of one file at the offsets asked for.
pub(super) struct Batch {
    /// Ascending, each once.
    pub offsets: Vec<u64>,
    /// Whether the file's build ID was compared, and the symbols at `offsets`; or why there are none.
    pub symbols: Result<(bool, Vec<Option<Symbol>>), Reason>,
    /// Why some offsets have none, where it is not that the file has no symbol there.
    pub reasons: HashMap<u64, Reason>,
    /// Of offsets without a symbol: how many bytes after the beginning of their function they are, where that is known.
    pub inside: HashMap<u64, u64>,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            offsets: Vec::new(),
            symbols: Err(Reason::NoSymbol),
            reasons: HashMap::new(),
            inside: HashMap::new(),
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
