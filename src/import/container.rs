//! What is around the records of a `perf.data`: a file with a header, sections and features, or a stream in which all of
//! that comes as records.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use super::attrs::{self, Attr, Attrs};
use super::bytes::{Bytes, until_zero};
use super::records::{Ordered, Record, Records, kind};
use super::{Progress, Step};

/// Bytes of the header of a stream, and of a file's header at least.
pub const PIPE_HEADER: usize = 16;
const FILE_HEADER: usize = 104;
/// Bytes of a section that are read at most; none that is read here comes near.
const SECTION: u64 = 64 << 20;
/// Bytes of an event's description at most, the section with its ids included.
const ATTR: u64 = 4096;
/// Ids of one event at most: one for each CPU and thread.
const IDS: u64 = 1 << 20;
/// Records before the first that tells of processes, in a stream.
const PREAMBLE: usize = 1 << 16;

/// Numbers of perf's features.
pub mod feature {
    pub const BUILD_ID: u32 = 2;
    pub const HOSTNAME: u32 = 3;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const CLOCK_DATA: u32 = 29;
    /// Those that are read.
    pub const READ: [u32; 9] = [
        BUILD_ID, HOSTNAME, OSRELEASE, VERSION, ARCH, NRCPUS, CMDLINE, EVENT_DESC, CLOCK_DATA,
    ];
}

/// A `perf.data` that is open.
pub struct Container {
    pub attrs: Attrs,
    pub features: HashMap<u32, Vec<u8>>,
    pub records: Ordered,
    /// When the file was last written.
    pub modified: Option<SystemTime>,
    /// Bytes of the file.
    len: Option<u64>,
    /// Why there is nothing behind the records.
    damage: Option<String>,
}

/// Whether what begins with `start` is a stream.
///
/// # Errors
/// It is no `perf.data`, or one that cannot be read.
pub fn is_pipe(start: &[u8]) -> Result<bool> {
    match start.get(..8) {
        Some(b"PERFILE2") => {}
        Some(b"2ELIFREP") => {
            bail!("it was recorded on a big-endian machine, which is not supported")
        }
        Some(b"PERFFILE") => bail!("it is of a perf older than Linux 2.6.33"),
        _ if crate::format::header::is_capture(start) => {
            bail!("it is a capture already: report it")
        }
        _ => bail!("it is no perf.data"),
    }
    let size = Bytes(start.get(8..).unwrap_or_default()).u64();
    Ok(size == Some(PIPE_HEADER as u64))
}

#[derive(Debug, Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn take(bytes: &mut Bytes<'_>) -> Option<Section> {
        Some(Section {
            offset: bytes.u64()?,
            size: bytes.u64()?,
        })
    }

    fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    /// Its bytes, if the file has them all.
    fn read(self, file: &File, len: u64) -> Option<Vec<u8>> {
        if self.size > SECTION || self.end() > len {
            return None;
        }
        let mut bytes = vec![0; self.size as usize];
        file.read_exact_at(&mut bytes, self.offset).ok()?;
        Some(bytes)
    }
}

