//! The events that were recorded, and which record is of which.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use linux_perf_event_reader::{
    AttrFlags, Endianness, PerfEventAttr, PerfEventType, RecordParseInfo, RecordType, SampleFormat,
    SamplingPolicy, SoftwareCounterType, get_record_id, get_record_identifier,
    get_record_timestamp,
};

use super::bytes::Bytes;

type Little = byteorder::LittleEndian;

/// Events of one recording at most.
pub const MOST: usize = 4096;

/// One event as it was opened.
#[derive(Debug, Clone)]
pub struct Attr {
    pub attr: PerfEventAttr,
    /// `sample_type`, with bits the library does not know.
    pub sample_type: u64,
    /// `read_format`, likewise.
    pub read_format: u64,
    pub name: Option<String>,
    /// Numbers its records carry.
    pub ids: Vec<u64>,
    pub parse: RecordParseInfo,
}

impl Attr {
    /// An attribute as the kernel lays it out.
    pub fn parse(bytes: &[u8], ids: Vec<u64>) -> Result<Attr> {
        let (attr, _) = PerfEventAttr::parse::<_, Little>(bytes)
            .ok()
            .context("an event is of a kind that is not known here")?;
        let at = |offset: usize| Bytes(bytes.get(offset..)?).u64();
        let raw = |offset| at(offset).context("an event's description is cut");
        Ok(Attr {
            sample_type: raw(24)?,
            read_format: raw(32)?,
            name: None,
            ids,
            parse: RecordParseInfo::new(&attr, Endianness::LittleEndian),
            attr,
        })
    }

    /// Whether it is sampled; an event that only tells of processes is not.
    pub fn is_sampled(&self) -> bool {
        let dummy = matches!(
            self.attr.type_,
            PerfEventType::Software(SoftwareCounterType::Dummy)
        );
        !dummy && !matches!(self.attr.sampling_policy, SamplingPolicy::NoSampling)
    }

    pub fn has(&self, format: SampleFormat) -> bool {
        self.sample_type & format.bits() != 0
    }
}

/// All events.
#[derive(Debug, Clone)]
pub struct Attrs {
    pub list: Vec<Attr>,
    by_id: HashMap<u64, usize>,
    /// All records have their ids at the same place.
    alike: bool,
}

impl Attrs {
    pub fn new(list: Vec<Attr>) -> Result<Attrs> {
        let Some(first) = list.first() else {
            bail!("it has no events");
        };
        let id_of = |attr: &Attr| attr.parse.id_parse_info;
        let alike = list.iter().all(|attr| id_of(attr) == id_of(first));
        let identified = |attr: &Attr| attr.has(SampleFormat::IDENTIFIER);
        if !alike && !list.iter().all(identified) {
            bail!("its records do not say of which of its events they are");
        }
        for attr in list.iter().filter(|attr| attr.is_sampled()) {
            let name = attr.name.as_deref().unwrap_or("an event");
            if !attr.has(SampleFormat::TIME) {
                bail!("{name} was recorded without times (-T), which say what was mapped when");
            }
            if !attr.has(SampleFormat::TID) || !attr.has(SampleFormat::IP) {
                bail!("samples of {name} do not say of which process and address they are");
            }
        }
        let mut by_id = HashMap::new();
        for (number, attr) in list.iter().enumerate() {
            by_id.extend(attr.ids.iter().map(|id| (*id, number)));
        }
        Ok(Attrs { list, by_id, alike })
    }

    /// Of which event a record is: `None` when it does not say, and there are several.
    pub fn of(&self, kind: u32, body: &[u8]) -> Option<usize> {
        if self.list.len() == 1 {
            return Some(0);
        }
        let first = self.list.first()?;
        let id = match self.alike {
            true => {
                get_record_id::<Little>(RecordType(kind), body.into(), &first.parse.id_parse_info)
            }
            false => {
                let all = first.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
                get_record_identifier::<Little>(RecordType(kind), body.into(), all)
            }
        };
        self.by_id.get(&id?).copied()
    }

    /// When a record was made, 0 when it does not say.
    pub fn time(&self, kind: u32, body: &[u8]) -> u64 {
        let attr = self.list.get(self.of(kind, body).unwrap_or(0));
        attr.and_then(|attr| {
            get_record_timestamp::<Little>(RecordType(kind), body.into(), &attr.parse)
        })
        .unwrap_or(0)
    }
}
