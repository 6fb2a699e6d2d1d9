//! Every process the recorder knows, followed live: who it is, which image it runs, what is mapped.
//!
//! A process is told apart by its number and start time. What is known of it goes into the capture when it is
//! first sampled in a segment, and from then on as it happens; processes without samples never do.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use super::address_space::{AddressSpace, Mapping};
use super::cgroups::Cgroups;
use super::files::Files;
use super::maps::{RawMapping, read_executable};
use super::output::Output;
use super::procfs;
use super::sideband::{SideEvent, SideKind};
use crate::capture::writer::{CaptureWriter, TablesFull};
use crate::event::{LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp};
use crate::format::process::{MappingTemplate, PlacedMapping, ProcessId, ProcessRecord, StringId};

/// What captures are written with here.
pub type Writer = CaptureWriter<Output>;

/// What a sample says of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sampled {
    /// Who.
    pub key: ProcessKey,
    /// The thread.
    pub tid: Pid,
    /// The thread's name.
    pub comm: [u8; 16],
    /// `task->self_exec_id`.
    pub exec_id: u32,
    /// Number of its cgroup.
    pub cgroup_id: u64,
    /// A kernel thread or the idle task.
    pub kernel: bool,
    /// Taken inside `execve`, where `exec_id` may still be the old one.
    pub in_exec: bool,
}

impl Sampled {
    /// The thread's name without padding.
    pub fn comm(&self) -> &[u8] {
        let len = self
            .comm
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(self.comm.len());
        self.comm.get(..len).unwrap_or_default()
    }
}

/// The earliest sample of a task in a batch.
#[derive(Debug, Clone, Copy)]
pub struct FirstSample {
    /// What it says of its process.
    pub sampled: Sampled,
    /// When it was taken.
    pub first: Timestamp,
    /// Not earlier than anything told so far.
    pub now: Timestamp,
}

/// When a process started, as well as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Exactly, from a sample.
    At(Timestamp),
    /// In this clock tick, from `/proc/PID/stat`.
    Tick(u64),
    /// Just before this, the time of its fork event.
    Before(Timestamp),
}

/// One image of a process.
#[derive(Debug, Clone)]
struct Image {
    since: Timestamp,
    number: u32,
    origin: Origin,
    /// Name when the image began, then later ones.
    comm: Vec<u8>,
    renamed: Vec<(Timestamp, Vec<u8>)>,
    space: AddressSpace,
    exec_id: Option<u32>,
    unreadable: Option<String>,
}

impl Image {
    fn new(since: Timestamp, number: u32, origin: Origin, comm: Vec<u8>) -> Image {
        Image {
            since,
            number,
            origin,
            comm,
            renamed: Vec::new(),
            space: AddressSpace::default(),
            exec_id: None,
            unreadable: None,
        }
    }

    fn current_comm(&self) -> &[u8] {
        self.renamed.last().map_or(&self.comm, |(_, comm)| comm)
    }
}

#[derive(Debug)]
struct Process {
    start: Start,
    parent: Pid,
    kernel: bool,
    origin: Origin,
    threads: u32,
    ended: Option<Timestamp>,
    /// The last batch with anything about it.
    touched: u64,
    /// Never empty; the last is the current one.
    images: Vec<Image>,
    /// Side-band records were lost since its mappings were known to be right.
    stale: bool,
    /// Has had samples.
    sampled: bool,
    /// Where the open segment has it, and the cgroup it has it in.
    written: Option<(ProcessId, u64)>,
    /// When `/proc` was last read because of an address nothing covers.
    looked_again: Option<Timestamp>,
}

impl Process {
    fn current(&mut self) -> Option<&mut Image> {
        self.images.last_mut()
    }
}

/// Which processes are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of the machine.
    All,
    /// Those added by [`Processes::snapshot`] and their descendants.
    Known,
}

/// The processes, and the events of the batch being worked on.
pub struct Processes {
    scope: Scope,
    tick_ns: u64,
    by_pid: HashMap<Pid, Vec<Process>>,
    files: Files,
    cgroups: Cgroups,
    /// Numbers touched, with the batch that did, to be tidied two batches later.
    touched: VecDeque<(u64, Pid)>,
    batch: u64,
    /// When each process was read from `/proc`: events before that are known already.
    read_at: HashMap<Pid, Timestamp>,
    next_sweep: u64,
    /// Distinct processes with samples so far.
    pub sampled: u64,
    /// A sample was seen in the vdso.
    pub vdso_sampled: bool,
}

