//! What names code, on real files that are compiled here.

mod aid;
mod broken;
mod debug_files;
mod files;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};

use super::resolve::label;
use super::*;
use crate::event::{BuildId, FileVersion, MappedKind};
use crate::format::aid::KernelSymbol;
use crate::profile::Names;

const C: &str = "
volatile int sink;
__attribute__((noinline)) int leaf(int x) { sink += x; return sink; }
static inline __attribute__((always_inline)) int inner(int x) { sink += x; return x * sink; }
static inline __attribute__((always_inline)) int middle(int x) { return inner(x) + 1; }
__attribute__((noinline)) int outer(int x) { return middle(x) + leaf(x); }
int main(void) { return outer(3); }
";

const ASM: &str = "
.text
.globl sized; .type sized,@function
sized: nop
label_inside: nop
nop
.size sized, 3
nop
nop
.globl sizeless; .type sizeless,@function
sizeless: nop
nop
.globl bare_label
bare_label: nop
nop
.globl version_marker
.set version_marker, 0
";

fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let path = dir.join(format!("{name}{}", if source == ASM { ".s" } else { ".c" }));
    fs::write(&path, source).unwrap();
    let status = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success(), "gcc {flags:?}");
    out
}

/// File offset of a symbol, and the recorded form of the file.
fn offset_of(path: &Path, symbol: &str) -> u64 {
    let bytes = fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let address = elf
        .symbols()
        .find(|s| s.name() == Ok(symbol))
        .unwrap()
        .address();
    let segment = elf
        .segments()
        .find(|s| (s.address()..s.address() + s.size()).contains(&address));
    let segment = segment.unwrap();
    address - segment.address() + segment.file_range().0
}

fn recorded(path: &Path) -> MappedFile {
    let bytes = fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let build_id = elf
        .section_by_name(".note.gnu.build-id")
        .map(|s| s.data().unwrap()[16..].to_vec());
    let meta = fs::metadata(path).unwrap();
    MappedFile {
        kind: MappedKind::File,
        path: path.as_os_str().as_bytes().to_vec(),
        version: build_id.is_none().then(|| FileVersion {
            size: meta.len(),
            mtime_sec: meta.mtime(),
            mtime_nsec: meta.mtime_nsec() as u32,
        }),
        build_id: build_id.and_then(|id| BuildId::new(&id)),
        inode: None,
        deleted: false,
    }
}

struct Resolved {
    chain: Vec<String>,
    offset: Option<u64>,
    unnamed: Option<Reason>,
    unverified: bool,
    lines: Vec<u32>,
}

/// A symbolizer with its names.
struct Fixture {
    symbolizer: Symbolizer,
    names: Names,
}

impl Fixture {
    fn new(options: Options, aid: Aid) -> Fixture {
        Fixture {
            symbolizer: Symbolizer::new(options, aid),
            names: Names::default(),
        }
    }
}

impl std::ops::Deref for Fixture {
    type Target = Symbolizer;
    fn deref(&self) -> &Symbolizer {
        &self.symbolizer
    }
}

impl std::ops::DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Symbolizer {
        &mut self.symbolizer
    }
}

fn resolve(fixture: &mut Fixture, code: Code, is_return: bool) -> Resolved {
    let Fixture { symbolizer, names } = fixture;
    let place = symbolizer.place(Place { code, is_return });
    symbolizer.resolve(names);
    let resolution = symbolizer.resolution(place).unwrap();
    let chain = resolution.chain.iter();
    Resolved {
        chain: chain
            .clone()
            .map(|part| {
                let frame = names.frames()[part.frame as usize];
                format!("{} {}", names.text(frame.name), names.text(frame.module))
            })
            .collect(),
        offset: resolution.offset,
        unnamed: resolution.unnamed,
        unverified: resolution.unverified,
        lines: chain
            .filter_map(|part| part.source.map(|s| s.line))
            .collect(),
    }
}

fn symbolizer() -> Fixture {
    Fixture::new(Options::default(), Aid::default())
}
