//! Debug information that is somewhere else than in the file: found where it may be, believed only for good reasons, and
//! a hint where it is not read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bprof::format::aid::{ElfLayout, ElfLayouts, Load};
use bprof::symbolize::functions;

use super::fixture::{Elf, Run, Scene, hits, profiler, tool};

/// Inlined code, so that one can see whether DWARF was read, in static functions, so that one can see whether symbols were.
const SOURCE: &str = "
volatile int sink;
static inline __attribute__((always_inline)) int inner(int x) { sink += x; sink ^= x; return x * sink; }
static inline __attribute__((always_inline)) int middle(int x) { return inner(x) + 1; }
__attribute__((noinline)) static int outer(int x) { return middle(x) + sink; }
int main(void) { return outer(3); }
";

struct Place {
    dir: tempfile::TempDir,
    elf: Elf,
    /// What was recorded.
    capture: PathBuf,
}

impl Place {
    fn new(flags: &[&str]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        let source = dir.path().join("prog.c");
        fs::write(&source, SOURCE).unwrap();
        let flags = [
            &["-O1", "-g", "-fcf-protection=none", "-Wl,--build-id"],
            flags,
        ]
        .concat();
        let elf = Elf::with(dir.path(), "bin/prog", "gcc", &source, &flags);
        let capture = dir.path().join("run.bprof");
        let mut place = Place { dir, elf, capture };
        place.record();
        place
    }

