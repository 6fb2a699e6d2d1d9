use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};

use super::resolve::label;
use super::*;
use crate::event::{BuildId, FileVersion, MappedKind};
use crate::format::aid::KernelSymbol;
use crate::profile::Names;

const C: &str = "
volatile int sink;
__attribute__((noinline)) int leaf(int x) { sink += x; return sink; }
static inline __attribute__((always_inline)) int inner(int x) { sink += x; return x * sink; }
static inline __attribute__((always_inline)) int middle(int x) { return inner(x) + 1; }
__attribute__((noinline)) int outer(int x) { return middle(x) + leaf(x); }
int main(void) { return outer(3); }
";

const ASM: &str = "
.text
.globl sized; .type sized,@function
sized: nop
label_inside: nop
nop
.size sized, 3
nop
nop
.globl sizeless; .type sizeless,@function
sizeless: nop
nop
.globl bare_label
bare_label: nop
nop
.globl version_marker
.set version_marker, 0
";

fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let out = dir.join(name);
    let path = dir.join(format!("{name}{}", if source == ASM { ".s" } else { ".c" }));
    fs::write(&path, source).unwrap();
    let status = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success(), "gcc {flags:?}");
    out
}

/// File offset of a symbol, and the recorded form of the file.
fn offset_of(path: &Path, symbol: &str) -> u64 {
    let bytes = fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let address = elf
        .symbols()
        .find(|s| s.name() == Ok(symbol))
        .unwrap()
        .address();
    let segment = elf
        .segments()
        .find(|s| (s.address()..s.address() + s.size()).contains(&address));
    let segment = segment.unwrap();
    address - segment.address() + segment.file_range().0
}

fn recorded(path: &Path) -> MappedFile {
    let bytes = fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let build_id = elf
        .section_by_name(".note.gnu.build-id")
        .map(|s| s.data().unwrap()[16..].to_vec());
    let meta = fs::metadata(path).unwrap();
    MappedFile {
        kind: MappedKind::File,
        path: path.as_os_str().as_bytes().to_vec(),
        version: build_id.is_none().then(|| FileVersion {
            size: meta.len(),
            mtime_sec: meta.mtime(),
            mtime_nsec: meta.mtime_nsec() as u32,
        }),
        build_id: build_id.and_then(|id| BuildId::new(&id)),
        inode: None,
        deleted: false,
    }
}

struct Resolved {
    chain: Vec<String>,
    offset: Option<u64>,
    unnamed: Option<Reason>,
    unverified: bool,
    lines: Vec<u32>,
}

/// A symbolizer with its names.
struct Fixture {
    symbolizer: Symbolizer,
    names: Names,
}

impl Fixture {
    fn new(options: Options, aid: Aid) -> Fixture {
        Fixture {
            symbolizer: Symbolizer::new(options, aid),
            names: Names::default(),
        }
    }
}

impl std::ops::Deref for Fixture {
    type Target = Symbolizer;
    fn deref(&self) -> &Symbolizer {
        &self.symbolizer
    }
}

impl std::ops::DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut Symbolizer {
        &mut self.symbolizer
    }
}

fn resolve(fixture: &mut Fixture, code: Code, is_return: bool) -> Resolved {
    let Fixture { symbolizer, names } = fixture;
    let place = symbolizer.place(Place { code, is_return });
    symbolizer.resolve(names);
    let resolution = symbolizer.resolution(place).unwrap();
    let chain = resolution.chain.iter();
    Resolved {
        chain: chain
            .clone()
            .map(|part| {
                let frame = names.frames()[part.frame as usize];
                format!("{} {}", names.text(frame.name), names.text(frame.module))
            })
            .collect(),
        offset: resolution.offset,
        unnamed: resolution.unnamed,
        unverified: resolution.unverified,
        lines: chain
            .filter_map(|part| part.source.map(|s| s.line))
            .collect(),
    }
}

fn symbolizer() -> Fixture {
    Fixture::new(Options::default(), Aid::default())
}

