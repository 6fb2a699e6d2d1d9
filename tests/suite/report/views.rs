//! The text of every view, exactly.

use super::fixture::{BASE, Bench, Elf, KERNEL, LEN, Run, Scene, Taken, memory, profiler, usual};
use bprof::event::{LossClass, MappedKind, Pid, ProcessKey, Timestamp};
use bprof::format::aid::{JitSymbol, PerfMap, PerfMaps};

const VERDICT: &str = "\
# host: web1, Linux 6.18.0 x86_64, 2 CPUs; recorded by bprof test
# event: cpu-clock at 99 Hz; target: system-wide
# time: 2023-11-14T22:13:21.000000000Z to 2023-11-14T22:13:22.010000000Z, 1.010 s
# samples: 6; lost: 0
# truncated stacks: in 1 sample
# capture: complete, ended by the time asked for
";

const TRUNCATED: &str = "# truncated stacks: in 1 sample\n";

const NAMES: &str = "\
# frames named: user 90.9 % (10 of 11), kernel 75.0 % (3 of 4)
# stacks that ended early: in 1 sample (usually of code built without frame pointers: record it with --unwind auto)
# frames without a name: not mapped 1, no kernel symbol 1
";

#[test]
fn folded() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let run = Run::report(&["--folded"], &capture);
    assert_eq!(run.err, format!("{VERDICT}{NAMES}"));
    assert_eq!(
        run.ok(),
        "\
app-100;[truncated];mid;leaf 1
app-100;[unknown] 1
app-100;main;mid;entry_SYSCALL_64_[k];do_syscall_64_[k] 1
app-100;main;mid;leaf 2
kworker/0:1-7;[kernel+0xffffffff81001ff0]_[k];nft_do_chain_[k] 1
"
    );
}

#[test]
fn top_is_the_default() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let table = "\
# 8 of 8 functions; shares are of 6 samples
self    self%  total   total%  module       function
   3   50.00%      3   50.00%  app          leaf
   1   16.67%      1   16.67%               [unknown]
   1   16.67%      1   16.67%  [kernel]     do_syscall_64
   1   16.67%      1   16.67%  [nf_tables]  nft_do_chain
   0    0.00%      4   66.67%  app          mid
   0    0.00%      3   50.00%  app          main
   0    0.00%      1   16.67%  [kernel]     [kernel+0xffffffff81001ff0]
   0    0.00%      1   16.67%  [kernel]     entry_SYSCALL_64
";
    let all = format!("{VERDICT}{NAMES}{table}");
    assert_eq!(Run::report(&[], &capture).ok(), all);
    let top = Run::report(&["--top", "1"], &capture).ok();
    assert!(top.contains("# 1 of 8 functions"), "{top}");
    assert!(top.ends_with("  app     leaf\n"), "{top}");
}

#[test]
fn standard() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    let at = |function: &str, inside: u64| {
        format!("{:016x}", BASE + bench.elf.offset(function) + inside)
    };
    let (leaf, mid0, mid, main) = (at("leaf", 0), at("mid", 0), at("mid", 5), at("main", 5));
    let busy =
        format!("    {leaf} leaf+0x0 (app)\n    {mid} mid+0x5 (app)\n    {main} main+0x5 (app)\n");
    let cut = format!("    {leaf} leaf+0x0 (app)\n    {mid} mid+0x5 (app)\n    [truncated]\n");
    let expected = format!(
        "\
2023-11-14T22:13:21.000000000Z app 100/100 (app) [cpu 0] cpu-clock
  Userspace:
{busy}
2023-11-14T22:13:21.010000000Z app 100/100 (app) [cpu 0] cpu-clock
  Userspace:
{busy}
2023-11-14T22:13:21.020000000Z worker 100/101 (app) [cpu 0] cpu-clock
  Kernel:
    ffffffff81000110 do_syscall_64+0x10 ([kernel])
    ffffffff81000010 entry_SYSCALL_64+0x10 ([kernel])
  Userspace:
    {mid0} mid+0x0 (app)
    {main} main+0x5 (app)

2023-11-14T22:13:22.000000000Z app 100/100 (app) [cpu 0] cpu-clock
  Userspace:
{cut}
2023-11-14T22:13:22.005000000Z kworker/0:1 7/7 (kworker/0:1) [cpu 1] cpu-clock
  Kernel:
    ffffffff81000200 nft_do_chain+0x0 ([nf_tables])
    ffffffff81001ff0 [kernel+0xffffffff81001ff0] ([kernel])

2023-11-14T22:13:22.010000000Z app 100/100 (app) [cpu 1] cpu-clock
  Userspace:
    0000000000001234 [unknown]

"
    );
    assert_eq!(
        Run::report(&["--standard"], &capture).ok(),
        // How many stacks are cut is known at the end.
        format!(
            "{}{expected}{TRUNCATED}{NAMES}",
            VERDICT.replace(TRUNCATED, "")
        )
    );
}

