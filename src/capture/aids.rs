//! Symbol aid: what the recording machine left to name addresses by, of all frames that have any.

use super::damage::{Damage, DamageKind};
use super::frames::FrameReader;
use super::source::Source;
use crate::format::aid::{ElfLayout, ElfLayouts, KernelSymbols, PerfMap, PerfMaps, Vdso};
use crate::format::descriptor::FrameKind;
use crate::format::index::FrameEntry;
use crate::format::limits;

/// What the recording machine left to name addresses by.
#[derive(Debug, Clone, Default)]
pub struct Aids {
    /// Kernel symbols of all frames: sorted, not overlapping.
    pub kernel: KernelSymbols,
    /// The vdso image.
    pub vdso: Option<Vdso>,
    /// Perf maps, in the order of the file.
    pub perf_maps: Vec<PerfMap>,
    /// Layouts of ELF files.
    pub layouts: Vec<ElfLayout>,
    /// Frames of these kinds that cannot be used.
    pub damage: Vec<Damage>,
}

impl Aids {
    /// All symbol aid in the frames of `entries`.
    pub(super) fn new(source: &Source, entries: &[FrameEntry]) -> Aids {
        Aids::of(source, entries, |kind| {
            matches!(
                kind,
                FrameKind::KernelSymbols
                    | FrameKind::Vdso
                    | FrameKind::PerfMaps
                    | FrameKind::ElfLayouts
            )
        })
    }

    /// The layouts alone, for which the others are not read.
    pub(super) fn layouts_of(source: &Source, entries: &[FrameEntry]) -> Vec<ElfLayout> {
        Aids::of(source, entries, |kind| kind == FrameKind::ElfLayouts).layouts
    }

    fn of(source: &Source, entries: &[FrameEntry], wanted: impl Fn(FrameKind) -> bool) -> Aids {
        let mut aids = Aids::default();
        let mut frames = FrameReader::default();
        let mut total = 0u64;
        let mut room = limits::AIDS_ENTRIES;
        for entry in entries {
            if !wanted(entry.descriptor.kind) {
                continue;
            }
            total = total.saturating_add(entry.descriptor.uncompressed);
            let added = if total > limits::AIDS {
                Err(DamageKind::TooMuchAid)
            } else {
                let content = frames.content(source, entry);
                content.and_then(|c| aids.add(entry.descriptor.kind, c, &mut room))
            };
            if let Err(kind) = added {
                aids.damage.push(Damage {
                    offset: entry.offset,
                    kind,
                    frames: 1,
                    samples: 0,
                });
            }
        }
        aids.kernel.normalize();
        aids
    }

    /// Adds a frame of which there is still `room` for its entries.
    fn add(&mut self, kind: FrameKind, content: &[u8], room: &mut u64) -> Result<(), DamageKind> {
        let mut take = |entries: u64| {
            let left = room.checked_sub(entries);
            *room = left.ok_or(DamageKind::TooMuchAid)?;
            Ok(())
        };
        match kind {
            FrameKind::KernelSymbols => {
                let more = KernelSymbols::decode(content).map_err(DamageKind::Format)?;
                take(more.symbols.len() as u64)?;
                if more.stext != 0 {
                    self.kernel.stext = more.stext;
                }
                self.kernel.symbols.extend(more.symbols);
            }
            FrameKind::Vdso => {
                self.vdso = Some(Vdso::decode(content).map_err(DamageKind::Format)?);
            }
            FrameKind::PerfMaps => {
                let more = PerfMaps::decode(content).map_err(DamageKind::Format)?;
                take(more.entries())?;
                self.perf_maps.extend(more.maps);
            }
            FrameKind::ElfLayouts => {
                let more = ElfLayouts::decode(content).map_err(DamageKind::Format)?;
                take(more.entries())?;
                self.layouts.extend(more.layouts);
            }
            _ => {}
        }
        Ok(())
    }
}
