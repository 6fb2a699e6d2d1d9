//! Names of JIT code: the perf maps (`/tmp/perf-PID.map`) of processes that run code no file names.
//!
//! A process is followed from its first sample on if it has executable memory without a file. Its map is looked at after
//! each flush, what is new in it is read, and the lines that cover recorded addresses go into the capture with the
//! time they are known to be true: see [`PerfMap`]. When the process ends its map is read a last time, through
//! descriptors that were opened while it lived.

mod lines;
mod map_file;

use std::collections::HashMap;

use anyhow::Result;

use self::lines::Lines;
use self::map_file::{Found, MapFile, Place};
use super::drain::Drain;
use super::host;
use super::processes::{Processes, UnnamedCode};
use crate::capture::writer::Written;
use crate::event::{LossClass, Pid, ProcessKey, Timestamp};
use crate::format::aid::{PerfMap, PerfMaps};

/// Processes followed at once.
const PROCESSES: usize = 512;
/// Lines held of all processes, and bytes of their names.
const LINES: usize = 1 << 19;
const NAME_BYTES: usize = 32 << 20;
/// Recorded addresses held of all processes.
const WANTED: usize = 1 << 19;
/// Chunks of maps (MiB) read in one go, so that samples do not wait for long, and at the end.
const CHUNKS: usize = 16;
const LAST_CHUNKS: usize = 256;
/// Lines written to the capture in all, in bytes: a reader takes 64 MiB of aid.
const WRITTEN: usize = 32 << 20;
/// Bytes of lines of one frame, about.
const FRAME: usize = 1 << 20;
/// A process whose lines are all written has its time told anew this often (ns), for recordings that are killed.
const TELL_AGAIN: u64 = 10_000_000_000;
/// Looks for a map that is not there: so often after each flush, then after each so many.
const EAGER_LOOKS: u32 = 8;

/// Follows JITs.
#[derive(Debug, Default)]
pub struct Jit {
    followed: HashMap<ProcessKey, Follower>,
    /// Followers of what has ended, and of what processes ran before an exec: to be written once more.
    ending: Vec<Follower>,
    /// User addresses of the open segment, whose number is the first.
    addresses: (u32, Vec<u64>),
    written: usize,
    /// Waits for a frame, with its size.
    batch: (Vec<PerfMap>, usize),
    turn: usize,
    lost: u64,
}

/// One image of a process.
#[derive(Debug)]
struct Follower {
    code: UnnamedCode,
    place: Option<Place>,
    map: MapFile,
    lines: Lines,
    /// Of a map that was written anew: what held before.
    before: Option<Lines>,
    /// When the last whole reading began: what is known is true up to then. And the one before that.
    read: Option<Timestamp>,
    previous: Timestamp,
    /// When the one under way began.
    reading: Option<Timestamp>,
    /// Nothing is in the capture that holds: what is there of this process was true up to then.
    fresh: Option<Timestamp>,
    told: Timestamp,
    looks: u32,
    /// The process ran something else before, whose map it may still have.
    succeeds: bool,
    /// Too large: nothing is known after `read`.
    given_up: bool,
}

impl Jit {
    /// Takes in what has become of processes in a batch: maps are opened while their processes live, and read when they
    /// end.
    pub fn follow(&mut self, processes: &mut Processes) {
        let mut chunks = CHUNKS;
        for code in processes.take_unnamed_code() {
            let known = self.followed.remove(&code.key);
            let (mut follower, is_new) = match known {
                Some(known) if known.code.since == code.since => (known, false),
                other => {
                    let mut new = Follower::new(code.clone());
                    if let Some(mut other) = other {
                        new.fresh = Some(other.read.unwrap_or_default());
                        // What it has in its map says nothing of what the process has become.
                        new.map = std::mem::take(&mut other.map);
                        new.succeeds = true;
                        self.ending.push(other);
                    }
                    (new, true)
                }
            };
            if is_new {
                if code.ended || (code.ranges.is_empty() && !follower.succeeds) {
                    continue;
                }
                if self.followed.len() >= PROCESSES {
                    self.lost += 1;
                    continue;
                }
                if processes.answers_for_map(follower.code.key) {
                    follower.find_place();
                }
            }
            let more = follower.code.ranges != code.ranges;
            follower.code = code;
            if more || is_new {
                let ranges = std::mem::take(&mut follower.code.ranges);
                self.lost += follower.want(&ranges, &self.addresses.1, WANTED);
                follower.code.ranges = ranges;
            }
            if follower.code.ended {
                self.lost += follower.read(&mut chunks, self.room(), &host::now);
                self.lost += u64::from(follower.reading.is_some());
                self.ending.push(follower);
            } else {
                if is_new {
                    self.lost += follower.read(&mut chunks, self.room(), &host::now);
                }
                self.followed.insert(follower.code.key, follower);
            }
        }
    }

