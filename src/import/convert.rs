//! From records in order of time to a capture.

use std::collections::HashSet;
use std::io::Write;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use linux_perf_event_reader::constants::{
    PERF_RECORD_KSYMBOL, PERF_RECORD_LOST_SAMPLES, PERF_RECORD_SAMPLE,
};

use super::bytes::Bytes;
use super::container::{Container, feature};
use super::facts::Facts;
use super::files::Files;
use super::kernel::Kernel;
use super::machine::{Machine, Times};
use super::processes::{Processes, Segment};
use super::records::{Record, kind};
use super::sample::{Sample, Shape};
use super::survey::Survey;
use super::{Imported, OFTEN, Step, Tell};
use crate::capture::writer::CaptureWriter;
use crate::capture::{SampleInput, TablesFull};
use crate::event::{LossClass, MappedFile, Timestamp, sample_flags};
use crate::format::aid::Vdso;
use crate::format::end::{End, EndReason};
use crate::format::header::Header;

/// A frame has samples of so long, a segment of so long, as when we record.
const FRAME: u64 = 1_000_000_000;
const SEGMENT: u64 = 60 * FRAME;
/// Times are counted in units of two to this power nanoseconds, as when we record.
const TIME_UNIT: u32 = 10;
/// Events whose samples can be told apart.
const EVENTS: usize = 256;

/// Reads `container` to its end and writes a capture into `out`.
pub fn convert<W: Write>(
    container: Container,
    survey: Option<Survey>,
    out: W,
    tell: Tell<'_>,
) -> Result<Imported> {
    let mut importer = Importer::new(container, survey)?;
    let mut sink = Some(out);
    let mut open: Option<Open<W>> = None;
    let mut records = 0u64;
    while let Some((time, record)) = importer.container.next() {
        records += 1;
        if records.is_multiple_of(OFTEN) {
            tell(importer.container.progress(Step::Importing));
        }
        importer.first = match importer.first {
            0 => time,
            first => first,
        };
        importer.latest = importer.latest.max(time);
        if record.kind == PERF_RECORD_SAMPLE
            && let Some(out) = sink.take()
        {
            open = Some(importer.begin(out)?);
        }
        importer.take(time, record, open.as_mut())?;
    }
    match open {
        Some(open) => importer.finish(open),
        None => {
            let damage = importer.container.damage();
            let why = damage.map_or_else(String::new, |damage| format!(" ({damage})"));
            bail!("it holds no samples{why}")
        }
    }
}

/// A capture that has begun.
pub(super) struct Open<W> {
    pub(super) writer: CaptureWriter<W>,
    pub(super) machine: Machine,
    header: Header,
    /// Times of the first sample of the frame and of the segment.
    frame: u64,
    segment: u64,
    /// Files in the capture.
    files: HashSet<MappedFile>,
    vdso: bool,
}

pub(super) struct Importer {
    pub(super) container: Container,
    survey: Option<Survey>,
    facts: Facts,
    /// Of each event that is sampled: how its samples look, and its number in the capture.
    shapes: Vec<Option<(Shape, u8)>>,
    pub(super) files: Files,
    pub(super) kernel: Kernel,
    pub(super) processes: Processes,
    /// What has been told of files before it is known which machine this is.
    early: Vec<(u64, Record)>,
    first: u64,
    latest: u64,
    sample: Sample,
    samples: u64,
    malformed: u64,
    guests: u64,
    /// Records lost, by the kernel's account, and samples lost, by its other one.
    pub(super) lost_records: u64,
    lost_samples: u64,
    pub(super) broken: u64,
}

impl Importer {
    fn new(container: Container, mut survey: Option<Survey>) -> Result<Importer> {
        let arch = container.text(feature::ARCH).unwrap_or_default();
        let mut shapes = Vec::new();
        let mut sampled = Vec::new();
        for attr in &container.attrs.list {
            if !attr.is_sampled() {
                shapes.push(None);
                continue;
            }
            if sampled.len() >= EVENTS {
                bail!("it has more events than a capture can tell apart ({EVENTS})");
            }
            shapes.push(Some((Shape::new(attr, &arch), sampled.len() as u8)));
            sampled.push(attr);
        }
        if sampled.is_empty() {
            bail!("none of its events is sampled");
        }
        let of_sampled: Vec<Shape> = shapes.iter().flatten().map(|(s, _)| s.clone()).collect();
        let facts = Facts::of(&container, &sampled, &of_sampled);
        let ambiguous = survey
            .as_mut()
            .map(|survey| std::mem::take(&mut survey.ambiguous));
        let table = container.features.get(&feature::BUILD_ID);
        let table = table.map_or(&[][..], Vec::as_slice);
        Ok(Importer {
            files: Files::new(table, ambiguous.unwrap_or_default()),
            container,
            survey,
            facts,
            shapes,
            kernel: Kernel::default(),
            processes: Processes::default(),
            early: Vec::new(),
            first: 0,
            latest: 0,
            sample: Sample::default(),
            samples: 0,
            malformed: 0,
            guests: 0,
            lost_records: 0,
            lost_samples: 0,
            broken: 0,
        })
    }

