//! What every test needs: privileges checked, a turn, a scratch directory, workloads, recordings.

pub mod folded;
pub mod record;
pub mod restore;
pub mod standard;
pub mod truth;
pub mod workload;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

pub use folded::{Folded, Stack};
pub use record::{Recorded, Running};
pub use truth::Truth;
pub use workload::{Attached, Program};

/// The binary under test.
pub const PROFILER: &str = env!("CARGO_BIN_EXE_profiler");

/// The sampling rate of tests that compare shares: fast enough for a second of work to give tight
/// bounds, and no divisor of anything the kernel does in a rhythm.
pub const HZ: u32 = 997;

static TURN: Mutex<()> = Mutex::new(());

/// One test's turn on the machine, with a scratch directory that is removed at the end.
pub struct Bench {
    dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    /// Waits for this test's turn; fails the test without the privileges to record.
    pub fn new() -> Bench {
        require_privileges();
        // A failed test poisons the lock; the next one can still run.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::Builder::new()
            .prefix("bprof-test-")
            .tempdir()
            .expect("a scratch directory");
        Bench { dir, _turn: turn }
    }

    /// A path in the scratch directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where recordings of this test go.
    pub fn capture(&self) -> PathBuf {
        self.path("run.bprof")
    }

    /// `profiler record -o CAPTURE ARGS...` to its end.
    pub fn record<S: AsRef<OsStr>>(&self, args: &[S]) -> Recorded {
        Running::start(self, args).wait()
    }

    /// `profiler record -o CAPTURE -F HZ -- COMMAND...` to its end.
    pub fn record_command<S: AsRef<OsStr>>(&self, command: &[S]) -> Recorded {
        let rate = HZ.to_string();
        let mut args: Vec<&OsStr> = ["-F", &rate, "--"].map(OsStr::new).to_vec();
        args.extend(command.iter().map(AsRef::as_ref));
        self.record(&args)
    }

    /// Records `workload`, which is told to go once `profiler record -F HZ ARGS...` samples, until
    /// it has ended.
    pub fn record_attached<S: AsRef<OsStr>>(
        &self,
        workload: Attached,
        args: &[S],
    ) -> (Recorded, Truth) {
        let rate = HZ.to_string();
        let mut all: Vec<&OsStr> = ["-F", &rate].map(OsStr::new).to_vec();
        all.extend(args.iter().map(AsRef::as_ref));
        let running = Running::start_sampling(self, &all);
        let truth = workload.go();
        (running.interrupt(), truth)
    }

    /// `bash -c SCRIPT` in the scratch directory; what is added are `$0`, `$1`, ...
    pub fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.current_dir(self.dir.path()).args(["-c", script]);
        command
    }

    /// A command that runs the profiler, for what `record` does not cover.
    pub fn profiler(&self) -> Command {
        let mut command = Command::new(PROFILER);
        command.current_dir(self.dir.path());
        command
    }
}

/// Fails without root or the two capabilities sampling needs.
fn require_privileges() {
    const CAP_PERFMON: u32 = 38;
    const CAP_BPF: u32 = 39;
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .expect("/proc/self/status has CapEff");
    let has = |cap: u32| effective & (1 << cap) != 0;
    assert!(
        has(CAP_BPF) && has(CAP_PERFMON),
        "this test records for real and needs root (or CAP_BPF and CAP_PERFMON): run `make test` as root.\n\
         Tests that need no privileges: cargo test --lib --test suite"
    );
}