    /// A capture of every byte of `outer`.
    fn record(&mut self) {
        let bytes = hits(&self.elf.mapped(), self.elf.range("outer"));
        fs::write(&self.capture, bytes).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tool(&self, name: &str, args: &[&str]) {
        tool(self.dir.path(), name, args);
    }

    /// Moves debug information and symbols out of the program into `name`.
    fn separate(&self, name: &str) {
        let to = self.path(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        self.tool("objcopy", &["--only-keep-debug", "bin/prog", name]);
        self.tool("strip", &["-s", "bin/prog"]);
    }

    /// `.build-id/xx/yyyy.debug` below `dir`.
    fn by_id(&self, dir: &str) -> String {
        let hex = self.elf.build_id().to_string();
        format!("{dir}/.build-id/{}/{}.debug", &hex[..2], &hex[2..])
    }

    fn run(&self, options: &[&str]) -> Run {
        let mut command = profiler(&["--folded"]);
        command.env("DEBUGINFOD_CACHE_PATH", self.path("cache"));
        Run::of(
            command
                .args(options)
                .arg(&self.capture)
                .current_dir(self.dir.path()),
        )
    }

    /// Folded stacks; how often a warning speaks of `told`.
    fn folded(&self, options: &[&str], told: &str) -> (String, usize) {
        let run = self.run(options);
        let warnings = run.err.lines().filter(|l| l.starts_with("profiler: "));
        let told = warnings.filter(|l| l.contains(told)).count();
        (run.ok(), told)
    }

    /// Checks that everything is named, inlined functions too, and nothing is complained about.
    #[track_caller]
    fn whole(&self, options: &[&str]) -> String {
        let (folded, warnings) = self.folded(options, "");
        let inlined = folded.contains(";outer;middle;inner ") && !folded.contains('[');
        assert!(inlined, "{folded}{}", self.run(options).err);
        assert_eq!(warnings, 0);
        folded
    }

    /// Checks that names are those of the symbol table, with one warning that has `told` in it.
    #[track_caller]
    fn symbols_only(&self, options: &[&str], told: &str) {
        let (folded, warnings) = self.folded(options, told);
        let count = self.elf.range("outer").count();
        assert_eq!(folded, format!("app-100;outer {count}\n"));
        assert_eq!(warnings, 1, "{}", self.run(options).err);
        assert_eq!(self.folded(options, "").1, 1, "{}", self.run(options).err);
    }

    /// Checks that there are no names at all.
    #[track_caller]
    fn nameless(&self, options: &[&str]) {
        let (folded, _) = self.folded(options, "");
        assert!(
            !folded.contains("outer") && folded.contains("[prog+0x"),
            "{folded}"
        );
    }
}

#[test]
fn by_build_id_without_a_debug_link() {
    for flags in [
        &[][..],
        &["-no-pie"],
        &["-static-pie"],
        &["-Wl,-z,separate-code", "-Wl,-z,relro"],
    ] {
        let place = Place::new(flags);
        let before = place.whole(&[]);
        let lines = Run::report(&["--standard"], &place.capture).ok();
        place.separate(&place.by_id("dbg"));
        place.nameless(&[]);
        assert_eq!(place.whole(&["--debug-dir", "dbg"]), before);
        let after = Run::of(
            profiler(&["--standard", "--debug-dir"])
                .arg(place.path("dbg"))
                .arg(&place.capture),
        );
        let samples = |text: &str| -> Vec<String> {
            text.lines()
                .filter(|l| !l.starts_with('#'))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(samples(&after.ok()), samples(&lines));
        assert!(lines.contains("prog.c:3"), "{lines}");
    }
}

#[test]
fn in_debuginfods_cache() {
    let place = Place::new(&[]);
    let before = place.whole(&[]);
    let id = place.elf.build_id().to_string();
    place.separate(&format!("cache/{id}/debuginfo"));
    assert_eq!(place.whole(&[]), before);
    // The program itself, too.
    fs::rename(
        place.path("bin/prog"),
        place.path(&format!("cache/{id}/executable")),
    )
    .unwrap();
    assert_eq!(place.whole(&[]), before);
}

#[test]
fn below_the_sysroots_own_debug_directory() {
    let place = Place::new(&[]);
    let before = place.whole(&[]);
    let root = place.path("root");
    place.separate(&place.by_id("root/usr/lib/debug"));
    // The recorded path is below a link that leads out unless the root is the root.
    let inside = root.join(place.path("bin").strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::create_dir_all(root.join("usr/real")).unwrap();
    symlink("/usr/real", &inside).unwrap();
    fs::rename(place.path("bin/prog"), root.join("usr/real/prog")).unwrap();
    place.nameless(&[]);
    assert_eq!(
        place.whole(&["--symfs", "nothing-here", "--symfs", "root"].map(|a| {
            fs::create_dir_all(place.path("nothing-here")).unwrap();
            a
        })),
        before
    );
}

#[test]
fn merged_usr_directories_are_one() {
    for (recorded, there) in [
        ("/lib/x/prog", "usr/lib/x/prog"),
        ("/usr/bin/prog", "bin/prog"),
    ] {
        let place = Place::new(&[]);
        let before = place.whole(&[]);
        let mut file = place.elf.mapped();
        file.path = recorded.into();
        fs::write(&place.capture, hits(&file, place.elf.range("outer"))).unwrap();
        let root = place.path("root");
        fs::create_dir_all(root.join(there).parent().unwrap()).unwrap();
        fs::rename(place.path("bin/prog"), root.join(there)).unwrap();
        place.nameless(&[]);
        assert_eq!(place.whole(&["--symfs", "root"]), before);
    }
}

#[test]
fn by_debug_link() {
    for at in [
        "bin/prog.debug",
        "bin/.debug/prog.debug",
        "dbg/BIN/prog.debug",
    ] {
        for id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
            let mut place = Place::new(&[id]);
            let before = place.whole(&[]);
            let below = place.path("bin").display().to_string();
            let at = at.replace("/BIN", &below);
            place.separate(&at);
            let link = format!("--add-gnu-debuglink={at}");
            place.tool("objcopy", &[&link, "bin/prog"]);
            // Without a build ID the program is known by its size and time.
            let range = place.elf.range("outer");
            place.elf = Elf::open(place.path("bin/prog"));
            fs::write(&place.capture, hits(&place.elf.mapped(), range)).unwrap();
            fs::create_dir_all(place.path("dbg")).unwrap();
            assert_eq!(place.whole(&["--debug-dir", "dbg"]), before, "{at} {id}");
        }
    }
}

/// Each is skipped, once said, and costs nothing else.
#[test]
fn debug_files_that_are_not_believed() {
    type Spoil = fn(&Place, &Path);
    let spoils: [(&str, &str, Spoil); 4] = [
        ("-Wl,--build-id", "its build ID is", |place, file| {
            let other = place.path("other.c");
            fs::write(&other, SOURCE.replace("+ 1", "+ 2")).unwrap();
            let flags = ["-O1", "-g", "-Wl,--build-id"];
            let other = Elf::with(place.dir.path(), "other", "gcc", &other, &flags);
            fs::copy(other.path, file).unwrap();
        }),
        ("-Wl,--build-id=none", "its checksum is not", |_, file| {
            let mut bytes = fs::read(file).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(file, bytes).unwrap();
        }),
        ("-Wl,--build-id", "it is no ELF file", |_, file| {
            fs::write(file, b"something else").unwrap();
        }),
        ("-Wl,--build-id", "it cannot be read", |_, file| {
            let target = file.file_name().unwrap().to_owned();
            fs::remove_file(file).unwrap();
            symlink(target, file).unwrap();
        }),
    ];
    for (id, told, spoil) in spoils {
        let mut place = Place::new(&[id]);
        place.tool(
            "objcopy",
            &["--only-keep-debug", "bin/prog", "bin/prog.debug"],
        );
        place.tool("strip", &["-g", "bin/prog"]);
        place.tool(
            "objcopy",
            &["--add-gnu-debuglink=bin/prog.debug", "bin/prog"],
        );
        place.elf = Elf::open(place.path("bin/prog"));
        place.record();
        place.whole(&[]);
        spoil(&place, &place.path("bin/prog.debug"));
        place.symbols_only(&[], told);
    }
}

/// Cut anywhere, it is refused or read as far as it goes; the report stands.
#[test]
fn a_debug_file_that_is_cut() {
    let place = Place::new(&[]);
    let file = place.path("bin/prog.debug");
    place.tool(
        "objcopy",
        &["--only-keep-debug", "bin/prog", "bin/prog.debug"],
    );
    place.tool("strip", &["-g", "bin/prog"]);
    fs::create_dir_all(place.path(&place.by_id("dbg")).parent().unwrap()).unwrap();
    let whole = fs::read(&file).unwrap();
    for part in 0..40 {
        let len = whole.len() * part / 40;
        fs::write(place.path(&place.by_id("dbg")), &whole[..len]).unwrap();
        let (folded, _) = place.folded(&["--debug-dir", "dbg"], "");
        assert!(folded.starts_with("app-100;outer"), "{len}: {folded}");
        assert!(!folded.contains('['), "{len}: {folded}");
    }
}

/// A10: the same names, lines and inlined functions.
#[test]
fn compressed_sections_are_as_good_as_others() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let place = Place::new(&[version]);
        let before = place.whole(&[]);
        for kind in ["zlib", "zlib-gnu", "zstd"] {
            println!("{version} {kind}");
            let option = format!("--compress-debug-sections={kind}");
            place.tool("objcopy", &[&option, "bin/prog", "bin/packed"]);
            let packed = fs::read(place.path("bin/packed")).unwrap();
            assert_ne!(packed, fs::read(&place.elf.path).unwrap(), "{kind}");
            fs::rename(place.path("bin/packed"), &place.elf.path).unwrap();
            assert_eq!(place.whole(&[]), before, "{version} {kind}");
        }
    }
}

/// A10.
#[test]
fn an_unknown_compression_costs_lines_only() {
    let place = Place::new(&[]);
    place.tool("objcopy", &["--compress-debug-sections=zlib", "bin/prog"]);
    let mut bytes = fs::read(&place.elf.path).unwrap();
    // `ch_type` is the first word of each compressed section.
    let places: Vec<usize> = {
        use object::{Object, ObjectSection};
        let elf = object::File::parse(&*bytes).unwrap();
        let sections = elf
            .sections()
            .filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug_")));
        let compressed = sections.filter(|s| {
            s.compressed_file_range()
                .is_ok_and(|r| r.format != object::CompressionFormat::None)
        });
        compressed
            .map(|s| s.file_range().unwrap().0 as usize)
            .collect()
    };
    assert!(!places.is_empty());
    for at in places {
        bytes[at] = 99;
    }
    fs::write(&place.elf.path, bytes).unwrap();
    place.symbols_only(&[], "compressed in a way that is not known here");
}

/// Line tables are not looked at for views that show no lines.
#[test]
fn broken_line_tables_cost_lines_only() {
    let place = Place::new(&[]);
    let before = place.whole(&[]);
    let mut bytes = fs::read(&place.elf.path).unwrap();
    let (offset, len) = {
        use object::{Object, ObjectSection};
        let elf = object::File::parse(&*bytes).unwrap();
        elf.section_by_name(".debug_line")
            .unwrap()
            .file_range()
            .unwrap()
    };
    bytes[offset as usize..][..len as usize].fill(0xee);
    fs::write(&place.elf.path, bytes).unwrap();
    assert_eq!(place.whole(&[]), before);
    let standard = Run::report(&["--standard"], &place.capture);
    let told = standard
        .err
        .lines()
        .filter(|l| l.contains("some debug information not used"));
    assert_eq!(told.count(), 1, "{}", standard.err);
    let standard = standard.ok();
    assert!(
        standard.contains(" inner ") && !standard.contains("prog.c:"),
        "{standard}"
    );
}

/// A11.
#[test]
fn split_dwarf_is_read_where_it_is_and_missed_once_where_it_is_not() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let place = Place::new(&["-gsplit-dwarf", version]);
        let objects: Vec<PathBuf> = fs::read_dir(place.path("bin"))
            .unwrap()
            .chain(fs::read_dir(place.dir.path()).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "dwo"))
            .collect();
        assert_eq!(objects.len(), 1, "{version}");
        let before = place.whole(&[]);
        let lines = Run::report(&["--standard"], &place.capture).ok();
        assert!(lines.contains("prog.c:3"), "{lines}");
        // binutils' dwp packs DWARF 4 only.
        if version == "-gdwarf-4" {
            place.tool("dwp", &["-o", "bin/prog.dwp", objects[0].to_str().unwrap()]);
            fs::rename(&objects[0], place.path("away")).unwrap();
            assert_eq!(place.whole(&[]), before);
            fs::remove_file(place.path("bin/prog.dwp")).unwrap();
        } else {
            fs::rename(&objects[0], place.path("away")).unwrap();
        }
        place.symbols_only(&[], ".dwo, not read: not found");
        // One of another build is not taken.
        let mut other = fs::read(place.path("away")).unwrap();
        let id = other.len();
        other.truncate(id / 2);
        fs::write(&objects[0], other).unwrap();
        place.symbols_only(&[], ".dwo, not read: not found");
    }
}

