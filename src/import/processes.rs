//! Who ran what, as perf's records tell it in order of time, and the same as records of the capture.
//!
//! perf does not tell when a process that ran already was started: its start time is 0. One that is forked while perf
//! records has the time of its fork, so that a number that is used again is another process.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use super::files::Files;
use crate::capture::{CaptureWriter, TablesFull};
use crate::event::{Origin, Pid, ProcessKey, Timestamp};
use crate::format::process::{MappingTemplate, PlacedMapping, ProcessId, ProcessRecord, Task};
use crate::format::samples::TaskId;

/// Mappings of one process at most: what is mapped after so many is not known.
const MAPPINGS: usize = 1 << 16;
/// Mappings of all processes at most: children forked beyond it begin without.
const ALL_MAPPINGS: usize = 1 << 23;

/// A mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    /// Above `start`.
    pub end: u64,
    pub file_offset: u64,
    /// [`crate::event::prot`] bits.
    pub prot: u8,
    /// Of [`Files`].
    pub file: u32,
}

/// What a process runs between two execs.
#[derive(Debug, Clone)]
struct Image {
    since: u64,
    number: u32,
    comm: Arc<[u8]>,
    /// Sorted, without overlaps.
    mappings: Vec<Mapping>,
    /// The program itself, which is mapped first.
    main: Option<u32>,
}

#[derive(Debug)]
struct Thread {
    comm: Arc<[u8]>,
    /// In the segment of this number.
    task: Option<(u32, TaskId)>,
}

#[derive(Debug)]
struct Process {
    key: ProcessKey,
    parent: u32,
    origin: Origin,
    image: Image,
    /// What the program before the last exec had mapped, until this one runs in user code.
    before: Vec<Mapping>,
    threads: HashMap<u32, Thread>,
    ended: bool,
    /// In the segment of this number.
    written: Option<(u32, ProcessId)>,
    /// Time of its newest record: they are in order.
    latest: u64,
    sampled: bool,
}

/// All processes.
#[derive(Default)]
pub struct Processes {
    by_pid: HashMap<u32, Process>,
    /// Mappings held, of all.
    held: usize,
    /// With samples.
    pub sampled: u64,
    /// Mappings that are not known, because a process has too many.
    pub unknown_mappings: u64,
}

impl Process {
    fn new(pid: u32, started: u64, parent: u32, origin: Origin) -> Process {
        Process {
            key: ProcessKey {
                tgid: Pid(pid),
                start_time: Timestamp(started),
            },
            parent,
            origin,
            image: Image {
                since: started,
                number: 0,
                comm: default_comm(pid),
                mappings: Vec::new(),
                main: None,
            },
            before: Vec::new(),
            threads: HashMap::new(),
            ended: false,
            written: None,
            latest: started,
            sampled: false,
        }
    }

    /// A kernel thread, or the idle task.
    fn is_kernel(&self) -> bool {
        const KTHREADD: u32 = 2;
        let pid = self.key.tgid.0;
        pid == 0 || pid == KTHREADD || self.parent == KTHREADD
    }

    fn comm_of(&self, tid: u32) -> Arc<[u8]> {
        let thread = self.threads.get(&tid);
        thread.map_or_else(|| self.image.comm.clone(), |t| t.comm.clone())
    }
}

/// The name of a process of which nothing tells one, as perf shows it.
fn default_comm(pid: u32) -> Arc<[u8]> {
    match pid {
        0 => b"swapper"[..].into(),
        u32::MAX => b"[exited]"[..].into(),
        pid => format!(":{pid}").into_bytes().into(),
    }
}

impl Processes {
    /// The process `pid` as of `time`, which becomes known now if it is not.
    fn known(&mut self, pid: u32, time: u64) -> &mut Process {
        let origin = match time {
            0 => Origin::Snapshot,
            _ => Origin::Sample,
        };
        self.by_pid
            .entry(pid)
            .or_insert_with(|| Process::new(pid, 0, 0, origin))
    }

    /// As [`Processes::known`] for what only a process that runs does: one that has ended was followed by another of
    /// its number, of whose fork nothing told.
    fn running(&mut self, pid: u32, tid: u32, time: u64) -> &mut Process {
        let held = &mut self.held;
        let origin = match time {
            0 => Origin::Snapshot,
            _ => Origin::Sample,
        };
        let process = self.by_pid.entry(pid);
        let process = process.or_insert_with(|| Process::new(pid, 0, 0, origin));
        if process.ended && pid == tid {
            *held -= process.holds();
            let started = time.max(process.key.start_time.0.saturating_add(1));
            *process = Process::new(pid, started, 0, Origin::Sample);
        }
        process
    }

