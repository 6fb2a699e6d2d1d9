//! What a report costs: 1 million samples of 4,096 stacks, counted, named by a real ELF file and printed.

use std::hint::black_box;

use bprof::capture::{CaptureWriter, Reader, SampleInput};
use bprof::event::{MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp};
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};
use bprof::pipeline;
use bprof::report::{folded, top};
use bprof::symbolize::Options;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use object::{Object, ObjectSection};

const SAMPLES: u64 = 1_000_000;
const STACKS: u64 = 4096;

fn header() -> Header {
    Header {
        host: "bench".to_owned(),
        boot_id: String::new(),
        kernel_release: String::new(),
        kernel_build_id: None,
        arch: "x86_64".to_owned(),
        page_size: 4096,
        clock_ticks: 100,
        cpus_online: 2,
        wall_offset_ns: 0,
        start_time: Timestamp(0),
        events: vec![EventInfo {
            name: "cpu-clock".to_owned(),
            sampling: Sampling::Frequency(999),
        }],
        target: "bench".to_owned(),
        user_stack_limit: 127,
        kernel_stack_limit: 127,
        tool: "bench".to_owned(),
        degraded: Vec::new(),
    }
}

/// A capture whose addresses are in the code of this very program.
fn capture(samples: u64) -> Vec<u8> {
    let exe = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&exe).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let (text, len) = elf.section_by_name(".text").unwrap().file_range().unwrap();
    let build_id = elf.build_id().unwrap().and_then(bprof::event::BuildId::new);
    let file = MappedFile {
        kind: MappedKind::File,
        path: exe.to_str().unwrap().into(),
        version: None,
        build_id,
        inode: None,
        deleted: false,
    };

    let mut w = CaptureWriter::create(Vec::new(), &header()).unwrap();
    let key = ProcessKey {
        tgid: Pid(7),
        start_time: Timestamp(1),
    };
    let process = w
        .add_process(key, Pid(1), false, Origin::Event, None)
        .unwrap();
    let comm = w.string(b"bench").unwrap();
    let time = Timestamp::ZERO;
    let origin = Origin::Snapshot;
    w.process(ProcessRecord::Image {
        process,
        time,
        exec_number: 0,
        comm,
        origin,
    })
    .unwrap();
    let file = w.file(&file).unwrap();
    let template = MappingTemplate {
        file,
        file_offset: 0,
        len: bytes.len() as u64,
        prot: 5,
    };
    let placed = PlacedMapping {
        start: 1 << 40,
        mapping: w.mapping(&template).unwrap(),
    };
    w.process(ProcessRecord::Map {
        process,
        time,
        placed,
    })
    .unwrap();
    let task = w
        .task(Task {
            process,
            tid: Pid(7),
            exec_id: 1,
            comm,
        })
        .unwrap();

    let mut user = Vec::new();
    for i in 0..samples {
        let path = (i * 2_654_435_761) % STACKS;
        user.clear();
        let depth = 20 + path % 40;
        // A binary choice at each of the inner levels, 60 functions, 7 instructions at the leaf.
        let mut push = |function: u64| user.push((1 << 40) + text + function * (len / 64));
        push(path % 60);
        (1..depth).for_each(|level| push((level + ((path >> (level % 12)) & 1) * 30) % 60));
        user[0] += i % 7;
        w.sample(&SampleInput {
            time: Timestamp(1_000_000_000 + i * 500_000),
            cpu: (i % 2) as u32,
            task,
            user: &user,
            kernel: &[],
            weight: 1,
            flags: 0,
            event: 0,
        })
        .unwrap();
        if i % 2000 == 1999 {
            w.flush().unwrap();
        }
    }
    let end = End {
        time: Timestamp(u64::MAX),
        reason: EndReason::Duration,
        samples,
        lost: 0,
        processes: 1,
    };
    w.finish(&end).unwrap()
}

fn report(c: &mut Criterion) {
    let bytes = capture(SAMPLES);
    let profile = |bytes: Vec<u8>| {
        let reader = Reader::from_bytes(bytes).unwrap();
        pipeline::profile(&reader, Options::default(), &mut (), &mut |_| {})
    };
    let mut group = c.benchmark_group("report of 1 million samples");
    group.sample_size(10);
    group.bench_function("count and name", |b| {
        b.iter_batched(
            || bytes.clone(),
            |bytes| black_box(profile(bytes)),
            BatchSize::PerIteration,
        );
    });
    let counted = profile(bytes.clone());
    group.bench_function("print folded", |b| {
        b.iter(|| folded::write(black_box(&counted), &mut std::io::sink()).unwrap());
    });
    group.bench_function("top functions", |b| {
        b.iter(|| black_box(top::functions(&counted)))
    });
    group.finish();
    // For measuring the program itself: `BENCH_KEEP=run.bprof cargo bench --bench report`.
    if let Some(path) = std::env::var_os("BENCH_KEEP") {
        std::fs::write(path, &bytes).unwrap();
    }
}

criterion_group!(benches, report);
criterion_main!(benches);
