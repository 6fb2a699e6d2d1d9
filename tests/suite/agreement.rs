//! Names, inlined functions and lines of all code of real programs, compared with those binutils' `addr2line` gives.
//!
//! Every byte of `.text` is asked for. A difference is an error unless it is of a kind listed in [`Excuse`], where
//! `addr2line` is wrong or says the same in other words, and that is checked too; of what remains, functions agree
//! everywhere and everything else at 99.9 % of the addresses.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bprof::event::{BuildId, MappedFile, MappedKind};
use bprof::profile::Names;
use bprof::symbolize::functions::demangle;
use bprof::symbolize::{Aid, Code, Options, Place, Symbolizer};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

/// One level of inlining: function, file name, line.
type Level = (String, String, u32);

/// Innermost first; empty where nothing is known.
type Chain = Vec<Level>;

struct Program {
    path: PathBuf,
    /// Addresses asked for.
    addresses: Vec<u64>,
    /// Function symbols: (start, end).
    symbols: Vec<(u64, u64)>,
    /// Where they are, by name and by demangled name.
    starts: HashMap<String, Vec<u64>>,
    demangled: RefCell<HashMap<String, String>>,
    /// DWARF 5 of clang, whose indexed range lists binutils' `addr2line` does not read, or split DWARF: `llvm-symbolizer`
    /// is asked instead, where it is.
    indexed: bool,
}

/// Why the two may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Excuse {
    /// No function covers the address: `addr2line` gives the one before.
    Padding,
    /// The function has several names; each takes another of them.
    Alias,
    /// The symbol table's name of a part or a clone: `main.cold`, `f.isra.0`. DWARF says which function it is of.
    Part,
    /// `addr2line` gives an inlined function, mostly the innermost, the name of the symbol around it.
    Innermost,
    /// `addr2line` has no name for one of the functions: it does not follow references to other units.
    Nameless,
    /// `addr2line` gives the name of the whole link-time optimized unit for that of the file.
    Artificial,
    /// `addr2line` has not read the range lists of what is inlined.
    Ranges,
}

impl Program {
    fn new(path: PathBuf) -> Program {
        let bytes = fs::read(&path).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        // Code that is placed far from the rest, where there is such.
        let sections = [".text", ".far"].into_iter();
        let sections = sections.filter_map(|name| elf.section_by_name(name));
        let all = sections.flat_map(|s| s.address()..s.address() + s.size());
        let (mut symbols, mut starts) = (Vec::new(), HashMap::<String, Vec<u64>>::new());
        for symbol in elf.symbols().filter(|s| s.kind() == SymbolKind::Text) {
            let (start, name) = (symbol.address(), symbol.name().unwrap());
            symbols.push((start, start + symbol.size()));
            starts.entry(name.to_owned()).or_default().push(start);
            starts.entry(demangle(name)).or_default().push(start);
        }
        Program {
            path,
            addresses: all.collect(),
            symbols,
            starts,
            demangled: RefCell::default(),
            indexed: false,
        }
    }

    /// What the library says.
    fn ours(&self) -> Vec<Chain> {
        let bytes = fs::read(&self.path).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let file = MappedFile {
            kind: MappedKind::File,
            path: self.path.as_os_str().as_bytes().to_vec(),
            build_id: elf.build_id().unwrap().and_then(BuildId::new),
            inode: None,
            version: None,
            deleted: false,
        };
        assert!(file.build_id.is_some(), "{}", self.path.display());
        let offset = |address: u64| {
            let mut segments = elf.segments();
            let covers = |s: &object::Segment<'_, '_>| {
                let (_, size) = s.file_range();
                (s.address()..s.address() + size).contains(&address)
            };
            let segment = segments.find(covers).unwrap();
            address - segment.address() + segment.file_range().0
        };
        let mut names = Names::default();
        let mut symbolizer = Symbolizer::new(Options::default(), Aid::default());
        let file = symbolizer.file(&file);
        let places: Vec<u32> = self
            .addresses
            .iter()
            .map(|address| {
                symbolizer.place(Place {
                    code: Code::File(file, offset(*address)),
                    is_return: false,
                })
            })
            .collect();
        symbolizer.resolve(&mut names);
        assert_eq!(symbolizer.take_warnings(), [""; 0]);
        let chain = |place: &u32| {
            let resolution = symbolizer.resolution(*place).unwrap();
            if resolution.unnamed.is_some() {
                return Chain::new();
            }
            let levels = resolution.chain.iter().map(|part| {
                let frame = names.frames()[part.frame as usize];
                let source = part.source.filter(|source| source.line != 0);
                let file = source.map_or("", |s| names.text(s.file));
                (
                    names.text(frame.name).to_owned(),
                    file_name(file),
                    source.map_or(0, |s| s.line),
                )
            });
            levels.rev().collect()
        };
        places.iter().map(chain).collect()
    }

