//! Events and samples go in as the kernel gives them, through the drain and a real writer; what a reader makes of the
//! file is compared.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Depths, Drain, Processes};
use crate::capture::reader::Reader;
use crate::capture::tables::LossTotals;
use crate::capture::writer::CaptureWriter;
use crate::event::{BuildId, Pid, Timestamp, prot};
use crate::format::end::{End, EndReason};
use crate::format::header::{EventInfo, Sampling};
use crate::record::bpf::types::{sample_flag, sample_head};
use crate::record::host::{self, Decided};
use crate::record::maps::RawMapping;
use crate::record::output::Output;
use crate::record::processes::Scope;
use crate::record::sideband::{SideEvent, SideKind};
use crate::record::unwind::copies;
use crate::record::wire::tests::{bytes, record};
use crate::timeline::{self, Timeline};

pub(super) const TICK: u64 = 10_000_000;
/// Above every PID there can be: nothing is in /proc about it.
pub(super) const NOBODY: u32 = 50_000_000;

thread_local! {
    /// What the clock shows: a little more than the end of the batch being placed.
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

/// A sample as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    pub(super) time: u64,
    pub(super) tgid: u32,
    pub(super) start: u64,
    /// Of the process.
    pub(super) comm: String,
    /// Of the thread.
    pub(super) thread: String,
    /// What its leaf is in: `/path+0x10`, or nothing known.
    pub(super) place: String,
}

pub(super) fn seen(time: u64, (tgid, start): (u32, u64), comm: &str, place: &str) -> Seen {
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
pub(super) struct Rig {
    pub(super) _dir: TempDir,
    pub(super) path: PathBuf,
    pub(super) drain: Drain,
    pub(super) processes: Processes,
    pub(super) events: VecDeque<SideEvent>,
    /// Everything up to then is placed.
    placed: u64,
    /// What was told is known when samples are taken out.
    heard: bool,
}

/// Who is sampled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) tgid: u32,
    pub(super) start: u64,
    pub(super) exec: u32,
    pub(super) comm: &'static str,
}

impl Rig {
    pub(super) fn new(scope: Scope, command: Option<u32>) -> Rig {
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
            user_stacks: crate::event::UserStacks::default(),
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
            heard: false,
        }
    }

    pub(super) fn event(&mut self, time: u64, what: SideKind) {
        let time = Timestamp(time);
        self.events.push_back(SideEvent { time, what });
    }

    pub(super) fn fork(&mut self, time: u64, parent: u32, process: u32) {
        let (process, parent) = (Pid(process), Pid(parent));
        self.event(time, SideKind::Fork { process, parent });
    }

    pub(super) fn exec(&mut self, time: u64, process: u32, comm: &str) {
        let (process, comm) = (Pid(process), comm.into());
        self.event(time, SideKind::Exec { process, comm });
    }

    /// Maps `path` from its beginning.
    pub(super) fn map(&mut self, time: u64, process: u32, start: u64, path: &str) {
        let mapping = raw(start, path);
        let process = Pid(process);
        self.event(time, SideKind::Map { process, mapping });
    }

    pub(super) fn exit(&mut self, time: u64, process: u32) {
        let process = Pid(process);
        self.event(time, SideKind::Exit { process });
    }

    /// A sample with its leaf at `address`.
    pub(super) fn sample(&mut self, time: u64, who: Who, address: u64) {
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
    pub(super) fn copied_sample(&mut self, time: u64, who: Who, address: u64) {
        self.copied(time, who, address, sample_flag(0), &[5], &[]);
    }

    /// A sample with registers and these words of stack, which the kernel has walked besides.
    pub(super) fn copied(
        &mut self,
        time: u64,
        who: Who,
        address: u64,
        flags: sample_flag,
        stack: &[u64],
        walked: &[u64],
    ) {
        let head = sample_head {
            time,
            start_time: who.start,
            cgroup_id: 0,
            tgid: who.tgid,
            tid: who.tgid,
            exec_id: who.exec,
            cpu: 0,
            kernel_frames: 0,
            user_frames: stack.len() as i16,
            flags: sample_flag(flags.0 | sample_flag::SAMPLE_COPIED.0),
            comm: [0; 16],
        };
        let registers = [(16, address), (7, 0x7000), (6, 0x7000)];
        let mut copy = copies::words(&registers, 0x7000, stack);
        copy.extend_from_slice(walked);
        let record = record(&head, &copy);
        let processes = self.heard.then_some(&self.processes);
        self.drain.take_of(&[bytes(&record)], processes);
    }

    /// What was told up to `time` is known when samples are taken out.
    pub(super) fn hear(&mut self, time: u64) {
        self.heard = true;
        self.drain
            .hear(&mut self.processes, &mut self.events, Timestamp(time));
    }

    /// Places what has come up to `time`.
    pub(super) fn batch(&mut self, time: u64) {
        let now = Timestamp(time);
        CLOCK.set(time + 1);
        self.drain
            .finish_batch(&mut self.processes, &mut self.events, now, now)
            .expect("a capture that can be written");
        self.placed = time;
    }

    pub(super) fn finish(mut self) -> (Vec<Seen>, LossTotals) {
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
