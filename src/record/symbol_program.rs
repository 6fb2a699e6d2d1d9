//! The kernel asked for the symbols of single addresses, by a BPF program that runs when we call it: that takes a
//! microsecond each, where the text of all of `/proc/kallsyms` takes the kernel and us tens of milliseconds.
//!
//! Needs Linux 5.17 (`bpf_loop`; `bpf_kallsyms_lookup_name` is of 5.16, programs of this type of 5.14).

use std::mem::MaybeUninit;

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, ProgramInput, ProgramMut};

use super::bpf::quiet_libbpf;
use super::kallsyms::{BPF, LONGEST, is_marker};
use crate::format::aid::KernelSymbol;

#[allow(
    missing_docs,
    clippy::all,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    unsafe_op_in_unsafe_fn
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/symbols.skel.rs"));
}
use skel::types::{landmarks, named};
use skel::{SymbolsSkel, SymbolsSkelBuilder};

/// The loaded program.
pub struct SymbolProgram {
    skel: SymbolsSkel<'static>,
    /// Runtime address of `_stext`.
    pub stext: u64,
    /// Where the kernel's own code is.
    text: [(u64, u64); 2],
    /// Where the kernel's idle routines are.
    pub idle_text: Option<(u64, u64)>,
}

impl SymbolProgram {
    /// Loads the program and asks where the kernel is. An error when this kernel cannot, or tells us no addresses.
    pub fn load() -> Result<SymbolProgram> {
        quiet_libbpf();
        // As the sampling program: libbpf wants it at a fixed place, and it lives as long as we do.
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let open = SymbolsSkelBuilder::default().open(place)?;
        let mut skel = open.load()?;
        run(&skel.progs.find_landmarks)?;
        let shared = skel.maps.bss_data.as_deref_mut().context("no variables")?;
        // SAFETY: memory of our own that only our program writes, which does not run now.
        let landmarks = unsafe { (&raw const shared.landmarks).read_volatile() };
        let landmarks {
            stext,
            etext,
            sinittext,
            einittext,
            idle_start,
            idle_end,
        } = landmarks;
        if stext == 0 || etext <= stext {
            bail!("the kernel does not tell where it is");
        }
        Ok(SymbolProgram {
            skel,
            stext,
            text: [(stext, etext), (sinittext, einittext)],
            idle_text: (idle_start < idle_end).then_some((idle_start, idle_end)),
        })
    }

    /// Asks for the code symbol that covers each of `addresses` now; `told` gets them in their order.
    pub fn name(
        &mut self,
        addresses: &[u64],
        mut told: impl FnMut(u64, Option<KernelSymbol>),
    ) -> Result<()> {
        let mut rest = addresses;
        while !rest.is_empty() {
            let done = self.name_some(rest, &mut told)?;
            rest = rest
                .get(done..)
                .filter(|_| done > 0)
                .context("the kernel names no address")?;
        }
        Ok(())
    }

    /// Names as many of the first of `addresses` as the shared memory takes, and says how many.
    fn name_some(
        &mut self,
        addresses: &[u64],
        told: &mut impl FnMut(u64, Option<KernelSymbol>),
    ) -> Result<usize> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        let shared: *mut named = &raw mut bss.context("no variables")?.named;
        // SAFETY: `shared` is memory of our own, which lives as long as `self`; only our program writes it, which runs
        // nowhere but within `run`, and nothing refers to it meanwhile.
        let asked = unsafe {
            let room = &mut (*shared).addresses;
            let asked = addresses.len().min(room.len());
            for (slot, address) in room.iter_mut().zip(addresses) {
                *slot = *address;
            }
            (*shared).asked = asked as u32;
            asked
        };
        run(&self.skel.progs.name_addresses)?;
        // SAFETY: as above.
        let (done, text) = unsafe {
            let done = (&raw const (*shared).done).read_volatile() as usize;
            let bytes = (&raw const (*shared).bytes).read_volatile() as usize;
            let text = &(*shared).text;
            let text = std::slice::from_raw_parts(text.as_ptr().cast::<u8>(), text.len());
            (done.min(asked), text.get(..bytes).unwrap_or_default())
        };
        let mut texts = text.split(|b| *b == 0);
        for address in addresses.iter().take(done) {
            let symbol = parse(*address, texts.next().unwrap_or_default());
            told(*address, symbol.and_then(|s| as_code(s, &self.text)));
        }
        Ok(done)
    }
}

