//! Code without symbols: one row for each function, not for each address.

use std::collections::BTreeMap;
use std::fs;

use bprof::capture::Reader;
use bprof::format::packed::FileKey;
use bprof::format::packed::symbols::AtOffset;

use super::fixture::{BASE, Bench, Elf, LEN, Run, Scene, Taken, subcommand, tool};

/// `main` calls two functions, each long enough for an address in the middle, and one that has no unwind information.
const SOURCE: &str = "
volatile int sink;
__attribute__((noinline)) int leaf(int x) { sink += x; sink ^= x; sink -= x; return sink; }
__attribute__((noinline)) int mid(int x) { sink += x; return leaf(x) + leaf(x + 1) + sink; }
__asm__(\".text\\n.globl bare\\n.type bare,@function\\nbare: nop; nop; nop; ret\\n.size bare,.-bare\\n\");
int bare(void);
int main(void) { sink = 1; return mid(3) + mid(4) + bare() + sink; }
";

/// A program and the same without symbols, with samples at the beginning, in the middle and at the end of its functions.
struct Stripped {
    bench: Bench,
    /// With its symbols; it is not where it was mapped.
    whole: Elf,
    mapped: Elf,
    capture: std::path::PathBuf,
    samples: u64,
}

impl Stripped {
    /// `strip` are the arguments of `objcopy` that take the symbols away.
    fn new(flags: &[&str], strip: &[&str]) -> Stripped {
        let bench = Bench::new();
        let source = bench.path("prog.c");
        fs::write(&source, SOURCE).unwrap();
        let flags = [&["-O1", "-fcf-protection=none", "-Wl,--build-id"], flags].concat();
        let whole = Elf::with(bench.dir.path(), "whole", "gcc", &source, &flags);
        tool(
            bench.dir.path(),
            "objcopy",
            &[strip, &["whole", "prog"]].concat(),
        );
        let mapped = Elf::open(bench.path("prog"));
        let mut s = Scene::new();
        let app = s.process(100, 500);
        s.image(app, 0, 0, "app");
        s.map(app, 0, BASE, &mapped.mapped());
        let caller = BASE + whole.offset("main") + 5;
        let mut samples = 0;
        for name in ["leaf", "mid", "bare"] {
            let range = whole.range(name);
            for offset in range {
                samples += 1;
                s.sample(Taken {
                    user: &[BASE + offset, caller],
                    ..Taken::of(app, 100, "app", 1_000_000_000 + samples)
                });
            }
        }
        let capture = bench.capture("run.bprof", &s.finish());
        Stripped {
            bench,
            whole,
            mapped,
            capture,
            samples,
        }
    }

    fn of_eh_frame() -> Stripped {
        Stripped::new(&[], &["--strip-all"])
    }

    fn label(&self, function: &str, inside: u64) -> String {
        format!("[prog+{:#x}]", self.whole.offset(function) + inside)
    }

    fn len(&self, function: &str) -> u64 {
        let range = self.whole.range(function);
        range.end - range.start
    }

    fn folded(&self, options: &[&str]) -> BTreeMap<String, u64> {
        let text = Run::report(&[&["--folded"], options].concat(), &self.capture).ok();
        let lines = text.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), count.parse().unwrap())
        });
        lines.collect()
    }

    /// One row for each function whose bounds are known, one for each address of `bare`.
    fn expected(&self) -> BTreeMap<String, u64> {
        let main = self.label("main", 0);
        let mut rows: BTreeMap<String, u64> = ["leaf", "mid"]
            .map(|name| {
                let label = self.label(name, 0);
                (format!("app-100;{main};{label}"), self.len(name))
            })
            .into();
        for inside in 0..self.len("bare") {
            let label = self.label("bare", inside);
            rows.insert(format!("app-100;{main};{label}"), 1);
        }
        rows
    }
}

