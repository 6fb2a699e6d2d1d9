//! (process, time) -> image -> mapping: what was at an address of a process when it was sampled.
//!
//! A timeline covers one segment. Records are applied in the order of the capture, frame by frame; they
//! only ever add knowledge about times at or after their own, so looking up an earlier time later on
//! gives the same answer. A process is a list of images (one per exec), an image a list of epochs (a
//! whole list of mappings read at once), an epoch its list plus the mappings added one by one since.
//!
//! Two times between which nothing about a process changed have the same [`View`], so stacks can be
//! counted per view and looked up once.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod maps;
mod name;

use std::sync::Arc;

use crate::event::{ProcessKey, Timestamp};
use crate::format::process::{
    MappingId, MappingTemplate, ProcessId, ProcessRecord, Space, SpaceId, StringId,
};

use maps::{MapLog, SpaceIndex};

pub use name::{file_name, is_loader};

/// The tables of the segment that process records refer to.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// Mapping templates.
    pub mappings: &'a [MappingTemplate],
    /// Mapping lists.
    pub spaces: &'a [Space],
}

/// A time span of a process in which nothing known about it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct View {
    /// Whose.
    pub process: ProcessId,
    /// Number of the image in the process, `None` before the first one known.
    pub image: Option<u32>,
    /// When the span begins; stands for every time in it.
    pub since: Timestamp,
}

/// A mapping found at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// What is mapped.
    pub mapping: MappingId,
    /// First address of the mapping.
    pub start: u64,
    /// Offset of the address in the mapped file, in bytes.
    pub file_offset: u64,
}

/// Everything known about the processes of a segment.
#[derive(Debug, Default)]
pub struct Timeline {
    processes: Vec<Process>,
    spaces: Vec<Option<SpaceIndex>>,
}

#[derive(Debug)]
struct Process {
    key: ProcessKey,
    images: Vec<Image>,
    /// Times at which anything changed, ascending, each once.
    changes: Vec<Timestamp>,
    /// Times given from outside (readings of perf maps), ascending.
    boundaries: Arc<[Timestamp]>,
    /// Time of the newest record.
    latest: Timestamp,
    unreadable: bool,
    /// Has no user memory.
    kernel: bool,
    /// Its cgroups, ascending by time.
    cgroups: Vec<(Timestamp, StringId)>,
}

#[derive(Debug)]
struct Image {
    since: Timestamp,
    exec_number: u32,
    /// The leader's names, ascending by time; never empty.
    comms: Vec<(Timestamp, StringId)>,
    /// Whole lists, ascending by time.
    epochs: Vec<Epoch>,
    /// Mappings added one by one, in record order, those of all epochs.
    maps: MapLog,
    /// The smallest `exec_id` seen in a sample of this image.
    exec_id: Option<u32>,
}

#[derive(Debug)]
struct Epoch {
    since: Timestamp,
    space: SpaceId,
    /// Length of the image's map log when this epoch began: what was mapped before is replaced.
    first_map: usize,
}

impl Timeline {
    /// A timeline that knows nothing.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// Takes in one record. Records that name a process, space or mapping that is not there are
    /// ignored: the reader has refused such captures already.
    pub fn apply(&mut self, record: &ProcessRecord, tables: Tables<'_>) {
        if let ProcessRecord::Process {
            key,
            kernel,
            cgroup,
            ..
        } = record
        {
            self.processes.push(Process {
                key: *key,
                images: Vec::new(),
                changes: Vec::new(),
                boundaries: Arc::default(),
                latest: Timestamp::ZERO,
                unreadable: false,
                kernel: *kernel,
                cgroups: cgroup
                    .map(|path| (Timestamp::ZERO, path))
                    .into_iter()
                    .collect(),
            });
            return;
        }
        let Some((id, time)) = subject(record) else {
            return;
        };
        if let ProcessRecord::Space { space, .. } = record {
            self.index_space(*space, tables);
        }
        let Some(process) = self.processes.get_mut(id as usize) else {
            return;
        };
        // Records of a process are in time order; a capture that breaks this must not break look-ups.
        let time = time.max(process.latest);
        process.latest = time;
        process.apply(record, time, tables);
    }

