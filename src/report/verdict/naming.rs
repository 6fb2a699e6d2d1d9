//! Which frames have names, and what lacks.

use crate::counted::counted;
use crate::profile::{Naming, Reason};
use crate::report::text::escaped;

use super::samples::in_samples;

/// Files without names that are listed.
const FILES: usize = 5;

/// How frames were named. `is_unwound`: stacks were walked by unwind information already.
pub fn naming(naming: &Naming, is_unwound: bool) -> Vec<String> {
    let share = |what: &str, named: u64, total: u64| {
        if total == 0 {
            return format!("{what} none sampled");
        }
        // All and nothing are not what it is rounded to.
        let tenths = (named as f64 * 1000.0 / total as f64).round();
        let tenths = match named {
            0 => 0.0,
            _ if named == total => 1000.0,
            _ => tenths.clamp(1.0, 999.0),
        };
        format!("{what} {:.1} % ({named} of {total})", tenths / 10.0)
    };
    let mut line = format!(
        "frames named: {}, {}",
        share("user", naming.user_named, naming.user_total),
        share("kernel", naming.kernel_named, naming.kernel_total)
    );
    if naming.unverified > 0 {
        line.push_str(&format!("; {} unverified (no build ID)", naming.unverified));
    }
    let mut lines = vec![line];
    if naming.ended_early > 0 {
        let hint = match is_unwound {
            true => "",
            false => {
                " (usually of code built without frame pointers: record it with --unwind auto)"
            }
        };
        lines.push(format!(
            "stacks that ended early: {}{hint}",
            in_samples(naming.ended_early)
        ));
    }
    if naming.before_exec > 0 {
        lines.push(format!(
            "user stacks left out: {} inside execve (of the program before)",
            in_samples(naming.before_exec)
        ));
    }
    if !naming.unnamed.is_empty() {
        let reasons: Vec<String> = naming
            .unnamed
            .iter()
            .map(|(reason, count)| format!("{} {count}", reason.label()))
            .collect();
        lines.push(format!("frames without a name: {}", reasons.join(", ")));
    }
    for file in naming.files.iter().take(FILES) {
        let id = file
            .build_id
            .as_ref()
            .map_or("no build ID".to_owned(), |id| format!("build ID {id}"));
        let detail = file.detail.as_ref();
        lines.push(format!(
            "  {} ({id}): {}, {}{}",
            escaped(&file.path),
            file.reason.label(),
            counted(file.frames, "frame"),
            detail.map_or_else(String::new, |detail| format!("; {}", escaped(detail)))
        ));
    }
    if naming.files.len() > FILES {
        let more = counted(naming.files.len() - FILES, "more file");
        lines.push(format!("  and {more}"));
    }
    lines
}

/// A warning when most user frames have no name.
pub fn warning(naming: &Naming) -> Option<String> {
    let percent = naming.user_percent()?;
    (percent < 50.0).then(|| {
        // Files help only where it is files that lack.
        let unnamed = naming.user_total.saturating_sub(naming.user_named);
        let of_files: u64 = naming.files.iter().map(|file| file.frames).sum();
        let of_user = naming
            .unnamed
            .iter()
            .filter(|(reason, _)| **reason != Reason::NoKernelSymbol);
        let most = of_user.max_by_key(|(_, count)| **count);
        let advice = match (naming.files.first(), most) {
            (Some(file), _) if of_files >= unnamed.div_ceil(2) => {
                let path = escaped(&file.path);
                match file.reason {
                    Reason::NoSymbol => format!(
                        "; most are missing in {path}, which has no symbols for them: install its debug symbols or \
                         build it with symbols"
                    ),
                    reason => format!(
                        "; {path} is needed most ({}): bring the recorded file and use --symfs DIR, or run \
                         profiler pack on the machine that has it; --missing lists all",
                        reason.label()
                    ),
                }
            }
            (_, Some((reason, _))) => format!("; most of the others: {}", reason.label()),
            (_, None) => String::new(),
        };
        format!("warning: only {percent:.1} % of the user frames have names{advice}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::BuildId;
    use crate::profile::FileProblem;

    #[test]
    fn names_are_counted_and_missing_files_are_named() {
        let naming_ = Naming {
            user_named: 40,
            user_total: 100,
            kernel_named: 5,
            kernel_total: 5,
            unverified: 4,
            unnamed: [(Reason::FileMissing, 50), (Reason::NoSymbol, 10)].into(),
            files: vec![FileProblem {
                path: "/usr/lib/libx.so".into(),
                build_id: BuildId::new(&[0xab, 0xcd]),
                reason: Reason::FileMissing,
                frames: 50,
                detail: None,
            }],
            ended_early: 3,
            before_exec: 2,
        };
        assert_eq!(
            naming(&naming_, true)[1],
            "stacks that ended early: in 3 samples"
        );
        assert_eq!(
            naming(&naming_, false),
            [
                "frames named: user 40.0 % (40 of 100), kernel 100.0 % (5 of 5); 4 unverified (no build ID)",
                "stacks that ended early: in 3 samples (usually of code built without frame pointers: record it with --unwind auto)",
                "user stacks left out: in 2 samples inside execve (of the program before)",
                "frames without a name: file missing 50, no symbol 10",
                "  /usr/lib/libx.so (build ID abcd): file missing, 50 frames",
            ]
        );
        assert_eq!(
            warning(&naming_).unwrap(),
            "warning: only 40.0 % of the user frames have names; /usr/lib/libx.so is needed most \
             (file missing): bring the recorded file and use --symfs DIR, or run profiler pack on the machine that has it; \
             --missing lists all"
        );
        let mut elsewhere = naming_.clone();
        elsewhere.user_named = 10;
        elsewhere
            .unnamed
            .extend([(Reason::Anonymous, 52), (Reason::NoKernelSymbol, 70)]);
        elsewhere.files[0].frames = 10;
        assert_eq!(
            warning(&elsewhere).unwrap(),
            "warning: only 10.0 % of the user frames have names; most of the others: anonymous memory"
        );
        assert_eq!(
            warning(&Naming {
                user_named: 50,
                ..naming_
            }),
            None
        );
        assert_eq!(warning(&Naming::default()), None);
    }
}
