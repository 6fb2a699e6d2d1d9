//! What is changed in what inferno draws.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use hashbrown::HashMap;
use regex::bytes::{Captures, Regex};

/// Rows of boxes that a screen shows, about: of more, the outermost callers are at the top.
pub(in crate::report) const TALL: usize = 60;

/// Where inferno tells the name of a box above the first boxes, into our legend; and where there is room for it.
const TOLD_AT: &[u8] = b"64.00";
const TOLD_BELOW: &[u8] = b"71.00";

/// What hides the word that starts a search until the pointer finds it.
const HIDDEN: &str = "#search { text-anchor:end; opacity:0.1; ";
const SHOWN: &[u8] = b"#search { text-anchor:end; ";

/// `1 sample` for its `1 samples`, a `Search` that can be seen; and what tells how much a search has found is where the name of a box is told, which in a picture whose
/// first boxes are at the top is there too, not below the last one. Names, which could have either, come before what it is looked for in.
pub(in crate::report) fn mended(svg: &[u8]) -> Cow<'_, [u8]> {
    static ONE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\(1 samples(, [0-9.]+%(?:; [-+0-9.]+%)?\)</title>)").ok());
    static TOLD: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let element = |id| format!("<text id=\"{id}\"[^>]* y=\"");
        let (details, matched) = (element("details"), element("matched"));
        Regex::new(&format!(
            "(?s)({details})([0-9.]+)(\".*?{matched})([0-9.]+)\""
        ))
        .ok()
    });
    let svg = match &*TOLD {
        Some(told) => told.replace(svg, |found: &Captures<'_>| {
            let part = |part| found.get(part).map_or(&b""[..], |part| part.as_bytes());
            let at = match part(2) {
                TOLD_AT => TOLD_BELOW,
                at => at,
            };
            [part(1), at, part(3), at, b"\""].concat()
        }),
        None => Cow::Borrowed(svg),
    };
    let svg = match memchr::memmem::find(&svg, HIDDEN.as_bytes()) {
        Some(at) => {
            let (before, after) = svg.split_at(at);
            let after = after.get(HIDDEN.len()..).unwrap_or_default();
            Cow::Owned([before, SHOWN, after].concat())
        }
        None => svg,
    };
    match &*ONE {
        Some(one) => Cow::Owned(one.replace_all(&svg, &b"(1 sample$1"[..]).into_owned()),
        None => svg,
    }
}

/// Where a box begins, in what its width counts, and on how many others it stands.
pub(in crate::report) type Place = (u64, usize);

/// The picture with other colours of boxes: `fill` gives that of a box, which inferno has filled as it is told, or `None` to leave it.
/// `top_first`: the box of everything is at the top. Names have no quotes in it.
pub(in crate::report) fn refilled(
    svg: &[u8],
    top_first: bool,
    fill: impl Fn(Place, &[u8]) -> Option<String>,
) -> Vec<u8> {
    static BOX: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let start = r#"<rect x="[^"]*" y="([0-9]+)"[^>]*? fill=""#;
        Regex::new(&format!(r#"({start})([^"]*)(" fg:x="([0-9]+)")"#)).ok()
    });
    let Some(a_box) = &*BOX else {
        return svg.to_vec();
    };
    let part = |found: &Captures<'_>, part: usize| -> Vec<u8> {
        found
            .get(part)
            .map_or(Vec::new(), |part| part.as_bytes().to_vec())
    };
    let number = |found: &Captures<'_>, digits: usize| -> u64 {
        let digits = String::from_utf8(part(found, digits));
        digits
            .ok()
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    };
    // The box of everything is always drawn, and what a box stands on is.
    let rows: BTreeSet<u64> = a_box
        .captures_iter(svg)
        .map(|found| number(&found, 2))
        .collect();
    let rows: HashMap<u64, usize> = match top_first {
        true => rows.into_iter().zip(0..).collect(),
        false => rows.into_iter().rev().zip(0..).collect(),
    };
    let drawn = a_box.replace_all(svg, |found: &Captures<'_>| {
        let row = rows.get(&number(found, 2)).copied().unwrap_or(0);
        let was = part(found, 3);
        let is = fill((number(found, 5), row), &was).map_or(was, String::into_bytes);
        [part(found, 1), is, part(found, 4)].concat()
    });
    drawn.into_owned()
}
