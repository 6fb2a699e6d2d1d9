//! A few numbers told by a few others.

use serde::Serialize;

/// What is told of repeated measurements.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    pub rounds: usize,
    pub mean: f64,
    pub median: f64,
    /// Standard deviation of one measurement.
    pub deviation: f64,
    pub p95: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// `None` of nothing.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let rounds = values.len();
        let mean = values.iter().sum::<f64>() / rounds as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Some(Summary {
            rounds,
            mean,
            median: quantile(&values, 0.5),
            deviation: (squares / (rounds.max(2) - 1) as f64).sqrt(),
            p95: quantile(&values, 0.95),
            min,
            max,
        })
    }
}

/// Of sorted values, between the two nearest.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}
