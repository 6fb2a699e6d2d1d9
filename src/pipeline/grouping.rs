//! Which group a sample is in.

use hashbrown::HashMap;
use jiff::Timestamp as Wall;

use super::segment::{Segment, ViewId};
use crate::capture::Tables;
use crate::format::header::Header;
use crate::format::process::StringId;
use crate::format::samples::Sample;
use crate::profile::{By, Group, Names};
use crate::timeline::file_name;

/// What stands for a name that is not known.
pub(super) const UNKNOWN: &[u8] = b"?";

/// Path of the program that ran in `view`, or what stands for it.
pub(super) fn program<'a>(view: ViewId, segment: &Segment, tables: &'a Tables) -> &'a [u8] {
    match segment.program(view, tables) {
        Some(path) => path,
        None if segment.is_kernel(view) => b"[kernel thread]",
        None => UNKNOWN,
    }
}

/// Path of the cgroup of this number, or what stands for it.
pub(super) fn cgroup(number: Option<StringId>, tables: &Tables) -> &[u8] {
    let path = number.and_then(|number| tables.strings.get(number as usize));
    path.map_or(UNKNOWN, |path| path)
}

/// What one of the captures in a file is called: by its number and when it began.
pub(super) fn capture(number: usize, header: &Header) -> String {
    let began = i128::from(header.start_time.0) + i128::from(header.wall_offset_ns);
    match Wall::from_nanosecond(began) {
        Ok(wall) => format!("capture {number} {}", wall.strftime("%Y-%m-%dT%H:%M:%SZ")),
        Err(_) => format!("capture {number}"),
    }
}

/// What samples are grouped by, and what each group is called that does not depend on the sample.
#[derive(Debug, Clone)]
pub(super) struct Grouping {
    pub by: By,
    /// Name of the host.
    pub host: String,
    /// Name of the capture, as [`capture`] has it.
    pub capture: String,
}

impl Grouping {
    /// Whether samples of one view can be in different groups.
    pub fn parts_views(&self) -> bool {
        matches!(self.by, By::Thread | By::Comm | By::Cgroup | By::Cpu)
    }

    /// What the group depends on beside the view.
    pub fn detail(&self, sample: &Sample, segment: &Segment, tables: &Tables) -> u32 {
        match self.by {
            By::Thread | By::Comm => sample.task,
            By::Cpu => sample.known_cpu().unwrap_or(NO_CPU),
            By::Cgroup => segment.cgroup(sample, tables).unwrap_or(u32::MAX),
            By::Process | By::Exe | By::Host | By::Capture | By::None => 0,
        }
    }

    /// The group of samples in `view` with this `detail`; `None` for a process that the capture does not tell of.
    pub fn group(
        &self,
        (view, detail): (ViewId, u32),
        segment: &Segment,
        tables: &Tables,
        names: &mut Names,
    ) -> Option<Group> {
        let process = segment.process(view)?;
        let task = || tables.task(detail);
        let comm = || task().map_or(UNKNOWN, |task| tables.string(task.comm));
        let of = |names: &mut Names, label: &[u8]| Group {
            label: names.intern_bytes(label),
            process: None,
            tid: None,
        };
        let numbered = |names: &mut Names, name: &[u8], number: u32| {
            let name = String::from_utf8_lossy(name);
            names.intern(&format!("{name}-{number}"))
        };
        Some(match self.by {
            By::Process => {
                let name = segment.process_name(view, tables);
                Group {
                    label: numbered(names, name, process.tgid.0),
                    process: Some(process),
                    tid: None,
                }
            }
            By::Thread => {
                let tid = task().map(|task| task.tid);
                Group {
                    label: numbered(names, comm(), tid.map_or(0, |tid| tid.0)),
                    process: Some(process),
                    tid,
                }
            }
            By::Comm => of(names, comm()),
            By::Exe => of(names, file_name(program(view, segment, tables))),
            By::Cgroup => of(names, cgroup(Some(detail), tables)),
            By::Cpu if detail == NO_CPU => of(names, b"cpu ?"),
            By::Cpu => of(names, format!("cpu {detail}").as_bytes()),
            By::Host => of(names, self.host.as_bytes()),
            By::Capture => of(names, self.capture.as_bytes()),
            By::None => of(names, b""),
        })
    }
}

/// Numbers for views with what else groups depend on. Where groups depend on nothing else, a view has its own number.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    list: Vec<(ViewId, u32)>,
    index: HashMap<(ViewId, u32), u32>,
    last: Option<((ViewId, u32), u32)>,
}

/// The detail of samples of which the CPU is not known: no CPU has such a number.
const NO_CPU: u32 = u32::MAX;

impl Contexts {
    /// The number of a view with a detail.
    pub fn number(&mut self, view: ViewId, detail: u32) -> u32 {
        let context = (view, detail);
        match self.last {
            Some((last, number)) if last == context => number,
            _ => {
                let next = self.list.len() as u32;
                let number = *self.index.entry(context).or_insert(next);
                if number == next {
                    self.list.push(context);
                }
                self.last = Some((context, number));
                number
            }
        }
    }

    /// The view and the detail of a number.
    pub fn of(&self, number: u32) -> (ViewId, u32) {
        self.list.get(number as usize).copied().unwrap_or_default()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.list.clear();
        self.index.clear();
        self.last = None;
    }
}

/// Groups of views with details, each found once.
#[derive(Debug, Default)]
pub(super) struct Memo<T> {
    found: Vec<Option<T>>,
}

impl<T: Copy> Memo<T> {
    /// What is remembered at `number`, or what `find` says.
    pub fn get(&mut self, number: u32, find: impl FnOnce() -> T) -> T {
        let at = number as usize;
        if self.found.len() <= at {
            self.found.resize(at + 1, None);
        }
        match self.found.get_mut(at) {
            Some(slot) => *slot.get_or_insert_with(find),
            None => find(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_have_one_number_each() {
        let mut contexts = Contexts::default();
        let list = [(1, 0), (1, 7), (1, 0), (2, 7), (1, 7), (1, 7)];
        let numbers = list.map(|(view, detail)| contexts.number(view, detail));
        assert_eq!(numbers, [0, 1, 0, 2, 1, 1]);
        assert_eq!((contexts.of(1), contexts.of(2)), ((1, 7), (2, 7)));
        contexts.clear();
        assert_eq!(contexts.number(2, 7), 0);
    }
}
