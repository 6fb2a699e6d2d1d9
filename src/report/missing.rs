//! `--missing`: the files that are still needed for names.

use std::io::{self, Write};

use serde::Serialize;

use crate::profile::{Missing, MissingKind, Profile, Reason};

use super::layout::{self, Style};
use super::text::{escaped, write_json};
use super::verdict;

/// What is to be done where names lack for that reason, after `reason: `. `has_build_id`: of some of the files the build ID is known.
fn advice(reason: Reason, kind: MissingKind, has_build_id: bool) -> Option<&'static str> {
    Some(match (reason, kind) {
        (Reason::NoSymbol, MissingKind::File) => match has_build_id {
            true => {
                "the file is here and stripped: install its debug symbols (Debian: the package's -dbgsym), name a copy with \
                 --debug-dir DIR, or download them with --debuginfod"
            }
            false => {
                "the file is here and has none: build it with symbols, or with a build ID, by which debug files are found"
            }
        },
        (Reason::FileMissing, MissingKind::File) => match has_build_id {
            true => {
                "bring the recorded file, with --symfs DIR (a copy of the root directory there) or --debuginfod; or run profiler pack \
                 on the machine that recorded"
            }
            false => {
                "bring the recorded file with --symfs DIR (a copy of the root directory there that keeps times of files: cp -a); or \
                 run profiler pack on the machine that recorded"
            }
        },
        (Reason::BuildIdDiffers | Reason::VersionDiffers, _) => {
            "another version is here: bring the one that ran, with --symfs DIR, or by its build ID with --debug-dir DIR or --debuginfod"
        }
        (Reason::NothingToCompare, _) => {
            "neither build ID nor size and time were recorded, so no file can be believed: link it with --build-id and record again"
        }
        (Reason::NoBuildId, _) => {
            "--require-build-id refuses files without one: leave it out, or link them with --build-id"
        }
        (Reason::Unreadable, _) => {
            "run this as a user who may read the file, or bring a copy with --symfs DIR"
        }
        (Reason::NotRegular | Reason::NotElf, _) => {
            "what is at this path is no program: bring the recorded file with --symfs DIR"
        }
        (Reason::NoKernelSymbol, _) => {
            "the capture has no name for these addresses: record as root or with CAP_SYSLOG, with kernel.kptr_restrict below 2; of perf's \
             recordings, import them on the machine that recorded"
        }
        (Reason::NoVdso, _) => {
            "the recording was cut short before the vdso was written, or perf's, which has none"
        }
        (Reason::NoSymbol, MissingKind::Vdso) => {
            "the kernel's own vdso has no symbol there: nothing can be done"
        }
        (Reason::MapsUnreadable, _) => {
            "mappings of processes that ran before the recording could not be read: record as root, or with CAP_SYS_PTRACE"
        }
        (Reason::Anonymous, _) => {
            "usually a JIT's: have its runtime write a perf map while it is recorded (node --perf-basic-prof; java: jcmd PID Compiler.perfmap)"
        }
        _ => return None,
    })
}

/// A line of advice for each reason there is, in the order in which reasons come.
fn advices(profile: &Profile) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let reasons = profile
        .missing
        .iter()
        .map(|m| (m.reason, m.kind, m.build_id.is_some()));
    let others = others(profile).map(|(reason, _)| (reason, MissingKind::File, false));
    for (reason, kind, has_build_id) in reasons.chain(others) {
        let Some(advice) = advice(reason, kind, has_build_id) else {
            continue;
        };
        let line = format!("{}: {advice}", reason.label());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A table for people, under the verdict.
pub fn text(profile: &Profile, style: Style, out: &mut dyn Write) -> io::Result<()> {
    layout::head(verdict::whole(profile), style, out)?;
    writeln!(out)?;
    let samples = profile.about.weight_shown();
    if profile.missing.is_empty() {
        writeln!(
            out,
            "No file is missing: all frames that files can name have names."
        )?;
    } else {
        writeln!(
            out,
            "{:>8} {:>10} {:>10}  FILE",
            "SHARE", "SAMPLES", "FRAMES"
        )?;
    }
    for missing in &profile.missing {
        let id = match &missing.build_id {
            Some(id) => format!("build ID {id}"),
            None => "no build ID".to_owned(),
        };
        let share = share(missing, samples) * 100.0;
        let numbers = format!(
            "{share:>6.2} % {:>10} {:>10}  ",
            missing.samples, missing.frames
        );
        let reason = missing.reason.label();
        let file = format!("{} ({id}): {reason}", escaped(&missing.path));
        layout::paragraph(&numbers, &file, numbers.len() + 2, style, out)?;
    }
    let others: Vec<String> = others(profile)
        .map(|(reason, frames)| format!("{} {frames}", reason.label()))
        .collect();
    if !others.is_empty() {
        let line = format!("Frames that no file would name: {}.", others.join(", "));
        layout::paragraph("", &line, 2, style, out)?;
    }
    let advices = advices(profile);
    if !advices.is_empty() {
        writeln!(out, "\nWhat can be done:")?;
    }
    advices
        .iter()
        .try_for_each(|line| layout::paragraph("  ", line, 4, style, out))
}

/// The same for scripts.
pub fn json(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        samples: u64,
        damaged: bool,
        missing: Vec<Entry<'a>>,
        other: Vec<Other>,
    }
    #[derive(Serialize)]
    struct Entry<'a> {
        kind: &'static str,
        path: &'a str,
        build_id: Option<String>,
        reason: &'static str,
        samples: u64,
        share: f64,
        frames: u64,
    }
    #[derive(Serialize)]
    struct Other {
        reason: &'static str,
        frames: u64,
    }
    let samples = profile.about.weight_shown();
    let document = Document {
        samples,
        damaged: profile.about.is_damaged(),
        missing: profile
            .missing
            .iter()
            .map(|m| Entry {
                kind: m.kind.label(),
                path: &m.path,
                build_id: m.build_id.as_ref().map(ToString::to_string),
                reason: m.reason.label(),
                samples: m.samples,
                share: share(m, samples),
                frames: m.frames,
            })
            .collect(),
        other: others(profile)
            .map(|(reason, frames)| Other {
                reason: reason.label(),
                frames,
            })
            .collect(),
    };
    write_json(&document, out)
}

