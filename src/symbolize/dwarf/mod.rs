//! Functions, inlined functions and lines of addresses, out of DWARF 4 and 5, by gimli.
//!
//! Units are read when an address in them is asked for, each in two steps (which functions are where; what is
//! inlined into one function), and line tables only when lines are wanted. What was read is kept up to a limit, so
//! addresses should come sorted.

mod abbreviations;
mod extent;
mod info;
mod lines;
mod names;
#[cfg(test)]
mod tests;
mod unit;

use std::rc::Rc;

use gimli::{EndianSlice, LittleEndian};
use hashbrown::HashMap;
use self_cell::self_cell;

use super::sections::Sections;
use crate::profile::{NameId, Names, SourceLine};

use info::Info;
use unit::Call;

/// DWARF is only read from files of the machines that are recorded on.
type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// What a debug file needs of others is looked for by this.
pub(super) trait Companions {
    /// The `.dwp` file that belongs to the debug file, or the `.dwo` file of this name and directory.
    fn split(&mut self, comp_dir: Option<&[u8]>, name: &[u8]) -> Vec<Rc<Sections>>;
}

/// What is known of an address.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The function, and the bytes from where it is entered; `None` where that comes later.
    pub function: Option<(NameId, Option<u64>)>,
    /// The function's name is put together from DWARF; that of the linker says more, such as its parameters.
    pub plain: bool,
    /// Where in the source, in the function itself.
    pub source: Option<SourceLine>,
    /// Functions inlined there, outermost first.
    pub inlined: Vec<(NameId, Option<SourceLine>)>,
}

/// The files an [`Info`] is made of.
struct Owner {
    own: Rc<Sections>,
    /// Of a `.dwo` file: the file that names it.
    parent: Option<Rc<Sections>>,
    /// What dwz has moved out.
    sup: Option<Rc<Sections>>,
}

self_cell!(
    struct InfoCell {
        owner: Owner,
        #[not_covariant]
        dependent: Info,
    }
);

/// The debug information of one file.
pub(super) struct DebugInfo {
    info: InfoCell,
    /// Units that are in other files, by number of the unit here; `None` where that was not found.
    splits: HashMap<u32, Option<InfoCell>>,
    own: Rc<Sections>,
    sup: Option<Rc<Sections>>,
    companions: Box<dyn Companions>,
    /// What could not be read, the first of it.
    problem: Option<String>,
    /// Names of files that were not found.
    not_found: Vec<String>,
}

impl DebugInfo {
    /// Reads which units there are. Fails with a message when nothing can be had of the file.
    pub fn open(
        own: Rc<Sections>,
        sup: Option<Rc<Sections>>,
        companions: Box<dyn Companions>,
    ) -> Result<DebugInfo, String> {
        let owner = Owner {
            own: Rc::clone(&own),
            parent: None,
            sup: sup.clone(),
        };
        Ok(DebugInfo {
            info: InfoCell::try_new(owner, |owner| Info::main(&owner.own, owner.sup.as_deref()))?,
            splits: HashMap::new(),
            own,
            sup,
            companions,
            problem: None,
            not_found: Vec::new(),
        })
    }

    /// What is at `address`, with lines or without. All calls must be given the same `names`.
    pub fn find(&mut self, address: u64, lines: bool, names: &mut Names) -> Option<Found> {
        let unit = self
            .info
            .with_dependent_mut(|_, info| info.unit_at(address))?;
        let answer = match self.split(unit) {
            Some(split) => split.with_dependent_mut(|_, info| info.function_at(0, address, names)),
            None => self
                .info
                .with_dependent_mut(|_, info| info.function_at(unit, address, names)),
        };
        let answer = self.keep(answer).flatten();
        let mut found = Found::default();
        let calls: &[(NameId, Call)] = match &answer {
            Some(hit) => {
                found.function = hit.name.map(|name| (name, hit.inside));
                found.plain = hit.plain;
                &hit.calls
            }
            None => &[],
        };
        let mut sources = if lines {
            let sources = self.info.with_dependent_mut(|owner, info| {
                info.sources(&owner.own, (unit, address), calls, names)
            });
            self.keep(sources).unwrap_or_default().into_iter()
        } else {
            Vec::new().into_iter()
        };
        found.source = sources.next().flatten();
        let inlined = calls.iter().map(|(name, _)| *name);
        found.inlined = inlined
            .map(|name| (name, sources.next().flatten()))
            .collect();
        Some(found)
    }

    /// What could not be read, since the last call.
    pub fn take_problem(&mut self) -> Option<String> {
        self.problem.take()
    }

    /// Files that would be needed and were not found, since the last call.
    pub fn take_not_found(&mut self) -> Vec<String> {
        std::mem::take(&mut self.not_found)
    }

    fn keep<T>(&mut self, answer: Result<T, String>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problem.get_or_insert(problem);
                None
            }
        }
    }

    /// The other file that has the functions of a unit.
    fn split(&mut self, unit: u32) -> Option<&mut InfoCell> {
        let wanted = self
            .info
            .with_dependent_mut(|_, info| info.split_of(unit))?;
        if !self.splits.contains_key(&unit) {
            let candidates = self
                .companions
                .split(wanted.comp_dir.as_deref(), &wanted.name);
            let opened = candidates.into_iter().find_map(|sections| {
                let owner = Owner {
                    own: sections,
                    parent: Some(Rc::clone(&self.own)),
                    sup: self.sup.clone(),
                };
                InfoCell::try_new(owner, |owner| {
                    let parent = owner.parent.as_deref().ok_or("no parent")?;
                    Info::split(&owner.own, parent, &wanted)
                })
                .ok()
            });
            if opened.is_none() {
                self.not_found
                    .push(String::from_utf8_lossy(&wanted.name).into_owned());
            }
            self.splits.insert(unit, opened);
        }
        self.splits.get_mut(&unit)?.as_mut()
    }
}

/// Whether code can begin at `address`: linkers give code they have thrown away addresses near 0 or near the end.
fn in_code(address: u64) -> bool {
    (2..u64::MAX - 0x1000).contains(&address)
}

/// A message of what gimli did not like.
fn broken(err: gimli::Error) -> String {
    format!("broken DWARF: {err}")
}
