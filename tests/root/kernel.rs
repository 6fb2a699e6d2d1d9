//! Names of the kernel's own code, and of code the kernel puts into processes.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use bprof::capture::Reader;
use bprof::format::aid::KernelSymbol;
use bprof::record::kallsyms::Kallsyms;
use bprof::record::symbol_program::SymbolProgram;

use crate::common::workload::{BPFRUN, CLOCK, VSYSCALL};
use crate::common::{Bench, Running};

/// Keeps the kernel busy with all kinds of system calls.
const BUSY: &str = "for i in 1 2 3; do dd if=/dev/zero of=/dev/null bs=1 count=200000; ls -lR /usr/include; done >/dev/null 2>&1";

fn table() -> Kallsyms {
    let table = Kallsyms::read().expect("/proc/kallsyms");
    table.expect("addresses that are not hidden")
}

/// Both ways to a name are the same way: asked for single addresses the kernel tells what its table says. Of all symbols of
/// the kernel's own code, at their first and last byte and in the middle.
#[test]
fn the_kernel_tells_what_its_table_says() {
    let table = table();
    let mut program = SymbolProgram::load().expect("this kernel can be asked");
    assert_eq!(program.stext, table.stext);
    assert_eq!(program.idle_text, table.idle_text);
    let text = fs::read_to_string("/proc/kallsyms").expect("the table");
    let line = |line: &str| {
        let (address, rest) = line.split_once(' ')?;
        let kernel = !rest.contains('[');
        u64::from_str_radix(address, 16).ok().filter(|_| kernel)
    };
    let starts: BTreeSet<u64> = text.lines().filter_map(line).collect();
    let end = text.lines().find_map(|l| l.strip_suffix(" T _end"));
    let end = end.and_then(|end| u64::from_str_radix(end, 16).ok());
    let end = end.or(starts.last().copied()).expect("an end");
    let starts: Vec<u64> = starts.range(table.stext..=end).copied().collect();
    let within = |pair: &[u64]| [pair[0], pair[0].midpoint(pair[1]), pair[1] - 1];
    let mut addresses: Vec<u64> = starts.windows(2).flat_map(within).collect();
    // Nothing is there.
    addresses.extend([0, 1, table.stext - 1, end, end + 64, 1 << 62, u64::MAX]);
    let (mut named, mut wrong) = (0, Vec::new());
    // At the place of a label of the linker script some kernels tell the label, which is no name; functions there are padding.
    let label = text.lines().find_map(|l| l.strip_suffix(" T _sinittext"));
    let label = label.and_then(|label| u64::from_str_radix(label, 16).ok());
    let compare = |address, told: Option<KernelSymbol>| {
        let expected = table.symbol(address);
        named += usize::from(told.is_some());
        let at_label = told.is_none() && expected.as_ref().map(|s| s.start) == label;
        if told != expected && !at_label {
            wrong.push((address, told, expected));
        }
    };
    program.name(&addresses, compare).expect("names");
    println!("{named} of {} addresses have names", addresses.len());
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{wrong:#x?}");
    assert!(named > 100_000, "{named}");
}

/// Of every kernel address in a capture the name is that of the table, and none is without.
#[test]
fn every_recorded_address_has_its_own_name() {
    let bench = Bench::new();
    let running = Running::start_sampling(&bench, &["-a", "-F", "4999"]);
    let status = Command::new("sh").args(["-c", BUSY]).status();
    assert!(status.expect("a shell").success());
    let recorded = running.interrupt();
    check_names(&recorded.capture, 100);
}

/// Whether names in the capture are those of the table, for so many kernel addresses at least.
fn check_names(capture: &std::path::Path, least: usize) {
    let reader = Reader::open(capture).expect("the capture opens");
    let aid = reader.aids().kernel;
    let table = table();
    assert_eq!(aid.stext, table.stext);
    let mut addresses = BTreeSet::new();
    for mut segment in reader.segments() {
        while segment.next_frame().expect("frames").is_some() {}
        addresses.extend(segment.tables().kernel.addresses.iter().copied());
    }
    assert!(addresses.len() >= least, "{addresses:x?}");
    let find = |address: u64| {
        let covers = |s: &&KernelSymbol| (s.start..s.end).contains(&address);
        aid.symbols.iter().filter(covers).collect::<Vec<_>>()
    };
    // BPF programs come and go.
    let fixed = |symbol: &Option<KernelSymbol>| symbol.as_ref().is_some_and(|s| s.module.is_none());
    let mut compared = 0;
    for address in addresses {
        for address in [address, address - 1] {
            let expected = table.symbol(address);
            if fixed(&expected) {
                let expected: Vec<&KernelSymbol> = expected.iter().collect();
                assert_eq!(find(address), expected, "{address:x}");
                compared += 1;
            }
        }
    }
    assert!(compared >= least, "{compared}");
}

/// Names of the kernel are in the capture as soon as its samples are.
#[test]
fn a_recording_killed_in_its_second_second_has_kernel_names() {
    let bench = Bench::new();
    // The command outlives the recorder, but not for long.
    let command = ["timeout", "3", "dd", "if=/dev/zero", "of=/dev/null", "bs=1"];
    let args = [&["-F", "999", "--"][..], &command].concat();
    let mut running = Running::start_sampling(&bench, &args);
    thread::sleep(Duration::from_millis(1100));
    running.signal(libc::SIGKILL);
    let recorded = running.wait();
    check_names(&recorded.capture, 5);
    let folded = recorded.folded();
    folded.check_none("a kernel frame without a name", |s| {
        s.frames.iter().any(|f| f.starts_with("[kernel"))
    });
}

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
