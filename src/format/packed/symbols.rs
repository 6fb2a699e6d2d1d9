//! The symbols at the offsets of one file that samples hit, as they were when they were packed.
//!
//! ```text
//! record FileKey
//! strings
//! LEB128 number of symbols N, at least 1
//! column of N offsets, each the distance from the one before; must not be constant
//! column of N names: 0 none, else string + 1
//! column of N distances from the start of the symbol, of the function where there is none: 0 unknown, else bytes + 1
//! column of N source files: 0 unknown, else string + 1
//! column of N lines
//! column of N numbers of inlined functions, together M
//! column of M names: string; must not be constant
//! columns of M: source files, lines
//! ```

use std::collections::HashMap;

use super::text::Texts;
use super::{FileKey, FormatError, Problem, limits};
use crate::format::columns::{self, Constant, Layout};
use crate::format::input::Input;
use crate::format::{leb128, meta};

const WHAT: &str = "packed symbols";

/// The symbol at an offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackedSymbol {
    /// Demangled name.
    pub name: String,
    /// Bytes from the start of the symbol to the offset, when that is known.
    pub inside: Option<u64>,
    /// Path and line in the source, in the function itself.
    pub source: Option<(String, u32)>,
    /// Functions inlined there, outermost first, each with path and line.
    pub inlined: Vec<(String, Option<(String, u32)>)>,
}

/// What a file has at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtOffset {
    /// This symbol.
    Symbol(PackedSymbol),
    /// No symbol.
    Nameless {
        /// Bytes from the start of the function to the offset, where unwind information tells (1.6).
        inside: Option<u64>,
    },
}

/// Symbols of one file, by offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSymbols {
    /// Of which file.
    pub file: FileKey,
    texts: Texts,
    /// Ascending.
    offsets: Vec<u64>,
    rows: Vec<Row>,
    inlined: Vec<Place>,
}

/// A symbol without its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    /// 0, or string + 1.
    name: u32,
    /// 0, or bytes + 1.
    inside: u64,
    source: u32,
    line: u32,
    /// Where its inlined functions end in the list of all.
    inlined_end: u32,
}

/// An inlined function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    name: u32,
    source: u32,
    line: u32,
}

impl PackedSymbols {
    /// Symbols in it.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none; never so when it was decoded.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// What counts for the limit of all frames: symbols, inlined functions and strings.
    pub fn entries(&self) -> u64 {
        (self.rows.len() + self.inlined.len() + self.texts.len()) as u64
    }

    /// The offsets, ascending.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// What the file has at the offset with this number.
    pub fn symbol(&self, number: usize) -> Option<AtOffset> {
        let row = self.rows.get(number)?;
        let inside = row.inside.checked_sub(1);
        let Some(name) = row.name.checked_sub(1) else {
            return Some(AtOffset::Nameless { inside });
        };
        let text = |number| self.texts.get(number).unwrap_or_default().to_owned();
        let source = |file: u32, line| Some((text(file.checked_sub(1)?), line));
        let first = number
            .checked_sub(1)
            .and_then(|before| self.rows.get(before))
            .map_or(0, |row| row.inlined_end);
        let inlined = self
            .inlined
            .get(first as usize..row.inlined_end as usize)
            .unwrap_or_default();
        Some(AtOffset::Symbol(PackedSymbol {
            name: text(name),
            inside,
            source: source(row.source, row.line),
            inlined: inlined
                .iter()
                .map(|place| (text(place.name), source(place.source, place.line)))
                .collect(),
        }))
    }

