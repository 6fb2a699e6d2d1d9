//! Whether this user on this machine can record: each requirement with its state and the command that mends it.
//!
//! `record` asks for the few it can look up at once before it touches anything; `doctor` asks for all, and tries.

mod kernel;
mod limits;
mod rights;
mod tried;

use std::path::Path;

use anyhow::{Result, anyhow};
use serde::Serialize;

use super::options::Target;

/// How a requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All is there.
    Ok,
    /// Recording works, with something missing.
    Degraded,
    /// Recording does not work.
    Missing,
}

/// One requirement as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is required.
    pub requirement: &'static str,
    /// How it is met.
    pub state: State,
    /// What was found and, unless that is fine, what it means.
    pub found: String,
    /// What mends it: a command where there is one. `None` when it is fine or cannot be mended.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(requirement: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            requirement,
            state: State::Ok,
            found: found.into(),
            fix: None,
        }
    }

    fn degraded(requirement: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            state: State::Degraded,
            ..Finding::ok(requirement, found)
        }
    }

    fn missing(requirement: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            state: State::Missing,
            ..Finding::ok(requirement, found)
        }
    }

    fn fix(self, fix: impl Into<String>) -> Finding {
        Finding {
            fix: Some(fix.into()),
            ..self
        }
    }
}

/// Without these nothing works, and looking costs nothing.
fn essential() -> Vec<Finding> {
    vec![
        kernel::release(),
        kernel::btf(),
        rights::capabilities(),
        kernel::pid_namespace(),
        kernel::time_namespace(),
    ]
}

/// Checks what recording cannot do without. Says of the first that is missing what `doctor` says of it.
pub fn check() -> Result<()> {
    match essential().into_iter().find(|f| f.state == State::Missing) {
        None => Ok(()),
        Some(Finding { found, fix, .. }) => Err(match fix {
            None => anyhow!("{found}"),
            Some(fix) => anyhow!("{found}: {fix}"),
        }),
    }
}

/// What a recording of `target` will lack that this user may not see, to be told before it begins.
pub fn unseen(target: &Target) -> Option<&'static str> {
    match target {
        Target::System | Target::ProcessGroup(_) | Target::Session(_) | Target::Cgroup(_) => {
            rights::others_unnamed()
        }
        // Whoever is chosen is one's own, as a rule; where not, the mappings missed are counted.
        Target::Processes(_) | Target::Threads(_) | Target::Command(_) => None,
    }
}

/// Everything, as for a recording into `output`. Unless something is missing already, events are opened and the sampling
/// program is loaded for a moment; nothing is sampled and nothing is written.
pub fn all(output: &Path) -> Vec<Finding> {
    let mut findings = essential();
    let possible = findings.iter().all(|f| f.state != State::Missing);
    findings.extend([rights::paranoid(), kernel::kptr_restrict()]);
    // What is missing already would only be told again.
    if possible {
        findings.extend(tried::all());
    }
    findings.extend([
        limits::sample_rate(),
        limits::stack_depth(),
        limits::ring_memory(),
        kernel::cgroups(),
        limits::output(output),
    ]);
    findings
}

/// A number in a file of `/proc/sys`.
fn setting(name: &str) -> Option<i64> {
    let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    text.trim().parse().ok()
}
