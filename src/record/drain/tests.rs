//! Events and samples go in as the kernel gives them, through the drain and a real writer; what a reader makes of the
//! file is compared.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::capture::reader::Reader;
use crate::capture::tables::LossTotals;
use crate::capture::writer::CaptureWriter;
use crate::event::{BuildId, prot};
use crate::format::end::{End, EndReason};
use crate::format::header::{EventInfo, Sampling};
use crate::record::bpf::types::{sample_flag, sample_head};
use crate::record::host::{self, Decided};
use crate::record::maps::{RawMapping, read_executable};
use crate::record::output::Output;
use crate::record::processes::Scope;
use crate::record::procfs;
use crate::record::unwind::{Unwinder, copies};
use crate::record::wire::tests::{bytes, record};
use crate::timeline::{self, Timeline};

const TICK: u64 = 10_000_000;
/// Above every PID there can be: nothing is in /proc about it.
const NOBODY: u32 = 50_000_000;

thread_local! {
    /// What the clock shows: a little more than the end of the batch being placed.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// A sample as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    time: u64,
    tgid: u32,
    start: u64,
    /// Of the process.
    comm: String,
    /// Of the thread.
    thread: String,
    /// What its leaf is in: `/path+0x10`, or nothing known.
    place: String,
}

fn seen(time: u64, (tgid, start): (u32, u64), comm: &str, place: &str) -> Seen {
    Seen {
        time,
        tgid,
        start,
        comm: comm.into(),
        thread: comm.into(),
        place: place.into(),
    }
}

/// A recorder without a kernel.
struct Rig {
    _dir: TempDir,
    path: PathBuf,
    drain: Drain,
    processes: Processes,
    events: VecDeque<SideEvent>,
    /// Everything up to then is placed.
    placed: u64,
}

/// Who is sampled.
#[derive(Debug, Clone, Copy)]
struct Who {
    tgid: u32,
    start: u64,
    exec: u32,
    comm: &'static str,
}

impl Rig {
    fn new(scope: Scope, command: Option<u32>) -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.bprof");
        let header = host::header(Decided {
            events: vec![EventInfo {
                name: "cpu-clock".into(),
                sampling: Sampling::Frequency(99),
            }],
            target: "test".into(),
            user_stack_limit: 127,
            kernel_stack_limit: 127,
            cpus_online: 1,
            degraded: Vec::new(),
        });
        let output = Output::create(&path, None).expect("a file");
        let writer = CaptureWriter::create(output, &header).expect("a header");
        let depths = Depths {
            user: 127,
            kernel: 127,
        };
        let mut processes = Processes::new(scope, 100);
        processes.clock = || Timestamp(CLOCK.get());
        Rig {
            _dir: dir,
            path,
            drain: Drain::new(writer, depths, command.map(Pid)),
            processes,
            events: VecDeque::new(),
            placed: 0,
        }
    }

    fn event(&mut self, time: u64, what: SideKind) {
        let time = Timestamp(time);
        self.events.push_back(SideEvent { time, what });
    }

    fn fork(&mut self, time: u64, parent: u32, process: u32) {
        let (process, parent) = (Pid(process), Pid(parent));
        self.event(time, SideKind::Fork { process, parent });
    }

    fn exec(&mut self, time: u64, process: u32, comm: &str) {
        let (process, comm) = (Pid(process), comm.into());
        self.event(time, SideKind::Exec { process, comm });
    }

    /// Maps `path` from its beginning.
    fn map(&mut self, time: u64, process: u32, start: u64, path: &str) {
        let mapping = raw(start, path);
        let process = Pid(process);
        self.event(time, SideKind::Map { process, mapping });
    }

    fn exit(&mut self, time: u64, process: u32) {
        let process = Pid(process);
        self.event(time, SideKind::Exit { process });
    }

    /// A sample with its leaf at `address`.
    fn sample(&mut self, time: u64, who: Who, address: u64) {
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(who.comm.bytes()) {
            *to = from as _;
        }
        let head = sample_head {
            time,
            start_time: who.start,
            cgroup_id: 0,
            tgid: who.tgid,
            tid: who.tgid,
            exec_id: who.exec,
            cpu: 0,
            kernel_frames: 0,
            user_frames: 1,
            flags: sample_flag(0),
            comm,
        };
        self.drain.take(&[bytes(&record(&head, &[address]))]);
    }

    /// A sample with registers and one word of stack in place of a user stack.
    fn copied_sample(&mut self, time: u64, who: Who, address: u64) {
        let head = sample_head {
            time,
            start_time: who.start,
            cgroup_id: 0,
            tgid: who.tgid,
            tid: who.tgid,
            exec_id: who.exec,
            cpu: 0,
            kernel_frames: 0,
            user_frames: 1,
            flags: sample_flag::SAMPLE_COPIED,
            comm: [0; 16],
        };
        let copy = copies::words(&[(16, address), (7, 0x7000)], 0x7000, &[5]);
        self.drain.take(&[bytes(&record(&head, &copy))]);
    }

    /// Places what has come up to `time`.
    fn batch(&mut self, time: u64) {
        let now = Timestamp(time);
        CLOCK.set(time + 1);
        self.drain
            .finish_batch(&mut self.processes, &mut self.events, now, now)
            .expect("a capture that can be written");
        self.placed = time;
    }

    fn finish(mut self) -> (Vec<Seen>, LossTotals) {
        self.batch(u64::MAX - 1);
        let end = End {
            time: Timestamp(1 << 62),
            reason: EndReason::TargetsGone,
            samples: self.drain.totals.samples,
            lost: self.drain.totals.lost,
            processes: self.processes.sampled,
        };
        self.drain.writer.finish(&end).expect("an end");
        read(&self.path)
    }
}

