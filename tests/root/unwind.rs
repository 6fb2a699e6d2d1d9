//! Code without frame pointers, by unwind information: every stack is one that occurred, caller by caller, and reaches its root.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::folded::TRUNCATED;
use crate::common::workload::{
    BURN_NO_FP, DEEP_BIG, FAULTS, FAULTS_STATIC, LIES, SHADOW, SHADOW_DEBUG_FRAME, SHADOW_STATIC,
    SHADOW_STATIC_PIE,
};
use crate::common::{Bench, Folded, HZ, Program, Recorded, Stack};

/// Records `program ARGS...` by unwind information.
fn record(bench: &Bench, program: Program, args: &[&str]) -> (Recorded, Folded) {
    record_by(bench, "dwarf", program, args)
}

fn record_by(bench: &Bench, unwind: &str, program: Program, args: &[&str]) -> (Recorded, Folded) {
    record_at(bench, unwind, HZ, program, args)
}

/// Of copies of 128 KiB a recorder that is not optimized keeps up with some hundred a second.
const FEW_HZ: u32 = 199;

pub fn record_at(
    bench: &Bench,
    unwind: &str,
    hz: u32,
    program: Program,
    args: &[&str],
) -> (Recorded, Folded) {
    let rate = hz.to_string();
    let program = program.build();
    // Room for what a busy machine keeps waiting.
    let mut all = vec!["-F", &rate, "--ring-size", "16M", "--unwind", unwind, "--"];
    all.push(program.to_str().expect("a path in UTF-8"));
    all.extend(args);
    let recorded = bench.record(&all).ok();
    let folded = recorded.folded();
    (recorded, folded)
}

/// What `tests/workloads/shadow.c` says it did.
pub struct Shadow {
    /// Every beginning of every path, root first.
    beginnings: HashSet<Vec<String>>,
    names: HashSet<String>,
}

impl Shadow {
    pub fn of(recorded: &Recorded) -> Shadow {
        let mut shadow = Shadow {
            beginnings: HashSet::new(),
            names: HashSet::new(),
        };
        let lines = recorded.stdout.lines();
        for path in lines.filter_map(|line| line.strip_prefix("path ")) {
            let path: Vec<String> = path.split(';').map(str::to_owned).collect();
            shadow.names.extend(path.iter().cloned());
            for end in 1..=path.len() {
                shadow.beginnings.insert(path[..end].to_vec());
            }
        }
        assert!(shadow.beginnings.len() > 1000, "{recorded:#?}");
        shadow
    }

    pub fn is_own(&self, frame: &str) -> bool {
        self.names.contains(frame)
    }

    /// The workload's own functions in a stack.
    pub fn own(&self, stack: &Stack) -> Vec<String> {
        let own = stack.user().filter(|frame| self.is_own(frame));
        own.map(str::to_owned).collect()
    }

    /// Fails unless all stacks that have `root` are beginnings of paths, and what lies between two functions is the C library's.
    pub fn check(&self, folded: &Folded, root: &str) {
        folded.check_none("a stack that never was", |stack| {
            let own = self.own(stack);
            own.first().is_some_and(|first| first == root) && !self.beginnings.contains(&own)
        });
        folded.check_none("functions of others in between", |stack| {
            let user = stack
                .user()
                .filter(|frame| !["go", "main.step"].contains(frame));
            let user: Vec<&str> = user.collect();
            let own: Vec<usize> = (0..user.len())
                .filter(|at| self.is_own(user[*at]))
                .collect();
            own.windows(2).any(|pair| {
                let by_library = [
                    ("sorts", "compares"),
                    ("raises", "on_signal"),
                    ("main.sorts", "main.sorts.func1"),
                ];
                pair[1] > pair[0] + 1 && !by_library.contains(&(user[pair[0]], user[pair[1]]))
            })
        });
    }
}