#[test]
fn a_function_without_a_symbol_is_one_row() {
    let case = Stripped::of_eh_frame();
    assert_eq!(case.folded(&[]), case.expected());
    let total: u64 = case.expected().values().sum();
    assert_eq!(total, case.samples);

    // They are not taken for names.
    let run = Run::report(&["--folded"], &case.capture);
    let frames = 2 * case.samples;
    for told in [
        format!("frames named: user 0.0 % (0 of {frames})"),
        format!("frames without a name: no symbol {frames}"),
    ] {
        assert!(run.err.contains(&told), "{told}: {}", run.err);
    }
    let missing = Run::report(&["--missing"], &case.capture).ok();
    let row = format!("100.00 % {:>10} {frames:>10}  ", case.samples);
    assert!(missing.contains(&row), "{missing}");

    // Where addresses are asked for, each is what it is; a return address is that of the instruction after the call.
    let addresses = case.folded(&["--addresses"]);
    let main = case.label("main", 5);
    for (name, len) in ["leaf", "mid", "bare"].map(|name| (name, case.len(name))) {
        for inside in 0..len {
            let line = format!("app-100;{main};{}", case.label(name, inside));
            assert_eq!(addresses.get(&line), Some(&1), "{line}");
        }
    }
    assert_eq!(addresses.values().sum::<u64>(), case.samples);

    // Every sample has both: the function, and how far in it is.
    let standard = Run::report(&["--standard"], &case.capture).ok();
    let script = Run::report(&["--perf-script"], &case.capture).ok();
    for text in [
        format!("{}+0x3 (prog)", case.label("mid", 0)),
        format!("{}+0x5 (prog)", case.label("main", 0)),
        format!("{} (prog)", case.label("bare", 3)),
    ] {
        assert!(standard.contains(&text), "{text}: {standard}");
        let text = text.split(" (").next().unwrap();
        assert!(script.contains(&format!("{text} (/")), "{text}: {script}");
    }
    let top = Run::report(&["--top", "20"], &case.capture).ok();
    assert_eq!(
        top.matches("[prog+0x").count(),
        3 + case.len("bare") as usize
    );
}

/// The linker's table, all of the section where there is none, `.debug_frame`; and nothing.
#[test]
fn bounds_come_from_any_unwind_information_there_is() {
    let none = "-fno-asynchronous-unwind-tables";
    let keep = ["--strip-all", "--keep-section=.debug_frame"];
    for (flags, strip) in [
        (&["-Wl,--no-eh-frame-hdr"][..], &["--strip-all"][..]),
        (&["-static", "-Wl,--no-eh-frame-hdr"], &["--strip-all"]),
        (&["-no-pie"], &["--strip-all"]),
        (&["-g", none], &keep),
        (&["-g", "-gz=zlib", none], &keep),
    ] {
        let case = Stripped::new(flags, strip);
        assert_eq!(case.folded(&[]), case.expected(), "{flags:?}");
    }
    let case = Stripped::new(&[none], &["--strip-all"]);
    let rows = case.folded(&[]);
    assert_eq!(rows.len() as u64, case.samples, "{rows:?}");
}

/// A pack carries the bounds; symbols that are found all the same name the code.
#[test]
fn bounds_are_packed_and_give_way_to_symbols() {
    let case = Stripped::of_eh_frame();
    let views: &[&[&str]] = &[
        &["--folded"],
        &["--folded", "--addresses"],
        &["--standard"],
        &["--top", "20"],
        &["--json"],
        &["--perf-script"],
    ];
    let all = || -> Vec<String> {
        let reports = views
            .iter()
            .map(|view| Run::report(view, &case.capture).ok());
        reports.collect()
    };
    let here = all();
    Run::of(subcommand("pack", &[] as &[&str]).arg(&case.capture)).ok();
    let again = Run::of(subcommand("pack", &[] as &[&str]).arg(&case.capture));
    assert!(again.err.contains("nothing was added"), "{}", again.err);
    fs::remove_file(&case.mapped.path).unwrap();
    assert_eq!(all(), here);

    // What is packed says so, and an older reader, which does not look, finds no name there.
    let reader = Reader::open(&case.capture).unwrap();
    let (pack, damage) = reader.pack();
    assert_eq!(damage, []);
    let key = FileKey::of(&case.mapped.mapped()).unwrap();
    let offsets = [case.whole.offset("leaf") + 2, case.whole.offset("bare")];
    let inside = |inside| Some(AtOffset::Nameless { inside });
    assert_eq!(
        pack.symbols_of(&key, &offsets),
        [inside(Some(2)), inside(None)]
    );

    let root = case.bench.path("root");
    let path = root.join(case.mapped.path.strip_prefix("/").unwrap());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(&case.whole.path, &path).unwrap();
    let mut command = subcommand("report", &["--folded", "--symfs"]);
    let named = Run::of(command.arg(&root).arg(&case.capture)).ok();
    let expected = ["leaf", "mid", "bare"].map(|name| {
        let len = case.len(name);
        format!("app-100;main;{name} {len}\n")
    });
    let mut lines: Vec<&str> = named.split_inclusive('\n').collect();
    lines.sort_unstable();
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

/// What a file says of itself is not believed: no entry of another function, none that reaches beyond the code.
#[test]
fn broken_unwind_information_bounds_nothing() {
    let case = Stripped::of_eh_frame();
    let good = fs::read(&case.mapped.path).unwrap();
    let elf = object::File::parse(&*good).unwrap();
    let section = |name: &str| {
        use object::{Object, ObjectSection};
        let (offset, size) = elf.section_by_name(name).unwrap().file_range().unwrap();
        offset as usize..(offset + size) as usize
    };
    let (header, frames) = (section(".eh_frame_hdr"), section(".eh_frame"));
    let expected = case.expected();
    let mut seed = 11u64;
    let mut below = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % end
    };
    for round in 0..60 {
        let mut bytes = good.clone();
        for _ in 0..1 + round % 5 {
            let part = if below(2) == 0 { &header } else { &frames };
            let at = part.start + below(part.len());
            bytes[at] = below(256) as u8;
        }
        fs::write(&case.mapped.path, bytes).unwrap();
        let rows = case.folded(&[]);
        assert_eq!(rows.values().sum::<u64>(), case.samples);
        // Fewer bounds are known, perhaps; each row is a place in the program still.
        for row in rows.keys() {
            let label = row.rsplit_once("[prog+0x").unwrap().1;
            let offset = u64::from_str_radix(label.strip_suffix(']').unwrap(), 16).unwrap();
            assert!(offset < good.len() as u64 && offset < LEN, "{row}");
        }
    }
    // A table of entries that are all of other functions.
    let mut bytes = good.clone();
    let table = &mut bytes[header.start + 12..header.end];
    let first: Vec<u8> = table[4..8].to_vec();
    table
        .chunks_exact_mut(8)
        .for_each(|pair| pair[4..].copy_from_slice(&first));
    fs::write(&case.mapped.path, bytes).unwrap();
    let rows = case.folded(&[]);
    assert_eq!(rows.values().sum::<u64>(), case.samples);
    assert!(rows.len() > expected.len(), "{rows:?}");
}

