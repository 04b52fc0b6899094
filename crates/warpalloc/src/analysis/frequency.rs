//! How often each block runs for one run of the function.
//!
//! A frequency the client gives for a block is taken as it is; blocks without one get a
//! static estimate, so a client with a profile gives one for every block. The estimate
//! follows Y. Wu and J. Larus ("Static Branch Frequency and Program Profile Analysis",
//! MICRO 1994): heuristics give each edge a probability, and frequencies are the flow
//! these probabilities make of one unit at the entry.
//!
//! **Probabilities.** Where a branch may stay in its innermost loop or leave it, staying
//! takes 90 %; with the usual single exit a loop body thus runs ten times. Among the
//! edges of either kind, those to a block that ends the function share 1 %. What is left
//! divides evenly. These are the figures reported for NVIDIA's `cicc` (back edges 90 %
//! taken, returns 1 %, other branches even); its tenfold weight for called blocks speaks
//! of other functions and has no place here. The factor `1.5^depth` of its spill cost is
//! not part of the frequency either: it multiplies the cost on top of it.
//!
//! **Flow.** Loops are solved from the inside out. With inner loops collapsed into single
//! nodes, a loop body is acyclic in reverse post-order ([`Loops`]), so one pass carries
//! one unit from the header to the back edges and exits. A header then runs
//! `1 / exit flow` times per entry, and the collapsed loop passes on what enters it in
//! the proportion of its exit flows. A second pass, from the outside in, scales every
//! body by its header. Each edge is handled once per loop it leaves.
//!
//! Edges that enter an irreducible loop beside its header count as entering at the header;
//! a loop without an exit runs ten times. Apart from these two cases, and from the cap of
//! 10⁹, flow is conserved: a block runs as often as its incoming edges together.

use super::rows::Rows;
use super::{Cfg, Loop, Loops, Order};
use crate::function::Block;
use cranelift_entity::{EntityRef, SecondaryMap};

/// Probability of staying in a loop where a branch may leave it.
const STAY: f64 = 0.9;
/// Probability of ending the function where a branch may go on.
const FINISH: f64 = 0.01;
/// How often a loop without an exit runs.
const ENDLESS: f64 = 10.0;
/// No block runs more often than this.
const CAP: f64 = 1e9;

/// Frequencies of blocks and edges, the entry running once.
#[derive(Clone, Debug)]
pub struct Frequencies {
    blocks: SecondaryMap<Block, f64>,
    probabilities: Rows<Block, f64>,
}

impl Frequencies {
    /// Estimates the frequencies of `cfg`, except where the client supplied them.
    pub fn compute(cfg: &impl Cfg, order: &Order, loops: &Loops) -> Frequencies {
        let probabilities = branch_probabilities(cfg, loops);
        let mut blocks = Flow::new(cfg, order, loops, &probabilities).solve();
        for block in cfg.all_blocks() {
            if let Some(known) = cfg.supplied_frequency(block) {
                blocks[block] = f64::from(known);
            }
        }
        Frequencies {
            blocks,
            probabilities,
        }
    }

    /// Takes in blocks from `first` on, each of which was put on an edge since.
    pub(crate) fn add_blocks_on_edges(&mut self, cfg: &impl Cfg, first: Block) {
        for block in cfg.all_blocks().skip(first.index()) {
            let frequency = cfg.predecessors(block).next().map_or(0.0, |from| {
                let edge = cfg.successors(from).position(|to| to == block);
                edge.map_or(0.0, |edge| self.edge(from, edge))
            });
            self.blocks[block] = frequency;
            self.probabilities.push(&[1.0]);
        }
    }

    /// How often `block` runs; never, if it is unreachable.
    pub fn block(&self, block: Block) -> f64 {
        self.blocks[block]
    }

    /// How often control takes the edge of `block` at position `succ`.
    pub fn edge(&self, block: Block, succ: usize) -> f64 {
        self.blocks[block] * self.probability(block, succ)
    }

    /// How likely `block` goes on along the edge at position `succ`.
    pub fn probability(&self, block: Block, succ: usize) -> f64 {
        let row = self.probabilities.row(block);
        row.get(succ).copied().unwrap_or(0.0)
    }
}

/// The probability of every edge, block after block.
fn branch_probabilities(cfg: &impl Cfg, loops: &Loops) -> Rows<Block, f64> {
    let mut pairs = Vec::new();
    let mut kinds = Vec::new();
    for block in cfg.all_blocks() {
        let mut succs = cfg.successors(block);
        if succs.next().is_some() && succs.next().is_none() {
            pairs.push((block, 1.0));
            continue;
        }
        kinds.clear();
        kinds.extend(cfg.successors(block).map(|succ| EdgeKind {
            leaves: loops.leaves_loop(block, succ),
            finishes: cfg.successors(succ).next().is_none(),
        }));
        pairs.extend(kinds.iter().map(|&kind| (block, share(&kinds, kind))));
    }
    Rows::from_pairs(cfg.block_count(), pairs.iter().copied())
}

/// What the heuristics look at.
#[derive(Clone, Copy, PartialEq)]
struct EdgeKind {
    leaves: bool,
    finishes: bool,
}

/// The share of one edge of `kind` among all edges of its block: first between staying and
/// leaving, then between going on and finishing, then evenly.
fn share(kinds: &[EdgeKind], kind: EdgeKind) -> f64 {
    let alike = || kinds.iter().filter(|k| k.leaves == kind.leaves);
    let same = alike().filter(|k| k.finishes == kind.finishes).count();
    let mut share = 1.0 / same as f64;
    if alike().count() < kinds.len() {
        share *= if kind.leaves { 1.0 - STAY } else { STAY };
    }
    if same < alike().count() {
        share *= if kind.finishes { FINISH } else { 1.0 - FINISH };
    }
    share
}