/// A11.
#[test]
fn what_dwz_has_moved_out_is_read_by_its_build_id() {
    let place = Place::new(&["-no-pie"]);
    // Two programs that have much in common, so that there is something to move out.
    fs::copy(&place.elf.path, place.path("bin/twin")).unwrap();
    let before = place.whole(&[]);
    place.tool(
        "dwz",
        &[
            "-m",
            "common.debug",
            "-M",
            "common.debug",
            "bin/prog",
            "bin/twin",
        ],
    );
    if !place.path("common.debug").exists() {
        // Too little in common to be worth a file.
        panic!("dwz has made no common file");
    }
    fs::rename(place.path("common.debug"), place.path("bin/common.debug")).unwrap();
    assert_eq!(place.whole(&[]), before);
    fs::write(place.path("bin/common.debug"), b"something else").unwrap();
    let (folded, told) = place.folded(&[], "some debug info is in common.debug, not read");
    assert!(folded.starts_with("app-100;outer"), "{folded}");
    assert!(!folded.contains('['), "{folded}");
    assert_eq!(told, 1);
}

/// A11: MiniDebugInfo.
#[test]
fn symbols_in_gnu_debugdata_are_read() {
    let place = Place::new(&["-g0"]);
    place.tool("objcopy", &["--only-keep-debug", "bin/prog", "mini"]);
    place.tool("strip", &["-s", "bin/prog"]);
    place.nameless(&[]);
    place.tool("xz", &["mini"]);
    place.tool(
        "objcopy",
        &["--add-section", ".gnu_debugdata=mini.xz", "bin/prog"],
    );
    let (folded, warnings) = place.folded(&[], "");
    let count = place.elf.range("outer").count();
    assert_eq!((folded, warnings), (format!("app-100;outer {count}\n"), 0));

    // Broken: one hint, and no names.
    let mut packed = fs::read(place.path("mini.xz")).unwrap();
    let middle = packed.len() / 2;
    packed[middle] ^= 0x55;
    fs::write(place.path("mini.xz"), packed).unwrap();
    place.tool(
        "objcopy",
        &["--update-section", ".gnu_debugdata=mini.xz", "bin/prog"],
    );
    place.nameless(&[]);
    assert_eq!(
        place
            .folded(&[], "some symbols are in .gnu_debugdata, not read")
            .1,
        1
    );
}