/// GCC puts what is rarely run before all other code: it is no part of what is so many bytes after the beginning.
#[test]
fn what_is_rarely_run_is_told_apart_from_the_beginning_of_its_function() {
    let source = "
#include <stdlib.h>
volatile int sink;
__attribute__((cold, noinline)) void fail(int x) { sink = x; abort(); }
__attribute__((noinline)) int work(int x) {
  for (int i = 0; i < x; i++) { sink += i; if (sink < 0) { sink = 7; sink ^= x; fail(x + i); } }
  return sink;
}
int main(void) { return work(3); }
";
    let bench = Bench::new();
    let path = bench.path("cold.c");
    fs::write(&path, source).unwrap();
    let flags = ["-O2", "-g", "-fcf-protection=none", "-Wl,--build-id"];
    let elf = Elf::with(bench.dir.path(), "cold", "gcc", &path, &flags);
    let (hot, cold) = (elf.range("work"), elf.range("work.cold"));
    assert!(cold.start < hot.start, "GCC has changed its mind");
    let capture = super::fixture::hits(&elf.mapped(), [hot.start + 4, cold.start, cold.start + 2]);
    let capture = bench.capture("run.bprof", &capture);
    let both = Run::report(&["--folded"], &capture).ok();
    assert!(
        both.contains("app-100;work 1\n") || both.contains("app-100;work 3\n"),
        "{both}"
    );
    let check = || {
        let addresses = Run::report(&["--folded", "--addresses", "--no-inline"], &capture).ok();
        let mut lines: Vec<&str> = addresses.lines().collect();
        lines.sort_unstable();
        let at = |inside: u64| format!("app-100;work [cold+{:#x}] 1", cold.start + inside);
        let mut expected = [at(0), at(2), "app-100;work+0x4 1".to_owned()];
        expected.sort_unstable();
        assert_eq!(lines, expected);
    };
    check();
    let unpacked = bench.path("unpacked.bprof");
    fs::copy(&capture, &unpacked).unwrap();
    Run::of(subcommand("pack", &[] as &[&str]).arg(&capture)).ok();
    fs::rename(&elf.path, bench.path("elsewhere")).unwrap();
    check();
    // The symbol table has a name of its own for the part.
    tool(
        bench.dir.path(),
        "strip",
        &["-g", "elsewhere", "-o", "cold"],
    );
    let folded = Run::report(&["--folded", "--addresses"], &unpacked).ok();
    assert!(folded.contains("app-100;work.cold+0x2 1\n"), "{folded}");
}