/// Whether the root of a stack is where processes or threads begin.
pub fn is_whole(stack: &Stack) -> bool {
    let root = stack.user().next().unwrap_or_default();
    // Without debug symbols of the C library clone3 has no name.
    let is_clone = root.ends_with("clone3") || root.ends_with("clone");
    root == "_start" || is_clone || root.starts_with("[libc.so.6+")
}

/// Of all stacks. What is missing are those of the loader's and the signal trampoline's first instructions.
pub const WHOLE: f64 = 0.995;

pub fn check_shadow(program: Program) {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, program, &["300", "2"]);
    recorded.truth().check_count(&folded);
    Shadow::of(&recorded).check(&folded, "main");
    folded.check_least("whole stacks", WHOLE, is_whole);
    for end in ["burns", "copies", "reads"] {
        let share = folded.share(|s| s.has(end));
        assert!((0.2..0.5).contains(&share), "{end}: {share}\n{folded}");
    }
    // Code of the C library without frames has its caller.
    let copies = folded.only(|s| s.has("copies") && s.user_leaf() != Some("copies"));
    copies.check_least("memcpy by its caller", 0.9, |s| {
        let user: Vec<&str> = s.user().collect();
        user.iter().rev().nth(1) == Some(&"copies")
    });
    // A sample taken in the kernel has the user stack of the call.
    let reads = folded.only(|s| s.has("reads"));
    reads.check_least("kernel code in a system call", 0.7, |s| {
        s.frames.last().is_some_and(|leaf| leaf.ends_with("_[k]"))
    });
}

/// alloca, aligned stacks, other registers, signals, noreturn calls, libc in between, system calls.
#[test]
fn stacks_without_frame_pointers_are_whole_and_true() {
    check_shadow(SHADOW);
}

/// Without a shared library or a loader, at a fixed address.
#[test]
fn stacks_of_a_static_program() {
    check_shadow(SHADOW_STATIC);
}

/// The same, at any address.
#[test]
fn stacks_of_a_static_pie() {
    check_shadow(SHADOW_STATIC_PIE);
}

/// Built without what exceptions need: only debuggers are told.
#[test]
fn stacks_by_debug_frame() {
    check_shadow(SHADOW_DEBUG_FRAME);
}

/// Threads have their stacks elsewhere, and begin in the C library.
#[test]
fn stacks_of_threads() {
    let bench = Bench::new();
    let (recorded, folded) = record_at(&bench, "dwarf", FEW_HZ, SHADOW, &["300", "4", "threads"]);
    Shadow::of(&recorded).check(&folded, "on_thread");
    let own = folded.only(|s| ["burns", "copies", "reads"].iter().any(|end| s.has(end)));
    // What was cut because the machine had no time for us says so.
    let kept = own.only(|s| s.frames[0] != TRUNCATED);
    kept.check_least("whole stacks", WHOLE, is_whole);
    kept.check_least("begun by the thread", WHOLE, |s| s.has("on_thread"));
    assert!(kept.total() * 2 > own.total(), "{folded}");
}

/// A page in the middle of the code is another mapping of the same file: what is on either side of it, too.
#[test]
fn stacks_of_code_in_three_mappings() {
    let bench = Bench::new();
    let (recorded, folded) = record_by(&bench, "auto", SHADOW, &["300", "2", "split"]);
    Shadow::of(&recorded).check(&folded, "main");
    folded.check_least("whole stacks", WHOLE, is_whole);
    let aligns = folded.share(|s| s.has("aligns"));
    assert!(aligns > 0.2, "{aligns}\n{folded}");
}

