//! Names by the files that were mapped: which file is believed, and what of it names code.

use std::fs;

use super::*;

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
    // It is put before the other, so that no distance from where the function is entered can be told.
    for (offset, inside) in [(cold, None), (hot, Some(0))] {
        let found = resolve(&mut s, Code::File(file, offset), false);
        assert_eq!(found.chain, ["app::drive(int) prog"]);
        assert_eq!(found.offset, inside);
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
