//! A machine of many CPUs that is not there: each CPU puts a sample into its ring each millisecond, and processes come and go.

use std::collections::VecDeque;
use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bprof::event::{BuildId, Pid, Timestamp, prot};
use bprof::record::bpf::types::{sample_flag, sample_head};
use bprof::record::maps::RawMapping;
use bprof::record::sideband::{SideEvent, SideKind};

use super::ring::Ring;
use crate::support::measured::Running;
use crate::support::synthetic::Random;

/// What is to be kept up with.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub name: &'static str,
    pub says: &'static str,
    pub user_frames: u64,
    /// Of one in ten samples, or of all when stacks are as deep as can be.
    pub kernel_frames: u64,
    pub always_in_kernel: bool,
    /// Distinct call paths, a power of two; each has seven leaf addresses.
    pub paths: u64,
    /// No two stacks have a caller in common: each frame may be any.
    pub unshared: bool,
    /// Short processes a second.
    pub storm: u64,
}

pub const LOADS: [Load; 5] = [
    Load {
        name: "usual",
        says: "46 user frames of 4,096 call paths, 12 kernel frames in one of ten",
        user_frames: 46,
        kernel_frames: 12,
        always_in_kernel: false,
        paths: 4096,
        unshared: false,
        storm: 0,
    },
    Load {
        name: "deepest",
        says: "127 user and 127 kernel frames of 4,096 call paths: 2.1 KB each",
        user_frames: 127,
        kernel_frames: 127,
        always_in_kernel: true,
        paths: 4096,
        unshared: false,
        storm: 0,
    },
    Load {
        name: "storm",
        says: "as usual, and 1,000 processes a second that fork, exec, map 5 files, run 8 ms and exit",
        user_frames: 46,
        kernel_frames: 12,
        always_in_kernel: false,
        paths: 4096,
        unshared: false,
        storm: 1000,
    },
    Load {
        name: "new",
        says: "46 user frames of a million call paths: most stacks have not been seen before",
        user_frames: 46,
        kernel_frames: 12,
        always_in_kernel: false,
        paths: 1 << 20,
        unshared: false,
        storm: 0,
    },
    Load {
        name: "unshared",
        says: "127 user and 127 kernel frames, each at random one of 4,096: no two stacks have callers in common",
        user_frames: 127,
        kernel_frames: 127,
        always_in_kernel: true,
        paths: 1,
        unshared: true,
        storm: 0,
    },
];

/// Of `bpf/profiler.h`.
const SHORT_FRAMES: usize = 8;
/// A short process is sampled this often, once a tick.
const SHORT_LIFE: u64 = 8;
/// Above every PID there can be: nothing in /proc is about a short process.
const NOBODY: u32 = 50_000_000;
const TEXT: u64 = 0x5581_1234_0000;
const TEXT_LEN: u64 = 0x10_0000;
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;
/// Call paths made once and kept; more are made when they are needed.
const KEPT: u64 = 4096;

/// A process that samples are of.
#[derive(Debug, Clone, Copy)]
struct Who {
    tgid: u32,
    start: u64,
    comm: &'static str,
    exec_id: u32,
}

pub struct Source {
    load: Load,
    /// Of each CPU: who always runs there.
    residents: Vec<Who>,
    /// They exist, so that the recorder finds them alive.
    _sleepers: Vec<Running>,
    /// Of each CPU: a short process, and for how many ticks it runs yet.
    shorts: Vec<Option<(Who, u64)>>,
    started: u64,
    paths: Vec<Vec<u64>>,
    kernel: Vec<Vec<u64>>,
    stack: Vec<u64>,
    random: Random,
    pub samples: u64,
    pub events: u64,
}

