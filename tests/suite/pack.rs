//! `profiler pack`: a packed capture is reported without any of the files as it was with them.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bprof::capture::{Appender, CaptureWriter, IndexState, Reader};
use bprof::event::{BuildId, FileVersion, MappedFile};
use bprof::format::aid::{ElfLayout, ElfLayouts, Load};
use bprof::format::descriptor::FrameKind;
use bprof::format::frame::FrameDecompressor;
use bprof::format::header::Header;
use bprof::format::packed::FileKey;
use bprof::format::packed::file::{self, PieceHead, Role};
use bprof::format::packed::symbols::{AtOffset, Builder, PackedSymbol};
use bprof::format::packed::table::PackedTable;
use bprof::symbolize::functions;

use super::golden::golden;
use super::report::fixture::{self, Bench, Elf, Run, Scene, Taken, profiler, subcommand, usual};

/// Lines and inlined functions, in a program that is long enough for addresses in the middle of its functions.
const INLINED: &str = "
volatile int sink;
static inline __attribute__((always_inline)) int inner(int x) { sink += x; sink ^= x; return sink; }
static inline __attribute__((always_inline)) int middle(int x) { sink -= x; return inner(x) + inner(x + 1); }
__attribute__((noinline)) int leaf(int x) { sink += x; x = middle(x); sink *= x; return sink + x; }
__attribute__((noinline)) int mid(int x) { sink += x; return leaf(x) + leaf(x + 1) + sink; }
int main(void) { sink = 1; return mid(3) + mid(4) + sink; }
";

const VIEWS: [&[&str]; 3] = [&["--folded"], &["--standard"], &["--top", "50"]];

/// A copy of a golden capture, and where the files it needs are.
struct Copy {
    dir: tempfile::TempDir,
    capture: PathBuf,
}

impl Copy {
    fn of(name: &str) -> Copy {
        let dir = tempfile::tempdir().unwrap();
        let capture = dir.path().join("run.bprof");
        fs::copy(golden(name), &capture).unwrap();
        Copy { dir, capture }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pack(&self, options: &[&str]) -> Run {
        pack(&self.capture, options)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.capture).unwrap()
    }
}

/// `profiler pack --symfs FILES OPTIONS CAPTURE`.
fn pack(capture: &Path, options: &[&str]) -> Run {
    let mut command = subcommand("pack", options);
    Run::of(command.arg("--symfs").arg(golden("files")).arg(capture))
}

/// All views where there are none of the files, or below `root`.
fn views(capture: &Path, root: &Path) -> Vec<String> {
    let view = |view: &&[&str]| {
        let mut command = profiler(view);
        Run::of(command.arg("--symfs").arg(root).arg(capture)).ok()
    };
    VIEWS.iter().map(view).collect()
}

#[track_caller]
fn assert_same_without_files(packed: &Path, original: &Path) {
    let with = views(original, &golden("files"));
    let without = views(packed, &golden("src"));
    for ((with, without), view) in with.iter().zip(&without).zip(VIEWS) {
        assert_same(without, with, view);
    }
}

/// Fails with the first line that differs.
#[track_caller]
fn assert_same(found: &str, expected: &str, view: &[&str]) {
    let pairs = found.lines().zip(expected.lines());
    let lines = (found.lines().count(), expected.lines().count());
    if let Some((found, expected)) = pairs.into_iter().find(|(a, b)| a != b) {
        panic!("{view:?}: found\n{found}\nexpected\n{expected}");
    }
    assert_eq!(lines.0, lines.1, "{view:?}: lines");
    assert!(found == expected, "{view:?}");
}

fn count(capture: &Path, kind: FrameKind) -> usize {
    let reader = Reader::open(capture).unwrap();
    let frames = reader.frames().iter();
    frames.filter(|f| f.descriptor.kind == kind).count()
}

/// The capture `original` with those frames of `packed` that come after its own and are of a kind wanted.
fn with_frames(original: &[u8], packed: &[u8], wanted: &[FrameKind]) -> Vec<u8> {
    let before = Reader::from_bytes(original.to_vec()).unwrap();
    let after = Reader::from_bytes(packed.to_vec()).unwrap();
    let whole = original[..before.whole_len() as usize].to_vec();
    let mut out = Appender::new(whole, &before).unwrap();
    let mut zstd = FrameDecompressor::new().unwrap();
    let mut content = Vec::new();
    for entry in after.frames().iter().skip(before.frames().len()) {
        if wanted.contains(&entry.descriptor.kind) {
            let data = &packed[entry.data_offset() as usize..entry.end() as usize];
            zstd.decompress(data, entry.descriptor.uncompressed, &mut content)
                .unwrap();
            out.frame(entry.descriptor.kind, &content).unwrap();
        }
    }
    out.finish().unwrap().0
}

