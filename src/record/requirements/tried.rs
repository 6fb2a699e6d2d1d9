//! What only trying tells: the sampling program is loaded and events are opened as for a recording, and let go.

use super::Finding;
use crate::record::bpf::{Config, Filter, Program};
use crate::record::options::{Event, Rate};
use crate::record::sampler::{SamplingEvents, Where};
use crate::record::sideband::SideBand;
use crate::record::wire::Depths;
use crate::record::{cpus, sampler, unwind};

/// Everything a recording opens.
pub(super) fn all() -> Vec<Finding> {
    let loaded = load(0);
    let unwinding = loaded.is_ok().then(unwinding);
    let event = event(loaded.as_ref().ok());
    let mut findings = vec![program(loaded.map(drop)), side_band(), event];
    findings.extend(unwinding);
    findings
}

/// The sampling program, loaded with a ring.
fn program(loaded: anyhow::Result<()>) -> Finding {
    const WHAT: &str = "BPF";
    match loaded {
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

/// With copies of so many bytes of the stack.
fn load(window: u32) -> anyhow::Result<Program> {
    let depth = sampler::max_stack();
    Program::load(&Config {
        filter: Filter::None,
        skip_idle: true,
        measured: true,
        depths: Depths {
            user: depth,
            kernel: depth,
        },
        window,
        chains: window > 0,
        may_walk: window > 0,
        ring_bytes: 64 << 10,
        online: cpus::online()?.get(..1).unwrap_or_default(),
        possible: cpus::possible_count()?,
    })
}

/// For user stacks of code without frame pointers.
fn unwinding() -> Finding {
    const WHAT: &str = "unwinding";
    if !unwind::IS_SUPPORTED {
        return Finding::degraded(
            WHAT,
            "stacks are copied on x86-64 only: user stacks are walked along frame pointers",
        );
    }
    match load(unwind::WINDOW) {
        Ok(_) => Finding::ok(
            WHAT,
            "stacks can be copied: those of code without frame pointers are whole",
        ),
        Err(_) => Finding::degraded(
            WHAT,
            "this kernel cannot copy stacks (5.15 can): user stacks are walked along frame pointers",
        ),
    }
}

/// Events that tell of processes, on every CPU.
fn side_band() -> Finding {
    const WHAT: &str = "process events";
    match cpus::online().and_then(|online| SideBand::open(&online)) {
        Ok(opened) if opened.has_build_ids => Finding::ok(WHAT, "with build IDs"),
        Ok(_) => Finding::degraded(WHAT, "without build IDs: files are read for them"),
        Err(err) => Finding::missing(WHAT, format!("{err:#}"))
            .fix("sudo sysctl -w kernel.perf_event_mlock_kb=2048"),
    }
}

/// What is sampled by: opened on a CPU, and connected with the program if that could be loaded.
fn event(program: Option<&Program>) -> Finding {
    const WHAT: &str = "PMU";
    let opened = sampler::choose_event(None).and_then(|event| {
        if let Some(program) = program {
            let places = Where::Cpus(cpus::online()?.into_iter().take(1).collect());
            SamplingEvents::open(event, Rate::Frequency(1), &places, program.fd(), |_| ())?;
        }
        Ok(event)
    });
    match opened {
        Ok(Event::Cycles) => Finding::ok(WHAT, "cycles can be sampled"),
        Ok(Event::CpuClock) => Finding::degraded(
            WHAT,
            "no hardware cycle counter, as is usual for virtual machines: cpu-clock is sampled, which does not see into \
             code that runs with interrupts off",
        ),
        Err(err) => Finding::missing(WHAT, format!("{err:#}")),
    }
}
