//! Names by separate debug files.

use std::fs;
use std::process::Command;

use super::*;

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