    /// The first sample is there: all that comes before it in the file has been seen.
    fn begin<W: Write>(&mut self, out: W) -> Result<Open<W>> {
        let recorded = &mut self.facts.recorded;
        recorded.kernel = self.files.kernel();
        recorded.text.clone_from(&self.kernel.text);
        let latest = self
            .survey
            .as_ref()
            .map_or(self.latest, |survey| survey.latest);
        let modified = self.container.modified;
        let times = Times {
            first: self.first,
            latest,
            written: modified.unwrap_or_else(SystemTime::now),
        };
        let machine = Machine::new(recorded, times);
        let kernel = recorded.kernel.clone();
        let mut further = Vec::new();
        if let Err(why) = &machine.same_kernel {
            further.push(format!(
                "kernel names: perf records none, and those of this machine are not taken: {why}"
            ));
        }
        let survey = self.survey.as_ref();
        let header = self
            .facts
            .header(self.first, kernel, survey, modified, further);
        let mut writer = CaptureWriter::create(out, &header)?;
        writer.set_time_unit(TIME_UNIT);
        // From now on it keeps what it has written.
        writer.take_written();
        let mut open = Open {
            writer,
            machine,
            header,
            frame: self.first,
            segment: self.first,
            files: HashSet::new(),
            vdso: false,
        };
        for (time, record) in std::mem::take(&mut self.early) {
            self.take(time, record, Some(&mut open))?;
        }
        Ok(open)
    }

    fn take<W: Write>(
        &mut self,
        time: u64,
        record: Record,
        open: Option<&mut Open<W>>,
    ) -> Result<()> {
        match record.kind {
            PERF_RECORD_SAMPLE => {
                if let Some(open) = open {
                    self.take_sample(&record, open)?;
                }
            }
            kind::BUILD_ID => self.files.add_build_id(record.misc, &record.body),
            PERF_RECORD_KSYMBOL => self.kernel.code(&record.body),
            PERF_RECORD_LOST_SAMPLES => {
                // In the misc field: a filter of perf's left them out on purpose.
                const FILTERED: u16 = 1 << 15;
                let count = Bytes(&record.body).u64().unwrap_or(0);
                if record.misc & FILTERED == 0 {
                    self.lost_samples = self.lost_samples.saturating_add(count);
                }
            }
            _ if record.kind >= kind::USER => {}
            _ => match open {
                Some(open) => self.side_band(time, &record, open)?,
                // Of the kernel this has to be known first: which machine it is depends on it.
                None => {
                    if !self.kernel_mapping(&record) {
                        self.early.push((time, record));
                    }
                }
            },
        }
        Ok(())
    }

    fn take_sample<W: Write>(&mut self, record: &Record, open: &mut Open<W>) -> Result<()> {
        let number = self.container.attrs.of(record.kind, &record.body);
        let shape = number.and_then(|number| self.shapes.get(number)?.as_ref());
        let read = shape.and_then(|(shape, event)| {
            self.sample.read(shape, record.misc, &record.body)?;
            Some(*event)
        });
        let Some(event) = read else {
            self.malformed += 1;
            open.writer.loss(LossClass::Malformed, None, 1);
            return Ok(());
        };
        let time = self.sample.time;
        if time.saturating_sub(open.segment) >= SEGMENT || open.writer.segment_is_full() {
            open.next_segment(&mut self.kernel)?;
            (open.segment, open.frame) = (time, time);
        } else if time.saturating_sub(open.frame) >= FRAME || open.writer.frame_is_full() {
            open.flush(&mut self.kernel)?;
            open.frame = time;
        }
        if self.place_sample(event, open).is_err() {
            open.next_segment(&mut self.kernel)?;
            if self.place_sample(event, open).is_err() {
                open.writer.loss(LossClass::TableFull, None, 1);
                return Ok(());
            }
        }
        self.count(open);
        Ok(())
    }

    fn place_sample<W: Write>(&mut self, event: u8, open: &mut Open<W>) -> Result<(), TablesFull> {
        let sample = &mut self.sample;
        let in_kernel = sample.flags & sample_flags::IN_KERNEL != 0;
        let leaf = sample.user.first().copied();
        if self.processes.is_of_before(sample.pid, leaf, in_kernel) {
            sample.flags |= sample_flags::IN_EXEC;
        }
        let mut segment = open.segment(&self.files);
        let who = (sample.pid, sample.tid);
        let task = self.processes.task(&mut segment, who, sample.time)?;
        open.writer.sample(&SampleInput {
            time: Timestamp(sample.time),
            cpu: sample.cpu,
            task,
            user: &sample.user,
            kernel: &sample.kernel,
            weight: 1,
            flags: sample.flags,
            event,
        })
    }

