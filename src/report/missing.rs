//! `--missing`: the files that are still needed for names.

use std::io::{self, Write};

use serde::Serialize;

use crate::profile::{Missing, MissingKind, Profile, Reason};

use super::text::{escaped, write_json};
use super::verdict;

/// What can be done about files that lack.
const ADVICE: &str = "\
To name them: --symfs DIR with a copy of the recorded files, --debug-dir DIR with debug files, --debuginfod to download \
by build ID; or run `profiler pack` on the machine that recorded.";

/// A table for people, under the verdict.
pub fn text(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for line in verdict::whole(profile) {
        writeln!(out, "# {line}")?;
    }
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
        writeln!(
            out,
            "{share:>6.2} % {:>10} {:>10}  {} ({id}): {}",
            missing.samples,
            missing.frames,
            escaped(&missing.path),
            missing.reason.label()
        )?;
    }
    let others: Vec<String> = others(profile)
        .map(|(reason, frames)| format!("{} {frames}", reason.label()))
        .collect();
    if !others.is_empty() {
        writeln!(
            out,
            "Frames that no file would name: {}.",
            others.join(", ")
        )?;
    }
    if profile.missing.iter().any(|m| m.kind == MissingKind::File) {
        writeln!(out, "\n{ADVICE}")?;
    }
    Ok(())
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
        text(&profile(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, table) = text.split_once("\n\n").unwrap();
        assert_eq!(
            table,
            format!(
                "   SHARE    SAMPLES     FRAMES  FILE\n \
                 62.50 %          5          9  /a\\n\"b (build ID ab): file missing\n \
                 12.50 %          1          1  [kernel] (no build ID): no kernel symbol\n\
                 Frames that no file would name: anonymous memory 2.\n\n{ADVICE}\n"
            )
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

    #[test]
    fn nothing_missing_is_said() {
        let mut out = Vec::new();
        text(&Profile::default(), &mut out).unwrap();
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
