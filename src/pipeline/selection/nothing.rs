//! Why a selection selects nothing, and what it could have asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::{Filter, Selection, filter};
use crate::capture::{Reader, Tables};
use crate::format::samples::Sample;
use crate::pipeline::grouping;
use crate::pipeline::segment::{Key, Segment};
use crate::profile::{About, Event};

/// Values that are told of each kind.
const TOLD: usize = 10;

/// Values of one kind with their samples, and whether one of them is asked for.
#[derive(Debug)]
struct Kind {
    what: &'static str,
    asked: String,
    values: BTreeMap<String, u64>,
    found: bool,
}

/// What all samples of a segment that are alike have in common: thread, view, CPU, event, cgroup, and whether the time is asked
/// for.
type Alike = (u32, u32, Option<u32>, u8, Option<u32>, bool);

/// Where nothing is selected: why, in sentences. `passed` samples were left before names were asked.
pub(in crate::pipeline) fn explain(
    reader: &Reader,
    filter: &Filter,
    about: &About,
    passed: u64,
) -> Vec<String> {
    let selected = about.selected.as_ref().and_then(|s| s.samples);
    match (selected, passed) {
        (Some(0), 0) if !filter.is_of_host() => {
            let host = (about.host.clone(), about.samples);
            vec![no_host(filter.selection(), [host])]
        }
        (Some(0), 0) if !filter.is_numbered() => {
            let capture = (grouping::capture(1, reader.header()), about.samples);
            vec![no_capture(filter.selection(), [capture])]
        }
        (Some(0), 0) => of_samples(reader, filter, about),
        (Some(0), passed) => {
            let whole = match filter.selection().modules.is_empty() {
                true => "",
                false => {
                    "; --module has to match a module's name as a whole: libc.so.6, or 'libc.*'"
                }
            };
            vec![match passed {
                1 => {
                    format!("1 sample is selected otherwise, and its stack has no such name{whole}")
                }
                _ => format!(
                    "{passed} samples are selected otherwise, and no stack of these has such a name{whole}"
                ),
            }]
        }
        _ => Vec::new(),
    }
}

/// Where none of the `hosts`, with their samples, is asked for.
pub(in crate::pipeline) fn no_host(
    asked: &Selection,
    hosts: impl IntoIterator<Item = (String, u64)>,
) -> String {
    none_of(Which::Host, asked, hosts)
}

/// Where none of the `captures`, with their samples, is asked for.
pub(in crate::pipeline) fn no_capture(
    asked: &Selection,
    captures: impl IntoIterator<Item = (String, u64)>,
) -> String {
    none_of(Which::Capture, asked, captures)
}

fn none_of(
    which: Which,
    asked: &Selection,
    there: impl IntoIterator<Item = (String, u64)>,
) -> String {
    let kind = kinds(asked).into_iter().find(|(kind, _)| *kind == which);
    let Some((_, mut kind)) = kind else {
        return "nothing of it is asked for".to_owned();
    };
    for (name, samples) in there {
        let sum = kind.values.entry(name).or_default();
        *sum = sum.saturating_add(samples);
    }
    sentence(&kind, &About::default())
}

/// The whole capture is read for it, and nothing is named.
fn of_samples(reader: &Reader, filter: &Filter, about: &About) -> Vec<String> {
    let mut kinds = kinds(filter.selection());
    for mut reader in reader.segments() {
        let mut segment = Segment::new(Arc::default());
        let mut alike: HashMap<Alike, (Sample, Key, u64)> = HashMap::new();
        while let Ok(Some(frame)) = reader.next_frame() {
            segment.frame(frame.tables, frame.samples, |segment, sample, key| {
                let at = of(filter, sample, key, segment, frame.tables);
                alike.entry(at).or_insert((*sample, key, 0)).2 += 1;
            });
        }
        for ((.., in_time), (sample, key, samples)) in &alike {
            let tables = reader.tables();
            for (which, kind) in kinds.iter_mut() {
                let asked = filter.selection();
                let (value, found) = match which {
                    Which::Time => (String::new(), *in_time),
                    which => value(*which, asked, (sample, *key), (&segment, tables), about),
                };
                kind.found |= found;
                if let Some(sum) = kind.values.get_mut(&value) {
                    *sum += samples;
                } else {
                    kind.values.insert(value, *samples);
                }
            }
        }
    }
    let missing = kinds.iter().filter(|(_, kind)| !kind.found);
    let mut sentences: Vec<String> = missing.map(|(_, kind)| sentence(kind, about)).collect();
    if sentences.is_empty() {
        let kinds = kinds.len();
        sentences.push(match kinds {
            0 | 1 => "no sample has a frame of those asked for".to_owned(),
            _ => "each of these is in the capture, but no sample is of all of them".to_owned(),
        });
    }
    sentences
}

/// What is asked about a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Time,
    Host,
    Capture,
    Event,
    Cpu,
    Cgroup,
    Exe,
    Pid,
    Tid,
    Comm,
}

