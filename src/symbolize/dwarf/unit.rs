//! One compilation unit: its root, its functions, and what was inlined into them.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{
    Abbreviation, Abbreviations, AttributeValue, DebugInfoOffset, DebugLineOffset,
    DebugLocListsBase, DebugRngListsBase, DebugStrOffsetsBase, DwoId, EntriesRaw, Unit, UnitHeader,
    UnitOffset, UnitType,
};
use hashbrown::HashMap;

use super::Slice;
use super::extent::{Extent, MAX_RANGES};
use super::lines::Lines;
use crate::symbolize::flat::Flat;

type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;
type Value<'d> = AttributeValue<Slice<'d>>;

/// Where a DIE is: of the file itself or of its supplementary file, at this offset of `.debug_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DieAt {
    pub sup: bool,
    pub offset: usize,
}

/// A unit with what of it has been read.
pub(super) struct UnitData<'d> {
    pub unit: Unit<Slice<'d>>,
    /// Address ranges that the root gives; `None`: it does not say.
    pub ranges: Option<Vec<(u64, u64)>>,
    /// Where its line table is.
    pub line_program: Option<DebugLineOffset>,
    /// Its functions are in another file: the ID of the unit there, and the file's name.
    pub split: Option<(DwoId, Slice<'d>)>,
    /// Names of its language are made of scopes.
    pub scoped: bool,
    functions: OnceCell<Result<Functions, gimli::Error>>,
    pub lines: OnceCell<Result<Option<Lines<'d>>, gimli::Error>>,
}

/// Functions of a unit.
pub(super) struct Functions {
    by_address: Flat<u32>,
    /// Where each is, by number, and where it is entered: its first range begins there (DWARF 5, 2.18).
    dies: Vec<(UnitOffset, u64)>,
    /// Functions and scopes that are inside of another scope: (DIE, DIE of the scope), ascending.
    scopes: Vec<(u32, u32)>,
    trees: RefCell<HashMap<u32, Rc<Tree>>>,
}

/// What was inlined into a function.
#[derive(Default)]
struct Tree {
    calls: Vec<Call>,
    /// (depth, begin, end, index into `calls`), sorted.
    ranges: Vec<(u32, u64, u64, u32)>,
}

/// A call that was inlined.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    /// The function that was called.
    pub callee: DieAt,
    /// Index of the file, of the unit's line table, where it was called.
    pub file: Option<u64>,
    /// Line there, 0 when unknown.
    pub line: u32,
}

/// A function at an address.
pub(super) struct Hit {
    pub function: DieAt,
    /// Bytes from where the function is entered; `None` where that comes later: what is rarely run is often put before all else.
    pub inside: Option<u64>,
    /// What was inlined there, outermost first.
    pub calls: Vec<Call>,
}

