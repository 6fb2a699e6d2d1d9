//! The comparison for programs: JSON and CSV.

use std::io::{self, Write};

use serde::Serialize;

use super::changes::{Change, changes};
use super::{Joined, Options, Side};
use crate::report::cells::{Csv, cell};
use crate::report::text::write_json;

/// Functions that are listed: those that grew most, then those that shrank most; without a limit, all.
fn shown(joined: &Joined, options: &Options) -> Vec<Change> {
    let mut changes = changes(joined, options.sort);
    if let Some(limit) = options.limit {
        let grown = changes
            .iter()
            .filter(|c| c.shares(options.sort).change() > 0.0)
            .count();
        let shrunk = changes
            .iter()
            .filter(|c| c.shares(options.sort).change() < 0.0)
            .count();
        let last = changes.split_off(changes.len() - shrunk.min(limit));
        changes.truncate(grown.min(limit));
        changes.extend(last);
    }
    changes
}

/// Writes JSON.
pub fn json(joined: &Joined, options: Options, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        before: Capture,
        after: Capture,
        same: Vec<Same<'a>>,
        functions: Vec<Function<'a>>,
    }
    #[derive(Serialize)]
    struct Same<'a> {
        before: &'a str,
        after: &'a str,
    }
    #[derive(Serialize)]
    struct Capture {
        file: String,
        samples: u64,
        weight: u64,
        cpu_seconds: Option<f64>,
        damaged: bool,
    }
    #[derive(Serialize)]
    struct Function<'a> {
        function: &'a str,
        module: Option<&'a str>,
        #[serde(rename = "self")]
        own: Pair,
        total: Pair,
    }
    #[derive(Serialize)]
    struct Pair {
        before: u64,
        after: u64,
        before_share: f64,
        after_share: f64,
        change: f64,
        may_be_chance: bool,
    }
    let capture = |side: &Side| Capture {
        file: side.path.to_string_lossy().into_owned(),
        samples: side.samples,
        weight: side.weight,
        cpu_seconds: side.cpu_seconds(),
        damaged: side.about.is_damaged(),
    };
    let pair = |before, after, shares: super::changes::Shares| Pair {
        before,
        after,
        before_share: shares.before,
        after_share: shares.after,
        change: shares.change(),
        may_be_chance: shares.may_be_chance(),
    };
    let functions = shown(joined, &options).into_iter().map(|c| Function {
        function: joined.names.text(c.function.0),
        module: Some(joined.names.text(c.function.1)).filter(|module| !module.is_empty()),
        own: pair(c.before.own, c.after.own, c.own),
        total: pair(c.before.total, c.after.total, c.total),
    });
    let document = Document {
        before: capture(&joined.before.0),
        after: capture(&joined.after.0),
        same: joined
            .renamed
            .iter()
            .map(|(before, after)| Same { before, after })
            .collect(),
        functions: functions.collect(),
    };
    write_json(&document, out)
}

/// The first line of the CSV.
pub const COLUMNS: [&str; 12] = [
    "self_before",
    "self_after",
    "self_before_share",
    "self_after_share",
    "self_change",
    "total_before",
    "total_after",
    "total_before_share",
    "total_after_share",
    "total_change",
    "module",
    "function",
];

/// Writes CSV: a line for each function.
pub fn csv(joined: &Joined, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = Csv::new(&COLUMNS, out)?;
    for c in shown(joined, &options) {
        let text = |name| cell(joined.names.text(name));
        csv.record((
            (
                c.before.own,
                c.after.own,
                c.own.before,
                c.own.after,
                c.own.change(),
            ),
            (
                c.before.total,
                c.after.total,
                c.total.before,
                c.total.after,
                c.total.change(),
            ),
            (text(c.function.1), text(c.function.0)),
        ))?;
    }
    csv.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tests::joined;
    use super::*;
    use crate::report::layout::Style;
    use crate::report::top::Sort;

    fn options(limit: Option<usize>) -> Options {
        Options {
            limit,
            sort: Sort::Own,
            style: Style::default(),
        }
    }

    #[test]
    fn json_has_both_captures_and_every_function() {
        let names = |limit| -> (serde_json::Value, Vec<String>) {
            let mut out = Vec::new();
            json(&joined(), options(limit), &mut out).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
            let functions = value["functions"].as_array().unwrap().iter();
            let names = functions.map(|f| f["function"].as_str().unwrap().to_owned());
            let names = names.collect();
            (value, names)
        };
        let (value, all) = names(None);
        assert_eq!(all, ["hot", "main", "cold", "gone"]);
        assert_eq!(names(Some(1)).1, ["hot", "gone"]);
        assert_eq!(
            (&value["before"]["cpu_seconds"], &value["after"]["samples"]),
            (&1.0.into(), &200.into())
        );
        let hot = &value["functions"][0]["self"];
        assert_eq!(
            (&hot["before"], &hot["after"], &hot["change"]),
            (&50.into(), &150.into(), &0.25.into())
        );
    }

    #[test]
    fn csv_has_the_same() {
        let mut out = Vec::new();
        csv(&joined(), options(Some(1)), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            format!(
                "{}\n50,150,0.5,0.75,0.25,50,150,0.5,0.75,0.25,mod,hot\n20,0,0.2,0.0,-0.2,20,0,0.2,0.0,-0.2,mod,gone\n",
                COLUMNS.join(",")
            )
        );
    }
}
