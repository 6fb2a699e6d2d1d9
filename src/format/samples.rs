//! Samples, stored as columns, grouped by CPU.

use super::columns::{self, Constant, Layout};
use super::error::{FormatError, Problem};
use super::input::Input;
use super::payload::Out;
use super::stacks::ChainEnds;
use super::{leb128, limits};
use crate::event::{Timestamp, sample_flags};

/// Index of a thread in its segment's tasks.
pub type TaskId = u32;
/// A stack: the number of its leaf node in the segment's user or kernel stack trie; 0 is the empty stack.
pub type StackId = u32;

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: Timestamp,
    /// On which CPU; 0 with [`CPU_UNKNOWN`](crate::event::sample_flags::CPU_UNKNOWN).
    pub cpu: u32,
    /// Which thread.
    pub task: TaskId,
    /// Its user stack.
    pub user_stack: StackId,
    /// Its kernel stack.
    pub kernel_stack: StackId,
    /// 1 for a sample of a clock or counter.
    pub weight: u64,
    /// [`crate::event::sample_flags`].
    pub flags: u8,
    /// Index into [`Header::events`](super::header::Header::events).
    pub event: u8,
}

impl Sample {
    /// On which CPU, where that is known.
    pub fn known_cpu(&self) -> Option<u32> {
        (self.flags & sample_flags::CPU_UNKNOWN == 0).then_some(self.cpu)
    }
}

/// What the samples of a frame may refer to.
#[derive(Debug, Clone)]
pub struct SampleContext {
    /// Events in the header.
    pub events: u32,
    /// Tasks known.
    pub tasks: u32,
    /// User stack nodes known.
    pub user_nodes: u32,
    /// Kernel stack nodes known.
    pub kernel_nodes: u32,
    /// Chains of user stacks this frame adds.
    pub user_ends: ChainEnds,
    /// Chains of kernel stacks this frame adds.
    pub kernel_ends: ChainEnds,
}

impl SampleContext {
    /// Whether all that `sample` refers to is there.
    fn check(&self, sample: &Sample) -> Result<(), Problem> {
        let known = |what, id: u32, known: u32| {
            let error = Problem::UnknownId {
                what,
                id: id.into(),
                known: known.into(),
            };
            if id < known { Ok(()) } else { Err(error) }
        };
        known("CPU", sample.cpu, limits::CPUS as u32)?;
        known("task", sample.task, self.tasks)?;
        known("event", sample.event.into(), self.events)?;
        known("user stack", sample.user_stack, self.user_nodes + 1)?;
        known("kernel stack", sample.kernel_stack, self.kernel_nodes + 1)
    }
}

/// How a section counts time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// In nanoseconds: version 1.1 and before.
    Nanoseconds,
    /// In units that it names.
    Units,
}

/// Appends `samples`, which are sorted by (CPU, time) and not empty. Time is counted in the largest unit that all times are
/// multiples of.
pub fn encode(
    out: &mut impl Out,
    samples: &[Sample],
    mut context: SampleContext,
) -> Result<(), FormatError> {
    let unit = common_unit(samples);
    let period = nominal_period(samples) >> unit;
    let base = samples.iter().map(|s| s.time.0).min().unwrap_or(0);
    let mut groups: Vec<(u32, u64)> = Vec::new();
    let mut times = Vec::with_capacity(samples.len());
    let mut last: Option<&Sample> = None;
    for sample in samples {
        match last {
            Some(last) if last.cpu == sample.cpu && last.time <= sample.time => {
                let distance = sample.time.since(last.time) >> unit;
                let residual = distance.wrapping_sub(period) as i64;
                times.push(leb128::zigzag(residual));
                if let Some((_, count)) = groups.last_mut() {
                    *count += 1;
                }
            }
            Some(last) if last.cpu >= sample.cpu => {
                let problem = Problem::BadValue {
                    what: "sample out of order, its time",
                    value: sample.time.0,
                };
                return Err(FormatError::new("samples", out.bytes().len(), problem));
            }
            _ => {
                times.push((sample.time.0 - base) >> unit);
                groups.push((sample.cpu, 1));
            }
        }
        last = Some(sample);
    }
    for sample in samples {
        context
            .check(sample)
            .map_err(|p| FormatError::new("samples", out.bytes().len(), p))?;
    }
    let head = out.bytes();
    leb128::write(head, samples.len() as u64);
    leb128::write(head, groups.len() as u64);
    for (cpu, count) in groups {
        leb128::write(head, u64::from(cpu));
        leb128::write(head, count);
    }
    leb128::write(head, u64::from(unit));
    leb128::write(head, base >> unit);
    leb128::write(head, period);
    columns::encode(out, &times, Layout::Split, Constant::Never);
    let mut column = |layout, field: &mut dyn FnMut(&Sample) -> u64| {
        let values: Vec<u64> = samples.iter().map(field).collect();
        columns::encode(out, &values, layout, Constant::Allowed);
    };
    column(Layout::Whole, &mut |s| u64::from(s.task));
    column(Layout::Split, &mut |s| context.user_ends.code(s.user_stack));
    column(Layout::Split, &mut |s| {
        context.kernel_ends.code(s.kernel_stack)
    });
    column(Layout::Whole, &mut |s| s.weight);
    column(Layout::Whole, &mut |s| u64::from(s.flags));
    column(Layout::Whole, &mut |s| u64::from(s.event));
    Ok(())
}