#[test]
fn each_level_reports_without_files_as_with_them_and_appends_once() {
    for name in ["calls.bprof", "family.bprof"] {
        let copy = Copy::of(name);
        let original = golden(name);
        let mut before = copy.bytes();
        for (level, again) in [
            ("hits", &["hits"][..]),
            ("symtab", &["symtab", "hits"]),
            ("full", &["full", "symtab", "hits"]),
        ] {
            let run = copy.pack(&["--symbols", level]);
            assert!(run.err.contains(": packed "), "{}", run.err);
            run.ok();
            let after = copy.bytes();
            assert!(after.len() > before.len(), "{name} {level}");
            assert_eq!(after[..before.len()], before, "{name} {level}: append-only");
            assert_same_without_files(&copy.capture, &original);
            for level in again {
                let run = copy.pack(&["--symbols", level]);
                assert!(run.err.contains("nothing was added"), "{}", run.err);
                run.ok();
                assert!(copy.bytes() == after, "{name} {level} again");
            }
            // zstd takes all of it, and the index serves it.
            let reader = Reader::open(&copy.capture).unwrap();
            assert_eq!(reader.index(), IndexState::Used);
            let mut content = Vec::new();
            zstd::stream::copy_decode(&after[..], &mut content).unwrap();
            before = after;
        }
    }
}

#[test]
fn full_at_once_has_all_levels() {
    let copy = Copy::of("family.bprof");
    copy.pack(&["--symbols", "full"]).ok();
    for kind in [
        FrameKind::PackedSymbols,
        FrameKind::PackedTable,
        FrameKind::PackedFile,
    ] {
        assert_eq!(count(&copy.capture, kind), 3, "{kind:?}");
    }
}

#[test]
fn files_alone_name_everything_and_tables_alone_name_functions() {
    for name in ["calls.bprof", "family.bprof"] {
        let copy = Copy::of(name);
        copy.pack(&["--symbols", "full"]).ok();
        let original = fs::read(golden(name)).unwrap();
        let packed = copy.bytes();
        let only = |kind, name: &str| {
            let path = copy.path(name);
            fs::write(&path, with_frames(&original, &packed, &[kind])).unwrap();
            path
        };
        let files = only(FrameKind::PackedFile, "files.bprof");
        assert_same_without_files(&files, &golden(name));

        let tables = only(FrameKind::PackedTable, "tables.bprof");
        let folded = |path: &Path, root: &Path| {
            let mut command = profiler(&["--folded"]);
            Run::of(command.arg("--symfs").arg(root).arg(path)).ok()
        };
        let found = folded(&tables, &golden("src"));
        // Functions that were inlined are known to DWARF only.
        let lines = match name {
            "calls.bprof" => [
                "begin;main;alpha 61",
                "main;drive 30",
                "second_caller;beta 3",
            ],
            _ => [
                "main;children;child_spin 17",
                "begin;one_spin 24",
                "begin;two_spin 25",
            ],
        };
        for line in lines {
            assert!(found.contains(&format!("{line}\n")), "{line}: {found}");
        }
        assert!(
            !found.contains("[calls+0x") && !found.contains("[family+0x"),
            "{found}"
        );
    }
}

#[test]
fn lines_and_inlined_functions_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("inlined");
    let source = dir.path().join("inlined.c");
    fs::write(&source, INLINED).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O1", "-g", "-fcf-protection=none", "-Wl,--build-id", "-o"]);
    assert!(gcc.arg(&path).arg(&source).status().unwrap().success());
    let elf = Elf::open(path.clone());
    let mut s = Scene::new();
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    s.map(app, 0, fixture::BASE, &elf.mapped());
    let at = |function: &str, inside| fixture::BASE + elf.offset(function) + inside;
    for inside in 0..60 {
        s.sample(Taken {
            user: &[at("leaf", inside), at("mid", 9), at("main", 9)],
            ..Taken::of(app, 100, "app", 1_000_000_000 + inside)
        });
    }
    let capture = dir.path().join("run.bprof");
    fs::write(&capture, s.finish()).unwrap();
    let report = |view: &str| Run::report(&[view], &capture).ok();
    let expected: Vec<String> = ["--standard", "--folded"].map(report).into();
    assert!(expected[0].contains("inlined.c:3"), "{}", expected[0]);
    assert!(expected[1].contains("leaf;middle;inner"), "{}", expected[1]);
    Run::of(subcommand("pack", &[""; 0]).arg(&capture)).ok();
    fs::remove_file(&path).unwrap();
    fs::remove_file(&source).unwrap();
    assert_eq!(["--standard", "--folded"].map(report), expected[..]);
}