#[test]
fn a_file_names_its_functions_with_inlined_ones_and_lines() {
    let dir = tempfile::tempdir().unwrap();
    let prog = compile(dir.path(), "prog", C, &["-O1", "-g", "-Wl,--build-id"]);
    let mut s = symbolizer();
    let file = s.file(&recorded(&prog));
    let leaf = offset_of(&prog, "leaf");
    let found = resolve(&mut s, Code::File(file, leaf), false);
    assert_eq!(found.chain, ["leaf prog"]);
    assert_eq!(
        (found.offset, found.unnamed, found.unverified),
        (Some(0), None, false)
    );
    assert_eq!(found.lines, [3]);

    // Somewhere in `outer` both levels of inlined code are found, outermost first.
    let outer = offset_of(&prog, "outer");
    let chains: Vec<_> = (0..32)
        .map(|i| resolve(&mut s, Code::File(file, outer + i), false).chain)
        .collect();
    assert!(
        chains
            .iter()
            .any(|c| *c == ["outer prog", "middle prog", "inner prog"]),
        "{chains:?}"
    );

    // A return address right behind `leaf` belongs to `leaf`'s last byte.
    let size = (1..200)
        .find(|i| resolve(&mut s, Code::File(file, leaf + i), false).chain != ["leaf prog"])
        .unwrap();
    let found = resolve(&mut s, Code::File(file, leaf + size - 1), true);
    assert_eq!(
        (found.chain, found.offset),
        (vec!["leaf prog".to_owned()], Some(size))
    );
}

#[test]
fn a_function_of_two_parts_keeps_its_demangled_name() {
    let source = "
__attribute__((cold, noinline)) void rare(int x) { __builtin_printf(\"%d\", x); }
int drive(int x) __asm__(\"_ZN3app5driveEi\");
__attribute__((noinline)) int drive(int x) {
    if (x > 100) { rare(x); rare(x + 1); __builtin_abort(); }
    return x + 1;
}
int main(int argc, char **argv) { (void)argv; return drive(argc); }
";
    let dir = tempfile::tempdir().unwrap();
    let prog = compile(dir.path(), "prog", source, &["-O2", "-g", "-Wl,--build-id"]);
    // gcc has moved the unlikely part away, which leaves DWARF with two ranges.
    let cold = offset_of(&prog, "_ZN3app5driveEi.cold");
    let hot = offset_of(&prog, "_ZN3app5driveEi");
    let mut s = symbolizer();
    let file = s.file(&recorded(&prog));
    for offset in [cold, hot] {
        let found = resolve(&mut s, Code::File(file, offset), false);
        assert_eq!(found.chain, ["app::drive(int) prog"]);
        assert_eq!(found.offset, Some(0));
        assert!(matches!(found.lines[..], [4..=6]), "{:?}", found.lines);
    }
}

#[test]
fn another_build_of_the_file_names_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let prog = compile(dir.path(), "prog", C, &["-O1", "-Wl,--build-id"]);
    let leaf = offset_of(&prog, "leaf");
    let mapped = recorded(&prog);
    let changed = C.replace("x * sink", "x * sink + 1");
    compile(dir.path(), "prog", &changed, &["-O1", "-Wl,--build-id"]);
    let mut s = symbolizer();
    let file = s.file(&mapped);
    let found = resolve(&mut s, Code::File(file, leaf), true);
    assert_eq!(found.chain, [format!("[prog+{:#x}] prog", leaf + 1)]);
    assert_eq!(found.unnamed, Some(Reason::BuildIdDiffers));

    compile(dir.path(), "prog", C, &["-O1", "-Wl,--build-id=none"]);
    let mut s = symbolizer();
    let file = s.file(&mapped);
    assert_eq!(
        resolve(&mut s, Code::File(file, leaf), false).unnamed,
        Some(Reason::BuildIdDiffers)
    );

    fs::remove_file(&prog).unwrap();
    let mut s = symbolizer();
    let file = s.file(&mapped);
    let place = s.place(Place {
        code: Code::File(file, leaf),
        is_return: false,
    });
    s.resolve(&mut Names::default());
    s.count(place, 7);
    let naming = s.naming();
    assert_eq!((naming.user_named, naming.user_total), (0, 7));
    assert_eq!(naming.unnamed, [(Reason::FileMissing, 7)].into());
    assert_eq!(naming.files[0].path.as_bytes(), mapped.path);
    assert_eq!(
        (naming.files[0].frames, naming.files[0].reason),
        (7, Reason::FileMissing)
    );
}

#[test]
fn a_file_without_build_id_is_unverified() {
    let dir = tempfile::tempdir().unwrap();
    let prog = compile(dir.path(), "prog", C, &["-O1", "-Wl,--build-id=none"]);
    let mut s = symbolizer();
    let file = s.file(&recorded(&prog));
    let found = resolve(&mut s, Code::File(file, offset_of(&prog, "leaf")), false);
    assert_eq!(found.chain, ["leaf prog"]);
    assert!(found.unverified);
    s.count(0, 3);
    assert_eq!((s.naming().unverified, s.naming().user_named), (3, 3));
}

#[test]
fn files_are_found_below_symfs_before_the_recorded_path() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("opt")).unwrap();
    let prog = compile(dir.path(), "prog", C, &["-O1", "-Wl,--build-id"]);
    let leaf = offset_of(&prog, "leaf");
    let mut mapped = recorded(&prog);
    let options = Options {
        symfs: vec![root.clone()],
        ..Options::default()
    };
    // Not below it, but the build ID vouches for the file at the recorded path ...
    let mut s = Fixture::new(options.clone(), Aid::default());
    let file = s.file(&mapped);
    assert_eq!(
        resolve(&mut s, Code::File(file, leaf), false).chain,
        ["leaf prog"]
    );
    // ... and nothing does for one without.
    let plain = compile(dir.path(), "plain", C, &["-O1", "-Wl,--build-id=none"]);
    let mut s = Fixture::new(options.clone(), Aid::default());
    let file = s.file(&recorded(&plain));
    let at = Code::File(file, offset_of(&plain, "leaf"));
    assert_eq!(
        resolve(&mut s, at, false).unnamed,
        Some(Reason::FileMissing)
    );

    fs::rename(&prog, root.join("opt/prog")).unwrap();
    mapped.path = b"/../opt/prog".to_vec();
    let mut s = Fixture::new(options, Aid::default());
    let file = s.file(&mapped);
    assert_eq!(
        resolve(&mut s, Code::File(file, leaf), false).chain,
        ["leaf prog"]
    );
}