/// Takes a samples section.
pub fn decode(
    input: &mut Input<'_>,
    clock: Clock,
    mut context: SampleContext,
) -> Result<Vec<Sample>, FormatError> {
    let at = input.clone();
    let count = input.count("sample count", limits::FRAME_SAMPLES)?;
    if count == 0 {
        return Err(at.error(Problem::BadValue {
            what: "sample count",
            value: 0,
        }));
    }
    let groups = decode_groups(input, count)?;
    let unit = match clock {
        Clock::Nanoseconds => 0,
        Clock::Units => input.leb_max("unit of time", limits::TIME_UNIT)?,
    };
    let base = input.leb("first time")?;
    let period = input.leb("nominal period")?;
    let at = input.clone();
    let times = columns::decode(input, count, "sample times", u64::MAX, Constant::Never)?;
    let mut column = |what, max| columns::decode(input, count, what, max, Constant::Allowed);
    let narrow = u64::from(u8::MAX);
    let wide = u64::from(u32::MAX) + 1;
    let tasks = column("sample tasks", u64::from(u32::MAX))?;
    let users = column("sample user stacks", wide)?;
    let kernels = column("sample kernel stacks", wide)?;
    let weights = column("sample weights", u64::MAX)?;
    let flags = column("sample flags", narrow)?;
    let events = column("sample events", narrow)?;

    let mut samples = Vec::with_capacity(count);
    let rows = times
        .into_iter()
        .zip(tasks)
        .zip(users.into_iter().zip(kernels));
    let mut rows = rows.zip(weights.into_iter().zip(flags.into_iter().zip(events)));
    for (cpu, in_group) in groups {
        let mut last: Option<u64> = None;
        for (((code, task), (user, kernel)), (weight, (flags, event))) in
            rows.by_ref().take(in_group)
        {
            let ticks = match last {
                None => base.checked_add(code),
                Some(last) => last.checked_add(period.wrapping_add(leb128::unzigzag(code) as u64)),
            };
            let bad_time = Problem::BadValue {
                what: "distance of sample times",
                value: code,
            };
            let time = ticks.and_then(|ticks| ticks.checked_mul(1 << unit));
            let time = time.ok_or_else(|| at.error(bad_time))?;
            last = ticks;
            let stack = |what, code, stack: Option<u32>| {
                stack.ok_or_else(|| at.error(Problem::BadValue { what, value: code }))
            };
            let sample = Sample {
                time: Timestamp(time),
                cpu,
                task: task as u32,
                user_stack: stack("user stack", user, context.user_ends.stack(user))?,
                kernel_stack: stack("kernel stack", kernel, context.kernel_ends.stack(kernel))?,
                weight,
                flags: flags as u8,
                event: event as u8,
            };
            context.check(&sample).map_err(|p| at.error(p))?;
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// The (CPU, number of samples) list: CPUs ascending, numbers adding up to `count`.
fn decode_groups(input: &mut Input<'_>, count: usize) -> Result<Vec<(u32, usize)>, FormatError> {
    let at = input.clone();
    let len = input.count("CPU count", count as u64)?;
    let mut groups: Vec<(u32, usize)> = Vec::with_capacity(len);
    let mut left = count as u64;
    for _ in 0..len {
        let cpu = input.leb_max("CPU", limits::CPUS - 1)? as u32;
        let in_group = input.leb_max("samples of a CPU", left)?;
        if groups.last().is_some_and(|(last, _)| *last >= cpu) {
            return Err(at.error(Problem::BadValue {
                what: "CPU out of order",
                value: cpu.into(),
            }));
        }
        if in_group == 0 {
            return Err(at.error(Problem::BadValue {
                what: "samples of a CPU",
                value: 0,
            }));
        }
        left -= in_group;
        groups.push((cpu, in_group as usize));
    }
    if left > 0 {
        return Err(at.error(Problem::BadValue {
            what: "samples of no CPU",
            value: left,
        }));
    }
    Ok(groups)
}

/// The exponent of the largest power of two nanoseconds that all times are multiples of.
fn common_unit(samples: &[Sample]) -> u32 {
    let bits = samples.iter().fold(0, |bits, s| bits | s.time.0);
    bits.trailing_zeros().min(limits::TIME_UNIT as u32)
}

/// The median distance of two samples on one CPU: what times are predicted by.
fn nominal_period(samples: &[Sample]) -> u64 {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let mut distances: Vec<u64> = pairs
        .filter(|(a, b)| a.cpu == b.cpu)
        .map(|(a, b)| b.time.since(a.time))
        .collect();
    let middle = distances.len() / 2;
    if distances.is_empty() {
        0
    } else {
        *distances.select_nth_unstable(middle).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu: u32, time: u64) -> Sample {
        Sample {
            time: Timestamp(time),
            cpu,
            task: 1,
            user_stack: 2,
            kernel_stack: 0,
            weight: 1,
            flags: 0,
            event: 0,
        }
    }

    fn context() -> SampleContext {
        SampleContext {
            events: 256,
            tasks: 2,
            user_nodes: 3,
            kernel_nodes: 1,
            user_ends: ChainEnds::new(vec![2, 3], 0),
            kernel_ends: ChainEnds::new(vec![], 1),
        }
    }

    fn round_trip(samples: &[Sample]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, samples, context()).unwrap();
        let mut input = Input::new("t", &out);
        assert_eq!(
            decode(&mut input, Clock::Units, context()).as_deref(),
            Ok(samples)
        );
        assert_eq!(input.end("samples"), Ok(()));
        out
    }

    #[test]
    fn a_steady_clock_costs_a_byte_a_sample() {
        let samples: Vec<_> = (0..100u64)
            .map(|i| sample((i / 50) as u32, (1 << 40) + (i % 50) * 1_000_000))
            .collect();
        let bytes = round_trip(&samples);
        assert!(bytes.len() < 100 + 40 + 100, "{} bytes", bytes.len());
    }

    #[test]
    fn extreme_values_survive() {
        round_trip(&[sample(0, 0)]);
        round_trip(&[sample(0, 0), sample(0, u64::MAX), sample(65_535, u64::MAX)]);
        round_trip(&[
            sample(3, 5),
            Sample {
                weight: u64::MAX,
                flags: 255,
                event: 255,
                user_stack: 3,
                ..sample(3, 5)
            },
            Sample {
                kernel_stack: 1,
                user_stack: 0,
                task: 0,
                ..sample(3, 1 << 63)
            },
        ]);
    }

    #[test]
    fn times_are_counted_in_the_unit_they_have() {
        let times = |unit: u64| [7, 1008, 2009, 3010].map(|ticks| sample(0, ticks * unit));
        let fine = round_trip(&times(1));
        let coarse = round_trip(&times(256));
        assert_eq!(
            fine[4], 0,
            "the unit, behind the count and one CPU's number of samples"
        );
        assert_eq!(coarse[4], 8);
        assert_eq!(fine[5..], coarse[5..]);
        let largest = round_trip(&times(1 << 40));
        assert_eq!(u64::from(largest[4]), limits::TIME_UNIT);
        round_trip(&[sample(0, 0), sample(0, 0)]);
    }

    #[test]
    fn a_section_without_units_is_in_nanoseconds() {
        let samples = [sample(0, 7), sample(0, 1008)];
        let mut bytes = round_trip(&samples);
        bytes.remove(4);
        let mut input = Input::new("t", &bytes);
        assert_eq!(
            decode(&mut input, Clock::Nanoseconds, context()).as_deref(),
            Ok(&samples[..])
        );
    }

    #[test]
    fn units_and_times_beyond_the_limits_are_refused() {
        let bytes = round_trip(&[sample(0, 7 << 20), sample(0, 9 << 20)]);
        let refused = |unit: u8, base: &[u8]| {
            let mut bytes = bytes.clone();
            bytes.splice(4..6, [unit].into_iter().chain(base.iter().copied()));
            decode(&mut Input::new("t", &bytes), Clock::Units, context()).is_err()
        };
        assert!(!refused(20, &[7]));
        assert!(refused(21, &[7]), "a unit that is too large");
        // 2^48 - 1 units of 2^20 ns are more than 64 bits of nanoseconds.
        let large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
        assert!(refused(20, &large));
        assert!(!refused(10, &large));
    }

    #[test]
    fn disorder_is_not_written() {
        for pair in [[sample(1, 5), sample(0, 6)], [sample(0, 6), sample(0, 5)]] {
            assert!(encode(&mut Vec::new(), &pair, context()).is_err());
        }
    }

    #[test]
    fn what_samples_refer_to_must_be_there() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &[sample(0, 1)], context()).unwrap();
        for (context, what) in [
            (
                SampleContext {
                    tasks: 1,
                    ..context()
                },
                "task",
            ),
            (
                SampleContext {
                    user_nodes: 1,
                    ..context()
                },
                "user stack",
            ),
        ] {
            let err = decode(&mut Input::new("t", &bytes), Clock::Units, context).unwrap_err();
            assert!(
                matches!(err.problem, Problem::UnknownId { what: w, .. } if w == what),
                "{err}"
            );
        }
    }

    #[test]
    fn groups_must_be_ordered_and_add_up() {
        for bytes in [
            &[1u8, 0][..],          // no CPU for a sample
            &[2, 1, 0, 1],          // one sample of no CPU
            &[2, 2, 1, 1, 1, 1, 0], // the same CPU twice
            &[2, 2, 0, 2, 1, 0, 0], // none of a CPU
            &[1, 1, 0, 2],          // more than there are
        ] {
            let mut bytes = bytes.to_vec();
            bytes.extend_from_slice(&[0; 8]);
            assert!(
                decode(&mut Input::new("t", &bytes), Clock::Units, context()).is_err(),
                "{bytes:?}"
            );
        }
    }
}
