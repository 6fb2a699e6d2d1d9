//! Every report of a capture, and what may never be in one.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::OnceLock;

use bprof::capture::{Reader, verify};
use bprof::pipeline::{self, Sink};
use bprof::profile::{About, Names, Profile, SampleView};
use bprof::report::flamegraph::chart;
use bprof::report::layout::Style;
use bprof::report::{
    callers, flamegraph, folded, html, inventory, layout, missing, standard, top, tree, verdict,
};
use bprof::symbolize::Options;

/// Files are looked for in an empty directory, so that nothing depends on the machine.
pub(crate) fn options() -> Options {
    static EMPTY: OnceLock<PathBuf> = OnceLock::new();
    let empty = EMPTY.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("bprof-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    });
    Options {
        symfs: vec![empty.clone()],
        ..Options::default()
    }
}

/// What people and programs read has no character that moves a cursor, ends a line or turns text around.
pub fn is_plain(text: &[u8]) {
    let text = std::str::from_utf8(text).expect("reports are UTF-8");
    let odd = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(text.find(odd), None, "in {text:?}");
}

/// No element comes from a name, and every character is one XML has.
pub(crate) fn is_xml(text: &[u8]) {
    let text = std::str::from_utf8(text).expect("reports are UTF-8");
    let odd = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t' | '\r' | '\u{7f}'..='\u{9f}'))
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    assert_eq!(text.find(odd), None, "in a picture");
}

/// All samples as text, and in pictures.
struct Printer {
    samples: standard::Samples,
    chart: chart::Collector,
    page: html::Collector,
    out: Vec<u8>,
}

impl Printer {
    fn check(&mut self) {
        is_plain(&self.out);
        self.out.clear();
    }
}

impl Sink for Printer {
    type Error = Infallible;

    fn open(&mut self, about: &About) -> Result<(), Infallible> {
        standard::opening(about, &mut self.out).expect("memory");
        Ok(())
    }

    fn sample(
        &mut self,
        about: &About,
        names: &Names,
        sample: &SampleView<'_>,
    ) -> Result<(), Infallible> {
        let written = self.samples.write(about, names, sample, &mut self.out);
        written.expect("memory");
        self.chart.sample(names, sample);
        self.page.sample(about, names, sample);
        if self.out.len() > 1 << 16 {
            self.check();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Opens a capture and reads all of it, without names.
pub fn read(file: Vec<u8>) -> Option<Reader> {
    let reader = Reader::from_bytes(file).map_err(|err| is_plain(err.to_string().as_bytes()));
    let reader = reader.ok()?;
    let verified = verify::verify(&reader, || ());
    for damage in &verified.damage {
        is_plain(damage.to_string().as_bytes());
    }
    let held = pipeline::inventory(&reader, &mut ());
    let mut out = Vec::new();
    inventory::text(&held, Style::default(), &mut out).expect("memory");
    inventory::json(&held, &mut out).expect("memory");
    is_plain(&out);
    Some(reader)
}

/// Functions and calls in every shape.
fn tables(profile: &Profile) {
    let mut out = Vec::new();
    for by_group in [false, true] {
        let style = layout::Style {
            width: by_group.then_some(40),
            color: false,
        };
        let options = top::Options {
            limit: Some(1000),
            by_group,
            lines: true,
            style,
            ..top::Options::default()
        };
        top::write(profile, options, &mut out).expect("memory");
        top::json(profile, options, &mut out).expect("memory");
        top::csv(profile, options, &mut out).expect("memory");
        let options = tree::Options {
            by_group,
            style,
            ..tree::Options::default()
        };
        let found = callers::find(profile, ".*");
        let found = found.as_ref().ok();
        let trees = [
            Some(tree::Of::All),
            found.map(tree::Of::Callers),
            found.map(tree::Of::Callees),
        ];
        for of in trees.into_iter().flatten() {
            tree::write(profile, of, options, &mut out).expect("memory");
            tree::json(profile, of, options, &mut out).expect("memory");
            tree::csv(profile, of, options, &mut out).expect("memory");
        }
        is_plain(&out);
        out.clear();
    }
}

/// All reports. The samples that one counts are those that the other shows. Gives the profile.
pub fn all(reader: &Reader) -> Profile {
    let mut warn = |_: &str| ();
    let profile = pipeline::profile_with_missing(reader, options().into(), &mut (), &mut warn);
    let mut out = Vec::new();
    for line in verdict::whole(&profile) {
        out.extend(line.bytes());
    }
    is_plain(&out);
    out.clear();
    folded::write(&profile, &mut out).expect("memory");
    missing::text(&profile, Style::default(), &mut out).expect("memory");
    missing::json(&profile, &mut out).expect("memory");
    is_plain(&out);
    out.clear();
    tables(&profile);
    if profile.rows.len() < 1000 {
        for form in [flamegraph::Form::Callees, flamegraph::Form::Callers] {
            flamegraph::write(&profile, form, &mut out).expect("memory");
            is_xml(&out);
            out.clear();
        }
    }
    let mut printer = Printer {
        samples: standard::Samples::default(),
        chart: chart::Collector::default(),
        page: html::Collector::default(),
        out,
    };
    let Ok(summary) = pipeline::stream(reader, self::options().into(), &mut printer, &mut warn);
    let closing = standard::closing(
        &summary.about,
        &summary.late_damage,
        &summary.naming,
        &mut printer.out,
    );
    closing.expect("memory");
    printer.check();
    if profile.rows.len() < 1000 {
        let Printer {
            chart,
            page,
            mut out,
            ..
        } = printer;
        chart.write(&summary.about, &mut out).expect("memory");
        is_xml(&out);
        out.clear();
        let written = page.write(&summary.about, &summary.naming, &mut out);
        written.expect("memory");
        is_xml(&out);
    }
    assert_eq!(summary.naming.user_total, profile.naming.user_total);
    assert_eq!(summary.naming.kernel_total, profile.naming.kernel_total);
    assert_eq!(summary.naming.user_named, profile.naming.user_named);
    assert_eq!(summary.about.damaged_samples, profile.about.damaged_samples);
    profile
}
