//! What edits do to locations.

use super::{Flow, Outcome};
use crate::allocation::{Edit, Point, SlotAddr, Space};
use crate::check::rules::transfer_path;
use crate::check::state::{Content, file_bit};
use crate::check::violation::{Fault, Location, Site};
use crate::function::{Inst, VReg};
use crate::target::{File, PReg};

impl Flow<'_> {
    pub(super) fn edits<'e>(
        &mut self,
        point: Point,
        edits: impl Iterator<Item = &'e Edit>,
    ) -> Outcome {
        for (index, edit) in edits.enumerate() {
            self.at.point = point;
            self.at.edit = index;
            self.edit(edit)?;
        }
        Ok(())
    }

    fn edit(&mut self, edit: &Edit) -> Outcome {
        match *edit {
            Edit::Move { to, from, width } => self.move_units(to, from, width as usize),
            Edit::Swap { a, b, width } => self.swap_units(a, b, width as usize),
            Edit::Transfer { to, from, regs } => self.transfer(to, from, regs as usize),
            Edit::Store { to, from, width } => self.store(to, from, width as usize),
            Edit::Reload { to, from, width } => self.reload(to, from, width as usize),
            Edit::Recompute { inst, ref regs } => self.recompute(inst, regs),
        }
    }

    fn move_units(&mut self, to: PReg, from: PReg, width: usize) -> Outcome {
        let to = self.target.unit(to).index();
        for unit in 0..width {
            let content = self.source(from.offset(unit))?;
            self.locations.set(to + unit, content);
        }
        Ok(())
    }

    fn swap_units(&mut self, a: PReg, b: PReg, width: usize) -> Outcome {
        for unit in 0..width {
            let (a, b) = (a.offset(unit), b.offset(unit));
            let (from_a, from_b) = (self.source(a)?, self.source(b)?);
            self.locations.set(self.target.unit(a).index(), from_b);
            self.locations.set(self.target.unit(b).index(), from_a);
        }
        Ok(())
    }

    fn transfer(&mut self, to: PReg, from: PReg, regs: usize) -> Outcome {
        let lossy = |flow: &Self| {
            let (to, from) = (flow.named(to), flow.named(from));
            flow.refuse_edit(Fault::LossyTransfer { to, from })
        };
        let Some(path) = transfer_path(self.target, to.file, from.file) else {
            return Err(lossy(self));
        };
        let (to_unit, pieces) = (self.target.unit(to).index(), path.pieces);
        let spilled_file = if path.returns { to.file } else { from.file };
        for unit in 0..regs * self.target.file(spilled_file).units_per_reg {
            if path.returns {
                let whole = self.source(from.offset(unit * pieces))?.unit_whole(pieces);
                for piece in 0..pieces {
                    let content = self.source(from.offset(unit * pieces + piece))?;
                    if content != whole.unit_piece(piece, pieces) {
                        return Err(lossy(self));
                    }
                }
                if whole.is_unit_piece() || !self.is_at_home(whole, to.file) {
                    return Err(lossy(self));
                }
                self.locations.set(to_unit + unit, whole);
            } else {
                let whole = self.source(from.offset(unit))?;
                if pieces > 1 && whole.is_unit_piece() {
                    return Err(lossy(self));
                }
                for piece in 0..pieces {
                    let content = whole.unit_piece(piece, pieces);
                    self.locations.set(to_unit + unit * pieces + piece, content);
                }
            }
        }
        Ok(())
    }

    fn store(&mut self, to: SlotAddr, from: PReg, width: usize) -> Outcome {
        let per_unit = self.words.per_unit(self.target, from.file);
        let first = self.first_word(to);
        for unit in 0..width {
            let content = self.source(from.offset(unit))?;
            for word in 0..per_unit {
                let location = first + unit * per_unit + word;
                self.locations
                    .set(location, content.word_piece(word, per_unit));
            }
        }
        Ok(())
    }

    fn reload(&mut self, to: PReg, from: SlotAddr, width: usize) -> Outcome {
        let per_unit = self.words.per_unit(self.target, to.file);
        let first = self.first_word(from);
        for unit in 0..width {
            let content =
                |flow: &Self, word: usize| flow.locations.get(first + unit * per_unit + word);
            let whole = content(self, 0).word_whole(per_unit);
            for word in 0..per_unit {
                let held = content(self, word);
                if held.is_nothing() || held != whole.word_piece(word, per_unit) {
                    let from = Location::Slot(from);
                    return Err(self.refuse_edit(Fault::UnknownSource { from }));
                }
            }
            self.not_pinned(whole, || Location::Slot(from))?;
            self.locations
                .set(self.target.unit(to).index() + unit, whole);
        }
        Ok(())
    }

    fn recompute(&mut self, inst: Inst, regs: &[PReg]) -> Outcome {
        if let Some(record) = self.equations.record(inst) {
            return self.recompute_recorded(inst, record, regs);
        }
        if !self.equations.holds(inst) {
            return Err(self.refuse_edit(Fault::StaleEquation(inst)));
        }
        let operands = self.function.operands(inst);
        let site = Site::Edit(self.at.point, self.at.edit);
        for (operand, &reg) in operands.iter().zip(regs) {
            if operand.role.reads() {
                self.expect(operand.vreg, reg, site)?;
                // The hardware may be at work on what is pinned.
                for unit in 0..self.width(operand.vreg) {
                    self.source(reg.offset(unit))?;
                }
            }
        }
        for (operand, &reg) in operands.iter().zip(regs) {
            if operand.role.writes() {
                self.place(operand.vreg, reg);
            }
        }
        Ok(())
    }

    /// What an edit reads from `reg`.
    fn source(&self, reg: PReg) -> Outcome<Content> {
        let content = self.locations.get(self.target.unit(reg).index());
        if content.is_nothing() {
            let from = Location::Reg(self.named(reg));
            return Err(self.refuse_edit(Fault::UnknownSource { from }));
        }
        self.not_pinned(content, || Location::Reg(self.named(reg)))?;
        Ok(content)
    }

    pub(super) fn not_pinned(&self, content: Content, from: impl Fn() -> Location) -> Outcome {
        if !self.watch_pinned {
            return Ok(());
        }
        for &vreg in &self.pinned {
            let mut parts = self.parts(vreg).iter();
            let part = parts.position(|&value| value == content.value());
            if let Some(part) = part
                && self.is_live_here(vreg)
            {
                let fault = Fault::Pinned { from: from() };
                let site = Site::Edit(self.at.point, self.at.edit);
                return Err(self.refuse(site, Some((vreg, part)), fault));
            }
        }
        Ok(())
    }

    /// Whether the current value of `vreg` may be read after the point of the current edit.
    fn is_live_here(&self, vreg: VReg) -> bool {
        let (function, block) = (self.function, self.at.block);
        let live_along = |succ: usize| {
            let edge = &function.succs(block)[succ];
            let is_param = function.block(edge.block).params.contains(&vreg);
            let live = self.live.at_start(edge.block);
            edge.args.contains(&vreg) || !is_param && live.binary_search(&vreg).is_ok()
        };
        let skip = match self.at.point {
            Point::Before(_) => self.at.index,
            Point::After(_) => self.at.index + 1,
            Point::Edge(_, succ) => return live_along(succ as usize),
        };
        let rest = self.allocation.block_insts(function, block).skip(skip);
        for inst in rest {
            let operands = function.operands(inst);
            if operands.iter().any(|o| o.vreg == vreg && o.role.reads()) {
                return true;
            }
            if operands.iter().any(|o| o.vreg == vreg) {
                return false;
            }
        }
        (0..function.succs(block).len()).any(live_along)
    }

    pub(super) fn is_at_home(&self, content: Content, file: File) -> bool {
        let home = self.homes.get((content.value() - self.base) as usize);
        home.is_some_and(|files| files & file_bit(file) != 0)
    }

    /// The location of the first word of a slot.
    pub(super) fn first_word(&self, slot: SlotAddr) -> usize {
        let size = self.allocation.frame.size(slot.space);
        let base = match slot.space {
            Space::Local => self.target.unit_count(),
            Space::Shared => self.shared_words,
            Space::Argument => return self.argument_words + self.words.at(slot.offset, 0),
        };
        base + self.words.at(slot.offset, size)
    }
}
