//! Mappings read from `/proc`: of what runs already, and again where what is known cannot be trusted.
//!
//! While recording, `/proc` shows a later moment than the events that have been taken in: the process may have gone on to
//! another program meanwhile, of which the kernel has told and nobody has read. So a reading waits until the events of
//! that moment are taken in, and holds from then on, unless they tell of another program.

use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use super::model::{FirstSample, Image, Sampled, Start, image_at};
use super::write::{place_in, write_image};
use super::{Processes, Writer};
use crate::capture::writer::TablesFull;
use crate::event::{DELETED, MappedFile, Origin, Pid, ProcessKey, Timestamp};
use crate::format::process::ProcessRecord;
use crate::record::address_space::{AddressSpace, Mapping};
use crate::record::aside::SharedAside;
use crate::record::maps::{SeenProcess, read_process};
use crate::record::procfs;

/// A process that runs in code nothing is known to map is looked at again, but not more often than this (ns).
const LOOK_AGAIN: u64 = 5_000_000_000;
/// Mappings of a living process, read while it was recorded.
pub(super) struct Reading {
    /// Number of the image they are taken to be of.
    image: u32,
    /// When they had been read.
    at: Timestamp,
    mappings: Vec<Mapping>,
    main: Vec<Rc<MappedFile>>,
}

/// Above every user address of every architecture with 64-bit (57-bit paging included).
const USER_TOP: u64 = 1 << 56;

impl Processes {
    /// Of a process that was just looked at.
    pub(super) fn space_of(&mut self, process: Pid, seen: &SeenProcess) -> AddressSpace {
        let (mappings, main) = self.mappings_of(process, seen);
        AddressSpace::read(mappings, main)
    }

    fn read_mappings(&mut self, process: Pid) -> io::Result<Read> {
        let seen = see(&self.aside, process)?;
        Ok(self.mappings_of(process, &seen))
    }

    fn mappings_of(&mut self, process: Pid, seen: &SeenProcess) -> Read {
        let mappings: Vec<Mapping> = seen
            .mappings
            .iter()
            .map(|raw| self.mapping(process, raw, None))
            .collect();
        let main = main_files(seen, &mappings);
        (mappings, main)
    }

    /// Reads mappings again where what is known cannot be trusted: records were lost, or an exec was missed.
    ///
    /// What is read holds as soon as it can (see [`Reading`]). For the time between, in which it may have changed unseen,
    /// nothing is known.
    pub(super) fn refresh(
        &mut self,
        at: usize,
        sample: &FirstSample,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let FirstSample { sampled, first, .. } = sample;
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
        process.start = Start::At(sampled.key.start_time);
        self.reread(pid, at, missed_exec.then_some(sample), writer)
    }

    /// Reads the mappings of a process whose start is known; `missed` is the first sample after an exec nothing told of.
    pub(super) fn reread(
        &mut self,
        pid: Pid,
        at: usize,
        missed: Option<&FirstSample>,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let doubtful_since = self.good_until;
        let missed_exec = missed.is_some();
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let Start::At(start_time) = process.start else {
            return Ok(());
        };
        if process.kernel {
            return Ok(());
        }
        let key = ProcessKey {
            tgid: pid,
            start_time,
        };
        process.stale = false;
        if !missed_exec && process.ended.is_some_and(|end| end <= doubtful_since) {
            return Ok(());
        }
        self.code_changed(pid);
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let read = if process.ended.is_some() {
            Err("the process ended".into())
        } else {
            self.read_if_same(key)
        };
        let Some(process) = self.get(pid, at) else {
            return Ok(());
        };
        let written = process.written;
        let Some(image) = process.images.last_mut() else {
            return Ok(());
        };
        if let Ok((mappings, _)) = &read
            && !missed_exec
            && !image.space.is_empty()
            && image.space.has_all(mappings)
        {
            return Ok(());
        }
        let unreadable = Some(match &read {
            Ok(_) => "process events were lost".into(),
            Err(reason) => reason.clone(),
        });
        if !missed_exec && written.is_none() && image.space.is_empty() {
            // The first that is known of it.
            image.unreadable = unreadable;
        } else {
            let comm = match missed {
                Some(sample) => sample.sampled.comm().to_vec(),
                None => image.current_comm().to_vec(),
            };
            let since = missed.map_or(doubtful_since, |sample| sample.first);
            // Samples of a moment later may be in the file with a time that was rounded down.
            let since = writer.surely_by(since).max(image.since);
            let mut next = Image::new(since, image.number + 1, Origin::Sample, comm);
            next.exec_id = missed.map(|sample| sample.sampled.exec_id);
            next.unreadable = unreadable;
            if let Some((id, _)) = written {
                write_image(id, &next, since, writer)?;
            }
            process.images.push(next);
        }
        if let Ok(read) = read {
            self.keep_reading(key, at, read);
        }
        Ok(())
    }

    /// Keeps what was just read of a process until events of this moment have been taken in.
    fn keep_reading(&mut self, key: ProcessKey, at: usize, (mappings, main): Read) {
        let read_at = (self.clock)();
        let process = self.get(key.tgid, at);
        let Some(image) = process.and_then(|process| process.current()) else {
            return;
        };
        let reading = Reading {
            image: image.number,
            at: read_at,
            mappings,
            main,
        };
        self.readings.insert(key, reading);
    }