/// Kernels that keep symbols of data too name what is not code. What is neither in the kernel's `text` nor of a module is of
/// a BPF program, trampoline or dispatcher, which this way of asking gives no module.
fn as_code(mut symbol: KernelSymbol, text: &[(u64, u64)]) -> Option<KernelSymbol> {
    let is_in_text = || {
        text.iter()
            .any(|(start, end)| (*start..*end).contains(&symbol.start))
    };
    if symbol.module.is_none() && !is_in_text() {
        let mut kinds = ["bpf_prog_", "bpf_trampoline_", "bpf_dispatcher_"].iter();
        if !kinds.any(|kind| symbol.name.starts_with(kind)) {
            return None;
        }
        symbol.module = Some(BPF.into());
    }
    Some(symbol)
}

fn run(program: &ProgramMut<'_>) -> Result<()> {
    program.test_run(ProgramInput::default())?;
    Ok(())
}

/// What `%pS` prints: `name+0xoffset/0xsize`, and ` [module]` behind it, or the bare address when nothing covers it.
fn parse(address: u64, text: &[u8]) -> Option<KernelSymbol> {
    let text = std::str::from_utf8(text).ok()?;
    let (symbol, module) = match text.strip_suffix(']').and_then(|t| t.rsplit_once(" [")) {
        Some((symbol, module)) => (symbol, Some(module.to_owned())),
        None => (text, None),
    };
    let (name, place) = symbol.rsplit_once('+')?;
    let (offset, size) = place.split_once('/')?;
    let hex = |number: &str| u64::from_str_radix(number.strip_prefix("0x")?, 16).ok();
    let (offset, size) = (hex(offset)?, hex(size)?);
    let start = address.checked_sub(offset)?;
    let limit = if module.is_none() { LONGEST } else { u64::MAX };
    let size = size.min(limit);
    (offset < size && !name.is_empty() && !is_marker(name)).then(|| KernelSymbol {
        start,
        end: start.saturating_add(size),
        name: name.into(),
        module,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(u64, u64, String, Option<String>)> {
        let symbol = parse(0xffff_ffff_8100_0040, text.as_bytes())?;
        let from = |address: u64| address - 0xffff_ffff_8100_0000;
        Some((
            from(symbol.start),
            from(symbol.end),
            symbol.name,
            symbol.module,
        ))
    }

    #[test]
    fn what_the_kernel_prints_is_a_symbol() {
        assert_eq!(
            parsed("do_one.isra.0+0x40/0x80"),
            Some((0, 0x80, "do_one.isra.0".into(), None))
        );
        assert_eq!(
            parsed("nft_do_chain+0x10/0x6a0 [nf_tables]"),
            Some((0x30, 0x6d0, "nft_do_chain".into(), Some("nf_tables".into())))
        );
        assert_eq!(
            parsed("_RNvC1a+b+0x0/0x1"),
            Some((0x40, 0x41, "_RNvC1a+b".into(), None))
        );
    }

    #[test]
    fn code_of_bpf_programs_is_told_from_data() {
        let text = [(0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000)];
        let module_of = |name: &str, start: u64| {
            let symbol = KernelSymbol {
                start,
                end: start + 0x40,
                name: name.into(),
                module: None,
            };
            as_code(symbol, &text).map(|symbol| symbol.module)
        };
        let bpf = Some(Some(BPF.to_owned()));
        let outside = 0xffff_ffff_c002_65d0;
        assert_eq!(module_of("bpf_prog_6deef7357e7b4530_forget", outside), bpf);
        assert_eq!(module_of("bpf_trampoline_6442536467", outside), bpf);
        assert_eq!(module_of("bpf_prog_put", 0xffff_ffff_8100_0040), Some(None));
        assert_eq!(module_of("init_task", outside), None);
    }

    #[test]
    fn what_covers_no_address_names_nothing() {
        for text in [
            "",
            "0xffffffff81000040",
            "f+0x40/0x40",
            "f+0x41/0x40",
            "f+0x200000/0x400000",
            "_stext+0x40/0x80",
            "__cpuidle_text_start+0x40/0x80",
            "+0x40/0x80",
            "f+0x40",
            "f+40/80",
            "f+0xffffffffffffffff/0xffffffffffffffff",
            "f+0x40/0x80 [mod",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
