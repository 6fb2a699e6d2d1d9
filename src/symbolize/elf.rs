//! Names out of the files that are believed to be what was mapped.
//!
//! Debug information first, for it knows inlined functions and lines; what it does not name the symbol tables
//! may: of the program, of its debug file, of `.gnu_debugdata`.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use gimli::SectionId;
use hashbrown::HashMap;

use super::bounds::Bounds;
use super::debug_files::{SplitFiles, Supplement, mini_debug_info, supplement};
use super::dwarf::{DebugInfo, Found};
use super::files::Believed;
use super::functions::{FunctionTable, address_of, demangle};
use super::search::Search;
use super::sections::Sections;
use crate::format::aid::Load;
use crate::profile::{NameId, Names, SourceLine};

/// What an address is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Demangled name.
    pub name: NameId,
    /// Bytes from the start of the function to the address, when that is known.
    pub offset: Option<u64>,
    /// Where in the source, in the function itself.
    pub source: Option<SourceLine>,
    /// Functions inlined there, outermost first.
    pub inlined: Vec<(NameId, Option<SourceLine>)>,
}

/// The files of this machine that a mapped file's names come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilesUsed {
    /// The mapped file itself, unless only its debug file is here.
    pub executable: Option<PathBuf>,
    /// Its separate debug file.
    pub debug: Option<PathBuf>,
}

/// How the GNU C library calls its functions where it calls them itself.
const HIDDEN: &str = "__GI_";
/// Tables made for some addresses only, before one of all is.
const SHORT_TABLES: u32 = 8;

/// One mapped file that is believed.
pub(super) struct Module {
    /// What messages call it.
    shown: PathBuf,
    pub verified: bool,
    loads: Vec<Load>,
    lines: bool,
    debug: Option<DebugInfo>,
    images: Vec<Rc<Sections>>,
    used: FilesUsed,
    /// Symbols out of `.gnu_debugdata`.
    mini: OnceCell<Option<Vec<u8>>>,
    /// What is needed of the symbol tables for `asked`, or all of them.
    table: OnceCell<FunctionTable>,
    /// Addresses asked for now, ascending.
    asked: Vec<u64>,
    /// Where functions without a symbol are, of each of `images`.
    bounds: OnceCell<Vec<Bounds>>,
    /// How often a table was made for what was asked.
    short_tables: u32,
    /// Names of functions of the table, by number.
    table_names: HashMap<u32, NameId>,
    /// The linker's name by that of DWARF and the function of the table.
    fuller_names: HashMap<(NameId, u32), Option<NameId>>,
    /// Said already: that files of split units, or parts of the debug information, could not be had.
    told: (bool, bool),
}

impl Module {
    /// Opens the debug information of a file. What cannot be used of it is told to `warn`: names are then from the symbol
    /// tables.
    pub fn open(
        believed: Believed,
        lines: bool,
        search: &Rc<Search>,
        warn: &mut dyn FnMut(String),
    ) -> Module {
        let Believed {
            binary,
            debug,
            loads,
            verified,
        } = believed;
        let used = FilesUsed {
            executable: binary.as_ref().map(|opened| opened.path.clone()),
            debug: debug.as_ref().map(|file| file.path.clone()),
        };
        let binary = binary.map(|opened| (opened.path, opened.sections));
        let debug = debug.map(|file| (file.path, file.sections));
        let files: Vec<(PathBuf, Rc<Sections>)> = binary.into_iter().chain(debug).collect();
        let with_debug = files
            .iter()
            .find(|(_, sections)| sections.has(SectionId::DebugInfo));
        let info = with_debug.and_then(|(path, sections)| {
            let sup = match supplement(search, path, sections) {
                Supplement::None => None,
                Supplement::Found(sup) => Some(sup),
                Supplement::NotFound(name) => {
                    warn(format!(
                        "{}: some debug info is in {}, not read: not found",
                        path.display(),
                        name.display()
                    ));
                    None
                }
            };
            let of = files.iter().rev().map(|(path, _)| path.clone()).collect();
            let companions = Box::new(SplitFiles::new(Rc::clone(search), of));
            let opened = DebugInfo::open(Rc::clone(sections), sup, companions);
            let usable = opened.map_err(|problem| {
                warn(format!(
                    "{}: debug information not used ({problem}); names are from the symbol table",
                    path.display()
                ));
            });
            usable.ok()
        });
        Module {
            shown: files
                .first()
                .map(|(path, _)| path.clone())
                .unwrap_or_default(),
            verified,
            loads,
            lines,
            debug: info,
            images: files.into_iter().map(|(_, sections)| sections).collect(),
            used,
            mini: OnceCell::new(),
            table: OnceCell::new(),
            asked: Vec::new(),
            bounds: OnceCell::new(),
            short_tables: 0,
            table_names: HashMap::new(),
            fuller_names: HashMap::new(),
            told: (false, false),
        }
    }

