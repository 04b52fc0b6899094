//! A function on its way from statements to the model: blocks of instructions that can
//! still be added to.

use super::Code;
use super::alias::Addressing;
use super::async_regs::Flight;
use crate::opcode::Width;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use warpalloc::function::{
    Builder, Clobbers, Convention, Effect, Function, Kind, Operand, OperandGroup, VReg,
};
use warpalloc::target::{Class, File, PReg, Target};

/// An instruction.
pub(super) struct DraftInst<'m, 'a> {
    pub opcode: String,
    pub imm: u64,
    pub effect: Effect,
    pub kind: Kind,
    pub remat: Option<u8>,
    pub operands: SmallVec<[Operand; 4]>,
    pub groups: SmallVec<[OperandGroup; 1]>,
    pub flight: Flight,
    pub addressing: Addressing,
    pub code: Code<'m, 'a>,
}

/// A block; its last instruction ends it once it is complete.
#[derive(Default)]
pub(super) struct DraftBlock<'m, 'a> {
    pub insts: Vec<DraftInst<'m, 'a>>,
    pub succs: Vec<u32>,
}

/// A virtual register.
#[derive(Clone, Copy)]
pub(super) struct DraftReg {
    pub width: Width,
    pub pinned: bool,
}

/// A function being put together.
#[derive(Default)]
pub(super) struct Draft<'m, 'a> {
    pub blocks: Vec<DraftBlock<'m, 'a>>,
    pub regs: Vec<DraftReg>,
}

/// Where an undefined value must be made: in front of an instruction of a block.
type Placement = (u32, u32, VReg);

impl<'m, 'a> Draft<'m, 'a> {
    /// What each instruction says about addresses, in the order of the model.
    pub fn addressing(&self) -> Vec<Addressing> {
        let insts = self.blocks.iter().flat_map(|block| &block.insts);
        insts.map(|inst| inst.addressing).collect()
    }

    /// The code of each instruction, in the order of the model.
    pub fn into_codes(self) -> Vec<Code<'m, 'a>> {
        let insts = self.blocks.into_iter().flat_map(|block| block.insts);
        insts.map(|inst| inst.code).collect()
    }

    /// The function of the model.
    pub fn build(&self, name: &str, target: &Target) -> Function {
        let mut builder = Builder::new(name);
        let across_calls = builder.reg_list(scarce_across_calls(target));
        // Registers of PTX are private to a function, device functions included: what a
        // call preserves is between ptxas and the hardware.
        builder.convention(Convention::Kernel);
        for reg in &self.regs {
            let vreg = builder.vreg(class_of(reg.width));
            if reg.pinned {
                builder.pin(vreg);
            }
        }
        let blocks: Vec<_> = self.blocks.iter().map(|_| builder.block()).collect();
        for (block, draft) in blocks.iter().zip(&self.blocks) {
            for &succ in &draft.succs {
                builder.edge(*block, blocks[succ as usize], &[]);
            }
            for inst in &draft.insts {
                let mut built = builder
                    .inst(*block, &inst.opcode)
                    .imm(inst.imm)
                    .effect(inst.effect)
                    .kind(inst.kind);
                if inst.kind == Kind::Call {
                    built = built.clobbers(Clobbers::List(across_calls));
                }
                if let Some(cycles) = inst.remat {
                    built = built.remat(cycles);
                }
                if inst.code.is_anchored() {
                    built = built.anchored();
                }
                for &operand in &inst.operands {
                    built = built.operand(operand);
                }
                for group in &inst.groups {
                    built = built.group(group.first, group.len, group.align);
                }
            }
        }
        builder.finish()
    }

