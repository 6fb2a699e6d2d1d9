//! Which processes and threads are seen, and under which names.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::common::truth::check_count;
use crate::common::workload::{
    BURN_20_MS, BURN_C, CREW, NO_BUILD_ID, ODDNAMES, ONE, ONE_PIE, QUICK, RENAME, STORM, THREADS,
};
use crate::common::{Attached, Bench, Folded, HZ, Program, Running, Truth};

/// A05: whatever a path holds, its functions have names; with a build ID and without.
#[test]
fn a05_odd_bytes_in_paths() {
    let names: [&[u8]; 8] = [
        b"a b/pro g",
        b" leading and trailing ",
        b"new\nline",
        b"tab\tand\\012escape",
        b"semi;colon [k] 12",
        b"prog (deleted)",
        b"\xff\xfe not utf8",
        b"[vdso]",
    ];
    for (program, function) in [(ONE_PIE, "one_spin"), (NO_BUILD_ID, "no_id_spin")] {
        let built = program.build();
        for name in names {
            let bench = Bench::new();
            let path = bench.path(OsStr::from_bytes(name));
            fs::create_dir_all(path.parent().expect("a directory"))
                .expect("a directory for the program");
            // Copied by a rename, so that no descriptor open for writing makes execve fail.
            let staged = bench.path("staged");
            fs::copy(&built, &staged).expect("a copy of the program");
            fs::rename(&staged, &path).expect("its odd name");
            let recorded = bench
                .record_command(&[path.as_os_str(), OsStr::new("0.3")])
                .ok();
            let folded = recorded.folded();
            let what = format!("{function} in {path:?}");
            folded.check_least(&what, 0.8, |s| s.has_chain(&["main", function]));
            recorded.truth().check_count(&folded);
        }
    }
}

/// A04: a program that was removed while it runs has its names as soon as the same file is back;
/// before, one label and the reason. The kernel's " (deleted)" is no part of its path.
#[test]
fn a04_a_removed_program() {
    let bench = Bench::new();
    let path = bench.path("removed");
    fs::copy(ONE_PIE.build(), &path).expect("a copy of the program");
    let mut command = Command::new(&path);
    command.arg("0.5");
    let workload = Attached::start(command);
    fs::remove_file(&path).expect("the program goes");
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, _) = bench.record_attached(workload, &args);
    let recorded = recorded.ok();
    let folded = recorded.folded();
    folded.check_none("a name without a file", |s| s.has("one_spin"));
    folded.check_least("the file's label", 0.8, |s| {
        s.user().any(|f| f.starts_with("[removed+0x"))
    });
    folded.check_none("the kernel's mark", |s| {
        s.frames.iter().any(|f| f.contains("(deleted)"))
    });

    // Another program in its place is no better.
    fs::copy(ONE.build(), &path).expect("another program");
    recorded
        .folded()
        .check_none("a name of another file", |s| s.has("one_spin"));

    fs::copy(ONE_PIE.build(), &path).expect("the program is back");
    recorded
        .folded()
        .check_least("one_spin", 0.8, |s| s.has_chain(&["main", "one_spin"]));
}

/// A06: processes that are gone before anybody could look at them. At least 99 % of their samples
/// have their mappings, and they are there in proportion to their CPU time.
#[test]
fn a06_a_storm_of_short_processes() {
    // The rest is the start of each process, which is not in the function and takes 1 ms, or more while the disk is busy.
    // Of those shorter than the time between two samples hardly any may be caught in it: one ends when the next begins, in
    // step with the clock.
    for (count, seconds, least) in [
        ("120", "0.012", 0.8),
        ("400", "0.003", 0.4),
        ("400", "0.001", 0.0),
    ] {
        let bench = Bench::new();
        let (storm, quick) = (STORM.build(), QUICK.build());
        let command = [
            storm.as_os_str(),
            "2".as_ref(),
            count.as_ref(),
            quick.as_os_str(),
            seconds.as_ref(),
        ];
        let recorded = bench.record_command(&command).ok();
        check_short_processes(&recorded.folded(), &recorded.truth(), least);
    }
}