    /// What `addr2line` says.
    fn theirs(&self) -> Vec<Chain> {
        let mut command = Command::new("addr2line");
        if self.indexed
            && Command::new("llvm-symbolizer")
                .arg("--version")
                .output()
                .is_ok()
        {
            command = Command::new("llvm-symbolizer");
            command.args(["--output-style=GNU", "--no-demangle"]);
        }
        let mut child = command
            .args(["-a", "-f", "-i", "-e"])
            .arg(&self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("addr2line (Debian package binutils)");
        let mut stdin = child.stdin.take().unwrap();
        let asked: String = self.addresses.iter().map(|a| format!("{a:#x}\n")).collect();
        let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut chains: Vec<Chain> = Vec::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line.starts_with("0x") {
                chains.push(Chain::new());
                continue;
            }
            let place = lines.next().unwrap();
            let place = place.split(" (discriminator").next().unwrap();
            let (file, number) = place.rsplit_once(':').unwrap();
            // Without a line the file is what the symbol table says of the object file.
            let number = number.parse().unwrap_or(0);
            let file = if number == 0 { "" } else { file };
            chains
                .last_mut()
                .unwrap()
                .push((line.to_owned(), file_name(file), number));
        }
        for chain in &mut chains {
            if chain.iter().all(|(function, _, _)| function == "??") {
                chain.clear();
            }
        }
        assert_eq!(chains.len(), self.addresses.len());
        chains
    }

    fn compare(&self) {
        let (ours, theirs) = (self.ours(), self.theirs());
        let (mut whole, mut wrong) = (0, Vec::new());
        let mut excused: BTreeMap<Excuse, usize> = BTreeMap::new();
        let mut others = Vec::new();
        for ((address, ours), theirs) in self.addresses.iter().zip(&ours).zip(&theirs) {
            if let Some(excuse) = self.excuse(*address, ours, theirs) {
                *excused.entry(excuse).or_default() += 1;
                continue;
            }
            let same = match (ours.last(), theirs.last()) {
                (Some(a), Some(b)) => self.same_function(&a.0, &b.0),
                (None, None) => true,
                _ => false,
            };
            if !same {
                wrong.push((address, ours, theirs));
            } else if ours.len() == theirs.len()
                && ours.iter().zip(theirs).all(|pair| self.same_level(pair))
            {
                whole += 1;
            } else {
                others.push((address, ours, theirs));
            }
        }
        let total = self.addresses.len();
        let count = excused.values().sum::<usize>();
        println!(
            "{}: {total} addresses: {whole} agree, {} differ inside, {} in the function; excused: {excused:?}",
            self.path.display(),
            others.len(),
            wrong.len(),
        );
        let show = |list: &[(&u64, &Chain, &Chain)]| {
            let lines = list.iter().take(5).map(|(address, ours, theirs)| {
                format!("  {address:#x}\n    ours   {ours:?}\n    theirs {theirs:?}\n")
            });
            lines.collect::<String>()
        };
        assert!(wrong.is_empty(), "functions differ:\n{}", show(&wrong));
        assert!(
            whole * 1000 >= (total - count) * 999,
            "lines or inlined functions differ:\n{}",
            show(&others)
        );
        assert!(count * 2 < total, "too much is excused: {excused:?}");
    }

