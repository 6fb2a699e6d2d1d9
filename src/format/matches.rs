//! The addresses of new stack nodes, written as what earlier nodes of the segment had: below another thread's root, or
//! below another caller, the same calls follow each other again.
//!
//! A match is a run of nodes whose addresses are those of a run that begins at an earlier node. What is no match is a
//! literal: callers repeat a few addresses and get a dictionary, leaves are spread over whole functions and get none.

use super::columns::{self, Constant, Layout};
use super::error::{FormatError, Problem};
use super::input::Input;
use super::leb128;
use super::payload::Out;
use super::segment::StackNode;

/// Shortest match the format has.
const SHORTEST: usize = 4;
/// Shortest match that is written: shorter ones cost more than what they stand for.
const WORTH: usize = 6;
/// Every so many addresses the table is told of one. Each match worth writing has one of these in it with
/// [`SHORTEST`] addresses behind it, and is then followed to both sides.
const STRIDE: usize = WORTH - SHORTEST + 1;
/// After so many looks without a match every second place is looked at, then every fourth, and so on. Powers of two have no
/// factor in common with [`STRIDE`], so that a long match is met wherever it begins.
const PATIENCE: usize = 128;
/// Binary logarithm of the widest step.
const WIDEST_STEP: usize = 4;

/// The addresses of a segment's nodes so far, and where runs of them begin.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    /// Of node n at n - 1.
    addresses: Vec<u32>,
    /// By hash of the [`SHORTEST`] addresses there: a multiple of [`STRIDE`], index into `addresses`, + 1; the latest.
    table: Vec<u32>,
    /// Multiples of [`STRIDE`] below are in the table.
    hashed: usize,
}

/// A run of nodes that repeats an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Match {
    /// Literals since the match before.
    literals: u64,
    /// Index of its first node's model.
    source: usize,
    length: usize,
}

impl Matcher {
    /// With the nodes of earlier frames.
    pub fn new(known: &[StackNode]) -> Matcher {
        Matcher {
            addresses: known.iter().map(|n| n.address).collect(),
            ..Matcher::default()
        }
    }

    /// Forgets all; memory is kept.
    pub fn clear(&mut self) {
        self.addresses.clear();
        self.table.fill(0);
        self.hashed = 0;
    }

    /// Takes in nodes that follow those known.
    pub fn extend(&mut self, nodes: &[StackNode]) {
        self.addresses.extend(nodes.iter().map(|n| n.address));
    }

    /// Where the table tells of the [`SHORTEST`] addresses from `at` on.
    fn slot(&self, at: usize) -> Option<usize> {
        const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
        let run = self.addresses.get(at..)?.first_chunk::<SHORTEST>()?;
        let [a, b, c, d] = run.map(u64::from);
        let hash =
            ((a | b << 32).wrapping_mul(MIX).rotate_left(29) ^ (c | d << 32)).wrapping_mul(MIX);
        Some((hash >> 32) as usize & self.table.len().wrapping_sub(1))
    }

    /// Makes the table large enough for all addresses.
    fn reserve(&mut self) {
        const LEAST: usize = 1 << 10;
        const MOST: usize = 1 << 18;
        let wanted = (2 * self.addresses.len() / STRIDE)
            .next_power_of_two()
            .clamp(LEAST, MOST);
        if self.table.len() < wanted {
            self.table.clear();
            self.table.resize(wanted, 0);
            self.hashed = 0;
        }
    }

    /// A match of the addresses around `at`, from `free` on, with the latest run known to hold the same ones there: its
    /// first index, that of its model, and its length.
    fn find(&mut self, at: usize, free: usize) -> Option<(usize, usize, usize)> {
        while self.hashed < at {
            if let Some(slot) = self.slot(self.hashed)
                && let Some(place) = self.table.get_mut(slot)
            {
                *place = self.hashed as u32 + 1;
            }
            self.hashed += STRIDE;
        }
        let found = *self.table.get(self.slot(at)?)?;
        let source = (found as usize).checked_sub(1)?;
        let (model, here) = (self.addresses.get(source..)?, self.addresses.get(at..)?);
        let length = model.iter().zip(here).take_while(|(a, b)| a == b).count();
        let (model, here) = (self.addresses.get(..source)?, self.addresses.get(free..at)?);
        let pairs = model.iter().rev().zip(here.iter().rev());
        let before = pairs.take_while(|(a, b)| a == b).count();
        (before + length >= WORTH).then_some((at - before, source - before, before + length))
    }

