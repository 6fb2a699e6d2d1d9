//! What is known of one process.

use crate::event::{Origin, Pid, ProcessKey, Timestamp};
use crate::format::process::ProcessId;
use crate::record::address_space::AddressSpace;
use crate::record::maps::RawMapping;

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
pub(super) enum Start {
    /// Exactly, from a sample.
    At(Timestamp),
    /// In this clock tick, from `/proc/PID/stat`.
    Tick(u64),
    /// Just before this, the time of its fork event.
    Before(Timestamp),
}

/// One image of a process.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub since: Timestamp,
    pub number: u32,
    pub origin: Origin,
    /// Name when the image began, then later ones.
    pub comm: Vec<u8>,
    pub renamed: Vec<(Timestamp, Vec<u8>)>,
    pub space: AddressSpace,
    pub exec_id: Option<u32>,
    pub unreadable: Option<String>,
}

impl Image {
    pub fn new(since: Timestamp, number: u32, origin: Origin, comm: Vec<u8>) -> Image {
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

    pub fn current_comm(&self) -> &[u8] {
        self.renamed.last().map_or(&self.comm, |(_, comm)| comm)
    }
}

/// [`Process::many`] at first.
pub(super) const MANY: usize = 4096;

#[derive(Debug)]
pub(super) struct Process {
    pub start: Start,
    pub parent: Pid,
    pub kernel: bool,
    pub origin: Origin,
    pub threads: u32,
    pub ended: Option<Timestamp>,
    /// Never empty; the last is the current one.
    pub images: Vec<Image>,
    /// Side-band records were lost since its mappings were known to be right.
    pub stale: bool,
    /// Has had samples.
    pub sampled: bool,
    /// Mappings of it are missing, which has been counted.
    pub missed: bool,
    /// Where the open segment has it, and the cgroup it has it in.
    pub written: Option<(ProcessId, u64)>,
    /// With more mappings than this it is read again for which of them are still there: the kernel does not tell of their
    /// end, and some programs make new ones for ever.
    pub many: usize,
    /// When `/proc` was last read because of an address nothing covers.
    pub looked_again: Option<Timestamp>,
}

impl Process {
    pub fn current(&mut self) -> Option<&mut Image> {
        self.images.last_mut()
    }

    /// The images that samples from `first` on can need. One that ended before names nothing.
    pub fn needed_from(&self, first: Timestamp) -> impl Iterator<Item = &Image> {
        let from = self.images.iter().rposition(|i| i.since <= first);
        self.images.iter().skip(from.unwrap_or(0))
    }

    /// Forgets what was before `time`, of which no sample can come any more.
    pub fn settle(&mut self, time: Timestamp) {
        let over = self.images.iter().rposition(|i| i.since <= time);
        self.images.drain(..over.unwrap_or(0));
        for image in &mut self.images {
            image.space.settle(time);
            let split = image.renamed.partition_point(|(t, _)| *t <= time);
            if let Some((_, comm)) = image.renamed.drain(..split).next_back() {
                image.comm = comm;
            }
        }
    }

    /// How many mappings are kept of its current image.
    pub fn mappings(&self) -> usize {
        self.images.last().map_or(0, |image| image.space.len())
    }

    /// Forgets mappings that are not `there` any more: no sample from now on can need them. The open segment has those it
    /// needs.
    pub fn forget_unmapped(&mut self, there: Option<Vec<RawMapping>>) {
        if let Some(there) = there
            && let Some(image) = self.images.last_mut()
        {
            let there: Vec<_> = there.into_iter().map(|m| m.start..m.end).collect();
            image.space.keep_only(&there);
        }
        self.many = MANY.max(2 * self.mappings());
    }

    /// Told of an exec and of nothing it has mapped yet. The kernel takes perf events from a task that starts a set-uid
    /// program (any that may not be dumped), and tells of it between the two as if the task had ended.
    pub fn is_in_exec(&self) -> bool {
        self.images
            .last()
            .is_some_and(|i| i.number > 0 && i.origin == Origin::Event && i.space.is_empty())
    }
}

/// The image that ran at `time`.
pub(super) fn image_at(images: &mut [Image], time: Timestamp) -> Option<&mut Image> {
    let at = images.iter().rposition(|i| i.since <= time).unwrap_or(0);
    images.get_mut(at)
}
