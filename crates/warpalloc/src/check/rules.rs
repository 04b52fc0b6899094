//! What registers alone decide: no values, no flow.

use super::violation::{Fault, NamedReg, Site, Violation};
use crate::allocation::{Allocation, Edit, Point, SlotAddr, Space};
use crate::error::Place;
use crate::function::{Clobbers, Operand, OperandGroup};
use crate::function::{Constraint, Effect, Function, Inst, Kind, Role, VReg};
use crate::target::{File, MovePath, PReg, SpillPath, Target};
use cranelift_entity::EntityRef;

/// Checks every instruction and every edit of `allocation` on its own.
pub(super) fn check(
    function: &Function,
    target: &Target,
    allocation: &Allocation,
) -> Result<(), Box<Violation>> {
    let rules = Rules {
        function,
        target,
        allocation,
    };
    rules.shape()?;
    for inst in function.insts() {
        rules.instruction(inst)?;
    }
    rules.edits()
}

struct Rules<'a> {
    function: &'a Function,
    target: &'a Target,
    allocation: &'a Allocation,
}

type Outcome<T = ()> = Result<T, Box<Violation>>;

impl Rules<'_> {
    fn shape(&self) -> Outcome {
        let whole = |fault| refuse(Place::Function, Site::Whole, fault);
        if self.allocation.registers.len() != self.function.operand_count() {
            let fault = Fault::Malformed("there is not one register per operand");
            return Err(whole(fault));
        }
        let memory = &self.allocation.memory;
        let is_within = |m: &(u32, SlotAddr)| (m.0 as usize) < self.function.operand_count();
        if !memory.is_sorted_by(|a, b| a.0 < b.0) || !memory.iter().all(is_within) {
            let fault = Fault::Malformed("operands in memory are not in ascending order");
            return Err(whole(fault));
        }
        if !self.allocation.edits.fit(self.function) {
            let fault = Fault::Malformed("an edit stands at a point this function does not have");
            return Err(whole(fault));
        }
        let frame = self.allocation.frame;
        let size = frame.local.max(frame.shared);
        let limit = self.target.frame_limit();
        if size > limit {
            return Err(whole(Fault::FrameLimit { size, limit }));
        }
        Ok(())
    }

    fn instruction(&self, inst: Inst) -> Outcome {
        let place = Place::Inst(self.function.block_of(inst), inst);
        if self.allocation.deleted.contains(inst) {
            return match may_vanish(self.function, inst) {
                true => Ok(()),
                false => Err(refuse(place, Site::Whole, Fault::Deleted)),
            };
        }
        let registers = self.allocation.operands(self.function, inst);
        let in_memory = |at: usize| self.allocation.slot(self.function, inst, at);
        self.operands(inst, registers, in_memory)
            .map_err(|(position, fault)| {
                let mut violation = refuse(place, Site::Operand(position), fault);
                violation.value = Some((self.function.operands(inst)[position].vreg, 0));
                violation
            })
    }

    /// Whether the operands of `inst` may be in `registers`, or which may not and why.
    fn operands(
        &self,
        inst: Inst,
        registers: &[PReg],
        in_memory: impl Fn(usize) -> Option<SlotAddr>,
    ) -> Result<(), (usize, Fault)> {
        let operands = self.function.operands(inst);
        for (position, operand) in operands.iter().enumerate() {
            if let Some(slot) = in_memory(position) {
                self.slot(operand, slot)
                    .map_err(|fault| (position, fault))?;
                continue;
            }
            self.class(operand, registers[position])
                .and_then(|()| self.constraint(operand, position, registers))
                .map_err(|fault| (position, fault))?;
        }
        for group in self.function.groups(inst) {
            self.group(*group, operands, registers)?;
        }
        for position in 0..operands.len() {
            let apart = match in_memory(position) {
                None => self.result_apart(position, operands, registers, &in_memory),
                Some(slot) => self.slot_apart(position, slot, operands, &in_memory),
            };
            apart.map_err(|fault| (position, fault))?;
        }
        Ok(())
    }

    fn class(&self, operand: &Operand, reg: PReg) -> Result<(), Fault> {
        let class = self.function.vreg(operand.vreg).class;
        match self.target.fits(class, reg) {
            true => Ok(()),
            false => Err(Fault::Class {
                reg: self.named(reg),
                class: self.target.class(class).name.clone(),
            }),
        }
    }

    fn constraint(&self, operand: &Operand, position: usize, regs: &[PReg]) -> Result<(), Fault> {
        let reg = regs[position];
        match operand.constraint {
            Constraint::Any | Constraint::Anywhere => Ok(()),
            Constraint::Memory | Constraint::Argument(_) => Err(Fault::Misplaced {
                where_: "in a register",
            }),
            Constraint::Fixed(required) if required == reg => Ok(()),
            Constraint::Fixed(required) => Err(Fault::Fixed {
                reg: self.named(reg),
                required: self.named(required),
            }),
            Constraint::Tied(input) => match regs.get(input as usize) {
                Some(&tied) if tied == reg => Ok(()),
                Some(&tied) => Err(Fault::Tied {
                    reg: self.named(reg),
                    tied: self.named(tied),
                }),
                None => Err(Fault::Malformed("tied to an operand that does not exist")),
            },
            Constraint::Except(list) => {
                let width = self.width(operand);
                let hit = |&&excluded: &&PReg| {
                    let whole = match self.known(excluded.file) {
                        true => self.target.file(excluded.file).units_per_reg,
                        false => 1,
                    };
                    overlap(reg, width, excluded, whole)
                };
                match self.function.reg_list(list).iter().find(hit) {
                    None => Ok(()),
                    Some(&excluded) => Err(Fault::Excluded {
                        reg: self.named(reg),
                        excluded: self.named(excluded),
                    }),
                }
            }
        }
    }

    /// Whether `operand` may be in `slot`.
    fn slot(&self, operand: &Operand, slot: SlotAddr) -> Result<(), Fault> {
        let class = self.function.vreg(operand.vreg).class;
        let is_argument = slot.space == Space::Argument;
        let is_asked_for = match operand.constraint {
            Constraint::Anywhere | Constraint::Memory => !(is_argument && operand.role.writes()),
            Constraint::Argument(offset) => is_argument && i64::from(slot.offset) == offset.into(),
            _ => false,
        };
        if !is_asked_for {
            return Err(Fault::Misplaced {
                where_: "there in memory",
            });
        }
        self.place_in_frame(slot, self.target.spill_bytes(class))
    }

    /// A result in memory shares no byte with another.
    fn slot_apart(
        &self,
        at: usize,
        slot: SlotAddr,
        operands: &[Operand],
        in_memory: impl Fn(usize) -> Option<SlotAddr>,
    ) -> Result<(), Fault> {
        if !operands[at].role.writes() {
            return Ok(());
        }
        let end = |slot: SlotAddr, operand: &Operand| {
            let class = self.function.vreg(operand.vreg).class;
            i64::from(slot.offset) + i64::from(self.target.spill_bytes(class))
        };
        for (position, other) in operands.iter().enumerate() {
            let Some(its) = in_memory(position).filter(|its| its.space == slot.space) else {
                continue;
            };
            let overlaps = i64::from(its.offset) < end(slot, &operands[at])
                && i64::from(slot.offset) < end(its, other);
            if position != at && other.role.writes() && overlaps {
                return Err(Fault::Misplaced {
                    where_: "in the same memory as another result",
                });
            }
        }
        Ok(())
    }

    fn group(
        &self,
        group: OperandGroup,
        operands: &[Operand],
        regs: &[PReg],
    ) -> Result<(), (usize, Fault)> {
        let mut expected: Option<PReg> = None;
        for position in group.range() {
            let (Some(operand), Some(&reg)) = (operands.get(position), regs.get(position)) else {
                return Err((0, Fault::Malformed("a group reaches beyond the operands")));
            };
            match expected {
                None if !(reg.unit as usize).is_multiple_of(group.align.max(1) as usize) => {
                    let (reg, align) = (self.named(reg), group.align);
                    return Err((position, Fault::GroupAlign { reg, align }));
                }
                Some(expected) if expected != reg => {
                    let (reg, expected) = (self.named(reg), self.named(expected));
                    return Err((position, Fault::Group { reg, expected }));
                }
                _ => expected = Some(reg.offset(self.width(operand))),
            }
        }
        Ok(())
    }

    /// A result shares no unit with an earlier result; an early one with no input either.
    fn result_apart(
        &self,
        at: usize,
        operands: &[Operand],
        regs: &[PReg],
        in_memory: impl Fn(usize) -> Option<SlotAddr>,
    ) -> Result<(), Fault> {
        let role = operands[at].role;
        if !role.writes() {
            return Ok(());
        }
        let width = self.width(&operands[at]);
        for (position, other) in operands.iter().enumerate() {
            let is_apart = !overlap(regs[at], width, regs[position], self.width(other));
            if position == at || is_apart || in_memory(position).is_some() {
                continue;
            }
            let named = || (self.named(regs[at]), self.named(regs[position]));
            if other.role.writes() {
                let (reg, other) = named();
                return Err(Fault::ResultsOverlap { reg, other });
            }
            if role == Role::EarlyDef {
                let (reg, input) = named();
                return Err(Fault::EarlyOverlap { reg, input });
            }
        }
        Ok(())
    }

    fn edits(&self) -> Outcome {
        let mut position = 0;
        let mut previous = None;
        for (point, edit) in self.allocation.edits.iter() {
            position = match previous == Some(point) {
                true => position + 1,
                false => 0,
            };
            previous = Some(point);
            let place = match point {
                Point::Before(inst) | Point::After(inst) => {
                    Place::Inst(self.function.block_of(inst), inst)
                }
                Point::Edge(block, _) => Place::Block(block),
            };
            self.edit(edit)
                .and_then(|()| self.leaves_live_ins(point, edit))
                .map_err(|fault| refuse(place, Site::Edit(point, position), fault))?;
        }
        Ok(())
    }

    /// What stands above the live-in instruction writes no register that an argument is in.
    fn leaves_live_ins(&self, point: Point, edit: &Edit) -> Result<(), Fault> {
        let Some(inst) = self.function.live_in_inst() else {
            return Ok(());
        };
        if point != Point::Before(inst) {
            return Ok(());
        }
        let whole = |reg: PReg, regs: u8| regs as usize * self.target.file(reg.file).units_per_reg;
        match *edit {
            Edit::Move { to, width, .. } | Edit::Reload { to, width, .. } => {
                self.leaves_live_in(to, width.into())
            }
            Edit::Swap { a, b, width } => self
                .leaves_live_in(a, width.into())
                .and_then(|()| self.leaves_live_in(b, width.into())),
            Edit::Transfer { to, regs, .. } => self.leaves_live_in(to, whole(to, regs)),
            Edit::Store { .. } => Ok(()),
            Edit::Recompute { inst, ref regs } => {
                let results = self.function.operands(inst).iter().zip(regs);
                results
                    .filter(|(operand, _)| operand.role.writes())
                    .try_for_each(|(operand, &reg)| self.leaves_live_in(reg, self.width(operand)))
            }
        }
    }

    fn leaves_live_in(&self, reg: PReg, width: usize) -> Result<(), Fault> {
        let hit = |&(vreg, at): &(VReg, PReg)| {
            let class = self.function.vreg(vreg).class;
            overlap(reg, width, at, self.target.width(class))
        };
        match self.function.live_ins().find(hit) {
            None => Ok(()),
            Some((value, _)) => Err(Fault::LiveInOverwritten {
                reg: self.named(reg),
                value,
            }),
        }
    }

    fn edit(&self, edit: &Edit) -> Result<(), Fault> {
        match *edit {
            Edit::Move { to, from, width } => {
                let copies = |moves| !matches!(moves, MovePath::Via(_));
                self.sides(to, from, width, true)
                    .and_then(|()| self.possible(to, from, "copies", copies))
            }
            Edit::Swap { a, b, width } => self
                .sides(a, b, width, false)
                .and_then(|()| self.possible(a, b, "exchanges", |m| m == MovePath::Swap)),
            Edit::Transfer { to, from, regs } => self.transfer(to, from, regs as usize),
            Edit::Store { to: slot, .. } if slot.space == Space::Argument => {
                Err(Fault::ReadOnly { slot })
            }
            Edit::Store { to, from, width } => self.access(to, from, width as usize),
            Edit::Reload { to, from, width } => self.access(from, to, width as usize),
            Edit::Recompute { inst, ref regs } => self.recompute(inst, regs),
        }
    }

    /// Whether the machine has such moves within the file of `to`.
    fn possible(
        &self,
        to: PReg,
        from: PReg,
        what: &'static str,
        has: impl Fn(MovePath) -> bool,
    ) -> Result<(), Fault> {
        match has(self.target.file(to.file).moves) {
            true => Ok(()),
            false => Err(Fault::NoMove {
                to: self.named(to),
                from: self.named(from),
                what,
            }),
        }
    }

    fn sides(&self, to: PReg, from: PReg, width: u8, same_allowed: bool) -> Result<(), Fault> {
        let width = width as usize;
        self.within(to, width)?;
        self.within(from, width)?;
        let (to_name, from_name) = (|| self.named(to), || self.named(from));
        if to.file != from.file {
            let (to, from) = (to_name(), from_name());
            return Err(Fault::TwoFiles { to, from });
        }
        if overlap(to, width, from, width) && !(same_allowed && to == from) {
            let (to, from) = (to_name(), from_name());
            return Err(Fault::SidesOverlap { to, from });
        }
        Ok(())
    }

    fn transfer(&self, to: PReg, from: PReg, regs: usize) -> Result<(), Fault> {
        let no_way = || Fault::NoTransfer {
            to: self.named(to),
            from: self.named(from),
        };
        if !self.known(to.file) || !self.known(from.file) {
            return Err(no_way());
        }
        for reg in [to, from] {
            let per_reg = self.target.file(reg.file).units_per_reg;
            if !(reg.unit as usize).is_multiple_of(per_reg) {
                return Err(no_way());
            }
            self.within(reg, regs * per_reg)?;
        }
        match transfer_path(self.target, to.file, from.file) {
            Some(_) => Ok(()),
            None => Err(no_way()),
        }
    }

    fn access(&self, slot: SlotAddr, reg: PReg, width: usize) -> Result<(), Fault> {
        self.within(reg, width)?;
        let file = self.target.file(reg.file);
        if file.spill != SpillPath::Memory {
            let reg = self.named(reg);
            return Err(Fault::NoMemory { reg });
        }
        let bytes = (file.unit_bytes * width) as u32;
        self.place_in_frame(slot, bytes)
    }

    /// Whether `bytes` at `slot` are within the frame, and aligned.
    fn place_in_frame(&self, slot: SlotAddr, bytes: u32) -> Result<(), Fault> {
        if slot.space == Space::Argument {
            let size = self.function.argument_bytes(self.target);
            let end = i64::from(slot.offset) + i64::from(bytes);
            return match slot.offset >= 0 && end <= i64::from(size) {
                true => Ok(()),
                false => Err(Fault::OutOfFrame { slot, bytes, size }),
            };
        }
        let size = self.allocation.frame.size(slot.space);
        let end = slot.offset as i64 + bytes as i64;
        if (slot.offset as i64) < -(size as i64) || end > 0 {
            return Err(Fault::OutOfFrame { slot, bytes, size });
        }
        let align = bytes.next_power_of_two().min(self.target.slot_align());
        // The frame's lowest byte is the aligned one.
        match (slot.offset as i64 + size as i64).rem_euclid(align as i64) {
            0 => Ok(()),
            _ => Err(Fault::SlotAlign { slot, align }),
        }
    }

    fn recompute(&self, inst: Inst, regs: &[PReg]) -> Result<(), Fault> {
        if inst.index() >= self.function.inst_count() || !may_recompute(self.function, inst) {
            return Err(Fault::NotRecomputable(inst));
        }
        if regs.len() != self.function.operands(inst).len() {
            let fault = "a recomputation needs one register per operand";
            return Err(Fault::Malformed(fault));
        }
        let in_registers = |_| None;
        self.operands(inst, regs, in_registers)
            .map_err(|(_, fault)| fault)
    }

    fn within(&self, reg: PReg, width: usize) -> Result<(), Fault> {
        let fits = self.known(reg.file)
            && width > 0
            && reg.unit as usize + width <= self.target.file(reg.file).units
            && !self.target.is_reserved(reg, width);
        match fits {
            true => Ok(()),
            false => Err(Fault::OutOfFile {
                reg: self.named(reg),
                width,
            }),
        }
    }

    fn known(&self, file: File) -> bool {
        file.index() < self.target.files().len()
    }

    fn width(&self, operand: &Operand) -> usize {
        self.target.width(self.function.vreg(operand.vreg).class)
    }

    fn named(&self, reg: PReg) -> NamedReg {
        NamedReg::new(self.target, reg)
    }
}

