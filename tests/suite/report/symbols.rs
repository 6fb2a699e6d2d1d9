//! Which symbol names an address: A08, A12, A13, A31.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bprof::capture::CaptureWriter;
use bprof::event::{MappedKind, Timestamp};
use bprof::format::aid::{ElfLayout, ElfLayouts};
use bprof::format::header::Header;
use bprof::symbolize::functions;

use super::fixture::{BASE, Bench, Elf, LEN, Run, Scene, Taken, header, hits, memory};

/// Folded stacks of a capture, by what is below the process.
fn counts(bytes: &[u8], bench: &Bench) -> BTreeMap<String, u64> {
    let capture = bench.capture("run.bprof", bytes);
    let folded = Run::report(&["--folded"], &capture).ok();
    let lines = folded.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let (_, frames) = stack.split_once(';').unwrap();
        (frames.to_owned(), count.parse().unwrap())
    });
    lines.collect()
}

fn assemble(bench: &Bench, source: &str, flags: &[&str]) -> Elf {
    let path = bench.path("source.s");
    fs::write(&path, source).unwrap();
    let flags = [&["-nostdlib", "-Wl,--build-id"], flags].concat();
    Elf::with(bench.dir.path(), "lib.so", "gcc", &path, &flags)
}

fn workload(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/workloads")
        .join(name)
}

/// A08. Two bytes each, so that the second one is not just the start of something.
#[test]
fn only_functions_name_code_and_no_further_than_they_reach() {
    let source = "
.text
.globl sized; .type sized,@function
sized: nop; nop
.size sized, 2
unnamed_loop_label: nop; nop
.globl sizeless; .type sizeless,@function
sizeless: nop; nop
.globl table; .type table,@object
table: nop; nop
.size table, 2
.globl outer; .type outer,@function
outer: nop; nop
.globl inner; .type inner,@function
inner: nop; nop
.size inner, 2
nop; nop
.size outer, 6
.globl covered; .type covered,@function
.set covered, outer + 1
.size covered, 0
.globl plain, __plain; .type plain,@function; .type __plain,@function; .type a_local,@function
__plain:
plain:
a_local: nop; nop
.size plain, 2
.size __plain, 2
.size a_local, 2
.weak weak, weaker; .type weak,@function; .type strong,@function
.globl strong
weak:
strong: nop; nop
.size weak, 2
.size strong, 2
.globl absolute; .type absolute,@function
.set absolute, 1
";
    let bench = Bench::new();
    for flags in [
        &["-shared"][..],
        &["-shared", "-Wl,--version-script=map"],
        &["-static", "-Wl,-e,sized"],
    ] {
        fs::write(bench.path("map"), "VERS_1.5 { global: *; };\n").unwrap();
        let elf = assemble(&bench, source, flags);
        let start = elf.offset("sized");
        let found = counts(&hits(&elf.mapped(), start..start + 18), &bench);
        let unnamed = |at: u64| (format!("[lib.so+{:#x}]", start + at), 1);
        let named = |name: &str, bytes: u64| (name.to_owned(), bytes);
        let expected: BTreeMap<String, u64> = [
            named("sized", 2),
            unnamed(2),
            unnamed(3),
            // Without a size it reaches to the next function, whatever else is on the way.
            named("sizeless", 4),
            named("outer", 4),
            named("inner", 2),
            // Fewer underscores, global before local; a global one before a weak one.
            named("plain", 2),
            named("strong", 2),
        ]
        .into();
        assert_eq!(found, expected, "{flags:?}");
    }
}

/// A12: a call that does not return is the last instruction of `a`; its return address is the first byte of `b`.
#[test]
fn callers_are_looked_up_at_the_call_and_the_leaf_where_it_is() {
    let source = "
.text
.globl a; .type a,@function
a: nop
call exit_now
.size a, .-a
.globl b; .type b,@function
b: jmp b
.size b, .-b
.globl exit_now; .type exit_now,@function
exit_now: hlt
.size exit_now, .-exit_now
";
    let bench = Bench::new();
    let elf = assemble(&bench, source, &["-shared", "-Wl,-Bsymbolic"]);
    let (b, exit_now) = (elf.offset("b"), elf.offset("exit_now"));
    let mut s = Scene::new();
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    s.map(app, 0, BASE, &elf.mapped());
    let taken = Taken::of(app, 100, "app", 1_000_000_000);
    s.sample(Taken {
        user: &[BASE + exit_now, BASE + b],
        ..taken
    });
    // The hot instruction is the first byte of `b`.
    s.sample(Taken {
        user: &[BASE + b, BASE + b],
        time: 1_010_000_000,
        ..taken
    });
    let bytes = s.finish();
    let expected = [("a;exit_now".to_owned(), 1), ("a;b".to_owned(), 1)];
    assert_eq!(counts(&bytes, &bench), expected.into());
    // The printed address is the sampled one, and so is the distance from the function.
    let standard = Run::report(&["--standard"], &bench.path("run.bprof")).ok();
    let shown = format!("{:x} a+0x6", BASE + b);
    assert!(standard.contains(&shown), "{shown}: {standard}");
}

