//! The sampling program: loaded, configured, with its rings and counters.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use anyhow::{Context, Result, bail};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, MapHandle, MapType, OpenObject, libbpf_sys};

#[allow(
    missing_docs,
    clippy::all,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    unsafe_op_in_unsafe_fn
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/profiler.skel.rs"));
}
pub use skel::types;
use skel::{ProfilerSkel, ProfilerSkelBuilder};
use types::{counter, filter, sample_head, user_copy};

use super::host;
use super::needed_types::NeededTypes;
use super::unwind::interrupted::saved_registers;
use super::unwind::usual::{self, Usual};
use super::unwind::windows::{THREADS, Window};
use super::wire::Depths;
use crate::event::{LossClass, Pid};

/// Which tasks the program keeps; events opened on given threads need no filter.
#[derive(Debug)]
pub enum Filter<'a> {
    /// Every task.
    None,
    /// Tasks of this process group.
    ProcessGroup(u32),
    /// Tasks of this session.
    Session(u32),
    /// Tasks of these processes (number, start tick), and with `true` of their descendants.
    Processes(Vec<(Pid, u64)>, bool),
    /// Tasks of this cgroup (a directory of cgroup v2) and those below it.
    Cgroup(BorrowedFd<'a>),
}

/// How the program is to be set up.
#[derive(Debug)]
pub struct Config<'a> {
    /// Which tasks.
    pub filter: Filter<'a>,
    /// Leave out samples of idle CPUs.
    pub skip_idle: bool,
    /// Add up the time the program takes, for [`Program::time_spent`].
    pub measured: bool,
    /// How deep stacks are walked.
    pub depths: Depths,
    /// Bytes of a user stack that are copied at most; 0: it is walked along frame pointers.
    pub window: u32,
    /// Copies are shortened where code keeps frame pointers ([`Program::usual`]). Loading what does it takes as long as some ten thousand
    /// samples do, which are quicker with it.
    pub chains: bool,
    /// Stacks may be walked along frame pointers where a copy may not hold all of them.
    pub may_walk: bool,
    /// Bytes of each ring: a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// CPUs that get a ring at once.
    pub online: &'a [u32],
    /// CPUs there can ever be.
    pub possible: u32,
}

/// The loaded program.
pub struct Program {
    skel: ProfilerSkel<'static>,
    rings: Vec<(u32, MapHandle)>,
    ring_bytes: u32,
    /// Whether [`Program::cpu_changes`] counts.
    pub counts_cpu_changes: bool,
    /// Detached when dropped.
    _links: Vec<Link>,
}

impl Program {
    /// Loads the program into the kernel. Nothing is sampled until it is attached to events.
    pub fn load(config: &Config<'_>) -> Result<Program> {
        quiet_libbpf();
        let types = with_own_types(NeededTypes::find).and_then(|types| types);
        let quickly = types.and_then(|types| Program::load_with(config, Some(&types)));
        // What the matter is tells a program that lacks nothing.
        quickly.or_else(|_| Program::load_with(config, None))
    }

