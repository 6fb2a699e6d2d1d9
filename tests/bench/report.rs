//! What a report costs: captures counted, named by a real ELF file and printed. 1 million samples of 4,096 stacks, and
//! smaller ones of many processes, many mappings, and stacks that hardly come twice.
//!
//! `make bench-curves` measures the program itself, over sizes.

use std::hint::black_box;

use bprof::capture::Reader;
use bprof::pipeline::{self, Request};
use bprof::profile::Profile;
use bprof::report::{folded, top};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

mod support;
use support::synthetic::{DEEP, DISTINCT, MAPPINGS, PROCESSES, Program, Shape, capture};

const SHAPES: [Shape; 4] = [
    Shape {
        samples: 1_000_000,
        ..DEEP
    },
    Shape {
        samples: 100_000,
        ..PROCESSES
    },
    Shape {
        samples: 100_000,
        ..MAPPINGS
    },
    Shape {
        samples: 100_000,
        ..DISTINCT
    },
];

fn profile(bytes: Vec<u8>) -> Profile {
    let reader = Reader::from_bytes(bytes).unwrap();
    pipeline::profile(&reader, Request::default(), &mut (), &mut |_| {})
}

fn report(c: &mut Criterion) {
    let program = Program::this();
    for shape in SHAPES {
        let bytes = capture(shape, &program, Vec::new());
        let mut group = c.benchmark_group(format!("{} samples, {}", shape.samples, shape.name));
        group.sample_size(10);
        group.throughput(Throughput::Elements(shape.samples));
        group.bench_function("count and name", |b| {
            b.iter_batched(
                || bytes.clone(),
                |bytes| black_box(profile(bytes)),
                BatchSize::PerIteration,
            );
        });
        let counted = profile(bytes.clone());
        assert_eq!(counted.about.samples, shape.samples);
        group.bench_function("fold", |b| {
            b.iter(|| folded::write(black_box(&counted), &mut std::io::sink()).unwrap());
        });
        group.bench_function("top functions", |b| {
            b.iter(|| black_box(top::functions(&counted)));
        });
        group.finish();
    }
    // For measuring the program itself: `BENCH_KEEP=run.bprof cargo bench --bench report`.
    if let Some(path) = std::env::var_os("BENCH_KEEP") {
        std::fs::write(path, capture(SHAPES[0], &program, Vec::new())).unwrap();
    }
}

criterion_group!(benches, report);
criterion_main!(benches);
