//! What other programs read, parts of a capture, and two side by side.

use std::convert::Infallible;

use bprof::capture::Reader;
use bprof::format::header::Sampling;
use bprof::pipeline::selection::CodeKind;
use bprof::pipeline::{self, Request, Selection, Shape, Sink};
use bprof::profile::{About, By, Names, Profile, SampleView};
use bprof::report::samples::EventUnit;
use bprof::report::{diff, firefox, folded, layout, perf_script, pprof, speedscope, top};

use crate::reports::{is_plain, is_xml, options};

fn units(reader: &Reader) -> Vec<EventUnit> {
    let events = reader.header().events.iter();
    let unit = |event: &bprof::format::header::EventInfo| match event.sampling {
        Sampling::Frequency(hz) => EventUnit::of_frequency(&event.name, hz),
        Sampling::Period(period) => EventUnit::of_period(&event.name, period),
    };
    events.map(unit).collect()
}

/// Samples for other programs.
struct Exporter {
    units: Vec<EventUnit>,
    pprof: pprof::Collector,
    firefox: Option<firefox::Collector>,
    speedscope: speedscope::Collector,
    script: perf_script::Samples,
    out: Vec<u8>,
    samples: u64,
}

impl Sink for Exporter {
    type Error = Infallible;

    fn open(&mut self, about: &About) -> Result<(), Infallible> {
        self.firefox = Some(firefox::Collector::new(about, self.units.clone()));
        Ok(())
    }

    fn sample(
        &mut self,
        about: &About,
        names: &Names,
        sample: &SampleView<'_>,
    ) -> Result<(), Infallible> {
        self.samples += 1;
        self.pprof.sample(names, sample);
        self.speedscope.sample(names, sample);
        if let Some(firefox) = &mut self.firefox {
            firefox.sample(names, sample);
        }
        let written = self.script.write(about, names, sample, &mut self.out);
        written.expect("memory");
        if self.out.len() > 1 << 16 {
            is_plain(
                &self
                    .out
                    .iter()
                    .filter(|b| **b != b'\t')
                    .copied()
                    .collect::<Vec<_>>(),
            );
            self.out.clear();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Some of the samples, by `choice`: counted and exported, in one shape or another.
pub fn part(reader: &Reader, choice: u32) {
    let request = Request {
        symbols: options(),
        selection: selection(choice),
        by: by(choice >> 4),
        shape: Shape {
            lines: choice & 1 << 8 != 0,
            addresses: choice & 1 << 9 != 0,
            no_inline: choice & 1 << 10 != 0,
            merge_recursion: choice & 1 << 11 != 0,
            max_depth: (choice & 1 << 12 != 0).then_some(3),
            min_percent: if choice & 1 << 13 != 0 { 2.0 } else { 0.0 },
        },
    };
    let mut warn = |_: &str| ();
    let profile = pipeline::profile(reader, request.clone(), &mut (), &mut warn);
    let mut out = Vec::new();
    folded::write(&profile, &mut out).expect("memory");
    is_plain(&out);
    let units = units(reader);
    let mut exporter = Exporter {
        pprof: pprof::Collector::new(units.clone()),
        firefox: None,
        speedscope: speedscope::Collector::new(units.clone()),
        script: perf_script::Samples::default(),
        units,
        out: Vec::new(),
        samples: 0,
    };
    let Ok(summary) = pipeline::stream(reader, request, &mut exporter, &mut warn);
    assert_eq!(exporter.samples, counted(&profile), "streamed and counted");
    let Exporter {
        pprof,
        firefox,
        speedscope,
        mut out,
        ..
    } = exporter;
    out.retain(|byte| *byte != b'\t');
    is_plain(&out);
    out.clear();
    if let Some(firefox) = firefox {
        firefox.write(&mut out).expect("memory");
    }
    out.clear();
    speedscope.write(&summary.about, &mut out).expect("memory");
    is_plain(&out);
    out.clear();
    pprof.write(&summary.about, &mut out).expect("memory");
}

fn counted(profile: &Profile) -> u64 {
    profile
        .rows
        .iter()
        .fold(0, |sum, row| row.samples.saturating_add(sum))
}

fn by(choice: u32) -> By {
    const ALL: [By; 9] = [
        By::Process,
        By::Thread,
        By::Comm,
        By::Exe,
        By::Cgroup,
        By::Cpu,
        By::Host,
        By::Capture,
        By::None,
    ];
    ALL[choice as usize % ALL.len()]
}

fn selection(choice: u32) -> Selection {
    let mut selection = Selection::default();
    match choice % 10 {
        0 => selection.cpus = vec![0..=0],
        1 => selection.comms = vec!["*a*".parse().expect("a pattern")],
        2 => selection.exes = vec!["*".parse().expect("a pattern")],
        3 => selection.cgroups = vec!["/".to_owned()],
        4 => selection.code = Some(CodeKind::User),
        5 => selection.code = Some(CodeKind::Kernel),
        6 => selection.symbols = vec![regex::Regex::new("a").expect("a pattern")],
        7 => selection.times = vec!["20%..70%".parse().expect("a range")],
        8 => selection.times = vec!["1s..".parse().expect("a range")],
        _ => {}
    }
    selection
}

/// With itself, in every form.
pub fn compared(reader: &Reader, profile: &Profile) {
    let input = || diff::Input {
        path: "a".into(),
        profile,
        units: units(reader),
    };
    let Ok(joined) = diff::Joined::new(&input(), &input(), &[]) else {
        return;
    };
    let options = diff::Options {
        limit: Some(100),
        sort: top::Sort::default(),
        style: layout::Style::default(),
    };
    let mut out = Vec::new();
    diff::write(&joined, options, &mut out).expect("memory");
    diff::json(&joined, options, &mut out).expect("memory");
    diff::csv(&joined, options, &mut out).expect("memory");
    diff::folded(&joined, &mut out).expect("memory");
    is_plain(&out);
    if profile.rows.len() < 1000 {
        out.clear();
        diff::flamegraph(&joined, &mut out).expect("memory");
        is_xml(&out);
    }
}
