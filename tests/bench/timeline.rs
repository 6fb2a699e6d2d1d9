//! What it takes to find what was mapped at an address of a process at a time: among few mappings and many, read at once or
//! told one by one, of processes with one image and with many.

use std::hint::black_box;

use bprof::event::{Origin, Pid, ProcessKey, Timestamp, prot};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Space};
use bprof::timeline::{Tables, Timeline};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

mod support;
use support::synthetic::Random;

const LEN: u64 = 0x10_000;
const LOOK_UPS: u64 = 10_000;

/// The processes of a segment.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    processes: u32,
    /// Programs each has run, one after the other.
    images: u64,
    /// Of each image, read at once.
    listed: u64,
    /// Of each image, made later one by one.
    added: u64,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "1 process, 8 mappings",
        processes: 1,
        images: 1,
        listed: 8,
        added: 0,
    },
    Shape {
        name: "10,000 processes, 12 mappings",
        processes: 10_000,
        images: 1,
        listed: 12,
        added: 0,
    },
    Shape {
        name: "20 processes, 10,000 mappings",
        processes: 20,
        images: 1,
        listed: 8000,
        added: 2000,
    },
    Shape {
        name: "100 processes, 50 images of 100 mappings",
        processes: 100,
        images: 50,
        listed: 60,
        added: 40,
    },
];

/// When image `number` of a process began.
fn begins(number: u64) -> u64 {
    1_000_000_000 + number * 1_000_000_000
}

fn mapped_at(number: u64) -> u64 {
    0x7f00_0000_0000 + number * LEN * 2
}

struct Recorded {
    shape: Shape,
    mappings: Vec<MappingTemplate>,
    spaces: Vec<Space>,
    records: Vec<ProcessRecord>,
}

impl Recorded {
    fn new(shape: Shape) -> Recorded {
        let mapping = MappingTemplate {
            file: 0,
            file_offset: 0x1000,
            len: LEN,
            prot: prot::READ | prot::EXEC,
        };
        let place = |number| PlacedMapping {
            start: mapped_at(number),
            mapping: 0,
        };
        let list = Space {
            mappings: (0..shape.listed).map(place).collect(),
        };
        let origin = Origin::Event;
        let mut records = Vec::new();
        for process in 0..shape.processes {
            let key = ProcessKey {
                tgid: Pid(process + 1),
                start_time: Timestamp(u64::from(process)),
            };
            records.push(ProcessRecord::Process {
                key,
                parent: Pid(1),
                kernel: false,
                origin,
                cgroup: None,
            });
            for image in 0..shape.images {
                let time = Timestamp(begins(image));
                records.push(ProcessRecord::Image {
                    process,
                    time,
                    exec_number: image as u32,
                    comm: 0,
                    origin,
                });
                records.push(ProcessRecord::Space {
                    process,
                    time,
                    space: process,
                    origin,
                });
                records.extend((0..shape.added).map(|number| ProcessRecord::Map {
                    process,
                    time: Timestamp(time.0 + (number + 1) * 1000),
                    placed: place(shape.listed + number),
                }));
            }
        }
        Recorded {
            shape,
            mappings: vec![mapping],
            spaces: vec![list; shape.processes as usize],
            records,
        }
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            mappings: &self.mappings,
            spaces: &self.spaces,
        }
    }

    fn timeline(&self) -> Timeline {
        let mut timeline = Timeline::new();
        for record in &self.records {
            timeline.apply(record, self.tables());
        }
        timeline
    }

    /// Who, when, at which address: some time after everything has been mapped.
    fn questions(&self) -> Vec<(u32, Timestamp, u64)> {
        let mut random = Random(5);
        let mappings = self.shape.listed + self.shape.added;
        let mut one = || {
            let process = random.below(self.shape.processes.into()) as u32;
            let image = random.below(self.shape.images);
            let time = begins(image) + 500_000_000 + random.below(400_000_000);
            let address = mapped_at(random.below(mappings)) + random.below(LEN);
            (process, Timestamp(time), address)
        };
        (0..LOOK_UPS).map(|_| one()).collect()
    }
}

fn look_up(c: &mut Criterion) {
    let mut group = c.benchmark_group("timeline");
    for shape in SHAPES {
        let recorded = Recorded::new(shape);
        group.throughput(Throughput::Elements(recorded.records.len() as u64));
        group.bench_function(format!("{}: records taken in", shape.name), |b| {
            b.iter(|| recorded.timeline());
        });
        let (timeline, questions) = (recorded.timeline(), recorded.questions());
        let find = |(process, time, address): &(u32, Timestamp, u64)| {
            let (view, _) = timeline.view(*process, *time);
            timeline.locate(view, *address, recorded.tables())
        };
        assert!(questions.iter().all(|question| find(question).is_some()));
        group.throughput(Throughput::Elements(LOOK_UPS));
        group.bench_function(format!("{}: look-ups", shape.name), |b| {
            b.iter(|| questions.iter().for_each(|q| _ = black_box(find(q))));
        });
    }
    group.finish();
}

criterion_group!(benches, look_up);
criterion_main!(benches);
