//! Selections of random captures: both ways through a capture agree, parts add up to the whole, and each question selects what it
//! says.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use bprof::event::{Pid, Timestamp};
use bprof::pipeline::Selection;
use bprof::pipeline::selection::{CodeKind, TimePoint, TimeRange};
use bprof::profile::{By, SampleView};

use super::lines::{Lines, add, assert_same, of_profile, of_stream, profile, request};
use super::scene::{self, CGROUPS, COMMS, CPUS, FIRST, LASTS, PIDS, Random};

const BYS: [By; 9] = [
    By::Process,
    By::Thread,
    By::Comm,
    By::Exe,
    By::Cgroup,
    By::Cpu,
    By::Host,
    By::Capture,
    By::None,
];

fn range(from: u64, until: u64) -> TimeRange {
    TimeRange {
        from: Some(TimePoint::AfterFirst(from)),
        until: Some(TimePoint::AfterFirst(until)),
    }
}

/// Some questions, each asked now and then.
fn any(random: &mut Random) -> Selection {
    let mut asked = Selection::default();
    if random.chance(25) {
        asked.pids = vec![Pid(random.pick(&PIDS)), Pid(random.pick(&PIDS))];
    }
    if random.chance(15) {
        asked.tids = vec![Pid(random.pick(&PIDS) + random.below(3) as u32)];
    }
    if random.chance(20) {
        let name = random.pick(&["worker", "io*", "[mw]*", "none"]);
        asked.comms = vec![name.parse().unwrap()];
    }
    if random.chance(20) {
        let name = random.pick(&["app", "/opt/*", "db", "ld-linux*"]);
        asked.exes = vec![name.parse().unwrap()];
    }
    if random.chance(20) {
        asked.cgroups = vec![random.pick(&CGROUPS).to_owned()];
    }
    if random.chance(20) {
        let first = random.below(CPUS) as u32;
        asked.cpus = vec![first..=first + random.below(2) as u32];
    }
    if random.chance(15) {
        asked.events = vec![
            random
                .pick(&["cpu-clock", "page-faults", "cycles"])
                .to_owned(),
        ];
    }
    if random.chance(20) {
        asked.code = Some(random.pick(&[CodeKind::User, CodeKind::Kernel]));
    }
    if random.chance(20) {
        let name = random.pick(&["kernel_[1-3]$", "shared", "0x[0-9]00"]);
        asked.symbols = vec![regex::Regex::new(name).unwrap()];
    }
    if random.chance(20) {
        let name = random.pick(&["app", "[kernel]", "lib.*", "\\[nf_.*"]);
        asked.modules = vec![name.parse().unwrap()];
    }
    if random.chance(30) {
        let from = random.below(LASTS);
        asked
            .times
            .push(range(from, from + 1 + random.below(LASTS / 4)));
    }
    if random.chance(10) {
        asked.times.push("30%..60%".parse().unwrap());
    }
    asked
}

#[test]
fn both_ways_through_a_capture_select_the_same() {
    let mut selected = 0;
    for seed in 0..400 {
        let reader = scene::reader(seed / 20);
        let mut random = Random(seed * 77 + 1);
        let selection = any(&mut random);
        let by = random.pick(&BYS);
        let asked = || request(selection.clone(), by);
        let counted = profile(&reader, asked());
        let (streamed, summary) = of_stream(&reader, asked(), |_| true);
        let what = format!("seed {seed}: {:?} {by:?}", selection.words());
        assert_same(&of_profile(&counted), &streamed, &what);
        assert_eq!(counted.about.selected, summary.about.selected, "{what}");
        assert_eq!(counted.about.losses, summary.about.losses, "{what}");
        assert_eq!(counted.about.weight, summary.about.weight, "{what}");
        assert_eq!(counted.about.truncated, summary.about.truncated, "{what}");
        assert!(counted.about.truncated.is_some(), "{what}");
        assert_eq!(counted.about.lost, summary.about.lost, "{what}");
        let naming = |n: &bprof::profile::Naming| {
            let all = (n.user_named, n.user_total, n.kernel_named, n.kernel_total);
            (all, n.unnamed.clone(), n.ended_early, n.before_exec)
        };
        assert_eq!(naming(&counted.naming), naming(&summary.naming), "{what}");
        match &counted.about.selected {
            None => assert_eq!(selection.words(), [""; 0]),
            Some(part) => {
                assert_eq!(counted.total_weight(), part.weight, "{what}");
                assert_eq!(part.nothing.is_empty(), part.samples != Some(0), "{what}");
                selected += part.samples.unwrap();
            }
        }
    }
    // So that it is not all about nothing.
    assert!(selected > 10_000, "{selected}");
}

