//! Ways to damage an allocation in one place.

use warpalloc::Allocation;
use warpalloc::allocation::{Edit, Edits, Point};
use warpalloc::function::{Convention, Function, Inst, Kind, Operand};
use warpalloc::generate::Rng;
use warpalloc::target::{File, PReg, Target};

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    WrongRegister,
    SwappedOperands,
    DroppedEdit,
    DuplicatedEdit,
    ReorderedEdits,
    MisplacedEdit,
    WrongSlot,
    OverlappingSlots,
    BrokenPair,
    MisalignedGroup,
    ClobberedValue,
    StaleReload,
    WrongRecomputation,
    NeverWritten,
    UnrestoredRegister,
    OverBudget,
    DeletedInstruction,
    ReorderedInstructions,
    HoistedOther,
    HoistedNever,
    HoistedTooEarly,
    HoistedFromChanged,
    HoistedOverwritten,
    HoistedElsewhere,
}

impl Damage {
    /// Damage to code that was moved out of loops.
    pub const HOISTED: [Damage; 6] = [
        Damage::HoistedOther,
        Damage::HoistedNever,
        Damage::HoistedTooEarly,
        Damage::HoistedFromChanged,
        Damage::HoistedOverwritten,
        Damage::HoistedElsewhere,
    ];

    /// Damage to any code.
    pub const ALL: [Damage; 18] = [
        Damage::WrongRegister,
        Damage::SwappedOperands,
        Damage::DroppedEdit,
        Damage::DuplicatedEdit,
        Damage::ReorderedEdits,
        Damage::MisplacedEdit,
        Damage::WrongSlot,
        Damage::OverlappingSlots,
        Damage::BrokenPair,
        Damage::MisalignedGroup,
        Damage::ClobberedValue,
        Damage::StaleReload,
        Damage::WrongRecomputation,
        Damage::NeverWritten,
        Damage::UnrestoredRegister,
        Damage::OverBudget,
        Damage::DeletedInstruction,
        Damage::ReorderedInstructions,
    ];
}

type EditList = Vec<(Point, Edit)>;

/// A copy of `sound` with damage of `kind`, where there is something to damage.
pub fn damage(
    kind: Damage,
    function: &Function,
    target: &Target,
    sound: &Allocation,
    rng: &mut Rng,
) -> Option<Allocation> {
    let mut mutant = sound.clone();
    let mut edits: EditList = sound.edits.iter().map(|(p, e)| (p, e.clone())).collect();
    let mut hit = Hit {
        function,
        target,
        mutant: &mut mutant,
        edits: &mut edits,
        rng,
    };
    match kind {
        Damage::WrongRegister => hit.wrong_register(),
        Damage::SwappedOperands => hit.swapped_operands(),
        Damage::DroppedEdit => hit.dropped_edit(),
        Damage::DuplicatedEdit => hit.duplicated_edit(),
        Damage::ReorderedEdits => hit.reordered_edits(),
        Damage::MisplacedEdit => hit.misplaced_edit(),
        Damage::WrongSlot => hit.wrong_slot(),
        Damage::OverlappingSlots => hit.overlapping_slots(),
        Damage::BrokenPair => hit.broken_pair(),
        Damage::MisalignedGroup => hit.misaligned_group(),
        Damage::ClobberedValue => hit.clobbered_value(),
        Damage::StaleReload => hit.stale_reload(),
        Damage::WrongRecomputation => hit.wrong_recomputation(),
        Damage::NeverWritten => hit.never_written(),
        Damage::UnrestoredRegister => hit.unrestored_register(),
        Damage::OverBudget => hit.over_budget(),
        Damage::DeletedInstruction => hit.deleted_instruction(),
        Damage::ReorderedInstructions => hit.reordered_instructions(),
        Damage::HoistedOther => hit.hoisted_other(),
        Damage::HoistedNever => hit.hoisted_never(),
        Damage::HoistedTooEarly => hit.hoisted_too_early(),
        Damage::HoistedFromChanged => hit.hoisted_from_changed(),
        Damage::HoistedOverwritten => hit.hoisted_overwritten(),
        Damage::HoistedElsewhere => hit.hoisted_elsewhere(),
    }?;
    mutant.edits = Edits::new(function, edits);
    Some(mutant)
}

