//! Code that assignment inserts: it waits until the next instruction is seated, and then stands
//! before it.

use super::assign::Assigner;
use super::code::{NONE, Step};
use crate::allocation::{Edit, Point};
use crate::function::{Block, Inst};
use crate::target::{File, PReg};

impl<const W: usize> Assigner<'_, W> {
    /// A copy of `input` into another file, where it takes as many registers.
    pub(super) fn transfer(&self, to: PReg, from: PReg, input: u32) -> Edit {
        let shape = self.code.shape(input);
        let regs = shape.width / self.code.target.file(from.file).units_per_reg;
        Edit::Transfer {
            to,
            from,
            regs: regs as u8,
        }
    }

    /// Puts the edits that wait before `inst`, whose registers are known.
    #[inline]
    pub(super) fn finish_inst(&mut self, step: Step, inst: Inst) {
        if !self.waiting.is_empty() {
            self.flush(Point::Before(inst));
        }
        if step.copies {
            self.out.copies.push((inst, self.frequency));
        }
    }

    fn flush(&mut self, point: Point) {
        if self.waiting.is_empty() {
            return;
        }
        self.edited.resize(self.waiting.len(), NONE);
        self.out.edited.append(&mut self.edited);
        let edits = self.waiting.drain(..).map(|edit| (point, edit));
        self.out.edits.extend(edits);
    }

    /// Puts the edits that wait on the edge that `block` stands on. In other blocks none
    /// waits: a terminator comes last and writes nothing.
    pub(super) fn flush_edge(&mut self, block: Block) {
        if let Some((from, succ)) = self.code.program.blocks[block].edge {
            self.flush(Point::Edge(from, succ));
        }
        debug_assert!(self.waiting.is_empty());
    }

    /// Moves that happen at once, `(to, from, width)`.
    pub(super) fn move_all(&mut self, moves: &[(PReg, PReg, usize)]) {
        super::moves::push_moves(moves, None, &mut self.waiting);
    }

    pub(super) fn store(&mut self, value: u32) {
        let from = self.register(value);
        if let Some(to) = self.stores.slot(value) {
            let width = self.code.shape(value).width as u8;
            self.push(
                Some(self.fragment[value as usize]),
                Edit::Store { to, from, width },
            );
        }
    }

    /// Brings `value` back to `unit`, in a fragment unless that is the seat of a step.
    pub(super) fn reload(&mut self, value: u32, unit: usize, fragment: Option<u32>) {
        let shape = self.code.shape(value);
        let to = PReg::new(File::new(shape.file), unit);
        let remat = self.plan.and_then(|plan| plan.remat.instruction(value));
        if let Some(inst) = remat {
            let regs = self
                .code
                .function
                .operands(inst)
                .iter()
                .map(|_| to)
                .collect();
            self.push(fragment, Edit::Recompute { inst, regs });
        } else if let Some(from) = self.stores.slot(value) {
            let width = shape.width as u8;
            self.push(fragment, Edit::Reload { to, from, width });
        }
    }

    /// Adds an edit of the register of `fragment`.
    fn push(&mut self, fragment: Option<u32>, edit: Edit) {
        self.edited.resize(self.waiting.len(), NONE);
        self.edited.push(fragment.unwrap_or(NONE));
        self.waiting.push(edit);
    }
}
