//! Cells of the heat map: which one a moment is in, and how long they are.

use crate::event::Timestamp;

/// Cells of a column.
pub(super) const ROWS: u32 = 50;
/// Columns that can be told apart on a screen.
const MOST_COLUMNS: u64 = 300;
/// Seconds of a column.
const NICE: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600];
const SECOND: u64 = 1_000_000_000;

/// Cells from the first sample on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cells {
    start: Timestamp,
    /// Nanoseconds of one.
    width: u64,
    /// Cells up to the last sample, by what the capture says.
    most: u32,
}

impl Default for Cells {
    fn default() -> Cells {
        Cells {
            start: Timestamp(0),
            width: SECOND / u64::from(ROWS),
            most: 1,
        }
    }
}

impl Cells {
    /// Those of the time between the first and the last sample, or from `time` on where that is not known. A column is a second,
    /// unless there are so many that it has to be more.
    pub fn of(span: Option<(Timestamp, Timestamp)>, time: Timestamp) -> Cells {
        let (start, last) = span.unwrap_or((time, Timestamp(time.0.saturating_add(3600 * SECOND))));
        let length = last.since(start);
        let fits = |seconds: &u64| length / SECOND < seconds.saturating_mul(MOST_COLUMNS);
        let seconds = NICE.into_iter().find(fits).unwrap_or_else(|| {
            // Longer than twelve days: by a clock that went wrong.
            let hours = length / SECOND / 3600 / MOST_COLUMNS;
            3600 * (hours + 1).next_power_of_two()
        });
        let width = seconds * (SECOND / u64::from(ROWS));
        Cells {
            start,
            width,
            most: u32::try_from(length / width)
                .unwrap_or(u32::MAX - 1)
                .saturating_add(1),
        }
    }

    /// The cell of a moment. What is outside of the capture's own times is in the first or the last one.
    pub fn of_time(&self, time: Timestamp) -> u32 {
        let cell = time.since(self.start) / self.width;
        u32::try_from(cell).unwrap_or(u32::MAX).min(self.most - 1)
    }

    /// Makes one of each two.
    pub fn double(&mut self) {
        self.width = self.width.saturating_mul(2);
        self.most = self.most.div_ceil(2);
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.most
    }

    /// Nanoseconds of one.
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Seconds of a column.
    pub fn column_seconds(&self) -> u64 {
        self.width.saturating_mul(u64::from(ROWS)) / SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: u64) -> Cells {
        let start = Timestamp(7 * SECOND);
        Cells::of(
            Some((start, Timestamp(start.0 + seconds * SECOND))),
            Timestamp(0),
        )
    }

    #[test]
    fn columns_are_seconds_until_there_are_too_many() {
        assert_eq!(of(0).column_seconds(), 1);
        assert_eq!((of(299).column_seconds(), of(300).column_seconds()), (1, 2));
        assert_eq!(of(3600).column_seconds(), 20);
        assert_eq!(of(86_400).column_seconds(), 300);
        let all = Cells::of(Some((Timestamp(0), Timestamp(u64::MAX))), Timestamp(0));
        assert!(all.count() <= 300 * ROWS && all.column_seconds() > 3600);
    }

    #[test]
    fn moments_are_in_the_cells_they_begin() {
        let mut cells = of(10);
        assert_eq!(cells.count(), 501);
        let at = |cells: &Cells, nanoseconds| cells.of_time(Timestamp(7 * SECOND + nanoseconds));
        assert_eq!(at(&cells, 19_999_999), 0);
        assert_eq!(at(&cells, 20_000_000), 1);
        assert_eq!(at(&cells, 10 * SECOND), 500);
        assert_eq!(at(&cells, 99 * SECOND), 500);
        assert_eq!(cells.of_time(Timestamp(0)), 0);
        cells.double();
        assert_eq!((cells.count(), cells.column_seconds()), (251, 2));
        assert_eq!(at(&cells, 10 * SECOND), 250);
    }
}
