//! The capture format as a whole: what is written is read, and damage is told.

use bprof::capture::{CaptureWriter, Damage, IndexState, Reader, SampleInput};
use bprof::event::{
    BuildId, FileVersion, InodeKey, LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey,
    Timestamp, prot, sample_flags,
};
use bprof::format::aid::{
    ElfLayout, ElfLayouts, JitSymbol, KernelSymbol, KernelSymbols, Load, PerfMap, PerfMaps, Vdso,
};
use bprof::format::descriptor::FrameKind;
use bprof::format::end::{End, EndReason};
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};
use bprof::format::samples::Sample;
use bprof::format::segment::{Loss, StackNode};

/// A header with every kind of field in use.
pub fn header() -> Header {
    Header {
        host: "box".to_owned(),
        boot_id: "0b8ea4f6-2c1c-4d8e-9c63-d0d1a5d4c3b2".to_owned(),
        kernel_release: "6.18.0".to_owned(),
        kernel_build_id: BuildId::new(&[0xab; 20]),
        arch: "x86_64".to_owned(),
        page_size: 4096,
        clock_ticks: 100,
        cpus_online: 2,
        wall_offset_ns: -5,
        start_time: Timestamp(1_000_000_000),
        events: vec![EventInfo {
            name: "cpu-clock".to_owned(),
            sampling: Sampling::Frequency(999),
        }],
        target: "system-wide".to_owned(),
        user_stack_limit: 127,
        kernel_stack_limit: 127,
        tool: "profiler 0.1.0".to_owned(),
        degraded: vec!["kernel symbols: hidden".to_owned()],
        user_stacks: bprof::event::UserStacks::Both,
    }
}

fn end() -> End {
    end_of(9)
}

fn end_of(samples: u64) -> End {
    End {
        time: Timestamp(9_000_000_000),
        reason: EndReason::CommandExit(3),
        samples,
        lost: 5,
        processes: 1,
    }
}

fn key() -> ProcessKey {
    ProcessKey {
        tgid: Pid(42),
        start_time: Timestamp(123_456_789),
    }
}

fn library() -> MappedFile {
    MappedFile {
        kind: MappedKind::File,
        path: b"/usr/lib/a b\xff.so".to_vec(),
        build_id: BuildId::new(&[1, 2, 3, 4]),
        inode: Some(InodeKey {
            major: 8,
            minor: 300,
            inode: 1 << 40,
        }),
        version: Some(FileVersion {
            size: 4096,
            mtime_sec: -1,
            mtime_nsec: 999_999_999,
        }),
        deleted: true,
    }
}

/// A small capture: two segments of two and one frames, all kinds of records, aid frames, end, index.
fn small_capture() -> Vec<u8> {
    let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
    for segment in 0..2u64 {
        let comm = writer.string(b"worker").unwrap();
        let file = writer.file(&library()).unwrap();
        let template = MappingTemplate {
            file,
            file_offset: 0x1000,
            len: 0x2000,
            prot: prot::READ | prot::EXEC,
        };
        let mapping = writer.mapping(&template).unwrap();
        let placed = PlacedMapping {
            start: 0x7f00_0000_0000,
            mapping,
        };
        let space = writer.space(vec![placed]).unwrap();
        let process = writer
            .add_process(key(), Pid(1), false, Origin::Snapshot, Some(comm))
            .unwrap();
        let image = ProcessRecord::Image {
            process,
            time: Timestamp::ZERO,
            exec_number: 0,
            comm,
            origin: Origin::Snapshot,
        };
        writer.process(image).unwrap();
        let time = Timestamp::ZERO;
        let origin = Origin::Snapshot;
        writer
            .process(ProcessRecord::Space {
                process,
                time,
                space,
                origin,
            })
            .unwrap();
        let task = Task {
            process,
            tid: Pid(43),
            exec_id: 7,
            comm,
        };
        let task = writer.task(task).unwrap();
        for frame in 0..2 - segment {
            for i in 0..3u64 {
                let leaf = 0x7f00_0000_0100 + i;
                let sample = SampleInput {
                    time: Timestamp(2_000_000_000 + segment * 1_000_000_000 + frame * 500 + i),
                    cpu: (i % 2) as u32,
                    task,
                    user: &[leaf, 0x7f00_0000_0200, 0x7f00_0000_0300],
                    kernel: if i == 2 {
                        &[0xffff_ffff_8100_0000, u64::MAX]
                    } else {
                        &[]
                    },
                    weight: 1,
                    flags: if i == 2 { sample_flags::IN_KERNEL } else { 0 },
                    event: 0,
                };
                writer.sample(&sample).unwrap();
            }
            writer.loss(LossClass::RingFull, Some(1), 2);
            writer.loss(LossClass::SideBand, None, 7);
            writer.flush().unwrap();
        }
        writer.start_segment().unwrap();
    }
    let symbol = KernelSymbol {
        start: 0xffff_ffff_8100_0000,
        end: 0xffff_ffff_8100_0040,
        name: "do_idle".to_owned(),
        module: Some("m".to_owned()),
    };
    let symbols = KernelSymbols {
        stext: 0xffff_ffff_8100_0000,
        symbols: vec![symbol],
    };
    writer.kernel_symbols(&symbols).unwrap();
    writer
        .vdso(&Vdso {
            image: vec![0x7f, b'E', b'L', b'F'],
        })
        .unwrap();
    let maps = vec![perf_map(), perf_map()];
    writer.perf_maps(&PerfMaps { maps }).unwrap();
    writer.elf_layouts(&layouts()).unwrap();
    writer.finish(&end()).unwrap()
}