fn raw(start: u64, path: &str) -> RawMapping {
    RawMapping {
        start,
        end: start + 0x1000,
        file_offset: 0,
        prot: prot::READ | prot::EXEC,
        path: path.into(),
        inode: None,
        // Nothing is to be read for one.
        build_id: (!path.is_empty()).then(|| BuildId::new(path.as_bytes()).expect("short")),
    }
}

/// All samples in the order of their times, and the losses.
fn read(path: &std::path::Path) -> (Vec<Seen>, LossTotals) {
    let reader = Reader::open(path).expect("a capture");
    assert_eq!(reader.damage(), []);
    let (mut all, mut losses) = (Vec::new(), LossTotals::default());
    for mut segment in reader.segments() {
        let (mut timeline, mut applied) = (Timeline::new(), 0);
        while let Some(frame) = segment.next_frame().expect("a whole frame") {
            let tables = frame.tables;
            let mapped = timeline::Tables {
                mappings: &tables.mappings,
                spaces: &tables.spaces,
            };
            for record in &tables.process_records[applied..] {
                timeline.apply(record, mapped);
            }
            applied = tables.process_records.len();
            for sample in frame.samples {
                let task = tables.task(sample.task).expect("a task");
                let (view, _) = timeline.view(task.process, sample.time);
                timeline.note_exec_id(view, task.exec_id);
            }
            for sample in frame.samples {
                let task = tables.task(sample.task).expect("a task");
                let (view, _) = timeline.view(task.process, sample.time);
                let leaf = tables.user.frames(sample.user_stack).next();
                let located = leaf
                    .filter(|_| timeline.is_image_of(view, task.exec_id))
                    .and_then(|leaf| timeline.locate(view, leaf, mapped));
                let place = located.map_or(String::new(), |at| {
                    let file = tables.mapping(at.mapping).map(|m| m.file);
                    let file = file.and_then(|f| tables.file(f)).expect("a file");
                    let path = String::from_utf8_lossy(&file.path).into_owned();
                    format!("{path}+{:#x}", at.file_offset)
                });
                let text = |id| String::from_utf8_lossy(tables.string(id)).into_owned();
                let key = timeline.key(task.process).expect("a process");
                all.push(Seen {
                    time: sample.time.0,
                    tgid: key.tgid.0,
                    start: key.start_time.0,
                    comm: timeline.comm(view).map_or("?".into(), text),
                    thread: text(task.comm),
                    place,
                });
            }
        }
        losses.merge(&segment.tables().losses);
    }
    all.sort();
    (all, losses)
}

