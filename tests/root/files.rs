//! Which file was mapped: removed, replaced, out of reach, or never in a file system at all. A name is given only by
//! the file that was mapped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bprof::capture::Reader;
use bprof::event::{BuildId, MappedFile, MappedKind};
use bprof::format::aid::ElfLayout;

use crate::common::workload::{FROM_FD, NO_BUILD_ID, ONE_PIE, TWO_PIE};
use crate::common::{Attached, Bench, Program, Recorded};

/// Build ID of a file, by another program than ours.
fn build_id(path: &Path) -> String {
    let output = Command::new("readelf").arg("-n").arg(path).output();
    let text = String::from_utf8(output.expect("readelf starts").stdout).expect("text");
    let id = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("Build ID: "));
    id.unwrap_or_else(|| panic!("{} has no build ID", path.display()))
        .to_owned()
}

/// PT_LOADs of a file as (offset, address, file size, memory size), by another program than ours.
fn loads(path: &Path) -> Vec<[u64; 4]> {
    let output = Command::new("readelf").args(["-lW"]).arg(path).output();
    let text = String::from_utf8(output.expect("readelf starts").stdout).expect("text");
    let number = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).expect("a number");
    text.lines()
        .filter_map(|l| l.trim().strip_prefix("LOAD "))
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .map(|w| [number(w[0]), number(w[1]), number(w[3]), number(w[4])])
        .collect()
}

/// Files and layouts of a capture.
fn contents(recorded: &Recorded) -> (Vec<MappedFile>, Vec<ElfLayout>) {
    let reader = Reader::open(&recorded.capture).expect("the capture opens");
    let mut files = Vec::new();
    for mut segment in reader.segments() {
        while segment.next_frame().expect("a whole frame").is_some() {}
        files.extend_from_slice(&segment.tables().files);
    }
    (files, reader.aids().layouts)
}

/// The capture has `program` as `path`, with its build ID and its layout, each once.
fn check_recorded(recorded: &Recorded, path: &str, kind: MappedKind, program: &Path) {
    let (files, layouts) = contents(recorded);
    let found = files.iter().find(|f| f.path == path.as_bytes());
    let found = found.unwrap_or_else(|| panic!("{path} is not in {files:#?}"));
    let id = found.build_id.as_ref().map(BuildId::to_string);
    assert_eq!((found.kind, id), (kind, Some(build_id(program))));
    let own: Vec<_> = layouts
        .iter()
        .filter(|l| l.build_id == found.build_id)
        .collect();
    assert_eq!(own.len(), 1, "{layouts:#?}");
    let recorded = own[0].loads.iter();
    let recorded: Vec<_> = recorded
        .map(|l| [l.offset, l.vaddr, l.file_size, l.mem_size])
        .collect();
    assert_eq!(recorded, loads(program));
}

/// A copy of `program` at `path`, made so that it can be run at once.
fn copy(program: Program, path: &Path) {
    let staged = path.with_extension("staged");
    fs::copy(program.build(), &staged).expect("a copy of the program");
    fs::rename(&staged, path).expect("its name");
}

fn started(path: &Path) -> Attached {
    let mut command = Command::new(path);
    command.arg("0.5");
    Attached::start(command)
}

/// A04: a removed program, put back; and one in whose place another one is.
#[test]
fn a04_the_mapped_file_is_recorded_though_it_is_gone() {
    let bench = Bench::new();
    let path = bench.path("prog");
    let name = path.to_str().expect("the path is UTF-8");
    copy(ONE_PIE, &path);
    let workload = started(&path);
    // Of the same size and layout, another build ID.
    copy(TWO_PIE, &path);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, _) = bench.record_attached(workload, &args);
    let recorded = recorded.ok();
    check_recorded(&recorded, name, MappedKind::File, &ONE_PIE.build());
    let folded = recorded.folded();
    folded.check_none("a name of the file that is there now", |s| {
        s.has("one_spin") || s.has("two_spin") || s.frames.iter().any(|f| f.contains("(deleted)"))
    });
    let messages: Vec<&str> = folded
        .verdict
        .lines()
        .filter(|l| l.contains(&build_id(&ONE_PIE.build())))
        .collect();
    assert_eq!(messages.len(), 1, "{}", folded.verdict);
    assert!(messages[0].contains(name), "{}", messages[0]);

    copy(ONE_PIE, &path);
    let folded = recorded.folded();
    folded.check_least("one_spin", 0.8, |s| s.has_chain(&["main", "one_spin"]));
}

/// A04: a program that never was in a file system. It has a build ID and a layout, and no path is opened for it.
#[test]
fn a04_a_program_in_a_memfd() {
    let bench = Bench::new();
    let (from_fd, program) = (FROM_FD.build(), ONE_PIE.build());
    let command = [from_fd.as_os_str(), program.as_os_str(), "0.5".as_ref()];
    let recorded = bench.record_command(&command).ok();
    check_recorded(&recorded, "/memfd:prog one", MappedKind::Memfd, &program);
    let folded = recorded.folded();
    folded.check_none("the kernel's mark", |s| {
        s.frames.iter().any(|f| f.contains("(deleted)"))
    });
}

