//! What is drawn, as places of boxes: each stands on the one it is part of.

use crate::report::palette::Labels;

/// A box that is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Boxes below it.
    pub depth: u32,
    /// Weight left of it.
    pub start: u64,
    /// Its weight.
    pub width: u64,
    /// Number of its label.
    pub label: u32,
}

/// Boxes that are drawn at most, about: what fits on no screen takes ten megabytes of SVG and many more to draw.
const MOST_BOXES: usize = 1 << 15;
/// Bytes of folded lines at most: names can be long.
const MOST_BYTES: usize = 1 << 27;
/// Percent of the width: what is narrower is never drawn, a tenth of a pixel on most screens.
const NARROW: f64 = 0.01;
/// Percent of the width: what is wider is always drawn.
const WIDE: f64 = 0.5;
/// Sums that floating point holds exactly.
const EXACT: u32 = 53;

/// What bounds a picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// What weighs less is not drawn.
    pub least: u64,
    /// Bits by which weights are made smaller.
    pub shift: u32,
}

impl Bounds {
    /// A weight as it is drawn: as it is, unless the sum of all is no number.
    pub fn weight(&self, weight: u64) -> u64 {
        weight >> self.shift
    }
}

/// More boxes than are drawn.
#[derive(Debug)]
pub(super) struct TooMany;

/// All boxes, each after the one it stands on, from left to right.
#[derive(Debug, Default)]
pub(super) struct Boxes {
    drawn: Vec<Drawn>,
    most: usize,
    /// Weight of everything, drawn or not.
    total: u64,
}

impl Boxes {
    /// Lets `make` draw, with bounds that become narrower until it does not draw too much. Gives what was drawn, what its
    /// weights have to be multiplied with, and below how many percent boxes are left out where that is more than could not
    /// be seen anyway.
    pub fn at_most<W: Iterator<Item = u64>>(
        labels: &Labels,
        weights: impl Fn() -> W,
        mut make: impl FnMut(Bounds, &mut Boxes) -> Result<(), TooMany>,
    ) -> (Boxes, f64, Option<f64>) {
        let sum: u128 = weights().map(u128::from).sum();
        let shift = (u128::BITS - sum.leading_zeros()).saturating_sub(EXACT);
        let total = weights().map(|weight| weight >> shift).sum();
        let mut percent = NARROW;
        loop {
            let bounds = Bounds {
                least: (total as f64 * percent / 100.0).ceil() as u64,
                shift,
            };
            let mut boxes = Boxes {
                drawn: Vec::new(),
                most: match percent < WIDE {
                    true => MOST_BOXES,
                    false => usize::MAX,
                },
                total,
            };
            if make(bounds, &mut boxes).is_ok()
                && (percent >= WIDE || boxes.bytes(labels) <= MOST_BYTES)
            {
                let left_out = (percent > NARROW).then_some(percent);
                return (boxes, (1u64 << shift) as f64, left_out);
            }
            percent *= 2.0;
        }
    }

    /// Draws a box.
    pub fn push(&mut self, drawn: Drawn) -> Result<(), TooMany> {
        if self.drawn.len() >= self.most {
            return Err(TooMany);
        }
        self.drawn.push(drawn);
        Ok(())
    }

    /// For boxes that were not drawn in order.
    pub fn sort(&mut self) {
        self.drawn.sort_unstable_by_key(|b| (b.start, b.depth));
    }

    /// About the bytes of its lines.
    fn bytes(&self, labels: &Labels) -> usize {
        let mut lengths: Vec<usize> = Vec::new();
        let mut sum = 0usize;
        for drawn in &self.drawn {
            lengths.truncate(drawn.depth as usize);
            let below = lengths.last().copied().unwrap_or(0);
            lengths.push(below + labels.marked(drawn.label).len() + 1);
            sum = sum.saturating_add(lengths.last().copied().unwrap_or(0));
        }
        sum
    }

    /// The boxes.
    pub fn drawn(&self) -> &[Drawn] {
        &self.drawn
    }