fn perf_map() -> PerfMap {
    PerfMap {
        process: key(),
        previous: Timestamp::ZERO,
        until: Timestamp(77),
        fresh: true,
        ended: vec![7, 1 << 40],
        symbols: vec![JitSymbol {
            start: 1,
            len: 2,
            since: Timestamp(5),
            name: b"f;\xff".to_vec(),
        }],
    }
}

fn layouts() -> ElfLayouts {
    let load = Load {
        offset: 1,
        vaddr: 2,
        file_size: 3,
        mem_size: 4,
        flags: 5,
    };
    let with_id = ElfLayout {
        path: b"/usr/lib/a b\xff.so".to_vec(),
        build_id: BuildId::new(&[1, 2, 3, 4]),
        inode: None,
        version: None,
        loads: vec![load, load],
    };
    let without = ElfLayout {
        path: b"/bin/x".to_vec(),
        build_id: None,
        inode: Some(InodeKey {
            major: 8,
            minor: 1,
            inode: 300,
        }),
        version: Some(FileVersion {
            size: 7,
            mtime_sec: -1,
            mtime_nsec: 9,
        }),
        loads: Vec::new(),
    };
    ElfLayouts {
        layouts: vec![with_id, without],
    }
}

/// A sample, its user frames, its kernel frames.
type WholeSample = (Sample, Vec<u64>, Vec<u64>);

/// All that samples say, with stacks written out, and all damage found on the way.
fn content(reader: &Reader) -> (Vec<WholeSample>, Vec<Damage>) {
    let mut samples = Vec::new();
    let mut damage = reader.damage().to_vec();
    for mut segment in reader.segments() {
        loop {
            match segment.next_frame() {
                Ok(Some(frame)) => {
                    for sample in frame.samples {
                        let user = frame.tables.user.frames(sample.user_stack).collect();
                        let kernel = frame.tables.kernel.frames(sample.kernel_stack).collect();
                        samples.push((*sample, user, kernel));
                    }
                }
                Ok(None) => break,
                Err(spoiled) => damage.push(spoiled),
            }
        }
    }
    (samples, damage)
}

