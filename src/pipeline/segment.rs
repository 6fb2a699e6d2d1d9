//! One segment: samples -> views and stacks -> places.
//!
//! Counting comes first: samples are counted by view and stack numbers, and every node of a stack trie is
//! looked up once per view.

use std::rc::Rc;

use hashbrown::HashMap;

use crate::capture::{StackTable, Tables};
use crate::event::{MappedFile, MappedKind, Timestamp, sample_flags};
use crate::format::process::Task;
use crate::format::samples::Sample;
use crate::profile::Reason;
use crate::symbolize::{Code, FileNumber, Place, PlaceId, Symbolizer};
use crate::timeline::{self, Timeline, View, is_loader};

/// (caller, address) of a node. A caller has a smaller number than its callee, always.
fn node(table: &StackTable, stack: u32) -> Option<(u32, u64)> {
    let node = table.node(stack)?;
    let address = table.addresses.get(node.address as usize)?;
    (node.parent < stack).then_some((node.parent, *address))
}

/// Frames of a stack, leaf first, and whether they are return addresses.
fn frames(table: &StackTable, stack: u32) -> impl Iterator<Item = (u64, bool)> + '_ {
    table
        .frames(stack)
        .enumerate()
        .map(|(depth, address)| (address, depth > 0))
}

/// What the timeline needs of a segment's tables.
fn of_timeline(tables: &Tables) -> timeline::Tables<'_> {
    timeline::Tables {
        mappings: &tables.mappings,
        spaces: &tables.spaces,
    }
}

/// Number of a view in a [`Segment`].
type ViewId = u32;

/// Everything about a sample that its names and its count depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub view: ViewId,
    pub user: u32,
    pub kernel: u32,
    pub event: u8,
    /// [`sample_flags::USER_TRUNCATED`] and [`sample_flags::KERNEL_TRUNCATED`] only.
    pub truncated: u8,
    /// The user stack is not of the view's image, so nothing of it can be named.
    pub foreign: bool,
    /// Taken inside an `execve` that had replaced the program already: the user stack is that of the program before
    /// and is not shown.
    pub before_exec: bool,
}

/// A segment while it is read.
pub(super) struct Segment {
    timeline: Timeline,
    /// Process records applied so far.
    applied: usize,
    views: Vec<View>,
    view_index: HashMap<View, ViewId>,
    /// The last view of each task, valid within one frame.
    tasks: Vec<Option<TaskView>>,
    /// Symbolizer's numbers of the segment's files.
    files: Vec<Option<FileNumber>>,
    /// Of each sample of the frame, its view.
    frame_views: Vec<ViewId>,
}

#[derive(Debug, Clone, Copy)]
struct TaskView {
    since: Timestamp,
    until: Timestamp,
    view: ViewId,
    noted: bool,
}

impl Segment {
    pub fn new() -> Segment {
        Segment {
            timeline: Timeline::new(),
            applied: 0,
            views: Vec::new(),
            view_index: HashMap::new(),
            tasks: Vec::new(),
            files: Vec::new(),
            frame_views: Vec::new(),
        }
    }

