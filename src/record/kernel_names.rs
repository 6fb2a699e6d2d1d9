//! The aid that names of kernel and vdso frames need, put into the capture while it grows.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::bpf_code::BpfCode;
use super::drain::Drain;
use super::kallsyms::{BPF, Kallsyms};
use super::maps;
use super::processes::Processes;
use crate::capture::writer::Written;
use crate::event::Pid;
use crate::format::aid::Vdso;

/// Kernel symbols go into the capture after this time for the first time, then at ever longer intervals, so that a
/// recording that is killed has names too.
const FIRST_SYMBOLS: Duration = Duration::from_secs(2);
/// No longer than this between two times.
const RARELY: Duration = Duration::from_secs(16);

/// What is known of the kernel's symbols, and which addresses wait for theirs.
pub struct KernelNames {
    /// All symbols; `None` when they are hidden.
    pub table: Option<Kallsyms>,
    wanted: Vec<u64>,
    /// Starts of the symbols in the capture.
    written: HashSet<u64>,
    next: Instant,
    interval: Duration,
    vdso_wanted: bool,
    vdso_written: bool,
}

impl Default for KernelNames {
    fn default() -> KernelNames {
        KernelNames {
            table: None,
            wanted: Vec::new(),
            written: HashSet::new(),
            next: Instant::now() + FIRST_SYMBOLS,
            interval: FIRST_SYMBOLS,
            vdso_wanted: false,
            vdso_written: false,
        }
    }
}

impl KernelNames {
    /// Puts names of what has been sampled into the capture when it is time, or `at_end`.
    pub fn write(
        &mut self,
        written: &Written,
        drain: &mut Drain,
        processes: &Processes,
        bpf_code: &BpfCode,
        at_end: bool,
    ) -> Result<()> {
        self.wanted.extend_from_slice(&written.kernel);
        self.vdso_wanted |= processes.any_in_vdso(&written.user);
        if !at_end && Instant::now() < self.next {
            return Ok(());
        }
        self.next = Instant::now() + self.interval;
        self.interval = (self.interval * 2).min(RARELY);
        if self.vdso_wanted && !self.vdso_written {
            self.vdso_written = true;
            if let Some(image) = own_vdso() {
                drain.writer.vdso(&Vdso { image })?;
            }
        }
        let Some(table) = &self.table else {
            self.wanted.clear();
            return Ok(());
        };
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let mut found = table.covering(&self.wanted);
        // Modules and BPF programs come and go, and others take their place: only a second look at the end tells which
        // were there all the time.
        let lasting = |address: &u64| table.covers(*address) && !table.is_module(*address);
        found.symbols.retain(|symbol| symbol.module.is_none());
        self.wanted.retain(|address| !lasting(address));
        if at_end
            && !self.wanted.is_empty()
            && let Ok(Some(later)) = Kallsyms::read()
        {
            let then = table.covering(&self.wanted).symbols;
            let mut now = later.covering(&self.wanted).symbols;
            now.retain(|symbol| {
                let before = then.iter().find(|s| s.start == symbol.start);
                symbol.module.as_deref() != Some(BPF)
                    && before.is_none_or(|before| before == symbol)
            });
            found.symbols.extend(now);
            let lasts = |start, name: &str| later.bpf_name(start).as_deref() == Some(name);
            found.symbols.extend(bpf_code.covering(&self.wanted, lasts));
            found.symbols.sort_by_key(|s| s.start);
        }
        found
            .symbols
            .retain(|symbol| self.written.insert(symbol.start));
        if !found.symbols.is_empty() {
            drain.writer.kernel_symbols(&found)?;
        }
        Ok(())
    }
}

/// The vdso is the same in all 64-bit processes of a kernel, so our own will do.
fn own_vdso() -> Option<Vec<u8>> {
    let mapping = maps::read_executable(Pid(std::process::id())).ok()?;
    let vdso = mapping.into_iter().find(|m| m.path == b"[vdso]")?;
    let mut image = vec![0; (vdso.end - vdso.start) as usize];
    File::open("/proc/self/mem")
        .ok()?
        .read_exact_at(&mut image, vdso.start)
        .ok()?;
    Some(image)
}