#[test]
fn everything_written_is_read() {
    let bytes = small_capture();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    assert_eq!(reader.header(), &header());
    assert_eq!(reader.end(), Some(&end()));
    assert_eq!(reader.index(), IndexState::Used);
    assert_eq!((reader.damage(), reader.cut_bytes()), (&[][..], 0));
    assert_eq!((reader.samples(), reader.lost_samples()), (9, 6));
    let kinds: Vec<_> = reader.frames().iter().map(|f| f.descriptor.kind).collect();
    use FrameKind::{ElfLayouts, KernelSymbols, PerfMaps, Segment, Vdso};
    let expected = [
        Segment,
        Segment,
        Segment,
        KernelSymbols,
        Vdso,
        PerfMaps,
        ElfLayouts,
        FrameKind::End,
    ];
    assert_eq!(kinds, expected);

    let (samples, damage) = content(&reader);
    assert_eq!(damage, []);
    assert_eq!(samples.len(), 9);
    let times: Vec<_> = samples
        .iter()
        .map(|(s, ..)| (s.cpu, s.time.0 - 2_000_000_000))
        .collect();
    assert_eq!(
        &times[..6],
        [(0, 0), (0, 2), (1, 1), (0, 500), (0, 502), (1, 501)]
    );
    let (in_kernel, user, kernel) = &samples[1];
    assert_eq!(
        user,
        &[0x7f00_0000_0102, 0x7f00_0000_0200, 0x7f00_0000_0300]
    );
    assert_eq!(kernel, &[0xffff_ffff_8100_0000, u64::MAX]);
    assert_eq!(in_kernel.flags, sample_flags::IN_KERNEL);

    let mut segment = reader.segments().next().unwrap();
    let frame = segment.next_frame().unwrap().unwrap();
    assert_eq!(frame.new.process_records, 0..3);
    assert_eq!(frame.new.user_nodes, 0..5);
    assert_eq!(frame.tables.files, [library()]);
    assert_eq!(frame.tables.string(frame.tables.tasks[0].comm), b"worker");
    let root = frame.tables.user.nodes[0];
    assert_eq!(
        root,
        StackNode {
            parent: 0,
            address: 4
        }
    );
    segment.next_frame().unwrap().unwrap();
    assert!(segment.next_frame().unwrap().is_none());
    let losses: Vec<_> = segment.tables().losses.iter().collect();
    let ring = Loss {
        class: LossClass::RingFull,
        cpu: Some(1),
        count: 4,
    };
    assert_eq!(
        losses,
        [
            ring,
            Loss {
                class: LossClass::SideBand,
                cpu: None,
                count: 14
            }
        ]
    );

    let aids = reader.aids();
    assert_eq!(aids.kernel.symbols[0].name, "do_idle");
    assert_eq!(aids.vdso.unwrap().image, b"\x7fELF");
    assert_eq!(
        (aids.perf_maps, aids.layouts),
        (vec![perf_map(), perf_map()], layouts().layouts)
    );
    assert_eq!(aids.damage, []);
}

/// Where the index begins: after the end frame.
fn index_offset(bytes: &[u8]) -> usize {
    let reader = Reader::from_bytes(bytes.to_vec()).unwrap();
    reader.frames().last().unwrap().end() as usize
}

#[test]
fn zstd_itself_accepts_the_whole_file() {
    let bytes = small_capture();
    let mut content = Vec::new();
    zstd::stream::copy_decode(&bytes[..], &mut content).unwrap();
    let reader = Reader::from_bytes(bytes).unwrap();
    let sizes = reader.frames().iter().map(|f| f.descriptor.uncompressed);
    assert_eq!(content.len() as u64, sizes.sum::<u64>());
}

#[test]
fn the_index_changes_nothing() {
    let bytes = small_capture();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let expected = content(&whole);
    let at = index_offset(&bytes);
    let same = |bytes: Vec<u8>, case: &str| {
        let reader = Reader::from_bytes(bytes).unwrap();
        assert_eq!(reader.frames(), whole.frames(), "{case}");
        assert_eq!(content(&reader).0, expected.0, "{case}");
        assert_eq!(reader.end(), whole.end(), "{case}");
        reader
    };
    let without = same(bytes[..at].to_vec(), "no index");
    assert_eq!(
        (without.index(), without.cut_bytes()),
        (IndexState::Missing, 0)
    );
    assert_eq!(content(&without), expected);
    for cut in at + 1..bytes.len() {
        let reader = same(bytes[..cut].to_vec(), "cut index");
        assert_eq!(reader.cut_bytes(), (cut - at) as u64);
        assert_eq!(content(&reader).1, []);
    }
    for i in at..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[i] ^= 1 << bit;
            let reader = same(flipped, "flipped index");
            assert_ne!(reader.index(), IndexState::Used, "byte {i}");
        }
    }
}