    /// Counts a sample that is in the capture, and what is missing of it.
    fn count<W: Write>(&mut self, open: &mut Open<W>) {
        self.samples += 1;
        self.guests += u64::from(self.sample.guest);
        let is_known = self.sample.flags & sample_flags::CPU_UNKNOWN == 0;
        let cpu = is_known.then_some(self.sample.cpu);
        for (flag, class) in [
            (sample_flags::USER_TRUNCATED, LossClass::UserTruncated),
            (sample_flags::KERNEL_TRUNCATED, LossClass::KernelTruncated),
            (sample_flags::USER_UNREADABLE, LossClass::UserUnreadable),
        ] {
            if self.sample.flags & flag != 0 {
                open.writer.loss(class, cpu, 1);
            }
        }
    }

    /// Writes what names need, and the end.
    fn finish<W: Write>(mut self, mut open: Open<W>) -> Result<Imported> {
        // The kernel counts what found no room twice: all records, and, since Linux 6.0, the samples among them.
        let lost = match self.lost_samples {
            0 => self.lost_records,
            samples => samples,
        };
        open.writer.loss(LossClass::RingFull, None, lost);
        let others = self.lost_records.saturating_sub(lost);
        let others = others.saturating_add(self.broken);
        open.writer.loss(LossClass::SideBand, None, others);
        let unknown = self.processes.unknown_mappings;
        open.writer.loss(LossClass::MapsUnreadable, None, unknown);
        open.flush(&mut self.kernel)?;
        let mut notes = Vec::new();
        let (symbols, problem) = self.kernel.symbols(&open.machine, &open.header.arch);
        if symbols.stext != 0 || !symbols.symbols.is_empty() {
            open.writer.kernel_symbols(&symbols)?;
        }
        if open.vdso
            && open.machine.same_kernel.is_ok()
            && let Some(image) = own_vdso()
        {
            open.writer.vdso(&Vdso { image })?;
        }
        for layouts in self.files.layouts_of(std::mem::take(&mut open.files)) {
            open.writer.elf_layouts(&layouts)?;
        }
        if let (Some(problem), Ok(())) = (problem, &open.machine.same_kernel) {
            notes.push(format!("no names of kernel code: {problem}"));
        }
        let traces = self.container.records.records.traces;
        for (count, what) in [
            (self.guests, "samples of virtual machines, without stacks"),
            (traces, "bytes of hardware traces, not imported"),
            (self.malformed, "damaged samples, counted as lost"),
            (
                self.broken,
                "damaged records of processes, left out, so that names may be missing",
            ),
        ] {
            if count > 0 {
                notes.push(format!("{what}: {count}"));
            }
        }
        if self.lost_records > 0 && self.lost_samples == 0 {
            notes.push(
                "perf lost records and does not say whether some were of processes: where names look wrong after that, they may be"
                    .into(),
            );
        }
        let damage: Vec<String> = self.container.damage().into_iter().collect();
        let lost = lost.saturating_add(self.malformed);
        let imported = Imported {
            samples: self.samples,
            lost,
            processes: self.processes.sampled,
            degraded: open.header.degraded.clone(),
            damage,
            left_out: self.malformed + self.broken,
            notes,
        };
        if !imported.damage.is_empty() {
            // Without an end it is what it is: all up to a cut.
            open.flush(&mut self.kernel)?;
            return Ok(imported);
        }
        let end = End {
            time: Timestamp(self.latest),
            reason: EndReason::Failure("the end of perf.data".into()),
            samples: self.samples,
            lost,
            processes: self.processes.sampled,
        };
        open.writer.finish(&end).context("cannot be finished")?;
        Ok(imported)
    }
}

impl<W: Write> Open<W> {
    pub(super) fn segment<'a>(&'a mut self, files: &'a Files) -> Segment<'a, W> {
        Segment {
            writer: &mut self.writer,
            files,
        }
    }

    fn flush(&mut self, kernel: &mut Kernel) -> Result<()> {
        self.writer.flush()?;
        let written = self.writer.take_written();
        kernel.wants(&written.kernel);
        for file in written.files {
            self.vdso |= file.kind == crate::event::MappedKind::Vdso;
            self.files.insert(file);
        }
        Ok(())
    }

    pub(super) fn next_segment(&mut self, kernel: &mut Kernel) -> Result<()> {
        self.flush(kernel)?;
        self.writer.start_segment()?;
        Ok(())
    }
}

/// The vdso is the kernel's, so that of this process will do.
#[cfg(feature = "record")]
fn own_vdso() -> Option<Vec<u8>> {
    crate::record::kernel_names::own_vdso()
}

#[cfg(not(feature = "record"))]
fn own_vdso() -> Option<Vec<u8>> {
    None
}
