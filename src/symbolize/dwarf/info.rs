//! All units of one file.

use std::rc::Rc;

use gimli::{DwarfPackage, DwoId, SectionId, UnitHeader};
use hashbrown::HashMap;

use super::unit::{Call, DieAt, UnitData};
use super::{Slice, abbreviations, broken};
use crate::profile::{NameId, Names, SourceLine};
use crate::symbolize::flat::Flat;
use crate::symbolize::sections::Sections;

use super::lines::Lines;

/// Functions and rows kept at most, of all units together; about 100 MB.
const KEPT: usize = 4 << 20;

/// Units of a file and what was read of them.
pub(super) struct Info<'d> {
    pub(super) dwarf: gimli::Dwarf<Slice<'d>>,
    headers: Vec<UnitHeader<Slice<'d>>>,
    sup_headers: Vec<UnitHeader<Slice<'d>>>,
    by_address: Flat<u32>,
    /// Units that do not say where their code is.
    unplaced: Vec<u32>,
    /// Where it is, by their functions. To find out costs reading all of them: only when an address is in no other unit.
    by_function: Option<Flat<u32>>,
    abbreviations: abbreviations::Tables,
    units: HashMap<(bool, u32), Rc<UnitData<'d>>>,
    /// Values of what the parent of a split unit knows.
    inherited: Option<Inherited>,
    /// Names by DIE, with whether they are the linker's.
    pub(super) names: HashMap<DieAt, Option<(NameId, bool)>>,
}

/// What a split unit takes from the unit that names it.
#[derive(Debug, Clone)]
struct Inherited {
    low_pc: u64,
    addr_base: gimli::DebugAddrBase<usize>,
    rnglists_base: gimli::DebugRngListsBase<usize>,
}

/// A unit that is in another file.
#[derive(Debug)]
pub(super) struct Wanted {
    id: DwoId,
    pub name: Vec<u8>,
    pub comp_dir: Option<Vec<u8>>,
    inherited: Inherited,
}

/// A function at an address, with what is inlined there, outermost first.
pub(super) struct NamedHit {
    pub name: Option<NameId>,
    /// The name is put together, and the language has more in its names than that.
    pub plain: bool,
    /// Bytes from where the function is entered; `None` where that comes later.
    pub inside: Option<u64>,
    pub calls: Vec<(NameId, Call)>,
}

