//! `profiler import`: recordings of Linux perf's, real ones (`tests/golden/import`) and ones made by hand.

mod hostile;
mod made;

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bprof::capture::members::{MergeError, merge};
use bprof::capture::verify::verify;
use bprof::capture::{LossTotals, Reader};
use bprof::event::{LossClass, sample_flags};
use bprof::import::{Imported, Source, Step, import, import_with};

use super::golden::of_version;
use super::report::fixture::{Run, profiler, subcommand};
use made::{GUEST_USER, KERNEL, MARK_KERNEL, MARK_USER, Made, Map, USER};

fn golden(name: &str) -> PathBuf {
    of_version("import", name)
}

/// Imports in memory; what is written must be without fault.
fn imported(bytes: Vec<u8>) -> anyhow::Result<(Reader, Imported)> {
    let mut out = Vec::new();
    let imported = import(Source::Stream(Box::new(Cursor::new(bytes))), &mut out)?;
    let reader = Reader::from_bytes(out).unwrap();
    let found = verify(&reader, || {});
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!((found.cut, found.samples), (None, imported.samples));
    assert_eq!(reader.end().is_none(), !imported.damage.is_empty());
    Ok((reader, imported))
}

/// `profiler import RECORDING -o ...`, which works, and the report of what it wrote. No file of this machine names anything.
fn report(recording: &Path, view: &[&str]) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("run.bprof");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let run = Run::of(subcommand("import", &["-o"]).arg(&capture).arg(recording));
    assert_eq!(run.code, Some(0), "{}", run.err);
    Run::of(profiler(view).arg("--symfs").arg(&empty).arg(&capture))
}

fn losses(reader: &Reader) -> LossTotals {
    let mut totals = LossTotals::default();
    for mut segment in reader.segments() {
        while segment.next_frame().unwrap().is_some() {}
        totals.merge(&segment.tables().losses);
    }
    totals
}

/// PID/TID and offsets in the mapped files (kernel: addresses), leaf first, of each sample of `report --standard`.
fn samples(standard: &str) -> Vec<String> {
    let mut samples: Vec<String> = Vec::new();
    for line in standard.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("    ") {
            let offset = line.rsplit_once("+0x").map(|(_, rest)| rest);
            let offset = offset.and_then(|rest| rest.split(']').next());
            let sample = samples.last_mut().expect("a sample");
            if let Some(offset) = offset {
                sample.push_str(&format!(" {offset}"));
            } else {
                assert!(line.contains("[truncated]"), "{line}");
            }
        } else if !line.is_empty() && !line.starts_with(' ') {
            let is_ids = |word: &&str| {
                word.split_once('/')
                    .is_some_and(|(pid, tid)| [pid, tid].iter().all(|id| id.parse::<u32>().is_ok()))
            };
            let ids = line.split(' ').rfind(is_ids).expect("PID/TID");
            samples.push(ids.to_owned());
        }
    }
    samples
}

/// Processes, threads, order, stacks, and in which file at which offset each address is, are what perf itself says. That
/// holds for files, streams and compressed records.
#[test]
fn every_sample_is_what_perf_says_it_is() {
    for (name, least) in [
        ("calls", 60),
        ("packed", 60),
        ("stream", 20),
        ("family", 80),
    ] {
        let run = report(&golden(&format!("{name}.data")), &["--standard"]);
        let found = samples(&run.ok());
        let expected = fs::read_to_string(golden(&format!("{name}.samples"))).unwrap();
        let expected: Vec<&str> = expected.lines().collect();
        assert!(expected.len() >= least, "{name}: {}", expected.len());
        assert_eq!(found.len(), expected.len(), "{name}");
        for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert_eq!(found, expected, "{name}, sample {number}");
        }
    }
}

/// Names by build ID, through fork and exec. perf recorded as another host: nothing of this machine is taken for it.
#[test]
fn functions_have_their_names_and_the_kernel_of_another_machine_none() {
    for name in ["calls", "family"] {
        let dir = tempfile::tempdir().unwrap();
        let capture = dir.path().join("run.bprof");
        let mut command = subcommand("import", &["-o"]);
        Run::of(command.arg(&capture).arg(golden(&format!("{name}.data")))).ok();
        let files = of_version("v1.2", "files");
        let mut report = profiler(&["--folded", "--symfs"]);
        let run = Run::of(report.arg(&files).arg(&capture));
        assert_eq!(run.code, Some(0), "{}", run.err);
        let expected = fs::read(golden(&format!("{name}.folded"))).unwrap();
        assert_eq!(run.out, String::from_utf8(expected).unwrap(), "{name}");
        assert!(run.out.contains("[kernel+0xffffffff"), "{}", run.out);
        let why = "those of this machine are not taken: it was recorded on another machine";
        assert!(run.err.contains(why), "{}", run.err);
    }
}