impl Container {
    /// A regular file.
    pub fn of_file(mut file: File) -> Result<Container> {
        let meta = file.metadata()?;
        let mut start = Vec::new();
        Read::by_ref(&mut file)
            .take(FILE_HEADER as u64)
            .read_to_end(&mut start)
            .context("cannot be read")?;
        if is_pipe(&start)? {
            file.seek(SeekFrom::Start(PIPE_HEADER as u64))?;
            let mut container = Container::of_stream(Box::new(BufReader::new(file)))?;
            container.modified = meta.modified().ok();
            container.len = Some(meta.len());
            return Ok(container);
        }
        let cut = || "it is cut in its header".to_owned();
        let mut head = Bytes(start.get(PIPE_HEADER..).unwrap_or_default());
        let attr_size = head.u64().with_context(cut)?;
        let [attr_section, mut data, _] = [(); 3].map(|()| Section::take(&mut head));
        let attr_section = attr_section.with_context(cut)?;
        let mut flags = [0; 4];
        for word in &mut flags {
            *word = head.u64().with_context(cut)?;
        }
        let data = data.as_mut().with_context(cut)?;
        let mut damage = None;
        if data.size == 0 {
            damage = Some("perf did not end it: it was killed, or still records".to_owned());
            data.size = meta.len().saturating_sub(data.offset);
        } else if data.end() > meta.len() {
            damage = Some("the file is cut".to_owned());
            data.size = meta.len().saturating_sub(data.offset);
        }
        let mut features = HashMap::new();
        if damage.is_none() {
            let whole;
            (features, whole) = read_features(&file, meta.len(), data.end(), flags);
            if !whole {
                damage = Some("the file is cut behind its records".to_owned());
            }
        }
        let mut list = read_attrs(&file, meta.len(), attr_section, attr_size)?;
        name_events(&mut list, features.get(&feature::EVENT_DESC));
        let attrs = Attrs::new(list)?;
        file.seek(SeekFrom::Start(data.offset))?;
        let reader = Box::new(BufReader::with_capacity(1 << 18, file));
        let records = Records::new(reader, data.offset, Some(data.size));
        Ok(Container {
            records: Ordered::new(records, Vec::new(), &attrs),
            attrs,
            features,
            modified: meta.modified().ok(),
            len: Some(meta.len()),
            damage,
        })
    }

    /// A stream, behind its header.
    pub fn of_stream(reader: Box<dyn Read>) -> Result<Container> {
        let mut records = Records::new(reader, PIPE_HEADER as u64, None);
        let mut features = HashMap::new();
        let (mut list, mut first, mut names) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(record) = records.next() {
            match record.kind {
                kind::ATTR => list.push(stream_attr(&record.body)?),
                kind::FEATURE => {
                    let mut body = Bytes(&record.body);
                    if let Some(number) = body.u64().and_then(|n| u32::try_from(n).ok())
                        && feature::READ.contains(&number)
                    {
                        features.insert(number, body.0.to_vec());
                    }
                }
                kind::EVENT_UPDATE => names.extend(event_name(&record.body)),
                _ => {
                    let ends = record.kind < kind::USER || record.kind == kind::FINISHED_ROUND;
                    first.push(record);
                    if ends {
                        break;
                    }
                }
            }
            if list.len() > attrs::MOST || first.len() > PREAMBLE {
                bail!("it has absurdly many events");
            }
        }
        name_events(&mut list, features.get(&feature::EVENT_DESC));
        for (id, name) in names {
            let named = list.iter_mut().find(|attr| attr.ids.contains(&id));
            if let Some(attr) = named {
                attr.name = Some(name);
            }
        }
        let attrs = match (list.is_empty(), &records.damage) {
            (true, Some(damage)) => bail!("nothing of it can be read: {damage}"),
            _ => Attrs::new(list)?,
        };
        Ok(Container {
            records: Ordered::new(records, first, &attrs),
            attrs,
            features,
            modified: None,
            len: None,
            damage: None,
        })
    }

    /// What is wrong with the file, as far as it has been read.
    pub fn damage(&self) -> Option<String> {
        let found = self.records.records.damage.clone();
        match (self.damage.clone(), found) {
            (Some(damage), Some(found)) => Some(format!("{damage}; {found}")),
            (damage, found) => damage.or(found),
        }
    }

    /// The next record in order of time.
    pub fn next(&mut self) -> Option<(u64, Record)> {
        self.records.next(&self.attrs)
    }

    /// The next record in the order of the file, or nearly so, with its time: quicker, where order does not matter.
    pub fn next_of_file(&mut self) -> Option<(u64, Record)> {
        self.records.next_of_file(&self.attrs)
    }

    /// How far the records are read.
    pub fn progress(&self, step: Step) -> Progress {
        Progress {
            step,
            bytes: self.records.records.read_bytes(),
            of: self.len,
        }
    }

