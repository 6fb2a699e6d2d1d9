//! A selection as it applies to one capture: sample by sample, each question asked once of what has one answer.

use hashbrown::HashMap;

use super::{CodeKind, Selection, TimeSpan, time};
use crate::capture::Tables;
use crate::event::sample_flags;
use crate::format::samples::Sample;
use crate::pipeline::grouping::{self, Memo};
use crate::pipeline::segment::{Key, Segment};
use crate::profile::shown::is_shown;
use crate::profile::{About, Selected};

/// A selection with what a capture says to it before any sample is read.
#[derive(Debug)]
pub(in crate::pipeline) struct Filter {
    selection: Selection,
    /// Spans of which a sample has to be in one; `None`: it is not asked when.
    times: Option<Vec<TimeSpan>>,
    /// By event, whether it is asked for.
    events: Vec<bool>,
    /// The capture's host is asked for.
    host: bool,
    /// The capture is asked for by its number.
    numbered: bool,
}

impl Filter {
    /// The filter for the capture that `about` is of.
    pub fn new(selection: Selection, about: &About) -> Filter {
        let scale = time::Scale {
            span: about.span.unwrap_or_default(),
            wall_offset_ns: about.wall_offset_ns,
        };
        let times = selection.times.iter();
        let times: Vec<TimeSpan> = times.map(|range| range.on(scale)).collect();
        let wanted = &selection.events;
        let events = about.events.iter();
        let events = events
            .map(|event| wanted.is_empty() || wanted.iter().any(|asked| event.is_called(asked)));
        let hosts = &selection.hosts;
        let captures = &selection.captures;
        Filter {
            numbered: captures.is_empty() || captures.iter().any(|c| c.contains(&1)),
            times: (!times.is_empty()).then_some(times),
            events: events.collect(),
            host: hosts.is_empty() || hosts.iter().any(|h| h.matches(about.host.as_bytes())),
            selection,
        }
    }

    /// What is asked for.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// What is selected, before any of it is counted; `None` when all is asked for. `lost` is what was lost in the frames of the
    /// time asked for.
    pub fn selected(&self, lost: Option<u64>) -> Option<Selected> {
        let asked = self.is_of_samples() || self.is_of_names();
        asked.then(|| Selected {
            what: self.selection.words(),
            lost,
            ..Selected::default()
        })
    }

    /// Whether the capture's host is asked for.
    pub fn is_of_host(&self) -> bool {
        self.host
    }

    /// Whether the capture, which is the first of its file, is asked for by its number.
    pub fn is_numbered(&self) -> bool {
        self.numbered
    }

    /// Spans of time of which a sample has to be in one; `None`: it is not asked when.
    pub fn times(&self) -> Option<&[TimeSpan]> {
        self.times.as_deref()
    }

    /// Whether anything is asked for that a single sample decides, before names are known.
    pub fn is_of_samples(&self) -> bool {
        let Selection {
            pids,
            tids,
            comms,
            exes,
            cgroups,
            cpus,
            events,
            hosts,
            captures,
            code,
            symbols: _,
            modules: _,
            times,
        } = &self.selection;
        !(pids.is_empty()
            && tids.is_empty()
            && comms.is_empty()
            && exes.is_empty()
            && cgroups.is_empty()
            && cpus.is_empty()
            && events.is_empty()
            && hosts.is_empty()
            && captures.is_empty()
            && code.is_none()
            && times.is_empty())
    }

    /// Whether names decide about samples.
    pub fn is_of_names(&self) -> bool {
        !(self.selection.symbols.is_empty() && self.selection.modules.is_empty())
    }

    /// What is left of a sample where only code of one kind is asked for; `None` where nothing is.
    fn cut(&self, key: Key) -> Option<Key> {
        match self.selection.code {
            None => Some(key),
            Some(CodeKind::User) => (key.user != 0 && !key.before_exec).then_some(Key {
                kernel: 0,
                kernel_cut: false,
                ..key
            }),
            Some(CodeKind::Kernel) => (key.kernel != 0).then_some(Key {
                user: 0,
                user_cut: false,
                before_exec: false,
                foreign: false,
                ..key
            }),
        }
    }

    /// Those of `flags` that are about what is left of a sample.
    pub fn flags(&self, flags: u8) -> u8 {
        flags
            & match self.selection.code {
                None => u8::MAX,
                Some(CodeKind::User) => !(sample_flags::KERNEL_TRUNCATED | sample_flags::IN_KERNEL),
                Some(CodeKind::Kernel) => {
                    !(sample_flags::USER_TRUNCATED | sample_flags::USER_UNREADABLE)
                }
            }
    }
}

/// A filter at work on one segment: what it has found out about the segment's threads, programs and cgroups.
#[derive(Debug)]
pub(in crate::pipeline) struct Sieve<'a> {
    filter: &'a Filter,
    active: bool,
    tasks: Memo<bool>,
    views: Memo<bool>,
    cgroups: HashMap<Option<u32>, bool>,
}

