//! The data of a page, which data.js reads: gzip of a text of JSON and numbers.
//!
//! The numbers, in LEB128, are: for each node of the tree, how many levels the tree falls before it, and its frame; for each cell,
//! how many counts it has; for each count, how far its node is from that before in the cell; for each count, its weight.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::profile::{By, StackId, Stacks};
use crate::report::palette::{Kind, Rgb};
use crate::report::sample_tree::{OVERFLOW, SampleTree};
use crate::report::text;

use super::counts::{Count, Counts};
use super::time::{Cells, ROWS};

/// Characters of a name that a page has.
const LONGEST: usize = 10_000;

/// What is not numbers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    nodes: usize,
    cells: u32,
    entries: usize,
    rows: u32,
    cell_nanoseconds: u64,
    column_seconds: u64,
    kinds: Vec<KindHead>,
    module_name: Vec<String>,
    function_name: Vec<String>,
    /// Index of its module.
    function_module: Vec<usize>,
    mark_name: Vec<String>,
    /// Of each frame: the function it shows, or below 0 the mark: -1 is the first.
    frame_function: Vec<i64>,
    /// Index into `kinds`.
    frame_kind: Vec<usize>,
    frame_color: Vec<String>,
    /// What is not whole in the picture.
    note: String,
}

#[derive(Serialize)]
struct KindHead {
    label: &'static str,
    color: String,
}

/// Writes gzip of everything.
pub(super) fn write(
    tree: &SampleTree,
    by: By,
    counts: &Counts,
    cells: &Cells,
    out: &mut dyn Write,
) -> io::Result<()> {
    let order = Order::of(tree);
    let entries = in_order(counts.all(), &order.places);
    let mut head = Head {
        nodes: order.nodes.len(),
        cells: match entries.is_empty() {
            true => 0,
            false => cells.count(),
        },
        entries: entries.len(),
        rows: ROWS,
        cell_nanoseconds: cells.width(),
        column_seconds: cells.column_seconds(),
        kinds: Kind::ALL
            .map(|kind| KindHead {
                label: kind.label(by.noun()),
                color: hex(kind.middle()),
            })
            .into(),
        module_name: Vec::new(),
        function_name: Vec::new(),
        function_module: Vec::new(),
        mark_name: Vec::new(),
        frame_function: Vec::new(),
        frame_kind: Vec::new(),
        frame_color: Vec::new(),
        note: match tree.is_cut() {
            true => format!(
                "There are more stacks than a page can show: what others go on with is {OVERFLOW}, and functions \
                 called there are not counted."
            ),
            false => String::new(),
        },
    };
    head.frames(tree);
    let head = serde_json::to_vec(&head)?;
    let mut gzip = io::BufWriter::with_capacity(1 << 16, GzEncoder::new(out, Compression::new(7)));
    number(&mut gzip, head.len() as u64)?;
    gzip.write_all(&head)?;
    for (up, frame) in &order.nodes {
        number(&mut gzip, u64::from(*up))?;
        number(&mut gzip, u64::from(*frame))?;
    }
    let mut of_cells = entries.chunk_by(|a, b| a.cell == b.cell).peekable();
    if !entries.is_empty() {
        for cell in 0..cells.count() {
            let count = of_cells.next_if(|of| of.first().is_some_and(|c| c.cell == cell));
            number(&mut gzip, count.map_or(0, |of| of.len() as u64))?;
        }
    }
    for of_cell in entries.chunk_by(|a, b| a.cell == b.cell) {
        let mut before = 0;
        for count in of_cell {
            number(&mut gzip, u64::from(count.stack - before))?;
            before = count.stack;
        }
    }
    for count in &entries {
        number(&mut gzip, count.weight)?;
    }
    let gzip = gzip.into_inner().map_err(io::IntoInnerError::into_error)?;
    gzip.finish()?;
    Ok(())
}

impl Head {
    fn frames(&mut self, tree: &SampleTree) {
        let mut modules: BTreeMap<&str, usize> = BTreeMap::new();
        let mut functions: BTreeMap<(&str, usize), i64> = BTreeMap::new();
        let shown = |text: &str| text::escaped(&text::cut(text, LONGEST)).into_owned();
        for frame in tree.frames() {
            let function = match frame.kind {
                Kind::Mark => {
                    self.mark_name.push(shown(&frame.name));
                    -(self.mark_name.len() as i64)
                }
                _ => {
                    let next = modules.len();
                    let module = *modules.entry(&frame.module).or_insert(next);
                    if module == next {
                        self.module_name.push(shown(&frame.module));
                    }
                    let next = functions.len() as i64;
                    let function = *functions.entry((&frame.name, module)).or_insert(next);
                    if function == next {
                        self.function_name.push(shown(&frame.name));
                        self.function_module.push(module);
                    }
                    function
                }
            };
            self.frame_function.push(function);
            let kind = Kind::ALL.iter().position(|kind| *kind == frame.kind);
            self.frame_kind.push(kind.unwrap_or_default());
            let color = frame.kind.color(&frame.name, &frame.module);
            self.frame_color.push(hex(color));
        }
    }
}