/// One PID, two processes, three programs at the same address.
fn life_of_a_number(rig: &mut Rig, mut batch: impl FnMut(&mut Rig, u64)) {
    let a = |exec, comm| Who {
        tgid: NOBODY,
        start: 95,
        exec,
        comm,
    };
    let again = Who {
        tgid: NOBODY,
        start: 595,
        exec: 1,
        comm: "c",
    };
    rig.fork(100, NOBODY + 1, NOBODY);
    batch(rig, 110);
    rig.exec(200, NOBODY, "a");
    batch(rig, 205);
    rig.map(210, NOBODY, 0x1000, "/a");
    batch(rig, 215);
    rig.sample(220, a(1, "a"), 0x1010);
    batch(rig, 225);
    rig.sample(230, a(1, "a"), 0x9000);
    rig.map(240, NOBODY, 0x9000, "/late.so");
    batch(rig, 245);
    rig.sample(250, a(1, "a"), 0x9020);
    rig.event(
        260,
        SideKind::Comm {
            process: Pid(NOBODY),
            comm: "A2".into(),
        },
    );
    rig.sample(270, a(1, "A2"), 0x1010);
    batch(rig, 275);
    rig.exec(300, NOBODY, "b");
    rig.map(310, NOBODY, 0x1000, "/b");
    batch(rig, 315);
    rig.sample(320, a(2, "b"), 0x1010);
    rig.sample(330, a(2, "b"), 0x9020);
    batch(rig, 335);
    rig.exit(400, NOBODY);
    batch(rig, 405);
    rig.fork(600, NOBODY + 1, NOBODY);
    rig.exec(610, NOBODY, "c");
    batch(rig, 615);
    rig.map(620, NOBODY, 0x1000, "/c");
    rig.sample(630, again, 0x1010);
    batch(rig, 635);
}

fn what_is_true_of_it() -> Vec<Seen> {
    let (first, second) = ((NOBODY, 95), (NOBODY, 595));
    vec![
        seen(220, first, "a", "/a+0x10"),
        seen(230, first, "a", ""),
        seen(250, first, "a", "/late.so+0x20"),
        seen(270, first, "A2", "/a+0x10"),
        seen(320, first, "b", "/b+0x10"),
        seen(330, first, "b", ""),
        seen(630, second, "c", "/c+0x10"),
    ]
}

/// However it comes in batches, and whatever a segment ends in: each sample has the mapping and the name of its time.
#[test]
fn a_sample_belongs_to_the_image_of_its_time() {
    // Bit n: a batch ends at the n-th place.
    for mask in 0..1u32 << 11 {
        let mut rig = Rig::new(Scope::All, None);
        let mut place = 0;
        life_of_a_number(&mut rig, |rig, time| {
            if mask & (1 << place) != 0 {
                rig.batch(time);
            }
            place += 1;
        });
        assert_eq!(place, 11);
        let sampled = rig.processes.sampled;
        let (all, losses) = rig.finish();
        assert_eq!(all, what_is_true_of_it(), "batches {mask:#b}");
        assert_eq!(losses.iter().count(), 0, "batches {mask:#b}");
        assert!(sampled <= 2);
    }
}

#[test]
fn each_segment_says_all_that_its_samples_need() {
    let mut rig = Rig::new(Scope::All, None);
    life_of_a_number(&mut rig, |rig, time| {
        rig.drain.segment_is_due = true;
        rig.batch(time);
    });
    let (all, losses) = rig.finish();
    assert_eq!(all, what_is_true_of_it());
    assert_eq!(losses.iter().count(), 0);
}

/// The first process of a number was never sampled.
#[test]
fn a_sample_is_of_the_process_that_had_started_then() {
    let mut rig = Rig::new(Scope::All, None);
    for (time, path) in [(10, "/a"), (110, "/b"), (210, "/c")] {
        rig.fork(time, NOBODY + 1, NOBODY);
        rig.exec(time + 1, NOBODY, &path[1..]);
        rig.map(time + 2, NOBODY, 0x1000, path);
        rig.exit(time + 30, NOBODY);
    }
    let who = Who {
        tgid: NOBODY,
        start: 109,
        exec: 1,
        comm: "b",
    };
    rig.sample(120, who, 0x1010);
    let expected = [seen(120, (NOBODY, 109), "b", "/b+0x10")];
    assert_eq!(rig.finish().0, expected);
}