#[test]
fn standard_is_in_time_order_over_frames_and_segments() {
    let bench = Bench::new();
    let mut s = Scene::new();
    for segment in 0..3u64 {
        let p = s.process(100, 500);
        s.image(p, 0, 0, "app");
        for frame in 0..3u64 {
            for i in 0..10u64 {
                // Frames overlap by half, the CPUs run against each other.
                let time = 1_000_000_000 + ((segment * 3 + frame) * 5 + i) * 1000 + i % 2;
                s.sample(Taken {
                    cpu: (i % 2) as u32,
                    user: &[i + 1],
                    ..Taken::of(p, 100, "app", time)
                });
            }
            s.writer.flush().unwrap();
        }
        s.writer.start_segment().unwrap();
    }
    let capture = bench.capture("run.bprof", &s.finish());
    let out = Run::report(&["--standard"], &capture).ok();
    let times: Vec<&str> = out.lines().filter(|l| l.starts_with("2023-")).collect();
    assert_eq!(times.len(), 90);
    assert!(times.is_sorted(), "{out}");
}

#[test]
fn names_are_made_safe_for_each_view() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let p = s.process(100, 500);
    s.image(p, 0, 0, "a;b\n\x1b[31m x");
    s.map(
        p,
        0,
        BASE,
        &memory(MappedKind::Memfd, "/memfd:</script><script>alert(1)"),
    );
    s.sample(Taken {
        user: &[BASE],
        ..Taken::of(p, 100, "t;\t", 1_000_000_000)
    });
    let capture = bench.capture("run.bprof", &s.finish());
    let line = "a:b\u{fffd}\u{fffd}[31m x-100;[memfd:</script><script>alert(1)] 1\n";
    assert_eq!(Run::report(&["--folded"], &capture).ok(), line);
    let standard = Run::report(&["--standard"], &capture).ok();
    assert!(
        standard.contains("Z t;\\t 100/100 (a;b\\n\\u{1b}[31m x) [cpu 0]"),
        "{standard}"
    );
    let svg = Run::report(&["--flamegraph", "-"], &capture).ok();
    assert!(
        svg.contains("[memfd:&lt;/script&gt;&lt;script&gt;alert(1)]"),
        "{svg}"
    );
    assert!(!svg.contains("<script>alert"), "{svg}");
}

#[test]
fn losses_and_the_recorders_notes_are_told() {
    let bench = Bench::new();
    let mut header = super::fixture::header();
    header
        .degraded
        .push("kernel symbols: hidden by kptr_restrict".to_owned());
    let mut s = Scene {
        writer: bprof::capture::CaptureWriter::create(Vec::new(), &header).unwrap(),
    };
    let p = s.process(100, 500);
    s.image(p, 0, 0, "app");
    s.sample(Taken::of(p, 100, "app", 1_000_000_000));
    s.writer.loss(LossClass::RingFull, Some(0), 2);
    s.writer.loss(LossClass::RingFull, Some(1), 1);
    s.writer.loss(LossClass::Idle, None, 70);
    let capture = bench.capture("run.bprof", &s.finish());
    let out = Run::report(&[], &capture).ok();
    for line in [
        "# samples: 1; lost: 3 (75.0 % of those taken)\n",
        "# lost by cause: ring full 3\n",
        "# left out or missing: idle 70\n",
        "# degraded: kernel symbols: hidden by kptr_restrict\n",
        "# 1 sample has no frames and belongs to no function\n",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let standard = Run::report(&["--standard"], &capture).ok();
    assert!(
        standard.contains("# lost by cause: ring full 3\n"),
        "{standard}"
    );
}

#[test]
fn what_cannot_be_named_says_why() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    std::fs::remove_file(&bench.elf.path).unwrap();
    let run = Run::report(&["--folded"], &capture);
    let offset =
        |function: &str, inside: u64| format!("[app+{:#x}]", bench.elf.offset(function) + inside);
    let (leaf, mid, main) = (offset("leaf", 0), offset("mid", 5), offset("main", 5));
    assert!(
        run.err
            .contains("frames without a name: not mapped 1, file missing 10"),
        "{}",
        run.err
    );
    assert!(run.err.contains(": file missing, 10 frames"), "{}", run.err);
    assert!(
        run.err
            .contains("warning: only 0.0 % of the user frames have names"),
        "{}",
        run.err
    );
    assert!(
        run.out
            .contains(&format!("app-100;{main};{mid};{leaf} 2\n")),
        "{}",
        run.out
    );

    // The same file elsewhere, found below a root.
    let root = bench.path("root");
    let below = root.join(bench.elf.path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(below.parent().unwrap()).unwrap();
    std::fs::write(
        &below,
        std::fs::read(Elf::compile(bench.dir.path(), "other").path).unwrap(),
    )
    .unwrap();
    let run = Run::of(profiler(&["--folded", "--symfs"]).arg(&root).arg(&capture));
    assert!(run.ok().contains("app-100;main;mid;leaf 2\n"));
}

#[test]
fn a_share_of_named_frames_can_be_asked_for() {
    let bench = Bench::new();
    let capture = bench.capture("run.bprof", &usual(&bench.elf).finish());
    Run::report(&["--min-named", "90"], &capture).ok();
    let run = Run::report(&["--min-named", "95"], &capture);
    assert_eq!(run.code, Some(1));
    assert!(
        run.err
            .contains("90.9 % of the user frames have names, --min-named asks for 95 %"),
        "{}",
        run.err
    );
    assert!(run.out.contains("leaf"));
}

#[test]
fn kernel_addresses_of_a_cut_kernel_stack_keep_their_marker() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let p = s.process(100, 500);
    s.image(p, 0, 0, "app");
    s.map(p, 0, BASE, &bench.elf.mapped());
    s.kernel_symbols();
    let flags = bprof::event::sample_flags::KERNEL_TRUNCATED;
    let user = [BASE + bench.elf.offset("main")];
    let taken = Taken {
        flags,
        kernel: &[KERNEL + 0x100],
        ..Taken::of(p, 100, "app", 1_000_000_000)
    };
    s.sample(Taken {
        user: &user,
        ..taken
    });
    s.sample(Taken { user: &[], ..taken });
    s.sample(Taken {
        user: &user,
        flags: 3,
        ..taken
    });
    let capture = bench.capture("run.bprof", &s.finish());
    assert_eq!(
        Run::report(&["--folded"], &capture).ok(),
        "\
app-100;[truncated];do_syscall_64_[k] 1
app-100;[truncated];main;do_syscall_64_[k] 1
app-100;main;[truncated];do_syscall_64_[k] 1
"
    );
}