impl<'a> Sieve<'a> {
    /// For a segment of which nothing is known yet.
    pub fn new(filter: &'a Filter) -> Sieve<'a> {
        Sieve {
            active: filter.is_of_samples(),
            filter,
            tasks: Memo::default(),
            views: Memo::default(),
            cgroups: HashMap::new(),
        }
    }

    /// What of a sample is asked for: its key, or as much as is left of it; `None` where it is not.
    #[inline]
    pub fn pass(
        &mut self,
        sample: &Sample,
        key: Key,
        segment: &Segment,
        tables: &Tables,
    ) -> Option<Key> {
        if !self.active {
            return Some(key);
        }
        self.admits(sample, key, segment, tables)
            .then(|| self.filter.cut(key))?
    }

    fn admits(&mut self, sample: &Sample, key: Key, segment: &Segment, tables: &Tables) -> bool {
        let filter = self.filter;
        let asked = &filter.selection;
        let any = filter.times.as_ref();
        let in_time = any.is_none_or(|spans| spans.iter().any(|s| s.contains(sample.time)));
        let event = filter.events.get(usize::from(sample.event));
        let cpus = &asked.cpus;
        let is_asked = |cpu| cpus.iter().any(|cpus| cpus.contains(&cpu));
        let on_cpu = cpus.is_empty() || sample.known_cpu().is_some_and(is_asked);
        if !(filter.host
            && filter.numbered
            && in_time
            && on_cpu
            && event.is_none_or(|event| *event))
        {
            return false;
        }
        let any_task = asked.pids.is_empty() && asked.tids.is_empty() && asked.comms.is_empty();
        let of_task = || task(asked, sample, segment, tables);
        if !any_task && !self.tasks.get(sample.task, of_task) {
            return false;
        }
        let program = || {
            let path = grouping::program(key.view, segment, tables);
            asked.exes.iter().any(|exe| exe.matches(path))
        };
        if !asked.exes.is_empty() && !self.views.get(key.view, program) {
            return false;
        }
        asked.cgroups.is_empty() || {
            let cgroup = segment.cgroup(sample, tables);
            *self.cgroups.entry(cgroup).or_insert_with(|| {
                let path = grouping::cgroup(cgroup, tables);
                asked.cgroups.iter().any(|above| is_below(path, above))
            })
        }
    }
}

fn task(asked: &Selection, sample: &Sample, segment: &Segment, tables: &Tables) -> bool {
    let Some(task) = tables.task(sample.task) else {
        return false;
    };
    let pid = segment.key_of(task.process).map(|key| key.tgid);
    let comm = tables.string(task.comm);
    (asked.pids.is_empty() || pid.is_some_and(|pid| asked.pids.contains(&pid)))
        && (asked.tids.is_empty() || asked.tids.contains(&task.tid))
        && (asked.comms.is_empty() || asked.comms.iter().any(|glob| glob.matches(comm)))
}

/// Whether the cgroup `path` is `above` or below it. One that is not known is below none.
pub(super) fn is_below(path: &[u8], above: &str) -> bool {
    let is = |path: &[u8]| match path.strip_prefix(above.as_bytes()) {
        Some(rest) => {
            rest.is_empty() || rest.starts_with(b"/") || (above == "/" && !path.is_empty())
        }
        None => false,
    };
    is(path) || is_shown(path, |shown| is(shown.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_those_below_it() {
        for (path, above, expected) in [
            ("/a", "/a", true),
            ("/a/b", "/a", true),
            ("/ab", "/a", false),
            ("/", "/a", false),
            ("/", "/", true),
            ("/a", "/", true),
            ("", "/", false),
            ("?", "?", true),
            ("?", "/", false),
        ] {
            assert_eq!(is_below(path.as_bytes(), above), expected, "{path} {above}");
        }
        assert!(is_below(b"/a\xff\n/b", "/a\u{fffd}\\n"), "as it is shown");
    }

    #[test]
    fn what_is_left_of_a_sample_is_of_the_code_asked_for() {
        let filter = |code| {
            let selection = Selection {
                code,
                ..Selection::default()
            };
            Filter::new(selection, &About::default())
        };
        let key = Key {
            view: 3,
            foreign: true,
            before_exec: false,
            user_cut: true,
            user: 5,
            kernel: 7,
            kernel_cut: true,
            event: 1,
        };
        let user = filter(Some(CodeKind::User));
        let only_user = Key {
            kernel: 0,
            kernel_cut: false,
            ..key
        };
        assert_eq!(user.cut(key), Some(only_user));
        assert_eq!(user.cut(Key { user: 0, ..key }), None);
        let exec = Key {
            before_exec: true,
            ..key
        };
        assert_eq!(user.cut(exec), None);
        let kernel = filter(Some(CodeKind::Kernel));
        let only_kernel = Key {
            user: 0,
            user_cut: false,
            foreign: false,
            ..key
        };
        assert_eq!(kernel.cut(key), Some(only_kernel));
        assert_eq!(kernel.cut(exec), Some(only_kernel));
        assert_eq!(kernel.cut(Key { kernel: 0, ..key }), None);
        assert_eq!(filter(None).cut(key), Some(key));
        assert_eq!((user.flags(0x1f), kernel.flags(0x1f)), (0x19, 0xe));
    }
}
