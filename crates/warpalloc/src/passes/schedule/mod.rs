//! An order of instructions that needs fewer registers.
//!
//! Where pressure exceeds a file, a value must be spilled, unless the instructions can run
//! in an order in which fewer values are live. This pass looks for one, block by block,
//! before registers are chosen, and leaves every block alone that fits as it is: the source
//! order usually hides latency well, and nothing is gained by leaving it.
//!
//! *What may move.* Each input reads the same definition as before. Writes of state stay
//! in order among each other and with reads of state that they may alias; so do accesses to values that the
//! hardware fills in the background. An instruction that clobbers registers is a barrier,
//! because moving a value's definition or last use across it changes which values survive
//! it; so is one with an operand in a fixed register, because code moved above it could be
//! given that register while it holds a value. The terminator stays last.
//!
//! *Which order is best.* The one with the least excess, then with the fewest instructions
//! at which there is any, then the one nearest to the source. Small regions are searched
//! to the end, so there an order within the budget is found whenever one exists, unless
//! the function has so many of them that its allowance of searching runs out. Larger ones
//! take the best of several heuristics, and of a bounded search where that is affordable;
//! finding the best order is NP-complete (R. Sethi, "Complete Register
//! Allocation Problems", 1975).

mod heuristics;
mod region;
mod search;
#[cfg(test)]
mod tests;

use crate::analysis::{LiveSet, Liveness, Pressure};
use crate::function::{Block, Function, Inst, VReg};
use crate::target::Target;
use cranelift_entity::EntityRef;
use heuristics::{Tie, Weights};
use region::{Cost, Meter, Node, Region, Scratch, Units};
use smallvec::SmallVec;
use std::ops::Range;

/// All instructions in an order that lowers the pressure of blocks that exceed `target`'s
/// budget, in the form of [`Allocation::order`](crate::Allocation::order); none where the
/// present order is as good as any that was found.
pub fn schedule(function: &Function, target: &Target, liveness: &Liveness) -> Option<Vec<Inst>> {
    let pressure = Pressure::compute(function, target, liveness);
    let is_crowded = |block: &Block| {
        let mut files = target.files();
        files.any(|(file, info)| pressure.block_max(*block, file) > info.capacity)
    };
    let mut scheduler = Scheduler {
        function,
        target,
        live: LiveSet::new(function.vreg_count()),
        units: Units::new(),
        scratch: Scratch::new(function),
        order: function.insts().collect(),
        changed: false,
        allowance: search::ALLOWANCE,
    };
    for block in function.blocks().filter(is_crowded) {
        scheduler.block(block, liveness);
    }
    scheduler.changed.then_some(scheduler.order)
}

/// Counts a step of work, so that tests can see how work grows with the code.
#[inline]
fn count_step() {
    #[cfg(test)]
    tests::STEPS.set(tests::STEPS.get() + 1);
}

struct Scheduler<'a> {
    function: &'a Function,
    target: &'a Target,
    /// The values live where the backward walk stands, and the units they take.
    live: LiveSet,
    units: Units,
    scratch: Scratch,
    order: Vec<Inst>,
    changed: bool,
    /// How much may still be spent on searching.
    allowance: usize,
}

impl Scheduler<'_> {
    fn block(&mut self, block: Block, liveness: &Liveness) {
        self.live.start_at_end(liveness, block);
        self.units = SmallVec::from_elem(0, self.target.files().len());
        for vreg in liveness.live_out(block) {
            self.count(vreg, 1);
        }
        let insts = self.function.block_insts(block).rev();
        let walls: Vec<Inst> = insts.filter(|&i| self.function.is_barrier(i)).collect();
        for (position, &wall) in walls.iter().enumerate() {
            self.step_back(wall);
            let first = match walls.get(position + 1) {
                Some(previous) => previous.index() + 1,
                None => {
                    let mut insts = self.function.block_insts(block);
                    insts.next().map_or(wall.index(), |inst| inst.index())
                }
            };
            self.region(first..wall.index());
        }
    }

    /// Walks back over a region of instructions and puts them in a better order.
    fn region(&mut self, insts: Range<usize>) {
        let of_region = insts.clone().map(Inst::new);
        let mut region = Region::new(
            self.function,
            self.target,
            of_region.clone(),
            &self.live,
            &mut self.scratch,
        );
        of_region.rev().for_each(|inst| self.step_back(inst));
        region.start.clone_from(&self.units);
        if let Some(order) = better_order(&region, &mut self.allowance) {
            for (place, node) in self.order[insts].iter_mut().zip(order) {
                *place = region.nodes[node].inst;
            }
            self.changed = true;
        }
    }

    fn step_back(&mut self, inst: Inst) {
        let operands = self.function.operands(inst);
        for operand in operands.iter().filter(|o| o.role.writes()) {
            if self.live.remove(operand.vreg) {
                self.count(operand.vreg, -1);
            }
        }
        for operand in operands.iter().filter(|o| o.role.reads()) {
            if self.live.insert(operand.vreg) {
                self.count(operand.vreg, 1);
            }
        }
    }

    fn count(&mut self, vreg: VReg, sign: i32) {
        let class = self.target.class(self.function.vreg(vreg).class);
        self.units[class.file.index()] += sign * class.width as i32;
    }
}

/// An order of `region` with less excess than the source order, the best one found.
fn better_order(region: &Region, allowance: &mut usize) -> Option<Vec<Node>> {
    let source: Vec<Node> = region.nodes.keys().collect();
    let present = Cost::of(region, &source);
    if present.excess == 0 {
        return None;
    }
    let weights = Weights::new(region, &short_files(region, &source));
    let mut best = (present, source);
    let mut offer = |order: Vec<Node>| {
        if let Some(cost) = Cost::below(region, &order, best.0) {
            best = (cost, order);
        }
    };
    for tie in [Tie::Source, Tie::Newest] {
        offer(heuristics::forwards(region, &weights, tie));
        offer(heuristics::backwards(region, &weights, tie));
    }
    offer(heuristics::depth_first(region, &weights));
    if let Some(order) = search::best_order(region, best.0.excess, allowance) {
        best = (Cost::of(region, &order), order);
    }
    (best.0.excess < present.excess).then_some(best.1)
}

/// Which files lack units somewhere in `order`.
fn short_files(region: &Region, order: &[Node]) -> Vec<bool> {
    let mut short = vec![false; region.budget.len()];
    let mut meter = Meter::new(region);
    for &node in order {
        meter.run(node);
        for (file, short) in short.iter_mut().enumerate() {
            *short |= meter.units[file] > region.budget[file];
        }
    }
    short
}
