//! Every process the recorder knows, followed live: who it is, which image it runs, what is mapped.
//!
//! A process is told apart by its number and start time. What is known of it goes into the capture when it is
//! first sampled in a segment, and from then on as it happens; processes without samples never do.
//!
//! ```text
//! told  what the side-band says    sampled  the process of a sample    reread  what /proc says, and from when on
//! model  what is known of one      write    into the segment           code    whose code may have changed
//! ```

mod code;
mod model;
mod reread;
mod sampled;
mod told;
mod write;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

pub use self::code::UnnamedCode;
pub use self::model::{FirstSample, Sampled};
use self::model::{Image, MANY, Process, Start};
use self::reread::Reading;
use super::address_space::{AddressSpace, Mapping};
use super::aside::SharedAside;
use super::cgroups::Cgroups;
use super::files::Files;
use super::host;
use super::maps::RawMapping;
use super::output::Output;
use super::procfs::{self, Stat};
use crate::capture::writer::CaptureWriter;
use crate::event::{MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp};
use crate::format::aid::ElfLayouts;

/// What captures are written with here.
pub type Writer = CaptureWriter<Output>;

/// Which processes are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All of the machine.
    All,
    /// Those added by [`Processes::snapshot`] and their descendants.
    Known,
    /// Those added by [`Processes::snapshot`] only.
    Given,
}

/// The processes, and the events of the batch being worked on.
pub struct Processes {
    scope: Scope,
    tick_ns: u64,
    by_pid: HashMap<Pid, Vec<Process>>,
    files: Files,
    /// Who looks at memory maps and files; without, this process does, and may have to wait for them.
    pub aside: Option<SharedAside>,
    cgroups: Cgroups,
    /// Numbers touched, with the batch that did, to be tidied two batches later.
    touched: VecDeque<(u64, Pid)>,
    batch: u64,
    /// When each process was read from `/proc`: events before that are known already.
    read_at: HashMap<Pid, Timestamp>,
    /// Mappings read while recording that may not be believed yet.
    readings: BTreeMap<ProcessKey, Reading>,
    /// The time of side-band records, now.
    pub clock: fn() -> Timestamp,
    /// Everything up to then had been told when the batch before last was placed: no older sample comes.
    settled: Timestamp,
    /// The same of the last batch, when nothing was lost in it: from then on a loss makes knowledge doubtful.
    good_until: Timestamp,
    /// Records were lost in this batch.
    lost: bool,
    next_sweep: Instant,
    /// Distinct processes with samples so far.
    pub sampled: u64,
    /// Of these, with mappings that could not be read.
    pub maps_missed: u64,
    /// Processes of which the kernel has taken perf events away; see `Process::is_in_exec`.
    pub without_events: Vec<Pid>,
    /// Where processes of the capture have the vdso: start and end.
    vdso: BTreeMap<u64, u64>,
    /// Sampled processes whose code may have changed.
    code_changed: Vec<Pid>,
}

/// Places of the vdso remembered at most: by then one has been sampled, or none will be.
const VDSO_PLACES: usize = 1 << 16;
/// Processes read together: what is read of each is held until all of them have answered.
const READ_TOGETHER: usize = 64;
/// Processes whose end was missed are looked for this often.
const SWEEP: Duration = Duration::from_secs(30);

/// What a process had mapped, image by image.
#[derive(Debug, Clone, Copy)]
pub struct Spaces<'p> {
    /// The process.
    pub of: ProcessKey,
    images: &'p [model::Image],
}

impl<'p> Spaces<'p> {
    /// What it had mapped at `time`.
    pub fn at(&self, time: Timestamp) -> Option<&'p AddressSpace> {
        let at = self.images.iter().rposition(|i| i.since <= time);
        Some(&self.images.get(at.unwrap_or(0))?.space)
    }
}

impl Processes {
    /// Follows `scope`; `clock_ticks` is `CLK_TCK`.
    pub fn new(scope: Scope, clock_ticks: u32) -> Processes {
        Processes {
            scope,
            tick_ns: 1_000_000_000 / u64::from(clock_ticks.max(1)),
            by_pid: HashMap::new(),
            files: Files::default(),
            aside: None,
            cgroups: Cgroups::find(),
            touched: VecDeque::new(),
            batch: 0,
            read_at: HashMap::new(),
            readings: BTreeMap::new(),
            clock: host::now,
            settled: Timestamp::ZERO,
            good_until: Timestamp::ZERO,
            lost: false,
            next_sweep: Instant::now() + SWEEP,
            sampled: 0,
            maps_missed: 0,
            without_events: Vec::new(),
            vdso: BTreeMap::new(),
            code_changed: Vec::new(),
        }
    }

    /// Reads `process` from `/proc` at `now`. `false` when it is gone.
    pub fn snapshot(&mut self, process: Pid, now: Timestamp) -> bool {
        self.snapshot_together(&[process], now) > 0
    }

