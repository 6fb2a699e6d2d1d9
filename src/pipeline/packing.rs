//! What `profiler pack` adds to a capture: which symbols, tables and files it lacks, and the frames of them.
//!
//! Only what is not packed yet is written, so that packing again adds nothing, and a pack that was interrupted is
//! completed by the next.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::Hits;
use crate::capture::pack::Room;
use crate::capture::{Appender, Pack};
use crate::elf_file::{OpenError, open_regular, read_build_id};
use crate::event::BuildId;
use crate::format::aid::Load;
use crate::format::descriptor::FrameKind;
use crate::format::limits;
use crate::format::packed::FileKey;
use crate::format::packed::file::{self, PieceHead, Role};
use crate::format::packed::symbols::{AtOffset, Builder};
use crate::format::packed::table::{PackedFunction, PackedTable};
use crate::mapped::Guarded;
use crate::profile::Reason;
use crate::symbolize::functions::{FunctionTable, KnownFunction, loads};
use crate::symbolize::{FilesUsed, HitFile, SymbolsByOffset};

/// Bytes of a packed file in one frame.
const PIECE: usize = 4 << 20;

/// How much is packed. Each level has all of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// The symbols, source lines and inlined functions of the addresses hit
    Hits,
    /// And the function symbols of the files hit
    Symtab,
    /// And these files with their debug files
    Full,
}

/// What is to be packed.
#[derive(Debug, Default)]
pub struct Plan {
    symbols: Vec<(FileKey, SymbolsByOffset)>,
    tables: Vec<(FileKey, FilesUsed)>,
    files: Vec<FilePlan>,
    /// Files that samples have frames in.
    pub hit: usize,
    /// Those of them whose names cannot be packed.
    pub missing: Vec<NotPacked>,
}

#[derive(Debug)]
struct FilePlan {
    key: FileKey,
    role: Role,
    path: PathBuf,
    size: u64,
    /// Bytes that are packed already, and their checksum.
    here: u64,
    crc: u32,
}

/// A file that cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotPacked {
    /// Path as recorded.
    pub path: Vec<u8>,
    /// Build ID as recorded.
    pub build_id: Option<BuildId>,
    /// Why.
    pub reason: Reason,
    /// Frames of samples that stay without a name.
    pub frames: u64,
}

/// What was packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Symbols of offsets, those included that say that there is none.
    pub symbols: u64,
    /// Symbol tables.
    pub tables: u64,
    /// Files.
    pub files: u64,
}

impl Plan {
    /// What `hits` have and `packed` lacks, up to `level`. Files that can no longer be looked at go to `warn`.
    pub fn new(hits: Hits, packed: &Pack, level: Level, warn: &mut dyn FnMut(&str)) -> Plan {
        let mut plan = Plan {
            hit: hits.files.len(),
            ..Plan::default()
        };
        if let Some((key, symbols)) = hits.kernel {
            plan.add_symbols(key, symbols, packed);
        }
        let mut taken: HashSet<(FileKey, Role)> = HashSet::new();
        for (hit, sources) in hits.files {
            let have = packed.symbols(&hit.file, &hit.unresolved);
            if let Some(reason) = hit.problem
                && have.contains(&None)
            {
                plan.missing.push(NotPacked {
                    path: hit.file.path.clone(),
                    build_id: hit.file.build_id.clone(),
                    reason,
                    frames: hit.unnamed,
                });
            }
            let (Some(key), Some(sources)) = (FileKey::of(&hit.file), sources) else {
                continue;
            };
            if level >= Level::Symtab
                && let Some((_, table)) = table(&sources)
                && functions(&table).count() as u64 > packed.table_functions(&hit.file)
            {
                plan.tables.push((key.clone(), sources.clone()));
            }
            if level >= Level::Full {
                let roles = [
                    (Role::Executable, sources.executable),
                    (Role::Debug, sources.debug),
                ];
                for (role, path) in roles {
                    let Some(path) = path else { continue };
                    // One content is packed once, whatever paths it was mapped by.
                    let path_matters = key.build_id.is_none();
                    let content = FileKey {
                        path: key
                            .path
                            .clone()
                            .into_iter()
                            .filter(|_| path_matters)
                            .collect(),
                        ..key.clone()
                    };
                    if !taken.insert((content, role)) {
                        continue;
                    }
                    match FilePlan::new(&hit, &key, role, path, packed) {
                        Ok(Some(file)) => plan.files.push(file),
                        Ok(None) => {}
                        Err(err) => warn(&format!("{err:#}; it is not packed")),
                    }
                }
            }
            plan.add_symbols(key, hit.symbols, packed);
        }
        plan
    }