/// The kernel's own code in the process, below the C library's.
#[test]
fn stacks_of_the_vdso() {
    let bench = Bench::new();
    let (recorded, folded) = record_by(&bench, "auto", SHADOW, &["300", "2", "vdso"]);
    Shadow::of(&recorded).check(&folded, "main");
    folded.check_least("whole stacks", WHOLE, is_whole);
    let asks = folded.only(|s| s.has("asks_for_the_time"));
    assert!(asks.total() * 5 > folded.total(), "{folded}");
    // Its function has several names, one of them that of the C library's.
    let in_vdso = asks.share(|s| {
        let mut below = s.user().skip_while(|frame| *frame != "asks_for_the_time");
        below.nth(2).is_some_and(|f| f.contains("clock_gettime"))
    });
    assert!(in_vdso > 0.3, "{in_vdso}\n{folded}");
}

/// A handler on a stack of its own: what it interrupted is on another, which is copied too.
#[test]
fn stacks_that_a_handler_with_its_own_has_interrupted() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, SHADOW, &["300", "2", "alt"]);
    Shadow::of(&recorded).check(&folded, "main");
    folded.check_least("whole stacks", WHOLE, is_whole);
    let handled = folded.only(|s| s.has("on_signal"));
    assert!(handled.total() * 3 > folded.total(), "{folded}");
    handled.check_least("the stack that was interrupted", WHOLE, |s| {
        s.user().nth(1).is_some() && s.has("main") && s.has("raises")
    });
}

/// Frames of half a MiB and more: what lies above them is copied once that is known. The first samples have not.
#[test]
fn stacks_with_a_frame_that_is_larger_than_any_copy() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, SHADOW, &["300", "5", "wide"]);
    Shadow::of(&recorded).check(&folded, "main");
    let deep = folded.only(|s| s.has("burns") || s.has("copies") || s.has("reads"));
    assert!(deep.total() > 4000, "{folded}");
    // Twice it takes the recorder a tenth of a second to see where the frame is.
    deep.check_least("whole stacks", 0.85, is_whole);
    let lower = deep.share(|s| s.has_chain(&["main", "lowers", "wide"]));
    assert!((0.3..0.7).contains(&lower), "{lower}\n{folded}");
}

/// A handler on a stack of its own that the kernel is told to forget: what it interrupted is not copied, and that is said.
#[test]
fn a_signal_stack_ends_where_its_copy_ends() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, SHADOW, &["300", "2", "disarm"]);
    let shadow = Shadow::of(&recorded);
    shadow.check(&folded, "main");
    let handled = folded.only(|s| s.has("on_signal"));
    handled.check_none("the stack that was interrupted", |s| s.has("main"));
    handled.check_least("the function that was, and the handler", 0.99, |s| {
        shadow
            .own(s)
            .first()
            .is_some_and(|first| first == "on_signal")
            && s.frames[0] == TRUNCATED
            && s.user()
                .nth(1)
                .is_some_and(|root| root.contains("pthread_kill"))
    });
    assert!(folded.verdict.contains("stack window"), "{folded}");
}

/// What a signal interrupts has called nothing: it is where it stands, and not in the function that ends there. Nor was the handler
/// called by the code it returns to.
#[test]
fn what_a_signal_interrupted_has_its_own_name() {
    let bench = Bench::new();
    for (program, returns_to) in [(FAULTS, None), (FAULTS_STATIC, Some("__restore_rt"))] {
        let (recorded, folded) = record_at(&bench, "auto", HZ, program, &["1.5"]);
        recorded.truth().check_count(&folded);
        folded.check_none("a function that never ran", |s| s.has("never_runs"));
        let handled = folded.only(|s| s.has("handles"));
        assert!(handled.total() * 2 > folded.total(), "{folded}");
        handled.check_least("what was interrupted", 0.99, |s| {
            let user: Vec<&str> = s.user().collect();
            let at = user.iter().position(|frame| *frame == "faults");
            at.is_some_and(|at| {
                user.get(at + 2) == Some(&"handles")
                    && at > 0
                    && user.get(at - 1) == Some(&"drives")
                    && returns_to.is_none_or(|name| user.get(at + 1) == Some(&name))
            })
        });
    }
}