/// The kernel takes perf events from a task that starts a set-uid program, and says so by a record of its end. It goes on:
/// it and what it starts have their mappings.
#[test]
fn a_set_uid_program_is_followed() {
    let set_uid = |bench: &Bench, program: Program| {
        let path = bench.path(program.name);
        fs::copy(program.build(), &path).expect("a copy of the program");
        chown(&path, Some(65534), None).expect("another owner");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("set-uid");
        path
    };
    let bench = Bench::new();
    let recorded = bench.record_command(&[set_uid(&bench, ONE_PIE).as_os_str(), "0.5".as_ref()]);
    let recorded = recorded.ok();
    let folded = recorded.folded();
    folded.check_least("one_spin", 0.8, |s| s.has_chain(&["main", "one_spin"]));
    recorded.truth().check_count(&folded);

    let (storm, quick) = (set_uid(&bench, STORM), QUICK.build());
    let command: [&OsStr; 5] = [
        storm.as_os_str(),
        "2".as_ref(),
        "120".as_ref(),
        quick.as_os_str(),
        "0.012".as_ref(),
    ];
    let recorded = bench.record_command(&command).ok();
    check_short_processes(&recorded.folded(), &recorded.truth(), 0.8);
}

#[test]
fn a06_a_storm_system_wide() {
    let bench = Bench::new();
    let mut command = STORM.command();
    command.args(["2", "400"]).arg(QUICK.build()).arg("0.003");
    let (recorded, truth) = bench.record_attached(Attached::start(command), &["-a"]);
    check_short_processes(&recorded.ok().folded(), &truth, 0.4);
}

fn check_short_processes(folded: &Folded, truth: &Truth, least: f64) {
    folded.check_none("a time before all programs of a process", |s| s.comm == "?");
    let own = folded.only(|s| s.comm == QUICK.name);
    // Frames rootward of one without a frame pointer may be no code at all; the leaf is exact.
    // Inside execve there is no program to map.
    let user =
        own.only(|s| s.user().next().is_some() && !s.frames.iter().any(|f| f.contains("execve")));
    // A leaf without a name in a mapped file has its mapping all the same: `[libc.so.6+0x1234]`.
    let unmapped = |leaf: &str| leaf == "[unknown]" || leaf.starts_with("[anon");
    user.check_least("samples with their mappings", 0.99, |s| {
        !s.user_leaf().is_some_and(unmapped)
    });
    user.check_least("quick_spin", least, |s| {
        s.has_chain(&["main", "quick_spin"])
    });
    let (seen, expected) = (own.total() as f64, truth.children * f64::from(HZ));
    assert!(
        seen >= 0.7 * expected,
        "{seen} samples, {expected:.0} by CPU time\n{folded}"
    );
}

/// A06: 200 processes of 20 ms each, started by a shell.
#[test]
fn a06_a_loop_of_short_programs() {
    let bench = Bench::new();
    let burn = BURN_20_MS.build();
    let script = format!(
        "for i in $(seq 200); do {} 0.02; done; times",
        burn.display()
    );
    let recorded = bench.record_command(&["sh", "-c", &script]).ok();
    let folded = recorded.folded();
    let cpu = cpu_of_children(&recorded.stdout);
    assert!(cpu >= 200.0 * 0.02, "{cpu} s of CPU time");
    let own = folded.only(|s| s.comm == BURN_20_MS.name);
    let (seen, expected) = (own.total() as f64, f64::from(HZ) * cpu);
    assert!(
        (0.9..=1.1).contains(&(seen / expected)),
        "{seen} samples, {expected:.0} by CPU time\n{folded}"
    );
    // The rest is the start of each process.
    own.check_least("burn_spin", 0.85, |s| s.has_chain(&["main", "burn_spin"]));
    assert!(
        recorded.summary_number("process") > 200,
        "{}",
        recorded.stderr
    );
    // Of none, or it would be said: see `Summary`.
    assert!(
        !recorded.stderr.contains("mappings missed") && !folded.verdict.contains("maps unreadable"),
        "{}\n{folded}",
        recorded.stderr
    );
}

