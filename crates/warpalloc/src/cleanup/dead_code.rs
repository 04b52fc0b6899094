//! Dead code: steps whose results have no reader.
//!
//! A location is *needed* at a point when some path from there reads it, before writing
//! it, in a step that stays. A step stays if it does more than fill locations, or fills
//! one that is needed. Starting from nothing needed and adding what staying steps read,
//! the least solution also drops cycles that only feed themselves, such as a counter
//! without other readers.

use super::CleanupCounts;
use super::code::{Code, Step};
use crate::allocation::Edit;
use crate::function::{Block, Convention, Inst, Kind};
use cranelift_entity::EntityRef;
use fixedbitset::FixedBitSet;

/// Removes dead steps from `code`.
pub(super) fn run(code: &mut Code, counts: &mut CleanupCounts) {
    let needs = Needs::solve(code, Dead::Goes);
    for index in needs.has_dead.ones() {
        let block = Block::new(index);
        let mut needed = FixedBitSet::with_capacity(code.location_count());
        for succ in 0..code.edges[index].len() {
            let target = code.function.succs(block)[succ].block;
            let mut on_edge = needs.at_start[target.index()].clone();
            let steps = std::mem::take(&mut code.edges[index][succ]);
            code.edges[index][succ] = needs.sweep(code, steps, &mut on_edge, counts);
            needed.union_with(&on_edge);
        }
        let steps = std::mem::take(&mut code.blocks[index]);
        code.blocks[index] = needs.sweep(code, steps, &mut needed, counts);
    }
}

/// Locations needed at the start of each block.
pub(crate) struct Needs {
    at_start: Vec<FixedBitSet>,
    /// Blocks that have dead steps, or exchanges, themselves or on their edges.
    has_dead: FixedBitSet,
    /// Units of callee-saved registers.
    preserved: Vec<u32>,
    dead: Dead,
}

/// What becomes of steps whose results have no reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dead {
    /// They go, and need nothing.
    Goes,
    /// They stay, and what they read is needed.
    Stays,
}

impl Needs {
    pub(crate) fn solve(code: &Code, dead: Dead) -> Needs {
        let function = code.function;
        let preserved = match function.convention() {
            Convention::Kernel => Vec::new(),
            Convention::Device => {
                let units = code.target.preserved();
                units.iter().map(|unit| unit.index() as u32).collect()
            }
        };
        let nothing = FixedBitSet::with_capacity(code.location_count());
        let (mut needed, mut on_edge) = (nothing.clone(), nothing.clone());
        let mut needs = Needs {
            at_start: vec![nothing; code.blocks.len()],
            has_dead: FixedBitSet::with_capacity(code.blocks.len()),
            preserved,
            dead,
        };
        let mut queued = vec![true; code.blocks.len()];
        let mut worklist: Vec<Block> = function.blocks().collect();
        while let Some(block) = worklist.pop() {
            queued[block.index()] = false;
            let all_stay = needs.before(code, block, &mut needed, &mut on_edge);
            // The last time a block is looked at, what is needed after it is known.
            needs.has_dead.set(block.index(), !all_stay);
            if needed == needs.at_start[block.index()] {
                continue;
            }
            std::mem::swap(&mut needs.at_start[block.index()], &mut needed);
            for &pred in function.preds(block) {
                if !std::mem::replace(&mut queued[pred.index()], true) {
                    worklist.push(pred);
                }
            }
        }
        needs
    }

    /// Locations needed at the start of `block`.
    pub(crate) fn at_start(&self, block: Block) -> &FixedBitSet {
        &self.at_start[block.index()]
    }

    /// Finds the locations `needed` at the start of `block`, by way of those `on_edge`; whether
    /// every step stays as it is.
    fn before(
        &self,
        code: &Code,
        block: Block,
        needed: &mut FixedBitSet,
        on_edge: &mut FixedBitSet,
    ) -> bool {
        let mut all_stay = true;
        needed.clear();
        for (edge, steps) in code
            .function
            .succs(block)
            .iter()
            .zip(&code.edges[block.index()])
        {
            on_edge.clear();
            on_edge.union_with(&self.at_start[edge.block.index()]);
            for step in steps.iter().rev() {
                all_stay &= self.step_back(code, step, on_edge) && !is_swap(step);
            }
            needed.union_with(on_edge);
        }
        for step in code.blocks[block.index()].iter().rev() {
            all_stay &= self.step_back(code, step, needed) && !is_swap(step);
        }
        all_stay
    }