/// A stack of 400 KiB: its copy ends, and is marked; with frame pointers as well it is whole.
#[test]
fn a_stack_that_is_larger_than_its_copy() {
    let bench = Bench::new();
    let (_, folded) = record_at(&bench, "dwarf", FEW_HZ, DEEP_BIG, &["100", "2"]);
    let deep = folded.only(|s| s.has("deep_spin"));
    deep.check_none("its root", |s| s.has("main"));
    deep.check_least("marked as cut", 1.0, |s| s.frames[0] == TRUNCATED);
    // While the recorder is late, or has given up larger ones, less is copied.
    let most = deep.stacks.iter().map(|s| s.times("dive")).max();
    assert!((24..36).contains(&most.unwrap_or(0)), "{deep}");
    assert!(folded.verdict.contains("stack window"), "{folded}");
    let (_, folded) = record_at(&bench, "auto", FEW_HZ, DEEP_BIG, &["100", "2"]);
    let deep = folded.only(|s| s.has("deep_spin"));
    // In a system call both walks begin in the C library, which keeps no frame pointers: such a stack may end with its copy.
    let whole = |s: &Stack| s.has_chain(&["main", "dive"]) && s.times("dive") == 100;
    deep.check_least("main", 0.8, whole);
    deep.check_none("deeper than it was", |s| s.times("dive") > 100);
}

/// Who calls whom, and how often.
#[derive(Debug, Default)]
struct Calls {
    of: HashMap<(String, String), u64>,
    stacks: u64,
    from_main: u64,
}

impl Calls {
    /// Of own functions, root first.
    fn add(&mut self, own: &[String], count: u64) {
        if own.is_empty() {
            return;
        }
        self.stacks += count;
        self.from_main += count * u64::from(own[0] == "main");
        for pair in own.windows(2) {
            *self
                .of
                .entry((pair[0].clone(), pair[1].clone()))
                .or_default() += count;
        }
    }

    /// Fails when a call that is not rare here was never seen by the other.
    fn check_known_to(&self, other: &Calls) {
        for (call, count) in &self.of {
            let rare = *count * 200 < self.stacks;
            assert!(
                rare || other.of.contains_key(call),
                "{call:?}, {count} times: {self:#?} {other:#?}"
            );
        }
    }
}

/// Two ways of doing the same: what perf finds with elfutils of a copy of 32 KiB.
#[test]
fn perf_finds_the_same_callers() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, SHADOW, &["300", "2"]);
    let shadow = Shadow::of(&recorded);
    let mut ours = Calls::default();
    for stack in &folded.stacks {
        ours.add(&shadow.own(stack), stack.count);
    }
    let data = bench.path("perf.data");
    let perf = Command::new("perf")
        .args([
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "997",
            "--call-graph",
            "dwarf,32768",
            "-o",
        ])
        .arg(&data)
        .arg("--")
        .arg(SHADOW.build())
        .args(["300", "1"])
        .stdout(Stdio::null())
        .status()
        .expect("perf: make test-deps");
    assert!(perf.success());
    let script = Command::new("perf")
        .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
        .arg(&data)
        .output()
        .expect("perf script");
    let script = String::from_utf8_lossy(&script.stdout);
    let mut theirs = Calls::default();
    // Leaf first, with an empty line between stacks.
    for stack in script.split("\n\n") {
        let names = stack
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1));
        let own = names.filter(|name| shadow.is_own(name)).map(str::to_owned);
        let mut own: Vec<String> = own.collect();
        own.reverse();
        theirs.add(&own, 1);
    }
    assert!(
        theirs.stacks > 500 && theirs.of.len() > 50,
        "{theirs:#?}\n{script:.4000}"
    );
    theirs.check_known_to(&ours);
    ours.check_known_to(&theirs);
    let share = |calls: &Calls| calls.from_main as f64 / calls.stacks as f64;
    assert!(
        share(&ours) >= share(&theirs) - 0.005,
        "{} {}",
        share(&ours),
        share(&theirs)
    );
}

