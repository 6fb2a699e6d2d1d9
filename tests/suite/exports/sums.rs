//! Every view is of the same samples: sums are equal everywhere, and what a function has is the same in each.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use bprof::event::sample_flags;
use bprof::profile::Profile;
use bprof::report::tree::{self, Of};
use bprof::report::{callers, folded, top};
use serde_json::Value;

use super::read::{
    Case, Totals, collapsed, firefox_totals, golden, ours, pprof, pprof_totals, speedscope_totals,
};
use crate::report::fixture::{BASE, Elf, KERNEL, Run, Scene, Taken, profiler};

/// Functions that call themselves and each other, inlined ones, kernel code, cut stacks and samples without a stack, in two
/// processes.
fn tangled() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads");
    let source = workloads.join("inline.cpp");
    let elf = Elf::with(
        dir.path(),
        "inline",
        "g++",
        &source,
        &["-O2", "-g", "-Wl,--build-id"],
    );
    let (drive, main) = (elf.range_like("inl_drive"), elf.range("main"));
    let mut s = Scene::new();
    let processes = [(s.process(100, 500), 100), (s.process(200, 600), 200)];
    for (process, _) in processes {
        s.image(process, 0, 0, "inline");
        s.map(process, 0, BASE, &elf.mapped());
    }
    s.kernel_symbols();
    let main = BASE + main.start + 9;
    let mut time = 1_000_000_000;
    for (i, offset) in drive.clone().enumerate() {
        let (process, pid) = processes[i % 2];
        let leaf = BASE + offset;
        let again = BASE + drive.start + (offset * 7) % (drive.end - drive.start);
        let user = match i % 5 {
            0 => vec![leaf, main],
            1 => vec![leaf, again, main, again, main],
            2 => vec![main],
            3 => vec![leaf],
            _ => vec![],
        };
        let kernel = match i % 7 {
            0 => vec![KERNEL + 0x110, KERNEL + 0x10],
            1 => vec![
                KERNEL + 0x210,
                KERNEL + 0x110,
                KERNEL + 0x110,
                KERNEL + 0x10,
            ],
            _ => vec![],
        };
        let flags = match i % 11 {
            0 => sample_flags::USER_TRUNCATED,
            1 => sample_flags::KERNEL_TRUNCATED,
            _ => 0,
        };
        time += 1_000_000;
        s.sample(Taken {
            user: &user,
            kernel: &kernel,
            flags,
            ..Taken::of(process, pid, "inline", time)
        });
    }
    let capture = dir.path().join("tangled.bprof");
    std::fs::write(&capture, s.finish()).unwrap();
    Case {
        capture,
        files: PathBuf::from("/"),
        dir,
    }
}

fn cases() -> Vec<Case> {
    vec![
        tangled(),
        golden("v1.2", "calls.bprof"),
        golden("v1.2", "family.bprof"),
        // Weights that are not 1.
        golden("v1.3", "family.bprof"),
        golden("v1.1", "paths.bprof"),
    ]
}

fn printed(case: &Case, options: &[&str]) -> String {
    let mut command = profiler(options);
    command.arg("--symfs").arg(&case.files);
    Run::of(command.arg(&case.capture)).ok()
}