/// The flow through the graph. `None` stands for the whole function, the outermost region.
struct Flow<'a, C> {
    cfg: &'a C,
    order: &'a Order,
    loops: &'a Loops,
    probabilities: &'a Rows<Block, f64>,
    /// What reaches each block for one unit at the header of its innermost loop; for a
    /// header, for one unit at the header of the loop around its own.
    mass: SecondaryMap<Block, f64>,
    /// How often each loop's header runs per entry of the loop.
    trips: SecondaryMap<Loop, f64>,
    /// Where each loop's exits lead, with their share of what enters.
    exits: SecondaryMap<Loop, Vec<(Block, f64)>>,
}

impl<'a, C: Cfg> Flow<'a, C> {
    fn new(
        cfg: &'a C,
        order: &'a Order,
        loops: &'a Loops,
        probabilities: &'a Rows<Block, f64>,
    ) -> Flow<'a, C> {
        let mut mass = SecondaryMap::new();
        mass.resize(cfg.block_count());
        let mut trips = SecondaryMap::with_default(1.0);
        trips.resize(loops.loop_count());
        let mut exits = SecondaryMap::new();
        exits.resize(loops.loop_count());
        Flow {
            cfg,
            order,
            loops,
            probabilities,
            mass,
            trips,
            exits,
        }
    }

    fn solve(mut self) -> SecondaryMap<Block, f64> {
        let members = self.members();
        if let Some(&entry) = self.order.reverse_postorder().first() {
            self.mass[entry] = 1.0;
        }
        for (l, _) in self.loops.loops().rev() {
            self.solve_region(Some(l), members.row(region_key(Some(l))));
        }
        self.solve_region(None, members.row(region_key(None)));
        self.unfold()
    }

    /// The nodes of each region in reverse post-order: its own blocks, and for each loop
    /// directly inside it, the header.
    fn members(&self) -> Rows<Loop, Block> {
        let mut pairs = Vec::new();
        for &block in self.order.reverse_postorder() {
            let own = self.loops.innermost(block);
            pairs.push((region_key(own), block));
            if let Some(l) = own.filter(|_| self.loops.is_header(block)) {
                pairs.push((region_key(self.loops.info(l).parent), block));
            }
        }
        Rows::from_pairs(self.loops.loop_count() + 1, pairs.iter().copied())
    }

    /// Carries one unit from the header of `region` through its nodes.
    fn solve_region(&mut self, region: Option<Loop>, members: &[Block]) {
        let mut exits = Vec::new();
        for &node in members {
            // One unit starts at the header. What `mass` keeps there is what reaches the
            // loop from around it.
            let own = self.loops.innermost(node) == region;
            let mass = match own && self.loops.is_header(node) {
                true => 1.0,
                false => self.mass[node],
            };
            let collapsed = self.loops.innermost(node).filter(|_| !own);
            if let Some(l) = collapsed {
                for (to, share) in std::mem::take(&mut self.exits[l]) {
                    self.send(region, to, mass * share, &mut exits);
                }
            } else {
                let shares = self.probabilities.row(node);
                for (to, share) in self.cfg.successors(node).zip(shares) {
                    self.send(region, to, mass * share, &mut exits);
                }
            }
        }
        if let Some(l) = region {
            self.close(l, exits);
        }
    }

    /// Adds flow to the node of `region` that stands for `to`, or to the region's exits.
    /// What returns to the header is left to the trips.
    fn send(&mut self, region: Option<Loop>, to: Block, flow: f64, exits: &mut Vec<(Block, f64)>) {
        match self.node_in(region, to) {
            Some(node) if region.is_some_and(|l| self.loops.info(l).header == node) => {}
            Some(node) => self.mass[node] += flow,
            None => exits.push((to, flow)),
        }
    }

    /// The node of `region` that stands for `block`: itself, or the header of the loop
    /// directly inside `region` that holds it.
    fn node_in(&self, region: Option<Loop>, block: Block) -> Option<Block> {
        let mut node = block;
        for l in self.loops.around(block) {
            if Some(l) == region {
                return Some(node);
            }
            node = self.loops.info(l).header;
        }
        region.is_none().then_some(node)
    }

    /// Turns the exit flow of a solved loop into trips and shares.
    fn close(&mut self, l: Loop, mut exits: Vec<(Block, f64)>) {
        let flow: f64 = exits.iter().map(|&(_, flow)| flow).sum();
        let trips = match flow > 0.0 {
            true => (1.0 / flow).clamp(1.0, CAP),
            false => ENDLESS,
        };
        for (_, share) in &mut exits {
            *share /= flow;
        }
        self.trips[l] = trips;
        self.exits[l] = exits;
    }

    /// Multiplies the loops out, headers before bodies.
    fn unfold(self) -> SecondaryMap<Block, f64> {
        let mut frequency = SecondaryMap::new();
        frequency.resize(self.cfg.block_count());
        let scale = |frequency: &SecondaryMap<Block, f64>, region: Option<Loop>| {
            region.map_or(1.0, |l| frequency[self.loops.info(l).header])
        };
        for (l, info) in self.loops.loops() {
            let entered = scale(&frequency, info.parent) * self.mass[info.header];
            frequency[info.header] = (entered * self.trips[l]).min(CAP);
        }
        for &block in self.order.reverse_postorder() {
            if !self.loops.is_header(block) {
                let around = scale(&frequency, self.loops.innermost(block));
                frequency[block] = (around * self.mass[block]).min(CAP);
            }
        }
        frequency
    }
}

/// Regions as keys: the function first, then the loops.
fn region_key(region: Option<Loop>) -> Loop {
    Loop::new(region.map_or(0, |l| l.index() + 1))
}
