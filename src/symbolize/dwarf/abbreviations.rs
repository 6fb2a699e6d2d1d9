//! Tables of abbreviations: what the DIEs of a unit look like.

use std::sync::Arc;

use gimli::{Abbreviations, DebugAbbrev, DebugAbbrevOffset, Reader, Section, UnitHeader};
use hashbrown::HashMap;

use super::Slice;

type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;

/// Tables kept at most. Units of one object file follow each other and have one table.
const KEPT: usize = 16;

/// Tables that were read lately, by whether they are of the supplementary file, and by where they are.
#[derive(Default)]
pub(super) struct Tables {
    known: HashMap<(bool, usize), Arc<Abbreviations>>,
}

impl Tables {
    /// The table of a unit.
    pub fn of(
        &mut self,
        dwarf: &Dwarf<'_>,
        sup: bool,
        header: &UnitHeader<Slice<'_>>,
    ) -> Result<Arc<Abbreviations>, gimli::Error> {
        let key = (sup, header.debug_abbrev_offset().0);
        if let Some(known) = self.known.get(&key) {
            return Ok(Arc::clone(known));
        }
        let table = Arc::new(header.abbreviations(&dwarf.debug_abbrev)?);
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        self.known.insert(key, Arc::clone(&table));
        Ok(table)
    }
}

/// Tables for the roots of units only: what has to be read of all units should not need all of all tables.
#[derive(Default)]
pub(super) struct Roots {
    /// The last one, with its bytes: those of units by one compiler are alike.
    last: Option<(Vec<u8>, Arc<Abbreviations>)>,
}

impl Roots {
    /// The table of a unit as far as its root needs it.
    pub fn of(
        &mut self,
        dwarf: &Dwarf<'_>,
        header: &UnitHeader<Slice<'_>>,
    ) -> Result<Arc<Abbreviations>, gimli::Error> {
        let first = first(dwarf, header.debug_abbrev_offset())?;
        let table = match &self.last {
            Some((bytes, table)) if bytes == first => Arc::clone(table),
            _ => {
                let mut alone = first.to_vec();
                // The end of a table.
                alone.push(0);
                let section = DebugAbbrev::new(&alone, gimli::LittleEndian);
                let table = Arc::new(section.abbreviations(DebugAbbrevOffset(0))?);
                self.last = Some((first.to_vec(), Arc::clone(&table)));
                table
            }
        };
        // Nearly always the root is what is declared first.
        match header.entries_raw(&table, None)?.read_abbreviation() {
            Ok(_) => Ok(table),
            Err(_) => header.abbreviations(&dwarf.debug_abbrev).map(Arc::new),
        }
    }
}

/// The first declaration of the table at `offset` (DWARF 5, 7.5.3), or nothing of an empty one.
fn first<'d>(dwarf: &Dwarf<'d>, offset: DebugAbbrevOffset) -> Result<&'d [u8], gimli::Error> {
    let mut rest = *dwarf.debug_abbrev.reader();
    rest.skip(offset.0)?;
    let all = rest;
    if rest.read_uleb128()? == 0 {
        return Ok(&[]);
    }
    // Its tag, and whether it has children.
    rest.read_uleb128()?;
    rest.read_u8()?;
    loop {
        let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
        if form == u64::from(gimli::DW_FORM_implicit_const.0) {
            rest.read_sleb128()?;
        }
        if (name, form) == (0, 0) {
            break;
        }
    }
    let len = all.len() - rest.len();
    Ok(all.slice().get(..len).unwrap_or_default())
}