/// Lines and inlined functions of the kernel, which are of one kernel only.
#[test]
fn what_is_packed_of_a_kernel_holds_for_that_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let id = |byte| BuildId::new(&[byte; 20]).unwrap();
    let report = |packed_for: u8, view: &str| {
        let header = Header {
            kernel_build_id: Some(id(1)),
            ..fixture::header()
        };
        let mut s = Scene {
            writer: CaptureWriter::create(Vec::new(), &header).unwrap(),
        };
        let thread = s.kernel_thread(7, "kworker");
        s.kernel_symbols();
        s.sample(Taken {
            kernel: &[fixture::KERNEL + 0x110, fixture::KERNEL + 0x11],
            ..Taken::of(thread, 7, "kworker", 2_005_000_000)
        });
        let bytes = s.finish();
        let mut symbols = Builder::new(FileKey::of_kernel(&id(packed_for)));
        let symbol = PackedSymbol {
            name: "entry".to_owned(),
            inside: Some(0x10),
            source: Some(("entry.S".to_owned(), 7)),
            inlined: vec![("inner".to_owned(), Some(("inner.h".to_owned(), 3)))],
        };
        // A return address is looked up one byte before it.
        assert!(symbols.push(fixture::KERNEL + 0x10, &AtOffset::Symbol(symbol)));
        let mut content = Vec::new();
        symbols.finish().encode(&mut content).unwrap();
        let reader = Reader::from_bytes(bytes.clone()).unwrap();
        let mut out = Appender::new(bytes, &reader).unwrap();
        out.frame(FrameKind::PackedSymbols, &content).unwrap();
        let path = dir.path().join("run.bprof");
        fs::write(&path, out.finish().unwrap().0).unwrap();
        Run::report(&[view], &path).ok()
    };
    let folded = report(1, "--folded");
    assert_eq!(
        folded,
        "kworker-7;entry_[k];inner_[k];do_syscall_64_[k] 1\n"
    );
    let standard = report(1, "--standard");
    assert!(
        standard.contains("entry+0x11 ([kernel]) entry.S:7"),
        "{standard}"
    );
    assert!(standard.contains("inner.h:3"), "{standard}");
    let folded = report(2, "--folded");
    assert_eq!(
        folded,
        "kworker-7;entry_SYSCALL_64_[k];do_syscall_64_[k] 1\n"
    );
}

#[test]
fn a_file_without_a_build_id_is_packed_and_stays_unverified() {
    let bench = Bench::new();
    let path = bench.path("plain");
    let run = std::process::Command::new("objcopy")
        .args(["--remove-section", ".note.gnu.build-id"])
        .args([&bench.elf.path, &path])
        .status();
    assert!(run.unwrap().success());
    let meta = fs::metadata(&path).unwrap();
    let mapped = |mtime_sec| MappedFile {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        build_id: None,
        version: Some(FileVersion {
            size: meta.len(),
            mtime_sec,
            mtime_nsec: meta.mtime_nsec() as u32,
        }),
        ..bench.elf.mapped()
    };
    let capture = |mtime| {
        let mut s = Scene::new();
        let app = s.process(100, 500);
        s.image(app, 0, 0, "app");
        s.map(app, 0, fixture::BASE, &mapped(mtime));
        let at = fixture::BASE + bench.elf.offset("leaf") + 1;
        s.sample(Taken {
            user: &[at],
            ..Taken::of(app, 100, "app", 1_000_000_000)
        });
        s.finish()
    };
    let run = bench.capture("run.bprof", &capture(meta.mtime()));
    let before = Run::report(&["--folded"], &run);
    assert!(before.err.contains("1 unverified"), "{}", before.err);
    assert_eq!(before.out, "app-100;leaf 1\n");
    Run::of(subcommand("pack", &["--symbols", "full"]).arg(&run)).ok();
    fs::remove_file(&path).unwrap();
    let after = Run::report(&["--folded"], &run);
    assert_eq!((after.out, after.err), (before.out, before.err));

    // Packed for one version of the path, it names no other.
    let packed = fs::read(&run).unwrap();
    let kinds = [
        FrameKind::PackedSymbols,
        FrameKind::PackedTable,
        FrameKind::PackedFile,
    ];
    let other = capture(meta.mtime() + 1);
    // Its own frames are as many as those of the first.
    let other = bench.capture("other.bprof", &with_frames(&other, &packed, &kinds));
    let folded = Run::report(&["--folded"], &other).ok();
    assert!(folded.starts_with("app-100;[plain+0x"), "{folded}");
}