    /// Loads the program, with `types` for all of the kernel's.
    fn load_with(config: &Config<'_>, types: Option<&NeededTypes>) -> Result<Program> {
        // libbpf keeps the number, so that losses can be read when there is no descriptor to spare.
        libbpf_rs::num_possible_cpus().context("cannot count the CPUs")?;
        // libbpf wants the object at a fixed place for as long as the program lives, which is as long as we do.
        let place: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let types = types.map(NeededTypes::path);
        let opts = libbpf_sys::bpf_object_open_opts {
            sz: size_of::<libbpf_sys::bpf_object_open_opts>() as libbpf_sys::size_t,
            btf_custom_path: types
                .as_ref()
                .map_or(std::ptr::null(), |path| path.as_ptr()),
            ..Default::default()
        };
        let mut open = ProfilerSkelBuilder::default()
            .open_opts(opts, place)
            .context("cannot open the BPF program")?;

        let rodata = open
            .maps
            .rodata_data
            .as_deref_mut()
            .context("the BPF program has no configuration")?;
        let (kind, id) = match &config.filter {
            Filter::None => (filter::FILTER_NONE, 0),
            Filter::ProcessGroup(id) => (filter::FILTER_PGRP, *id),
            Filter::Session(id) => (filter::FILTER_SESSION, *id),
            Filter::Cgroup(_) => (filter::FILTER_CGROUP, 0),
            Filter::Processes(..) => (filter::FILTER_PROCESSES, 0),
        };
        rodata.config.filter = kind;
        rodata.config.filter_id = id;
        rodata.config.skip_idle = u32::from(config.skip_idle);
        rodata.config.max_user = config.depths.user as u32;
        rodata.config.max_kernel = config.depths.kernel as u32;
        rodata.config.measured = u32::from(config.measured);
        rodata.config.window = config.window;
        rodata.config.chains = u32::from(config.chains);
        rodata.config.may_walk = u32::from(config.may_walk);
        rodata.config.saved_registers = saved_registers();
        rodata.config.ring_bytes = u64::from(config.ring_bytes);
        rodata.config.wake_bytes = u64::from(config.ring_bytes / 2);
        rodata.config.short_bytes = u64::from(match config.window {
            0 => config.ring_bytes / 4 * 3,
            // Copies get smaller long before.
            _ => config.ring_bytes / 8 * 7,
        });
        let deepest = (config.depths.user + config.depths.kernel) * size_of::<u64>();
        let copied = match config.window {
            0 => 0,
            // What the verifier believes of the copy by pages needs one more, and chains are made behind it.
            window => size_of::<user_copy>() + window as usize + COPIED_PAGE + CHAIN,
        };
        open.maps
            .scratch
            .set_value_size((size_of::<sample_head>() + deepest + copied) as u32)?;
        open.maps.scratch.set_max_entries(config.possible)?;
        open.maps.rings.set_max_entries(config.possible)?;
        if config.window > 0 {
            open.maps.windows.set_max_entries(THREADS as u32)?;
        }
        open.maps.changes_of_cpu.set_max_entries(config.possible)?;

        let follow = matches!(config.filter, Filter::Processes(_, true));
        open.progs.follow_fork.set_autoload(follow);
        open.progs
            .forget
            .set_autoload(matches!(config.filter, Filter::Processes(..)));
        if !matches!(config.filter, Filter::Processes(..)) {
            open.maps.targets.set_max_entries(1)?;
        }

        let mut rings = Vec::new();
        for &cpu in config.online {
            rings.push((cpu, create_ring(cpu, config.ring_bytes)?));
        }
        // Before 5.10 rings in a map must be as large as the one it was made with.
        if let Some((_, ring)) = rings.first() {
            open.maps.rings.set_inner_map_fd(ring.as_fd())?;
        }
        let skel = open.load().context("the kernel refuses the BPF program")?;
        use_rings(&skel, &rings)?;
        let mut links = Vec::new();
        // Where it cannot be, only CPUs that are gone for a while are noticed.
        links.extend(skel.progs.cpu_changed.attach());
        let counts_cpu_changes = !links.is_empty();
        if let Filter::Processes(processes, _) = &config.filter {
            // Before the first is added, so that no child is missed.
            if follow {
                links.push(
                    skel.progs
                        .follow_fork
                        .attach()
                        .context("cannot follow forks")?,
                );
            }
            links.push(skel.progs.forget.attach().context("cannot follow exits")?);
            for (pid, start_tick) in processes {
                let key = types::process {
                    start_tick: *start_tick,
                    tgid: pid.0,
                    unused: 0,
                };
                skel.maps
                    .targets
                    .update(&process_bytes(&key), &0u64.to_ne_bytes(), MapFlags::ANY)
                    .context("too many processes to sample")?;
            }
        }
        if let Filter::Cgroup(dir) = &config.filter {
            let fd = dir.as_raw_fd();
            skel.maps
                .cgroup
                .update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
                .context("the kernel cannot filter by this cgroup")?;
        }
        Ok(Program {
            skel,
            rings,
            ring_bytes: config.ring_bytes,
            counts_cpu_changes,
            _links: links,
        })
    }