/// Without --sample-cpu perf does not say on which CPU: no view takes that for CPU 0.
#[test]
fn a_cpu_that_is_not_known_is_no_cpu() {
    let cpus = |name: &str, view: &[&str]| {
        let run = report(&golden(name), view);
        (run.out.clone(), run.err.clone(), run.ok())
    };
    let (standard, ..) = cpus("family.data", &["--standard"]);
    assert!(
        standard.matches(" [cpu ?] cpu-clock").count() >= 80,
        "{standard}"
    );
    assert!(!standard.contains("[cpu 0]"));
    let (folded, err, _) = cpus("family.data", &["--folded", "--by", "cpu"]);
    assert!(
        folded.lines().all(|line| line.starts_with("cpu ?;")),
        "{folded}"
    );
    assert!(
        err.contains("CPUs: perf did not record them (--sample-cpu does)"),
        "{err}"
    );
    let (nothing, err, _) = cpus("family.data", &["--folded", "--cpu", "0"]);
    assert!(
        nothing.is_empty()
            && err.contains("no sample is of CPU 0; there are (with their samples) ?: "),
        "{err}"
    );
    let (script, ..) = cpus("family.data", &["--perf-script"]);
    let head = script.lines().next().unwrap();
    assert!(!head.contains(" [0") && head.contains('/'), "{head}");
    let (known, ..) = cpus("calls.data", &["--standard"]);
    assert!(known.contains("[cpu ") && !known.contains("[cpu ?]"));
}

/// The clock that was recorded gives times of day; else the file's own time does, which is said.
#[test]
fn times_of_day_are_those_of_the_recording() {
    let told = report(&golden("packed.data"), &["--top", "1"]).ok();
    let line = |text: &str, start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start} in {text}"))
            .to_owned()
    };
    let time = line(&told, "# time: ");
    assert!(time.contains("2026-11-30T09:0"), "{time}");
    assert!(!told.contains("times of day"), "{told}");
    assert!(
        line(&told, "# host: ").contains("golden, Linux 6.18"),
        "{told}"
    );
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.data");
    fs::copy(golden("calls.data"), &copy).unwrap();
    let file = fs::File::options().write(true).open(&copy).unwrap();
    let day = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    file.set_modified(day).unwrap();
    let estimated = report(&copy, &["--top", "1"]).ok();
    let time = line(&estimated, "# time: ");
    assert!(time.contains("2001-09-09T01:46:"), "{time}");
    let said = "# degraded: times of day: perf did not record them";
    assert!(estimated.contains(said), "{estimated}");
}

/// Memory copied for another's unwinder is not a stack of one frame that looks whole.
#[test]
fn copied_stacks_are_cut_stacks() {
    let (reader, imported) = imported(fs::read(golden("dwarf.data")).unwrap()).unwrap();
    assert!(
        imported
            .degraded
            .iter()
            .any(|line| line.contains("--call-graph dwarf")),
        "{:?}",
        imported.degraded
    );
    let cut = losses(&reader).of_class(LossClass::UserTruncated);
    assert_eq!(cut, reader.samples());
    let run = report(&golden("dwarf.data"), &["--folded"]);
    let folded = run.ok();
    assert!(
        folded.lines().all(|line| line.contains(";[truncated];")),
        "{folded}"
    );
}

