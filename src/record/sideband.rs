//! The perf side-band: the kernel's own account of fork, exec, exit, renaming and executable mappings, so that
//! a process of a millisecond has its mappings too. One event for each CPU, which counts nothing.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use anyhow::{Context, Result, bail};
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, ParseResult, Parser};
use perf_event::data::{
    CGroup, Comm, Exit, Fork, KSymbol, KSymbolType, Lost, Mmap2, RecordMetadata, Throttle, Visitor,
};
use perf_event::events::Software;
use perf_event::{Builder, Clock, Record, SampleFlag, Sampler};

use super::bpf_code::BpfCode;
use super::maps::RawMapping;
use crate::event::{BuildId, InodeKey, Pid, Timestamp, prot};

/// Something the kernel told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideEvent {
    /// When it happened.
    pub time: Timestamp,
    /// What happened.
    pub what: SideKind,
}

/// What happened to whom. `process` is always the thread group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SideKind {
    /// A new thread of `process`.
    Thread {
        /// Its process.
        process: Pid,
    },
    /// A new process (not a thread) with the memory of `parent`.
    Fork {
        /// The child.
        process: Pid,
        /// Who forked.
        parent: Pid,
    },
    /// The process runs another program, named `comm`; all its mappings are gone.
    Exec {
        /// Who.
        process: Pid,
        /// Its new name.
        comm: Vec<u8>,
    },
    /// The process's leader got another name.
    Comm {
        /// Who.
        process: Pid,
        /// Its new name.
        comm: Vec<u8>,
    },
    /// A thread ended; the process too when it was its last, which the kernel does not say.
    Exit {
        /// Its process.
        process: Pid,
    },
    /// An executable mapping was made.
    Map {
        /// Who.
        process: Pid,
        /// What.
        mapping: RawMapping,
    },
    /// A cgroup was made.
    Cgroup {
        /// Its number, as samples carry it.
        id: u64,
        /// Path from the root of the hierarchy.
        path: Vec<u8>,
    },
    /// BPF code was put into the kernel.
    BpfCode {
        /// Where.
        start: u64,
        /// Bytes.
        len: u64,
        /// Its name, as in kallsyms.
        name: String,
    },
    /// The kernel had to drop so many records, or (0) some that are counted elsewhere.
    Lost(u64),
    /// The kernel stopped the sampling event of this CPU for the rest of a tick.
    Throttled(Option<u32>),
    /// There were so many more records lost where [`SideKind::Lost`] has been told already.
    MoreLost(u64),
}

/// Bytes of each CPU's ring: with the head page what an unprivileged user may lock (`perf_event_mlock_kb`).
pub(super) const RING_BYTES: usize = 512 * 1024;

/// No record is longer: a path of `PATH_MAX` and some numbers. With less room than this in a ring records may be lost.
const LONGEST_RECORD: usize = 8 * 1024;

/// The side-band of one CPU.
struct OnCpu {
    cpu: u32,
    sampler: Sampler,
    /// Losses told before the kernel has.
    assumed: Assumed,
}

/// The kernel tells of lost records with the next record that has room, which may come much later or never. That there was
/// no room is known at once.
#[derive(Debug, Default)]
struct Assumed(u64);

impl Assumed {
    /// The ring was full: something was lost.
    fn full(&mut self) -> u64 {
        self.0 += 1;
        1
    }

    /// The kernel says how much.
    fn told(&mut self, lost: u64) -> SideKind {
        match std::mem::take(&mut self.0) {
            0 => SideKind::Lost(lost),
            assumed => SideKind::MoreLost(lost.saturating_sub(assumed)),
        }
    }
}

/// Whether a ring was full when it began to be read. What is read beyond its size came while it was read, long after the
/// record that was the last to find room.
#[derive(Debug, Default)]
struct Filling {
    /// Bytes read.
    taken: usize,
    /// Time of the latest event so far.
    latest: Timestamp,
    told: bool,
}

impl Filling {
    /// The next record has `len` bytes; `true` once, when the ring must have been full. Records are missing from
    /// `latest` until now.
    fn shows_loss(&mut self, len: usize) -> bool {
        self.taken += len;
        let full = self.taken >= RING_BYTES - LONGEST_RECORD;
        full && !std::mem::replace(&mut self.told, full)
    }
}

