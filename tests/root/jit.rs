//! Code that no file names: JITs and their perf maps, and code that was moved.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::workload::{PERF_MAP, REMAP};
use crate::common::{Attached, Bench, Folded, HZ, Recorded, Running, Stack};

/// Burns in one function for so many milliseconds; no file is needed, whatever is mounted where.
fn script(milliseconds: u32) -> String {
    format!(
        "function hotScript(n) {{ let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s; }}
         console.log('ready ' + process.pid);
         const end = Date.now() + {milliseconds};
         while (Date.now() < end) hotScript(200000);"
    )
}

/// Removes perf maps that runtimes leave behind.
struct Maps(Vec<PathBuf>);

impl Maps {
    fn of(pids: impl IntoIterator<Item = u32>) -> Maps {
        let path = |pid| PathBuf::from(format!("/tmp/perf-{pid}.map"));
        Maps(pids.into_iter().map(path).collect())
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

fn pids(folded: &Folded) -> Vec<u32> {
    let mut pids: Vec<u32> = folded.stacks.iter().map(|s| s.pid).collect();
    pids.dedup();
    pids
}

/// The function of [`script`], as V8 writes it: `JS:*hotScript [eval]:1:19`.
fn is_hot(stack: &Stack) -> bool {
    stack.has("hotScript")
}

/// A real JIT as a command: it has exited when its map is needed.
#[test]
fn node_that_has_exited_is_named() {
    let bench = Bench::new();
    let recorded = bench.record_command(&["node", "--perf-basic-prof", "-e", &script(1500)]);
    let folded = recorded.ok().folded();
    let _maps = Maps::of(pids(&folded));
    folded.check_least("the script's function", 0.6, is_hot);
}

/// A real JIT that runs before and after the recording.
#[test]
fn node_that_runs_is_named() {
    let bench = Bench::new();
    let mut command = Command::new("node");
    // V8 leaves a log where it runs.
    command.current_dir(bench.path(""));
    command.args(["--perf-basic-prof", "-e", &script(60_000)]);
    let node = Attached::start(command);
    let _maps = Maps::of([node.pid()]);
    let args = ["-F", "997", "-d", "2", "-p", &node.pid_arg()];
    let recorded = bench.record(&args).ok();
    let folded = recorded.folded();
    folded.check_least("the script's function", 0.6, is_hot);
    folded.check_none("another process", |s| s.pid != node.pid());
}

/// A JIT with mounts and process numbers of its own: its map is in its /tmp, under the number it has there. What has that name in
/// our /tmp is somebody else's.
#[test]
fn node_in_namespaces_of_its_own_is_named_by_its_own_map() {
    let bench = Bench::new();
    let _maps = Maps::of([1]);
    fs::write("/tmp/perf-1.map", "1 7ffffffffffffffe of_another_process\n").expect("a map");
    let inner = r#"mount -t tmpfs none /tmp && cd /tmp && exec node --perf-basic-prof -e "$0""#;
    let script = script(1500);
    let command = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        "--mount",
        "sh",
        "-c",
        inner,
        &script,
    ];
    let folded = bench.record_command(&command).ok().folded();
    folded.check_least("the script's function", 0.6, is_hot);
    folded.check_none("a name of another process", |s| s.has("of_another_process"));
}

/// The function that runs the generated code tells which name is right.
fn check_generated(folded: &Folded) {
    folded.check_none("the name of other code at that address", |s| {
        s.has_chain(&["first_round", "generated_second"])
            || s.has_chain(&["second_round", "generated_first"])
            || s.has_chain(&["child_round", "generated_first"])
            || s.has_chain(&["child_round", "generated_second"])
    });
}

fn record_jit(bench: &Bench, args: &[&str]) -> (Recorded, Maps) {
    let jit = PERF_MAP.build();
    // With the same addresses in each image.
    let mut command = vec!["setarch", "-R", jit.to_str().expect("the path is UTF-8")];
    command.extend(args);
    let recorded = bench.record_command(&command).ok();
    let truth = recorded.truth();
    let maps = Maps(truth.words("map ").into_iter().map(PathBuf::from).collect());
    (recorded, maps)
}

/// Two pieces of code at one address, one after the other, in anonymous memory and in a memfd: each sample has the right name
/// or none.
#[test]
fn code_at_one_address_has_the_name_of_its_time() {
    for args in [&["2.5", "3"][..], &["2.5", "3", "--memfd"]] {
        let bench = Bench::new();
        let (recorded, _maps) = record_jit(&bench, args);
        let folded = recorded.folded();
        check_generated(&folded);
        for (caller, name) in [
            ("first_round", "generated_first"),
            ("second_round", "generated_second"),
        ] {
            let own = folded.only(|s| s.has(caller));
            own.check_least(name, 0.3, |s| s.has_chain(&[caller, name]));
        }
        assert!(
            folded.verdict.contains("without a name"),
            "the change is not known to the moment\n{folded}"
        );
    }
}

/// The same for a process that already runs, whose first line is older than the recording.
#[test]
fn code_of_a_process_that_runs_has_the_name_of_its_time() {
    let bench = Bench::new();
    let mut command = PERF_MAP.command();
    command.args(["2.5", "2"]);
    let workload = Attached::start(command);
    let _maps = Maps::of([workload.pid()]);
    let args = ["-p".to_owned(), workload.pid_arg()];
    let (recorded, _) = bench.record_attached(workload, &args);
    let folded = recorded.ok().folded();
    check_generated(&folded);
    let named = ["generated_first", "generated_second"];
    folded.check_least("names", 0.6, |s| named.iter().any(|name| s.has(name)));
}

/// A map that is gone when its process ends has been read before; a child has no map, and does not borrow its parent's.
#[test]
fn a_map_without_a_name_and_a_child_without_a_map() {
    let bench = Bench::new();
    let (recorded, _maps) = record_jit(&bench, &["0.6", "1", "--fork", "--unlink"]);
    let folded = recorded.folded();
    check_generated(&folded);
    let own = folded.only(|s| s.has("first_round"));
    own.check_least("generated_first", 0.9, |s| s.has("generated_first"));
    let child = folded.only(|s| s.has("child_round"));
    child.check_least("code without a name", 0.9, |s| {
        s.user_leaf() == Some("[anon]")
    });
}

/// A process that becomes another program and leaves its map behind: code of the new one has no name of the old one, though it
/// is at the same address.
#[test]
fn a_map_ends_with_the_program_that_wrote_it() {
    let bench = Bench::new();
    let (recorded, _maps) = record_jit(&bench, &["1.2", "1", "--again"]);
    let (folded, truth) = (recorded.folded(), recorded.truth());
    let addresses = truth.words("address ");
    assert!(
        addresses.len() == 2 && addresses[0] == addresses[1],
        "{addresses:?}"
    );
    check_generated(&folded);
    let own = folded.only(|s| s.has("first_round"));
    own.check_least("generated_first", 0.5, |s| s.has("generated_first"));
    let after = folded.only(|s| s.has("child_round"));
    after.check_least("code without a name", 0.9, |s| {
        s.user_leaf() == Some("[anon]")
    });
}

/// What lies at a map's path is believed if it is a file of the process's own or root's; else it is neither read nor waited for.
#[test]
fn a_map_that_is_not_the_processs_own_is_left_alone() {
    let bench = Bench::new();
    let elsewhere = bench.path("elsewhere.map");
    fs::write(&elsewhere, "1 7ffffffffffffffe planted\n").expect("a file");
    for (plant, then, believed) in [
        ("cp $0", "true", true),
        ("cp $0", "chown 65534", false),
        // Of another process that had this number long ago.
        ("cp $0", "touch -d @1000000000", false),
        ("ln -s $0", "true", false),
        ("mkfifo", "true", false),
        ("mkdir", "true", false),
    ] {
        // The process's number is that of the shell, which becomes the program.
        let script = format!(
            r#"rm -rf /tmp/perf-$$.map; set -- {plant} ; "$@" /tmp/perf-$$.map
               {then} /tmp/perf-$$.map; echo "map /tmp/perf-$$.map"; exec {} 0.5"#,
            REMAP.build().display()
        );
        let place = elsewhere.to_str().expect("the path is UTF-8");
        let recorded = bench.record_command(&["sh", "-c", &script, place]).ok();
        for map in recorded.truth().words("map ") {
            let map = Path::new(map);
            let _ = fs::remove_file(map).or_else(|_| fs::remove_dir(map));
        }
        let folded = recorded.folded();
        assert_eq!(
            folded.count(|s| s.has("planted")) > 0,
            believed,
            "{plant}, {then}\n{folded}"
        );
        folded.check_least("the program", 0.8, |s| s.has("run_moved"));
    }
}

/// A31: code that was moved to anonymous memory has no name but its own, and is told apart from what has one.
#[test]
fn a31_code_moved_to_anonymous_memory() {
    let bench = Bench::new();
    let remap = REMAP.build();
    let recorded = bench.record_command(&[remap.as_os_str(), "0.6".as_ref()]);
    let folded = recorded.ok().folded();
    let below = folded.only(|s| s.has_chain(&["main", "run_moved"]));
    below.check_least("the moved function", 0.9, |s| {
        s.has_chain(&["run_moved", "moved_spin"]) || s.user_leaf() == Some("[anon]")
    });
    below.check_none("another function's name", |s| s.has("stays"));
    assert!(
        folded.verdict.contains("anonymous memory"),
        "the reason is told\n{folded}"
    );
}

/// A JIT system-wide, beside processes that come and go.
#[test]
fn node_is_named_in_a_recording_of_the_whole_system() {
    let bench = Bench::new();
    let rate = HZ.to_string();
    let running = Running::start_sampling(&bench, &["-a", "-F", &rate]);
    let node = Command::new("node")
        .args(["--perf-basic-prof", "-e", &script(1200)])
        .current_dir(bench.path(""))
        .stdout(Stdio::null())
        .status()
        .expect("node starts");
    assert!(node.success());
    let folded = running.interrupt().ok().folded();
    let own = folded.only(|s| s.comm == "node" || s.comm == "MainThread");
    let _maps = Maps::of(pids(&own));
    own.check_least("the script's function", 0.6, is_hot);
}
