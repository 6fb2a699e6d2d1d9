//! Captures of released versions of the format, which must open for ever, and the reports expected of them.
//!
//! `tests/golden/*/src` has the workloads and how they were recorded. The captures are never recorded again to
//! make a test pass: whoever has a capture of that version has no other one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bprof::capture::{IndexState, LossTotals, Reader};
use bprof::event::{LossClass, Pid, ProcessKey, Timestamp, UserStacks, sample_flags};
use bprof::format::descriptor::FrameKind;
use bprof::format::end::EndReason;
use bprof::format::header::{EventInfo, Sampling};
use bprof::format::packed::symbols::AtOffset;
use bprof::format::process::ProcessRecord;

use super::report::fixture::{Run, profiler};

const RULE: &str = "Golden captures are never re-recorded to make a test pass: the reader must open them for ever.\n\
    If only the wording of the report was changed on purpose, and no name or number, write the expected text anew \
    with the command above.";

/// A file of version 1.0.
pub fn golden(name: &str) -> PathBuf {
    of_version("v1", name)
}

pub fn of_version(version: &str, name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    dir.join(version).join(name)
}

/// `profiler report ARGS CAPTURE` gives the text in `expected` on standard output, and that of `messages` on
/// standard error.
#[track_caller]
pub fn check(capture: &str, symfs: &Path, view: &[&str], expected: &str, messages: Option<&str>) {
    // From anywhere: nothing depends on the directory it runs in.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = profiler(view);
    command.arg("--symfs").arg(symfs).arg(golden(capture));
    let shown = format!("{command:?}");
    let run = Run::of(command.current_dir(elsewhere.path()));
    assert_eq!(run.code, Some(0), "{shown} failed: {}\n{RULE}", run.err);
    same(&shown, expected, &run.out);
    match messages {
        Some(messages) => same(&format!("{shown} (standard error)"), messages, &run.err),
        None => assert_eq!(run.err, "", "{shown}: messages that were not expected"),
    }
}

/// Fails at the first line that is not as expected.
#[track_caller]
fn same(command: &str, expected: &str, found: &str) {
    let wanted = fs::read(golden(expected)).unwrap();
    if wanted == found.as_bytes() {
        return;
    }
    let wanted = String::from_utf8(wanted).unwrap();
    let line = |text: &str, number: usize| {
        let line = text.split_inclusive('\n').nth(number);
        line.map_or("(no more lines)".to_owned(), |line| format!("{line:?}"))
    };
    let lines = wanted.split_inclusive('\n').count();
    let at = (0..lines)
        .find(|n| line(&wanted, *n) != line(found, *n))
        .unwrap_or(lines);
    panic!(
        "{command}\ndoes not print what tests/golden/v1/{expected} has, from line {} on:\n  \
         expected {}\n  found    {}\n({lines} lines expected, {} found)\n{RULE}",
        at + 1,
        line(&wanted, at),
        line(found, at),
        found.split_inclusive('\n').count(),
    );
}

/// All views of a capture, with the files that were mapped and without them.
#[track_caller]
fn check_views(version: &str, name: &str) {
    let file = |ending: &str| format!("../{version}/{name}.{ending}");
    let capture = file("bprof");
    let files = of_version(version, "files");
    let verdict = file("verdict");
    check(
        &capture,
        &files,
        &["--folded"],
        &file("folded"),
        Some(&verdict),
    );
    check(&capture, &files, &["--top", "15"], &file("top"), None);
    if of_version(version, &format!("{name}.standard")).exists() {
        check(&capture, &files, &["--standard"], &file("standard"), None);
    }

    // A directory below which nothing recorded is.
    let nothing = of_version(version, "src");
    let verdict = file("nofiles.verdict");
    check(
        &capture,
        &nothing,
        &["--folded"],
        &file("nofiles.folded"),
        Some(&verdict),
    );
}

/// Opens a capture, and decodes all of it.
struct Opened {
    reader: Reader,
    /// Samples decoded, by process and name of the thread.
    samples: BTreeMap<(ProcessKey, Vec<u8>), usize>,
    /// Threads with samples.
    threads: BTreeSet<(ProcessKey, Pid)>,
    /// Samples whose user stack was cut.
    cut_stacks: usize,
}