/// The side-band of all CPUs.
pub struct SideBand {
    samplers: Vec<OnCpu>,
    /// The kernel puts build IDs into mapping records (5.12).
    pub has_build_ids: bool,
    /// What it has told of BPF programs.
    pub bpf_code: BpfCode,
    /// How often the kernel stopped sampling for the rest of a tick, by CPU, since this was taken.
    pub throttled: BTreeMap<Option<u32>, u64>,
}

impl SideBand {
    /// Opens and starts the side-band on `cpus`. CPUs that went away meanwhile are left out.
    pub fn open(cpus: &[u32]) -> Result<SideBand> {
        let mut side_band = SideBand {
            samplers: Vec::new(),
            has_build_ids: true,
            bpf_code: BpfCode::default(),
            throttled: BTreeMap::new(),
        };
        for &cpu in cpus {
            match side_band.open_cpu(cpu) {
                Err(err) if err.raw_os_error() != Some(libc::ENODEV) => {
                    return Err(err).with_context(|| {
                        format!("cannot watch processes on CPU {cpu} (perf side-band)")
                    });
                }
                _ => {}
            }
        }
        if side_band.samplers.is_empty() {
            bail!("no CPU on which processes can be watched (perf side-band)");
        }
        Ok(side_band)
    }

    /// Opens and starts the side-band on one more CPU.
    pub fn open_cpu(&mut self, cpu: u32) -> io::Result<()> {
        let counter = match build(cpu, self.has_build_ids) {
            Err(err) if self.has_build_ids && too_new(&err) => {
                self.has_build_ids = false;
                build(cpu, false)
            }
            other => other,
        };
        let mut sampler = counter?.sampled(RING_BYTES)?;
        sampler.enable()?;
        self.samplers.push(OnCpu {
            cpu,
            sampler,
            assumed: Assumed::default(),
        });
        Ok(())
    }

    /// Closes that of a CPU that is gone; what it told must have been taken.
    pub fn close_cpu(&mut self, cpu: u32) {
        self.samplers.retain(|on| on.cpu != cpu);
    }

    /// Adds everything told since the last call to `events`, which then are in time order.
    pub fn drain(&mut self, events: &mut VecDeque<SideEvent>) {
        let mut new = Vec::new();
        let mut bytes = Vec::new();
        for OnCpu {
            sampler, assumed, ..
        } in &mut self.samplers
        {
            let config = sampler.as_counter().config().clone();
            let mut filling = Filling::default();
            while let Some(record) = sampler.next_record() {
                if filling.shows_loss(record.len() + 8) {
                    let lost = |time, count| SideEvent {
                        time,
                        what: SideKind::Lost(count),
                    };
                    new.push(lost(filling.latest, assumed.full()));
                    new.push(lost(super::host::now(), 0));
                }
                whole(&record, &mut bytes);
                match decode(&bytes, config.clone()) {
                    Ok(event) => new.extend(event.map(|mut event| {
                        filling.latest = filling.latest.max(event.time);
                        if let SideKind::Lost(count) = event.what {
                            event.what = assumed.told(count);
                        }
                        event
                    })),
                    // What it said is as unknown as that of a lost one.
                    Err(_) => new.push(SideEvent {
                        time: super::host::now(),
                        what: SideKind::Lost(1),
                    }),
                }
            }
        }
        new.retain(|event| match &event.what {
            SideKind::BpfCode { start, len, name } => {
                self.bpf_code.add(*start, *len, name);
                false
            }
            SideKind::Throttled(cpu) => {
                *self.throttled.entry(*cpu).or_default() += 1;
                false
            }
            SideKind::Lost(_) => {
                self.bpf_code.records_lost();
                true
            }
            _ => true,
        });
        // Rings are read one after the other, so one can tell of what was earlier than what another told before.
        events.extend(new);
        events
            .make_contiguous()
            .sort_by_key(|event: &SideEvent| event.time);
    }