struct Hit<'a> {
    function: &'a Function,
    target: &'a Target,
    mutant: &'a mut Allocation,
    edits: &'a mut EditList,
    rng: &'a mut Rng,
}

impl Hit<'_> {
    fn wrong_register(&mut self) -> Option<()> {
        let (inst, position) = self.some_operand(|_, _| true)?;
        let row = self.function.operand_range(inst).start + position;
        let class = self
            .function
            .vreg(self.function.operands(inst)[position].vreg)
            .class;
        let others: Vec<PReg> = self
            .target
            .registers(class)
            .filter(|&reg| reg != self.mutant.registers[row])
            .collect();
        self.mutant.registers[row] = *self.rng.pick(&others)?;
        Some(())
    }

    fn swapped_operands(&mut self) -> Option<()> {
        let function = self.function;
        let (inst, a) = self.some_operand(|inst, _| function.operands(inst).len() > 1)?;
        let row = function.operand_range(inst).start;
        let operands = function.operands(inst);
        let class = |position: usize| function.vreg(operands[position].vreg).class;
        let registers = &self.mutant.registers[row..];
        let others: Vec<usize> = (0..operands.len())
            .filter(|&b| class(b) == class(a) && registers[b] != registers[a])
            .collect();
        let b = *self.rng.pick(&others)?;
        self.mutant.registers.swap(row + a, row + b);
        Some(())
    }

    fn dropped_edit(&mut self) -> Option<()> {
        let at = self.some_edit(|_, _| true)?;
        self.edits.remove(at);
        Some(())
    }

    /// Executes an edit a second time, somewhere else.
    fn duplicated_edit(&mut self) -> Option<()> {
        let at = self.some_edit(|_, _| true)?;
        let edit = self.edits[at].1.clone();
        let elsewhere = self.rng.below(self.edits.len());
        let point = self.edits[elsewhere].0;
        self.edits.insert(elsewhere, (point, edit));
        Some(())
    }

    fn reordered_edits(&mut self) -> Option<()> {
        let points: Vec<Point> = self.edits.iter().map(|edit| edit.0).collect();
        let at = self.some_edit(|at, _| points.get(at + 1) == Some(&points[at]))?;
        self.edits.swap(at, at + 1);
        Some(())
    }

    fn misplaced_edit(&mut self) -> Option<()> {
        let at = self.some_edit(|_, _| true)?;
        let elsewhere = self.rng.below(self.edits.len());
        let (_, edit) = self.edits.remove(at);
        let elsewhere = elsewhere.min(self.edits.len().checked_sub(1)?);
        let point = self.edits[elsewhere].0;
        self.edits.insert(elsewhere, (point, edit));
        Some(())
    }

    fn wrong_slot(&mut self) -> Option<()> {
        let slots: Vec<i32> = self
            .edits
            .iter()
            .filter_map(|(_, edit)| slot(edit))
            .collect();
        let offset = *self.rng.pick(&slots)?;
        self.change_slot(offset)
    }

    /// Lets a slot reach into its neighbour.
    fn overlapping_slots(&mut self) -> Option<()> {
        let at =
            self.some_edit(|_, edit| matches!(edit, Edit::Store { width, .. } if *width > 1))?;
        if let Edit::Store { to, from, width } = &mut self.edits[at].1 {
            let bytes = self.target.file(from.file).unit_bytes as i32;
            to.offset += bytes
                * if self.rng.one_in(2) {
                    1
                } else {
                    -(*width as i32 - 1)
                };
        }
        Some(())
    }

    fn change_slot(&mut self, offset: i32) -> Option<()> {
        let at = self.some_edit(|_, edit| slot(edit).is_some_and(|old| old != offset))?;
        match &mut self.edits[at].1 {
            Edit::Store { to, .. } => to.offset = offset,
            Edit::Reload { from, .. } => from.offset = offset,
            _ => return None,
        }
        Some(())
    }

    /// Shifts a wide operand off its alignment.
    fn broken_pair(&mut self) -> Option<()> {
        let (function, target) = (self.function, self.target);
        let (inst, position) = self.some_operand(|inst, position| {
            let vreg = function.operands(inst)[position].vreg;
            target.class(function.vreg(vreg).class).align > 1
        })?;
        let row = function.operand_range(inst).start + position;
        let reg = &mut self.mutant.registers[row];
        *reg = reg.offset(1);
        Some(())
    }

    fn misaligned_group(&mut self) -> Option<()> {
        let function = self.function;
        let grouped: Vec<Inst> = function
            .insts()
            .filter(|&inst| function.groups(inst).iter().any(|g| g.align > 1))
            .collect();
        let inst = *self.rng.pick(&grouped)?;
        let group = *function.groups(inst).iter().find(|g| g.align > 1)?;
        let row = function.operand_range(inst).start;
        let file = self.mutant.registers[row + group.first as usize].file;
        let shift = self.target.file(file).units_per_reg;
        for position in group.range() {
            let reg = &mut self.mutant.registers[row + position];
            *reg = reg.offset(shift);
        }
        Some(())
    }

    /// Moves one input over another right before they are read.
    fn clobbered_value(&mut self) -> Option<()> {
        let function = self.function;
        let registers = self.mutant.registers.clone();
        let inputs = |inst: Inst| -> Vec<PReg> {
            let row = function.operand_range(inst).start;
            let operands = function.operands(inst).iter().enumerate();
            let reads = operands.filter(|(_, o)| o.role.reads());
            let regs = reads.map(|(position, _)| registers[row + position]);
            regs.filter(|reg| reg.file == File::R).collect()
        };
        let (inst, _) = self.some_operand(|inst, _| {
            let inputs = inputs(inst);
            inputs.iter().any(|&reg| reg != inputs[0])
        })?;
        let inputs = inputs(inst);
        let from = *self.rng.pick(&inputs)?;
        let to = *inputs.iter().find(|&&reg| reg != from)?;
        let width = 1;
        self.edits
            .push((Point::Before(inst), Edit::Move { to, from, width }));
        Some(())
    }

    /// Stores a result before it is computed, so that memory keeps what was there.
    fn stale_reload(&mut self) -> Option<()> {
        let at = self.some_edit(|_, edit| matches!(edit, Edit::Store { .. }))?;
        let Point::After(inst) = self.edits[at].0 else {
            return None;
        };
        let (_, edit) = self.edits.remove(at);
        self.edits.push((Point::Before(inst), edit));
        Some(())
    }

    fn wrong_recomputation(&mut self) -> Option<()> {
        let function = self.function;
        let is_again = |edit: &Edit| matches!(edit, Edit::Recompute { .. });
        let at = self.some_edit(|_, edit| is_again(edit))?;
        let Edit::Recompute { inst, .. } = self.edits[at].1 else {
            return None;
        };
        let class = |inst: Inst| function.vreg(function.operands(inst)[0].vreg).class;
        let others: Vec<Inst> = function
            .insts()
            .filter(|&other| other != inst && function.operands(other).len() == 1)
            .filter(|&other| class(other) == class(inst))
            .collect();
        let other = *self.rng.pick(&others)?;
        if let Edit::Recompute { inst, .. } = &mut self.edits[at].1 {
            *inst = other;
        }
        Some(())
    }

    /// Moves between registers that the allocation uses nowhere.
    fn never_written(&mut self) -> Option<()> {
        let info = self.target.file(File::R);
        let top = |distance: usize| {
            let unit = info.units.checked_sub(distance * info.units_per_reg)?;
            Some(PReg::new(File::R, unit))
        };
        let (from, to) = (top(1)?, top(2)?);
        // Nothing is wider than eight registers.
        let unused_from = top(10)?;
        let reaches = |reg: &PReg| reg.file == File::R && *reg >= unused_from;
        let written = |edit: &Edit| match edit {
            Edit::Move { to, .. } | Edit::Reload { to, .. } => reaches(to),
            _ => false,
        };
        let used = self.mutant.registers.iter().any(reaches);
        if used || self.edits.iter().any(|(_, edit)| written(edit)) {
            return None;
        }
        let at = self.some_edit(|_, _| true)?;
        let point = self.edits[at].0;
        let width = 1;
        self.edits
            .insert(at, (point, Edit::Move { to, from, width }));
        Some(())
    }

    /// Forgets to give back a register of the caller's, or never saved it.
    fn unrestored_register(&mut self) -> Option<()> {
        if self.function.convention() != Convention::Device {
            return None;
        }
        let preserved = self.target.abi().preserved.clone();
        let function = self.function;
        let restores = |point: &Point, edit: &Edit| match (point, edit) {
            (Point::Before(inst), Edit::Reload { to, .. }) => {
                function.inst(*inst).kind == Kind::Return && preserved.contains(to)
            }
            _ => false,
        };
        let points: Vec<Point> = self.edits.iter().map(|edit| edit.0).collect();
        if let Some(at) = self.some_edit(|at, edit| restores(&points[at], edit)) {
            self.edits.remove(at);
            return Some(());
        }
        let at = self
            .some_edit(|_, edit| matches!(edit, Edit::Reload { to, .. } if to.file == File::R))?;
        let (point, Edit::Reload { to: from, .. }) = self.edits[at] else {
            return None;
        };
        let to = *self.rng.pick(&preserved)?;
        if (to.unit as usize) < self.target.file(File::R).units {
            self.edits
                .insert(at + 1, (point, Edit::Move { to, from, width: 1 }));
            return Some(());
        }
        None
    }

    fn over_budget(&mut self) -> Option<()> {
        let (inst, position) = self.some_operand(|_, _| true)?;
        let row = self.function.operand_range(inst).start + position;
        let reg = &mut self.mutant.registers[row];
        *reg = PReg::new(reg.file, self.target.file(reg.file).units);
        Some(())
    }

    fn deleted_instruction(&mut self) -> Option<()> {
        let insts: Vec<Inst> = self.function.insts().collect();
        let inst = *self.rng.pick(&insts)?;
        self.mutant.deleted.insert(inst);
        Some(())
    }

    /// Exchanges two neighbours, and with them the edits at their points.
    fn reordered_instructions(&mut self) -> Option<()> {
        let insts: Vec<Inst> = self.function.insts().collect();
        let at = self.rng.below(insts.len().checked_sub(1)?);
        let mut order = insts;
        if self.function.block_of(order[at]) != self.function.block_of(order[at + 1]) {
            return None;
        }
        order.swap(at, at + 1);
        self.mutant.order = Some(order);
        Some(())
    }

    /// Computes another instruction before the loop than the one that was hoisted.
    fn hoisted_other(&mut self) -> Option<()> {
        let function = self.function;
        let (at, inst) = self.some_hoisted()?;
        let shape = |inst: Inst| -> Vec<_> {
            let operands = function.operands(inst).iter();
            let of = |o: &Operand| (o.role, function.vreg(o.vreg).class);
            operands.map(of).collect()
        };
        let repeatable = |other: &Inst| function.inst(*other).remat.is_some();
        let others: Vec<Inst> = function
            .insts()
            .filter(|&other| other != inst && shape(other) == shape(inst))
            .filter(repeatable)
            .collect();
        let other = *self.rng.pick(&others)?;
        if let Edit::Recompute { inst, .. } = &mut self.edits[at].1 {
            *inst = other;
        }
        Some(())
    }

    /// Leaves the computation out, although its instruction is deleted.
    fn hoisted_never(&mut self) -> Option<()> {
        let (at, _) = self.some_hoisted()?;
        self.edits.remove(at);
        Some(())
    }

    /// Computes it right before an instruction that gives an input its value.
    fn hoisted_too_early(&mut self) -> Option<()> {
        let function = self.function;
        let (at, inst) = self.some_hoisted()?;
        let operands = function.operands(inst).iter();
        let inputs: Vec<_> = operands
            .filter(|o| o.role.reads())
            .map(|o| o.vreg)
            .collect();
        let writes_input = |other: &Inst| {
            let mut operands = function.operands(*other).iter();
            operands.any(|o| o.role.writes() && inputs.contains(&o.vreg))
        };
        let writers: Vec<Inst> = function.insts().filter(writes_input).collect();
        let writer = *self.rng.pick(&writers)?;
        let (_, edit) = self.edits.remove(at);
        self.edits.push((Point::Before(writer), edit));
        Some(())
    }

    /// Overwrites an input right before the computation.
    fn hoisted_from_changed(&mut self) -> Option<()> {
        let (at, inst) = self.some_hoisted()?;
        let Edit::Recompute { ref regs, .. } = self.edits[at].1 else {
            return None;
        };
        let operands = self.function.operands(inst).iter().zip(regs);
        let inputs = operands.filter(|(o, reg)| o.role.reads() && reg.file == File::R);
        let inputs: Vec<PReg> = inputs.map(|(_, &reg)| reg).collect();
        let to = *self.rng.pick(&inputs)?;
        let from = self.some_register(to)?;
        let point = self.edits[at].0;
        let width = 1;
        self.edits
            .insert(at, (point, Edit::Move { to, from, width }));
        Some(())
    }

    /// Overwrites the result where its instruction would have computed it.
    fn hoisted_overwritten(&mut self) -> Option<()> {
        let (at, inst) = self.some_hoisted()?;
        let Edit::Recompute { ref regs, .. } = self.edits[at].1 else {
            return None;
        };
        let operands = self.function.operands(inst).iter().zip(regs);
        let mut results = operands.filter(|(o, reg)| o.role.writes() && reg.file == File::R);
        let to = *results.next()?.1;
        let from = self.some_register(to)?;
        let width = 1;
        self.edits
            .push((Point::Before(inst), Edit::Move { to, from, width }));
        Some(())
    }

    /// Reads or writes another register than it should.
    fn hoisted_elsewhere(&mut self) -> Option<()> {
        let (at, inst) = self.some_hoisted()?;
        let position = self.rng.below(self.function.operands(inst).len());
        let vreg = self.function.operands(inst)[position].vreg;
        let class = self.function.vreg(vreg).class;
        let all: Vec<PReg> = self.target.registers(class).collect();
        let other = *self.rng.pick(&all)?;
        if let Edit::Recompute { regs, .. } = &mut self.edits[at].1 {
            regs[position] = other;
        }
        Some(())
    }

    /// A computation on the way into a loop, of an instruction that is deleted.
    fn some_hoisted(&mut self) -> Option<(usize, Inst)> {
        let deleted = self.mutant.deleted.clone();
        let points: Vec<Point> = self.edits.iter().map(|edit| edit.0).collect();
        let at = self.some_edit(|at, edit| match (points[at], edit) {
            (Point::Edge(..), Edit::Recompute { inst, .. }) => deleted.contains(*inst),
            _ => false,
        })?;
        match self.edits[at].1 {
            Edit::Recompute { inst, .. } => Some((at, inst)),
            _ => None,
        }
    }

    /// A register in use, other than `reg`.
    fn some_register(&mut self, reg: PReg) -> Option<PReg> {
        let used = self.mutant.registers.iter().copied();
        let others: Vec<PReg> = used.filter(|r| r.file == File::R && *r != reg).collect();
        self.rng.pick(&others).copied()
    }

    fn some_operand(&mut self, fits: impl Fn(Inst, usize) -> bool) -> Option<(Inst, usize)> {
        let function = self.function;
        let all: Vec<(Inst, usize)> = function
            .insts()
            .flat_map(|inst| (0..function.operands(inst).len()).map(move |at| (inst, at)))
            .filter(|&(inst, at)| fits(inst, at))
            .collect();
        self.rng.pick(&all).copied()
    }

    fn some_edit(&mut self, fits: impl Fn(usize, &Edit) -> bool) -> Option<usize> {
        let edits = self.edits.iter().enumerate();
        let fitting: Vec<usize> = edits
            .filter(|(at, (_, edit))| fits(*at, edit))
            .map(|(at, _)| at)
            .collect();
        self.rng.pick(&fitting).copied()
    }
}

fn slot(edit: &Edit) -> Option<i32> {
    match edit {
        Edit::Store { to, .. } => Some(to.offset),
        Edit::Reload { from, .. } => Some(from.offset),
        _ => None,
    }
}
