//! What is changed in what inferno draws.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::Regex;

/// Rows of boxes that a screen shows, about: of more, the outermost callers are at the top.
pub(in crate::report) const TALL: usize = 60;

/// `1 sample` for its `1 samples`; and what tells how much a search has found is where the name of a box is told, which in a picture whose
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
        Some(told) => told.replace(svg, &b"$1$2$3$2\""[..]),
        None => Cow::Borrowed(svg),
    };
    match &*ONE {
        Some(one) => Cow::Owned(one.replace_all(&svg, &b"(1 sample$1"[..]).into_owned()),
        None => svg,
    }
}
