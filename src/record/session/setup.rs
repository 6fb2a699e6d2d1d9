//! Everything that has to be there before the first sample.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpus::CpuWatch;
use crate::event::Pid;
use crate::record::aside::Aside;
use crate::record::bpf::{Config, Filter, Program};
use crate::record::kernel_names::KernelNames;
use crate::record::options::{Event, Options, Rate, Unwind};
use crate::record::processes::{Processes, Scope};
use crate::record::sampler::{self, SamplingEvents, Where};
use crate::record::sideband::{self, SideBand};
use crate::record::target::Found;
use crate::record::wire::Depths;
use crate::record::{cpus, host, procfs, unwind};

/// Deeper stacks than this are not kept, whatever the kernel would walk.
const DEEPEST: usize = 4096;
/// Rings are looked at this often, and whenever one is half full, with copies a quarter: the sampling program wakes us then. Each look
/// finds caches cold, so few are better than many.
pub(super) const POLL: Duration = Duration::from_millis(200);

/// Everything that has to be there before the first sample, opened in the order that loses nothing: side-band, then
/// the processes that run already, then the sampling events.
pub(super) struct Setup {
    pub program: Program,
    pub names: KernelNames,
    pub sampling: SamplingEvents,
    pub side_band: SideBand,
    pub processes: Processes,
    pub rate: Rate,
    pub ring_bytes: u32,
    /// Stacks are copied.
    pub copies: bool,
    pub depths: Depths,
    /// CPUs at the start.
    pub online: usize,
    pub cpus: CpuWatch,
    pub command: Option<Pid>,
    /// Recording ends with these.
    pub ends_with_targets: bool,
    /// Single threads to be watched for their end.
    pub threads: Vec<Pid>,
    pub degraded: Vec<String>,
}

/// Processes of ours that were started before.
pub(super) struct Forked {
    /// The command to be launched.
    pub command: Option<Pid>,
    /// Who looks at files.
    pub aside: Option<Aside>,
}

impl Setup {
    pub fn new(
        options: &Options,
        rate: Rate,
        event: Event,
        found: &Found,
        forked: Forked,
        say: &dyn Fn(String),
    ) -> Result<Setup> {
        let Forked { command, aside } = forked;
        let online = cpus::online()?;
        let depth = sampler::max_stack().min(DEEPEST);
        let depths = Depths {
            user: depth,
            kernel: depth,
        };
        let mut copies = match options.unwind {
            Unwind::FramePointers => false,
            Unwind::Auto => unwind::IS_SUPPORTED,
            Unwind::Dwarf if unwind::IS_SUPPORTED => true,
            Unwind::Dwarf => bail!(
                "--unwind dwarf is there for x86-64 only; --unwind fp walks stacks along frame pointers"
            ),
        };
        let ring_bytes = options
            .ring_bytes
            .unwrap_or_else(|| ring_size(rate, event, copies));
        let mut config = Config {
            filter: filter(found, command, options.inherit)?,
            skip_idle: !options.idle,
            measured: options.cpu_limit.is_some(),
            depths,
            window: if copies { unwind::WINDOW } else { 0 },
            chains: copies && makes_chains(rate, event),
            may_walk: options.unwind == Unwind::Auto,
            ring_bytes,
            online: &online,
            possible: cpus::possible_count()?,
        };
        let mut degraded = Vec::new();
        let mut warn = |text: String| {
            say(text.clone());
            degraded.push(text);
        };
        let mut loaded = Program::load(&config);
        if config.chains && loaded.is_err() {
            config.chains = false;
            loaded = Program::load(&config);
        }
        let mut program = match loaded {
            // What copies stacks needs more of the kernel.
            Err(_) if copies && options.unwind == Unwind::Auto => {
                copies = false;
                warn("this kernel cannot copy stacks (5.15 can): user stacks are walked along frame pointers".into());
                config.window = 0;
                Program::load(&config)?
            }
            loaded => loaded?,
        };
        let names = KernelNames::prepare();
        if !options.idle && names.idle_text.is_some() {
            program.set_idle_text(names.idle_text)?;
        }
        let cpus = CpuWatch::new(&online, &program);
        let side_band = SideBand::open(&online)?;
        let scope = match found {
            Found::Filtered(_) => Scope::All,
            _ if options.inherit => Scope::Known,
            _ => Scope::Given,
        };
        let mut processes = Processes::new(scope, host::clock_ticks());
        processes.aside = aside.map(RefCell::new).map(Rc::new);
        let threads = match found {
            Found::Threads(tids, _) => tids.clone(),
            _ => Vec::new(),
        };
        let places = if threads.is_empty() {
            Where::Cpus(online.clone())
        } else {
            Where::Threads(threads.clone())
        };
        let sampling = SamplingEvents::open(event, rate, &places, program.fd(), &mut warn)?;
        sampling.tell_throttling(&side_band);
        if !side_band.has_build_ids {
            warn("this kernel tells no build IDs (5.12 does): files are read for them".into());
        }
        match found {
            Found::Filtered(_) => snapshot_all(&mut processes)?,
            Found::Processes(pids) | Found::Threads(_, pids) => {
                processes.snapshots(pids);
            }
            Found::Command => {
                processes.snapshots(&[command.unwrap_or_default()]);
            }
        }
        processes.take_news().into_iter().for_each(&mut warn);
        Ok(Setup {
            program,
            names,
            sampling,
            side_band,
            processes,
            rate,
            ring_bytes,
            copies,
            depths,
            online: online.len(),
            cpus,
            command,
            ends_with_targets: matches!(found, Found::Processes(_)),
            threads,
            degraded,
        })
    }
}