#[test]
fn frames_appended_after_the_index_are_found() {
    let bytes = small_capture();
    let at = index_offset(&bytes);
    // What comes after an index is not in it: the file is walked, and the new frame has its number.
    let mut appended = bytes.clone();
    let mut other = CaptureWriter::create(Vec::new(), &header()).unwrap();
    for _ in 0..9 {
        other.vdso(&Vdso { image: vec![9] }).unwrap();
    }
    let other = Reader::from_bytes(other.finish(&end()).unwrap()).unwrap();
    let ninth = &other.frames()[8];
    let mut frame = Vec::new();
    bprof::format::skippable::encode(&mut frame, |out| {
        ninth.descriptor.encode(out);
        Ok(())
    })
    .unwrap();
    let mut zstd = bprof::format::frame::FrameCompressor::new(3).unwrap();
    let mut data = Vec::new();
    zstd.compress(&[1, 9], &mut data).unwrap();
    appended.extend(frame);
    appended.extend(data);
    let reader = Reader::from_bytes(appended).unwrap();
    assert_eq!(reader.index(), IndexState::Scanned);
    assert_eq!(reader.frames().len(), 9);
    assert_eq!((reader.damage(), reader.cut_bytes()), (&[][..], 0));
    assert_eq!(reader.frames()[8].offset, bytes.len() as u64);
    assert!(at < bytes.len());
    assert_eq!(reader.aids().vdso.unwrap().image, [9]);
}

#[test]
fn a_cut_anywhere_is_told_and_costs_only_what_is_cut() {
    let bytes = small_capture();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let expected = content(&whole).0;
    let starts: Vec<u64> = whole.frames().iter().map(|f| f.offset).collect();
    let first = starts[0] as usize;
    for cut in 0..index_offset(&bytes) {
        let Ok(reader) = Reader::from_bytes(bytes[..cut].to_vec()) else {
            assert!(cut < first, "cut at {cut}");
            continue;
        };
        assert!(cut >= first, "cut at {cut}");
        let kept = whole
            .frames()
            .iter()
            .filter(|f| f.end() <= cut as u64)
            .count();
        assert_eq!(reader.frames(), &whole.frames()[..kept], "cut at {cut}");
        let (samples, damage) = content(&reader);
        assert_eq!(damage, [], "cut at {cut}");
        assert_eq!(samples, expected[..samples.len()], "cut at {cut}");
        assert_eq!(samples.len(), 3 * kept.min(3));
        let rest = cut as u64 - reader.frames().last().map_or(starts[0], |f| f.end());
        assert_eq!(reader.cut_bytes(), rest, "cut at {cut}");
        assert_eq!(reader.end(), None);
    }
}

#[test]
fn any_flipped_bit_is_told_and_changes_no_sample() {
    let bytes = small_capture();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let expected = content(&whole).0;
    let at = index_offset(&bytes);
    for with_index in [true, false] {
        let bytes = if with_index { &bytes[..] } else { &bytes[..at] };
        for i in 0..at {
            for bit in 0..8 {
                let mut flipped = bytes.to_vec();
                flipped[i] ^= 1 << bit;
                let Ok(reader) = Reader::from_bytes(flipped) else {
                    assert!((i as u64) < whole.frames()[0].offset, "byte {i} bit {bit}");
                    continue;
                };
                let (samples, damage) = content(&reader);
                let told = !damage.is_empty()
                    || !reader.aids().damage.is_empty()
                    || reader.cut_bytes() > 0;
                assert!(told, "byte {i} bit {bit} index {with_index}: nothing told");
                assert!(samples.len() <= expected.len());
                assert!(
                    samples.iter().all(|s| expected.contains(s)),
                    "byte {i} bit {bit}: a sample changed"
                );
                // A damaged frame spoils no other segment: at least one of the two is whole.
                assert!(
                    samples.len() >= 3,
                    "byte {i} bit {bit}: {} samples",
                    samples.len()
                );
            }
        }
    }
}

