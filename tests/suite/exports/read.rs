//! Reading exports back, without anything of what wrote them, and our own counts to compare with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use bprof::capture::Reader;
use bprof::pipeline;
use bprof::profile::Profile;
use bprof::report::pprof::proto;
use bprof::report::top;
use bprof::symbolize::Options;
use prost::Message;
use serde_json::Value;

use crate::report::fixture::{Run, profiler};

/// Self and total weight by function name.
pub type Totals = BTreeMap<String, (u64, u64)>;

pub struct Case {
    pub capture: PathBuf,
    pub files: PathBuf,
    pub dir: tempfile::TempDir,
}

pub fn golden(version: &str, name: &str) -> Case {
    let of_version = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(version);
    Case {
        capture: of_version.join(name),
        files: of_version.join("files"),
        dir: tempfile::tempdir().unwrap(),
    }
}

pub fn goldens() -> [Case; 3] {
    [
        golden("v1.2", "calls.bprof"),
        golden("v1.2", "family.bprof"),
        golden("v1.1", "paths.bprof"),
    ]
}

impl Case {
    pub fn profile(&self) -> Profile {
        let options = Options {
            symfs: vec![self.files.clone()],
            ..Options::default()
        };
        pipeline::profile(
            &Reader::open(&self.capture).unwrap(),
            options.into(),
            &mut (),
            &mut |_| {},
        )
    }

    /// What the option writes into its file.
    pub fn export(&self, option: &str) -> Vec<u8> {
        let path = self.dir.path().join("out");
        let _ = fs::remove_file(&path);
        let mut command = profiler(&[option]);
        command
            .arg(&path)
            .arg("--symfs")
            .arg(&self.files)
            .arg(&self.capture);
        assert_eq!(Run::of(&mut command).ok(), "");
        fs::read(path).unwrap()
    }
}

/// Adds a sample of `stack`, leaf first.
pub fn add<'a>(totals: &mut Totals, stack: impl IntoIterator<Item = &'a str>, weight: u64) {
    let mut seen = BTreeSet::new();
    for name in stack.into_iter().filter(|name| *name != "[truncated]") {
        let counts = totals.entry(name.to_owned()).or_default();
        if seen.is_empty() {
            counts.0 += weight;
        }
        if seen.insert(name) {
            counts.1 += weight;
        }
    }
}

/// Our own counts, from the stacks of the profile.
pub fn ours(profile: &Profile) -> Totals {
    let mut totals = Totals::new();
    for row in &profile.rows {
        let frames = profile.stacks.frames(row.stack);
        let names = frames.map(|f| profile.names.text(profile.names.frames()[f as usize].name));
        add(&mut totals, names, row.weight);
    }
    // The default view is the same wherever a name is of one module.
    for ((name, module), counts) in top::functions(profile) {
        let name = profile.names.text(name);
        let same = |f: &&top::Function| profile.names.text(f.0) == name && f.1 != module;
        if top::functions(profile)
            .iter()
            .map(|(f, _)| f)
            .find(same)
            .is_none()
        {
            assert_eq!(totals[name], (counts.own, counts.total), "{name}");
        }
    }
    totals
}

pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .unwrap();
    out
}

pub fn pprof(bytes: &[u8]) -> proto::Profile {
    let profile = proto::Profile::decode(&*gunzip(bytes)).unwrap();
    let text = |number: i64| profile.string_table[number as usize].as_str();
    assert_eq!(text(0), "");
    for (i, location) in profile.location.iter().enumerate() {
        assert_eq!(location.id, i as u64 + 1);
        if location.mapping_id > 0 {
            let mapping = &profile.mapping[location.mapping_id as usize - 1];
            let range = mapping.memory_start..mapping.memory_limit;
            assert!(
                location.address == 0 || range.contains(&location.address),
                "{location:?} {mapping:?}"
            );
        }
    }
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        let keys: Vec<_> = sample.label.iter().map(|label| text(label.key)).collect();
        assert_eq!(keys, ["pid", "tid", "comm", "process"]);
    }
    profile
}

pub fn pprof_totals(profile: &proto::Profile, column: usize) -> Totals {
    let mut totals = Totals::new();
    for sample in &profile.sample {
        let locations = sample
            .location_id
            .iter()
            .map(|id| &profile.location[*id as usize - 1]);
        let lines = locations.flat_map(|location| &location.line);
        let functions = lines.map(|line| &profile.function[line.function_id as usize - 1]);
        let names = functions.map(|f| profile.string_table[f.name as usize].as_str());
        add(&mut totals, names, sample.value[column] as u64);
    }
    totals
}