/// Rings of several CPUs are read one after the other.
#[test]
fn samples_may_come_out_of_order_within_a_batch() {
    let mut rig = Rig::new(Scope::All, None);
    let who = |exec, comm| Who {
        tgid: NOBODY,
        start: 5,
        exec,
        comm,
    };
    rig.sample(40, who(2, "b"), 0x1010);
    rig.sample(20, who(1, "a"), 0x1010);
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.exec(11, NOBODY, "a");
    rig.map(12, NOBODY, 0x1000, "/a");
    rig.exec(30, NOBODY, "b");
    rig.map(31, NOBODY, 0x1000, "/b");
    rig.batch(50);
    let expected = [
        seen(20, (NOBODY, 5), "a", "/a+0x10"),
        seen(40, (NOBODY, 5), "b", "/b+0x10"),
    ];
    assert_eq!(rig.finish().0, expected);
}

/// A child has what its parent had at the fork, and nothing of what came after; children of strangers are not followed.
#[test]
fn forks_inherit_and_strangers_are_left_out() {
    let (parent, child, stranger) = (NOBODY, NOBODY + 1, NOBODY + 2);
    let mut rig = Rig::new(Scope::All, None);
    rig.fork(10, NOBODY + 9, parent);
    rig.exec(11, parent, "p");
    rig.map(12, parent, 0x1000, "/p");
    rig.fork(20, parent, child);
    rig.map(21, parent, 0x2000, "/parent.so");
    rig.map(22, child, 0x3000, "/child.so");
    let of = |tgid, start| Who {
        tgid,
        start,
        exec: 1,
        comm: "p",
    };
    for (time, address) in [(30, 0x1010), (31, 0x2010), (32, 0x3010)] {
        rig.sample(time, of(parent, 9), address);
        rig.sample(time, of(child, 19), address);
    }
    let places = |all: &[Seen], tgid| -> Vec<String> {
        let of = all.iter().filter(|seen| seen.tgid == tgid);
        of.map(|seen| seen.place.clone()).collect()
    };
    let (all, _) = rig.finish();
    assert_eq!(places(&all, parent), ["/p+0x10", "/parent.so+0x10", ""]);
    assert_eq!(places(&all, child), ["/p+0x10", "", "/child.so+0x10"]);

    for (scope, known) in [(Scope::Known, false), (Scope::All, true)] {
        let mut rig = Rig::new(scope, None);
        rig.fork(10, NOBODY + 9, stranger);
        rig.batch(20);
        assert_eq!(rig.processes.knows(Pid(stranger)), known, "{scope:?}");
        rig.finish();
    }
}

/// What a launched command does before its exec is the recorder's; how often that was sampled is counted.
#[test]
fn the_launcher_is_left_out() {
    let mut rig = Rig::new(Scope::All, Some(NOBODY));
    let who = |exec, comm| Who {
        tgid: NOBODY,
        start: 5,
        exec,
        comm,
    };
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.sample(20, who(0, "profiler"), 0x1010);
    rig.batch(21);
    rig.sample(25, who(0, "profiler"), 0x1010);
    rig.exec(30, NOBODY, "a");
    rig.map(31, NOBODY, 0x1000, "/a");
    rig.sample(40, who(1, "a"), 0x1010);
    rig.batch(50);
    let (all, losses) = rig.finish();
    assert_eq!(all, [seen(40, (NOBODY, 5), "a", "/a+0x10")]);
    assert_eq!(losses.of_class(LossClass::Launcher), 2);
}

/// After lost records nothing known before is believed, until an exec makes all of it new.
#[test]
fn after_lost_records_old_mappings_name_nothing() {
    let who = |exec, comm| Who {
        tgid: NOBODY,
        start: 5,
        exec,
        comm,
    };
    let mut rig = Rig::new(Scope::All, None);
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.exec(11, NOBODY, "a");
    rig.map(12, NOBODY, 0x1000, "/a");
    rig.sample(20, who(1, "a"), 0x1010);
    rig.batch(30);
    rig.sample(35, who(1, "a"), 0x1010);
    rig.event(40, SideKind::Lost(3));
    rig.sample(45, who(1, "a"), 0x1010);
    rig.batch(50);
    rig.sample(55, who(1, "a"), 0x1010);
    rig.batch(58);
    rig.exec(60, NOBODY, "b");
    rig.map(61, NOBODY, 0x1000, "/b");
    rig.sample(65, who(2, "b"), 0x1010);
    let (all, losses) = rig.finish();
    let expected = [
        seen(20, (NOBODY, 5), "a", "/a+0x10"),
        // What was lost may be of any time since the batch before.
        seen(35, (NOBODY, 5), "a", ""),
        seen(45, (NOBODY, 5), "a", ""),
        seen(55, (NOBODY, 5), "a", ""),
        seen(65, (NOBODY, 5), "b", "/b+0x10"),
    ];
    assert_eq!(all, expected);
    assert_eq!(losses.of_class(LossClass::SideBand), 3);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1, "one process");
}

