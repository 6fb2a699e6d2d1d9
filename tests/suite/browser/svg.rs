//! Flame graphs as SVG.

use serde_json::{Value, json};

use super::driver::{Browser, Point};
use super::{draw, hostile, timed};
use crate::report::fixture::Bench;

/// Functions on every page of a flame graph: boxes with their text, place, and whether they are seen.
const BOXES: &str = "return [...document.querySelectorAll('#frames > g')].map((g) => {
    const b = g.querySelector('rect').getBoundingClientRect();
    const seen = !g.classList.contains('hide');
    return { title: g.querySelector('title').textContent, fill: g.querySelector('rect').getAttribute('fill'),
             x: b.x, y: b.y, width: b.width, height: b.height, seen };
})";

struct Drawn {
    title: String,
    fill: String,
    x: f64,
    y: f64,
    width: f64,
    middle: Point,
    seen: bool,
}

fn boxes(browser: &Browser) -> Vec<Drawn> {
    let boxes = browser.script(BOXES, &[]);
    let boxes = boxes.as_array().unwrap().iter().map(|b| {
        let number = |key: &str| b[key].as_f64().unwrap();
        Drawn {
            title: b["title"].as_str().unwrap().to_owned(),
            fill: b["fill"].as_str().unwrap().to_owned(),
            x: number("x"),
            y: number("y"),
            width: number("width"),
            middle: (
                number("x") + number("width") / 2.0,
                number("y") + number("height") / 2.0,
            ),
            seen: b["seen"] == Value::Bool(true),
        }
    });
    boxes.collect()
}

#[track_caller]
fn find<'a>(boxes: &'a [Drawn], title: &str) -> &'a Drawn {
    let found = boxes.iter().find(|b| b.title == title);
    found.unwrap_or_else(|| {
        panic!(
            "no {title} in {:?}",
            boxes.iter().map(|b| &b.title).collect::<Vec<_>>()
        )
    })
}

fn is_svg(browser: &Browser) {
    let root = browser.script(
        "return [document.documentElement.nodeName, document.querySelectorAll('parsererror').length]",
        &[],
    );
    assert_eq!(root, json!(["svg", 0]));
}

#[test]
fn a_click_zooms_and_a_search_is_marked() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    let capture = timed(&bench);
    browser.open(&draw(&bench, "run.svg", &["--flamegraph"], &capture));
    is_svg(&browser);
    // Its own start is put off, until after the first drawing.
    browser.wait("return !document.querySelector('svg').hasAttribute('width')");
    let all = boxes(&browser);
    let leaf = find(&all, "leaf (30 samples, 30.00%)");
    let mid = find(&all, "mid (60 samples, 60.00%)");
    let kernel = find(&all, "entry_SYSCALL_64 (40 samples, 40.00%)");
    let main = find(&all, "main (100 samples, 100.00%)");
    assert!(leaf.y < mid.y && mid.y < main.y, "callees are above");
    assert!((mid.width / main.width - 0.6).abs() < 0.01);
    assert_ne!(kernel.fill, mid.fill);
    browser.picture("svg.png");

    browser.click(mid.middle);
    let zoomed = boxes(&browser);
    assert!((find(&zoomed, &mid.title).width - main.width).abs() < 1.0);
    assert!(!find(&zoomed, &kernel.title).seen);
    browser.click_on("#unzoom");
    let back = boxes(&browser);
    assert!((find(&back, &mid.title).width - mid.width).abs() < 1.0);
    assert!(find(&back, &kernel.title).seen);

    browser.click_on("#search");
    browser.answer("^leaf");
    assert_eq!(browser.text("#matched"), "Matched: 30.0%");
    let searched = boxes(&browser);
    assert_eq!(find(&searched, &leaf.title).fill, "rgb(230,0,230)");
    assert_eq!(find(&searched, &mid.title).fill, mid.fill);
    browser.click_on("#search");
    let unmarked = boxes(&browser);
    assert_eq!(find(&unmarked, &leaf.title).fill, leaf.fill);
    browser.is_harmless();
}

#[test]
fn the_other_forms_are_drawn() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    let capture = timed(&bench);
    let options = ["--flamegraph", "--inverted"];
    browser.open(&draw(&bench, "inverted.svg", &options, &capture));
    is_svg(&browser);
    browser.wait("return !document.querySelector('svg').hasAttribute('width')");
    let all = boxes(&browser);
    // What was sampled is at the top, as often as it was.
    let mid: Vec<_> = all.iter().filter(|b| b.title.starts_with("mid ")).collect();
    let leaf = find(&all, "leaf (30 samples, 30.00%)");
    assert_eq!(mid.len(), 2, "one is sampled, one calls leaf");
    let caller = mid.iter().find(|b| b.y > leaf.y).unwrap();
    let sampled = mid.iter().find(|b| b.y == leaf.y).unwrap();
    assert_eq!(caller.x, leaf.x);
    assert_eq!(sampled.title, "mid (30 samples, 30.00%)");
    browser.click(sampled.middle);
    assert!(!find(&boxes(&browser), &leaf.title).seen);

    let options = ["--flamegraph", "--flamechart"];
    browser.open(&draw(&bench, "chart.svg", &options, &capture));
    is_svg(&browser);
    browser.wait("return !document.querySelector('svg').hasAttribute('width')");
    let all = boxes(&browser);
    let leaf = find(&all, "leaf (30 samples, 30.00%)");
    let mid = find(&all, "mid (60 samples, 60.00%)");
    let kernel = find(&all, "do_syscall_64 (40 samples, 40.00%)");
    assert!(leaf.x == mid.x && mid.x < kernel.x, "in order of time");
    find(&all, "app 100/100 (100 samples, 100.00%)");
    browser.is_harmless();
}

#[test]
fn hostile_names_do_nothing() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    let capture = hostile(&bench);
    for (name, options) in [
        ("plain.svg", &["--flamegraph"][..]),
        ("inverted.svg", &["--flamegraph", "--inverted"]),
        ("chart.svg", &["--flamegraph", "--flamechart"]),
    ] {
        browser.open(&draw(&bench, name, options, &capture));
        is_svg(&browser);
        browser.wait("return !document.querySelector('svg').hasAttribute('width')");
        let all = boxes(&browser);
        assert!(all.len() > 18, "{}", all.len());
        let (script, image) = (
            "</script><script>alert(1)</script> (",
            "</title></style></textarea>--><img src=x onerror=alert(1)> (",
        );
        for title in [script, image, "${alert(1)}`${alert(1)} ("] {
            assert!(all.iter().any(|b| b.title.starts_with(title)), "{title}");
        }
        // Under the pointer, zoomed to, searched for.
        for drawn in all.iter().filter(|b| b.width > 20.0).take(6) {
            browser.click(drawn.middle);
        }
        browser.click_on("#search");
        browser.answer("alert\\(1\\)");
        browser.is_harmless();
    }
}