    /// A new process, or thread of one.
    pub fn fork(&mut self, pid: u32, tid: u32, parent: u32, parent_tid: u32, time: u64) {
        if pid != tid {
            let process = self.known(pid, time);
            let comm = process.comm_of(parent_tid);
            process.threads.insert(tid, Thread { comm, task: None });
            return;
        }
        if time == 0 {
            // perf's account of what runs already.
            self.known(pid, time).parent = parent;
            return;
        }
        let mut child = Process::new(pid, time, parent, Origin::Event);
        if let Some(parent) = self.by_pid.get(&parent) {
            child.image.comm = parent.comm_of(parent_tid);
            let mappings = &parent.image.mappings;
            if self.held + mappings.len() <= ALL_MAPPINGS {
                child.image.mappings.clone_from(mappings);
                child.image.main = parent.image.main;
            } else {
                self.unknown_mappings += mappings.len() as u64;
            }
        }
        if let Some(old) = self.by_pid.get(&pid) {
            let unlike = old.key.start_time.0.saturating_add(1);
            child.key.start_time.0 = time.max(unlike);
        }
        self.held += child.holds();
        let old = self.by_pid.insert(pid, child);
        self.held -= old.map_or(0, |old| old.holds());
    }

    /// A thread has a name from now on; with `exec`, its process runs another program.
    pub fn comm<W: Write>(
        &mut self,
        writer: Option<&mut Segment<'_, W>>,
        (pid, tid): (u32, u32),
        name: &[u8],
        exec: bool,
        time: u64,
    ) -> Result<(), TablesFull> {
        let mut freed = 0;
        let process = self.running(pid, tid, time);
        let comm: Arc<[u8]> = name.into();
        if exec {
            let image = &mut process.image;
            let before = std::mem::take(&mut image.mappings);
            freed = std::mem::replace(&mut process.before, before).len();
            image.main = None;
            image.since = time;
            image.number = image.number.saturating_add(1);
            process.threads.clear();
        }
        let thread = Thread {
            comm: comm.clone(),
            task: None,
        };
        process.threads.insert(tid, thread);
        if !exec && pid != tid {
            return Ok(());
        }
        process.image.comm = comm;
        let (time, number) = (process.at(time), process.image.number);
        let comm = process.image.comm.clone();
        let id = writer
            .as_deref()
            .and_then(|segment| process.in_segment(segment));
        self.held -= freed;
        let Some((segment, id)) = writer.zip(id) else {
            return Ok(());
        };
        let comm = segment.writer.string(&comm)?;
        segment.writer.process(match exec {
            true => ProcessRecord::Image {
                process: id,
                time,
                exec_number: number,
                comm,
                origin: Origin::Event,
            },
            false => ProcessRecord::Comm {
                process: id,
                time,
                comm,
            },
        })
    }

    /// Something is mapped.
    pub fn map<W: Write>(
        &mut self,
        writer: Option<&mut Segment<'_, W>>,
        (pid, tid): (u32, u32),
        mapping: Mapping,
        time: u64,
    ) -> Result<(), TablesFull> {
        let process = self.running(pid, tid, time);
        let image = &mut process.image;
        if image.mappings.len() >= MAPPINGS {
            self.unknown_mappings += 1;
            return Ok(());
        }
        image.main = image.main.or(Some(mapping.file));
        let had = image.mappings.len();
        place(&mut image.mappings, mapping);
        let has = image.mappings.len();
        let time = process.at(time);
        let id = writer
            .as_deref()
            .and_then(|segment| process.in_segment(segment));
        self.held = (self.held + has).saturating_sub(had);
        let Some((segment, id)) = writer.zip(id) else {
            return Ok(());
        };
        let placed = segment.place(&mapping)?;
        segment.writer.process(ProcessRecord::Map {
            process: id,
            time,
            placed,
        })
    }

    /// A thread ends, and with its first one the process.
    pub fn exit<W: Write>(
        &mut self,
        writer: Option<&mut Segment<'_, W>>,
        (pid, tid): (u32, u32),
        time: u64,
    ) -> Result<(), TablesFull> {
        let Some(process) = self.by_pid.get_mut(&pid) else {
            return Ok(());
        };
        if pid != tid {
            process.threads.remove(&tid);
            return Ok(());
        }
        process.ended = true;
        let time = process.at(time);
        let id = writer
            .as_deref()
            .and_then(|segment| process.in_segment(segment));
        let Some((segment, id)) = writer.zip(id) else {
            return Ok(());
        };
        segment
            .writer
            .process(ProcessRecord::Exit { process: id, time })
    }