/// A process that runs in code nothing is known to map is looked at again, but not more often than this (ns).
const LOOK_AGAIN: u64 = 5_000_000_000;
/// Every so many batches, processes whose end was missed are looked for.
const SWEEP: u64 = 256;

impl Processes {
    /// Follows `scope`; `clock_ticks` is `CLK_TCK`.
    pub fn new(scope: Scope, clock_ticks: u32) -> Processes {
        Processes {
            scope,
            tick_ns: 1_000_000_000 / u64::from(clock_ticks.max(1)),
            by_pid: HashMap::new(),
            files: Files::default(),
            cgroups: Cgroups::new(),
            touched: VecDeque::new(),
            batch: 0,
            read_at: HashMap::new(),
            next_sweep: SWEEP,
            sampled: 0,
            vdso_sampled: false,
        }
    }

    /// Reads `process` from `/proc` at `now`. `false` when it is gone.
    pub fn snapshot(&mut self, process: Pid, now: Timestamp) -> bool {
        let Ok(stat) = procfs::read_stat(process) else {
            return false;
        };
        let mut image = Image::new(Timestamp::ZERO, 0, Origin::Snapshot, stat.comm);
        if !stat.kernel {
            match self.read_space(process) {
                Ok(space) => image.space = space,
                // An exiting process has no memory any more; that is no loss.
                Err(err) if err.raw_os_error() == Some(libc::ESRCH) => {}
                Err(err) => image.unreadable = Some(err.to_string()),
            }
        }
        let found = Process {
            start: Start::Tick(stat.start_ticks),
            parent: stat.parent,
            kernel: stat.kernel,
            origin: Origin::Snapshot,
            threads: stat.threads.max(1),
            ended: None,
            touched: self.batch,
            images: vec![image],
            stale: false,
            sampled: false,
            written: None,
            looked_again: None,
        };
        self.read_at.insert(process, now);
        self.by_pid.insert(process, vec![found]);
        true
    }

    /// Whether `process` is known.
    pub fn knows(&self, process: Pid) -> bool {
        self.by_pid.contains_key(&process)
    }

    /// The snapshot is over: from now on every event counts.
    pub fn snapshot_done(&mut self) {
        self.read_at = HashMap::new();
    }

    /// Whether a followed process still runs.
    pub fn any_alive(&self) -> bool {
        self.by_pid.values().flatten().any(|p| p.ended.is_none())
    }

    /// When `process` began to run the program it was launched for, if it has.
    pub fn exec_time(&self, process: Pid) -> Option<Timestamp> {
        let images = &self.by_pid.get(&process)?.first()?.images;
        images
            .iter()
            .find(|i| i.number > 0 && i.origin == Origin::Event)
            .map(|i| i.since)
    }

    fn read_space(&mut self, process: Pid) -> io::Result<AddressSpace> {
        let raw = read_executable(process)?;
        let mappings: Vec<Mapping> = raw.iter().map(|raw| self.mapping(process, raw)).collect();
        let main = main_files(process, &mappings);
        Ok(AddressSpace::read(mappings, main))
    }