/// An exec that was not told shows in the number of execs, and the names of the program before are not used.
#[test]
fn a_missed_exec_is_noticed() {
    let who = |exec, comm| Who {
        tgid: NOBODY,
        start: 5,
        exec,
        comm,
    };
    let mut rig = Rig::new(Scope::All, None);
    rig.fork(10, NOBODY + 1, NOBODY);
    rig.exec(11, NOBODY, "a");
    rig.map(12, NOBODY, 0x1000, "/a");
    rig.sample(20, who(1, "a"), 0x1010);
    rig.batch(30);
    rig.sample(35, who(2, "b"), 0x1010);
    let (all, losses) = rig.finish();
    let expected = [
        seen(20, (NOBODY, 5), "a", "/a+0x10"),
        seen(35, (NOBODY, 5), "b", ""),
    ];
    assert_eq!(all, expected);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1);
}

/// A CPU ran unwatched: samples since the last time that all were watched may be of mappings nobody told of, also those
/// placed already. A process that had ended by then is known as it was.
#[test]
fn what_was_placed_while_a_cpu_was_unwatched_is_doubted() {
    let (gone, there) = (NOBODY, NOBODY + 1);
    let of = |tgid| Who {
        tgid,
        start: 5,
        exec: 1,
        comm: "a",
    };
    let mut rig = Rig::new(Scope::All, None);
    for process in [gone, there] {
        rig.fork(10, NOBODY + 9, process);
        rig.exec(11, process, "a");
        rig.map(12, process, 0x1000, "/a");
        rig.sample(20, of(process), 0x1010);
    }
    rig.exit(25, gone);
    rig.batch(30);
    rig.sample(35, of(there), 0x1010);
    rig.batch(40);
    rig.sample(45, of(there), 0x1010);
    rig.batch(50);
    rig.drain.doubt(&mut rig.processes, Timestamp(32));
    rig.sample(55, of(there), 0x1010);
    let (all, losses) = rig.finish();
    let expected = [
        seen(20, (gone, 5), "a", "/a+0x10"),
        seen(20, (there, 5), "a", "/a+0x10"),
        seen(35, (there, 5), "a", ""),
        seen(45, (there, 5), "a", ""),
        seen(55, (there, 5), "a", ""),
    ];
    assert_eq!(all, expected);
    assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1);
}

#[test]
fn malformed_records_are_counted() {
    let mut rig = Rig::new(Scope::All, None);
    rig.drain.take(&[&[0; 7]]);
    rig.drain.take(&[&[]]);
    assert_eq!(rig.drain.totals.lost, 2);
    assert_eq!(rig.finish().1.of_class(LossClass::Malformed), 2);
}

/// However much came at once (a recorder that was stopped): a frame takes only so many samples, and another takes the rest.
#[test]
fn a_batch_larger_than_a_frame_is_several_frames() {
    const EACH: usize = 100;
    const SAMPLES: usize = 3 * FULL_FRAME - FULL_FRAME % EACH;
    let mut rig = Rig::new(Scope::All, None);
    let head = |time: usize| sample_head {
        time: time as u64,
        start_time: TICK,
        cgroup_id: 0,
        tgid: NOBODY,
        tid: NOBODY,
        exec_id: 0,
        cpu: time as u32 % 2,
        kernel_frames: 0,
        user_frames: 1,
        flags: sample_flag(0),
        comm: [0; 16],
    };
    // One CPU after the other, as rings are read.
    let [even, odd] = [0, 1].map(|cpu| (0..SAMPLES).filter(move |time| time % 2 == cpu));
    let times: Vec<usize> = even.chain(odd).collect();
    for times in times.chunks(EACH) {
        let records = times
            .iter()
            .map(|time| record(&head(2 * TICK as usize + time), &[0x1000]));
        let records: Vec<Vec<u64>> = records.collect();
        let records: Vec<&[u8]> = records.iter().map(|record| bytes(record)).collect();
        rig.drain.take(&records);
    }
    rig.batch(3 * TICK);
    assert_eq!(rig.drain.totals.samples, SAMPLES as u64);
    assert_eq!(rig.drain.totals.lost, 0);
    rig.drain.flush().expect("a file");
    let reader = Reader::open(&rig.path).expect("a capture");
    let frames = reader.frames().iter().map(|frame| &frame.descriptor);
    let frames: Vec<_> = frames.filter(|frame| frame.samples > 0).collect();
    let counts: Vec<u64> = frames.iter().map(|frame| frame.samples).collect();
    let (full, rest) = (FULL_FRAME as u64, (SAMPLES - 2 * FULL_FRAME) as u64);
    assert_eq!(counts, [full, full, rest]);
    for pair in frames.windows(2) {
        assert!(pair[0].last < pair[1].first, "frames that overlap in time");
    }
}

