//! Names that the capture itself has: kernel, vdso, JIT code; and labels where no file is.

use std::fs;

use super::*;

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
