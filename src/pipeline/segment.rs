//! One segment: samples -> views, addresses -> places.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::capture::{Damage, FrameData, Tables};
use crate::event::{MappedFile, MappedKind, Timestamp, sample_flags};
use crate::format::index::FrameEntry;
use crate::format::process::{ProcessId, StringId, Task};
use crate::format::samples::Sample;
use crate::profile::Reason;
use crate::symbolize::perf_map::PerfMaps;
use crate::symbolize::{Code, FileNumber, Place, PlaceId, Places};
use crate::timeline::{self, Timeline, View, is_loader};

/// What the timeline needs of a segment's tables.
fn of_timeline(tables: &Tables) -> timeline::Tables<'_> {
    timeline::Tables {
        mappings: &tables.mappings,
        spaces: &tables.spaces,
    }
}

/// Number of a view in a [`Segment`].
pub(super) type ViewId = u32;

/// Everything about a sample that its names and its count depend on.
///
/// In the order of the fields those that are looked up alike come one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub view: ViewId,
    /// The user stack is not of the view's image, so nothing of it can be named.
    pub foreign: bool,
    /// Taken inside an `execve` that had replaced the program already: the user stack is that of the program before
    /// and is not shown.
    pub before_exec: bool,
    /// [`sample_flags::USER_TRUNCATED`].
    pub user_cut: bool,
    pub user: u32,
    pub kernel: u32,
    /// [`sample_flags::KERNEL_TRUNCATED`].
    pub kernel_cut: bool,
    pub event: u8,
}

impl Key {
    /// All of it in one number, which is quick to hash and to sort by, in the same order.
    pub fn pack(self) -> u128 {
        let mut packed = u128::from(self.view);
        let mut add = |bits: u32, value: u32| packed = packed << bits | u128::from(value);
        add(1, self.foreign.into());
        add(1, self.before_exec.into());
        add(1, self.user_cut.into());
        add(32, self.user);
        add(32, self.kernel);
        add(1, self.kernel_cut.into());
        add(8, self.event.into());
        packed
    }

    /// The key that was packed.
    pub fn unpack(packed: u128) -> Key {
        let mut left = packed;
        let mut take = |bits: u32| {
            let value = (left & ((1 << bits) - 1)) as u32;
            left >>= bits;
            value
        };
        Key {
            event: take(8) as u8,
            kernel_cut: take(1) != 0,
            kernel: take(32),
            user: take(32),
            user_cut: take(1) != 0,
            before_exec: take(1) != 0,
            foreign: take(1) != 0,
            view: take(32),
        }
    }
}

/// A segment while it is read.
pub(super) struct Segment {
    perf_maps: Arc<PerfMaps>,
    timeline: Timeline,
    /// Process records applied so far.
    applied: usize,
    views: Vec<View>,
    view_index: HashMap<View, ViewId>,
    /// The last view of each task, valid within one frame.
    tasks: Vec<Option<TaskView>>,
    /// Numbers in [`Places`] of the segment's files.
    files: Vec<Option<FileNumber>>,
    /// Of each sample of the frame, its view.
    frame_views: Vec<ViewId>,
    /// The smallest exec_id of the tasks of each process, as far as they have been looked at.
    least_exec_ids: HashMap<ProcessId, u32>,
    tasks_seen: usize,
    /// Offsets of the frames passed over whose samples were needed after all.
    recalled: HashSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct TaskView {
    since: Timestamp,
    until: Timestamp,
    view: ViewId,
    noted: bool,
}

impl Segment {
    pub fn new(perf_maps: Arc<PerfMaps>) -> Segment {
        Segment {
            perf_maps,
            timeline: Timeline::new(),
            applied: 0,
            views: Vec::new(),
            view_index: HashMap::new(),
            tasks: Vec::new(),
            files: Vec::new(),
            frame_views: Vec::new(),
            least_exec_ids: HashMap::new(),
            tasks_seen: 0,
            recalled: HashSet::new(),
        }
    }

    /// Before the samples of a frame are looked at: learns from the frames passed over which program a process was running,
    /// where that decides what is a name. That is so only where the process ran another one before, so that most often nothing is
    /// read.
    ///
    /// # Errors
    /// The frames passed over cannot be read, and so none of the segment from there on.
    pub fn recall(&mut self, frame: &FrameData<'_>) -> Result<(), Damage> {
        if frame.passed.is_empty() {
            return Ok(());
        }
        let tables = frame.tables;
        self.apply(tables);
        let Some(since) = self.in_doubt_since(frame) else {
            return Ok(());
        };
        let mut recalled = std::mem::take(&mut self.recalled);
        let wanted =
            |entry: &FrameEntry| entry.descriptor.last >= since && recalled.insert(entry.offset);
        let read = frame.passed.read(wanted, |samples| {
            self.tasks.clear();
            self.tasks.resize(tables.tasks.len(), None);
            for sample in samples {
                self.view_of(tables, sample);
            }
        });
        self.recalled = recalled;
        read
    }