    /// The descriptor of `cpu`'s ring.
    pub fn fd(&self, cpu: u32) -> Option<RawFd> {
        let mut samplers = self.samplers.iter();
        samplers
            .find(|on| on.cpu == cpu)
            .map(|on| on.sampler.as_raw_fd())
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // SAFETY: the descriptor is open as long as the sampler, which `self` owns.
        self.samplers
            .iter()
            .map(|on| unsafe { BorrowedFd::borrow_raw(on.sampler.as_raw_fd()) })
    }
}

/// The library hands out header and body apart and parses them together.
fn whole(record: &Record<'_>, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&record.ty().to_ne_bytes());
    bytes.extend_from_slice(&record.misc().to_ne_bytes());
    bytes.extend_from_slice(&(record.len() as u16 + 8).to_ne_bytes());
    let parts = record.data().iter();
    parts.for_each(|part| bytes.extend_from_slice(part));
}

/// Takes all that the ring of a sampling event has, and calls `each` with the CPU where it tells of throttling. The event is
/// [`identified`].
pub(super) fn throttled(sampler: &mut Sampler, each: &mut impl FnMut(Option<u32>)) {
    let config = sampler.as_counter().config().clone();
    let mut bytes = Vec::new();
    while let Some(record) = sampler.next_record() {
        whole(&record, &mut bytes);
        if let Ok(Some(event)) = decode(&bytes, config.clone())
            && let SideKind::Throttled(cpu) = event.what
        {
            each(cpu);
        }
    }
}

/// A whole record, header and body, as the event it tells of.
fn decode(record: &[u8], config: ParseConfig<Native>) -> ParseResult<Option<SideEvent>> {
    Parser::new(record, config).parse_record(Decode)
}

/// What a record of the side-band tells, as [`SideBand::drain`] would take it; `None` also for what it counts as lost.
#[cfg(fuzzing)]
pub fn fuzz_record(record: &[u8], build_ids: bool) -> Option<SideEvent> {
    let config = ParseConfig::from(*builder(build_ids).attrs());
    decode(record, config).ok().flatten()
}

/// Gives what the kernel tells of an event the ending that records here have: whose it is, when and where.
pub(super) fn identified<'a, 'b>(builder: &'b mut Builder<'a>) -> &'b mut Builder<'a> {
    builder
        .sample_id_all(true)
        .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU)
        .clockid(Clock::BOOTTIME)
}

fn build(cpu: u32, build_ids: bool) -> io::Result<perf_event::Counter> {
    let mut builder = builder(build_ids);
    builder.any_pid().one_cpu(cpu as usize).build()
}

fn builder(build_ids: bool) -> Builder<'static> {
    let mut builder = Builder::new(Software::DUMMY);
    identified(&mut builder)
        .include_kernel()
        .include_hv()
        .mmap(true)
        .mmap2(true)
        .build_id(build_ids)
        .comm(true)
        .comm_exec(true)
        .task(true)
        .cgroup(true)
        .ksymbol(true)
        .wakeup_watermark(RING_BYTES / 2);
    builder
}

/// What the kernel says to an attribute it does not know.
fn too_new(err: &io::Error) -> bool {
    matches!(err.raw_os_error(), Some(libc::EINVAL | libc::E2BIG))
        || err.kind() == io::ErrorKind::Unsupported
}

/// Turns one record into an event; `None` for what is not needed (threads, for instance).
struct Decode;

impl Decode {
    fn event(metadata: &RecordMetadata, what: SideKind) -> Option<SideEvent> {
        Some(SideEvent {
            time: Timestamp(metadata.sample_id().time()?),
            what,
        })
    }
}

impl<'a> Visitor<'a> for Decode {
    type Output = Option<SideEvent>;

    fn visit_unimplemented(self, _: RecordMetadata) -> Self::Output {
        None
    }

    fn visit_throttle(self, _: Throttle, metadata: RecordMetadata) -> Self::Output {
        let id = metadata.sample_id();
        // The kernel counts samples by the tick. A CPU that idles has no ticks, and reaches the limit whatever the rate is:
        // what it does not take then are samples of idling.
        if id.tid() == Some(0) {
            return None;
        }
        Self::event(&metadata, SideKind::Throttled(id.cpu()))
    }

    fn visit_lost(self, record: Lost, metadata: RecordMetadata) -> Self::Output {
        Self::event(&metadata, SideKind::Lost(record.lost))
    }

