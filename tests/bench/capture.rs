//! Cost of writing and reading captures, and their size, on a synthetic program: 4,096 call paths of 20 to
//! 60 frames through 60 functions, leaf addresses over seven instructions, 2,000 samples a second.
//!
//! `cargo bench --bench capture` prints bytes a sample for some zstd levels, then times.

use std::hint::black_box;

use bprof::capture::{CaptureWriter, Reader, SampleInput};
use bprof::event::{MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp, prot};
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};
use criterion::{Criterion, Throughput};

/// xorshift64*: the same stream on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }
}

/// Call paths, root first: a binary decision at each of 12 levels, with wrappers between them.
fn paths() -> Vec<Vec<u64>> {
    let text = 0x5581_1234_0000u64;
    let site = |function: u64, call: u64| text + function * 0x140 + 0x20 + call * 0x17;
    let mut random = Random(7);
    let extra: Vec<u64> = (0..64).map(|_| random.below(5)).collect();
    (0..4096u64)
        .map(|path| {
            let mut frames = vec![0x7f12_3456_7890, 0x7f12_3456_7955, site(0, 0)];
            let mut seen = 1;
            for level in 0..12 {
                let choice = (path >> level) & 1;
                seen = seen * 2 + choice;
                frames.push(site(1 + level * 2 + choice, choice));
                let wrappers = 1 + extra[(seen % 64) as usize] * u64::from(level % 2 == 0);
                for w in 0..wrappers {
                    frames.push(site(25 + (level * 3 + w) % 30, w));
                }
            }
            frames
        })
        .collect()
}

/// (time, cpu, path, leaf address)
fn samples(seconds: u64, paths: &[Vec<u64>]) -> Vec<(u64, u32, usize, u64)> {
    let mut random = Random(99);
    let mut out = Vec::new();
    for tick in 0..seconds * 1000 {
        for cpu in 0..2u32 {
            // A timer's latency: mostly a few hundred ns, now and then some us.
            let late = random.below(600)
                + if random.below(20) == 0 {
                    random.below(9000)
                } else {
                    0
                };
            let path = random.below(paths.len() as u64) as usize;
            let leaf = 0x5581_1234_9000 + (path as u64 % 4) * 0x200 + random.below(7) * 5;
            out.push((
                50_000_000_000 + tick * 1_000_000 + u64::from(cpu) * 300_000 + late,
                cpu,
                path,
                leaf,
            ));
        }
    }
    out
}

fn header() -> Header {
    Header {
        host: "bench".to_owned(),
        boot_id: "0b8ea4f6-2c1c-4d8e-9c63-d0d1a5d4c3b2".to_owned(),
        kernel_release: "6.18.0".to_owned(),
        kernel_build_id: None,
        arch: "x86_64".to_owned(),
        page_size: 4096,
        clock_ticks: 100,
        cpus_online: 2,
        wall_offset_ns: 1_700_000_000_000_000_000,
        start_time: Timestamp(50_000_000_000),
        events: vec![EventInfo {
            name: "cpu-clock".to_owned(),
            sampling: Sampling::Frequency(999),
        }],
        target: "system-wide".to_owned(),
        user_stack_limit: 127,
        kernel_stack_limit: 127,
        tool: "bench".to_owned(),
        degraded: vec![],
    }
}

fn begin<W: std::io::Write>(writer: &mut CaptureWriter<W>) -> Vec<u32> {
    let comm = writer.string(b"deepfp").unwrap();
    let file = MappedFile {
        kind: MappedKind::File,
        path: b"/usr/local/bin/deepfp".to_vec(),
        build_id: None,
        inode: None,
        version: None,
        deleted: false,
    };
    let file = writer.file(&file).unwrap();
    let mapping = MappingTemplate {
        file,
        file_offset: 0x1000,
        len: 0x9000,
        prot: prot::EXEC,
    };
    let mapping = writer.mapping(&mapping).unwrap();
    let space = writer
        .space(vec![PlacedMapping {
            start: 0x5581_1234_0000,
            mapping,
        }])
        .unwrap();
    let key = ProcessKey {
        tgid: Pid(4242),
        start_time: Timestamp(49_000_000_000),
    };
    let process = writer
        .add_process(key, Pid(1), false, Origin::Event, None)
        .unwrap();
    let time = Timestamp(49_000_000_000);
    let origin = Origin::Event;
    writer
        .process(ProcessRecord::Image {
            process,
            time,
            exec_number: 0,
            comm,
            origin,
        })
        .unwrap();
    writer
        .process(ProcessRecord::Space {
            process,
            time,
            space,
            origin,
        })
        .unwrap();
    let task = |tid| Task {
        process,
        tid: Pid(tid),
        exec_id: 3,
        comm,
    };
    vec![
        writer.task(task(4242)).unwrap(),
        writer.task(task(4243)).unwrap(),
    ]
}

