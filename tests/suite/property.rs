//! Properties of the format: any content survives, no bytes make a reader panic or believe absurd counts.

use bprof::capture::Reader;
use bprof::event::{
    BuildId, FileVersion, InodeKey, LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey,
    Timestamp, UserStacks,
};
use bprof::format::end::{End, EndReason};
use bprof::format::error::FormatError;
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::limits;
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Space, Task};
use bprof::format::samples::Sample;
use bprof::format::segment::{KnownNodes, Loss, Matchers, SegmentFrame, StackNode, TableSizes};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![any::<u64>(), 0..2000u64, Just(u64::MAX)].prop_map(Timestamp)
}

fn build_id() -> impl Strategy<Value = Option<BuildId>> {
    vec(any::<u8>(), 1..=64).prop_map(|bytes| BuildId::new(&bytes))
}

fn origin() -> impl Strategy<Value = Origin> {
    select(vec![Origin::Event, Origin::Snapshot, Origin::Sample])
}

fn file() -> impl Strategy<Value = MappedFile> {
    use MappedKind::{Anonymous, File, Memfd, Special, Vdso, Vsyscall};
    let kind = select(vec![File, Anonymous, Vdso, Vsyscall, Memfd, Special]);
    let inode = any::<(u32, u32, u64)>();
    let version = any::<(u64, i64, u32)>();
    (
        kind,
        bytes(),
        build_id(),
        option::of(inode),
        option::of(version),
        any::<bool>(),
    )
        .prop_map(
            |(kind, path, build_id, inode, version, deleted)| MappedFile {
                kind,
                path,
                build_id,
                inode: inode.map(|(major, minor, inode)| InodeKey {
                    major,
                    minor,
                    inode,
                }),
                version: version.map(|(size, mtime_sec, mtime_nsec)| FileVersion {
                    size,
                    mtime_sec,
                    mtime_nsec,
                }),
                deleted,
            },
        )
}

/// Numbers of table entries are chosen as indices and fitted to the tables when these are known.
type Raw<T> = Vec<(T, Index)>;

fn record() -> impl Strategy<Value = ProcessRecord> {
    let (process, space, mapping) = (0u32, 0u32, 0u32);
    let string = 0u32;
    prop_oneof![
        (any::<(u32, u32, bool)>(), time(), origin(), any::<bool>()).prop_map(
            move |((tgid, parent, kernel), start_time, origin, cgroup)| ProcessRecord::Process {
                key: ProcessKey {
                    tgid: Pid(tgid),
                    start_time
                },
                parent: Pid(parent),
                kernel,
                origin,
                cgroup: cgroup.then_some(string),
            }
        ),
        (time(), any::<u32>(), origin()).prop_map(move |(time, exec_number, origin)| {
            ProcessRecord::Image {
                process,
                time,
                exec_number,
                comm: string,
                origin,
            }
        }),
        (time(), origin()).prop_map(move |(time, origin)| ProcessRecord::Space {
            process,
            time,
            space,
            origin
        }),
        (time(), any::<u64>()).prop_map(move |(time, start)| ProcessRecord::Map {
            process,
            time,
            placed: PlacedMapping { start, mapping }
        }),
        time().prop_map(move |time| ProcessRecord::Comm {
            process,
            time,
            comm: string
        }),
        time().prop_map(move |time| ProcessRecord::Cgroup {
            process,
            time,
            path: string
        }),
        time().prop_map(move |time| ProcessRecord::Exit { process, time }),
        time().prop_map(move |time| ProcessRecord::Unreadable {
            process,
            time,
            reason: string
        }),
    ]
}

prop_compose! {
    fn raw_nodes()(nodes in prop_oneof![
        vec((any::<Index>(), any::<Index>(), any::<bool>()), 0..40),
        vec((any::<Index>(), any::<Index>(), any::<bool>()), 240..400),
    ])
        -> Vec<(Index, Index, bool)> { nodes }
}