/// A stack that was cut because the ring was nearly full is told apart from one that was deeper than the limit.
#[test]
fn stacks_cut_for_want_of_room_have_their_own_cause() {
    let mut rig = Rig::new(Scope::All, None);
    let frames: Vec<u64> = (1..=9).map(|frame| frame * 0x1000).collect();
    let mut take = |flags: u32, kernel: usize, user: usize| {
        let head = sample_head {
            time: 2 * TICK,
            start_time: TICK,
            cgroup_id: 0,
            tgid: NOBODY,
            tid: NOBODY,
            exec_id: 0,
            cpu: 3,
            kernel_frames: kernel as i16,
            user_frames: user as i16,
            flags: sample_flag(flags),
            comm: [0; 16],
        };
        let stacks = [&frames[..kernel], &frames[..user]].concat();
        rig.drain.take(&[bytes(&record(&head, &stacks))]);
    };
    let short = sample_flag::SAMPLE_SHORT.0;
    take(short, 2, 8);
    take(short, 8, 8);
    take(short, 0, 7);
    take(0, 8, 8);
    rig.batch(3 * TICK);
    let totals = rig.drain.totals;
    assert_eq!(
        (totals.samples, totals.truncated, totals.shortened),
        (4, 2, 2)
    );
    let (_, losses) = rig.finish();
    let of = |class| losses.of_class(class);
    assert_eq!(of(LossClass::StackShortened), 3);
    assert_eq!(
        (of(LossClass::UserTruncated), of(LossClass::KernelTruncated)),
        (0, 0)
    );
}

mod own {
    //! With a process that is there: this one.

    use super::*;

    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::ptr::null_mut;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// What one test maps is none of the others' business.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn() -> MutexGuard<'static, ()> {
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executable memory of this process, unmapped when dropped.
    struct Area(u64);

    const LEN: usize = 0x1000;

    impl Area {
        fn new() -> Area {
            Area::map(null_mut(), -1, libc::MAP_ANONYMOUS)
        }

        /// Puts the beginning of `file` in its place.
        fn replace(&self, file: &File) {
            let moved = Area::map(self.0 as *mut _, file.as_raw_fd(), libc::MAP_FIXED);
            assert_eq!(moved.0, self.0);
            std::mem::forget(moved);
        }

        fn map(at: *mut libc::c_void, fd: i32, flags: i32) -> Area {
            let prot = libc::PROT_READ | libc::PROT_EXEC;
            // SAFETY: at a place of the kernel's choice, or in that of a mapping of our own that nobody uses.
            let start = unsafe { libc::mmap(at, LEN, prot, libc::MAP_PRIVATE | flags, fd, 0) };
            assert_ne!(start, libc::MAP_FAILED, "mmap");
            Area(start as u64)
        }
    }

    impl Drop for Area {
        fn drop(&mut self) {
            // SAFETY: ours, and nobody has a reference into it.
            unsafe { libc::munmap(self.0 as *mut _, LEN) };
        }
    }

    fn myself() -> (Pid, Who) {
        let pid = std::process::id();
        let stat = procfs::read_stat(Pid(pid)).expect("/proc/self/stat");
        let who = Who {
            tgid: pid,
            start: stat.start_ticks * TICK + 17,
            exec: 7,
            comm: "own",
        };
        (Pid(pid), who)
    }

    /// A file nobody else maps.
    fn plug(rig: &Rig) -> (File, String) {
        let path = rig._dir.path().join("plug.so");
        std::fs::write(&path, [0; LEN]).expect("a file");
        let shown = path.to_str().expect("UTF-8").to_owned();
        (File::open(path).expect("it opens"), shown)
    }