    /// The thread of a sample taken now.
    pub fn task<W: Write>(
        &mut self,
        segment: &mut Segment<'_, W>,
        (pid, tid): (u32, u32),
        time: u64,
    ) -> Result<TaskId, TablesFull> {
        let process = self.known(pid, time);
        if let Some(thread) = process.threads.get(&tid)
            && let Some((number, task)) = thread.task
            && number == segment.writer.segment()
        {
            return Ok(task);
        }
        let id = match process.in_segment(segment) {
            Some(id) => id,
            None => process.write(segment)?,
        };
        let comm = process.comm_of(tid);
        let task = Task {
            process: id,
            tid: Pid(tid),
            exec_id: process.image.number,
            comm: segment.writer.string(&comm)?,
        };
        let task = segment.writer.task(task)?;
        let number = segment.writer.segment();
        let thread = process.threads.entry(tid);
        let thread = thread.or_insert(Thread { comm, task: None });
        thread.task = Some((number, task));
        if !process.sampled {
            process.sampled = true;
            self.sampled += 1;
        }
        Ok(task)
    }

    /// Whether the user stack of a sample of `pid`, with this leaf, may be that of the program it ran before: taken while the
    /// kernel loads a program, when nothing has replaced the registers yet.
    pub fn is_of_before(&mut self, pid: u32, leaf: Option<u64>, in_kernel: bool) -> bool {
        let Some(process) = self.by_pid.get_mut(&pid) else {
            return false;
        };
        if process.before.is_empty() {
            return false;
        }
        let Some(leaf) = leaf else { return false };
        if !in_kernel {
            self.held -= std::mem::take(&mut process.before).len();
            return false;
        }
        let holds = |m: &Mapping| (m.start..m.end).contains(&leaf);
        process.before.iter().any(holds)
    }
}

impl Process {
    /// Mappings it holds.
    fn holds(&self) -> usize {
        self.image.mappings.len() + self.before.len()
    }

    /// The time of a record that comes now.
    fn at(&mut self, time: u64) -> Timestamp {
        self.latest = self.latest.max(time);
        Timestamp(self.latest)
    }

    /// Its number, if the open segment has it.
    fn in_segment<W: Write>(&self, segment: &Segment<'_, W>) -> Option<ProcessId> {
        let (number, id) = self.written?;
        (number == segment.writer.segment()).then_some(id)
    }

    /// Writes all that is known of it into the open segment.
    fn write<W: Write>(&mut self, segment: &mut Segment<'_, W>) -> Result<ProcessId, TablesFull> {
        let (kernel, parent) = (self.is_kernel(), Pid(self.parent));
        let image = &self.image;
        let comm = segment.writer.string(&image.comm)?;
        // The program first.
        let is_main = |m: &&Mapping| Some(m.file) == image.main;
        let main = image.mappings.iter().filter(is_main);
        let others = image.mappings.iter().filter(|m| !is_main(m));
        let placed = main.chain(others).map(|m| segment.place(m));
        let placed = placed.collect::<Result<Vec<_>, _>>()?;
        let space = segment.writer.space(placed)?;
        let writer = &mut *segment.writer;
        let process = writer.add_process(self.key, parent, kernel, self.origin, None)?;
        let (time, origin) = (Timestamp(image.since), self.origin);
        writer.process(ProcessRecord::Image {
            process,
            time,
            exec_number: image.number,
            comm,
            origin,
        })?;
        if !image.mappings.is_empty() {
            writer.process(ProcessRecord::Space {
                process,
                time,
                space,
                origin,
            })?;
        }
        self.written = Some((writer.segment(), process));
        Ok(process)
    }
}

/// The open segment, and the files that mappings in it are of.
pub struct Segment<'a, W> {
    pub writer: &'a mut CaptureWriter<W>,
    pub files: &'a Files,
}

impl<W: Write> Segment<'_, W> {
    fn place(&mut self, mapping: &Mapping) -> Result<PlacedMapping, TablesFull> {
        let file = self.files.get(mapping.file).ok_or(TablesFull)?;
        let file = self.writer.file(file)?;
        let template = MappingTemplate {
            file,
            file_offset: mapping.file_offset,
            len: mapping.end - mapping.start,
            prot: mapping.prot,
        };
        Ok(PlacedMapping {
            start: mapping.start,
            mapping: self.writer.mapping(&template)?,
        })
    }
}

/// Puts `new` into `list`: what it covers is gone, and what it covers in part keeps the rest.
fn place(list: &mut Vec<Mapping>, new: Mapping) {
    let first = list.partition_point(|m| m.end <= new.start);
    let last = list.partition_point(|m| m.start < new.end).max(first);
    let covered = list.get(first..last).unwrap_or_default();
    let before = covered.first().filter(|m| m.start < new.start);
    let before = before.map(|m| Mapping {
        end: new.start,
        ..*m
    });
    let after = covered.last().filter(|m| m.end > new.end);
    let after = after.map(|m| Mapping {
        start: new.end,
        file_offset: m.file_offset.saturating_add(new.end - m.start),
        ..*m
    });
    list.splice(first..last, before.into_iter().chain([new]).chain(after));
}