    fn mapping(&mut self, process: Pid, raw: &RawMapping) -> Mapping {
        Mapping {
            start: raw.start,
            end: raw.end,
            file_offset: raw.file_offset,
            prot: raw.prot,
            file: self.files.identify(process, raw),
        }
    }

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
            SideKind::Lost(count) => {
                writer.loss(LossClass::SideBand, None, *count);
                self.by_pid
                    .values_mut()
                    .flatten()
                    .for_each(|p| p.stale = true);
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
                    let mapping = self.mapping(pid, &mapping);
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
                    process.threads += 1;
                }
                return Ok(());
            }
            SideKind::Exit { .. } => {
                if let Some(process) = self.alive(pid) {
                    process.threads = process.threads.saturating_sub(1);
                    if process.threads > 0 {
                        return Ok(());
                    }
                    process.ended = Some(time);
                    if let Some((id, _)) = process.written {
                        writer.process(ProcessRecord::Exit { process: id, time })?;
                    }
                }
            }
            SideKind::Cgroup { .. } | SideKind::Lost(_) => {}
        }
        self.touch(pid);
        Ok(())
    }

    /// The living process of this number.
    fn alive(&mut self, pid: Pid) -> Option<&mut Process> {
        self.by_pid
            .get_mut(&pid)?
            .last_mut()
            .filter(|p| p.ended.is_none())
    }

    fn forked(&mut self, pid: Pid, parent: Pid, time: Timestamp) {
        let inherited = self.alive(parent).map(|p| {
            let kernel = p.kernel;
            let image = p
                .current()
                .map(|i| (i.current_comm().to_vec(), i.space.fork()));
            (kernel, p.stale, image)
        });
        let (kernel, stale, image) = match inherited {
            Some(found) => found,
            None if self.scope == Scope::Known => return,
            // Its parent was not seen: read what it has when it is sampled.
            None => (false, true, None),
        };
        let (comm, space) = image.unwrap_or_default();
        let mut first = Image::new(time, 0, Origin::Event, comm);
        first.space = space;
        let child = Process {
            start: Start::Before(time),
            parent,
            kernel,
            origin: Origin::Event,
            threads: 1,
            ended: None,
            touched: self.batch,
            images: vec![first],
            stale,
            sampled: false,
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
        if let Some(image) = process.current() {
            image.space.add(time, mapping);
        }
        Ok(())
    }

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
                    let time = sample.first;
                    writer.process(ProcessRecord::Cgroup {
                        process: id,
                        time,
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
        Ok(id)
    }

    fn touch(&mut self, pid: Pid) {
        let batch = self.batch;
        let list = self.by_pid.get_mut(&pid);
        list.into_iter().flatten().for_each(|p| p.touched = batch);
        if self.touched.back() != Some(&(batch, pid)) {
            self.touched.push_back((batch, pid));
        }
    }

    /// Which of the processes of this number: the first one that can have started then.
    fn find(&self, key: ProcessKey) -> Option<usize> {
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
        } else if let Ok(stat) = procfs::read_stat(pid) {
            image.comm = stat.comm;
        }
        let process = Process {
            start: Start::At(sampled.key.start_time),
            parent: Pid(0),
            kernel: sampled.kernel,
            origin: Origin::Sample,
            threads: u32::MAX,
            ended: None,
            touched: self.batch,
            images: vec![image],
            stale: !sampled.kernel,
            sampled: false,
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

    /// Reads mappings again where what is known cannot be trusted: records were lost, or an exec was missed.
    fn refresh(
        &mut self,
        at: usize,
        sample: &FirstSample,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let FirstSample {
            sampled,
            first,
            now,
        } = sample;
        let pid = sampled.key.tgid;
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        if process.kernel || sampled.kernel {
            return Ok(());
        }
        let missed_exec = !sampled.in_exec
            && image_at(&mut process.images, *first)
                .is_some_and(|i| *i.exec_id.get_or_insert(sampled.exec_id) != sampled.exec_id)
            && process.images.last().is_some_and(|i| i.since <= *first);
        if !process.stale && !missed_exec {
            return Ok(());
        }
        process.stale = false;
        let ended = process.ended.is_some();
        let read = if ended {
            Err("the process ended".into())
        } else {
            self.read_if_same(sampled.key)
        };
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        // Records of a process are in time order, and what was told up to now is written already.
        let since = if process.written.is_some() {
            *now
        } else {
            *first
        };
        if missed_exec {
            let number = process.images.last().map_or(0, |i| i.number + 1);
            let mut image = Image::new(since, number, Origin::Sample, sampled.comm().to_vec());
            image.exec_id = Some(sampled.exec_id);
            process.images.push(image);
        }
        let written = process.written;
        let Some(image) = process.images.last_mut() else {
            return Ok(());
        };
        match read {
            Ok(space) => image.space = space,
            Err(reason) => {
                writer.loss(LossClass::MapsUnreadable, None, 1);
                image.unreadable = Some(reason);
            }
        }
        if let Some((id, _)) = written {
            if missed_exec {
                write_image_head(id, image, writer)?;
            }
            write_space(id, image, since, since, writer)?;
        }
        Ok(())
    }

    fn get(&mut self, pid: Pid, at: usize) -> Option<&mut Process> {
        self.by_pid.get_mut(&pid)?.get_mut(at)
    }

    /// Mappings of the process `key` from `/proc`, if that number still is that process.
    fn read_if_same(&mut self, key: ProcessKey) -> Result<AddressSpace, String> {
        let same = |tick_ns: u64| {
            procfs::read_stat(key.tgid).is_ok_and(|s| s.start_ticks == key.start_time.0 / tick_ns)
        };
        if !same(self.tick_ns) {
            return Err("process ended".into());
        }
        let space = self.read_space(key.tgid).map_err(|err| err.to_string())?;
        // Still the same after reading, or the mappings are somebody else's.
        if same(self.tick_ns) {
            Ok(space)
        } else {
            Err("process ended".into())
        }
    }

    /// A sample of `sampled` had its user leaf at `address`: if nothing covers it, the process is read again.
    pub fn check_covered(
        &mut self,
        sampled: &Sampled,
        address: u64,
        now: Timestamp,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        if sampled.kernel || address >= USER_TOP {
            return Ok(());
        }
        let Some(at) = self.find(sampled.key) else {
            return Ok(());
        };
        let pid = sampled.key.tgid;
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let recently = process
            .looked_again
            .is_some_and(|then| now.since(then) < LOOK_AGAIN);
        let ended = process.ended.is_some();
        let covering = process
            .images
            .last()
            .map(|image| image.space.covering(address));
        if covering == Some(Some(MappedKind::Vdso)) {
            self.vdso_sampled = true;
        }
        if covering != Some(None) || recently || ended || sampled.in_exec {
            return Ok(());
        }
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        process.looked_again = Some(now);
        let Ok(space) = self.read_if_same(sampled.key) else {
            return Ok(());
        };
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let written = process.written;
        if let Some(image) = process.images.last_mut() {
            image.space = space;
            image.unreadable = None;
            if let Some((id, _)) = written {
                write_space(id, image, now, now, writer)?;
            }
        }
        Ok(())
    }

    /// The open segment was closed: nobody is written in the next one yet.
    pub fn segment_started(&mut self) {
        self.by_pid
            .values_mut()
            .flatten()
            .for_each(|p| p.written = None);
    }

    /// All samples of the batch are resolved. Forgets what no later sample can need: a sample can come one
    /// batch after an event that is later than it, so what happened two batches ago is settled.
    pub fn end_batch(&mut self) {
        self.batch += 1;
        let settled = |touched: u64, now: u64| touched + 2 <= now;
        while let Some((batch, pid)) = self.touched.front().copied() {
            if !settled(batch, self.batch) {
                break;
            }
            self.touched.pop_front();
            let Some(list) = self.by_pid.get_mut(&pid) else {
                continue;
            };
            list.retain(|p| p.ended.is_none() || !settled(p.touched, self.batch));
            for process in list.iter_mut().filter(|p| settled(p.touched, self.batch)) {
                let old = process.images.len().saturating_sub(1);
                process.images.drain(..old);
                if let Some(image) = process.images.last_mut() {
                    image.space.settle();
                    if let Some((_, comm)) = image.renamed.pop() {
                        image.comm = comm;
                        image.renamed.clear();
                    }
                }
            }
            if list.is_empty() {
                self.by_pid.remove(&pid);
            }
        }
        if self.batch >= self.next_sweep {
            self.next_sweep = self.batch + SWEEP;
            self.sweep();
        }
    }

    /// Finds processes whose end was missed (lost records).
    fn sweep(&mut self) {
        let mut gone = Vec::new();
        for (pid, list) in &mut self.by_pid {
            let alive = list.last_mut().filter(|p| p.ended.is_none() && !p.kernel);
            if let Some(process) = alive.filter(|_| procfs::read_stat(*pid).is_err()) {
                process.ended = Some(Timestamp::MAX);
                gone.push(*pid);
            }
        }
        gone.into_iter().for_each(|pid| self.touch(pid));
    }
}

/// Above every user address of every architecture with 64-bit (57-bit paging included).
const USER_TOP: u64 = 1 << 56;

/// The image that ran at `time`.
fn image_at(images: &mut [Image], time: Timestamp) -> Option<&mut Image> {
    let at = images.iter().rposition(|i| i.since <= time).unwrap_or(0);
    images.get_mut(at)
}

/// The executable of a process that already runs and, when that is a dynamic loader started by hand, the program
/// it loaded, which only its arguments tell. Arguments are looked at and not kept.
fn main_files(process: Pid, mappings: &[Mapping]) -> Vec<Rc<MappedFile>> {
    use std::os::unix::ffi::OsStrExt;

    let named = |path: &[u8]| {
        let mapped = mappings.iter().find(|m| m.file.path == path)?;
        Some(mapped.file.clone())
    };
    let Ok(exe) = std::fs::read_link(format!("/proc/{process}/exe")) else {
        return Vec::new();
    };
    let bytes = exe.as_os_str().as_bytes();
    let bare = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    let mut main: Vec<_> = named(bare).into_iter().collect();
    let name = bare.rsplit(|b| *b == b'/').next().unwrap_or(bare);
    if name.starts_with(b"ld") && !main.is_empty() {
        let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let program = arguments.split(|b| *b == 0).skip(1).find_map(|argument| {
            let name = argument
                .rsplit(|b| *b == b'/')
                .next()
                .filter(|n| !n.is_empty())?;
            mappings.iter().find(|m| {
                m.file.path.rsplit(|b| *b == b'/').next() == Some(name)
                    && main.iter().all(|known| *known != m.file)
            })
        });
        main.extend(program.map(|m| m.file.clone()));
    }
    main
}

fn place_in(writer: &mut Writer, mapping: &Mapping) -> Result<PlacedMapping, TablesFull> {
    let file = writer.file(&mapping.file)?;
    let template = MappingTemplate {
        file,
        file_offset: mapping.file_offset,
        len: mapping.end - mapping.start,
        prot: mapping.prot,
    };
    Ok(PlacedMapping {
        start: mapping.start,
        mapping: writer.mapping(&template)?,
    })
}

/// Writes all that is known of `process` into the open segment.
fn write(
    process: &Process,
    sample: &FirstSample,
    cgroup: Option<StringId>,
    writer: &mut Writer,
) -> Result<ProcessId, TablesFull> {
    let key = sample.sampled.key;
    let id = writer.add_process(key, process.parent, process.kernel, process.origin, cgroup)?;
    // An image that ended before the first sample names nothing.
    let from = process
        .images
        .iter()
        .rposition(|i| i.since <= sample.first)
        .unwrap_or(0);
    for image in process.images.iter().skip(from) {
        write_image_head(id, image, writer)?;
        write_space(
            id,
            image,
            image.since,
            sample.first.max(image.since),
            writer,
        )?;
        if let Some(reason) = &image.unreadable {
            let reason = writer.string(reason.as_bytes())?;
            writer.process(ProcessRecord::Unreadable {
                process: id,
                time: image.since,
                reason,
            })?;
        }
    }
    if let Some(time) = process.ended.filter(|t| *t != Timestamp::MAX) {
        writer.process(ProcessRecord::Exit { process: id, time })?;
    }
    Ok(id)
}

fn write_image_head(id: ProcessId, image: &Image, writer: &mut Writer) -> Result<(), TablesFull> {
    let comm = writer.string(&image.comm)?;
    writer.process(ProcessRecord::Image {
        process: id,
        time: image.since,
        exec_number: image.number,
        comm,
        origin: image.origin,
    })
}

/// Writes mappings and names of an image: what was there at `first`, before which no sample needs them, as one
/// list from `since` on; what came later, one by one.
fn write_space(
    id: ProcessId,
    image: &Image,
    since: Timestamp,
    first: Timestamp,
    writer: &mut Writer,
) -> Result<(), TablesFull> {
    let (now, later) = image.space.until(first);
    let mut records = Vec::new();
    if !now.is_empty() {
        let now = image.space.main_first(now);
        let mappings = now
            .iter()
            .map(|m| place_in(writer, m))
            .collect::<Result<_, _>>()?;
        let (space, origin) = (writer.space(mappings)?, image.origin);
        records.push((
            since,
            ProcessRecord::Space {
                process: id,
                time: since,
                space,
                origin,
            },
        ));
    }
    for (time, mapping) in later {
        let placed = place_in(writer, mapping)?;
        records.push((
            *time,
            ProcessRecord::Map {
                process: id,
                time: *time,
                placed,
            },
        ));
    }
    for (time, comm) in &image.renamed {
        let comm = writer.string(comm)?;
        records.push((
            *time,
            ProcessRecord::Comm {
                process: id,
                time: *time,
                comm,
            },
        ));
    }
    records.sort_by_key(|(time, _)| *time);
    records
        .into_iter()
        .try_for_each(|(_, record)| writer.process(record))
}
