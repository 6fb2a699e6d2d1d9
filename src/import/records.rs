//! Records of a `perf.data`: whole ones, unpacked, and put in order of time.
//!
//! perf writes each CPU's ring in turn and marks rounds: what comes after the end of a round is not earlier than the
//! latest of the round before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read};

use zstd::stream::raw::{Decoder, Operation};

use super::attrs::Attrs;
use super::bytes::Bytes;

/// Kinds of records that perf itself makes.
pub mod kind {
    pub const USER: u32 = 64;
    pub const ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const EVENT_UPDATE: u32 = 78;
    pub const FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// Bytes of a record's header.
const HEAD: usize = 8;
/// Bytes unpacked at a time.
const CHUNK: usize = 256 << 10;
/// What may be unpacked: so many bytes, and so many times what was packed. perf's records shrink to a tenth, rarely to
/// a hundredth.
const UNPACKED: u64 = 64 << 20;
const UNPACKED_TIMES: u64 = 1024;
/// Bytes of records held back to be put in order; with more, rounds end by themselves.
const HELD: usize = 256 << 20;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub kind: u32,
    pub misc: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// Records one after the other, as they are in the file.
pub struct Records {
    reader: Box<dyn Read>,
    /// Bytes of records there should be; unknown in a stream.
    left: Option<u64>,
    /// Bytes read.
    read: u64,
    unpacker: Option<Decoder<'static>>,
    packed: Vec<u8>,
    packed_at: usize,
    /// The unpacker may have more to give without more input.
    more: bool,
    unpacked: Vec<u8>,
    unpacked_at: usize,
    packed_bytes: u64,
    unpacked_bytes: u64,
    /// Why there are no more records, when that is not the end.
    pub damage: Option<String>,
    /// Bytes of hardware traces passed over.
    pub traces: u64,
    over: bool,
}

impl Records {
    /// Records from `reader`, `len` bytes of them where that is known. `start` is where they begin in the file.
    pub fn new(reader: Box<dyn Read>, start: u64, len: Option<u64>) -> Records {
        Records {
            reader,
            left: len,
            read: start,
            unpacker: None,
            packed: Vec::new(),
            packed_at: 0,
            more: false,
            unpacked: Vec::new(),
            unpacked_at: 0,
            packed_bytes: 0,
            unpacked_bytes: 0,
            damage: None,
            traces: 0,
            over: false,
        }
    }

    /// Bytes of the file or stream that are read.
    pub fn read_bytes(&self) -> u64 {
        self.read
    }

    /// The next record; `None` at the end, or at damage.
    pub fn next(&mut self) -> Option<Record> {
        while !self.over {
            if let Some(record) = self.next_unpacked() {
                return Some(record);
            }
            let result = match self.packed_at < self.packed.len() || self.more {
                true => self.unpack().map(|()| None),
                false => self.next_raw(),
            };
            match result {
                Ok(None) => {}
                Ok(Some(record)) => return Some(record),
                Err(what) => {
                    self.over = true;
                    self.damage = what.map(|what| format!("at byte {}: {what}", self.read));
                }
            }
        }
        None
    }

    /// A record as it is in the file; `None` of one that was packed. `Err(None)` is the end.
    fn next_raw(&mut self) -> Result<Option<Record>, Option<String>> {
        let mut head = [0; HEAD];
        let got = self.fill(&mut head)?;
        if got == 0 && self.left.unwrap_or(0) == 0 {
            return match self.unpacked.len() > self.unpacked_at {
                true => Err(Some("the last compressed record is cut".into())),
                false => Err(None),
            };
        }
        if got < HEAD {
            return Err(Some("the file is cut".into()));
        }
        let (kind, misc, size) = header(&head).ok_or(None)?;
        let len = (size as usize)
            .checked_sub(HEAD)
            .ok_or_else(|| Some(format!("a record of {size} bytes")))?;
        let mut body = vec![0; len];
        if self.fill(&mut body)? < len {
            return Err(Some("the file is cut".into()));
        }
        match kind {
            kind::COMPRESSED => self.take_packed(&body, body.len()),
            kind::COMPRESSED2 => {
                let size = Bytes(&body).u64().unwrap_or(u64::MAX);
                let content = body.get(8..).unwrap_or_default();
                self.take_packed(content, usize::try_from(size).unwrap_or(usize::MAX))
            }
            kind::AUXTRACE => {
                let size = Bytes(&body).u64().unwrap_or(0);
                self.traces = self.traces.saturating_add(size);
                self.skip(size).map(|()| None)
            }
            // Only in streams: what the record tells of follows it.
            kind::TRACING_DATA => {
                let size = Bytes(&body).u32().unwrap_or(0);
                self.skip(u64::from(size).next_multiple_of(8))
                    .map(|()| None)
            }
            _ => Ok(Some(Record { kind, misc, body })),
        }
    }

    fn take_packed(
        &mut self,
        content: &[u8],
        size: usize,
    ) -> Result<Option<Record>, Option<String>> {
        let content = content
            .get(..size)
            .ok_or_else(|| Some("a compressed record longer than itself".to_owned()))?;
        self.packed.clear();
        self.packed.extend_from_slice(content);
        self.packed_at = 0;
        self.packed_bytes += content.len() as u64;
        Ok(None)
    }