    /// Further times at which the names of a process may change (readings of its perf maps), ascending. Shared, since the
    /// process may be in many segments.
    pub fn set_boundaries(&mut self, process: ProcessId, times: Arc<[Timestamp]>) {
        if let Some(process) = self.processes.get_mut(process as usize) {
            process.boundaries = times;
        }
    }

    /// Processes known so far; their ids are `0..process_count()`.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// Who a process is.
    pub fn key(&self, process: ProcessId) -> Option<ProcessKey> {
        self.processes.get(process as usize).map(|p| p.key)
    }

    /// Whether its mappings could not be read at some time.
    pub fn is_unreadable(&self, process: ProcessId) -> bool {
        self.processes
            .get(process as usize)
            .is_some_and(|p| p.unreadable)
    }

    /// Whether it has no user memory: a kernel thread.
    pub fn is_kernel(&self, process: ProcessId) -> bool {
        self.processes
            .get(process as usize)
            .is_some_and(|p| p.kernel)
    }

    /// The cgroup it was in at `time`; before the first one known, that.
    pub fn cgroup(&self, process: ProcessId, time: Timestamp) -> Option<StringId> {
        let cgroups = &self.processes.get(process as usize)?.cgroups;
        let after = cgroups.partition_point(|(since, _)| *since <= time);
        cgroups.get(after.saturating_sub(1)).map(|(_, path)| *path)
    }

    /// The view that holds at `time`, and the time it ends (exclusive) as far as is known by now.
    pub fn view(&self, process: ProcessId, time: Timestamp) -> (View, Timestamp) {
        let Some(p) = self.processes.get(process as usize) else {
            return (
                View {
                    process,
                    image: None,
                    since: Timestamp::ZERO,
                },
                Timestamp::MAX,
            );
        };
        let mut since = Timestamp::ZERO;
        let mut until = Timestamp::MAX;
        for times in [&p.changes[..], &p.boundaries[..]] {
            let after = times.partition_point(|t| *t <= time);
            if let Some(t) = after.checked_sub(1).and_then(|i| times.get(i)) {
                since = since.max(*t);
            }
            if let Some(t) = times.get(after) {
                until = until.min(*t);
            }
        }
        let image = p
            .images
            .partition_point(|i| i.since <= time)
            .checked_sub(1)
            .map(|i| i as u32);
        (
            View {
                process,
                image,
                since,
            },
            until,
        )
    }

    /// What was mapped at `address`.
    pub fn locate(&self, view: View, address: u64, tables: Tables<'_>) -> Option<Located> {
        let image = self.image(view)?;
        let epoch = image
            .epochs
            .partition_point(|e| e.since <= view.since)
            .checked_sub(1);
        let (space, first_map) = match epoch.and_then(|e| image.epochs.get(e)) {
            Some(e) => (Some(e.space), e.first_map),
            None => (None, 0),
        };
        let found = image
            .maps
            .find(address, first_map, view.since)
            .or_else(|| self.spaces.get(space? as usize)?.as_ref()?.find(address))?;
        let template = tables.mappings.get(found.mapping as usize)?;
        Some(Located {
            mapping: found.mapping,
            start: found.start,
            file_offset: (address - found.start).checked_add(template.file_offset)?,
        })
    }

    /// The leader's name in `view`.
    pub fn comm(&self, view: View) -> Option<StringId> {
        let comms = &self.image(view)?.comms;
        let i = comms
            .partition_point(|(t, _)| *t <= view.since)
            .saturating_sub(1);
        comms.get(i).map(|(_, comm)| *comm)
    }

    /// Notes that a sample of `exec_id` was taken in `view`. Samples taken inside `execve` must not be
    /// noted: the kernel changes image and `exec_id` one after the other.
    pub fn note_exec_id(&mut self, view: View, exec_id: u32) {
        let image = view.image.and_then(|i| {
            self.processes
                .get_mut(view.process as usize)?
                .images
                .get_mut(i as usize)
        });
        if let Some(image) = image {
            image.exec_id = Some(image.exec_id.map_or(exec_id, |known| known.min(exec_id)));
        }
    }

