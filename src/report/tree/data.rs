//! The tree for programs: its nodes in order, each with its depth.

use std::io::{self, Write};

use serde::Serialize;

use super::walk::{Label, Node, Walk};
use super::{Of, Options};
use crate::profile::{Names, Profile};
use crate::report::cells::{Csv, cell};
use crate::report::layout::share;
use crate::report::text::write_json;
use crate::report::weights::Functions;

/// A node as programs read it.
#[derive(Serialize)]
struct Record {
    depth: usize,
    kind: &'static str,
    function: String,
    module: String,
    samples: u64,
    share: f64,
    #[serde(rename = "self")]
    own: u64,
}

impl Record {
    fn new(names: &Names, of: Of<'_>, base: u64, functions: &Functions, node: Node<'_>) -> Record {
        let none = ("", String::new(), String::new());
        let (kind, function, module) = match node.label {
            Label::All => ("all", none.1, none.2),
            Label::Group(name) => ("group", name.to_owned(), none.2),
            Label::Asked => match of.found().map(|found| &found.names[..]) {
                Some([name]) => ("asked", name.clone(), none.2),
                // Of no samples: what was asked for, as it was asked for.
                Some([]) => (
                    "asked",
                    of.found().map_or(none.1, |f| f.asked.clone()),
                    none.2,
                ),
                _ => ("asked", none.1, none.2),
            },
            Label::LeftOut(_) => ("left_out", none.1, none.2),
            Label::Function(number) => {
                let (name, module) = functions.text(names, number);
                ("function", name.to_owned(), module.to_owned())
            }
        };
        Record {
            depth: node.depth,
            kind,
            function,
            module,
            samples: node.total,
            share: share(node.total, base),
            own: node.own,
        }
    }
}

/// Writes JSON.
pub fn json(
    profile: &Profile,
    of: Of<'_>,
    options: Options,
    out: &mut dyn Write,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct Document<'a> {
        samples: u64,
        shares_of: u64,
        damaged: bool,
        functions: &'a [String],
        nodes: Vec<Record>,
    }
    let mut walk = Walk::new(profile, of, options, true);
    let sums = walk.sums();
    let mut nodes = Vec::new();
    walk.run(&mut |functions, node| {
        nodes.push(Record::new(&profile.names, of, sums.base, functions, node));
        Ok(())
    })?;
    let document = Document {
        samples: sums.all,
        shares_of: sums.base,
        damaged: profile.about.is_damaged(),
        functions: of.found().map_or(&[], |found| &found.names),
        nodes,
    };
    write_json(&document, out)
}

/// Writes CSV: a line for each node.
pub fn csv(profile: &Profile, of: Of<'_>, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let mut walk = Walk::new(profile, of, options, true);
    let base = walk.sums().base;
    let mut csv = Csv::new(&COLUMNS, out)?;
    walk.run(&mut |functions, node| {
        let mut record = Record::new(&profile.names, of, base, functions, node);
        record.function = cell(&record.function).into_owned();
        record.module = cell(&record.module).into_owned();
        csv.record(record)
    })?;
    csv.finish()
}

/// The first line of the CSV.
pub const COLUMNS: [&str; 7] = [
    "depth", "kind", "function", "module", "samples", "share", "self",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::text::tests_support::Builder;

    /// Children and a node's own are the node, at every node, whatever is left out.
    #[test]
    fn sums_agree_at_every_node() {
        let mut b = Builder::default();
        let p = b.process("app", 7);
        b.row(p, &["main", "a", "b"], 50);
        b.row(p, &["main", "a", "c"], 1);
        b.row(p, &["main", "a", "d"], 2);
        b.row(p, &["main"], 40);
        b.row(p, &["=x,", "y"], 7);
        let options = Options {
            min_percent: 5.0,
            ..Options::default()
        };
        let mut out = Vec::new();
        json(&b.profile, Of::All, options, &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            (&value["samples"], &value["shares_of"]),
            (&100.into(), &100.into())
        );
        let nodes: Vec<(u64, u64, u64)> = value["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| {
                ["depth", "samples", "self"]
                    .map(|key| n[key].as_u64().unwrap())
                    .into()
            })
            .collect();
        assert_eq!(nodes.len(), 7);
        for (i, (depth, total, own)) in nodes.iter().enumerate() {
            let below = nodes[i + 1..].iter().take_while(|n| n.0 > *depth);
            let children: u64 = below.filter(|n| n.0 == depth + 1).map(|n| n.1).sum();
            if children > 0 {
                assert_eq!(children + own, *total, "{nodes:?}");
            }
        }
        let mut out = Vec::new();
        csv(&b.profile, Of::All, options, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\
depth,kind,function,module,samples,share,self
0,all,,,100,1.0,0
1,function,main,mod,93,0.93,40
2,function,a,mod,53,0.53,0
3,function,b,mod,50,0.5,50
3,left_out,,,3,0.03,0
1,function,\"'=x,\",mod,7,0.07,0
2,function,y,mod,7,0.07,7
"
        );
    }
}
