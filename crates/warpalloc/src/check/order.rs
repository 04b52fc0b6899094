//! New instruction orders: every input still reads the same definition.
//!
//! Within a block, an order is right when each read meets the same reaching definition as
//! before, each virtual register leaves the block with the same last definition, and each
//! read or write of state follows, of every alias class that it may alias, the same write.
//! Any two instructions that must keep their order do so then: the writes of one class follow
//! each other in the same order, since a class aliases itself, and whatever may alias them
//! stands between the same two. An access to a pinned value counts as
//! reading any state: the hardware writes such a value on its own, and the instruction that
//! waits for it is a write of state that need not name it. No instruction changes sides with
//! one that clobbers registers or has an operand in a fixed one: a register that such an
//! instruction names may hold something there that no virtual register stands for. Each
//! order is walked once.

use super::violation::{Fault, Site, Violation};
use crate::allocation::Allocation;
use crate::error::Place;
use crate::function::{AliasClass, Block, Effect, Function, Inst, VReg};
use cranelift_entity::{EntityRef, SecondaryMap, packed_option::PackedOption};

/// Checks `allocation.order`, where there is one.
pub(super) fn check(function: &Function, allocation: &Allocation) -> Result<(), Box<Violation>> {
    let Some(order) = &allocation.order else {
        return Ok(());
    };
    if order.len() != function.inst_count() {
        return Err(fault(Place::Function, Site::Whole, Fault::NotPermuted));
    }
    let mut seen = vec![false; function.inst_count()];
    let mut old = Reaching::new(function);
    let mut new = Reaching::new(function);
    for block in function.blocks() {
        permuted(function, allocation, block, &mut seen)?;
        let written = written_classes(function, block);
        old.walk(function, &written, function.block_insts(block));
        new.walk(function, &written, allocation.block_insts(function, block));
        for inst in function.block_insts(block) {
            same(function, block, inst, &old, &new)?;
        }
        old.leave(function, block);
        new.leave(function, block);
    }
    Ok(())
}

fn permuted(
    function: &Function,
    allocation: &Allocation,
    block: Block,
    seen: &mut [bool],
) -> Result<(), Box<Violation>> {
    let refuse = || fault(Place::Block(block), Site::Whole, Fault::NotPermuted);
    let mut last = None;
    for inst in allocation.block_insts(function, block) {
        let taken = seen.get_mut(inst.index()).ok_or_else(refuse)?;
        if *taken || function.block_of(inst) != block {
            return Err(refuse());
        }
        *taken = true;
        last = Some(inst);
    }
    match last == Some(function.terminator(block)) {
        true => Ok(()),
        false => Err(refuse()),
    }
}

fn same(
    function: &Function,
    block: Block,
    inst: Inst,
    old: &Reaching,
    new: &Reaching,
) -> Result<(), Box<Violation>> {
    let place = Place::Inst(block, inst);
    if old.barrier_before[inst.index()] != new.barrier_before[inst.index()] {
        return Err(fault(place, Site::Whole, Fault::OrderBarrier));
    }
    if old.writes_before(inst) != new.writes_before(inst) {
        return Err(fault(place, Site::Whole, Fault::OrderEffect));
    }
    let row = function.operand_range(inst);
    for (position, operand) in function.operands(inst).iter().enumerate() {
        let reached = row.start + position;
        let read = old.read[reached] == new.read[reached];
        let left = !operand.role.writes() || old.def[operand.vreg] == new.def[operand.vreg];
        if !read || !left {
            let mut violation = fault(place, Site::Operand(position), Fault::OrderValue);
            violation.value = Some((operand.vreg, 0));
            return Err(violation);
        }
    }
    Ok(())
}

/// The alias classes of the writes of `block`, ascending.
fn written_classes(function: &Function, block: Block) -> Vec<AliasClass> {
    let writes = |&inst: &Inst| function.inst(inst).effect == Effect::Write;
    let insts = function.block_insts(block).filter(writes);
    let mut classes: Vec<AliasClass> = insts.map(|inst| function.alias(inst)).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Which definition each input reads within its block, and which writes each effect follows.
struct Reaching {
    /// By operand, in the row of all operands.
    read: Vec<PackedOption<Inst>>,
    /// The writes that the effects of the block follow, one effect after the other: of each
    /// class of writes in the block that it may alias, the last before it.
    followed: Vec<PackedOption<Inst>>,
    /// By instruction: where its row in `followed` begins and ends.
    rows: Vec<(u32, u32)>,
    /// By instruction: the last barrier before it.
    barrier_before: Vec<PackedOption<Inst>>,
    barrier: PackedOption<Inst>,
    /// The last definition so far in the block.
    def: SecondaryMap<VReg, PackedOption<Inst>>,
    /// The last write so far in the block, by class.
    write: SecondaryMap<AliasClass, PackedOption<Inst>>,
}

impl Reaching {
    fn new(function: &Function) -> Reaching {
        Reaching {
            read: vec![None.into(); function.operand_count()],
            followed: Vec::new(),
            rows: vec![(0, 0); function.inst_count()],
            barrier_before: vec![None.into(); function.inst_count()],
            barrier: None.into(),
            def: SecondaryMap::with_capacity(function.vreg_count()),
            write: SecondaryMap::new(),
        }
    }

    /// The writes that `inst` of the block just walked over follows.
    fn writes_before(&self, inst: Inst) -> &[PackedOption<Inst>] {
        let (start, end) = self.rows[inst.index()];
        &self.followed[start as usize..end as usize]
    }

    fn walk(
        &mut self,
        function: &Function,
        written: &[AliasClass],
        insts: impl Iterator<Item = Inst>,
    ) {
        for inst in insts {
            let row = function.operand_range(inst);
            let operands = function.operands(inst);
            for (position, operand) in operands.iter().enumerate() {
                if operand.role.reads() {
                    self.read[row.start + position] = self.def[operand.vreg];
                }
            }
            for operand in operands.iter().filter(|o| o.role.writes()) {
                self.def[operand.vreg] = inst.into();
            }
            let effect = function.ordering_effect(inst);
            if effect != Effect::Pure {
                let own = function.alias(inst);
                let start = self.followed.len() as u32;
                let aliased = written.iter().filter(|&&c| function.may_alias(own, c));
                self.followed
                    .extend(aliased.map(|&class| self.write[class]));
                self.rows[inst.index()] = (start, self.followed.len() as u32);
                if effect == Effect::Write {
                    self.write[own] = inst.into();
                }
            }
            self.barrier_before[inst.index()] = self.barrier;
            if function.is_barrier(inst) {
                self.barrier = inst.into();
            }
        }
    }

    fn leave(&mut self, function: &Function, block: Block) {
        for inst in function.block_insts(block) {
            for operand in function.operands(inst) {
                self.def[operand.vreg] = None.into();
            }
        }
        self.write.clear();
        self.followed.clear();
        self.barrier = None.into();
    }
}

fn fault(place: Place, site: Site, fault: Fault) -> Box<Violation> {
    Box::new(Violation {
        place,
        site,
        value: None,
        fault,
    })
}
