//! Manners of a recording: files, exit statuses, signals, and what the reports of a real capture
//! keep to.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::workload::{BURN_C, ONE, QUICK};
use crate::common::{Attached, Bench, HZ, PROFILER, Running};

#[test]
fn the_exit_status_is_the_commands() {
    let bench = Bench::new();
    for code in [0, 1, 7, 126, 255] {
        let recorded = bench.record(&["--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!(recorded.code(), code, "{recorded:#?}");
        assert!(recorded.capture.exists(), "{recorded:#?}");
        recorded.report(&["--folded"]);
    }
    // As shells say it: 128 and the signal's number.
    let recorded = bench.record(&["--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(recorded.code(), 128 + libc::SIGTERM, "{recorded:#?}");
}

/// A29: under sudo the capture belongs to who called it.
#[test]
fn a29_a_capture_made_under_sudo_is_its_callers() {
    use std::os::unix::fs::MetadataExt;
    let bench = Bench::new();
    let mut command = bench.profiler();
    command
        .args(["record", "-o"])
        .arg(bench.capture())
        .args(["--", "true"])
        .envs([("SUDO_UID", "65534"), ("SUDO_GID", "65533")]);
    let recorded = Running::start_command(&bench, command).wait();
    assert_eq!(recorded.code(), 0, "{recorded:#?}");
    let found = fs::metadata(&recorded.capture).expect("a capture");
    assert_eq!(
        (found.uid(), found.gid(), found.mode() & 0o7777),
        (65534, 65533, 0o600)
    );
}

#[test]
fn a_command_that_cannot_start_leaves_nothing() {
    let bench = Bench::new();
    let recorded = bench.record(&["--", "no-such-command-anywhere"]);
    assert_eq!(recorded.code(), 127, "{recorded:#?}");
    assert!(
        recorded.stderr.contains("no-such-command-anywhere"),
        "{recorded:#?}"
    );
    assert!(!recorded.capture.exists());

    let file = bench.path("not-executable");
    fs::write(&file, "#!/bin/sh\n").expect("a file");
    let recorded = bench.record(&["--", file.to_str().expect("UTF-8")]);
    assert_eq!(recorded.code(), 126, "{recorded:#?}");
    assert!(recorded.stderr.contains("not-executable"), "{recorded:#?}");
    assert!(!recorded.capture.exists());
}

/// A capture of that name is kept as FILE.old, as perf does; one that was kept before is replaced.
/// When the recording cannot even begin, what was there stays where it was.
#[test]
fn an_older_capture_is_kept() {
    /// Has samples for sure.
    const BUSY: [&str; 6] = [
        "-F",
        "999",
        "--",
        "sh",
        "-c",
        "for i in $(seq 30000); do :; done",
    ];
    let bench = Bench::new();
    let old = bench.path("run.bprof.old");
    bench.record(&BUSY).ok();
    let first = fs::read(bench.capture()).expect("the first capture");
    assert!(!old.exists());
    let told = "the capture before is ";
    let recorded = bench.record(&BUSY);
    assert!(recorded.stderr.contains(told), "{recorded:#?}");
    assert!(
        recorded.stderr.contains("run.bprof.old now\n"),
        "{recorded:#?}"
    );
    recorded.ok();
    assert_eq!(fs::read(&old).expect("the first capture is kept"), first);
    let second = fs::read(bench.capture()).expect("the second capture");
    assert_ne!(first, second);
    let recorded = bench.record(&[&["-q"], &BUSY[..]].concat());
    assert!(!recorded.stderr.contains(told), "{recorded:#?}");
    recorded.ok();
    assert_eq!(fs::read(&old).expect("the second capture is kept"), second);

    let third = fs::read(bench.capture()).expect("the third capture");
    assert_eq!(
        bench.record(&["--", "no-such-command-anywhere"]).code(),
        127
    );
    assert_eq!(
        fs::read(bench.capture()).expect("the third capture stays"),
        third
    );

    // Recordings of nothing take the place of each other only.
    for _ in 0..2 {
        bench.record(&["-F", "1", "--", "true"]).ok();
        assert_eq!(fs::read(&old).expect("the third capture is kept"), third);
    }
    bench.record(&BUSY).ok();
    assert_eq!(fs::read(&old).expect("the third capture is kept"), third);
}

/// What is not a capture is never touched.
#[test]
fn anything_else_is_never_touched() {
    let bench = Bench::new();
    let capture = bench.capture();
    for content in [
        &b"precious"[..],
        b"",
        b"\x28\xb5\x2f\xfd zstd, but no capture",
    ] {
        fs::write(&capture, content).expect("a file");
        let recorded = bench.record(&["--", "true"]);
        assert_eq!(recorded.code(), 1, "{recorded:#?}");
        assert!(recorded.stderr.contains("run.bprof"), "{recorded:#?}");
        assert_eq!(fs::read(&capture).expect("the file"), content);
        assert!(!bench.path("run.bprof.old").exists());
    }
    fs::remove_file(&capture).expect("the file goes");

    fs::create_dir(&capture).expect("a directory");
    assert_eq!(bench.record(&["--", "true"]).code(), 1);
    assert!(capture.is_dir());
    fs::remove_dir(&capture).expect("the directory goes");

    // Through a link to something precious.
    let precious = bench.path("precious");
    fs::write(&precious, "precious").expect("a file");
    symlink(&precious, &capture).expect("a link");
    assert_eq!(bench.record(&["--", "true"]).code(), 1);
    assert_eq!(fs::read(&precious).expect("the file"), b"precious");
    assert!(capture.is_symlink());
    fs::remove_file(&capture).expect("the link goes");

    // A FIFO that nobody reads must not hang it.
    let made = Command::new("mkfifo")
        .arg(&capture)
        .status()
        .expect("mkfifo runs");
    assert!(made.success());
    assert_eq!(bench.record(&["--", "true"]).code(), 1);
}

/// A directory that is not there is an error that names it, before the command runs.
#[test]
fn nowhere_to_write() {
    let bench = Bench::new();
    let marker = bench.path("ran");
    let output = bench
        .profiler()
        .args(["record", "-o", "/no/such/dir/run.bprof", "--", "touch"])
        .arg(&marker)
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("/no/such/dir"), "{stderr}");
    assert!(!marker.exists(), "the command ran");
}

/// SIGINT, SIGTERM and SIGHUP end a recording properly: everything sampled is in a file that is
/// whole.
#[test]
fn signals_end_it_properly() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let bench = Bench::new();
        let mut command = BURN_C.command();
        command.args(["1", "30"]);
        let mut workload = Attached::start(command);
        let pid = workload.pid_arg();
        let mut running = Running::start_sampling(&bench, &["-F", &HZ.to_string(), "-p", &pid]);
        workload.release();
        thread::sleep(Duration::from_millis(700));
        running.signal(signal);
        let recorded = running.wait();
        assert!(!recorded.stderr.contains("panicked"), "{}", recorded.stderr);
        assert_eq!(recorded.code(), 0, "{recorded:#?}");
        let folded = recorded.folded();
        assert!(folded.total() > 100, "{folded}");
        assert_eq!(
            folded.total(),
            recorded.summary_number("sample"),
            "{}",
            recorded.stderr
        );
        assert_zstd_accepts(&recorded.capture);
    }
}

/// `nohup profiler record` outlives its terminal, and so does its command.
#[test]
fn nohup_is_respected() {
    let bench = Bench::new();
    let burn = BURN_C.build();
    let mut command = Command::new("nohup");
    command.arg(PROFILER).args(["record", "-F", "499", "-o"]);
    command
        .arg(bench.capture())
        .arg("--")
        .arg(burn)
        .args(["1", "2"]);
    let mut running = Running::start_command(&bench, command);
    thread::sleep(Duration::from_millis(1000));
    running.signal(libc::SIGHUP);
    let recorded = running.wait().ok();
    let seconds = recorded.folded().total() as f64 / 499.0;
    assert!(seconds > 1.6, "{seconds} s of 2 were recorded");
}

/// A file that cannot grow ends the recording, with the reason, and neither the recorder nor the command; one
/// that could not even begin is not left behind.
#[test]
fn a_file_that_may_not_grow() {
    for (kib, left) in [("0", false), ("1", true)] {
        let bench = Bench::new();
        let marker = bench.path("ran");
        let mut command = Command::new("bash");
        command
            .args([
                "-c",
                r#"ulimit -f "$1"; shift; exec "$@""#,
                "bash",
                kib,
                PROFILER,
            ])
            .args(["record", "-F", "4999", "-o"])
            .arg(bench.capture())
            .args(["--", "sh", "-c", r#""$0" 2 2 >/dev/null && : >"$1""#])
            .arg(BURN_C.build())
            .arg(&marker);
        let output = command.output().expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("File too large"), "{stderr}");
        assert_eq!(stderr.matches("File too large").count(), 1, "{stderr}");
        // Where not even the beginning can be written, the command is not started; later it is left alone.
        assert_eq!(stderr.contains("the command goes on"), left, "{stderr}");
        assert_eq!(marker.exists(), left, "the command did not end by itself");
        assert_eq!(bench.capture().exists(), left, "{kib} KiB");
    }
}

/// A signal to the recorder reaches the command too, and the recorder waits for its end.
#[test]
fn a_signal_ends_the_command() {
    let bench = Bench::new();
    let burn = BURN_C.build();
    let mut running = Running::start(
        &bench,
        &["-F", "499", "--", burn.to_str().expect("UTF-8"), "1", "30"],
    );
    thread::sleep(Duration::from_millis(1200));
    running.signal(libc::SIGTERM);
    let recorded = running.wait();
    assert!(recorded.capture.exists(), "{recorded:#?}");
    recorded
        .folded()
        .check_least("its samples", 0.9, |s| s.has("drive"));
    let left = Command::new("pgrep")
        .args(["-x", "burn_c"])
        .output()
        .expect("pgrep runs");
    assert!(
        left.stdout.is_empty(),
        "the command still runs: {}",
        String::from_utf8_lossy(&left.stdout)
    );
}

/// The launched command starts only once sampling is on, and no sample of the launcher is there:
/// not even for a command that is over at once.
#[test]
fn the_launcher_is_not_in_it() {
    let bench = Bench::new();
    let quick = QUICK.build();
    for _ in 0..5 {
        let recorded = bench
            .record(&["-F", "20000", "--", quick.to_str().expect("UTF-8"), "0.02"])
            .ok();
        let folded = recorded.folded();
        folded.check_none("the launcher", |s| s.comm.starts_with("profiler"));
        folded.check_none("another process", |s| s.comm != QUICK.name);
        folded.check_none("the launcher's own code", |s| {
            s.user()
                .any(|f| f.contains("bprof") || f.contains("profiler"))
        });
        // From its very first instruction: the loader's work before main is there.
        folded.check_least("work before main", 0.001, |s| {
            !s.has("main") && s.user().next().is_some()
        });
        folded.check_least("main", 0.5, |s| s.has("quick_spin"));
    }
}

/// A27: a recorder that is killed leaves what it had until then, and the report says that the end
/// is missing.
#[test]
fn a27_killed_recorder() {
    let bench = Bench::new();
    let mut command = BURN_C.command();
    command.args(["1", "30"]);
    let mut workload = Attached::start(command);
    let pid = workload.pid_arg();
    let mut running = Running::start_sampling(&bench, &["-F", "499", "-p", &pid]);
    workload.release();
    thread::sleep(Duration::from_millis(3500));
    // Nanoseconds it has been on a CPU.
    let on_cpu = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it runs");
    let on_cpu: f64 = on_cpu.split(' ').next().unwrap().parse().unwrap();
    running.signal(libc::SIGKILL);
    let recorded = running.wait();
    assert_eq!(recorded.status.code(), None, "{recorded:#?}");
    let folded = recorded.folded();
    // A second may be lost.
    let least = 0.9 * 499.0 * (on_cpu / 1e9 - 1.0);
    assert!(folded.total() as f64 >= least, "{least} wanted\n{folded}");
    folded.check_least("names", 0.95, |s| s.has_chain(&["main", "drive"]));
    let said = ["incomplete", "cut", "not closed", "killed"];
    assert!(
        said.iter().any(|word| folded.verdict.contains(word)),
        "nothing said of the missing end\n{folded}"
    );
}

/// The command has the profiler's standard input, output, directory, and default signal
/// dispositions.
#[test]
fn the_command_runs_as_if_started_by_itself() {
    let bench = Bench::new();
    let script = "cat; pwd; echo err >&2; grep -E 'SigBlk|SigIgn' /proc/self/status; \
                  i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let run = |mut command: Command| {
        command
            .current_dir("/tmp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: signal(2) is async-signal-safe; Rust's runtime ignores SIGPIPE in this process,
        // which is not inherited by children of `Command` but made explicit here.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = command.spawn().expect("it starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"input\n")
            .expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    };
    let mut plain = Command::new("sh");
    plain.args(["-c", script]);
    let mut recorded = Command::new(PROFILER);
    recorded
        .args(["record", "-q", "-o"])
        .arg(bench.capture())
        .args(["--", "sh", "-c", script]);
    let (plain, recorded) = (run(plain), run(recorded));
    assert_eq!(
        String::from_utf8_lossy(&plain.stdout),
        String::from_utf8_lossy(&recorded.stdout)
    );
    assert_eq!(
        String::from_utf8_lossy(&recorded.stderr),
        "err\n",
        "-q says nothing of its own"
    );
}

/// The summary says what there is and what to type next.
#[test]
fn the_summary() {
    let bench = Bench::new();
    let one = ONE.build();
    let recorded = bench
        .record(&["-F", "499", "--", one.to_str().expect("UTF-8"), "0.5"])
        .ok();
    let said = &recorded.stderr;
    assert_eq!(
        recorded.summary_number("sample"),
        recorded.folded().total(),
        "{said}"
    );
    for word in ["recorded", "lost", "profiler report", "run.bprof"] {
        assert!(said.contains(word), "no {word:?} in the summary:\n{said}");
    }
}

/// Reports of a real capture: the same twice, whole, in order of time, and a container that `zstd
/// -t` accepts.
#[test]
fn reports_of_a_real_capture() {
    let bench = Bench::new();
    let mut command = BURN_C.command();
    command.args(["4", "0.3"]);
    let (recorded, _) = bench.record_attached(Attached::start(command), &["-a"]);
    let recorded = recorded.ok();
    assert_zstd_accepts(&recorded.capture);

    for view in [&["--folded"][..], &["--standard"], &["--top", "50"], &[]] {
        assert_eq!(
            recorded.report(view).0,
            recorded.report(view).0,
            "{view:?} differs between two runs"
        );
    }
    let (folded, standard) = (recorded.folded(), recorded.standard());
    assert_eq!(
        folded.total(),
        standard.samples.len() as u64,
        "samples in both reports"
    );
    let times: Vec<&str> = standard.samples.iter().map(|s| s.time()).collect();
    assert!(
        times.iter().all(|t| !t.is_empty()),
        "a sample without a time\n{}",
        standard.head()
    );
    assert!(
        times.is_sorted(),
        "samples out of order\n{}",
        standard.head()
    );
    let lines = recorded.report(&["--folded"]).0;
    assert!(
        lines.lines().map(str::as_bytes).is_sorted(),
        "folded lines are not sorted"
    );
    let (top, _) = recorded.report(&["--top", "5"]);
    assert!(top.contains("hot_a"), "{top}");
}

/// A capture says nothing of other processes' arguments or environment, and may be read by its
/// owner only.
#[test]
fn a_capture_keeps_secrets() {
    let bench = Bench::new();
    let mut command = BURN_C.command();
    command
        .args(["1", "0.3"])
        .env("TOKEN", "a-very-secret-word");
    let (recorded, _) = bench.record_attached(Attached::start(command), &["-a"]);
    let recorded = recorded.ok();
    let plain = Command::new("zstd")
        .arg("-dc")
        .arg(&recorded.capture)
        .output()
        .expect("zstd runs")
        .stdout;
    let raw = fs::read(&recorded.capture).expect("the capture");
    for bytes in [&plain, &raw] {
        assert!(
            !bytes.windows(18).any(|w| w == b"a-very-secret-word"),
            "the environment is in the capture"
        );
    }
    let mode = fs::metadata(&recorded.capture)
        .expect("the capture")
        .permissions()
        .mode();
    assert_eq!(
        mode & 0o077,
        0,
        "a capture of the whole system is readable by others: {mode:o}"
    );
}

fn assert_zstd_accepts(capture: &Path) {
    let output = Command::new("zstd")
        .args(["-q", "-t"])
        .arg(capture)
        .output()
        .expect("zstd runs");
    assert!(
        output.status.success(),
        "zstd -t: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// `record -- $COMMAND` with an empty variable does not record everybody.
#[test]
fn an_empty_command_is_not_the_whole_machine() {
    let bench = Bench::new();
    let mut command = Command::new(PROFILER);
    command
        .args(["record", "-o"])
        .arg(bench.capture())
        .arg("--");
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("no command after --"), "{stderr}");
    assert!(!bench.capture().exists());
}

/// On a terminal the state of the recording is a line on stderr, or the title when the command writes there too.
#[test]
fn the_live_line_leaves_a_commands_output_alone() {
    let bench = Bench::new();
    let burn = BURN_C.build();
    let on_terminal = |redirect: &str| {
        let line = format!(
            "{PROFILER} record -o {} -- {} 1 1.3{redirect}",
            bench.capture().display(),
            burn.display()
        );
        // A terminal of its own, of which it passes everything on.
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm");
        let output = script.stdin(Stdio::null()).output().expect("script runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{shown:?}");
        shown
    };
    let (kept, title, back) = ("\x1b[22;2t", "\x1b]2;recording 1 s: ", "\x1b[23;2t");

    let shown = on_terminal("");
    let places = [kept, title, back].map(|sequence| shown.find(sequence));
    assert!(
        places.is_sorted() && places[0].is_some(),
        "{places:?} in {shown:?}"
    );
    // All that came beside it: whole lines.
    let mut rest = shown.replace(kept, "").replace(back, "");
    while let Some(at) = rest.find("\x1b]2;") {
        let end = rest[at..].find('\x07').map(|end| at + end + 1);
        rest.replace_range(at..end.expect("the end of a title"), "");
    }
    assert!(!rest.contains(['\x1b', '\x07']), "{rest:?}");
    let truths = rest.lines().filter(|line| line.starts_with("truth hot_"));
    assert_eq!(truths.count(), 3, "{rest:?}");

    let shown = on_terminal(" >/dev/null");
    assert!(!shown.contains("\x1b]2;"), "{shown:?}");
    assert!(
        shown.contains("recording 1 s: ") && shown.contains("Ctrl-C"),
        "{shown:?}"
    );
}
