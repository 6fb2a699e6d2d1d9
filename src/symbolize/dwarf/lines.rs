//! The line table of a unit.

use std::cell::RefCell;

use gimli::{DebugLine, LineProgramHeader, Unit};
use hashbrown::HashMap;

use super::{Slice, in_code};
use crate::profile::{NameId, Names};
use crate::symbolize::flat::Flat;

/// Rows of a line table, and the files they speak of.
pub(super) struct Lines<'d> {
    header: LineProgramHeader<Slice<'d>>,
    /// Number of the sequence at an address.
    sequences: Flat<u32>,
    /// First row and the one after the last, of each sequence.
    spans: Vec<(u32, u32)>,
    rows: Vec<Row>,
    files: RefCell<HashMap<u64, Option<NameId>>>,
}

/// From this address on to the next row's.
struct Row {
    address: u64,
    file: u32,
    line: u32,
}

impl<'d> Lines<'d> {
    /// Runs the line program of a unit.
    pub fn read(
        section: DebugLine<Slice<'d>>,
        offset: gimli::DebugLineOffset,
        unit: &Unit<Slice<'d>>,
    ) -> Result<Lines<'d>, gimli::Error> {
        let size = unit.header.address_size();
        let program = section.program(offset, size, unit.comp_dir, unit.name)?;
        let mut program = program.rows();
        let mut rows: Vec<Row> = Vec::new();
        let (mut spans, mut sequences) = (Vec::new(), Vec::new());
        let mut first = 0;
        while let Some((_, row)) = program.next_row()? {
            let address = row.address();
            if row.end_sequence() {
                let begin = rows.get(first).map(|row: &Row| row.address);
                match begin {
                    Some(begin) if begin < address && in_code(begin) => {
                        sequences.push((begin, address, spans.len() as u32));
                        spans.push((first as u32, rows.len() as u32));
                    }
                    _ => rows.truncate(first),
                }
                first = rows.len();
                continue;
            }
            let line = row.line().map_or(0, |line| line.get());
            let next = Row {
                address,
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                line: u32::try_from(line).unwrap_or(0),
            };
            match rows.get_mut(first..).and_then(<[Row]>::last_mut) {
                // Of several rows at one address the last one holds.
                Some(last) if last.address == address => *last = next,
                Some(last) if last.file == next.file && last.line == next.line => {}
                _ => rows.push(next),
            }
        }
        rows.truncate(first);
        rows.shrink_to_fit();
        Ok(Lines {
            header: program.header().clone(),
            sequences: Flat::new(sequences),
            spans,
            rows,
            files: RefCell::default(),
        })
    }

    /// (file index, line) of an address; the line is 0 where code belongs to none.
    pub fn find(&self, address: u64) -> Option<(u64, u32)> {
        let (_, sequence) = self.sequences.find(address)?;
        let (first, end) = *self.spans.get(sequence as usize)?;
        let rows = self.rows.get(first as usize..end as usize)?;
        let after = rows.partition_point(|row| row.address <= address);
        let row = rows.get(after.checked_sub(1)?)?;
        Some((u64::from(row.file), row.line))
    }

    /// The path of a file: the directory of the compilation, the file's directory and its name.
    pub fn file(
        &self,
        index: u64,
        dwarf: &gimli::Dwarf<Slice<'d>>,
        unit: &Unit<Slice<'d>>,
        names: &mut Names,
    ) -> Option<NameId> {
        *self
            .files
            .borrow_mut()
            .entry(index)
            .or_insert_with(|| self.path(index, dwarf, unit).map(|p| names.intern(&p)))
    }

    fn path(
        &self,
        index: u64,
        dwarf: &gimli::Dwarf<Slice<'d>>,
        unit: &Unit<Slice<'d>>,
    ) -> Option<String> {
        let file = self.header.file(index)?;
        let mut path = unit.comp_dir.map_or_else(String::new, |dir| text(&dir));
        // Directory 0 is that of the compilation.
        if file.directory_index() != 0
            && let Some(dir) = file.directory(&self.header)
        {
            push(&mut path, &text(&dwarf.attr_string(unit, dir).ok()?));
        }
        let name = dwarf.attr_string(unit, file.path_name()).ok()?;
        push(&mut path, &text(&name));
        Some(path)
    }

    /// Rough number of things kept.
    pub fn weight(&self) -> usize {
        self.rows.len() + self.spans.len()
    }
}

fn text(slice: &Slice<'_>) -> String {
    String::from_utf8_lossy(slice.slice()).into_owned()
}

fn push(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}
