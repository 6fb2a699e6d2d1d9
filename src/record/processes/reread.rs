//! Mappings read from `/proc`: of what runs already, and again where what is known cannot be trusted.

use std::io;
use std::rc::Rc;

use super::model::{FirstSample, Image, Sampled, image_at};
use super::write::{write_image_head, write_space};
use super::{Processes, Writer};
use crate::capture::writer::TablesFull;
use crate::event::{LossClass, MappedFile, MappedKind, Origin, Pid, ProcessKey, Timestamp};
use crate::record::address_space::{AddressSpace, Mapping};
use crate::record::maps::read_executable;
use crate::record::procfs;

/// A process that runs in code nothing is known to map is looked at again, but not more often than this (ns).
const LOOK_AGAIN: u64 = 5_000_000_000;
/// Above every user address of every architecture with 64-bit (57-bit paging included).
const USER_TOP: u64 = 1 << 56;

impl Processes {
    pub(super) fn read_space(&mut self, process: Pid) -> io::Result<AddressSpace> {
        let raw = read_executable(process)?;
        let mappings: Vec<Mapping> = raw.iter().map(|raw| self.mapping(process, raw)).collect();
        let main = main_files(process, &mappings);
        Ok(AddressSpace::read(mappings, main))
    }

    /// Reads mappings again where what is known cannot be trusted: records were lost, or an exec was missed.
    pub(super) fn refresh(
        &mut self,
        at: usize,
        sample: &FirstSample,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let FirstSample {
            sampled,
            first,
            now,
            ..
        } = sample;
        let pid = sampled.key.tgid;
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        if process.kernel || sampled.kernel {
            return Ok(());
        }
        let missed_exec = !sampled.in_exec
            && image_at(&mut process.images, *first)
                .is_some_and(|i| *i.exec_id.get_or_insert(sampled.exec_id) != sampled.exec_id)
            && process.images.last().is_some_and(|i| i.since <= *first);
        if !process.stale && !missed_exec {
            return Ok(());
        }
        process.stale = false;
        let ended = process.ended.is_some();
        let read = if ended {
            Err("the process ended".into())
        } else {
            self.read_if_same(sampled.key)
        };
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        // Records of a process are in time order, and what was told up to now is written already.
        let since = if process.written.is_some() {
            *now
        } else {
            *first
        };
        if missed_exec {
            let number = process.images.last().map_or(0, |i| i.number + 1);
            let mut image = Image::new(since, number, Origin::Sample, sampled.comm().to_vec());
            image.exec_id = Some(sampled.exec_id);
            process.images.push(image);
        }
        let written = process.written;
        let Some(image) = process.images.last_mut() else {
            return Ok(());
        };
        match read {
            Ok(space) => image.space = space,
            Err(reason) => {
                writer.loss(LossClass::MapsUnreadable, None, 1);
                image.unreadable = Some(reason);
            }
        }
        if let Some((id, _)) = written {
            if missed_exec {
                write_image_head(id, image, writer)?;
            }
            write_space(id, image, since, since, writer)?;
        }
        Ok(())
    }

    /// Mappings of the process `key` from `/proc`, if that number still is that process.
    fn read_if_same(&mut self, key: ProcessKey) -> Result<AddressSpace, String> {
        let same = |tick_ns: u64| {
            procfs::read_stat(key.tgid).is_ok_and(|s| s.start_ticks == key.start_time.0 / tick_ns)
        };
        if !same(self.tick_ns) {
            return Err("process ended".into());
        }
        let space = self.read_space(key.tgid).map_err(|err| err.to_string())?;
        // Still the same after reading, or the mappings are somebody else's.
        if same(self.tick_ns) {
            Ok(space)
        } else {
            Err("process ended".into())
        }
    }

    /// A sample of `sampled` had its user leaf at `address`: if nothing covers it, the process is read again.
    pub fn check_covered(
        &mut self,
        sampled: &Sampled,
        address: u64,
        now: Timestamp,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        if sampled.kernel || address >= USER_TOP {
            return Ok(());
        }
        let Some(at) = self.find(sampled.key) else {
            return Ok(());
        };
        let pid = sampled.key.tgid;
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let recently = process
            .looked_again
            .is_some_and(|then| now.since(then) < LOOK_AGAIN);
        let ended = process.ended.is_some();
        let covering = process
            .images
            .last()
            .map(|image| image.space.covering(address));
        // The sample may be of a program that another has replaced by now.
        let in_vdso = process
            .images
            .iter()
            .any(|image| image.space.covering(address) == Some(MappedKind::Vdso));
        if in_vdso {
            self.vdso_sampled = true;
            return Ok(());
        }
        if covering != Some(None) || recently || ended || sampled.in_exec {
            return Ok(());
        }
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        process.looked_again = Some(now);
        let Ok(space) = self.read_if_same(sampled.key) else {
            return Ok(());
        };
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let written = process.written;
        if let Some(image) = process.images.last_mut() {
            image.space = space;
            image.unreadable = None;
            if let Some((id, _)) = written {
                write_space(id, image, now, now, writer)?;
            }
        }
        Ok(())
    }
}

/// The executable of a process that already runs and, when that is a dynamic loader started by hand, the program
/// it loaded, which only its arguments tell. Arguments are looked at and not kept.
fn main_files(process: Pid, mappings: &[Mapping]) -> Vec<Rc<MappedFile>> {
    use std::os::unix::ffi::OsStrExt;

    let named = |path: &[u8]| {
        let mapped = mappings.iter().find(|m| m.file.path == path)?;
        Some(mapped.file.clone())
    };
    let Ok(exe) = std::fs::read_link(format!("/proc/{process}/exe")) else {
        return Vec::new();
    };
    let bytes = exe.as_os_str().as_bytes();
    let bare = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    let mut main: Vec<_> = named(bare).into_iter().collect();
    let name = bare.rsplit(|b| *b == b'/').next().unwrap_or(bare);
    if name.starts_with(b"ld") && !main.is_empty() {
        let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let program = arguments.split(|b| *b == 0).skip(1).find_map(|argument| {
            let name = argument
                .rsplit(|b| *b == b'/')
                .next()
                .filter(|n| !n.is_empty())?;
            mappings.iter().find(|m| {
                m.file.path.rsplit(|b| *b == b'/').next() == Some(name)
                    && main.iter().all(|known| *known != m.file)
            })
        });
        main.extend(program.map(|m| m.file.clone()));
    }
    main
}