    /// From when on earlier samples decide whether one of the frame is of the program known: as soon as the oldest image
    /// with a sample here of which a smaller exec_id of its process might have been seen.
    fn in_doubt_since(&mut self, frame: &FrameData<'_>) -> Option<Timestamp> {
        let tables = frame.tables;
        for task in tables.tasks.iter().skip(self.tasks_seen) {
            let least = self.least_exec_ids.entry(task.process);
            let least = least.or_insert(task.exec_id);
            *least = task.exec_id.min(*least);
        }
        self.tasks_seen = tables.tasks.len();
        let in_doubt: Vec<bool> = tables
            .tasks
            .iter()
            .map(|task| self.least_exec_ids.get(&task.process) < Some(&task.exec_id))
            .collect();
        let samples = frame.samples.iter();
        let samples = samples.filter(|sample| in_doubt.get(sample.task as usize) == Some(&true));
        let images = samples.filter_map(|sample| {
            let process = tables.task(sample.task)?.process;
            let (view, _) = self.timeline.view(process, sample.time);
            self.timeline.image_since(view)
        });
        images.min()
    }

    /// Takes in what a frame adds to the tables, then calls `each` with every sample and its key.
    pub fn frame(
        &mut self,
        tables: &Tables,
        samples: &[Sample],
        mut each: impl FnMut(&Segment, &Sample, Key),
    ) {
        self.apply(tables);
        self.tasks.clear();
        self.tasks.resize(tables.tasks.len(), None);
        // First which exec each image has, by all samples of the frame, since they are sorted by CPU and
        // not by time; then what each sample is.
        let mut frame_views = std::mem::take(&mut self.frame_views);
        frame_views.clear();
        frame_views.extend(samples.iter().map(|sample| self.view_of(tables, sample)));
        for (sample, view) in samples.iter().zip(&frame_views) {
            let Some(task) = tables.tasks.get(sample.task as usize) else {
                continue;
            };
            each(self, sample, self.key(sample, task, *view));
        }
        self.frame_views = frame_views;
    }

    fn apply(&mut self, tables: &Tables) {
        let known = self.timeline.process_count();
        for record in tables.process_records.iter().skip(self.applied) {
            self.timeline.apply(record, of_timeline(tables));
        }
        self.applied = tables.process_records.len();
        for process in known..self.timeline.process_count() {
            let process = process as u32;
            if let Some(key) = self.timeline.key(process) {
                self.timeline
                    .set_boundaries(process, self.perf_maps.boundaries(key));
            }
        }
    }

    fn view_of(&mut self, tables: &Tables, sample: &Sample) -> ViewId {
        let slot = self.tasks.get(sample.task as usize).copied().flatten();
        let mut current = match slot {
            Some(known) if known.since <= sample.time && sample.time < known.until => known,
            _ => {
                let process = tables
                    .tasks
                    .get(sample.task as usize)
                    .map_or(u32::MAX, |t| t.process);
                let (view, until) = self.timeline.view(process, sample.time);
                let next = self.views.len() as ViewId;
                let id = *self.view_index.entry(view).or_insert(next);
                if id == next {
                    self.views.push(view);
                }
                TaskView {
                    since: view.since,
                    until,
                    view: id,
                    noted: false,
                }
            }
        };
        if !current.noted
            && sample.flags & sample_flags::IN_EXEC == 0
            && let Some(task) = tables.tasks.get(sample.task as usize)
            && let Some(view) = self.views.get(current.view as usize)
        {
            self.timeline.note_exec_id(*view, task.exec_id);
            current.noted = true;
        }
        if let Some(slot) = self.tasks.get_mut(sample.task as usize) {
            *slot = Some(current);
        }
        current.view
    }

    fn key(&self, sample: &Sample, task: &Task, view: ViewId) -> Key {
        let at = self.view(view);
        let in_exec = sample.flags & sample_flags::IN_EXEC != 0;
        Key {
            view,
            foreign: !in_exec && !self.timeline.is_image_of(at, task.exec_id),
            before_exec: in_exec && self.timeline.may_follow_exec(at),
            user_cut: sample.flags & sample_flags::USER_TRUNCATED != 0,
            user: sample.user_stack,
            kernel: sample.kernel_stack,
            kernel_cut: sample.flags & sample_flags::KERNEL_TRUNCATED != 0,
            event: sample.event,
        }
    }

    /// The view of a number.
    pub fn view(&self, view: ViewId) -> View {
        let none = View {
            process: u32::MAX,
            image: None,
            since: Timestamp::ZERO,
        };
        self.views.get(view as usize).copied().unwrap_or(none)
    }

    /// Who was sampled in a view.
    pub fn process(&self, view: ViewId) -> Option<crate::event::ProcessKey> {
        self.timeline.key(self.view(view).process)
    }

