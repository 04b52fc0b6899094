//! Dominators: which blocks every path from the entry passes through.
//!
//! Block `a` dominates `b` when each path from the entry to `b` contains `a`. The closest
//! strict dominator, `idom(b)`, makes a tree. It is found by the iteration of K. Cooper,
//! T. Harvey and K. Kennedy ("A Simple, Fast Dominance Algorithm", 2001): in reverse
//! post-order, `idom(b)` is the nearest common ancestor, in the tree so far, of the
//! predecessors of `b` already seen, until nothing changes. The common ancestor is found
//! by climbing from whichever of two blocks comes later in the order.
//!
//! Predecessors are met latest first: the many early exits of a long chain of blocks then
//! cost one step each, where the other direction climbs the whole chain for every one.
//!
//! Numbering the tree in preorder turns dominance into an interval test.

use super::rows::Rows;
use super::{Cfg, Order};
use crate::function::Block;
use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

/// The dominator tree.
#[derive(Clone, Debug)]
pub struct Dominators {
    idom: SecondaryMap<Block, PackedOption<Block>>,
    /// Number in preorder of the tree, and the number after the last one below; empty for
    /// unreachable blocks.
    interval: SecondaryMap<Block, (u32, u32)>,
    children: Rows<Block, Block>,
}

impl Dominators {
    /// Builds the tree of `cfg`.
    pub fn compute(cfg: &impl Cfg, order: &Order) -> Dominators {
        let idom = iterate(cfg, order);
        let interval = number(cfg, order, &idom);
        let blocks = order.reverse_postorder().iter();
        let pairs = blocks.filter_map(|&block| Some((idom[block].expand()?, block)));
        let children = Rows::from_pairs(cfg.block_count(), pairs);
        Dominators {
            idom,
            interval,
            children,
        }
    }

    /// The closest strict dominator of `block`; none for the entry and unreachable blocks.
    pub fn idom(&self, block: Block) -> Option<Block> {
        self.idom[block].expand()
    }

    /// Whether every path to `b` passes through `a`.
    ///
    /// A block dominates itself. An unreachable block is dominated by itself alone and
    /// dominates no other.
    pub fn dominates(&self, a: Block, b: Block) -> bool {
        let (first, end) = self.interval[a];
        a == b || {
            let number = self.interval[b];
            number.0 < number.1 && (first..end).contains(&number.0)
        }
    }

    /// The blocks whose closest strict dominator is `block`, in reverse post-order.
    pub fn children(&self, block: Block) -> &[Block] {
        self.children.row(block)
    }
}

type Idoms = SecondaryMap<Block, PackedOption<Block>>;

/// Repeats passes in reverse post-order until the tree stands.
fn iterate(cfg: &impl Cfg, order: &Order) -> Idoms {
    let mut idom = Idoms::new();
    idom.resize(cfg.block_count());
    let Some((&entry, rest)) = order.reverse_postorder().split_first() else {
        return idom;
    };
    // While iterating, the entry stands for its own dominator: climbing ends there.
    idom[entry] = entry.into();
    let mut preds = Vec::new();
    let mut changed = true;
    while changed {
        changed = false;
        for &block in rest {
            preds.clear();
            preds.extend(cfg.predecessors(block).filter(|&p| idom[p].is_some()));
            preds.sort_unstable_by_key(|&p| std::cmp::Reverse(order.position(p)));
            let common = preds.iter().copied();
            let new = common.reduce(|a, b| common_dominator(order, &idom, a, b));
            changed |= idom[block].expand() != new;
            idom[block] = new.into();
        }
    }
    idom[entry] = None.into();
    idom
}

fn common_dominator(order: &Order, idom: &Idoms, mut a: Block, mut b: Block) -> Block {
    while a != b {
        if order.position(a) < order.position(b) {
            std::mem::swap(&mut a, &mut b);
        }
        match idom[a].expand() {
            Some(up) => a = up,
            None => return b,
        }
    }
    a
}

/// Numbers the tree in preorder. Reverse post-order puts parents before children, so two
/// passes over it replace a walk: one adds up the sizes of subtrees, one hands out numbers.
fn number(cfg: &impl Cfg, order: &Order, idom: &Idoms) -> SecondaryMap<Block, (u32, u32)> {
    let mut size: SecondaryMap<Block, u32> = SecondaryMap::with_default(1);
    size.resize(cfg.block_count());
    for block in order.postorder() {
        if let Some(parent) = idom[block].expand() {
            size[parent] += size[block];
        }
    }
    let mut interval = SecondaryMap::new();
    interval.resize(cfg.block_count());
    let mut next: SecondaryMap<Block, u32> = SecondaryMap::new();
    next.resize(cfg.block_count());
    for &block in order.reverse_postorder() {
        let first = idom[block].expand().map_or(0, |parent| next[parent]);
        if let Some(parent) = idom[block].expand() {
            next[parent] += size[block];
        }
        next[block] = first + 1;
        interval[block] = (first, first + size[block]);
    }
    interval
}
