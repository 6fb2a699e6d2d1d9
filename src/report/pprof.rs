//! `--pprof OUT.pb.gz`: a profile for `go tool pprof` and what else reads that format.
//!
//! Each stack is counted once for each thread it was seen in. Of one event the values are `samples` (count) and `cpu`
//! (nanoseconds; without a clock, events). Where several events were sampled, each has its values, named after it.
//!
//! A file is one mapping, at the address where it was seen first: where other processes have it elsewhere, addresses are
//! those it would have there, so that a function is the same one in all of them.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use hashbrown::HashMap;
use prost::Message;

use crate::event::MappedFile;
use crate::profile::{About, FrameKind, Names, SampleFrame, SampleView};

use super::folded::TRUNCATED;
use super::samples::{EventUnit, StackNumbers, ThreadKey, nanoseconds};

pub mod proto;

use proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// Addresses of a mapping are rounded to this many bytes.
const PAGE: u64 = 4096;

/// Collects samples.
#[derive(Debug)]
pub struct Collector {
    units: Vec<EventUnit>,
    profile: Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    /// Locations of places.
    locations: HashMap<u32, u64>,
    cut: Option<u64>,
    mappings: HashMap<MappingKey, u64>,
    /// Of each file mapped, what is added to an offset for its address.
    biases: Vec<u64>,
    numbers: StackNumbers,
    /// Leaf first, by number.
    stacks: Vec<Vec<u64>>,
    threads: HashMap<(ThreadKey, String), u32>,
    /// pid, tid, comm, process.
    labels: Vec<[Label; 4]>,
    samples: HashMap<(u32, u32), usize>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum MappingKey {
    File(MappedFile),
    Named(String),
}

impl Collector {
    /// For a capture of these events.
    pub fn new(units: Vec<EventUnit>) -> Collector {
        let mut collector = Collector {
            units,
            profile: Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            cut: None,
            mappings: HashMap::new(),
            biases: Vec::new(),
            numbers: StackNumbers::default(),
            stacks: Vec::new(),
            threads: HashMap::new(),
            labels: Vec::new(),
            samples: HashMap::new(),
        };
        collector.string("");
        collector.value_types();
        collector
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), number);
        number
    }

    fn value_types(&mut self) {
        let units = self.units.clone();
        let alone = units.len() == 1;
        for unit in &units {
            let own = |what: &str| {
                if alone {
                    what.to_owned()
                } else {
                    format!("{}-{what}", unit.name)
                }
            };
            let values = match (unit.nanoseconds, unit.period) {
                (Some(_), _) => (own("cpu"), "nanoseconds"),
                _ if alone => (unit.name.clone(), "count"),
                _ => (own("events"), "count"),
            };
            for (kind, unit) in [(own("samples"), "count"), values] {
                let value_type = ValueType {
                    r#type: self.string(&kind),
                    unit: self.string(unit),
                };
                self.profile.sample_type.push(value_type);
            }
        }
        if let (true, Some(unit)) = (alone, units.first())
            && let Some(period) = unit.nanoseconds.or(unit.period)
        {
            self.profile.period_type = self.profile.sample_type.get(1).copied();
            self.profile.period = clamp(period);
        }
    }

    /// Takes the next sample in.
    pub fn sample(&mut self, names: &Names, sample: &SampleView<'_>) {
        let (stack, new) = self.numbers.of(sample);
        if new {
            let stack = self.stack(names, sample);
            self.stacks.push(stack);
        }
        let thread = self.thread(sample);
        let values = self.profile.sample_type.len();
        let at = *self.samples.entry((stack, thread)).or_insert_with(|| {
            let labels = self.labels.get(thread as usize);
            self.profile.sample.push(Sample {
                location_id: self.stacks.get(stack as usize).cloned().unwrap_or_default(),
                value: vec![0; values],
                label: labels.map_or(Vec::new(), |labels| labels.to_vec()),
            });
            self.profile.sample.len() - 1
        });
        let period = self
            .units
            .get(usize::from(sample.event))
            .and_then(|unit| unit.period);
        let amount = nanoseconds(&self.units, sample.event, sample.weight)
            .unwrap_or(sample.weight.saturating_mul(period.unwrap_or(1)));
        let column = 2 * usize::from(sample.event);
        if let Some(Sample { value, .. }) = self.profile.sample.get_mut(at)
            && let Some([samples, sum]) = value.get_mut(column..column + 2)
        {
            *samples = samples.saturating_add(1);
            *sum = sum.saturating_add(clamp(amount));
        }
    }

    fn thread(&mut self, sample: &SampleView<'_>) -> u32 {
        let key = ThreadKey {
            pid: sample.pid.0,
            tid: sample.tid.0,
            process: sample.process.to_owned(),
        };
        let key = (key, sample.comm.to_owned());
        if let Some(number) = self.threads.get(&key) {
            return *number;
        }
        let number = |key, num| Label {
            key,
            num,
            ..Label::default()
        };
        let text = |key, str| Label {
            key,
            str,
            ..Label::default()
        };
        let labels = [
            number(self.string("pid"), i64::from(sample.pid.0)),
            number(self.string("tid"), i64::from(sample.tid.0)),
            text(self.string("comm"), self.string(sample.comm)),
            text(self.string("process"), self.string(sample.process)),
        ];
        self.labels.push(labels);
        let next = self.labels.len() as u32 - 1;
        self.threads.insert(key, next);
        next
    }

    /// Locations of a stack, leaf first.
    fn stack(&mut self, names: &Names, sample: &SampleView<'_>) -> Vec<u64> {
        let (user_cut, kernel_cut) = sample.cuts();
        let mut stack = Vec::with_capacity(sample.kernel.len() + sample.user.len() + 1);
        for (frames, cut) in [(sample.kernel, kernel_cut), (sample.user, user_cut)] {
            for (depth, frame) in frames.iter().enumerate() {
                let location = match self.locations.get(&frame.place) {
                    Some(location) => *location,
                    None => self.location(names, frame, depth > 0),
                };
                stack.push(location);
            }
            if cut {
                stack.push(self.cut());
            }
        }
        stack
    }

    fn cut(&mut self) -> u64 {
        if let Some(cut) = self.cut {
            return cut;
        }
        let function_id = self.function(TRUNCATED, "");
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location {
            id,
            line: vec![Line {
                function_id,
                line: 0,
            }],
            ..Location::default()
        });
        self.cut = Some(id);
        id
    }

    fn location(&mut self, names: &Names, frame: &SampleFrame<'_>, is_return: bool) -> u64 {
        let mut lines = Vec::with_capacity(frame.resolution.chain.len());
        let mut named_lines = false;
        // What was inlined comes first, what it was inlined into after it.
        for part in frame.resolution.chain.iter().rev() {
            let Some(function) = names.frames().get(part.frame as usize) else {
                continue;
            };
            let (file, line) = part
                .source
                .map_or(("", 0), |source| (names.text(source.file), source.line));
            named_lines |= line > 0;
            let function_id = self.function(names.text(function.name), file);
            lines.push(Line {
                function_id,
                line: i64::from(line),
            });
        }
        let inlined = lines.len() > 1;
        let outer = frame.resolution.chain.first();
        let outer = outer.and_then(|part| names.frames().get(part.frame as usize));
        let module = outer.map_or("", |frame| names.text(frame.module));
        // The instruction that calls, as for the names.
        let mut address = frame.address.saturating_sub(u64::from(is_return));
        let mapping_id = match frame.file {
            Some((file, offset)) => {
                let bias = address.wrapping_sub(offset);
                let id = self.mapping(MappingKey::File(file.clone()), bias);
                let bias = self.biases.get(id as usize - 1).copied().unwrap_or(bias);
                address = offset.wrapping_add(bias);
                id
            }
            None if module.is_empty() => 0,
            None => self.mapping(MappingKey::Named(module.to_owned()), 0),
        };
        // All memory without a file is one place; no address of it stands for the others.
        let one_address = frame.file.is_some()
            || outer.is_some_and(|frame| frame.kind == FrameKind::Kernel)
            || frame.resolution.unnamed.is_none();
        if !one_address {
            address = 0;
        }
        if let Some(mapping) = (mapping_id as usize)
            .checked_sub(1)
            .and_then(|i| self.profile.mapping.get_mut(i))
            && one_address
        {
            let start = address - address % PAGE;
            let fresh = mapping.memory_limit == 0;
            mapping.memory_start = if fresh {
                start
            } else {
                mapping.memory_start.min(start)
            };
            mapping.memory_limit = mapping.memory_limit.max(start.saturating_add(PAGE));
            mapping.has_functions |= frame.resolution.unnamed.is_none();
            mapping.has_filenames |= named_lines;
            mapping.has_line_numbers |= named_lines;
            mapping.has_inline_frames |= inlined;
        }
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location {
            id,
            mapping_id,
            address,
            line: lines,
        });
        self.locations.insert(frame.place, id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (self.string(name), self.string(file));
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry(key).or_insert(next);
        if id == next {
            self.profile.function.push(Function {
                id,
                name: key.0,
                system_name: key.0,
                filename: key.1,
                start_line: 0,
            });
        }
        id
    }

    fn mapping(&mut self, key: MappingKey, bias: u64) -> u64 {
        if let Some(id) = self.mappings.get(&key) {
            return *id;
        }
        let (path, build_id) = match &key {
            MappingKey::File(file) => (
                String::from_utf8_lossy(&file.path).into_owned(),
                file.build_id
                    .as_ref()
                    .map_or(String::new(), ToString::to_string),
            ),
            MappingKey::Named(name) => (name.clone(), String::new()),
        };
        let id = self.profile.mapping.len() as u64 + 1;
        let mapping = Mapping {
            id,
            filename: self.string(&path),
            build_id: self.string(&build_id),
            ..Mapping::default()
        };
        self.profile.mapping.push(mapping);
        self.biases.push(bias);
        self.mappings.insert(key, id);
        id
    }

    /// Writes the file.
    pub fn write(mut self, about: &About, out: &mut dyn Write) -> io::Result<()> {
        if let Some((first, last)) = about.span {
            let wall = i128::from(first.0) + i128::from(about.wall_offset_ns);
            self.profile.time_nanos = i64::try_from(wall).unwrap_or(0);
            self.profile.duration_nanos = clamp(last.since(first));
        }
        let comments = [
            format!("host: {}, {}", about.host, about.kernel),
            format!("target: {}", about.target),
            format!("samples lost: {}", about.lost),
        ];
        for comment in comments {
            let comment = self.string(&comment);
            self.profile.comment.push(comment);
        }
        for (mapping, bias) in self.profile.mapping.iter_mut().zip(&self.biases) {
            if *bias != 0 {
                mapping.file_offset = mapping.memory_start.wrapping_sub(*bias);
            }
        }
        let mut gzip = GzEncoder::new(out, Compression::default());
        gzip.write_all(&self.profile.encode_to_vec())?;
        gzip.finish()?;
        Ok(())
    }
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
