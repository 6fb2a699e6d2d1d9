//! Files that are broken, shrink, or lie: they cost their own names only.

use std::fs;
use std::process::Command;

use super::*;

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