/// All parts of one question, that is, with every answer it can have.
fn parts(which: u64, random: &mut Random) -> Vec<Selection> {
    let none = Selection::default;
    match which {
        0 => PIDS
            .map(|pid| Selection {
                pids: vec![Pid(pid)],
                ..none()
            })
            .into(),
        1 => COMMS
            .map(|comm| Selection {
                comms: vec![comm.parse().unwrap()],
                ..none()
            })
            .into(),
        2 => {
            let cut = random.below(CPUS - 1) as u32;
            let cpus: [RangeInclusive<u32>; 2] = [0..=cut, cut + 1..=u32::MAX];
            cpus.map(|cpus| Selection {
                cpus: vec![cpus],
                ..none()
            })
            .into()
        }
        3 => ["cpu-clock", "page-faults"]
            .map(|event| Selection {
                events: vec![event.to_owned()],
                ..none()
            })
            .into(),
        4 => [
            "..3.2s",
            "3.2s..45%",
            "45%..2023-11-14T22:13:31",
            "2023-11-14T22:13:31..",
        ]
        .map(|time| Selection {
            times: vec![time.parse().unwrap()],
            ..none()
        })
        .into(),
        _ => ["..10%", "10%..50%", "50%..100%"]
            .map(|time| Selection {
                times: vec![time.parse().unwrap()],
                ..none()
            })
            .into(),
    }
}

#[test]
fn parts_add_up_to_the_whole() {
    for seed in 0..120 {
        let reader = scene::reader(seed / 12);
        let mut random = Random(seed * 31 + 5);
        let which = random.below(6);
        let parts = parts(which, &mut random);
        let by = random.pick(&BYS);
        // Something else is asked beside it.
        let mut other = any(&mut random);
        match which {
            0 => other.pids.clear(),
            1 => other.comms.clear(),
            2 => other.cpus.clear(),
            3 => other.events.clear(),
            _ => other.times.clear(),
        }
        let whole = of_profile(&profile(&reader, request(other.clone(), by)));
        let mut sum = Lines::new();
        for part in parts {
            let mut asked = other.clone();
            match which {
                0 => asked.pids = part.pids,
                1 => asked.comms = part.comms,
                2 => asked.cpus = part.cpus,
                3 => asked.events = part.events,
                _ => asked.times = part.times,
            }
            add(&mut sum, &of_profile(&profile(&reader, request(asked, by))));
        }
        let what = format!("seed {seed}: part {which} of {:?}", other.words());
        assert_same(&sum, &whole, &what);
    }
}

