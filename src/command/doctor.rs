//! `profiler doctor`.

use std::io::{self, BufWriter, Write, stdout};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use super::screen;
use crate::cli::record::DoctorArgs;
use crate::record::requirements::{self, Finding, State};
use crate::report::layout::Style;
use crate::report::text::escaped;

/// Tells whether `record` would work. The exit code is 1 when it would not.
pub fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = requirements::all(&args.output);
    let mut out = BufWriter::new(stdout().lock());
    let printed = match args.json {
        true => json(&findings, &mut out),
        false => text(&findings, screen::of_report(true), &mut out),
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

/// Aligned lines for people; in colour the state stands out.
fn text(findings: &[Finding], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let width = findings.iter().map(|f| f.requirement.len()).max();
    let width = width.unwrap_or(0);
    // Where what was found begins.
    let column = width + 12;
    for finding in findings {
        let (word, color) = match finding.state {
            State::Ok => ("ok", 32),
            State::Degraded => ("degraded", 33),
            State::Missing => ("missing", 31),
        };
        let what = finding.requirement;
        let state = style.colored(&format!("{word:8}"), color);
        let found = style.wrapped(&escaped(&finding.found), column, column);
        writeln!(out, "{what:width$}  {state}  {found}")?;
        if let Some(fix) = &finding.fix {
            let fix = format!("fix: {}", escaped(fix));
            // What is typed has to be one line, which a terminal breaks where it likes.
            let fix = match is_command(&fix) {
                true => fix,
                false => style.wrapped(&fix, column, column + 5),
            };
            writeln!(out, "{:column$}{fix}", "")?;
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

/// Whether there is a command in what mends it.
fn is_command(fix: &str) -> bool {
    fix.contains("sudo ") || fix.contains("profiler record ")
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
        text(&findings, Style::default(), &mut out).expect("memory");
        let shown = String::from_utf8(out).expect("UTF-8");
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[0].starts_with("BTF  ok        it"), "{shown}");
        assert!(!shown.contains('\x1b'), "{shown:?}");
        assert_eq!(lines[2], "               fix: do it");
        assert_eq!(lines[4], "Recording does not work here: 1 missing.");
    }

    /// On a terminal between words; commands stay whole, to be copied.
    #[test]
    fn lines_fit_the_terminal_and_colour_is_the_styles() {
        let text = |fix: &str, style| {
            let finding = Finding {
                requirement: "BTF",
                state: State::Degraded,
                found: "a few words that tell".into(),
                fix: Some(fix.to_owned()),
            };
            let mut out = Vec::new();
            super::text(&[finding], style, &mut out).expect("memory");
            String::from_utf8(out).expect("UTF-8")
        };
        let narrow = Style {
            width: Some(28),
            color: false,
        };
        assert_eq!(
            text("run a newer kernel", narrow),
            "BTF  degraded  a few words\n               that tell\n               fix: run\n                    a newer\n                    \
             kernel\n\nRecording works here, 1 degraded.\n"
        );
        let command = "sudo sysctl -w kernel.perf_event_max_stack=127";
        assert!(text(command, narrow).contains(&format!("fix: {command}\n")));
        let colour = Style {
            width: None,
            color: true,
        };
        assert!(
            text("x", colour).starts_with("BTF  \x1b[33mdegraded\x1b[0m  a few words that tell\n")
        );
        assert!(!text("x", narrow).contains('\x1b'));
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