impl Opened {
    fn new(name: &str) -> Opened {
        let path = golden(name);
        let reader =
            Reader::open(&path).unwrap_or_else(|err| panic!("{}: {err}\n{RULE}", path.display()));
        assert_eq!(reader.damage(), [], "{RULE}");
        let mut samples = BTreeMap::new();
        let mut threads = BTreeSet::new();
        let mut cut_stacks = 0;
        for mut segment in reader.segments() {
            while let Some(frame) = segment
                .next_frame()
                .unwrap_or_else(|damage| panic!("{name}: {damage}\n{RULE}"))
            {
                let records = frame.tables.process_records.iter();
                let keys: Vec<ProcessKey> = records
                    .filter_map(|record| match record {
                        ProcessRecord::Process { key, .. } => Some(*key),
                        _ => None,
                    })
                    .collect();
                for sample in frame.samples {
                    let task = frame.tables.task(sample.task).unwrap();
                    let key = keys[task.process as usize];
                    let comm = frame.tables.string(task.comm).to_vec();
                    *samples.entry((key, comm)).or_insert(0) += 1;
                    threads.insert((key, task.tid));
                    cut_stacks += usize::from(sample.flags & sample_flags::USER_TRUNCATED != 0);
                }
            }
            assert_eq!(segment.tables().losses, LossTotals::default());
        }
        Opened {
            reader,
            samples,
            threads,
            cut_stacks,
        }
    }

    fn frames(&self, kind: FrameKind) -> usize {
        let frames = self.reader.frames().iter();
        frames.filter(|f| f.descriptor.kind == kind).count()
    }

    #[track_caller]
    fn check_header(&self, target: &str, hz: u64) {
        let header = self.reader.header();
        assert_eq!(header.host, "vm");
        assert_eq!(header.kernel_release, "6.18.44-fc-v657");
        assert_eq!(header.arch, "x86_64");
        assert_eq!(
            (header.page_size, header.clock_ticks, header.cpus_online),
            (4096, 100, 2)
        );
        assert_eq!(
            header.events,
            [EventInfo {
                name: "cpu-clock".to_owned(),
                sampling: Sampling::Frequency(hz)
            }]
        );
        assert_eq!(header.target, target);
        assert_eq!(
            (header.user_stack_limit, header.kernel_stack_limit),
            (127, 127)
        );
        assert_eq!(header.tool, "profiler 0.1.0");
        assert_eq!(header.degraded, [""; 0]);
    }
}

