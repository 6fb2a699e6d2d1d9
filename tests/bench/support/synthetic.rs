//! Captures of programs that never ran, written by the library's own writer: as deep, as wide and as busy as is asked for.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bprof::capture::{CaptureWriter, SampleInput};
use bprof::event::{BuildId, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp, prot};
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};
use bprof::format::samples::TaskId;
use object::{Object, ObjectSection};

/// xorshift64*: the same stream on every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }
}

/// The program whose code samples fall into: a real one, so that a report finds names.
#[derive(Debug, Clone)]
pub struct Program {
    file: MappedFile,
    bytes: u64,
    text: u64,
    text_len: u64,
}

impl Program {
    /// This benchmark itself.
    pub fn this() -> Program {
        Program::open(std::env::current_exe().expect("a program has a path"))
    }

    /// The ELF file at `path`.
    pub fn open(path: PathBuf) -> Program {
        let bytes = std::fs::read(&path).expect("a program can be read");
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        let text = elf.section_by_name(".text").and_then(|s| s.file_range());
        let (text, text_len) = text.expect("code");
        Program {
            file: MappedFile {
                kind: MappedKind::File,
                path: path.as_os_str().as_bytes().to_vec(),
                version: None,
                build_id: elf.build_id().ok().flatten().and_then(BuildId::new),
                inode: None,
                deleted: false,
            },
            bytes: bytes.len() as u64,
            text,
            text_len,
        }
    }
}

/// What a capture holds.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub samples: u64,
    /// Distinct call paths; each has seven leaf addresses.
    pub stacks: u64,
    /// Frames: about the fewest and the most.
    pub depth: (u64, u64),
    pub processes: u64,
    /// Of each process.
    pub mappings: u64,
    /// Every process has its code elsewhere and runs all the time; otherwise they come one after the other, sixteen at a
    /// time, with their code in the same place.
    pub apart: bool,
    /// Seconds after which a segment ends, as the recorder ends them; 0: only when it is full.
    pub segment: u64,
}

/// A server with a few threads of deep stacks.
pub const DEEP: Shape = Shape {
    name: "deep",
    samples: 20_000,
    stacks: 4096,
    depth: (20, 60),
    processes: 1,
    mappings: 8,
    apart: false,
    segment: 0,
};
/// Small programs in C.
pub const SHORT: Shape = Shape {
    name: "short",
    stacks: 64,
    depth: (3, 9),
    ..DEEP
};
/// A build: processes come and go.
pub const PROCESSES: Shape = Shape {
    name: "processes",
    stacks: 1000,
    depth: (8, 28),
    processes: 4000,
    ..DEEP
};
/// Programs of many libraries.
pub const MAPPINGS: Shape = Shape {
    name: "mappings",
    stacks: 4000,
    processes: 40,
    mappings: 1500,
    apart: true,
    ..DEEP
};
/// Hardly a stack comes twice.
pub const DISTINCT: Shape = Shape {
    name: "distinct",
    stacks: 1 << 20,
    ..DEEP
};

/// Functions that call each other.
const FUNCTIONS: u64 = 60;
/// Samples come this often (ns).
const PERIOD: u64 = 500_000;
/// Samples of a frame.
pub const FRAME: u64 = 2000;

pub fn header() -> Header {
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
        user_stacks: bprof::event::UserStacks::default(),
    }
}

/// Puts the samples of a shape into a writer, one after the other.
pub struct Feed<'a> {
    shape: Shape,
    program: &'a Program,
    /// In the open segment.
    tasks: Vec<Option<TaskId>>,
    random: Random,
    user: Vec<u64>,
}