impl<'d> UnitData<'d> {
    /// Reads the root of a unit, of which `abbreviations` has the declaration. Unlike gimli's own constructor it leaves line
    /// tables alone: a report without lines does not read them, and a broken one costs lines, not names.
    pub fn read(
        dwarf: &Dwarf<'d>,
        header: UnitHeader<Slice<'d>>,
        abbreviations: Arc<Abbreviations>,
    ) -> Result<UnitData<'d>, gimli::Error> {
        let (encoding, file_type) = (header.encoding(), dwarf.file_type);
        let mut unit = Unit {
            abbreviations,
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(
                encoding, file_type,
            ),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
            rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
            line_program: None,
            dwo_id: match header.type_() {
                UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
                _ => None,
            },
            header,
        };
        let mut extent = Extent::default();
        let (mut name, mut comp_dir, mut dwo_name, mut low) = (None, None, None, None);
        let (mut line_program, mut scoped) = (None, false);
        {
            let abbreviations = unit.abbreviations.clone();
            let mut entries = unit.header.entries_raw(&abbreviations, None)?;
            let root = entries.read_abbreviation()?;
            let root = root.ok_or(gimli::Error::MissingUnitDie)?;
            for spec in root.attributes() {
                let attr = entries.read_attribute(*spec)?;
                let value = attr.value();
                match (attr.name(), value) {
                    (gimli::DW_AT_name, value) => name = Some(value),
                    (gimli::DW_AT_comp_dir, value) => comp_dir = Some(value),
                    (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, value) => {
                        dwo_name = Some(value);
                    }
                    (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => {
                        line_program = Some(offset);
                    }
                    (gimli::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                        unit.str_offsets_base = base
                    }
                    (
                        gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base,
                        AttributeValue::DebugAddrBase(base),
                    ) => unit.addr_base = base,
                    (
                        gimli::DW_AT_rnglists_base | gimli::DW_AT_GNU_ranges_base,
                        AttributeValue::DebugRngListsBase(base),
                    ) => unit.rnglists_base = base,
                    (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => unit.dwo_id = Some(id),
                    (gimli::DW_AT_language, AttributeValue::Language(language)) => {
                        scoped = has_scopes(language);
                    }
                    (attribute, value) => {
                        if attribute == gimli::DW_AT_low_pc {
                            low = Some(value);
                        }
                        extent.take(attribute, value);
                    }
                }
            }
        }
        // Strings and addresses may need bases that come later in the list.
        let text = |unit: &Unit<_>, value: Option<Value<'d>>| {
            value.and_then(|value| dwarf.attr_string(unit, value).ok())
        };
        unit.name = text(&unit, name);
        unit.comp_dir = text(&unit, comp_dir);
        if let Some(low) = low
            && let Some(address) = dwarf.attr_address(&unit, low)?
        {
            unit.low_pc = address;
        }
        let (is_told, mut ranges) = (extent.is_told(), Vec::new());
        let mut budget = MAX_RANGES;
        extent.resolve(dwarf, &unit, &mut budget, |begin, end| {
            ranges.push((begin, end));
        })?;
        let is_skeleton = dwarf.file_type == gimli::DwarfFileType::Main;
        let split = match (unit.dwo_id, text(&unit, dwo_name)) {
            (Some(id), Some(name)) if is_skeleton => Some((id, name)),
            _ => None,
        };
        Ok(UnitData {
            unit,
            ranges: is_told.then_some(ranges),
            line_program,
            split,
            scoped,
            functions: OnceCell::new(),
            lines: OnceCell::new(),
        })
    }

    /// What is at `address`.
    pub fn find(
        &self,
        dwarf: &Dwarf<'d>,
        sup: bool,
        address: u64,
    ) -> Result<Option<Hit>, gimli::Error> {
        let functions = self.functions(dwarf)?;
        let Some((_, number)) = functions.by_address.find(address) else {
            return Ok(None);
        };
        let Some((die, entry)) = functions.dies.get(number as usize) else {
            return Ok(None);
        };
        let known = functions.trees.borrow().get(&number).cloned();
        let tree = match known {
            Some(tree) => tree,
            None => {
                let tree = Rc::new(self.tree(dwarf, sup, *die)?);
                let mut trees = functions.trees.borrow_mut();
                trees.insert(number, Rc::clone(&tree));
                tree
            }
        };
        Ok(Some(Hit {
            function: self.die_at(sup, *die),
            inside: address.checked_sub(*entry),
            calls: tree.at(address),
        }))
    }

    /// Address ranges of all functions, for units whose root does not tell.
    pub fn function_ranges(&self, dwarf: &Dwarf<'d>) -> Result<Vec<(u64, u64)>, gimli::Error> {
        let mut ranges = Vec::new();
        self.walk(dwarf, |begin, end, _| ranges.push((begin, end)))?;
        Ok(ranges)
    }

    /// Rough number of things kept of this unit.
    pub fn weight(&self) -> usize {
        let functions = match self.functions.get() {
            Some(Ok(f)) => {
                let trees = f.trees.borrow();
                let inlined: usize = trees.values().map(|tree| tree.ranges.len()).sum();
                f.by_address.len() + f.dies.len() + f.scopes.len() + 2 * inlined
            }
            _ => 0,
        };
        let lines = match self.lines.get() {
            Some(Ok(Some(lines))) => lines.weight(),
            _ => 0,
        };
        functions + lines
    }