    /// What the process is called: the leader's name, or that of the program a dynamic loader was told
    /// to run, as long as the process is named after the loader.
    pub fn process_name<'a>(&self, view: ViewId, tables: &'a Tables) -> &'a [u8] {
        let view = self.view(view);
        let comm = self
            .timeline
            .comm(view)
            .and_then(|c| tables.strings.get(c as usize));
        let comm = comm.map_or(&b"?"[..], |c| c);
        if is_loader(comm) {
            let program = self
                .timeline
                .loaded_program(view, of_timeline(tables), &tables.files);
            return program.unwrap_or(comm);
        }
        comm
    }

    /// Who a process of the segment is.
    pub fn key_of(&self, process: ProcessId) -> Option<crate::event::ProcessKey> {
        self.timeline.key(process)
    }

    /// Path of the program that ran in a view; of one that a dynamic loader was told to run, its path.
    pub fn program<'a>(&self, view: ViewId, tables: &'a Tables) -> Option<&'a [u8]> {
        let view = self.view(view);
        self.timeline
            .program(view, of_timeline(tables), &tables.files)
    }

    /// Whether a view is one of a kernel thread.
    pub fn is_kernel(&self, view: ViewId) -> bool {
        self.timeline.is_kernel(self.view(view).process)
    }

    /// The cgroup a sample was taken in: number of its path.
    pub fn cgroup(&self, sample: &Sample, tables: &Tables) -> Option<StringId> {
        let task = tables.task(sample.task)?;
        self.timeline.cgroup(task.process, sample.time)
    }

    /// The place of a user address.
    pub fn user_place(
        &mut self,
        tables: &Tables,
        places: &mut Places,
        (view, foreign): (ViewId, bool),
        (address, is_return): (u64, bool),
    ) -> PlaceId {
        let lookup = address.saturating_sub(u64::from(is_return));
        let code = if foreign {
            Code::Unknown(Reason::UnknownImage)
        } else {
            self.user_code(tables, places, self.view(view), lookup)
        };
        places.place(Place { code, is_return })
    }

    fn user_code(
        &mut self,
        tables: &Tables,
        places: &mut Places,
        view: View,
        address: u64,
    ) -> Code {
        if VSYSCALL.contains(&address) {
            return Code::Vsyscall;
        }
        if view.image.is_none() {
            return Code::Unknown(Reason::UnknownImage);
        }
        let found = self
            .timeline
            .locate(view, address, of_timeline(tables))
            .and_then(|located| {
                let file = tables.mappings.get(located.mapping as usize)?.file;
                Some((located, file, tables.files.get(file as usize)?))
            });
        match found {
            Some((at, file, mapped)) if mapped.kind == MappedKind::File => {
                Code::File(self.file_number(file, mapped, places), at.file_offset)
            }
            // The image saved is that of 64-bit processes, whose vdso is never below 4 GiB.
            Some((at, _, mapped))
                if mapped.kind == MappedKind::Vdso && at.start > u64::from(u32::MAX) =>
            {
                Code::Vdso(address - at.start)
            }
            Some((_, _, mapped)) if mapped.kind == MappedKind::Vsyscall => Code::Vsyscall,
            other => self.jit_code(view, address).unwrap_or_else(|| match other {
                Some((_, file, mapped)) => Code::Labelled(self.file_number(file, mapped, places)),
                None if self.timeline.is_unreadable(view.process) => {
                    Code::Unknown(Reason::MapsUnreadable)
                }
                None => Code::Unknown(Reason::NotMapped),
            }),
        }
    }

    fn jit_code(&self, view: View, address: u64) -> Option<Code> {
        let process = self.timeline.key(view.process)?;
        let maps = &self.perf_maps;
        let (map, line) = maps.find(process, view.since, address)?;
        Some(Code::Jit(
            map,
            line,
            address - maps.symbol(map, line)?.start,
        ))
    }

    fn file_number(&mut self, file: u32, mapped: &MappedFile, places: &mut Places) -> FileNumber {
        let at = file as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, None);
        }
        match self.files.get_mut(at) {
            Some(slot) => *slot.get_or_insert_with(|| places.file(mapped)),
            None => places.file(mapped),
        }
    }
}

/// The vsyscall page of x86-64, the same in every process.
const VSYSCALL: std::ops::Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;

/// The place of a kernel address.
pub(super) fn kernel_place(places: &mut Places, (address, is_return): (u64, bool)) -> PlaceId {
    let code = Code::Kernel(address.saturating_sub(u64::from(is_return)));
    places.place(Place { code, is_return })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_keys_come_back_and_sort_as_keys_do() {
        let zero = Key {
            view: 0,
            foreign: false,
            before_exec: false,
            user_cut: false,
            user: 0,
            kernel: 0,
            kernel_cut: false,
            event: 0,
        };
        let max = u32::MAX;
        let keys = [
            zero,
            Key { event: 255, ..zero },
            Key {
                kernel_cut: true,
                ..zero
            },
            Key {
                kernel: max,
                ..zero
            },
            Key { user: max, ..zero },
            Key {
                user_cut: true,
                ..zero
            },
            Key {
                before_exec: true,
                ..zero
            },
            Key {
                foreign: true,
                ..zero
            },
            Key { view: max, ..zero },
        ];
        for (a, b) in keys.iter().zip(keys.iter().skip(1)) {
            assert!(a < b && a.pack() < b.pack());
        }
        for key in keys {
            assert_eq!(Key::unpack(key.pack()), key);
        }
        assert_eq!(zero.pack(), 0);
    }
}
