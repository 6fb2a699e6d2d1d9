//! The stack sections: new nodes of the user or kernel stack trie, as chains.
//!
//! A chain is a run of nodes of which each is the caller of the next; it hangs below a node that is
//! already there, or is a root. A new stack costs one chain, however deep it is, and little where its addresses
//! follow each other as they did before ([`super::matches`]).

use super::columns::{self, Constant, Layout};
use super::error::{FormatError, Problem};
use super::input::Input;
use super::matches::{self, Matcher};
use super::payload::Out;
use super::segment::StackNode;
use super::{leb128, limits};

/// Encoding of the column of addresses beside those of [`columns`]: see [`super::matches`].
const MATCHED: u8 = 3;
/// Fewer nodes than this are not searched for matches.
const FEW: usize = 256;

/// Appends `nodes`, of which the first gets the number `known` + 1; `matcher` has the nodes before and takes these in.
/// Returns the ends of the chains.
pub fn encode(
    out: &mut impl Out,
    nodes: &[StackNode],
    known: u32,
    matcher: &mut Matcher,
) -> Result<ChainEnds, FormatError> {
    let mut parents = Vec::new();
    let mut lengths = Vec::new();
    let mut ends = Vec::new();
    let mut id = u64::from(known);
    let mut length = 0u64;
    for node in nodes {
        if length == 0 || u64::from(node.parent) != id {
            if length > 0 {
                lengths.push(length);
                ends.push(id as u32);
            }
            let problem = Problem::UnknownId {
                what: "parent of a stack node",
                id: u64::from(node.parent),
                known: id,
            };
            let back = id.checked_sub(u64::from(node.parent));
            back.ok_or_else(|| FormatError::new("stacks", out.bytes().len(), problem))?;
            parents.push(u64::from(node.parent));
            length = 0;
        }
        length += 1;
        id += 1;
    }
    if length > 0 {
        lengths.push(length);
        ends.push(id as u32);
    }
    let start = out.bytes().len();
    leb128::write(out.bytes(), nodes.len() as u64);
    leb128::write(out.bytes(), lengths.len() as u64);
    columns::encode(out, &parents, Layout::Split, Constant::Allowed);
    columns::encode(out, &lengths, Layout::Whole, Constant::Allowed);
    matcher.extend(nodes);
    let at = out.bytes().len();
    if nodes.len() >= FEW {
        out.bytes().push(MATCHED);
        matcher.encode(out, known as usize, &ends);
    }
    let most = ((out.bytes().len() - start) as u64).saturating_mul(limits::NODES_PER_BYTE);
    if nodes.len() < FEW || nodes.len() as u64 > most {
        out.bytes().truncate(at);
        let addresses: Vec<u64> = nodes.iter().map(|n| u64::from(n.address)).collect();
        columns::encode(out, &addresses, Layout::Either, Constant::Never);
    }
    Ok(ChainEnds::new(ends, known))
}

/// Takes a stack section that follows the nodes `before`, with `addresses` addresses.
pub fn decode(
    input: &mut Input<'_>,
    before: &[StackNode],
    addresses: u32,
) -> Result<(Vec<StackNode>, ChainEnds), FormatError> {
    let most = (input.rest().len() as u64).saturating_mul(limits::NODES_PER_BYTE);
    let count = input.leb_max("stack node count", limits::TABLE.min(most))? as usize;
    let chains = input.leb_max("chain count", count as u64)? as usize;
    let known = before.len() as u32;
    let at = input.clone();
    let newest = u64::from(known) + count as u64;
    let parents = columns::decode(input, chains, "chain parent", newest, Constant::Allowed)?;
    let lengths = columns::decode(
        input,
        chains,
        "chain length",
        count as u64,
        Constant::Allowed,
    )?;
    let total = lengths
        .iter()
        .fold(0u64, |sum, len| sum.saturating_add(*len));
    if total != count as u64 || lengths.contains(&0) {
        return Err(at.error(Problem::BadValue {
            what: "sum of chain lengths",
            value: total,
        }));
    }
    let column = if input.rest().first() == Some(&MATCHED) {
        input.u8("stack addresses")?;
        matches::decode(input, before, &lengths, addresses)?
    } else {
        plain_addresses(input, count, addresses)?
    };
    let mut nodes = Vec::with_capacity(count);
    let mut ends = Vec::with_capacity(chains);
    let mut column = column.into_iter();
    let mut id = u64::from(known);
    for (parent, length) in parents.into_iter().zip(lengths) {
        if parent > id {
            let what = "parent of a stack node";
            return Err(at.error(Problem::UnknownId {
                what,
                id: parent,
                known: id,
            }));
        }
        let mut parent = parent;
        for address in column.by_ref().take(length as usize) {
            nodes.push(StackNode {
                parent: parent as u32,
                address,
            });
            id += 1;
            parent = id;
        }
        ends.push(id as u32);
    }
    Ok((nodes, ChainEnds::new(ends, known)))
}

fn plain_addresses(
    input: &mut Input<'_>,
    count: usize,
    addresses: u32,
) -> Result<Vec<u32>, FormatError> {
    let at = input.clone();
    let max = u64::from(u32::MAX);
    let column = columns::decode(input, count, "stack address", max, Constant::Never)?;
    if let Some(id) = column.iter().find(|id| **id >= u64::from(addresses)) {
        let known = u64::from(addresses);
        return Err(at.error(Problem::UnknownId {
            what: "address",
            id: *id,
            known,
        }));
    }
    Ok(column.into_iter().map(|id| id as u32).collect())
}

