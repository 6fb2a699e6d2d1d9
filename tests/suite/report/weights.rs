//! What samples count for: one rule for all that is counted, in every view and in what each says about itself.

use std::path::PathBuf;

use bprof::event::sample_flags;
use serde_json::Value;

use super::fixture::{BASE, Bench, KERNEL, Run, Scene, Taken, profiler, subcommand};
use crate::golden::of_version;

/// Four samples that count for 10: 4 named, 2 of a stack without a caller or name, 3 of a cut stack, 1 in the kernel.
fn weighted(bench: &Bench) -> PathBuf {
    let mut s = Scene::new();
    let at = |function: &str, inside: u64| BASE + bench.elf.offset(function) + inside;
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    s.map(app, 0, BASE, &bench.elf.mapped());
    s.kernel_symbols();
    let busy = [at("leaf", 0), at("mid", 5), at("main", 5)];
    let taken = |time: u64| Taken::of(app, 100, "app", 1_000_000_000 + time);
    s.sample(Taken {
        user: &busy,
        weight: 4,
        ..taken(0)
    });
    s.sample(Taken {
        user: &[0x1234],
        weight: 2,
        ..taken(1)
    });
    s.sample(Taken {
        user: &busy[..2],
        flags: sample_flags::USER_TRUNCATED,
        weight: 3,
        ..taken(2)
    });
    s.sample(Taken {
        kernel: &[KERNEL + 0x110, KERNEL + 0x10],
        flags: sample_flags::IN_KERNEL,
        ..taken(3)
    });
    bench.capture("run.bprof", &s.finish())
}

#[test]
fn everything_counts_what_samples_count_for() {
    let bench = Bench::new();
    let capture = weighted(&bench);
    let lines = [
        "# samples: 4, which count as 10; lost: 0\n",
        "# truncated stacks: in 3 samples\n",
        "# frames named: user 90.0 % (18 of 20), kernel 100.0 % (2 of 2)\n",
        "# stacks that ended early: in 2 samples (",
        "# frames without a name: not mapped 2\n",
    ];
    let top = Run::report(&[], &capture).ok();
    let standard = Run::report(&["--standard"], &capture).ok();
    let pprof = Run::report(&["--perf-script"], &capture).err;
    let missing = Run::report(&["--missing"], &capture).ok();
    for line in lines {
        for (text, view) in [
            (&top, "top"),
            (&standard, "standard"),
            (&pprof, "stream"),
            (&missing, "missing"),
        ] {
            assert_eq!(text.matches(line).count(), 1, "{view}: {line}{text}");
        }
    }
    assert!(
        top.contains("functions; shares are of 10 samples\n"),
        "{top}"
    );
    let svg = Run::report(&["--flamegraph", "-"], &capture).ok();
    assert!(svg.contains("4 samples, which count as 10") && svg.contains("all (10 samples, 100%)"));
    let missing: Value =
        serde_json::from_str(&Run::report(&["--missing", "--json"], &capture).ok()).unwrap();
    assert_eq!(missing["samples"], 10);

    let info = Run::of(subcommand::<&str>("info", &[]).arg(&capture)).ok();
    assert!(
        info.contains("\nsamples       4, which count as 10; lost: 0\n"),
        "{info}"
    );
    let info: Value =
        serde_json::from_str(&Run::of(subcommand("info", &["--json"]).arg(&capture)).ok()).unwrap();
    assert_eq!(
        (&info["samples"], &info["weight"], &info["truncated"]),
        (&4.into(), &10.into(), &1.into())
    );
    // Of a part of it.
    let part = Run::report(&["--user-only"], &capture).ok();
    assert!(
        part.contains("# selected: user frames only: 3 of 4 samples, which count as 9\n"),
        "{part}"
    );
    assert!(part.contains("# samples: 4; lost: 0\n"), "{part}");
}

