//! Which rematerialisable instructions would compute the current value of their results.
//!
//! Only instructions that some edit executes again are tracked.

use super::live::Lists;
use crate::allocation::{Allocation, Edit};
use crate::function::{Function, Inst, VReg};
use cranelift_entity::{EntityRef, SecondaryMap};

pub(super) struct Equations {
    insts: Vec<Inst>,
    of_inst: SecondaryMap<Inst, Option<u32>>,
    by_vreg: Lists<u32>,
    valid: Vec<bool>,
    /// Those that have been valid since [`Equations::clear`].
    seen: Vec<u32>,
}

impl Equations {
    pub(super) fn collect(function: &Function, allocation: &Allocation) -> Equations {
        let mut insts: Vec<Inst> = allocation
            .edits
            .iter()
            .filter_map(|(_, edit)| match edit {
                Edit::Recompute { inst, .. } => Some(*inst),
                _ => None,
            })
            .collect();
        insts.sort_unstable();
        insts.dedup();
        let mut of_inst = SecondaryMap::new();
        let mut mentions = Vec::new();
        for (index, &inst) in insts.iter().enumerate() {
            of_inst[inst] = Some(index as u32);
            let operands = function.operands(inst).iter();
            mentions.extend(operands.map(|o| (o.vreg.index(), index as u32)));
        }
        Equations {
            valid: vec![false; insts.len()],
            by_vreg: Lists::new(function.vreg_count(), &mentions),
            insts,
            of_inst,
            seen: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.insts.is_empty()
    }

    /// The instruction whose equation has this number.
    pub(super) fn inst(&self, equation: u32) -> Inst {
        self.insts[equation as usize]
    }

    /// Starts over with these equations.
    pub(super) fn enter(&mut self, equations: &[u32]) {
        for equation in self.seen.drain(..) {
            self.valid[equation as usize] = false;
        }
        for &equation in equations {
            self.set(equation);
        }
    }

    /// `vreg` gets another value.
    pub(super) fn redefine(&mut self, vreg: VReg) {
        for &equation in self.by_vreg.of(vreg.index()) {
            self.valid[equation as usize] = false;
        }
    }

    /// `inst` has just been executed, or would have been.
    pub(super) fn establish(&mut self, inst: Inst) {
        if let Some(equation) = self.of_inst[inst] {
            self.set(equation);
        }
    }

    /// Whether executing `inst` now yields the current values of its results.
    pub(super) fn holds(&self, inst: Inst) -> bool {
        self.of_inst[inst].is_some_and(|equation| self.valid[equation as usize])
    }

    /// All equations that hold, ascending.
    pub(super) fn holding(&self) -> Vec<u32> {
        let valid = |equation: &u32| self.valid[*equation as usize];
        let mut holding: Vec<u32> = self.seen.iter().copied().filter(valid).collect();
        holding.sort_unstable();
        holding.dedup();
        holding
    }

    fn set(&mut self, equation: u32) {
        self.valid[equation as usize] = true;
        self.seen.push(equation);
    }
}