/// JIT code has the name that was true at its time, for its process, and none where that is not known. In a memfd too; a file's
/// code is the file's.
#[test]
fn jit_lines_hold_for_their_process_and_time() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let (p, other) = (s.process(100, 500), s.process(200, 600));
    let code = [
        memory(MappedKind::Anonymous, ""),
        memory(MappedKind::Memfd, "/memfd:code"),
    ];
    for process in [p, other] {
        s.image(process, 0, 0, "js");
        s.map(process, 0, BASE, &bench.elf.mapped());
        s.map(process, 0, 2 * LEN + BASE, &code[0]);
        s.map(process, 0, 4 * LEN + BASE, &code[1]);
    }
    let line = |start: u64, since, name: &str| JitSymbol {
        start,
        len: 0x10,
        since: Timestamp(since),
        name: name.into(),
    };
    let (anonymous, memfd) = (2 * LEN + BASE, 4 * LEN + BASE);
    let reading = |previous, until, symbols| PerfMap {
        process: ProcessKey {
            tgid: Pid(100),
            start_time: Timestamp(500),
        },
        previous: Timestamp(previous),
        until: Timestamp(until),
        fresh: previous == 0,
        ended: Vec::new(),
        symbols,
    };
    let main = BASE + bench.elf.offset("main");
    for (process, pid) in [(p, 100), (other, 200)] {
        for time in [1_000, 2_000, 2_500, 3_100, 9_000] {
            for leaf in [anonymous + 4, memfd + 0xf, memfd + 0x10, main] {
                let user = [leaf, main + 1];
                let taken = Taken::of(process, pid, "js", time);
                s.sample(Taken {
                    user: &user,
                    ..taken
                });
            }
        }
    }
    s.writer.flush().unwrap();
    let everywhere = line(main - main % 0x10, 0, "not the file's");
    let first = vec![everywhere, line(anonymous, 0, "old;f"), line(memfd, 0, "g")];
    for maps in [
        reading(0, 2_000, first),
        reading(2_000, 3_000, vec![line(anonymous, 3_050, "new f")]),
        reading(3_000, 4_000, vec![]),
    ] {
        s.writer.perf_maps(&PerfMaps { maps: vec![maps] }).unwrap();
    }
    let capture = bench.capture("run.bprof", &s.finish());
    assert_eq!(
        Run::report(&["--folded"], &capture).ok(),
        "\
js-100;main;[anon] 2
js-100;main;[memfd:code] 6
js-100;main;g 4
js-100;main;main 5
js-100;main;new f 1
js-100;main;old:f 2
js-200;main;[anon] 5
js-200;main;[memfd:code] 10
js-200;main;main 5
"
    );
}