/// The nodes of a tree as they are drawn: callees after their caller, by name.
struct Order {
    /// Levels that the tree falls before a node, and its frame.
    nodes: Vec<(u32, u32)>,
    /// Of each stack, the place of its node, from 1 on.
    places: Vec<u32>,
}

impl Order {
    fn of(tree: &SampleTree) -> Order {
        let stacks = tree.stacks();
        let mut by_name: Vec<u32> = (0..tree.frames().len() as u32).collect();
        by_name.sort_unstable_by_key(|frame| {
            let frame = tree.frames().get(*frame as usize);
            frame.map(|frame| (&frame.name, frame.kind, &frame.module))
        });
        let mut ranks = vec![0u32; by_name.len()];
        for (rank, frame) in by_name.into_iter().enumerate() {
            if let Some(place) = ranks.get_mut(frame as usize) {
                *place = rank as u32;
            }
        }
        Order::by_rank(stacks, &ranks)
    }

    fn by_rank(stacks: &Stacks, ranks: &[u32]) -> Order {
        let callees = stacks.callees();
        let frame = |stack: StackId| stacks.leaf(stack).map_or(u32::MAX, |(_, frame)| frame);
        let mut order = Order {
            nodes: Vec::with_capacity(stacks.len()),
            places: vec![0; stacks.len() + 1],
        };
        // Stacks with their depth, the next one last.
        let mut todo: Vec<(StackId, u32)> = Vec::new();
        let (mut caller, mut depth) = (0, 0);
        loop {
            let first = todo.len();
            todo.extend(callees.of(caller).iter().map(|stack| (*stack, depth + 1)));
            let part = todo.get_mut(first..).unwrap_or_default();
            part.sort_unstable_by_key(|(stack, _)| {
                std::cmp::Reverse(ranks.get(frame(*stack) as usize))
            });
            let Some((stack, of_stack)) = todo.pop() else {
                return order;
            };
            // A callee of the node before falls by none.
            order.nodes.push((depth + 1 - of_stack, frame(stack)));
            if let Some(place) = order.places.get_mut(stack as usize) {
                *place = order.nodes.len() as u32;
            }
            (caller, depth) = (stack, of_stack);
        }
    }
}

/// Counts by cell and place of their node.
fn in_order(counts: &[Count], places: &[u32]) -> Vec<Count> {
    let placed = counts.iter().map(|count| Count {
        stack: places.get(count.stack as usize).copied().unwrap_or(0),
        ..*count
    });
    let mut placed: Vec<Count> = placed.collect();
    placed.sort_unstable_by_key(|count| (count.cell, count.stack));
    placed
}

fn number(out: &mut impl Write, mut value: u64) -> io::Result<()> {
    let mut bytes = [0u8; 10];
    let mut length = 0;
    for byte in &mut bytes {
        length += 1;
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    out.write_all(bytes.get(..length).unwrap_or_default())
}

fn hex([r, g, b]: Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_seven_bits_a_byte() {
        let bytes = |value| {
            let mut out = Vec::new();
            number(&mut out, value).unwrap();
            out
        };
        assert_eq!(bytes(0), [0]);
        assert_eq!(bytes(300), [0xac, 2]);
        assert_eq!(bytes(u64::MAX).len(), 10);
    }

    #[test]
    fn callees_follow_their_caller_by_name() {
        let mut stacks = Stacks::default();
        let b = stacks.push(0, 1);
        let bc = stacks.push(b, 2);
        let bca = stacks.push(bc, 0);
        let ba = stacks.push(b, 0);
        let a = stacks.push(0, 0);
        let order = Order::by_rank(&stacks, &[0, 1, 2]);
        assert_eq!(order.nodes, [(0, 0), (1, 1), (0, 0), (1, 2), (0, 0)]);
        let place = |stack: StackId| order.places[stack as usize];
        assert_eq!([a, b, ba, bc, bca].map(place), [1, 2, 3, 4, 5]);
    }
}
