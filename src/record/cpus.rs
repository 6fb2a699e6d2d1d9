//! CPU lists as sysfs writes them: `0-11,13`.

use std::fs;

use anyhow::{Context, Result};

/// Parses a sysfs CPU list. `None` when it is not one; gaps and single numbers are fine.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}

/// More than any kernel can be built for (`NR_CPUS` is at most 8,192).
const MAX_CPUS: u32 = 1 << 16;

fn read(name: &str) -> Result<Vec<u32>> {
    let path = format!("/sys/devices/system/cpu/{name}");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_list(&text).with_context(|| format!("{path} is not a CPU list: {text:?}"))
}

/// CPUs that run now.
pub fn online() -> Result<Vec<u32>> {
    read("online")
}

/// One more than the highest CPU number that can ever come online: what per-CPU arrays need.
pub fn possible_count() -> Result<u32> {
    Ok(read("possible")?.last().map_or(1, |last| last + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ranges_gaps_and_large_machines() {
        assert_eq!(parse_list("0\n"), Some(vec![0]));
        assert_eq!(parse_list("0-1\n"), Some(vec![0, 1]));
        assert_eq!(parse_list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        let gap = parse_list("0-11,13").unwrap_or_default();
        assert_eq!(
            (gap.len(), gap.contains(&12), gap.last()),
            (13, false, Some(&13))
        );
        assert_eq!(parse_list("0-511").map(|c| c.len()), Some(512));
        assert_eq!(parse_list("3,1-2,2").as_deref(), Some(&[1, 2, 3][..]));
    }

    #[test]
    fn refuses_what_is_not_a_list() {
        for bad in ["", "\n", "a", "1-", "-1", "3-1", "0-99999999", "1;2"] {
            assert_eq!(parse_list(bad), None, "{bad:?}");
        }
    }
}