    /// Why the answers to `address` differ although ours is right; `None` when they do not, or it is not known to be.
    fn excuse(&self, address: u64, ours: &Chain, theirs: &Chain) -> Option<Excuse> {
        let Some((function, _, _)) = ours.last() else {
            let mut covering = self.symbols.iter();
            let covered = covering.any(|(start, end)| (*start..*end).contains(&address));
            return (!theirs.is_empty() && !covered).then_some(Excuse::Padding);
        };
        let (theirs_function, _, _) = theirs.last()?;
        let at = |level: &Level| (level.1.clone(), level.2);
        if theirs.iter().any(|level| level.1 == "<artificial>") && ours.len() == theirs.len() {
            let mut levels = ours.iter().zip(theirs);
            let same = levels.all(|(a, b)| {
                let file = b.1 == "<artificial>" || a.1 == b.1;
                file && a.2 == b.2 && self.same_function(&a.0, &b.0)
            });
            return same.then_some(Excuse::Artificial);
        }
        let mut levels = ours.iter().zip(theirs);
        if theirs.iter().any(|(name, _, _)| name == "??") && ours.len() == theirs.len() {
            let symbol = |name: &str| self.starts.contains_key(name);
            let same = levels.all(|(a, b)| {
                at(a) == at(b) && (b.0 == "??" || symbol(&b.0) || self.same_function(&a.0, &b.0))
            });
            return same.then_some(Excuse::Nameless);
        }
        if self.same_function(function, theirs_function) {
            if self.indexed && theirs.len() == 1 && ours.len() > 1 {
                return (at(theirs.first()?) == at(ours.first()?)).then_some(Excuse::Ranges);
            }
            let around = |name: &str| {
                let starts = self.starts.get(name).map_or(&[][..], |all| all);
                let mut here = self.symbols.iter();
                here.any(|(start, end)| (*start..*end).contains(&address) && starts.contains(start))
            };
            let (mut differ, mut levels) = (false, ours.iter().zip(theirs));
            let fine = ours.len() == theirs.len()
                && levels.all(|(a, b)| {
                    let same = self.same_function(&a.0, &b.0);
                    differ |= !same;
                    at(a) == at(b) && (same || around(&b.0))
                });
            return (fine && differ).then_some(Excuse::Innermost);
        }
        let starts = |name: &str| self.starts.get(name).map_or(&[][..], |all| all);
        let of_ours = starts(function);
        if starts(theirs_function)
            .iter()
            .any(|start| of_ours.contains(start))
        {
            return Some(Excuse::Alias);
        }
        let (whole, _) = theirs_function.split_once('.')?;
        self.same_function(function, whole).then_some(Excuse::Part)
    }

    fn same_level(&self, (ours, theirs): (&Level, &Level)) -> bool {
        self.same_function(&ours.0, &theirs.0) && (&ours.1, ours.2) == (&theirs.1, theirs.2)
    }

    /// Whether a demangled name and one of a file are those of one function.
    fn same_function(&self, ours: &str, theirs: &str) -> bool {
        let mut known = self.demangled.borrow_mut();
        let demangled = known
            .entry(theirs.to_owned())
            .or_insert_with(|| demangle(theirs));
        if ours == demangled {
            return true;
        }
        let own = own_name(ours);
        if demangled != theirs {
            return false;
        }
        // Not a name of the linker's: addr2line leaves out what the function is in, and parameters. Or one the
        // demangler cannot do (generic lambdas): it has the function's own name in it, length first.
        own == own_name(theirs)
            || theirs.starts_with("_Z") && theirs.contains(&format!("{}{own}", own.len()))
    }
}

/// The last part of a demangled name, without template arguments and parameters.
fn own_name(name: &str) -> &str {
    let (mut depth, mut start) = (0, 0);
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            _ if name[start..at].ends_with("operator") => break,
            b'<' | b'('
                if depth == 0 && !name[at..].contains(">::") && !name[at..].contains(")::") =>
            {
                return &name[start..at];
            }
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth -= 1,
            b':' | b' ' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    let own = &name[start..];
    own.split(['<', '(']).next().unwrap_or(own)
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or("").to_owned()
}

/// Compiles a workload with a build ID.
fn build(compiler: &str, source: &str, flags: &[&str]) -> (tempfile::TempDir, Program) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("prog");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads");
    let mut command = Command::new(compiler);
    command
        .current_dir(dir.path())
        .args(flags)
        .arg("-o")
        .arg(&out);
    let status = command.arg(sources.join(source)).status().unwrap();
    assert!(status.success(), "{compiler} {flags:?} {source}");
    let program = Program::new(out);
    (dir, program)
}

const ID: &str = "-Wl,--build-id";

#[test]
fn a_program_at_a_fixed_address_agrees() {
    let flags = ["-O2", "-g", "-no-pie", "-pthread", ID];
    build("gcc", "burn.c", &flags).1.compare();
}