    /// What perf events are told to run.
    pub fn fd(&self) -> RawFd {
        self.skel.progs.sample.as_fd().as_raw_fd()
    }

    /// The rings, one for each CPU that was online.
    pub fn rings(&self) -> impl Iterator<Item = &MapHandle> {
        self.rings.iter().map(|(_, ring)| ring)
    }

    /// Gives a ring to a CPU that came online. `None` when it has one.
    pub fn add_ring(&mut self, cpu: u32) -> Result<Option<&MapHandle>> {
        if self.rings.iter().any(|(known, _)| *known == cpu) {
            return Ok(None);
        }
        let ring = create_ring(cpu, self.ring_bytes)?;
        use_ring(&self.skel, cpu, &ring)?;
        self.rings.push((cpu, ring));
        Ok(self.rings.last().map(|(_, ring)| ring))
    }

    /// How often any CPU came or went. Memory shared with the kernel: asking costs nothing.
    pub fn cpu_changes(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        // SAFETY: aligned memory of our own, mapped as long as `self`, which the kernel may write meanwhile.
        bss.map_or(0, |bss| unsafe {
            (&raw const bss.cpu_changes).read_volatile()
        })
    }

    /// How often `cpu` came or went: its perf events are of before the last time, or live.
    pub fn changes_of_cpu(&self, cpu: u32) -> u64 {
        let value = self
            .skel
            .maps
            .changes_of_cpu
            .lookup(&cpu.to_ne_bytes(), MapFlags::ANY);
        let bytes = value.ok().flatten().unwrap_or_default();
        bytes.first_chunk().map_or(0, |v| u64::from_ne_bytes(*v))
    }

    /// Tells the running program where the kernel idles; `None` when that cannot be known.
    pub fn set_idle_text(&mut self, text: Option<(u64, u64)>) -> Result<()> {
        let (start, end) = text.unwrap_or((0, 0));
        let Some(bss) = self.skel.maps.bss_data.as_deref_mut() else {
            bail!("the BPF program has no variables");
        };
        bss.idle_text.start = start;
        bss.idle_text.end = end;
        bss.idle_text.known = 1;
        Ok(())
    }

    /// What samples count for from now on.
    pub fn set_weight(&mut self, weight: u32) -> Result<()> {
        let Some(bss) = self.skel.maps.bss_data.as_deref_mut() else {
            bail!("the BPF program has no variables");
        };
        bss.weight = weight;
        Ok(())
    }

    /// What is to be done with the stacks of `thread` from now on; `None`: the same as with others.
    pub fn set_window(&self, thread: Pid, window: Option<Window>) -> Result<()> {
        let windows = &self.skel.maps.windows;
        let key = thread.0.to_ne_bytes();
        match window {
            Some(window) => windows.update(&key, &window.encode(), MapFlags::ANY)?,
            // It may never have been there.
            None => drop(windows.delete(&key)),
        }
        Ok(())
    }

    /// Where it reads what code is known to keep frame pointers. `None` on kernels that cannot share it.
    pub fn usual(&self) -> Option<Usual> {
        Usual::map(self.skel.maps.usual.as_fd(), host::now).ok()
    }

    /// Nanoseconds the program has taken on all CPUs, if it measures that.
    pub fn time_spent(&self) -> Result<u64> {
        let values = self.counter(counter::COUNT_TIME)?;
        let time = |value: &Vec<u8>| value.first_chunk().map_or(0, |v| u64::from_ne_bytes(*v));
        Ok(values.iter().map(time).sum())
    }

    /// The values of a counter, CPU by CPU.
    fn counter(&self, which: counter) -> Result<Vec<Vec<u8>>> {
        let values = self
            .skel
            .maps
            .counters
            .lookup_percpu(&which.0.to_ne_bytes(), MapFlags::ANY);
        Ok(values
            .context("cannot read the loss counters")?
            .unwrap_or_default())
    }