/// Samples with frames that lack, as a part of all.
fn share(missing: &Missing, samples: u64) -> f64 {
    if samples == 0 {
        return 0.0;
    }
    missing.samples as f64 / samples as f64
}

/// Frames without a name for reasons that have to do with no file.
fn others(profile: &Profile) -> impl Iterator<Item = (Reason, u64)> + '_ {
    let unnamed = profile.naming.unnamed.iter();
    unnamed
        .filter(|(reason, _)| {
            matches!(
                reason,
                Reason::UnknownImage
                    | Reason::MapsUnreadable
                    | Reason::NotMapped
                    | Reason::Anonymous
                    | Reason::NoPath
                    | Reason::TooMany
            )
        })
        .map(|(reason, frames)| (*reason, *frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BuildId;
    use crate::profile::{About, Naming};

    fn profile() -> Profile {
        let missing = |kind, path: &str, id: &[u8], reason, samples, frames| Missing {
            kind,
            path: path.to_owned(),
            build_id: BuildId::new(id),
            reason,
            samples,
            frames,
        };
        Profile {
            about: About {
                samples: 8,
                ..About::default()
            },
            naming: Naming {
                unnamed: [(Reason::FileMissing, 9), (Reason::Anonymous, 2)].into(),
                ..Naming::default()
            },
            missing: vec![
                missing(
                    MissingKind::File,
                    "/a\n\"b",
                    &[0xab],
                    Reason::FileMissing,
                    5,
                    9,
                ),
                missing(
                    MissingKind::Kernel,
                    "[kernel]",
                    &[],
                    Reason::NoKernelSymbol,
                    1,
                    1,
                ),
            ],
            ..Profile::default()
        }
    }

    #[test]
    fn what_lacks_is_listed_with_its_share() {
        let mut out = Vec::new();
        text(&profile(), Style::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, table) = text.split_once("\n\n").unwrap();
        assert_eq!(
            table,
            "   SHARE    SAMPLES     FRAMES  FILE\n \
             62.50 %          5          9  /a\\n\"b (build ID ab): file missing\n \
             12.50 %          1          1  [kernel] (no build ID): no kernel symbol\n\
             Frames that no file would name: anonymous memory 2.\n\n\
             What can be done:\n  \
             file missing: bring the recorded file, with --symfs DIR (a copy of the root directory there) or --debuginfod; or run \
             profiler pack on the machine that recorded\n  \
             no kernel symbol: the capture has no name for these addresses: record as root or with CAP_SYSLOG, with \
             kernel.kptr_restrict below 2; of perf's recordings, import them on the machine that recorded\n  \
             anonymous memory: usually a JIT's: have its runtime write a perf map while it is recorded (node --perf-basic-prof; \
             java: jcmd PID Compiler.perfmap)\n"
        );
        let mut out = Vec::new();
        json(&profile(), &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "samples": 8,
                "damaged": false,
                "missing": [
                    { "kind": "file", "path": "/a\n\"b", "build_id": "ab", "reason": "file missing",
                      "samples": 5, "share": 0.625, "frames": 9 },
                    { "kind": "kernel", "path": "[kernel]", "build_id": null, "reason": "no kernel symbol",
                      "samples": 1, "share": 0.125, "frames": 1 },
                ],
                "other": [ { "reason": "anonymous memory", "frames": 2 } ],
            })
        );
    }

    /// Each reason once, whatever files it is of, and none where nothing can be done.
    #[test]
    fn advice_is_of_the_reasons_there_are() {
        let mut profile = profile();
        profile.naming.unnamed = [(Reason::NotMapped, 1)].into();
        let of = |reason, id: &[u8]| Missing {
            kind: MissingKind::File,
            path: "/x".to_owned(),
            build_id: BuildId::new(id),
            reason,
            samples: 1,
            frames: 1,
        };
        profile.missing = vec![
            of(Reason::NoSymbol, &[1]),
            of(Reason::NoSymbol, &[2]),
            of(Reason::BuildIdDiffers, &[3]),
            of(Reason::FileMissing, &[]),
        ];
        let begins: Vec<String> = advices(&profile)
            .iter()
            .map(|line| {
                line.split_whitespace()
                    .take(8)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(
            begins,
            [
                "no symbol: the file is here and stripped:",
                "build ID differs: another version is here: bring",
                "file missing: bring the recorded file with --symfs",
            ]
        );
        assert!(advices(&profile)[2].contains("keeps times of files"));
    }

    #[test]
    fn nothing_missing_is_said() {
        let mut out = Vec::new();
        text(&Profile::default(), Style::default(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.ends_with("\nNo file is missing: all frames that files can name have names.\n")
        );
        let mut out = Vec::new();
        json(&Profile::default(), &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["missing"], serde_json::json!([]));
    }
}
