//! `--firefox OUT.json.gz`: a profile for <https://profiler.firefox.com>, with processes, threads and time.
//!
//! Functions have their names already, so nothing has to be looked up there. Categories tell user from kernel code, their
//! subcategories the module.

use std::io::{self, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle,
    Timestamp, WeightType,
};
use hashbrown::HashMap;

use crate::profile::{About, FrameKind, Names, SampleView};

use super::folded::TRUNCATED;
use super::samples::{EventUnit, Part, StackNumbers, ThreadKey, nanoseconds, root_first};

/// Collects samples.
pub struct Collector {
    units: Vec<EventUnit>,
    profile: Profile,
    first: u64,
    categories: [CategoryHandle; 2],
    modules: HashMap<(bool, String), CategoryPairHandle>,
    frames: HashMap<u32, FrameInfo>,
    numbers: StackNumbers,
    /// Root first, by number.
    stacks: Vec<Vec<FrameInfo>>,
    /// As each thread has them.
    thread_stacks: HashMap<(usize, u32), Option<StackHandle>>,
    processes: HashMap<(u32, String), ProcessHandle>,
    threads: HashMap<(ThreadKey, u8), usize>,
    handles: Vec<ThreadHandle>,
}

impl Collector {
    /// For the capture `about` tells of.
    pub fn new(about: &About, units: Vec<EventUnit>) -> Collector {
        let first = about.span.map_or(0, |(first, _)| first.0);
        let wall = i128::from(first) + i128::from(about.wall_offset_ns);
        let reference = Duration::from_nanos(u64::try_from(wall).unwrap_or(0));
        let period = units.iter().find_map(|unit| unit.nanoseconds);
        let mut profile = Profile::new(
            &format!("{} on {}", about.target, about.host),
            ReferenceTimestamp::from_duration_since_unix_epoch(reference),
            SamplingInterval::from_nanos(period.unwrap_or(1_000_000)),
        );
        profile.set_os_name(&about.kernel);
        profile.set_symbolicated(true);
        let categories = [
            profile.add_category("User", CategoryColor::Yellow),
            profile.add_category("Kernel", CategoryColor::Orange),
        ];
        Collector {
            units,
            profile,
            first,
            categories,
            modules: HashMap::new(),
            frames: HashMap::new(),
            numbers: StackNumbers::default(),
            stacks: Vec::new(),
            thread_stacks: HashMap::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            handles: Vec::new(),
        }
    }

    /// Takes the next sample in.
    pub fn sample(&mut self, names: &Names, sample: &SampleView<'_>) {
        let (stack, new) = self.numbers.of(sample);
        if new {
            let mut list = Vec::new();
            root_first(sample, |part| list.extend(self.frame(names, part)));
            self.stacks.push(list);
        }
        let time = Timestamp::from_nanos_since_reference(sample.time.0.saturating_sub(self.first));
        let (number, thread) = self.thread(sample, time);
        let (profile, stacks) = (&mut self.profile, &self.stacks);
        let handle = *self
            .thread_stacks
            .entry((number, stack))
            .or_insert_with(|| {
                let frames = stacks.get(stack as usize).into_iter().flatten();
                profile.intern_stack_frames(thread, frames.cloned())
            });
        let time_of = nanoseconds(&self.units, sample.event, sample.weight);
        let delta = CpuDelta::from_nanos(time_of.unwrap_or(0));
        // The format has 32 bits; what is larger goes into several samples of the same moment.
        let mut left = sample.weight;
        let mut delta = Some(delta);
        while left > 0 {
            let weight = i32::try_from(left).unwrap_or(i32::MAX);
            profile.add_sample(
                thread,
                time,
                handle,
                delta.take().unwrap_or(CpuDelta::ZERO),
                weight,
            );
            left -= weight as u64;
        }
    }

    fn thread(&mut self, sample: &SampleView<'_>, time: Timestamp) -> (usize, ThreadHandle) {
        let key = ThreadKey {
            pid: sample.pid.0,
            tid: sample.tid.0,
            process: sample.process.to_owned(),
        };
        let key = (key, sample.event);
        if let Some(number) = self.threads.get(&key)
            && let Some(handle) = self.handles.get(*number)
        {
            return (*number, *handle);
        }
        let profile = &mut self.profile;
        let owner = (sample.pid.0, sample.process.to_owned());
        let process = self.processes.entry(owner);
        let process =
            *process.or_insert_with(|| profile.add_process(sample.process, sample.pid.0, time));
        let thread = profile.add_thread(process, sample.tid.0, time, sample.pid == sample.tid);
        let name = match self.units.get(usize::from(sample.event)) {
            Some(unit) if self.units.len() > 1 => format!("{} ({})", sample.comm, unit.name),
            _ => sample.comm.to_owned(),
        };
        profile.set_thread_name(thread, &name);
        profile.set_thread_samples_weight_type(thread, WeightType::Samples);
        self.handles.push(thread);
        self.threads.insert(key, self.handles.len() - 1);
        (self.handles.len() - 1, thread)
    }

    fn frame(&mut self, names: &Names, part: Part<'_>) -> Option<FrameInfo> {
        let number = match part {
            Part::Cut => return Some(self.label(TRUNCATED, CategoryHandle::OTHER.into())),
            Part::Function(part) => part.frame,
        };
        if let Some(frame) = self.frames.get(&number) {
            return Some(frame.clone());
        }
        let frame = names.frames().get(number as usize)?;
        let (kernel, module) = (frame.kind == FrameKind::Kernel, names.text(frame.module));
        let profile = &mut self.profile;
        let category = self.categories[usize::from(kernel)];
        let module = self
            .modules
            .entry((kernel, module.to_owned()))
            .or_insert_with(|| match module {
                "" => category.into(),
                module => profile.add_subcategory(category, module),
            });
        let module = *module;
        let info = self.label(names.text(frame.name), module);
        self.frames.insert(number, info.clone());
        Some(info)
    }

    fn label(&mut self, text: &str, category_pair: CategoryPairHandle) -> FrameInfo {
        FrameInfo {
            frame: Frame::Label(self.profile.intern_string(text)),
            category_pair,
            flags: FrameFlags::empty(),
        }
    }

    /// Writes the file.
    pub fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let gzip = GzEncoder::new(out, Compression::default());
        let mut buffer = io::BufWriter::with_capacity(1 << 16, gzip);
        serde_json::to_writer(&mut buffer, &self.profile)?;
        let gzip = buffer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        gzip.finish()?;
        Ok(())
    }
}