    /// Lines and bytes of names that may still be held.
    fn room(&self) -> (usize, usize) {
        let all = || self.followed.values().chain(&self.ending);
        let lines = all().map(|f| f.lines.len()).sum();
        let bytes = all().map(|f| f.lines.name_bytes).sum();
        (
            LINES.saturating_sub(lines),
            NAME_BYTES.saturating_sub(bytes),
        )
    }

    /// Puts lines at addresses that were `written` into the capture; reads maps on, to their end `at_end`.
    pub fn write(&mut self, written: &Written, drain: &mut Drain, at_end: bool) -> Result<()> {
        let segment = drain.writer.segment();
        if self.addresses.0 != segment {
            self.addresses = (segment, Vec::new());
        }
        if self.followed.is_empty() && self.ending.is_empty() {
            self.addresses.1.extend_from_slice(&written.user);
            return self.tell_lost(drain);
        }
        for mut follower in std::mem::take(&mut self.ending) {
            self.want(&mut follower, &written.user);
            self.emit(&mut follower, drain, true)?;
        }
        let mut chunks = if at_end { LAST_CHUNKS } else { CHUNKS };
        let mut keys: Vec<ProcessKey> = self.followed.keys().copied().collect();
        keys.sort_unstable();
        if !keys.is_empty() {
            // Each is first once: large maps take what there is of chunks.
            self.turn = (self.turn + 1) % keys.len();
            keys.rotate_left(self.turn);
        }
        for key in keys {
            let Some(mut follower) = self.followed.remove(&key) else {
                continue;
            };
            self.want(&mut follower, &written.user);
            // What is known before the map is looked at again: a line in it may end others.
            self.emit(&mut follower, drain, false)?;
            self.lost += follower.read(&mut chunks, self.room(), &host::now);
            self.lost += u64::from(at_end && follower.reading.is_some());
            self.emit(&mut follower, drain, at_end)?;
            self.followed.insert(key, follower);
        }
        self.write_batch(drain)?;
        self.addresses.1.extend_from_slice(&written.user);
        self.tell_lost(drain)
    }

    fn want(&mut self, follower: &mut Follower, addresses: &[u64]) {
        let held = self.followed.values().map(|f| f.lines.wanted());
        let room = WANTED.saturating_sub(held.sum());
        let ranges = std::mem::take(&mut follower.code.ranges);
        self.lost += follower.want(&ranges, addresses, room);
        follower.code.ranges = ranges;
    }

    fn tell_lost(&mut self, drain: &mut Drain) -> Result<()> {
        let lost = std::mem::take(&mut self.lost);
        drain.lose(LossClass::PerfMaps, None, lost);
        Ok(())
    }

    /// Writes the lines of `follower` that are needed; `last` also without any, for the time they are true.
    fn emit(&mut self, follower: &mut Follower, drain: &mut Drain, last: bool) -> Result<()> {
        while let Some(map) = follower.next_frame(last) {
            let names: usize = map.symbols.iter().map(|s| s.name.len() + 32).sum();
            let size = names + map.ended.len() * 9;
            if self.written + size > WRITTEN {
                // An end that is not told would leave a line true: nothing more is told of this process.
                follower.give_up();
                self.lost += map.symbols.len() as u64;
                break;
            }
            self.written += size + 64;
            self.batch.0.push(map);
            self.batch.1 += size;
            if self.batch.1 >= FRAME {
                self.write_batch(drain)?;
            }
        }
        Ok(())
    }

    fn write_batch(&mut self, drain: &mut Drain) -> Result<()> {
        let (mut maps, _) = std::mem::take(&mut self.batch);
        if !maps.is_empty() {
            // Readings are compared with times of samples, which may have been rounded down.
            for map in &mut maps {
                map.previous = drain.writer.surely_by(map.previous);
                map.until = drain.writer.surely_by(map.until);
            }
            drain.writer.perf_maps(&PerfMaps { maps })?;
        }
        Ok(())
    }
}

impl Follower {
    fn new(code: UnnamedCode) -> Follower {
        Follower {
            code,
            place: None,
            map: MapFile::default(),
            lines: Lines::default(),
            before: None,
            read: None,
            previous: Timestamp::ZERO,
            reading: None,
            fresh: Some(Timestamp::ZERO),
            told: Timestamp::ZERO,
            looks: 0,
            succeeds: false,
            given_up: false,
        }
    }

