//! `format-spec.md` is the law: its annotated capture is read, and written again byte for byte.

use bprof::capture::{CaptureWriter, IndexState, Reader, SampleInput};
use bprof::event::{
    BuildId, LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp, prot,
    sample_flags,
};
use bprof::format::descriptor::{self, Descriptor};
use bprof::format::end::{End, EndReason};
use bprof::format::frame::FrameDecompressor;
use bprof::format::header::{EventInfo, Header, Sampling};
use bprof::format::packed::FileKey;
use bprof::format::packed::symbols::{AtOffset, Builder, PackedSymbol, PackedSymbols};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};
use bprof::format::{index, skippable};

/// The bytes of the code block after the line `<!-- hex: NAME -->`: of each of its lines what is between
/// the offset and the `|`. Offsets must be right.
fn hex_block(name: &str) -> Vec<u8> {
    let spec = include_str!("../../format-spec.md");
    let marker = format!("<!-- hex: {name} -->");
    let (_, after) = spec
        .split_once(&marker)
        .expect("the specification has the block");
    let block = after
        .split("```")
        .nth(1)
        .expect("a code block follows the marker");
    let mut bytes = Vec::new();
    for line in block.lines().skip(1).filter(|l| !l.trim().is_empty()) {
        let (offset, rest) = line.split_once("  ").expect("offset, two blanks, bytes");
        assert_eq!(
            usize::from_str_radix(offset.trim(), 16),
            Ok(bytes.len()),
            "{line}"
        );
        let (hex, _) = rest.split_once('|').unwrap_or((rest, ""));
        let byte = |word| u8::from_str_radix(word, 16).expect("two hexadecimal digits");
        bytes.extend(hex.split_whitespace().map(byte));
    }
    bytes
}