#[test]
fn a_cut_capture_is_cut_to_its_last_whole_frame_and_packed() {
    let copy = Copy::of("calls.bprof");
    let bytes = copy.bytes();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let frame = reader.frames()[2].clone();
    let cut = frame.end() as usize - 5;
    fs::write(&copy.capture, &bytes[..cut]).unwrap();
    let out = copy.path("out.bprof");
    copy.pack(&["-o", out.to_str().unwrap()]).ok();
    assert_eq!(copy.bytes(), bytes[..cut], "with -o the capture stays");
    let run = copy.pack(&[]);
    let taken_away = format!(
        "the last {} bytes are no whole frame",
        cut as u64 - frame.offset
    );
    assert!(run.err.contains(&taken_away), "{}", run.err);
    run.ok();
    let packed = copy.bytes();
    assert_eq!(
        packed[..frame.offset as usize],
        bytes[..frame.offset as usize]
    );
    assert_eq!(fs::read(&out).unwrap(), packed);

    let whole = copy.path("whole.bprof");
    fs::write(&whole, &bytes[..frame.offset as usize]).unwrap();
    assert_same_without_files(&copy.capture, &whole);
    let mut command = profiler(&["--folded"]);
    let run = Run::of(command.arg("--symfs").arg(golden("src")).arg(&copy.capture));
    assert!(run.err.contains("capture: cut short"), "{}", run.err);
}

#[test]
fn a_pack_that_broke_off_is_completed_by_the_next() {
    let copy = Copy::of("family.bprof");
    let original = copy.bytes();
    copy.pack(&["--symbols", "full"]).ok();
    let packed = copy.bytes();
    let step = (packed.len() - original.len()) / 17;
    for cut in (original.len()..packed.len()).step_by(step) {
        fs::write(&copy.capture, &packed[..cut]).unwrap();
        let reader = Reader::open(&copy.capture).unwrap();
        assert_eq!((reader.samples(), reader.damage()), (200, &[][..]), "{cut}");
        copy.pack(&["--symbols", "full"]).ok();
        assert_same_without_files(&copy.capture, &golden("family.bprof"));
        for kind in [
            FrameKind::PackedSymbols,
            FrameKind::PackedTable,
            FrameKind::PackedFile,
        ] {
            assert_eq!(count(&copy.capture, kind), 3, "{cut} {kind:?}");
        }
    }
}

#[test]
fn a_damaged_capture_is_left_as_it_is_and_its_copy_stays_damaged() {
    let copy = Copy::of("calls.bprof");
    let reader = Reader::open(&copy.capture).unwrap();
    let frame = reader.frames()[1].clone();
    for at in [frame.offset + 20, frame.data_offset() + 20] {
        let mut bytes = fs::read(golden("calls.bprof")).unwrap();
        bytes[at as usize] ^= 0x10;
        fs::write(&copy.capture, &bytes).unwrap();
        let run = copy.pack(&[]);
        assert_eq!(run.code, Some(1));
        assert!(
            run.err.contains("is damaged and left as it is"),
            "{}",
            run.err
        );
        assert_eq!(copy.bytes(), bytes);

        let out = copy.path(&format!("out{at}.bprof"));
        let run = copy.pack(&["-o", out.to_str().unwrap()]);
        assert!(
            run.err.contains("is damaged, and so is the copy"),
            "{}",
            run.err
        );
        run.ok();
        let report = |capture: &Path, root: PathBuf| {
            let mut command = profiler(&["--folded"]);
            let run = Run::of(command.arg("--symfs").arg(root).arg(capture));
            assert_eq!(run.code, Some(1), "{}", run.err);
            run.out
        };
        let expected = report(&copy.capture, golden("files"));
        assert_eq!(report(&out, golden("src")), expected);
    }
    // Behind another capture nothing can be appended.
    let twice = fs::read(golden("calls.bprof")).unwrap().repeat(2);
    fs::write(&copy.capture, &twice).unwrap();
    let out = copy.path("twice.bprof");
    for options in [&[][..], &["-o", out.to_str().unwrap()]] {
        let run = copy.pack(options);
        assert_eq!(run.code, Some(1));
        assert!(
            run.err.contains("another capture begins here"),
            "{}",
            run.err
        );
    }
    assert!(!out.exists());
    assert_eq!(copy.bytes(), twice);
}

#[test]
fn any_flipped_byte_of_a_pack_is_told_and_gives_no_wrong_name() {
    let copy = Copy::of("calls.bprof");
    let original = copy.bytes();
    copy.pack(&["--symbols", "full"]).ok();
    let packed = copy.bytes();
    let reader = Reader::open(&copy.capture).unwrap();
    let first = reader.frames().iter();
    let mut first = first.filter(|f| f.offset >= original.len() as u64);
    let hits = first.next().unwrap().clone();
    assert_eq!(hits.descriptor.kind, FrameKind::PackedSymbols);
    let end = reader.frames().last().unwrap().end();
    // The index of the state before: it changes no frame, but the new one is not used.
    let before = Reader::from_bytes(original.clone()).unwrap();
    for at in before.frames().last().unwrap().end()..hits.offset {
        let mut flipped = packed.clone();
        flipped[at as usize] ^= 1 << (at % 8);
        let found = Reader::from_bytes(flipped).unwrap();
        let offsets = |r: &Reader| r.frames().iter().map(|f| f.offset).collect::<Vec<_>>();
        assert_eq!(offsets(&found), offsets(&reader), "byte {at}");
        assert_ne!(found.index(), IndexState::Used, "byte {at}");
    }
    // Every byte of the hits, some of the others: in this process, a program for each would take long.
    let places = (hits.offset..hits.end()).chain((hits.end()..end).step_by(7));
    for at in places {
        let mut flipped = packed.clone();
        flipped[at as usize] ^= 1 << (at % 8);
        let reader = Reader::from_bytes(flipped).unwrap();
        let (_, damage) = reader.pack();
        let told = !damage.is_empty() || !reader.damage().is_empty();
        assert!(told, "byte {at}");
        assert_eq!(reader.samples(), 151);
    }
}

