//! Code without frame pointers whose files are mapped late, are gone soon, or are where nobody else sees them.

use crate::common::workload::{Attached, HOST_BARE, RED_BARE, SHADOW};
use crate::common::{Bench, Folded, HZ};
use crate::unwind::{Shadow, WHOLE, is_whole};

/// Programs that are over before anything of them is read, again and again.
#[test]
fn stacks_of_short_lived_programs() {
    let bench = Bench::new();
    let shadow = SHADOW.build();
    let script = format!(
        "for i in $(seq 100); do {} 20 0.02 >/dev/null; done",
        shadow.display()
    );
    let rate = HZ.to_string();
    let args = ["-F", &rate, "--unwind", "dwarf", "--", "sh", "-c", &script];
    let folded = bench.record(&args).ok().folded();
    let own = folded.only(|s| ["burns", "copies", "reads"].iter().any(|end| s.has(end)));
    assert!(own.total() > 1000, "{folded}");
    own.check_least("whole stacks", 0.99, is_whole);
}

/// A file that is gone when the program runs is read all the same.
#[test]
fn stacks_of_a_program_that_was_deleted() {
    let bench = Bench::new();
    let copy = bench.path("gone");
    std::fs::copy(SHADOW.build(), &copy).expect("a copy");
    let script = format!(
        "exec 3<{0}; rm {0}; exec /proc/self/fd/3 100 1",
        copy.display()
    );
    let rate = HZ.to_string();
    let args = ["-F", &rate, "--unwind", "dwarf", "--", "sh", "-c", &script];
    let folded = bench.record(&args).ok().folded();
    // Its own functions have no names, but frames.
    let own = folded.only(|s| s.user().any(|frame| frame.starts_with("[gone+")));
    assert!(own.total() > 500, "{folded}");
    own.check_least("whole stacks", WHOLE, |s| {
        let mut user = s.user();
        user.next().is_some_and(|root| root.starts_with("[gone+"))
            && user
                .next()
                .is_some_and(|frame| frame.starts_with("__libc_start_main"))
            && user.next_back().is_some()
    });
}

/// A library that a process maps which runs already.
#[test]
fn stacks_of_a_library_that_is_loaded_later() {
    let bench = Bench::new();
    let mut command = HOST_BARE.command();
    command.arg("1").arg(RED_BARE.build());
    let workload = Attached::start(command);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, _) = bench.record_attached(workload, &args);
    let folded = recorded.ok().folded();
    let own = folded.only(|s| s.has("redbare_spin"));
    assert!(own.total() * 10 > folded.total() * 8, "{folded}");
    own.check_least("whole stacks", WHOLE, |s| {
        is_whole(s) && s.has_chain(&["main", "load_and_run", "redbare_spin"])
    });
}

/// As in a container: files that only a mount namespace and root of its own show.
#[test]
fn stacks_in_a_root_of_its_own() {
    let bench = Bench::new();
    let root = bench.path("root");
    std::fs::create_dir(&root).expect("a directory");
    let script = r#"mount -t tmpfs none "$1" && mkdir -p "$1/opt" "$1/lib" "$1/lib64" "$1/usr/lib" &&
        mount --bind /usr/lib "$1/usr/lib" && mount --bind /lib "$1/lib" && mount --bind /lib64 "$1/lib64" &&
        mkdir "$1/dev" && mknod "$1/dev/zero" c 1 5 && cp "$0" "$1/opt/prog" && exec chroot "$1" /opt/prog 300 2"#;
    let (built, rate) = (SHADOW.build(), HZ.to_string());
    let args: [&std::ffi::OsStr; 11] = [
        "-F".as_ref(),
        rate.as_ref(),
        "--unwind".as_ref(),
        "dwarf".as_ref(),
        "--".as_ref(),
        "unshare".as_ref(),
        "--mount".as_ref(),
        "sh".as_ref(),
        "-c".as_ref(),
        script.as_ref(),
        built.as_os_str(),
    ];
    let mut args = args.to_vec();
    args.push(root.as_os_str());
    let recorded = bench.record(&args).ok();
    // Names come from a copy of it out here.
    let symfs = bench.path("symfs");
    std::fs::create_dir_all(symfs.join("opt")).expect("a directory");
    std::fs::copy(&built, symfs.join("opt/prog")).expect("a copy");
    let symfs = symfs.to_str().expect("a path in UTF-8");
    let (out, verdict) = recorded.report(&["--folded", "--symfs", symfs]);
    let folded = Folded::parse(&out, &verdict);
    Shadow::of(&recorded).check(&folded, "main");
    let own = folded.only(|s| s.has("main"));
    assert!(own.total() * 10 > folded.total() * 8, "{folded}");
    let of_program = folded.only(|s| s.comm == "prog");
    of_program.check_least("whole stacks", WHOLE, is_whole);
}