impl<'d> Info<'d> {
    /// The units of a file, with the file dwz has moved things to.
    pub fn main(own: &'d Sections, sup: Option<&'d Sections>) -> Result<Info<'d>, String> {
        let mut dwarf = load(own)?;
        let mut sup_headers = Vec::new();
        if let Some(sup) = sup {
            let sup = load(sup)?;
            sup_headers = headers(&sup).map_err(broken)?;
            dwarf.set_sup(sup);
        }
        let all = headers(&dwarf).map_err(broken)?;
        let mut info = Info::new(dwarf, all, sup_headers);
        info.index();
        Ok(info)
    }

    /// The unit `wanted` of a `.dwo` or `.dwp` file.
    pub fn split(
        own: &'d Sections,
        parent: &'d Sections,
        wanted: &Wanted,
    ) -> Result<Info<'d>, String> {
        let parent = load(parent)?;
        let dwarf = if own.has(SectionId::DebugCuIndex) {
            // All its sections have to be there: the index cuts its share out of each.
            let section = |id| {
                let bytes = own.get(id).map_err(Problem)?;
                Ok(Slice::new(bytes, gimli::LittleEndian))
            };
            let package = DwarfPackage::load(section, Slice::default())
                .map_err(|problem: Problem| problem.0)?;
            let found = package.find_cu(wanted.id, &parent).map_err(broken)?;
            found.ok_or("the package does not have the unit")?
        } else {
            let mut dwarf = load(own)?;
            dwarf.make_dwo(&parent);
            dwarf
        };
        let (mut found, mut roots) = (None, abbreviations::Roots::default());
        for header in headers(&dwarf).map_err(broken)? {
            let root = roots.of(&dwarf, &header).map_err(broken)?;
            let unit = UnitData::read(&dwarf, header, root).map_err(broken)?;
            if unit.unit.dwo_id == Some(wanted.id) {
                found = Some(header);
                break;
            }
        }
        // Another build of the object file has another ID.
        let header = found.ok_or("it does not have the unit")?;
        let mut info = Info::new(dwarf, vec![header], Vec::new());
        info.inherited = Some(wanted.inherited.clone());
        Ok(info)
    }

    fn new(
        dwarf: gimli::Dwarf<Slice<'d>>,
        headers: Vec<UnitHeader<Slice<'d>>>,
        sup_headers: Vec<UnitHeader<Slice<'d>>>,
    ) -> Info<'d> {
        Info {
            dwarf,
            headers,
            sup_headers,
            by_address: Flat::default(),
            unplaced: Vec::new(),
            by_function: None,
            abbreviations: abbreviations::Tables::default(),
            units: HashMap::new(),
            inherited: None,
            names: HashMap::new(),
        }
    }

    /// Finds out which unit is where, as far as their roots say.
    fn index(&mut self) {
        let (mut ranges, mut roots) = (Vec::new(), abbreviations::Roots::default());
        for (number, header) in self.headers.iter().enumerate() {
            let number = number as u32;
            // A unit that cannot be read has no addresses; others can have them.
            let root = roots.of(&self.dwarf, header);
            let Ok(unit) = root.and_then(|root| UnitData::read(&self.dwarf, *header, root)) else {
                continue;
            };
            match unit.ranges {
                Some(own) => {
                    ranges.extend(own.into_iter().map(|(begin, end)| (begin, end, number)))
                }
                None if unit.split.is_none() && may_have_code(header) => self.unplaced.push(number),
                None => {}
            }
        }
        self.by_address = Flat::new(ranges);
    }

    /// The unit that covers an address.
    pub fn unit_at(&mut self, address: u64) -> Option<u32> {
        let found = self.by_address.find(address);
        let found = found.or_else(|| match &self.by_function {
            Some(known) => known.find(address),
            None => {
                let known = self.place_others();
                self.by_function.insert(known).find(address)
            }
        });
        found.map(|(_, unit)| unit)
    }

    /// Where the functions of the units are that do not say it themselves.
    fn place_others(&mut self) -> Flat<u32> {
        let mut ranges = Vec::new();
        for number in std::mem::take(&mut self.unplaced) {
            let Some(header) = self.headers.get(number as usize) else {
                continue;
            };
            let table = self.abbreviations.of(&self.dwarf, false, header);
            let unit = table.and_then(|table| UnitData::read(&self.dwarf, *header, table));
            let own = unit.and_then(|unit| unit.function_ranges(&self.dwarf));
            let own = own.unwrap_or_default().into_iter();
            ranges.extend(own.map(|(begin, end)| (begin, end, number)));
        }
        Flat::new(ranges)
    }

    /// Where the functions of a unit are, if not here.
    pub fn split_of(&mut self, unit: u32) -> Option<Wanted> {
        let data = self.unit(false, unit).ok()?;
        let (id, name) = data.split?;
        Some(Wanted {
            id,
            name: name.slice().to_vec(),
            comp_dir: data.unit.comp_dir.map(|dir| dir.slice().to_vec()),
            inherited: Inherited {
                low_pc: data.unit.low_pc,
                addr_base: data.unit.addr_base,
                rnglists_base: data.unit.rnglists_base,
            },
        })
    }

    /// The function at an address of a unit.
    pub fn function_at(
        &mut self,
        unit: u32,
        address: u64,
        names: &mut Names,
    ) -> Result<Option<NamedHit>, String> {
        let data = self.unit(false, unit).map_err(broken)?;
        let Some(hit) = data.find(&self.dwarf, false, address).map_err(broken)? else {
            return Ok(None);
        };
        let function = self.name(hit.function, names);
        let calls = hit.calls.iter().map(|call| {
            // An inlined function without a name is shown as the function it is in.
            let name = self.name(call.callee, names).or(function);
            (name.map_or(Names::EMPTY, |(name, _)| name), *call)
        });
        let calls = calls.collect();
        Ok(Some(NamedHit {
            name: function.map(|(name, _)| name),
            plain: data.scoped && function.is_some_and(|(_, linkage)| !linkage),
            inside: hit.inside,
            calls,
        }))
    }

    /// Where in the source the function is left for each inlined one, outermost first, and where the innermost
    /// is at `address`.
    pub fn sources(
        &mut self,
        own: &'d Sections,
        (unit, address): (u32, u64),
        calls: &[(NameId, Call)],
        names: &mut Names,
    ) -> Result<Vec<Option<SourceLine>>, String> {
        let data = self.unit(false, unit).map_err(broken)?;
        let lines = match data.lines.get() {
            Some(lines) => lines,
            None => {
                let section = own.get(SectionId::DebugLine)?;
                let section = gimli::DebugLine::new(section, gimli::LittleEndian);
                data.lines.get_or_init(|| {
                    let offset = data.line_program;
                    offset
                        .map(|offset| Lines::read(section, offset, &data.unit))
                        .transpose()
                })
            }
        };
        let Some(lines) = lines.as_ref().map_err(|err| broken(*err))? else {
            return Ok(Vec::new());
        };
        let dwarf = &self.dwarf;
        // Line 0 is code of no line.
        let mut place = |file: Option<u64>, line: u32| {
            let file = file.filter(|_| line > 0);
            let file = lines.file(file?, dwarf, &data.unit, names)?;
            Some(SourceLine { file, line })
        };
        let mut sources: Vec<Option<SourceLine>> = calls
            .iter()
            .map(|(_, call)| place(call.file, call.line))
            .collect();
        let row = lines.find(address);
        sources.push(row.and_then(|(file, line)| place(Some(file), line)));
        Ok(sources)
    }

    /// A unit by its number.
    pub(super) fn unit(
        &mut self,
        sup: bool,
        number: u32,
    ) -> Result<Rc<UnitData<'d>>, gimli::Error> {
        if let Some(known) = self.units.get(&(sup, number)) {
            return Ok(Rc::clone(known));
        }
        if self.units.len() % 64 == 63 {
            let kept: usize = self.units.values().map(|unit| unit.weight() + 64).sum();
            if kept > KEPT {
                self.units.clear();
            }
        }
        let headers = if sup {
            &self.sup_headers
        } else {
            &self.headers
        };
        let header = headers.get(number as usize);
        let header = header.ok_or(gimli::Error::NoEntryAtGivenOffset(0))?;
        let dwarf = match (sup, self.dwarf.sup()) {
            (true, Some(dwarf)) => dwarf,
            _ => &self.dwarf,
        };
        let table = self.abbreviations.of(dwarf, sup, header)?;
        let mut data = UnitData::read(dwarf, *header, table)?;
        if let Some(inherited) = &self.inherited {
            data.unit.low_pc = inherited.low_pc;
            data.unit.addr_base = inherited.addr_base;
            if data.unit.header.version() < 5 {
                data.unit.rnglists_base = inherited.rnglists_base;
            }
        }
        let data = Rc::new(data);
        self.units.insert((sup, number), Rc::clone(&data));
        Ok(data)
    }

    /// The unit a DIE is in, and where in it.
    pub(super) fn unit_of(
        &mut self,
        die: DieAt,
    ) -> Option<(Rc<UnitData<'d>>, gimli::UnitOffset<usize>)> {
        let headers = if die.sup {
            &self.sup_headers
        } else {
            &self.headers
        };
        let start = |header: &UnitHeader<Slice<'d>>| header.debug_info_offset().map_or(0, |o| o.0);
        let after = headers.partition_point(|header| start(header) <= die.offset);
        let number = after.checked_sub(1)?;
        let inside = die.offset.checked_sub(start(headers.get(number)?))?;
        let data = self.unit(die.sup, number as u32).ok()?;
        Some((data, gimli::UnitOffset(inside)))
    }
}

