//! Code of ours that was only needed to get started: given back, so that recording itself takes less memory.

use rustix::mm::{Advice, madvise};

use super::maps::read_executable;
use crate::event::Pid;

/// Unmaps the pages of this program's code. What is needed again comes back from the page cache, some pages at a time: of the
/// six megabytes, those that check, load and open are most.
pub fn give_back() {
    let here = give_back as *const () as u64;
    let own = read_executable(Pid(std::process::id())).unwrap_or_default();
    for mapping in own {
        if (mapping.start..mapping.end).contains(&here) {
            let length = mapping.end - mapping.start;
            // SAFETY: mapped from a file to be read and run, never to be written, so its pages can always be read again.
            let _ = unsafe {
                madvise(
                    mapping.start as *mut _,
                    length as usize,
                    Advice::LinuxDontNeed,
                )
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of this program's code in memory.
    fn resident() -> u64 {
        let here = resident as *const () as u64;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|r| r.split_once('-'));
            let ends = range.map(|(a, b)| (u64::from_str_radix(a, 16), u64::from_str_radix(b, 16)));
            if let Some((Ok(start), Ok(end))) = ends {
                inside = (start..end).contains(&here);
            }
            if let Some(kb) = line.strip_prefix("Rss:").filter(|_| inside) {
                return kb.trim().trim_end_matches(" kB").parse().unwrap();
            }
        }
        panic!("own code is not mapped");
    }

    #[test]
    fn code_is_given_back_and_runs_on() {
        // Other tests run meanwhile and bring theirs back.
        let fewer = (0..20).any(|_| {
            let before = resident();
            give_back();
            resident() < before
        });
        assert!(fewer);
    }
}
