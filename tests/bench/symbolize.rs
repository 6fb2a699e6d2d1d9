//! What names cost: distinct addresses of a large program, from opening its file on, with source lines and without, and
//! what blazesym takes for as much.
//!
//! The program is this benchmark itself, or `BENCH_ELF`; there must be debug information in it.

use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Builder, Input};
use bprof::event::{BuildId, MappedFile, MappedKind};
use bprof::profile::Names;
use bprof::symbolize::{Aid, Code, Options, Place, Symbolizer};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use object::{Object, ObjectSection};

/// Addresses at most.
const ADDRESSES: u64 = 500_000;

struct Program {
    path: PathBuf,
    file: MappedFile,
    offsets: Vec<u64>,
    addresses: Vec<u64>,
}

impl Program {
    fn open(path: PathBuf) -> Program {
        let bytes = std::fs::read(&path).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let text = elf.section_by_name(".text").unwrap();
        let (offset, len) = text.file_range().unwrap();
        let count = ADDRESSES.min(len);
        let steps = (0..count).map(|i| i * (len / count));
        Program {
            file: MappedFile {
                kind: MappedKind::File,
                path: path.as_os_str().as_bytes().to_vec(),
                version: None,
                build_id: elf.build_id().unwrap().and_then(BuildId::new),
                inode: None,
                deleted: false,
            },
            offsets: steps.clone().map(|step| offset + step).collect(),
            addresses: steps.map(|step| text.address() + step).collect(),
            path,
        }
    }

    /// A symbolizer that has been asked for all addresses and has answered none.
    fn asked(&self, lines: bool) -> Symbolizer {
        let options = Options {
            lines,
            ..Options::default()
        };
        let mut symbolizer = Symbolizer::new(options, Aid::default());
        let file = symbolizer.file(&self.file);
        for offset in &self.offsets {
            symbolizer.place(Place {
                code: Code::File(file, *offset),
                is_return: false,
            });
        }
        symbolizer
    }

    fn blazesym(&self, details: bool) -> usize {
        let symbolizer = Builder::default()
            .enable_auto_reload(false)
            .enable_code_info(details)
            .enable_inlined_fns(details)
            .build();
        let source = Source::Elf(Elf::new(Path::new(&self.path)));
        let input = Input::VirtOffset(self.addresses.as_slice());
        symbolizer.symbolize(&source, input).unwrap().len()
    }
}

fn symbolize(c: &mut Criterion) {
    let path = std::env::var_os("BENCH_ELF").map(PathBuf::from);
    let program = Program::open(path.unwrap_or_else(|| std::env::current_exe().unwrap()));
    let mut group = c.benchmark_group("distinct addresses named");
    group.sample_size(10);
    group.throughput(Throughput::Elements(program.offsets.len() as u64));
    for (name, lines) in [("names and inlined", false), ("with lines", true)] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || program.asked(lines),
                |mut symbolizer| {
                    let mut names = Names::default();
                    symbolizer.resolve(&mut names);
                    black_box((symbolizer, names))
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.bench_function("blazesym, names", |b| b.iter(|| program.blazesym(false)));
    group.bench_function("blazesym, with lines and inlined", |b| {
        b.iter(|| program.blazesym(true));
    });
    group.finish();
}

criterion_group!(benches, symbolize);
criterion_main!(benches);