/// Samples of a folded report whose stack has `frames` one right below the other.
fn count(folded: &str, frames: &str) -> u64 {
    let frames: Vec<&str> = frames.split(';').collect();
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines
        .filter(|(stack, _)| {
            let stack: Vec<&str> = stack.split(';').collect();
            stack.windows(frames.len()).any(|part| part == frames)
        })
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn calls_is_read_as_it_was_written() {
    let opened = Opened::new("calls.bprof");
    opened.check_header("command calls", 99);
    let reader = &opened.reader;
    assert_eq!((reader.samples(), reader.lost_samples()), (151, 0));
    assert_eq!((reader.index(), reader.cut_bytes()), (IndexState::Used, 0));
    let end = reader.end().unwrap();
    assert_eq!(
        (&end.reason, end.samples, end.lost, end.processes),
        (&EndReason::CommandExit(0), 151, 0, 1)
    );

    let samples: Vec<_> = opened.samples.iter().collect();
    let [((process, comm), 151)] = samples[..] else {
        panic!("one thread was expected: {samples:?}")
    };
    assert_eq!((process.tgid, &**comm), (Pid(13517), &b"calls"[..]));
    assert_eq!(opened.cut_stacks, 8);
    assert_eq!(
        (
            opened.frames(FrameKind::Segment),
            opened.frames(FrameKind::KernelSymbols),
            opened.frames(FrameKind::End)
        ),
        (3, 1, 1)
    );
}

#[test]
fn calls_is_reported_as_ever() {
    check_views("v1", "calls");
}

/// What the workload knows of itself, in the report that is expected: 1.5 s of CPU time at 99 Hz.
#[test]
fn shares_of_calls_are_those_the_workload_made() {
    let folded = fs::read_to_string(golden("calls.folded")).unwrap();
    let total = count(&folded, "calls-13517") as f64;
    assert_eq!(total, 151.0);
    for (frames, expected) in [
        ("main;alpha", 0.40),
        ("main;drive;mid;leaf", 0.20),
        ("main;copy", 0.30),
        ("[truncated];deep;deep", 0.05),
        ("main;first_caller;beta", 0.03),
        ("main;second_caller;beta", 0.02),
    ] {
        let found = count(&folded, frames) as f64 / total;
        assert!(
            (found - expected).abs() < 0.03,
            "{frames}: {found}, not {expected}"
        );
    }
}

/// Version 1.1: what was packed names everything as the files themselves did, where none of them is. These captures are those of
/// version 1 after `profiler pack --symfs tests/golden/v1/files` (calls), and with `--symbols full` (family).
#[test]
fn packed_captures_are_reported_as_ever_without_any_file() {
    for name in ["calls", "family"] {
        let capture = format!("../v1.1/{name}.bprof");
        let nothing = golden("src");
        let file = |ending: &str| format!("{name}.{ending}");
        let verdict = file("verdict");
        check(
            &capture,
            &nothing,
            &["--folded"],
            &file("folded"),
            Some(&verdict),
        );
        check(&capture, &nothing, &["--top", "15"], &file("top"), None);
        check(&capture, &nothing, &["--standard"], &file("standard"), None);
    }
}

/// Version 1.1 as it was recorded: runs of calls that repeat, written as matches; the lines of a perf map; an ELF layout.
#[test]
fn paths_is_read_as_it_was_written() {
    let opened = Opened::new("../v1.1/paths.bprof");
    let reader = &opened.reader;
    assert_eq!((reader.samples(), reader.lost_samples()), (245, 0));
    assert_eq!((reader.index(), reader.cut_bytes()), (IndexState::Used, 0));
    let kinds = [FrameKind::PerfMaps, FrameKind::ElfLayouts, FrameKind::End];
    assert_eq!(kinds.map(|kind| opened.frames(kind) > 0), [true; 3]);
    let aids = reader.aids();
    assert_eq!(aids.layouts.len(), 1);
    assert_eq!(aids.layouts[0].path, b"/opt/bprof-golden/paths");
}

#[test]
fn paths_is_reported_as_ever() {
    check_views("v1.1", "paths");
}

/// What the workload knows of itself: 40 % below each caller, 20 % in generated code of two names.
#[test]
fn shares_of_paths_are_those_the_workload_made() {
    let folded = fs::read_to_string(of_version("v1.1", "paths.folded")).unwrap();
    for (frames, expected) in [
        ("main;first_caller;ant", 0.40),
        ("main;second_caller;ant", 0.40),
        ("main;generated;made up", 0.10),
        ("main;generated;another thing", 0.10),
    ] {
        let found = count(&folded, frames) as f64 / 245.0;
        assert!(
            (found - expected).abs() < 0.03,
            "{frames}: {found}, not {expected}"
        );
    }
}

#[test]
fn family_is_read_as_it_was_written() {
    let opened = Opened::new("family.bprof");
    opened.check_header("command family", 49);
    let reader = &opened.reader;
    assert_eq!((reader.samples(), reader.lost_samples()), (200, 0));
    assert_eq!(
        (reader.index(), reader.cut_bytes(), reader.end()),
        (IndexState::Missing, 0, None)
    );
    assert_eq!(
        (
            opened.frames(FrameKind::Segment),
            opened.frames(FrameKind::KernelSymbols),
            opened.frames(FrameKind::End)
        ),
        (4, 1, 0)
    );

    let process = |tgid, start_time| ProcessKey {
        tgid: Pid(tgid),
        start_time: Timestamp(start_time),
    };
    let parent = process(13574, 5_474_027_132_287);
    // A child that became `one`, and after its end a process of the same number that became `two`.
    let first = process(13674, 5_474_627_469_005);
    let second = process(13674, 5_475_506_179_699);
    let odd = "a;b\x1b[7m é".as_bytes().to_vec();
    assert_eq!(
        opened.samples,
        BTreeMap::from([
            ((parent, odd.clone()), 94),
            ((parent, b"b".to_vec()), 20),
            ((parent, b"\xff\xfea\n1".to_vec()), 20),
            ((first, odd), 17),
            ((first, b"one".to_vec()), 24),
            ((second, b"two".to_vec()), 25),
        ])
    );
    assert_eq!(
        opened.threads,
        BTreeSet::from([
            (parent, Pid(13574)),
            (parent, Pid(13702)),
            (parent, Pid(13703)),
            (first, Pid(13674)),
            (second, Pid(13674)),
        ])
    );
}

#[test]
fn family_is_reported_as_ever() {
    check_views("v1", "family");
}

/// Two programs are built alike, so that one address is a function in each of them, and ran under one number.
#[test]
fn no_stack_of_family_has_names_of_two_programs() {
    let folded = fs::read_to_string(golden("family.folded")).unwrap();
    for (frames, expected) in [
        (
            "a:b\u{fffd}[7m é-13674;_start;begin;main;children;child_spin",
            17,
        ),
        ("one-13674;_start;begin;main;one_spin", 24),
        ("two-13674;_start;begin;main;two_spin", 25),
        ("one_spin", 24),
        ("two_spin", 25),
        ("child_spin", 17),
    ] {
        assert_eq!(count(&folded, frames), expected, "{frames}");
    }
}

/// Version 1.2: times of samples in units of 256 ns, and a vdso image would be without its code. The workloads are those of version 1.
#[test]
fn version_1_2_is_read_as_it_was_written() {
    for (name, samples, complete) in [("calls", 158, true), ("family", 195, false)] {
        let reader = Reader::open(&of_version("v1.2", &format!("{name}.bprof"))).unwrap();
        assert_eq!(reader.damage(), [], "{RULE}");
        assert_eq!(reader.version(), (1, 2));
        assert_eq!(reader.end().is_some(), complete);
        assert_eq!((reader.samples(), reader.lost_samples()), (samples, 0));
        let mut fine = 0;
        for mut segment in reader.segments() {
            while let Some(frame) = segment.next_frame().unwrap() {
                let times = frame.samples.iter().map(|s| s.time.0);
                fine += times.filter(|time| time % 256 != 0).count();
            }
        }
        assert_eq!(fine, 0, "{name}");
    }
}

#[test]
fn version_1_2_is_reported_as_ever() {
    check_views("v1.2", "calls");
    check_views("v1.2", "family");
}

/// Version 1.3: the recorder lowered its rate to a part of what was asked for, and samples from then on count for more.
#[test]
fn version_1_3_is_read_as_it_was_written() {
    for (name, weights, complete) in [
        ("calls", [(1, 23), (16, 7)], true),
        ("family", [(1, 11), (8, 17)], false),
    ] {
        let reader = Reader::open(&of_version("v1.3", &format!("{name}.bprof"))).unwrap();
        assert_eq!(reader.damage(), [], "{RULE}");
        assert_eq!(reader.version(), (1, 3));
        assert_eq!(reader.end().is_some(), complete);
        let mut counts = BTreeMap::new();
        let mut losses = LossTotals::default();
        for mut segment in reader.segments() {
            while let Some(frame) = segment.next_frame().unwrap() {
                for sample in frame.samples {
                    *counts.entry(sample.weight).or_insert(0) += 1;
                }
            }
            losses.merge(&segment.tables().losses);
        }
        assert_eq!(counts, BTreeMap::from(weights), "{name}");
        assert_eq!(losses.of_class(LossClass::RateChanged), 1, "{name}");
    }
}

#[test]
fn version_1_3_is_reported_as_ever() {
    check_views("v1.3", "calls");
    check_views("v1.3", "family");
}

/// Losses of the file itself: `full` was recorded below a limit of file sizes, `repaired` is what could be saved of `calls` with a
/// flipped bit in the middle.
#[test]
fn captures_that_lost_samples_to_their_file_say_so_as_ever() {
    for (name, samples, expected) in [
        ("full", 2695, [(LossClass::NoRoom, 18)].as_slice()),
        (
            "repaired",
            23,
            &[(LossClass::Damaged, 7), (LossClass::DamagedFrames, 5)],
        ),
    ] {
        let reader = Reader::open(&of_version("v1.3", &format!("{name}.bprof"))).unwrap();
        assert_eq!(reader.damage(), [], "{RULE}");
        assert_eq!(reader.version(), (1, 3));
        assert_eq!(reader.samples(), samples, "{name}");
        let mut losses = LossTotals::default();
        for mut segment in reader.segments() {
            while segment.next_frame().unwrap().is_some() {}
            losses.merge(&segment.tables().losses);
        }
        for (class, count) in expected {
            assert_eq!(losses.of_class(*class), *count, "{name}, {class:?}");
        }
    }
    check_views("v1.3", "full");
    check_views("v1.3", "repaired");
}

/// Version 1.5: the header tells how user stacks were walked. The workloads are those of version 1.
#[test]
fn version_1_5_is_read_as_it_was_written() {
    for (name, samples, stacks) in [
        ("calls", 153, UserStacks::Both),
        ("family", 142, UserStacks::FramePointers),
    ] {
        let reader = Reader::open(&of_version("v1.5", &format!("{name}.bprof"))).unwrap();
        assert_eq!(reader.damage(), [], "{RULE}");
        assert_eq!(reader.version(), (1, 5));
        assert_eq!((reader.samples(), reader.lost_samples()), (samples, 0));
        assert_eq!(reader.header().user_stacks, stacks, "{name}");
    }
    let before = Reader::open(&of_version("v1.3", "calls.bprof")).unwrap();
    assert_eq!(before.header().user_stacks, UserStacks::Untold);
}

#[test]
fn version_1_5_is_reported_as_ever() {
    check_views("v1.5", "calls");
    check_views("v1.5", "family");
}

/// Version 1.6: packs tell where functions without a symbol begin. The workload is `calls` of version 1, stripped.
#[test]
fn version_1_6_is_read_as_it_was_written() {
    let reader = Reader::open(&of_version("v1.6", "nameless.bprof")).unwrap();
    assert_eq!(reader.damage(), [], "{RULE}");
    assert_eq!(reader.version(), (1, 6));
    assert_eq!((reader.samples(), reader.lost_samples()), (145, 0));
    let (pack, damage) = reader.pack();
    assert_eq!(damage, [], "{RULE}");
    let [(key, symbols, false, files)] = &pack.listing()[..] else {
        panic!("{:?}", pack.listing());
    };
    assert_eq!((*symbols, files.len()), (17, 0));
    // The hottest address is in `alpha`, which begins at 0x1fd; another one was not hit.
    let alpha = AtOffset::Nameless { inside: Some(0x4f) };
    assert_eq!(pack.symbols_of(key, &[0x24c, 1]), [Some(alpha), None]);
}

#[test]
fn version_1_6_is_reported_as_ever() {
    let file = |ending: &str| format!("../v1.6/nameless.{ending}");
    // Out of the pack it is the same as of the file.
    for (dir, part) in [("files", ""), ("src", "nofiles.")] {
        let symfs = of_version("v1.6", dir);
        let report = |view: &[&str], expected: &str, messages: &str| {
            let (expected, messages) = (file(expected), file(messages));
            check(&file("bprof"), &symfs, view, &expected, Some(&messages));
        };
        let (folded, verdict) = (format!("{part}folded"), format!("{part}verdict"));
        report(&["--folded"], &folded, &verdict);
        report(&["--top", "15"], "top", "warning");
        report(&["--standard"], "standard", "warning");
    }
}