#[test]
fn a_lost_frame_spoils_the_rest_of_its_segment_only() {
    let bytes = small_capture();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let first = &whole.frames()[0];
    let mut gone = bytes[..first.offset as usize].to_vec();
    gone.extend(&bytes[first.end() as usize..]);
    let reader = Reader::from_bytes(gone).unwrap();
    assert_ne!(reader.index(), IndexState::Used);
    let (samples, damage) = content(&reader);
    assert_eq!(samples.len(), 3);
    let words: Vec<_> = damage.iter().map(|d| d.kind.to_string()).collect();
    assert_eq!(
        words,
        [
            "frames 0 to 0 are missing",
            "frame 1 of segment 1 follows, frame 0 is missing",
        ]
    );
    assert_eq!((damage[1].frames, damage[1].samples), (1, 3));
}

#[test]
fn a_second_capture_and_zeros_at_the_end_are_told_apart() {
    let bytes = small_capture();
    let expected = content(&Reader::from_bytes(bytes.clone()).unwrap()).0;
    let two = Reader::from_bytes([&bytes[..], &bytes[..]].concat()).unwrap();
    let (samples, damage) = content(&two);
    assert_eq!(samples, expected);
    assert!(
        damage[0]
            .kind
            .to_string()
            .contains("another capture begins here")
    );
    let zeros = Reader::from_bytes([&bytes[..], &[0; 5000]].concat()).unwrap();
    assert_eq!((zeros.damage(), zeros.cut_bytes()), (&[][..], 5000));
    assert_eq!(content(&zeros).0, expected);
    let noise = Reader::from_bytes([&bytes[..], &[7; 5000]].concat()).unwrap();
    assert_eq!(noise.damage()[0].offset, bytes.len() as u64);
}

#[test]
fn what_is_no_capture_is_refused_with_a_reason() {
    let message = |bytes: &[u8]| match Reader::from_bytes(bytes.to_vec()) {
        Ok(_) => "readable".to_owned(),
        Err(err) => err.to_string(),
    };
    assert_eq!(message(b""), "the file is empty");
    for no_capture in [&b"x"[..], b"PERFILE2 and so on and so on", &[0; 4096]] {
        assert!(
            message(no_capture).contains("not a capture of profiler"),
            "{no_capture:?}"
        );
    }
    let bytes = small_capture();
    assert!(message(&bytes[..40]).contains("ends inside its header, after 40 bytes"));
    let patched = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        // The header's checksum is right again: only what was patched is wrong.
        let end = 8 + u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let crc = crc32c::crc32c(&bytes[8..end - 4]);
        bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        message(&bytes)
    };
    assert!(patched(16, 2).contains("version 2, this program reads version 1"));
    assert_eq!(patched(18, 9), "readable");
    assert!(patched(24, 8).contains("features 0x8"));
    assert_eq!(patched(32, 4), "readable");
}

#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.bprof");
    std::fs::write(&path, small_capture()).unwrap();
    assert_eq!(Reader::open(&path).unwrap().samples(), 9);
    let message = |path: &std::path::Path| Reader::open(path).unwrap_err().to_string();
    assert!(message(dir.path()).contains("is a directory, not a regular file"));
    assert!(message("/dev/zero".as_ref()).contains("is a device"));
    assert_eq!(message(&dir.path().join("none")), "cannot open the capture");
    let fifo = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap();
    assert!(made.success());
    assert!(message(&fifo).contains("is a FIFO"));
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.bprof");
    std::fs::write(&path, small_capture()).unwrap();
    let reader = Reader::open(&path).unwrap();
    let second = reader.frames()[1].offset;
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(second)
        .unwrap();
    let (samples, damage) = content(&reader);
    assert_eq!(samples.len(), 3);
    assert!(damage[0].to_string().contains("became shorter"));
    assert_eq!((damage[0].samples, damage[1].samples), (3, 3));
}

/// Takes `room` bytes, then no more: a full disk.
struct FullDisk {
    bytes: Vec<u8>,
    room: usize,
}

