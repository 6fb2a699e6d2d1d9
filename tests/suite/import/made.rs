//! A `perf.data` made by hand: one event, records one after the other.

/// Records and features of a file.
#[derive(Default)]
pub struct Made {
    data: Vec<u8>,
    features: Vec<(u32, Vec<u8>)>,
}

/// In the event's `sample_type`: address, process and thread, time, call chain, CPU.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 32 | 128;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const FREQUENCY: u64 = 1 << 10;

pub const USER: u16 = 2;
pub const KERNEL: u16 = 1;
pub const GUEST_USER: u16 = 5;
const COMM_EXEC: u16 = 1 << 13;
const MMAP_BUILD_ID: u16 = 1 << 14;
pub const MARK_KERNEL: u64 = -128i64 as u64;
pub const MARK_USER: u64 = -512i64 as u64;

/// A file that is mapped.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    pub pid: u32,
    pub start: u64,
    pub path: &'a str,
    pub inode: u64,
    pub time: u64,
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn padded(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    bytes.resize((text.len() + 8) / 8 * 8, 0);
    bytes
}

impl Made {
    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.data.extend(kind.to_le_bytes());
        self.data.extend(misc.to_le_bytes());
        self.data.extend((body.len() as u16 + 8).to_le_bytes());
        self.data.extend(body);
    }

    /// A record that the kernel makes, with who, when and where at its end.
    pub fn told(&mut self, kind: u32, misc: u16, mut body: Vec<u8>, who: (u32, u32), time: u64) {
        body.extend(words(&[who.0, who.1]));
        body.extend(numbers(&[time, 0]));
        self.record(kind, misc, &body);
    }

    pub fn round(&mut self) {
        self.record(68, 0, &[]);
    }

    pub fn comm(&mut self, pid: u32, tid: u32, name: &str, exec: bool, time: u64) {
        let mut body = words(&[pid, tid]);
        body.extend(padded(name.as_bytes()));
        let misc = if exec { COMM_EXEC } else { 0 };
        self.told(3, misc, body, (pid, tid), time);
    }

    pub fn fork(&mut self, (pid, tid): (u32, u32), (parent, parent_tid): (u32, u32), time: u64) {
        let mut body = words(&[pid, parent, tid, parent_tid]);
        body.extend(numbers(&[time]));
        self.told(7, 0, body, (parent, parent_tid), time);
    }

    pub fn exit(&mut self, pid: u32, time: u64) {
        let mut body = words(&[pid, 1, pid, 1]);
        body.extend(numbers(&[time]));
        self.told(4, 0, body, (pid, pid), time);
    }

    /// A page of code at file offset 0x1000.
    pub fn map(&mut self, map: Map<'_>) {
        let mut body = words(&[map.pid, map.pid]);
        body.extend(numbers(&[map.start, 0x1000, 0x1000]));
        body.extend(words(&[254, 0]));
        body.extend(numbers(&[map.inode, 1]));
        body.extend(words(&[5, 2]));
        body.extend(padded(map.path.as_bytes()));
        self.told(10, USER, body, (map.pid, map.pid), map.time);
    }

    /// The same with a build ID of which `len` bytes are said to count.
    pub fn map_with_id(&mut self, map: Map<'_>, id: [u8; 20], len: u8) {
        let mut body = words(&[map.pid, map.pid]);
        body.extend(numbers(&[map.start, 0x1000, 0x1000]));
        body.extend([len, 0, 0, 0]);
        body.extend(id);
        body.extend(words(&[5, 2]));
        body.extend(padded(map.path.as_bytes()));
        self.told(10, USER | MMAP_BUILD_ID, body, (map.pid, map.pid), map.time);
    }

    pub fn sample(&mut self, misc: u16, (pid, tid): (u32, u32), time: u64, chain: &[u64]) {
        let ip = chain.iter().find(|ip| **ip < MARK_USER).copied();
        let mut body = numbers(&[ip.unwrap_or(0)]);
        body.extend(words(&[pid, tid]));
        body.extend(numbers(&[time, 3, chain.len() as u64]));
        body.extend(numbers(chain));
        self.record(9, misc, &body);
    }

    /// An entry of the table of build IDs.
    pub fn build_id(&mut self, path: &str, id: [u8; 20]) {
        let mut body = words(&[u32::MAX]);
        body.extend(id);
        body.extend([0; 4]);
        body.extend(padded(path.as_bytes()));
        let mut entry = words(&[67]);
        entry.extend(2u16.to_le_bytes());
        entry.extend((body.len() as u16 + 8).to_le_bytes());
        entry.extend(body);
        self.feature(2, &entry);
    }

    /// Adds to a feature.
    pub fn feature(&mut self, number: u32, bytes: &[u8]) {
        match self.features.iter_mut().find(|(n, _)| *n == number) {
            Some((_, feature)) => feature.extend(bytes),
            None => self.features.push((number, bytes.to_vec())),
        }
    }

    fn attr() -> Vec<u8> {
        let mut attr = words(&[1, 128]);
        // cpu-clock, 100 times a second.
        attr.extend(numbers(&[
            0,
            100,
            SAMPLE_TYPE,
            0,
            SAMPLE_ID_ALL | FREQUENCY,
        ]));
        attr.resize(128, 0);
        attr
    }

    /// As a file.
    pub fn file(mut self) -> Vec<u8> {
        const HEADER: u64 = 104;
        const ENTRY: u64 = 128 + 16;
        let data = HEADER + ENTRY;
        let size = self.data.len() as u64;
        self.features.sort();
        let mut flags = [0u64; 4];
        for (number, _) in &self.features {
            flags[*number as usize / 64] |= 1 << (number % 64);
        }
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(numbers(&[HEADER, ENTRY, HEADER, ENTRY, data, size, 0, 0]));
        bytes.extend(numbers(&flags));
        bytes.extend(Made::attr());
        bytes.extend(numbers(&[0, 0]));
        bytes.extend(&self.data);
        let mut place = data + size + 16 * self.features.len() as u64;
        for (_, feature) in &self.features {
            bytes.extend(numbers(&[place, feature.len() as u64]));
            place += feature.len() as u64;
        }
        for (_, feature) in &self.features {
            bytes.extend(feature);
        }
        bytes
    }

    /// As a stream.
    pub fn stream(self) -> Vec<u8> {
        let mut made = Made::default();
        made.record(64, 0, &Made::attr());
        let mut bytes = b"PERFILE2".to_vec();
        bytes.extend(numbers(&[16]));
        bytes.extend(made.data);
        bytes.extend(self.data);
        bytes
    }
}