    /// A feature that is one string.
    pub fn text(&self, feature: u32) -> Option<String> {
        let bytes = Bytes(self.features.get(&feature)?).string()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The table of features is behind the records, in the order of their numbers. Gives those that are read here, and whether
/// the file has all of them.
fn read_features(
    file: &File,
    len: u64,
    mut place: u64,
    flags: [u64; 4],
) -> (HashMap<u32, Vec<u8>>, bool) {
    let (mut features, mut whole) = (HashMap::new(), true);
    for number in 0..256u32 {
        let word = flags.get(number as usize / 64).copied().unwrap_or(0);
        if word >> (number % 64) & 1 == 0 {
            continue;
        }
        let entry = Section {
            offset: place,
            size: 16,
        };
        place = entry.end();
        let section = entry.read(file, len);
        let section = section.and_then(|bytes| Section::take(&mut Bytes(&bytes)));
        let Some(section) = section.filter(|section| section.end() <= len) else {
            whole = false;
            continue;
        };
        if feature::READ.contains(&number)
            && let Some(content) = section.read(file, len)
        {
            features.insert(number, content);
        }
    }
    (features, whole)
}

/// The events of a file, each with a section of ids.
fn read_attrs(file: &File, len: u64, section: Section, size: u64) -> Result<Vec<Attr>> {
    let count = section.size.checked_div(size).unwrap_or(0);
    if !(64 + 16..=ATTR).contains(&size) || count > attrs::MOST as u64 {
        bail!("its header is damaged: {count} events of {size} bytes");
    }
    let bytes = section.read(file, len).context("it is cut in its header")?;
    let mut list = Vec::new();
    for entry in bytes.chunks_exact(size as usize) {
        let (attr, ids) = entry.split_at_checked(entry.len() - 16).unwrap_or_default();
        let ids = Section::take(&mut Bytes(ids)).filter(|ids| ids.size <= IDS * 8);
        let ids = ids.and_then(|ids| ids.read(file, len));
        let ids = ids.context("the ids of an event cannot be read")?;
        list.push(Attr::parse(attr, numbers(&ids))?);
    }
    Ok(list)
}

/// An event of a stream: as many bytes as it says itself, then its ids.
fn stream_attr(body: &[u8]) -> Result<Attr> {
    let size = Bytes(body.get(4..).unwrap_or_default()).u32();
    let size = size.map_or(usize::MAX, |size| size as usize);
    let (attr, ids) = body
        .split_at_checked(size)
        .context("an event's description is cut")?;
    Attr::parse(attr, numbers(ids))
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let mut bytes = Bytes(bytes);
    std::iter::from_fn(|| bytes.u64()).collect()
}

/// The name an update gives an event, and one of its ids.
fn event_name(body: &[u8]) -> Option<(u64, String)> {
    const NAME: u64 = 2;
    let mut body = Bytes(body);
    let (what, id) = (body.u64()?, body.u64()?);
    let name = until_zero(body.0);
    (what == NAME).then(|| (id, String::from_utf8_lossy(name).into_owned()))
}

/// Puts the names of the feature that describes events to those that have the same ids, or the same place.
fn name_events(list: &mut [Attr], described: Option<&Vec<u8>>) {
    let Some(described) = described else { return };
    let mut bytes = Bytes(described);
    let (Some(count), Some(size)) = (bytes.u32(), bytes.u32()) else {
        return;
    };
    let same_count = count as usize == list.len();
    for number in 0..count as usize {
        let mut event = || {
            bytes.take(size as usize)?;
            let ids = bytes.u32()?;
            let name = String::from_utf8_lossy(bytes.string()?).into_owned();
            let first = Bytes(bytes.0).u64();
            bytes.skip_u64(ids.into())?;
            Some((name, first.filter(|_| ids > 0)))
        };
        let Some((name, id)) = event() else { return };
        let by_id = |attr: &Attr| id.is_some_and(|id| attr.ids.contains(&id));
        let at = list.iter().position(by_id);
        let at = at.or_else(|| same_count.then_some(number));
        if let Some(attr) = at.and_then(|at| list.get_mut(at)) {
            attr.name = Some(name);
        }
    }
}