pub fn speedscope_totals(bytes: &[u8], unit: &str, per_sample: u64) -> Totals {
    let file: Value = serde_json::from_slice(bytes).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap();
    let mut totals = Totals::new();
    for profile in file["profiles"].as_array().unwrap() {
        assert_eq!(
            (&profile["type"], &profile["unit"]),
            (&Value::from("sampled"), &Value::from(unit))
        );
        let samples = profile["samples"].as_array().unwrap();
        let weights: Vec<u64> = profile["weights"]
            .as_array()
            .unwrap()
            .iter()
            .map(|w| w.as_u64().unwrap())
            .collect();
        assert_eq!(samples.len(), weights.len());
        assert_eq!(
            profile["endValue"].as_u64().unwrap(),
            weights.iter().sum::<u64>()
        );
        for (stack, weight) in samples.iter().zip(weights) {
            assert_eq!(weight % per_sample, 0);
            let stack = stack.as_array().unwrap().iter().rev();
            let names = stack.map(|f| {
                frames[f.as_u64().unwrap() as usize]["name"]
                    .as_str()
                    .unwrap()
            });
            add(&mut totals, names, weight / per_sample);
        }
    }
    totals
}

pub fn firefox_totals(bytes: &[u8]) -> (Totals, u64) {
    let file: Value = serde_json::from_slice(&gunzip(bytes)).unwrap();
    let (mut totals, mut sum) = (Totals::new(), 0);
    for thread in file["threads"].as_array().unwrap() {
        let at = |table: &str, column: &str, i: u64| &thread[table][column][i as usize];
        let strings = thread["stringArray"].as_array().unwrap();
        for i in 0..thread["samples"]["length"].as_u64().unwrap() {
            let weight = at("samples", "weight", i).as_u64().unwrap();
            sum += weight;
            let mut names = Vec::new();
            let mut next = at("samples", "stack", i).as_u64();
            while let Some(stack) = next {
                let frame = at("stackTable", "frame", stack).as_u64().unwrap();
                let function = at("frameTable", "func", frame).as_u64().unwrap();
                let name = at("funcTable", "name", function).as_u64().unwrap();
                names.push(strings[name as usize].as_str().unwrap());
                next = at("stackTable", "prefix", stack).as_u64();
            }
            add(&mut totals, names, weight);
        }
    }
    (totals, sum)
}

/// `go tool pprof -top` of everything.
pub fn go_top(path: &Path, dir: &Path) -> Totals {
    let mut command = Command::new("go");
    command.args([
        "tool",
        "pprof",
        "-top",
        "-symbolize=none",
        "-sample_index=samples",
    ]);
    command.args(["-nodecount=1000000", "-nodefraction=0", "-edgefraction=0"]);
    let output = command
        .arg(path)
        .env("PPROF_TMPDIR", dir)
        .env("HOME", dir)
        .output();
    let output = output.expect("go is needed: make test-deps");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let table = text
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1);
    let mut totals = Totals::new();
    for line in table {
        let mut words = line.split_whitespace();
        let mut number = || {
            words
                .next()
                .unwrap()
                .trim_end_matches('%')
                .parse::<f64>()
                .unwrap() as u64
        };
        let (flat, _, _, cum, _) = (number(), number(), number(), number(), number());
        // Five words, each after blanks; the rest is the name.
        let mut rest = line;
        for _ in 0..5 {
            rest = rest.trim_start();
            rest = &rest[rest.find(' ').unwrap()..];
        }
        let name = rest.trim_start();
        let name = name
            .trim_end_matches(" (inline)")
            .trim_end_matches(" (partial-inline)");
        let counts = totals.entry(name.to_owned()).or_default();
        *counts = (counts.0 + flat, counts.1 + cum);
    }
    totals
}

/// What `inferno-collapse-perf` makes of our `--perf-script`, lines with their counts.
pub fn collapsed(text: &str, event: Option<&str>) -> BTreeMap<String, u64> {
    use inferno::collapse::Collapse;
    let mut options = inferno::collapse::perf::Options::default();
    options.event_filter = event.map(str::to_owned);
    let mut folder = inferno::collapse::perf::Folder::from(options);
    let mut out = Vec::new();
    folder.collapse(text.as_bytes(), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    out.lines()
        .map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), count.parse().unwrap())
        })
        .collect()
}
