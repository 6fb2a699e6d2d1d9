//! Pages of `--html`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bprof::report::top;
use serde_json::{Value, json};

use super::driver::{Browser, Point};
use super::{draw, hostile, hostile_names, timed};
use crate::exports::read::goldens;
use crate::report::fixture::{Bench, Run, profiler};

const ESCAPE: &str = "\u{e00c}";
const ENTER: &str = "\u{e007}";
const RIGHT: &str = "\u{e014}";
const TAB: &str = "\u{e004}";

fn open(browser: &Browser, page: &Path) {
    browser.open(page);
    browser.wait("return !document.getElementById('page').hidden");
    assert_eq!(browser.text("#problem"), "");
}

/// Self and total by function and module, as the table shows them.
fn table(browser: &Browser) -> BTreeMap<(String, String), (u64, u64)> {
    let rows = browser.script(
        "const more = document.getElementById('top-more');
         while (!more.hidden) more.click();
         return [...document.querySelectorAll('#top tbody tr')].map((row) => [
             row.querySelector('.name button').textContent, row.querySelector('.name small').textContent, row.cells[0].textContent, row.cells[2].textContent])",
        &[],
    );
    let rows: Vec<[String; 4]> = serde_json::from_value(rows).unwrap();
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    let count = rows.len();
    let rows = rows.into_iter();
    let table: BTreeMap<_, _> = rows
        .map(|[name, module, own, total]| ((name, module), (number(&own), number(&total))))
        .collect();
    assert_eq!(table.len(), count, "functions are there once");
    table
}

fn counts(browser: &Browser) -> Vec<(String, u64, u64)> {
    let rows = table(browser).into_iter();
    rows.map(|((name, _), (own, total))| (name, own, total))
        .collect()
}

fn rows(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    let rows = rows.iter();
    rows.map(|(name, own, total)| (name.to_string(), *own, *total))
        .collect()
}

/// Where a function's box is in the graph, and what the page says of it.
fn place(browser: &Browser, name: &str) -> Option<(Point, String)> {
    browser.bounds("#flame");
    let found = browser.script(
        "const canvas = document.getElementById('flame'), details = document.getElementById('details');
         const b = canvas.getBoundingClientRect();
         for (let y = b.top + 9; y < b.bottom; y += 18) for (let x = b.left + 1; x < b.right; x += 4) {
             canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, pointerType: 'pen' }));
             if (details.textContent.startsWith(`${arguments[0]} (`)) return [[x + 2, y], details.textContent];
         }
         return null",
        &[json!(name)],
    );
    serde_json::from_value(found).unwrap()
}

fn said(browser: &Browser, name: &str) -> Option<String> {
    place(browser, name).map(|(_, text)| text)
}

/// The middle of a cell of the heat map.
fn cell(browser: &Browser, column: f64, row: f64, columns: f64) -> Point {
    let [left, top, width, height] = browser.bounds("#heat-canvas");
    (
        left + (column + 0.5) / columns * width,
        top + (1.0 - (row + 0.5) / 50.0) * height,
    )
}

#[test]
fn functions_have_the_totals_of_the_report() {
    let Some(browser) = Browser::start() else {
        return;
    };
    for case in goldens() {
        let page = case.dir.path().join("run.html");
        let mut command = profiler(&["--html"]);
        command.arg(&page).arg("--symfs").arg(&case.files);
        let run = Run::of(command.arg(&case.capture));
        let verdict = run.err.clone();
        run.ok();
        open(&browser, &page);
        let profile = case.profile();
        let text = |name| profile.names.text(name).to_owned();
        let functions = top::functions(&profile).into_iter();
        let functions: BTreeMap<_, _> = functions
            .map(|((name, module), c)| ((text(name), text(module)), (c.own, c.total)))
            .collect();
        assert!(functions.len() > 5, "{functions:?}");
        assert_eq!(table(&browser), functions);
        let shown = browser.text("#range").replace(',', "");
        assert_eq!(
            shown,
            format!("All of it: {} samples", profile.total_weight())
        );
        // The verdict is that of every other view.
        let lines = browser.script(
            "return [...document.querySelectorAll('#verdict li')].map((li) => `# ${li.textContent}\\n`).join('')",
            &[],
        );
        assert!(verdict.starts_with("# host: "), "{verdict}");
        for line in verdict.lines().filter(|line| line.starts_with("# ")) {
            assert!(
                lines.as_str().unwrap().contains(&format!("{line}\n")),
                "{line} in {lines}"
            );
        }
        browser.is_harmless();
    }
}