/// Shares of names, and files that lack, are of what the samples of each file count for.
#[test]
fn a_file_that_lacks_has_the_share_its_samples_count_for() {
    let (capture, nothing) = (
        of_version("v1.3", "family.bprof"),
        of_version("v1.3", "src"),
    );
    let run = |options: &[&str]| {
        let mut command = profiler(options);
        Run::of(command.arg("--symfs").arg(&nothing).arg(&capture)).ok()
    };
    let missing: Value = serde_json::from_str(&run(&["--missing", "--json"])).unwrap();
    let all = crate::exports::golden("v1.3", "family.bprof")
        .profile()
        .total_weight();
    assert_eq!(missing["samples"].as_u64(), Some(all));
    // What `--standard` prints, summed up: the weight of each sample times its frames.
    let standard = run(&["--standard"]);
    let (mut frames, mut user) = (0, 0u64);
    let mut weight = 1;
    for line in standard.lines() {
        if let Some((_, rest)) = line.split_once("] cpu-clock") {
            weight = rest.trim().parse().unwrap_or(1);
            user = 0;
        }
        match line {
            "  Userspace:" => user = weight,
            "  Kernel:" => user = 0,
            _ if line.starts_with("    ")
                && !line.contains("(inlined)")
                && !line.contains("[truncated]") =>
            {
                frames += user;
            }
            _ => {}
        }
    }
    let (_, told) = standard.split_once("# frames named: user ").unwrap();
    let (_, told) = told.split_once(" of ").unwrap();
    let (told, _) = told.split_once(')').unwrap();
    assert!(frames > 100 && weight > 0, "{frames}");
    assert_eq!(told.parse::<u64>(), Ok(frames), "{standard}");
}

/// Inside `execve` the stack is that of the program before: no view shows it, nor that it was cut.
#[test]
fn a_cut_stack_that_is_not_shown_is_not_told() {
    let bench = Bench::new();
    let mut s = Scene::new();
    let app = s.process(100, 500);
    s.image(app, 0, 1, "app");
    s.image(app, 1000, 2, "app");
    s.map(app, 1001, BASE, &bench.elf.mapped());
    let leaf = [BASE + bench.elf.offset("leaf")];
    let taken = Taken {
        user: &leaf,
        flags: sample_flags::USER_TRUNCATED,
        ..Taken::of(app, 100, "app", 1010)
    };
    s.sample(Taken {
        exec_id: 2,
        ..taken
    });
    s.sample(Taken {
        exec_id: 1,
        time: 1011,
        flags: sample_flags::USER_TRUNCATED | sample_flags::IN_EXEC,
        ..taken
    });
    let capture = bench.capture("run.bprof", &s.finish());
    for view in [&["--top", "5"][..], &["--standard"], &["--tree"]] {
        let text = Run::report(view, &capture).ok();
        assert!(text.contains("# truncated stacks: in 1 sample\n"), "{text}");
        assert!(
            text.contains("# user stacks left out: in 1 sample inside execve"),
            "{text}"
        );
    }
    let folded = Run::report(&["--folded"], &capture).ok();
    assert_eq!(folded.matches("[truncated]").count(), 1, "{folded}");
}

/// An empty report is not to be taken for an idle machine, nor the other way round.
#[test]
fn a_report_without_samples_says_why() {
    let bench = Bench::new();
    let capture = bench.capture("none.bprof", &Scene::new().finish());
    let why = "# no samples: what was to be sampled used less CPU time in ";
    for view in [
        &["--top", "5"][..],
        &["--tree"],
        &["--standard"],
        &["--missing"],
    ] {
        let text = Run::report(view, &capture).ok();
        assert_eq!(text.matches(why).count(), 1, "{view:?}: {text}");
        assert!(
            text.contains("from one sample to the next (cpu-clock at 99 Hz)"),
            "{text}"
        );
    }
    for view in [&["--folded"][..], &["--perf-script"], &["--html", "-"]] {
        assert_eq!(
            Run::report(view, &capture).err.matches(why).count(),
            1,
            "{view:?}"
        );
    }
    let cut = bench.capture("cut.bprof", &Scene::new().cut());
    let text = Run::report(&[], &cut).ok();
    assert!(
        text.contains("# no samples: the recording was cut short before any was written\n"),
        "{text}"
    );
    let usual = bench.capture("usual.bprof", &super::fixture::usual(&bench.elf).finish());
    for options in [&[][..], &["--pid", "4711"]] {
        assert!(!Run::report(options, &usual).ok().contains("# no samples"));
    }
}