#[test]
fn only_functions_name_code_and_only_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let flags = ["-shared", "-nostdlib", "-Wl,--build-id"];
    let lib = compile(dir.path(), "lib.so", ASM, &flags);
    let mut s = symbolizer();
    let file = s.file(&recorded(&lib));
    let start = offset_of(&lib, "sized");
    let names: Vec<String> = (0..11)
        .map(|i| resolve(&mut s, Code::File(file, start + i), false).chain[0].clone())
        .collect();
    let unnamed = |i: u64| format!("[lib.so+{:#x}] lib.so", start + i);
    let expected = [
        "sized lib.so".to_owned(),
        // A label in a function is not a function.
        "sized lib.so".to_owned(),
        "sized lib.so".to_owned(),
        // What follows a function that has a size is not part of it.
        unnamed(3),
        unnamed(4),
        // One without a size reaches to the next function, not to a bare label.
        "sizeless lib.so".to_owned(),
        "sizeless lib.so".to_owned(),
        "sizeless lib.so".to_owned(),
        "sizeless lib.so".to_owned(),
    ];
    assert_eq!(names[..9], expected);
    // Data, headers and what is not in the file have no names.
    assert_eq!(
        resolve(&mut s, Code::File(file, 0), false).unnamed,
        Some(Reason::NoSymbol)
    );
    assert_eq!(
        resolve(&mut s, Code::File(file, 1 << 40), false).unnamed,
        Some(Reason::NoSymbol)
    );
    assert_eq!(
        resolve(&mut s, Code::File(file, u64::MAX), true).unnamed,
        Some(Reason::NoSymbol)
    );
}

