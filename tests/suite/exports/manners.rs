//! Files, pipes and terminals that exports go to; completions and man pages.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::report::fixture::{Bench, Run, Scene, Taken, profiler, subcommand, usual};

#[test]
fn exports_go_to_files_and_pipes() {
    let bench = Bench::new();
    let bytes = usual(&bench.elf).finish();
    let capture = bench.capture("run.bprof", &bytes);
    for option in ["--pprof", "--firefox", "--speedscope"] {
        let run = Run::of(profiler(&[option]).arg(&capture).arg(&capture));
        assert_eq!(run.code, Some(1), "{option}");
        assert_eq!(fs::read(&capture).unwrap(), bytes);
        // Twice into the same file, and the same to standard output.
        let out = bench.path("out");
        let _ = fs::remove_file(&out);
        for _ in 0..2 {
            Run::of(profiler(&[option]).arg(&out).arg(&capture)).ok();
        }
        let piped = profiler(&[option]).arg("-").arg(&capture).output().unwrap();
        assert_eq!(piped.status.code(), Some(0));
        assert!(!piped.stdout.is_empty());
        assert_eq!(piped.stdout, fs::read(&out).unwrap(), "{option}");
        assert!(String::from_utf8_lossy(&piped.stderr).starts_with("# host: "));
        let both = Run::of(
            profiler(&[option])
                .arg(&out)
                .args(["-o", "x"])
                .arg(&capture),
        );
        assert_eq!(both.code, Some(2));
    }
    // Not onto a terminal: `script` gives one.
    let mut command = Command::new("script");
    let shown = format!(
        "{} report --pprof - {}",
        env!("CARGO_BIN_EXE_profiler"),
        capture.display()
    );
    let output = command
        .args(["-qec", &shown, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("not for terminals"));
}

#[test]
fn a_closed_pipe_is_quiet_in_every_export() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    for i in 0..20_000u64 {
        let comm = format!("c{i}");
        s.sample(Taken {
            user: &[i],
            ..Taken::of(app, 100, &comm, 1_000_000_000 + i)
        });
    }
    let capture = bench.capture("run.bprof", &s.finish());
    for option in [
        &["--pprof", "-"][..],
        &["--firefox", "-"],
        &["--speedscope", "-"],
        &["--perf-script"],
    ] {
        let mut command = profiler(option);
        command
            .arg(&capture)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let run = Run::from(child.wait_with_output().unwrap());
        assert_eq!(run.code, Some(0), "{option:?}: {}", run.err);
        assert!(
            !run.err.contains("panicked") && !run.err.contains("Broken pipe"),
            "{}",
            run.err
        );

        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let run = Run::of(profiler(option).arg(&capture).stdout(full));
        assert_eq!(run.code, Some(1), "{option:?}");
        assert!(
            run.err.contains("cannot write to standard output"),
            "{}",
            run.err
        );
    }
}

#[test]
fn shells_and_man_read_what_is_generated() {
    let dir = tempfile::tempdir().unwrap();
    let script = Run::of(&mut subcommand("completions", &["bash"])).ok();
    let mut bash = Command::new("bash");
    let asked = format!(
        "{script}\nCOMP_WORDS=(profiler report --pp); COMP_CWORD=2; _profiler profiler --pp report; echo \"${{COMPREPLY[*]}}\""
    );
    let mut child = bash
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(asked.as_bytes())
        .unwrap();
    assert_eq!(
        Run::from(child.wait_with_output().unwrap()).ok(),
        "--pprof\n"
    );
    for (shell, has) in [
        ("zsh", "#compdef profiler"),
        ("fish", "complete -c profiler"),
    ] {
        assert!(
            Run::of(&mut subcommand("completions", &[shell]))
                .ok()
                .contains(has)
        );
    }
    assert_eq!(
        Run::of(&mut subcommand("completions", &["tcsh"])).code,
        Some(2)
    );

    let pages = dir.path().join("man/man1");
    Run::of(&mut subcommand("man", &[&pages])).ok();
    let text = fs::read_to_string(pages.join("profiler-report.1")).unwrap();
    assert!(
        text.contains(".TH profiler-report 1") && text.contains("\\-\\-pprof"),
        "{text}"
    );
    assert!(text.contains("Examples:"), "{text}");
    let help = Run::of(Command::new(env!("CARGO_BIN_EXE_profiler")).arg("--help")).ok();
    let commands = help
        .lines()
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1);
    let commands = commands
        .map_while(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '));
    for command in commands
        .filter_map(|line| line.split_whitespace().next())
        .filter(|c| *c != "help")
    {
        assert!(
            pages.join(format!("profiler-{command}.1")).exists(),
            "{command}"
        );
        let help = Run::of(&mut subcommand(command, &["--help"])).ok();
        assert!(
            help.contains("Examples:"),
            "{command} --help shows no examples"
        );
        assert!(
            help.contains("Exit status: "),
            "{command} --help does not tell its exit status"
        );
    }
}