    /// Takes in what a frame adds to the tables, then calls `each` with every sample and its key.
    pub fn frame(
        &mut self,
        tables: &Tables,
        symbolizer: &Symbolizer,
        samples: &[Sample],
        mut each: impl FnMut(&Sample, Key),
    ) {
        self.apply(tables, symbolizer);
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
            each(sample, self.key(sample, task, *view));
        }
        self.frame_views = frame_views;
    }

    fn apply(&mut self, tables: &Tables, symbolizer: &Symbolizer) {
        let known = self.timeline.process_count();
        for record in tables.process_records.iter().skip(self.applied) {
            self.timeline.apply(record, of_timeline(tables));
        }
        self.applied = tables.process_records.len();
        for process in known..self.timeline.process_count() {
            let process = process as u32;
            if let Some(key) = self.timeline.key(process) {
                self.timeline
                    .set_boundaries(process, symbolizer.perf_maps().boundaries(key));
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
            user: sample.user_stack,
            kernel: sample.kernel_stack,
            event: sample.event,
            truncated: sample.flags
                & (sample_flags::USER_TRUNCATED | sample_flags::KERNEL_TRUNCATED),
            foreign: !in_exec && !self.timeline.is_image_of(at, task.exec_id),
            before_exec: in_exec && self.timeline.may_follow_exec(at),
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

    /// The place of a user address.
    fn user_place(
        &mut self,
        tables: &Tables,
        symbolizer: &mut Symbolizer,
        (view, foreign): (ViewId, bool),
        (address, is_return): (u64, bool),
    ) -> PlaceId {
        let lookup = address.saturating_sub(u64::from(is_return));
        let code = if foreign {
            Code::Unknown(Reason::UnknownImage)
        } else {
            self.user_code(tables, symbolizer, self.view(view), lookup)
        };
        symbolizer.place(Place { code, is_return })
    }

    fn user_code(
        &mut self,
        tables: &Tables,
        symbolizer: &mut Symbolizer,
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
                Code::File(self.file_number(file, mapped, symbolizer), at.file_offset)
            }
            // The image saved is that of 64-bit processes, whose vdso is never below 4 GiB.
            Some((at, _, mapped))
                if mapped.kind == MappedKind::Vdso && at.start > u64::from(u32::MAX) =>
            {
                Code::Vdso(address - at.start)
            }
            Some((_, _, mapped)) if mapped.kind == MappedKind::Vsyscall => Code::Vsyscall,
            other => self
                .jit_code(view, address, symbolizer)
                .unwrap_or_else(|| match other {
                    Some((_, file, mapped)) => {
                        Code::Labelled(self.file_number(file, mapped, symbolizer))
                    }
                    None if self.timeline.is_unreadable(view.process) => {
                        Code::Unknown(Reason::MapsUnreadable)
                    }
                    None => Code::Unknown(Reason::NotMapped),
                }),
        }
    }

    fn jit_code(&self, view: View, address: u64, symbolizer: &Symbolizer) -> Option<Code> {
        let process = self.timeline.key(view.process)?;
        let maps = symbolizer.perf_maps();
        let (map, line) = maps.find(process, view.since, address)?;
        Some(Code::Jit(
            map,
            line,
            address - maps.symbol(map, line)?.start,
        ))
    }

    fn file_number(
        &mut self,
        file: u32,
        mapped: &MappedFile,
        symbolizer: &mut Symbolizer,
    ) -> FileNumber {
        let at = file as usize;
        if self.files.len() <= at {
            self.files.resize(at + 1, None);
        }
        match self.files.get_mut(at) {
            Some(slot) => *slot.get_or_insert_with(|| symbolizer.file(mapped)),
            None => symbolizer.file(mapped),
        }
    }
}

/// The vsyscall page of x86-64, the same in every process.
const VSYSCALL: std::ops::Range<u64> = 0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000;

fn kernel_place(symbolizer: &mut Symbolizer, (address, is_return): (u64, bool)) -> PlaceId {
    let code = Code::Kernel(address.saturating_sub(u64::from(is_return)));
    symbolizer.place(Place { code, is_return })
}

/// A node of a trie in a view: what a memory of look-ups is keyed by.
type Seen = (ViewId, bool, u32);

/// Stacks of places, shared by all segments: a node's number is greater than its caller's.
#[derive(Debug, Default)]
pub(super) struct PlaceStacks {
    /// (caller, place) of node `i + 1`.
    pub nodes: Vec<(u32, PlaceId)>,
    index: HashMap<(u32, PlaceId), u32>,
}

/// Stands for a place in [`PlaceStacks`] where callers were cut off.
pub(super) const CUT: PlaceId = PlaceId::MAX;

/// Stands for a place where a frame-pointer walk left the program's code, or found no caller. Code built without frame pointers uses
/// the register for other things, and the walk then takes whatever it points to for return addresses: from the
/// first of them that is no code, nothing towards the root is known. Such frames are not shown, but counted.
pub(super) const STRAY: PlaceId = PlaceId::MAX - 1;

/// Stands for a user stack that is left out: see [`Key::before_exec`].
pub(super) const BEFORE_EXEC: PlaceId = PlaceId::MAX - 2;

impl PlaceStacks {
    fn push(&mut self, caller: u32, place: PlaceId) -> u32 {
        let next = self.nodes.len() as u32 + 1;
        let id = *self.index.entry((caller, place)).or_insert(next);
        if id == next {
            self.nodes.push((caller, place));
        }
        id
    }
}

/// Nodes remembered at most, so that a capture of many views and deep stacks cannot take all memory.
const NODES_REMEMBERED: usize = 1 << 20;

/// Turns the stacks of one segment into stacks of places, each node once.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// Stacks of frames as callers, without and with the mark of a cut stack.
    user: HashMap<(Seen, bool), u32>,
    /// Kernel stacks as callers, on top of a user stack.
    kernel: HashMap<(u32, u32), u32>,
    path: Vec<(u32, u64)>,
}

