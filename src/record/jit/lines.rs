//! Lines of a perf map, and the table of those that hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Timestamp;
use crate::format::aid::JitSymbol;

/// One line of a perf map: `START SIZE NAME`, the numbers in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// The rest of the line, never empty.
    pub name: &'a [u8],
}

/// Bytes of a name kept; longer ones are cut.
const LONGEST_NAME: usize = 4096;

/// Parses a line without its newline. Names are bytes and may hold anything; numbers may have `0x`. `None` for whatever is
/// no such line.
pub fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (start, rest) = word(line)?;
    let (len, name) = word(rest)?;
    let (start, len) = (hex(start)?, hex(len)?);
    let name = name.get(..LONGEST_NAME).unwrap_or(name);
    let end = start.checked_add(len)?;
    (start < end && !name.is_empty()).then_some(Line { start, end, name })
}

/// The first word, and what follows the blanks after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|b| matches!(b, b' ' | b'\t'))?;
    let (word, rest) = text.split_at_checked(end)?;
    Some((word, rest.trim_ascii_start()))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = digits
        .strip_prefix(b"0x")
        .or_else(|| digits.strip_prefix(b"0X"))
        .unwrap_or(digits);
    // `from_str_radix` would take a sign.
    if !digits.first()?.is_ascii_hexdigit() {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Lines that hold as of a reading, and those of them the capture needs: without overlaps, because of two lines for one
/// address only the later one holds.
#[derive(Debug, Default)]
pub struct Lines {
    by_start: BTreeMap<u64, Held>,
    /// Bytes of all names.
    pub name_bytes: usize,
    /// Recorded addresses.
    wanted: BTreeSet<u64>,
    /// Starts of lines the capture needs and does not have yet.
    queue: BTreeSet<u64>,
    /// Starts of lines the capture has and that hold no more.
    ended: BTreeSet<u64>,
    /// Starts of lines that took the place of others in the reading under way: true since its end.
    replacing: Vec<u64>,
    /// Where lines were that others have replaced in the reading under way.
    vacated: Ranges,
}

#[derive(Debug)]
struct Held {
    end: u64,
    since: Timestamp,
    name: Box<[u8]>,
    /// The capture needs it, and may have it.
    kept: bool,
    /// The capture has it.
    written: bool,
}

impl Lines {
    /// Lines that hold.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Addresses wanted.
    pub fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Starts anew for a map written anew: only the wanted addresses stay.
    pub fn restart(&mut self) -> Lines {
        let wanted = self.wanted.clone();
        let fresh = Lines {
            wanted,
            ..Lines::default()
        };
        std::mem::replace(self, fresh)
    }

    /// A recorded address: the line that covers it, or the byte before (a return address can be the first of the next
    /// function), is needed.
    pub fn want(&mut self, address: u64) {
        if !self.wanted.insert(address) {
            return;
        }
        for covered in [address, address.wrapping_sub(1)] {
            if let Some((start, held)) = self.by_start.range_mut(..=covered).next_back()
                && covered < held.end
                && !held.kept
            {
                held.kept = true;
                self.queue.insert(*start);
            }
        }
    }

    /// Takes in the next line of the file. `since` is from when on it is true if there was no other in its place.
    pub fn add(&mut self, line: &Line<'_>, since: Timestamp) {
        if let Some(same) = self.by_start.get(&line.start)
            && same.end == line.end
            && *same.name == *line.name
        {
            return;
        }
        let kept = self.wanted.range(line.start..=line.end).next().is_some();
        let mut replaces = false;
        while let Some((start, held)) = self.by_start.range(..line.end).next_back() {
            if held.end <= line.start {
                break;
            }
            if held.written {
                self.ended.insert(*start);
            }
            replaces = true;
            let start = *start;
            self.name_bytes -= held.name.len();
            let end = held.end;
            self.by_start.remove(&start);
            self.queue.remove(&start);
            self.vacated.add(start, end);
        }
        if replaces || self.vacated.overlaps(line.start, line.end) {
            self.replacing.push(line.start);
        }
        if kept {
            self.queue.insert(line.start);
        }
        self.name_bytes += line.name.len();
        let held = Held {
            end: line.end,
            since,
            name: line.name.into(),
            kept,
            written: false,
        };
        self.by_start.insert(line.start, held);
    }

    /// The reading ended at `end`. What took the place of something is true from now on.
    pub fn reading_ended(&mut self, end: Timestamp) {
        self.vacated = Ranges::default();
        for start in std::mem::take(&mut self.replacing) {
            if let Some(held) = self.by_start.get_mut(&start) {
                held.since = end;
            }
        }
    }

    /// After a restart, all is read again: a line that was there `before`, and stayed, keeps its time. Others may have taken the
    /// place of what is in the file no more.
    pub fn take_times_from(&mut self, before: &Lines, end: Timestamp) {
        for (start, held) in &mut self.by_start {
            let same = before.by_start.get(start);
            let same = same.filter(|b| b.end == held.end && b.name == held.name);
            match same {
                Some(same) if held.since != end => held.since = same.since,
                _ => held.since = end,
            }
        }
    }

    /// Whether lines, or their ends, wait to be written.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty() || !self.ended.is_empty()
    }

    /// Starts of lines written before that hold no more, ascending.
    pub fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended).into_iter().collect()
    }

    /// Lines for the capture, sorted by start, about `bytes` of them at most.
    pub fn take_queued(&mut self, bytes: usize) -> Vec<JitSymbol> {
        let mut taken = Vec::new();
        let mut size = 0;
        while size < bytes
            && let Some(start) = self.queue.pop_first()
        {
            if let Some(held) = self.by_start.get_mut(&start) {
                held.written = true;
                size += held.name.len() + 32;
                taken.push(JitSymbol {
                    start,
                    len: held.end - start,
                    since: held.since,
                    name: held.name.to_vec(),
                });
            }
        }
        taken
    }
}