#[test]
fn a_broken_file_costs_its_names_only() {
    let dir = tempfile::tempdir().unwrap();
    let prog = compile(dir.path(), "prog", C, &["-O1", "-g", "-Wl,--build-id"]);
    let leaf = offset_of(&prog, "leaf");
    let mapped = recorded(&prog);
    // A debug link with a wrong checksum: names come from the symbol table, with one warning.
    fs::write(dir.path().join("prog.debug"), b"not the debug file").unwrap();
    let objcopy = |args: &[&str]| {
        let status = Command::new("objcopy")
            .current_dir(dir.path())
            .args(args)
            .status()
            .unwrap();
        assert!(status.success());
    };
    objcopy(&["--strip-debug", "--add-gnu-debuglink=prog.debug", "prog"]);
    fs::write(dir.path().join("prog.debug"), b"changed since").unwrap();
    let mut s = symbolizer();
    let file = s.file(&mapped);
    assert_eq!(
        resolve(&mut s, Code::File(file, leaf), false).chain,
        ["leaf prog"]
    );
    let warnings = s.take_warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("prog.debug: debug file not used"),
        "{warnings:?}"
    );
}

/// Nothing waits for the other end of a FIFO.
#[test]
fn a_debug_file_that_is_no_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    for (section, name, content, flags, told) in [
        (
            ".gnu_debuglink",
            "prog.debug",
            &b"prog.debug\0\0\x01\x02\x03\x04"[..],
            &["-g0"][..],
            "it is not a regular file",
        ),
        (
            ".gnu_debugaltlink",
            "prog.alt",
            b"prog.alt\0aaaaaaaaaaaaaaaaaaaa",
            &["-g"],
            "some debug info is in prog.alt, not read",
        ),
        (
            ".debug_sup",
            "prog.sup",
            b"\x05\0\0prog.sup\0\x04aaaa",
            &["-g"],
            "some debug info is in prog.sup, not read",
        ),
        (
            ".other",
            "prog.dwp",
            b"x",
            &["-g", "-gsplit-dwarf"],
            "not read",
        ),
    ] {
        let path = compile(
            dir.path(),
            "prog",
            C,
            &[&["-O1", "-no-pie"], flags].concat(),
        );
        for entry in fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap().path();
            if entry.extension().is_some_and(|e| e == "dwo") {
                fs::remove_file(entry).unwrap();
            }
        }
        let odd = dir.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &odd,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        fs::write(dir.path().join("content"), content).unwrap();
        let status = Command::new("objcopy")
            .current_dir(dir.path())
            .args(["--add-section", &format!("{section}=content"), "prog"])
            .status()
            .unwrap();
        assert!(status.success());

        let mut s = symbolizer();
        let file = s.file(&recorded(&path));
        let leaf = offset_of(&path, "leaf");
        let found = resolve(&mut s, Code::File(file, leaf), false);
        assert_eq!(found.chain, ["leaf prog"], "{section}");
        let warnings = s.take_warnings();
        assert!(
            warnings.len() == 1 && warnings[0].contains(told),
            "{section}: {warnings:?}"
        );
        fs::remove_file(odd).unwrap();
    }
}