#[test]
fn clicks_zoom_and_searches_tell_the_share() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    open(
        &browser,
        &draw(&bench, "run.html", &["--html"], &timed(&bench)),
    );
    browser.picture("timed.png");
    let whole = "mid (60 samples, 60.00 %; 30 in it itself; user, app)";
    let (mid, text) = place(&browser, "mid").unwrap();
    assert_eq!(text, whole);
    assert_eq!(
        said(&browser, "do_syscall_64").unwrap(),
        "do_syscall_64 (40 samples, 40.00 %; 40 in it itself; kernel, [kernel])"
    );

    let search = |text: &str| {
        browser.script(
            "const s = document.getElementById('search'); s.value = ''; s.focus(); s.dispatchEvent(new Event('input'))",
            &[],
        );
        browser.keys(text);
        browser.text("#matched")
    };
    assert_eq!(search("LEAF"), "30.00 % of what is shown: 30 samples");
    assert_eq!(
        search("/^(leaf|do_sys.*)$/"),
        "70.00 % of what is shown: 70 samples"
    );
    assert_eq!(search("main"), "100.00 % of what is shown: 100 samples");
    assert_eq!(search("nowhere"), "not found in what is shown");
    assert!(search("/(/").contains("Invalid regular expression"));
    assert_eq!(search("leaf"), "30.00 % of what is shown: 30 samples");

    let (mid, _) = match place(&browser, "mid") {
        Some(found) => found,
        None => (mid, String::new()),
    };
    browser.click(mid);
    assert_eq!(said(&browser, "do_syscall_64"), None);
    assert_eq!(
        said(&browser, "leaf").unwrap(),
        "leaf (30 samples, 30.00 %; 50.00 % of what is shown; 30 in it itself; user, app)"
    );
    assert_eq!(
        browser.text("#matched"),
        "50.00 % of what is shown: 30 samples"
    );
    let (leaf, _) = place(&browser, "leaf").unwrap();
    browser.click(leaf);
    assert_eq!(
        browser.text("#matched"),
        "100.00 % of what is shown: 30 samples"
    );
    browser.click_on("#zoom-back");
    assert_eq!(
        browser.text("#matched"),
        "50.00 % of what is shown: 30 samples"
    );
    // First the zoom goes, then the search.
    browser.keys(ESCAPE);
    assert_eq!(said(&browser, "mid").unwrap(), whole);
    assert!(said(&browser, "do_syscall_64").is_some());
    browser.keys(ESCAPE);
    assert_eq!(browser.text("#matched"), "");

    // A name in the table is searched for, exactly, and found rows are marked.
    browser.script(
        "[...document.querySelectorAll('#top .name button')].find((b) => b.textContent === 'mid').click()",
        &[],
    );
    assert_eq!(
        browser.text("#matched"),
        "60.00 % of what is shown: 60 samples"
    );
    assert_eq!(browser.text("#top tr.found .name button"), "mid");
    // By total, by name.
    let first = || browser.text("#top tbody tr .name button");
    browser.click_on("#top th:nth-child(3) button");
    assert_eq!(first(), "main");
    browser.click_on("#top th.name button");
    assert_eq!(first(), "do_syscall_64");

    // With keys alone: down to the second box of the process, which is `main`.
    browser.script("document.getElementById('flame').focus()", &[]);
    let down = "\u{e015}";
    browser.keys(&format!("{down}{down}{down}{ENTER}"));
    assert!(browser.text("#details").starts_with("main (100 samples"));
    browser.is_harmless();
}

