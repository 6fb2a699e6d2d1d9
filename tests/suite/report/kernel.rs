//! A22: kernel names are those the capture has; an image of that very kernel adds lines and inlined functions.

use std::fs;
use std::path::PathBuf;

use bprof::capture::CaptureWriter;
use bprof::event::BuildId;
use bprof::format::aid::{KernelSymbol, KernelSymbols};

use super::fixture::{Elf, Run, Scene, Taken, header};

/// Something like a kernel: its code begins and ends at symbols.
const SOURCE: &str = "
volatile int sink;
static inline __attribute__((always_inline)) int check(int x) { sink += x; sink ^= x; return x * sink; }
__attribute__((section(\".text.a\"))) void _stext(void) { sink = 0; }
__attribute__((section(\".text.b\"), noinline)) int do_work(int x) { return check(x) + sink; }
__attribute__((section(\".text.c\"), noinline)) int do_more(int x) { return do_work(x) + do_work(x + 1); }
__attribute__((section(\".text.d\"))) void _etext(void) { sink = 1; }
";

/// By how much the kernel was moved when it was recorded.
const MOVED: u64 = 0x1c40_0000;

struct Place {
    dir: tempfile::TempDir,
    image: Elf,
    stext: u64,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("kernel.c");
        fs::write(&source, SOURCE).unwrap();
        let flags = [
            "-O1",
            "-g",
            "-nostdlib",
            "-no-pie",
            "-fno-pie",
            "-fcf-protection=none",
            "-mcmodel=kernel",
            "-Wl,--build-id",
            "-Wl,-Ttext=0xffffffff81000000",
            "-Wl,-e,_stext",
            "-Wl,--no-dynamic-linker",
            "-Wl,--sort-section=name",
        ];
        let image = Elf::with(dir.path(), "vmlinux", "gcc", &source, &flags);
        let stext = address(&image, "_stext").0;
        Place { dir, image, stext }
    }

    /// A capture of every byte of `do_work`, and of what may not be there.
    fn record(&self, id: Option<&BuildId>, with_symbols: bool) -> PathBuf {
        let mut header = header();
        header.kernel_build_id = id.cloned();
        let writer = CaptureWriter::create(Vec::new(), &header).unwrap();
        let mut s = Scene { writer };
        let task = s.kernel_thread(7, "kworker/0:1");
        let (start, size) = address(&self.image, "do_work");
        for at in 0..size {
            s.sample(Taken {
                kernel: &[start + MOVED + at],
                ..Taken::of(task, 7, "kworker/0:1", 1_000_000_000 + at)
            });
        }
        // A module: of no concern to the image.
        s.sample(Taken {
            kernel: &[0xffff_ffff_c000_0010],
            ..Taken::of(task, 7, "kworker/0:1", 2_000_000_000)
        });
        let symbol = |start: u64, len: u64, name: &str, module: Option<&str>| KernelSymbol {
            start,
            end: start + len,
            name: name.to_owned(),
            module: module.map(str::to_owned),
        };
        let mut symbols = vec![symbol(
            0xffff_ffff_c000_0000,
            0x100,
            "mod_init",
            Some("mod"),
        )];
        if with_symbols {
            // The recorded name is a little another one: it must stay.
            symbols.push(symbol(start + MOVED, size, "do_work.isra.0", None));
        }
        symbols.sort_by_key(|s| s.start);
        s.writer
            .kernel_symbols(&KernelSymbols {
                stext: self.stext + MOVED,
                symbols,
            })
            .unwrap();
        let path = self.dir.path().join("run.bprof");
        fs::write(&path, s.finish()).unwrap();
        path
    }

    fn run(&self, options: &[&str], capture: &PathBuf) -> Run {
        let mut command = super::fixture::profiler(options);
        Run::of(command.arg(capture).current_dir(self.dir.path()))
    }
}

/// Address and size of a function.
fn address(elf: &Elf, name: &str) -> (u64, u64) {
    use object::{Object, ObjectSymbol};
    let bytes = fs::read(&elf.path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbols().find(|s| s.name() == Ok(name)).unwrap();
    (symbol.address(), symbol.size())
}

#[test]
fn the_recorded_kernels_image_adds_lines_and_inlined_functions() {
    let place = Place::new();
    let capture = place.record(Some(place.image.build_id()), true);
    let plain = place.run(&["--folded"], &capture).ok();
    let size = address(&place.image, "do_work").1;
    assert_eq!(
        plain,
        format!("kworker/0:1-7;do_work.isra.0_[k] {size}\nkworker/0:1-7;mod_init_[k] 1\n")
    );

    let run = place.run(&["--folded", "--vmlinux", "vmlinux"], &capture);
    assert!(!run.err.contains("profiler: "), "{}", run.err);
    let folded = run.ok();
    let count = |line: &str| -> u64 {
        let found = folded
            .lines()
            .find_map(|l| l.strip_prefix(line)?.parse().ok());
        found.unwrap_or_else(|| panic!("{line}: {folded}"))
    };
    let own = count("kworker/0:1-7;do_work.isra.0_[k] ");
    let inlined = count("kworker/0:1-7;do_work.isra.0_[k];check_[k] ");
    assert_eq!(own + inlined, size);
    assert!(inlined > own, "{folded}");
    let standard = place
        .run(&["--standard", "--vmlinux", "vmlinux"], &capture)
        .ok();
    assert!(standard.contains("kernel.c:3"), "{standard}");
    assert!(standard.contains("[mod]"), "{standard}");

    // Found by its build ID, or by the kernel's release, it is used without being named.
    let hex = place.image.build_id().to_string();
    for name in [
        format!("dbg/.build-id/{}/{}.debug", &hex[..2], &hex[2..]),
        "dbg/boot/vmlinux-6.18.0".to_owned(),
        "dbg/lib/modules/6.18.0/vmlinux".to_owned(),
    ] {
        let path = place.dir.path().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&place.image.path, &path).unwrap();
        let found = place
            .run(&["--folded", "--debug-dir", "dbg"], &capture)
            .ok();
        assert_eq!(found, folded, "{name}");
        fs::remove_dir_all(place.dir.path().join("dbg")).unwrap();
    }
}

#[test]
fn another_kernels_image_changes_nothing_and_is_said_once() {
    let place = Place::new();
    let other = BuildId::new(&[7; 20]).unwrap();
    for (id, told) in [
        (Some(&other), "its build ID is"),
        (
            None,
            "the capture has no kernel build ID to compare it with",
        ),
    ] {
        let capture = place.record(id, true);
        let plain = place.run(&["--folded"], &capture);
        assert!(!plain.err.contains("profiler: "), "{}", plain.err);
        let run = place.run(&["--folded", "--vmlinux", "vmlinux"], &capture);
        let told = run.err.lines().filter(|l| l.contains(told)).count();
        assert_eq!(told, 1, "{}", run.err);
        assert_eq!(run.ok(), plain.ok());
    }
}

/// Without saved symbols there are none, unless the image has them.
#[test]
fn kernel_code_without_saved_symbols_is_named_by_its_own_image_only() {
    let place = Place::new();
    let capture = place.record(Some(place.image.build_id()), false);
    let plain = place.run(&["--folded"], &capture).ok();
    assert!(plain.contains("[kernel+0xffffffff9d"), "{plain}");
    assert!(!plain.contains("do_work"), "{plain}");
    let named = place
        .run(&["--folded", "--vmlinux", "vmlinux"], &capture)
        .ok();
    assert!(named.contains(";do_work_[k];check_[k] "), "{named}");
    assert!(!named.contains("[kernel+"), "{named}");
}

/// What the image adds is packed: the report is the same where it is not.
#[test]
fn what_the_image_adds_is_packed() {
    for with_symbols in [true, false] {
        let place = Place::new();
        let capture = place.record(Some(place.image.build_id()), with_symbols);
        let views = ["--folded", "--standard"];
        let expected = views.map(|view| {
            let run = place.run(&[view, "--vmlinux", "vmlinux"], &capture);
            run.ok()
        });
        let mut pack = super::fixture::subcommand("pack", &["--vmlinux", "vmlinux"]);
        let pack = pack.arg(&capture).current_dir(place.dir.path());
        let run = Run::of(pack);
        assert!(run.err.contains(": packed "), "{}", run.err);
        run.ok();
        let again = Run::of(pack);
        assert!(again.err.contains("nothing was added"), "{}", again.err);
        fs::remove_file(&place.image.path).unwrap();
        let found = views.map(|view| place.run(&[view], &capture).ok());
        assert_eq!(found, expected);
    }
}
