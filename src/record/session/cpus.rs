//! CPUs that go offline and come online while a recording runs.
//!
//! The kernel ends the perf events of a CPU that goes, without a word, and one that comes (back) has none. The BPF
//! program counts comings and goings, which tells at once; where it cannot, the list of online CPUs tells with the next
//! flush, and only of a CPU that is gone at that moment.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

use anyhow::Result;

use super::Session;
use crate::event::{LossClass, Timestamp};
use crate::record::bpf::Program;
use crate::record::{cpus, host};

/// Which CPUs have events, and since when that is known to be all there are.
#[derive(Debug)]
pub(super) struct CpuWatch {
    /// CPU and how often it had come or gone before its events were opened.
    open: BTreeMap<u32, u64>,
    /// Of all CPUs, when it was last looked.
    changes: u64,
    /// No CPU came after the last look and before this.
    checked: Timestamp,
}

/// What a look found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Their events are dead.
    gone: Vec<u32>,
    /// Online and without events; with the count to remember.
    came: Vec<(u32, u64)>,
}

impl CpuWatch {
    /// To be called before events are opened on the CPUs `online`.
    pub fn new(online: &[u32], program: &Program) -> CpuWatch {
        let (checked, changes) = (host::now(), program.cpu_changes());
        let open = online
            .iter()
            .map(|cpu| (*cpu, program.changes_of_cpu(*cpu)))
            .collect();
        CpuWatch {
            open,
            changes,
            checked,
        }
    }

    /// What is different from the last look, with the CPUs that are `online` and how often each has come or gone.
    fn look(&mut self, online: &[u32], changes_of: impl Fn(u32) -> u64) -> Found {
        let mut found = Found::default();
        self.open.retain(|cpu, before| {
            let same = online.contains(cpu) && changes_of(*cpu) == *before;
            if !same {
                found.gone.push(*cpu);
            }
            same
        });
        let new = online.iter().filter(|cpu| !self.open.contains_key(*cpu));
        found.came = new.map(|cpu| (*cpu, changes_of(*cpu))).collect();
        found
    }
}

impl Session<'_> {
    /// Closes the events of CPUs that went and opens those of CPUs that came. Without `thorough` only when the BPF
    /// program counted one.
    pub(super) fn follow_cpus(&mut self, thorough: bool) -> Result<()> {
        let (now, changes) = (host::now(), self.setup.program.cpu_changes());
        let watch = &mut self.setup.cpus;
        let told = changes != watch.changes;
        if !told && !thorough {
            if self.setup.program.counts_cpu_changes {
                watch.checked = now;
            }
            return Ok(());
        }
        // As good as unchanged when it cannot be read.
        let Ok(online) = cpus::online() else {
            return Ok(());
        };
        let known = if told {
            BTreeMap::new()
        } else {
            watch.open.clone()
        };
        let program = &self.setup.program;
        let found = watch.look(&online, |cpu| {
            let same = known.get(&cpu).copied();
            same.unwrap_or_else(|| program.changes_of_cpu(cpu))
        });
        watch.changes = changes;
        let since = std::mem::replace(&mut watch.checked, now);
        if found == Found::default() {
            return Ok(());
        }
        // What the events that are closed now have told.
        self.setup.side_band.drain(&mut self.events);
        for cpu in found.gone {
            self.setup.side_band.close_cpu(cpu);
            self.setup.sampling.close_cpu(cpu);
            if !online.contains(&cpu) {
                self.say(&format!("CPU {cpu} went offline"));
            }
        }
        let mut any_came = false;
        for (cpu, count) in found.came {
            any_came |= self.open_cpu(cpu, count)?;
        }
        if any_came {
            let mut drain = self.drain.borrow_mut();
            drain.doubt(&mut self.setup.processes, since);
        }
        Ok(())
    }

    /// Whether `cpu` has run unwatched: it is watched now, or cannot be, which is told.
    fn open_cpu(&mut self, cpu: u32, count: u64) -> Result<bool> {
        let opened = self.open_events(cpu);
        let class = match &opened {
            Ok(()) => {
                self.say(&format!("CPU {cpu} came online: sampled from now on"));
                LossClass::CpuLate
            }
            // Gone again already.
            Err(err) if is_offline(err) => {
                self.setup.side_band.close_cpu(cpu);
                return Ok(false);
            }
            Err(err) => {
                self.live.say(&format!(
                    "warning: CPU {cpu} came online and cannot be sampled: {err:#}; the others are"
                ));
                LossClass::CpuUnsampled
            }
        };
        self.drain.borrow_mut().lose(class, Some(cpu), 1);
        self.setup.cpus.open.insert(cpu, count);
        Ok(true)
    }

    /// In the order in which each needs the one before.
    fn open_events(&mut self, cpu: u32) -> Result<()> {
        self.setup.side_band.open_cpu(cpu)?;
        if let Some(ring) = self.setup.program.add_ring(cpu)? {
            self.rings.add(ring.as_fd(), self.setup.ring_bytes)?;
        }
        self.setup.sampling.open_cpu(cpu)?;
        self.setup.sampling.tell_throttling(&self.setup.side_band);
        Ok(())
    }

    pub(super) fn say(&self, text: &str) {
        if !self.options.quiet {
            self.live.say(text);
        }
    }
}

fn is_offline(err: &anyhow::Error) -> bool {
    let errno = err
        .downcast_ref::<io::Error>()
        .and_then(io::Error::raw_os_error);
    errno == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_went_and_came_between_two_looks_is_both() {
        let mut watch = CpuWatch {
            open: [(0, 0), (1, 4), (2, 0)].into(),
            changes: 4,
            checked: Timestamp(0),
        };
        let found = |gone: &[u32], came: &[(u32, u64)]| Found {
            gone: gone.into(),
            came: came.into(),
        };
        let counts = |counts: [u64; 4]| move |cpu: u32| counts[cpu as usize];
        assert_eq!(
            watch.look(&[0, 1, 2], counts([0, 4, 0, 0])),
            found(&[], &[])
        );
        assert_eq!(
            watch.look(&[0, 1, 3], counts([0, 6, 1, 1])),
            found(&[1, 2], &[(1, 6), (3, 1)])
        );
        // Until their events are opened they are new again.
        watch.open.insert(3, 1);
        assert_eq!(
            watch.look(&[0, 1, 3], counts([0, 6, 1, 1])),
            found(&[], &[(1, 6)])
        );
        watch.open.insert(1, 6);
        assert_eq!(
            watch.look(&[0, 1, 3], counts([0, 6, 1, 1])),
            found(&[], &[])
        );
        // A kernel that does not count.
        assert_eq!(watch.look(&[0, 3], counts([0, 6, 1, 1])), found(&[1], &[]));
        assert_eq!(
            watch.look(&[0, 1, 3], counts([0, 6, 1, 1])),
            found(&[], &[(1, 6)])
        );
    }

    #[test]
    fn only_a_missing_cpu_is_no_failure() {
        let errno = |n| anyhow::Error::from(io::Error::from_raw_os_error(n));
        assert!(is_offline(&errno(libc::ENODEV)));
        assert!(!is_offline(&errno(libc::EMFILE)));
    }
}