/// The program is gone; its debug file and the layout in the capture are left (A09, F8).
#[test]
fn a_program_that_is_gone_is_named_by_its_debug_file() {
    for flags in [["-O1", "-g", "-no-pie"], ["-O1", "-g", "-pie"]] {
        let dir = tempfile::tempdir().unwrap();
        let prog = compile(
            dir.path(),
            "prog",
            C,
            &[&flags[..], &["-Wl,--build-id"]].concat(),
        );
        let mapped = recorded(&prog);
        let (leaf, outer) = (offset_of(&prog, "leaf"), offset_of(&prog, "outer"));
        let layout = ElfLayout {
            path: mapped.path.clone(),
            inode: None,
            version: None,
            build_id: mapped.build_id.clone(),
            loads: functions::loads(&*fs::read(&prog).unwrap()),
        };
        let hex = mapped.build_id.as_ref().unwrap().to_string();
        let debug = dir.path().join(".build-id").join(&hex[..2]);
        fs::create_dir_all(&debug).unwrap();
        let debug = debug.join(format!("{}.debug", &hex[2..]));
        let status = Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&prog, &debug])
            .status()
            .unwrap();
        assert!(status.success());
        fs::remove_file(&prog).unwrap();
        let options = Options {
            debug_dirs: vec![dir.path().to_path_buf()],
            ..Options::default()
        };
        // Without the layout nothing says where the code was.
        let mut s = Fixture::new(options.clone(), Aid::default());
        let file = s.file(&mapped);
        assert_eq!(
            resolve(&mut s, Code::File(file, leaf), false).unnamed,
            Some(Reason::FileMissing)
        );
        // That of another build is no help.
        for (id, named) in [
            (BuildId::new(&[9; 20]), false),
            (mapped.build_id.clone(), true),
        ] {
            let aid = Aid {
                layouts: vec![ElfLayout {
                    build_id: id,
                    ..layout.clone()
                }],
                ..Aid::default()
            };
            let mut s = Fixture::new(options.clone(), aid);
            let file = s.file(&mapped);
            let found = resolve(&mut s, Code::File(file, leaf), false);
            assert_eq!(found.chain == ["leaf prog"], named);
            if named {
                assert_eq!((found.offset, found.lines), (Some(0), vec![3]));
                let chains: Vec<_> = (0..32)
                    .map(|i| resolve(&mut s, Code::File(file, outer + i), false).chain)
                    .collect();
                let whole = ["outer prog", "middle prog", "inner prog"];
                assert!(chains.iter().any(|c| *c == whole), "{chains:?}");
                let used = s.files_used(file).unwrap();
                assert_eq!(
                    (&used.executable, &used.debug),
                    (&None, &Some(debug.clone()))
                );
            }
        }
    }
}

/// The pages are gone, and the kernel says so with a signal.
#[test]
fn a_file_that_shrinks_costs_its_names_only() {
    let dir = tempfile::tempdir().unwrap();
    let prog = compile(dir.path(), "prog", C, &["-O1", "-g", "-Wl,--build-id"]);
    let (leaf, main) = (offset_of(&prog, "leaf"), offset_of(&prog, "main"));
    let mut s = symbolizer();
    let file = s.file(&recorded(&prog));
    assert_eq!(
        resolve(&mut s, Code::File(file, leaf), false).chain,
        ["leaf prog"]
    );
    let opened = fs::OpenOptions::new().write(true).open(&prog).unwrap();
    opened.set_len(0).unwrap();
    // Each file has had its line table read, so ask for something that was not.
    for at in 0..3 {
        let place = s.place(Place {
            code: Code::File(file, main + at),
            is_return: false,
        });
        let Fixture { symbolizer, names } = &mut s;
        symbolizer.resolve(names);
        let unnamed = symbolizer.resolution(place).unwrap().unnamed;
        assert_eq!(unnamed, Some(Reason::Unreadable));
    }
    let warnings = s.take_warnings();
    let told = warnings.iter().filter(|w| w.contains("became shorter"));
    assert_eq!(told.count(), 1, "{warnings:?}");
}

/// Any byte of the debug information may be anything: no panic, no hang, and what is not broken is named.
#[test]
fn damaged_debug_information_costs_no_more_than_itself() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let prog = compile(dir.path(), "prog", C, &["-O1", version, "-Wl,--build-id"]);
        let mapped = recorded(&prog);
        let whole = fs::read(&prog).unwrap();
        let sections: Vec<(usize, usize)> = {
            let elf = object::File::parse(&*whole).unwrap();
            let sections = elf.sections();
            let debug = sections.filter(|s| s.name().is_ok_and(|n| n.starts_with(".debug_")));
            debug
                .map(|s| s.file_range().unwrap())
                .map(|(offset, len)| (offset as usize, len as usize))
                .collect()
        };
        let outer = offset_of(&prog, "outer");
        let mut random = 0x2545_f491_4f6c_dd1du64;
        for round in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..=round % 4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let (offset, len) = sections[random as usize % sections.len()];
                bytes[offset + (random >> 16) as usize % len] = (random >> 48) as u8;
            }
            fs::write(&prog, &bytes).unwrap();
            let mut s = symbolizer();
            let file = s.file(&mapped);
            for offset in outer..outer + 40 {
                s.place(Place {
                    code: Code::File(file, offset),
                    is_return: false,
                });
            }
            let Fixture { symbolizer, names } = &mut s;
            symbolizer.resolve(names);
            let first = symbolizer.resolution(0).unwrap();
            assert!(!first.chain.is_empty());
            assert_eq!(first.unnamed, None);
            assert!(symbolizer.take_warnings().len() <= 2);
        }
    }
}