#[test]
fn a_capture_that_is_being_written_is_left_alone() {
    let copy = Copy::of("calls.bprof");
    let before = copy.bytes();
    let recorder = File::options().write(true).open(&copy.capture).unwrap();
    rustix::fs::flock(&recorder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let out = copy.path("out.bprof");
    for options in [&[][..], &["-o", out.to_str().unwrap()]] {
        let run = copy.pack(options);
        assert_eq!(run.code, Some(1));
        assert!(run.err.contains("is still being recorded"), "{}", run.err);
    }
    assert!(!out.exists());
    assert_eq!(copy.bytes(), before);
    // Closing it is not enough: a child that another test is just starting has it too for a moment.
    rustix::fs::flock(&recorder, rustix::fs::FlockOperation::Unlock).unwrap();
    copy.pack(&[]).ok();
}

#[test]
fn the_copy_never_replaces_what_is_no_capture() {
    let copy = Copy::of("calls.bprof");
    let before = copy.bytes();
    fs::set_permissions(&copy.capture, fs::Permissions::from_mode(0o640)).unwrap();
    let out = copy.path("out.bprof");
    let option = ["-o", out.to_str().unwrap()];

    fs::write(&out, "notes").unwrap();
    let run = copy.pack(&option);
    assert_eq!(run.code, Some(1));
    assert!(
        run.err.contains("is not a capture: it is left alone"),
        "{}",
        run.err
    );
    assert_eq!(fs::read_to_string(&out).unwrap(), "notes");

    fs::write(&out, &before).unwrap();
    let run = copy.pack(&option);
    assert!(run.err.contains("out.bprof.old now"), "{}", run.err);
    run.ok();
    assert_eq!(fs::read(copy.path("out.bprof.old")).unwrap(), before);
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o777, 0o640);
    assert_eq!(copy.bytes(), before);
    assert_same_without_files(&out, &copy.capture);

    let run = copy.pack(&["-o", copy.capture.to_str().unwrap()]);
    assert!(run.err.contains("is the capture itself"), "{}", run.err);
    assert_eq!(copy.bytes(), before);
    let run = pack(Path::new("-"), &[]);
    assert!(
        run.err.contains("or with -o OUT where the packed one goes"),
        "{}",
        run.err
    );
    let run = copy.pack(&["-o", "-"]);
    assert_eq!(run.code, Some(2), "{}", run.err);
    // Nothing lies about.
    let mut names: Vec<_> = fs::read_dir(copy.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["out.bprof", "out.bprof.old", "run.bprof"]);
}

#[test]
fn files_that_are_missing_are_named() {
    let copy = Copy::of("family.bprof");
    let before = copy.bytes();
    let mut command = subcommand("pack", &["--symfs"]);
    let run = Run::of(command.arg(golden("src")).arg(&copy.capture));
    assert!(
        run.err
            .contains("there is nothing to pack; nothing was added"),
        "{}",
        run.err
    );
    assert!(
        run.err.contains(
            "/opt/bprof-golden/two (build ID ebf8f54b6474e4e4bab40ce7aee6c5fbc3229174): file missing, 75 frames"
        ),
        "{}",
        run.err
    );
    run.ok();
    assert_eq!(copy.bytes(), before);
    // What is packed is no longer missing.
    copy.pack(&[]).ok();
    let mut command = subcommand("pack", &["--symfs"]);
    let run = Run::of(command.arg(golden("src")).arg(&copy.capture));
    assert!(!run.err.contains("could not be packed"), "{}", run.err);
}

/// Runs with a file away from its place.
fn without<T>(path: &Path, run: impl FnOnce() -> T) -> T {
    let away = path.with_extension("away");
    fs::rename(path, &away).unwrap();
    let result = run();
    fs::rename(&away, path).unwrap();
    result
}