    /// Moves from after `step` to before it; whether it stays.
    pub(crate) fn step_back(&self, code: &Code, step: &Step, needed: &mut FixedBitSet) -> bool {
        let edit = match step {
            Step::Inst(inst) => return self.instruction_back(code, *inst, needed),
            Step::Edit(_, Edit::Swap { a, b, width }) => {
                return swap_back(code, needed, (*a, *b, *width as usize));
            }
            Step::Edit(_, edit) => edit,
        };
        let (reads, writes) = code.edit_access(edit);
        let is_needed = writes.iter().any(|&w| needed.contains(w as usize));
        if !is_needed && self.dead == Dead::Goes {
            return false;
        }
        writes.iter().for_each(|&w| needed.set(w as usize, false));
        reads.iter().for_each(|&r| needed.insert(r as usize));
        true
    }

    fn instruction_back(&self, code: &Code, inst: Inst, needed: &mut FixedBitSet) -> bool {
        let function = code.function;
        let row = function.operand_range(inst);
        let operands = || {
            let registers = &code.registers[row.clone()];
            function.operands(inst).iter().zip(registers)
        };
        let mut is_needed = false;
        for (operand, &reg) in operands().filter(|(o, _)| o.role.writes()) {
            for unit in code.operand_units(operand, reg) {
                if needed.contains(unit) {
                    is_needed = true;
                    needed.set(unit, false);
                }
            }
        }
        if !is_needed && self.dead == Dead::Goes && code.only_computes(inst) {
            return false;
        }
        // What it clobbers is needed by nothing: right code reads no register that holds no value.
        if !self.preserved.is_empty() && function.inst(inst).kind == Kind::Return {
            needed.extend(self.preserved.iter().map(|&u| u as usize));
        }
        for (operand, &reg) in operands().filter(|(o, _)| o.role.reads()) {
            for unit in code.operand_units(operand, reg) {
                needed.insert(unit);
            }
        }
        true
    }

    /// The steps that stay, in order.
    fn sweep(
        &self,
        code: &mut Code,
        mut steps: Vec<Step>,
        needed: &mut FixedBitSet,
        counts: &mut CleanupCounts,
    ) -> Vec<Step> {
        steps.reverse();
        let kept = steps.into_iter().filter_map(|step| {
            let step = half_of_swap(code, step, needed, counts);
            if self.step_back(code, &step, needed) {
                return Some(step);
            }
            match step {
                Step::Edit(..) => counts.dead_edits += 1,
                Step::Inst(inst) => {
                    counts.dead_insts += 1;
                    code.deleted.insert(inst);
                }
            }
            None
        });
        // In the memory of the steps.
        let mut kept: Vec<Step> = kept.collect();
        kept.reverse();
        kept
    }
}

fn is_swap(step: &Step) -> bool {
    matches!(step, Step::Edit(_, Edit::Swap { .. }))
}

type Swap = (crate::target::PReg, crate::target::PReg, usize);

/// All of one side is needed before an exchange if anything of the other is needed after it:
/// what stays, an exchange or a move, reads whole registers.
fn swap_back(code: &Code, needed: &mut FixedBitSet, (a, b, width): Swap) -> bool {
    let [a, b] = [a, b].map(|reg| code.units(reg, width));
    let [need_a, need_b] =
        [&a, &b].map(|units| units.iter().any(|&unit| needed.contains(unit as usize)));
    a.iter().for_each(|&unit| needed.set(unit as usize, need_b));
    b.iter().for_each(|&unit| needed.set(unit as usize, need_a));
    need_a || need_b
}

/// An exchange of which only one side is needed is a move.
fn half_of_swap(code: &Code, step: Step, needed: &FixedBitSet, counts: &mut CleanupCounts) -> Step {
    let Step::Edit(point, Edit::Swap { a, b, width }) = step else {
        return step;
    };
    let wanted = |reg| {
        let mut units = code.units(reg, width as usize).into_iter();
        units.any(|unit| needed.contains(unit as usize))
    };
    let (to, from) = match (wanted(a), wanted(b)) {
        (true, false) => (a, b),
        (false, true) => (b, a),
        _ => return Step::Edit(point, Edit::Swap { a, b, width }),
    };
    counts.dead_edits += 1;
    Step::Edit(point, Edit::Move { to, from, width })
}
