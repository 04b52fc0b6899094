//! regalloc2.

use crate::code::{Code, Item, Place};
use crate::function::{Func, Kind};
use anyhow::{Result, anyhow, bail};
use regalloc2::{
    Algorithm, Allocation, Block, Edit, Function, Inst, InstOrEdit, InstRange, MachineEnv, Operand,
    Output, PReg, PRegSet, RegClass, RegallocOptions, VReg,
};

/// The registers that one class can have.
pub const MOST_REGISTERS: usize = PReg::MAX + 1;

pub struct Job {
    f: Wrapped,
    env: MachineEnv,
}

struct BlockInfo {
    insts: InstRange,
    succs: Vec<Block>,
    preds: Vec<Block>,
    params: Vec<VReg>,
    args: Vec<VReg>,
}

struct Wrapped {
    blocks: Vec<BlockInfo>,
    kinds: Vec<Kind>,
    starts: Vec<u32>,
    operands: Vec<Operand>,
    vals: usize,
}

fn vreg(v: u32) -> VReg {
    VReg::new(v as usize, RegClass::Int)
}

impl Job {
    pub fn new(f: &Func, k: usize) -> Job {
        let block = |b: &u32| Block::new(*b as usize);
        let blocks = f.blocks.iter().map(|info| BlockInfo {
            insts: InstRange::new(
                Inst::new(info.insts.start as usize),
                Inst::new(info.insts.end as usize),
            ),
            succs: info.succs.iter().map(block).collect(),
            preds: info.preds.iter().map(block).collect(),
            params: info.params.iter().map(|&v| vreg(v)).collect(),
            args: info.args.iter().map(|&v| vreg(v)).collect(),
        });
        let (mut starts, mut operands) = (Vec::new(), Vec::new());
        for inst in &f.insts {
            starts.push(operands.len() as u32);
            operands.extend(inst.defs.iter().map(|&v| Operand::reg_def(vreg(v))));
            operands.extend(inst.uses.iter().map(|&v| Operand::reg_use(vreg(v))));
        }
        starts.push(operands.len() as u32);
        let mut regs = PRegSet::empty();
        (0..k).for_each(|r| regs.add(PReg::new(r, RegClass::Int)));
        Job {
            f: Wrapped {
                blocks: blocks.collect(),
                kinds: f.insts.iter().map(|i| i.kind).collect(),
                starts,
                operands,
                vals: f.vals as usize,
            },
            // Everyone has the same K, so no register is set aside as scratch.
            env: MachineEnv {
                preferred_regs_by_class: [regs, PRegSet::empty(), PRegSet::empty()],
                non_preferred_regs_by_class: [PRegSet::empty(); 3],
                scratch_by_class: [None; 3],
                fixed_stack_slots: vec![],
            },
        }
    }

    pub fn run(&self, algorithm: Algorithm) -> Result<Output> {
        let options = RegallocOptions {
            verbose_log: false,
            validate_ssa: false,
            algorithm,
        };
        regalloc2::run(&self.f, &self.env, &options).map_err(|e| anyhow!("{e}"))
    }

    pub fn code(&self, f: &Func, algorithm: Algorithm) -> Result<Code> {
        let output = self.run(algorithm)?;
        let mut blocks = Vec::new();
        for b in 0..f.blocks.len() {
            let mut items = Vec::new();
            for item in output.block_insts_and_edits(&self.f, Block::new(b)) {
                match item {
                    InstOrEdit::Inst(inst) => {
                        let places = output.inst_allocs(inst).iter().map(|&a| place(a));
                        items.push(Item::Inst {
                            inst: inst.index() as u32,
                            places: places.collect::<Result<_>>()?,
                        });
                    }
                    InstOrEdit::Edit(&Edit::Move { from, to }) if from != to => {
                        let (to, from) = (place(to)?, place(from)?);
                        items.push(Item::Move { to, from });
                    }
                    InstOrEdit::Edit(_) => {}
                }
            }
            blocks.push(items);
        }
        Ok(Code { blocks })
    }
}

fn place(a: Allocation) -> Result<Place> {
    if let Some(reg) = a.as_reg() {
        return Ok(Place::Reg(reg.hw_enc() as u16));
    }
    match a.as_stack() {
        Some(slot) => Ok(Place::Slot(slot.index() as u32)),
        None => bail!("an operand without a place"),
    }
}

impl Function for Wrapped {
    fn num_insts(&self) -> usize {
        self.kinds.len()
    }

    fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn entry_block(&self) -> Block {
        Block::new(0)
    }

    fn block_insns(&self, block: Block) -> InstRange {
        self.blocks[block.index()].insts
    }

    fn block_succs(&self, block: Block) -> &[Block] {
        &self.blocks[block.index()].succs
    }

    fn block_preds(&self, block: Block) -> &[Block] {
        &self.blocks[block.index()].preds
    }

    fn block_params(&self, block: Block) -> &[VReg] {
        &self.blocks[block.index()].params
    }

    fn is_ret(&self, insn: Inst) -> bool {
        self.kinds[insn.index()] == Kind::Ret
    }

    fn is_branch(&self, insn: Inst) -> bool {
        matches!(self.kinds[insn.index()], Kind::Branch | Kind::Jump)
    }

    fn branch_blockparams(&self, block: Block, _: Inst, _: usize) -> &[VReg] {
        &self.blocks[block.index()].args
    }

    fn inst_operands(&self, insn: Inst) -> &[Operand] {
        let i = insn.index();
        &self.operands[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    fn inst_clobbers(&self, _: Inst) -> PRegSet {
        PRegSet::empty()
    }

    fn num_vregs(&self) -> usize {
        self.vals
    }

    fn spillslot_size(&self, _: RegClass) -> usize {
        1
    }
}
