//! Recorded paths that lead to what must not be opened or believed, and files that change under a report.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use bprof::event::{MappedFile, MappedKind, Origin, Timestamp};
use bprof::format::process::{MappingTemplate, PlacedMapping, ProcessRecord};

use super::bounded::{is_civil, run};
use super::put;
use crate::format::header;
use crate::report::fixture::{BASE, Bench, Elf, LEN, Run, Scene, Taken};

/// What is recorded as an ELF file at `path`, with the identity of `elf`.
fn at(path: &Path, elf: &Elf) -> MappedFile {
    MappedFile {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        ..elf.mapped()
    }
}

/// Nothing waits for a writer, reads without end, or is named by what is no regular file.
#[test]
fn recorded_paths_that_are_no_files_name_nothing() {
    let bench = Bench::new();
    let fifo = bench.path("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let (around, to_fifo) = (bench.path("around"), bench.path("to_fifo"));
    symlink(&around, &around).unwrap();
    symlink(&fifo, &to_fifo).unwrap();
    let long = format!("/{}", "x/".repeat(5000));
    let paths = [
        fifo.as_path(),
        &to_fifo,
        &around,
        bench.dir.path(),
        "/dev/zero".as_ref(),
        "/dev/stdin".as_ref(),
        "/dev/random".as_ref(),
        "/dev/tty".as_ref(),
        "/proc/self/fd/0".as_ref(),
        "/proc/self/mem".as_ref(),
        "/proc/kmsg".as_ref(),
        "/sys/kernel/btf/vmlinux".as_ref(),
        "app".as_ref(),
        "../app".as_ref(),
        "".as_ref(),
        "/".as_ref(),
        "//".as_ref(),
        "/\u{1}\u{202e}".as_ref(),
        Path::new(&long),
    ];
    for path in paths {
        let bytes = Scene::of(&at(path, &bench.elf), [bench.elf.offset("leaf") + 1]).finish();
        let capture = bench.capture("trap.bprof", &bytes);
        for view in [&["report", "--folded"][..], &["report", "--missing"]] {
            let run = run(view, &capture);
            is_civil(&format!("{path:?}, {view:?}"), &run);
            assert_eq!(run.code, Some(0), "{path:?}: {}", run.err);
            assert!(!run.out.contains("leaf"), "{path:?}: {}", run.out);
        }
    }
}

/// Links in a copy of another machine's root stay inside of it, and `..` in a recorded path does not leave it.
#[test]
fn paths_below_symfs_stay_there() {
    let bench = Bench::new();
    let (root, outside) = (bench.path("root"), bench.path("outside"));
    fs::create_dir_all(root.join("opt")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    let elf = Elf::compile(&outside, "app");
    let up = format!("/opt/../../outside/{}", "app");
    symlink(&outside, root.join("opt/absolute")).unwrap();
    symlink("../../outside", root.join("opt/upward")).unwrap();
    symlink(&elf.path, root.join("opt/app")).unwrap();
    // Without a build ID, so that nothing is looked for elsewhere.
    let symfs = root.to_str().unwrap();
    for path in [
        up.as_str(),
        "/opt/absolute/app",
        "/opt/upward/app",
        "/opt/app",
        "/../outside/app",
    ] {
        let file = MappedFile {
            path: path.into(),
            build_id: None,
            version: Some(elf.version()),
            ..elf.mapped()
        };
        let bytes = Scene::of(&file, [elf.offset("leaf") + 1]).finish();
        let capture = bench.capture("out.bprof", &bytes);
        let folded = Run::report(&["--folded", "--symfs", symfs], &capture).ok();
        assert!(!folded.contains("leaf"), "{path}: {folded}");
    }
    // The same file inside is found, through a link that stays there.
    fs::copy(&elf.path, root.join("opt/real")).unwrap();
    symlink("/opt/real", root.join("opt/inside")).unwrap();
    let file = at("/opt/inside".as_ref(), &elf);
    let capture = bench.capture(
        "in.bprof",
        &Scene::of(&file, [elf.offset("leaf") + 1]).finish(),
    );
    let folded = Run::report(&["--folded", "--symfs", symfs], &capture).ok();
    assert!(folded.contains(";leaf 1"), "{folded}");
}

/// A program is cut short after its first names were looked up: no signal, and no wrong name for the rest.
#[test]
fn a_program_that_shrinks_during_a_report_names_nothing_wrongly() {
    let bench = Bench::new();
    let file = bench.elf.mapped();
    let mut scene = Scene::new();
    let app = scene.process(100, 500);
    scene.image(app, 0, 0, "app");
    scene.map(app, 0, BASE, &file);
    // Enough that the report waits for whoever reads it before it comes to `mid`.
    for second in 0..60u64 {
        for i in 0..100 {
            let name = if second < 50 { "leaf" } else { "mid" };
            scene.sample(Taken {
                user: &[BASE + bench.elf.offset(name) + 1],
                ..Taken::of(app, 100, "app", 1_000_000_000 * (second + 1) + i)
            });
        }
        scene.writer.flush().unwrap();
    }
    let capture = bench.capture("shrinks.bprof", &scene.finish());
    let mut child = Command::new(env!("CARGO_BIN_EXE_profiler"))
        .args(["report", "--standard"])
        .arg(&capture)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = vec![0; 1024];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut out).unwrap();
    let elf = fs::OpenOptions::new().write(true).open(&bench.elf.path);
    elf.unwrap().set_len(64).unwrap();
    stdout.read_to_end(&mut out).unwrap();
    let output = child.wait_with_output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&out),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(matches!(output.status.code(), Some(0 | 1)), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    let frames: Vec<&str> = out.lines().filter(|l| l.starts_with("    ")).collect();
    assert_eq!(frames.len(), 6000, "{err}");
    assert!(frames[0].contains("leaf+"), "{}", frames[0]);
    for (i, frame) in frames.iter().enumerate() {
        let right = if i < 5000 { "leaf+" } else { "mid+" };
        let is_right = frame.contains(right) || frame.contains("[app+");
        assert!(is_right, "sample {i}: {frame}");
    }
    let unnamed = frames.iter().filter(|f| f.contains("[app+")).count();
    let told = err.contains("became shorter while it was read");
    assert!(unnamed == 0 || told, "{unnamed} without a name\n{err}");
}

/// Two files at one address in one list, one over the middle of another: the later wins, as the specification says, and
/// only where it lies.
#[test]
fn of_overlapping_mappings_the_later_wins_where_it_lies() {
    let bench = Bench::new();
    let other = Elf::compile(bench.dir.path(), "other");
    let mut scene = Scene::new();
    let app = scene.process(100, 500);
    scene.image(app, 0, 0, "app");
    let files = [bench.elf.mapped(), other.mapped()].map(|f| scene.writer.file(&f).unwrap());
    let place = |scene: &mut Scene, start, file: usize| {
        let template = MappingTemplate {
            file: files[file],
            file_offset: 0,
            len: LEN,
            prot: 5,
        };
        let mapping = scene.writer.mapping(&template).unwrap();
        PlacedMapping { start, mapping }
    };
    // The second begins in the middle of the first, and a third copy of the first hides the second's end.
    let placed = vec![
        place(&mut scene, BASE, 0),
        place(&mut scene, BASE + LEN / 2, 1),
        place(&mut scene, BASE + LEN, 0),
    ];
    let space = scene.writer.space(placed).unwrap();
    let (time, origin) = (Timestamp(0), Origin::Snapshot);
    let record = ProcessRecord::Space {
        process: app,
        time,
        space,
        origin,
    };
    scene.writer.process(record).unwrap();
    let leaf = [bench.elf.offset("leaf"), other.offset("leaf")].map(|offset| offset + 1);
    for (i, address) in [
        BASE + leaf[0],
        BASE + LEN / 2 + leaf[1],
        BASE + LEN + leaf[0],
    ]
    .into_iter()
    .enumerate()
    {
        scene.sample(Taken {
            user: &[address],
            ..Taken::of(app, 100, "app", 1_000_000_000 + i as u64)
        });
    }
    // Of the second mapping only what the first has no more: the first's own bytes there are another file's.
    scene.sample(Taken {
        user: &[BASE + LEN / 2 + 1],
        ..Taken::of(app, 100, "app", 1_000_000_100)
    });
    let capture = bench.capture("over.bprof", &scene.finish());
    let standard = Run::report(&["--standard"], &capture).ok();
    let frames: Vec<&str> = standard.lines().filter(|l| l.starts_with("    ")).collect();
    let files: Vec<&str> = frames.iter().filter_map(|l| l.rsplit(' ').next()).collect();
    assert_eq!(
        files,
        ["(app)", "(other)", "(app)", "(other)"],
        "{standard}"
    );
    let named = frames.iter().filter(|l| l.contains(" leaf+")).count();
    assert_eq!(named, 3, "{standard}");
}

/// A capture may say that its mappings are a device or memory: that is no path to open.
#[test]
fn kinds_of_memory_are_never_opened() {
    let dir = tempfile::tempdir().unwrap();
    for kind in [
        MappedKind::File,
        MappedKind::Anonymous,
        MappedKind::Vdso,
        MappedKind::Vsyscall,
        MappedKind::Memfd,
        MappedKind::Special,
    ] {
        let file = MappedFile {
            kind,
            ..super::program("/dev/zero")
        };
        let mut scene = super::Scene::new(&header(), &file, "prog");
        scene.sample(10, &[super::CODE, super::CODE + 1]);
        let path = put(dir.path(), &scene.bytes());
        is_civil(&format!("{kind:?}"), &run(&["report", "--folded"], &path));
    }
}
