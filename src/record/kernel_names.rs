//! The aid that names of kernel and vdso frames need, put into the capture while it grows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::asked_names::AskedNames;
use super::bpf_code::BpfCode;
use super::drain::Drain;
use super::kallsyms::{self, Kallsyms};
use super::maps;
use super::processes::Processes;
use super::symbol_program::SymbolProgram;
use super::table_names::TableNames;
use crate::capture::writer::Written;
use crate::event::Pid;
use crate::format::aid::{KernelSymbol, KernelSymbols, Vdso};

/// Kernel symbols go into the capture with the first samples, then at ever longer intervals: a recording that is killed
/// has names too, and frames do not get so small that they cost more than what is in them.
const INTERVAL: Duration = Duration::from_secs(1);
/// No longer than this between two times.
const RARELY: Duration = Duration::from_secs(16);

/// What is known of the kernel's symbols, and what of them waits to be written.
pub struct KernelNames {
    source: Source,
    /// Runtime address of `_stext`, 0 when hidden.
    stext: u64,
    /// Where the kernel's idle routines are, when known.
    pub idle_text: Option<(u64, u64)>,
    ready: Vec<KernelSymbol>,
    next: Instant,
    interval: Duration,
    vdso_wanted: bool,
    vdso_written: bool,
}

/// Where names come from.
enum Source {
    /// The kernel hides its addresses: from nowhere.
    Hidden,
    /// Nothing has been read yet.
    Unread,
    /// The kernel, address by address.
    Asked(Box<AskedNames<SymbolProgram>>),
    /// Its table.
    Table(Box<TableNames>),
}

impl KernelNames {
    /// Prepares to ask the kernel. To be called before the side-band is opened, which would tell of the BPF programs that come
    /// and go when libbpf tries what the kernel can.
    pub fn prepare() -> KernelNames {
        let mut names = KernelNames {
            source: Source::Hidden,
            stext: 0,
            idle_text: None,
            ready: Vec::new(),
            next: Instant::now(),
            interval: INTERVAL,
            vdso_wanted: false,
            vdso_written: false,
        };
        if kallsyms::hidden() {
            return names;
        }
        names.source = match SymbolProgram::load() {
            Ok(program) => {
                names.stext = program.stext;
                names.idle_text = program.idle_text;
                Source::Asked(Box::new(AskedNames::new(program)))
            }
            Err(_) => Source::Unread,
        };
        names
    }

    /// Whether the kernel hides its addresses.
    pub fn are_hidden(&self) -> bool {
        matches!(self.source, Source::Hidden)
    }

    /// Reads the kernel's table where the kernel cannot be asked. Samples already gather in the rings: this takes about as long
    /// as ten of them.
    pub fn read_table(&mut self, bpf_code: &mut BpfCode) {
        if !matches!(self.source, Source::Unread) {
            return;
        }
        match Kallsyms::read() {
            Ok(Some(table)) => {
                bpf_code.add_present(|start| table.bpf_name(start));
                self.stext = table.stext;
                self.idle_text = table.idle_text;
                self.source = Source::Table(Box::new(TableNames::new(table)));
            }
            Ok(None) => self.source = Source::Hidden,
            Err(err) => eprintln!("note: /proc/kallsyms cannot be read ({err}): no kernel names"),
        }
    }

    /// Finds names of what has been written, and puts them into the capture when it is time, or `at_end`.
    pub fn write(
        &mut self,
        written: &Written,
        drain: &mut Drain,
        processes: &Processes,
        bpf_code: &mut BpfCode,
        at_end: bool,
    ) -> Result<()> {
        self.find(&written.kernel, bpf_code, at_end);
        self.vdso_wanted |= processes.any_in_vdso(&written.user);
        if self.vdso_wanted && !self.vdso_written {
            self.vdso_written = true;
            if let Some(image) = own_vdso() {
                drain.writer.vdso(&Vdso { image })?;
            }
        }
        if self.ready.is_empty() || (!at_end && Instant::now() < self.next) {
            return Ok(());
        }
        self.next = Instant::now() + self.interval;
        self.interval = (self.interval * 2).min(RARELY);
        let mut symbols = std::mem::take(&mut self.ready);
        symbols.sort_by_key(|s| s.start);
        let stext = self.stext;
        let table = KernelSymbols { stext, symbols };
        drain.writer.kernel_symbols(&table).map_err(|err| {
            // For the end, which may still have room.
            self.ready = table.symbols;
            err.into()
        })
    }

    /// Finds the symbols of `sampled` addresses, those of modules and BPF programs `at_end`.
    fn find(&mut self, sampled: &[u64], bpf_code: &mut BpfCode, at_end: bool) {
        match &mut self.source {
            Source::Hidden | Source::Unread => {}
            Source::Asked(names) => {
                // What fails is asked again the next time.
                let asked = names.ask(sampled, bpf_code, &mut self.ready);
                if at_end {
                    if let Err(err) = asked {
                        eprintln!("note: the kernel did not tell all of its names: {err:#}");
                    }
                    self.ready.extend(names.finish(bpf_code));
                    let unknown = names.unknown(bpf_code);
                    self.ready.extend(built_in(&unknown, read_again));
                }
            }
            Source::Table(names) => {
                names.look_up(sampled, &mut self.ready);
                if at_end {
                    self.ready.extend(names.finish(bpf_code, read_again));
                }
            }
        }
    }
}

fn read_again() -> Option<Kallsyms> {
    Kallsyms::read().ok().flatten()
}

/// Symbols only the table has: code the kernel makes for ftrace and kprobes, all of one name whatever comes and goes.
fn built_in(unknown: &[u64], read: impl FnOnce() -> Option<Kallsyms>) -> Vec<KernelSymbol> {
    if unknown.is_empty() {
        return Vec::new();
    }
    let table = read();
    let mut symbols = table.map_or(Vec::new(), |table| table.covering(unknown).symbols);
    let is_built_in = |module: &String| module.starts_with("__builtin__");
    symbols.retain(|symbol| symbol.module.as_ref().is_some_and(is_built_in));
    symbols
}

/// The vdso is the same in all 64-bit processes of a kernel, so our own will do.
pub(super) fn own_vdso() -> Option<Vec<u8>> {
    let mapping = maps::read_executable(Pid(std::process::id())).ok()?;
    let vdso = mapping.into_iter().find(|m| m.path == b"[vdso]")?;
    let mut image = vec![0; (vdso.end - vdso.start) as usize];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut image, vdso.start)
        .ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_made_for_ftrace_and_kprobes_is_looked_up_at_the_end() {
        let text = "\
ffffffff81000000 t kernel
ffffffffc0000100 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0001100 t code\t[mod]
";
        let read = || Kallsyms::parse(text.as_bytes()).expect("readable");
        let unknown = [
            0xffff_ffff_8100_0008,
            0xffff_ffff_c000_0108,
            0xffff_ffff_c000_1108,
        ];
        let found = built_in(&unknown, read);
        let names: Vec<_> = found.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["ftrace_trampoline"]);
        assert_eq!(built_in(&[], || panic!("read for nothing")), []);
    }
}
