//! What a report keeps in memory is bounded by what is in the file: captures with as much of one thing as their bytes can say.

use bprof::capture::{CaptureWriter, Reader, SampleInput};
use bprof::event::{Origin, Pid, ProcessKey, Timestamp};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, SpaceId, Task};

use super::bounded::{is_civil, measured};
use super::{CODE, program, put};
use crate::format::header;

/// Writes what is wanted, in as many segments as it takes.
struct Maker {
    writer: CaptureWriter<Vec<u8>>,
    time: u64,
}

impl Maker {
    fn new() -> Maker {
        let writer = CaptureWriter::create_with_level(Vec::new(), &header(), 3).unwrap();
        Maker { writer, time: 0 }
    }

    /// A list of `count` mappings of code, one after the other, each of a file's own piece.
    fn space(&mut self, count: u64) -> SpaceId {
        let file = self.writer.file(&program("/bin/prog")).unwrap();
        let len = (1 << 30) / count;
        let placed = (0..count).map(|i| {
            let mapping = self.writer.mapping(&MappingTemplate {
                file,
                file_offset: i * len,
                len,
                prot: 5,
            });
            PlacedMapping {
                start: CODE + i * len,
                mapping: mapping.unwrap(),
            }
        });
        let placed = placed.collect();
        self.writer.space(placed).unwrap()
    }

    /// A process with a program and these mappings; its thread.
    fn process(&mut self, pid: u32, comm: &[u8], space: SpaceId) -> u32 {
        let key = ProcessKey {
            tgid: Pid(pid),
            start_time: Timestamp(1),
        };
        let (time, origin) = (Timestamp(0), Origin::Snapshot);
        let writer = &mut self.writer;
        let comm = writer.string(comm).unwrap();
        let process = writer
            .add_process(key, Pid(1), false, origin, None)
            .unwrap();
        let image = ProcessRecord::Image {
            process,
            time,
            exec_number: 0,
            comm,
            origin,
        };
        writer.process(image).unwrap();
        let space = ProcessRecord::Space {
            process,
            time,
            space,
            origin,
        };
        writer.process(space).unwrap();
        let task = Task {
            process,
            tid: Pid(pid),
            exec_id: 0,
            comm,
        };
        writer.task(task).unwrap()
    }

    fn sample(&mut self, task: u32, user: &[u64]) {
        self.time += 1000;
        let sample = SampleInput {
            time: Timestamp(self.time),
            cpu: 0,
            task,
            user,
            kernel: &[],
            weight: 1,
            flags: 0,
            event: 0,
        };
        self.writer.sample(&sample).unwrap();
    }

    fn bytes(mut self) -> Vec<u8> {
        self.writer.flush().unwrap();
        self.writer.get_ref().clone()
    }
}

/// Every sample at an address of its own, the next one `step` further in a gigabyte of code.
fn addresses(count: u64, step: u64) -> Vec<u8> {
    let mut maker = Maker::new();
    let space = maker.space(1);
    let task = maker.process(7, b"prog", space);
    for i in 0..count {
        let at = CODE + 16 + i.wrapping_mul(step) % ((1 << 30) - 32);
        maker.sample(task, &[at, CODE + 8]);
        if i % 50_000 == 49_999 {
            maker.writer.flush().unwrap();
        }
    }
    maker.bytes()
}

/// Every stack parts from all others at its root, and is the same above that.
fn stacks(segments: u64, of_each: u64) -> Vec<u8> {
    let mut maker = Maker::new();
    let trunk: Vec<u64> = (1..252).map(|i| CODE + 16 * i).collect();
    let mut number = 0u64;
    for segment in 0..segments {
        if segment > 0 {
            maker.writer.start_segment().unwrap();
        }
        let space = maker.space(1);
        let task = maker.process(7, b"prog", space);
        for _ in 0..of_each {
            number += 1;
            let root = [number % 4096, number / 4096 % 4096, number >> 24];
            let root = root.map(|digit| CODE + (1 << 20) + 16 * digit);
            maker.sample(task, &[&trunk[..], &root[..]].concat());
        }
        maker.writer.flush().unwrap();
    }
    maker.bytes()
}

/// A process for each sample.
fn processes(count: u32) -> Vec<u8> {
    let mut maker = Maker::new();
    let space = maker.space(1);
    for i in 0..count {
        let task = maker.process(10 + i, b"prog", space);
        maker.sample(task, &[CODE + 16, CODE + 8]);
        if i % 50_000 == 49_999 {
            maker.writer.flush().unwrap();
        }
    }
    maker.bytes()
}