impl std::io::Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = bytes.len().min(self.room - self.bytes.len());
        if len == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_a_capture_that_is_cut() {
    let mut writer = CaptureWriter::create(
        FullDisk {
            bytes: Vec::new(),
            room: 900,
        },
        &header(),
    )
    .unwrap();
    let mut flush = |time| {
        writer.loss(LossClass::RingFull, None, time);
        let result = writer.flush();
        (
            result.map_err(|e| e.to_string()),
            writer.get_ref().bytes.clone(),
        )
    };
    let failed = (1..100)
        .map(&mut flush)
        .find(|(result, _)| result.is_err())
        .unwrap();
    assert!(
        failed
            .0
            .unwrap_err()
            .starts_with("cannot write the capture (at byte ")
    );
    assert_eq!(failed.1.len(), 900);
    let (again, bytes) = flush(1);
    assert!(
        again
            .unwrap_err()
            .starts_with("writing the capture failed before")
    );
    assert_eq!(bytes.len(), 900);
    let reader = Reader::from_bytes(bytes).unwrap();
    assert!(reader.cut_bytes() > 0 && reader.lost_samples() > 0);
    assert_eq!(reader.damage(), []);
}

#[test]
fn odd_stacks_survive_and_deep_ones_keep_their_leaf_end() {
    let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
    let comm = writer.string(b"").unwrap();
    let process = writer
        .add_process(key(), Pid(0), true, Origin::Sample, None)
        .unwrap();
    let task = writer
        .task(Task {
            process,
            tid: Pid(0),
            exec_id: 0,
            comm,
        })
        .unwrap();
    let deep: Vec<u64> = (0..5000).collect();
    let stacks = [&[][..], &[0], &[u64::MAX, 0, u64::MAX], &[0, 0, 0], &deep];
    for (i, user) in stacks.iter().enumerate() {
        let time = Timestamp(u64::MAX - 4 + i as u64);
        let sample = SampleInput {
            time,
            cpu: u32::MAX,
            task,
            user,
            kernel: &[],
            weight: u64::MAX,
            flags: 0,
            event: 0,
        };
        writer.sample(&sample).unwrap();
    }
    let reader = Reader::from_bytes(writer.finish(&end_of(5)).unwrap()).unwrap();
    let (samples, damage) = content(&reader);
    assert_eq!(damage, []);
    let read: Vec<_> = samples.iter().map(|(_, user, _)| user.clone()).collect();
    assert_eq!(read[..4], stacks[..4]);
    assert_eq!(read[4], deep[..4096]);
    assert_eq!(samples[4].0.flags, sample_flags::USER_TRUNCATED);
    assert_eq!(reader.frames()[0].descriptor.truncated, 1);
}

/// A writer with one task.
fn one_task() -> (CaptureWriter<Vec<u8>>, u32) {
    let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
    let comm = writer.string(b"task").unwrap();
    let process = writer
        .add_process(key(), Pid(1), false, Origin::Event, None)
        .unwrap();
    let task = Task {
        process,
        tid: Pid(42),
        exec_id: 1,
        comm,
    };
    let task = writer.task(task).unwrap();
    (writer, task)
}

fn plain<'a>(time: u64, cpu: u32, task: u32, user: &'a [u64]) -> SampleInput<'a> {
    let time = Timestamp(time);
    SampleInput {
        time,
        cpu,
        task,
        user,
        kernel: &[],
        weight: 1,
        flags: 0,
        event: 0,
    }
}

#[test]
fn an_idle_second_is_a_few_hundred_bytes() {
    let (mut writer, task) = one_task();
    let mut noise = 12345u64;
    let mut sizes = Vec::new();
    for tick in 0..300u64 {
        for cpu in 0..2 {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let late = (noise >> 33) % 3000;
            let stack: Vec<u64> = (0..20).map(|i| 0x40_0000 + i * 64 + tick % 5).collect();
            let sample = plain((1 << 40) + tick * 10_101_010 + late, cpu, task, &stack);
            writer.sample(&sample).unwrap();
        }
        if tick % 100 == 99 {
            let before = writer.bytes_written();
            writer.flush().unwrap();
            sizes.push(writer.bytes_written() - before);
        }
    }
    assert!(
        sizes.iter().all(|size| *size < 800) && sizes[1] < 600,
        "{sizes:?} bytes"
    );
}

