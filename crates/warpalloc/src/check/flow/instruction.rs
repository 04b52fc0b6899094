//! What instructions do to locations.

use super::{Flow, Outcome};
use crate::allocation::{Point, SlotAddr};
use crate::check::state::{Content, Value};
use crate::check::violation::{Fault, Site};
use crate::function::{Clobbers, Function, Inst, Kind, Operand, Role, VReg};
use crate::target::{PReg, Target, Unit};
use cranelift_entity::{EntityRef, SecondaryMap};
use smallvec::SmallVec;

impl Flow<'_> {
    pub(super) fn instruction(&mut self, inst: Inst) -> Outcome {
        let (function, allocation) = (self.function, self.allocation);
        let info = function.inst(inst);
        let operands = function.operands(inst);
        let registers = allocation.operands(function, inst);
        let deleted = allocation.deleted.contains(inst);
        if !deleted {
            self.at.point = Point::Before(inst);
            for (position, operand) in operands.iter().enumerate() {
                if operand.role.reads() {
                    let site = Site::Operand(position);
                    match allocation.slot(function, inst, position) {
                        None => self.expect(operand.vreg, registers[position], site)?,
                        Some(slot) => self.expect_in_memory(operand.vreg, slot, site)?,
                    }
                }
            }
            if info.clobbers != Clobbers::None {
                for unit in self.clobbers.of(function, self.target, inst) {
                    self.locations.set(unit.index(), Content::NOTHING);
                }
            }
        }
        match self.equations.record(inst) {
            Some(record) => self.define_recorded(inst, record),
            None if info.kind == Kind::Copy && self.is_faithful_copy(operands) => {
                self.copy(operands, registers, deleted);
            }
            None => self.define(operands),
        }
        for (position, (operand, &reg)) in operands.iter().zip(registers).enumerate() {
            if operand.role.writes() {
                self.equations.redefine(operand.vreg);
                if deleted {
                    continue;
                }
                match allocation.slot(function, inst, position) {
                    None => self.place(operand.vreg, reg),
                    Some(slot) => self.place_in_memory(operand.vreg, slot),
                }
            }
        }
        self.equations.establish(inst);
        match info.kind {
            Kind::Return => self.preserved_are_back(),
            _ => Ok(()),
        }
    }

    /// Fails unless each unit of `reg` holds the matching part of `vreg`.
    pub(super) fn expect(&self, vreg: VReg, reg: PReg, site: Site) -> Outcome {
        let first = self.target.unit(reg).index();
        for (part, &value) in self.parts(vreg).iter().enumerate() {
            let content = self.locations.get(first + part);
            if content != Content::whole(value) || content.is_nothing() {
                let fault = Fault::NotThere {
                    reg: self.named(reg.offset(part)),
                    holds: self.holder(content),
                };
                return Err(self.refuse(site, Some((vreg, part)), fault));
            }
        }
        Ok(())
    }

    /// Fails unless each word of `slot` holds the matching piece of `vreg`.
    fn expect_in_memory(&self, vreg: VReg, slot: SlotAddr, site: Site) -> Outcome {
        let file = self.target.class(self.function.vreg(vreg).class).file;
        let per_unit = self.words.per_unit(self.target, file);
        let first = self.first_word(slot);
        for (part, &value) in self.parts(vreg).iter().enumerate() {
            for word in 0..per_unit {
                let held = self.locations.get(first + part * per_unit + word);
                if held.is_nothing() || held != Content::whole(value).word_piece(word, per_unit) {
                    let fault = Fault::NotInMemory { slot };
                    return Err(self.refuse(site, Some((vreg, part)), fault));
                }
            }
        }
        Ok(())
    }

    /// Lets `slot` hold the current value of `vreg`.
    fn place_in_memory(&mut self, vreg: VReg, slot: SlotAddr) {
        let file = self.target.class(self.function.vreg(vreg).class).file;
        let per_unit = self.words.per_unit(self.target, file);
        let first = self.first_word(slot);
        let base = self.part_base[vreg.index()] as usize;
        for part in 0..self.width(vreg) {
            let content = Content::whole(self.current[base + part]);
            for word in 0..per_unit {
                let location = first + part * per_unit + word;
                self.locations
                    .set(location, content.word_piece(word, per_unit));
            }
        }
    }

    /// Gives each result a fresh value.
    pub(super) fn define(&mut self, operands: &[Operand]) {
        for operand in operands.iter().filter(|o| o.role.writes()) {
            let base = self.part_base[operand.vreg.index()] as usize;
            for part in base..base + self.width(operand.vreg) {
                self.current[part] = self.fresh(part);
            }
        }
    }

    /// Whether the results, laid end to end, are the inputs laid end to end.
    fn is_faithful_copy(&self, operands: &[Operand]) -> bool {
        let total = |role| -> usize {
            let of_role = operands.iter().filter(|o| o.role == role);
            of_role.map(|o| self.width(o.vreg)).sum()
        };
        let results = total(Role::Def) + total(Role::EarlyDef);
        total(Role::UseDef) == 0 && results == total(Role::Use)
    }

    /// Gives the parts of the results the values of the inputs' parts.
    ///
    /// A pinned value is tied to its register, so an executed copy makes another value, and
    /// a deleted one that makes a pinned value turns what its register holds into that.
    fn copy(&mut self, operands: &[Operand], registers: &[PReg], deleted: bool) {
        let pinned = |o: &Operand| self.function.vreg(o.vreg).pinned;
        if !deleted && !self.pinned.is_empty() && operands.iter().any(pinned) {
            return self.define(operands);
        }
        let makes_pinned = operands.iter().any(|o| o.role.writes() && pinned(o));
        let mut values: SmallVec<[Value; 16]> = SmallVec::new();
        for input in operands.iter().filter(|o| o.role.reads()) {
            values.extend_from_slice(self.parts(input.vreg));
        }
        let mut values = values.into_iter();
        for result in operands.iter().filter(|o| o.role.writes()) {
            let base = self.part_base[result.vreg.index()] as usize;
            let width = self.width(result.vreg);
            for (part, value) in (base..base + width).zip(&mut values) {
                self.current[part] = value;
                self.homes[(value - self.base) as usize] |= self.part_files[part];
            }
        }
        if makes_pinned {
            self.take_over(operands, registers);
        }
    }

    /// Makes other values of copied ones in the registers of the results, and only there: the
    /// old values stay elsewhere.
    fn take_over(&mut self, operands: &[Operand], registers: &[PReg]) {
        let results = || {
            let operands = operands.iter().zip(registers);
            operands.filter(|(o, _)| o.role.writes())
        };
        let copied: Vec<Value> = results()
            .flat_map(|(o, _)| self.parts(o.vreg).to_vec())
            .collect();
        self.define(operands);
        let mut copied = copied.into_iter();
        for (operand, &reg) in results() {
            let first = self.target.unit(reg).index();
            let base = self.part_base[operand.vreg.index()] as usize;
            for (part, value) in (0..self.width(operand.vreg)).zip(&mut copied) {
                if self.locations.get(first + part) == Content::whole(value) {
                    let content = Content::whole(self.current[base + part]);
                    self.locations.set(first + part, content);
                }
            }
        }
    }

    /// Lets `reg` hold the current value of `vreg`.
    pub(super) fn place(&mut self, vreg: VReg, reg: PReg) {
        let first = self.target.unit(reg).index();
        let base = self.part_base[vreg.index()] as usize;
        for part in 0..self.width(vreg) {
            let content = Content::whole(self.current[base + part]);
            self.locations.set(first + part, content);
        }
    }
}

/// Units that instructions overwrite, worked out once per list.
#[derive(Default)]
pub(super) struct ClobberedUnits {
    abi: Option<Vec<Unit>>,
    lists: SecondaryMap<crate::function::RegList, Option<Vec<Unit>>>,
}

impl ClobberedUnits {
    fn of(&mut self, function: &Function, target: &Target, inst: Inst) -> &[Unit] {
        let cached = match function.inst(inst).clobbers {
            Clobbers::None => return &[],
            Clobbers::Abi => &mut self.abi,
            Clobbers::List(list) => &mut self.lists[list],
        };
        cached.get_or_insert_with(|| function.clobbers(target, inst).iter().collect())
    }
}