fn nodes(raw: &[(Index, Index, bool)], known: u32, [old, addresses]: [u32; 2]) -> Vec<StackNode> {
    if addresses == 0 {
        return Vec::new();
    }
    let node = |(i, (parent, address, chained)): (usize, &(Index, Index, bool))| {
        let newest = known + i as u32;
        let parent = if *chained {
            newest
        } else {
            parent.index(newest as usize + 1) as u32
        };
        StackNode {
            parent,
            address: address.index(addresses as usize) as u32,
        }
    };
    let mut nodes: Vec<StackNode> = raw.iter().enumerate().map(node).collect();
    // Calls that follow each other as before: those just before, and those of an earlier frame.
    const RUN: usize = 16;
    for i in 0..nodes.len() {
        nodes[i].address = match i / RUN % 4 {
            1 => nodes[i - RUN].address,
            2 if known > 0 => known_address(i as u32 % known, old),
            _ => nodes[i].address,
        };
    }
    nodes
}

fn known_address(node: u32, addresses: u32) -> u32 {
    node.wrapping_mul(7) % addresses
}

/// Nodes of earlier frames, as many as `before` says.
fn known_nodes(before: &TableSizes) -> [Vec<StackNode>; 2] {
    let nodes = |count, addresses| {
        let node = |i| StackNode {
            parent: i / 2,
            address: known_address(i, addresses),
        };
        (0..count).map(node).collect()
    };
    [
        nodes(before.user_nodes, before.user_addresses),
        nodes(before.kernel_nodes, before.kernel_addresses),
    ]
}

fn encode(frame: &SegmentFrame, before: &TableSizes) -> Result<(Vec<u8>, TableSizes), FormatError> {
    let [user, kernel] = &known_nodes(before);
    let mut bytes = Vec::new();
    let after = frame.encode(
        before,
        &mut Matchers::new(KnownNodes { user, kernel }),
        &mut bytes,
    )?;
    Ok((bytes, after))
}

fn decode(bytes: &[u8], before: &TableSizes) -> Result<(SegmentFrame, TableSizes), FormatError> {
    let [user, kernel] = &known_nodes(before);
    SegmentFrame::decode(bytes, before, KnownNodes { user, kernel })
}

prop_compose! {
    fn raw_sample()(
        time in time(), cpu in 0..4u32, task in any::<Index>(), user in any::<Index>(),
        kernel in any::<Index>(), weight in prop_oneof![Just(1), any::<u64>()],
        flags in prop_oneof![Just(0), any::<u8>()], event in 0..3u8,
    ) -> (Sample, [Index; 3]) {
        let sample =
            Sample { time, cpu, task: 0, user_stack: 0, kernel_stack: 0, weight, flags, event };
        (sample, [task, user, kernel])
    }
}

prop_compose! {
    fn loss()(
        class in select(&LossClass::ALL[..]), cpu in option::of(0..limits::CPUS as u32),
        count in any::<u64>(),
    ) -> Loss {
        Loss { class, cpu, count }
    }
}

/// Tables of earlier frames: all have entries, so that a frame may refer to some.
fn before() -> impl Strategy<Value = TableSizes> {
    (1..300u32, 1..300u32, 0..300u32, 1..300u32).prop_map(|(strings, other, nodes, addresses)| {
        TableSizes {
            events: 3,
            strings,
            string_bytes: 1000,
            files: other,
            mappings: other,
            spaces: other,
            placed: 5,
            records: other,
            processes: other,
            tasks: other,
            user_addresses: addresses,
            kernel_addresses: addresses,
            user_nodes: nodes,
            kernel_nodes: nodes / 2,
        }
    })
}

fn fit(index: &Index, len: usize) -> u32 {
    index.index(len) as u32
}