impl<'a> Feed<'a> {
    pub fn new(shape: Shape, program: &'a Program) -> Feed<'a> {
        Feed {
            shape,
            program,
            tasks: vec![None; shape.processes as usize],
            random: Random(99),
            user: Vec::new(),
        }
    }

    /// Which process sample `i` is of, and its call path. Processes do not do each other's work, so that there are as many
    /// pairs of process and path as there are paths, or processes if these are more.
    fn place(&mut self, i: u64) -> (u64, u64) {
        let Shape {
            samples,
            stacks,
            processes,
            apart,
            ..
        } = self.shape;
        let process = if apart {
            self.random.below(processes)
        } else {
            let at_once = self.random.below(processes.min(16));
            (i * processes / samples.max(1) + at_once) % processes
        };
        // Odd, and no divisor of a power of ten: every path is taken.
        let own = i.wrapping_mul(2_654_435_761) % (stacks / processes).max(1);
        (process, (process + own * processes) % stacks)
    }

    /// Where mapping `number` of a process begins.
    fn mapped_at(&self, process: u64, number: u64) -> u64 {
        let pages = self.program.bytes.div_ceil(4096) + 1;
        let slide = if self.shape.apart {
            process * (self.shape.mappings * pages + 977)
        } else {
            0
        };
        (1 << 40) + (slide + number * pages) * 4096
    }

    /// The stack of sample `i`, leaf first; whose it is.
    pub fn stack(&mut self, i: u64) -> (&[u64], u64) {
        let (process, path) = self.place(i);
        let Shape {
            stacks,
            depth: (fewest, most),
            mappings,
            ..
        } = self.shape;
        // Root first. A decision between two functions, then some that only pass on; how many is decided by what has been
        // decided. So callers are shared as those of programs are.
        let decisions = u64::from(stacks.next_power_of_two().trailing_zeros()).max(1);
        let (least, more) = (fewest.div_ceil(decisions), (most - fewest) / decisions);
        self.user.clear();
        let mut seen = 1u64;
        for decision in (0..decisions).rev() {
            let choice = (path >> decision) & 1;
            seen = seen * 2 + choice;
            let mixed = seen.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            for step in 0..least + mixed % (more + 1) {
                let function = (decision * 2 + choice + step * (7 + mixed % 5)) % FUNCTIONS;
                let mapping = self.mapped_at(process, function * mappings / FUNCTIONS);
                let offset = function * (self.program.text_len / (FUNCTIONS + 4));
                self.user.push(mapping + self.program.text + offset);
            }
        }
        self.user.reverse();
        if let Some(leaf) = self.user.first_mut() {
            *leaf += i % 7 * 5;
        }
        (&self.user, process)
    }

    /// Writes sample `i`, and what it needs first.
    pub fn sample<W: Write>(&mut self, writer: &mut CaptureWriter<W>, i: u64) {
        let samples = self.shape.segment * 1_000_000_000 / PERIOD;
        if writer.segment_is_full() || (samples > 0 && i > 0 && i.is_multiple_of(samples)) {
            self.start_segment(writer);
        }
        let late = self.random.below(600);
        let time = Timestamp(50_000_000_000 + i * PERIOD + late);
        let (_, process) = self.stack(i);
        let task = match self.tasks[process as usize] {
            Some(task) => task,
            None => {
                let task = self.process(writer, process, time);
                *self.tasks[process as usize].insert(task)
            }
        };
        let sample = SampleInput {
            time,
            cpu: (i % 2) as u32,
            task,
            user: &self.user,
            kernel: &[],
            weight: 1,
            flags: 0,
            event: 0,
        };
        writer.sample(&sample).expect("room");
    }

    pub fn start_segment<W: Write>(&mut self, writer: &mut CaptureWriter<W>) {
        writer.start_segment().expect("a file");
        self.tasks.fill(None);
    }

    fn process<W: Write>(
        &self,
        writer: &mut CaptureWriter<W>,
        process: u64,
        time: Timestamp,
    ) -> TaskId {
        let pid = Pid(1000 + process as u32);
        let key = ProcessKey {
            tgid: pid,
            start_time: Timestamp(1_000_000 + process),
        };
        let comm = writer.string(b"bench").expect("room");
        let file = writer.file(&self.program.file).expect("room");
        let template = MappingTemplate {
            file,
            file_offset: 0,
            len: self.program.bytes,
            prot: prot::READ | prot::EXEC,
        };
        let mapping = writer.mapping(&template).expect("room");
        let placed = (0..self.shape.mappings).map(|number| PlacedMapping {
            start: self.mapped_at(process, number),
            mapping,
        });
        let space = writer.space(placed.collect()).expect("room");
        let origin = Origin::Event;
        let id = writer.add_process(key, Pid(1), false, origin, None);
        let id = id.expect("room");
        let image = ProcessRecord::Image {
            process: id,
            time,
            exec_number: 0,
            comm,
            origin,
        };
        writer.process(image).expect("room");
        let space = ProcessRecord::Space {
            process: id,
            time,
            space,
            origin,
        };
        writer.process(space).expect("room");
        let task = Task {
            process: id,
            tid: pid,
            exec_id: 1,
            comm,
        };
        writer.task(task).expect("room")
    }
}

/// A whole capture of `shape`, a frame each [`FRAME`] samples.
pub fn capture<W: Write>(shape: Shape, program: &Program, out: W) -> W {
    let mut writer = CaptureWriter::create(out, &header()).expect("a header");
    let mut feed = Feed::new(shape, program);
    for i in 0..shape.samples {
        feed.sample(&mut writer, i);
        if i % FRAME == FRAME - 1 {
            writer.flush().expect("a frame");
        }
    }
    let end = End {
        time: Timestamp(50_000_000_000 + shape.samples * PERIOD + PERIOD),
        reason: EndReason::Duration,
        samples: shape.samples,
        lost: 0,
        processes: shape.processes,
    };
    writer.finish(&end).expect("an end")
}
