//! Stubs of procedure linkage tables, of every layout, against `objdump`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bprof::symbolize::functions::{FunctionTable, demangle};
use object::{Object, ObjectSection, ObjectSymbol};

use super::fixture::{Bench, Elf, Run, hits, subcommand, tool};

/// Stubs by address, as `objdump` names them; none of those it names by what is near.
fn of_objdump(path: &Path) -> BTreeMap<u64, String> {
    let mut stubs = BTreeMap::new();
    for section in [".plt", ".plt.sec", ".plt.got"] {
        let mut command = Command::new("objdump");
        let out = command.args(["-d", "-j", section]).arg(path).output();
        let out = out.unwrap_or_else(|err| panic!("objdump: {err} (see PACKAGES in the Makefile)"));
        for line in String::from_utf8_lossy(&out.stdout).lines() {
            let header = line
                .strip_suffix(">:")
                .and_then(|line| line.split_once(" <"));
            if let Some((address, name)) = header
                && name.ends_with("@plt")
            {
                let address = u64::from_str_radix(address, 16).unwrap();
                stubs.insert(address, name.to_owned());
            }
        }
    }
    stubs
}

/// What `addresses` of a program are called and how far in they are; a table of all functions and one for these agree.
fn of_ours(image: &[u8], addresses: &[u64]) -> Vec<Option<(String, u64)>> {
    let whole = FunctionTable::of([image]);
    let near = FunctionTable::near(&[image], addresses);
    let find = |table: &FunctionTable, address: &u64| {
        let function = table.function(table.find(*address)?)?;
        Some((demangle(table.name(function)), address - function.start))
    };
    let all = |table: &FunctionTable| -> Vec<_> {
        let found = addresses.iter().map(|address| find(table, address));
        found.collect()
    };
    let found = all(&near);
    assert_eq!(found, all(&whole));
    found
}

/// Compares all stubs of a program; gives how many there are.
#[track_caller]
fn compare(path: &Path) -> usize {
    let stubs = of_objdump(path);
    let bytes = fs::read(path).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let symbols: Vec<(u64, &str)> = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))
        .collect();
    // The first byte, and one behind the jump's first byte.
    let addresses: Vec<u64> = stubs.keys().flat_map(|at| [*at, *at + 7]).collect();
    let ours = of_ours(&bytes, &addresses);
    for ((address, theirs), ours) in stubs.iter().zip(ours.chunks(2)) {
        for (ours, inside) in ours.iter().zip([0, 7]) {
            let (ours, offset) = ours
                .as_ref()
                .unwrap_or_else(|| panic!("{address:#x} {theirs} has no name"));
            assert_eq!(*offset, inside, "{address:#x} {theirs}");
            let resolver = theirs
                .strip_prefix("*ABS*+0x")
                .and_then(|rest| rest.strip_suffix("@plt"))
                .map(|hex| u64::from_str_radix(hex, 16).unwrap());
            match resolver {
                // It knows only where the function is that chooses; a name of that is the function's.
                Some(resolver) if ours != theirs => {
                    let name = ours.strip_suffix("@plt").unwrap();
                    let is_it =
                        |(at, symbol): &(u64, &str)| *at == resolver && demangle(symbol) == name;
                    let known = symbols.iter().any(is_it);
                    assert!(known, "{address:#x}: {ours} for {theirs}");
                }
                _ => assert_eq!(*ours, demangle(theirs), "{address:#x}"),
            }
        }
    }
    // The code before the first stub looks for the function: it is none.
    let first = stubs.keys().next().copied().unwrap_or_default();
    if of_ours(&bytes, &[first]).iter().all(Option::is_some) {
        let before = of_ours(&bytes, &[first - 1]).pop().flatten();
        assert!(
            !before.is_some_and(|(name, _)| name.ends_with("@plt")),
            "{first:#x}"
        );
    }
    stubs.len()
}