fn frame() -> impl Strategy<Value = (TableSizes, SegmentFrame)> {
    let metadata = (
        vec(bytes(), 0..5),
        vec(file(), 0..5),
        vec((any::<(u64, u64, u8)>(), any::<Index>()), 0..5),
        vec(vec((any::<u64>(), any::<Index>()), 0..5), 0..5),
        vec((record(), any::<Index>()), 0..12),
        vec((any::<(u32, u32)>(), any::<Index>()), 0..5),
    );
    let stacks = (
        btree_set(any::<u64>(), 0..20),
        btree_set(any::<u64>(), 0..20),
        raw_nodes(),
        raw_nodes(),
        vec(raw_sample(), 0..40),
        vec(loss(), 0..5),
    );
    (before(), metadata, stacks).prop_map(|(before, metadata, stacks)| {
        let (strings, files, mappings, spaces, records, tasks) = metadata;
        let (user_addresses, kernel_addresses, user_raw, kernel_raw, samples, losses) = stacks;
        let strings_len = before.strings as usize + strings.len();
        let files_len = before.files as usize + files.len();
        let mappings_len = before.mappings as usize + mappings.len();
        let mappings: Raw<(u64, u64, u8)> = mappings;
        let mut frame = SegmentFrame {
            mappings: mappings
                .into_iter()
                .map(|((file_offset, len, prot), i)| MappingTemplate {
                    file: fit(&i, files_len),
                    file_offset,
                    len,
                    prot,
                })
                .collect(),
            strings,
            files,
            losses,
            ..SegmentFrame::default()
        };
        let place = |(start, i): (u64, Index)| PlacedMapping {
            start,
            mapping: fit(&i, mappings_len),
        };
        let list = |list: Raw<u64>| Space {
            mappings: list.into_iter().map(place).collect(),
        };
        frame.spaces = spaces.into_iter().map(list).collect();
        let spaces_len = before.spaces as usize + frame.spaces.len();
        let mut processes = before.processes as usize;
        for (mut record, i) in records {
            let name = fit(&i, strings_len);
            match &mut record {
                ProcessRecord::Process { cgroup, .. } => {
                    *cgroup = cgroup.map(|_| name);
                    processes += 1;
                }
                ProcessRecord::Space { process, space, .. } => {
                    *process = fit(&i, processes);
                    *space = fit(&i, spaces_len);
                }
                ProcessRecord::Map {
                    process, placed, ..
                } => {
                    *process = fit(&i, processes);
                    placed.mapping = fit(&i, mappings_len);
                }
                ProcessRecord::Image {
                    process,
                    comm: string,
                    ..
                }
                | ProcessRecord::Comm {
                    process,
                    comm: string,
                    ..
                }
                | ProcessRecord::Cgroup {
                    process,
                    path: string,
                    ..
                }
                | ProcessRecord::Unreadable {
                    process,
                    reason: string,
                    ..
                } => {
                    *process = fit(&i, processes);
                    *string = name;
                }
                ProcessRecord::Exit { process, .. } => *process = fit(&i, processes),
            }
            frame.processes.push(record);
        }
        let task = |((tid, exec_id), i): ((u32, u32), Index)| Task {
            process: fit(&i, processes),
            tid: Pid(tid),
            exec_id,
            comm: fit(&i, strings_len),
        };
        frame.tasks = tasks.into_iter().map(task).collect();
        let tasks_len = before.tasks as usize + frame.tasks.len();
        frame.user_addresses = user_addresses.into_iter().collect();
        frame.kernel_addresses = kernel_addresses.into_iter().collect();
        let addresses = |old, new: &[u64]| [old, old + new.len() as u32];
        let known = addresses(before.user_addresses, &frame.user_addresses);
        frame.user_nodes = nodes(&user_raw, before.user_nodes, known);
        let known = addresses(before.kernel_addresses, &frame.kernel_addresses);
        frame.kernel_nodes = nodes(&kernel_raw, before.kernel_nodes, known);
        let users = before.user_nodes as usize + frame.user_nodes.len() + 1;
        let kernels = before.kernel_nodes as usize + frame.kernel_nodes.len() + 1;
        let sample = |(sample, [task, user, kernel]): (Sample, [Index; 3])| Sample {
            task: fit(&task, tasks_len),
            user_stack: fit(&user, users),
            kernel_stack: fit(&kernel, kernels),
            ..sample
        };
        frame.samples = samples.into_iter().map(sample).collect();
        frame.samples.sort_by_key(|s| (s.cpu, s.time));
        (before, frame)
    })
}