#[test]
fn groups_are_those_asked_for() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    let capture = timed(&bench);
    for (by, root, word) in [
        ("thread", Some("app-100 (100 samples"), "thread"),
        ("cpu", Some("cpu 0 (100 samples"), "CPU"),
        ("none", None, "capture"),
    ] {
        let page = draw(&bench, "run.html", &["--html", "--by", by], &capture);
        open(&browser, &page);
        // Below all there is the group, if there is one, then `main`.
        browser.script("document.getElementById('flame').focus()", &[]);
        browser.keys("\u{e015}\u{e015}");
        let details = browser.text("#details");
        let first = root.unwrap_or("main (100 samples");
        assert!(details.starts_with(first), "{by}: {details}");
        assert_eq!(browser.text("#legend li:nth-child(4)"), word);
        assert_eq!(counts(&browser).len(), 5);
    }
    browser.is_harmless();
}

#[test]
fn a_selected_time_has_the_samples_of_that_time() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    open(
        &browser,
        &draw(&bench, "run.html", &["--html"], &timed(&bench)),
    );
    let whole = rows(&[
        ("do_syscall_64", 40, 40),
        ("entry_SYSCALL_64", 0, 40),
        ("leaf", 30, 30),
        ("main", 0, 100),
        ("mid", 30, 60),
    ]);
    assert_eq!(counts(&browser), whole);
    let columns = 10.0;

    // Drawn from the third second's first cell to the fifth second's last one.
    let (from, to) = (
        cell(&browser, 3.0, 0.0, columns),
        cell(&browser, 5.0, 49.0, columns),
    );
    browser.drag(&[from, to], "mouse");
    assert_eq!(browser.text("#range"), "3 s to 6 s: 30 samples");
    assert_eq!(counts(&browser), rows(&[("main", 0, 30), ("mid", 30, 30)]));
    assert_eq!(
        said(&browser, "mid").unwrap(),
        "mid (30 samples, 100.00 %; 30 in it itself; user, app)"
    );
    assert_eq!(said(&browser, "leaf"), None);
    browser.picture("selected.png");

    // From the other end, within a second: cells are 20 ms, samples at each 100.
    let (from, to) = (
        cell(&browser, 2.0, 34.0, columns),
        cell(&browser, 2.0, 11.0, columns),
    );
    browser.drag(&[from, to], "mouse");
    assert_eq!(browser.text("#range"), "2.22 s to 2.7 s: 4 samples");
    assert_eq!(
        counts(&browser),
        rows(&[("leaf", 4, 4), ("main", 0, 4), ("mid", 0, 4)])
    );

    // Two clicks, around the change to the kernel.
    for (column, row) in [(6.0, 2.0), (5.0, 43.0)] {
        browser.click(cell(&browser, column, row, columns));
    }
    assert_eq!(browser.text("#range"), "5.86 s to 6.06 s: 2 samples");
    assert_eq!(
        counts(&browser),
        rows(&[
            ("do_syscall_64", 1, 1),
            ("entry_SYSCALL_64", 0, 1),
            ("main", 0, 2),
            ("mid", 1, 1)
        ])
    );

    // Typed.
    browser.script("document.getElementById('range-from').select()", &[]);
    browser.script("document.getElementById('range-from').focus()", &[]);
    browser.keys(&format!("0.1{TAB}"));
    browser.script("document.getElementById('range-to').select()", &[]);
    browser.keys(&format!("0.3{TAB}"));
    assert_eq!(browser.text("#range"), "0.1 s to 0.3 s: 2 samples");
    assert_eq!(
        counts(&browser),
        rows(&[("leaf", 2, 2), ("main", 0, 2), ("mid", 0, 2)])
    );

    browser.click_on("#range-all");
    assert_eq!(browser.text("#range"), "All of it: 100 samples");
    assert_eq!(counts(&browser), whole);

    // Keys: from the first cell to the one a second later.
    browser.script("document.getElementById('heat-canvas').focus()", &[]);
    browser.keys(&format!("{RIGHT}{ENTER}{RIGHT}{ENTER}"));
    assert_eq!(browser.text("#range"), "0 s to 1.02 s: 11 samples");
    browser.keys(ESCAPE);
    assert_eq!(counts(&browser), whole);
    browser.is_harmless();
}

