//! Captures that somebody made to do harm, or that a disk has harmed: a message, exit 0 or 1, in bounded memory and time.

mod bounded;
mod cost;
mod files;
mod memory;
mod mutated;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use bprof::capture::{Appender, CaptureWriter, Reader, SampleInput};
use bprof::event::{
    FileVersion, LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp,
};
use bprof::format::descriptor::FrameKind;
use bprof::format::header::Header;
use bprof::format::packed::FileKey;
use bprof::format::packed::file::{self, PieceHead, Role};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};

use self::bounded::{is_civil, measured, run};
use super::format::header;
use super::golden::of_version;

const GOLDEN: [(&str, &str); 7] = [
    ("v1", "calls.bprof"),
    ("v1", "family.bprof"),
    ("v1.1", "calls.bprof"),
    ("v1.1", "family.bprof"),
    ("v1.1", "paths.bprof"),
    ("v1.2", "calls.bprof"),
    ("v1.2", "family.bprof"),
];

/// Every view, one after the other.
const VIEWS: [&[&str]; 10] = [
    &["report", "--folded"],
    &["report", "--standard"],
    &["report", "--top", "5"],
    &["report", "--flamegraph", "-"],
    &["report", "--flamegraph", "-", "--inverted"],
    &["report", "--flamegraph", "-", "--flamechart"],
    &["report", "--html", "-"],
    &["report", "--missing", "--json"],
    &["info"],
    &["verify"],
];

/// Runs `one` for all numbers below `count`, on both CPUs of a small machine.
fn on_threads(count: usize, one: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        number if number < count => one(number),
                        _ => break,
                    }
                }
            });
        }
    });
}

/// The same numbers each time.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    }
}

/// A27: a hundred flipped bits, each alone, in each golden capture.
#[test]
fn a27_any_flipped_bit_ends_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    on_threads(GOLDEN.len() * 100, |number| {
        let (version, name) = GOLDEN[number / 100];
        let mut bytes = fs::read(of_version(version, name)).unwrap();
        let bit = random(number as u64 * 0x9E37_79B9 + 7)(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let path = dir.path().join(format!("{number}.bprof"));
        fs::write(&path, bytes).unwrap();
        let view = VIEWS[number % VIEWS.len()];
        is_civil(
            &format!("{version} {name}, bit {bit}, {view:?}"),
            &run(view, &path),
        );
        fs::remove_file(path).unwrap();
    });
}

/// A27: each golden capture cut at every fiftieth of its length.
#[test]
fn a27_any_cut_ends_with_a_message() {
    let dir = tempfile::tempdir().unwrap();
    on_threads(GOLDEN.len() * 50, |number| {
        let (version, name) = GOLDEN[number / 50];
        let bytes = fs::read(of_version(version, name)).unwrap();
        let at = bytes.len() * (number % 50) / 50;
        let path = dir.path().join(format!("{number}.bprof"));
        fs::write(&path, &bytes[..at]).unwrap();
        let view = VIEWS[number % VIEWS.len()];
        is_civil(
            &format!("{version} {name} cut at {at}, {view:?}"),
            &run(view, &path),
        );
        fs::remove_file(path).unwrap();
    });
}

/// A process whose code is one file of a gigabyte.
struct Scene {
    writer: CaptureWriter<Vec<u8>>,
    task: u32,
}

/// Where its file is mapped.
const CODE: u64 = 0x10_0000_0000;

fn program(path: &str) -> MappedFile {
    MappedFile {
        kind: MappedKind::File,
        path: path.into(),
        build_id: None,
        inode: None,
        version: Some(FileVersion {
            size: 1 << 30,
            mtime_sec: 1,
            mtime_nsec: 0,
        }),
        deleted: false,
    }
}

