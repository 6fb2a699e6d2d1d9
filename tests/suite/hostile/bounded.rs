//! Runs of the program that must end by themselves, within limits of memory and time.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What became of a run within 2 GiB and 10 seconds.
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
    /// Most memory of the process itself (KiB).
    pub peak: u64,
}

pub fn run(args: &[&str], file: &Path) -> Run {
    let script = "ulimit -v 2097152; exec timeout 10 \"$0\" \"$@\"";
    let start = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_profiler")])
        .args(args)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).unwrap();
        text
    });
    // Some of it is large: what is looked at is the beginning.
    let mut out = vec![0; 1 << 20];
    let mut stdout = child.stdout.take().unwrap();
    let mut len = 0;
    loop {
        match stdout.read(&mut out[len..]).unwrap() {
            0 if len < out.len() => break,
            0 => {
                std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
                break;
            }
            more => len += more,
        }
    }
    out.truncate(len);
    let code = child.wait().unwrap().code();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run {
        code,
        out: text(&out),
        err: text(&errors.join().unwrap()),
        took: start.elapsed(),
        peak: 0,
    }
}

/// As [`run`], and how much memory it took at most: by the kernel's own mark, which is looked at until it ends.
pub fn measured(args: &[&str], file: &Path) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let err = dir.path().join("err");
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_profiler"))
        .args(args)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        let status = status.unwrap_or_default();
        let mark = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let mark = mark.and_then(|text| text.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(mark.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    };
    Run {
        code: status.code(),
        out: "not looked at".to_owned(),
        err: fs::read_to_string(&err).unwrap(),
        took: start.elapsed(),
        peak,
    }
}

/// It ended by itself, said why where it failed, and wrote nothing that a terminal would obey.
pub fn is_civil(what: &str, run: &Run) {
    let Run { code, out, err, .. } = run;
    assert!(
        matches!(code, Some(0 | 1)),
        "{what}: {code:?} after {:?}\n{err}",
        run.took
    );
    assert!(!err.contains("panicked"), "{what}: {err}");
    // `verify` tells on standard output.
    let silent = err.is_empty() && out.is_empty();
    assert!(*code == Some(0) || !silent, "{what}: no message");
    let odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t' | '\r');
    for text in [out, err] {
        let turned = text.find(['\u{202e}', '\u{2066}', '\u{2028}']);
        assert_eq!(turned, None, "{what}");
        // Progress on stderr is for terminals only, and there is none.
        assert_eq!(text.find(odd), None, "{what}: {text:?}");
    }
}
