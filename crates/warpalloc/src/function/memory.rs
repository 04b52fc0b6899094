//! Functions whose operands are all in registers, made of functions with some in memory.
//!
//! An input in memory becomes a *store* right before its instruction, a result in memory a
//! *load* right after it, and an argument in memory a load that may be made again anywhere.
//! Stores and loads keep their places, so that no other operand is in memory between one and
//! its instruction: all instructions use the same slots.

use super::table::Table;
use super::{
    AliasClass, Clobbers, Constraint, Effect, Function, Inst, InstInfo, Kind, Opcode, Operand,
    OperandGroup,
};
use cranelift_entity::PrimaryMap;
use smallvec::SmallVec;

/// What an instruction of the new function stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// An instruction of the old one.
    For(Inst),
    /// Puts the input of this instruction at this position into memory.
    Store(Inst, usize),
    /// Gets the result of this instruction at this position from memory.
    Load(Inst, usize),
    /// Gets the argument that is the result at this position from memory.
    Argument(Inst, usize, u32),
}

impl Function {
    /// Whether some operand may be in memory.
    pub(crate) fn has_memory_operands(&self) -> bool {
        let constrained = self.insts().filter(|&inst| !self.is_free(inst));
        let mut operands = constrained.flat_map(|inst| self.operands(inst));
        operands.any(|operand| operand.constraint.allows_memory())
    }

    /// This function with the operands in memory taken out of their instructions, and what
    /// each of its instructions stands for. `in_memory` says which they are, `argument_cycles`
    /// what it costs to reload an argument.
    pub(crate) fn without_memory_operands(
        &self,
        in_memory: impl Fn(Inst, usize) -> bool,
        argument_cycles: u8,
    ) -> (Function, Vec<Stands>) {
        let mut new = self.clone();
        let mut opcode = |name: &str| new.opcodes.push(name.to_owned());
        let (store, load) = (opcode("to_memory"), opcode("from_memory"));
        new.insts = PrimaryMap::with_capacity(self.insts.len());
        new.operands.clear();
        new.groups.clear();
        new.block_of.clear();
        let mut stands = Vec::with_capacity(self.insts.len());
        for block in self.blocks() {
            let first = new.insts.len() as u32;
            for inst in self.block_insts(block) {
                let operands = self.operands(inst);
                let is_out = |at: &usize| in_memory(inst, *at);
                let out: SmallVec<[usize; 4]> = (0..operands.len()).filter(is_out).collect();
                for &at in out.iter().filter(|&&at| operands[at].role.reads()) {
                    let stored = Operand::reads(operands[at].vreg);
                    new.push_step(self.step_of(inst, store), stored);
                    stands.push(Stands::Store(inst, at));
                }
                new.push_kept(self, inst, &out);
                stands.push(Stands::For(inst));
                for &at in out.iter().filter(|&&at| operands[at].role.writes()) {
                    let loaded = Operand::writes(operands[at].vreg);
                    let step = self.step_of(inst, load);
                    match operands[at].constraint {
                        Constraint::Argument(offset) => {
                            let step = InstInfo {
                                effect: Effect::Pure,
                                anchored: false,
                                remat: Some(argument_cycles),
                                imm: u64::from(offset),
                                ..step
                            };
                            new.push_step(step, loaded);
                            stands.push(Stands::Argument(inst, at, offset));
                        }
                        _ => {
                            new.push_step(step, loaded);
                            stands.push(Stands::Load(inst, at));
                        }
                    }
                }
            }
            let end = new.insts.len() as u32;
            new.block_of.resize(end as usize, block);
            new.blocks[block].insts = first..end;
        }
        new.table = Table::of(&new.insts, &new.vregs, &new.blocks);
        (new, stands)
    }

    /// A step that keeps its place beside `inst`.
    fn step_of(&self, inst: Inst, opcode: Opcode) -> InstInfo {
        InstInfo {
            opcode,
            imm: 0,
            effect: Effect::Write,
            alias: AliasClass::ANY,
            kind: Kind::Plain,
            remat: None,
            clobbers: Clobbers::None,
            anchored: true,
            ..self.insts[inst].clone()
        }
    }

    fn push_step(&mut self, mut info: InstInfo, operand: Operand) {
        let (start, groups) = (self.operands.len() as u32, self.groups.len() as u32);
        self.operands.push(operand);
        info.operands = start..start + 1;
        info.groups = groups..groups;
        info.is_free = true;
        self.insts.push(info);
    }

    /// Adds `inst` of `old` without the operands at `out`.
    fn push_kept(&mut self, old: &Function, inst: Inst, out: &[usize]) {
        let position = |at: usize| at - out.iter().filter(|&&gone| gone < at).count();
        let (start, groups) = (self.operands.len() as u32, self.groups.len() as u32);
        let operands = old.operands(inst).iter().enumerate();
        for (_, operand) in operands.filter(|(at, _)| !out.contains(at)) {
            let constraint = match operand.constraint {
                Constraint::Tied(to) => Constraint::Tied(position(usize::from(to)) as u8),
                Constraint::Anywhere => Constraint::Any,
                other => other,
            };
            self.operands.push(operand.constrained(constraint));
        }
        for group in old.groups(inst) {
            let first = position(usize::from(group.first)) as u8;
            self.groups.push(OperandGroup { first, ..*group });
        }
        let end = self.operands.len() as u32;
        let own = &self.operands[start as usize..];
        let mut info = old.insts[inst].clone();
        info.groups = groups..self.groups.len() as u32;
        info.is_free = info.groups.is_empty() && own.iter().all(Operand::is_free);
        info.operands = start..end;
        if !out.is_empty() {
            info.remat = None;
        }
        self.insts.push(info);
    }

    /// Bytes of arguments that the caller leaves in memory.
    pub(crate) fn argument_bytes(&self, target: &crate::target::Target) -> u32 {
        let inst = self.live_in_inst();
        let operands = inst.map_or(&[][..], |inst| self.operands(inst));
        let ends = operands.iter().filter_map(|o| match o.constraint {
            Constraint::Argument(offset) => {
                Some(offset + target.spill_bytes(self.vreg(o.vreg).class))
            }
            _ => None,
        });
        ends.max().unwrap_or(0)
    }
}
