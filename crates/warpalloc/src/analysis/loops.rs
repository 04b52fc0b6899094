//! The loop forest, irreducible loops included.
//!
//! A loop is what a back edge of the depth-first search closes: its *header* is the block
//! the edge leads to, its body the blocks from which the header is reached again without
//! leaving the header's part of the search tree. R. Tarjan ("Testing flow graph
//! reducibility", 1974) finds them from the inside out, a union-find collapsing each loop
//! into its header once it is known; P. Havlak ("Nesting of Reducible and Irreducible
//! Loops", 1997) lets a body be entered elsewhere than at its header and marks the loop
//! irreducible instead of giving up. For a reducible graph the result is the forest of
//! natural loops. For an irreducible one it is a forest still, though which entry becomes
//! the header depends on the search.
//!
//! Every retreating edge of the search leads to the header of a loop that contains it, so
//! once inner loops are collapsed each loop body is acyclic in reverse post-order;
//! frequency estimation relies on that.

use super::{Cfg, Order};
use crate::function::Block;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;

/// A loop; an outer loop has a lower number than those inside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Loop(u32);
entity_impl!(Loop, "loop");

/// Description of one loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopInfo {
    /// The block its back edges lead to.
    pub header: Block,
    /// The loop around it.
    pub parent: Option<Loop>,
    /// How many loops it is in, itself included.
    pub depth: u32,
    /// Whether it can be entered elsewhere than at its header.
    pub irreducible: bool,
}

/// The loops of a graph and how they nest.
#[derive(Clone, Debug)]
pub struct Loops {
    loops: PrimaryMap<Loop, LoopInfo>,
    innermost: SecondaryMap<Block, PackedOption<Loop>>,
}

impl Loops {
    /// Finds the loops of `cfg`.
    pub fn compute(cfg: &impl Cfg, order: &Order) -> Loops {
        let mut nest = Nest::new(cfg, order);
        for at in (0..order.preorder().len()).rev() {
            nest.close_loop(at);
        }
        nest.finish(cfg.block_count())
    }

    /// Takes in blocks from `first` on, each of which was put on an edge since. A loop that
    /// has both ends of an edge has its middle.
    pub(crate) fn add_blocks_on_edges(&mut self, cfg: &impl Cfg, first: Block) {
        for block in cfg.all_blocks().skip(first.index()) {
            let ends = cfg
                .predecessors(block)
                .next()
                .zip(cfg.successors(block).next());
            let both = ends.and_then(|(from, to)| {
                let mut around = self.around(to);
                around.find(|&l| self.contains(l, from))
            });
            self.innermost[block] = both.into();
        }
    }

    /// All loops, outer before inner.
    pub fn loops(&self) -> impl DoubleEndedIterator<Item = (Loop, &LoopInfo)> + ExactSizeIterator {
        self.loops.iter()
    }

    /// How many loops there are.
    pub fn loop_count(&self) -> usize {
        self.loops.len()
    }

    /// The description of `l`.
    pub fn info(&self, l: Loop) -> &LoopInfo {
        &self.loops[l]
    }

    /// The innermost loop that contains `block`.
    pub fn innermost(&self, block: Block) -> Option<Loop> {
        self.innermost[block].expand()
    }

    /// How many loops contain `block`.
    pub fn depth(&self, block: Block) -> u32 {
        self.innermost(block).map_or(0, |l| self.loops[l].depth)
    }

    /// Whether `block` is the header of a loop.
    pub fn is_header(&self, block: Block) -> bool {
        self.innermost(block)
            .is_some_and(|l| self.loops[l].header == block)
    }

    /// Whether `l` can be entered elsewhere than at its header.
    pub fn is_irreducible(&self, l: Loop) -> bool {
        self.loops[l].irreducible
    }

    /// The loops that contain `block`, innermost first.
    pub fn around(&self, block: Block) -> impl Iterator<Item = Loop> + '_ {
        std::iter::successors(self.innermost(block), |&l| self.loops[l].parent)
    }

    /// Whether `block` belongs to `l`, inner loops included. Costs the nesting depth.
    pub fn contains(&self, l: Loop, block: Block) -> bool {
        // Outer loops have lower numbers: nothing below `l` in number can be `l`.
        self.around(block)
            .take_while(|&inner| inner >= l)
            .any(|inner| inner == l)
    }

    /// Whether the edge from `from` to `to` leaves a loop.
    pub fn leaves_loop(&self, from: Block, to: Block) -> bool {
        self.innermost(from).is_some_and(|l| !self.contains(l, to))
    }
}