impl Scene {
    fn new(header: &Header, file: &MappedFile, comm: &str) -> Scene {
        let mut writer = CaptureWriter::create_with_level(Vec::new(), header, 3).unwrap();
        let comm = writer.string(comm.as_bytes()).unwrap();
        let file = writer.file(file).unwrap();
        let template = MappingTemplate {
            file,
            file_offset: 0,
            len: 1 << 30,
            prot: 5,
        };
        let mapping = writer.mapping(&template).unwrap();
        let placed = PlacedMapping {
            start: CODE,
            mapping,
        };
        let space = writer.space(vec![placed]).unwrap();
        let key = ProcessKey {
            tgid: Pid(42),
            start_time: Timestamp(1),
        };
        let (time, origin) = (Timestamp(0), Origin::Snapshot);
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
            tid: Pid(42),
            exec_id: 0,
            comm,
        };
        let task = writer.task(task).unwrap();
        Scene { writer, task }
    }

    fn sample(&mut self, time: u64, user: &[u64]) {
        let sample = SampleInput {
            time: Timestamp(time),
            cpu: 0,
            task: self.task,
            user,
            kernel: &[],
            weight: 1,
            flags: 0,
            event: 0,
        };
        self.writer.sample(&sample).unwrap();
    }

    /// The capture, not ended in order.
    fn bytes(mut self) -> Vec<u8> {
        self.writer.flush().unwrap();
        self.writer.get_ref().clone()
    }
}

fn usual() -> Scene {
    Scene::new(&header(), &program("/bin/prog"), "prog")
}

fn put(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("hostile.bprof");
    fs::write(&path, bytes).unwrap();
    path
}

/// Adds frames to a capture: kind and content.
fn with_frames(bytes: Vec<u8>, frames: impl Iterator<Item = (FrameKind, Vec<u8>)>) -> Vec<u8> {
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut appender = Appender::new(bytes, &reader).unwrap();
    for (kind, content) in frames {
        appender.frame(kind, &content).unwrap();
    }
    appender.finish().unwrap().0
}

/// All samples, each with a deep stack of its own, have to wait for the last frame, which may have earlier ones: 3,000 times 4,096
/// frames would be 200 MB. Nothing is lost, and that they are not in order is said.
#[test]
fn samples_that_wait_for_the_last_frame_do_not_fill_memory() {
    const STACKS: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut scene = usual();
    // From behind the first byte on: a return address is looked up one byte before.
    let trunk: Vec<u64> = (1..4096).map(|i| CODE + 16 * i).collect();
    for i in 0..STACKS {
        let stack = [&[CODE + (1 << 20) + 16 * i], &trunk[..]].concat();
        scene.sample(10_000_000 + i, &stack);
    }
    scene.writer.flush().unwrap();
    scene.sample(5, &[CODE, CODE + 1]);
    let path = put(dir.path(), &scene.bytes());
    let len = fs::metadata(&path).unwrap().len();
    assert!(len < 200_000, "{len}");
    let run = measured(&["report", "--standard"], &path);
    is_civil("waiting", &run);
    assert!(run.err.contains("out of order"), "{}", run.err);
    assert!(run.peak < 150 << 10, "{} KiB", run.peak);
}

/// Symbols of four bytes each, which take sixteen times as much in memory, up to all the bytes of symbol aid there may be.
#[test]
fn symbol_aid_takes_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = [&[0, 252], &400_000u32.to_le_bytes()[..], &[0; 1_600_000]].concat();
    let mut scene = usual();
    scene.sample(10, &[CODE, CODE + 1]);
    let frames = (0..20).map(|_| (FrameKind::KernelSymbols, content.clone()));
    let path = put(dir.path(), &with_frames(scene.bytes(), frames));
    let run = measured(&["report", "--folded"], &path);
    is_civil("aid", &run);
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(run.err.contains("more symbol aid"), "{}", run.err);
    assert!(run.peak < 350 << 10, "{} KiB", run.peak);
}

/// Frames of 64 MiB of nothing, of a few KiB each.
#[test]
fn zstd_bombs_take_one_frames_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut scene = usual();
    scene.sample(10, &[CODE, CODE + 1]);
    let frames = [FrameKind::Vdso, FrameKind::PackedSymbols, FrameKind::End];
    let frames = frames.into_iter().map(|kind| (kind, vec![0; 64 << 20]));
    let path = put(dir.path(), &with_frames(scene.bytes(), frames));
    for view in [&["report", "--folded"][..], &["verify"], &["info"]] {
        let run = measured(view, &path);
        is_civil("zstd", &run);
        assert_eq!(run.code, Some(1), "{view:?}: {}", run.err);
        assert!(run.peak < 200 << 10, "{view:?}: {} KiB", run.peak);
    }
}

