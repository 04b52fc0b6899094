//! Records: what instructions that are computed ahead have computed, and from what.
//!
//! A record is a ghost variable with one part for each unit of each operand, in operand
//! order. It is only ever written as a whole, inputs and results of one computation.

use super::{Flow, Outcome};
use crate::check::state::{Content, Value};
use crate::check::violation::{Fault, Location};
use crate::function::{Block, Inst, VReg};
use crate::target::PReg;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

type Values = SmallVec<[Value; 8]>;

/// A record as it was before an edge wrote it.
pub(super) struct Overwritten {
    inst: Inst,
    record: VReg,
    held: bool,
    parts: Values,
}

impl Flow<'_> {
    /// Gives records without contents values of their own among the `values` that go to
    /// `block`: what is left of them is from blocks left behind.
    pub(super) fn blank_records(&mut self, block: Block, values: &mut [Value]) {
        let vregs = self.function.vreg_count();
        let live = self.live.at_start(block);
        let first = live.partition_point(|v| v.index() < vregs);
        let mut end = values.len() - self.preserved.len();
        for &record in live[first..].iter().rev() {
            let base = self.part_base[record.index()] as usize;
            let start = end - self.width(record);
            if !self.equations.holds(self.equations.recorded(record)) {
                for (part, value) in (base..).zip(&mut values[start..end]) {
                    *value = self.fresh(part);
                }
            }
            end = start;
        }
    }

    /// Executes `inst`: on recorded inputs it yields the recorded results.
    pub(super) fn define_recorded(&mut self, inst: Inst, record: VReg) {
        let operands = self.function.operands(inst);
        let present = |flow: &Self| -> Values {
            let parts = operands.iter().flat_map(|o| flow.parts(o.vreg));
            parts.copied().collect()
        };
        if !self.is_recorded(inst, record, &present(self)) {
            self.define(operands);
            return self.write_record(record, &present(self));
        }
        let mut results = self.results(inst, self.parts(record)).into_iter();
        for result in operands.iter().filter(|o| o.role.writes()) {
            let base = self.part_base[result.vreg.index()] as usize;
            for (part, value) in (base..base + self.width(result.vreg)).zip(&mut results) {
                self.current[part] = value;
            }
        }
    }

    /// Executes `inst` in `regs` on their contents.
    pub(super) fn recompute_recorded(
        &mut self,
        inst: Inst,
        record: VReg,
        regs: &[PReg],
    ) -> Outcome {
        let operands = self.function.operands(inst);
        let base = self.part_base[record.index()] as usize;
        let mut parts = Values::new();
        for (operand, &reg) in operands.iter().zip(regs) {
            for part in 0..self.width(operand.vreg) {
                parts.push(match operand.role.reads() {
                    true => self.whole_value(reg.offset(part))?,
                    false => self.fresh(base + parts.len()),
                });
            }
        }
        if !self.is_recorded(inst, record, &parts) {
            self.remember_record(inst, record);
            self.write_record(record, &parts);
            self.equations.establish(inst);
        }
        let mut results = self.results(inst, self.parts(record)).into_iter();
        for (operand, &reg) in operands.iter().zip(regs) {
            if operand.role.writes() {
                let first = self.target.unit(reg).index();
                let units = first..first + self.width(operand.vreg);
                for (unit, value) in units.zip(&mut results) {
                    self.locations.set(unit, Content::whole(value));
                }
            }
        }
        Ok(())
    }

    /// Makes records what they were when the present edge began.
    pub(super) fn restore_records(&mut self) {
        while let Some(old) = self.overwritten.pop() {
            self.write_record(old.record, &old.parts);
            if !old.held {
                self.equations.withdraw(old.inst);
            }
        }
    }

    fn remember_record(&mut self, inst: Inst, record: VReg) {
        self.overwritten.push(Overwritten {
            inst,
            record,
            held: self.equations.holds(inst),
            parts: SmallVec::from_slice(self.parts(record)),
        });
    }

    /// Whether the inputs among `parts`, laid out like a record, are the recorded ones.
    fn is_recorded(&self, inst: Inst, record: VReg, parts: &[Value]) -> bool {
        let recorded = self.select(inst, self.parts(record), true);
        self.equations.holds(inst) && recorded == self.select(inst, parts, true)
    }

    fn results(&self, inst: Inst, parts: &[Value]) -> Values {
        self.select(inst, parts, false)
    }

    /// The inputs, or the results, among `parts` laid out like a record.
    fn select(&self, inst: Inst, mut parts: &[Value], inputs: bool) -> Values {
        let mut selected = Values::new();
        for operand in self.function.operands(inst) {
            let (here, rest) = parts.split_at(self.width(operand.vreg));
            if operand.role.reads() == inputs {
                selected.extend_from_slice(here);
            }
            parts = rest;
        }
        selected
    }

    fn write_record(&mut self, record: VReg, parts: &[Value]) {
        let base = self.part_base[record.index()] as usize;
        self.current[base..base + parts.len()].copy_from_slice(parts);
    }

    /// The value that `reg` holds whole and in a file of its own.
    fn whole_value(&self, reg: PReg) -> Outcome<Value> {
        let content = self.locations.get(self.target.unit(reg).index());
        let whole = content == Content::whole(content.value());
        if content.is_nothing() || !whole || !self.is_at_home(content, reg.file) {
            let from = Location::Reg(self.named(reg));
            return Err(self.refuse_edit(Fault::UnknownSource { from }));
        }
        // The number of a value does not tell whether the hardware has written it yet.
        self.not_pinned(content, || Location::Reg(self.named(reg)))?;
        Ok(content.value())
    }
}