    /// Seconds.
    const S: u64 = 1_000_000_000;

    /// Records of a mapping were lost: it is read again, holds from then on, and what was there before names nothing in
    /// between.
    #[test]
    fn a_mapping_whose_record_was_lost_is_read_again() {
        let _turn = turn();
        let (pid, who) = myself();
        let mut rig = Rig::new(Scope::All, None);
        let area = Area::new();
        assert!(rig.processes.snapshot(pid, Timestamp(S)));
        rig.sample(2 * S, who, area.0);
        rig.batch(3 * S);
        let (file, path) = plug(&rig);
        area.replace(&file);
        rig.sample(4 * S, who, area.0 + 8);
        rig.event(5 * S, SideKind::Lost(1));
        // Code that nothing is known of is no reason to believe the rest.
        let other = Area::new();
        rig.sample(5 * S, who, other.0);
        rig.batch(6 * S);
        // Only now is known what happened until it was read.
        rig.batch(6 * S + 1);
        rig.sample(7 * S, who, area.0 + 8);
        let (all, losses) = rig.finish();
        let places: Vec<_> = all.iter().map(|seen| seen.place.as_str()).collect();
        let after = format!("{path}+0x8");
        assert_eq!(places, ["+0x0", "", "", &after]);
        // What came between is unknown, which is told.
        assert_eq!(losses.of_class(LossClass::MapsUnreadable), 1);
    }

    /// Records were lost that had nothing to do with the process: it keeps its names.
    #[test]
    fn a_process_that_is_as_it_was_keeps_its_names() {
        let _turn = turn();
        let (pid, who) = myself();
        let mut rig = Rig::new(Scope::All, None);
        let area = Area::new();
        assert!(rig.processes.snapshot(pid, Timestamp(S)));
        rig.sample(2 * S, who, area.0);
        rig.batch(3 * S);
        rig.event(4 * S, SideKind::Lost(1));
        rig.sample(5 * S, who, area.0 + 4);
        rig.batch(6 * S);
        let (all, losses) = rig.finish();
        let places: Vec<_> = all.iter().map(|seen| seen.place.as_str()).collect();
        assert_eq!(places, ["+0x0", "+0x4"]);
        assert_eq!(losses.of_class(LossClass::MapsUnreadable), 0);
    }

    /// Code where nothing is known to be: looked at once, and again only after a while.
    #[test]
    fn unknown_code_is_looked_at_but_not_all_the_time() {
        let _turn = turn();
        let (pid, who) = myself();
        let mut rig = Rig::new(Scope::All, None);
        assert!(rig.processes.snapshot(pid, Timestamp(S)));
        let first = Area::new();
        rig.sample(2 * S, who, first.0);
        rig.batch(3 * S);
        rig.batch(3 * S + 1);
        rig.sample(4 * S, who, first.0);
        let second = Area::new();
        rig.sample(5 * S, who, second.0);
        rig.batch(6 * S);
        rig.sample(7 * S, who, second.0);
        rig.batch(7 * S + 1);
        // Ten seconds after the first look, and at another page, or it is taken for looked at.
        let third = Area::new();
        rig.sample(13 * S, who, third.0);
        rig.batch(14 * S);
        rig.batch(14 * S + 1);
        rig.sample(15 * S, who, second.0);
        rig.sample(16 * S, who, third.0);
        let (all, _) = rig.finish();
        // Areas side by side are one mapping, so offsets in it say nothing.
        let known: Vec<_> = all.iter().map(|seen| !seen.place.is_empty()).collect();
        assert_eq!(known, [false, true, false, false, false, true, true]);
    }