/// Why a section was not had.
struct Problem(String);

impl From<gimli::Error> for Problem {
    fn from(err: gimli::Error) -> Problem {
        Problem(broken(err))
    }
}

/// A section of those that are read here; others are as if they were not there.
fn part(sections: &Sections, id: SectionId) -> Result<Slice<'_>, Problem> {
    let bytes = match id {
        // Line tables are read when lines are wanted.
        SectionId::DebugLine => &[],
        id => sections.get(id).map_err(Problem)?,
    };
    Ok(Slice::new(bytes, gimli::LittleEndian))
}

fn load(sections: &Sections) -> Result<gimli::Dwarf<Slice<'_>>, String> {
    sections.inflate(|id| !matches!(id, SectionId::DebugLine | SectionId::DebugFrame));
    gimli::Dwarf::load(|id| part(sections, id)).map_err(|problem| problem.0)
}

/// Headers of all units, in the order of their offsets.
fn headers<'d>(
    dwarf: &gimli::Dwarf<Slice<'d>>,
) -> Result<Vec<UnitHeader<Slice<'d>>>, gimli::Error> {
    let mut all = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        all.push(header);
    }
    Ok(all)
}

fn may_have_code(header: &UnitHeader<Slice<'_>>) -> bool {
    matches!(
        header.type_(),
        gimli::UnitType::Compilation | gimli::UnitType::SplitCompilation(_)
    )
}