    /// Adds to `losses` what the program counted since the last call: class, CPU, how many.
    pub fn losses(
        &self,
        seen: &mut Counters,
        mut lost: impl FnMut(LossClass, u32, u64),
    ) -> Result<()> {
        for (class, which) in [
            (LossClass::RingFull, counter::COUNT_RING_FULL),
            (LossClass::Scratch, counter::COUNT_SCRATCH),
            (LossClass::Idle, counter::COUNT_IDLE),
            (LossClass::NotFollowed, counter::COUNT_NOT_FOLLOWED),
        ] {
            let values = self.counter(which)?;
            for (cpu, value) in values.iter().enumerate() {
                let value = value.first_chunk().map_or(0, |v| u64::from_ne_bytes(*v));
                let before = seen.entry((which.0, cpu as u32)).or_default();
                if value > *before {
                    lost(class, cpu as u32, value - *before);
                    *before = value;
                }
            }
        }
        Ok(())
    }
}

/// Gives `each` the description of the types that the program has (BTF).
pub(super) fn with_own_types<T>(each: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let mut place = MaybeUninit::uninit();
    let open = ProfilerSkelBuilder::default().open(&mut place)?;
    let object = open.open_object().as_libbpf_object().as_ptr();
    // SAFETY: the object is open until the end of this function, and keeps its description as long.
    let own = unsafe {
        let btf = libbpf_sys::bpf_object__btf(object);
        let mut size = 0;
        let data = match btf.is_null() {
            true => std::ptr::null(),
            false => libbpf_sys::btf__raw_data(btf, &mut size),
        };
        (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast::<u8>(), size as usize))
    };
    Ok(each(own.context("the BPF program has no types")?))
}

/// `PAGE` of `bpf/profiler.bpf.c`.
const COPIED_PAGE: usize = 4096;

/// What `shorten` there needs to make a chain: its frames and their number.
const CHAIN: usize = (usual::LONGEST + 1) * 8;

/// A key of `targets`, in memory order.
fn process_bytes(process: &types::process) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (tick, rest) = bytes.split_at_mut(8);
    tick.copy_from_slice(&process.start_tick.to_ne_bytes());
    let (tgid, unused) = rest.split_at_mut(4);
    tgid.copy_from_slice(&process.tgid.to_ne_bytes());
    unused.copy_from_slice(&process.unused.to_ne_bytes());
    bytes
}

/// Counter values already told: by counter and CPU.
pub type Counters = std::collections::HashMap<(u32, u32), u64>;

/// All at once: after each change of a map of maps the kernel waits until no program can use what was there before, which takes
/// tens of milliseconds.
fn use_rings(skel: &ProfilerSkel<'_>, rings: &[(u32, MapHandle)]) -> Result<()> {
    let cpus: Vec<u8> = rings
        .iter()
        .flat_map(|(cpu, _)| cpu.to_ne_bytes())
        .collect();
    let fds = rings.iter().map(|(_, ring)| ring.as_fd().as_raw_fd());
    let fds: Vec<u8> = fds.flat_map(i32::to_ne_bytes).collect();
    let (map, any) = (&skel.maps.rings, MapFlags::ANY);
    if !rings.is_empty()
        && map
            .update_batch(&cpus, &fds, rings.len() as u32, any, any)
            .is_ok()
    {
        return Ok(());
    }
    // Older kernels.
    let mut rings = rings.iter();
    rings.try_for_each(|(cpu, ring)| use_ring(skel, *cpu, ring))
}

fn use_ring(skel: &ProfilerSkel<'_>, cpu: u32, ring: &MapHandle) -> Result<()> {
    let fd = ring.as_fd().as_raw_fd();
    skel.maps
        .rings
        .update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
        .with_context(|| format!("cannot use the ring of CPU {cpu}"))
}

fn create_ring(cpu: u32, bytes: u32) -> Result<MapHandle> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    MapHandle::create(MapType::RingBuf, Some("profiler_ring"), 0, 0, bytes, &opts)
        .with_context(|| format!("cannot make a ring of {bytes} bytes for CPU {cpu}"))
}

/// libbpf prints what it does to stderr; our errors say what matters.
pub(super) fn quiet_libbpf() {
    libbpf_rs::set_print(None);
}
