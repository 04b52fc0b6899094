//! What an allocation does with each value: which stores hold it, how often it is computed again.

use std::collections::BTreeMap;

use warpalloc::Allocation;
use warpalloc::allocation::Edit;
use warpalloc::function::{Function, Inst, VReg};
use warpalloc::target::{PReg, Target};

/// Which values spill code is for.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// The instructions behind or before which a value is stored.
    pub stored: BTreeMap<VReg, Vec<Inst>>,
    /// How often a value is computed again.
    pub recomputed: BTreeMap<VReg, usize>,
}

/// Follows registers through each block of an allocated function. What a register holds at the
/// start of a block is known from the first operand that names it.
pub(crate) fn fates(function: &Function, target: &Target, allocation: &Allocation) -> Fates {
    let mut walk = Walk {
        function,
        target,
        holds: BTreeMap::new(),
        fates: Fates::default(),
    };
    for block in function.blocks() {
        walk.holds.clear();
        for inst in allocation.block_insts(function, block) {
            for edit in allocation.edits.before(inst) {
                walk.edit(inst, edit);
            }
            if !allocation.deleted.contains(inst) {
                walk.operands(inst, allocation.operands(function, inst));
            }
            for edit in allocation.edits.after(inst) {
                walk.edit(inst, edit);
            }
        }
    }
    walk.fates
}

struct Walk<'w> {
    function: &'w Function,
    target: &'w Target,
    /// By unit, the value in it.
    holds: BTreeMap<PReg, VReg>,
    fates: Fates,
}

impl Walk<'_> {
    fn operands(&mut self, inst: Inst, registers: &[PReg]) {
        let operands = self.function.operands(inst);
        // Results come last: one may take the register of an input.
        for writes in [false, true] {
            for (operand, &register) in operands.iter().zip(registers) {
                if operand.role.writes() == writes {
                    self.put(register, operand.vreg);
                }
            }
        }
    }

    fn put(&mut self, register: PReg, value: VReg) {
        let width = self.target.width(self.function.vreg(value).class);
        for unit in 0..width {
            self.holds.insert(register.offset(unit), value);
        }
    }

    fn edit(&mut self, at: Inst, edit: &Edit) {
        match edit {
            Edit::Move { to, from, width } => {
                for unit in 0..usize::from(*width) {
                    let value = self.holds.get(&from.offset(unit)).copied();
                    self.set(to.offset(unit), value);
                }
            }
            Edit::Swap { a, b, width } => {
                for unit in 0..usize::from(*width) {
                    let (a, b) = (a.offset(unit), b.offset(unit));
                    let (held, other) = (self.holds.remove(&a), self.holds.remove(&b));
                    self.set(a, other);
                    self.set(b, held);
                }
            }
            Edit::Store { from, width, .. } => {
                for unit in 0..usize::from(*width) {
                    let Some(&value) = self.holds.get(&from.offset(unit)) else {
                        continue;
                    };
                    let stores = self.fates.stored.entry(value).or_default();
                    if !stores.contains(&at) {
                        stores.push(at);
                    }
                }
            }
            Edit::Reload { to, width, .. } => {
                for unit in 0..usize::from(*width) {
                    self.holds.remove(&to.offset(unit));
                }
            }
            Edit::Recompute { inst, regs } => {
                let operands = self.function.operands(*inst).iter().zip(regs);
                let results = operands.filter(|(operand, _)| operand.role.writes());
                for (operand, &register) in results {
                    *self.fates.recomputed.entry(operand.vreg).or_default() += 1;
                    self.put(register, operand.vreg);
                }
            }
            Edit::Transfer { to, .. } => {
                self.holds.remove(to);
            }
        }
    }

    fn set(&mut self, unit: PReg, value: Option<VReg>) {
        match value {
            Some(value) => self.holds.insert(unit, value),
            None => self.holds.remove(&unit),
        };
    }
}