/// A04: a program that only its own mount namespace shows, changed root included, with a symbolic link in its path; all of it is
/// gone before the report.
#[test]
fn a04_a_program_in_a_root_of_its_own() {
    for program in [ONE_PIE, NO_BUILD_ID] {
        let bench = Bench::new();
        let root = bench.path("root");
        fs::create_dir(&root).expect("a directory");
        let script = r#"mount -t tmpfs none "$1" && mkdir -p "$1/opt/real" "$1/lib" "$1/lib64" "$1/usr/lib" &&
            mount --bind /usr/lib "$1/usr/lib" && mount --bind /lib "$1/lib" && mount --bind /lib64 "$1/lib64" &&
            cp "$0" "$1/opt/real/prog" && ln -s /opt/real "$1/opt/link" && exec chroot "$1" /opt/link/prog 0.5"#;
        let built = program.build();
        let command: [&std::ffi::OsStr; 7] = [
            "unshare".as_ref(),
            "--mount".as_ref(),
            "sh".as_ref(),
            "-c".as_ref(),
            script.as_ref(),
            built.as_os_str(),
            root.as_os_str(),
        ];
        // Another file under that path out here.
        let decoy = Path::new("/opt/real/prog");
        let _decoy = Decoy::put(TWO_PIE, decoy);
        let recorded = bench.record_command(&command).ok();
        let folded = recorded.folded();
        folded.check_none("a name of a file that was not mapped", |s| {
            s.has("two_spin")
        });
        folded.check_least("the program's label", 0.8, |s| {
            s.user().any(|f| f.starts_with("[prog+0x"))
        });
        if program == ONE_PIE {
            check_recorded(&recorded, "/opt/real/prog", MappedKind::File, &built);
            continue;
        }
        let (files, layouts) = contents(&recorded);
        let found = files.iter().find(|f| f.path == b"/opt/real/prog");
        let found = found.unwrap_or_else(|| panic!("not in {files:#?}"));
        let size = fs::metadata(&built).expect("it is there").len();
        assert_eq!(found.version.map(|v| v.size), Some(size), "{found:?}");
        let layout = layouts
            .iter()
            .find(|l| l.inode == found.inode && l.version == found.version);
        let layout = layout.unwrap_or_else(|| panic!("no layout of {found:?} in {layouts:#?}"));
        assert_eq!(layout.loads.len(), loads(&built).len());
    }
}

/// What runs already is read from `/proc`, which tells paths as the recorder sees them.
#[test]
fn a04_a_program_that_runs_in_a_root_of_its_own() {
    let bench = Bench::new();
    let root = bench.path("root");
    fs::create_dir(&root).expect("a directory");
    let script = r#"mount -t tmpfs none "$1" && mkdir -p "$1/opt" "$1/lib" "$1/lib64" "$1/usr/lib" &&
        mount --bind /usr/lib "$1/usr/lib" && mount --bind /lib "$1/lib" && mount --bind /lib64 "$1/lib64" &&
        cp "$0" "$1/opt/prog" && exec chroot "$1" /opt/prog 20"#;
    let built = ONE_PIE.build();
    let mut child = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .args([&built, &root])
        .spawn()
        .expect("unshare starts");
    let pid = child.id().to_string();
    let comm = format!("/proc/{pid}/comm");
    for _ in 0..100 {
        if fs::read_to_string(&comm).is_ok_and(|comm| comm == "prog\n") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let recorded = bench.record(&["-p", &pid, "-d", "500ms"]);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    check_recorded(&recorded.ok(), "/opt/prog", MappedKind::File, &built);
}

/// A file at a path outside of the scratch directory, taken away in the end.
struct Decoy(PathBuf);

impl Decoy {
    fn put(program: Program, path: &Path) -> Decoy {
        let parent = path.parent().expect("a directory");
        assert!(!path.exists(), "{} is in the way", path.display());
        fs::create_dir_all(parent).expect("a directory");
        copy(program, path);
        Decoy(path.to_owned())
    }
}

impl Drop for Decoy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        if let Some(parent) = self.0.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Every ELF file in a capture has its layout there once, in few frames.
#[test]
fn every_mapped_file_has_its_layout_once() {
    let bench = Bench::new();
    let recorded = bench.record_command(&["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/dev/null bs=1 count=60000 2>/dev/null; done"]);
    let recorded = recorded.ok();
    let (files, layouts) = contents(&recorded);
    for file in files.iter().filter(|f| f.kind == MappedKind::File) {
        let own = layouts.iter().filter(|l| match &file.build_id {
            Some(id) => l.build_id.as_ref() == Some(id),
            None => l.inode == file.inode && l.version == file.version,
        });
        assert_eq!(own.count(), 1, "{file:?} in {layouts:#?}");
    }
}

/// While it is recorded, a capture is locked, so that nothing is appended to it.
#[test]
fn a_capture_is_locked_while_it_is_recorded() {
    let bench = Bench::new();
    let running = crate::common::Running::start_sampling(&bench, &["-a"]);
    let locked = || {
        let status = Command::new("flock")
            .arg("--nonblock")
            .arg(bench.capture())
            .arg("true")
            .status();
        !status.expect("flock starts").success()
    };
    assert!(locked());
    running.interrupt().ok();
    assert!(!locked());
}
