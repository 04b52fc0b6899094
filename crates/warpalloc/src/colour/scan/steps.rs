//! Steps, and how they touch values.
//!
//! Each access tells whether what it leaves behind is read later, and whether an input ends
//! with it, so that nobody who walks forwards has to look ahead.

use super::code::{Code, NONE, is_pinned};
use crate::function::{Block, Inst, Role, VReg};
use crate::ir::{Op, Value};
use cranelift_entity::EntityRef;

/// An instruction, or inserted code, with the copies that seat its constrained operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Position of the operation in its block.
    pub op: u32,
    /// The operation before it copies values into its seats.
    pub seats: bool,
    /// The operation after it copies values out of its seats.
    pub unseats: bool,
    /// It has seats, clobbers or results that are written early.
    pub constrained: bool,
    /// It copies values.
    pub copies: bool,
    /// The instruction, [`NONE`] if it is none.
    inst: u32,
    /// Where the operands of the instruction begin in the row of all operands.
    pub operands: u32,
}

/// How a step touches one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub value: u32,
    pub role: Role,
    /// The file of the value.
    pub file: u8,
    /// What the value holds after the step is read later.
    pub lives: bool,
    /// An input, the first that names the value, whose contents nothing reads after the step.
    pub dies: bool,
}

impl Step {
    /// The instruction, if it is one.
    pub fn inst(self) -> Option<Inst> {
        (self.inst != NONE).then(|| Inst::from_u32(self.inst))
    }
}

impl Code<'_> {
    pub(super) fn add_steps(&mut self, blocks: usize) {
        self.steps.reserve(self.function.inst_count());
        let function = self.function;
        let has_pins = function.has_pinned();
        for block in (0..blocks).map(Block::new) {
            let ops = &self.program.blocks[block].ops;
            if ops.is_empty() {
                self.add_instructions(block);
                continue;
            }
            let mut at = 0;
            while at < ops.len() {
                // The instruction comes right behind the copies into its seats.
                let seats = self.copies_into_seats(&ops[at]);
                at += usize::from(seats);
                let unseats = ops
                    .get(at + 1)
                    .is_some_and(|op| self.copies_out_of_seats(op));
                let (inst, operands, copies) = self.summary(&ops[at]);
                let constrained = seats || unseats || self.is_constrained(&ops[at], has_pins);
                self.has_copies |= copies;
                self.steps.push(Step {
                    op: at as u32,
                    seats,
                    unseats,
                    constrained,
                    copies,
                    inst,
                    operands,
                });
                at += 1 + usize::from(unseats);
            }
            self.step_starts.push(self.steps.len() as u32);
        }
    }

    /// Adds the steps of a block where nothing is constrained.
    fn add_instructions(&mut self, block: Block) {
        for (at, inst) in self.function.block_insts(block).enumerate() {
            let inst = self.program.at(inst);
            let copies = self.function.traits(inst).is_copy();
            self.has_copies |= copies;
            self.steps.push(Step {
                op: at as u32,
                seats: false,
                unseats: false,
                constrained: false,
                copies,
                inst: inst.as_u32(),
                operands: self.function.operand_range(inst).start as u32,
            });
        }
        self.step_starts.push(self.steps.len() as u32);
    }

    /// The instruction that `op` is, where its operands begin, and whether it copies values.
    fn summary(&self, op: &Op) -> (u32, u32, bool) {
        match op {
            Op::Inst { inst, .. } => {
                let operands = self.function.operand_range(*inst).start as u32;
                let copies = self.function.traits(*inst).is_copy();
                (inst.as_u32(), operands, copies)
            }
            op => (NONE, 0, matches!(op, Op::Copies(_))),
        }
    }

    fn copies_into_seats(&self, op: &Op) -> bool {
        matches!(op, Op::Copies(pairs) if self.link_of(pairs[0].0.as_u32()).is_some())
    }

    fn copies_out_of_seats(&self, op: &Op) -> bool {
        matches!(op, Op::Copies(pairs) if self.link_of(pairs[0].1.as_u32()).is_some())
    }

    fn is_constrained(&self, op: &Op, has_pins: bool) -> bool {
        let Op::Inst { inst, values } = op else {
            return false;
        };
        let function = self.function;
        !function.is_free(*inst)
            || function.traits(*inst).clobbers()
            || !self.link.is_empty() && values.iter().any(|v| self.link_of(v.as_u32()).is_some())
            || has_pins && values.iter().any(|&v| is_pinned(&self.program, v))
    }

    pub(super) fn add_accesses(&mut self) {
        let mut accesses = Vec::with_capacity(self.function.operand_count());
        let mut starts = Vec::with_capacity(self.steps.len() + 1);
        starts.push(0);
        // By value, the number of the last block, plus one, in which it was live.
        let mut live = vec![0; self.value_count()];
        for block in (0..self.block_count()).map(Block::new) {
            let first = starts.len() - 1;
            for number in self.steps(block) {
                self.find_accesses(block, self.steps[number], &mut accesses);
                starts.push(accesses.len() as u32);
            }
            let now = block.as_u32() + 1;
            self.live_out(block).for_each(|v| live[v as usize] = now);
            for ends in starts[first..].windows(2).rev() {
                step_back(
                    &mut accesses[ends[0] as usize..ends[1] as usize],
                    &mut live,
                    now,
                );
            }
        }
        self.accesses = accesses;
        self.access_starts = starts;
    }

    fn find_accesses(&self, block: Block, step: Step, out: &mut Vec<Access>) {
        let access = |value: Value, role| Access {
            value: value.as_u32(),
            role,
            file: self.shape(value.as_u32()).file as u8,
            lives: false,
            dies: false,
        };
        let Some(op) = self.op(block, step) else {
            let inst = step.inst().unwrap_or(Inst::NONE);
            let operands = self.function.operands(inst).iter();
            let value = |vreg: VReg| Value::from_u32(vreg.as_u32());
            out.extend(operands.map(|o| access(value(o.vreg), o.role)));
            return;
        };
        if !step.constrained {
            op.for_each_access(self.function, |v, role| out.push(access(v, role)));
            return;
        }
        let seated = self.seated(block, step).iter();
        out.extend(seated.map(|(_, from)| access(*from, Role::Use)));
        op.for_each_access(self.function, |v, role| {
            if self.link_of(v.as_u32()).is_none() && self.pin(v.as_u32()).is_none() {
                out.push(access(v, role));
            }
        });
        let unseated = self.unseated(block, step).iter();
        out.extend(unseated.map(|(to, _)| access(*to, Role::Def)));
    }
}

