//! What the kernel told perf of processes, and of itself.

use std::io::Write;

use anyhow::Result;
use linux_perf_event_reader::constants::{PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MMAP2};
use linux_perf_event_reader::{CpuMode, EventRecord, Mmap2FileId, RawEventRecord, RecordType};

use super::convert::{Importer, Open};
use super::files::Told;
use super::processes::Mapping;
use super::records::Record;
use crate::capture::TablesFull;
use crate::event::{BuildId, InodeKey, LossClass, prot};

impl Importer {
    /// Takes in where the kernel and its modules are; whether the record tells of that.
    pub(super) fn kernel_mapping(&mut self, record: &Record) -> bool {
        let Some(EventRecord::Mmap(map)) = self.parse(record) else {
            return match self.parse(record) {
                Some(EventRecord::Mmap2(map)) if map.pid == -1 || is_kernel(map.cpu_mode) => {
                    let path = map.path.as_slice();
                    self.kernel
                        .map(map.address, map.length, map.page_offset, &path);
                    true
                }
                _ => false,
            };
        };
        if map.pid != -1 && !is_kernel(map.cpu_mode) {
            return false;
        }
        let path = map.path.as_slice();
        self.kernel
            .map(map.address, map.length, map.page_offset, &path);
        true
    }

    /// A record of what the kernel tells of processes.
    fn parse<'r>(&self, record: &'r Record) -> Option<EventRecord<'r>> {
        // The library takes a longer build ID for a mistake of its own.
        const LONGEST: u8 = 20;
        let has_id =
            record.kind == PERF_RECORD_MMAP2 && record.misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0;
        if has_id && record.body.get(32).is_none_or(|len| *len > LONGEST) {
            return None;
        }
        let number = self
            .container
            .attrs
            .of(record.kind, &record.body)
            .unwrap_or(0);
        let parse = self.container.attrs.list.get(number)?.parse;
        let raw = RawEventRecord::new(
            RecordType(record.kind),
            record.misc,
            record.body.as_slice().into(),
            parse,
        );
        raw.parse().ok()
    }

    pub(super) fn side_band<W: Write>(
        &mut self,
        time: u64,
        record: &Record,
        open: &mut Open<W>,
    ) -> Result<()> {
        if self.kernel_mapping(record) {
            return Ok(());
        }
        let Some(event) = self.parse(record) else {
            self.broken += 1;
            return Ok(());
        };
        let result = self.apply(time, &event, open);
        if result.is_err() {
            // The next segment begins with all that is known, this included.
            open.next_segment(&mut self.kernel)?;
        }
        Ok(())
    }

    fn apply<W: Write>(
        &mut self,
        time: u64,
        event: &EventRecord<'_>,
        open: &mut Open<W>,
    ) -> Result<(), TablesFull> {
        let ids = |pid: i32, tid: i32| (pid.cast_unsigned(), tid.cast_unsigned());
        let processes = &mut self.processes;
        let (told, start, len, offset, protection, who) = match event {
            EventRecord::Fork(fork) => {
                let ((pid, tid), (parent, parent_tid)) =
                    (ids(fork.pid, fork.tid), ids(fork.ppid, fork.ptid));
                processes.fork(pid, tid, parent, parent_tid, time);
                return Ok(());
            }
            EventRecord::Exit(exit) => {
                let mut segment = open.segment(&self.files);
                return processes.exit(Some(&mut segment), ids(exit.pid, exit.tid), time);
            }
            EventRecord::Comm(comm) => {
                let mut segment = open.segment(&self.files);
                let who = ids(comm.pid, comm.tid);
                let name = comm.name.as_slice();
                return processes.comm(Some(&mut segment), who, &name, comm.is_execve, time);
            }
            EventRecord::Lost(lost) => {
                self.lost_records = self.lost_records.saturating_add(lost.count);
                return Ok(());
            }
            EventRecord::Throttle(_) => {
                open.writer.loss(LossClass::Throttled, None, 1);
                return Ok(());
            }
            EventRecord::Mmap(map) => {
                let code = if map.is_executable { prot::EXEC } else { 0 };
                let told = (map.path.as_slice(), None, None);
                let who = ids(map.pid, map.tid);
                (
                    told,
                    map.address,
                    map.length,
                    map.page_offset,
                    prot::READ | code,
                    who,
                )
            }
            EventRecord::Mmap2(map) => {
                let (id, inode) = match &map.file_id {
                    Mmap2FileId::BuildId(id) => (BuildId::new(id), None),
                    Mmap2FileId::InodeAndVersion(file) => {
                        let key = InodeKey {
                            major: file.major,
                            minor: file.minor,
                            inode: file.inode,
                        };
                        (None, Some((key, file.inode_generation)))
                    }
                };
                let told = (map.path.as_slice(), id, inode);
                let shared = if map.flags & 1 != 0 { prot::SHARED } else { 0 };
                let protection = (map.protection & 7) as u8 | shared;
                let who = ids(map.pid, map.tid);
                (
                    told,
                    map.address,
                    map.length,
                    map.page_offset,
                    protection,
                    who,
                )
            }
            _ => return Ok(()),
        };
        let (path, build_id, inode) = told;
        let Some(end) = start.checked_add(len).filter(|end| *end > start) else {
            return Ok(());
        };
        let told = Told {
            path: &path,
            build_id,
            inode,
        };
        let mapping = Mapping {
            start,
            end,
            file_offset: offset,
            prot: protection,
            file: self.files.identify(&told, &open.machine),
        };
        let mut segment = open.segment(&self.files);
        processes.map(Some(&mut segment), who, mapping, time)
    }
}

fn is_kernel(mode: CpuMode) -> bool {
    matches!(mode, CpuMode::Kernel | CpuMode::GuestKernel)
}
