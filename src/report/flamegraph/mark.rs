//! By what our pictures are known from those of other programs, which inferno may have drawn too.

use std::io::{self, Write};

/// Between what declares the file and the picture.
const MARK: &[u8] = b"<!-- drawn by profiler report -->";

/// What is in pictures that were drawn before there was a mark: our legend, the text below the title of a comparison, and the beginning
/// of an empty one.
const OLDER: [&[u8]; 3] = [
    b"<g id=\"legend\"><rect x=\"10\" y=\"36\" width=\"9\" height=\"9\" fill=\"rgb(",
    b">width: samples after; in the frame itself: red more, blue less, grey the same or by chance; ",
    b"<?xml version=\"1.0\" standalone=\"no\"?>\n\
      <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"80\" viewBox=\"0 0 1200 80\">\n\
      <rect width=\"100%\" height=\"100%\" fill=\"#f8f8f8\"/>\n",
];

/// Writes a picture with the mark.
pub(in crate::report) fn write_marked(svg: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (before, picture) = svg.split_at(element(svg).unwrap_or(0));
    out.write_all(before)?;
    out.write_all(MARK)?;
    out.write_all(picture)
}

/// Whether what begins like this is a picture that this program has drawn.
pub fn is_ours(start: &[u8]) -> bool {
    let Some((before, picture)) = element(start).and_then(|at| start.split_at_checked(at)) else {
        return false;
    };
    let is_older = || {
        let mut older = OLDER.iter();
        older.any(|ours| memchr::memmem::find(start, ours).is_some()) && !picture.is_empty()
    };
    before.starts_with(b"<?xml ") && (before.ends_with(MARK) || is_older())
}

/// Where the picture begins.
fn element(svg: &[u8]) -> Option<usize> {
    memchr::memmem::find(svg, b"<svg")
}