    /// Opens the directory of the map, while the process lives and is the one that was sampled.
    fn find_place(&mut self) {
        let process = self.code.key.tgid;
        if !self.code.is_alive() {
            return;
        }
        if let Ok(place) = Place::of(process, self.code.key.start_time)
            && self.code.is_alive()
        {
            self.place = Some(place);
        }
    }

    /// Takes those of `addresses` that lie in its code, `room` at most. How many there was no room for.
    fn want(&mut self, ranges: &[(u64, u64)], addresses: &[u64], room: usize) -> u64 {
        let most = self.lines.wanted().saturating_add(room);
        let mut lost = 0;
        for address in addresses {
            // A return address can be the first after its code.
            let at = ranges.partition_point(|(_, end)| end < address);
            if ranges.get(at).is_none_or(|(start, _)| start > address) {
                continue;
            }
            if self.lines.wanted() < most {
                self.lines.want(*address);
            } else {
                lost += 1;
            }
        }
        lost
    }

    /// Looks for what is new in the map and reads it, while `chunks` are left; `room` is for how many lines and bytes of names.
    /// How many maps were given up.
    fn read(
        &mut self,
        chunks: &mut usize,
        room: (usize, usize),
        clock: &dyn Fn() -> Timestamp,
    ) -> u64 {
        if self.given_up || *chunks == 0 || !self.start_reading(clock) {
            return 0;
        }
        // A line is true since the reading before, or the image's begin.
        let since = self.read.unwrap_or(self.code.since);
        let (mut lines_left, mut bytes_left) = room;
        while *chunks > 0 {
            *chunks -= 1;
            let (lines, bytes) = (self.lines.len(), self.lines.name_bytes);
            let held = &mut self.lines;
            let more = self.map.read(|line| held.add(line, since));
            lines_left = lines_left.saturating_sub(self.lines.len().saturating_sub(lines));
            bytes_left = bytes_left.saturating_sub(self.lines.name_bytes.saturating_sub(bytes));
            if lines_left == 0 || bytes_left == 0 {
                self.give_up();
                return 1;
            }
            if !more {
                self.end_reading(clock());
                return 0;
            }
        }
        0
    }

    /// What the capture does not have yet, about a [`FRAME`] of it; `last` also if that is no more than how long it is true.
    fn next_frame(&mut self, last: bool) -> Option<PerfMap> {
        // A part of a map says nothing yet.
        let until = self.read.filter(|_| self.reading.is_none())?;
        let waited = until.since(self.told) >= TELL_AGAIN;
        let again = self.fresh.is_none() && until > self.told && (last || waited);
        if !(self.lines.has_queued() || again) {
            return None;
        }
        self.told = until;
        Some(PerfMap {
            process: self.code.key,
            fresh: self.fresh.is_some(),
            previous: self.fresh.take().unwrap_or(self.previous),
            until,
            ended: self.lines.take_ended(),
            symbols: self.lines.take_queued(FRAME),
        })
    }

    /// Whether a reading is under way, begun now or before.
    fn start_reading(&mut self, clock: &dyn Fn() -> Timestamp) -> bool {
        if self.reading.is_some() {
            return true;
        }
        self.looks = self.looks.saturating_add(1);
        let nothing_yet = self.lines.is_empty() && self.read.is_none();
        if nothing_yet && !self.code.ended && self.looks > EAGER_LOOKS {
            if !self.looks.is_multiple_of(EAGER_LOOKS) {
                return false;
            }
            // It may have got another root, or something else may be mounted there.
            self.find_place();
        }
        let begin = clock();
        match self.map.look(self.place.as_ref()) {
            Found::Nothing => return false,
            Found::Same if self.read.is_none() => return false,
            // As good as read.
            Found::Same => {
                self.previous = self.read.unwrap_or_default();
                self.read = Some(begin);
                return false;
            }
            Found::Grown => {}
            // Another image's.
            Found::Anew if self.read.is_none() && self.lines.is_empty() => {}
            Found::Anew => {
                let before = self.lines.restart();
                self.before.get_or_insert(before);
            }
        }
        self.reading = Some(begin);
        true
    }