    /// Matches of the addresses from index `first` on.
    fn matches(&mut self, first: usize) -> Vec<Match> {
        self.reserve();
        let mut matches = Vec::new();
        let mut free = first;
        let mut at = first;
        // Where nothing repeats, looking at each place would take longer than all the rest. A match that is found late is
        // taken from its beginning all the same.
        let mut missed = 0;
        while at < self.addresses.len() {
            let Some((start, source, length)) = self.find(at, free) else {
                missed += 1;
                at += 1 << (missed / PATIENCE).min(WIDEST_STEP);
                continue;
            };
            missed = 0;
            matches.push(Match {
                literals: (start - free) as u64,
                source,
                length,
            });
            at = start + length;
            free = at;
        }
        matches
    }

    /// Appends the addresses of the nodes from index `first` on; `ends` has the numbers of the nodes that end a chain,
    /// ascending.
    pub(super) fn encode(&mut self, out: &mut impl Out, first: usize, ends: &[u32]) {
        let matches = self.matches(first);
        let mut callers: Vec<u32> = Vec::new();
        let mut leaves: Vec<u64> = Vec::new();
        let mut ends = ends.iter().copied().peekable();
        let mut take = |from: usize, count: usize| {
            for at in from..from + count {
                while ends.next_if(|end| (*end as usize) < at + 1).is_some() {}
                let Some(address) = self.addresses.get(at) else {
                    continue;
                };
                if ends.peek() == Some(&(at as u32 + 1)) {
                    leaves.push(u64::from(*address));
                } else {
                    callers.push(*address);
                }
            }
        };
        let mut at = first;
        for run in &matches {
            take(at, run.literals as usize);
            at += run.literals as usize + run.length;
        }
        take(at, self.addresses.len().saturating_sub(at));

        let list = |value: fn(&Match) -> u64| matches.iter().map(value).collect::<Vec<u64>>();
        leb128::write(out.bytes(), matches.len() as u64);
        let (whole, split) = (Layout::Whole, Layout::Split);
        columns::encode(out, &list(|m| m.literals), whole, Constant::Never);
        columns::encode(
            out,
            &list(|m| (m.length - SHORTEST) as u64),
            whole,
            Constant::Never,
        );
        columns::encode(out, &list(|m| m.source as u64 + 1), split, Constant::Never);
        let (dictionary, callers) = by_frequency(&callers);
        leb128::write(out.bytes(), dictionary.len() as u64);
        columns::encode(out, &dictionary, whole, Constant::Never);
        columns::encode(out, &callers, whole, Constant::Never);
        columns::encode(out, &leaves, Layout::Either, Constant::Never);
    }
}

/// The distinct values, those that come often first, and the place of each value among them.
fn by_frequency(values: &[u32]) -> (Vec<u64>, Vec<u64>) {
    let room = values.iter().max().map_or(0, |most| *most as usize + 1);
    // Numbers of addresses: most of a segment's come in a large frame, few in a small one.
    let dense = room / 4 <= values.len();
    let mut counts: Vec<(usize, u32)> = Vec::new();
    let mut by_value = Vec::new();
    if dense {
        by_value.resize(room, 0u32);
        for value in values {
            if let Some(count) = by_value.get_mut(*value as usize) {
                *count += 1;
            }
        }
        let distinct = (0..).zip(&by_value).filter(|(_, count)| **count > 0);
        counts.extend(distinct.map(|(value, count)| (*count as usize, value)));
    } else {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let runs = sorted.chunk_by(|a, b| a == b);
        counts.extend(runs.filter_map(|run| Some((run.len(), *run.first()?))));
    }
    counts.sort_unstable_by_key(|(count, value)| (std::cmp::Reverse(*count), *value));
    let dictionary = counts.iter().map(|(_, value)| u64::from(*value)).collect();
    let distinct = (0u32..).zip(counts.iter().map(|(_, value)| *value));
    let places = if dense {
        for (place, value) in distinct {
            if let Some(of) = by_value.get_mut(value as usize) {
                *of = place;
            }
        }
        let of = |value: &u32| by_value.get(*value as usize).copied().unwrap_or_default();
        values.iter().map(|value| of(value).into()).collect()
    } else {
        let places: hashbrown::HashMap<u32, u32> =
            distinct.map(|(place, value)| (value, place)).collect();
        let of = |value: &u32| places.get(value).copied().unwrap_or_default();
        values.iter().map(|value| of(value).into()).collect()
    };
    (dictionary, places)
}