/// Processes that all have the same list of mappings.
fn mappings(count: u64, processes: u32) -> Vec<u8> {
    let mut maker = Maker::new();
    let space = maker.space(count);
    for i in 0..processes {
        let task = maker.process(10 + i, b"prog", space);
        maker.sample(task, &[CODE + 16, CODE + 8]);
    }
    maker.bytes()
}

/// Names as long as they may be, each of another process.
fn strings(segments: u32, of_each: u32) -> Vec<u8> {
    let mut maker = Maker::new();
    for segment in 0..segments {
        if segment > 0 {
            maker.writer.start_segment().unwrap();
        }
        let space = maker.space(1);
        for i in 0..of_each {
            let mut name = vec![b'a'; 60 << 10];
            name[..8].copy_from_slice(format!("{:08}", segment * of_each + i).as_bytes());
            let task = maker.process(10 + i, &name, space);
            maker.sample(task, &[CODE + 16, CODE + 8]);
        }
        maker.writer.flush().unwrap();
    }
    maker.bytes()
}

/// Bytes of a report before it has read anything.
const PROGRAM: u64 = 48 << 20;

/// Most memory that reports of the capture take, in bytes of memory, and the sizes of the file and of what is in it.
fn most(what: &str, bytes: &[u8], views: &[&[&str]]) -> (u64, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), bytes);
    let reader = Reader::open(&path).unwrap();
    let frames = reader.frames().iter();
    let content = frames.map(|frame| frame.descriptor.uncompressed).sum();
    let mut peak = 0;
    for view in views {
        let run = measured(view, &path);
        is_civil(&format!("{what}, {view:?}"), &run);
        peak = peak.max(run.peak << 10);
    }
    let len = bytes.len() as u64;
    let times = peak.saturating_sub(PROGRAM) as f64 / content as f64;
    eprintln!(
        "{what}: {len} bytes of file, {content} of content, {peak} of memory, {times:.1} times the content"
    );
    (peak, len, content)
}

const COUNTED: &[&str] = &["report", "--folded"];
const PRINTED: &[&str] = &["report", "--standard"];

/// Where each sample says something new, which a report has to keep: so many times the content of the frames.
#[test]
fn what_is_kept_of_each_sample_is_a_multiple_of_its_bytes() {
    for (what, bytes, times) in [
        ("addresses", addresses(200_000, 0x9E37_79B9), 120),
        ("addresses in a row", addresses(200_000, 16), 120),
        ("processes", processes(60_000), 60),
        ("mappings", mappings(200_000, 1), 10),
        ("one list for all", mappings(50_000, 5_000), 20),
    ] {
        let (peak, _, content) = most(what, &bytes, &[COUNTED, PRINTED]);
        assert!(
            peak < PROGRAM + times * content,
            "{what}: {peak} for {content}"
        );
    }
}

/// Four million nodes of stacks in 10 KB: those that bytes cannot honestly stand for are cut, and that is said.
#[test]
fn stacks_are_kept_as_far_as_the_file_can_hold_them() {
    let bytes = stacks(2, 16_000);
    assert!(bytes.len() < 30_000, "{}", bytes.len());
    let (peak, ..) = most("stacks", &bytes, &[COUNTED, PRINTED]);
    assert!(peak < 250 << 20, "{peak}");
    let dir = tempfile::tempdir().unwrap();
    let run = measured(COUNTED, &put(dir.path(), &bytes));
    assert_eq!(run.code, Some(0), "{}", run.err);
    let told = "more distinct stacks than one of its size can honestly have";
    assert!(run.err.contains(told), "{}", run.err);
    assert!(run.err.contains("samples: 32000;"), "{}", run.err);
}

/// Names that zstd makes nothing of, 300 MB in 110 KB: frames beyond what a file of that size may hold are left out, and that is said.
#[test]
fn content_is_read_as_far_as_the_file_can_hold_it() {
    let bytes = strings(10, 500);
    assert!(bytes.len() < 150_000, "{}", bytes.len());
    let (peak, ..) = most("strings", &bytes, &[COUNTED, PRINTED]);
    assert!(peak < 400 << 20, "{peak}");
    let dir = tempfile::tempdir().unwrap();
    let path = put(dir.path(), &bytes);
    let run = measured(COUNTED, &path);
    assert_eq!(run.code, Some(1), "{}", run.err);
    let told = "more content than the format allows in a file of this size";
    assert!(run.err.contains(told), "{}", run.err);
    assert_eq!(measured(&["verify"], &path).code, Some(1));
}
