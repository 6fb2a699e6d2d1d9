//! A capture of everything that can be selected: segments and frames, processes that run several programs and move between
//! cgroups, threads, CPUs, events, cut and broken stacks, losses.

use bprof::capture::{CaptureWriter, Reader, SampleInput};
use bprof::event::{LossClass, MappedKind, Origin, Pid, ProcessKey, Timestamp, sample_flags};
use bprof::format::aid::{KernelSymbol, KernelSymbols};
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};

use crate::report::fixture::{BASE, KERNEL, LEN, header, memory};

/// xorshift64*: the same on every run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let wide = u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(n);
        (wide >> 64) as u64
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

pub const PIDS: [u32; 4] = [100, 200, 300, 400];
pub const COMMS: [&str; 3] = ["worker", "io; loop", "main"];
pub const PROGRAMS: [&str; 3] = [
    "/usr/bin/app",
    "/opt/tool/db",
    "/usr/lib/ld-linux-x86-64.so.2",
];
pub const CGROUPS: [&str; 3] = ["/system.slice", "/system.slice/db.service", "/user"];
pub const CPUS: u64 = 4;
/// First sample, and how long all of them take (ns).
pub const FIRST: u64 = 1_000_000_000;
pub const LASTS: u64 = 12_000_000_000;

const SEGMENTS: u64 = 3;
const FRAMES: u64 = 4;
const SAMPLES: u64 = 60;

/// The capture of `seed`.
pub fn reader(seed: u64) -> Reader {
    Reader::from_bytes(bytes(seed)).unwrap()
}

pub fn bytes(seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let event = |name: &str| EventInfo {
        name: name.to_owned(),
        sampling: Sampling::Frequency(99),
    };
    let header = Header {
        events: vec![event("cpu-clock"), event("page-faults")],
        ..header()
    };
    let mut writer = CaptureWriter::create(Vec::new(), &header).unwrap();
    let symbol = |at: u64| KernelSymbol {
        start: KERNEL + at * 0x100,
        end: KERNEL + at * 0x100 + 0x80,
        name: format!("kernel_{at}"),
        module: at.is_multiple_of(3).then(|| "nf_tables".to_owned()),
    };
    writer
        .kernel_symbols(&KernelSymbols {
            stext: KERNEL,
            symbols: (0..8).map(symbol).collect(),
        })
        .unwrap();
    for segment in 0..SEGMENTS {
        if segment > 0 {
            writer.start_segment().unwrap();
        }
        self::segment(&mut writer, segment, &mut random);
    }
    let end = End {
        time: Timestamp(FIRST + LASTS),
        reason: EndReason::Duration,
        samples: SEGMENTS * FRAMES * SAMPLES,
        lost: 0,
        processes: 4,
    };
    writer.finish(&end).unwrap()
}