/// CPU seconds of all children, from what `times` of a shell prints: `0m1.500000s 0m0.250000s` in its second line.
fn cpu_of_children(times: &str) -> f64 {
    let line = times.lines().nth(1).unwrap_or_default();
    let seconds = |word: &str| -> Option<f64> {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let both: Vec<f64> = line.split(' ').filter_map(seconds).collect();
    assert_eq!(both.len(), 2, "not what `times` prints: {times:?}");
    both.iter().sum()
}

/// A06: what is looked at for each process is closed again, and costs little.
#[test]
fn a06_short_processes_leave_nothing_behind_in_the_recorder() {
    let bench = Bench::new();
    let mut command = STORM.command();
    command.args(["2", "400"]).arg(QUICK.build()).arg("0.003");
    let workload = Attached::start(command);
    let running = Running::start_sampling(&bench, &["-F", "997", "-a"]);
    let before = running.descriptors();
    let (truth, cpu_before) = {
        let cpu = running.cpu();
        (workload.go(), cpu)
    };
    let used = running.cpu() - cpu_before;
    let after = running.descriptors();
    let recorded = running.interrupt().ok();
    assert!(
        recorded.summary_number("process") > 400,
        "{}",
        recorded.stderr
    );
    // One may be open for a moment at each look, and of what else runs here up to two for each process that runs code without a
    // file.
    assert!(
        after <= before + 16,
        "{before} descriptors before 400 processes, {after} after"
    );
    println!("recorder: {used} s of CPU time for {} s", truth.children);
    assert!(
        used <= 0.3 * truth.children,
        "the recorder used {used} s of CPU time, its target {}",
        truth.children
    );
}

/// A06: children that never exec use their parent's mappings.
#[test]
fn a06_a_storm_without_exec() {
    let bench = Bench::new();
    let storm = STORM.build();
    let command = [
        storm.as_os_str(),
        "2".as_ref(),
        "150".as_ref(),
        "--fork".as_ref(),
        "0.01".as_ref(),
    ];
    let recorded = bench.record_command(&command).ok();
    let (folded, truth) = (recorded.folded(), recorded.truth());
    let children = folded.only(|s| s.has("forked_spin"));
    children.check_least("the whole chain", 0.99, |s| {
        s.has_chain(&["main", "forked_spin"])
    });
    let (seen, expected) = (children.total() as f64, truth.children * f64::from(HZ));
    assert!(
        seen >= 0.7 * expected,
        "{seen} samples, {expected:.0} by CPU time\n{folded}"
    );
}

/// Tasks that live shorter than a sampling period are sampled in proportion too: each alone is seen
/// rarely, all together as often as one long task with their CPU time.
#[test]
fn tasks_shorter_than_the_period_have_their_share() {
    const SLOW: f64 = 97.0;
    let (storm, quick, threads) = (STORM.build(), QUICK.build(), THREADS.build());
    let processes = [
        storm.as_os_str(),
        "2".as_ref(),
        "600".as_ref(),
        quick.as_os_str(),
        "0.004".as_ref(),
    ];
    let threads = [threads.as_os_str(), "600".as_ref(), "0.004".as_ref()];
    for (function, command) in [("quick_spin", &processes[..]), ("brief_spin", &threads[..])] {
        let bench = Bench::new();
        let mut args: Vec<&OsStr> = ["-F", "97", "--"].map(OsStr::new).to_vec();
        args.extend(command);
        let recorded = bench.record(&args).ok();
        let folded = recorded.folded();
        let truth = recorded.truth();
        let seconds = if truth.children > 0.0 {
            truth.children
        } else {
            truth.cpu
        };
        let (seen, expected) = (folded.total() as f64, seconds * SLOW);
        // About 250 samples scatter by 16: four times that.
        assert!(
            (seen - expected).abs() <= 4.0 * expected.sqrt() + 0.05 * expected,
            "{function}: {seen} samples, {seconds:.3} CPU seconds at {SLOW} Hz make {expected:.0}\n{folded}"
        );
    }
}

/// A18: names that look like the fields around them in /proc/PID/stat, or are no text at all.
#[test]
fn a18_odd_process_names() {
    let names: [&[u8]; 5] = [
        b"a) S 1 (b c",
        b"new\nline",
        b"\xff\xfe;x",
        b"(deleted)",
        b"-7 9",
    ];
    for comm in names {
        let bench = Bench::new();
        let mut command = ODDNAMES.command();
        command.arg("0.5").arg(OsString::from_vec(comm.to_vec()));
        let workload = Attached::start(command);
        let pid = workload.pid();
        let (recorded, truth) = bench.record_attached(workload, &["-p", &pid.to_string()]);
        let folded = recorded.ok().folded();
        truth.check_count(&folded);
        folded.check_none("another process", |s| s.pid != pid);
        folded.check_least("its functions", 0.9, |s| s.has("odd_drive"));
        let shown = sanitized(comm);
        folded.check_none(&format!("a comm that is not {shown:?}"), |s| {
            s.comm != shown
        });
    }
}

/// What folded output may show of a name.
fn sanitized(name: &[u8]) -> String {
    let clean = |c: char| match c {
        ';' => ':',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    String::from_utf8_lossy(name).chars().map(clean).collect()
}

/// A19: a program is one process whatever its threads are called; threads keep their names in the
/// standard report.
#[test]
fn a19_threads_do_not_scatter_a_process() {
    let bench = Bench::new();
    let crew = CREW.build();
    let recorded = bench
        .record_command(&[crew.as_os_str(), "0.2".as_ref()])
        .ok();
    let folded = recorded.folded();
    folded.check_none("a thread's name for the process", |s| s.comm != "crew");
    recorded.truth().check_shares(&folded);

    let standard = recorded.standard();
    for (thread, function) in [("w1", "before_1"), ("w4", "before_4"), ("w6", "after_2")] {
        let of_function: Vec<_> = standard
            .samples
            .iter()
            .filter(|s| s.has(function))
            .collect();
        let named = of_function
            .iter()
            .filter(|s| s.head.split_whitespace().any(|w| w == thread))
            .count();
        assert!(
            named > 0 && named * 100 >= of_function.len() * 95,
            "{named} of {} samples of {function} are of thread {thread}\n{}",
            of_function.len(),
            standard.head()
        );
    }
}

/// A19: started through the dynamic loader, a program still has its own name and its symbols.
#[test]
fn a19_started_through_the_loader() {
    let bench = Bench::new();
    let program = BURN_C.build();
    let loader = loader_of(&program);
    let command = [
        loader.as_os_str(),
        program.as_os_str(),
        "1".as_ref(),
        "0.8".as_ref(),
    ];
    let recorded = bench.record_command(&command).ok();
    let folded = recorded.folded();
    recorded.truth().check_shares(&folded);
    folded.check_least("the program's name", 0.97, |s| s.comm == BURN_C.name);
}

/// The interpreter named in an ELF file.
fn loader_of(program: &std::path::Path) -> OsString {
    let output = Command::new("readelf")
        .args(["-p", ".interp"])
        .arg(program)
        .output()
        .expect("readelf runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = text
        .lines()
        .find_map(|line| line.find('/').map(|at| line[at..].trim().to_owned()));
    path.unwrap_or_else(|| panic!("{program:?} has no interpreter:\n{text}"))
        .into()
}

/// A19: a new name during the recording counts from then on.
#[test]
fn a19_renamed_while_recorded() {
    let bench = Bench::new();
    let program: Program = RENAME;
    let recorded = bench
        .record_command(&[program.build().as_os_str(), "1.2".as_ref()])
        .ok();
    let folded = recorded.folded();
    recorded.truth().check_shares(&folded);
    folded.check_none("the old name after the change", |s| {
        s.comm == "rename" && s.has("late_spin")
    });
    folded.check_none("the new name before the change", |s| {
        s.comm == "renamed" && s.has("early_spin")
    });
}

/// A28: threads from before the attach and after it, and a child without exec, each with its share.
#[test]
fn a28_threads_before_and_after_the_attach() {
    let bench = Bench::new();
    let mut command = CREW.command();
    command.arg("0.35");
    let workload = Attached::start(command);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, truth) = bench.record_attached(workload, &args);
    let folded = recorded.ok().folded();
    truth.check_shares(&folded);
    check_count(&folded, f64::from(HZ), truth.sum());
}

/// A28: threads that come and go all the time, started by a process that was there before.
#[test]
fn a28_many_brief_threads() {
    let bench = Bench::new();
    let mut command = THREADS.command();
    command.args(["150", "0.008"]);
    let workload = Attached::start(command);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, truth) = bench.record_attached(workload, &args);
    let folded = recorded.ok().folded();
    truth.check_count(&folded);
    folded.check_least("brief_spin", 0.85, |s| s.has("brief_spin"));
}

/// A28: all descendants of a command, through a shell and a second program, with and without exec.
#[test]
fn a28_all_descendants_of_a_command() {
    let bench = Bench::new();
    let (one, crew) = (ONE.build(), CREW.build());
    let script = bench.path("script");
    let lines = format!(
        "#!/bin/sh\n({} 0.3 >/dev/null) &\n(sh -c '{} 0.1')\nwait\n",
        one.display(),
        crew.display()
    );
    fs::write(&script, lines).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("an executable script");
    let recorded = bench.record_command(&[script.as_os_str()]).ok();
    let folded = recorded.folded();
    let mut truth = recorded.truth();
    truth.functions.push(("one_spin".to_owned(), 0.3));
    truth.check_shares(&folded);
}
