//! What the side-band tells of processes: it is taken in, and of those in the open segment written.

use super::model::{Image, MANY, Process, Start};
use super::write::place_in;
use super::{Mapping, Processes, Scope, Writer};
use crate::capture::writer::TablesFull;
use crate::event::{LossClass, MappedKind, Origin, Pid, Timestamp};
use crate::format::process::{ProcessId, ProcessRecord};
use crate::record::sideband::{SideEvent, SideKind};

impl Processes {
    /// Takes in what the kernel told, in time order; what concerns processes of the open segment is written.
    pub fn apply(&mut self, event: SideEvent, writer: &mut Writer) -> Result<(), TablesFull> {
        let SideEvent { time, what } = event;
        let pid = match &what {
            SideKind::Thread { process }
            | SideKind::Fork { process, .. }
            | SideKind::Exec { process, .. }
            | SideKind::Comm { process, .. }
            | SideKind::Exit { process }
            | SideKind::Map { process, .. } => *process,
            SideKind::Cgroup { id, path } => {
                self.cgroups.add(*id, path.clone());
                return Ok(());
            }
            // Taken out before.
            SideKind::BpfCode { .. } | SideKind::Throttled(_) => return Ok(()),
            SideKind::Lost(count) => {
                writer.loss(LossClass::SideBand, None, *count);
                self.doubt_all();
                return Ok(());
            }
            SideKind::MoreLost(count) => {
                writer.loss(LossClass::SideBand, None, *count);
                return Ok(());
            }
        };
        if self.read_at.get(&pid).is_some_and(|read| time <= *read) {
            return Ok(());
        }
        match what {
            SideKind::Fork { parent, .. } => self.forked(pid, parent, time),
            SideKind::Exec { comm, .. } => self.execed(pid, time, comm, writer)?,
            SideKind::Map { mapping, .. } => {
                if self.alive(pid).is_some() {
                    let mapping = self.mapping(pid, &mapping, Some(time));
                    self.mapped(pid, time, mapping, writer)?;
                }
            }
            SideKind::Comm { comm, .. } => {
                if let Some(process) = self.alive(pid) {
                    if let Some((id, _)) = process.written {
                        let comm = writer.string(&comm)?;
                        writer.process(ProcessRecord::Comm {
                            process: id,
                            time,
                            comm,
                        })?;
                    }
                    if let Some(image) = process.current() {
                        image.renamed.push((time, comm));
                    }
                }
            }
            SideKind::Thread { .. } => {
                if let Some(process) = self.alive(pid) {
                    process.threads = process.threads.saturating_add(1);
                }
                return Ok(());
            }
            SideKind::Exit { .. } => {
                if let Some(process) = self.alive(pid) {
                    if process.is_in_exec() {
                        self.without_events.push(pid);
                        return Ok(());
                    }
                    if process.threads != u32::MAX {
                        process.threads -= 1;
                    }
                    if process.threads > 0 {
                        return Ok(());
                    }
                    process.ended = Some(time);
                    let (sampled, written) = (process.sampled, process.written);
                    if sampled {
                        self.code_changed(pid);
                    }
                    if let Some((id, _)) = written {
                        writer.process(ProcessRecord::Exit { process: id, time })?;
                    }
                }
            }
            SideKind::Cgroup { .. }
            | SideKind::BpfCode { .. }
            | SideKind::Throttled(_)
            | SideKind::Lost(_)
            | SideKind::MoreLost(_) => {}
        }
        self.touch(pid);
        Ok(())
    }

    fn doubt_all(&mut self) {
        self.lost = true;
        for process in self.by_pid.values_mut().flatten() {
            process.stale = true;
            // Threads may have come and gone unseen: the sweep finds its end.
            process.threads = u32::MAX;
        }
    }

    /// Events from `since` to `now` may not have been told: batches without a loss have been placed meanwhile. Processes
    /// of the open segment are looked at again at once, because their samples since then must not be believed.
    pub fn doubt(&mut self, since: Timestamp, writer: &mut Writer) -> Result<(), TablesFull> {
        self.doubt_all();
        self.good_until = self.good_until.min(since);
        self.settled = self.settled.min(since);
        let mut written: Vec<(ProcessId, Pid, usize)> = Vec::new();
        for (pid, list) in &self.by_pid {
            let ids = list.iter().enumerate();
            written.extend(ids.filter_map(|(at, p)| Some((p.written?.0, *pid, at))));
        }
        // In the order of the segment, so that a recording does not depend on that of a hash table.
        written.sort_unstable();
        for (_, pid, at) in written {
            self.reread(pid, at, None, writer)?;
            self.count_missed(pid, at, since, writer);
        }
        Ok(())
    }

    pub(super) fn forked(&mut self, pid: Pid, parent: Pid, time: Timestamp) {
        if self.scope == Scope::Given {
            return;
        }
        let inherited = self.alive(parent).map(|p| {
            let kernel = p.kernel;
            let image = p
                .current()
                .map(|i| (i.current_comm().to_vec(), i.space.fork(), i.exec_id));
            (kernel, p.stale, image)
        });
        let (kernel, stale, image) = match inherited {
            Some(found) => found,
            None if self.scope == Scope::Known => return,
            // Its parent was not seen: read what it has when it is sampled.
            None => (false, true, None),
        };
        let (comm, space, exec_id) = image.unwrap_or_default();
        let mut first = Image::new(time, 0, Origin::Event, comm);
        first.space = space;
        // The kernel's number of execs is inherited, so that a missed one shows.
        first.exec_id = exec_id;
        let child = Process {
            start: Start::Before(time),
            parent,
            kernel,
            origin: Origin::Event,
            threads: 1,
            ended: None,
            images: vec![first],
            stale,
            sampled: false,
            missed: false,
            many: MANY,
            written: None,
            looked_again: None,
        };
        let same_number = self.by_pid.entry(pid).or_default();
        if let Some(before) = same_number.last_mut().filter(|p| p.ended.is_none()) {
            before.ended = Some(time);
        }
        same_number.push(child);
    }

    fn execed(
        &mut self,
        pid: Pid,
        time: Timestamp,
        comm: Vec<u8>,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let Some(process) = self.alive(pid) else {
            return Ok(());
        };
        process.kernel = false;
        process.stale = false;
        let number = process.current().map_or(0, |i| i.number + 1);
        if let Some((id, _)) = process.written {
            let comm = writer.string(&comm)?;
            writer.process(ProcessRecord::Image {
                process: id,
                time,
                exec_number: number,
                comm,
                origin: Origin::Event,
            })?;
        }
        process
            .images
            .push(Image::new(time, number, Origin::Event, comm));
        if process.sampled {
            self.code_changed(pid);
        }
        Ok(())
    }

    fn mapped(
        &mut self,
        pid: Pid,
        time: Timestamp,
        mapping: Mapping,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let Some(process) = self.alive(pid) else {
            return Ok(());
        };
        if let Some((id, _)) = process.written {
            let placed = place_in(writer, &mapping)?;
            writer.process(ProcessRecord::Map {
                process: id,
                time,
                placed,
            })?;
        }
        let changed = process.sampled && mapping.file.kind != MappedKind::File;
        if let Some(image) = process.current() {
            image.space.add(time, mapping);
        }
        if changed {
            self.code_changed(pid);
        }
        Ok(())
    }
}
