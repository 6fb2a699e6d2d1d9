//! The perf side-band: the kernel's own account of fork, exec, exit, renaming and executable mappings, so that
//! a process of a millisecond has its mappings too. One event for each CPU, which counts nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use perf_event::data::parse::Parser;
use perf_event::data::{
    CGroup, Comm, Exit, Fork, KSymbol, KSymbolFlags, Lost, Mmap2, RecordMetadata, Visitor,
};
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

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
    /// The kernel had to drop so many records.
    Lost(u64),
}

/// Bytes of each CPU's ring: with the head page what an unprivileged user may lock (`perf_event_mlock_kb`).
const RING_BYTES: usize = 512 * 1024;

/// The side-band of all CPUs.
pub struct SideBand {
    samplers: Vec<Sampler>,
    /// The kernel puts build IDs into mapping records (5.12).
    pub has_build_ids: bool,
    /// What it has told of BPF programs.
    pub bpf_code: BpfCode,
}

impl SideBand {
    /// Opens and starts the side-band on `cpus`. CPUs that went away meanwhile are left out.
    pub fn open(cpus: &[u32]) -> Result<SideBand> {
        let mut has_build_ids = true;
        let mut samplers = Vec::new();
        for &cpu in cpus {
            let counter = match build(cpu, has_build_ids) {
                Err(err) if has_build_ids && too_new(&err) => {
                    has_build_ids = false;
                    build(cpu, false)
                }
                other => other,
            };
            match counter.and_then(|c| c.sampled(RING_BYTES)) {
                Ok(sampler) => samplers.push(sampler),
                Err(err) if err.raw_os_error() == Some(libc::ENODEV) => {}
                Err(err) => {
                    return Err(err).with_context(|| {
                        format!("cannot watch processes on CPU {cpu} (perf side-band)")
                    });
                }
            }
        }
        if samplers.is_empty() {
            bail!("no CPU on which processes can be watched (perf side-band)");
        }
        for sampler in &mut samplers {
            sampler
                .enable()
                .context("cannot start the perf side-band")?;
        }
        Ok(SideBand {
            samplers,
            has_build_ids,
            bpf_code: BpfCode::default(),
        })
    }

    /// Adds everything told since the last call to `events`, which then are in time order.
    pub fn drain(&mut self, events: &mut VecDeque<SideEvent>) {
        let mut new = Vec::new();
        let mut bytes = Vec::new();
        for sampler in &mut self.samplers {
            let config = sampler.as_counter().config().clone();
            while let Some(record) = sampler.next_record() {
                bytes.clear();
                // The library hands out header and body apart and parses them together.
                bytes.extend_from_slice(&record.ty().to_ne_bytes());
                bytes.extend_from_slice(&record.misc().to_ne_bytes());
                bytes.extend_from_slice(&(record.len() as u16 + 8).to_ne_bytes());
                record
                    .data()
                    .iter()
                    .for_each(|part| bytes.extend_from_slice(part));
                let mut parser = Parser::new(bytes.as_slice(), config.clone());
                match parser.parse_record(Decode) {
                    Ok(event) => new.extend(event),
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

    /// Descriptors that become readable when a ring is half full.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // SAFETY: the descriptor is open as long as the sampler, which `self` owns.
        self.samplers
            .iter()
            .map(|s| unsafe { BorrowedFd::borrow_raw(s.as_raw_fd()) })
    }
}

fn build(cpu: u32, build_ids: bool) -> io::Result<perf_event::Counter> {
    Builder::new(Software::DUMMY)
        .any_pid()
        .one_cpu(cpu as usize)
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
        .sample_id_all(true)
        .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU)
        .clockid(Clock::BOOTTIME)
        .wakeup_watermark(RING_BYTES / 2)
        .build()
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
        if record.flags.contains(KSymbolFlags::UNREGISTER) {
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