    /// Whether anything was read that does not hold yet: the next batch should come soon.
    pub fn has_readings(&self) -> bool {
        !self.readings.is_empty()
    }

    /// Events up to `horizon` have been taken in: what was read before holds from there on.
    pub fn settle_readings(
        &mut self,
        horizon: Timestamp,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        if self.readings.is_empty() {
            return Ok(());
        }
        let readings = std::mem::take(&mut self.readings).into_iter();
        let (settled, waiting): (BTreeMap<_, _>, _) = readings.partition(|(_, r)| r.at <= horizon);
        self.readings = waiting;
        settled
            .into_iter()
            .try_for_each(|(key, reading)| self.believe(key, reading, horizon, writer))
    }

    fn believe(
        &mut self,
        key: ProcessKey,
        reading: Reading,
        now: Timestamp,
        writer: &mut Writer,
    ) -> Result<(), TablesFull> {
        let Some(at) = self.find(key) else {
            return Ok(());
        };
        let Some(process) = self.get(key.tgid, at) else {
            return Ok(());
        };
        // One that is stale is read again when it is sampled.
        if process.ended.is_some() || process.stale {
            return Ok(());
        }
        let written = process.written;
        let Some(image) = process.images.last_mut() else {
            return Ok(());
        };
        // Read of another program, or something else has been mapped there since.
        let other = |mapping: &Mapping| image.space.contradicts(mapping);
        if image.number != reading.image || reading.mappings.iter().any(other) {
            return Ok(());
        }
        if image.space.is_empty() {
            image.space.set_main(reading.main);
        }
        let mut new = reading.mappings;
        new.retain(|mapping| !image.space.has_all(std::slice::from_ref(mapping)));
        for mapping in new {
            if let Some((id, _)) = written {
                let placed = place_in(writer, &mapping)?;
                writer.process(ProcessRecord::Map {
                    process: id,
                    time: now,
                    placed,
                })?;
            }
            image.space.add(now, mapping);
        }
        self.code_changed(key.tgid);
        Ok(())
    }

    /// Mappings of the process `key` from `/proc`, if that number still is that process.
    fn read_if_same(&mut self, key: ProcessKey) -> Result<Read, String> {
        let tick = key.start_time.0 / self.tick_ns;
        let check_same = || match procfs::read_stat(key.tgid) {
            Ok(stat) if stat.start_ticks == tick => Ok(()),
            Err(err) if !procfs::is_gone(key.tgid) => Err(err.to_string()),
            _ => Err("process ended".to_owned()),
        };
        check_same()?;
        let read = self
            .read_mappings(key.tgid)
            .map_err(|err| err.to_string())?;
        // Still the same after reading, or the mappings are somebody else's.
        check_same().map(|()| read)
    }

    /// A sample of `sampled` had its user leaf at `address`: if nothing covers it, the process is read again.
    pub fn check_covered(&mut self, sampled: &Sampled, address: u64, now: Timestamp) {
        if sampled.kernel || address >= USER_TOP || self.readings.contains_key(&sampled.key) {
            return;
        }
        let Some(at) = self.find(sampled.key) else {
            return;
        };
        let pid = sampled.key.tgid;
        let Some(process) = self.get(pid, at) else {
            return;
        };
        let recently = process
            .looked_again
            .is_some_and(|then| now.since(then) < LOOK_AGAIN);
        // One that is stale is read again as a whole.
        let skipped = process.stale || process.ended.is_some();
        let covering = process
            .images
            .last()
            .map(|image| image.space.covering(address));
        if covering != Some(None) || recently || skipped || sampled.in_exec {
            return;
        }
        let Some(process) = self.get(pid, at) else {
            return;
        };
        process.looked_again = Some(now);
        let Ok(read) = self.read_if_same(sampled.key) else {
            return;
        };
        self.keep_reading(sampled.key, at, read);
    }
}

/// Mappings, ascending, and the main executable first of all (see [`AddressSpace`]).
type Read = (Vec<Mapping>, Vec<Rc<MappedFile>>);

/// What `process` has mapped, seen aside if there is somebody to ask.
pub(super) fn see(aside: &Option<SharedAside>, process: Pid) -> io::Result<SeenProcess> {
    match aside {
        Some(aside) => aside.borrow_mut().process(process),
        None => read_process(process),
    }
}

/// As [`see`] of each of `processes`, in their order.
pub(super) fn see_together(
    aside: &Option<SharedAside>,
    processes: &[Pid],
) -> Vec<io::Result<SeenProcess>> {
    match aside {
        Some(aside) => aside.borrow_mut().processes(processes),
        None => processes.iter().map(|pid| read_process(*pid)).collect(),
    }
}

/// The executable of a process that already runs and, when that is a dynamic loader started by hand, the program
/// it loaded, which only its arguments tell. Arguments are looked at and not kept.
fn main_files(seen: &SeenProcess, mappings: &[Mapping]) -> Vec<Rc<MappedFile>> {
    let named = |path: &[u8]| {
        let mapped = mappings.iter().find(|m| m.file.path == path)?;
        Some(mapped.file.clone())
    };
    let Some(exe) = &seen.exe else {
        return Vec::new();
    };
    let bare = exe.strip_suffix(DELETED).unwrap_or(exe);
    let mut main: Vec<_> = named(bare).into_iter().collect();
    if !main.is_empty() {
        let program = seen
            .arguments
            .split(|b| *b == 0)
            .skip(1)
            .find_map(|argument| {
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
