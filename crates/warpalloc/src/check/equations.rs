//! Which rematerialisable instructions would compute the current value of their results.
//!
//! Only instructions that some edit executes again are tracked. Where every such edit
//! stands behind its instruction, an *equation* is enough: it holds from the instruction
//! until something it mentions changes. An instruction that some edit executes *ahead* of
//! itself, as code hoisted out of a loop is, gets a *record* instead; see the module
//! documentation of `check`. Choosing the wrong one of the two would lose a proof, never
//! make one up.

use super::live::Lists;
use crate::allocation::{Allocation, Edit, Point};
use crate::analysis::{Dominators, Order};
use crate::function::{Function, Inst, Kind, VReg};
use crate::scratch::Scratch;
use cranelift_entity::{EntityRef, SecondaryMap};

pub(super) struct Equations {
    insts: Vec<Inst>,
    of_inst: SecondaryMap<Inst, Option<u32>>,
    by_vreg: Lists<u32>,
    /// By equation: the ghost that stands for its record, if it has one.
    record_of: Vec<Option<VReg>>,
    /// The instruction of each record.
    recorded: Vec<Inst>,
    /// Whether each record is of an instruction that edits execute on edges alone.
    on_edges: Vec<bool>,
    /// The records that have a virtual register among their inputs.
    reading: Lists<VReg>,
    vreg_count: usize,
    valid: Vec<bool>,
    /// The equations that have been valid since [`Equations::enter`].
    seen: Vec<u32>,
}

impl Equations {
    pub(super) fn collect(
        function: &Function,
        allocation: &Allocation,
        scratch: &Scratch,
    ) -> Equations {
        let recomputed = |(_, edit): (Point, &Edit)| match edit {
            Edit::Recompute { inst, .. } => Some(*inst),
            _ => None,
        };
        let mut insts: Vec<Inst> = allocation.edits.iter().filter_map(recomputed).collect();
        insts.sort_unstable();
        insts.dedup();
        let recorded = computed_ahead(function, allocation, &insts);
        let mut on_edges = vec![true; recorded.len()];
        for (point, edit) in allocation.edits.iter().filter(|_| !recorded.is_empty()) {
            if let (Edit::Recompute { inst, .. }, false) = (edit, matches!(point, Point::Edge(..)))
                && let Ok(number) = recorded.binary_search(inst)
            {
                on_edges[number] = false;
            }
        }
        let mut of_inst = SecondaryMap::new();
        let (mut mentions, mut reading) = (Vec::new(), Vec::new());
        let mut record_of = Vec::with_capacity(insts.len());
        for (index, &inst) in insts.iter().enumerate() {
            of_inst[inst] = Some(index as u32);
            let number = recorded.binary_search(&inst).ok();
            let record = number.map(|n| VReg::new(function.vreg_count() + n));
            record_of.push(record);
            for operand in function.operands(inst) {
                match record {
                    None => mentions.push((operand.vreg.index(), index as u32)),
                    Some(record) if operand.role.reads() => {
                        reading.push((operand.vreg.index(), record));
                    }
                    Some(_) => {}
                }
            }
        }
        Equations {
            valid: vec![false; insts.len()],
            by_vreg: Lists::new(function.vreg_count(), &mentions, scratch),
            reading: Lists::new(function.vreg_count(), &reading, scratch),
            vreg_count: function.vreg_count(),
            insts,
            of_inst,
            record_of,
            recorded,
            on_edges,
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

    /// The ghost that records what `inst` computes, if it is computed ahead somewhere.
    pub(super) fn record(&self, inst: Inst) -> Option<VReg> {
        self.record_of[self.of_inst[inst]? as usize]
    }

    /// The instruction that a record is of.
    pub(super) fn recorded(&self, record: VReg) -> Inst {
        self.recorded[record.index() - self.vreg_count]
    }

    /// Every record with its instruction; ghosts are numbered on from virtual registers.
    pub(super) fn records(&self) -> impl ExactSizeIterator<Item = (VReg, Inst)> + '_ {
        let ghost = |index| VReg::new(self.vreg_count + index);
        let records = self.recorded.iter().enumerate();
        records.map(move |(index, &inst)| (ghost(index), inst))
    }

    /// Whether a record begins anew with every computation on an edge.
    ///
    /// Where an instruction is computed on edges alone, as hoisting does, its earlier result
    /// has no reader behind the edge, and need not be followed up to there.
    pub(super) fn begins_on_edges(&self, record: VReg) -> bool {
        self.on_edges[record.index() - self.vreg_count]
    }

    /// The records of instructions that read `vreg`.
    pub(super) fn records_reading(&self, vreg: VReg) -> &[VReg] {
        self.reading.of(vreg.index())
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

    /// `vreg` gets another value. Records are about values, not about registers, and stay.
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

    /// `inst` is as it was before it was established.
    pub(super) fn withdraw(&mut self, inst: Inst) {
        if let Some(equation) = self.of_inst[inst] {
            self.valid[equation as usize] = false;
        }
    }

    /// Whether executing `inst` now yields the current values of its results, or, where it
    /// has a record, whether there is something in it.
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

/// Those of `insts`, ascending, that some edit executes where they need not have run.
///
/// Copies pass values on and pinned values are tied to where they are computed, so
/// neither can be computed ahead.
fn computed_ahead(function: &Function, allocation: &Allocation, insts: &[Inst]) -> Vec<Inst> {
    if insts.is_empty() {
        return Vec::new();
    }
    let order = Order::compute(function);
    let dominators = Dominators::compute(function, &order);
    let mut position = vec![0; function.inst_count()];
    for block in function.blocks() {
        for (index, inst) in allocation.block_insts(function, block).enumerate() {
            position[inst.index()] = index;
        }
    }
    let has_run = |inst: Inst, point: Point| {
        let home = function.block_of(inst);
        let (block, behind) = match point {
            Point::Before(at) => {
                let behind = position[inst.index()] < position[at.index()];
                (function.block_of(at), behind)
            }
            Point::After(at) => {
                let behind = position[inst.index()] <= position[at.index()];
                (function.block_of(at), behind)
            }
            Point::Edge(block, _) => (block, true),
        };
        match block == home {
            true => behind,
            false => dominators.dominates(home, block),
        }
    };
    let eligible = |inst: Inst| {
        let mut operands = function.operands(inst).iter();
        let pinned = operands.any(|o| function.vreg(o.vreg).pinned);
        function.inst(inst).kind != Kind::Copy && !pinned
    };
    let edits = allocation.edits.iter();
    let ahead = edits.filter_map(|(point, edit)| match *edit {
        Edit::Recompute { inst, .. } if eligible(inst) && !has_run(inst, point) => Some(inst),
        _ => None,
    });
    let mut ahead: Vec<Inst> = ahead.collect();
    ahead.sort_unstable();
    ahead.dedup();
    ahead
}
