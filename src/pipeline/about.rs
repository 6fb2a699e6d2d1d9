//! What a capture says about itself.

use std::collections::BTreeMap;

use crate::capture::{LossTotals, Reader};
use crate::event::LossClass;
use crate::format::descriptor::FrameKind;
use crate::format::end::EndReason;
use crate::format::header::{Header, Sampling};
use crate::profile::{About, Event};

/// Facts that are known without decoding samples. Losses by cause are not among them.
pub(super) fn about(reader: &Reader) -> About {
    let header = reader.header();
    let mut about = About {
        host: host(header),
        kernel: kernel(header),
        cpus: header.cpus_online,
        tool: header.tool.clone(),
        target: header.target.clone(),
        events: events(header),
        wall_offset_ns: header.wall_offset_ns,
        duration: reader.end().map(|end| end.time.since(header.start_time)),
        span: None,
        samples: reader.samples(),
        weight: 0,
        lost: reader.lost_samples(),
        losses: BTreeMap::new(),
        truncated: None,
        ended: reader.end().map(|end| match &end.reason {
            EndReason::CommandExit(status) => format!("the command's exit, status {status}"),
            EndReason::TargetsGone => "the end of all targets".to_owned(),
            EndReason::Duration => "the time asked for".to_owned(),
            EndReason::Signal(number) => format!("signal {number}"),
            EndReason::Failure(message) => message.clone(),
        }),
        cut_bytes: reader.cut_bytes(),
        damage: reader.damage().iter().map(ToString::to_string).collect(),
        damaged_samples: 0,
        degraded: header.degraded.clone(),
        user_stacks: header.user_stacks,
        walked: Vec::new(),
        stack_limit: header.user_stack_limit,
        selected: None,
        shape: Vec::new(),
    };
    for damage in reader.damage() {
        about.damaged_samples = about.damaged_samples.saturating_add(damage.samples);
    }
    for entry in reader.frames() {
        let frame = &entry.descriptor;
        if frame.kind != FrameKind::Segment || frame.samples == 0 {
            continue;
        }
        let span = about.span.get_or_insert((frame.first, frame.last));
        *span = (span.0.min(frame.first), span.1.max(frame.last));
    }
    about
}

/// What stands for what an imported recording does not tell.
const UNKNOWN: &str = "?";

/// What the host is called.
pub(super) fn host(header: &Header) -> String {
    match header.host.is_empty() {
        true => UNKNOWN.to_owned(),
        false => header.host.clone(),
    }
}

/// The kernel's release and its machine.
fn kernel(header: &Header) -> String {
    let release = match header.kernel_release.is_empty() {
        true => UNKNOWN,
        false => &header.kernel_release,
    };
    format!("Linux {release} {}", header.arch)
        .trim_end()
        .to_owned()
}

/// The events sampled, by number.
pub fn events(header: &Header) -> Vec<Event> {
    let event = header.events.iter().map(|event| Event {
        name: event.name.clone(),
        rate: match event.sampling {
            Sampling::Frequency(hz) => format!("{hz} Hz"),
            Sampling::Period(period) if event.name == "cpu-clock" => format!("every {period} ns"),
            Sampling::Period(period) => format!("every {period}"),
        },
    });
    event.collect()
}

/// Adds what a segment has lost since `before`, and moves that on.
pub(super) fn add_losses(about: &mut About, losses: &LossTotals, before: &mut LossTotals) {
    if losses == before {
        return;
    }
    for class in LossClass::ALL {
        let count = losses
            .of_class(class)
            .saturating_sub(before.of_class(class));
        if count > 0 {
            let sum = about.losses.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    before.clone_from(losses);
}