/// What was packed for one path says nothing of another, though their build IDs are the same: tools that move code about in a
/// file leave it.
#[test]
fn symbols_of_one_path_are_not_those_of_another_with_its_build_id() {
    let bench = Bench::new();
    let patched = MappedFile {
        path: b"/opt/patched".to_vec(),
        ..bench.elf.mapped()
    };
    let mut s = Scene::new();
    let at = fixture::BASE + bench.elf.offset("leaf") + 1;
    for (pid, file) in [(100, bench.elf.mapped()), (101, patched)] {
        let process = s.process(pid, 500);
        s.image(process, 0, 0, "app");
        s.map(process, 0, fixture::BASE, &file);
        s.sample(Taken {
            user: &[at],
            ..Taken::of(process, pid, "app", 1_000_000_000)
        });
    }
    let run = bench.capture("run.bprof", &s.finish());
    let before = Run::report(&["--folded"], &run);
    assert!(before.out.contains("app-100;leaf 1"), "{}", before.out);
    assert!(before.out.contains("app-101;[patched+0x"), "{}", before.out);
    Run::of(subcommand("pack", &["--symbols", "symtab"]).arg(&run)).ok();
    let after = without(&bench.elf.path, || Run::report(&["--folded"], &run));
    assert_eq!((after.out, after.err), (before.out, before.err));
}

/// A packed file holds for other paths of its build ID, by the layout that was recorded for them.
#[test]
fn a_packed_file_names_another_path_by_that_ones_layout() {
    let bench = Bench::new();
    let elf = fs::read(&bench.elf.path).unwrap();
    let patched = MappedFile {
        path: b"/opt/patched".to_vec(),
        ..bench.elf.mapped()
    };
    let moved = functions::loads(&*elf).into_iter().map(|load| Load {
        offset: load.offset + 0x1000,
        ..load
    });
    let mut s = Scene::of(&patched, [bench.elf.offset("leaf") + 0x1001]);
    let layouts = vec![ElfLayout {
        path: patched.path,
        build_id: patched.build_id,
        inode: None,
        version: None,
        loads: moved.collect(),
    }];
    s.writer.elf_layouts(&ElfLayouts { layouts }).unwrap();
    let bytes = s.finish();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut out = Appender::new(bytes, &reader).unwrap();
    let head = PieceHead {
        file: FileKey::of(&bench.elf.mapped()).unwrap(),
        role: Role::Executable,
        size: elf.len() as u64,
        offset: 0,
        crc: crc32c::crc32c(&elf),
    };
    let mut content = Vec::new();
    file::encode(&mut content, &head, &elf).unwrap();
    out.frame(FrameKind::PackedFile, &content).unwrap();
    let capture = bench.capture("run.bprof", &out.finish().unwrap().0);
    let folded = Run::report(&["--folded"], &capture).ok();
    assert_eq!(folded, "app-100;leaf 1\n");
}

/// Appends one packed file, in pieces as given, to the usual capture over `elf`, whose own file is taken away.
fn with_pieces(bench: &Bench, key: &FileKey, size: u64, pieces: &[(u64, u32, &[u8])]) -> Run {
    let bytes = usual(&bench.elf).finish();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut out = Appender::new(bytes, &reader).unwrap();
    let mut content = Vec::new();
    for (offset, crc, piece) in pieces {
        let head = PieceHead {
            file: key.clone(),
            role: Role::Executable,
            size,
            offset: *offset,
            crc: *crc,
        };
        content.clear();
        file::encode(&mut content, &head, piece).unwrap();
        out.frame(FrameKind::PackedFile, &content).unwrap();
    }
    let capture = bench.capture("run.bprof", &out.finish().unwrap().0);
    without(&bench.elf.path, || Run::report(&["--folded"], &capture))
}

#[test]
fn packed_files_are_believed_only_when_they_are_whole_and_right() {
    let bench = Bench::new();
    let elf = fs::read(&bench.elf.path).unwrap();
    let key = FileKey::of(&bench.elf.mapped()).unwrap();
    let size = elf.len() as u64;
    let half = elf.len() / 2;
    let crc = crc32c::crc32c(&elf);
    let (first, second) = elf.split_at(half);
    let first_crc = crc32c::crc32c(first);
    let run = |pieces: &[(u64, u32, &[u8])]| with_pieces(&bench, &key, size, pieces);
    let named = "app-100;[truncated];mid;leaf 1";

    let whole = run(&[(half as u64, crc, second), (0, first_crc, first)]);
    assert!(whole.out.contains(named), "{}", whole.out);

    let refused = |run: Run, why: &str| {
        assert!(run.err.contains(why), "{why}: {}", run.err);
        assert!(!run.out.contains("leaf"), "{why}: {}", run.out);
        assert!(run.out.contains("[app+0x"), "{why}: {}", run.out);
    };
    let only = format!("only {half} of its {size} bytes were packed");
    refused(run(&[(0, first_crc, first)]), &only);
    let gap = &elf[half + 1..];
    refused(
        run(&[(0, first_crc, first), (half as u64 + 1, crc, gap)]),
        &only,
    );
    refused(
        run(&[(0, first_crc, first), (half as u64, crc ^ 1, second)]),
        "checksum",
    );
    let other = Elf::build(bench.dir.path(), "other", "int main(void) { return 1; }");
    let bytes = fs::read(&other.path).unwrap();
    let crc = crc32c::crc32c(&bytes);
    let lie = with_pieces(&bench, &key, bytes.len() as u64, &[(0, crc, &bytes)]);
    refused(lie, "it has build ID");
    // A piece that reaches beyond its file is against the format: damage.
    let beyond = with_pieces(&bench, &key, 10, &[(0, 0, &elf[..11])]);
    assert_eq!(beyond.code, Some(1));
    assert!(
        beyond
            .err
            .contains("end of the piece is 11, more than the 10"),
        "{}",
        beyond.err
    );
}