/// Tells of the accesses of a step what is read after it. `live` has, by value, `now` where it
/// is live behind the step, and in the end where it is live before.
fn step_back(accesses: &mut [Access], live: &mut [u32], now: u32) {
    for access in accesses.iter_mut() {
        access.lives = live[access.value as usize] == now;
    }
    for access in accesses.iter().filter(|a| a.role.writes()) {
        live[access.value as usize] = 0;
    }
    let mut rewrites = false;
    for access in accesses.iter_mut().filter(|a| a.role == Role::Use) {
        let before = &mut live[access.value as usize];
        access.dies = *before != now;
        rewrites |= access.dies && access.lives;
        *before = now;
    }
    for access in accesses.iter().filter(|a| a.role == Role::UseDef) {
        live[access.value as usize] = now;
    }
    if rewrites {
        // What is written in place lives on, whoever else reads it.
        for at in 0..accesses.len() {
            let value = accesses[at].value;
            accesses[at].dies &= !accesses[at].lives || is_rewritten(accesses, value);
        }
    }
}

/// Whether a step writes `value` anew.
pub(super) fn is_rewritten(accesses: &[Access], value: u32) -> bool {
    let is_written = |a: &Access| matches!(a.role, Role::Def | Role::EarlyDef);
    accesses.iter().any(|a| a.value == value && is_written(a))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{case, code};

    /// By step and operand, whether what it leaves behind is read, and whether it ends there.
    fn flags(blocks: &str) -> Vec<Vec<(bool, bool)>> {
        let case = case(16, blocks);
        let code = code(&case);
        let flags = |number| {
            let accesses = code.accesses(number).iter();
            accesses.map(|a| (a.lives, a.dies)).collect()
        };
        (0..code.step_count()).map(flags).collect()
    }

    const READ_LATER: (bool, bool) = (true, false);
    const ENDS: (bool, bool) = (false, true);
    const NEITHER: (bool, bool) = (false, false);

    #[test]
    fn a_value_ends_once_at_its_last_read() {
        let found = flags(
            "block0:
                v0:r32 = a : read
                v1:r32 = b v0
                v2:r32 = c v0, v0
                v3:r32 = d v1, v2
                use v1 : write
                exit : exit",
        );
        assert_eq!(found[1], [READ_LATER, READ_LATER]);
        assert_eq!(found[2], [READ_LATER, ENDS, NEITHER]);
        assert_eq!(found[3], [NEITHER, READ_LATER, ENDS]);
        assert_eq!(found[4], [ENDS]);
    }

    #[test]
    fn contents_that_are_overwritten_end_and_those_changed_in_place_do_not() {
        let found = flags(
            "block0:
                v0:r32 = a : read
                v0 = b v0
                add inout v0, v0
                use v0 : write
                exit : exit",
        );
        assert_eq!(found[1], [READ_LATER, (true, true)]);
        assert_eq!(found[2], [READ_LATER, READ_LATER]);
    }

    #[test]
    fn what_is_passed_on_lives_on() {
        let found = flags(
            "block0:
                v0:r32 = a : read
                use v0 : write
                bra -> block1(v0)
            block1(v1:r32):
                use v1 : write
                exit : exit",
        );
        assert_eq!(found[1], [READ_LATER]);
        assert_eq!(found[3], [ENDS]);
    }
}