/// What the sampling program keeps. Processes are told by number and start, as of now.
fn filter<'f>(found: &'f Found, command: Option<Pid>, inherit: bool) -> Result<Filter<'f>> {
    let pids = match found {
        Found::Filtered(kept) => return Ok(kept.filter()),
        Found::Threads(..) => return Ok(Filter::None),
        Found::Processes(pids) => pids.clone(),
        Found::Command => command.into_iter().collect(),
    };
    let mut started = Vec::new();
    for pid in pids {
        // One that has ended meanwhile is sampled as long as it lived.
        if let Ok(stat) = procfs::read_stat(pid) {
            started.push((pid, stat.start_ticks));
        }
    }
    if started.is_empty() {
        bail!("what was to be sampled has ended");
    }
    Ok(Filter::Processes(started, inherit))
}

/// Every process there is, those that appear meanwhile too.
fn snapshot_all(processes: &mut Processes) -> Result<()> {
    for _pass in 0..4 {
        let listed = procfs::list_processes().context("cannot list /proc")?;
        let new: Vec<Pid> = listed
            .into_iter()
            .filter(|pid| !processes.knows(*pid))
            .collect();
        if new.is_empty() {
            break;
        }
        processes.snapshots(&new);
    }
    Ok(())
}

/// Samples a second and CPU, about.
fn expected_hz(rate: Rate, event: Event) -> u64 {
    match (rate, event) {
        (Rate::Frequency(hz), _) => hz.max(1),
        (Rate::Period(period), Event::CpuClock) => 1_000_000_000 / period.max(1),
        // At the clock of a usual CPU.
        (Rate::Period(period), Event::Cycles) => 3_000_000_000 / period.max(1),
    }
}

/// Room for about a second of usual stacks, a tenth of one when they are copied, and for a tenth of a second of large copies at the default
/// rate: the recorder comes when half of it is full, but may be kept from it. All of a ring is memory of the kernel and counts as
/// memory of ours, there is one for each CPU, and what does not stay in caches costs both sides time. Copies get smaller before
/// anything is lost.
fn ring_size(rate: Rate, event: Event, copies: bool) -> u32 {
    let (usual, least, most) = match copies {
        false => (512, 256 << 10, 2 << 20),
        true => (400, 1 << 20, 4 << 20),
    };
    let bytes = expected_hz(rate, event)
        .saturating_mul(usual)
        .clamp(least, most);
    bytes.next_power_of_two() as u32
}

/// Whether so many copies are made that shortening them pays: see [`Config::chains`].
fn makes_chains(rate: Rate, event: Event) -> bool {
    expected_hz(rate, event) >= 2000
}

/// Kernel memory for each CPU at the default rate, in bytes: the ring of samples and that of process events.
pub fn memory_per_cpu() -> u64 {
    u64::from(ring_size(
        Rate::Frequency(99),
        Event::CpuClock,
        unwind::IS_SUPPORTED,
    )) + sideband::RING_BYTES as u64
}
