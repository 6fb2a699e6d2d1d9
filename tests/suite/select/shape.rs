//! Shapes of stacks: what is left out is said, and no sample is lost by it.

use std::collections::BTreeMap;
use std::fs;

use bprof::pipeline::{Request, Selection, Shape};
use bprof::profile::By;

use super::lines::{of_profile, profile, request};
use super::scene::{self, Random};
use crate::report::fixture::{BASE, Bench, Elf, Run, Scene, Taken};

fn shaped(shape: Shape, by: By) -> Request {
    Request {
        shape,
        ..request(Selection::default(), by)
    }
}

#[test]
fn no_sample_is_lost_by_any_shape() {
    for seed in 0..60 {
        let reader = scene::reader(seed / 10);
        let mut random = Random(seed + 9);
        let shape = Shape {
            addresses: random.chance(30),
            no_inline: random.chance(30),
            merge_recursion: random.chance(40),
            max_depth: random.chance(50).then(|| 1 + random.below(4) as u32),
            min_percent: if random.chance(60) {
                random.below(200) as f64 / 10.0
            } else {
                0.0
            },
            ..Shape::default()
        };
        let by = random.pick(&[By::Process, By::Thread, By::None, By::Cpu]);
        let whole = profile(&reader, shaped(Shape::default(), by));
        let part = profile(&reader, shaped(shape, by));
        assert_eq!(part.total_weight(), whole.total_weight(), "{shape:?}");
        let samples = |p: &bprof::profile::Profile| p.rows.iter().map(|r| r.samples).sum::<u64>();
        assert_eq!(samples(&part), samples(&whole), "{shape:?}");
        assert_eq!(part.naming, whole.naming, "{shape:?}");
        let lines = of_profile(&part);
        assert_eq!(lines.values().sum::<u64>(), whole.total_weight());
        for (line, count) in &lines {
            let root = usize::from(by != By::None);
            let frames: Vec<&str> = line.split(';').skip(root).collect();
            let marks = ["[truncated]", "[deeper]", "[other]"];
            let functions = frames.iter().filter(|f| !marks.contains(f)).count();
            if let Some(most) = shape.max_depth {
                assert!(functions <= most as usize, "{line} {shape:?}");
            }
            if shape.merge_recursion && !shape.addresses {
                assert!(frames.windows(2).all(|two| two[0] != two[1]), "{line}");
            }
            // What is shown of its own is large enough, or was put together.
            let least = whole.total_weight() as f64 * shape.min_percent / 100.0;
            let is_whole = lines
                .iter()
                .filter(|(other, _)| other.starts_with(line.as_str()));
            let with_callees: u64 = is_whole.map(|(_, count)| count).sum();
            let is_mark = line.ends_with("[other]") || line == "[no frames]" || frames.is_empty();
            assert!(
                is_mark || with_callees as f64 >= least,
                "{line} {count} {shape:?}"
            );
        }
    }
}

/// `depth` calls itself, `outer` has `inner` inlined.
const SOURCE: &str = "
volatile int sink;
__attribute__((noinline)) int again(int x) {
  sink += x;
  if (x > 0) { again(x - 1); sink += 1; }
  return sink;
}
static inline __attribute__((always_inline)) int inner(int x) {
  sink += x; sink ^= x; sink -= x;
  return sink;
}
__attribute__((noinline)) int outer(int x) {
  sink = x;
  sink += inner(x);
  return sink;
}
int main(void) { return again(3) + outer(4); }
";

/// A capture of a program with lines, and the text of its folded report with `options`.
struct Inlined {
    bench: Bench,
    capture: std::path::PathBuf,
}