    fn end_reading(&mut self, end: Timestamp) {
        let Some(begin) = self.reading.take() else {
            return;
        };
        self.lines.reading_ended(end);
        if let Some(before) = self.before.take() {
            self.fresh.get_or_insert(self.read.unwrap_or_default());
            self.lines.take_times_from(&before, end);
        }
        if self.lines.is_empty() && self.read.is_none() {
            // A map without lines says nothing yet.
            return;
        }
        self.previous = self.read.unwrap_or_default();
        self.read = Some(begin);
    }

    /// Forgets everything: what is in the capture is true up to what was told there.
    fn give_up(&mut self) {
        *self = Follower {
            given_up: true,
            place: None,
            ..Follower::new(self.code.clone())
        };
    }
}

/// Looks for the perf map of a process that started at `start` and reads of it, to wait for its file system.
pub(super) fn look_for_map(process: Pid, start: Timestamp) {
    if let Ok(place) = Place::of(process, start) {
        let mut map = MapFile::default();
        map.look(Some(&place));
        map.read(|_| {});
    }
}

/// The lines that a capture gets of `texts`, which are what readings of one perf map found new in it, for the addresses
/// `wanted`. Of each reading they are sorted and do not overlap.
#[cfg(fuzzing)]
pub fn fuzz_text(texts: &[&[u8]], wanted: &[u64]) -> Vec<Vec<crate::format::aid::JitSymbol>> {
    let mut held = Lines::default();
    wanted.iter().for_each(|address| held.want(*address));
    let mut readings = Vec::new();
    for (time, text) in (1..).map(Timestamp).zip(texts) {
        for line in text.split(|b| *b == b'\n') {
            if let Some(line) = lines::parse_line(line) {
                held.add(&line, time);
            }
        }
        held.reading_ended(time);
        held.take_ended();
        readings.push(held.take_queued(usize::MAX));
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Pid;
    use crate::symbolize::perf_map::PerfMaps;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Write;
    use std::path::Path;

    const KEY: ProcessKey = ProcessKey {
        tgid: Pid(7),
        start_time: Timestamp(1),
    };
    const BASE: u64 = 0x10_0000;
    const ALL: (usize, usize) = (LINES, NAME_BYTES);

    fn follower(place: Place, ranges: &[(u64, u64)]) -> Follower {
        let mut follower = Follower::new(UnnamedCode {
            key: KEY,
            start_ticks: 0,
            since: Timestamp::ZERO,
            ended: false,
            ranges: ranges.to_vec(),
        });
        follower.place = Some(place);
        follower
    }

    fn frames(follower: &mut Follower, last: bool) -> Vec<PerfMap> {
        std::iter::from_fn(|| follower.next_frame(last)).collect()
    }

    #[test]
    fn only_addresses_in_its_code_are_wanted_and_no_more_than_there_is_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut follower = follower(Place::in_dir(dir.path(), 7), &[]);
        let ranges = [(0x100, 0x200), (0x400, 0x500)];
        let addresses = [0xff, 0x100, 0x200, 0x201, 0x3ff, 0x450, 0x501, u64::MAX];
        assert_eq!(follower.want(&ranges, &addresses, 100), 0);
        assert_eq!(follower.lines.wanted(), 3, "an end is a return address");
        assert_eq!(follower.want(&ranges, &[0x101, 0x102, 0x103], 1), 2);
        assert_eq!(follower.want(&[], &[0x104], 10), 0);
        assert_eq!(follower.lines.wanted(), 4);
    }

    #[test]
    fn a_map_too_large_is_given_up_and_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut map = File::create(dir.path().join("perf-7.map")).unwrap();
        map.write_all(b"100 10 a\n200 10 b\n300 10 c\n").unwrap();
        let mut follower = follower(Place::in_dir(dir.path(), 7), &[(0, 0x1000)]);
        follower.want(&[(0, 0x1000)], &[0x100], 10);
        let clock = || Timestamp(5);
        assert_eq!(follower.read(&mut 9, (2, 1000), &clock), 1);
        assert_eq!(follower.read(&mut 9, ALL, &clock), 0);
        assert_eq!(
            (frames(&mut follower, true), follower.lines.len()),
            (vec![], 0)
        );
    }

    #[test]
    fn the_time_lines_are_true_is_told_when_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut map = File::create(dir.path().join("perf-7.map")).unwrap();
        map.write_all(b"100 10 a\n").unwrap();
        let mut follower = follower(Place::in_dir(dir.path(), 7), &[(0, 0x1000)]);
        follower.want(&[(0, 0x1000)], &[0x100], 10);
        let look = |follower: &mut Follower, at, last| {
            assert_eq!(follower.read(&mut 9, ALL, &|| Timestamp(at)), 0);
            let frames = frames(follower, last);
            let told = frames
                .iter()
                .map(|f| (f.previous.0, f.until.0, f.symbols.len()));
            told.collect::<Vec<_>>()
        };
        assert_eq!(look(&mut follower, 5, false), [(0, 5, 1)]);
        assert_eq!(look(&mut follower, 6, false), []);
        assert_eq!(look(&mut follower, 7, true), [(6, 7, 0)]);
        let later = 7 + TELL_AGAIN;
        assert_eq!(look(&mut follower, later, false), [(7, later, 0)]);
    }

    /// What a JIT, the kernel and the recorder do.
    #[derive(Debug, Clone)]
    enum Step {
        /// New code of a length at a place, told before it runs.
        Compile(u8, u8),
        /// A sample at a place.
        Run(u8),
        /// A flush: samples so far are wanted, the map is looked at, lines are written.
        Look,
        /// The map is written anew, with only the code there is.
        Rewrite,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0u8..12, 1u8..4).prop_map(|(at, len)| Step::Compile(at, len)),
            6 => (0u8..14).prop_map(Step::Run),
            2 => Just(Step::Look),
            1 => Just(Step::Rewrite),
        ];
        prop::collection::vec(step, 1..80)
    }

    /// Code that is there: start, end, name.
    type Code = Vec<(u64, u64, String)>;

    fn write_anew(path: &Path, code: &Code, number: u32) {
        let mut map = File::create(path).unwrap();
        // What begins as before is taken for its continuation.
        writeln!(map, "written anew {number}").unwrap();
        for (start, end, name) in code {
            writeln!(map, "{start:x} {:x} {name}", end - start).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever happens in whatever order: a sample has the name of what ran, or none; and it has one if nothing
        /// changed where it was.
        #[test]
        fn no_sample_has_a_wrong_name(steps in steps()) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("perf-7.map");
            let range = [(BASE, BASE + 0x1000)];
            let mut follower = follower(Place::in_dir(dir.path(), 7), &range);
            let (now, mut code, mut number) = (Cell::new(10), Code::new(), 0u32);
            let clock = || { now.set(now.get() + 1); Timestamp(now.get()) };
            let (mut samples, mut flushed, mut written) = (Vec::new(), 0, Vec::new());
            let mut look = |follower: &mut Follower, samples: &[(Timestamp, u64, Option<String>)], last| {
                let addresses: Vec<u64> = samples[flushed..].iter().map(|s| s.1).collect();
                flushed = samples.len();
                follower.want(&range, &addresses, WANTED);
                written.extend(frames(follower, false));
                follower.read(&mut 9, ALL, &clock);
                written.extend(frames(follower, last));
            };
            let mut recompiled = false;
            for step in steps {
                match step {
                    Step::Compile(at, len) => {
                        let start = BASE + u64::from(at) * 16;
                        let end = start + u64::from(len) * 16;
                        let before = code.len();
                        code.retain(|(s, e, _)| *e <= start || end <= *s);
                        recompiled |= code.len() < before;
                        number += 1;
                        code.push((start, end, format!("f{number}")));
                        let mut map = File::options().append(true).create(true).open(&path).unwrap();
                        writeln!(map, "{start:x} {:x} f{number}", end - start).unwrap();
                    }
                    Step::Run(at) => {
                        let address = BASE + u64::from(at) * 16 + 5;
                        let ran = code.iter().find(|(s, e, _)| (*s..*e).contains(&address));
                        samples.push((clock(), address, ran.map(|c| c.2.clone())));
                    }
                    Step::Look => look(&mut follower, &samples, false),
                    // What was in a map that nobody read is gone.
                    Step::Rewrite if follower.read.is_none() => {}
                    Step::Rewrite => {
                        number += 1;
                        write_anew(&path, &code, number);
                        recompiled |= !code.is_empty();
                    }
                }
            }
            look(&mut follower, &samples, false);
            look(&mut follower, &samples, true);
            let maps = PerfMaps::new(written);
            for (time, address, ran) in samples {
                let found = maps.find(KEY, time, address).and_then(|(m, l)| maps.symbol(m, l));
                let found = found.map(|s| String::from_utf8_lossy(&s.name).into_owned());
                prop_assert!(
                    found.is_none() || ran.is_none() || found == ran,
                    "{found:?} at {address:#x} and {time:?}, {ran:?} ran"
                );
                prop_assert!(recompiled || ran.is_none() || found == ran);
            }
        }
    }
}