    /// The scope a DIE is in.
    pub fn scope_of(
        &self,
        dwarf: &Dwarf<'d>,
        die: UnitOffset,
    ) -> Result<Option<UnitOffset>, gimli::Error> {
        if !self.scoped {
            return Ok(None);
        }
        let scopes = &self.functions(dwarf)?.scopes;
        let found = scopes.binary_search_by_key(&(die.0 as u32), |(die, _)| *die);
        let scope = found.ok().and_then(|i| scopes.get(i));
        Ok(scope.map(|(_, scope)| UnitOffset(*scope as usize)))
    }

    fn functions(&self, dwarf: &Dwarf<'d>) -> Result<&Functions, gimli::Error> {
        let functions = self.functions.get_or_init(|| {
            let (mut ranges, mut dies) = (Vec::new(), Vec::new());
            let scopes = self.walk(dwarf, |begin, end, die| {
                if dies.last().is_none_or(|(last, _)| *last != die) {
                    dies.push((die, begin));
                }
                ranges.push((begin, end, dies.len() as u32 - 1));
            })?;
            Ok(Functions {
                by_address: Flat::new(ranges),
                dies,
                scopes,
                trees: RefCell::default(),
            })
        });
        functions.as_ref().map_err(|err| *err)
    }

    /// One pass over all DIEs: hands out ranges of functions, gives what is in which scope.
    fn walk(
        &self,
        dwarf: &Dwarf<'d>,
        mut each: impl FnMut(u64, u64, UnitOffset),
    ) -> Result<Vec<(u32, u32)>, gimli::Error> {
        let (mut scopes, mut budget) = (Vec::new(), MAX_RANGES);
        let mut open: Vec<(isize, u32)> = Vec::new();
        let mut entries = self.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (die, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbrev) = entries.read_abbreviation()? else {
                continue;
            };
            let tag = abbrev.tag();
            let is_function = tag == gimli::DW_TAG_subprogram;
            if self.scoped && (is_function || is_scope(tag)) {
                while open.last().is_some_and(|(outer, _)| *outer >= depth) {
                    open.pop();
                }
                if let Some((_, scope)) = open.last() {
                    scopes.push((die.0 as u32, *scope));
                }
                if abbrev.has_children() {
                    open.push((depth, die.0 as u32));
                }
            }
            if !is_function {
                entries.skip_attributes(abbrev.attributes())?;
                continue;
            }
            let mut extent = Extent::default();
            for spec in abbrev.attributes() {
                let attr = entries.read_attribute(*spec)?;
                extent.take(attr.name(), attr.value());
            }
            extent.resolve(dwarf, &self.unit, &mut budget, |begin, end| {
                each(begin, end, die);
            })?;
        }
        Ok(scopes)
    }

    /// All that was inlined into the function at `die`.
    fn tree(&self, dwarf: &Dwarf<'d>, sup: bool, die: UnitOffset) -> Result<Tree, gimli::Error> {
        let mut tree = Tree::default();
        let mut entries = self.unit.entries_raw(Some(die))?;
        let top = entries.next_depth();
        skip(&mut entries)?;
        // Depths of the inlined calls around the current DIE.
        let mut around: Vec<isize> = Vec::new();
        // Inside of a function of its own, which is not part of this one.
        let mut foreign: Option<isize> = None;
        while !entries.is_empty() && entries.next_depth() > top {
            let (at, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbrev) = entries.read_abbreviation()? else {
                continue;
            };
            if foreign.is_some_and(|outer| outer >= depth) {
                foreign = None;
            }
            while around.last().is_some_and(|outer| *outer >= depth) {
                around.pop();
            }
            let tag = abbrev.tag();
            if tag == gimli::DW_TAG_subprogram && foreign.is_none() {
                foreign = Some(depth);
            }
            if tag != gimli::DW_TAG_inlined_subroutine || foreign.is_some() {
                entries.skip_attributes(abbrev.attributes())?;
                continue;
            }
            let inlined = u32::try_from(around.len()).unwrap_or(u32::MAX);
            self.inlined(dwarf, sup, (at, inlined), (abbrev, &mut entries), &mut tree)?;
            around.push(depth);
        }
        tree.ranges.sort_unstable();
        Ok(tree)
    }

    fn inlined(
        &self,
        dwarf: &Dwarf<'d>,
        sup: bool,
        (at, depth): (UnitOffset, u32),
        (abbrev, entries): (&Abbreviation, &mut EntriesRaw<'_, Slice<'d>>),
        tree: &mut Tree,
    ) -> Result<(), gimli::Error> {
        let mut extent = Extent::default();
        let mut call = Call {
            callee: self.die_at(sup, at),
            file: None,
            line: 0,
        };
        for spec in abbrev.attributes() {
            let attr = entries.read_attribute(*spec)?;
            let value = attr.value();
            match attr.name() {
                gimli::DW_AT_abstract_origin => {
                    if let Some(origin) = self.target(sup, value) {
                        call.callee = origin;
                    }
                }
                gimli::DW_AT_call_file => {
                    call.file = match value {
                        AttributeValue::FileIndex(index) => Some(index),
                        other => other.udata_value(),
                    };
                    // Before DWARF 5 files count from 1.
                    if self.unit.header.version() < 5 {
                        call.file = call.file.filter(|index| *index > 0);
                    }
                }
                gimli::DW_AT_call_line => {
                    let line = value.udata_value().unwrap_or(0);
                    call.line = u32::try_from(line).unwrap_or(0);
                }
                name => {
                    extent.take(name, value);
                }
            }
        }
        let number = tree.calls.len() as u32;
        tree.calls.push(call);
        let ranges = &mut tree.ranges;
        let mut budget = MAX_RANGES.saturating_sub(ranges.len());
        extent.resolve(dwarf, &self.unit, &mut budget, |begin, end| {
            ranges.push((depth, begin, end, number));
        })
    }

    /// Where a DIE of this unit is in the file.
    pub fn die_at(&self, sup: bool, die: UnitOffset) -> DieAt {
        let start = self.unit.header.debug_info_offset().map_or(0, |o| o.0);
        DieAt {
            sup,
            offset: start.saturating_add(die.0),
        }
    }

    /// Where a reference of this unit leads to.
    pub fn target(&self, sup: bool, value: Value<'d>) -> Option<DieAt> {
        let at = |sup, offset: DebugInfoOffset| DieAt {
            sup,
            offset: offset.0,
        };
        match value {
            AttributeValue::UnitRef(die) => Some(self.die_at(sup, die)),
            AttributeValue::DebugInfoRef(offset) => Some(at(sup, offset)),
            AttributeValue::DebugInfoRefSup(offset) => Some(at(true, offset)),
            _ => None,
        }
    }
}

impl Tree {
    /// What is inlined at `address`, outermost first.
    fn at(&self, address: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        for depth in 0.. {
            let after = self
                .ranges
                .partition_point(|(d, begin, _, _)| (*d, *begin) <= (depth, address));
            let found = after.checked_sub(1).and_then(|i| self.ranges.get(i));
            match found {
                Some((d, _, end, call)) if *d == depth && address < *end => {
                    calls.extend(self.calls.get(*call as usize).copied());
                }
                _ => break,
            }
        }
        calls
    }
}

fn skip(entries: &mut EntriesRaw<'_, Slice<'_>>) -> Result<(), gimli::Error> {
    match entries.read_abbreviation()? {
        Some(abbrev) => entries.skip_attributes(abbrev.attributes()),
        None => Ok(()),
    }
}

/// What other things are named after.
fn is_scope(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_enumeration_type
    )
}

/// C and assembly have no scopes; to look for them there would be in vain.
fn has_scopes(language: gimli::DwLang) -> bool {
    !matches!(
        language,
        gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_Mips_Assembler
    )
}