#[test]
fn a_position_independent_program_agrees() {
    let flags = ["-O2", "-g", "-pie", "-fPIE", "-pthread", ID];
    build("g++", "burn.cpp", &flags).1.compare();
}

#[test]
fn a_static_position_independent_program_agrees() {
    let flags = ["-O2", "-g", "-static-pie", "-fPIE", ID];
    build("g++", "templates.cpp", &flags).1.compare();
}

#[test]
fn a_cpp_program_of_many_templates_agrees() {
    let flags = ["-O2", "-g", ID];
    build("g++", "templates.cpp", &flags).1.compare();
}

#[test]
fn a_cpp_program_of_a_foreign_library_agrees() {
    let flags = ["-O2", "-g", ID];
    build("g++", "json.cpp", &flags).1.compare();
}

#[test]
fn a_rust_program_agrees() {
    let flags = ["-O", "-g", "-Clink-arg=-Wl,--build-id"];
    build("rustc", "burn.rs", &flags).1.compare();
}

/// What other compilers and other settings make of it: indexed strings, addresses and ranges, references between
/// units, little more than lines.
#[test]
fn other_kinds_of_debug_information_agree() {
    for (compiler, source, flags) in [
        (
            "clang",
            "burn.c",
            &[
                "-O2",
                "-gdwarf-5",
                "-pthread",
                "-Wno-unknown-attributes",
                ID,
            ][..],
        ),
        (
            "clang",
            "inline.cpp",
            &["-O2", "-gdwarf-5", "-Wno-unknown-attributes", ID],
        ),
        (
            "clang",
            "inline.cpp",
            &["-O2", "-gdwarf-4", "-Wno-unknown-attributes", ID],
        ),
        (
            "clang",
            "inline.cpp",
            &["-O2", "-gline-tables-only", "-Wno-unknown-attributes", ID],
        ),
        (
            "gcc",
            "burn.c",
            &["-O2", "-gdwarf-4", "-flto", "-pthread", ID],
        ),
        ("g++", "burn.cpp", &["-O2", "-g", "-flto", "-pthread", ID]),
        ("g++", "burn.cpp", &["-O0", "-gdwarf-4", "-pthread", ID]),
        (
            "g++",
            "inline.cpp",
            &["-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections", ID],
        ),
        ("g++", "inline.cpp", &["-O2", "-g", "-fuse-ld=gold", ID]),
        ("g++", "inline.cpp", &["-O2", "-g1", ID]),
        (
            "g++",
            "burn.cpp",
            &["-O2", "-g", "-gsplit-dwarf", "-pthread", ID],
        ),
        (
            "g++",
            "burn.cpp",
            &["-O2", "-g", "-gsplit-dwarf", "-gdwarf-4", "-pthread", ID],
        ),
        (
            "clang",
            "inline.cpp",
            &["-O2", "-g", "-gsplit-dwarf", "-Wno-unknown-attributes", ID],
        ),
        (
            "rustc",
            "burn.rs",
            &[
                "-O",
                "-Cdebuginfo=line-tables-only",
                "-Clink-arg=-Wl,--build-id",
            ],
        ),
    ] {
        println!("{compiler} {flags:?}");
        let (_dir, mut program) = build(compiler, source, flags);
        let split = flags.contains(&"-gsplit-dwarf");
        // The standard library in it has been looked at by another test.
        let step = if compiler == "rustc" { 16 } else { 1 };
        program.addresses.retain(|address| *address % step == 0);
        program.indexed = split || compiler == "clang" && !flags.contains(&"-gdwarf-4");
        program.compare();
    }
}

/// A07: every segment has its own difference between addresses and offsets in the file.
#[test]
fn programs_with_far_segments_agree() {
    let far = "-Wl,--section-start=.far=0x10000000";
    for kind in ["-no-pie", "-pie", "-static-pie"] {
        let model = if kind == "-no-pie" {
            "-fno-pie"
        } else {
            "-fPIE"
        };
        let flags = ["-O2", "-g", kind, model, far, ID];
        let (_dir, mut program) = build("gcc", "far.c", &flags);
        let is_far = |address: &u64| *address >= 0x1000_0000;
        let far = program.addresses.iter().filter(|a| is_far(a)).count();
        assert!(far > 50, "{kind}");
        // The C library in the static one has been looked at by another test.
        let step = if kind == "-static-pie" { 16 } else { 1 };
        program.addresses.retain(|a| is_far(a) || *a % step == 0);
        program.compare();
    }
}