/// Ranges of addresses, by start, without overlaps.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn add(&mut self, mut start: u64, mut end: u64) {
        while let Some((s, e)) = self.last_before(end).filter(|(_, e)| *e >= start) {
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.0.insert(start, end);
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.last_before(end).is_some_and(|(_, e)| e > start)
    }

    fn last_before(&self, end: u64) -> Option<(u64, u64)> {
        self.0.range(..end).next_back().map(|(s, e)| (*s, *e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Option<(u64, u64, String)> {
        let line = parse_line(text)?;
        let name = String::from_utf8_lossy(line.name).into_owned();
        Some((line.start, line.end, name))
    }

    #[test]
    fn lines_of_every_shape() {
        let good: [(&[u8], u64, u64, &str); 9] = [
            (
                b"3ef414c0 398 LazyCompile:~f /a b.js:1",
                0x3ef4_14c0,
                0x3ef4_1858,
                "LazyCompile:~f /a b.js:1",
            ),
            (b"0x10 0X20 name\r", 0x10, 0x30, "name"),
            (b"10 20 a;b (c) 12", 0x10, 0x30, "a;b (c) 12"),
            (b"  10\t20   padded ", 0x10, 0x30, "padded "),
            (
                b"ffffffffffffff00 ff end",
                0xffff_ffff_ffff_ff00,
                0xffff_ffff_ffff_ffff,
                "end",
            ),
            (b"10 20 \xff\xfe", 0x10, 0x30, "\u{fffd}\u{fffd}"),
            (b"00000000000000000010 1 x", 0x10, 0x11, "x"),
            (b"DEADbeef 1 X", 0xdead_beef, 0xdead_bef0, "X"),
            (b"10 20 name\r\r", 0x10, 0x30, "name\r"),
        ];
        for (text, start, end, name) in good {
            assert_eq!(
                parsed(text),
                Some((start, end, name.into())),
                "{}",
                text.escape_ascii()
            );
        }
        let bad: [&[u8]; 15] = [
            b"",
            b" ",
            b"10",
            b"10 20",
            b"10 20 ",
            b"10 name",
            b"10 0 empty",
            b"xyz 10 name",
            b"10 xyz name",
            b"-10 20 name",
            b"+10 20 name",
            b"0x 20 name",
            b"\xff 1 x",
            b"ffffffffffffffff 2 wraps",
            b"10000000000000000 1 too large",
        ];
        for text in bad {
            assert_eq!(parsed(text), None, "{}", text.escape_ascii());
        }
        let long = [b"1 1 ".as_slice(), &[b'n'; 9000]].concat();
        assert_eq!(parse_line(&long).map(|l| l.name.len()), Some(LONGEST_NAME));
    }

    fn add(lines: &mut Lines, start: u64, end: u64, name: &str, since: u64) {
        let name = name.as_bytes();
        lines.add(&Line { start, end, name }, Timestamp(since));
    }

    fn queued(lines: &mut Lines) -> Vec<(u64, u64, u64, String)> {
        let all = lines.take_queued(usize::MAX).into_iter();
        all.map(|s| {
            (
                s.start,
                s.len,
                s.since.0,
                String::from_utf8_lossy(&s.name).into(),
            )
        })
        .collect()
    }

    #[test]
    fn only_lines_at_recorded_addresses_are_kept() {
        let mut lines = Lines::default();
        add(&mut lines, 0x100, 0x110, "a", 0);
        add(&mut lines, 0x110, 0x120, "b", 0);
        add(&mut lines, 0x200, 0x210, "c", 0);
        lines.reading_ended(Timestamp(10));
        assert!(!lines.has_queued());
        lines.want(0x110);
        lines.want(0x20f);
        lines.want(0x20f);
        lines.want(0x999);
        let expected = [
            (0x100, 16, 0, "a".into()),
            (0x110, 16, 0, "b".into()),
            (0x200, 16, 0, "c".into()),
        ];
        assert_eq!(queued(&mut lines), expected);
        add(&mut lines, 0x200, 0x210, "c", 10);
        add(&mut lines, 0x990, 0x999, "before a return address", 10);
        add(&mut lines, 0x300, 0x310, "nobody was here", 10);
        lines.reading_ended(Timestamp(20));
        assert_eq!(
            queued(&mut lines),
            [(0x990, 9, 10, "before a return address".into())]
        );
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn a_later_line_takes_the_place_of_an_earlier_one() {
        let mut lines = Lines::default();
        add(&mut lines, 0x100, 0x200, "old", 0);
        lines.reading_ended(Timestamp(5));
        lines.want(0x180);
        assert_eq!(queued(&mut lines).len(), 1);
        // Nobody was at its own addresses, but the old one ends by it.
        add(&mut lines, 0x1f0, 0x300, "new", 5);
        lines.reading_ended(Timestamp(9));
        assert!(lines.has_queued());
        assert_eq!(
            (lines.take_ended(), queued(&mut lines)),
            (vec![0x100], vec![])
        );
        add(&mut lines, 0x100, 0x1f0, "third", 9);
        lines.reading_ended(Timestamp(12));
        assert_eq!(
            queued(&mut lines),
            [(0x100, 0xf0, 9, "third".into())],
            "nothing there before"
        );
        assert_eq!((lines.len(), lines.name_bytes), (2, 8));

        let mut lines = Lines::default();
        lines.want(0x100);
        for (name, end) in [("a", 0x110), ("b", 0x120), ("a", 0x110)] {
            add(&mut lines, 0x100, end, name, 0);
        }
        lines.reading_ended(Timestamp(7));
        assert_eq!(
            queued(&mut lines),
            [(0x100, 0x10, 7, "a".into())],
            "which one before, is not known"
        );
    }

    #[test]
    fn a_map_written_anew_keeps_the_times_of_what_stayed() {
        let mut lines = Lines::default();
        lines.want(0x100);
        lines.want(0x200);
        lines.want(0x300);
        add(&mut lines, 0x100, 0x110, "stays", 1);
        add(&mut lines, 0x200, 0x210, "changes", 1);
        lines.reading_ended(Timestamp(5));
        let before = lines.restart();
        add(&mut lines, 0x100, 0x110, "stays", 5);
        add(&mut lines, 0x200, 0x220, "changed", 5);
        add(&mut lines, 0x300, 0x310, "new", 5);
        lines.reading_ended(Timestamp(9));
        lines.take_times_from(&before, Timestamp(9));
        let expected = [
            (0x100, 16, 1, "stays".into()),
            (0x200, 32, 9, "changed".into()),
            (0x300, 16, 9, "new".into()),
        ];
        assert_eq!(queued(&mut lines), expected);
    }
}
