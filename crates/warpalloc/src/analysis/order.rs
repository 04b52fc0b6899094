//! Depth-first order of the blocks.
//!
//! One depth-first search from the entry gives three numberings: *preorder* (when a block
//! is found), *post-order* (when all that is reached from it is done) and its reverse,
//! in which every block comes before its successors, back edges aside: the order in which
//! forward problems settle soonest, as post-order is for backward ones. Preorder numbers
//! with the size of each subtree of the search tell ancestors apart in constant time,
//! which is what loop recognition needs (R. Tarjan, "Testing flow graph reducibility",
//! 1974).
//!
//! The search keeps its own stack, so that depth is bounded by memory alone.

use super::Cfg;
use crate::function::Block;
use cranelift_entity::SecondaryMap;

const UNREACHED: u32 = u32::MAX;

/// The blocks in depth-first order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Reachable blocks in reverse post-order, then the others by number.
    blocks: Vec<Block>,
    reachable: usize,
    position: SecondaryMap<Block, u32>,
    preorder: Vec<Block>,
    /// Number in preorder, and the last number among those found below the block.
    found: SecondaryMap<Block, (u32, u32)>,
}

impl Order {
    /// Searches `cfg` from its entry.
    pub fn compute(cfg: &impl Cfg) -> Order {
        let count = cfg.block_count();
        let mut found = SecondaryMap::with_default((UNREACHED, UNREACHED));
        found.resize(count);
        let mut preorder = Vec::with_capacity(count);
        let mut blocks = Vec::with_capacity(count);
        let mut stack = Vec::new();
        if count > 0 {
            found[cfg.entry()].0 = 0;
            preorder.push(cfg.entry());
            stack.push((cfg.entry(), cfg.successors(cfg.entry())));
        }
        while let Some((block, rest)) = stack.last_mut() {
            match rest.find(|&succ| found[succ].0 == UNREACHED) {
                Some(succ) => {
                    found[succ].0 = preorder.len() as u32;
                    preorder.push(succ);
                    stack.push((succ, cfg.successors(succ)));
                }
                None => {
                    found[*block].1 = preorder.len() as u32 - 1;
                    blocks.push(*block);
                    stack.pop();
                }
            }
        }
        blocks.reverse();
        let reachable = blocks.len();
        blocks.extend(cfg.all_blocks().filter(|&b| found[b].0 == UNREACHED));
        let mut position = SecondaryMap::with_default(UNREACHED);
        position.resize(count);
        for (index, &block) in blocks.iter().enumerate() {
            position[block] = index as u32;
        }
        Order {
            blocks,
            reachable,
            position,
            preorder,
            found,
        }
    }

    /// Reachable blocks in reverse post-order.
    pub fn reverse_postorder(&self) -> &[Block] {
        &self.blocks[..self.reachable]
    }

    /// Reachable blocks in post-order.
    pub fn postorder(&self) -> impl ExactSizeIterator<Item = Block> + '_ {
        self.reverse_postorder().iter().rev().copied()
    }

    /// Reachable blocks in the order the search found them.
    pub fn preorder(&self) -> &[Block] {
        &self.preorder
    }

    /// Every block: those reachable in reverse post-order, then the others by number.
    pub fn all(&self) -> &[Block] {
        &self.blocks
    }

    /// Where `block` stands in [`Order::all`].
    pub fn position(&self, block: Block) -> usize {
        self.position[block] as usize
    }

    /// Whether some path from the entry leads to `block`.
    pub fn is_reachable(&self, block: Block) -> bool {
        self.found[block].0 != UNREACHED
    }

    /// Where a reachable `block` stands in [`Order::preorder`].
    pub(super) fn found_at(&self, block: Block) -> usize {
        self.found[block].0 as usize
    }

    /// Whether `below` was found by way of `above`, or is the same. Both are reachable.
    pub(super) fn is_ancestor(&self, above: Block, below: Block) -> bool {
        let (first, last) = self.found[above];
        (first..=last).contains(&self.found[below].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code without blocks.
    struct Nothing;

    impl Cfg for Nothing {
        fn block_count(&self) -> usize {
            0
        }

        fn successors(&self, _: Block) -> impl Iterator<Item = Block> + '_ {
            std::iter::empty()
        }

        fn predecessors(&self, _: Block) -> impl Iterator<Item = Block> + '_ {
            std::iter::empty()
        }
    }

    #[test]
    fn code_without_blocks_has_no_first() {
        let order = Order::compute(&Nothing);
        assert!(order.all().is_empty() && order.preorder().is_empty());
    }
}
