//! What is allocated: blocks with parameters, instructions, operands, virtual registers.
//!
//! A [`Function`] is made by a [`Builder`] and never changes afterwards. It need not be
//! in SSA form: a virtual register may be defined many times. Instructions are numbered
//! in code order, block after block, so that an [`Inst`] is also a program position.
//!
//! Invariants, established by [`Builder::finish`] and [`Function::validate`]:
//! - every block ends in its only terminator and its edges pass one argument per
//!   parameter of the block they lead to;
//! - block 0 is the entry; it has no parameters and no predecessors;
//! - on every path, a virtual register is written before it is read; arguments are written
//!   by the live-in instruction, of which there is at most one, first in the entry;
//! - no instruction writes one virtual register twice.
//!
//! Nothing here panics on what a client passes. A builder that is told of something that does
//! not exist keeps that as a fault, which [`Function::validate`] reports; a function that is
//! asked for a block, an instruction or a virtual register that it does not have describes an
//! empty one: no operands, no successors, no name.

mod alias;
mod builder;
mod entity;
mod memory;
mod operand;
mod rename;
mod table;

pub use alias::{Alias, AliasClass, Base, Extent};
pub use builder::{Builder, Handle, InstBuilder, Insts};
pub use entity::{Block, Inst, Opcode, RegList, VReg};
pub(crate) use memory::Stands;
pub use operand::{Constraint, Operand, OperandGroup, Role};
pub use rename::Renaming;
use table::{Table, Traits};

use crate::target::{Class, PReg, RegSet, Target};
use cranelift_entity::{EntityRef, PrimaryMap};
use std::ops::Range;

/// What a function owes its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Convention {
    /// An entry point, or code whose registers are its own: nothing is preserved.
    #[default]
    Kernel,
    /// A function that is called: preserved registers hold their old values at each return.
    Device,
}

/// What an instruction observes or changes besides its operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing: equal inputs give equal results.
    #[default]
    Pure,
    /// It reads state that a [`Effect::Write`] may change.
    Read,
    /// It changes state or is observable: stores, atomics, barriers, volatile accesses, calls.
    Write,
}

/// What allocation needs to know about an instruction's meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: its meaning is the client's business.
    #[default]
    Plain,
    /// Its results, laid end to end, equal its inputs, laid end to end. A move, and where
    /// the widths add up, packing and unpacking.
    Copy,
    /// Its results have unspecified contents; it needs no code.
    Undef,
    /// Its results, each in a fixed register, are there when the function is entered; it
    /// needs no code. [`Builder::live_in`] makes it, and it is the entry's first instruction.
    LiveIn,
    /// It calls a function; what that overwrites is in its clobbers.
    Call,
    /// It ends a block and goes to the successors.
    Branch,
    /// It ends a block and returns to the caller.
    Return,
    /// It ends a block and the thread.
    Exit,
}

impl Kind {
    /// Whether an instruction of this kind ends its block.
    pub fn is_terminator(self) -> bool {
        matches!(self, Kind::Branch | Kind::Return | Kind::Exit)
    }
}

/// Registers an instruction overwrites besides its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clobbers {
    /// None.
    #[default]
    None,
    /// All registers that the target's calling convention does not preserve.
    Abi,
    /// A list of whole registers.
    List(RegList),
}

/// A virtual register.
#[derive(Clone, Debug, PartialEq)]
pub struct VRegInfo {
    /// What kind of register it needs.
    pub class: Class,
    /// All threads of a warp hold the same value.
    pub uniform: bool,
    /// It may never be moved, stored or reloaded while it is live, because the hardware
    /// writes it at a time of its own choosing.
    pub pinned: bool,
    /// A register that the client would like it to be in. It is where that costs nothing.
    pub hint: Option<PReg>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct InstInfo {
    /// What it does, as an opaque name.
    pub opcode: Opcode,
    /// Distinguishes it from others of the same opcode: immediates, symbols.
    pub imm: u64,
    /// What it observes or changes.
    pub effect: Effect,
    /// The state that it observes or changes, where it has an effect.
    pub alias: AliasClass,
    /// What allocation knows of its meaning.
    pub kind: Kind,
    /// Cycles to execute it again, where that is allowed anywhere its inputs are at hand.
    pub remat: Option<u8>,
    /// Registers it overwrites.
    pub clobbers: Clobbers,
    /// It keeps its place in its block, because it means something only there, as in the
    /// scope that declares what it names.
    pub anchored: bool,
    /// A number of the client's, of no meaning here.
    pub payload: u32,
    operands: Range<u32>,
    groups: Range<u32>,
    is_free: bool,
}

impl InstInfo {
    /// Of an instruction that does not exist, and of one of which nothing is said yet.
    const NONE: InstInfo = InstInfo {
        opcode: Opcode::NONE,
        imm: 0,
        effect: Effect::Pure,
        alias: AliasClass::ANY,
        kind: Kind::Plain,
        remat: None,
        clobbers: Clobbers::None,
        anchored: false,
        payload: 0,
        operands: 0..0,
        groups: 0..0,
        is_free: true,
    };
}

impl VRegInfo {
    /// Of a virtual register that does not exist; no target has its class.
    const NONE: VRegInfo = VRegInfo {
        class: Class::new(u8::MAX as usize),
        uniform: false,
        pinned: false,
        hint: None,
    };
}

impl BlockInfo {
    /// Of a block that does not exist.
    const NONE: BlockInfo = BlockInfo {
        params: Vec::new(),
        succs: Vec::new(),
        frequency: None,
        insts: 0..0,
        preds: Vec::new(),
    };
}

/// A way from one block to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where it leads.
    pub block: Block,
    /// One value for each parameter of that block.
    pub args: Vec<VReg>,
}