#[test]
fn what_is_packed_again_with_more_is_told_from_what_was_there() {
    let bench = Bench::new();
    // First without symbols, as a stripped program, then with them.
    let stripped = bench.path("stripped");
    fs::create_dir(&stripped).unwrap();
    let below = stripped.join(bench.elf.path.strip_prefix("/").unwrap());
    fs::create_dir_all(below.parent().unwrap()).unwrap();
    let run = std::process::Command::new("strip")
        .arg("-o")
        .args([&below, &bench.elf.path])
        .status();
    assert!(run.unwrap().success());
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let expected = Run::report(&["--standard"], &capture).ok();
    let pack = |root: &Path| {
        let mut command = subcommand("pack", &["--symfs"]);
        Run::of(command.arg(root).arg(&capture))
    };
    let path = &bench.elf.path;
    without(path, || pack(&stripped)).ok();
    let run = without(path, || Run::report(&["--folded"], &capture));
    assert!(run.err.contains("no symbol"), "{}", run.err);
    assert!(!run.out.contains("leaf"), "{}", run.out);
    // A file that is here names what the pack could not.
    assert_eq!(Run::report(&["--standard"], &capture).ok(), expected);
    pack(Path::new("/")).ok();
    let run = without(path, || Run::report(&["--standard"], &capture));
    assert_eq!(run.ok(), expected);
    // And packing with less takes nothing back.
    let run = without(path, || pack(&stripped));
    assert!(run.err.contains("nothing was added"), "{}", run.err);
}

#[test]
fn a_full_disk_leaves_the_capture_as_it_was() {
    let copy = Copy::of("calls.bprof");
    let before = copy.bytes();
    // A limit on the size of files stands for the disk.
    let limit = before.len() / 1024 + 1;
    let script = format!(
        "ulimit -f {limit}; trap '' XFSZ; exec \"$0\" pack --symbols full --symfs \"$1\" \"$2\""
    );
    let mut command = std::process::Command::new("bash");
    let run = Run::of(
        command
            .args(["-c", &script, env!("CARGO_BIN_EXE_profiler")])
            .arg(golden("files"))
            .arg(&copy.capture),
    );
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(run.err.contains("it is as it was"), "{}", run.err);
    assert_eq!(copy.bytes(), before);
}

/// Few bytes can stand for very many symbols: a reader takes only so many in all.
#[test]
fn packed_symbols_beyond_all_measure_are_refused() {
    let bytes = fs::read(golden("calls.bprof")).unwrap();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    let mut out = Appender::new(bytes, &reader).unwrap();
    let each = 262_000;
    let taken = bprof::format::limits::PACKED_ENTRIES / each;
    for frame in 0..taken + 2 {
        let key = FileKey {
            path: format!("/{frame}").into_bytes(),
            build_id: BuildId::new(&[frame as u8 + 1]),
            version: None,
        };
        let mut symbols = Builder::new(key);
        let nameless = AtOffset::Nameless { inside: None };
        assert!((0..each).all(|i| symbols.push(i, &nameless)));
        let mut content = Vec::new();
        symbols.finish().encode(&mut content).unwrap();
        out.frame(FrameKind::PackedSymbols, &content).unwrap();
    }
    let bomb = out.finish().unwrap().0;
    assert!(bomb.len() < 20_000, "{}", bomb.len());
    let reader = Reader::from_bytes(bomb).unwrap();
    let (pack, damage) = reader.pack();
    let told: Vec<String> = damage.iter().map(|d| d.kind.to_string()).collect();
    assert_eq!(told, ["more packed symbols than the format allows"; 2]);
    assert_eq!(pack.listing().len() as u64, taken);
}

