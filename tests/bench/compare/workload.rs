//! The programs that are recorded: built, started, and read from outside.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use memmap2::Mmap;
use serde::Serialize;

use crate::support::measured::Running;

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// One process of deep stacks, a thread for each CPU, and only that is recorded.
    Deep,
    /// The same, built without frame pointers.
    NoFramePointers,
    /// The same with half a KiB of stack more for each function.
    LargeFrames,
    /// A program in Rust, whose standard library has no frame pointers either.
    Rust,
    /// As the first, beside it short processes, and the whole system is recorded.
    Mixed,
}

/// Short processes a second.
const SHORTS: u32 = 60;

impl Mix {
    pub fn name(self) -> &'static str {
        match self {
            Mix::Deep => "deep",
            Mix::NoFramePointers => "nofp",
            Mix::LargeFrames => "nofpbig",
            Mix::Rust => "nofprust",
            Mix::Mixed => "mix",
        }
    }

    pub fn says(self) -> &'static str {
        match self {
            Mix::Deep => {
                "-p of a process with a thread for each CPU, 4,096 call paths of 25 to 60 frames"
            }
            Mix::NoFramePointers => "as deep, built without frame pointers: stacks of 1 to 3 KiB",
            Mix::LargeFrames => {
                "as deep, built without frame pointers and with large frames: stacks of 15 to 36 KiB"
            }
            Mix::Rust => "as nofp, in Rust: trait objects, closures, 35 to 45 frames",
            Mix::Mixed => "-a; a process as of deep, and 60 short processes a second",
        }
    }

    pub fn named(name: &str) -> Option<Mix> {
        let all = [
            Mix::Deep,
            Mix::NoFramePointers,
            Mix::LargeFrames,
            Mix::Rust,
            Mix::Mixed,
        ];
        all.into_iter().find(|one| one.name() == name)
    }

    /// Which of [`PROGRAMS`] has the deep stacks.
    fn program(self) -> &'static str {
        match self {
            Mix::Deep | Mix::Mixed => "paths",
            Mix::NoFramePointers => "paths_nofp",
            Mix::LargeFrames => "paths_nofpbig",
            Mix::Rust => RUST,
        }
    }
}

/// In leaf functions too.
const WITH: [&str; 2] = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
const WITHOUT: [&str; 2] = ["-fomit-frame-pointer", "-momit-leaf-frame-pointer"];
/// Name, source, flags.
const PROGRAMS: [(&str, &str, [&str; 2], &str); 4] = [
    ("paths", "paths.c", WITH, "-O2"),
    ("paths_nofp", "paths.c", WITHOUT, "-O2"),
    ("paths_nofpbig", "paths.c", WITHOUT, "-DPAD=512"),
    ("shorts", "shorts.c", WITH, "-O2"),
];
/// Built by rustc.
const RUST: &str = "paths_rust";
/// The function that each thread begins with: a stack without it was cut.
pub const ROOT: &str = "lane";
/// As `lanes.h` has it.
const LANE: usize = 64;

/// Compiles the workloads into `work`.
pub fn build(work: &Path) -> Result<()> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bench/workloads");
    for (program, source, frames, more) in PROGRAMS {
        let status = Command::new("gcc")
            .args(["-O2", "-pthread"])
            .args(frames)
            .arg(more)
            .arg("-o")
            .arg(work.join(program))
            .arg(sources.join(source))
            .status()
            .context("gcc cannot be run: make deps")?;
        ensure!(status.success(), "{program} cannot be built");
    }
    let status = Command::new("rustc")
        .args([
            "--edition=2024",
            "-O",
            "-C",
            "force-frame-pointers=no",
            "-o",
        ])
        .arg(work.join(RUST))
        .arg(sources.join("paths.rs"))
        .status()
        .context("rustc cannot be run")?;
    ensure!(status.success(), "{RUST} cannot be built");
    Ok(())
}

/// What a program has done by some moment.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Done {
    pub operations: u64,
    pub cpu_ns: u64,
}

impl Done {
    /// Since `earlier`.
    pub fn since(self, earlier: Done) -> Done {
        Done {
            operations: self.operations - earlier.operations,
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
        }
    }

    pub fn and(self, other: Done) -> Done {
        Done {
            operations: self.operations + other.operations,
            cpu_ns: self.cpu_ns + other.cpu_ns,
        }
    }
}

/// One program.
struct Part {
    running: Running,
    lanes: Mmap,
    /// Tells CPU time in its lanes, because its processes are gone when they are asked.
    tells_cpu: bool,
}

impl Part {
    fn start(work: &Path, program: &str, numbers: &[u32]) -> Result<Part> {
        let lanes: PathBuf = work.join(program).with_extension("lanes");
        let _ = fs::remove_file(&lanes);
        let mut command = Command::new(work.join(program));
        command.arg(&lanes).args(numbers.iter().map(u32::to_string));
        command.stdin(Stdio::null());
        let running = Running::start(&mut command)?;
        // It makes the file when it starts.
        for _ in 0..500 {
            if fs::metadata(&lanes).is_ok_and(|file| file.len() > 0) {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        let file = File::open(&lanes).with_context(|| format!("{program} has not started"))?;
        Ok(Part {
            running,
            // SAFETY: the file keeps its length, and its words are read as what another process may write.
            lanes: unsafe { Mmap::map(&file)? },
            tells_cpu: program == "shorts",
        })
    }

    fn word(&self, lane: usize, word: usize) -> u64 {
        let at = lane * LANE + word * 8;
        let bytes = &self.lanes[at..at + 8];
        // SAFETY: eight bytes, aligned as the mapping is; another process writes them as one word.
        unsafe { ptr::read_volatile(bytes.as_ptr().cast()) }
    }

    fn lane(&self, lane: usize) -> Done {
        loop {
            let operations = self.word(lane, 0);
            let cpu_ns = self.word(lane, 1);
            if self.word(lane, 0) == operations {
                return Done { operations, cpu_ns };
            }
            // One that is always under way tells no CPU time.
            if !self.tells_cpu {
                return Done { operations, cpu_ns };
            }
        }
    }

    fn done(&self) -> Result<Done> {
        let lanes = (0..self.lanes.len() / LANE).map(|lane| self.lane(lane));
        let mut done = lanes.fold(Done::default(), Done::and);
        if !self.tells_cpu {
            done.cpu_ns = process_cpu(self.running.pid()).context("a workload has ended")?;
        }
        Ok(done)
    }
}

/// CPU time of all threads of a process, those that run now up to this moment.
fn process_cpu(pid: i32) -> io::Result<u64> {
    let (mut clock, mut time) = (
        0,
        libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    );
    // SAFETY: both places are valid.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

/// What runs while recorders come and go; it ends when this is dropped.
pub struct Workload {
    pub mix: Mix,
    parts: Vec<Part>,
}

impl Workload {
    pub fn start(mix: Mix, work: &Path) -> Result<Workload> {
        let cpus = std::thread::available_parallelism()?.get().min(64) as u32;
        let mut parts = vec![Part::start(work, mix.program(), &[cpus])?];
        if mix == Mix::Mixed {
            parts.push(Part::start(work, "shorts", &[2, SHORTS / 2])?);
        }
        sleep(Duration::from_secs(1));
        Ok(Workload { mix, parts })
    }

    /// The process that is recorded when not all are.
    pub fn pid(&self) -> i32 {
        self.parts[0].running.pid()
    }

    /// Of each program.
    pub fn done(&self) -> Result<Vec<Done>> {
        self.parts.iter().map(Part::done).collect()
    }
}