#[test]
fn a_phone_shows_it_all_and_is_touched() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    browser.window(390, 844, true);
    for (capture, columns) in [(timed(&bench), 10.0), (hostile(&bench), 5.0)] {
        open(&browser, &draw(&bench, "run.html", &["--html"], &capture));
        let sideways = browser.script(
            "return [document.documentElement.scrollWidth, innerWidth]",
            &[],
        );
        assert_eq!(sideways, json!([390, 390]));
        browser.picture(&format!("phone{columns}.png"));
        for (column, row) in [(0.0, 0.0), (1.0, 49.0)] {
            browser.drag(&[cell(&browser, column, row, columns)], "touch");
        }
        let shown = browser.text("#range");
        assert!(shown.starts_with("0 s to 2 s: "), "{shown}");
    }
    browser.is_harmless();
}

#[test]
fn dark_is_dark_and_light_is_light() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    let page = draw(&bench, "run.html", &["--html"], &timed(&bench));
    // Brightness of background and text, and of a cell of the heat map without samples.
    const BRIGHT: &str = "const sum = (text) => text.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765;
        const style = getComputedStyle(document.body);
        const copy = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        copy.drawImage(document.getElementById('heat-canvas'), 0, 0);
        const empty = copy.getImageData(4, 10, 1, 1).data;
        const [back, text, cell] = [sum(style.backgroundColor), sum(style.color), sum(empty.join())];";
    let wait = |what: &str| browser.wait(&format!("{BRIGHT} return {what}"));
    browser.scheme("light");
    open(&browser, &page);
    wait("back > 0.9 && text < 0.2 && cell > 0.8");
    // While it is open, too.
    browser.scheme("dark");
    wait("back < 0.2 && text > 0.8 && cell < 0.3");
    browser.picture("dark.png");
    browser.is_harmless();
}

#[test]
fn hostile_names_do_nothing() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    open(
        &browser,
        &draw(&bench, "run.html", &["--html"], &hostile(&bench)),
    );
    let shown: BTreeSet<String> = table(&browser).into_keys().map(|(name, _)| name).collect();
    // As they are, but for control characters, which are told, and for the end of what nobody reads to the end.
    let name = |i: usize| hostile_names()[i].clone();
    for i in [0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14] {
        assert!(shown.contains(&name(i)), "{} in {shown:?}", name(i));
    }
    assert!(shown.contains("\\u{202e}txt.exe\\u{2066}\\u{200f}"));
    let long = format!("{}…", "<b>中".repeat(100));
    assert!(shown.contains(&long));
    assert_eq!(
        browser.script("return document.title", &[]),
        Value::String(format!("{} on {}", name(1), name(0)))
    );
    let verdict = browser.text("#verdict");
    assert!(verdict.contains(&name(0)), "{verdict}");
    // Nothing but what the page itself has.
    let elements = browser.script(
        "return [...document.querySelectorAll('script, img, style, svg, textarea, iframe')].map((e) => e.nodeName).sort()",
        &[],
    );
    assert_eq!(elements, json!(["SCRIPT", "SCRIPT", "STYLE"]));
    // Under the pointer, zoomed to, searched for, chosen in the table.
    let (point, _) = place(&browser, &name(1)).unwrap();
    browser.click(point);
    assert!(
        browser.text("#tip").starts_with(&name(1)),
        "{}",
        browser.text("#tip")
    );
    browser.script(
        "for (const name of document.querySelectorAll('#top .name button')) name.click()",
        &[],
    );
    browser.is_harmless();
}

#[test]
fn what_cannot_be_shown_is_said() {
    let Some(browser) = Browser::start() else {
        return;
    };
    let bench = Bench::new();
    let page = draw(&bench, "run.html", &["--html"], &timed(&bench));
    let text = std::fs::read_to_string(&page).unwrap();
    let start = text.find("id=\"data\">").unwrap() + 10;
    let cut = format!("{}{}", &text[..start + 100], &text[start + 120..]);
    std::fs::write(&page, cut).unwrap();
    browser.open(&page);
    browser.wait("return !document.getElementById('problem').hidden");
    assert!(
        browser
            .text("#problem")
            .starts_with("The data of this page cannot be shown: ")
    );
    assert_eq!(
        browser.script("return document.getElementById('page').hidden", &[]),
        json!(true)
    );
}