    /// Whether a sample of `exec_id` can be of the image of `view`. If not, the process has run another
    /// program of which the capture does not know.
    pub fn is_image_of(&self, view: View, exec_id: u32) -> bool {
        self.image(view)
            .is_some_and(|i| i.exec_id.is_none_or(|known| known == exec_id))
    }

    /// Whether the user stack of a sample taken inside `execve` may be that of the image before.
    pub fn may_follow_exec(&self, view: View) -> bool {
        // A first image is what a fork, or the beginning of the recording, found; later ones began with an exec.
        self.image(view).is_some_and(|i| i.exec_number > 0)
    }

    /// When the image of `view` began.
    pub fn image_since(&self, view: View) -> Option<Timestamp> {
        self.image(view).map(|image| image.since)
    }

    fn image(&self, view: View) -> Option<&Image> {
        self.processes
            .get(view.process as usize)?
            .images
            .get(view.image? as usize)
    }

    fn index_space(&mut self, space: SpaceId, tables: Tables<'_>) {
        let Some(list) = tables.spaces.get(space as usize) else {
            return;
        };
        let at = space as usize;
        if self.spaces.len() <= at {
            self.spaces.resize_with(at + 1, || None);
        }
        if let Some(slot) = self.spaces.get_mut(at)
            && slot.is_none()
        {
            *slot = Some(SpaceIndex::new(list, tables.mappings));
        }
    }
}

impl Process {
    fn apply(&mut self, record: &ProcessRecord, time: Timestamp, tables: Tables<'_>) {
        match record {
            ProcessRecord::Image {
                exec_number, comm, ..
            } => self.images.push(Image {
                since: time,
                exec_number: *exec_number,
                comms: vec![(time, *comm)],
                epochs: Vec::new(),
                maps: MapLog::default(),
                exec_id: None,
            }),
            ProcessRecord::Space { space, .. } => {
                let Some(image) = self.images.last_mut() else {
                    return;
                };
                let first_map = image.maps.len();
                image.epochs.push(Epoch {
                    since: time,
                    space: *space,
                    first_map,
                });
            }
            ProcessRecord::Map { placed, .. } => {
                let Some(image) = self.images.last_mut() else {
                    return;
                };
                let Some(template) = tables.mappings.get(placed.mapping as usize) else {
                    return;
                };
                image.maps.push(time, *placed, template.len);
            }
            ProcessRecord::Comm { comm, .. } => {
                let Some(image) = self.images.last_mut() else {
                    return;
                };
                image.comms.push((time, *comm));
            }
            ProcessRecord::Unreadable { .. } => {
                self.unreadable = true;
                return;
            }
            // Changes nothing of what is at an address.
            ProcessRecord::Cgroup { path, .. } => {
                self.cgroups.push((time, *path));
                return;
            }
            // A name is not taken back at the end: the last samples of a process are taken while it exits.
            ProcessRecord::Exit { .. } | ProcessRecord::Process { .. } => return,
        }
        if self.changes.last() != Some(&time) {
            self.changes.push(time);
        }
    }
}

/// Whom and when a record is about; `None` for [`ProcessRecord::Process`].
fn subject(record: &ProcessRecord) -> Option<(ProcessId, Timestamp)> {
    match *record {
        ProcessRecord::Process { .. } => None,
        ProcessRecord::Image { process, time, .. }
        | ProcessRecord::Space { process, time, .. }
        | ProcessRecord::Map { process, time, .. }
        | ProcessRecord::Comm { process, time, .. }
        | ProcessRecord::Cgroup { process, time, .. }
        | ProcessRecord::Exit { process, time }
        | ProcessRecord::Unreadable { process, time, .. } => Some((process, time)),
    }
}

#[cfg(test)]
mod tests;