#[test]
fn the_capture_is_written_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let capture = dir.path().join("run.bprof");
    let run_on = |file: &Path| Run::of(subcommand("import", &["-o"]).arg(&capture).arg(file));
    let run = run_on(&golden("calls.data"));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(
        run.out.contains("samples of 1 process; lost 0"),
        "{}",
        run.out
    );
    let mode = fs::metadata(&capture).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // One that was there is kept.
    let first = fs::read(&capture).unwrap();
    assert_eq!(run_on(&golden("family.data")).code, Some(0));
    assert_eq!(fs::read(dir.path().join("run.bprof.old")).unwrap(), first);
    // Something else is not replaced, and a failure leaves nothing.
    let text = dir.path().join("text");
    fs::write(&text, "no recording").unwrap();
    let refused = |out: &Path, file: &Path, why: &str| {
        let run = Run::of(subcommand("import", &["-o"]).arg(out).arg(file));
        assert_eq!(run.code, Some(1), "{}", run.err);
        assert!(run.err.contains(why), "{why:?} in {}", run.err);
    };
    let calls = golden("calls.data");
    refused(&text, &calls, "exists and is not a capture");
    let new = dir.path().join("new.bprof");
    refused(&new, &text, "it is no perf.data");
    refused(&new, &capture, "it is a capture already");
    refused(&new, dir.path(), "is a directory");
    refused(&new, &dir.path().join("none"), "No such file");
    assert_eq!(fs::read(&text).unwrap(), b"no recording");
    let mut left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["run.bprof", "run.bprof.old", "text"]);
}

/// Folded stacks of a recording made by hand, without the verdict.
fn folded(bytes: Vec<u8>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("perf.data");
    fs::write(&recording, bytes).unwrap();
    report(&recording, &["--folded"]).ok()
}

fn map(pid: u32, path: &str, inode: u64, time: u64) -> Map<'_> {
    Map {
        pid,
        start: 0x40_0000,
        path,
        inode,
        time,
    }
}

/// A number that is used again is another process, also where the kernel's word of the fork was lost; an exec ends what
/// was mapped, a fork keeps it.
#[test]
fn a_name_is_that_of_what_was_mapped_then() {
    let mut made = Made::default();
    made.comm(7, 7, "first", false, 0);
    made.map(map(7, "/bin/first", 1, 0));
    made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
    made.fork((8, 8), (7, 7), 110);
    made.sample(USER, (8, 8), 120, &[MARK_USER, 0x40_0020]);
    made.comm(8, 8, "other", true, 130);
    // Taken in the kernel while it loads the program: registers and stack are those of the one before.
    made.sample(
        KERNEL,
        (8, 8),
        131,
        &[MARK_KERNEL, 1 << 63, MARK_USER, 0x40_0020],
    );
    made.map(map(8, "/bin/other", 2, 132));
    made.sample(USER, (8, 8), 140, &[MARK_USER, 0x40_0030]);
    made.sample(
        KERNEL,
        (8, 8),
        150,
        &[MARK_KERNEL, 1 << 63, MARK_USER, 0x40_0030],
    );
    made.exit(7, 160);
    made.fork((7, 7), (8, 8), 170);
    made.sample(USER, (7, 7), 180, &[MARK_USER, 0x40_0040]);
    made.exit(8, 190);
    made.comm(8, 8, "unseen", false, 200);
    made.sample(USER, (8, 8), 210, &[MARK_USER, 0x40_0050]);
    let text = folded(made.stream());
    let lines: Vec<&str> = text.lines().collect();
    let kernel = "[kernel+0x8000000000000000]_[k]";
    let mut expected = vec![
        "first-7;[first+0x1010] 1".to_owned(),
        "first-8;[first+0x1020] 1".to_owned(),
        format!("other-8;{kernel} 1"),
        "other-8;[other+0x1030] 1".to_owned(),
        format!("other-8;[other+0x1030];{kernel} 1"),
        "other-7;[other+0x1040] 1".to_owned(),
        "unseen-8;[unknown] 1".to_owned(),
    ];
    expected.sort();
    let mut found = lines;
    found.sort();
    assert_eq!(found, expected);
}

/// Records come CPU by CPU, in rounds.
#[test]
fn records_are_taken_in_order_of_time() {
    let mut made = Made::default();
    made.comm(7, 7, "prog", false, 0);
    made.sample(USER, (7, 7), 300, &[MARK_USER, 0x40_0010]);
    made.round();
    made.map(map(7, "/bin/prog", 1, 200));
    made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
    made.round();
    made.sample(USER, (7, 7), 250, &[MARK_USER, 0x40_0010]);
    let text = folded(made.file());
    assert_eq!(text, "prog-7;[prog+0x1010] 2\nprog-7;[unknown] 1\n");
}