/// A basic block.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockInfo {
    /// Virtual registers that each incoming edge gives a value.
    pub params: Vec<VReg>,
    /// Edges to other blocks, in the terminator's order.
    pub succs: Vec<Edge>,
    /// How often it runs, where the client knows; the entry runs once.
    pub frequency: Option<f32>,
    insts: Range<u32>,
    preds: Vec<Block>,
}

/// A function to allocate registers for.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    name: String,
    convention: Convention,
    blocks: PrimaryMap<Block, BlockInfo>,
    insts: PrimaryMap<Inst, InstInfo>,
    block_of: Vec<Block>,
    operands: Vec<Operand>,
    groups: Vec<OperandGroup>,
    vregs: PrimaryMap<VReg, VRegInfo>,
    opcodes: PrimaryMap<Opcode, String>,
    reg_lists: PrimaryMap<RegList, Vec<PReg>>,
    aliases: PrimaryMap<AliasClass, Alias>,
    fault: Option<String>,
    table: Table,
}

impl Function {
    /// What its builder was told and could not do, if anything.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it owes its caller.
    pub fn convention(&self) -> Convention {
        self.convention
    }

    /// The block where execution starts.
    pub fn entry(&self) -> Block {
        Block::new(0)
    }

    /// All blocks in code order.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = Block> + ExactSizeIterator + use<> {
        (0..self.blocks.len()).map(Block::new)
    }

    /// How many blocks there are.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The description of `block`.
    pub fn block(&self, block: Block) -> &BlockInfo {
        const NONE: &BlockInfo = &BlockInfo::NONE;
        self.blocks.get(block).unwrap_or(NONE)
    }

    /// Edges that leave `block`.
    pub fn succs(&self, block: Block) -> &[Edge] {
        &self.block(block).succs
    }

    /// Where the edges of `block` lead, in the terminator's order.
    #[inline]
    pub(crate) fn succ_blocks(&self, block: Block) -> &[Block] {
        self.table.succs(block)
    }

    /// Blocks with an edge to `block`, once per edge, in ascending order.
    pub fn preds(&self, block: Block) -> &[Block] {
        self.table.preds(block)
    }

    /// The instructions of `block` in code order.
    pub fn block_insts(
        &self,
        block: Block,
    ) -> impl DoubleEndedIterator<Item = Inst> + ExactSizeIterator + use<> {
        self.table.insts(block).map(Inst::new)
    }

    /// The instruction that ends `block`; [`Inst::NONE`] if that has none.
    pub fn terminator(&self, block: Block) -> Inst {
        let range = self.table.insts(block);
        match range.is_empty() {
            true => Inst::NONE,
            false => Inst::new(range.end - 1),
        }
    }

    /// All instructions in code order.
    pub fn insts(&self) -> impl DoubleEndedIterator<Item = Inst> + ExactSizeIterator + use<> {
        (0..self.insts.len()).map(Inst::new)
    }

    /// How many instructions there are.
    pub fn inst_count(&self) -> usize {
        self.insts.len()
    }

    /// The description of `inst`.
    pub fn inst(&self, inst: Inst) -> &InstInfo {
        const NONE: &InstInfo = &InstInfo::NONE;
        self.insts.get(inst).unwrap_or(NONE)
    }

    /// The block that holds `inst`; [`Block::NONE`] if there is no such instruction.
    pub fn block_of(&self, inst: Inst) -> Block {
        let block = self.block_of.get(inst.index());
        block.copied().unwrap_or(Block::NONE)
    }

    /// The name of an opcode; empty if there is no such opcode.
    pub fn opcode_name(&self, opcode: Opcode) -> &str {
        self.opcodes.get(opcode).map_or("", String::as_str)
    }

    /// The operands of `inst`, in the client's order.
    pub fn operands(&self, inst: Inst) -> &[Operand] {
        &self.operands[self.operand_range(inst)]
    }

    /// Where the operands of `inst` stand in the row of all operands.
    pub fn operand_range(&self, inst: Inst) -> Range<usize> {
        self.table.operands(inst)
    }

    /// How many operands all instructions have together.
    pub fn operand_count(&self) -> usize {
        self.operands.len()
    }

    /// Runs of operands of `inst` that need consecutive registers.
    pub fn groups(&self, inst: Inst) -> &[OperandGroup] {
        let range = &self.inst(inst).groups;
        &self.groups[range.start as usize..range.end as usize]
    }

    /// Whether each operand of `inst` may be anywhere: no constraint, no group, and no result
    /// that is written early.
    pub fn is_free(&self, inst: Inst) -> bool {
        self.table.traits(inst).is_free()
    }

    /// What is asked of `inst` most often.
    #[inline]
    pub(crate) fn traits(&self, inst: Inst) -> Traits {
        self.table.traits(inst)
    }

    /// The class of `vreg`.
    #[inline]
    pub(crate) fn class(&self, vreg: VReg) -> Class {
        self.table.class(vreg)
    }

    /// Whether some virtual register is pinned.
    pub(crate) fn has_pinned(&self) -> bool {
        self.table.has_pinned
    }

    /// Whether the client would like some virtual register to be in a particular register.
    pub(crate) fn has_hints(&self) -> bool {
        self.table.has_hints
    }

    /// All virtual registers.
    pub fn vregs(&self) -> impl ExactSizeIterator<Item = VReg> + use<> {
        (0..self.vregs.len()).map(VReg::new)
    }

    /// How many virtual registers there are.
    pub fn vreg_count(&self) -> usize {
        self.vregs.len()
    }

    /// The description of `vreg`.
    pub fn vreg(&self, vreg: VReg) -> &VRegInfo {
        const NONE: &VRegInfo = &VRegInfo::NONE;
        self.vregs.get(vreg).unwrap_or(NONE)
    }

    /// Virtual registers that hold a value when the function is entered, and where.
    pub fn live_ins(&self) -> impl Iterator<Item = (VReg, PReg)> + '_ {
        let inst = self.live_in_inst();
        let operands = inst.map_or(&[][..], |inst| self.operands(inst));
        operands.iter().filter_map(|o| match o.constraint {
            Constraint::Fixed(reg) => Some((o.vreg, reg)),
            _ => None,
        })
    }

    /// The instruction that stands for what is live into the function, if anything is.
    pub fn live_in_inst(&self) -> Option<Inst> {
        let first = self.insts.iter().next();
        let (inst, _) = first.filter(|(_, info)| info.kind == Kind::LiveIn)?;
        Some(inst)
    }

    /// Whether nothing may change sides with `inst`. What it demands of registers holds at
    /// its place: code from below, moved above it, could occupy or overwrite a register that
    /// a fixed operand or a clobber names, such as an argument that has just come in. An
    /// anchored instruction stays where it is.
    pub fn is_barrier(&self, inst: Inst) -> bool {
        let info = self.inst(inst);
        let is_fixed = |o: &Operand| matches!(o.constraint, Constraint::Fixed(_));
        info.anchored
            || info.clobbers != Clobbers::None
            || info.kind.is_terminator()
            || !info.is_free && self.operands(inst).iter().any(is_fixed)
    }

    /// The registers of a list; none if there is no such list.
    pub fn reg_list(&self, list: RegList) -> &[PReg] {
        self.known_reg_list(list).unwrap_or(&[])
    }

    /// The registers of a list, if there is such a list.
    pub(crate) fn known_reg_list(&self, list: RegList) -> Option<&[PReg]> {
        self.reg_lists.get(list).map(Vec::as_slice)
    }

    /// The units of `target` that `inst` overwrites besides its results.
    pub fn clobbers(&self, target: &Target, inst: Inst) -> RegSet {
        match self.inst(inst).clobbers {
            Clobbers::None => RegSet::new(target),
            Clobbers::Abi => target.clobbered(),
            Clobbers::List(list) => {
                RegSet::of_registers(target, self.reg_list(list).iter().copied())
            }
        }
    }
}
