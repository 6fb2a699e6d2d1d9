//! Builds the programs under `tests/workloads` and runs those a recorder attaches to.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::Truth;

/// A program to build from `tests/workloads`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Program {
    /// File name of the source; its ending chooses the compiler.
    pub source: &'static str,
    /// File name of the program: also its comm, so at most 15 bytes.
    pub name: &'static str,
    /// Flags beside the usual ones.
    pub flags: &'static [&'static str],
}

const fn program(
    source: &'static str,
    name: &'static str,
    flags: &'static [&'static str],
) -> Program {
    Program {
        source,
        name,
        flags,
    }
}

pub const BURN_C: Program = program("burn.c", "burn_c", &[]);
pub const BURN_CPP: Program = program("burn.cpp", "burn_cpp", &[]);
pub const BURN_RUST: Program = program("burn.rs", "burn_rust", &[]);
pub const ONE: Program = program("spin.c", "one", &["-no-pie", "-fno-pie", "-DSPIN=one_spin"]);
pub const TWO: Program = program("spin.c", "two", &["-no-pie", "-fno-pie", "-DSPIN=two_spin"]);
pub const ONE_PIE: Program = program("spin.c", "one_pie", &["-pie", "-fPIE", "-DSPIN=one_spin"]);
pub const TWO_PIE: Program = program("spin.c", "two_pie", &["-pie", "-fPIE", "-DSPIN=two_spin"]);
/// Without a build ID: believed by size and modification time.
pub const NO_BUILD_ID: Program = program(
    "spin.c",
    "no_id",
    &["-Wl,--build-id=none", "-DSPIN=no_id_spin"],
);
/// Runs beside the target of a recording and must not be in it.
/// As [`NO_BUILD_ID`], of the same size, with another function at its addresses.
pub const NO_BUILD_ID_EITHER: Program = program(
    "spin.c",
    "no_build_id_either",
    &["-Wl,--build-id=none", "-DSPIN=of_id_spin"],
);
pub const OUTSIDER: Program = program("spin.c", "outsider", &["-DSPIN=outsider_spin"]);
pub const REUSE: Program = program("reuse.c", "reuse", &[]);
pub const HOST: Program = program("host.c", "host", &[]);
pub const RED: Program = program(
    "plug.c",
    "libred.so",
    &["-shared", "-fPIC", "-DSPIN=red_spin"],
);
pub const BLUE: Program = program(
    "plug.c",
    "libblue.so",
    &["-shared", "-fPIC", "-DSPIN=blue_spin"],
);
pub const STORM: Program = program("storm.c", "storm", &[]);
pub const QUICK: Program = program("quick.c", "quick", &[]);
pub const BURN_20_MS: Program = program("quick.c", "burn20ms", &["-DSPIN=burn_spin"]);
pub const CREW: Program = program("crew.c", "crew", &[]);
pub const THREADS: Program = program("threads.c", "threads", &[]);
pub const DEEP: Program = program("deep.c", "deep", &[]);
#[cfg(target_arch = "x86_64")]
pub const EDGES: Program = program("edges.c", "edges", &[]);
pub const INLINE_CPP: Program = program("inline.cpp", "inline_cpp", &["-g"]);
pub const INLINE_RUST: Program = program("inline.rs", "inline_rust", &["-g"]);
/// gcc leaves out the frames of leaf functions here, against what the other programs are built
/// with.
pub const FRAMELESS: Program = program(
    "frameless.c",
    "frameless",
    &["-O1", "-momit-leaf-frame-pointer"],
);
pub const ODDNAMES: Program = program("oddnames.c", "oddnames", &[]);
pub const RENAME: Program = program("rename.c", "rename", &[]);
pub const JIT: Program = program("jit.c", "jit", &[]);
pub const CHURN: Program = program("churn.c", "churn", &[]);
pub const FLOOD: Program = program("flood.c", "flood", &[]);
pub const FROM_FD: Program = program("fromfd.c", "fromfd", &[]);
pub const PERF_MAP: Program = program("perfmap.c", "perfmap", &[]);
pub const REMAP: Program = program("remap.c", "remap", &[]);
pub const CLOCK: Program = program("clock.c", "clock", &[]);
pub const BPFRUN: Program = program("bpfrun.c", "bpfrun", &[]);
pub const VSYSCALL: Program = program("vsyscall.c", "vsyscall", &[]);
/// Against what the other programs are built with.
macro_rules! without_frame_pointers {
    ($($more:literal),*) => {
        &["-fomit-frame-pointer", "-momit-leaf-frame-pointer", $($more),*]
    };
}
#[cfg(target_arch = "x86_64")]
pub const SHADOW: Program = program("shadow.c", "shadow", without_frame_pointers!());
/// With frame pointers, as the other programs.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_FP: Program = program("shadow.c", "shadow_fp", &[]);
#[cfg(target_arch = "x86_64")]
pub const SHADOW_STATIC: Program = program(
    "shadow.c",
    "shadow_static",
    without_frame_pointers!("-static", "-no-pie"),
);
#[cfg(target_arch = "x86_64")]
pub const SHADOW_STATIC_PIE: Program = program(
    "shadow.c",
    "shadow_spie",
    without_frame_pointers!("-static-pie", "-fPIE"),
);
#[cfg(target_arch = "x86_64")]
pub const FAULTS: Program = program("faults.c", "faults", without_frame_pointers!());
#[cfg(target_arch = "x86_64")]
pub const FAULTS_STATIC: Program = program(
    "faults.c",
    "faults_static",
    without_frame_pointers!("-static", "-no-pie"),
);
#[cfg(target_arch = "x86_64")]
pub const RETURNS: Program = program("returns.c", "returns", without_frame_pointers!());
#[cfg(target_arch = "x86_64")]
pub const RETURNS_STATIC: Program = program(
    "returns.c",
    "returns_static",
    without_frame_pointers!("-static", "-no-pie"),
);
#[cfg(target_arch = "x86_64")]
pub const SWITCHES_GO: Program = program("switches.go", "switches_go", &[]);
/// For debuggers only.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_DEBUG_FRAME: Program = program(
    "shadow.c",
    "shadow_debug",
    without_frame_pointers!(
        "-g",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables"
    ),
);
/// With the C library of Alpine.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_MUSL: Program = program(
    "shadow.c",
    "shadow_musl",
    without_frame_pointers!("-static"),
);
#[cfg(target_arch = "x86_64")]
pub const SHADOW_GO: Program = program("shadow.go", "shadow_go", &[]);
/// Without what debuggers are told.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_GO_BARE: Program = program("shadow.go", "shadow_go_bare", &["-ldflags=-w"]);
/// Without symbols as well.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_GO_STRIPPED: Program =
    program("shadow.go", "shadow_go_stripped", &["-ldflags=-s -w"]);