fn header() -> impl Strategy<Value = Header> {
    let text = || "\\PC{0,12}";
    let strings = (text(), text(), text(), text(), text(), text());
    let sampling = prop_oneof![
        any::<u64>().prop_map(Sampling::Frequency),
        any::<u64>().prop_map(Sampling::Period)
    ];
    let event = (text(), sampling).prop_map(|(name, sampling)| EventInfo { name, sampling });
    let numbers = any::<(u32, u32, u32, i64, u32, u32)>();
    (
        strings,
        build_id(),
        numbers,
        time(),
        vec(event, 0..4),
        vec(text(), 0..3),
        (0u32..4).prop_map(UserStacks::of_number),
    )
        .prop_map(
            |(strings, kernel_build_id, numbers, start_time, events, degraded, user_stacks)| {
                let (host, boot_id, kernel_release, arch, target, tool) = strings;
                let (page_size, clock_ticks, cpus_online, wall_offset_ns, user, kernel) = numbers;
                Header {
                    host,
                    boot_id,
                    kernel_release,
                    kernel_build_id,
                    arch,
                    page_size,
                    clock_ticks,
                    cpus_online,
                    wall_offset_ns,
                    start_time,
                    events,
                    target,
                    user_stack_limit: user,
                    kernel_stack_limit: kernel,
                    tool,
                    degraded,
                    user_stacks,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn segment_frames_survive_exactly((before, frame) in frame()) {
        let (bytes, after) = encode(&frame, &before).unwrap();
        let (back, sizes) = decode(&bytes, &before).unwrap();
        prop_assert_eq!(&back, &frame);
        prop_assert_eq!(sizes, after);
        prop_assert_eq!(encode(&back, &before).unwrap().0, bytes);
    }

    /// Every prefix is an error, or a frame with fewer sections whose samples are none or all.
    #[test]
    fn cut_segment_frames_are_refused((before, frame) in frame(), cut in any::<Index>()) {
        let (bytes, _) = encode(&frame, &before).unwrap();
        prop_assume!(!bytes.is_empty());
        let cut = &bytes[..cut.index(bytes.len())];
        if let Ok((back, _)) = decode(cut, &before) {
            prop_assert!(back.samples.is_empty() || back.samples == frame.samples);
        }
    }

    #[test]
    fn changed_segment_frames_never_panic(
        (before, frame) in frame(),
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let (mut bytes, _) = encode(&frame, &before).unwrap();
        prop_assume!(!bytes.is_empty());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok((back, sizes)) = decode(&bytes, &before) {
            // What was accepted is consistent: it can be written.
            prop_assert_eq!(encode(&back, &before).map(|(_, sizes)| sizes), Ok(sizes));
        }
    }

    #[test]
    fn headers_survive(header in header()) {
        let mut bytes = Vec::new();
        header.encode(&mut bytes).unwrap();
        let reader = Reader::from_bytes(bytes).unwrap();
        prop_assert_eq!(reader.header(), &header);
        prop_assert_eq!((reader.frames().len(), reader.cut_bytes()), (0, 0));
    }

    #[test]
    fn ends_survive(
        time in time(),
        reason in prop_oneof![
            any::<i32>().prop_map(EndReason::CommandExit), Just(EndReason::TargetsGone),
            Just(EndReason::Duration), any::<i32>().prop_map(EndReason::Signal),
            ".*".prop_map(EndReason::Failure),
        ],
        numbers in any::<(u64, u64, u64)>(),
        header in header(),
    ) {
        let (samples, lost, processes) = numbers;
        let end = End { time, reason, samples, lost, processes };
        let writer = bprof::capture::CaptureWriter::create(Vec::new(), &header).unwrap();
        let reader = Reader::from_bytes(writer.finish(&end).unwrap()).unwrap();
        prop_assert_eq!(reader.end(), Some(&end));
    }

    #[test]
    fn noise_is_never_a_capture_nor_a_panic(
        noise in vec(any::<u8>(), 0..300), header in header(), before in before(),
    ) {
        let mut bytes = Vec::new();
        header.encode(&mut bytes).unwrap();
        bytes.extend(&noise);
        let reader = Reader::from_bytes(bytes).unwrap();
        prop_assert_eq!(reader.samples(), 0);
        let told = reader.cut_bytes() > 0 || !reader.damage().is_empty();
        prop_assert_eq!(told, !noise.is_empty());
        prop_assert!(Reader::from_bytes(noise.clone()).is_err());
        let _ = decode(&noise, &before);
    }
}

#[test]
fn absurd_counts_are_refused_before_they_allocate() {
    // Each known section with a count of the largest number there is.
    let absurd = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for kind in 1..=12u8 {
        for fill in [&absurd[..], &[0x80, 0x80, 0x80, 1]] {
            let mut payload = vec![kind];
            payload.extend((fill.len() as u32).to_le_bytes());
            payload.extend(fill);
            let decoded = decode(&payload, &TableSizes::new(1));
            assert!(decoded.is_err(), "section {kind}: {decoded:?}");
        }
    }
    let long = [11, 0xff, 0xff, 0xff, 0xff, 1];
    let err = decode(&long, &TableSizes::new(1)).unwrap_err();
    assert_eq!(
        err.to_string(),
        "segment frame, byte 5: section is cut short"
    );
}

#[test]
fn unknown_sections_are_skipped_and_known_ones_keep_their_order() {
    let frame = SegmentFrame {
        strings: vec![b"a".to_vec()],
        ..SegmentFrame::default()
    };
    let before = TableSizes::new(1);
    let (bytes, _) = encode(&frame, &before).unwrap();
    let mut later = bytes.clone();
    later.extend([200, 3, 0, 0, 0, 1, 2, 3]);
    assert_eq!(decode(&later, &before).unwrap().0, frame);
    let twice = [&bytes[..], &bytes[..]].concat();
    assert!(decode(&twice, &before).is_err());
}

#[test]
fn references_to_nothing_are_refused_when_written_and_when_read() {
    let before = TableSizes {
        strings: 1,
        processes: 1,
        ..TableSizes::new(1)
    };
    let task = Task {
        process: 0,
        tid: Pid(1),
        exec_id: 0,
        comm: 0,
    };
    let good = SegmentFrame {
        tasks: vec![task],
        ..SegmentFrame::default()
    };
    let (bytes, _) = encode(&good, &before).unwrap();
    for sizes in [
        TableSizes {
            strings: 0,
            ..before
        },
        TableSizes {
            processes: 0,
            ..before
        },
    ] {
        assert!(encode(&good, &sizes).is_err());
        assert!(decode(&bytes, &sizes).is_err());
    }
    // A record may not speak of a process that comes after it.
    let exit = ProcessRecord::Exit {
        process: 1,
        time: Timestamp(1),
    };
    let process = ProcessRecord::Process {
        key: ProcessKey {
            tgid: Pid(5),
            start_time: Timestamp(1),
        },
        parent: Pid(0),
        kernel: false,
        origin: Origin::Event,
        cgroup: None,
    };
    let records = |processes| SegmentFrame {
        processes,
        ..SegmentFrame::default()
    };
    let right = records(vec![process.clone(), exit.clone()]);
    assert!(encode(&right, &before).is_ok());
    assert!(encode(&records(vec![exit, process]), &before).is_err());
}