    /// PTX lets a register be read that was written on some paths only, or on none; a
    /// guarded write reads the old value. The model wants a write on every path, so we make
    /// undefined values, as late as possible:
    /// - right before a read that no write can reach;
    /// - at the end of a block from which no write can come, before a block that expects
    ///   the value and may have it from elsewhere.
    pub fn define_what_may_be_undefined(&mut self) {
        let placements = Undefined::of(self).placements();
        let mut by_block: FxHashMap<u32, Vec<(u32, VReg)>> = FxHashMap::default();
        for (block, at, vreg) in placements {
            by_block.entry(block).or_default().push((at, vreg));
        }
        for (block, mut list) in by_block {
            list.sort_by_key(|&(at, vreg)| (at, vreg));
            let old = std::mem::take(&mut self.blocks[block as usize].insts);
            let insts = &mut self.blocks[block as usize].insts;
            let mut list = list.into_iter().peekable();
            for (at, inst) in old.into_iter().enumerate() {
                while let Some((_, vreg)) = list.next_if(|&(place, _)| place == at as u32) {
                    let before = inst.code.at;
                    insts.push(undef(vreg, Code::nothing(before)));
                }
                insts.push(inst);
            }
        }
    }
}

/// The registers that count as overwritten by a call.
///
/// A call of PTX overwrites no register of PTX, since arguments and results travel in
/// `.param` space and ptxas alone meets the calling convention, in registers that it chooses
/// again. So this is no matter of right or wrong, as `Clobbers::Abi` is for code whose
/// registers are the hardware's, but of pressure: what lives across a call costs ptxas
/// registers above those that a callee is sure to use. R0 to R23 and the predicates stand
/// for these. To take all that the convention does not preserve would spill whatever lives
/// across a call beyond eight registers, though nothing in PTX overwrites it.
fn scarce_across_calls(target: &Target) -> impl Iterator<Item = PReg> {
    let whole = |file: File, registers: usize| {
        let per_register = target.file(file).units_per_reg;
        (0..registers).map(move |number| PReg::new(file, number * per_register))
    };
    whole(File::R, 24).chain(whole(File::P, target.budget(File::P)))
}

fn undef<'m, 'a>(vreg: VReg, code: Code<'m, 'a>) -> DraftInst<'m, 'a> {
    DraftInst {
        opcode: "undef".to_owned(),
        imm: 0,
        effect: Effect::Pure,
        kind: Kind::Undef,
        remat: None,
        operands: [Operand::writes(vreg)].into_iter().collect(),
        groups: SmallVec::new(),
        flight: Flight::None,
        addressing: Addressing::default(),
        code,
    }
}

/// The class of a register of this width.
pub(super) fn class_of(width: Width) -> Class {
    match width {
        Width::B1 => Class::PRED,
        Width::B16 => Class::R16,
        Width::B32 => Class::R32,
        Width::B64 => Class::R64,
        Width::B128 => Class::R128,
    }
}

/// Finds reads that may come before any write.
struct Undefined {
    preds: Vec<Vec<u32>>,
    succs: Vec<Vec<u32>>,
    /// How many instructions each block has.
    lengths: Vec<u32>,
    /// The first read of a value its block has not written: value, block, instruction.
    exposed: Vec<(VReg, u32, u32)>,
    /// Blocks that write a value: value, block.
    written: Vec<(VReg, u32)>,
    values: usize,
}

impl Undefined {
    fn of(draft: &Draft) -> Undefined {
        let count = draft.blocks.len();
        let mut preds = vec![Vec::new(); count];
        let mut exposed = Vec::new();
        let mut written = Vec::new();
        let mut last_exposed = vec![u32::MAX; draft.regs.len()];
        let mut last_written = vec![u32::MAX; draft.regs.len()];
        for (index, block) in draft.blocks.iter().enumerate() {
            let block_number = index as u32;
            for &succ in &block.succs {
                preds[succ as usize].push(block_number);
            }
            for (at, inst) in block.insts.iter().enumerate() {
                for operand in inst.operands.iter().filter(|o| o.role.reads()) {
                    let value = operand.vreg.as_u32() as usize;
                    if last_written[value] != block_number && last_exposed[value] != block_number {
                        last_exposed[value] = block_number;
                        exposed.push((operand.vreg, block_number, at as u32));
                    }
                }
                for operand in inst.operands.iter().filter(|o| o.role.writes()) {
                    let value = operand.vreg.as_u32() as usize;
                    if last_written[value] != block_number {
                        last_written[value] = block_number;
                        written.push((operand.vreg, block_number));
                    }
                }
            }
        }
        exposed.sort_unstable();
        written.sort_unstable();
        Undefined {
            preds,
            succs: draft.blocks.iter().map(|b| b.succs.clone()).collect(),
            lengths: draft.blocks.iter().map(|b| b.insts.len() as u32).collect(),
            exposed,
            written,
            values: draft.regs.len(),
        }
    }