/// perf has one build ID for a path, read when recording ended: it is that of either file, so of neither.
#[test]
fn a_path_with_two_files_has_no_build_id() {
    let id = [0xab; 20];
    let file = |second: u64| {
        let mut made = Made::default();
        made.build_id("/lib/a.so", id);
        made.map(map(7, "/lib/a.so", 1, 0));
        made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
        made.map(map(8, "/lib/a.so", second, 110));
        made.sample(USER, (8, 8), 120, &[MARK_USER, 0x40_0010]);
        let (reader, _) = imported(made.file()).unwrap();
        let mut segment = reader.segments().next().unwrap();
        while segment.next_frame().unwrap().is_some() {}
        let files = &segment.tables().files;
        let ids = files.iter().map(|file| file.build_id.clone());
        ids.map(|id| id.map(|id| id.as_bytes().to_vec()))
            .collect::<Vec<_>>()
    };
    assert_eq!(file(1), [Some(id.to_vec())]);
    assert_eq!(file(2), [None, None]);
}

/// What perf lost, left out or could not tell is in the capture, by its cause.
#[test]
fn losses_and_gaps_are_counted() {
    let mut made = Made::default();
    made.comm(7, 7, "prog", false, 0);
    made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
    made.sample(GUEST_USER, (7, 7), 110, &[MARK_USER, 0x40_0010]);
    let deep: Vec<u64> = [MARK_USER]
        .into_iter()
        .chain((0..127).map(|i| 0x1000 + i))
        .collect();
    made.sample(USER, (7, 7), 120, &deep);
    // LOST: 9 records. THROTTLE.
    made.told(
        2,
        0,
        0u64.to_le_bytes()
            .into_iter()
            .chain(9u64.to_le_bytes())
            .collect(),
        (7, 7),
        130,
    );
    let throttle = [140u64, 0, 0].map(u64::to_le_bytes).concat();
    made.told(5, 0, throttle, (7, 7), 140);
    // A sample and a mapping that end early.
    made.record(9, USER, &[0; 12]);
    made.record(10, USER, &[0; 4]);
    let (reader, imported_now) = imported(made.file()).unwrap();
    let losses_now = losses(&reader);
    let of = |class| losses_now.of_class(class);
    assert_eq!(of(LossClass::RingFull), 9);
    assert_eq!(of(LossClass::Malformed), 1);
    assert_eq!(of(LossClass::SideBand), 1);
    assert_eq!(of(LossClass::Throttled), 1);
    assert_eq!(of(LossClass::UserTruncated), 1);
    assert_eq!((imported_now.samples, imported_now.lost), (3, 10));
    let notes = imported_now.notes.join("\n");
    assert!(
        notes.contains("samples of virtual machines, without stacks: 1"),
        "{notes}"
    );
    let mut segment = reader.segments().next().unwrap();
    let mut flags = Vec::new();
    while let Some(frame) = segment.next_frame().unwrap() {
        flags.extend(frame.samples.iter().map(|sample| sample.flags));
    }
    assert_eq!(flags, [0, 0, sample_flags::USER_TRUNCATED]);

    // Since Linux 6.0 the kernel also counts the samples among the records it lost.
    let mut made = Made::default();
    made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
    made.told(
        2,
        0,
        0u64.to_le_bytes()
            .into_iter()
            .chain(9u64.to_le_bytes())
            .collect(),
        (7, 7),
        130,
    );
    made.told(13, 0, 5u64.to_le_bytes().to_vec(), (0, 0), 0);
    let (reader, _) = imported(made.file()).unwrap();
    let losses = losses(&reader);
    assert_eq!(losses.of_class(LossClass::RingFull), 5);
    assert_eq!(losses.of_class(LossClass::SideBand), 4);
}

/// A recording without what an import cannot do without says what to do.
#[test]
fn what_cannot_be_imported_is_said() {
    let no_samples = imported(Made::default().file()).unwrap_err();
    assert!(format!("{no_samples:#}").contains("it holds no samples"));
    let mut big = fs::read(golden("calls.data")).unwrap();
    big[..8].reverse();
    let err = imported(big).unwrap_err();
    assert!(format!("{err:#}").contains("big-endian"), "{err:#}");
}

/// As perf has texts in its header: length, and bytes with zeros behind.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = 64u32.to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(4 + 64, 0);
    bytes
}