/// Besides, wherever it is loaded.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_GO_STRIPPED_PIE: Program = program(
    "shadow.go",
    "shadow_go_stripped_pie",
    &["-buildmode=pie", "-ldflags=-s -w"],
);
/// Doing little, so that it can be stepped through.
#[cfg(target_arch = "x86_64")]
pub const SHADOW_STEPS: Program = program(
    "shadow.c",
    "shadow_steps",
    without_frame_pointers!("-DSTEPS"),
);
#[cfg(target_arch = "x86_64")]
pub const SHADOW_STEPS_STATIC: Program = program(
    "shadow.c",
    "shadow_steps_static",
    without_frame_pointers!("-DSTEPS", "-static", "-no-pie"),
);
/// With more stack than is copied of one.
#[cfg(target_arch = "x86_64")]
pub const DEEP_BIG: Program = program("deep.c", "deep_big", &["-DPAD=4000"]);
/// Large frames are not touched as a whole when a function begins.
#[cfg(target_arch = "x86_64")]
pub const HUGE: Program = program(
    "huge.c",
    "huge",
    without_frame_pointers!("-fno-stack-clash-protection"),
);
#[cfg(target_arch = "x86_64")]
pub const HOST_BARE: Program = program("host.c", "host_bare", without_frame_pointers!());
#[cfg(target_arch = "x86_64")]
pub const RED_BARE: Program = program(
    "plug.c",
    "libredbare.so",
    without_frame_pointers!("-shared", "-fPIC", "-DSPIN=redbare_spin"),
);
#[cfg(target_arch = "x86_64")]
pub const LIES: Program = program("lies.c", "lies", without_frame_pointers!());
#[cfg(target_arch = "x86_64")]
pub const BURN_NO_FP: Program =
    program("burn.rs", "burn_no_fp", &["-C", "force-frame-pointers=no"]);
pub const HANG: Program = program("hang.c", "hang", &[]);
pub const BAD_FILE: Program = program("badfile.c", "libbadfile.so", &["-shared", "-fPIC"]);

static BUILT: Mutex<Option<HashMap<Program, PathBuf>>> = Mutex::new(None);

impl Program {
    /// Path of the program, built once in each run of the tests.
    pub fn build(self) -> PathBuf {
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        built
            .get_or_insert_default()
            .entry(self)
            .or_insert_with(|| self.compile())
            .clone()
    }