/// A13: outermost first, qualified and demangled, in C++ and in Rust.
#[test]
fn inlined_functions_are_in_order_and_have_whole_names() {
    let bench = Bench::new();
    let cases: [(&str, &str, &[&str], &str, &str); 2] = [
        (
            "g++",
            "inline.cpp",
            &["-O2", "-g", "-Wl,--build-id"],
            "_ZN3inl9inl_driveEm",
            "inl::inl_drive(unsigned long);inl::inl_mid;inl::inl_leaf",
        ),
        (
            "rustc",
            "inline.rs",
            &[
                "-O",
                "-g",
                "-Clink-arg=-Wl,--build-id",
                "-Csymbol-mangling-version=v0",
            ],
            "inl_drive",
            "inline::inl_drive;inline::inl_mid;inline::inl_leaf",
        ),
    ];
    for (compiler, source, flags, symbol, expected) in cases {
        let elf = Elf::with(
            bench.dir.path(),
            "inlined",
            compiler,
            &workload(source),
            flags,
        );
        let range = elf.range_like(symbol);
        let total = range.end - range.start;
        let found = counts(&hits(&elf.mapped(), range), &bench);
        let whole = found.get(expected).copied().unwrap_or(0);
        assert!(whole * 10 >= total * 3, "{expected}: {found:?}");
        for stack in found.keys() {
            let frames: Vec<&str> = stack.split(';').collect();
            assert!(
                frames.iter().all(|f| !f.is_empty() && !f.contains("??")),
                "{stack}"
            );
            assert!(
                frames
                    .iter()
                    .all(|f| !f.starts_with("_Z") && !f.starts_with("_R")),
                "{stack}"
            );
            // A callee is never above its caller.
            let at = |name: &str| frames.iter().position(|f| f.contains(name));
            if let (Some(leaf), mid) = (at("inl_leaf"), at("inl_mid")) {
                assert!(
                    mid.is_some_and(|mid| mid < leaf) && at("inl_drive") == Some(0),
                    "{stack}"
                );
            }
        }
    }
}

/// A31: code that was copied to anonymous memory over its own text has no file, and no name that may be wrong.
#[test]
fn code_moved_to_anonymous_memory_is_labelled_so() {
    let bench = Bench::new();
    let (leaf, mid) = (bench.elf.offset("leaf"), bench.elf.offset("mid"));
    for kind in [MappedKind::Anonymous, MappedKind::Special] {
        let mut s = Scene::new();
        let app = s.process(100, 500);
        s.image(app, 0, 0, "app");
        s.map(app, 0, BASE, &bench.elf.mapped());
        let user = [BASE + leaf, BASE + mid + 5];
        let taken = Taken::of(app, 100, "app", 1_000_000_000);
        s.sample(Taken {
            user: &user,
            ..taken
        });
        // From then on.
        let over = memory(
            kind,
            if kind == MappedKind::Special {
                "[heap]"
            } else {
                "//anon"
            },
        );
        s.map(app, 1_500_000_000, BASE, &over);
        s.sample(Taken {
            user: &user,
            time: 2_000_000_000,
            ..taken
        });
        let label = if kind == MappedKind::Special {
            "[heap]"
        } else {
            "[anon]"
        };
        let expected = [("mid;leaf".to_owned(), 1), (format!("{label};{label}"), 1)];
        assert_eq!(counts(&s.finish(), &bench), expected.into());
    }
    assert!(leaf < LEN && mid < LEN);
}

/// glibc compiles its functions by names of its own, which debug information tells; callers know others.
#[test]
fn functions_of_the_c_library_have_the_names_that_callers_use() {
    const SOURCE: &str = r#"
extern int __libc_take(int) __asm__("__GI___libc_take");
int __libc_take(int n) { return n * 3 + 1; }
extern int plain_take(int) __attribute__((alias("__GI___libc_take")));
extern int __take(int) __attribute__((alias("__GI___libc_take")));
extern int kept(int) __asm__("__GI_kept");
__attribute__((visibility("hidden"))) int kept(int n) { return n * 5 + 1; }
"#;
    let bench = Bench::new();
    let path = bench.path("take.c");
    fs::write(&path, SOURCE).unwrap();
    let flags = ["-g", "-O1", "-shared", "-fPIC", "-Wl,--build-id"];
    let elf = Elf::with(bench.dir.path(), "libtake.so", "gcc", &path, &flags);
    let (take, kept) = (elf.range("plain_take").start, elf.range("__GI_kept").start);
    let scene = Scene::of(&elf.mapped(), [take, take + 2, kept]);
    let expected = [("__GI_kept".to_owned(), 1), ("plain_take".to_owned(), 2)];
    assert_eq!(counts(&scene.finish(), &bench), expected.into());
}

