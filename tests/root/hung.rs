//! A file system that does not answer: who asks it waits for ever, and cannot be killed. The recorder must not be who waits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::workload::{BURN_C, HANG};
use crate::common::{Attached, Bench, Folded, Running};

/// Several times what the test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted file system with one program, `prog`.
struct HangingDisk {
    at: PathBuf,
    server: Attached,
}

impl HangingDisk {
    fn new(bench: &Bench, program: &Path) -> HangingDisk {
        let at = bench.path("mnt");
        fs::create_dir(&at).expect("a directory");
        let mut command = Command::new(HANG.build());
        command.arg(&at).arg(program);
        let server = Attached::start(command);
        HangingDisk { at, server }
    }

    /// From now on nobody gets an answer, until the server is killed: when `PATIENCE` is over and what is returned is still there, since
    /// nothing else ends a recorder that waits.
    fn hang(&self) -> Sender<()> {
        self.signal(libc::SIGUSR1);
        let server = self.server.pid().cast_signed();
        let (running, test) = mpsc::channel();
        thread::spawn(move || {
            if test.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // SAFETY: a child of ours, waited for only after the test.
                unsafe { libc::kill(server, libc::SIGKILL) };
            }
        });
        running
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child of ours that has not been waited for.
        unsafe { libc::kill(self.server.pid().cast_signed(), signal) };
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // Whoever waits gets an error when the server is gone.
        self.signal(libc::SIGKILL);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// Two programs run, one of them from a file system that has stopped answering. Every sample of both is kept, the other one
/// has its names, what is the matter is said, and the recording ends when it should.
#[test]
fn a_file_system_that_hangs_holds_up_no_sample_and_no_end() {
    let bench = Bench::new();
    let disk = HangingDisk::new(&bench, &BURN_C.build());
    let attached = |path: &Path| {
        let mut command = Command::new(path);
        command.args(["1", "1"]);
        Attached::start(command)
    };
    let (mut hung, other) = (attached(&disk.at.join("prog")), attached(&BURN_C.build()));
    let _running = disk.hang();
    let began = Instant::now();
    let other_pid = other.pid_arg();
    let pids = format!("{},{other_pid}", hung.pid());
    let running = Running::start_sampling(&bench, &["-F", "997", "-p", &pids]);
    let started = began.elapsed();
    hung.release();
    let truth = other.go();
    // Ends by itself: its code is in memory.
    let hung_pid = hung.pid();
    // The link alone: what it leads to does not answer.
    let is_gone = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).is_err();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_gone(hung_pid) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    let ending = Instant::now();
    let recorded = running.interrupt().ok();
    let ended = ending.elapsed();
    assert!(started < Duration::from_secs(5), "began after {started:?}");
    assert!(ended < Duration::from_secs(5), "ended after {ended:?}");
    let told = recorded.stderr.matches("does not answer").count();
    assert_eq!(told, 1, "{}", recorded.stderr);
    // Of each a second of CPU time.
    let samples = recorded.summary_number("sample");
    assert!((1850..2200).contains(&samples), "{}", recorded.stderr);
    let (report, verdict) = recorded.report(&["--folded", "--pid", &other_pid]);
    truth.check_shares(&Folded::parse(&report, &verdict));
}