/// Takes what [`Matcher::encode`] wrote of the nodes that follow `known`: their addresses, each below `addresses`.
/// `lengths` are those of the chains, which add up to the number of nodes: the caller has bounded it.
pub(super) fn decode(
    input: &mut Input<'_>,
    known: &[StackNode],
    lengths: &[u64],
    addresses: u32,
) -> Result<Vec<u32>, FormatError> {
    let count = lengths
        .iter()
        .fold(0u64, |sum, length| sum.saturating_add(*length));
    let count = count as usize;
    let at = input.clone();
    let matches = input.count("match count", count as u64)?;
    let most = count as u64;
    let literals = columns::decode(input, matches, "literals", most, Constant::Never)?;
    let runs = columns::decode(input, matches, "match length", most, Constant::Never)?;
    let newest = known.len() as u64 + most;
    let sources = columns::decode(input, matches, "match source", newest, Constant::Never)?;
    let dictionary = input.count("dictionary size", count as u64)?;
    let most = u64::from(addresses).saturating_sub(1);
    let dictionary = columns::decode(input, dictionary, "caller", most, Constant::Never)?;

    // Which nodes are literals, and which of those are leaves.
    let mut is_end = vec![false; count];
    let mut end = 0usize;
    for length in lengths {
        end = end.saturating_add(*length as usize);
        if let Some(place) = end.checked_sub(1).and_then(|last| is_end.get_mut(last)) {
            *place = true;
        }
    }
    let too_long = || {
        at.error(Problem::BadValue {
            what: "end of repeated runs",
            value: count as u64,
        })
    };
    let mut leaf_count = 0;
    let mut literal_count = 0;
    let mut place = 0usize;
    let mut pass = |literals: usize, run: usize| {
        let end = place.checked_add(literals)?;
        let leaves = is_end.get(place..end)?.iter().filter(|end| **end).count();
        leaf_count += leaves;
        literal_count += literals;
        place = end.checked_add(run).filter(|place| *place <= count)?;
        Some(place)
    };
    let mut covered = 0;
    for (literals, run) in literals.iter().zip(&runs) {
        let run = (*run as usize).saturating_add(SHORTEST);
        covered = pass(*literals as usize, run).ok_or_else(too_long)?;
    }
    pass(count - covered, 0).ok_or_else(too_long)?;

    let callers = literal_count - leaf_count;
    let most = (dictionary.len() as u64).saturating_sub(1);
    let callers = columns::decode(input, callers, "caller place", most, Constant::Never)?;
    let most = u64::from(addresses).saturating_sub(1);
    let leaves = columns::decode(input, leaf_count, "leaf address", most, Constant::Never)?;
    // Only a value of 0 gets past a limit that has no values at all.
    if addresses == 0 || (dictionary.is_empty() && !callers.is_empty()) {
        return Err(too_long());
    }

    let mut out: Vec<u32> = Vec::with_capacity(count);
    let (mut callers, mut leaves) = (callers.into_iter(), leaves.into_iter());
    let mut literal = |out: &mut Vec<u32>, number: usize| {
        for _ in 0..number {
            let address = if is_end.get(out.len()) == Some(&true) {
                leaves.next()?
            } else {
                *dictionary.get(callers.next()? as usize)?
            };
            out.push(address as u32);
        }
        Some(())
    };
    for ((literals, run), source) in literals.iter().zip(&runs).zip(&sources) {
        literal(&mut out, *literals as usize).ok_or_else(too_long)?;
        let source = (*source as usize).checked_sub(1).ok_or_else(too_long)?;
        // May run into itself: then it repeats what it has just written.
        for from in source..source.saturating_add(*run as usize + SHORTEST) {
            let address = match known.get(from) {
                Some(node) => Some(node.address),
                None => out.get(from - known.len()).copied(),
            };
            out.push(address.ok_or_else(too_long)?);
        }
    }
    let rest = count - out.len();
    literal(&mut out, rest).ok_or_else(too_long)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(addresses: &[u32]) -> Vec<StackNode> {
        let node = |address: &u32| StackNode {
            parent: 0,
            address: *address,
        };
        addresses.iter().map(node).collect()
    }

    /// Writes `new` after `known` as chains of `lengths`, reads it back, gives the bytes.
    fn round_trip(known: &[u32], new: &[u32], lengths: &[u64]) -> Vec<u8> {
        let known = nodes(known);
        let mut matcher = Matcher::new(&known);
        matcher.extend(&nodes(new));
        let mut end = known.len() as u32;
        let ends: Vec<u32> = lengths
            .iter()
            .map(|length| {
                end += *length as u32;
                end
            })
            .collect();
        let mut bytes = Vec::new();
        matcher.encode(&mut bytes, known.len(), &ends);
        let mut input = Input::new("t", &bytes);
        assert_eq!(decode(&mut input, &known, lengths, 1000).unwrap(), new);
        assert_eq!(input.end("addresses"), Ok(()));
        bytes
    }

    #[test]
    fn what_was_there_before_is_a_match() {
        let bytes = round_trip(
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[9, 2, 3, 4, 5, 6, 7, 300, 9],
            &[8, 1],
        );
        let expected = [
            1, 1, 1, 1, 2, 2, 2, // one match: after 1 literal, 4 + 2 long, from node 2 on
            1, 1, 9, 1, 0, // dictionary of callers: 9; the literal is its first
            1, 0xac, 2, 9, // leaves: 300, 9
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_comes_often_is_first_however_numbers_lie() {
        for step in [1, 1000] {
            let values = [7, 3, 9, 3, 7, 3, 5].map(|value| value * step);
            let (dictionary, places) = by_frequency(&values);
            let expected = [3, 7, 5, 9].map(|value| u64::from(value * step));
            assert_eq!(dictionary, expected, "equally often: the smaller first");
            assert_eq!(places, [1, 0, 3, 0, 1, 0, 2]);
        }
        assert_eq!(by_frequency(&[]), (vec![], vec![]));
    }

    /// Without patience every look has its price; a match is still written whole.
    #[test]
    fn a_match_after_much_that_is_new_is_found_from_its_beginning() {
        let new = |count: u32| (0..count).map(|i| i.wrapping_mul(0x9E37_79B1) >> 12);
        let model: Vec<u32> = (0..200).map(|i| 5_000_000 + i).collect();
        for before in [10, 3000, 3001, 3002] {
            let mut addresses = model.clone();
            addresses.extend(new(before));
            addresses.extend(&model);
            let mut matcher = Matcher::default();
            matcher.extend(&nodes(&addresses));
            let expected = Match {
                literals: u64::from(before) + 200,
                source: 0,
                length: 200,
            };
            assert_eq!(matcher.matches(0), [expected], "after {before}");
        }
    }

    #[test]
    fn recursion_is_a_match_with_itself() {
        let bytes = round_trip(&[], &[7; 200], &[200]);
        // The first node, then 199 that repeat the one before.
        assert_eq!(bytes, [1, 1, 1, 1, 0xc3, 1, 2, 1, 1, 1, 7, 1, 0, 1]);
    }

    #[test]
    fn matches_across_frames_are_found_after_the_table_has_grown() {
        let mut matcher = Matcher::default();
        let first: Vec<u32> = (0..5000).map(|i| i * 7 % 1000).collect();
        let mut bytes = Vec::new();
        matcher.extend(&nodes(&first[..600]));
        matcher.encode(&mut bytes, 0, &[600]);
        matcher.extend(&nodes(&first[600..]));
        matcher.encode(&mut bytes, 600, &[5000]);
        matcher.extend(&nodes(&first[100..140]));
        bytes.clear();
        matcher.encode(&mut bytes, 5000, &[5040]);
        assert!(bytes.len() < 20, "{bytes:?}");
        matcher.clear();
        matcher.extend(&nodes(&first[100..140]));
        bytes.clear();
        matcher.encode(&mut bytes, 0, &[40]);
        assert!(bytes.len() > 40, "a new segment knows nothing");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let known = nodes(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let refused = |bytes: &[u8], lengths: &[u64], addresses| {
            let mut input = Input::new("t", bytes);
            decode(&mut input, &known, lengths, addresses).is_err() || input.end("t").is_err()
        };
        let good: &[u8] = &[1, 1, 1, 1, 2, 2, 2, 1, 1, 9, 1, 0, 1, 8, 9];
        assert!(!refused(good, &[8, 1], 10));
        assert!(refused(good, &[8, 1], 9), "an address that is not there");
        assert!(refused(good, &[8], 10), "bytes left over");
        assert!(refused(good, &[8, 2], 10), "fewer");
        let with = |at: usize, value| {
            let mut bytes = good.to_vec();
            bytes[at] = value;
            bytes
        };
        assert!(refused(&with(6, 0), &[8, 1], 10), "no source");
        assert!(
            refused(&with(6, 10), &[8, 1], 10),
            "a source that is not before"
        );
        assert!(!refused(&with(6, 9), &[8, 1], 10), "the node before");
        assert!(
            refused(&with(4, 100), &[8, 1], 10),
            "a match beyond the end"
        );
        assert!(
            refused(&with(11, 1), &[8, 1], 10),
            "no such dictionary entry"
        );
        assert!(
            refused(&[0, 1, 1, 2, 0, 1, 1], &[5000], 10),
            "too many for their bytes"
        );
        for end in 0..good.len() {
            assert!(refused(&good[..end], &[8, 1], 10), "cut at {end}");
        }
    }
}
