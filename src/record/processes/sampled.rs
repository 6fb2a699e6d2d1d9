//! The process of a sample: found, taken in if nothing told of it, and written when the segment does not have it.

use super::model::{FirstSample, Image, MANY, Process, Sampled, Start};
use super::write::write;
use super::{Processes, Writer};
use crate::capture::writer::TablesFull;
use crate::event::{LossClass, Origin, Pid, ProcessKey, Timestamp};
use crate::format::process::{ProcessId, ProcessRecord};
use crate::record::procfs;

impl Processes {
    /// The process of a sample in the open segment, written there now if it was not.
    pub fn resolve(
        &mut self,
        sample: &FirstSample,
        writer: &mut Writer,
    ) -> Result<ProcessId, TablesFull> {
        let sampled = &sample.sampled;
        let pid = sampled.key.tgid;
        let at = match self.find(sampled.key) {
            Some(at) => at,
            None => self.adopt(sampled),
        };
        self.touch(pid);
        self.refresh(at, sample, writer)?;
        let path = self
            .cgroups
            .path(sampled.cgroup_id)
            .map(|path| writer.string(path))
            .transpose()?;
        let Some(process) = self.get(pid, at) else {
            return Err(TablesFull);
        };
        process.start = Start::At(sampled.key.start_time);
        let id = match process.written {
            Some((id, cgroup)) => {
                if let Some(path) = path.filter(|_| cgroup != sampled.cgroup_id) {
                    writer.process(ProcessRecord::Cgroup {
                        process: id,
                        time: sample.now,
                        path,
                    })?;
                }
                id
            }
            None => write(process, sample, path, writer)?,
        };
        process.written = Some((id, sampled.cgroup_id));
        let new = !std::mem::replace(&mut process.sampled, true);
        self.sampled += u64::from(new);
        self.count_missed(pid, at, sample.first, writer);
        if new {
            self.code_changed(pid);
        }
        Ok(id)
    }

    /// Counts a process once when samples of it, from `first` on, lack mappings.
    pub(super) fn count_missed(
        &mut self,
        pid: Pid,
        at: usize,
        first: Timestamp,
        writer: &mut Writer,
    ) {
        let Some(process) = self.get(pid, at) else {
            return;
        };
        let missing = |process: &Process| {
            let mut images = process.needed_from(first);
            images.any(|image| image.unreadable.is_some())
        };
        if !process.missed && missing(process) {
            process.missed = true;
            self.maps_missed += 1;
            writer.loss(LossClass::MapsUnreadable, None, 1);
        }
    }

    /// Which of the processes of this number: the first one that can have started then.
    pub(super) fn find(&self, key: ProcessKey) -> Option<usize> {
        let list = self.by_pid.get(&key.tgid)?;
        let exact = list
            .iter()
            .position(|p| p.start == Start::At(key.start_time));
        exact.or_else(|| {
            list.iter().position(|p| match p.start {
                Start::At(_) => false,
                Start::Tick(tick) => key.start_time.0 / self.tick_ns == tick,
                Start::Before(fork) => key.start_time <= fork,
            })
        })
    }

    /// A sampled process nothing told of: the idle task, a kernel thread, or one whose events were lost.
    fn adopt(&mut self, sampled: &Sampled) -> usize {
        let pid = sampled.key.tgid;
        let mut image = Image::new(Timestamp::ZERO, 0, Origin::Sample, sampled.comm().to_vec());
        if pid.0 == 0 {
            image.comm = b"swapper".to_vec();
        } else if let Ok(stat) = procfs::read_stat(pid)
            && stat.start_ticks == sampled.key.start_time.0 / self.tick_ns
        {
            image.comm = stat.comm;
        }
        let process = Process {
            start: Start::At(sampled.key.start_time),
            parent: Pid(0),
            kernel: sampled.kernel,
            origin: Origin::Sample,
            threads: u32::MAX,
            ended: None,
            images: vec![image],
            stale: !sampled.kernel,
            sampled: false,
            missed: false,
            many: MANY,
            written: None,
            looked_again: None,
        };
        let list = self.by_pid.entry(pid).or_default();
        // In the order they started, so that `find` takes the right one.
        let at = list.partition_point(|p| match p.start {
            Start::At(start) | Start::Before(start) => start < sampled.key.start_time,
            Start::Tick(tick) => tick <= sampled.key.start_time.0 / self.tick_ns,
        });
        list.insert(at, process);
        at
    }
}