impl Source {
    /// A machine of `cpus` CPUs that boots at `now`; what that tells goes to `events`.
    pub fn new(
        load: Load,
        cpus: usize,
        now: u64,
        events: &mut VecDeque<SideEvent>,
    ) -> io::Result<Source> {
        let mut sleepers = Vec::new();
        for _ in 0..cpus {
            sleepers.push(Running::start(Command::new("sleep").arg("infinity"))?);
        }
        let resident = |(i, sleeper): (usize, &Running)| Who {
            tgid: sleeper.pid().cast_unsigned(),
            start: now + i as u64 * 10_000,
            comm: "server",
            exec_id: 2,
        };
        let mut source = Source {
            load,
            residents: sleepers.iter().enumerate().map(resident).collect(),
            _sleepers: sleepers,
            shorts: vec![None; cpus],
            started: 0,
            paths: Vec::new(),
            kernel: (0..if load.unshared { 1 } else { 64 })
                .map(|path: u64| {
                    let frame = |level: u64| {
                        KERNEL_TEXT + (level * 2 + ((path >> (level % 6)) & 1)) * 0x140 + 0x33
                    };
                    (0..load.kernel_frames).rev().map(frame).collect()
                })
                .collect(),
            stack: Vec::new(),
            random: Random(1234),
            samples: 0,
            events: 0,
        };
        for path in 0..KEPT.min(load.paths) {
            source.make_stack(path);
            source.paths.push(source.stack.clone());
        }
        for who in source.residents.clone() {
            source.start(who, 1, 24, who.start, events);
        }
        Ok(source)
    }

    /// Leaf first. What a level calls is decided by one bit of the path, those of the root by its first: callers are shared
    /// as those of programs are.
    fn make_stack(&mut self, path: u64) {
        self.stack.clear();
        let (frames, bits) = (self.load.user_frames, self.load.paths.trailing_zeros());
        for level in (0..frames).rev() {
            let told = level * u64::from(bits) / frames;
            let choice = (path >> (u64::from(bits) - 1 - told)) & 1;
            let function = (level * 2 + choice * 61) % 256;
            self.stack.push(TEXT + 0x1000 + function * 0x340 + 0x47);
        }
    }

    /// `who` is forked, runs its program and maps `mappings` files.
    fn start(
        &mut self,
        who: Who,
        parent: u32,
        mappings: u64,
        time: u64,
        events: &mut VecDeque<SideEvent>,
    ) {
        let (process, parent) = (Pid(who.tgid), Pid(parent));
        let mut tell = |after: u64, what| {
            let time = Timestamp(time + after);
            events.push_back(SideEvent { time, what });
        };
        tell(10, SideKind::Fork { process, parent });
        let comm = who.comm.as_bytes().to_vec();
        tell(100, SideKind::Exec { process, comm });
        for i in 0..mappings {
            let mapping = mapping(who.comm, i);
            tell(200 + i * 10, SideKind::Map { process, mapping });
        }
        self.events += 2 + mappings;
    }

    /// One millisecond that begins at `time`. Who reads the rings, then what was told, then the clock finds all that samples
    /// need, and nothing later than the clock.
    pub fn tick(
        &mut self,
        time: u64,
        rings: &[Ring],
        told: &Mutex<VecDeque<SideEvent>>,
        clock: &AtomicU64,
    ) {
        let events = &mut *told.lock().expect("nobody panics");
        clock.store(time + 1_000_000, Ordering::Release);
        // A process that runs so many ticks takes a CPU for as long.
        let busy = (self.load.storm * SHORT_LIFE / 1000) as usize;
        for (cpu, ring) in rings.iter().enumerate() {
            // CPUs are not in step.
            let mut at = time + cpu as u64 * 2000 + self.random.below(600);
            let mut who = self.residents[cpu];
            if cpu < busy {
                who = self.short(cpu, at, events);
                at += 1000;
            }
            self.sample(at, cpu as u32, who, ring);
        }
        self.samples += rings.len() as u64;
    }

