//! Where the capture goes: disks that fill up or fail, limits, pipes, devices. What was written stays a capture, the reason
//! is told, and a launched command is not harmed.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::record::Recorded;
use crate::common::workload::{BAD_FILE, BURN_C};
use crate::common::{Bench, PROFILER, Running};

/// A small file system in memory, as long as the value lives.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    pub fn new(bench: &Bench, size: &str) -> SmallDisk {
        let at = bench.path("disk");
        fs::create_dir(&at).expect("a directory");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size}"))
            .arg("tmpfs")
            .arg(&at)
            .status()
            .expect("mount runs");
        assert!(status.success(), "no tmpfs can be mounted");
        SmallDisk(at)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves no byte free.
    pub fn fill(&self) {
        let mut filler = File::create(self.0.join("filler")).expect("a file");
        let _ = std::io::copy(&mut std::io::repeat(1), &mut filler);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// `sh -c` that burns CPU time and then says so in `marker`.
pub fn burn_and_tell(command: &mut Command, seconds: &str, marker: &Path) {
    command
        .args(["--", "sh", "-c", r#""$0" 1 "$1" >/dev/null && : >"$2""#])
        .arg(BURN_C.build())
        .arg(seconds)
        .arg(marker);
}

/// What `profiler verify` says of a capture, which must be without damage.
pub fn verified(capture: &Path) -> String {
    let output = Command::new(PROFILER)
        .arg("verify")
        .arg(capture)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// The samples kept according to the error, which are those in the capture.
pub fn check_kept(recorded: &Recorded) {
    let said = recorded.stderr.as_str();
    let before = said.split(" samples written until then are kept").next();
    let number = before.and_then(|text| text.rsplit(' ').next());
    let kept: u64 = number
        .and_then(|n| n.replace(',', "").parse().ok())
        .unwrap_or_else(|| panic!("no samples are kept:\n{said}"));
    let folded = recorded.folded();
    assert_eq!(folded.total(), kept, "{said}\n{folded}");
    assert!(kept > 300, "{said}");
}

/// A disk that others fill: the reason is told at once and with what to do, all samples up to then are there with the names of
/// the kernel's functions, which come last, and the capture has its end. The command runs to its own.
#[test]
fn a_full_disk() {
    let bench = Bench::new();
    let disk = SmallDisk::new(&bench, "4m");
    let capture = disk.0.join("run.bprof");
    let marker = bench.path("ran");
    let mut command = bench.profiler();
    command.args(["record", "-F", "999", "-o"]).arg(&capture);
    // Also samples in the kernel.
    command
        .args(["--", "sh", "-c"])
        .arg(r#""$0" 1 1 >/dev/null; dd if=/dev/zero of=/dev/null bs=1 count=4000000 2>/dev/null; : >"$1""#)
        .arg(BURN_C.build())
        .arg(&marker);
    let running = Running::start_command(&bench, command);
    thread::sleep(Duration::from_millis(2500));
    disk.fill();
    let mut recorded = running.wait();
    recorded.capture = capture.clone();
    assert_eq!(recorded.code(), 1, "{recorded:#?}");
    let said = &recorded.stderr;
    assert_eq!(said.matches("No space left on device").count(), 1, "{said}");
    for word in ["run.bprof", "make room", "the command goes on"] {
        assert!(said.contains(word), "no {word:?}:\n{said}");
    }
    assert!(marker.exists(), "the command did not end by itself");
    check_kept(&recorded);
    assert!(verified(&capture).ends_with("no damage, complete\n"));
    let (top, _) = recorded.report(&["--top", "50"]);
    assert!(top.contains("ended by a full disk"), "{top}");
    assert!(
        top.contains("samples: ") && !top.contains("lost by cause"),
        "{top}"
    );
    assert!(top.contains("kernel 100.0 %"), "{top}");
    // What was kept free is given back.
    let meta = fs::metadata(&capture).expect("the capture");
    assert!(meta.blocks() * 512 < meta.len() + 8192, "{meta:?}");

    // Where there is no room to begin with, nothing is left and the command does not run.
    let _ = fs::remove_file(&marker);
    let second = disk.0.join("second.bprof");
    let mut command = bench.profiler();
    command.args(["record", "-o"]).arg(&second);
    burn_and_tell(&mut command, "0.1", &marker);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in [
        "No space left on device",
        "1028 KiB to begin with",
        "the command was not started",
    ] {
        assert!(said.contains(word), "no {word:?}: {said}");
    }
    assert!(!second.exists() && !marker.exists(), "{said}");
}

/// A burst that fits neither: its samples are counted as lost, by their cause, and samples and losses together are what was taken.
#[test]
fn what_no_longer_fits_is_counted() {
    let bench = Bench::new();
    let marker = bench.path("ran");
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            r#"ulimit -f "$1"; shift; exec "$@""#,
            "bash",
            "8",
            PROFILER,
        ])
        .args(["record", "-F", "9999", "-o"])
        .arg(bench.capture());
    burn_and_tell(&mut command, "2", &marker);
    let recorded = Running::start_command(&bench, command).wait();
    assert_eq!(recorded.code(), 1, "{recorded:#?}");
    let said = &recorded.stderr;
    assert_eq!(said.matches("File too large").count(), 1, "{said}");
    assert!(said.contains("ulimit -f"), "{said}");
    assert!(marker.exists(), "the command did not end by itself");
    assert!(fs::metadata(bench.capture()).expect("a capture").len() <= 8 << 10);
    assert!(verified(&bench.capture()).ends_with("no damage, complete\n"));
    recorded.report(&["--top", "5"]);
}

/// `--max-size`: never larger, ended in order, the command not harmed and its exit status told.
#[test]
fn a_size_is_kept_to() {
    let bench = Bench::new();
    let mut command = bench.profiler();
    command
        .args(["record", "-F", "9999", "-a", "--max-size", "100000", "-o"])
        .arg(bench.capture());
    // The whole system, with ever new stacks: frames are large.
    let load = Command::new("sh")
        .args(["-c", "while :; do ls -l /usr/bin >/dev/null; done"])
        .spawn()
        .expect("sh starts");
    let load = Load(load);
    let recorded = Running::start_command(&bench, command).wait();
    drop(load);
    assert_eq!(recorded.code(), 0, "{recorded:#?}");
    assert!(
        recorded.stderr.contains("--max-size"),
        "{}",
        recorded.stderr
    );
    let len = fs::metadata(bench.capture()).expect("a capture").len();
    assert!(len <= 100_000 && len > 50_000, "{len}");
    assert!(verified(&bench.capture()).ends_with("no damage, complete\n"));
    let (top, _) = recorded.report(&["--top", "5"]);
    assert!(top.contains("ended by the size asked for"), "{top}");
    // A batch may find no room, no second of samples.
    let kept = recorded.folded().total();
    assert!(kept > 500, "{kept} samples are kept: {top}");
    if let Some(lost) = top.split("no room in the file ").nth(1) {
        let lost = lost.split(|c: char| !c.is_ascii_digit()).next();
        let lost: u64 = lost.and_then(|n| n.parse().ok()).expect("a number");
        assert!(lost < kept, "{lost} found no room: {top}");
    }

    let marker = bench.path("ran");
    let script = r#"for i in $(seq 300); do ls -lR /etc >/dev/null; done; : >"$0"; exit 3"#;
    let mut command = bench.profiler();
    command
        .args(["record", "-F", "20000", "--max-size", "64K", "-o"])
        .arg(bench.capture())
        .args(["--", "sh", "-c", script])
        .arg(&marker);
    let recorded = Running::start_command(&bench, command).wait();
    assert_eq!(recorded.code(), 3, "{recorded:#?}");
    assert!(
        recorded.stderr.contains("--max-size"),
        "{}",
        recorded.stderr
    );
    assert!(marker.exists(), "the command did not end by itself");
}

struct Load(std::process::Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `profiler record` with a device that fails as `bad` says.
fn on_bad_device(bench: &Bench, bad: (&str, &str), options: &[&str], marker: &Path) -> Recorded {
    let mut command = bench.profiler();
    command
        .env("LD_PRELOAD", BAD_FILE.build())
        .env(bad.0, bad.1)
        .args(["record", "-F", "999", "-o"])
        .arg(bench.capture())
        .args(options);
    burn_and_tell(&mut command, "2", marker);
    Running::start_command(bench, command).wait()
}

/// A device that fails in the middle of a frame, a quota, a disk that is found full by a write: told once and at once, with what is
/// kept; exit 1; the command runs on.
#[test]
fn a_failing_device() {
    for (number, words) in [
        (libc::EIO, "Input/output error"),
        (libc::EDQUOT, "quota"),
        (libc::ENOSPC, "No space left on device"),
    ] {
        let bench = Bench::new();
        let marker = bench.path("ran");
        let bad = format!("5:{number}");
        let recorded = on_bad_device(&bench, ("BAD_WRITE", &bad), &[], &marker);
        assert_eq!(recorded.code(), 1, "{recorded:#?}");
        let said = &recorded.stderr;
        assert_eq!(said.matches(words).count(), 1, "{said}");
        assert!(
            said.contains("run.bprof") && said.contains("at byte"),
            "{said}"
        );
        assert!(marker.exists(), "the command did not end by itself");
        check_kept(&recorded);
        assert!(
            verified(&recorded.capture).contains("no damage, recording was cut short"),
            "half a frame is a cut"
        );
        if number == libc::ENOSPC {
            assert!(said.contains("make room"), "{said}");
        }
    }
}

/// What cannot be brought to the disk is an error too, wherever it comes: while it records, and at its very end.
#[test]
fn a_failing_sync() {
    for every in ["0.5", "1000"] {
        let bench = Bench::new();
        let marker = bench.path("ran");
        let bad = format!("1:{}", libc::EIO);
        let recorded = on_bad_device(&bench, ("BAD_SYNC", &bad), &["--sync", every], &marker);
        assert_eq!(recorded.code(), 1, "{recorded:#?}");
        let said = &recorded.stderr;
        assert_eq!(said.matches("Input/output error").count(), 1, "{said}");
        assert!(marker.exists(), "the command did not end by itself");
        verified(&recorded.capture);
    }
}

/// A disk that takes its time does not keep samples waiting, and is told of.
#[test]
fn a_slow_disk() {
    let bench = Bench::new();
    let marker = bench.path("ran");
    let options = ["--sync", "0.3"];
    let recorded = on_bad_device(&bench, ("SLOW_SYNC", "1"), &options, &marker).ok();
    let said = &recorded.stderr;
    assert_eq!(said.matches("is slow").count(), 1, "{said}");
    let folded = recorded.folded();
    assert!(folded.total() > 1700, "{folded}");
    assert!(folded.verdict.contains("lost: 0"), "{folded}");
    // Without it nobody asks the disk.
    let recorded = on_bad_device(&bench, ("BAD_SYNC", "1:5"), &["--sync", "0"], &marker);
    assert_eq!(recorded.code(), 0, "{recorded:#?}");
}

/// `-o -`: the capture alone goes to standard output, what the command prints to standard error.
#[test]
fn a_pipe() {
    let bench = Bench::new();
    let script = r#"echo printed; "$0" 1 1 >/dev/null; exit 5"#;
    let mut child = bench
        .profiler()
        .args(["record", "-F", "999", "-o", "-", "--", "sh", "-c", script])
        .arg(BURN_C.build())
        .stdout(Stdio::piped())
        .stderr(File::create(bench.path("stderr")).expect("a file"))
        .spawn()
        .expect("it starts");
    let mut bytes = Vec::new();
    let mut pipe = child.stdout.take().expect("a pipe");
    pipe.read_to_end(&mut bytes).expect("bytes");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    fs::write(bench.capture(), &bytes).expect("a file");
    assert!(verified(&bench.capture()).ends_with("no damage, complete\n"));
    let said = fs::read_to_string(bench.path("stderr")).expect("what it said");
    assert!(
        said.contains("printed\n") && said.contains("wrote standard output"),
        "{said}"
    );
    assert!(!said.contains("next:"), "{said}");

    // Straight into a report, and through a FIFO that is read.
    let shell = r#"set -o pipefail
        "$0" record -q -F 999 -o - -- "$1" 1 1 | "$0" report --folded -
        mkfifo fifo; cat fifo >copy.bprof & sleep 0.2
        "$0" record -q -F 999 -o fifo -- "$1" 1 1 && wait && "$0" report --folded copy.bprof"#;
    let output = bench
        .bash(shell)
        .arg(PROFILER)
        .arg(BURN_C.build())
        .output()
        .expect("bash runs");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
    let hot = out.lines().filter(|line| line.contains(";drive;hot_a "));
    assert_eq!(hot.count(), 2, "{out}\n{err}");
}

/// When the reader goes, recording ends and says nothing; a command runs on and its exit status counts. A reader that takes
/// nothing keeps nobody from ending it.
#[test]
fn a_reader_that_goes_or_sleeps() {
    let bench = Bench::new();
    let marker = bench.path("ran");
    let shell = r#""$0" record -F 999 -q -o - -d 20 | head -c 1000 >/dev/null; echo "${PIPESTATUS[0]}"
        "$0" record -F 999 -q -o - -- sh -c '"$0" 1 2 >&2; : >"$1"; exit 4' "$1" "$2" | head -c 1000 >/dev/null
        echo "${PIPESTATUS[0]}"
        "$0" record -q -o - -d 20 | true; echo "${PIPESTATUS[0]}""#;
    let began = Instant::now();
    let output = bench
        .bash(shell)
        .arg(PROFILER)
        .arg(BURN_C.build())
        .arg(&marker)
        .output()
        .expect("bash runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "0\n4\n0\n",
        "{err}"
    );
    assert!(
        !err.contains("profiler:") && !err.contains("panicked"),
        "{err}"
    );
    assert!(marker.exists(), "the command did not end by itself");
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "it did not end with its reader"
    );

    let mut child = bench
        .profiler()
        .args(["record", "-F", "9999", "-a", "--idle", "-q", "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(File::create(bench.path("stderr")).expect("a file"))
        .spawn()
        .expect("it starts");
    // The pipe takes 64 KiB.
    thread::sleep(Duration::from_millis(3000));
    // SAFETY: kill takes numbers, of a child that was not waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let deadline = Instant::now() + Duration::from_secs(10);
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("a reader that sleeps keeps it from ending");
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
}

/// Devices and what is another user's are left alone; so is a capture that is being recorded.
#[test]
fn places_that_are_not_for_captures() {
    let bench = Bench::new();
    let record = |output: &Path| {
        let output = bench
            .profiler()
            .args(["record", "-q", "-d", "0.2", "-o"])
            .arg(output)
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    assert_eq!(record(Path::new("/dev/null")).0, Some(0));
    let (code, said) = record(Path::new("/dev/full"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    let (code, said) = record(Path::new("/dev/zero"));
    assert_eq!(code, Some(1));
    assert!(said.contains("is a device"), "{said}");

    // A disk, with nothing but zeros on it.
    let disk = bench.path("disk");
    let made = Command::new("mknod")
        .arg(&disk)
        .args(["b", "7", "250"])
        .status();
    assert!(made.expect("mknod runs").success());
    let (code, said) = record(&disk);
    assert_eq!(code, Some(1));
    assert!(said.contains("is a device"), "{said}");

    // In a directory like /tmp, what another user put there: a capture, and a pipe that would be read.
    let shared = bench.path("shared");
    fs::create_dir(&shared).expect("a directory");
    fs::set_permissions(
        &shared,
        std::os::unix::fs::PermissionsExt::from_mode(0o1777),
    )
    .expect("as /tmp");
    let theirs = shared.join("run.bprof");
    assert_eq!(record(&theirs).0, Some(0));
    std::os::unix::fs::chown(&theirs, Some(65534), None).expect("another's");
    let (code, said) = record(&theirs);
    assert_eq!(code, Some(1));
    assert!(said.contains("another user"), "{said}");
    assert!(!shared.join("run.bprof.old").exists());
    let fifo = shared.join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    std::os::unix::fs::chown(&fifo, Some(65534), None).expect("another's");
    let (code, said) = record(&fifo);
    assert_eq!(code, Some(1));
    assert!(said.contains("another user"), "{said}");

    // One that is being written.
    let running = Running::start_sampling(&bench, &["-a"]);
    let (code, said) = record(&bench.capture());
    assert_eq!(code, Some(1));
    assert!(said.contains("is being recorded"), "{said}");
    running.interrupt().ok();
    assert!(!bench.path("run.bprof.old").exists());
}
