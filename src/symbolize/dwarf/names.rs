//! Names of functions: the linker's, demangled, where DWARF has it, else put together from the scopes.

use super::info::Info;
use super::unit::DieAt;
use crate::profile::{NameId, Names};
use crate::symbolize::functions::demangle;

/// References followed, and scopes put in front, at most.
const MAX_STEPS: usize = 16;

/// Longer names are none.
const MAX_NAME: usize = 1 << 16;

/// Stands for a type without a name.
const UNNAMED: &str = "{unnamed}";

/// A name as it is in the file.
struct Raw<'d> {
    text: &'d [u8],
    /// It is the linker's.
    linkage: bool,
    /// Whose name it is.
    at: DieAt,
}

impl<'d> Info<'d> {
    /// The name of the function at a DIE, and whether it is the linker's. `None` for one that has none.
    pub(super) fn name(&mut self, die: DieAt, names: &mut Names) -> Option<(NameId, bool)> {
        if let Some(known) = self.names.get(&die) {
            return *known;
        }
        let raw = self.raw_name(die, MAX_STEPS);
        let name = raw.map(|raw| {
            let text = String::from_utf8_lossy(raw.text);
            let full = if raw.linkage {
                demangle(&text)
            } else {
                let mut scopes = self.scopes(raw.at);
                if let Some(scope) = scopes.last_mut()
                    && text == "operator()"
                    && scope == UNNAMED
                {
                    "{lambda}".clone_into(scope);
                }
                scopes.push(text.into_owned());
                scopes.join("::")
            };
            (names.intern(&full), raw.linkage)
        });
        self.names.insert(die, name);
        name
    }

    /// The name at a DIE or at what it is the instance or the definition of; the linker's is preferred.
    fn raw_name(&mut self, die: DieAt, steps: usize) -> Option<Raw<'d>> {
        let steps = steps.checked_sub(1)?;
        let (data, offset) = self.unit_of(die)?;
        let dwarf = match (die.sup, self.dwarf.sup()) {
            (true, sup) => sup?,
            (false, _) => &self.dwarf,
        };
        let mut entries = data.unit.entries_raw(Some(offset)).ok()?;
        let abbrev = entries.read_abbreviation().ok()??;
        let (mut own, mut next) = (None, None);
        for spec in abbrev.attributes() {
            let attr = entries.read_attribute(*spec).ok()?;
            let linkage = match attr.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => true,
                gimli::DW_AT_name => false,
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    next = data.target(die.sup, attr.value());
                    continue;
                }
                _ => continue,
            };
            let text = dwarf.attr_string(&data.unit, attr.value()).ok();
            let text = text.map(|text| text.slice());
            let text = text.filter(|text| (1..MAX_NAME).contains(&text.len()));
            if let Some(text) = text
                && (linkage || own.is_none())
            {
                own = Some(Raw {
                    text,
                    linkage,
                    at: die,
                });
            }
        }
        match (own, next) {
            (Some(own), _) if own.linkage => Some(own),
            (own, Some(next)) => {
                let further = self.raw_name(next, steps);
                match (own, further) {
                    (own, Some(further)) if further.linkage || own.is_none() => Some(further),
                    (own, _) => own,
                }
            }
            (own, None) => own,
        }
    }

    /// Names of what a DIE is in, outermost first.
    fn scopes(&mut self, die: DieAt) -> Vec<String> {
        let mut scopes = Vec::new();
        let mut at = die;
        while scopes.len() < MAX_STEPS {
            let Some((data, offset)) = self.unit_of(at) else {
                break;
            };
            let dwarf = match (at.sup, self.dwarf.sup()) {
                (true, Some(sup)) => sup,
                _ => &self.dwarf,
            };
            let Ok(Some(scope)) = data.scope_of(dwarf, offset) else {
                break;
            };
            at = data.die_at(at.sup, scope);
            scopes.push(self.scope_name(at));
        }
        scopes.reverse();
        scopes
    }

    fn scope_name(&mut self, at: DieAt) -> String {
        match self.raw_name(at, MAX_STEPS) {
            Some(raw) if raw.linkage => demangle(&String::from_utf8_lossy(raw.text)),
            Some(raw) => String::from_utf8_lossy(raw.text).into_owned(),
            // As the linker's names have it once they are demangled.
            None if self.is_namespace(at) => "(anonymous namespace)".to_owned(),
            None => UNNAMED.to_owned(),
        }
    }

    fn is_namespace(&mut self, at: DieAt) -> bool {
        let Some((data, offset)) = self.unit_of(at) else {
            return false;
        };
        let Ok(mut entries) = data.unit.entries_raw(Some(offset)) else {
            return false;
        };
        let abbrev = entries.read_abbreviation();
        abbrev.is_ok_and(|abbrev| abbrev.is_some_and(|a| a.tag() == gimli::DW_TAG_namespace))
    }
}
