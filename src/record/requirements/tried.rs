//! What only trying tells: the sampling program is loaded and events are opened as for a recording, and let go.

use super::Finding;
use crate::record::bpf::{Config, Filter, Program};
use crate::record::options::Event;
use crate::record::sideband::SideBand;
use crate::record::wire::Depths;
use crate::record::{cpus, sampler};

/// The sampling program, loaded with a ring.
pub(super) fn program() -> Finding {
    const WHAT: &str = "BPF";
    match load() {
        Ok(()) => Finding::ok(WHAT, "the kernel accepts the sampling program"),
        Err(err) => {
            let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown");
            let locked = lockdown.is_ok_and(|text| text.contains("[confidentiality]"));
            let finding = Finding::missing(WHAT, format!("{err:#}"));
            match locked {
                true => finding.fix(
                    "boot without lockdown=confidentiality, which keeps BPF from reading stacks",
                ),
                false => finding,
            }
        }
    }
}

fn load() -> anyhow::Result<()> {
    let depth = sampler::max_stack();
    Program::load(&Config {
        filter: Filter::None,
        skip_idle: true,
        measured: true,
        depths: Depths {
            user: depth,
            kernel: depth,
        },
        window: 0,
        ring_bytes: 64 << 10,
        online: cpus::online()?.get(..1).unwrap_or_default(),
        possible: cpus::possible_count()?,
    })?;
    Ok(())
}

/// Events that tell of processes, on every CPU.
pub(super) fn side_band() -> Finding {
    const WHAT: &str = "process events";
    match cpus::online().and_then(|online| SideBand::open(&online)) {
        Ok(opened) if opened.has_build_ids => Finding::ok(WHAT, "with build IDs"),
        Ok(_) => Finding::degraded(WHAT, "without build IDs: files are read for them"),
        Err(err) => Finding::missing(WHAT, format!("{err:#}"))
            .fix("sudo sysctl -w kernel.perf_event_mlock_kb=2048"),
    }
}

/// What is sampled by.
pub(super) fn event() -> Finding {
    const WHAT: &str = "PMU";
    match sampler::choose_event(None) {
        Ok(Event::Cycles) => Finding::ok(WHAT, "cycles can be sampled"),
        Ok(Event::CpuClock) => Finding::degraded(
            WHAT,
            "no hardware cycle counter, as is usual for virtual machines: cpu-clock is sampled, which does not see into \
             code that runs with interrupts off",
        ),
        Err(err) => Finding::missing(WHAT, format!("{err:#}")),
    }
}