/// Both ways together are as good as unwind information alone.
#[test]
fn stacks_by_both() {
    let bench = Bench::new();
    let (recorded, folded) = record_by(&bench, "auto", SHADOW, &["300", "2"]);
    Shadow::of(&recorded).check(&folded, "main");
    folded.check_least("whole stacks", WHOLE, is_whole);
}

/// Rust, whose standard library has no frame pointers as it is delivered.
#[test]
fn stacks_of_a_rust_program() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, BURN_NO_FP, &["2", "1"]);
    recorded.truth().check_shares(&folded);
    folded.check_least("whole stacks", WHOLE, is_whole);
}

/// What unwind information says is checked: a stack that is short, and says why, rather than one that is wrong.
#[test]
fn unwind_information_that_lies() {
    let bench = Bench::new();
    let (recorded, folded) = record(&bench, LIES, &["0.1"]);
    let truth = recorded.truth();
    truth.check_count(&folded);
    let mut ended = 0;
    for (name, _) in &truth.functions {
        let own = folded.only(|s| s.has(name));
        assert!(own.total() > 0, "{name}\n{folded}");
        own.check_none("a caller", |s| {
            let frames = s.user().filter(|frame| *frame != TRUNCATED);
            frames.count() != 1 && s.user_leaf() == Some(name)
        });
        ended += own.total();
    }
    for reason in [
        "bad frame",
        "stack window",
        "return address in no known code",
    ] {
        assert!(folded.verdict.contains(reason), "{reason}\n{folded}");
    }
    let counted = folded.verdict.lines().find(|l| l.contains("bad frame"));
    let counted: u64 = counted
        .into_iter()
        .flat_map(|line| line.split([' ', ',']))
        .filter_map(|word| word.parse::<u64>().ok())
        .sum();
    assert!(counted >= ended, "{counted} of {ended}\n{folded}");
}

/// Compilers, interpreters and tools as they are delivered, in the middle of whatever else they do.
#[test]
fn stacks_of_what_is_installed() {
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads/tools.sh");
    let script = script.to_str().expect("a path in UTF-8");
    let dir = bench.path("tools");
    std::fs::create_dir(&dir).expect("a directory");
    let dir = dir.to_str().expect("a path in UTF-8");
    let args = [
        "-F",
        "199",
        "--unwind",
        "auto",
        "--ring-size",
        "16M",
        "--",
        "sh",
        script,
        dir,
        "12",
    ];
    let folded = bench.record(&args).ok().folded();
    let begun = |s: &Stack| {
        let mut user = s.user();
        let (root, next) = (user.next().unwrap_or_default(), user.next());
        // What is stripped has no name for its own first function, nor has the loader.
        let by_entry = ["__libc_start_main", "_dl_start", "_dl_init"];
        is_whole(s)
            || root == "main"
            || next.is_some_and(|next| by_entry.iter().any(|name| next.starts_with(name)))
    };
    let user = folded.only(|s| s.user().next().is_some());
    user.check_least("begun by main, a thread or the entry", 0.95, begun);
    for program in ["cc1plus", "python3", "gzip", "sort", "rustc", "node"] {
        let own = user.only(|s| s.comm.starts_with(program));
        assert!(own.total() > 20, "{program}\n{folded}");
        // rustc's main thread has a frame of half a MiB: the first samples of each lack what lies above.
        let least = if program == "rustc" { 0.8 } else { 0.9 };
        own.check_least(program, least, begun);
    }
}

/// On other architectures it is refused in words; here it is known.
#[test]
fn what_cannot_be_asked_for() {
    let bench = Bench::new();
    let mut command: Command = bench.profiler();
    let output = command
        .args(["record", "--unwind", "magic", "-d", "1"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("dwarf") && said.contains("fp"), "{said}");
}