    /// Appends the frame's content.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        meta::encode(out, WHAT, &self.file)?;
        self.texts.encode(out);
        leb128::write(out, self.offsets.len() as u64);
        let mut before = 0;
        let steps: Vec<u64> = self
            .offsets
            .iter()
            .map(|offset| offset - std::mem::replace(&mut before, *offset))
            .collect();
        columns::encode(out, &steps, Layout::Whole, Constant::Never);
        let mut column = |field: &dyn Fn(&Row) -> u64| {
            let values: Vec<u64> = self.rows.iter().map(field).collect();
            columns::encode(out, &values, Layout::Whole, Constant::Allowed);
        };
        column(&|row| u64::from(row.name));
        column(&|row| row.inside);
        column(&|row| u64::from(row.source));
        column(&|row| u64::from(row.line));
        let mut before = 0;
        let counts: Vec<u64> = self
            .rows
            .iter()
            .map(|row| u64::from(row.inlined_end - std::mem::replace(&mut before, row.inlined_end)))
            .collect();
        columns::encode(out, &counts, Layout::Whole, Constant::Allowed);
        let mut column = |field: &dyn Fn(&Place) -> u32, constant| {
            let values: Vec<u64> = self.inlined.iter().map(|p| u64::from(field(p))).collect();
            columns::encode(out, &values, Layout::Whole, constant);
        };
        column(&|place| place.name, Constant::Never);
        column(&|place| place.source, Constant::Allowed);
        column(&|place| place.line, Constant::Allowed);
        Ok(())
    }

    /// Decodes a frame's content.
    pub fn decode(content: &[u8]) -> Result<PackedSymbols, FormatError> {
        let input = &mut Input::new(WHAT, content);
        let value = content.len() as u64;
        let limit = limits::AID as u64;
        if value > limit {
            let what = "content size";
            return Err(input.error(Problem::OverLimit { what, value, limit }));
        }
        let file: FileKey = meta::decode(input, "identity")?;
        file.check(WHAT)?;
        let texts = Texts::decode(input)?;
        let count = input.count("number of symbols", limits::PACKED_SYMBOLS)?;
        let at = input.clone();
        let bad = |what, value| at.error(Problem::BadValue { what, value });
        if count == 0 {
            return Err(bad("number of symbols", 0));
        }
        let steps = columns::decode(input, count, "offset", u64::MAX, Constant::Never)?;
        let mut offsets = Vec::with_capacity(count);
        let mut offset = 0u64;
        for (i, step) in steps.into_iter().enumerate() {
            offset = offset
                .checked_add(step)
                .filter(|_| i == 0 || step > 0)
                .ok_or_else(|| bad("offset", step))?;
            offsets.push(offset);
        }
        let strings = texts.len() as u64;
        let line = u64::from(u32::MAX);
        let mut column =
            |count, what, max, constant| columns::decode(input, count, what, max, constant);
        const MAY: Constant = Constant::Allowed;
        let names = column(count, "name", strings, MAY)?;
        let insides = column(count, "distance", u64::MAX, MAY)?;
        let sources = column(count, "source file", strings, MAY)?;
        let lines = column(count, "line", line, MAY)?;
        let counts = column(count, "inlined functions", limits::PACKED_INLINED, MAY)?;
        let mut total = 0u64;
        let mut rows = Vec::with_capacity(count);
        let columns = names.into_iter().zip(insides).zip(sources).zip(lines);
        for ((((name, inside), source), line), inlined) in columns.zip(counts) {
            total += inlined;
            if total > limits::PACKED_INLINED {
                return Err(bad("number of inlined functions", total));
            }
            rows.push(Row {
                name: name as u32,
                inside,
                source: source as u32,
                line: line as u32,
                inlined_end: total as u32,
            });
        }
        let total = total as usize;
        let last = strings.saturating_sub(1);
        let names = column(total, "inlined name", last, Constant::Never)?;
        if strings == 0 && total > 0 {
            return Err(bad("inlined name", 0));
        }
        let sources = column(total, "inlined source file", strings, MAY)?;
        let lines = column(total, "inlined line", line, MAY)?;
        input.end(WHAT)?;
        let inlined = names.into_iter().zip(sources).zip(lines);
        Ok(PackedSymbols {
            file,
            texts,
            offsets,
            rows,
            inlined: inlined
                .map(|((name, source), line)| Place {
                    name: name as u32,
                    source: source as u32,
                    line: line as u32,
                })
                .collect(),
        })
    }
}

/// Collects symbols of one file, in ascending order of offsets.
#[derive(Debug)]
pub struct Builder {
    built: PackedSymbols,
    numbers: HashMap<String, u32>,
}

/// A frame is full at half of what it may hold, so that the next symbol always fits.
const FULL_SYMBOLS: usize = limits::PACKED_SYMBOLS as usize / 2;
const FULL_INLINED: usize = limits::PACKED_INLINED as usize / 8;
const FULL_TEXT: usize = limits::AID / 4;
/// Functions inlined at one place that are taken; no compiler nests them so deep.
const DEEPEST: usize = 4096;

impl Builder {
    /// Of which file.
    pub fn new(file: FileKey) -> Builder {
        Builder {
            built: PackedSymbols {
                file,
                texts: Texts::default(),
                offsets: Vec::new(),
                rows: Vec::new(),
                inlined: Vec::new(),
            },
            numbers: HashMap::new(),
        }
    }

    /// Adds what is at `offset`, which is larger than all before. Gives back whether it was taken: names beyond all measure are
    /// not.
    pub fn push(&mut self, offset: u64, here: &AtOffset) -> bool {
        let fits = |s: &PackedSymbol| {
            let source = s.source.iter().map(|(file, _)| file.len());
            let inlined = s.inlined.iter();
            let inlined =
                inlined.flat_map(|(n, s)| [n.len(), s.as_ref().map_or(0, |(f, _)| f.len())]);
            let lengths = [s.name.len()].into_iter().chain(source).chain(inlined);
            let (sum, most) = lengths.fold((0, 0), |(sum, most), n| (sum + n, most.max(n)));
            most as u64 <= limits::PACKED_STRING && sum <= FULL_TEXT && s.inlined.len() <= DEEPEST
        };
        let in_order = self.built.offsets.last().is_none_or(|last| *last < offset);
        let (symbol, inside) = match here {
            AtOffset::Symbol(symbol) => (Some(symbol), symbol.inside),
            AtOffset::Nameless { inside } => (None, *inside),
        };
        if !in_order || !symbol.is_none_or(fits) {
            return false;
        }
        let mut row = Row {
            name: 0,
            inside: inside.map_or(0, |bytes| bytes.saturating_add(1)),
            source: 0,
            line: 0,
            inlined_end: self.built.inlined.len() as u32,
        };
        if let Some(symbol) = symbol {
            row.name = self.text(&symbol.name) + 1;
            (row.source, row.line) = self.source(symbol.source.as_ref());
            for (name, source) in &symbol.inlined {
                let name = self.text(name);
                let (source, line) = self.source(source.as_ref());
                self.built.inlined.push(Place { name, source, line });
            }
            row.inlined_end = self.built.inlined.len() as u32;
        }
        self.built.offsets.push(offset);
        self.built.rows.push(row);
        true
    }

    /// Whether it should be written now and a new one be begun.
    pub fn is_full(&self) -> bool {
        self.built.rows.len() >= FULL_SYMBOLS
            || self.built.inlined.len() >= FULL_INLINED
            || self.built.texts.len() >= FULL_SYMBOLS
            || self.built.texts.bytes() >= FULL_TEXT
    }

    /// What was collected.
    pub fn finish(self) -> PackedSymbols {
        self.built
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.built.texts.push(text);
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn source(&mut self, source: Option<&(String, u32)>) -> (u32, u32) {
        source.map_or((0, 0), |(file, line)| (self.text(file) + 1, *line))
    }
}