/// The program is gone: the capture has its layout, the debug file the rest (A09).
#[test]
fn a_program_that_is_gone_is_named_by_its_debug_file() {
    for flags in [&["-no-pie"][..], &["-pie"]] {
        let place = Place::new(flags);
        let before = place.whole(&[]);
        let loads = functions::loads(&*fs::read(&place.elf.path).unwrap());
        place.separate(&place.by_id("dbg"));
        fs::remove_file(&place.elf.path).unwrap();
        place.nameless(&["--debug-dir", "dbg"]);

        let mapped = place.elf.mapped();
        let mut s = Scene::of(&mapped, place.elf.range("outer"));
        let layouts = vec![ElfLayout {
            path: mapped.path,
            build_id: mapped.build_id,
            inode: None,
            version: None,
            loads,
        }];
        s.writer.elf_layouts(&ElfLayouts { layouts }).unwrap();
        fs::write(&place.capture, s.finish()).unwrap();
        assert_eq!(place.whole(&["--debug-dir", "dbg"]), before);
        place.nameless(&[]);
    }
}

/// Tools that move a program's parts about leave its build ID: a layout holds for the path it was recorded for.
#[test]
fn a_layout_of_another_path_is_not_used() {
    let place = Place::new(&["-no-pie"]);
    let before = place.whole(&[]);
    let loads = functions::loads(&*fs::read(&place.elf.path).unwrap());
    let moved = |by: u64| {
        let loads = loads.iter().map(|load| Load {
            vaddr: load.vaddr + by,
            ..*load
        });
        loads.collect::<Vec<_>>()
    };
    let mapped = place.elf.mapped();
    let layout = |path: &[u8], loads| ElfLayout {
        path: path.to_vec(),
        build_id: mapped.build_id.clone(),
        inode: None,
        version: None,
        loads,
    };
    let record = |layouts| {
        let mut s = Scene::of(&mapped, place.elf.range("outer"));
        s.writer.elf_layouts(&ElfLayouts { layouts }).unwrap();
        fs::write(&place.capture, s.finish()).unwrap();
    };
    let other = || layout(b"/opt/patched", moved(0x40));
    record(vec![other()]);
    assert_eq!(place.whole(&[]), before, "the program's own is as good");
    record(vec![other(), layout(&mapped.path, moved(0))]);
    assert_eq!(place.whole(&[]), before);

    // Without the program only its own layout, or one that all of its build ID have, helps.
    place.separate(&place.by_id("dbg"));
    fs::remove_file(&place.elf.path).unwrap();
    assert_eq!(place.whole(&["--debug-dir", "dbg"]), before);
    record(vec![other(), layout(b"/opt/copy", moved(0))]);
    place.nameless(&["--debug-dir", "dbg"]);
    record(vec![layout(b"/opt/copy", moved(0))]);
    assert_eq!(place.whole(&["--debug-dir", "dbg"]), before);
}

