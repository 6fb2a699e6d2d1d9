//! The unwind information of all files that were walked through, read once each.

use std::fs::File;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::tables::{Image, Tables};
use crate::event::{MappedFile, MappedKind, Pid};
use crate::mapped::Guarded;
use crate::record::address_space::Mapping;
use crate::record::aside::SharedAside;
use crate::record::{files, kernel_names};

/// Files kept at most.
const MOST: usize = 512;
/// One that was not used for so long is given back.
const UNUSED: Duration = Duration::from_secs(30);
/// One that could not be read is tried again then: another process may be alive that maps it.
const AGAIN: Duration = Duration::from_secs(1);

/// The files.
#[derive(Default)]
pub struct Files {
    /// Who tries first whether a file can be read.
    aside: Option<SharedAside>,
    /// By the address of what is known of the file, which is kept so that it stays there.
    by_file: HashMap<*const MappedFile, Entry, foldhash::fast::RandomState>,
    /// Numbers given so far.
    numbers: u32,
    next_look: Option<Instant>,
}

struct Entry {
    _file: Rc<MappedFile>,
    number: u32,
    /// What is in it, or since when that is not known.
    tables: Result<Tables, Instant>,
    /// In this batch, or the last.
    used: bool,
    since: Instant,
}

impl Files {
    /// None read yet.
    pub fn new(aside: Option<SharedAside>) -> Files {
        Files {
            aside,
            ..Files::default()
        }
    }

    /// The unwind information of what `mapping` of `process` maps, with a number that no other file ever has. `None` when it
    /// cannot be read.
    pub fn get(&mut self, process: Pid, mapping: &Mapping) -> Option<(u32, &Tables)> {
        let key = Rc::as_ptr(&mapping.file);
        let is_old = |entry: &Entry| match &entry.tables {
            Ok(tables) => tables.is_spoilt(),
            Err(tried) => tried.elapsed() >= AGAIN,
        };
        if self.by_file.get(&key).is_none_or(is_old) {
            if self.by_file.len() >= MOST {
                self.by_file.retain(|_, entry| entry.used);
            }
            if self.by_file.len() >= MOST {
                self.by_file.clear();
            }
            self.numbers = self.numbers.wrapping_add(1);
            let tables = open(&self.aside, process, mapping).map(Tables::new);
            let entry = Entry {
                _file: mapping.file.clone(),
                number: self.numbers,
                tables: tables.ok_or_else(Instant::now),
                used: true,
                since: Instant::now(),
            };
            self.by_file.insert(key, entry);
        }
        let entry = self.by_file.get_mut(&key)?;
        entry.used = true;
        let tables = entry.tables.as_ref().ok()?;
        Some((entry.number, tables))
    }

    /// What is in `file`, which is not opened then.
    pub fn know(&mut self, file: &Rc<MappedFile>, image: Image) {
        self.numbers = self.numbers.wrapping_add(1);
        let entry = Entry {
            _file: file.clone(),
            number: self.numbers,
            tables: Ok(Tables::new(image)),
            used: true,
            since: Instant::now(),
        };
        self.by_file.insert(Rc::as_ptr(file), entry);
    }

    /// Whether a file was cut while it was read.
    pub fn are_spoilt(&self) -> bool {
        let mut all = self.by_file.values();
        all.any(|entry| entry.tables.as_ref().is_ok_and(Tables::is_spoilt))
    }

    /// Gives back what was not used for a while. Looks now and then; whether it did.
    pub fn tidy(&mut self) -> bool {
        let now = Instant::now();
        if self.next_look.is_some_and(|next| now < next) {
            return false;
        }
        self.next_look = Some(now + UNUSED / 6);
        self.by_file.retain(|_, entry| {
            if std::mem::take(&mut entry.used) {
                entry.since = now;
            }
            now.saturating_duration_since(entry.since) < UNUSED
        });
        true
    }
}

/// Files smaller than an ELF header or larger than address spaces like are not mapped.
const SIZES: RangeInclusive<u64> = 64..=1 << 36;

fn open(aside: &Option<SharedAside>, process: Pid, mapping: &Mapping) -> Option<Image> {
    if mapping.file.kind == MappedKind::Vdso {
        return kernel_names::own_vdso().map(Image::Memory);
    }
    if let Some(aside) = aside {
        let raw = files::raw_of(mapping);
        // It opens the file in the same ways.
        aside.borrow_mut().file(process, &raw, None)?;
    }
    let file: File = files::open_again(process, mapping)?;
    let size = file.metadata().ok()?.len();
    if !SIZES.contains(&size) {
        return None;
    }
    Guarded::new(&file).ok().map(Image::File)
}