fn segment(writer: &mut CaptureWriter<Vec<u8>>, segment: u64, random: &mut Random) {
    let length = LASTS / SEGMENTS;
    let begin = FIRST + segment * length;
    let mut execs = Vec::new();
    for (i, pid) in PIDS.iter().enumerate() {
        let key = ProcessKey {
            tgid: Pid(*pid),
            start_time: Timestamp(u64::from(*pid)),
        };
        let cgroup = writer.string(random.pick(&CGROUPS).as_bytes()).unwrap();
        let cgroup = random.chance(80).then_some(cgroup);
        let kernel = i == 3;
        let process = writer
            .add_process(key, Pid(1), kernel, Origin::Event, cgroup)
            .unwrap();
        let mut exec_times = vec![0];
        if !kernel && random.chance(60) {
            exec_times.push(begin + random.below(length));
        }
        for (number, time) in exec_times.iter().enumerate() {
            image(writer, process, *time, number as u32, random);
            if !kernel {
                let program = random.pick(&PROGRAMS);
                map(writer, process, *time, BASE, program);
                map(writer, process, *time, BASE + LEN, "/usr/lib/libshared.so");
            }
        }
        if random.chance(50) {
            let path = writer.string(random.pick(&CGROUPS).as_bytes()).unwrap();
            let time = exec_times.last().unwrap().max(&begin) + random.below(length / 4);
            let time = Timestamp(time);
            writer
                .process(ProcessRecord::Cgroup {
                    process,
                    time,
                    path,
                })
                .unwrap();
        }
        execs.push((process, exec_times));
    }
    for frame in 0..FRAMES {
        let step = length / FRAMES;
        let begin = begin + frame * step;
        for _ in 0..SAMPLES {
            let time = match random.chance(5) {
                // Frames overlap a little.
                true => (begin + random.below(step))
                    .saturating_sub(step / 8)
                    .max(FIRST),
                false => begin + random.below(step),
            };
            let at = random.below(PIDS.len() as u64) as usize;
            let (process, exec_times) = &execs[at];
            let execs = exec_times.iter().filter(|exec| **exec <= time).count() as u32;
            // Now and then of a program that the capture does not know.
            let exec_id = execs + 7 * u32::from(random.chance(3));
            let comm = writer.string(random.pick(&COMMS).as_bytes()).unwrap();
            let tid = Pid(PIDS[at] + random.below(3) as u32);
            let task = Task {
                process: *process,
                tid,
                exec_id,
                comm,
            };
            let task = writer.task(task).unwrap();
            let deep = if at == 3 { 0 } else { random.below(5) };
            let user: Vec<u64> = (0..deep).map(|_| user_address(random)).collect();
            let deep = if at == 3 || random.chance(40) {
                1 + random.below(3)
            } else {
                0
            };
            let kernel: Vec<u64> = (0..deep)
                .map(|_| KERNEL + random.below(9) * 0x100 + 8)
                .collect();
            let mut flags = 0;
            for (flag, percent) in [
                (sample_flags::USER_TRUNCATED, 10),
                (sample_flags::KERNEL_TRUNCATED, 5),
                (sample_flags::IN_EXEC, 5),
            ] {
                flags |= if random.chance(percent) { flag } else { 0 };
            }
            // One mark is all a stack has.
            if flags & sample_flags::USER_TRUNCATED != 0 {
                flags &= !sample_flags::KERNEL_TRUNCATED;
            }
            let sample = SampleInput {
                time: Timestamp(time),
                cpu: random.below(CPUS) as u32,
                task,
                user: &user,
                kernel: &kernel,
                weight: 1 + random.below(3),
                flags,
                event: u8::from(random.chance(20)),
            };
            writer.sample(&sample).unwrap();
        }
        if random.chance(50) {
            writer.loss(LossClass::RingFull, Some(0), 1 + random.below(9));
            writer.loss(LossClass::Idle, None, 1 + random.below(9));
        }
        writer.flush().unwrap();
    }
}

/// Mostly code; now and then nothing is there.
fn user_address(random: &mut Random) -> u64 {
    match random.chance(5) {
        true => 0x1000,
        false => BASE + random.below(2) * LEN + 0x100 * random.below(12),
    }
}

fn image(
    writer: &mut CaptureWriter<Vec<u8>>,
    process: u32,
    time: u64,
    exec_number: u32,
    random: &mut Random,
) {
    let comm = writer.string(random.pick(&COMMS).as_bytes()).unwrap();
    let time = Timestamp(time);
    writer
        .process(ProcessRecord::Image {
            process,
            time,
            exec_number,
            comm,
            origin: Origin::Event,
        })
        .unwrap();
}

fn map(writer: &mut CaptureWriter<Vec<u8>>, process: u32, time: u64, start: u64, path: &str) {
    let file = writer.file(&memory(MappedKind::File, path)).unwrap();
    let template = MappingTemplate {
        file,
        file_offset: 0,
        len: LEN,
        prot: 5,
    };
    let mapping = writer.mapping(&template).unwrap();
    let placed = PlacedMapping { start, mapping };
    let time = Timestamp(time);
    writer
        .process(ProcessRecord::Map {
            process,
            time,
            placed,
        })
        .unwrap();
}
