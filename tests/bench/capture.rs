//! Cost of writing and reading captures, and their size, for programs of several shapes: deep stacks of 4,096 call paths,
//! short ones, thousands of processes, processes with 1,500 mappings each, stacks that hardly come twice.
//!
//! `cargo bench --bench capture` prints bytes a sample for each shape and some zstd levels, then times. Times are of 20,000
//! samples: of `trie` stacks interned, of `encode` frames written, of `decode` frames read.

use std::hint::black_box;
use std::io::Sink;
use std::time::{Duration, Instant};

use bprof::capture::{CaptureWriter, Reader};
use criterion::{Criterion, Throughput};

mod support;
use support::synthetic::{
    DEEP, DISTINCT, FRAME, Feed, MAPPINGS, PROCESSES, Program, SHORT, Shape, capture, header,
};

const SHAPES: [Shape; 5] = [DEEP, SHORT, PROCESSES, MAPPINGS, DISTINCT];

fn writer(level: i32) -> CaptureWriter<Sink> {
    CaptureWriter::create_with_level(std::io::sink(), &header(), level).unwrap()
}

/// Bytes a sample over ten seconds, by zstd level.
fn sizes(program: &Program) {
    println!("bytes a sample      zstd level 1      3      6");
    for shape in SHAPES {
        let sizes = [1, 3, 6].map(|level| {
            let mut writer = writer(level);
            let mut feed = Feed::new(shape, program);
            for i in 0..shape.samples {
                feed.sample(&mut writer, i);
                if i % FRAME == FRAME - 1 {
                    writer.flush().unwrap();
                }
            }
            writer.bytes_written() as f64 / shape.samples as f64
        });
        let [fast, usual, small] = sizes;
        println!("{:<26}{fast:>6.2} {usual:>6.2} {small:>6.2}", shape.name);
    }
}

/// Sums what `part` takes, `rounds` times.
fn timed(rounds: u64, mut part: impl FnMut() -> Duration) -> Duration {
    (0..rounds).map(|_| part()).sum()
}

/// Stacks to their numbers: what the recorder does with each sample first.
fn trie(c: &mut Criterion, program: &Program) {
    let mut group = c.benchmark_group("trie");
    group.sample_size(20);
    for shape in [DEEP, SHORT, DISTINCT] {
        group.throughput(Throughput::Elements(shape.samples));
        let mut feed = Feed::new(shape, program);
        let stacks: Vec<Vec<u64>> = (0..shape.samples)
            .map(|i| feed.stack(i).0.to_vec())
            .collect();
        // A system call, as every tenth sample is in one.
        let kernel: Vec<u64> = (0..12)
            .map(|i| 0xffff_ffff_8100_0000 + i * 0x1234)
            .collect();
        let mut writer = writer(3);
        let intern = |writer: &mut CaptureWriter<Sink>| {
            let began = Instant::now();
            for (i, user) in stacks.iter().enumerate() {
                let kernel = if i % 10 == 0 { &kernel[i % 3..] } else { &[] };
                black_box(writer.stacks(user, kernel).unwrap());
            }
            began.elapsed()
        };
        intern(&mut writer);
        group.bench_function(format!("{}, known", shape.name), |b| {
            b.iter_custom(|rounds| timed(rounds, || intern(&mut writer)));
        });
        group.bench_function(format!("{}, empty tables", shape.name), |b| {
            b.iter_custom(|rounds| {
                timed(rounds, || {
                    writer.start_segment().unwrap();
                    intern(&mut writer)
                })
            });
        });
    }
    group.finish();
}

/// Frames to bytes: what the recorder does each second.
fn encode(c: &mut Criterion, program: &Program) {
    let mut group = c.benchmark_group("encode");
    group.sample_size(20);
    for shape in SHAPES {
        group.throughput(Throughput::Elements(shape.samples));
        let mut writer = writer(3);
        let mut feed = Feed::new(shape, program);
        let frames = |writer: &mut CaptureWriter<Sink>, feed: &mut Feed<'_>| {
            let mut spent = Duration::ZERO;
            for i in 0..shape.samples {
                feed.sample(writer, i);
                if i % FRAME == FRAME - 1 {
                    let began = Instant::now();
                    writer.flush().unwrap();
                    spent += began.elapsed();
                }
            }
            spent
        };
        group.bench_function(format!("{}, empty tables", shape.name), |b| {
            b.iter_custom(|rounds| {
                timed(rounds, || {
                    feed.start_segment(&mut writer);
                    frames(&mut writer, &mut feed)
                })
            });
        });
        if shape.name != DISTINCT.name {
            group.bench_function(format!("{}, known", shape.name), |b| {
                b.iter_custom(|rounds| timed(rounds, || frames(&mut writer, &mut feed)));
            });
        }
        group.bench_function(format!("{}, samples and frames", shape.name), |b| {
            b.iter(|| capture(shape, program, std::io::sink()));
        });
    }
    group.finish();
}

/// Every sample, and the address its stack ends in.
fn read(reader: &Reader) -> u64 {
    let mut sum = 0u64;
    for mut segment in reader.segments() {
        while let Some(frame) = segment.next_frame().unwrap() {
            for sample in frame.samples {
                let leaf = frame.tables.user.frames(sample.user_stack).next();
                sum = sum.wrapping_add(leaf.unwrap_or(0) + sample.weight);
            }
        }
    }
    sum
}

fn decode(c: &mut Criterion, program: &Program) {
    let mut group = c.benchmark_group("decode");
    for shape in SHAPES {
        group.throughput(Throughput::Elements(shape.samples));
        let bytes = capture(shape, program, Vec::new());
        let reader = Reader::from_bytes(bytes.clone()).unwrap();
        assert_eq!(reader.samples(), shape.samples);
        group.bench_function(shape.name, |b| b.iter(|| black_box(read(&reader))));
        if shape.name == DEEP.name {
            group.bench_function("open", |b| {
                b.iter(|| Reader::from_bytes(black_box(bytes.clone())).unwrap());
            });
        }
    }
    group.finish();
}

fn main() {
    let program = Program::this();
    sizes(&program);
    let mut criterion = Criterion::default().configure_from_args();
    trie(&mut criterion, &program);
    encode(&mut criterion, &program);
    decode(&mut criterion, &program);
    criterion.final_summary();
}