    fn visit_comm(self, record: Comm<'a>, metadata: RecordMetadata) -> Self::Output {
        let (process, comm) = (Pid(record.pid), record.comm.into_owned());
        if metadata.misc() & PERF_RECORD_MISC_COMM_EXEC != 0 {
            Self::event(&metadata, SideKind::Exec { process, comm })
        } else if record.pid == record.tid {
            Self::event(&metadata, SideKind::Comm { process, comm })
        } else {
            None
        }
    }

    fn visit_fork(self, record: Fork, metadata: RecordMetadata) -> Self::Output {
        let process = Pid(record.pid);
        let what = if record.pid == record.ppid {
            SideKind::Thread { process }
        } else {
            SideKind::Fork {
                process,
                parent: Pid(record.ppid),
            }
        };
        Self::event(&metadata, what)
    }

    fn visit_exit(self, record: Exit, metadata: RecordMetadata) -> Self::Output {
        Self::event(
            &metadata,
            SideKind::Exit {
                process: Pid(record.pid),
            },
        )
    }

    fn visit_mmap2(self, record: Mmap2<'a>, metadata: RecordMetadata) -> Self::Output {
        let inode = match (record.maj(), record.min(), record.ino()) {
            (Some(major), Some(minor), Some(inode)) if inode != 0 => Some(InodeKey {
                major,
                minor,
                inode,
            }),
            _ => None,
        };
        let bit = |from: u32, to: u8| if record.prot & from != 0 { to } else { 0 };
        let shared = if record.flags & libc::MAP_SHARED as u32 != 0 {
            prot::SHARED
        } else {
            0
        };
        let mapping = RawMapping {
            start: record.addr,
            end: record.addr.saturating_add(record.len),
            file_offset: record.pgoff,
            prot: bit(1, prot::READ) | bit(2, prot::WRITE) | bit(4, prot::EXEC) | shared,
            build_id: record.build_id().and_then(BuildId::new),
            inode,
            path: record.filename.into_owned(),
        };
        Self::event(
            &metadata,
            SideKind::Map {
                process: Pid(record.pid),
                mapping,
            },
        )
    }

    fn visit_ksymbol(self, record: KSymbol<'a>, metadata: RecordMetadata) -> Self::Output {
        // One that goes may have been there before we were.
        if record.ksym_type != KSymbolType::BPF {
            return None;
        }
        let name = String::from_utf8_lossy(&record.name);
        let what = SideKind::BpfCode {
            start: record.addr,
            len: record.len.into(),
            name: name.trim_end_matches('\0').to_owned(),
        };
        Self::event(&metadata, what)
    }

    fn visit_cgroup(self, record: CGroup<'a>, metadata: RecordMetadata) -> Self::Output {
        Self::event(
            &metadata,
            SideKind::Cgroup {
                id: record.id,
                path: record.path.into_owned(),
            },
        )
    }
}

const PERF_RECORD_MISC_COMM_EXEC: u16 = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own word on a loss comes when there is room again, which is while the ring is read.
    #[test]
    fn a_loss_begins_with_the_last_record_that_had_room() {
        let mut filling = Filling::default();
        let mut shown = Vec::new();
        for i in 0..2 * RING_BYTES / 128 {
            if filling.shows_loss(128) {
                shown.push((i * 128, filling.latest));
            }
            filling.latest = Timestamp(i as u64 + 1);
        }
        let at = RING_BYTES - LONGEST_RECORD - 128;
        assert_eq!(shown, [(at, Timestamp(at as u64 / 128))]);
        let mut filling = Filling::default();
        assert!((0..RING_BYTES - 2 * LONGEST_RECORD).all(|_| !filling.shows_loss(1)));
    }

    #[test]
    fn what_was_assumed_to_be_lost_is_counted_once() {
        let mut assumed = Assumed::default();
        assert_eq!(assumed.told(5), SideKind::Lost(5));
        assert_eq!((assumed.full(), assumed.full()), (1, 1));
        assert_eq!(assumed.told(7), SideKind::MoreLost(5));
        assert_eq!(assumed.told(3), SideKind::Lost(3));
        assumed.full();
        assert_eq!(assumed.told(1), SideKind::MoreLost(0));
    }
}
