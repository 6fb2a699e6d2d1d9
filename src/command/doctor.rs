//! `profiler doctor`.

use std::io::{self, BufWriter, IsTerminal, Write, stdout};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use crate::cli::record::DoctorArgs;
use crate::record::requirements::{self, Finding, State};
use crate::report::text::escaped;

/// Tells whether `record` would work. The exit code is 1 when it would not.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = requirements::all(&args.output);
    let mut out = BufWriter::new(stdout().lock());
    let printed = match args.json {
        true => json(&findings, &mut out),
        false => text(&findings, stdout().is_terminal(), &mut out),
    };
    match printed.and_then(|()| out.flush()) {
        Err(err) if err.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    Ok(match worst(&findings) {
        State::Missing => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn worst(findings: &[Finding]) -> State {
    let states = findings.iter().map(|f| f.state);
    states.max().unwrap_or(State::Ok)
}

/// Aligned lines for people; in `colour` the state stands out.
fn text(findings: &[Finding], colour: bool, out: &mut dyn Write) -> io::Result<()> {
    let width = findings.iter().map(|f| f.requirement.len()).max();
    let width = width.unwrap_or(0);
    for finding in findings {
        let (word, sgr) = match finding.state {
            State::Ok => ("ok", "32"),
            State::Degraded => ("degraded", "33"),
            State::Missing => ("missing", "31"),
        };
        let (on, off) = match colour {
            true => (format!("\x1b[{sgr}m"), "\x1b[0m"),
            false => (String::new(), ""),
        };
        let what = finding.requirement;
        let found = escaped(&finding.found);
        writeln!(out, "{what:width$}  {on}{word:8}{off}  {found}")?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "{:width$}  {:8}  fix: {}", "", "", escaped(fix))?;
        }
    }
    let count = |state| findings.iter().filter(|f| f.state == state).count();
    match (
        worst(findings),
        count(State::Missing),
        count(State::Degraded),
    ) {
        (State::Missing, missing, _) => {
            writeln!(out, "\nRecording does not work here: {missing} missing.")
        }
        (State::Degraded, _, degraded) => {
            writeln!(out, "\nRecording works here, {degraded} degraded.")
        }
        (State::Ok, ..) => writeln!(out, "\nRecording works here."),
    }
}

fn json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Report<'a> {
        works: bool,
        requirements: &'a [Finding],
    }
    let report = Report {
        works: worst(findings) != State::Missing,
        requirements: findings,
    };
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(state: State, fix: Option<&str>) -> Finding {
        Finding {
            requirement: "BTF",
            state,
            found: "it\x1b[2J".into(),
            fix: fix.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_missing_and_what_mends_it_is_shown() {
        let mut out = Vec::new();
        let findings = [
            finding(State::Ok, None),
            finding(State::Missing, Some("do it")),
        ];
        text(&findings, false, &mut out).expect("memory");
        let shown = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[0].starts_with("BTF  ok        it"), "{shown}");
        assert!(!shown.contains('\x1b'), "{shown:?}");
        assert_eq!(lines[2], "               fix: do it");
        assert_eq!(lines[4], "Recording does not work here: 1 missing.");
    }

    #[test]
    fn json_has_a_state_for_each() {
        let mut out = Vec::new();
        json(&[finding(State::Degraded, None)], &mut out).expect("memory");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(value["works"], true);
        assert_eq!(value["requirements"][0]["state"], "degraded");
        assert_eq!(value["requirements"][0]["fix"], serde_json::Value::Null);
    }
}