/// Codes the stacks of samples: most new chains end in the stack of the next sample that has a new
/// stack, which is then the number 0. Any other stack is its own number + 1.
#[derive(Debug, Clone, Default)]
pub struct ChainEnds {
    ends: Vec<u32>,
    next: usize,
    /// The newest stack seen, or the newest one known before this frame.
    newest: u32,
}

impl ChainEnds {
    /// Chains that end in `ends` (ascending), where `known` nodes were there before.
    pub fn new(ends: Vec<u32>, known: u32) -> ChainEnds {
        ChainEnds {
            ends,
            next: 0,
            newest: known,
        }
    }

    /// The end of the first chain that is newer than every stack seen so far.
    fn expected(&mut self) -> Option<u32> {
        while let Some(end) = self.ends.get(self.next) {
            if *end > self.newest {
                return Some(*end);
            }
            self.next += 1;
        }
        None
    }

    fn see(&mut self, stack: u32) {
        self.newest = self.newest.max(stack);
    }

    /// The code of the next sample's stack.
    pub fn code(&mut self, stack: u32) -> u64 {
        let code = if self.expected() == Some(stack) {
            0
        } else {
            u64::from(stack) + 1
        };
        self.see(stack);
        code
    }

    /// The stack with this code; `None` when no chain is left to expect or the number is too large.
    pub fn stack(&mut self, code: u64) -> Option<u32> {
        let stack = match code.checked_sub(1) {
            None => self.expected()?,
            Some(stack) => u32::try_from(stack).ok()?,
        };
        self.see(stack);
        Some(stack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(parent: u32, address: u32) -> StackNode {
        StackNode { parent, address }
    }

    fn round_trip(nodes: &[StackNode], known: u32) -> (Vec<u8>, ChainEnds) {
        let mut out = Vec::new();
        let before = vec![node(0, 0); known as usize];
        let ends = encode(&mut out, nodes, known, &mut Matcher::new(&before)).unwrap();
        let mut input = Input::new("t", &out);
        let (back, read_ends) = decode(&mut input, &before, 10).unwrap();
        assert_eq!(back, nodes);
        assert_eq!(read_ends.ends, ends.ends);
        assert_eq!(input.end("stacks"), Ok(()));
        (out, ends)
    }

    #[test]
    fn chains_hang_below_roots_old_nodes_and_new_nodes() {
        let nodes = [node(0, 1), node(8, 2), node(3, 2), node(8, 9), node(0, 4)];
        let (_, ends) = round_trip(&nodes, 7);
        assert_eq!(ends.ends, [9, 10, 11, 12]);
        let (bytes, ends) = round_trip(&[node(0, 1), node(1, 2), node(2, 3)], 0);
        assert_eq!(bytes, [3, 1, 0, 0, 0, 3, 1, 1, 2, 3]);
        assert_eq!(ends.ends, [3]);
    }

    /// Few bytes then stand for very many nodes: what a writer writes a reader takes.
    #[test]
    fn long_repetitions_are_read_again_or_not_written_so() {
        for period in [1u32, 2, 5, 9] {
            for chains in [1u32, 2, 3, 40] {
                for total in (1_000..40_000).step_by(1499) {
                    let each = (total / chains).max(1);
                    let nodes: Vec<StackNode> = (0..total)
                        .map(|i| node(if i % each == 0 { 0 } else { i }, i % period))
                        .collect();
                    round_trip(&nodes, 0);
                }
            }
        }
    }

    #[test]
    fn forward_and_self_parents_are_refused() {
        let refused = |parent, known| {
            let mut matcher = Matcher::default();
            encode(&mut Vec::new(), &[node(parent, 0)], known, &mut matcher).is_err()
        };
        assert!(refused(1, 0));
        assert!(refused(9, 7));
        // One chain of one node whose parent is itself (8), with 7 nodes known.
        let bytes = [1, 1, 0, 8, 0, 1, 1, 0];
        let err = decode(&mut Input::new("t", &bytes), &[node(0, 0); 7], 10).unwrap_err();
        let what = "parent of a stack node";
        assert_eq!(
            err.problem,
            Problem::UnknownId {
                what,
                id: 8,
                known: 7
            }
        );
    }

    #[test]
    fn lengths_that_do_not_add_up_and_bad_addresses_are_refused() {
        for bytes in [
            &[2u8, 1, 0, 0, 0, 1, 1, 0, 0][..], // 1 of 2 nodes
            &[2, 2, 0, 0, 1, 0, 2, 1, 0, 0],    // an empty chain
            &[1, 1, 0, 0, 0, 1, 1, 10],         // address 10 of 10
            &[1, 1, 0, 0, 0, 1, 0, 3],          // constant addresses
            &[1, 2, 0, 0, 0, 1, 1, 3],          // more chains than nodes
        ] {
            assert!(
                decode(&mut Input::new("t", bytes), &[], 10).is_err(),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn the_next_new_stack_is_zero() {
        let mut code = ChainEnds::new(vec![9, 12, 15], 7);
        let mut back = code.clone();
        let stacks = [3, 9, 9, 0, 10, 15, 12, 3];
        let codes: Vec<u64> = stacks.iter().map(|s| code.code(*s)).collect();
        assert_eq!(codes, [4, 0, 10, 1, 11, 16, 13, 4]);
        let read: Vec<_> = codes.into_iter().map(|c| back.stack(c)).collect();
        assert_eq!(read, stacks.map(Some));
        assert_eq!(back.stack(0), None);
        assert_eq!(back.stack(1 << 33), None);
    }
}