fn kinds(asked: &Selection) -> Vec<(Which, Kind)> {
    let words = asked.words();
    let kinds = [
        (Which::Time, "time"),
        (Which::Host, "host"),
        (Which::Capture, "capture"),
        (Which::Event, "event"),
        (Which::Cpu, "CPU"),
        (Which::Cgroup, "cgroup"),
        (Which::Exe, "program"),
        (Which::Pid, "pid"),
        (Which::Tid, "tid"),
        (Which::Comm, "thread name"),
    ];
    let kinds = kinds.into_iter().filter_map(|(which, what)| {
        let begins = |clause: &&String| {
            clause
                .strip_prefix(what)
                .is_some_and(|rest| rest.starts_with(' '))
        };
        let kind = Kind {
            what,
            asked: words.iter().find(begins)?.clone(),
            values: BTreeMap::new(),
            found: false,
        };
        Some((which, kind))
    });
    kinds.collect()
}

fn of(filter: &Filter, sample: &Sample, key: Key, segment: &Segment, tables: &Tables) -> Alike {
    let asked = filter.selection();
    let spans = filter.times();
    (
        sample.task,
        if asked.exes.is_empty() { 0 } else { key.view },
        match asked.cpus.is_empty() {
            true => None,
            false => sample.known_cpu(),
        },
        sample.event,
        match asked.cgroups.is_empty() {
            true => None,
            false => segment.cgroup(sample, tables),
        },
        spans.is_none_or(|spans| spans.iter().any(|span| span.contains(sample.time))),
    )
}

/// What a sample is in one respect, for people, and whether that is asked for.
fn value(
    which: Which,
    asked: &Selection,
    (sample, key): (&Sample, Key),
    (segment, tables): (&Segment, &Tables),
    about: &About,
) -> (String, bool) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let task = tables.task(sample.task);
    let comm = task.map_or(&b"?"[..], |task| tables.string(task.comm));
    match which {
        Which::Time => (String::new(), true),
        Which::Host => {
            let host = &about.host;
            let found = asked.hosts.iter().any(|glob| glob.matches(host.as_bytes()));
            (host.clone(), found)
        }
        // Of one capture all samples are; that it is asked for was seen before.
        Which::Capture => (String::new(), true),
        Which::Event => {
            let event = about.events.get(usize::from(sample.event));
            // The name alone is not all where there are several rates of it, or a rate is asked for.
            let of_rate = asked.events.iter().any(|e| e.contains('@'));
            let of_name =
                |event: &Event| about.events.iter().filter(|e| e.name == event.name).count();
            let name = match event {
                Some(event) if of_rate || of_name(event) > 1 => event.with_rate(),
                Some(event) => event.name.clone(),
                None => "?".to_owned(),
            };
            let is_asked = |event: &Event| asked.events.iter().any(|e| event.is_called(e));
            (name, event.is_some_and(is_asked))
        }
        Which::Cpu => {
            let cpu = sample.known_cpu();
            let is_asked = |cpu| asked.cpus.iter().any(|cpus| cpus.contains(&cpu));
            let text = cpu.map_or("?".to_owned(), |cpu| cpu.to_string());
            (text, cpu.is_some_and(is_asked))
        }
        Which::Cgroup => {
            let path = grouping::cgroup(segment.cgroup(sample, tables), tables);
            let mut above = asked.cgroups.iter();
            (text(path), above.any(|above| filter::is_below(path, above)))
        }
        Which::Exe => {
            let path = grouping::program(key.view, segment, tables);
            let found = asked.exes.iter().any(|exe| exe.matches(path));
            (text(path), found)
        }
        Which::Pid => {
            let pid = task.and_then(|task| Some(segment.key_of(task.process)?.tgid));
            let name = segment.process_name(key.view, tables);
            let number = pid.map_or(0, |pid| pid.0);
            let found = pid.is_some_and(|pid| asked.pids.contains(&pid));
            (format!("{number} ({})", text(name)), found)
        }
        Which::Tid => {
            let tid = task.map(|task| task.tid);
            let number = tid.map_or(0, |tid| tid.0);
            let found = tid.is_some_and(|tid| asked.tids.contains(&tid));
            (format!("{number} ({})", text(comm)), found)
        }
        Which::Comm => {
            let found = asked.comms.iter().any(|glob| glob.matches(comm));
            (text(comm), found)
        }
    }
}

fn sentence(kind: &Kind, about: &About) -> String {
    let mut values: Vec<(&String, &u64)> = kind.values.iter().collect();
    if values.is_empty() {
        return "the capture has no samples at all".to_owned();
    }
    if kind.what == "time" {
        let (first, last) = about.span.unwrap_or_default();
        let seconds = last.since(first) as f64 / 1e9;
        return format!(
            "no sample is of {}; there are samples from 0s to {seconds:.3}s",
            kind.asked
        );
    }
    values.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let told = values.iter().take(TOLD);
    let told: Vec<String> = told
        .map(|(value, samples)| format!("{value}: {samples}"))
        .collect();
    let more = match values.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "no sample is of {}; there are (with their samples) {}{more}",
        kind.asked,
        told.join(", ")
    )
}