    /// Reads `processes` from `/proc`, those that are not gone.
    pub fn snapshots(&mut self, processes: &[Pid]) {
        for together in processes.chunks(READ_TOGETHER) {
            self.snapshot_together(together, (self.clock)());
        }
    }

    /// As [`Processes::snapshot`]. How many are there.
    fn snapshot_together(&mut self, processes: &[Pid], now: Timestamp) -> usize {
        let there = |pid: &Pid| Some((*pid, procfs::read_stat(*pid).ok()?));
        let stats: Vec<(Pid, Stat)> = processes.iter().filter_map(there).collect();
        let users = stats.iter().filter(|(_, stat)| !stat.kernel);
        let users: Vec<Pid> = users.map(|(pid, _)| *pid).collect();
        let seen = reread::see_together(&self.aside, &users);
        if let Some(aside) = &self.aside {
            let seen = users.iter().zip(&seen).flat_map(|(pid, seen)| {
                let mappings = seen.iter().flat_map(|seen| &seen.mappings);
                mappings.map(|raw| (*pid, raw))
            });
            self.files.look_ahead(&mut aside.borrow_mut(), seen);
        }
        let mut seen = users.into_iter().zip(seen).peekable();
        let found = stats.len();
        for (pid, stat) in stats {
            let seen = seen.next_if(|(user, _)| *user == pid);
            let seen = seen.map(|(_, seen)| seen.map(|seen| self.space_of(pid, &seen)));
            self.read_at.insert(pid, now);
            self.by_pid.insert(pid, vec![as_read(stat, seen)]);
        }
        found
    }

    /// Whether `process` is known.
    pub fn knows(&self, process: Pid) -> bool {
        self.by_pid.contains_key(&process)
    }

    /// How many mappings of `process` are remembered.
    #[cfg(test)]
    pub fn mappings_kept(&self, process: Pid) -> usize {
        let list = self.by_pid.get(&process).into_iter().flatten();
        list.map(Process::mappings).sum()
    }

    /// The snapshot is over: from now on every event counts.
    pub fn snapshot_done(&mut self) {
        self.read_at = HashMap::new();
    }

    /// These files are in the capture now.
    pub fn files_written(&mut self, files: &[MappedFile]) {
        files
            .iter()
            .for_each(|file| self.files.layouts.written(file));
    }

    /// Layouts of files in the capture that have not been given out, as many as one frame takes.
    pub fn take_layouts(&mut self) -> Option<ElfLayouts> {
        self.files.layouts.take()
    }

    /// Whether any of `addresses` is in the vdso of some process.
    pub fn any_in_vdso(&self, addresses: &[u64]) -> bool {
        addresses.iter().any(|address| {
            let below = self.vdso.range(..=address).next_back();
            below.is_some_and(|(_, end)| address < end)
        })
    }

    /// What of a file system that does not answer, since the last call.
    pub fn take_news(&mut self) -> Vec<String> {
        let aside = self.aside.as_ref();
        aside.map_or_else(Vec::new, |aside| aside.borrow_mut().take_news())
    }

    /// Whether the perf map of a process can be looked for without waiting for ever.
    pub fn answers_for_map(&mut self, key: ProcessKey) -> bool {
        let answers = |aside: &SharedAside| {
            let mut aside = aside.borrow_mut();
            aside.answers_for_map(key.tgid, key.start_time)
        };
        self.aside.as_ref().is_none_or(answers)
    }

    /// Whether a followed process still runs.
    pub fn any_alive(&self) -> bool {
        // The end of one whose threads are not counted any more may not be told.
        let alive = |pid: Pid, p: &Process| {
            p.ended.is_none() && (p.threads != u32::MAX || procfs::is_alive(pid))
        };
        self.by_pid
            .iter()
            .any(|(pid, list)| list.iter().any(|p| alive(*pid, p)))
    }

    /// When `process` began to run the program it was launched for, if it has.
    pub fn exec_time(&self, process: Pid) -> Option<Timestamp> {
        let images = &self.by_pid.get(&process)?.first()?.images;
        images.iter().find(|i| i.number > 0).map(|i| i.since)
    }

    /// `made` is when the mapping was made, if that was told; else it is there now.
    fn mapping(&mut self, process: Pid, raw: &RawMapping, made: Option<Timestamp>) -> Mapping {
        let mut aside = self.aside.as_ref().map(|aside| aside.borrow_mut());
        let mapping = Mapping {
            start: raw.start,
            end: raw.end,
            file_offset: raw.file_offset,
            prot: raw.prot,
            file: self
                .files
                .identify(aside.as_deref_mut(), process, raw, made),
        };
        if mapping.file.kind == MappedKind::Vdso && self.vdso.len() < VDSO_PLACES {
            self.vdso.insert(mapping.start, mapping.end);
        }
        mapping
    }

    /// The living process of this number.
    fn alive(&mut self, pid: Pid) -> Option<&mut Process> {
        self.by_pid
            .get_mut(&pid)?
            .last_mut()
            .filter(|p| p.ended.is_none())
    }

