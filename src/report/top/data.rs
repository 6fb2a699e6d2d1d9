//! The same numbers for programs: JSON and CSV.

use std::borrow::Cow;
use std::io::{self, Write};

use serde::Serialize;

use super::count::{Counter, Entries};
use super::{Entry, Options};
use crate::profile::{Names, Profile};
use crate::report::cells::{Csv, cell};
use crate::report::groups::groups;
use crate::report::layout::{self, share};
use crate::report::text::write_json;

/// A function as JSON has it.
#[derive(Serialize)]
struct Function<'a> {
    function: &'a str,
    module: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    #[serde(rename = "self")]
    own: u64,
    self_share: f64,
    total: u64,
    total_share: f64,
}

impl<'a> Function<'a> {
    fn new(names: &'a Names, entry: &Entry, sum: u64) -> Function<'a> {
        let (name, module) = entry.function;
        let line = entry.line.map(|line| line.line).filter(|line| *line > 0);
        Function {
            function: names.text(name),
            module: Some(names.text(module)).filter(|module| !module.is_empty()),
            file: entry.line.map(|line| names.text(line.file)),
            line,
            own: entry.counts.own,
            self_share: share(entry.counts.own, sum),
            total: entry.counts.total,
            total_share: share(entry.counts.total, sum),
        }
    }
}

/// What the functions that are listed are without, in JSON: those beyond a number asked for, and those below a share.
#[derive(Serialize)]
struct LeftOut {
    functions: usize,
    #[serde(rename = "self")]
    own: u64,
    self_share: f64,
}

impl LeftOut {
    fn new(entries: &Entries, shown: &[Entry], sum: u64) -> LeftOut {
        let own = entries.left_out(shown);
        LeftOut {
            functions: entries.functions - shown.len(),
            own,
            self_share: share(own, sum),
        }
    }
}

/// Writes JSON: all functions, and with groups those of each.
pub fn json(profile: &Profile, options: Options, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        samples: u64,
        no_function: u64,
        damaged: bool,
        functions: Vec<Function<'a>>,
        left_out: LeftOut,
        groups: Option<Vec<Group<'a>>>,
    }
    #[derive(Serialize)]
    struct Group<'a> {
        group: String,
        samples: u64,
        share: f64,
        no_function: u64,
        functions: Vec<Function<'a>>,
        left_out: LeftOut,
    }
    let names = &profile.names;
    let least = layout::at_least(options.min_total, profile.total_weight());
    let mut counter = Counter::new(names, &profile.stacks);
    let all = counter
        .entries(&[&profile.rows], options.sort)
        .at_least(least);
    let list = |entries: &Entries| {
        let shown = entries.limited(options.limit);
        let functions = shown.iter();
        let functions = functions.map(|entry| Function::new(names, entry, all.sum));
        (functions.collect(), LeftOut::new(entries, shown, all.sum))
    };
    let groups = options.by_group.then(|| {
        let groups = groups(profile).into_iter().map(|group| {
            let entries = counter.entries(&group.rows, options.sort).at_least(least);
            let (functions, left_out) = list(&entries);
            Group {
                samples: group.weight,
                share: share(group.weight, all.sum),
                no_function: entries.of_none,
                functions,
                left_out,
                group: group.name,
            }
        });
        groups.collect()
    });
    let (functions, left_out) = list(&all);
    let document = Document {
        samples: all.sum,
        no_function: all.of_none,
        damaged: profile.about.is_damaged(),
        functions,
        left_out,
        groups,
    };
    write_json(&document, out)
}

/// What stands in the CSV for the functions below a share.
const OTHER: &str = "[other]";

/// Writes CSV: a line for each function, or for each function of each group. Where small ones are left out, the last line is what they have
/// of their own: so the sum is as it is without.
pub fn csv(profile: &Profile, options: Options, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Record<'a> {
        group: Cow<'a, str>,
        group_samples: u64,
        #[serde(rename = "self")]
        own: u64,
        self_share: f64,
        total: u64,
        total_share: f64,
        module: Cow<'a, str>,
        file: Cow<'a, str>,
        line: Option<u32>,
        function: Cow<'a, str>,
    }
    let least = layout::at_least(options.min_total, profile.total_weight());
    let mut counter = Counter::new(&profile.names, &profile.stacks);
    let mut csv = Csv::new(&COLUMNS, out)?;
    let sum = profile.total_weight();
    let mut list = |name: &str, entries: &Entries| -> io::Result<()> {
        for entry in entries.limited(options.limit) {
            let of = Function::new(&profile.names, entry, sum);
            csv.record(Record {
                group: cell(name),
                group_samples: entries.sum,
                own: of.own,
                self_share: of.self_share,
                total: of.total,
                total_share: of.total_share,
                module: cell(of.module.unwrap_or("")),
                file: cell(of.file.unwrap_or("")),
                line: of.line,
                function: cell(of.function),
            })?;
        }
        let small = entries.left_out(&entries.list);
        if small > 0 {
            csv.record(Record {
                group: cell(name),
                group_samples: entries.sum,
                own: small,
                self_share: share(small, sum),
                total: small,
                total_share: share(small, sum),
                module: Cow::Borrowed(""),
                file: Cow::Borrowed(""),
                line: None,
                function: Cow::Borrowed(OTHER),
            })?;
        }
        Ok(())
    };
    if options.by_group {
        for group in groups(profile) {
            let entries = counter.entries(&group.rows, options.sort).at_least(least);
            list(&group.name, &entries)?;
        }
    } else {
        list(
            "",
            &counter
                .entries(&[&profile.rows], options.sort)
                .at_least(least),
        )?;
    }
    csv.finish()
}

