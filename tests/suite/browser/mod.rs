//! Pictures in a real browser: they are drawn, clicks do what they should, and no name of a capture does anything.

mod driver;
mod page;
mod speedscope;
mod svg;

use std::fs;
use std::path::PathBuf;

use bprof::capture::CaptureWriter;
use bprof::event::{MappedKind, ProcessKey, Timestamp, sample_flags};
use bprof::format::aid::{JitSymbol, PerfMap, PerfMaps};

use super::report::fixture::{
    BASE, Bench, KERNEL, LEN, Run, Scene, Taken, header, memory, profiler,
};
use driver::Browser;

const SECOND: u64 = 1_000_000_000;

/// Ten samples a second for ten seconds, at each tenth of a second: first in `leaf`, called by `mid` and `main`; from the third second
/// on in `mid`; from the sixth on in the kernel, called by `main`.
fn timed(bench: &Bench) -> PathBuf {
    let mut s = Scene::new();
    let at = |function: &str, inside: u64| BASE + bench.elf.offset(function) + inside;
    let app = s.process(100, 500);
    s.image(app, 0, 0, "app");
    s.map(app, 0, BASE, &bench.elf.mapped());
    s.kernel_symbols();
    let stack = [at("leaf", 0), at("mid", 5), at("main", 5)];
    let short = [at("mid", 0), at("main", 5)];
    for tenth in 0..100 {
        let taken = Taken::of(app, 100, "app", SECOND + tenth * SECOND / 10);
        s.sample(match tenth {
            0..30 => Taken {
                user: &stack,
                ..taken
            },
            30..60 => Taken {
                user: &short,
                ..taken
            },
            _ => Taken {
                user: &stack[2..],
                kernel: &[KERNEL + 0x110, KERNEL + 0x10],
                flags: sample_flags::IN_KERNEL,
                ..taken
            },
        });
    }
    bench.capture("timed.bprof", &s.finish())
}

/// What would do something if it were not only text, and what turns text around or breaks it.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "</script><script>alert(1)</script>",
        "</title></style></textarea>--><img src=x onerror=alert(1)>",
        "javascript:alert(1)",
        "\"'`onmouseover=alert(1) x=`'\"",
        "${alert(1)}`${alert(1)}",
        "{{data}}{{script}}",
        "]]><svg onload=alert(1)>",
        "&lt;img src=x onerror=alert(1)&gt;",
        "\\u003cscript>alert(1)//\\",
        "\u{202e}txt.exe\u{2066}\u{200f}",
        "\u{1b}[2J\0\u{ffff}\u{feff}",
        "<![CDATA[<script>alert(1)</script>",
        "__proto__",
        "constructor",
        "שלום שם",
        "# 1 2",
    ]
    .map(str::to_owned)
    .into();
    names.push("<b>中".repeat(1 << 18));
    names
}

/// A capture that has hostile names wherever it has text: one sample in each of [`hostile_names`], called by all before it.
fn hostile(bench: &Bench) -> PathBuf {
    let names = hostile_names();
    let mut header = header();
    header.host = names[0].clone();
    header.target = names[1].clone();
    header.kernel_release = names[3].clone();
    header.tool = names[0].clone();
    header.events[0].name = names[1].clone();
    header.degraded.push(names[0].clone());
    let mut s = Scene {
        writer: CaptureWriter::create(Vec::new(), &header).unwrap(),
    };
    let app = s.process(100, 500);
    s.image(app, 0, 0, &names[0]);
    s.map(app, 0, BASE, &memory(MappedKind::Anonymous, ""));
    s.map(
        app,
        0,
        BASE + LEN,
        &memory(MappedKind::Memfd, &format!("/memfd:{}", names[1])),
    );
    let place = |i: usize| BASE + 0x10 * i as u64;
    for i in 0..names.len() {
        let user: Vec<u64> = (0..=i).rev().map(|i| place(i) + 4).collect();
        let time = SECOND + i as u64 * SECOND / 10;
        s.sample(Taken {
            user: &user,
            ..Taken::of(app, 100, &names[i % 8], time)
        });
    }
    s.sample(Taken {
        user: &[BASE + LEN + 4],
        ..Taken::of(app, 100, "x", 5 * SECOND)
    });
    s.writer.flush().unwrap();
    let symbols = names.iter().enumerate().map(|(i, name)| JitSymbol {
        start: place(i),
        len: 0x10,
        since: Timestamp(0),
        name: name.clone().into(),
    });
    let map = PerfMap {
        process: ProcessKey {
            tgid: bprof::event::Pid(100),
            start_time: Timestamp(500),
        },
        previous: Timestamp(0),
        until: Timestamp(9 * SECOND),
        fresh: true,
        ended: Vec::new(),
        symbols: symbols.collect(),
    };
    s.writer.perf_maps(&PerfMaps { maps: vec![map] }).unwrap();
    bench.capture("hostile.bprof", &s.finish())
}

/// The picture that the options make of a capture.
fn draw(bench: &Bench, name: &str, options: &[&str], capture: &std::path::Path) -> PathBuf {
    let path = bench.path(name);
    let mut command = profiler(&options[..1]);
    command.arg(&path).args(&options[1..]).arg(capture);
    Run::of(&mut command).ok();
    path
}

/// The tests of what pages do would pass if nothing was ever seen.
#[test]
fn what_a_page_does_is_seen() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = tempfile::tempdir().unwrap();
    let path = bench.path().join("bad.html");
    let seen = |body: &str, what: &str| {
        fs::write(&path, body).unwrap();
        browser.open(&path);
        std::thread::sleep(std::time::Duration::from_millis(100));
        let misdeeds = browser.misdeeds();
        assert!(
            misdeeds.iter().any(|misdeed| misdeed.starts_with(what)),
            "{body}: {misdeeds:?}"
        );
    };
    seen("<script>setTimeout(() => alert(1))</script>", "dialog");
    seen("<img src='http://127.0.0.1:9/x'>", "request");
    seen("<script>throw new Error('x')</script>", "console");
    seen(
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\"><p style='color: red'>",
        "console",
    );
    fs::write(&path, "<p>").unwrap();
    browser.open(&path);
    browser.is_harmless();
}
