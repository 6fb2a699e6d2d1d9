//! Runs `profiler record`, and `profiler report` on what it left.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::standard::Standard;
use super::{Bench, Folded, PROFILER, Truth};

/// Longer than any recording here takes, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `profiler record` that runs. It is killed when dropped.
pub struct Running {
    child: Child,
    args: Vec<OsString>,
    capture: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts `profiler record -o CAPTURE ARGS...`.
    pub fn start<S: AsRef<OsStr>>(bench: &Bench, args: &[S]) -> Running {
        let mut command = bench.profiler();
        command
            .arg("record")
            .arg("-o")
            .arg(bench.capture())
            .args(args);
        Running::start_command(bench, command)
    }

    /// Starts `command`, which must write to the bench's capture.
    pub fn start_command(bench: &Bench, mut command: Command) -> Running {
        // Files, not pipes: nobody has to read them while it runs.
        let (stdout, stderr) = (bench.path("record.stdout"), bench.path("record.stderr"));
        command.stdin(Stdio::null());
        command.stdout(File::create(&stdout).expect("a file for stdout"));
        command.stderr(File::create(&stderr).expect("a file for stderr"));
        let child = command
            .spawn()
            .unwrap_or_else(|err| panic!("{command:?} does not start: {err}"));
        let args = command.get_args().map(OsStr::to_owned).collect();
        Running {
            child,
            args,
            capture: bench.capture(),
            stdout,
            stderr,
        }
    }

    /// As [`Running::start`], and returns once it samples.
    pub fn start_sampling<S: AsRef<OsStr>>(bench: &Bench, args: &[S]) -> Running {
        let _ = fs::remove_file(bench.capture());
        Running::start(bench, args).sampling()
    }

    /// As [`Running::start_command`], and returns once it samples.
    pub fn start_command_sampling(bench: &Bench, command: Command) -> Running {
        let _ = fs::remove_file(bench.capture());
        Running::start_command(bench, command).sampling()
    }

    fn sampling(mut self) -> Running {
        let deadline = Instant::now() + PATIENCE;
        // The file has a header once all events are open; what is left is to switch them on.
        while fs::metadata(&self.capture).map_or(0, |m| m.len()) == 0 {
            if let Some(status) = self
                .child
                .try_wait()
                .expect("the recorder can be waited for")
            {
                panic!(
                    "record ended with {status} before it sampled\n{}",
                    self.said()
                );
            }
            assert!(
                Instant::now() < deadline,
                "record does not begin\n{}",
                self.said()
            );
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(200));
        self
    }

    /// Sends `signal` to the recorder, if it still runs.
    pub fn signal(&mut self, signal: i32) {
        if self
            .child
            .try_wait()
            .expect("the recorder can be waited for")
            .is_none()
        {
            // SAFETY: kill only takes numbers, and the PID is of a child that was not waited for.
            unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        let ended = self.child.try_wait();
        ended.expect("the recorder can be waited for").is_none()
    }

    /// Memory it has now, in bytes.
    pub fn resident(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("the recorder runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
        let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        kib.map_or(0, |kib| kib << 10)
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let dir = format!("/proc/{}/fd", self.child.id());
        fs::read_dir(dir).expect("the recorder runs").count()
    }

    /// Leaves it room for one more descriptor.
    pub fn limit_descriptors(&self) {
        let dir = format!("/proc/{}/fd", self.child.id());
        let names = fs::read_dir(dir).expect("the recorder runs");
        let used: Vec<u64> = names
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        let free = (0..).filter(|number| !used.contains(number)).nth(1);
        let free = free.expect("a free number");
        let limit = libc::rlimit {
            rlim_cur: free,
            rlim_max: free,
        };
        let pid = self.child.id() as libc::pid_t;
        // SAFETY: the limit is read and nothing is written.
        let set = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
        assert_eq!(set, 0, "prlimit: {}", std::io::Error::last_os_error());
    }

    /// CPU seconds it has used, in ticks of 10 ms.
    pub fn cpu(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(path).expect("the recorder runs");
        let rest = stat.rsplit(')').next().expect("a name in parentheses");
        let ticks = rest.split_whitespace().skip(11).take(2);
        ticks
            .map(|ticks| ticks.parse::<f64>().expect("clock ticks"))
            .sum::<f64>()
            / 100.0
    }

    /// Ends it as Ctrl-C does.
    pub fn interrupt(mut self) -> Recorded {
        self.signal(libc::SIGINT);
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Recorded {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self
                .child
                .try_wait()
                .expect("the recorder can be waited for")
            {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "record does not end\n{}",
                self.said()
            );
            thread::sleep(Duration::from_millis(10));
        };
        Recorded {
            args: self.args.clone(),
            status,
            stdout: read_lossy(&self.stdout),
            stderr: read_lossy(&self.stderr),
            capture: self.capture.clone(),
        }
    }

    fn said(&self) -> String {
        format!("{:?} said:\n{}", self.args, read_lossy(&self.stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lossy(path: &std::path::Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded {
    #[expect(dead_code, reason = "shown by Debug when a check fails")]
    args: Vec<OsString>,
    /// How the recorder ended.
    pub status: ExitStatus,
    /// What the launched command printed.
    pub stdout: String,
    /// What the recorder said.
    pub stderr: String,
    /// The capture file.
    pub capture: PathBuf,
}

impl Recorded {
    /// Exit code; fails when a signal ended the recorder.
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("a signal ended it: {:?}\n{self:#?}", self.status.signal()))
    }

    /// Fails unless the recorder ended with 0.
    pub fn ok(self) -> Recorded {
        assert_eq!(self.code(), 0, "record failed\n{self:#?}");
        self
    }

    /// What the launched workload printed.
    pub fn truth(&self) -> Truth {
        Truth::parse(&self.stdout)
    }

    /// Runs `profiler report ARGS... CAPTURE`; returns standard output and error. Fails unless it
    /// ends with 0.
    pub fn report(&self, args: &[&str]) -> (String, String) {
        let output = Command::new(PROFILER)
            .arg("report")
            .args(args)
            .arg(&self.capture)
            .output()
            .expect("profiler report starts");
        let (out, err) = (
            output.stdout,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        assert!(
            output.status.success(),
            "profiler report {args:?} ended with {}\n{err}\nThe recorder had said:\n{}",
            output.status,
            self.stderr
        );
        (String::from_utf8(out).expect("reports are UTF-8"), err)
    }

    /// The folded report.
    pub fn folded(&self) -> Folded {
        let (out, verdict) = self.report(&["--folded"]);
        Folded::parse(&out, &verdict)
    }

    /// The standard report.
    pub fn standard(&self) -> Standard {
        let (out, _) = self.report(&["--standard"]);
        Standard::parse(&out)
    }

    /// The number before `word` or its plural in the summary: `recorded N samples of M processes`.
    pub fn summary_number(&self, word: &str) -> u64 {
        // What is told before it has numbers too.
        let summary = self.stderr.find("recorded ").unwrap_or(0);
        let words: Vec<&str> = self.stderr[summary..].split_whitespace().collect();
        let plain = |w: &str| w.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
        words
            .windows(2)
            .filter(|pair| {
                [word, &format!("{word}s"), &format!("{word}es")].contains(&&*plain(pair[1]))
            })
            .find_map(|pair| plain(pair[0]).replace([',', '_'], "").parse().ok())
            .unwrap_or_else(|| panic!("no number before {word:?} in the summary:\n{}", self.stderr))
    }
}