    /// Rows of boxes.
    pub fn rows(&self) -> usize {
        let rows = self.drawn.iter().map(|drawn| drawn.depth as usize + 1);
        rows.max().unwrap_or(0)
    }

    /// As folded lines, from left to right, that draw the boxes and nothing else. What is not drawn is part of what it stands on,
    /// and `gap` where it stands on nothing. `text` gives what is printed of a label.
    pub fn lines<'a>(&self, gap: &'a str, text: impl Fn(u32) -> &'a str) -> Vec<String> {
        let mut lines = Lines {
            gap,
            lines: Vec::new(),
            line: String::new(),
            bytes: 0,
        };
        // Boxes that go on, with the length of their line.
        let mut open: Vec<(Drawn, usize)> = Vec::new();
        let mut at = 0;
        for drawn in &self.drawn {
            while let Some((last, length)) = open.pop_if(|(last, _)| last.depth >= drawn.depth) {
                at = lines.end(at, last.start + last.width, length);
            }
            let below = open.last().map_or(0, |(_, length)| *length);
            at = lines.end(at, drawn.start, below);
            lines.line.truncate(below);
            if below > 0 {
                lines.line.push(';');
            }
            lines.line.push_str(text(drawn.label));
            open.push((*drawn, lines.line.len()));
        }
        while let Some((last, length)) = open.pop() {
            at = lines.end(at, last.start + last.width, length);
        }
        lines.end(at, self.total, 0);
        lines.lines
    }
}

struct Lines<'a> {
    gap: &'a str,
    lines: Vec<String>,
    line: String,
    bytes: usize,
}

impl Lines<'_> {
    /// A line of the first `length` bytes for what is between `from` and `to`; says where that ends.
    fn end(&mut self, from: u64, to: u64, length: usize) -> u64 {
        if to <= from {
            return from;
        }
        self.line.truncate(length);
        let mut shown = match length {
            0 => self.gap,
            _ => self.line.as_str(),
        };
        // The last resort for names that are long although few are drawn: stacks lose their upper end.
        while self.bytes + shown.len() > MOST_BYTES
            && let Some((callers, _)) = shown.rsplit_once(';')
        {
            shown = callers;
        }
        self.bytes += shown.len();
        self.lines.push(format!("{shown} {}", to - from));
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(total: u64, drawn: &[(u32, u64, u64, u32)]) -> Vec<String> {
        let drawn = drawn.iter().map(|&(depth, start, width, label)| Drawn {
            depth,
            start,
            width,
            label,
        });
        let boxes = Boxes {
            drawn: drawn.collect(),
            most: 0,
            total,
        };
        boxes.lines("-", |label| ["a", "b", "c"][label as usize])
    }

    #[test]
    fn lines_draw_the_boxes_and_what_is_not_drawn_is_room() {
        assert_eq!(
            lines(
                20,
                &[(0, 0, 10, 0), (1, 2, 3, 1), (1, 5, 5, 2), (0, 12, 4, 1)]
            ),
            ["a 2", "a;b 3", "a;c 5", "- 2", "b 4", "- 4"]
        );
        assert_eq!(lines(0, &[]), [""; 0]);
    }

    #[test]
    fn the_bound_rises_until_it_is_kept() {
        let weights = || std::iter::repeat_n(1u64, 100_000);
        let all = |bounds: Bounds, boxes: &mut Boxes| {
            for start in 0..100_000 / bounds.least {
                boxes.push(Drawn {
                    depth: 0,
                    start,
                    width: bounds.least,
                    label: 0,
                })?;
                for _ in 0..9 {
                    boxes.push(boxes.drawn[0])?;
                }
            }
            Ok(())
        };
        let (boxes, scale, left_out) = Boxes::at_most(&Labels::default(), weights, all);
        assert_eq!((boxes.drawn().len(), scale), (25_000, 1.0));
        assert_eq!(left_out, Some(0.04));
    }
}