/// How registers cross between two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferPath {
    /// Whether the destination is the file that spills through the other.
    pub returns: bool,
    /// Units of the file that is spilled through that one unit of the spilled file fills.
    pub pieces: usize,
}

/// How a register of `from` reaches `to`, if one spills through the other.
pub(super) fn transfer_path(target: &Target, to: File, from: File) -> Option<TransferPath> {
    let spills_via = |file: File, via: File| target.file(file).spill == SpillPath::Via(via);
    let (spilled, via, returns) = match (spills_via(to, from), spills_via(from, to)) {
        (true, _) => (to, from, true),
        (_, true) => (from, to, false),
        _ => return None,
    };
    let spilled_units = target.file(spilled).units_per_reg;
    let via_units = target.file(via).units_per_reg;
    let pieces = via_units / spilled_units;
    (pieces >= 1 && via_units.is_multiple_of(spilled_units))
        .then_some(TransferPath { returns, pieces })
}

/// Whether an instruction may be left out: what it computes is all it does.
fn may_vanish(function: &Function, inst: Inst) -> bool {
    let info = function.inst(inst);
    matches!(info.kind, Kind::Copy | Kind::Undef) || is_pure(function, inst)
}

/// Whether an instruction may be executed again: same inputs, same results, nothing else.
fn may_recompute(function: &Function, inst: Inst) -> bool {
    let info = function.inst(inst);
    let operands = function.operands(inst);
    let is_input = |vreg| operands.iter().any(|o| o.role.reads() && o.vreg == vreg);
    let mut results = operands.iter().filter(|o| o.role.writes());
    let overwrites_input = results.any(|result| is_input(result.vreg));
    info.remat.is_some() && info.kind != Kind::Undef && is_pure(function, inst) && !overwrites_input
}

fn is_pure(function: &Function, inst: Inst) -> bool {
    let info = function.inst(inst);
    info.effect == Effect::Pure && !info.kind.is_terminator() && info.clobbers == Clobbers::None
}

fn overlap(a: PReg, a_width: usize, b: PReg, b_width: usize) -> bool {
    let (a_start, b_start) = (a.unit as usize, b.unit as usize);
    a.file == b.file && a_start < b_start + b_width && b_start < a_start + a_width
}

fn refuse(place: Place, site: Site, fault: Fault) -> Box<Violation> {
    Box::new(Violation {
        place,
        site,
        value: None,
        fault,
    })
}
