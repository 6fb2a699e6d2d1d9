//! `--speedscope OUT.json`: one profile for each thread and event, in order of time, for <https://www.speedscope.app>.
//!
//! Weights are nanoseconds of CPU time where the event measures time, else weights as recorded. Frames have the module as
//! their file: a function is one frame, wherever in it samples fell.

use std::io::{self, Write};

use hashbrown::HashMap;
use serde_json::json;

use crate::profile::{About, Names, SampleView};

use super::folded::TRUNCATED;
use super::samples::{EventUnit, Part, StackNumbers, ThreadKey, nanoseconds, root_first};
use super::text;

/// Collects samples.
#[derive(Debug)]
pub struct Collector {
    units: Vec<EventUnit>,
    functions: Vec<(String, String)>,
    function_index: HashMap<(String, String), u32>,
    /// Numbers in `functions` of frames seen.
    frames: HashMap<u32, u32>,
    numbers: StackNumbers,
    /// Root first, by number.
    stacks: Vec<Box<[u32]>>,
    threads: Vec<Thread>,
    thread_index: HashMap<(ThreadKey, u8), usize>,
}

#[derive(Debug)]
struct Thread {
    name: String,
    event: u8,
    /// Number of the stack and weight; equal ones that follow each other are one.
    samples: Vec<(u32, u64)>,
}

impl Collector {
    /// For a capture of these events.
    pub fn new(units: Vec<EventUnit>) -> Collector {
        Collector {
            units,
            functions: Vec::new(),
            function_index: HashMap::new(),
            frames: HashMap::new(),
            numbers: StackNumbers::default(),
            stacks: Vec::new(),
            threads: Vec::new(),
            thread_index: HashMap::new(),
        }
    }

    fn function(&mut self, name: &str, module: &str) -> u32 {
        let key = (name.to_owned(), module.to_owned());
        let next = self.functions.len() as u32;
        let number = *self.function_index.entry(key.clone()).or_insert(next);
        if number == next {
            self.functions.push(key);
        }
        number
    }

    /// Takes the next sample in.
    pub fn sample(&mut self, names: &Names, sample: &SampleView<'_>) {
        let (stack, new) = self.numbers.of(sample);
        if new {
            let mut list = Vec::new();
            root_first(sample, |part| {
                let number = match part {
                    Part::Cut => self.function(TRUNCATED, ""),
                    Part::Function(part) => match self.frames.get(&part.frame) {
                        Some(number) => *number,
                        None => {
                            let Some(frame) = names.frames().get(part.frame as usize) else {
                                return;
                            };
                            let number =
                                self.function(names.text(frame.name), names.text(frame.module));
                            self.frames.insert(part.frame, number);
                            number
                        }
                    },
                };
                list.push(number);
            });
            self.stacks.push(list.into());
        }
        let key = ThreadKey {
            pid: sample.pid.0,
            tid: sample.tid.0,
            process: sample.process.to_owned(),
        };
        let thread = *self
            .thread_index
            .entry((key, sample.event))
            .or_insert_with(|| {
                self.threads.push(Thread {
                    name: String::new(),
                    event: sample.event,
                    samples: Vec::new(),
                });
                self.threads.len() - 1
            });
        let weight = nanoseconds(&self.units, sample.event, sample.weight).unwrap_or(sample.weight);
        let Some(thread) = self.threads.get_mut(thread) else {
            return;
        };
        if thread.name.is_empty() {
            let (process, comm) = (sample.process, sample.comm);
            thread.name = match sample.pid == sample.tid || process == comm {
                true => format!("{process} {}/{}", sample.pid, sample.tid),
                false => format!("{process} {}/{} {comm}", sample.pid, sample.tid),
            };
        }
        match thread.samples.last_mut() {
            Some((last, sum)) if *last == stack => *sum = sum.saturating_add(weight),
            _ => thread.samples.push((stack, weight)),
        }
    }

    /// Writes the file.
    pub fn write(&self, about: &About, out: &mut dyn Write) -> io::Result<()> {
        // Piece by piece: the lists of samples are most of it.
        let name = text::json(&format!("{} on {}", about.target, about.host))?;
        let tool = text::json(&format!("profiler {}", env!("CARGO_PKG_VERSION")))?;
        write!(
            out,
            "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":{tool},\"name\":{name},\
             \"activeProfileIndex\":{},\"shared\":{{\"frames\":[",
            self.heaviest()
        )?;
        for (i, (name, module)) in self.functions.iter().enumerate() {
            let frame = match module.is_empty() {
                true => json!({ "name": name }),
                false => json!({ "name": name, "file": module }),
            };
            let frame = text::json(&frame)?;
            write!(out, "{}{frame}", if i > 0 { ",\n" } else { "\n" })?;
        }
        write!(out, "]}},\"profiles\":[")?;
        for (i, thread) in self.threads.iter().enumerate() {
            out.write_all(if i > 0 { b",\n" } else { b"\n" })?;
            self.thread(thread, out)?;
        }
        out.write_all(b"]}\n")
    }

    /// The thread that is shown first.
    fn heaviest(&self) -> usize {
        let weight = |thread: &Thread| {
            thread
                .samples
                .iter()
                .fold(0u64, |sum, s| sum.saturating_add(s.1))
        };
        let heaviest = self.threads.iter().enumerate().rev();
        heaviest
            .max_by_key(|(_, thread)| weight(thread))
            .map_or(0, |(i, _)| i)
    }

    fn thread(&self, thread: &Thread, out: &mut dyn Write) -> io::Result<()> {
        let unit = self.units.get(usize::from(thread.event));
        let name = match unit {
            Some(unit) if self.units.len() > 1 => format!("{} ({})", thread.name, unit.name),
            _ => thread.name.clone(),
        };
        let time = unit.is_some_and(|unit| unit.nanoseconds.is_some());
        let total = thread
            .samples
            .iter()
            .fold(0u64, |sum, s| sum.saturating_add(s.1));
        write!(
            out,
            "{{\"type\":\"sampled\",\"name\":{},\"unit\":\"{}\",\"startValue\":0,\"endValue\":{total},\"samples\":[",
            text::json(&name)?,
            if time { "nanoseconds" } else { "none" },
        )?;
        for (i, (stack, _)) in thread.samples.iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            serde_json::to_writer(
                &mut *out,
                self.stacks.get(*stack as usize).map_or(&[][..], |s| s),
            )?;
        }
        write!(out, "],\"weights\":[")?;
        for (i, (_, weight)) in thread.samples.iter().enumerate() {
            write!(out, "{}{weight}", if i > 0 { "," } else { "" })?;
        }
        out.write_all(b"]}")
    }
}