    /// Who runs on a CPU of short processes.
    fn short(&mut self, cpu: usize, time: u64, events: &mut VecDeque<SideEvent>) -> Who {
        let (who, left) = match self.shorts[cpu] {
            Some((who, left)) if left > 0 => (who, left),
            ended => {
                if let Some((who, _)) = ended {
                    let process = Pid(who.tgid);
                    let what = SideKind::Exit { process };
                    let time = Timestamp(time);
                    events.push_back(SideEvent { time, what });
                    self.events += 1;
                }
                self.started += 1;
                let who = Who {
                    tgid: NOBODY + self.started as u32,
                    start: time + 5,
                    comm: "short",
                    exec_id: 3,
                };
                self.start(who, self.residents[cpu].tgid, 5, time, events);
                (who, SHORT_LIFE)
            }
        };
        self.shorts[cpu] = Some((who, left - 1));
        who
    }

    fn sample(&mut self, time: u64, cpu: u32, who: Who, ring: &Ring) {
        if self.load.unshared {
            let stacks = self.paths.iter_mut().take(1).map(|user| (user, TEXT));
            let stacks = stacks.chain(self.kernel.iter_mut().map(|kernel| (kernel, KERNEL_TEXT)));
            for (stack, text) in stacks {
                for frame in stack {
                    *frame = text + 0x1000 + self.random.below(4096) * 0x40 + 7;
                }
            }
        }
        let path = self.random.below(self.load.paths);
        let leaf = self.random.below(7) * 5;
        if path >= KEPT {
            self.make_stack(path);
        }
        let user = match self.paths.get_mut(path as usize) {
            Some(kept) => kept,
            None => &mut self.stack,
        };
        let plain = user[0];
        user[0] += leaf;
        let in_kernel = self.load.always_in_kernel || self.random.below(10) == 0;
        let kernel = match in_kernel {
            true => &self.kernel[self.random.below(self.kernel.len() as u64) as usize][..],
            false => &[],
        };
        // As the sampling program does it: rather a stack that is cut than no sample.
        let short = ring.is_nearly_full();
        let kept = |stack| match short {
            true => <[u64]>::get(stack, ..SHORT_FRAMES).unwrap_or(stack),
            false => stack,
        };
        let (kernel, kept_user) = (kept(kernel), kept(&user[..]));
        let mut flags = 0;
        if in_kernel {
            flags |= sample_flag::SAMPLE_IN_KERNEL.0;
        }
        if short {
            flags |= sample_flag::SAMPLE_SHORT.0;
        }
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(who.comm.bytes()) {
            *to = from as _;
        }
        let head = sample_head {
            time,
            start_time: who.start,
            cgroup_id: 0,
            tgid: who.tgid,
            tid: who.tgid,
            exec_id: who.exec_id,
            cpu,
            kernel_frames: kernel.len() as i16,
            user_frames: kept_user.len() as i16,
            flags: sample_flag(flags),
            comm,
        };
        const WORDS: usize = size_of::<sample_head>() / 8;
        // SAFETY: plain integers without padding, as many bytes as the words.
        let words: [u64; WORDS] = unsafe { std::mem::transmute(head) };
        ring.put([&words, kernel, kept_user]);
        user[0] = plain;
    }
}

/// Mapping `number` of a program; the first is its own code.
fn mapping(program: &str, number: u64) -> RawMapping {
    let path = match number {
        0 => format!("/opt/bench/{program}"),
        _ => format!("/opt/bench/lib/libpart{number}.so.6"),
    };
    let start = match number {
        0 => TEXT,
        _ => 0x7f00_0000_0000 + number * 4 * TEXT_LEN,
    };
    RawMapping {
        start,
        end: start + TEXT_LEN,
        file_offset: 0x1000,
        prot: prot::READ | prot::EXEC,
        // Nothing is to be read for a file of which the kernel tells the build ID.
        build_id: BuildId::new(
            format!("{path:.<20}")
                .as_bytes()
                .get(..20)
                .unwrap_or(b"bench"),
        ),
        path: path.into_bytes(),
        inode: None,
    }
}