/// A difference readable enough to put the right bytes into the specification.
fn assert_bytes(actual: &[u8], name: &str) {
    let expected = hex_block(name);
    let dump = |bytes: &[u8]| {
        let line = |(i, row): (usize, &[u8])| {
            let hex: Vec<_> = row.iter().map(|b| format!("{b:02x}")).collect();
            format!("{:04x}  {}", i * 16, hex.join(" "))
        };
        bytes
            .chunks(16)
            .enumerate()
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(actual == expected, "{name} is written as\n{}", dump(actual));
}

fn header() -> Header {
    Header {
        host: "box".to_owned(),
        boot_id: String::new(),
        kernel_release: "6.1".to_owned(),
        kernel_build_id: BuildId::new(&[0xab, 0xcd]),
        arch: "x86_64".to_owned(),
        page_size: 4096,
        clock_ticks: 100,
        cpus_online: 2,
        wall_offset_ns: -3,
        start_time: Timestamp(1000),
        events: vec![EventInfo {
            name: "cpu-clock".to_owned(),
            sampling: Sampling::Frequency(99),
        }],
        target: "all".to_owned(),
        user_stack_limit: 127,
        kernel_stack_limit: 127,
        tool: "p 1".to_owned(),
        degraded: vec![],
        user_stacks: bprof::event::UserStacks::default(),
    }
}

fn end() -> End {
    End {
        time: Timestamp(4000),
        reason: EndReason::Signal(2),
        samples: 3,
        lost: 5,
        processes: 1,
    }
}

pub fn capture() -> Vec<u8> {
    let mut writer = CaptureWriter::create(Vec::new(), &header()).unwrap();
    let comm = writer.string(b"sh").unwrap();
    let file = MappedFile {
        kind: MappedKind::File,
        path: b"/bin/sh".to_vec(),
        build_id: BuildId::new(&[0x12, 0x34]),
        inode: None,
        version: None,
        deleted: false,
    };
    let file = writer.file(&file).unwrap();
    let template = MappingTemplate {
        file,
        file_offset: 0x1000,
        len: 0x8000,
        prot: prot::READ | prot::EXEC,
    };
    let mapping = writer.mapping(&template).unwrap();
    let space = writer
        .space(vec![PlacedMapping {
            start: 0x40_0000,
            mapping,
        }])
        .unwrap();
    let key = ProcessKey {
        tgid: Pid(42),
        start_time: Timestamp(900),
    };
    let process = writer
        .add_process(key, Pid(1), false, Origin::Snapshot, None)
        .unwrap();
    let (time, origin) = (Timestamp::ZERO, Origin::Snapshot);
    writer
        .process(ProcessRecord::Image {
            process,
            time,
            exec_number: 0,
            comm,
            origin,
        })
        .unwrap();
    writer
        .process(ProcessRecord::Space {
            process,
            time,
            space,
            origin,
        })
        .unwrap();
    let task = writer
        .task(Task {
            process,
            tid: Pid(43),
            exec_id: 3,
            comm,
        })
        .unwrap();
    let mut sample = |time, cpu, user: &[u64], kernel: &[u64], flags| {
        let time = Timestamp(time);
        let sample = SampleInput {
            time,
            cpu,
            task,
            user,
            kernel,
            weight: 1,
            flags,
            event: 0,
        };
        writer.sample(&sample).unwrap();
    };
    sample(2000, 0, &[0x40_0010, 0x40_0100], &[], 0);
    sample(
        2010,
        1,
        &[0x40_0014, 0x40_0100],
        &[0xffff_ffff_8100_0000],
        sample_flags::IN_KERNEL,
    );
    sample(3003, 0, &[0x40_0010, 0x40_0100], &[], 0);
    writer.loss(LossClass::RingFull, Some(1), 5);
    writer.finish(&end()).unwrap()
}

#[test]
fn the_annotated_capture_is_read_as_the_text_says() {
    let reader = Reader::from_bytes(hex_block("file")).unwrap();
    assert_eq!(reader.header(), &header());
    assert_eq!(reader.end(), Some(&end()));
    assert_eq!(reader.index(), IndexState::Used);
    assert_eq!((reader.damage(), reader.cut_bytes()), (&[][..], 0));
    let mut segment = reader.segments().next().unwrap();
    let frame = segment.next_frame().unwrap().unwrap();
    let read: Vec<_> = frame
        .samples
        .iter()
        .map(|s| {
            let user: Vec<u64> = frame.tables.user.frames(s.user_stack).collect();
            let kernel: Vec<u64> = frame.tables.kernel.frames(s.kernel_stack).collect();
            (s.cpu, s.time.0, s.flags, user, kernel)
        })
        .collect();
    let kernel = vec![0xffff_ffff_8100_0000];
    assert_eq!(
        read,
        [
            (0, 2000, 0, vec![0x40_0010, 0x40_0100], vec![]),
            (0, 3003, 0, vec![0x40_0010, 0x40_0100], vec![]),
            (
                1,
                2010,
                sample_flags::IN_KERNEL,
                vec![0x40_0014, 0x40_0100],
                kernel
            ),
        ]
    );
    assert_eq!(frame.tables.losses.of_class(LossClass::RingFull), 5);
}

/// zstd may compress better some day: its bytes are compared by their content, all others as they are.
#[test]
fn the_values_of_the_text_are_written_as_the_annotated_bytes() {
    let spec = hex_block("file");
    let written = capture();
    let mut zstd = FrameDecompressor::new().unwrap();
    let mut content = Vec::new();
    let reader = Reader::from_bytes(written.clone()).unwrap();
    let in_spec = Reader::from_bytes(spec.clone()).unwrap();
    let header_end = reader.frames()[0].offset as usize;
    assert_eq!(written[..header_end], spec[..header_end], "header");
    let names = ["segment", "end"];
    assert_eq!(reader.frames().len(), names.len());
    let mut entries = Vec::new();
    for ((entry, spec_entry), name) in reader.frames().iter().zip(in_spec.frames()).zip(names) {
        let data = &written[entry.data_offset() as usize..entry.end() as usize];
        zstd.decompress(data, entry.descriptor.uncompressed, &mut content)
            .unwrap();
        assert_bytes(&content, name);
        // The descriptor, but for what depends on zstd.
        let in_file = Descriptor {
            compressed: spec_entry.descriptor.compressed,
            data_crc: spec_entry.descriptor.data_crc,
            ..entry.descriptor.clone()
        };
        let mut bytes = Vec::new();
        in_file.encode(&mut bytes);
        let start = spec_entry.offset as usize + skippable::PREFIX;
        assert_eq!(
            bytes,
            &spec[start..start + descriptor::LEN],
            "descriptor of {name}"
        );
        entries.push(spec_entry.clone());
    }
    let mut bytes = Vec::new();
    skippable::encode(&mut bytes, |out| {
        index::encode(out, &entries);
        Ok(())
    })
    .unwrap();
    let index_start = in_spec.frames().last().unwrap().end() as usize;
    assert_eq!(bytes, &spec[index_start..], "index");
}

#[test]
fn the_annotated_blocks_are_of_the_same_capture() {
    let spec = hex_block("file");
    let reader = Reader::from_bytes(spec.clone()).unwrap();
    let mut zstd = FrameDecompressor::new().unwrap();
    let mut content = Vec::new();
    for (entry, name) in reader.frames().iter().zip(["segment", "end"]) {
        let data = &spec[entry.data_offset() as usize..entry.end() as usize];
        zstd.decompress(data, entry.descriptor.uncompressed, &mut content)
            .unwrap();
        assert_bytes(&content, name);
    }
}

/// What `pack` writes, as the text has it.
#[test]
fn the_annotated_packed_symbols_are_written_and_read() {
    let key = FileKey {
        path: b"/bin/sh".to_vec(),
        build_id: BuildId::new(&[0x12, 0x34]),
        version: None,
    };
    let main = AtOffset::Symbol(PackedSymbol {
        name: "main".to_owned(),
        inside: Some(0x10),
        source: Some(("a.c".to_owned(), 7)),
        inlined: vec![("f".to_owned(), Some(("a.c".to_owned(), 3)))],
    });
    let nameless = AtOffset::Nameless { inside: Some(0x20) };
    let mut builder = Builder::new(key.clone());
    assert!(builder.push(0x1010, &main));
    assert!(builder.push(0x1100, &nameless));
    let mut bytes = Vec::new();
    builder.finish().encode(&mut bytes).unwrap();
    assert_bytes(&bytes, "packed");
    let read = PackedSymbols::decode(&hex_block("packed")).unwrap();
    assert_eq!(read.file, key);
    assert_eq!(read.offsets(), [0x1010, 0x1100]);
    assert_eq!(read.symbol(0), Some(main));
    assert_eq!(read.symbol(1), Some(nameless));
}
