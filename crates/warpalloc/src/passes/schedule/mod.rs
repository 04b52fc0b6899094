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

use crate::analysis::{LiveSet, Liveness};
use crate::function::{Block, Function, Inst, Operand, Role, VReg};
use crate::target::{MAX_FILES, Target};
use cranelift_entity::EntityRef;
use heuristics::{Tie, Weights};
use region::{Cost, Meter, Node, Region, Scratch, Units};
use rustc_hash::FxHashSet;
use std::ops::Range;

/// All instructions in an order that lowers the pressure of blocks that exceed `target`'s
/// budget, in the form of [`Allocation::order`](crate::Allocation::order); none where the
/// present order is as good as any that was found.
pub fn schedule(function: &Function, target: &Target, liveness: &Liveness) -> Option<Vec<Inst>> {
    let mut scheduler = Scheduler::new(function, target);
    for block in function.blocks() {
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
    /// Units each file has.
    budget: Units,
    /// The values live where the backward walk stands, and the units they take.
    live: LiveSet,
    units: Units,
    /// The values that began or ended on the walk back over a region, in the order of the
    /// walk, and whether each was live until then, which is further down in the code.
    changes: Vec<(VReg, bool)>,
    scratch: Scratch,
    order: Vec<Inst>,
    changed: bool,
    /// How much may still be spent on searching.
    allowance: usize,
    /// Memory for searching.
    seen: FxHashSet<u64>,
}

impl<'a> Scheduler<'a> {
    fn new(function: &'a Function, target: &'a Target) -> Scheduler<'a> {
        Scheduler {
            function,
            target,
            budget: region::budget(target),
            live: LiveSet::new(function.vreg_count()),
            units: Units::default(),
            changes: Vec::new(),
            scratch: Scratch::new(function),
            order: function.insts().collect(),
            changed: false,
            allowance: search::ALLOWANCE,
            seen: FxHashSet::default(),
        }
    }

    fn block(&mut self, block: Block, liveness: &Liveness) {
        self.live.start_at_end(liveness, block);
        self.units = Units::default();
        for vreg in liveness.live_out(block) {
            let (file, width) = self.size(vreg);
            self.units[file] += width;
        }
        // The terminator is a barrier.
        let mut region = 0..0;
        let mut is_crowded = false;
        for inst in self.function.block_insts(block).rev() {
            if self.function.is_barrier(inst) {
                self.region(region, is_crowded);
                self.step_back(inst);
                self.changes.clear();
                region = inst.index()..inst.index();
                is_crowded = false;
            } else {
                is_crowded |= self.step_back(inst);
                region.start = inst.index();
            }
        }
        self.region(region, is_crowded);
        self.changes.clear();
    }

    /// Puts a region that the walk has just left in a better order, if it exceeds the budget.
    fn region(&mut self, insts: Range<usize>, is_crowded: bool) {
        if !is_crowded {
            return;
        }
        let mut region = Region::new(
            self.function,
            self.target,
            insts.clone().map(Inst::new),
            (&self.live, &self.changes),
            &mut self.scratch,
        );
        region.start = self.units;
        if let Some(order) = self.better_order(&region) {
            for (place, node) in self.order[insts].iter_mut().zip(order) {
                *place = region.nodes[node].inst;
            }
            self.changed = true;
        }
    }

    /// Moves from after `inst` to before it; whether there is any excess around it.
    fn step_back(&mut self, inst: Inst) -> bool {
        let operands = self.function.operands(inst);
        let mut after = self.units;
        for operand in operands.iter().filter(|o| o.role.writes()) {
            let (file, width) = self.size(operand.vreg);
            if self.live.remove(operand.vreg) {
                self.units[file] -= width;
                self.changes.push((operand.vreg, true));
            } else {
                after[file] += width;
            }
        }
        for operand in operands.iter().filter(|o| o.role.reads()) {
            if self.live.insert(operand.vreg) {
                let (file, width) = self.size(operand.vreg);
                self.units[file] += width;
                self.changes.push((operand.vreg, false));
            }
        }
        let mut before = self.units;
        let is_early = |o: &&Operand| o.role == Role::EarlyDef;
        for operand in operands.iter().filter(is_early) {
            let (file, width) = self.size(operand.vreg);
            before[file] += width;
        }
        let exceeds = |file: usize| before[file].max(after[file]) > self.budget[file];
        (0..MAX_FILES).any(exceeds)
    }

    /// The position of a value's file, and its width.
    fn size(&self, vreg: VReg) -> (usize, i32) {
        let class = self.target.class(self.function.vreg(vreg).class);
        (class.file.index(), class.width as i32)
    }

    /// An order of `region` with less excess than the source order, the best one found.
    fn better_order(&mut self, region: &Region) -> Option<Vec<Node>> {
        let source: Vec<Node> = region.nodes.keys().collect();
        let mut meter = Meter::new(region);
        let mut present = Cost::default();
        let mut short = [false; MAX_FILES];
        for &node in &source {
            present.count(meter.run(node), 0);
            for (file, short) in short.iter_mut().enumerate() {
                *short |= meter.units[file] > region.budget[file];
            }
        }
        // No order avoids the excess before the first instruction and after the last, so that
        // none is better than one with no more.
        let [start, end] = [&region.start, &meter.units].map(|units| region.excess(units));
        if present.excess <= start.max(end) {
            return None;
        }
        let weights = Weights::new(region, &short);
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
        let bounds = start.max(end)..best.0.excess;
        let found = search::best_order(region, bounds, &mut self.allowance, &mut self.seen);
        found.or((best.0.excess < present.excess).then_some(best.1))
    }
}