#[test]
fn the_capture_names_kernel_vdso_and_jit_code() {
    let dir = tempfile::tempdir().unwrap();
    let image = compile(dir.path(), "vdso", ASM, &["-shared", "-nostdlib"]);
    let sized = offset_of(&image, "sized");
    let process = crate::event::ProcessKey {
        tgid: crate::event::Pid(3),
        start_time: crate::event::Timestamp(1),
    };
    let aid = Aid {
        kernel: KernelSymbols {
            stext: 0x1000,
            symbols: vec![KernelSymbol {
                start: 0x1000,
                end: 0x1100,
                name: "nft_do_chain".into(),
                module: Some("nf_tables".into()),
            }],
        },
        vdso: Some(Vdso {
            image: fs::read(&image).unwrap(),
        }),
        perf_maps: vec![PerfMap {
            process,
            previous: crate::event::Timestamp(0),
            until: crate::event::Timestamp(9),
            fresh: true,
            ended: Vec::new(),
            symbols: vec![crate::format::aid::JitSymbol {
                start: 0x7000,
                len: 0x10,
                since: crate::event::Timestamp(0),
                name: b"LazyCompile:~f /x.js:1\xff".to_vec(),
            }],
        }],
        ..Aid::default()
    };
    let mut s = Fixture::new(Options::default(), aid);
    let mut show = |code, is_return| {
        let found = resolve(&mut s, code, is_return);
        (found.chain[0].clone(), found.offset, found.unnamed)
    };
    assert_eq!(
        show(Code::Kernel(0x1010), true),
        ("nft_do_chain [nf_tables]".into(), Some(0x11), None)
    );
    let none = Some(Reason::NoKernelSymbol);
    assert_eq!(
        show(Code::Kernel(0x1100), false),
        ("[kernel+0x1100] [kernel]".into(), None, none)
    );
    assert_eq!(
        show(Code::Vdso(sized + 1), false),
        ("sized [vdso]".into(), Some(1), None)
    );
    let none = Some(Reason::NoSymbol);
    assert_eq!(show(Code::Vdso(sized + 3), true).2, none);
    let jit = ("LazyCompile:~f /x.js:1\u{fffd} [jit]".into(), Some(4), None);
    assert_eq!(show(Code::Jit(0, 0, 4), false), jit);
    let anonymous = Some(Reason::Anonymous);
    assert_eq!(
        show(Code::Jit(0, 9, 4), false),
        ("[anon] [anon]".into(), None, anonymous)
    );
    assert_eq!(show(Code::Vsyscall, false).0, "[vsyscall] [vsyscall]");
    let unknown = Reason::NotMapped;
    assert_eq!(
        show(Code::Unknown(unknown), false),
        ("[unknown] ".into(), None, Some(unknown))
    );
}

#[test]
fn memory_without_a_file_has_a_label() {
    let file = |kind, path: &str| MappedFile {
        kind,
        path: path.into(),
        build_id: None,
        inode: None,
        version: None,
        deleted: false,
    };
    for (kind, path, expected, reason) in [
        (MappedKind::Anonymous, "//anon", "[anon]", Reason::Anonymous),
        (
            MappedKind::Memfd,
            "/memfd:jit code",
            "[memfd:jit code]",
            Reason::NoPath,
        ),
        (
            MappedKind::Memfd,
            "/SYSV00000000",
            "[SYSV00000000]",
            Reason::NoPath,
        ),
        (MappedKind::Special, "[heap]", "[heap]", Reason::NoPath),
        (MappedKind::Special, "", "[anon]", Reason::Anonymous),
    ] {
        assert_eq!(label(&file(kind, path)), (expected.to_owned(), reason));
    }
}