impl Lookup {
    /// The stack of places of `key`, root first: the mark if it is cut, user frames, kernel frames.
    ///
    /// One mark at most: where the user stack is whole and the kernel stack cut, it is between the two.
    pub fn stack(
        &mut self,
        key: Key,
        segment: &mut Segment,
        tables: &Tables,
        symbolizer: &mut Symbolizer,
        stacks: &mut PlaceStacks,
    ) -> u32 {
        // Keys come sorted by view, so what is forgotten here is hardly asked for again.
        if self.user.len() + self.kernel.len() > NODES_REMEMBERED {
            self.user.clear();
            self.kernel.clear();
        }
        let user_cut = key.truncated & sample_flags::USER_TRUNCATED != 0 && key.user != 0;
        let kernel_cut = key.truncated & sample_flags::KERNEL_TRUNCATED != 0 && key.kernel != 0;
        let base = if user_cut { stacks.push(0, CUT) } else { 0 };
        let user = match node(&tables.user, key.user) {
            Some(_) if key.before_exec => stacks.push(0, BEFORE_EXEC),
            None => base,
            Some((parent, address)) => {
                let mut at = parent;
                self.path.clear();
                let mut stack = loop {
                    if let Some(known) = self.user.get(&((key.view, key.foreign, at), user_cut)) {
                        break *known;
                    }
                    let Some((parent, address)) = node(&tables.user, at) else {
                        break base;
                    };
                    self.path.push((at, address));
                    at = parent;
                };
                let context = (key.view, key.foreign);
                while let Some((number, address)) = self.path.pop() {
                    let place = segment.user_place(tables, symbolizer, context, (address, true));
                    stack = if symbolizer.is_unmapped(place) {
                        stacks.push(0, STRAY)
                    } else {
                        stacks.push(stack, place)
                    };
                    self.user
                        .insert(((key.view, key.foreign, number), user_cut), stack);
                }
                if stack == 0 {
                    // No caller at all: only the first function of a thread has none.
                    stack = stacks.push(0, STRAY);
                }
                let leaf = segment.user_place(tables, symbolizer, context, (address, false));
                stacks.push(stack, leaf)
            }
        };
        let Some((parent, address)) = node(&tables.kernel, key.kernel) else {
            return user;
        };
        let base = if kernel_cut && !user_cut {
            stacks.push(user, CUT)
        } else {
            user
        };
        let mut at = parent;
        self.path.clear();
        let mut stack = loop {
            if let Some(known) = self.kernel.get(&(base, at)) {
                break *known;
            }
            let Some((parent, address)) = node(&tables.kernel, at) else {
                break base;
            };
            self.path.push((at, address));
            at = parent;
        };
        while let Some((number, address)) = self.path.pop() {
            stack = stacks.push(stack, kernel_place(symbolizer, (address, true)));
            self.kernel.insert((base, number), stack);
        }
        stacks.push(stack, kernel_place(symbolizer, (address, false)))
    }
}

/// Addresses with their places, leaf first.
pub(super) type Frames = Rc<[(u64, PlaceId)]>;

/// Turns the stacks of one segment into lists of frames, remembering the latest.
#[derive(Debug, Default)]
pub(super) struct FrameLists {
    user: HashMap<Seen, Frames>,
    kernel: HashMap<u32, Frames>,
}

/// Lists remembered at most.
const REMEMBERED: usize = 1 << 16;

impl FrameLists {
    /// User frames of `key`.
    pub fn user(
        &mut self,
        key: Key,
        segment: &mut Segment,
        tables: &Tables,
        symbolizer: &mut Symbolizer,
    ) -> Frames {
        if key.before_exec && key.user != 0 {
            return Rc::from([(0, BEFORE_EXEC)]);
        }
        if self.user.len() >= REMEMBERED {
            self.user.clear();
        }
        let list = self
            .user
            .entry((key.view, key.foreign, key.user))
            .or_insert_with(|| {
                let context = (key.view, key.foreign);
                let mut list = Vec::new();
                for frame in frames(&tables.user, key.user) {
                    let place = segment.user_place(tables, symbolizer, context, frame);
                    if frame.1 && symbolizer.is_unmapped(place) {
                        break;
                    }
                    list.push((frame.0, place));
                }
                let depth = frames(&tables.user, key.user).count();
                let cut = key.truncated & sample_flags::USER_TRUNCATED != 0;
                if list.len() < depth || (depth == 1 && !cut) {
                    list.push((0, STRAY));
                }
                list.into()
            });
        Rc::clone(list)
    }

    /// Kernel frames of `key`.
    pub fn kernel(&mut self, key: Key, tables: &Tables, symbolizer: &mut Symbolizer) -> Frames {
        if self.kernel.len() >= REMEMBERED {
            self.kernel.clear();
        }
        let list = self.kernel.entry(key.kernel).or_insert_with(|| {
            let list = frames(&tables.kernel, key.kernel);
            list.map(|frame| (frame.0, kernel_place(symbolizer, frame)))
                .collect()
        });
        Rc::clone(list)
    }
}