    /// What a process had mapped, as far as that has been told.
    pub fn spaces(&self, key: ProcessKey) -> Spaces<'_> {
        let process = || self.by_pid.get(&key.tgid)?.get(self.find(key)?);
        Spaces {
            of: key,
            images: process().map_or(&[], |process| &process.images),
        }
    }

    fn touch(&mut self, pid: Pid) {
        if self.touched.back() != Some(&(self.batch, pid)) {
            self.touched.push_back((self.batch, pid));
        }
    }

    fn get(&mut self, pid: Pid, at: usize) -> Option<&mut Process> {
        self.by_pid.get_mut(&pid)?.get_mut(at)
    }

    /// The open segment was closed: nobody is written in the next one yet.
    pub fn segment_started(&mut self) {
        self.by_pid
            .values_mut()
            .flatten()
            .for_each(|p| p.written = None);
    }

    /// All samples up to `horizon` are resolved. Forgets what no later sample can need: a sample can come one batch
    /// after an event that is later than it, so what happened two batches ago is settled.
    pub fn end_batch(&mut self, horizon: Timestamp) {
        self.batch += 1;
        while let Some((batch, pid)) = self.touched.front().copied() {
            if batch + 2 > self.batch {
                break;
            }
            self.touched.pop_front();
            let Some(list) = self.by_pid.get_mut(&pid) else {
                continue;
            };
            let settled = self.settled;
            list.retain(|p| p.ended.is_none_or(|t| t > settled && t != Timestamp::MAX));
            list.iter_mut().for_each(|p| p.settle(settled));
            let latest = list.last_mut().filter(|p| p.ended.is_none());
            if let Some(process) = latest.filter(|p| p.mappings() > p.many) {
                // Should the number be another process's by now, names are lost and none is wrong.
                let there = reread::see(&self.aside, pid);
                process.forget_unmapped(there.ok().map(|seen| seen.mappings));
            }
            if list.is_empty() {
                self.by_pid.remove(&pid);
            } else if list.iter().any(|p| p.ended.is_some()) {
                self.touched.push_back((self.batch, pid));
            }
        }
        if !std::mem::take(&mut self.lost) {
            self.settled = self.good_until;
            self.good_until = horizon;
        }
        if Instant::now() >= self.next_sweep {
            self.next_sweep = Instant::now() + SWEEP;
            self.sweep();
        }
    }

    /// Finds processes whose end was missed (lost records).
    fn sweep(&mut self) {
        let mut gone = Vec::new();
        for (pid, list) in &mut self.by_pid {
            let alive = list.last_mut().filter(|p| p.ended.is_none() && !p.kernel);
            if let Some(process) = alive.filter(|_| procfs::is_gone(*pid)) {
                process.ended = Some(Timestamp::MAX);
                gone.push((*pid, process.sampled));
            }
        }
        for (pid, sampled) in gone {
            // Whoever follows its code holds a directory of it.
            if sampled {
                self.code_changed(pid);
            }
            self.touch(pid);
        }
    }
}

/// A process as `/proc` told of it, `space` unless it is one of the kernel's.
fn as_read(stat: Stat, space: Option<io::Result<AddressSpace>>) -> Process {
    let mut image = Image::new(Timestamp::ZERO, 0, Origin::Snapshot, stat.comm);
    match space {
        None => {}
        Some(Ok(space)) => image.space = space,
        // An exiting process has no memory any more; that is no loss.
        Some(Err(err)) if err.raw_os_error() == Some(libc::ESRCH) => {}
        Some(Err(err)) => image.unreadable = Some(err.to_string()),
    }
    Process {
        start: Start::Tick(stat.start_ticks),
        parent: stat.parent,
        kernel: stat.kernel,
        origin: Origin::Snapshot,
        threads: stat.threads.max(1),
        ended: None,
        images: vec![image],
        stale: false,
        sampled: false,
        missed: false,
        many: MANY,
        written: None,
        looked_again: None,
    }
}

#[cfg(test)]
mod tests {
    use super::model::Start;
    use super::*;

    /// An end that nobody told is an end to whoever follows the process's code, too: it holds a directory of it.
    #[test]
    fn an_end_that_only_the_sweep_finds_ends_what_follows_the_code() {
        let mut processes = Processes::new(Scope::All, 100);
        // No process ever has it: it is above any `pid_max`.
        let nobody = Pid(1 << 30);
        processes.forked(nobody, Pid(1), Timestamp(7));
        let process = processes.alive(nobody).expect("it has begun");
        // Two threads that have ended, of which the end of one was lost.
        (process.sampled, process.threads) = (true, 1);
        process.start = Start::At(Timestamp(7));
        assert!(processes.take_unnamed_code().is_empty());
        processes.sweep();
        let told = processes.take_unnamed_code();
        let told: Vec<_> = told.iter().map(|c| (c.key.tgid, c.ended)).collect();
        assert_eq!(told, [(nobody, true)]);
        processes.sweep();
        assert!(processes.take_unnamed_code().is_empty());
    }
}
