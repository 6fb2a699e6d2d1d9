//! What several captures say about themselves, together.

use std::collections::BTreeMap;

use super::Part;
use crate::capture::Reader;
use crate::counted::noun;
use crate::event::Timestamp;
use crate::pipeline::selection::{no_capture, no_host};
use crate::pipeline::{Request, about};
use crate::profile::{About, Event, Selected, counted_event};

/// Texts, each once.
fn each<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for text in texts {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join(", ")
}

/// What the parts say about themselves, together.
pub(super) fn joined_about(
    reader: &Reader,
    parts: &[Part<'_>],
    request: &Request,
    abouts: Vec<About>,
) -> About {
    let text = |of: fn(&About) -> &str| each(abouts.iter().map(of));
    let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
    for (part, about) in parts.iter().zip(&abouts) {
        let cpus = hosts.entry(&part.host).or_default();
        *cpus = about.cpus.max(*cpus);
    }
    let mut all = About {
        host: each(parts.iter().map(|part| &*part.host)),
        kernel: text(|about| &about.kernel),
        cpus: hosts.into_values().fold(0, u32::saturating_add),
        tool: text(|about| &about.tool),
        target: text(|about| &about.target),
        duration: None,
        samples: 0,
        lost: 0,
        ended: None,
        ..about::about(reader)
    };
    let mut ends: BTreeMap<String, ()> = BTreeMap::new();
    let mut cut = false;
    let several = parts.len() > 1;
    let stacks = abouts.iter().map(|about| about.user_stacks);
    let walked_alike = stacks
        .clone()
        .zip(stacks.skip(1))
        .all(|(one, next)| one == next);
    let mut ways: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (part, about) in parts.iter().zip(abouts) {
        let of = |text: &str| match several {
            true => format!("capture {} ({}): {text}", part.number, part.host),
            false => text.to_owned(),
        };
        if let Some((first, last)) = about.span {
            let shift = |time: Timestamp| Timestamp(time.0.saturating_add(part.shift));
            let span = all.span.get_or_insert((shift(first), shift(last)));
            *span = (span.0.min(shift(first)), span.1.max(shift(last)));
        }
        let sums = [
            (&mut all.samples, about.samples),
            (&mut all.weight, about.weight),
            (&mut all.lost, about.lost),
            (&mut all.cut_bytes, about.cut_bytes),
            (&mut all.damaged_samples, about.damaged_samples),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        let sum = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        all.truncated = sum(all.truncated, about.truncated);
        for (class, count) in about.losses {
            let sum = all.losses.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
        all.damage.extend(about.damage.iter().map(|text| of(text)));
        all.degraded
            .extend(about.degraded.iter().map(|text| of(text)));
        if !walked_alike {
            let way = about.user_stacks.label();
            let way = way.map_or("not told how".to_owned(), |way| format!("walked {way}"));
            ways.entry(way).or_default().push(part.number.to_string());
        }
        match about.ended {
            Some(end) => drop(ends.insert(end, ())),
            None if several => {
                all.degraded.push(of("recording did not end in order"));
                cut = true;
            }
            None => cut = true,
        }
        if let Some(more) = about.selected {
            let selected = all.selected.get_or_insert_with(|| Selected {
                what: request.selection.words(),
                ..Selected::default()
            });
            selected.samples = sum(selected.samples, more.samples);
            selected.lost = sum(selected.lost, more.lost);
            selected.weight = selected.weight.saturating_add(more.weight);
            // Of one that is not asked for, this is all that could be said.
            let is_asked_for = part.is_of_host(request) && part.is_numbered(request);
            for why in more.nothing {
                if is_asked_for && !selected.nothing.contains(&why) {
                    selected.nothing.push(why);
                }
            }
        }
    }
    if let Some(selected) = &mut all.selected {
        let any = |is: fn(&Part<'_>, &Request) -> bool| parts.iter().any(|part| is(part, request));
        let with_samples = |name: fn(&Part<'_>) -> String| {
            let names = parts.iter();
            names.map(move |part| (name(part), part.reader.samples()))
        };
        if !any(|part, request| part.is_of_host(request)) {
            let hosts = with_samples(|part| part.host.clone());
            selected.nothing = vec![no_host(&request.selection, hosts)];
        } else if !any(|part, request| part.is_numbered(request)) {
            let captures = with_samples(|part| part.name());
            selected.nothing = vec![no_capture(&request.selection, captures)];
        } else if !any(|part, request| part.is_of_host(request) && part.is_numbered(request)) {
            let nothing =
                "each of these is in the file, but no capture is of that number and that host";
            selected.nothing = vec![nothing.to_owned()];
        }
    }
    // What one capture has nothing of, another may have.
    if let Some(selected) = all.selected.as_mut().filter(|s| s.samples.unwrap_or(0) > 0) {
        selected.nothing.clear();
    }
    let same = |one: &Event| {
        let is_same = |other: &&Event| counted_event(&other.name) == counted_event(&one.name);
        each(all.events.iter().filter(is_same).map(|event| &*event.rate))
    };
    let rates = all
        .events
        .iter()
        .map(same)
        .find(|rates| rates.contains(", "));
    if let Some(rates) = rates {
        all.degraded.push(format!(
            "sampled at {rates}: what is counted here is samples, and a sample stands for less CPU time where the rate is higher; \
             compare shares within one capture (--capture, --by capture)"
        ));
    }
    let walked = ways.into_iter().map(|(way, captures)| {
        let of = noun(captures.len(), "capture");
        format!("{way} ({of} {})", captures.join(", "))
    });
    all.walked = walked.collect();
    if !cut {
        let ends: Vec<String> = ends.into_keys().collect();
        all.ended = Some(ends.join("; ")).filter(|text| !text.is_empty());
    }
    all
}