/// A packed file of a gigabyte, of zeros, in a capture of some hundred KiB: nothing is written to disk for it.
#[test]
fn a_packed_file_larger_than_the_capture_can_hold_is_not_unpacked() {
    const SIZE: u64 = 1 << 30;
    const PIECE: u64 = 15 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut scene = usual();
    scene.sample(10, &[CODE, CODE + 1]);
    let zeros = vec![0; PIECE as usize];
    let mut crc = 0;
    let frames = (0..SIZE).step_by(PIECE as usize).map(|offset| {
        let bytes = &zeros[..PIECE.min(SIZE - offset) as usize];
        crc = crc32c::crc32c_append(crc, bytes);
        let head = PieceHead {
            file: FileKey::of(&program("/bin/prog")).unwrap(),
            role: Role::Executable,
            size: SIZE,
            offset,
            crc,
        };
        let mut content = Vec::new();
        file::encode(&mut content, &head, bytes).unwrap();
        (FrameKind::PackedFile, content)
    });
    let path = put(dir.path(), &with_frames(scene.bytes(), frames));
    let run = measured(&["report", "--folded"], &path);
    is_civil("packed", &run);
    assert!(
        run.err.contains("larger than such a capture can hold"),
        "{}",
        run.err
    );
    assert!(run.peak < 150 << 10, "{} KiB", run.peak);
}

/// Times at both ends of what there is, and losses without number.
#[test]
fn absurd_times_and_counts_are_only_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let mut scene = usual();
    for time in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        scene.sample(time, &[CODE, CODE + 1]);
    }
    for class in LossClass::ALL {
        scene.writer.loss(class, Some(65_535), u64::MAX / 16);
    }
    let path = put(dir.path(), &scene.bytes());
    for view in VIEWS {
        is_civil(&format!("{view:?}"), &run(view, &path));
    }
}

/// Names that clear screens, set titles, turn text around, end lines, and begin scripts, in every place a capture has one.
#[test]
fn hostile_names_reach_no_terminal_and_no_page() {
    const NAME: &str = "/x/\u{1b}[2J\u{1b}]0;t\u{7}\r\n\u{9b}31m\u{202e}\u{2066}\u{2028}</script><script>alert(1)//;&\"'";
    let dir = tempfile::tempdir().unwrap();
    let mut header = header();
    for text in [
        &mut header.host,
        &mut header.boot_id,
        &mut header.kernel_release,
        &mut header.arch,
        &mut header.target,
        &mut header.tool,
        &mut header.events[0].name,
        &mut header.degraded[0],
    ] {
        *text = NAME.to_owned();
    }
    let mut scene = Scene::new(&header, &program(NAME), NAME);
    scene.sample(10, &[CODE + 8, CODE + 16, CODE + 32]);
    let path = put(dir.path(), &scene.bytes());
    for view in VIEWS.into_iter().chain([&["info", "--json"][..]]) {
        let run = run(view, &path);
        is_civil(&format!("{view:?}"), &run);
        if view.contains(&"--flamegraph") || view.contains(&"--html") {
            assert!(!run.out.contains("<script>alert"), "{}", run.out);
        }
    }
}

/// The capture is cut while a report of it is under way: no signal, and it is said.
#[test]
fn a_capture_that_shrinks_during_a_report_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut scene = usual();
    for frame in 0..40u64 {
        for i in 0..200 {
            let stack: Vec<u64> = (0..100)
                .map(|d| CODE + 16 * (frame * 997 + i * 31 + d))
                .collect();
            scene.sample(1_000_000_000 * frame + i, &stack);
        }
        scene.writer.flush().unwrap();
    }
    let path = put(dir.path(), &scene.bytes());
    let mut child = Command::new(env!("CARGO_BIN_EXE_profiler"))
        .args(["report", "--standard"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has begun, and waits for us to read on.
    let mut start = [0; 4096];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut start).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("became shorter while it was read"), "{err}");
}