    /// Those of `symbols` that say more than what is packed.
    fn add_symbols(&mut self, key: FileKey, symbols: SymbolsByOffset, packed: &Pack) {
        let offsets: Vec<u64> = symbols.iter().map(|(offset, _)| *offset).collect();
        let have = packed.symbols_of(&key, &offsets);
        let lacking = symbols.into_iter().zip(have);
        let lacking: SymbolsByOffset = lacking
            .filter(|((_, now), have)| says_more(now, have.as_ref()))
            .map(|(symbol, _)| symbol)
            .collect();
        if !lacking.is_empty() {
            self.symbols.push((key, lacking));
        }
    }

    /// Whether nothing is to be added.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty() && self.tables.is_empty() && self.files.is_empty()
    }

    /// Bytes of files that will be read.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|f| f.size).sum()
    }

    /// Appends everything, as far as `packed`, what is there already, leaves room. `progress` is told of bytes of files
    /// that are read.
    pub fn write<W: Write>(
        &self,
        out: &mut Appender<W>,
        packed: &Pack,
        progress: &mut dyn FnMut(u64),
        warn: &mut dyn FnMut(&str),
    ) -> Result<Done> {
        let mut done = Done::default();
        let mut content = Vec::new();
        let (mut symbols_room, mut tables_room) = (packed.symbols_room, packed.tables_room);
        let mut full = false;
        for (key, symbols) in &self.symbols {
            let mut builder = Builder::new(key.clone());
            let mut flush = |builder: Builder| -> Result<u64> {
                let symbols = builder.finish();
                if symbols.is_empty() {
                    return Ok(0);
                }
                content.clear();
                symbols.encode(&mut content)?;
                if !symbols_room.take(content.len() as u64, symbols.entries()) {
                    full = true;
                    return Ok(0);
                }
                out.frame(FrameKind::PackedSymbols, &content)?;
                Ok(symbols.len() as u64)
            };
            for (offset, symbol) in symbols {
                if builder.is_full() {
                    let next = Builder::new(key.clone());
                    done.symbols += flush(std::mem::replace(&mut builder, next))?;
                }
                if !builder.push(*offset, symbol) {
                    let path = String::from_utf8_lossy(&key.path);
                    warn(&format!(
                        "{path}: the name at offset {offset:#x} is too long to be packed"
                    ));
                }
            }
            done.symbols += flush(builder)?;
        }
        for (key, sources) in &self.tables {
            match write_table(key, sources, &mut tables_room, out)? {
                true => done.tables += 1,
                false => full = true,
            }
        }
        if full {
            warn("some symbols are not packed: the capture has as many as it may have");
        }
        for file in &self.files {
            match file.write(out, progress) {
                Ok(()) => done.files += 1,
                Err(Failed::Write(err)) => return Err(err),
                Err(Failed::Read(err)) => warn(&format!("{err:#}; it is not packed")),
            }
        }
        Ok(done)
    }
}

/// Whether what is known of an offset is worth packing beside what is packed of it.
fn says_more(now: &AtOffset, have: Option<&AtOffset>) -> bool {
    use AtOffset::{Nameless, Symbol};
    match (now, have) {
        (_, None) | (Symbol(_), Some(Nameless { .. })) => true,
        (Nameless { inside }, Some(Nameless { inside: have })) => {
            inside.is_some() && have.is_none()
        }
        (Nameless { .. }, Some(Symbol(_))) => false,
        (Symbol(now), Some(Symbol(have))) => now.source.is_some() && have.source.is_none(),
    }
}

/// Where the parts of a file are loaded, and its functions by its own symbol table and that of its debug file.
fn table(sources: &FilesUsed) -> Option<(Vec<Load>, FunctionTable)> {
    let map = |path: &Path| {
        let file = open_regular(path).ok()?;
        Guarded::new(&file).ok()
    };
    // Offsets are those of the mapped file; a debug file has other ones.
    let executable = map(sources.executable.as_deref()?)?;
    let debug = sources.debug.as_deref().and_then(map);
    let images = [&executable].into_iter().chain(&debug);
    let table = FunctionTable::of(images.map(|map| &**map));
    let loads = loads(&*executable);
    let shrunk = executable.has_shrunk() || debug.as_ref().is_some_and(Guarded::has_shrunk);
    (!shrunk).then_some((loads, table))
}

/// Those of its functions that are packed.
fn functions(table: &FunctionTable) -> impl Iterator<Item = KnownFunction<'_>> {
    table.all().filter(|function| function.size > 0)
}