    /// Unpacks a little more.
    fn unpack(&mut self) -> Result<(), Option<String>> {
        let fail = |err: io::Error| Some(format!("a compressed record cannot be unpacked: {err}"));
        self.unpacked.drain(..self.unpacked_at);
        self.unpacked_at = 0;
        let unpacker = match &mut self.unpacker {
            Some(unpacker) => unpacker,
            none => none.insert(Decoder::new().map_err(fail)?),
        };
        let had = self.unpacked.len();
        self.unpacked.resize(had + CHUNK, 0);
        let input = self.packed.get(self.packed_at..).unwrap_or_default();
        let output = self.unpacked.get_mut(had..).unwrap_or_default();
        let status = unpacker.run_on_buffers(input, output).map_err(fail)?;
        self.unpacked.truncate(had + status.bytes_written);
        self.packed_at += status.bytes_read;
        self.more = status.bytes_written == CHUNK;
        self.unpacked_bytes += status.bytes_written as u64;
        let most = self.packed_bytes.saturating_mul(UNPACKED_TIMES) + UNPACKED;
        if self.unpacked_bytes > most {
            return Err(Some("compressed records that hold absurdly much".into()));
        }
        let stuck = status.bytes_read == 0 && status.bytes_written == 0;
        match stuck && self.packed_at < self.packed.len() {
            true => Err(Some("a compressed record cannot be unpacked".into())),
            false => Ok(()),
        }
    }

    fn next_unpacked(&mut self) -> Option<Record> {
        let rest = self.unpacked.get(self.unpacked_at..)?;
        let (kind, misc, size) = header(rest)?;
        let size = size as usize;
        if size < HEAD {
            self.over = true;
            self.damage = Some(format!(
                "at byte {}: a compressed record of {size} bytes",
                self.read
            ));
            return None;
        }
        let body = rest.get(HEAD..size)?.to_vec();
        self.unpacked_at += size;
        Some(Record { kind, misc, body })
    }

    /// Fills `bytes` as far as there are any.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, Option<String>> {
        let most = self.left.unwrap_or(u64::MAX);
        let want = bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        let mut got = 0;
        while let Some(rest) = bytes.get_mut(got..want).filter(|rest| !rest.is_empty()) {
            match self.reader.read(rest) {
                Ok(0) => break,
                Ok(count) => got += count,
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(Some(format!("it cannot be read: {err}"))),
            }
        }
        self.read += got as u64;
        self.left = self.left.map(|left| left - got as u64);
        Ok(got)
    }

    fn skip(&mut self, count: u64) -> Result<(), Option<String>> {
        let most = self.left.map_or(count, |left| left.min(count));
        let mut part = self.reader.by_ref().take(most);
        let skipped = io::copy(&mut part, &mut io::sink())
            .map_err(|err| Some(format!("it cannot be read: {err}")))?;
        self.read += skipped;
        self.left = self.left.map(|left| left.saturating_sub(skipped));
        match skipped < count {
            true => Err(Some("the file is cut".into())),
            false => Ok(()),
        }
    }
}

/// Kind, misc and size of a record.
fn header(bytes: &[u8]) -> Option<(u32, u16, u16)> {
    let mut bytes = Bytes(bytes);
    Some((bytes.u32()?, bytes.u16()?, bytes.u16()?))
}

/// Records in order of time; those without a time as soon as they are read.
pub struct Ordered {
    pub records: Records,
    held: BinaryHeap<Reverse<(u64, u64, Record)>>,
    bytes: usize,
    count: u64,
    latest: u64,
    /// The latest when the round before ended.
    before: u64,
    /// What is not later can go.
    until: u64,
    over: bool,
}

impl Ordered {
    /// `first` are records that have been read already.
    pub fn new(records: Records, first: Vec<Record>, attrs: &Attrs) -> Ordered {
        let mut ordered = Ordered {
            records,
            held: BinaryHeap::new(),
            bytes: 0,
            count: 0,
            latest: 0,
            before: 0,
            until: 0,
            over: false,
        };
        for record in first {
            ordered.hold(record, attrs);
        }
        ordered
    }

    /// The next record and its time.
    pub fn next(&mut self, attrs: &Attrs) -> Option<(u64, Record)> {
        loop {
            let ready = self.held.peek().map(|Reverse((time, ..))| *time);
            match ready {
                Some(time) if self.over || time <= self.until => {
                    let Reverse((time, _, record)) = self.held.pop()?;
                    self.bytes -= record.body.len();
                    return Some((time, record));
                }
                None if self.over => return None,
                _ => match self.records.next() {
                    Some(record) => self.hold(record, attrs),
                    None => self.over = true,
                },
            }
        }
    }

    /// The next record as it comes, with its time; first those that are held.
    pub fn next_of_file(&mut self, attrs: &Attrs) -> Option<(u64, Record)> {
        if let Some(Reverse((time, _, record))) = self.held.pop() {
            return Some((time, record));
        }
        let record = self.records.next()?;
        Some((time_of(&record, attrs), record))
    }

    fn hold(&mut self, record: Record, attrs: &Attrs) {
        if record.kind == kind::FINISHED_ROUND {
            self.end_round();
            return;
        }
        let time = time_of(&record, attrs);
        self.latest = self.latest.max(time);
        self.count += 1;
        self.bytes += record.body.len();
        self.held.push(Reverse((time, self.count, record)));
        // A record takes about as much again as its bytes.
        if self.bytes + self.held.len() * 64 > HELD {
            self.before = self.latest;
            self.end_round();
        }
    }

    fn end_round(&mut self) {
        self.until = self.until.max(self.before);
        self.before = self.latest;
    }
}

/// When a record was made, 0 when it does not say, or perf made it.
fn time_of(record: &Record, attrs: &Attrs) -> u64 {
    match record.kind < kind::USER {
        true => attrs.time(record.kind, &record.body),
        false => 0,
    }
}
