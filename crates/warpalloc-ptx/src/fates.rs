//! What an allocation does with each value: which stores hold it, how often it is computed again.

use std::collections::BTreeMap;

use warpalloc::Allocation;
use warpalloc::allocation::{Edit, Point, SlotAddr};
use warpalloc::analysis::{Liveness, Order};
use warpalloc::function::{Block, Function, Inst, Kind, VReg};
use warpalloc::target::{PReg, Target};

/// Which values spill code is for.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// The instructions behind or before which a value is stored.
    pub stored: BTreeMap<VReg, Vec<Inst>>,
    /// How often a value is computed again.
    pub recomputed: BTreeMap<VReg, usize>,
}

/// Follows registers through an allocated function, each block from what a block before it left in
/// them. What a register holds that is not known by then is known from the first operand that names it.
pub(crate) fn fates(function: &Function, target: &Target, allocation: &Allocation) -> Fates {
    let mut walk = Walk {
        function,
        target,
        holds: BTreeMap::new(),
        slots: BTreeMap::new(),
        fates: Fates::default(),
    };
    let liveness = Liveness::compute(function);
    let mut edges: BTreeMap<(Block, u32), Vec<&Edit>> = BTreeMap::new();
    for (point, edit) in allocation.edits.iter() {
        if let Point::Edge(block, succ) = point {
            edges.entry((block, succ)).or_default().push(edit);
        }
    }
    let mut entered: BTreeMap<Block, BTreeMap<PReg, VReg>> = BTreeMap::new();
    for &block in Order::compute(function).all() {
        walk.holds = entered.remove(&block).unwrap_or_default();
        walk.holds
            .retain(|_, value| liveness.is_live_in(block, *value));
        let mut last = None;
        for inst in allocation.block_insts(function, block) {
            for edit in allocation.edits.before(inst) {
                walk.edit(inst, edit);
            }
            match allocation.deleted.contains(inst) {
                true => walk.renamed(inst, allocation.operands(function, inst)),
                false => walk.operands(inst, allocation.operands(function, inst)),
            }
            for edit in allocation.edits.after(inst) {
                walk.edit(inst, edit);
            }
            last = Some(inst);
        }
        let left = std::mem::take(&mut walk.holds);
        for (number, edge) in function.succs(block).iter().enumerate() {
            walk.holds = left.clone();
            let edits = edges.get(&(block, number as u32));
            for edit in edits.into_iter().flatten() {
                if let Some(last) = last {
                    walk.edit(last, edit);
                }
            }
            let state = std::mem::take(&mut walk.holds);
            entered.entry(edge.block).or_insert(state);
        }
    }
    walk.fates
}

struct Walk<'w> {
    function: &'w Function,
    target: &'w Target,
    /// By unit, the value in it.
    holds: BTreeMap<PReg, VReg>,
    /// By slot, the value that was last stored there.
    slots: BTreeMap<SlotAddr, VReg>,
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

    /// A copy that needs no code, because both sides share a register, gives what is in it
    /// another name.
    fn renamed(&mut self, inst: Inst, registers: &[PReg]) {
        let operands = self.function.operands(inst);
        if self.function.inst(inst).kind != Kind::Copy || operands.len() != 2 {
            return;
        }
        if let &[a, b] = registers
            && a == b
            && let Some(result) = operands.iter().find(|operand| operand.role.writes())
        {
            self.put(a, result.vreg);
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
            Edit::Store { to, from, width } => {
                if let Some(&value) = self.holds.get(from) {
                    self.slots.insert(*to, value);
                }
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
            Edit::Reload { to, from, width } => {
                let value = self.slots.get(from).copied();
                for unit in 0..usize::from(*width) {
                    self.set(to.offset(unit), value);
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
