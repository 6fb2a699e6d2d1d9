//! Code that no file names: JITs are looked for in processes that run some.

use super::Processes;
use super::model::Start;
use crate::event::{Pid, ProcessKey, Timestamp};
use crate::record::procfs;

/// Executable memory without a file of a sampled process, as of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnnamedCode {
    /// Whose.
    pub key: ProcessKey,
    /// Its start in clock ticks, as `/proc` has it.
    pub start_ticks: u64,
    /// Since when it has been running what it runs.
    pub since: Timestamp,
    /// It has ended.
    pub ended: bool,
    /// Start and end of each range, ascending, with gaps in between.
    pub ranges: Vec<(u64, u64)>,
}

impl UnnamedCode {
    /// Whether the process is there, and no other has its number.
    pub fn is_alive(&self) -> bool {
        procfs::read_stat(self.key.tgid).is_ok_and(|stat| stat.start_ticks == self.start_ticks)
    }
}

impl Processes {
    /// Something may have become of the code of `pid`.
    pub(super) fn code_changed(&mut self, pid: Pid) {
        if self.code_changed.last() != Some(&pid) {
            self.code_changed.push(pid);
        }
    }

    /// Sampled processes whose code that no file names may have changed since the last call, the ended ones first.
    pub fn take_unnamed_code(&mut self) -> Vec<UnnamedCode> {
        let mut pids = std::mem::take(&mut self.code_changed);
        pids.sort_unstable();
        pids.dedup();
        let mut found = Vec::new();
        for pid in pids {
            let processes = self.by_pid.get(&pid).into_iter().flatten();
            for process in processes.filter(|p| p.sampled && !p.kernel) {
                let (Start::At(start_time), Some(image)) = (process.start, process.images.last())
                else {
                    continue;
                };
                found.push(UnnamedCode {
                    key: ProcessKey {
                        tgid: pid,
                        start_time,
                    },
                    start_ticks: start_time.0 / self.tick_ns,
                    since: image.since,
                    ended: process.ended.is_some(),
                    ranges: image.space.unnamed(),
                });
            }
        }
        found
    }
}
