//! Typed indices into a function.

use cranelift_entity::entity_impl;

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VReg(u32);
entity_impl!(VReg, "v");

/// A basic block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u32);
entity_impl!(Block, "block");

impl Block {
    /// A block that no function has.
    pub const NONE: Block = Block(u32::MAX);
}

/// An instruction; numbers ascend in code order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(u32);
entity_impl!(Inst, "inst");

impl Inst {
    /// An instruction that no function has.
    pub const NONE: Inst = Inst(u32::MAX);
}

/// An interned opcode name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(u32);
entity_impl!(Opcode, "op");

impl Opcode {
    /// An opcode that no function has.
    pub const NONE: Opcode = Opcode(u32::MAX);
}

/// A list of registers kept by a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegList(u32);
entity_impl!(RegList, "regs");