#[test]
fn stubs_of_every_layout_are_named_as_objdump_names_them() {
    let source = "
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int (*volatile indirect)(const char *) = puts;
int main(int argc, char **argv) {
  char text[64];
  memcpy(text, argv[0], argc);
  indirect(text);
  puts(text);
  printf(\"%s %ld\", text, strtol(text, 0, 10) + atol(argv[0]));
  return strlen(text) + abs(argc);
}
";
    let bench = Bench::new();
    let path = bench.path("stubs.c");
    fs::write(&path, source).unwrap();
    let both = ["-fcf-protection=full", "-fcf-protection=none"];
    let layouts: &[&[&str]] = &[
        &["-Wl,-z,lazy"],
        &["-Wl,-z,now"],
        &["-Wl,-z,lazy", "-no-pie"],
        &["-Wl,-z,now", "-no-pie"],
        &["-Wl,-z,lazy", "-Wl,-z,ibtplt"],
        &["-Wl,-z,now", "-Wl,-z,ibtplt"],
    ];
    for layout in layouts {
        for protection in both {
            let flags = [
                &["-O1", "-fno-builtin", "-Wl,--build-id", protection],
                *layout,
            ]
            .concat();
            let elf = Elf::with(bench.dir.path(), "stubs", "gcc", &path, &flags);
            let stubs = compare(&elf.path);
            assert!(stubs >= 5, "{flags:?}: {stubs} stubs");
            tool(bench.dir.path(), "strip", &["stubs"]);
            assert_eq!(compare(&elf.path), stubs, "{flags:?}, stripped");
        }
    }
    // `objdump` names none of a static program. One of a fixed address has no stub before the first.
    for (layout, size, before) in [("-static", 8, 0), ("-static-pie", 16, 16)] {
        let flags = ["-O1", "-fno-builtin", layout];
        let elf = Elf::with(bench.dir.path(), "stubs", "gcc", &path, &flags);
        let names = |path: &Path| -> Vec<String> {
            let bytes = fs::read(path).unwrap();
            let elf = object::File::parse(&*bytes).unwrap();
            let section = elf.section_by_name(".plt").unwrap();
            let (start, end) = (
                section.address() + before,
                section.address() + section.size(),
            );
            let addresses: Vec<u64> = (start..end).step_by(size).collect();
            let found = of_ours(&bytes, &addresses).into_iter();
            found.map(|found| found.unwrap().0).collect()
        };
        let of_symbols = names(&elf.path);
        for name in ["memcpy@plt", "strlen@plt"] {
            assert!(of_symbols.iter().any(|of| of == name), "{of_symbols:?}");
        }
        tool(bench.dir.path(), "strip", &["stubs"]);
        let stripped = names(&elf.path);
        assert_eq!(stripped.len(), of_symbols.len());
        assert!(
            stripped.iter().all(|name| name.starts_with("*ABS*+0x")),
            "{stripped:?}"
        );
    }
}

/// They are names, here and out of a pack.
#[test]
fn stubs_are_named_in_reports_and_packed() {
    let bench = Bench::new();
    let path = bench.path("calls.c");
    fs::write(
        &path,
        "#include <stdio.h>\nint main(int n, char **v) { return puts(v[n]); }\n",
    )
    .unwrap();
    let flags = ["-O1", "-Wl,--build-id", "-Wl,-z,lazy", "-s"];
    let elf = Elf::with(bench.dir.path(), "calls", "gcc", &path, &flags);
    let (stub, _) = of_objdump(&elf.path)
        .into_iter()
        .find(|(_, name)| name == "puts@plt")
        .unwrap();
    let capture = hits(&elf.mapped(), [stub, stub + 6, stub + 15]);
    let capture = bench.capture("run.bprof", &capture);
    let check = || {
        let run = Run::report(&["--folded"], &capture);
        assert!(run.err.contains("user 100.0 % (3 of 3)"), "{}", run.err);
        assert_eq!(run.ok(), "app-100;puts@plt 3\n");
        let standard = Run::report(&["--standard"], &capture).ok();
        assert!(standard.contains(" puts@plt+0xf (calls)\n"), "{standard}");
    };
    check();
    Run::of(subcommand("pack", &["--symbols", "symtab"]).arg(&capture)).ok();
    fs::remove_file(&elf.path).unwrap();
    check();
}

/// Programs of the machine: a C library, which chooses among its functions, C++, and a compiler.
#[test]
fn stubs_of_large_programs_are_named_as_objdump_names_them() {
    let of_gcc = |what: &str| {
        let out = Command::new("gcc").arg(what).output().unwrap();
        PathBuf::from(String::from_utf8(out.stdout).unwrap().trim())
    };
    for (program, least) in [
        (of_gcc("-print-file-name=libc.so.6"), 5),
        (of_gcc("-print-file-name=libstdc++.so.6"), 100),
        (of_gcc("-print-prog-name=cc1"), 100),
        (PathBuf::from("/usr/bin/python3"), 100),
    ] {
        let program = program.canonicalize().unwrap();
        let stubs = compare(&program);
        assert!(stubs >= least, "{}: {stubs} stubs", program.display());
    }
}