/// Writes all, a frame each second; gives the capture.
fn record(seconds: u64, level: i32, per_second: usize) -> Vec<u8> {
    let paths = paths();
    let mut writer = CaptureWriter::create_with_level(Vec::new(), &header(), level).unwrap();
    let tasks = begin(&mut writer);
    let mut user = Vec::new();
    let mut count = 0;
    for (i, (time, cpu, path, leaf)) in samples(seconds, &paths).into_iter().enumerate() {
        if i % 2000 >= per_second {
            continue;
        }
        user.clear();
        user.push(leaf);
        user.extend(paths[path].iter().rev());
        let sample = SampleInput {
            time: Timestamp(time),
            cpu,
            task: tasks[cpu as usize],
            user: &user,
            kernel: &[],
            weight: 1,
            flags: 0,
            event: 0,
        };
        writer.sample(&sample).unwrap();
        count += 1;
        if count % per_second == 0 {
            writer.flush().unwrap();
        }
    }
    let end = End {
        time: Timestamp(60_000_000_000),
        reason: EndReason::Duration,
        samples: count as u64,
        lost: 0,
        processes: 1,
    };
    writer.finish(&end).unwrap()
}

fn read(reader: &Reader) -> u64 {
    let mut sum = 0u64;
    for mut segment in reader.segments() {
        while let Some(frame) = segment.next_frame().unwrap() {
            for sample in frame.samples {
                sum += u64::from(sample.user_stack) + sample.weight;
            }
        }
    }
    sum
}

/// Bytes a sample over ten seconds, by zstd level.
fn sizes() {
    let paths = paths();
    let depths = || paths.iter().map(Vec::len);
    let (min, max) = (depths().min().unwrap_or(0), depths().max().unwrap_or(0));
    println!("{} call paths of {min} to {max} frames", paths.len());
    for level in [1, 3, 6] {
        let bytes = record(10, level, 2000).len();
        println!(
            "zstd level {level}: {:.2} bytes a sample",
            bytes as f64 / 20_000.0
        );
    }
}

/// A writer and the stacks it is given.
fn sampling(c: &mut Criterion) {
    let paths = paths();
    let samples = samples(10, &paths);
    let stacks: Vec<Vec<u64>> = samples
        .iter()
        .map(|(.., path, leaf)| {
            std::iter::once(*leaf)
                .chain(paths[*path].iter().rev().copied())
                .collect()
        })
        .collect();
    let mut group = c.benchmark_group("write");
    group.sample_size(20);
    group.throughput(Throughput::Elements(stacks.len() as u64));
    let feed = |writer: &mut CaptureWriter<std::io::Sink>, task| {
        for ((time, cpu, ..), user) in samples.iter().zip(&stacks) {
            let sample = SampleInput {
                time: Timestamp(*time),
                cpu: *cpu,
                task,
                user,
                kernel: &[],
                weight: 1,
                flags: 0,
                event: 0,
            };
            writer.sample(&sample).unwrap();
        }
    };
    let mut writer = CaptureWriter::create(std::io::sink(), &header()).unwrap();
    let task = begin(&mut writer)[0];
    feed(&mut writer, task);
    writer.flush().unwrap();
    group.bench_function("sample, stack known", |b| {
        b.iter_custom(|rounds| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..rounds {
                let started = std::time::Instant::now();
                feed(&mut writer, task);
                total += started.elapsed();
                writer.flush().unwrap();
            }
            total
        });
    });
    group.bench_function("sample, empty tables", |b| {
        b.iter_custom(|rounds| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..rounds {
                writer.start_segment().unwrap();
                let task = begin(&mut writer)[0];
                let started = std::time::Instant::now();
                feed(&mut writer, task);
                total += started.elapsed();
            }
            total
        });
    });
    group.bench_function("flush, stacks known", |b| {
        writer.start_segment().unwrap();
        let task = begin(&mut writer)[0];
        feed(&mut writer, task);
        writer.flush().unwrap();
        b.iter_custom(|rounds| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..rounds {
                feed(&mut writer, task);
                let started = std::time::Instant::now();
                writer.flush().unwrap();
                total += started.elapsed();
            }
            total
        });
    });
    group.bench_function("ten frames, sampling and flushing", |b| {
        b.iter(|| record(10, 3, 2000).len());
    });
    group.finish();
}

fn reading(c: &mut Criterion) {
    let bytes = record(10, 3, 2000);
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(20_000));
    group.bench_function("every sample", |b| b.iter(|| black_box(read(&reader))));
    group.finish();
    c.bench_function("open", |b| {
        b.iter(|| Reader::from_bytes(black_box(bytes.clone())).unwrap())
    });
}

fn main() {
    sizes();
    let mut criterion = Criterion::default().configure_from_args();
    sampling(&mut criterion);
    reading(&mut criterion);
    criterion.final_summary();
}
