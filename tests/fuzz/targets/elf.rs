//! Any bytes as the ELF files that a capture brings along: one that was mapped, its debug file, the vdso.
#![no_main]

use bprof::capture::{Appender, CaptureWriter, Reader, SampleInput};
use bprof::event::{FileVersion, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp};
use bprof::format::aid::Vdso;
use bprof::format::descriptor::FrameKind;
use bprof::format::packed::FileKey;
use bprof::format::packed::file::{self, PieceHead, Role};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord, Task};
use bprof_fuzz::{capture, reports};
use libfuzzer_sys::fuzz_target;

/// Where the file and the vdso are mapped.
const FILE: u64 = 0x10_0000_0000;
const VDSO: u64 = 0x7fff_0000_0000;

fuzz_target!(|data: &[u8]| {
    let Some((last, image)) = data.split_last() else {
        return;
    };
    if let Ok(file) = build(image, *last) {
        let reader = Reader::from_bytes(file).expect("our own capture");
        reports::all(&reader);
    }
});

/// A capture with samples all over `image`.
fn build(image: &[u8], seed: u8) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let size = image.len() as u64;
    let mapped = |kind, path: &[u8]| MappedFile {
        kind,
        path: path.to_vec(),
        build_id: None,
        inode: None,
        version: (kind == MappedKind::File).then_some(FileVersion {
            size,
            mtime_sec: 1,
            mtime_nsec: 0,
        }),
        deleted: false,
    };
    let program = mapped(MappedKind::File, b"/bin/fuzzed");
    let mut writer = CaptureWriter::create_with_level(Vec::new(), &capture::header(), 1)?;
    let comm = writer.string(b"fuzzed")?;
    let mut placed = Vec::new();
    for (start, file) in [
        (FILE, program.clone()),
        (VDSO, mapped(MappedKind::Vdso, b"[vdso]")),
    ] {
        let file = writer.file(&file)?;
        let mapping = writer.mapping(&MappingTemplate {
            file,
            file_offset: 0,
            len: 1 << 24,
            prot: 5,
        })?;
        placed.push(PlacedMapping { start, mapping });
    }
    let space = writer.space(placed)?;
    let key = ProcessKey {
        tgid: Pid(7),
        start_time: Timestamp(1),
    };
    let (time, origin) = (Timestamp(0), Origin::Snapshot);
    let process = writer.add_process(key, Pid(1), false, origin, None)?;
    writer.process(ProcessRecord::Image {
        process,
        time,
        exec_number: 0,
        comm,
        origin,
    })?;
    writer.process(ProcessRecord::Space {
        process,
        time,
        space,
        origin,
    })?;
    let task = writer.task(Task {
        process,
        tid: Pid(7),
        exec_id: 0,
        comm,
    })?;
    let step = (size / 24).max(1) | 1;
    for i in 0..24 {
        let offset = i * step + u64::from(seed);
        let sample = SampleInput {
            time: Timestamp(10 + i),
            cpu: 0,
            task,
            user: &[FILE + offset, VDSO + offset, FILE + 0x1000 + 16 * i],
            kernel: &[],
            weight: 1,
            flags: 0,
            event: 0,
        };
        writer.sample(&sample)?;
    }
    writer.flush()?;
    if seed & 1 == 0 {
        let image = image.to_vec();
        writer.vdso(&Vdso { image })?;
    }
    let bytes = writer.finish(&bprof::format::end::End {
        time: Timestamp(100),
        reason: bprof::format::end::EndReason::Duration,
        samples: 24,
        lost: 0,
        processes: 1,
    })?;
    let reader = Reader::from_bytes(bytes.clone())?;
    let mut appender = Appender::new(bytes, &reader)?;
    let roles = match seed % 3 {
        0 => &[Role::Executable, Role::Debug][..],
        1 => &[Role::Executable],
        _ => &[Role::Debug],
    };
    for role in roles {
        let head = PieceHead {
            file: FileKey::of(&program).ok_or("no key")?,
            role: *role,
            size,
            offset: 0,
            crc: crc32c::crc32c(image),
        };
        let mut content = Vec::new();
        file::encode(&mut content, &head, image)?;
        appender.frame(FrameKind::PackedFile, &content)?;
    }
    Ok(appender.finish()?.0)
}
