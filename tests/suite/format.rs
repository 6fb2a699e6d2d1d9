//! The capture format as a whole: what is written is read, and damage is told.

use bprof::capture::{CaptureWriter, Damage, IndexState, Reader, SampleInput};
use bprof::event::{
    BuildId, FileVersion, InodeKey, LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey,
    Timestamp, prot, sample_flags,
};
use bprof::format::aid::{ElfInfo, JitSymbol, KernelSymbol, KernelSymbols, Load, PerfMap, Vdso};
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
    }
}

fn end() -> End {
    End {
        time: Timestamp(9_000_000_000),
        reason: EndReason::CommandExit(3),
        samples: 9,
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
    writer.perf_map(&perf_map()).unwrap();
    writer.elf_info(&elf_info()).unwrap();
    writer.finish(&end()).unwrap()
}

fn perf_map() -> PerfMap {
    PerfMap {
        process: key(),
        since: Timestamp::ZERO,
        until: Timestamp(77),
        symbols: vec![JitSymbol {
            start: 1,
            len: 2,
            name: b"f;\xff".to_vec(),
        }],
    }
}

fn elf_info() -> ElfInfo {
    ElfInfo {
        path: b"/usr/lib/a b\xff.so".to_vec(),
        inode: None,
        build_id: BuildId::new(&[1, 2, 3, 4]),
        loads: vec![Load {
            offset: 1,
            vaddr: 2,
            file_size: 3,
            mem_size: 4,
            flags: 5,
        }],
    }
}

/// All that samples say, with stacks written out, and all damage found on the way.
fn content(reader: &Reader) -> (Vec<(Sample, Vec<u64>, Vec<u64>)>, Vec<Damage>) {
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
    use FrameKind::{ElfInfo, KernelSymbols, PerfMap, Segment, Vdso};
    let expected = [
        Segment,
        Segment,
        Segment,
        KernelSymbols,
        Vdso,
        PerfMap,
        ElfInfo,
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
        (aids.perf_maps, aids.elf),
        (vec![perf_map()], vec![elf_info()])
    );
    assert_eq!(aids.damage, []);
}