/// Files of one name with other code: what of them has no name is not one function because it lies at one offset.
#[test]
fn code_without_names_of_two_files_of_one_name_is_told_apart() {
    let bench = Bench::new();
    let program = |dir: &str, id: &str| {
        fs::create_dir(bench.path(dir)).unwrap();
        let source = bench.path(&format!("{dir}/srv.c"));
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let id = format!("-Wl,--build-id=0x{id}");
        Elf::with(&bench.path(dir), "srv", "gcc", &source, &["-s", &id])
    };
    let (one, two) = (program("one", "11223344"), program("two", "a1b2c3d4"));
    let scene = |start: u64, elves: &[&Elf]| {
        let header = Header {
            boot_id: "a boot".to_owned(),
            start_time: Timestamp(start),
            ..header()
        };
        let mut s = Scene {
            writer: CaptureWriter::create(Vec::new(), &header).unwrap(),
        };
        for (i, elf) in elves.iter().enumerate() {
            let pid = 42 + i as u32;
            let p = s.process(pid, 100);
            s.image(p, 0, 0, "srv");
            s.map(p, 0, BASE, &elf.mapped());
            s.sample(Taken {
                user: &[BASE + 0x10],
                ..Taken::of(p, pid, "srv", 1_000_000_000 + i as u64)
            });
        }
        s.finish()
    };
    let both = counts(&scene(1, &[&one, &two]), &bench);
    let label = |label: &str, count| (label.to_owned(), count);
    let expected = [label("[srv#a1b2c3d+0x10]", 1), label("[srv+0x10]", 1)];
    assert_eq!(both, expected.into());
    // By itself it needs no mark; beside the other one, in one file, it does.
    assert_eq!(
        counts(&scene(1, &[&two]), &bench),
        [label("[srv+0x10]", 1)].into()
    );
    let parts = [("a.bprof", 1, &one), ("b.bprof", 2, &two)];
    let parts = parts.map(|(name, start, elf)| bench.capture(name, &scene(start, &[elf])));
    let merged = bench.path("merged.bprof");
    let [a, b] = parts.each_ref().map(|path| path.as_os_str());
    Run::of(&mut super::fixture::subcommand(
        "merge",
        &[a, b, "-o".as_ref(), merged.as_os_str()],
    ))
    .ok();
    for view in ["--folded", "--csv"] {
        let text = Run::report(&[view], &merged).ok();
        assert!(
            text.contains("[srv+0x10]") && text.contains("[srv#a1b2c3d+0x10]"),
            "{text}"
        );
    }
}

/// Two files of one name are called the same in every part of a capture, whichever of them a report meets, and if none but one.
#[test]
fn a_file_is_called_the_same_in_every_selection() {
    let bench = Bench::new();
    let program = |dir: &str, id: &str| {
        fs::create_dir(bench.path(dir)).unwrap();
        let source = bench.path(&format!("{dir}/srv.c"));
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let id = format!("-Wl,--build-id=0x{id}");
        Elf::with(&bench.path(dir), "srv", "gcc", &source, &["-s", &id])
    };
    let elves = [
        program("one", "11223344"),
        program("two", "a1b2c3d4"),
        program("like", "a1b2c3d5"),
    ];
    let mut s = Scene {
        writer: CaptureWriter::create(Vec::new(), &header()).unwrap(),
    };
    for (i, elf) in elves.iter().enumerate() {
        let pid = 42 + i as u32;
        let p = s.process(pid, 100);
        s.image(p, 0, 0, "srv");
        s.map(p, 0, BASE, &elf.mapped());
        s.sample(Taken {
            user: &[BASE + 0x10],
            ..Taken::of(p, pid, "srv", 1_000_000_000 + i as u64)
        });
    }
    let layouts = elves.iter().map(|elf| ElfLayout {
        path: elf.mapped().path,
        build_id: elf.mapped().build_id,
        inode: None,
        version: None,
        loads: functions::loads(&*fs::read(&elf.path).unwrap()),
    });
    let layouts = layouts.collect();
    s.writer.elf_layouts(&ElfLayouts { layouts }).unwrap();
    let capture = bench.capture("run.bprof", &s.finish());
    // The last two begin alike.
    let labels = [
        "[srv#1122334+0x10]",
        "[srv#a1b2c3d4+0x10]",
        "[srv#a1b2c3d5+0x10]",
    ];
    let named = |options: &[&str]| -> Vec<&str> {
        let text = Run::report(&[&["--folded"], options].concat(), &capture).ok();
        let found = labels.into_iter().filter(|label| text.contains(label));
        found.collect()
    };
    assert_eq!(named(&[]), labels);
    for (i, label) in labels.iter().enumerate() {
        let pid = (42 + i).to_string();
        assert_eq!(named(&["--pid", &pid]), [*label]);
    }
}