    /// What `/proc` shows is later than what has been told: of the next program, or of what was mapped there next. It
    /// must not name samples taken before.
    #[test]
    fn what_was_read_is_not_believed_of_a_moment_before() {
        let _turn = turn();
        let (pid, who) = myself();
        let next = Who {
            exec: who.exec + 1,
            ..who
        };
        let after = |told: fn(&mut Rig, u32, u64)| {
            let mut rig = Rig::new(Scope::All, None);
            assert!(rig.processes.snapshot(pid, Timestamp(S)));
            let area = Area::new();
            rig.sample(2 * S, who, area.0);
            rig.event(3 * S, SideKind::Lost(1));
            // Read here.
            rig.batch(4 * S);
            rig.sample(4 * S + 1, who, area.0);
            told(&mut rig, pid.0, area.0);
            rig.sample(4 * S + 3, next, area.0);
            rig.batch(5 * S);
            rig.batch(6 * S);
            rig.sample(7 * S, next, area.0);
            let (all, _) = rig.finish();
            all.into_iter().map(|seen| seen.place).collect::<Vec<_>>()
        };
        let execed = after(|rig, pid, _| rig.exec(4 * S + 2, pid, "next"));
        assert_eq!(execed, ["", "", "", ""]);
        let mapped = after(|rig, pid, area| {
            rig.exec(4 * S + 2, pid, "next");
            rig.map(4 * S + 2, pid, area, "/next");
        });
        assert_eq!(mapped, ["", "", "/next+0x0", "/next+0x0"]);
    }

    /// A program that makes new code areas for ever and gives old ones back, which the kernel does not tell.
    #[test]
    fn mappings_that_are_gone_are_forgotten_in_time() {
        let _turn = turn();
        let (pid, who) = myself();
        let mut rig = Rig::new(Scope::All, None);
        let area = Area::new();
        assert!(rig.processes.snapshot(pid, Timestamp(S)));
        let now = read_executable(pid).expect("own mappings").len();
        let mut most = 0;
        for i in 0..100_000u64 {
            let time = 2 * S + i * 1_000_000;
            // Far from all that is there.
            rig.map(time, pid.0, 0x10_0000 + i * 0x1000, "");
            if i % 100 == 0 {
                rig.batch(time);
                most = most.max(rig.processes.mappings_kept(pid));
            }
        }
        assert!(most < 10_000, "{most} mappings kept");
        let last = 200 * S;
        rig.batch(last - 2);
        rig.batch(last - 1);
        rig.sample(last, who, area.0);
        rig.batch(last);
        assert!(
            rig.processes.mappings_kept(pid) >= now.min(3),
            "all forgotten"
        );
        let (all, _) = rig.finish();
        assert_eq!(all[0].place, "+0x0", "what is there stays");
    }

    /// The same area again and again is one mapping.
    #[test]
    fn an_area_used_again_is_kept_once() {
        let _turn = turn();
        let (pid, _) = myself();
        let mut rig = Rig::new(Scope::All, None);
        assert!(rig.processes.snapshot(pid, Timestamp(S)));
        let before = rig.processes.mappings_kept(pid);
        for i in 0..100_000u64 {
            let time = 2 * S + i * 1_000_000;
            rig.map(time, pid.0, 0x10_0000 + i % 50 * 0x1000, "");
            if i % 100 == 0 {
                rig.batch(time);
            }
        }
        let last = 200 * S;
        (0..4).for_each(|i| {
            rig.map(last + i, pid.0, 0x10_0000, "");
            rig.batch(last + i);
        });
        let kept = rig.processes.mappings_kept(pid);
        assert!(kept <= before + 52, "{kept} mappings kept, {before} before");
    }
}

/// What is walked later has the mappings of its own time, its leaf whatever becomes of the walk, and the reason why that
/// ended.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_copied_stack_waits_until_its_mappings_are_told() {
    let mut rig = Rig::new(Scope::All, None);
    rig.drain.unwinder = Unwinder::new();
    let who = Who {
        tgid: NOBODY,
        start: 95,
        exec: 1,
        comm: "",
    };
    rig.fork(100, NOBODY + 1, NOBODY);
    rig.exec(200, NOBODY, "a");
    rig.copied_sample(230, who, 0x9000);
    rig.copied_sample(250, who, 0x9020);
    rig.batch(225);
    assert_eq!(rig.drain.totals.samples, 0);
    rig.map(210, NOBODY, 0x1000, "/a");
    rig.map(240, NOBODY, 0x9000, "/late.so");
    rig.batch(300);
    assert_eq!(rig.drain.totals.samples, 2);
    let (samples, losses) = rig.finish();
    let places: Vec<_> = samples.iter().map(|s| s.place.as_str()).collect();
    assert_eq!(places, ["", "/late.so+0x20"]);
    assert_eq!(losses.of_class(LossClass::UnwindUnmapped), 1);
    assert_eq!(losses.of_class(LossClass::UnwindNoInfo), 1);
    assert_eq!(losses.lost_samples(), 0);
}