/// `patchelf` and the like move parts of a file and keep its build ID: what was hit is at the offsets of the file that was
/// mapped, not at those of the file that was packed.
#[test]
fn the_recorded_layout_holds_for_what_is_packed() {
    let bench = Bench::new();
    let shift = 0x8_0000;
    let mapped = bench.elf.mapped();
    let offsets = ["leaf", "mid"].map(|name| bench.elf.range(name));
    let offsets = offsets.into_iter().flatten().map(|offset| offset + shift);
    let mut scene = Scene::of(&mapped, offsets);
    let mut loads = functions::loads(&*fs::read(&bench.elf.path).unwrap());
    for load in &mut loads {
        load.offset += shift;
    }
    let layouts = vec![ElfLayout {
        path: mapped.path,
        build_id: mapped.build_id,
        inode: None,
        version: None,
        loads,
    }];
    scene.writer.elf_layouts(&ElfLayouts { layouts }).unwrap();
    let original = scene.finish();
    let capture = bench.capture("run.bprof", &original);
    let folded = |capture: &Path| Run::report(&["--folded"], capture).ok();
    let expected = folded(&capture);
    assert!(
        expected.contains(";leaf ") && expected.contains(";mid "),
        "{expected}"
    );
    Run::of(subcommand("pack", &["--symbols", "full"]).arg(&capture)).ok();
    let packed = fs::read(&capture).unwrap();
    for kind in [FrameKind::PackedFile, FrameKind::PackedTable] {
        let only = bench.capture("only.bprof", &with_frames(&original, &packed, &[kind]));
        let found = without(&bench.elf.path, || folded(&only));
        assert_eq!(found, expected, "{kind:?}");
    }
}

/// A symbol table has several frames when it is large.
#[test]
fn a_symbol_table_that_is_there_in_part_is_completed() {
    let bench = Bench::new();
    let original = usual(&bench.elf).finish();
    let capture = bench.capture("run.bprof", &original);
    let folded = |capture: &Path| Run::report(&["--folded"], capture).ok();
    let pack = || Run::of(subcommand("pack", &["--symbols", "symtab"]).arg(&capture));
    pack().ok();
    let whole = with_frames(
        &original,
        &fs::read(&capture).unwrap(),
        &[FrameKind::PackedTable],
    );
    let reader = Reader::from_bytes(whole).unwrap();
    let (packed, _) = reader.pack();
    let (loads, mut functions) = packed.table(&bench.elf.mapped()).unwrap();
    functions.retain(|f| f.name != "leaf");
    let part = PackedTable {
        file: FileKey::of(&bench.elf.mapped()).unwrap(),
        loads,
        functions,
    };
    let mut content = Vec::new();
    part.encode(&mut content).unwrap();
    let reader = Reader::from_bytes(original.clone()).unwrap();
    let whole_len = reader.whole_len() as usize;
    let mut out = Appender::new(original[..whole_len].to_vec(), &reader).unwrap();
    out.frame(FrameKind::PackedTable, &content).unwrap();
    fs::write(&capture, out.finish().unwrap().0).unwrap();
    let by_part = without(&bench.elf.path, || folded(&capture));
    assert!(!by_part.contains("leaf"), "{by_part}");

    pack().ok();
    let tables = with_frames(
        &original,
        &fs::read(&capture).unwrap(),
        &[FrameKind::PackedTable],
    );
    let tables = bench.capture("tables.bprof", &tables);
    let completed = without(&bench.elf.path, || folded(&tables));
    assert!(completed.contains(";leaf "), "{completed}");
    let run = pack();
    assert!(run.err.contains("nothing was added"), "{}", run.err);
}

/// What an interrupted pack has left of an older file does not stand in the way of the whole one.
#[test]
fn a_whole_packed_file_comes_before_a_part_of_another() {
    let bench = Bench::new();
    let elf = fs::read(&bench.elf.path).unwrap();
    let key = FileKey::of(&bench.elf.mapped()).unwrap();
    let capture = usual(&bench.elf).finish();
    let reader = Reader::from_bytes(capture.clone()).unwrap();
    let whole = capture[..reader.whole_len() as usize].to_vec();
    let mut out = Appender::new(whole, &reader).unwrap();
    let size = elf.len() as u64;
    let half = &elf[..elf.len() / 2];
    for (size, bytes) in [(size - 1, half), (size, &elf[..])] {
        let head = PieceHead {
            file: key.clone(),
            role: Role::Executable,
            size,
            offset: 0,
            crc: crc32c::crc32c(bytes),
        };
        let mut content = Vec::new();
        file::encode(&mut content, &head, bytes).unwrap();
        out.frame(FrameKind::PackedFile, &content).unwrap();
    }
    let capture = bench.capture("run.bprof", &out.finish().unwrap().0);
    let run = without(&bench.elf.path, || Run::report(&["--folded"], &capture));
    assert!(run.out.contains("mid;leaf 1"), "{} {}", run.out, run.err);
}