/// The first line of the CSV.
pub const COLUMNS: [&str; 10] = [
    "group",
    "group_samples",
    "self",
    "self_share",
    "total",
    "total_share",
    "module",
    "file",
    "line",
    "function",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    fn profile() -> Profile {
        let mut b = Builder::default();
        let (a, c) = (b.process("a,b", 7), b.process("c", 8));
        b.row(a, &["main", "f<int, \"x\">"], 3);
        b.row(c, &["=cmd()", "-f\n"], 1);
        b.row(c, &[], 4);
        b.profile
    }

    fn text(
        write: fn(&Profile, Options, &mut dyn Write) -> io::Result<()>,
        by_group: bool,
    ) -> String {
        let mut out = Vec::new();
        let options = Options {
            by_group,
            limit: None,
            ..Options::default()
        };
        write(&profile(), options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_is_quoted_and_nothing_of_it_is_a_formula() {
        assert_eq!(
            text(csv, false),
            "\
group,group_samples,self,self_share,total,total_share,module,file,line,function
,8,3,0.375,3,0.375,mod,,,\"f<int, \"\"x\"\">\"
,8,1,0.125,1,0.125,mod,,,'-f\\n
,8,0,0.0,3,0.375,mod,,,main
,8,0,0.0,1,0.125,mod,,,'=cmd()
"
        );
        let grouped = text(csv, true);
        let first: Vec<_> = grouped
            .lines()
            .skip(1)
            .map(|l| l.split(",m").next().unwrap())
            .collect();
        assert_eq!(
            first,
            [
                "c-8,5,1,0.125,1,0.125",
                "c-8,5,0,0.0,1,0.125",
                "\"a,b-7\",3,3,0.375,3,0.375",
                "\"a,b-7\",3,0,0.0,3,0.375",
            ]
        );
    }

    /// With what is left out the sum is the whole, in JSON and CSV.
    #[test]
    fn what_is_left_out_is_counted() {
        let mut b = Builder::default();
        let (a, c) = (b.process("a", 7), b.process("c", 8));
        b.row(a, &["main", "hot"], 80);
        b.row(a, &["main", "f"], 4);
        b.row(c, &["g"], 3);
        b.row(c, &["hot"], 11);
        b.row(c, &[], 2);
        let options = Options {
            limit: None,
            min_total: 5.0,
            ..Options::default()
        };
        let of = |options| {
            let (mut text, mut lines) = (Vec::new(), Vec::new());
            json(&b.profile, options, &mut text).unwrap();
            csv(&b.profile, options, &mut lines).unwrap();
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
            (value, String::from_utf8(lines).unwrap())
        };
        let (value, lines) = of(options);
        assert_eq!(
            value["left_out"],
            serde_json::json!({ "functions": 2, "self": 7, "self_share": 0.07 })
        );
        let (_, lines) = lines.split_once('\n').unwrap();
        assert_eq!(
            lines,
            ",100,91,0.91,91,0.91,mod,,,hot\n,100,0,0.0,84,0.84,mod,,,main\n,100,7,0.07,7,0.07,,,,[other]\n"
        );
        // What a number of functions leaves out is told in JSON alone: so many lines were asked for.
        let (value, lines) = of(Options {
            limit: Some(1),
            by_group: true,
            min_total: 0.0,
            ..options
        });
        assert_eq!(lines.lines().count(), 3, "{lines}");
        let left_out = |of: &serde_json::Value| {
            (
                of["left_out"]["functions"].clone(),
                of["left_out"]["self"].clone(),
            )
        };
        assert_eq!(left_out(&value), (3.into(), 7.into()));
        let groups = &value["groups"];
        assert_eq!(left_out(&groups[0]), (2.into(), 4.into()));
        assert_eq!(left_out(&groups[1]), (1.into(), 3.into()));
    }

    #[test]
    fn json_has_true_names_and_sums_that_agree() {
        let all: serde_json::Value = serde_json::from_str(&text(json, false)).unwrap();
        assert_eq!(
            (&all["samples"], &all["no_function"]),
            (&8.into(), &4.into())
        );
        assert_eq!(all["groups"], serde_json::Value::Null);
        let names: Vec<_> = all["functions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| &f["function"])
            .collect();
        assert_eq!(names, ["f<int, \"x\">", "-f\n", "main", "=cmd()"]);
        let grouped: serde_json::Value = serde_json::from_str(&text(json, true)).unwrap();
        let first = &grouped["groups"][0];
        assert_eq!(first["group"], "c-8");
        assert_eq!(
            (&first["samples"], &first["share"], &first["no_function"]),
            (&5.into(), &0.625.into(), &4.into())
        );
        let leaf = &first["functions"][0];
        assert_eq!(
            (&leaf["self"], &leaf["self_share"], &leaf["line"]),
            (&1.into(), &0.125.into(), &serde_json::Value::Null)
        );
        assert_eq!(grouped["functions"], all["functions"]);
    }
}