const HOSTNAME: u32 = 3;
const OSRELEASE: u32 = 4;

/// Why nothing of this machine is believed is what is told: a recording need not say where it was made.
#[test]
fn the_reason_why_this_machine_is_not_believed_is_the_true_one() {
    let told = |host: Option<&str>, release: Option<&str>| {
        let mut made = Made::default();
        made.sample(USER, (7, 7), 100, &[MARK_USER, 0x40_0010]);
        for (number, name) in [(HOSTNAME, host), (OSRELEASE, release)] {
            if let Some(name) = name {
                made.feature(number, &text(name));
            }
        }
        let (_, imported) = imported(made.file()).unwrap();
        imported.degraded.join("\n")
    };
    let own = rustix::system::uname();
    let [host, release] = [own.nodename(), own.release()].map(|text| text.to_str().unwrap());
    let silent = "perf did not write of which host and kernel it is";
    assert!(told(None, None).contains(silent));
    assert!(told(Some(host), None).contains(silent));
    assert!(told(None, Some(release)).contains(silent));
    let elsewhere = told(Some("elsewhere.example"), Some(release));
    assert!(
        elsewhere.contains("it was recorded on another machine"),
        "{elsewhere}"
    );
    let before = told(Some(host), Some("2.6.32"));
    assert!(
        before.contains("with another kernel than this machine runs now"),
        "{before}"
    );
    let here = told(Some(host), Some(release));
    assert!(
        here.contains("it does not say where the kernel was"),
        "{here}"
    );
}

/// By a file perf tells the host and build IDs, by a pipe it may not: it is the same recording all the same.
#[test]
fn a_recording_is_itself_however_it_was_imported() {
    let made = |late: u64| {
        let mut made = Made::default();
        made.comm(7, 7, "prog", false, 0);
        made.map(map(7, "/bin/prog", 1, 10));
        for i in 0..200 {
            made.sample(USER, (7, 7), late + i * 5000, &[MARK_USER, 0x40_0010 + i]);
        }
        made
    };
    let mut known = made(20_000);
    known.build_id("/bin/prog", [0xab; 20]);
    known.feature(HOSTNAME, &text("elsewhere.example"));
    let readers = [known.file(), made(20_000).stream(), made(31_000).stream()];
    let readers = readers.map(|bytes| imported(bytes).unwrap().0);
    let [by_file, by_pipe, other] = readers.each_ref();
    let first = |reader: &Reader| reader.frames()[0].descriptor.data_crc;
    assert_ne!(first(by_file), first(by_pipe), "what is in them differs");
    let err = merge(&[by_file, other, by_pipe], &mut Vec::new()).unwrap_err();
    assert!(matches!(err, MergeError::Same(0, 2)), "{err}");
    let mut out = Vec::new();
    merge(&[by_pipe, other], &mut out).unwrap();
    assert_eq!(Reader::from_bytes(out).unwrap().samples(), 400);
}

/// Long work tells how far it is: what it does, and of how many bytes, where that is known.
#[test]
fn an_import_tells_how_far_it_is() {
    let made = || {
        let mut made = Made::default();
        for i in 0..10_000 {
            made.sample(USER, (7, 7), 100 + i, &[MARK_USER, 0x40_0010]);
        }
        made
    };
    let steps = |bytes: Vec<u8>| {
        let len = bytes.len() as u64;
        let mut told = Vec::new();
        let source = Source::Stream(Box::new(Cursor::new(bytes)));
        import_with(source, Vec::new(), &mut |progress| told.push(progress)).unwrap();
        assert!(
            told.iter()
                .all(|p| p.bytes <= len && p.of.is_none_or(|of| of == len))
        );
        for pair in told.windows(2) {
            assert!(
                pair[0].step != pair[1].step || pair[0].bytes <= pair[1].bytes,
                "{pair:?}"
            );
        }
        let mut steps: Vec<_> = told.iter().map(|p| (p.step, p.of.is_some())).collect();
        steps.dedup();
        steps
    };
    assert_eq!(steps(made().stream()), [(Step::Importing, false)]);
    assert_eq!(
        steps(made().file()),
        [
            (Step::Copying, false),
            (Step::Looking, true),
            (Step::Importing, true)
        ]
    );
}
