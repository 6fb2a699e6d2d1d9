//! What `--speedscope` writes, read by speedscope itself: the program its npm package has, opened in a browser.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use super::driver::Browser;
use crate::golden::of_version;
use crate::report::fixture::{Run, profiler};

const PACKAGE: &str = "https://registry.npmjs.org/speedscope/-/speedscope-1.25.0.tgz";
/// The registry's own sum of it (`npm view speedscope@1.25.0 dist.integrity`).
const SHA512: &str =
    "cpf9HWTZf1ijLXBJrk87Ve/54tnYx6rlf0gUThvn3ook6h63hLXVOQiMf44PT+XoV503cPfvfiT5gP5vojp6Ag==";

/// Where the package is, unpacked; brought once. `None` where it cannot be had and that is no failure.
fn package() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("speedscope-1.25.0");
    let page = dir.join("package/dist/release/index.html");
    if page.exists() {
        return Some(page);
    }
    let fresh = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let archive = fresh.path().join("package.tgz");
    let mut curl = Command::new("curl");
    curl.args(["-fsSL", "--retry", "3", "--max-time", "60", PACKAGE, "-o"]);
    let output = curl.arg(&archive).output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "{PACKAGE}: {output:?}");
        eprintln!("NOT TESTED by speedscope: {PACKAGE} cannot be had: {output:?}");
        return None;
    }
    let sum = STANDARD.encode(Sha512::digest(fs::read(&archive).unwrap()));
    assert_eq!(sum, SHA512, "{PACKAGE} is not what it was");
    let mut tar = Command::new("tar");
    let unpacked = tar.arg("xzf").arg(&archive).current_dir(fresh.path());
    assert!(unpacked.status().unwrap().success());
    fs::remove_file(archive).unwrap();
    // Another test may have been quicker.
    let _ = fs::rename(fresh.keep(), &dir);
    Some(page)
}

/// Nanoseconds of what speedscope prints: `616.16ms (39%)`.
fn nanoseconds(text: &str) -> f64 {
    let text = text.split(' ').next().unwrap_or(text);
    let units = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let found = units
        .iter()
        .find_map(|(unit, size)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * size));
    found.unwrap_or_else(|| panic!("{text:?} is no time"))
}

/// Rows of its table of functions: total, self, name.
const ROWS: &str = "return [...document.querySelectorAll('table tr')].map((row) =>
    [...row.querySelectorAll('td')].map((cell) => cell.textContent)).filter((cells) => cells.length == 3)";

#[test]
fn speedscope_reads_the_same_functions_and_times() {
    let Some(page) = package() else { return };
    let capture = of_version("v1.2", "calls.bprof");
    let files = of_version("v1.2", "files");
    let report = |options: &[&str]| {
        let mut command = profiler(options);
        Run::of(command.arg("--symfs").arg(&files).arg(&capture)).ok()
    };
    let profile = report(&["--speedscope", "-"]);
    let table: Value = serde_json::from_str(&report(&["--json"])).unwrap();
    // By name, as speedscope has them; each sample is a 99th of a second.
    let mut ours: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for function in table["functions"].as_array().unwrap() {
        let time = |key: &str| function[key].as_f64().unwrap() * 1e9 / 99.0;
        let name = function["function"].as_str().unwrap();
        let sums = ours.entry(name.to_owned()).or_default();
        *sums = (sums.0 + time("total"), sums.1 + time("self"));
    }

    // What speedscope's own command line does with a file.
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("profile.js");
    let encoded = STANDARD.encode(&profile);
    let text = format!("speedscope.loadFileFromBase64('calls.json', '{encoded}')");
    fs::write(&script, text).unwrap();
    let Some(browser) = Browser::start() else {
        return;
    };
    let at = format!(
        "{}#localProfilePath={}&view=sandwich",
        page.display(),
        script.display()
    );
    browser.open(Path::new(&at));
    browser.wait("return document.querySelectorAll('table tr').length > 10");
    browser.picture("speedscope.png");
    let rows = browser.script(ROWS, &[json!(null)]);
    let rows: Vec<[String; 3]> = serde_json::from_value(rows).unwrap();
    assert!(rows.len() > 10, "{rows:?}");
    for [total, own, name] in &rows {
        // The marker of what was cut is a frame to speedscope.
        if name == "[truncated]" {
            continue;
        }
        let expected = ours.get(name);
        let expected = *expected.unwrap_or_else(|| panic!("{name} is none of {ours:?}"));
        // It prints two decimals: of `1.52s` the last is worth a third of a percent.
        let near = |shown: &str, ours: f64| (nanoseconds(shown) - ours).abs() <= ours * 5e-3 + 1.0;
        assert!(
            near(total, expected.0) && near(own, expected.1),
            "{name}: total {total}, self {own}; ours {expected:?}"
        );
    }
    let top = &table["functions"][0]["function"];
    assert!(rows.iter().any(|[_, _, name]| top == name), "{top}");
    let title = browser.script("return document.title", &[]);
    assert_eq!(title, "command calls on vm - speedscope");
}