    fn placements(&self) -> Vec<Placement> {
        let mut out = Vec::new();
        let mut live = Marks::new(self.preds.len());
        let mut may = Marks::new(self.preds.len());
        let (mut e, mut w) = (0, 0);
        for value in 0..self.values as u32 {
            let value = VReg::from_u32(value);
            let exposed = run(&self.exposed, &mut e, |x| x.0 == value);
            let written = run(&self.written, &mut w, |x| x.0 == value);
            if !exposed.is_empty() && self.reaches_entry(exposed, written, &mut live) {
                self.place(value, exposed, written, &live, &mut may, &mut out);
            }
        }
        out
    }

    /// Marks the blocks the value is live into, and tells whether the entry is one.
    fn reaches_entry(
        &self,
        exposed: &[(VReg, u32, u32)],
        written: &[(VReg, u32)],
        live: &mut Marks,
    ) -> bool {
        live.clear();
        let mut stack: Vec<u32> = exposed.iter().map(|x| x.1).collect();
        while let Some(block) = stack.pop() {
            if live.mark(block) {
                let writes = |p: &u32| written.binary_search_by_key(p, |x| x.1).is_ok();
                stack.extend(self.preds[block as usize].iter().filter(|p| !writes(p)));
            }
        }
        live.has(0)
    }

    fn place(
        &self,
        value: VReg,
        exposed: &[(VReg, u32, u32)],
        written: &[(VReg, u32)],
        live: &Marks,
        may: &mut Marks,
        out: &mut Vec<Placement>,
    ) {
        // Blocks into which some write may come.
        may.clear();
        let mut stack: Vec<u32> = Vec::new();
        for &(_, block) in written {
            stack.extend(&self.succs[block as usize]);
        }
        while let Some(block) = stack.pop() {
            if may.mark(block) {
                stack.extend(&self.succs[block as usize]);
            }
        }
        let writes = |block: u32| written.binary_search_by_key(&block, |x| x.1).is_ok();
        let mut made: Vec<u32> = Vec::new();
        for &(_, block, at) in exposed {
            if !may.has(block) {
                out.push((block, at, value));
                made.push(block);
            }
        }
        for &block in live.list.iter().filter(|&&block| may.has(block)) {
            for &pred in &self.preds[block as usize] {
                let arrives = writes(pred) || may.has(pred);
                if !arrives && !made.contains(&pred) {
                    out.push((pred, self.lengths[pred as usize] - 1, value));
                    made.push(pred);
                }
            }
        }
    }
}

/// The elements from `*at` on that belong together; moves `*at` behind them.
fn run<'s, T>(list: &'s [T], at: &mut usize, belongs: impl Fn(&T) -> bool) -> &'s [T] {
    let start = *at;
    while list.get(*at).is_some_and(&belongs) {
        *at += 1;
    }
    &list[start..*at]
}

/// A set of blocks that is cheap to empty.
struct Marks {
    stamp: Vec<u32>,
    now: u32,
    list: Vec<u32>,
}

impl Marks {
    fn new(blocks: usize) -> Marks {
        Marks {
            stamp: vec![0; blocks],
            now: 0,
            list: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.now += 1;
        self.list.clear();
    }

    /// Adds a block; false where it was there already.
    fn mark(&mut self, block: u32) -> bool {
        let stamp = &mut self.stamp[block as usize];
        let new = *stamp != self.now;
        if new {
            *stamp = self.now;
            self.list.push(block);
        }
        new
    }

    fn has(&self, block: u32) -> bool {
        self.stamp[block as usize] == self.now && self.now > 0
    }
}