type Keep = Box<dyn Fn(&SampleView<'_>) -> bool>;

#[test]
fn each_question_selects_what_it_says() {
    for seed in 0..10 {
        let reader = scene::reader(seed);
        let span = (FIRST + 2_500_000_000, FIRST + 4_000_000_000);
        let first = {
            let about = profile(&reader, request(Selection::default(), By::None)).about;
            about.span.unwrap().0.0
        };
        let cases: [(Selection, Keep); 6] = [
            (
                Selection {
                    times: vec![range(span.0 - first, span.1 - first)],
                    ..Selection::default()
                },
                Box::new(move |s| Timestamp(span.0) <= s.time && s.time < Timestamp(span.1)),
            ),
            (
                Selection {
                    pids: vec![Pid(100), Pid(400)],
                    ..Selection::default()
                },
                Box::new(|s| [100, 400].contains(&s.pid.0)),
            ),
            (
                Selection {
                    tids: vec![Pid(101)],
                    ..Selection::default()
                },
                Box::new(|s| s.tid == Pid(101)),
            ),
            (
                Selection {
                    comms: vec!["[iw]*".parse().unwrap()],
                    ..Selection::default()
                },
                Box::new(|s| s.comm != "main"),
            ),
            (
                Selection {
                    cpus: vec![1..=1, 3..=9],
                    ..Selection::default()
                },
                Box::new(|s| matches!(s.cpu, Some(1 | 3))),
            ),
            (
                Selection {
                    events: vec!["page-faults".to_owned()],
                    ..Selection::default()
                },
                Box::new(|s| s.event == 1),
            ),
        ];
        for (selection, keep) in cases {
            for by in BYS {
                let (kept, _) = of_stream(&reader, request(Selection::default(), by), &keep);
                let selected = of_profile(&profile(&reader, request(selection.clone(), by)));
                assert!(!kept.is_empty());
                let what = format!("seed {seed} {:?} {by:?}", selection.words());
                assert_same(&selected, &kept, &what);
            }
        }
    }
}

/// What a group is called tells of its samples; with every grouping the sum is the same.
#[test]
fn groups_part_the_samples_and_nothing_else() {
    for seed in 0..6 {
        let reader = scene::reader(seed);
        let rootless = of_profile(&profile(&reader, request(Selection::default(), By::None)));
        for by in BYS.into_iter().filter(|by| *by != By::None) {
            let lines = of_profile(&profile(&reader, request(Selection::default(), by)));
            let mut sum = Lines::new();
            for (stack, count) in &lines {
                let (root, rest) = stack.split_once(';').unwrap_or((stack, "[no frames]"));
                let is_known = match by {
                    By::Process | By::Thread => {
                        let (name, number) = root.rsplit_once('-').unwrap();
                        let number: u32 = number.parse().unwrap();
                        !name.is_empty() && (100..=402).contains(&number)
                    }
                    By::Comm => ["worker", "io: loop", "main"].contains(&root),
                    By::Exe => {
                        ["app", "db", "ld-linux-x86-64.so.2", "[kernel thread]"].contains(&root)
                    }
                    By::Cgroup => root == "?" || CGROUPS.contains(&root),
                    By::Cpu => ["cpu 0", "cpu 1", "cpu 2", "cpu 3"].contains(&root),
                    By::Host => root == "web1",
                    By::Capture => root.starts_with("capture 1 "),
                    By::None => false,
                };
                assert!(is_known, "{by:?}: {root}");
                *sum.entry(rest.to_owned()).or_default() += count;
            }
            assert_same(&sum, &rootless, &format!("seed {seed} {by:?}"));
        }
    }
}

/// Frames outside of the time asked for are not read: what is damaged there does no harm.
#[test]
fn damage_elsewhere_does_no_harm_to_a_time() {
    let mut bytes = scene::bytes(3);
    let reader = scene::reader(3);
    let frames = reader.frames();
    let last = frames.iter().filter(|e| e.descriptor.segment == 3);
    let first = last.min_by_key(|e| e.offset).unwrap();
    // A byte of the compressed content of the first frame of the last segment.
    let at = first.offset as usize + 96 + first.descriptor.compressed as usize / 2;
    bytes[at] ^= 0xff;
    let damaged = bprof::capture::Reader::from_bytes(bytes).unwrap();
    let early = Selection {
        times: vec!["..50%".parse().unwrap()],
        ..Selection::default()
    };
    let asked = || request(early.clone(), By::Process);
    let part = profile(&damaged, asked());
    assert_eq!(part.about.damage, [""; 0]);
    assert_same(
        &of_profile(&part),
        &of_profile(&profile(&reader, asked())),
        "damaged",
    );
    let whole = profile(&damaged, request(Selection::default(), By::Process));
    assert_eq!(whole.about.damage.len(), 1);
}

/// Each group can be asked for by what it is called, also where that stands for what is not known.
#[test]
fn every_group_is_selected_as_it_is_shown() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let reader = scene::reader(seed);
        for by in [By::Exe, By::Cgroup] {
            let all = of_profile(&profile(&reader, request(Selection::default(), by)));
            let root = |line: &str| line.split(';').next().unwrap().to_owned();
            let groups: BTreeSet<String> = all.keys().map(|line| root(line)).collect();
            for group in groups {
                let mut asked = Selection::default();
                match by {
                    By::Exe => asked.exes = vec![group.parse().unwrap()],
                    _ => asked.cgroups = vec![group.clone()],
                }
                let selected = of_profile(&profile(&reader, request(asked, by)));
                let below = format!("{group}/");
                let is_in =
                    |root: &str| root == group || by == By::Cgroup && root.starts_with(&below);
                let expected = all.iter().filter(|(line, _)| is_in(&root(line)));
                let expected: Lines = expected.map(|(line, n)| (line.clone(), *n)).collect();
                assert_same(
                    &selected,
                    &expected,
                    &format!("seed {seed}: {by:?} {group}"),
                );
                seen.insert(group);
            }
        }
    }
    for group in ["?", "[kernel thread]", "app", "/user"] {
        assert!(seen.contains(group), "{group} in {seen:?}");
    }
}
