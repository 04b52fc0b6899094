//! From regalloc2's functions to those of warpalloc.

use crate::machine::Machine;
use regalloc2::fuzzing::func::Func;
use regalloc2::{Function as _, OperandConstraint, OperandKind, OperandPos};
use warpalloc::function::{
    Block, Builder, Clobbers, Constraint, Effect, Function, Operand, Role, VReg,
};
use warpalloc::target::PReg;

/// `func` in the model of warpalloc. Payloads are regalloc2's numbers of instructions.
///
/// Three things are said in another way. An entry that is branched back to gets a block in
/// front of it. An operand in a register that is never allocated is left out: where it is, is
/// no question. An operand in a fixed stack slot is a store before the instruction or a load
/// behind it, of the client's own.
pub fn translate(func: &Func, machine: &Machine) -> Function {
    let mut translation = Translation {
        func,
        machine,
        builder: Builder::new("fuzzed"),
        vregs: vec![None; func.num_vregs()],
    };
    let entry = translation.builder.block();
    let blocks: Vec<Block> = (0..func.num_blocks())
        .map(|_| translation.builder.block())
        .collect();
    translation.builder.jump(entry, blocks[0], &[]);
    for (number, &block) in blocks.iter().enumerate() {
        translation.block(number, block, &blocks);
    }
    translation.builder.finish()
}

struct Translation<'a> {
    func: &'a Func,
    machine: &'a Machine,
    builder: Builder,
    vregs: Vec<Option<VReg>>,
}

impl Translation<'_> {
    fn vreg(&mut self, vreg: regalloc2::VReg) -> VReg {
        let class = self.machine.class(vreg.class());
        let new = || self.builder.vreg(class);
        *self.vregs[vreg.vreg()].get_or_insert_with(new)
    }

    fn vregs(&mut self, list: &[regalloc2::VReg]) -> Vec<VReg> {
        list.iter().map(|&vreg| self.vreg(vreg)).collect()
    }

    fn block(&mut self, number: usize, block: Block, blocks: &[Block]) {
        let func = self.func;
        let old = regalloc2::Block::new(number);
        for param in self.vregs(func.block_params(old)) {
            self.builder.param(block, param);
        }
        let insts = func.block_insns(old);
        for (position, succ) in func.block_succs(old).iter().enumerate() {
            let args = self.vregs(func.branch_blockparams(old, insts.last(), position));
            self.builder.edge(block, blocks[succ.index()], &args);
        }
        for inst in insts.iter() {
            self.inst(block, inst);
        }
    }

    fn inst(&mut self, block: Block, inst: regalloc2::Inst) {
        let (func, machine) = (self.func, self.machine);
        let clobbers = func.inst_clobbers(inst).into_iter();
        let clobbers: Vec<PReg> = clobbers.filter_map(|reg| machine.reg(reg)).collect();
        let clobbered = self.builder.reg_list(clobbers.iter().copied());
        let mut operands = Vec::new();
        let mut on_stack = Vec::new();
        for operand in func.inst_operands(inst) {
            if operand.as_fixed_nonallocatable().is_some() {
                continue;
            }
            let vreg = self.vreg(operand.vreg());
            let constraint = match operand.constraint() {
                OperandConstraint::FixedReg(reg) => match machine.reg(reg) {
                    Some(reg) => Constraint::Fixed(reg),
                    None => {
                        on_stack.push((operand.kind(), vreg, reg.hw_enc() as u64));
                        continue;
                    }
                },
                OperandConstraint::Reuse(position) => Constraint::Tied(position as u8),
                OperandConstraint::Limit(most) => {
                    let class = machine.class(operand.class());
                    let above = machine.target.registers(class).skip(most);
                    Constraint::Except(self.builder.reg_list(above))
                }
                // A clobbered register holds no result.
                _ if operand.kind() == OperandKind::Def && !clobbers.is_empty() => {
                    Constraint::Except(clobbered)
                }
                // A result that is written early is in a register.
                OperandConstraint::Any if role(operand) == Role::EarlyDef => Constraint::Any,
                OperandConstraint::Any => Constraint::Anywhere,
                OperandConstraint::Stack => Constraint::Memory,
                OperandConstraint::Reg => Constraint::Any,
            };
            operands.push(Operand::with_role(vreg, role(operand)).constrained(constraint));
        }
        let slots = |kind| on_stack.iter().filter(move |(k, ..)| *k == kind);
        for &(_, vreg, slot) in slots(OperandKind::Use) {
            let store = self.builder.inst(block, "store").imm(slot);
            store.effect(Effect::Write).use_(vreg);
        }
        let built = match (func.is_ret(inst), func.is_branch(inst)) {
            (true, _) => self.builder.ret(block, "ret"),
            (_, true) => self.builder.branch(block, "branch"),
            // Nothing is known of it: it keeps its place and is never dead.
            _ => self.builder.inst(block, "op").effect(Effect::Write),
        };
        let number = inst.index() as u32;
        let built = built.payload(number).imm(number.into());
        let built = operands
            .into_iter()
            .fold(built, |built, o| built.operand(o));
        if !clobbers.is_empty() {
            built.clobbers(Clobbers::List(clobbered));
        }
        for &(_, vreg, slot) in slots(OperandKind::Def) {
            let load = self.builder.inst(block, "load").imm(slot);
            load.effect(Effect::Read).def(vreg);
        }
    }
}

fn role(operand: &regalloc2::Operand) -> Role {
    match (operand.kind(), operand.pos()) {
        (OperandKind::Use, _) => Role::Use,
        (OperandKind::Def, OperandPos::Late) => Role::Def,
        (OperandKind::Def, OperandPos::Early) => Role::EarlyDef,
    }
}
