//! Changes that keep what stands around them right: lengths, the order of sections, checksums.

use libfuzzer_sys::fuzzer_mutate;

use crate::parts::{self, Part};

/// Numbers out of libFuzzer's seed.
struct Random(u64);

impl Random {
    fn new(seed: u32) -> Random {
        Random((u64::from(seed) << 1 | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound.max(1)
    }
}

/// `bytes`, changed in libFuzzer's ways, at most `room` longer.
fn changed(bytes: &mut Vec<u8>, room: usize) {
    let len = bytes.len();
    let most = len + room.clamp(1, 4096);
    bytes.resize(most, 0);
    let len = fuzzer_mutate(bytes, len, most);
    bytes.truncate(len);
}

/// A mutator of parts.
pub fn parts(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = Random::new(seed);
    let mut list = parts::decode(data.get(..size).unwrap_or_default());
    if list.is_empty() || random.below(16) == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let room = max_size.saturating_sub(size + 16);
    let at = random.below(list.len());
    match random.below(20) {
        0 => list.insert(at, list[at].clone()),
        1 => drop(list.remove(at)),
        2 => {
            let other = random.below(list.len());
            list.swap(at, other);
        }
        3 => list[at].segment ^= 1 << random.below(3),
        4 => list[at].kind = random.below(13) as u8,
        _ => part(&mut list[at], room, &mut random),
    }
    let bytes = parts::encode(&list);
    match data.get_mut(..bytes.len()) {
        Some(place) if bytes.len() <= max_size => {
            place.copy_from_slice(&bytes);
            bytes.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
}

fn part(part: &mut Part, room: usize, random: &mut Random) {
    if part.kind != 1 {
        return changed(&mut part.content, room);
    }
    let mut sections = parts::sections(&part.content);
    let at = random.below(sections.len());
    match random.below(24) {
        0 => {
            let kind = 1 + random.below(13) as u8;
            sections.push((kind, vec![1, 0]));
            sections.sort_by_key(|(kind, _)| *kind);
        }
        1 if !sections.is_empty() => drop(sections.remove(at)),
        _ => match sections.get_mut(at) {
            Some((_, section)) => changed(section, room),
            None => return changed(&mut part.content, room),
        },
    }
    part.content = parts::of_sections(&sections);
}

/// A mutator of captures: most of what it gives has right checksums.
pub fn capture(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let size = fuzzer_mutate(data, size, max_size);
    if !seed.is_multiple_of(8) {
        make_right(data.get_mut(..size).unwrap_or_default());
    }
    size
}

/// Makes the checksums of headers, descriptors and indexes right, wherever their skippable frames are.
fn make_right(file: &mut [u8]) {
    const PREFIX: usize = 8;
    let mut at = 0;
    while let Some(head) = file.get(at..).and_then(<[u8]>::first_chunk::<12>) {
        let [a, b, c, d, e, f, g, h, magic @ ..] = *head;
        if u32::from_le_bytes([a, b, c, d]) & 0xFFFF_FFF0 != 0x184D_2A50 {
            at += 1;
            continue;
        }
        let start = at + PREFIX;
        let len = u32::from_le_bytes([e, f, g, h]) as usize;
        let end = start.saturating_add(len).min(file.len());
        match &magic {
            b"BPFR" => {
                if let Some(&[s, t, u, v]) = file.get(start + 24..start + 28) {
                    let size = u32::from_le_bytes([s, t, u, v]) as usize;
                    let data = end..end.saturating_add(size).min(file.len());
                    let crc = crc32c::crc32c(file.get(data).unwrap_or_default());
                    put(file, start + 80, crc);
                    checksum(file, start, start + 84);
                }
            }
            b"\x89BPR" => checksum(file, start, end.saturating_sub(4)),
            b"BPIX" => checksum(file, start, end.saturating_sub(12)),
            _ => {}
        }
        // A wrong length must not hide what follows.
        at += PREFIX;
    }
}

/// Puts the checksum of the bytes from `start` to `end` behind them.
fn checksum(file: &mut [u8], start: usize, end: usize) {
    if let Some(bytes) = file.get(start..end) {
        let crc = crc32c::crc32c(bytes);
        put(file, end, crc);
    }
}

fn put(file: &mut [u8], at: usize, crc: u32) {
    if let Some(place) = file.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}
