//! Folded lines of both ways through a capture, as sums.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;

use bprof::capture::Reader;
use bprof::pipeline::{self, Request, Selection, Sink, Summary};
use bprof::profile::{About, By, FrameKind, Names, Profile, SampleFrame, SampleView};
use bprof::report::folded;
use bprof::symbolize::Options;

/// Lines without their counts, and their weights.
pub type Lines = BTreeMap<String, u64>;

/// A request that no file of this machine has a part in.
pub fn request(selection: Selection, by: By) -> Request {
    Request {
        symbols: Options {
            symfs: vec![PathBuf::from("/nonexistent")],
            ..Options::default()
        },
        selection,
        by,
        ..Request::default()
    }
}

pub fn profile(reader: &Reader, request: Request) -> Profile {
    pipeline::profile(reader, request, &mut (), &mut |_| {})
}

pub fn of_profile(profile: &Profile) -> Lines {
    let mut out = Vec::new();
    folded::write(profile, &mut out).unwrap();
    let lines = String::from_utf8(out).unwrap();
    let lines = lines.lines().map(|line| {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), count.parse().unwrap())
    });
    lines.collect()
}

/// Of the samples of a stream that `keep` keeps.
pub fn of_stream(
    reader: &Reader,
    request: Request,
    keep: impl Fn(&SampleView<'_>) -> bool,
) -> (Lines, Summary) {
    let rootless = request.by == By::None;
    let mut folder = Folder {
        keep,
        rootless,
        lines: Lines::new(),
    };
    let Ok(summary) = pipeline::stream(reader, request, &mut folder, &mut |_| {});
    (folder.lines, summary)
}

struct Folder<F> {
    keep: F,
    rootless: bool,
    lines: Lines,
}

impl<F: Fn(&SampleView<'_>) -> bool> Sink for Folder<F> {
    type Error = Infallible;

    fn open(&mut self, _: &About) -> Result<(), Infallible> {
        Ok(())
    }

    fn sample(
        &mut self,
        _: &About,
        names: &Names,
        view: &SampleView<'_>,
    ) -> Result<(), Infallible> {
        if !(self.keep)(view) {
            return Ok(());
        }
        let mut parts = Vec::new();
        if !self.rootless {
            parts.push(view.group.replace(';', ":"));
        }
        let (user_cut, kernel_cut) = view.cuts();
        for (frames, cut) in [(view.user, user_cut), (view.kernel, kernel_cut)] {
            if cut {
                parts.push("[truncated]".to_owned());
            }
            let mut frame = |frame: &SampleFrame<'_>| {
                for part in &frame.resolution.chain {
                    let frame = names.frames()[part.frame as usize];
                    let name = names.text(frame.name).replace(';', ":");
                    parts.push(match frame.kind {
                        FrameKind::Kernel => format!("{name}_[k]"),
                        _ => name,
                    });
                }
            };
            frames.iter().rev().for_each(&mut frame);
        }
        if parts.is_empty() {
            parts.push("[no frames]".to_owned());
        }
        *self.lines.entry(parts.join(";")).or_default() += view.weight;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Adds `more` to `sum`.
pub fn add(sum: &mut Lines, more: &Lines) {
    for (stack, count) in more {
        *sum.entry(stack.clone()).or_default() += count;
    }
}

/// Fails with the lines that differ, of which there may be many thousands.
#[track_caller]
pub fn assert_same(a: &Lines, b: &Lines, what: &str) {
    let differ = a
        .keys()
        .chain(b.keys())
        .filter(|key| a.get(*key) != b.get(*key));
    let differ = differ.map(|key| format!("{key}: {:?} {:?}", a.get(key), b.get(key)));
    let differ: Vec<String> = differ.take(5).collect();
    assert!(differ.is_empty(), "{what}: {differ:#?}");
}
