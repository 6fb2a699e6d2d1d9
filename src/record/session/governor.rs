//! `--cpu-limit`: keeps what recording costs under a share of one CPU.
//!
//! The cost is the CPU time of this process and that of the sampling program in the interrupts of all CPUs; what the
//! kernel needs to get into an interrupt and out of it is not in it. Above the limit the rate falls to a fraction, and each
//! sample counts for as many as there would have been. It rises step by step once there is room for twice the cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use super::Session;
use crate::event::LossClass;
use crate::record::options::Rate;

/// Fewest samples a second and CPU, and the largest weight.
const LOWEST_HZ: u64 = 5;
const LARGEST: u32 = 1024;
/// The rate rises when twice the cost would be less than this part of the limit, so often in a row.
const ROOM: f64 = 0.8;
const CALM: u32 = 3;
/// A cost measured over less says little.
const SHORTEST: Duration = Duration::from_millis(500);

/// Decides on the rate.
#[derive(Debug)]
pub(super) struct Governor {
    /// Of one CPU.
    limit: f64,
    largest: u32,
    /// What a sample counts for now: 1, or a power of two.
    weight: u32,
    /// When the cost was looked at, and what it was in all.
    last: (Instant, Duration),
    calm: u32,
}

/// A rate that is to be another one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    weight: u32,
    /// What it cost, as a share of one CPU.
    cost: f64,
}

impl Governor {
    /// With what has been `spent` before the first sample, at `now`.
    pub fn new(percent: f64, rate: Rate, now: Instant) -> Result<Governor> {
        let largest = match rate {
            Rate::Frequency(hz) => u32::try_from(hz / LOWEST_HZ).unwrap_or(LARGEST),
            Rate::Period(_) => LARGEST,
        };
        Ok(Governor {
            limit: percent / 100.0,
            largest: largest.clamp(1, LARGEST),
            weight: 1,
            last: (now, own_time()?),
            calm: 0,
        })
    }

    /// With all that has been `spent` until `now`.
    fn look(&mut self, now: Instant, spent: Duration) -> Option<Change> {
        let (then, before) = self.last;
        let elapsed = now.saturating_duration_since(then);
        if elapsed < SHORTEST {
            return None;
        }
        self.last = (now, spent);
        let cost = spent.saturating_sub(before).as_secs_f64() / elapsed.as_secs_f64();
        let mut weight = self.weight;
        if cost > self.limit {
            self.calm = 0;
            let mut expected = cost;
            while expected > self.limit && weight.saturating_mul(2) <= self.largest {
                weight = weight.saturating_mul(2);
                expected /= 2.0;
            }
        } else if weight > 1 && 2.0 * cost < ROOM * self.limit {
            self.calm += 1;
            if self.calm >= CALM {
                self.calm = 0;
                weight /= 2;
            }
        } else {
            self.calm = 0;
        }
        (weight != std::mem::replace(&mut self.weight, weight)).then_some(Change { weight, cost })
    }
}

/// CPU time of this process.
fn own_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).context("cannot read the CPU time of this process")
}

impl Session<'_> {
    /// Lowers the rate when recording costs too much, and raises it again.
    pub(super) fn govern(&mut self, now: Instant) -> Result<()> {
        let Some(governor) = &mut self.governor else {
            return Ok(());
        };
        let in_kernel = Duration::from_nanos(self.setup.program.time_spent()?);
        let Some(change) = governor.look(now, own_time()? + in_kernel) else {
            return Ok(());
        };
        let limit = governor.limit * 100.0;
        let sampling = &mut self.setup.sampling;
        // What is sampled between the two counts for too much or too little: microseconds, once in a while.
        let weight = sampling
            .set_fraction(change.weight)
            .context("cannot change the rate of sampling")?;
        self.setup.program.set_weight(weight)?;
        let mut drain = self.drain.borrow_mut();
        drain.lose(LossClass::RateChanged, None, 1);
        drain.totals.least_rate = drain.totals.least_rate.max(weight);
        drop(drain);
        self.say(&format!(
            "recording took {:.1} % of a CPU (limit {limit} %): {}",
            change.cost * 100.0,
            match weight {
                1 => "sampling at the full rate again".into(),
                weight =>
                    format!("sampling at 1/{weight} of the rate, each sample counts for {weight}"),
            }
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A governor, and what it makes of costs in percent of a CPU, one second after the other.
    fn weights(limit: f64, rate: Rate, costs: &[f64]) -> Vec<u32> {
        let mut now = Instant::now();
        let mut governor = Governor::new(limit, rate, now).expect("a clock");
        let mut spent = governor.last.1;
        let each = costs.iter().map(|percent| {
            now += Duration::from_secs(1);
            spent += Duration::from_secs_f64(percent / 100.0);
            governor.look(now, spent);
            governor.weight
        });
        each.collect()
    }

    /// It falls at once as far as it has to, and rises slowly and only where there is room for it.
    #[test]
    fn the_rate_follows_the_cost() {
        let rate = Rate::Frequency(4999);
        assert_eq!(weights(2.0, rate, &[1.9, 2.1, 1.0]), [1, 2, 2]);
        assert_eq!(weights(2.0, rate, &[15.0, 1.9]), [8, 8]);
        let calm = [8.0, 0.7, 0.7, 0.7, 0.7, 0.9, 0.7, 0.7, 0.7];
        assert_eq!(weights(2.0, rate, &calm), [4, 4, 4, 2, 2, 2, 2, 2, 1]);
    }

    /// Some samples are left however much they cost, and a weight fits its place.
    #[test]
    fn the_rate_has_a_floor() {
        assert_eq!(weights(1.0, Rate::Frequency(99), &[90.0]), [16]);
        assert_eq!(weights(1.0, Rate::Frequency(4), &[90.0]), [1]);
        let all = weights(0.01, Rate::Period(1), &[90.0, 90.0]);
        assert_eq!(all, [LARGEST, LARGEST]);
    }

    /// Flushes may follow each other closely.
    #[test]
    fn a_moment_says_nothing() {
        let now = Instant::now();
        let mut governor = Governor::new(1.0, Rate::Frequency(99), now).expect("a clock");
        let spent = governor.last.1 + Duration::from_millis(100);
        assert_eq!(governor.look(now + Duration::from_millis(100), spent), None);
        let change = governor.look(now + Duration::from_secs(1), spent);
        assert_eq!(change.map(|c| c.weight), Some(16));
    }
}