/// A debug file in the program's place: its program headers say nothing about where code was (F8).
#[test]
fn a_debug_file_is_never_taken_for_the_program() {
    let place = Place::new(&[]);
    place.separate("only.debug");
    fs::rename(place.path("only.debug"), &place.elf.path).unwrap();
    place.nameless(&[]);
    let run = place.run(&[]);
    assert!(run.err.contains("file missing"), "{}", run.err);
}

#[test]
fn build_ids_can_be_required() {
    let place = Place::new(&["-Wl,--build-id=none"]);
    place.whole(&[]);
    let run = place.run(&[]);
    assert!(run.err.contains("unverified (no build ID)"), "{}", run.err);
    place.nameless(&["--require-build-id"]);
    let run = place.run(&["--require-build-id"]);
    assert!(run.err.contains("no build ID"), "{}", run.err);
    assert!(!run.err.contains("unverified"), "{}", run.err);
}

/// A file that is there and is another one says more than one that is not.
#[test]
fn the_most_telling_reason_is_given() {
    let place = Place::new(&[]);
    let root = place.path("root");
    let inside = root.join(place.elf.path.strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    let other = place.path("other.c");
    fs::write(&other, SOURCE.replace("+ 1", "+ 2")).unwrap();
    let flags = ["-O1", "-g", "-Wl,--build-id"];
    let other = Elf::with(place.dir.path(), "other", "gcc", &other, &flags);
    fs::copy(other.path, &inside).unwrap();
    // The next place has the right one.
    place.whole(&["--symfs", "root"]);
    fs::remove_file(&place.elf.path).unwrap();
    let run = place.run(&["--symfs", "root"]);
    let found = format!(
        "root/{}",
        place.elf.path.strip_prefix("/").unwrap().display()
    );
    assert!(run.err.contains("build ID differs"), "{}", run.err);
    assert!(
        run.err.contains(&format!("{found} has build ID")),
        "{}",
        run.err
    );
}

#[test]
fn places_that_are_not_there_are_wrong_usage() {
    let place = Place::new(&[]);
    for option in ["--symfs", "--debug-dir", "--vmlinux"] {
        let run = place.run(&[option, "nowhere"]);
        assert_eq!(run.code, Some(1));
        assert!(
            run.err.contains(&format!("{option} nowhere: no such")),
            "{}",
            run.err
        );
    }
}