    /// Whether a file became shorter while it was read: what it gave may be anything.
    pub fn has_shrunk(&self) -> bool {
        self.images.iter().any(|image| image.have_shrunk())
    }

    /// Where names come from.
    pub fn used(&self) -> &FilesUsed {
        &self.used
    }

    /// The symbols at `offsets` of the file, best sorted; `None` where there is no name.
    pub fn symbols(
        &mut self,
        offsets: &[u64],
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Vec<Option<Symbol>> {
        let addresses = offsets
            .iter()
            .map(|offset| address_of(&self.loads, *offset));
        let addresses: Vec<Option<u64>> = addresses.collect();
        self.ask(&addresses);
        let symbols = addresses
            .into_iter()
            .map(|address| self.symbol(address?, names, warn));
        let symbols = symbols.collect();
        self.tell(warn);
        symbols
    }

    /// Of those of `offsets` that have no symbol: bytes from where the function begins that covers them, by unwind information.
    pub fn inside(&self, offsets: &[u64], symbols: &[Option<Symbol>]) -> HashMap<u64, u64> {
        let both = offsets.iter().zip(symbols);
        let nameless = both.filter(|(_, symbol)| symbol.is_none());
        nameless
            .filter_map(|(offset, _)| Some((*offset, self.inside_function(*offset)?)))
            .collect()
    }

    fn inside_function(&self, offset: u64) -> Option<u64> {
        let address = address_of(&self.loads, offset)?;
        let images = || self.images.iter();
        let bounds = self
            .bounds
            .get_or_init(|| images().map(|image| Bounds::of(image.bytes())).collect());
        let start = bounds.iter().zip(images()).find_map(|(bounds, image)| {
            let debug_frame = || image.get(SectionId::DebugFrame).unwrap_or_default();
            bounds.start(image.bytes(), debug_frame, address)
        });
        address.checked_sub(start?)
    }

    /// Makes ready for these addresses: a table for others says nothing of them.
    fn ask(&mut self, addresses: &[Option<u64>]) {
        if self.short_tables >= SHORT_TABLES {
            return;
        }
        if self.table.take().is_some() {
            self.short_tables += 1;
            self.table_names.clear();
            self.fuller_names.clear();
        }
        self.asked = addresses.iter().flatten().copied().collect();
        self.asked.sort_unstable();
        self.asked.dedup();
    }

    /// The symbol at an address that was asked for, as the file has them.
    fn symbol(
        &mut self,
        address: u64,
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Option<Symbol> {
        let lines = self.lines;
        let debug = self.debug.as_mut();
        let found = debug
            .and_then(|debug| debug.find(address, lines, names))
            .unwrap_or_default();
        let Found {
            function,
            plain,
            source,
            inlined,
        } = found;
        let (name, offset) = match function {
            Some((name, inside)) if plain => {
                let name = self.fuller(name, address, names, warn).unwrap_or(name);
                (name, inside)
            }
            Some(known) => self.exported(known, address, names, warn).unwrap_or(known),
            None => {
                let (name, inside) = self.by_table(address, names, warn)?;
                (name, Some(inside))
            }
        };
        Some(Symbol {
            name,
            offset,
            source,
            inlined,
        })
    }

    /// The linker's name of the function that DWARF calls `plain`, when the symbol table has that function at `address`.
    fn fuller(
        &mut self,
        plain: NameId,
        address: u64,
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Option<NameId> {
        let table = self.table(warn);
        let number = table.find(address)?;
        if let Some(known) = self.fuller_names.get(&(plain, number)) {
            return *known;
        }
        let table = self.table(warn);
        let mangled = table.name(table.function(number)?);
        let whole = demangle(mangled);
        // Without the mark of a part or a clone: it is that function all the same.
        let full = whole.split(" [clone ").next().unwrap_or(&whole);
        // The function's own name, without scopes and what a template was given.
        let own = names.text(plain).split('<').next().unwrap_or("");
        let last = own.rsplit("::").next().unwrap_or(own);
        let says_more = whole != mangled && has_word(full, last);
        let name = says_more.then(|| names.intern(full));
        self.fuller_names.insert((plain, number), name);
        name
    }

    /// What others call a function of the GNU C library that is compiled by a name of its own, `__GI___libc_malloc` for `malloc`:
    /// nobody looks for that, and without debug information nobody sees it.
    fn exported(
        &mut self,
        (name, inside): (NameId, Option<u64>),
        address: u64,
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Option<(NameId, Option<u64>)> {
        if !names.text(name).starts_with(HIDDEN) {
            return None;
        }
        let (name, at) = self.by_table(address, names, warn)?;
        (inside == Some(at)).then_some((name, inside))
    }

    fn by_table(
        &mut self,
        address: u64,
        names: &mut Names,
        warn: &mut dyn FnMut(String),
    ) -> Option<(NameId, u64)> {
        let table = self.table(warn);
        let number = table.find(address)?;
        let function = table.function(number)?;
        let start = function.start;
        if let Some(name) = self.table_names.get(&number) {
            return Some((*name, address - start));
        }
        let name = names.intern(&demangle(table.name(function)));
        self.table_names.insert(number, name);
        Some((name, address - start))
    }

    /// The symbol tables, read when first needed.
    fn table(&self, warn: &mut dyn FnMut(String)) -> &FunctionTable {
        self.table.get_or_init(|| {
            let mini = self.mini.get_or_init(|| self.mini(warn));
            let images = self.images.iter().map(|image| image.bytes());
            let images: Vec<&[u8]> = images.chain(mini.as_deref()).collect();
            match self.short_tables < SHORT_TABLES {
                true => FunctionTable::near(&images, &self.asked),
                false => FunctionTable::of(images),
            }
        })
    }

    fn mini(&self, warn: &mut dyn FnMut(String)) -> Option<Vec<u8>> {
        let mini = self
            .images
            .iter()
            .find_map(|image| mini_debug_info(image))?;
        mini.map_err(|problem| {
            warn(format!(
                "{}: some symbols are in .gnu_debugdata, not read: {problem}",
                self.shown.display()
            ));
        })
        .ok()
    }

    /// Says what could not be read, once.
    fn tell(&mut self, warn: &mut dyn FnMut(String)) {
        let Some(debug) = &mut self.debug else {
            return;
        };
        let not_found = debug.take_not_found();
        if let Some(first) = not_found.first()
            && !std::mem::replace(&mut self.told.0, true)
        {
            let more = match not_found.len() {
                1 => String::new(),
                n => format!(" and {} more files", n - 1),
            };
            warn(format!(
                "{}: some debug info is in {first}{more}, not read: not found; names are from the symbol table",
                self.shown.display()
            ));
        }
        if let Some(problem) = debug.take_problem()
            && !std::mem::replace(&mut self.told.1, true)
        {
            warn(format!(
                "{}: some debug information not used ({problem})",
                self.shown.display()
            ));
        }
    }
}

/// Whether `word` is in `text` as a name of its own, not as a part of a longer one: two functions whose code is the same
/// may have been made one, and its symbol be that of the other.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let begins = is_part(word.chars().next());
    let ends = is_part(word.chars().next_back());
    let whole = |(at, found): (usize, &str)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text
            .get(at + found.len()..)
            .and_then(|text| text.chars().next());
        let longer = (begins && is_part(before)) || (ends && is_part(after));
        !longer
    };
    !word.is_empty() && text.match_indices(word).any(whole)
}

#[cfg(test)]
mod tests {
    use super::has_word;

    #[test]
    fn a_part_of_a_name_is_another_name() {
        assert!(has_word("ns::at(int)", "at"));
        assert!(has_word("ns::format::at<int>(int)", "at"));
        assert!(has_word(
            "main::{lambda()#1}::operator()() const",
            "operator()"
        ));
        assert!(has_word("A::~A()", "~A"));
        assert!(has_word("operator<(A, A)", "operator"));
        assert!(!has_word("ns::format(int)", "at"));
        assert!(!has_word("ns::at_end(int)", "at"));
        assert!(!has_word("ns::at(int)", ""));
    }
}