#[test]
fn full_tables_refuse_strings_and_a_new_segment_makes_room() {
    let (mut writer, task) = one_task();
    writer.sample(&plain(1, 0, task, &[1])).unwrap();
    let string = |n: usize| vec![n as u8; 65_536 - n / 256];
    let mut strings = 0;
    let mut told = 0;
    while writer.string(&string(strings)).is_ok() {
        strings += 1;
        told += usize::from(writer.segment_is_full());
        if strings % 100 == 0 {
            writer.flush().unwrap();
        }
    }
    assert!(
        (510..=512).contains(&strings),
        "{strings} strings are 32 MiB"
    );
    assert!(told > 400, "told {told} times before");
    writer.start_segment().unwrap();
    assert!(!writer.segment_is_full());
    assert_eq!(writer.string(&string(0)), Ok(0));
    let reader = Reader::from_bytes(writer.finish(&end_of(1)).unwrap()).unwrap();
    assert_eq!(reader.segments().len(), 2);
    let (samples, damage) = content(&reader);
    assert_eq!((samples.len(), damage), (1, vec![]));
}

#[test]
fn a_descriptor_that_lies_makes_its_frame_damaged() {
    let bytes = small_capture();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let at = index_offset(&bytes);
    let entry = whole.frames()[2].clone();
    let lie = |change: &dyn Fn(&mut bprof::format::descriptor::Descriptor)| {
        let mut descriptor = entry.descriptor.clone();
        change(&mut descriptor);
        let mut encoded = Vec::new();
        descriptor.encode(&mut encoded);
        let mut bytes = bytes[..at].to_vec();
        let start = entry.offset as usize + 8;
        bytes[start..start + encoded.len()].copy_from_slice(&encoded);
        let reader = Reader::from_bytes(bytes).unwrap();
        let (samples, damage) = content(&reader);
        assert_eq!(samples.len(), 6, "{descriptor:?}");
        damage
            .into_iter()
            .map(|d| d.to_string())
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert!(lie(&|d| d.samples = 2).contains("number of samples cannot be 2"));
    assert!(lie(&|d| d.first = Timestamp(1)).contains("first time cannot be 1"));
    assert!(lie(&|d| d.last.0 += 1).contains("last time"));
    assert!(lie(&|d| d.lost = 1).contains("number of lost samples"));
    assert!(lie(&|d| d.truncated = 1).contains("number of truncated samples"));
    assert!(lie(&|d| d.uncompressed += 1).contains("content size"));
    assert!(lie(&|d| d.ordinal = 1).contains("frame 1 of segment 2 follows, frame 0 is missing"));
    assert!(lie(&|d| d.segment = 1).contains("frame 0 of segment 1 follows, frame 2 is missing"));
    assert!(lie(&|d| d.data_crc ^= 1).contains("checksum of the compressed bytes"));
}

#[test]
fn kinds_of_later_versions_are_skipped_unless_required() {
    let bytes = small_capture();
    let whole = Reader::from_bytes(bytes.clone()).unwrap();
    let at = index_offset(&bytes);
    let vdso = whole.frames()[4].clone();
    let with_kind = |kind, required| {
        let mut encoded = Vec::new();
        let kind = FrameKind::from_number(kind);
        let descriptor = bprof::format::descriptor::Descriptor {
            kind,
            required,
            ..vdso.descriptor.clone()
        };
        descriptor.encode(&mut encoded);
        let mut bytes = bytes[..at].to_vec();
        let start = vdso.offset as usize + 8;
        bytes[start..start + encoded.len()].copy_from_slice(&encoded);
        Reader::from_bytes(bytes)
    };
    for kind in [4, 5, 12, 255] {
        let reader = with_kind(kind, false).unwrap();
        assert_eq!((reader.damage(), reader.samples()), (&[][..], 9));
        assert!(reader.aids().vdso.is_none());
        let refused = with_kind(kind, true).unwrap_err().to_string();
        assert!(
            refused.contains(&format!("needs frames of kind {kind}")),
            "{refused}"
        );
    }
}