    fn compile(self) -> PathBuf {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads");
        fs::create_dir_all(&dir).expect("a directory for workloads");
        let out = dir.join(self.name);
        // Built beside its place and moved there: a program of an earlier run may still be running.
        let fresh = dir.join(format!("{}.new", self.name));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/workloads")
            .join(self.source);

        let mut compiler = match source.extension().and_then(|e| e.to_str()) {
            Some("rs") => {
                let mut rustc =
                    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
                rustc.args([
                    "--edition",
                    "2024",
                    "-C",
                    "opt-level=2",
                    "-C",
                    "force-frame-pointers=yes",
                ]);
                rustc.args(["-C", "symbol-mangling-version=v0"]);
                rustc
            }
            Some("go") => {
                let mut go = Command::new("go");
                go.arg("build").env("GOCACHE", dir.join("go"));
                go.env("GO111MODULE", "off").env("GOFLAGS", "");
                go
            }
            Some("cpp") => {
                let mut gxx = Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into()));
                gxx.arg("-std=c++17").args(C_FLAGS);
                gxx
            }
            _ => {
                let usual = match self.name.ends_with("_musl") {
                    true => Some("musl-gcc".into()),
                    false => env::var_os("CC"),
                };
                let mut gcc = Command::new(usual.unwrap_or_else(|| "gcc".into()));
                gcc.arg("-std=gnu17").args(C_FLAGS);
                gcc
            }
        };
        compiler.args(self.flags).arg("-o").arg(&fresh).arg(&source);
        if source.extension().is_some_and(|e| e == "c") {
            compiler.arg("-ldl");
        }
        let output = compiler
            .output()
            .unwrap_or_else(|err| panic!("{compiler:?} does not start: {err}"));
        assert!(
            output.status.success(),
            "{compiler:?} failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        fs::rename(&fresh, &out).expect("the built workload moves to its place");
        out
    }

    /// A command that runs the program.
    pub fn command(self) -> Command {
        Command::new(self.build())
    }
}

/// Frame pointers everywhere, in leaf functions too (gcc would leave those out and a walk would
/// skip the leaf's caller), and calls that stay calls. The program's own flags come after and win.
const C_FLAGS: [&str; 10] = [
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
    "-fno-omit-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fcf-protection=none",
    "-Wl,--build-id",
];

/// A workload that has started and waits to be told to go.
pub struct Attached {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// What it has said and was read already.
    said: String,
    pid: u32,
}

impl Attached {
    /// Starts `command` and returns once it is ready, with nothing of its work done.
    pub fn start(mut command: Command) -> Attached {
        command
            .env("WORKLOAD_WAIT", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|err| panic!("{command:?} does not start: {err}"));
        let stdin = child.stdin.take().expect("piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout
            .read_line(&mut line)
            .expect("the workload says that it is ready");
        let pid = line
            .strip_prefix("ready ")
            .and_then(|rest| rest.trim().parse().ok())
            .unwrap_or_else(|| panic!("{command:?} said {line:?} instead of being ready"));
        Attached {
            child,
            stdin,
            stdout,
            said: String::new(),
            pid,
        }
    }

    /// PID of the workload.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The PID as an argument.
    pub fn pid_arg(&self) -> String {
        self.pid.to_string()
    }

    /// Thread IDs whose comm is `comm`.
    pub fn tids(&self, comm: &str) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the workload runs");
        let mut tids: Vec<u32> = tasks
            .map(|entry| entry.expect("a thread").path())
            .filter(|path| {
                fs::read_to_string(path.join("comm")).is_ok_and(|c| c.trim_end() == comm)
            })
            .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
            .collect();
        tids.sort_unstable();
        tids
    }

    /// Lets it work, waits for its end and returns what it says about itself.
    pub fn go(mut self) -> Truth {
        self.release();
        let mut said = std::mem::take(&mut self.said);
        self.stdout
            .read_to_string(&mut said)
            .expect("the workload's truth is text");
        let status = self.child.wait().expect("the workload ends");
        assert!(
            status.success(),
            "the workload ended with {status}; it said:\n{said}"
        );
        Truth::parse(&said)
    }

    /// Waits until it says `line`.
    pub fn expect(&mut self, line: &str) {
        let mut said = String::new();
        while said.lines().last() != Some(line) {
            let read = self.stdout.read_line(&mut said).expect("text");
            assert!(read > 0, "the workload ended; it said:\n{said}");
        }
        self.said += &said;
    }

    /// Lets it work and does not wait.
    pub fn release(&mut self) {
        self.stdin
            .write_all(b"go\n")
            .expect("the workload waits for its line");
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Ended already after `go`; after a failed check it must not go on burning.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that burns beside the target and must not be in the recording.
pub struct Outsider(Child);

impl Outsider {
    /// Starts it; it ends when dropped.
    pub fn start() -> Outsider {
        let child = OUTSIDER
            .command()
            .arg("60")
            .stdout(Stdio::null())
            .spawn()
            .expect("the outsider starts");
        Outsider(child)
    }

    /// PID of the process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