impl Inlined {
    fn new() -> Inlined {
        let bench = Bench::new();
        let source = bench.path("shape.c");
        fs::write(&source, SOURCE).unwrap();
        let flags = [
            "-O2",
            "-g",
            "-fno-optimize-sibling-calls",
            "-fcf-protection=none",
            "-Wl,--build-id",
        ];
        let elf = Elf::with(bench.dir.path(), "shape", "gcc", &source, &flags);
        let mut s = Scene::new();
        let process = s.process(100, 500);
        s.image(process, 0, 0, "shape");
        s.map(process, 0, BASE, &elf.mapped());
        let at = |function: &str, inside: u64| BASE + elf.offset(function) + inside;
        // The last bytes before `outer` returns are its own, those in the middle of it of `inner`.
        let outer = elf.range("outer");
        for inside in 0..outer.end - outer.start {
            s.sample(Taken {
                user: &[at("outer", inside), at("main", 5)],
                ..Taken::of(process, 100, "shape", 1_000_000_000 + inside)
            });
        }
        for time in 0..4 {
            s.sample(Taken {
                user: &[
                    at("again", 0),
                    at("again", 12),
                    at("again", 12),
                    at("main", 5),
                ],
                ..Taken::of(process, 100, "shape", 2_000_000_000 + time)
            });
        }
        let capture = bench.capture("run.bprof", &s.finish());
        Inlined { bench, capture }
    }

    fn folded(&self, options: &[&str]) -> BTreeMap<String, u64> {
        let options = [&["--folded"], options].concat();
        let text = Run::report(&options, &self.capture).ok();
        let lines = text.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), count.parse().unwrap())
        });
        lines.collect()
    }
}

#[test]
fn inlined_functions_lines_and_addresses_are_told_apart_only_where_asked_for() {
    let case = Inlined::new();
    let plain = case.folded(&[]);
    let inner = plain["shape-100;main;outer;inner"];
    let outer = plain["shape-100;main;outer"];
    assert!(inner > 0 && outer > 0);
    assert_eq!(plain["shape-100;main;again;again;again"], 4);
    assert_eq!(plain.len(), 3);

    let whole = case.folded(&["--no-inline"]);
    assert_eq!(whole["shape-100;main;outer"], inner + outer);
    assert_eq!(whole.len(), 2);

    let merged = case.folded(&["--merge-recursion"]);
    assert_eq!(merged["shape-100;main;again"], 4);
    assert_eq!(merged["shape-100;main;outer;inner"], inner);

    let addresses = case.folded(&["--addresses", "--no-inline"]);
    assert_eq!(
        addresses["shape-100;main+0x5;again+0xc;again+0xc;again+0x0"],
        4
    );
    for inside in 0..inner + outer {
        let line = format!("shape-100;main+0x5;outer+{inside:#x}");
        assert_eq!(addresses[&line], 1, "{line}");
    }

    let lines = case.folded(&["--lines"]);
    let of = |text: &str| {
        let lines = lines.iter().filter(|(line, _)| line.contains(text));
        lines.map(|(_, count)| *count).sum::<u64>()
    };
    // `inner` is on lines 9 and 10 of the source, called on line 14.
    assert_eq!(of(";inner "), inner);
    assert_eq!(of("shape.c:9"), of(";inner ") - of("shape.c:10"));
    assert_eq!(of("shape.c:14;inner "), inner);
    assert_eq!(lines.values().sum::<u64>(), plain.values().sum::<u64>());
    assert!(
        lines
            .keys()
            .all(|line| line.matches("shape.c:").count() >= 2),
        "{lines:?}"
    );
    drop(case.bench);
}

#[test]
fn what_is_cut_off_is_said() {
    let case = Inlined::new();
    let run = Run::report(&["--folded", "--max-depth", "2"], &case.capture);
    let plain = case.folded(&[]);
    let inner = plain["shape-100;main;outer;inner"];
    let deeper = inner + 4;
    let line = format!("# stacks: deeper than 2 frames is [deeper] ({deeper} samples)\n");
    assert!(run.err.contains(&line), "{}", run.err);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines[0], "shape-100;main;again;[deeper] 4");
    assert_eq!(lines[2], format!("shape-100;main;outer;[deeper] {inner}"));

    let run = Run::report(&["--folded", "--min-percent", "50"], &case.capture);
    assert!(
        run.out.contains("shape-100;main;[other] 4\n"),
        "{}",
        run.out
    );
    assert!(
        run.err.contains("below 50 % of the samples is [other]"),
        "{}",
        run.err
    );

    let run = Run::report(
        &["--top", "5", "--no-inline", "--merge-recursion"],
        &case.capture,
    );
    let verdict = "# stacks: inlined functions left out, direct recursion is one frame\n";
    assert!(run.out.contains(verdict), "{}", run.out);
}