fn parsed(case: &Case, options: &[&str]) -> Value {
    serde_json::from_str(&printed(case, options)).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// What follows the last blank of each line, summed up.
fn counts(text: &str) -> u64 {
    let counts = text.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

/// Self and total by name and module.
type ByFunction = BTreeMap<(String, String), (u64, u64)>;

fn of_json(document: &Value) -> ByFunction {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let functions = document["functions"].as_array().unwrap().iter();
    functions
        .map(|f| {
            let key = (text(&f["function"]), text(&f["module"]));
            (key, (number(&f["self"]), number(&f["total"])))
        })
        .collect()
}

#[test]
fn sums_are_equal_in_all_views() {
    for case in cases() {
        let profile = case.profile();
        let sum = profile.total_weight();
        let (sum, shown) = (sum, case.capture.display());
        assert!(sum > 20, "{shown}");

        let top = parsed(&case, &["--json"]);
        assert_eq!(number(&top["samples"]), sum, "{shown}");
        let own: u64 = of_json(&top).values().map(|(own, _)| own).sum();
        assert_eq!(own + number(&top["no_function"]), sum, "{shown}");
        let table = printed(&case, &["--csv"]);
        let mut lines = csv(&table).into_iter();
        let titles = lines.next().unwrap();
        let column = |name: &str| titles.iter().position(|title| title == name).unwrap();
        let own: u64 = lines
            .map(|line| line[column("self")].parse::<u64>().unwrap())
            .sum();
        assert_eq!(own + number(&top["no_function"]), sum, "{shown}");

        let tree = parsed(&case, &["--tree", "--json"]);
        assert_eq!(number(&tree["nodes"][0]["samples"]), sum, "{shown}");
        let own: u64 = tree["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| number(&n["self"]))
            .sum();
        let left_out = tree["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|n| n["kind"] == "left_out");
        let left_out: u64 = left_out.map(|n| number(&n["samples"])).sum();
        assert_eq!(own + left_out, sum, "{shown}");

        assert_eq!(counts(&printed(&case, &["--folded"])), sum, "{shown}");
        let perf_script = printed(&case, &["--perf-script"]);
        assert_eq!(
            collapsed(&perf_script, None).values().sum::<u64>(),
            sum,
            "{shown}"
        );
        let standard = printed(&case, &["--standard"]);
        let samples = standard
            .lines()
            .filter(|line| line.contains(" [cpu "))
            .count();
        assert_eq!(samples as u64, profile.about.samples, "{shown}");

        let decoded = pprof(&case.export("--pprof"));
        let [samples, time] = [0, 1].map(|column| {
            let values = decoded
                .sample
                .iter()
                .map(|sample| sample.value[column] as u64);
            values.sum::<u64>()
        });
        let period = decoded.period as u64;
        assert_eq!(
            (samples, time),
            (profile.about.samples, sum * period),
            "{shown}"
        );
        let speedscope: Value = serde_json::from_slice(&case.export("--speedscope")).unwrap();
        let ends = speedscope["profiles"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| number(&p["endValue"]));
        assert_eq!(ends.sum::<u64>(), sum * period, "{shown}");
        assert_eq!(firefox_totals(&case.export("--firefox")).1, sum, "{shown}");

        let rows = csv(&printed(&case, &["--tree", "--csv", "--min-percent", "0"]));
        let column = |name: &str| rows[0].iter().position(|title| title == name).unwrap();
        let own = rows.iter().skip(1);
        let own = own.map(|row| row[column("self")].parse::<u64>().unwrap());
        assert_eq!(own.sum::<u64>(), sum, "{shown}");

        let all = format!("<title>all ({} samples, 100%)</title>", grouped(sum));
        for form in [&[][..], &["--inverted"], &["--flamechart"]] {
            let svg = printed(&case, &[&["--flamegraph", "-"], form].concat());
            assert!(svg.contains(&all), "{shown} {form:?}: {all}");
        }
        assert_eq!(of_page(&printed(&case, &["--html", "-"])), sum, "{shown}");
        compared(&case, sum);
    }
}

/// A number as pictures have it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let parts = digits.as_bytes().rchunks(3).rev();
    let parts = parts.map(|part| String::from_utf8(part.to_vec()).unwrap());
    parts.collect::<Vec<_>>().join(",")
}

/// The sum of all weights in a page's data, read as data.js does.
fn of_page(page: &str) -> u64 {
    let (_, data) = page.split_once(" id=\"data\">").unwrap();
    let (data, _) = data.split_once('<').unwrap();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(data.trim())
        .unwrap();
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_end(&mut content)
        .unwrap();
    let mut at = 0;
    let mut next = |skip: usize| {
        at += skip;
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = content[at];
            at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return (value, at);
            }
        }
    };
    let (length, begins) = next(0);
    let length = length as usize;
    let head: Value = serde_json::from_slice(&content[begins..begins + length]).unwrap();
    let count = |name: &str| number(&head[name]);
    let before = 2 * count("nodes") + count("cells") + count("entries");
    let mut skip = length;
    for _ in 0..before {
        next(std::mem::take(&mut skip));
    }
    (0..count("entries")).map(|_| next(0).0).sum()
}

/// A comparison of a capture with itself has its sum on both sides, in every form.
fn compared(case: &Case, sum: u64) {
    let diff = ["--diff", case.capture.to_str().unwrap()];
    let of = |options: &[&str]| printed(case, &[&diff[..], options].concat());
    let document: Value = serde_json::from_str(&of(&["--json"])).unwrap();
    for side in ["before", "after"] {
        assert_eq!(number(&document[side]["weight"]), sum, "{side}");
    }
    let folded = of(&["--folded"]);
    let before = folded.lines().map(|line| {
        let (stack, _) = line.rsplit_once(' ').unwrap();
        stack.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()
    });
    assert_eq!((before.sum::<u64>(), counts(&folded)), (sum, sum));
    let of_one = of_json(&parsed(case, &["--json"]));
    let own_of_one: u64 = of_one.values().map(|(own, _)| own).sum();
    let functions = document["functions"].as_array().unwrap();
    let own = functions.iter().map(|f| number(&f["self"]["after"]));
    assert_eq!(own.sum::<u64>(), own_of_one);
    let rows = csv(&of(&["--csv"]));
    let own = rows
        .iter()
        .skip(1)
        .map(|row| row[1].parse::<u64>().unwrap());
    assert_eq!(own.sum::<u64>(), own_of_one);
    let svg = of(&["--flamegraph", "-"]);
    let all = format!("<title>all ({} samples, 100%)</title>", grouped(sum));
    assert!(svg.contains(&all), "{all}");
}

#[test]
fn functions_have_the_same_everywhere() {
    for case in cases() {
        let profile = case.profile();
        let expected = ours(&profile);
        let decoded = pprof(&case.export("--pprof"));
        let period = decoded.period as u64;
        // CPU time, which is what weights are of: the other column has numbers of samples.
        let mut of_pprof = pprof_totals(&decoded, 1);
        for (own, total) in of_pprof.values_mut() {
            (*own, *total) = (*own / period, *total / period);
        }
        assert_eq!(of_pprof, expected);
        let speedscope = speedscope_totals(&case.export("--speedscope"), "nanoseconds", period);
        assert_eq!(speedscope, expected);
        assert_eq!(firefox_totals(&case.export("--firefox")).0, expected);

        let table = of_json(&parsed(&case, &["--json"]));
        let mut one_module = Totals::new();
        for ((name, _), counts) in &table {
            if table.keys().filter(|(other, _)| other == name).count() == 1 {
                one_module.insert(name.clone(), *counts);
            }
        }
        assert!(one_module.len() > 5);
        for (name, counts) in one_module {
            assert_eq!(expected[&name], counts, "{name}");
        }
        of_trees(&profile, &table);
    }
}

/// Trees around a function have its total, and what it has of its own; the roots of the tree of callers are those of stacks.
fn of_trees(profile: &Profile, table: &ByFunction) {
    let options = tree::Options {
        min_percent: 0.0,
        ..tree::Options::default()
    };
    let nodes = |of: Of<'_>| {
        let mut out = Vec::new();
        tree::json(profile, of, options, &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        document["nodes"].as_array().unwrap().clone()
    };
    let names: std::collections::BTreeSet<&String> = table.keys().map(|(name, _)| name).collect();
    for name in names {
        let found = callers::find(profile, name).unwrap();
        let total = ours(profile)[name].1;
        let (callers, callees) = (nodes(Of::Callers(&found)), nodes(Of::Callees(&found)));
        assert_eq!(
            (
                number(&callers[0]["samples"]),
                number(&callees[0]["samples"])
            ),
            (total, total),
            "{name}"
        );
        for nodes in [&callers, &callees] {
            assert_eq!(
                nodes.iter().map(|n| number(&n["self"])).sum::<u64>(),
                total,
                "{name}"
            );
        }
        let own = callees
            .iter()
            .filter(|n| n["kind"] == "asked" || n["function"] == name.as_str());
        assert_eq!(
            own.map(|n| number(&n["self"])).sum::<u64>(),
            ours(profile)[name].0,
            "{name}"
        );
    }
}

/// The parts for groups add up to the whole.
#[test]
fn groups_are_parts_of_the_whole() {
    for case in cases() {
        let profile = case.profile();
        let options = top::Options {
            limit: None,
            by_group: true,
            ..top::Options::default()
        };
        let mut out = Vec::new();
        top::json(&profile, options, &mut out).unwrap();
        let document: Value = serde_json::from_slice(&out).unwrap();
        let mut sums = ByFunction::new();
        let groups = document["groups"].as_array().unwrap();
        for group in groups {
            for (function, (own, total)) in of_json(group) {
                let sum = sums.entry(function).or_default();
                *sum = (sum.0 + own, sum.1 + total);
            }
        }
        assert_eq!(sums, of_json(&document));
        assert_eq!(
            groups.iter().map(|g| number(&g["samples"])).sum::<u64>(),
            profile.total_weight()
        );
        // The roots of folded lines are the groups.
        let mut lines = Vec::new();
        folded::write(&profile, &mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        for group in groups {
            let name = group["group"].as_str().unwrap();
            let name = name.replace(';', ":").replace(char::is_control, "\u{fffd}");
            let of_group = lines.lines().filter(|line| {
                let (stack, _) = line.rsplit_once(' ').unwrap();
                stack.split(';').next() == Some(&name)
            });
            let of_group: String = of_group.map(|line| format!("{line}\n")).collect();
            assert_eq!(counts(&of_group), number(&group["samples"]), "{name}");
        }
    }
}

/// Cells of CSV, read without anything of what wrote it.
fn csv(text: &str) -> Vec<Vec<String>> {
    let (mut lines, mut line, mut cell) = (Vec::new(), Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => line.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                line.push(std::mem::take(&mut cell));
                lines.push(std::mem::take(&mut line));
            }
            c => cell.push(c),
        }
    }
    assert_eq!((quoted, cell.as_str()), (false, ""));
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    lines
}
