//! Coarser times of samples: half of what a time takes is jitter of the timer that nobody reads.
//!
//! A sample belongs to what its process ran when it was taken, so a time is only ever rounded down, and never past a
//! process record: a sample that was taken after a record stays after it, or at its very time.

use crate::event::Timestamp;
use crate::format::limits;
use crate::format::process::ProcessRecord;
use crate::format::samples::Sample;

/// Rounds the times of samples to units.
#[derive(Debug, Default)]
pub struct Rounding {
    /// Exponent of the unit wanted: 2 to its power nanoseconds.
    unit: u32,
    /// Times of the segment's process records so far.
    records: Vec<u64>,
    /// Of those, the ones near the samples, ascending.
    near: Vec<u64>,
}

impl Rounding {
    /// Wants units of 2 to the power of `unit` nanoseconds; 0 leaves times as they are.
    pub fn set_unit(&mut self, unit: u32) {
        self.unit = unit.min(limits::TIME_UNIT as u32);
    }

    /// The latest time up to which samples, by their rounded times, were taken no later than at `time`.
    pub fn surely_by(&self, time: Timestamp) -> Timestamp {
        match self.unit {
            0 => time,
            unit => Timestamp(down(time.0, unit).saturating_sub(1 << unit)),
        }
    }

    /// Forgets the segment's records.
    pub fn clear(&mut self) {
        self.records.clear();
    }

    /// Rounds the times of a frame's samples, which are sorted by (CPU, time), to the unit wanted or, where a record lies
    /// too close before a sample, to the largest one that keeps their order. `records` are those the frame adds.
    pub fn round(&mut self, samples: &mut [Sample], records: &[ProcessRecord]) {
        if self.unit == 0 {
            return;
        }
        let times = records.iter().filter_map(ProcessRecord::time);
        self.records.extend(times.map(|time| time.0));
        let times = || samples.iter().map(|s| s.time.0);
        let (Some(first), Some(last)) = (times().min(), times().max()) else {
            return;
        };
        let unit = self.largest_unit(samples, down(first, self.unit), last);
        for sample in samples {
            sample.time = Timestamp(down(sample.time.0, unit));
        }
    }

    /// The exponent of the largest unit, up to the one wanted, that rounds no sample past a record. Records before
    /// `first` and after `last` do not matter.
    fn largest_unit(&mut self, samples: &[Sample], first: u64, last: u64) -> u32 {
        let Rounding { records, near, .. } = self;
        near.clear();
        near.extend(records.iter().filter(|r| (first..=last).contains(r)));
        near.sort_unstable();
        let mut unit = self.unit;
        let mut before = 0;
        let mut previous = 0;
        for sample in samples {
            let time = sample.time.0;
            if time < previous {
                // The next CPU.
                before = 0;
            }
            previous = time;
            while near.get(before).is_some_and(|record| *record <= time) {
                before += 1;
            }
            let latest = before.checked_sub(1).and_then(|at| near.get(at));
            while unit > 0 && latest.is_some_and(|record| down(time, unit) < *record) {
                unit -= 1;
            }
        }
        unit
    }
}

/// `time` rounded down to a multiple of 2 to the power of `unit`.
fn down(time: u64, unit: u32) -> u64 {
    time >> unit << unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(times: &[(u32, u64)]) -> Vec<Sample> {
        let sample = |&(cpu, time): &(u32, u64)| Sample {
            time: Timestamp(time),
            cpu,
            task: 0,
            user_stack: 0,
            kernel_stack: 0,
            weight: 1,
            flags: 0,
            event: 0,
        };
        times.iter().map(sample).collect()
    }

    fn exit(time: u64) -> ProcessRecord {
        ProcessRecord::Exit {
            process: 0,
            time: Timestamp(time),
        }
    }

    fn rounded(rounding: &mut Rounding, times: &[(u32, u64)], records: &[u64]) -> Vec<u64> {
        let mut samples = samples(times);
        let records: Vec<_> = records.iter().copied().map(exit).collect();
        rounding.round(&mut samples, &records);
        samples.iter().map(|s| s.time.0).collect()
    }

    fn units_of(unit: u32) -> Rounding {
        let mut rounding = Rounding::default();
        rounding.set_unit(unit);
        rounding
    }

    #[test]
    fn times_are_rounded_down() {
        let times = [(0, 1000), (0, 2047), (1, 1023), (1, 1024)];
        let of = |unit| rounded(&mut units_of(unit), &times, &[]);
        assert_eq!(of(8), [768, 1792, 768, 1024]);
        assert_eq!(of(0), [1000, 2047, 1023, 1024]);
        assert_eq!(rounded(&mut units_of(8), &[], &[5]), [0u64; 0]);
    }

    #[test]
    fn no_sample_moves_before_a_record() {
        let times = [(0, 1000), (0, 2047), (1, 1023), (1, 1100)];
        let same = |records: &[u64], expected: [u64; 4]| {
            let rounded = rounded(&mut units_of(8), &times, records);
            assert_eq!(rounded, expected, "{records:?}");
        };
        // At the rounded time itself, behind all samples of its unit, long before: no matter.
        same(&[768, 1024, 1101, 2048, 5], [768, 1792, 768, 1024]);
        // Between the rounded and the exact time of one sample.
        same(&[1056], [960, 1984, 960, 1088]);
        // At a sample's exact time: it is after the record.
        same(&[2047], [1000, 2047, 1023, 1100]);
        // The second CPU's samples are compared with all records, too.
        same(&[2047 - 255, 1020], [1000, 2044, 1020, 1100]);
    }

    #[test]
    fn what_is_known_up_to_a_time_is_not_believed_of_later_samples() {
        for time in [0, 255, 256, 700, 768, 1000, 1024] {
            let limit = units_of(8).surely_by(Timestamp(time)).0;
            for taken in 0..2000 {
                let sample = rounded(&mut units_of(8), &[(0, taken)], &[])[0];
                assert!(
                    sample > limit || taken <= time || limit == 0,
                    "{taken} {time}"
                );
            }
        }
        assert_eq!(units_of(0).surely_by(Timestamp(7)), Timestamp(7));
    }

    #[test]
    fn records_of_earlier_frames_count_until_the_segment_ends() {
        let mut rounding = units_of(8);
        assert_eq!(rounded(&mut rounding, &[(0, 500)], &[999]), [256]);
        assert_eq!(rounded(&mut rounding, &[(0, 1000)], &[]), [1000]);
        rounding.clear();
        assert_eq!(rounded(&mut rounding, &[(0, 1000)], &[]), [768]);
    }

    #[test]
    fn order_against_records_stays_whatever_the_times() {
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut coarse = 0;
        for round in 0..300 {
            let mut times: Vec<(u32, u64)> =
                (0..20).map(|_| (next(2) as u32, next(1 << 14))).collect();
            times.sort_unstable();
            let records: Vec<u64> = (0..round % 7).map(|_| next(1 << 14)).collect();
            let rounded = rounded(&mut units_of(7), &times, &records);
            coarse += usize::from(rounded.iter().all(|time| time % 128 == 0));
            for ((_, exact), rounded) in times.iter().zip(&rounded) {
                assert!(rounded <= exact && exact - rounded < 128);
                for record in &records {
                    let places = (record <= exact, record <= rounded);
                    assert_eq!(places.0, places.1, "{record} {exact} {rounded}");
                }
            }
        }
        assert!(coarse > 100, "{coarse} of 300 could be rounded as wanted");
    }
}
