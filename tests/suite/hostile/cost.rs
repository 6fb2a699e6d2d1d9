//! A30: what a report costs does not depend on how many samples there are, nor on servers that do not answer.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::bounded::{is_civil, measured};
use super::{CODE, Scene, put, usual};

/// Frames in which the recorder writes samples.
const FRAME: u64 = 20_000;

/// A capture of `samples` samples of 1,000 stacks.
fn capture(dir: &Path, samples: u64) -> std::path::PathBuf {
    let mut scene: Scene = usual();
    let trunk: Vec<u64> = (1..20).map(|i| CODE + 64 * i).collect();
    let stacks: Vec<Vec<u64>> = (0..1000u64)
        .map(|i| [&[CODE + (1 << 20) + 64 * i], &trunk[..]].concat())
        .collect();
    for i in 0..samples {
        scene.sample(1_000_000 + 10_000 * i, &stacks[(i * 7919 % 1000) as usize]);
        if i % FRAME == FRAME - 1 {
            scene.writer.flush().unwrap();
        }
    }
    put(dir, &scene.bytes())
}

#[test]
fn a30_memory_does_not_grow_with_samples_of_the_same_stacks() {
    let dir = tempfile::tempdir().unwrap();
    for view in [
        &["report", "--folded"][..],
        &["report", "--top", "5"],
        &["report", "--flamegraph", "-"],
        &["report", "--standard"],
    ] {
        let peaks = [40_000, 400_000].map(|samples| {
            let path = capture(dir.path(), samples);
            let run = measured(view, &path);
            is_civil(&format!("{view:?}"), &run);
            assert_eq!(run.code, Some(0), "{}", run.err);
            let told = run.err.contains(&format!("samples: {samples};"));
            assert!(told || !view.contains(&"--folded"), "{}", run.err);
            run.peak
        });
        assert!(
            peaks[1] < peaks[0] + peaks[0] / 5 + 4096,
            "{view:?}: {peaks:?} KiB"
        );
    }
}

#[test]
fn a30_no_server_is_waited_for_that_was_not_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = capture(dir.path(), 1000);
    let took = |server: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_profiler"));
        command.args(["report", "--folded"]).arg(&path);
        command.env_remove("DEBUGINFOD_URLS");
        if let Some(server) = server {
            command.env("DEBUGINFOD_URLS", server);
        }
        let start = Instant::now();
        let output = command.output().unwrap();
        assert!(output.status.success());
        (start.elapsed(), output.stdout)
    };
    let (without, folded) = took(None);
    // An address that nobody answers at, so that a connection would wait for its time to run out.
    let (with, same) = took(Some("http://10.255.255.1/"));
    assert!(folded == same && !folded.is_empty());
    assert!(
        with < without + Duration::from_secs(2),
        "{with:?}, {without:?} without"
    );
}