/// Appends the functions of a file, by its own symbol table and that of its debug file, if there is room for them.
fn write_table<W: Write>(
    key: &FileKey,
    sources: &FilesUsed,
    room: &mut Room,
    out: &mut Appender<W>,
) -> Result<bool> {
    let Some((loads, table)) = table(sources) else {
        return Ok(true);
    };
    let functions: Vec<PackedFunction> = functions(&table)
        .map(|f| PackedFunction {
            start: f.start,
            len: f.size,
            name: f.name.to_owned(),
            sized: f.sized,
        })
        .collect();
    let mut rest = functions.as_slice();
    let mut content = Vec::new();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(PackedTable::fitting(rest).min(rest.len()));
        rest = later;
        let table = PackedTable {
            file: key.clone(),
            loads: loads.clone(),
            functions: now.to_vec(),
        };
        content.clear();
        table.encode(&mut content)?;
        if !room.take(content.len() as u64, now.len() as u64) {
            return Ok(false);
        }
        out.frame(FrameKind::PackedTable, &content)?;
    }
    Ok(true)
}

/// Why a file was not packed.
enum Failed {
    /// It could not be read: others may be.
    Read(anyhow::Error),
    /// The capture could not be written.
    Write(anyhow::Error),
}

impl FilePlan {
    /// What is to be done for one file; `None` when it is packed already.
    fn new(
        hit: &HitFile,
        key: &FileKey,
        role: Role,
        path: PathBuf,
        packed: &Pack,
    ) -> Result<Option<FilePlan>> {
        let file = open(&path)?;
        if let Some(wanted) = &key.build_id
            && !matches!(read_build_id(&file), Ok(Some(id)) if id == *wanted)
        {
            bail!("{} has changed", path.display());
        }
        let size = file
            .metadata()
            .with_context(|| format!("{} cannot be read", path.display()))?
            .len();
        if size > limits::PACKED_FILE {
            bail!(
                "{} has {size} bytes, more than the {} a capture takes",
                path.display(),
                limits::PACKED_FILE
            );
        }
        let known = packed.files(&hit.file);
        let known = known.iter().filter(|p| p.role == role);
        let mut same = known.clone().filter(|p| p.size == size);
        if known.clone().any(|p| p.here == p.size) {
            return Ok(None);
        }
        // Pieces of an interrupted pack are gone on with, under the key they have.
        let (key, here, crc) = match same.next() {
            Some(p) => (p.file.clone(), p.here, p.crc),
            None => (key.clone(), 0, 0),
        };
        Ok(Some(FilePlan {
            key,
            role,
            path,
            size,
            here,
            crc,
        }))
    }

    fn write<W: Write>(
        &self,
        out: &mut Appender<W>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Failed> {
        let shown = self.path.display();
        let unread = |err: io::Error| {
            Failed::Read(anyhow::Error::new(err).context(format!("{shown} cannot be read")))
        };
        let changed = || Failed::Read(anyhow::anyhow!("{shown} has changed"));
        let mut file = open(&self.path).map_err(Failed::Read)?;
        let mut bytes = Vec::with_capacity(PIECE.min(self.size as usize));
        let (mut offset, mut crc) = (0, 0);
        let mut content = Vec::new();
        loop {
            let piece = match self.here.checked_sub(offset) {
                Some(packed) if packed > 0 => packed.min(PIECE as u64),
                _ => (self.size - offset).min(PIECE as u64),
            };
            bytes.clear();
            (&mut file)
                .take(piece)
                .read_to_end(&mut bytes)
                .map_err(unread)?;
            if (bytes.len() as u64) < piece {
                return Err(changed());
            }
            crc = crc32c::crc32c_append(crc, &bytes);
            let begin = offset;
            offset += piece;
            if offset <= self.here {
                if offset == self.here && crc != self.crc {
                    return Err(changed());
                }
            } else {
                let head = PieceHead {
                    file: self.key.clone(),
                    role: self.role,
                    size: self.size,
                    offset: begin,
                    crc,
                };
                content.clear();
                file::encode(&mut content, &head, &bytes).map_err(|e| Failed::Write(e.into()))?;
                out.frame(FrameKind::PackedFile, &content)
                    .map_err(|e| Failed::Write(e.into()))?;
            }
            progress(piece);
            if offset == self.size {
                return Ok(());
            }
        }
    }
}

fn open(path: &Path) -> Result<File> {
    open_regular(path).map_err(|err| match err {
        OpenError::NotRegular => anyhow::anyhow!("{} is not a regular file", path.display()),
        OpenError::Io(err) => {
            anyhow::Error::new(err).context(format!("{} cannot be read", path.display()))
        }
    })
}