/// Where edges come from; few blocks have more than two.
type Sources = SmallVec<[u32; 2]>;

/// The forest under construction. Blocks go by their preorder numbers.
struct Nest<'a> {
    order: &'a Order,
    /// Sources of retreating edges to each block.
    back: Vec<Sources>,
    /// Sources of the other edges, each kept at the header its target was collapsed into.
    forward: Vec<Sources>,
    /// Union-find: the header of the outermost loop closed so far around each block.
    outermost: Vec<u32>,
    /// Header of the innermost loop strictly around each block.
    header: Vec<Option<u32>>,
    /// `Some(irreducible)` for loop headers.
    kind: Vec<Option<bool>>,
    /// Which header last put this block into its body, or among its foreign entries.
    seen: Vec<u32>,
}

impl Nest<'_> {
    fn new<'a>(cfg: &impl Cfg, order: &'a Order) -> Nest<'a> {
        let count = order.preorder().len();
        let mut back = vec![Sources::new(); count];
        let mut forward = vec![Sources::new(); count];
        for (at, &block) in order.preorder().iter().enumerate() {
            for pred in cfg.predecessors(block).filter(|&p| order.is_reachable(p)) {
                let list = match order.is_ancestor(block, pred) {
                    true => &mut back,
                    false => &mut forward,
                };
                list[at].push(order.found_at(pred) as u32);
            }
        }
        Nest {
            order,
            back,
            forward,
            outermost: (0..count as u32).collect(),
            header: vec![None; count],
            kind: vec![None; count],
            seen: vec![u32::MAX; count],
        }
    }

    /// Finds the body of the loop with header `at`, if it is one, and collapses it.
    fn close_loop(&mut self, at: usize) {
        let back = std::mem::take(&mut self.back[at]);
        if back.is_empty() {
            return;
        }
        let header = at as u32;
        let mut irreducible = false;
        self.seen[at] = header;
        let mut body = Vec::new();
        for from in back {
            self.add_to(&mut body, header, from);
        }
        let mut next = 0;
        while let Some(&member) = body.get(next) {
            next += 1;
            for from in std::mem::take(&mut self.forward[member as usize]) {
                let from = self.find(from);
                if self.is_below(header, from) {
                    self.add_to(&mut body, header, from);
                } else {
                    irreducible = true;
                    if self.seen[from as usize] != header {
                        self.seen[from as usize] = header;
                        self.forward[at].push(from);
                    }
                }
            }
        }
        for member in body {
            self.header[member as usize] = Some(header);
            self.outermost[member as usize] = header;
        }
        self.kind[at] = Some(irreducible);
    }

    fn add_to(&mut self, body: &mut Vec<u32>, header: u32, block: u32) {
        let block = self.find(block);
        if self.seen[block as usize] != header {
            self.seen[block as usize] = header;
            body.push(block);
        }
    }

    fn is_below(&self, above: u32, below: u32) -> bool {
        let at = |number: u32| self.order.preorder()[number as usize];
        self.order.is_ancestor(at(above), at(below))
    }

    /// Climbs to the representative, halving the path on the way.
    fn find(&mut self, mut block: u32) -> u32 {
        while self.outermost[block as usize] != block {
            let up = self.outermost[block as usize];
            self.outermost[block as usize] = self.outermost[up as usize];
            block = up;
        }
        block
    }

    /// Numbers the loops; a header precedes its body in preorder, so parents come first.
    fn finish(self, block_count: usize) -> Loops {
        let mut loops: PrimaryMap<Loop, LoopInfo> = PrimaryMap::new();
        let mut innermost: SecondaryMap<Block, PackedOption<Loop>> = SecondaryMap::new();
        innermost.resize(block_count);
        for (at, &block) in self.order.preorder().iter().enumerate() {
            let around =
                self.header[at].and_then(|h| innermost[self.order.preorder()[h as usize]].expand());
            let own = self.kind[at].map(|irreducible| {
                loops.push(LoopInfo {
                    header: block,
                    parent: around,
                    depth: around.map_or(0, |l| loops[l].depth) + 1,
                    irreducible,
                })
            });
            innermost[block] = own.or(around).into();
        }
        Loops { loops, innermost }
    }
}
