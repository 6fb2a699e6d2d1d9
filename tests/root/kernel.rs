//! Names of the kernel's own code, and of code the kernel puts into processes.

use std::fs;

use bprof::capture::Reader;

use crate::common::Bench;
use crate::common::workload::{BPFRUN, CLOCK, VSYSCALL};

/// Old programs call into the page the kernel emulates, at an address of the kernel's own: it is shown as what it is, once.
#[test]
fn the_vsyscall_page_is_named_once() {
    let maps = fs::read_to_string("/proc/self/maps").expect("own mappings");
    if !maps.contains("[vsyscall]") {
        eprintln!("this kernel has no vsyscall page: nothing to test");
        return;
    }
    let bench = Bench::new();
    let vsyscall = VSYSCALL.build();
    let recorded = bench.record_command(&[vsyscall.as_os_str(), "0.5".as_ref()]);
    let folded = recorded.ok().folded();
    let (all, inside) = (
        folded.count(|_| true),
        folded.count(|s| s.times("[vsyscall]") == 1),
    );
    assert!(3 * inside >= all, "{inside} of {all}\n{folded}");
    folded.check_none("the page twice, or as a part of the kernel", |s| {
        let kernel = |f: &String| f.starts_with("[kernel+0xffffffffff60");
        s.times("[vsyscall]") > 1 || s.frames.iter().any(kernel)
    });
}

/// The vdso is named by its image in the capture.
#[test]
fn the_vdso_is_named() {
    let bench = Bench::new();
    let clock = CLOCK.build();
    let recorded = bench.record_command(&[clock.as_os_str(), "0.5".as_ref()]);
    let recorded = recorded.ok();
    let (standard, _) = recorded.report(&["--standard"]);
    let in_vdso = |line: &&str| line.contains("clock_gettime") && line.contains("([vdso])");
    let named = standard.lines().filter(in_vdso).count() as u64;
    let folded = recorded.folded();
    let all = folded.count(|_| true);
    assert!(2 * named >= all, "{named} of {all}\n{folded}");
    folded.check_none("a part of the vdso without a name", |s| {
        s.frames.iter().any(|f| f.starts_with("[vdso+"))
    });
}

/// A BPF program that is loaded after the recording has begun and unloaded before it ends has its own name, not that of a
/// program that lies before it.
#[test]
fn a_bpf_program_that_comes_and_goes_is_named() {
    let bench = Bench::new();
    let bpfrun = BPFRUN.build();
    let recorded = bench.record_command(&[bpfrun.as_os_str(), "0.6".as_ref()]);
    let folded = recorded.ok().folded();
    // Functions of the kernel are called bpf_prog_... too; of a program a hash follows.
    let is_program = |f: &str| {
        let hash = f.strip_prefix("bpf_prog_").and_then(|rest| rest.get(..16));
        hash.is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    folded.check_least("the program", 0.8, |s| {
        s.frames
            .iter()
            .any(|f| is_program(f) && f.ends_with("_bpfrun_prog_[k]"))
    });
    folded.check_none("the name of another program", |s| {
        s.frames
            .iter()
            .any(|f| is_program(f) && !f.ends_with("_bpfrun_prog_[k]"))
    });
}

/// What tells this kernel, and where it is, from others.
#[test]
fn the_kernel_is_told() {
    let bench = Bench::new();
    let command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=300000"];
    let recorded = bench.record_command(&command).ok();
    let reader = Reader::open(&recorded.capture).expect("the capture opens");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    assert_eq!(reader.header().kernel_release, release.trim());
    // The kernel's build ID is the content of a note in there.
    let notes = fs::read("/sys/kernel/notes").expect("the kernel's notes");
    let id = reader
        .header()
        .kernel_build_id
        .as_ref()
        .expect("a build ID");
    assert!(
        id.as_bytes().len() >= 8
            && notes
                .windows(id.as_bytes().len())
                .any(|w| w == id.as_bytes())
    );
    let table = fs::read_to_string("/proc/kallsyms").expect("the kernel's symbols");
    let stext = table.lines().find_map(|l| l.strip_suffix(" T _stext"));
    let stext = u64::from_str_radix(stext.expect("_stext"), 16).expect("an address");
    let kernel = reader.aids().kernel;
    assert_eq!(kernel.stext, stext);
    assert!(
        kernel
            .symbols
            .iter()
            .any(|s| s.name == "do_syscall_64" || s.name == "el0_svc")
    );
}
